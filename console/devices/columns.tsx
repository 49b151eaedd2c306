/** The columns of the table of devices: built-in ones, and those of custom fields. */
import { useMemo, useState } from 'preact/hooks';
import { browserStore } from '../app/stores.ts';
import { useLoad } from '../parts/data/load.ts';
import { Ago } from '../parts/formats/ago.tsx';
import { readingText } from '../parts/formats/reading.ts';
import type { Column } from '../parts/lists/table.tsx';
import { Badge, Online } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import type { Row } from './query.ts';
import { readSaid, valueColumn } from './values.tsx';

const words = texts.devices;
const columnsKey = 'slipway-columns';
/** Before the name of a custom field: built-in columns have names of their own. */
export const ofField = 'field:';
/** Before what `values` calls a value. */
export const ofValue = 'value:';

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

export const namesOf = (shown: readonly string[], of: string) =>
  shown.flatMap((name) => (name.startsWith(of) ? name.slice(of.length) : []));
