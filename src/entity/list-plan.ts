/**
 * How a list finds its count and its page in tables of a million rows: counts that are kept, an index of texts, and rows
 * looked at in the order of the page. docs/decisions/006-partial-match-and-kept-counts.md tells when each is used.
 */
import { type Kysely, type SelectQueryBuilder, type SqlBool, sql } from 'kysely';
import type { Db } from '../../db/registry/index.js';
import { type EntityTable, wholeOf } from '../../db/registry/records.js';
import { countContaining } from '../../db/registry/text.js';
import { isAccountWide } from '../access.js';
import {
  type AnyTable,
  type AskedList,
  condition,
  filtersOf,
  inReach,
  narrow,
  presenceFiltersOf,
  rowsInPresence,
} from './list-filters.js';

/** A page of a list. */
export interface Wanted {
  sort: string;
  order: 'asc' | 'desc';
  offset: number;
  limit: number;
  /** Whether whole rows are wanted, or their places. */
  whole: boolean;
}

/** How many rows match. */
export async function countMatches<T extends EntityTable>(db: Db, asked: AskedList<T>): Promise<number> {
  return (
    (await keptCount(db, asked)) ?? (await countInPresence(db, asked)) ?? (await countRows(await narrow(db, asked)))
  );
}

/** The count that is kept for what is asked for, if there is one: of a combination of columns, or of one text. */
async function keptCount<T extends EntityTable>(db: Db, asked: AskedList<T>): Promise<number | undefined> {
  const { caller, listing, query, state } = asked;
  const { counted, text = [], reach } = listing;
  if (!counted || state === 'trash' || caller.kind === 'station') return undefined;
  const filters = filtersOf(asked);
  const column = text.find((name) => query[name] !== undefined);
  if (column && filters.length === 1 && isAccountWide(caller))
    return countContaining(db, caller.accountId, column, String(query[column]));
  if (!filters.every(([name]) => counted.columns.includes(name))) return undefined;
  const placed = !isAccountWide(caller) || filters.some(([name]) => name === reach);
  let counts = db
    .selectFrom(placed ? counted.placed : counted.everywhere)
    .select((eb) => eb.fn.sum<number | null>('count').as('count'))
    .where('accountId', '=', caller.accountId)
    .where(inReach(db, asked));
  for (const [name, match] of filters) {
    const nowhere = name === reach && query[name] === 'null';
    // '' is how the counts call nowhere; no place has that name.
    if (name === reach && query[name] === '') return 0;
    counts = counts.where(nowhere ? condition(name, 'exact', '') : condition(name, match, query[name]));
  }
  return Number((await counts.executeTakeFirst())?.count ?? 0);
}

/** As countRows, from `devicePresence` alone, where that can tell. */
async function countInPresence<T extends EntityTable>(db: Db, asked: AskedList<T>): Promise<number | undefined> {
  const filters = filtersOf(asked);
  const inPresence = presenceFiltersOf(asked, filters);
  if (!isAccountWide(asked.caller) || inPresence.length === 0 || inPresence.length < filters.length) return undefined;
  const { rows } = await sql<{ count: number }>`
    select count(*) as "count" from (${rowsInPresence(asked, inPresence)})`.execute(db);
  return rows[0]?.count;
}

async function countRows({ matching }: Awaited<ReturnType<typeof narrow>>): Promise<number> {
  const { count } = await matching.select((eb) => eb.fn.countAll<number>().as('count')).executeTakeFirstOrThrow();
  return Number(count);
}

/** Matches up to which a page is found by sorting them all. */
const maxMatchesToSort = 3000;
/** Rows looked at in order, at first and then, before a page of matches is looked for otherwise. */
const scanSizes = [1000, 10_000];

/**
 * A page of the rows that match, which are `count`. Where many rows match, a page of them is among the first rows in the order of
 * the list, unless all of them come late.
 */
export async function findRows<T extends EntityTable>(
  db: Db,
  asked: AskedList<T>,
  wanted: Wanted,
  count: number,
): Promise<unknown[]> {
  if (count === 0) return [];
  const { caller, listing, state } = asked;
  const filters = filtersOf(asked);
  const isInOrder = filters.length < 2 && filters.every(([name]) => listing.inOrder?.some((one) => one === name));
  const isInIndex = isAccountWide(caller) && isInOrder && wanted.sort === listing.defaultSort;
  if (listing.counted && state === 'live' && count > maxMatchesToSort && !isInIndex && caller.kind !== 'station') {
    const rows = await scanInOrder(db, asked, wanted, count);
    if (rows) return rows;
  }
  const { matching } = await narrow(db, asked);
  const page = pageOf(matching, wanted);
  return wanted.whole ? page.selectAll().execute() : page.select(placeOfRow(listing.table)).execute();
}

/** Tables whose rows have values of fields; rows of the others are within the limit of a body. */
const withFields: ReadonlySet<EntityTable> = new Set<EntityTable>([
  'devices',
  'endUsers',
  'organizations',
  'deviceTemplates',
  'endUserTemplates',
  'organizationTemplates',
]);
const plainRowBytes = 8192;

/** The columns of a RowPlace. The length is read without the text. */
function placeOfRow(table: EntityTable) {
  const bytes = withFields.has(table) ? sql<number>`octet_length("fields")` : sql<number>`${sql.lit(plainRowBytes)}`;
  return [sql.ref<string>('id').as('id'), bytes.as('bytes')] as const;
}

/** A page of rows that is met in so many steps from the beginning, all filters being looked at row by row. */
async function scanInOrder<T extends EntityTable>(
  db: Db,
  asked: AskedList<T>,
  wanted: Wanted,
  count: number,
): Promise<unknown[] | undefined> {
  const { caller, listing, query } = asked;
  const filters = filtersOf(asked);
  const { sort, order, offset, limit, whole } = wanted;
  const everything = (db as unknown as Kysely<AnyTable>)
    .selectFrom(wholeOf(listing.table))
    .where('accountId', '=', caller.accountId)
    .where('deleted', 'is', null);
  const matches = sql<SqlBool>`${sql.join(
    [inReach(db, asked), ...filters.map(([column, match]) => condition(column, match, query[column]))],
    sql` and `,
  )}`;
  const columns = new Set(['id', sort, listing.reach ?? 'id', ...filters.map(([column]) => column)]);
  for (const steps of scanSizes) {
    if (offset + limit > steps) continue;
    const scanned = pageOf(everything, { sort, order, offset: 0, limit: steps })
      .select([...columns].map((column) => sql.ref(column).as(column)))
      .as('scanned');
    const ids = pageOf(db.selectFrom(scanned).where(matches), wanted).select(sql.ref<string>('id').as('id'));
    const page = pageOf(everything.where('id', 'in', ids), { ...wanted, offset: 0 });
    const rows = await (whole ? page.selectAll() : page.select(placeOfRow(listing.table))).execute();
    if (rows.length === Math.min(limit, count - offset)) return rows;
  }
  return undefined;
}

/** Orders rows, ties by id, and takes a page of them. */
export function pageOf<DB, TB extends keyof DB, O>(
  rows: SelectQueryBuilder<DB, TB, O>,
  { sort, order, offset, limit }: Omit<Wanted, 'whole'>,
): SelectQueryBuilder<DB, TB, O> {
  return rows.orderBy(sql.ref(sort), order).orderBy(sql.ref('id'), order).limit(limit).offset(offset);
}
