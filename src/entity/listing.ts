/** Lists of entities: what may be asked for, pages and counts. */
import { type SelectQueryBuilder, sql } from 'kysely';
import { type TProperties, Type } from 'typebox';
import type { Match } from '../../db/registry/records/columns.ts';
import { type EntityTable, oneOf, type Row, wholeOf } from '../../db/registry/records.ts';
import type { Caller } from '../access.ts';
import { invalid, PlatformError } from '../errors.ts';
import { laneOf } from '../limits/fair-queue.ts';
import { type LongReads, maxRowsOnLoop, type Query } from '../threads/long-reads.ts';
import { fewRows, type Listing, type ListQuery, narrow, smallestSet } from './list-filters.ts';

export type { Listing, ListQuery } from './list-filters.ts';

import { bytesOf, countMatches, findRows, pageOf, rowsLookedThrough } from './list-plan.ts';
import {
  type ListServices,
  oneSlice,
  type PageOfRows,
  placesOfRow,
  type RowPlace,
  type RowSlices,
  readSlices,
  type SliceServices,
} from './row-slices.ts';
import { findUnstorable, unstorable } from './values.ts';
import { isReached, named, shared } from './verbs.ts';

export interface Meta {
  count: number;
  page: number;
  pageSize: number;
  sortOrder: 'asc' | 'desc';
  sortBy?: string;
}

export interface Page<T extends EntityTable> {
  /** Read as they are taken. */
  rows: RowSlices<Row<T>> | undefined;
  meta: Meta | undefined;
}

const pagination = {
  accountId: Type.String({ description: 'The account id. The id of another account answers 404.' }),
  meta: Type.Optional(Type.Boolean({ default: true, description: 'Include meta information.' })),
  results: Type.Optional(Type.Boolean({ default: true, description: 'Include results.' })),
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
  sortOrder: Type.Optional(oneOf(['asc', 'desc'], { default: 'asc' })),
};

/**
 * The query of a list as a schema. `more` are parameters that are no filters, such as expand and count;
 * `aliases` are further names to sort by.
 */
export function listSchema<T extends EntityTable>(listing: Listing<T>, more: TProperties = {}, aliases: object = {}) {
  const filters = Object.fromEntries(
    Object.entries(listing.filters).map(([name, match]) => [
      name,
      Type.Optional(match === 'flag' ? Type.Boolean() : Type.String({ description: described[match as Match] })),
    ]),
  );
  for (const name of Object.keys(listing.before ?? {}))
    filters[name] = Type.Optional(Type.String({ description: 'Before this instant, ISO 8601.' }));
  const sorts = [...new Set([...listing.sorts, listing.defaultSort, ...Object.keys(aliases)])];
  const sortBy = Type.Optional(oneOf(sorts, { default: listing.defaultSort }));
  return Type.Object({ ...pagination, sortBy, ...filters, ...more });
}

/** Characters of a filter in a body, where no URL bounds it. */
const maxFilter = 1000;

/** The filters of a list as properties of a body, and the names of those that match a part of a text. */
export function bodyFilters<T extends EntityTable>(listing: Listing<T>): { filters: TProperties; partial: string[] } {
  const filters = Object.entries(listing.filters).map(([name, match]) => {
    const text = { maxLength: maxFilter, description: described[match as Match] };
    return [name, Type.Optional(match === 'flag' ? Type.Boolean() : Type.String(text))] as const;
  });
  const partial = Object.entries(listing.filters).flatMap(([name, match]) => (match === 'partial' ? [name] : []));
  return { filters: Object.fromEntries(filters), partial };
}

/** The query of a trash list: newest deletion first unless asked otherwise. */
export const trashListSchema = Type.Object({
  ...pagination,
  sortOrder: Type.Optional(oneOf(['asc', 'desc'], { default: 'desc' })),
});

const described: Record<Match, string> = {
  exact: 'Equal to this.',
  reference: 'Equal to this id; the text null selects entities without one.',
  partial: 'Contains this, ignoring case.',
  flag: 'Equal to this.',
  latitude: 'Equal to this number.',
  longitude: 'Equal to this number.',
  date: 'At this instant, ISO 8601.',
};

/** Up to this page size rows are read at once; of longer pages their places first. */
const readWhole = 10;

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
  const db = services.registry.query;
  const asked = { caller, listing, query, state };
  const { page = 1, pageSize = 10, meta = true, results = true } = query;
  const order = query.sortOrder ?? (state === 'live' ? 'asc' : 'desc');
  const sort = state === 'trash' ? 'deleted' : (query.sortBy ?? listing.defaultSort);

  for (const [name, value] of Object.entries(query))
    if (findUnstorable(value) !== undefined) throw invalid(name, unstorable);
  // Skipping to a page is expensive, so whether there is one is asked first.
  const count = await countMatches(services, asked);
  demandPage(page, pageSize, count);
  const wanted = { sort, order, offset: (page - 1) * pageSize, limit: pageSize, whole: pageSize <= readWhole };
  const lane = laneOf(caller);
  const findNow = () => findRows(db, asked, wanted, count);
  const find = async () => {
    const found = await (wanted.whole ? findNow() : services.reads.run(lane, pageSize / placesOfRow, findNow));
    // Not in the turn: others would wait for the thread too.
    return Array.isArray(found) ? found : services.longReads.read(lane, found);
  };
  const rows = !results
    ? undefined
    : wanted.whole
      ? oneSlice(caller, (await find()) as unknown as Row<T>[])
      : readSlices(services, caller, {
          count: Math.min(pageSize, count - wanted.offset),
          find: async () => (await find()) as RowPlace[],
          read: (current, ids) => readRows(services, current, listing.table, state, ids),
          idOf: ({ id }) => id,
        });
  const said = { count, page, pageSize, sortOrder: order, ...(listing.saysSort && { sortBy: sort }) };
  return { rows, meta: meta ? said : undefined };
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
  return (found as unknown as Row<T>[]).filter((row) => isReached(access, caller, table, row));
}

/** Everything that a list would show, from after the id `after`, in the order of ids: at most `limit` of them. */
export async function idsOf<T extends EntityTable>(
  { registry, longReads }: Pick<ListServices, 'registry' | 'longReads'>,
  caller: Caller,
  listing: Listing<T>,
  query: ListQuery,
  { after, limit }: { after: string; limit: number },
): Promise<string[]> {
  const asked = { caller, listing, query, state: 'live' } as const;
  const db = registry.query;
  const set = await smallestSet(db, asked, fewRows);
  const { matching } = narrow(db, asked, set, false);
  const ids = matching.select('id').where('id', '>', after).orderBy('id').limit(limit);
  const rows = await longReads.find(laneOf(caller), ids, set?.size ?? (await rowsLookedThrough(db, asked)));
  return rows.map(({ id }) => id);
}

/** A page of a table that has no listing: how its rows are found, and read when their turn comes. */
export interface TablePage<DB, TB extends keyof DB, K, R> extends Pick<PageOfRows<K, R>, 'read' | 'idOf'> {
  matching: SelectQueryBuilder<DB, TB, object>;
  /** How many rows match, where that is known. */
  count?: number;
  /** About how many rows are looked at to find those that match. */
  looksAt: number;
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
  services: SliceServices & { longReads: LongReads },
  caller: Caller,
  { page = 1, pageSize = 10, sortOrder = 'desc' }: Pick<ListQuery, 'page' | 'pageSize' | 'sortOrder'>,
  { matching, looksAt, key, order, long, read, idOf, ...known }: TablePage<DB, TB, K, R>,
): Promise<{ rows: RowSlices<R>; meta: Meta }> {
  const lane = laneOf(caller);
  const find = <F>(query: Query<F>) => {
    const found = () => services.longReads.find(lane, query, looksAt);
    // Not in the turn: others would wait for the thread too.
    return looksAt > maxRowsOnLoop ? found() : services.reads.run(lane, Math.max(1, looksAt / placesOfRow), found);
  };
  const counts = matching.select(sql<number>`count(*)`.as('count'));
  const count = known.count ?? (await find<{ count: number }>(counts))[0]?.count ?? 0;
  demandPage(page, pageSize, count);
  const [sort, ...ties] = order;
  const wanted = { sort, ties, order: sortOrder, offset: (page - 1) * pageSize, limit: pageSize };
  const places = pageOf(matching, wanted).select([sql.ref<K>(key).as('id'), bytesOf(long).as('bytes')]);
  const rows = readSlices(services, caller, {
    count: Math.min(pageSize, count - wanted.offset),
    find: () => find<RowPlace<K>>(places),
    read,
    idOf,
  });
  return { rows, meta: { count, page, pageSize, sortOrder } };
}

/** @throws PlatformError 416/109 for a page (from 1) past the last; the first one of nothing is empty. */
export function demandPage(page: number, pageSize: number, count: number): void {
  if (page > 1 && (page - 1) * pageSize >= count) throw new PlatformError('pageOutside');
}
