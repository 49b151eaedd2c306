/** Lists: filtered, sorted, counted and cut into pages by SQL, which the reader threads execute. */
import { type Expression, type RawBuilder, type SelectQueryBuilder, type SqlBool, sql } from 'kysely';
import { named, shared } from '../../db/registry/entities.ts';
import { longColumns } from '../../db/registry/records/by-table.ts';
import type { EntityTable, Row } from '../../db/registry/records.ts';
import { wholeOf } from '../../db/registry/whole-device.ts';
import type { Caller } from '../core/caller.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import { findUnstorable, unstorable } from '../core/formats/unstorable.ts';
import { laneOf } from '../core/limits/lanes.ts';
import { matchesOfFilter, orderBy } from './filters/slices.ts';
import { conditionsOf } from './list-filters.ts';
import type { AskedList, Listing, ListQuery, Matches, SearchServices, WantedPage } from './list-query.ts';
import { type ListServices, type PageOfRows, type RowPlace, type RowSlices, readSlices } from './row-slices.ts';

export interface Meta {
  count: number;
  page: number;
  pageSize: number;
  sortOrder: 'asc' | 'desc';
  sortBy?: string;
  scanned?: number;
}

export interface Page<T extends EntityTable> {
  /** Read as they are taken. */
  rows: RowSlices<Row<T>> | undefined;
  meta: Meta | undefined;
}

/**
 * One page of the live entities, or of the trash, that the caller can reach.
 * @throws PlatformError 400/106 for a filter value that can be none; 416/109 for a page past the end (not for page 1).
 */
export async function list<T extends EntityTable>(
  services: ListServices,
  caller: Caller,
  listing: Listing<T>,
  query: ListQuery,
  state: 'live' | 'trash' = 'live',
): Promise<Page<T>> {
  for (const [name, value] of Object.entries(query))
    if (findUnstorable(value) !== undefined) throw invalid(name, unstorable);
  const asked = { caller, listing, query, state };
  const { page = 1, pageSize = 10, meta = true, results = true } = query;
  const sortOrder = query.sortOrder ?? (state === 'live' ? (listing.defaultOrder ?? 'asc') : 'desc');
  const sortBy = state === 'trash' ? 'deleted' : (query.sortBy ?? listing.defaultSort);
  const search = (state === 'live' && listing.search) || plainSearch;
  const matches = await search(services, asked);
  const wanted = { order: [sortBy, 'id'], sortOrder, ...cut(page, pageSize, matches.count) };
  const rows = readSlices<string, Row<T>>(services, caller, {
    count: Math.min(pageSize, matches.count - wanted.offset),
    find: async () => withParents(services, asked, await matches.places(wanted)),
    read: (current, ids) => readRows(services, current, listing.table, state, ids),
    idOf: ({ id }) => id,
  });
  const scanned = query.filter && { scanned: matches.scanned ?? 0 };
  const said = { count: matches.count, page, pageSize, sortOrder, ...(listing.saysSort && { sortBy }), ...scanned };
  return { rows: results ? rows : undefined, meta: meta ? said : undefined };
}

function plainSearch<T extends EntityTable>(services: SearchServices, asked: AskedList<T>): Promise<Matches> {
  const { caller, listing, query } = asked;
  const { table, defaultSort } = listing;
  const db = services.registry.query;
  const [listed, long] = [allOf(conditionsOf(db, asked)), longColumns(table)];
  if (query.filter) {
    const from = sql`from ${sql.table(table)} where ${listed}`;
    const read = <R>(wanted: RawBuilder<R>) => services.readers.read(laneOf(caller), wanted.compile(db));
    return matchesOfFilter({ table, bytes: bytesOf(long), read }, query.filter, {
      toAll: { from, by: orderBy([defaultSort, 'id']) },
      toPage: ({ order, sortOrder }) => ({ from, by: orderBy(order, sortOrder) }),
    });
  }
  const matching = shared(db).selectFrom(named(table)).where(listed);
  return matchesIn(services, caller, { matching, key: 'id', long });
}

/** Everything that matches a query, found by its own means. */
async function matchesIn<DB, TB extends keyof DB, K>(
  { readers }: Pick<ListServices, 'readers'>,
  caller: Caller,
  { matching, key, long, ...known }: Pick<TablePage<DB, TB, K, unknown>, 'matching' | 'count' | 'key' | 'long'>,
): Promise<Matches<K>> {
  const lane = laneOf(caller);
  const counts = matching.select(sql<number>`count(*)`.as('count'));
  const count = known.count ?? (await readers.read<{ count: number }>(lane, counts.compile() as never))[0]?.count ?? 0;
  const places = (wanted: WantedPage) => {
    const columns = [sql.ref<K>(key).as('id'), bytesOf(long).as('bytes')] as const;
    return readers.read(lane, pageOf(matching, wanted).select(columns).compile() as never) as Promise<RowPlace<K>[]>;
  };
  return { count, places };
}

/** The places with what `expand` shows next to their rows. */
async function withParents<T extends EntityTable>(
  { readers, registry }: Pick<ListServices, 'readers' | 'registry'>,
  { caller, listing: { table, expands }, query: { expand = '' } }: AskedList<T>,
  places: RowPlace[],
): Promise<RowPlace[]> {
  if (!expands || places.length === 0 || !expand.includes(expands.name)) return places;
  const bytes = bytesOf(longColumns(expands.table).map((column) => `parent.${column}`));
  const found = sql<{ child: string; id: string; bytes: number }>`
    select "child"."id" as "child", "parent"."id", ${bytes} as "bytes" from ${sql.table(table)} as "child"
    join ${sql.table(expands.table)} as "parent" on "parent"."id" = "child".${sql.ref(expands.column)}
    where "child"."id" in (${sql.join(places.map(({ id }) => id))})`;
  const rows = await readers.read(laneOf(caller), found.compile(registry.query));
  const parents = new Map(rows.map(({ child, ...parent }) => [child, parent]));
  return places.map((place) => {
    const parent = parents.get(place.id);
    return parent ? { ...place, parent } : place;
  });
}

async function readRows<T extends EntityTable>(
  { registry, access }: Pick<ListServices, 'registry' | 'access'>,
  caller: Caller,
  table: T,
  state: 'live' | 'trash',
  ids: string[],
): Promise<Row<T>[]> {
  const found = await shared(registry.query)
    .selectFrom(named(wholeOf(table)))
    .selectAll()
    .where('id', 'in', ids)
    .where('deleted', state === 'live' ? 'is' : 'is not', null)
    .execute();
  return (found as unknown as Row<T>[]).filter((row) => access.reachesRow(caller, table, row));
}

/** A page of a table that has no listing: which rows match, and how they are read when their turn comes. */
export interface TablePage<DB, TB extends keyof DB, K, R> extends Pick<PageOfRows<K, R>, 'read' | 'idOf'> {
  matching: SelectQueryBuilder<DB, TB, object>;
  /** How many rows match, where that is known. */
  count?: number;
  key: string;
  /** The columns that rows are ordered by; the last one is unique. */
  order: readonly [string, ...string[]];
  /** The columns that may have long texts. */
  long: readonly string[];
}

/**
 * A page of a table that has no listing, and its `meta`; newest first unless the query asks otherwise.
 * @throws PlatformError 416/109 for a page past the end.
 */
export async function pageOfTable<DB, TB extends keyof DB, K, R>(
  services: Omit<ListServices, 'registry'>,
  caller: Caller,
  { page = 1, pageSize = 10, sortOrder = 'desc' }: Pick<ListQuery, 'page' | 'pageSize' | 'sortOrder'>,
  { order, read, idOf, ...table }: TablePage<DB, TB, K, R>,
): Promise<{ rows: RowSlices<R>; meta: Meta }> {
  const matches = await matchesIn(services, caller, table);
  const wanted = { order, sortOrder, ...cut(page, pageSize, matches.count) };
  const rows = readSlices(services, caller, {
    count: Math.min(pageSize, matches.count - wanted.offset),
    find: () => matches.places(wanted),
    read,
    idOf,
  });
  return { rows, meta: { count: matches.count, page, pageSize, sortOrder } };
}

/** @throws PlatformError 416/109 for a page (from 1) past the last; the first one of nothing is empty. */
export function demandPage(page: number, pageSize: number, count: number): void {
  if (page > 1 && (page - 1) * pageSize >= count) throw new PlatformError('pageOutside');
}

/** Where a page is. @throws as demandPage. */
function cut(page: number, pageSize: number, count: number) {
  demandPage(page, pageSize, count);
  return { offset: (page - 1) * pageSize, limit: pageSize };
}

/** Orders rows, and takes a page of them. */
export function pageOf<DB, TB extends keyof DB, O>(
  rows: SelectQueryBuilder<DB, TB, O>,
  { order, sortOrder, offset, limit }: WantedPage,
): SelectQueryBuilder<DB, TB, O> {
  const ordered = order.reduce((query, column) => query.orderBy(sql.ref(column), sortOrder), rows);
  return ordered.limit(limit).offset(offset);
}

export function allOf(conditions: readonly Expression<SqlBool>[]): Expression<SqlBool> {
  return sql<SqlBool>`(${sql.join(conditions, sql` and `)})`;
}

/** About how many bytes these columns of a row have: the length is read without the text. */
export function bytesOf(columns: readonly string[]): RawBuilder<number> {
  const lengths = columns.map((column) => sql`coalesce(octet_length(${sql.ref(column)}), 0)`);
  return sql<number>`${sql.join([sql`0`, ...lengths], sql` + `)}`;
}
