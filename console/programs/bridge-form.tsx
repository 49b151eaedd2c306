/** The form of a bridge: a new one, or one that is changed. What is stored sealed is not shown, and kept where it is left empty. */
import { useState } from 'preact/hooks';
import { change, make, readOne } from '../app/entities.ts';
import type { FieldsOf } from '../parts/forms/fields.tsx';
import { Button, Field, type Values } from '../parts/forms/form.tsx';
import { creating, Once, type Verb } from '../parts/lists/verbs.tsx';
import { texts } from '../texts.ts';

const words = texts.bridges;
export const readBridge = (id: string) => readOne('bridge', id);
export type Bridge = Awaited<ReturnType<typeof readBridge>>;
const kinds = ['webhook', 'nats', 'kafka', 'kinesis', 'mqtt'] as const;
type Kind = (typeof kinds)[number];
/** The settings of each kind besides its address. */
const settingsOf: Record<Kind, readonly string[]> = {
  webhook: [],
  nats: ['subjectPrefix'],
  kafka: ['topic', 'brokers', 'mechanism'],
  kinesis: ['stream', 'region'],
  mqtt: ['prefix', 'clientId'],
};
const credentialsOf: Record<Kind, readonly string[]> = {
  webhook: [],
  nats: ['username', 'password', 'token'],
  kafka: ['username', 'password'],
  kinesis: ['accessKeyId', 'secretAccessKey'],
  mqtt: ['username', 'password'],
};

/** What a webhook may have. */
const maxHeaders = 10;

/** The values of some fields, by the part of their names after the prefix. */
function partOf(values: Values, prefix: string): Record<string, string> {
  const own = Object.entries(values).filter(([name]) => name.startsWith(prefix));
  return Object.fromEntries(own.map(([name, value]) => [name.slice(prefix.length), value]));
}

const isSecret = (name: string) => /password|token|secret/i.test(name);

/** Of a new bridge, or of one that there is. */
function fieldsOf(of?: Bridge): FieldsOf {
  return (values) => {
    const kind = (of?.kind ?? values.kind) as Kind;
    const hint = of?.urlHasHiddenPart ? words.hiddenPart : undefined;
    const kept = of && words.kept;
    return [
      !of && <p class="soft">{words.hint}</p>,
      { name: 'name', label: texts.name, required: true },
      !of && {
        name: 'kind',
        label: texts.kind,
        options: kinds.map((one) => [one, words.kinds[one]] as const),
      },
      { name: 'url', label: texts.address, required: true, placeholder: words.examples[kind], hint },
      kind === 'webhook' && <Headers of={of?.headers ?? []} />,
      ...settingsOf[kind].map((name) => ({ name: `setting.${name}`, label: name, required: kind === 'kinesis' })),
      ...credentialsOf[kind].map((name) => ({
        ...{ name: `credential.${name}`, label: name, type: isSecret(name) ? 'password' : 'text' },
        ...{ autoComplete: 'off', placeholder: kept },
      })),
      { name: 'ca', label: words.ca, isLong: true, hint: words.caHint },
    ];
  };
}

/** What bridges of its kind have besides a name, an address and a CA. */
function ownOf({ headers, ...values }: Values) {
  if (headers !== undefined) return { headers: JSON.parse(headers) as { name: string; value?: string }[] };
  return { settings: partOf(values, 'setting.'), credentials: partOf(values, 'credential.') };
}

export const newBridge = creating(texts.programs.new.bridges, {
  values: { kind: 'webhook' },
  fields: fieldsOf(),
  save: async ({ name = '', kind, url = '', ca, ...own }) => {
    const { secret } = await make('bridge', { name, kind: kind as Kind, url, ca, ...ownOf(own) });
    return secret ? { note: <Once says={texts.tokenOnce} label={texts.token} text={secret} /> } : undefined;
  },
});

export function editing(of: Bridge): Verb {
  const settings = Object.entries(of.settings).map(([name, value]) => [`setting.${name}`, value]);
  const save = async ({ name = '', url = '', ca, ...values }: Values) => {
    const { credentials, ...own } = { credentials: {}, ...ownOf(values) };
    const more = Object.keys(credentials).length > 0 ? { credentials } : {};
    await change('bridge', of, { name, url, ca: ca ?? null, ...own, ...more });
  };
  const values = { ...of, ...Object.fromEntries(settings) };
  return { text: texts.edit, form: { title: texts.verbOf(texts.edit, of.name), fields: fieldsOf(of), values, save } };
}

/** A header while it is edited; `stored` is the name under which a value is stored. `key` stays when others go. */
interface Line {
  key: number;
  name: string;
  value: string;
  stored?: string;
}

/** The field `headers` of a form has them as JSON. */
function Headers({ of }: { of: ReadonlyArray<{ name: string }> }) {
  const [lines, setLines] = useState<readonly Line[]>(() =>
    of.map(({ name }, key) => ({ key, name, value: '', stored: name })),
  );
  const change = (key: number, changes: Partial<Line>) =>
    setLines(lines.map((one) => (one.key === key ? { ...one, ...changes } : one)));
  const add = () =>
    setLines([...lines, { key: Math.max(-1, ...lines.map(({ key }) => key)) + 1, name: '', value: '' }]);
  const headers = lines.map(({ name, value }) => ({ name, ...(value && { value }) }));
  return (
    <fieldset class="bare">
      <input type="hidden" name="headers" value={JSON.stringify(headers)} />
      {lines.map(({ key, name, value, stored }) => {
        const isStored = stored !== undefined && stored.toLowerCase() === name.toLowerCase();
        return (
          <div class="row" key={key}>
            <Field
              label={words.header}
              value={name}
              required
              maxLength={100}
              onText={(text) => change(key, { name: text })}
            />
            <Field
              label={texts.value}
              type="password"
              autoComplete="off"
              value={value}
              required={!isStored}
              maxLength={4000}
              placeholder={isStored ? words.kept : undefined}
              onText={(text) => change(key, { value: text })}
            />
            <Button
              label={texts.remove}
              class="plain"
              aria-label={texts.verbOf(texts.remove, name)}
              onClick={() => setLines(lines.filter((one) => one.key !== key))}
            />
          </div>
        );
      })}
      <Button label={words.addHeader} idle={lines.length >= maxHeaders} onClick={add} />
    </fieldset>
  );
}
