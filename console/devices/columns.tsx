/** The columns of the table of devices: built-in ones, and those of custom fields. */
import { useMemo, useState } from 'preact/hooks';
import { can } from '../app/session.ts';
import { browserStore } from '../app/stores.ts';
import { useLoad } from '../parts/data/load.ts';
import { CloseButton, Dialog } from '../parts/dialogs/dialog.tsx';
import { Ago } from '../parts/formats/ago.tsx';
import { readingText } from '../parts/formats/reading.ts';
import { ErrorNote } from '../parts/forms/form.tsx';
import type { Column } from '../parts/lists/table.tsx';
import { Badge, Online } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { type Row, readCustomNames } from './query.ts';
import { type DeclaredCategory, maxValues, primaryName, readSaid, valueColumn } from './values.tsx';

const words = texts.devices;
const columnsKey = 'slipway-columns';
/** Before the name of a custom field: built-in columns have names of their own. */
const ofField = 'field:';
/** Before what `values` calls a value. */
const ofValue = 'value:';

export const columns: readonly Column<Row>[] = [
  { name: 'serialNumber', label: texts.serialNumber, sort: 'serialNumber', show: ({ serialNumber }) => serialNumber },
  { name: 'name', label: texts.name, show: ({ name }) => name ?? '–' },
  {
    name: 'connected',
    label: words.connected,
    show: ({ connected }) => <Online is={connected} />,
  },
  {
    name: 'provisioningState',
    label: texts.state,
    sort: 'provisioningState',
    show: (row) => <Badge text={words.states[row.provisioningState] ?? row.provisioningState} />,
  },
  {
    name: 'product',
    label: texts.product,
    sort: 'deviceTemplateId',
    show: ({ deviceTemplate }) => deviceTemplate?.name ?? '–',
  },
  {
    name: 'organization',
    label: texts.organization,
    sort: 'organizationId',
    show: ({ organization }) => organization?.name ?? '–',
  },
  {
    name: 'firmwareVersion',
    label: texts.places.firmware,
    sort: 'firmwareVersion',
    show: (row) => row.firmwareVersion ?? '–',
  },
  { name: 'lastConnected', label: words.lastConnected, show: ({ lastConnected }) => <Ago iso={lastConnected} /> },
  { name: 'created', label: texts.created, sort: 'created', show: ({ created }) => <Ago iso={created} /> },
];

const usual = ['serialNumber', 'connected', 'provisioningState', 'product', 'organization', 'lastConnected'];

function customColumn(name: string): Column<Row> {
  const show = (row: Row) => {
    const value = row[name];
    if (value === null || value === undefined || value === '') return '–';
    if (typeof value === 'boolean') return value ? texts.yes : texts.no;
    return readingText(String(value));
  };
  return { name: `${ofField}${name}`, label: name, show };
}

/** The columns that a person has chosen, on this machine. */
export function useColumns() {
  const [shown, setShown] = useState<string[]>(() => JSON.parse(browserStore.get(columnsKey) ?? 'null') ?? usual);
  const choose = (names: string[]) => {
    setShown(names);
    browserStore.set(columnsKey, JSON.stringify(names));
  };
  const [custom, values] = useMemo(() => [namesOf(shown, ofField), namesOf(shown, ofValue)], [shown]);
  const { data: said = [] } = useLoad(async () => (values.length > 0 ? readSaid() : []), [values.length > 0]);
  // The same columns as before let the table leave its rows as they are.
  const shownColumns = useMemo(
    () => [
      ...columns.filter(({ name }) => shown.includes(name)),
      ...values.map((name) => valueColumn(`${ofValue}${name}`, name, said)),
      ...custom.map(customColumn),
    ],
    [shown, said],
  );
  return { shown, choose, shownColumns, custom, values };
}

const namesOf = (shown: readonly string[], of: string) =>
  shown.flatMap((name) => (name.startsWith(of) ? name.slice(of.length) : []));

/** Chooses columns; those of custom fields are of the product that is filtered by, or of all. */
export function Columns({
  shown,
  choose,
  product,
  onClose,
}: {
  shown: string[];
  choose: (names: string[]) => void;
  product: string | undefined;
  onClose: () => void;
}) {
  const { data, error } = useLoad(async () => (can('read', 'customField') ? readCustomNames(product) : []), [product]);
  const { data: said = [] } = useLoad(() => readSaid(product), [product]);
  const fields = [...new Set([...(data ?? []), ...namesOf(shown, ofField)])];
  const chosen = namesOf(shown, ofValue);
  const names = [...new Set([primaryName, ...said.map(({ name }) => name), ...chosen])];
  const check = (name: string, label: string, isFull = false) => (
    <label class="check" key={name}>
      <input
        type="checkbox"
        checked={shown.includes(name)}
        disabled={isFull && !shown.includes(name)}
        onChange={() => choose(shown.includes(name) ? shown.filter((one) => one !== name) : [...shown, name])}
      />
      {label}
    </label>
  );
  return (
    <Dialog title={words.columns} onClose={onClose}>
      {columns.slice(1).map(({ name, label }) => check(name, label))}
      <h3>{words.valueColumns}</h3>
      <p class="hint">{words.valueColumnsHint(maxValues)}</p>
      {names.map((name) => check(`${ofValue}${name}`, labelOf(name, said), chosen.length >= maxValues))}
      <ErrorNote error={error} />
      {fields.length > 0 && <h3>{texts.products.fields}</h3>}
      {fields.map((name) => check(`${ofField}${name}`, name))}
      <CloseButton onClose={onClose} primary />
    </Dialog>
  );
}

/** Two products may say the same name in two ways: the channel tells them apart. */
function labelOf(name: string, said: readonly DeclaredCategory[]): string {
  const found = said.find((one) => one.name === name);
  return name === primaryName ? texts.value : found ? `${found.label} (${found.channel})` : name;
}
