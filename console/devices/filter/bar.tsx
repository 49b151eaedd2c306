/** The filter of a list of devices: chips that are built by choosing, and the text beside them. Each is what the other says. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { can } from '../../app/session.ts';
import { isolated } from '../../isolated.ts';
import { nameOf } from '../../parts/data/names.tsx';
import { Field } from '../../parts/forms/form.tsx';
import { Icon } from '../../parts/page/icons.tsx';
import { timeText } from '../../parts/page/shown.tsx';
import { texts } from '../../texts.ts';
import { type Attribute, attributeOf, builtIn, operatorText } from './attributes.ts';
import { joined, type Part, partsOf, type Term } from './text.ts';

const words = texts.filters;

/** Custom fields in chips have the names that the text has: to read them all would take a request for each product. */
const known = () => builtIn((kind) => can('read', kind));

const spans = new Intl.RelativeTimeFormat('en', { numeric: 'always' });
const units = ['week', 'day', 'hour', 'minute', 'second'] as const;
const duration = /^(-?)P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?$/;

/** "1 hour ago" of a duration from now. One of several units is shown as it is written. */
export function spanText(text: string): string {
  const [whole, sign, ...counts] = duration.exec(text) ?? [];
  const given = counts.flatMap((count, at) => (count === undefined ? [] : [{ count, unit: units[at] ?? 'second' }]));
  const [only] = given;
  if (whole === undefined || only === undefined || given.length > 1) return text;
  return spans.format(sign === '-' ? -only.count : Number(only.count), only.unit);
}

export const flagText = (names: readonly string[], is: boolean): string =>
  names.join('.').toLowerCase() === 'connected' ? (is ? texts.online : texts.offlineShort) : is ? texts.yes : texts.no;

function valueText({ kind, names }: Attribute, value: Term['value']): string {
  const text = String(value ?? '');
  if (typeof value === 'boolean') return flagText(names, value);
  if (kind === 'below' || kind === 'place') return nameOf('organization', text) || text;
  if (kind === 'product') return nameOf('deviceTemplate', text) || text;
  if (kind === 'state') return texts.devices.states[text] ?? text;
  if (kind === 'update') return (texts.states as Record<string, string>)[text] ?? text;
  if (kind === 'date') return Number.isNaN(Date.parse(text)) ? spanText(text) : timeText(text);
  return text;
}

/** The text of a filter, in which no value turns what stands beside it. */
export const written = (text: string) => text.replace(/"(?:[^"\\]|\\.)*"/g, isolated);

export function sentenceOf(term: Term, known: readonly Attribute[]): string {
  const attribute = attributeOf(term, known);
  const { says } = texts.filters;
  return says(attribute.label, operatorText(attribute.kind, term.operator), valueText(attribute, term.value));
}

/** The text. Enter applies it, and so does leaving it. */
export function FilterText({ text, onText, wrong }: { text: string; onText: (text: string) => void; wrong?: Wrong }) {
  const [draft, setDraft] = useState(text);
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => setDraft(text), [text]);
  useEffect(() => {
    const input = form.current?.querySelector('input');
    // Whoever has just typed it goes on where it is wrong.
    if (wrong && input && input === document.activeElement) input.setSelectionRange(...unitsAt(text, wrong.at));
  }, [wrong]);
  const apply = () => draft.trim() !== text.trim() && onText(draft.trim());
  return (
    <form
      class="filtertext"
      ref={form}
      onSubmit={(event) => {
        event.preventDefault();
        apply();
      }}
    >
      <Field
        label={words.text}
        placeholder={words.textHint}
        value={draft}
        onText={setDraft}
        onBlur={apply}
        spellcheck={false}
        autoComplete="off"
        autoCapitalize="off"
        aria-invalid={wrong ? true : undefined}
        enterKeyHint="search"
      />
    </form>
  );
}

/** What the service says of a filter that it does not take, and the character where it stops to make sense, from 1. */
export interface Wrong {
  at: number;
  says: string;
}

/** The word at a character, in units of UTF-16. */
function unitsAt(text: string, at: number): [from: number, to: number] {
  const before = [...text].slice(0, at - 1).join('');
  const [word = ''] = /^(?:"(?:[^"\\]|\\.)*"|[^\s()]+|.)/su.exec(text.slice(before.length)) ?? [];
  return [before.length, before.length + word.length];
}

export function WrongFilter({ text, wrong }: { text: string; wrong: Wrong }) {
  const [from, to] = unitsAt(text, wrong.at);
  return (
    <div class="note bad" role="alert">
      <p>
        {wrong.says}{' '}
        <a href="/guide/filters" target="_blank" rel="noopener">
          {words.guide}
        </a>
      </p>
      <p class="small">
        {words.here}{' '}
        <code class="wrongtext">
          {written(text.slice(0, from))}
          <mark>{text.slice(from, to) || '\u00a0'}</mark>
          {written(text.slice(to))}
        </code>
      </p>
    </div>
  );
}

/** The parts of a filter, each of which can be changed and taken away. One that is no single comparison is shown as it is written. */
export function Chips({
  text,
  onText,
  onEdit,
}: {
  text: string;
  onText: (text: string) => void;
  onEdit: (place: number) => void;
}) {
  const parts = partsOf(text) ?? [];
  if (parts.length === 0) return null;
  return (
    <ul class="chips" aria-label={words.title} tabIndex={-1}>
      {parts.map((part, place) => {
        const says = part.term ? sentenceOf(part.term, known()) : part.text;
        return (
          <li class="badge chip" key={`${place} ${part.text}`}>
            {part.term ? (
              <button type="button" class="plain" aria-label={words.edit(says)} onClick={() => onEdit(place)}>
                {says}
              </button>
            ) : (
              <code>{written(says)}</code>
            )}
            <button
              type="button"
              class="plain"
              aria-label={words.remove(says)}
              onClick={() => onText(joined(parts.filter((_, one) => one !== place)))}
            >
              <Icon name="close" />
            </button>
          </li>
        );
      })}
    </ul>
  );
}

/** What a filter says, where it is not changed. */
export function FilterSays({ text }: { text: string }) {
  return (
    <ul class="chips">
      {(partsOf(text) ?? [{ text }]).map(({ text, term }: Part) => (
        <li class="badge chip" key={text}>
          {term ? sentenceOf(term, known()) : <code>{written(text)}</code>}
        </li>
      ))}
    </ul>
  );
}
