/** Devices: a table that reads one page at a time, with its search, filters, sort and page in the address. */
import { Suspense } from 'preact/compat';
import { useState } from 'preact/hooks';
import { Link, useLocation, useSearchParams } from 'wouter-preact';
import { useAction } from '../app/actions.ts';
import { ApiError, api, unwrap } from '../app/api.ts';
import { place } from '../app/place.ts';
import { accountId, can } from '../app/session.ts';
import { copy } from '../parts/codes/copy.tsx';
import { useLoad } from '../parts/data/load.ts';
import { failed, toast } from '../parts/dialogs/toast.tsx';
import { Button } from '../parts/forms/form.tsx';
import { useLiveRows, usePageBefore } from '../parts/lists/live-rows.ts';
import { Pager, type Sort, Table } from '../parts/lists/table.tsx';
import { Icon } from '../parts/page/icons.tsx';
import { Page } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { Bulk, Run } from './bulk.tsx';
import { useColumns } from './columns.tsx';
import { Chips, type Wrong, WrongFilter } from './filter/bar.tsx';
import { addressOf, demanded, filterOf } from './filter/text.ts';
import { actions as bulkActions, readRows, textOf } from './query.ts';
import { Toolbar } from './toolbar.tsx';

const words = texts.devices;
const Import = place(async () => (await import('./import.tsx')).Import);
const Columns = place(async () => (await import('./choose-columns.tsx')).Columns);
const NewDevice = place(async () => (await import('./new-device.tsx')).NewDevice);
const EditFilter = place(async () => (await import('./filter/editor.tsx')).EditFilter);
const SaveFleet = place(async () => (await import('../fleets/save-fleet.tsx')).SaveFleet);

/** Milliseconds between two looks at what the table shows; and where many devices are read one by one for it. */
const liveEvery = 4000;
const slowEvery = 60_000;
const manyScanned = 10_000;

/** What the service has said of a filter. */
interface Seen {
  of: string;
  wrong?: Wrong;
  scanned: number;
}

function sortOf(search: URLSearchParams): Sort {
  return { by: search.get('sort') ?? 'serialNumber', order: search.get('order') === 'desc' ? 'desc' : 'asc' };
}

export function Devices() {
  const [search, setSearch] = useSearchParams();
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [open, setOpen] = useState<'new' | 'import' | 'columns' | 'fleet' | undefined>();
  useAction('newDevice', () => setOpen('new'));
  useAction('importDevices', () => setOpen('import'));
  const { shown, choose, shownColumns, custom, values } = useColumns();
  const filter = { q: search.get('q') ?? '', text: filterOf(search) };
  const isFiltered = filter.q !== '' || filter.text !== '';
  const [seen, setSeen] = useState<Seen>();
  const note = (now: Seen) => setSeen((before) => (JSON.stringify(before) === JSON.stringify(now) ? before : now));
  const { wrong, scanned = 0 } = seen?.of === filter.text ? seen : {};
  const page = Number(search.get('page') ?? 1);
  const pageSize = Number(search.get('size') ?? 50);
  const sort = sortOf(search);
  const { data, error, loading, reload, fresh } = useLiveRows(
    async (signal) => {
      const { text: of } = filter;
      try {
        const slice = await readRows({ filter, sort, page, pageSize }, custom, values, signal);
        if (!signal.aborted) note({ scanned: slice.meta?.scanned ?? 0, of });
        return slice;
      } catch (error) {
        const found = wrongOf(error);
        if (!found || signal.aborted) throw error;
        note({ wrong: found, scanned: 0, of });
        return { results: [], meta: { count: 0 } };
      }
    },
    [filter, sort, page, pageSize, custom, values],
    {
      every: scanned > manyScanned ? slowEvery : liveEvery,
      newestFirst: sort.by === 'created' && sort.order === 'desc',
    },
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
  const [edited, setEdited] = useState<{ place?: number }>();
  const setText = (text: string) => set(addressOf(text));
  usePageBefore(page, { error, loading }, (to) => set({ page: String(to) }));
  const exportAll = async () => (await import('./files.tsx')).exportDevices(filter, sort);
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
        {...{ filter, wrong, set }}
        onText={setText}
        onFilter={() => setEdited({})}
        pageSize={pageSize}
        onColumns={() => setOpen('columns')}
        onExport={() => exportAll().catch(failed)}
      />
      {wrong && <WrongFilter text={filter.text} wrong={wrong} />}
      {isFiltered && (
        <div class="row filters">
          <Chips text={filter.text} onText={setText} onEdit={(place) => setEdited({ place })} />
          {can('create', 'fleet') && !wrong && !filter.q.includes('*') && (
            <Button label={texts.fleets.saveAs} onClick={() => setOpen('fleet')} />
          )}
        </div>
      )}
      {scanned > manyScanned && <p class="soft small">{texts.filters.scanned(scanned)}</p>}
      {can('create', 'bulkChange') && count !== undefined && count > 0 && (
        <Bulk
          selected={selected}
          filter={isFiltered ? filter : undefined}
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
          isFiltered ? (
            <>
              <p>{wrong ? texts.filters.wrong : words.noMatch}</p>
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
      <Suspense fallback={null}>
        {open === 'columns' && (
          <Columns
            {...{ shown, choose }}
            product={demanded(filter.text, 'deviceTemplateId')}
            onClose={() => setOpen(undefined)}
          />
        )}
        {open === 'new' && <NewDevice onClose={() => setOpen(undefined)} onMade={reload} />}
        {open === 'import' && <Import onClose={() => setOpen(undefined)} onDone={reload} />}
        {open === 'fleet' && <SaveFleet filter={textOf(filter)} onClose={() => setOpen(undefined)} />}
        {edited && (
          <EditFilter filter={filter} place={edited.place} onText={setText} onClose={() => setEdited(undefined)} />
        )}
        {one && <Run action={one.action} what={{ ids: [one.id] }} onClose={() => setOne(undefined)} onDone={reload} />}
      </Suspense>
    </Page>
  );
}

/** Why a filter is none, and where. */
function wrongOf(error: unknown): Wrong | undefined {
  const [detail] = error instanceof ApiError ? error.details.filter(({ path }) => path === 'filter') : [];
  const [, at] = /^At character (\d+)/.exec(detail?.message ?? '') ?? [];
  // It lists what is known: the form and the guide do that better.
  return detail && { at: Number(at ?? 1), says: detail.message?.replace(/ Known are .*$/s, '') ?? '' };
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
