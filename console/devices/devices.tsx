/** Devices: a table that reads one page at a time, with its search, filters, sort and page in the address. */
import { useMemo, useState } from 'preact/hooks';
import { useSearchParams } from 'wouter-preact';
import { api, done } from '../app/api.ts';
import { accountId, can } from '../app/session.ts';
import { CloseButton, Dialog } from '../parts/dialog.tsx';
import { Field, Form, Select, type Values } from '../parts/form.tsx';
import { Icon } from '../parts/icons.tsx';
import { SearchField } from '../parts/lists/search-field.tsx';
import { type Column, Pager, type Sort, Table } from '../parts/lists/table.tsx';
import { useLoad } from '../parts/load.ts';
import { Badge, Page, Time } from '../parts/page.tsx';
import { Picker } from '../parts/picker.tsx';
import { failed, toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { Bulk } from './bulk.tsx';
import { Chips } from './chips.tsx';
import { exportDevices, Import } from './files.tsx';
import { filterOf, type Row, readRows, sizes } from './query.ts';
import { SameSerial, useSameSerial } from './same-serial.tsx';

const words = texts.devices;
const columnsKey = 'slipway-columns';

const columns: readonly Column<Row>[] = [
  { name: 'serialNumber', label: words.serialNumber, sort: 'serialNumber', show: ({ serialNumber }) => serialNumber },
  {
    name: 'connected',
    label: words.connected,
    show: ({ connected }) => (
      <Badge kind={connected ? 'good' : undefined} text={connected ? texts.online : texts.offlineShort} />
    ),
  },
  {
    name: 'provisioningState',
    label: words.state,
    sort: 'provisioningState',
    show: (row) => <Badge text={words.states[row.provisioningState] ?? row.provisioningState} />,
  },
  {
    name: 'product',
    label: words.product,
    sort: 'deviceTemplateId',
    show: ({ deviceTemplate }) => deviceTemplate?.name ?? '–',
  },
  {
    name: 'organization',
    label: words.organization,
    sort: 'organizationId',
    show: ({ organization }) => organization?.name ?? '–',
  },
  {
    name: 'firmwareVersion',
    label: words.firmware,
    sort: 'firmwareVersion',
    show: (row) => row.firmwareVersion ?? '–',
  },
  { name: 'lastConnected', label: words.lastConnected, show: ({ lastConnected }) => <Time iso={lastConnected} /> },
  { name: 'created', label: texts.created, sort: 'created', show: ({ created }) => <Time iso={created} /> },
];

const usual = ['serialNumber', 'connected', 'provisioningState', 'product', 'organization', 'lastConnected'];

/** The columns that a person has chosen, on this machine. */
function useColumns() {
  const [shown, setShown] = useState<string[]>(() => JSON.parse(localStorage.getItem(columnsKey) ?? 'null') ?? usual);
  const choose = (names: string[]) => {
    setShown(names);
    localStorage.setItem(columnsKey, JSON.stringify(names));
  };
  // The same columns as before let the table leave its rows as they are.
  const shownColumns = useMemo(() => columns.filter(({ name }) => shown.includes(name)), [shown]);
  return { shown, choose, shownColumns };
}

function sortOf(search: URLSearchParams): Sort {
  return { by: search.get('sort') ?? 'serialNumber', order: search.get('order') === 'desc' ? 'desc' : 'asc' };
}

export function Devices() {
  const [search, setSearch] = useSearchParams();
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [open, setOpen] = useState<'new' | 'import' | 'columns' | undefined>();
  const { shown, choose, shownColumns } = useColumns();
  const filter = filterOf(search);
  const page = Number(search.get('page') ?? 1);
  const pageSize = Number(search.get('size') ?? 50);
  const sort = sortOf(search);
  const { data, error, loading, reload } = useLoad(
    (signal) => readRows({ filter, sort, page, pageSize }, signal),
    [filter, sort, page, pageSize],
    15_000,
  );
  const set = (values: Record<string, string>) =>
    setSearch(
      (before) => {
        for (const [name, value] of Object.entries({ page: '', ...values }))
          value === '' ? before.delete(name) : before.set(name, value);
        return before;
      },
      { replace: true },
    );
  const count = data?.meta?.count;
  return (
    <Page
      title={texts.places.devices}
      actions={
        can('create', 'device') && (
          <>
            <button type="button" onClick={() => setOpen('import')}>
              {words.import}
            </button>
            <button type="button" class="primary" onClick={() => setOpen('new')}>
              <Icon name="more" /> {words.new}
            </button>
          </>
        )
      }
    >
      <Counts />
      <Toolbar
        search={search}
        set={set}
        pageSize={pageSize}
        onColumns={() => setOpen('columns')}
        onExport={() => exportDevices(filter, sort).catch(failed)}
      />
      <Chips search={search} set={set} />
      {can('create', 'bulkChange') && count !== undefined && count > 0 && (
        <Bulk
          selected={selected}
          filter={filter}
          count={count}
          onDone={() => {
            setSelected(new Set());
            reload();
          }}
        />
      )}
      <Table
        label={texts.places.devices}
        rows={data?.results}
        columns={shownColumns}
        loading={loading}
        error={data ? undefined : error}
        href={({ id }) => `/devices/${id}`}
        nameOf={({ serialNumber }) => serialNumber}
        sort={sort}
        onSort={({ by, order }) => set({ sort: by, order })}
        {...(can('create', 'bulkChange') && { selected, onSelect: setSelected })}
        empty={<p>{Object.keys(filter).length > 0 ? words.noMatch : words.none}</p>}
      />
      <Pager page={page} pageSize={pageSize} count={count} onPage={(to) => set({ page: String(to) })} />
      {open === 'new' && <New onClose={() => setOpen(undefined)} onMade={reload} />}
      {open === 'import' && <Import onClose={() => setOpen(undefined)} onDone={reload} />}
      {open === 'columns' && <Columns shown={shown} choose={choose} onClose={() => setOpen(undefined)} />}
    </Page>
  );
}

function Toolbar({
  search,
  set,
  pageSize,
  onColumns,
  onExport,
}: {
  search: URLSearchParams;
  set: (values: Record<string, string>) => void;
  pageSize: number;
  onColumns: () => void;
  onExport: () => void;
}) {
  return (
    <search class="toolbar">
      <SearchField
        label={texts.search}
        hint={words.searchHint}
        value={search.get('q') ?? ''}
        onText={(q) => set({ q })}
      />
      <Picker
        kind="organization"
        label={words.organization}
        none={texts.all}
        value={search.get('organization') ?? ''}
        onText={(organization) => set({ organization })}
      />
      {can('read', 'deviceTemplate') && (
        <Picker
          kind="product"
          label={words.product}
          none={texts.all}
          value={search.get('product') ?? ''}
          onText={(product) => set({ product })}
        />
      )}
      <Select
        label={words.state}
        value={search.get('state') ?? ''}
        onText={(state) => set({ state })}
        options={[['', texts.all], ...Object.entries(words.states)]}
      />
      <Select
        label={words.connected}
        value={search.get('connected') ?? ''}
        onText={(connected) => set({ connected })}
        options={[
          ['', texts.all],
          ['true', texts.online],
          ['false', texts.offlineShort],
        ]}
      />
      <Select
        label={words.perPage}
        value={String(pageSize)}
        onText={(size) => set({ size })}
        options={sizes.map((size) => [size, size] as const)}
      />
      <button type="button" onClick={onColumns}>
        {words.columns}
      </button>
      <button type="button" onClick={onExport}>
        {words.export}
      </button>
    </search>
  );
}

function Columns({
  shown,
  choose,
  onClose,
}: {
  shown: string[];
  choose: (names: string[]) => void;
  onClose: () => void;
}) {
  return (
    <Dialog title={words.columns} onClose={onClose}>
      {columns.slice(1).map(({ name, label }) => (
        <label class="check" key={name}>
          <input
            type="checkbox"
            checked={shown.includes(name)}
            onChange={() => choose(shown.includes(name) ? shown.filter((one) => one !== name) : [...shown, name])}
          />
          {label}
        </label>
      ))}
      <CloseButton onClose={onClose} primary />
    </Dialog>
  );
}

function Counts() {
  const query = { accountId: accountId.value };
  const { data } = useLoad(() => done(api.GET('/api/v1/devices/counts', { params: { query } })), [], 15_000);
  const counts = data?.counts;
  const stats: [string, number | undefined][] = [
    [words.total, counts?.total],
    [texts.online, counts?.connected],
    ...['defined', 'activated', 'associated'].map(
      (state) =>
        [words.states[state], counts?.states.find(({ provisioningState }) => provisioningState === state)?.count] as [
          string,
          number | undefined,
        ],
    ),
  ];
  return (
    <div class="stats">
      {stats.map(([label, value]) => (
        <div class="stat" key={label}>
          <b>{value?.toLocaleString() ?? '–'}</b>
          <span class="soft small">{label}</span>
        </div>
      ))}
    </div>
  );
}

function New({ onClose, onMade }: { onClose: () => void; onMade: () => void }) {
  const { same, mayMake } = useSameSerial();
  const save = async ({ serialNumber = '', deviceTemplateId, organizationId }: Values) => {
    if (!(await mayMake(serialNumber))) return;
    const body = {
      accountId: accountId.value,
      serialNumber,
      ...(deviceTemplateId && { deviceTemplateId }),
      ...(organizationId && { organizationId }),
    };
    await done(api.POST('/api/v1/devices', { body }));
    toast(words.made(serialNumber));
    onMade();
    onClose();
  };
  return (
    <Dialog title={words.new} onClose={onClose}>
      <Form save={save} verb={same ? words.makeAnother : texts.create} onCancel={onClose}>
        <Field label={words.serialNumber} name="serialNumber" required />
        <SameSerial same={same} />
        <Picker kind="product" label={words.product} name="deviceTemplateId" none={words.defaultProduct} />
        <Picker kind="organization" label={words.organization} name="organizationId" none={texts.none} />
      </Form>
    </Dialog>
  );
}
