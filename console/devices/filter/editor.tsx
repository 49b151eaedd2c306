/** One comparison of a filter, in a form: what is compared, how, and with what. */
import { useState } from 'preact/hooks';
import { can } from '../../app/session.ts';
import { useLoad } from '../../parts/data/load.ts';
import { Dialog } from '../../parts/dialogs/dialog.tsx';
import { localTime } from '../../parts/formats/times.ts';
import { Field, Form, Select, type Values } from '../../parts/forms/form.tsx';
import { Chooser, Picker } from '../../parts/forms/picker.tsx';
import { texts } from '../../texts.ts';
import { type DeviceFilter, readCustomFields, readValues } from '../query.ts';
import { type Attribute, attributeOf, builtIn, type Kind, operators, operatorText } from './attributes.ts';
import { flagText, spanText } from './bar.tsx';
import { demanded, type FormOperator, isSame, joined, partsOf, type Term, termText } from './text.ts';

const words = texts.filters;
const spans = ['-PT1H', '-P1D', '-P7D', '-P30D', 'P7D', 'P30D'];
const updateStates = ['pending', 'offered', 'downloading', 'downloaded', 'installing'] as const;
const endStates = ['succeeded', 'failed', 'timedOut', 'superseded', 'cancelled'] as const;
const hasValue = (operator: FormOperator) => operator !== 'pr' && operator !== 'none';
const idOf = ({ names }: Attribute) => names.join('.');

/** The form of the comparison at a place, or of a new one; values are those of devices that match the other parts. */
export function EditFilter({
  filter: { q = '', text = '' },
  place,
  onText,
  onClose,
}: {
  filter: DeviceFilter;
  place: number | undefined;
  onText: (text: string) => void;
  onClose: () => void;
}) {
  const product = demanded(text, 'deviceTemplateId');
  const { data: custom = [] } = useLoad(
    () => (can('read', 'customField') ? readCustomFields(product) : Promise.resolve([])),
    [product],
  );
  const parts = partsOf(text) ?? [];
  const others = parts.filter((_, one) => one !== place);
  return (
    <TermDialog
      known={[...builtIn((kind) => can('read', kind)), ...custom]}
      term={place === undefined ? undefined : parts[place]?.term}
      valuesOf={(name, signal) => readValues({ q, text: joined(others) }, name, signal)}
      onText={(now) => onText(joined(parts.toSpliced(place ?? parts.length, 1, { text: now })))}
      onClose={onClose}
    />
  );
}

/** `valuesOf` reads what devices have under a name that a list of them gives. */
function TermDialog({
  known,
  term,
  valuesOf,
  onText,
  onClose,
}: {
  known: readonly Attribute[];
  /** The one that is changed. */
  term?: Term | undefined;
  valuesOf: (listed: string, signal: AbortSignal) => Promise<string[]>;
  onText: (text: string) => void;
  onClose: () => void;
}) {
  const [names, setNames] = useState(term?.names);
  const [chosen, setOperator] = useState(term?.operator ?? 'eq');
  // Custom fields are known a little later.
  const attribute = names && attributeOf({ names, value: term?.value ?? null }, known);
  const all = attribute && !known.includes(attribute) ? [attribute, ...known] : known;
  const operator = attribute && !operators[attribute.kind].includes(chosen) ? 'eq' : chosen;
  const find = (typed: string) => {
    const found = all.filter(({ label }) => label.toLowerCase().includes(typed.toLowerCase()));
    return { found: found.map((one) => ({ id: idOf(one), name: one.label })), count: found.length };
  };
  const save = async ({ value = '' }: Values) => {
    if (!attribute || (hasValue(operator) && value === '')) throw new Error(words.choose);
    onText(termText({ names: attribute.names, operator, value: literalOf(attribute.kind, operator, value) }));
    onClose();
  };
  return (
    <Dialog title={term ? words.change : words.add} onClose={onClose}>
      <Form save={save} verb={words.apply} light onCancel={onClose}>
        <Chooser
          label={words.attribute}
          find={async (typed) => find(typed)}
          nameOf={(id) => all.find((one) => idOf(one) === id)?.label}
          first={find('')}
          value={attribute && idOf(attribute)}
          onText={(id) => setNames(all.find((one) => idOf(one) === id)?.names)}
        />
        {attribute && (
          <Select
            label={words.operator}
            value={operator}
            options={operators[attribute.kind].map((one) => [one, operatorText(attribute.kind, one)] as const)}
            onText={(one) => setOperator(one as FormOperator)}
          />
        )}
        {attribute && hasValue(operator) && (
          <Value
            key={`${idOf(attribute)} ${attribute.kind}`}
            of={attribute}
            value={term && isSame(term.names, attribute.names) ? String(term.value ?? '') : ''}
            valuesOf={valuesOf}
          />
        )}
      </Form>
    </Dialog>
  );
}

/** What is compared with, as a filter writes it. */
function literalOf(kind: Kind, operator: FormOperator, value: string): Term['value'] {
  if (!hasValue(operator)) return null;
  if (kind === 'flag') return value === 'true';
  if (kind === 'number') return Number(value);
  return kind === 'date' && !/^-?P/.test(value) ? new Date(value).toISOString() : value;
}

type ValueProps = {
  of: Attribute;
  value: string;
  valuesOf: (listed: string, signal: AbortSignal) => Promise<string[]>;
};

function Value({ of: { kind, names, listed }, value, valuesOf }: ValueProps) {
  const field = { label: texts.value, name: 'value', value };
  if (kind === 'below' || kind === 'place') return <Picker kind="organization" {...field} />;
  if (kind === 'product') return <Picker kind="product" {...field} />;
  if (kind === 'state') return <Select {...field} options={Object.entries(texts.devices.states)} />;
  if (kind === 'update')
    return <Select {...field} options={[...updateStates, ...endStates].map((one) => [one, texts.states[one]])} />;
  if (kind === 'flag')
    return <Select {...field} options={['true', 'false'].map((one) => [one, flagText(names, one === 'true')])} />;
  if (kind === 'date') return <DateValue value={value} />;
  if (kind === 'number') return <Field {...input(value)} type="number" step="any" required />;
  return <TextValue value={value} listed={listed} valuesOf={valuesOf} />;
}

const input = (value: string) => ({ label: texts.value, name: 'value', defaultValue: value });

function TextValue({ value, listed, valuesOf }: Omit<ValueProps, 'of'> & { listed: string | undefined }) {
  const { data: values = [] } = useLoad(
    (signal) => (listed === undefined ? Promise.resolve([]) : valuesOf(listed, signal).catch(() => [])),
    [listed],
  );
  return (
    <>
      <Field {...input(value)} required autoComplete="off" list="filter-values" />
      <datalist id="filter-values">
        {values.map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
    </>
  );
}

/** So long ago, or from now, or a date. */
function DateValue({ value }: { value: string }) {
  const isSpan = /^-?P/.test(value);
  const [span, setSpan] = useState(isSpan ? value : value === '' ? '-P1D' : '');
  const all = isSpan && !spans.includes(value) ? [value, ...spans] : spans;
  const options = [...all.map((one) => [one, spanText(one)] as const), ['', words.aDate] as const];
  return (
    <>
      <Select label={texts.value} value={span} options={options} onText={setSpan} />
      {span === '' ? (
        <Field
          label={words.date}
          name="value"
          type="datetime-local"
          required
          defaultValue={localTime(isSpan || value === '' ? Date.now() : value)}
        />
      ) : (
        <input type="hidden" name="value" value={span} />
      )}
    </>
  );
}
