/** The form of a bridge: a new one, or one that is changed. What is stored sealed is not shown, and kept where it is left empty. */
import { useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { accountId } from '../app/session.ts';
import { Dialog } from '../parts/dialog.tsx';
import { Button, Field, Form, Select, TextArea, type Values } from '../parts/form.tsx';
import { texts } from '../texts.ts';

const words = texts.bridges;
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

/** A bridge as the service shows it. */
interface Shown {
  id: string;
  version: string;
  name: string;
  kind: Kind;
  url: string;
  urlHasHiddenPart: boolean;
  headers: ReadonlyArray<{ name: string }>;
  ca: string | null;
  settings: Record<string, string>;
}

/** The values of some fields, by the part of their names after the prefix. */
function valuesOf(values: Values, prefix: string): Record<string, string> {
  const own = Object.entries(values).filter(([name]) => name.startsWith(prefix));
  return Object.fromEntries(own.map(([name, value]) => [name.slice(prefix.length), value]));
}

/** `onDone` gets the secret of a webhook, which is shown once. */
export function NewBridge({ onClose, onDone }: { onClose: () => void; onDone: (secret: string | undefined) => void }) {
  const [kind, setKind] = useState<Kind>('webhook');
  const [lines, setLines] = useState<readonly Line[]>([]);
  const save = async (values: Values) => {
    const { name = '', url = '', ca } = values;
    const [settings, credentials] = [valuesOf(values, 'setting.'), valuesOf(values, 'credential.')];
    const more = kind === 'webhook' ? { headers: headersOf(lines) } : { settings, credentials };
    const body = { accountId: accountId.value, name, kind, url, ...(ca && { ca }), ...more };
    onDone((await unwrap(api.POST('/api/v1/bridges', { body }))).bridge.secret);
  };
  return (
    <Dialog title={texts.programs.new.bridges} onClose={onClose}>
      <Form save={save} verb={texts.create} onCancel={onClose}>
        <p class="soft">{words.hint}</p>
        <Field label={texts.name} name="name" required />
        <Select
          label={texts.programs.kind}
          value={kind}
          options={kinds.map((one) => [one, words.kinds[one]] as const)}
          onText={(text) => setKind(kinds.find((one) => one === text) ?? 'webhook')}
        />
        <Field label={texts.programs.address} name="url" required placeholder={words.examples[kind]} />
        <Own kind={kind} lines={lines} onLines={setLines} />
        <TextArea label={words.ca} name="ca" hint={words.caHint} />
      </Form>
    </Dialog>
  );
}

export function EditBridge({ of, onClose, onDone }: { of: Shown; onClose: () => void; onDone: () => void }) {
  const { id, version, kind } = of;
  const [lines, setLines] = useState<readonly Line[]>(
    of.headers.map(({ name }, key) => ({ key, name, value: '', stored: name })),
  );
  const save = async (values: Values) => {
    const { name = '', url = '', ca = null } = values;
    const credentials = valuesOf(values, 'credential.');
    const more =
      kind === 'webhook'
        ? { headers: headersOf(lines) }
        : { settings: valuesOf(values, 'setting.'), ...(Object.keys(credentials).length > 0 && { credentials }) };
    const params = { path: { id }, header: { etag: version } };
    await unwrap(api.PUT('/api/v1/bridges/{id}', { params, body: { name, url, ca, ...more } }));
    onDone();
  };
  return (
    <Dialog title={words.editOf(of.name)} onClose={onClose}>
      <Form save={save} verb={texts.save} onCancel={onClose}>
        <Field label={texts.name} name="name" required defaultValue={of.name} />
        <Field
          label={texts.programs.address}
          name="url"
          required
          defaultValue={of.url}
          {...(of.urlHasHiddenPart && { hint: words.hiddenPart })}
        />
        <Own kind={kind} lines={lines} onLines={setLines} settings={of.settings} isStored />
        <TextArea label={words.ca} name="ca" value={of.ca ?? ''} hint={words.caHint} />
      </Form>
    </Dialog>
  );
}

/** What bridges of this kind have besides a name, an address and a CA. */
function Own({
  kind,
  settings = {},
  isStored,
  ...headers
}: HeadersProps & { kind: Kind; settings?: Record<string, string>; isStored?: boolean }) {
  if (kind === 'webhook') return <Headers {...headers} />;
  return (
    <>
      {settingsOf[kind].map((name) => (
        <Field
          key={name}
          label={name}
          name={`setting.${name}`}
          required={kind === 'kinesis'}
          defaultValue={settings[name] ?? ''}
        />
      ))}
      {credentialsOf[kind].map((name) => (
        <Field
          key={name}
          label={name}
          name={`credential.${name}`}
          type={/password|token|secret/i.test(name) ? 'password' : 'text'}
          autoComplete="off"
          placeholder={isStored ? words.kept : undefined}
        />
      ))}
    </>
  );
}

/** A header while it is edited; `stored` is the name under which a value is stored. `key` stays when others go. */
interface Line {
  key: number;
  name: string;
  value: string;
  stored?: string;
}

const headersOf = (lines: readonly Line[]) => lines.map(({ name, value }) => ({ name, ...(value && { value }) }));

interface HeadersProps {
  lines: readonly Line[];
  onLines: (lines: readonly Line[]) => void;
}

function Headers({ lines, onLines }: HeadersProps) {
  const change = (key: number, changes: Partial<Line>) =>
    onLines(lines.map((one) => (one.key === key ? { ...one, ...changes } : one)));
  const add = () => onLines([...lines, { key: Math.max(-1, ...lines.map(({ key }) => key)) + 1, name: '', value: '' }]);
  return (
    <fieldset class="bare">
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
              label={words.value}
              type="password"
              autoComplete="off"
              value={value}
              required={!isStored}
              maxLength={4000}
              placeholder={isStored ? words.kept : undefined}
              onText={(text) => change(key, { value: text })}
            />
            <button
              type="button"
              class="plain"
              aria-label={texts.verbOf(words.remove, name)}
              onClick={() => onLines(lines.filter((one) => one.key !== key))}
            >
              {words.remove}
            </button>
          </div>
        );
      })}
      <Button idle={lines.length >= maxHeaders} onClick={add}>
        {words.addHeader}
      </Button>
    </fieldset>
  );
}
