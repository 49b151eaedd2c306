/** Devices: a table that reads one page at a time, with its search, filters, sort and page in the address. */
import { Suspense } from 'preact/compat';
import { useState } from 'preact/hooks';
import { Link, useLocation, useSearchParams } from 'wouter-preact';
import { useAction } from '../app/actions.ts';
import { api, unwrap } from '../app/api.ts';
import { make } from '../app/entities.ts';
import { place } from '../app/place.ts';
import { accountId, can } from '../app/session.ts';
import { copy } from '../parts/codes/copy.tsx';
import { useLoad } from '../parts/data/load.ts';
import { Dialog } from '../parts/dialogs/dialog.tsx';
import { failed, toast } from '../parts/dialogs/toast.tsx';
import { Button, Field, Form, type Values } from '../parts/forms/form.tsx';
import { Picker } from '../parts/forms/picker.tsx';
import { useLiveRows, usePageBefore } from '../parts/lists/live-rows.ts';
import { Pager, type Sort, Table } from '../parts/lists/table.tsx';
import { Icon } from '../parts/page/icons.tsx';
import { Page } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { Bulk, actions as bulkActions, Run } from './bulk.tsx';
import { Chips } from './chips.tsx';
import { Columns, useColumns } from './columns.tsx';
import { exportDevices } from './files.tsx';
import { filterOf, readRows } from './query.ts';
import { SameSerial, useSameSerial } from './same-serial.tsx';
import { Toolbar } from './toolbar.tsx';

const words = texts.devices;
const Import = place(async () => (await import('./import.tsx')).Import);

/** Milliseconds between two looks at what the table shows. */
const liveEvery = 4000;

function sortOf(search: URLSearchParams): Sort {
  return { by: search.get('sort') ?? 'serialNumber', order: search.get('order') === 'desc' ? 'desc' : 'asc' };
}

export function Devices() {
  const [search, setSearch] = useSearchParams();
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [open, setOpen] = useState<'new' | 'import' | 'columns' | undefined>();
  useAction('newDevice', () => setOpen('new'));
  useAction('importDevices', () => setOpen('import'));
  const { shown, choose, shownColumns, custom, values } = useColumns();
  const filter = filterOf(search);
  const page = Number(search.get('page') ?? 1);
  const pageSize = Number(search.get('size') ?? 50);
  const sort = sortOf(search);
  const { data, error, loading, reload, fresh } = useLiveRows(
    (signal) => readRows({ filter, sort, page, pageSize }, custom, values, signal),
    [filter, sort, page, pageSize, custom, values],
    { every: liveEvery, newestFirst: sort.by === 'created' && sort.order === 'desc' },
  );
  const [one, setOne] = useState<{ action: 'move' | 'command' | 'regenerate' | 'delete'; id: string }>();
  const [, go] = useLocation();
  const set = (values: Record<string, string>) =>
    setSearch(
      (before) => {
        for (const [name, value] of Object.entries({ page: '', ...values }))
          value === '' ? before.delete(name) : before.set(name, value);
        return before;
      },
      { replace: true },
    );
  usePageBefore(page, { error, loading }, (to) => set({ page: String(to) }));
  const count = data?.meta?.count;
  return (
    <Page
      title={texts.places.devices}
      trash=""
      actions={
        can('create', 'device') && (
          <>
            <Button label={words.import} onClick={() => setOpen('import')} />
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
        fresh={fresh}
        actions={({ id }) => [
          { text: words.open, run: () => go(`/devices/${id}`) },
          { text: words.charts, run: () => go(`/devices/${id}/series`) },
          { text: words.copyId, run: () => void copy(id).then((isDone) => isDone && toast(words.copied)) },
          ...(can('create', 'bulkChange')
            ? bulkActions.map((action) => ({
                text: texts.bulk.verbsOfOne[action],
                run: () => setOne({ action, id }),
                danger: action === 'delete',
              }))
            : []),
        ]}
        sort={sort}
        onSort={({ by, order }) => set({ sort: by, order })}
        {...(can('create', 'bulkChange') && { selected, onSelect: setSelected })}
        empty={
          Object.keys(filter).length > 0 ? (
            <>
              <p>{words.noMatch}</p>
              <Link class="button" href="/devices">
                {words.clear}
              </Link>
            </>
          ) : (
            <p>{words.none}</p>
          )
        }
      />
      <Pager page={page} pageSize={pageSize} count={count} onPage={(to) => set({ page: String(to) })} />
      {open === 'new' && <New onClose={() => setOpen(undefined)} onMade={reload} />}
      {open === 'import' && (
        <Suspense fallback={null}>
          <Import onClose={() => setOpen(undefined)} onDone={reload} />
        </Suspense>
      )}
      {open === 'columns' && (
        <Columns shown={shown} choose={choose} product={filter.deviceTemplateId} onClose={() => setOpen(undefined)} />
      )}
      {one && <Run action={one.action} what={{ ids: [one.id] }} onClose={() => setOne(undefined)} onDone={reload} />}
    </Page>
  );
}

function Counts() {
  const query = { accountId: accountId.value };
  const { data } = useLoad(() => unwrap(api.GET('/api/v1/devices/counts', { params: { query } })), [], 15_000);
  const counts = data?.counts;
  const stats: [string, number | undefined][] = [
    [texts.places.devices, counts?.total],
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
    await make('device', { serialNumber, deviceTemplateId, organizationId });
    toast(words.made(serialNumber));
    onMade();
    onClose();
  };
  return (
    <Dialog title={words.new} onClose={onClose}>
      <Form save={save} verb={same ? words.makeAnother : texts.create} onCancel={onClose}>
        <Field label={texts.serialNumber} name="serialNumber" required />
        <SameSerial same={same} />
        <Picker kind="product" label={texts.product} name="deviceTemplateId" none={words.defaultProduct} />
        <Picker kind="organization" label={texts.organization} name="organizationId" none={texts.none} />
      </Form>
    </Dialog>
  );
}
