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
  countPresent,
  filtersOf,
  inReach,
  isInOrder,
  type Listing,
  narrow,
  ofAccount,
} from './list-filters.js';

/** A page of a list. */
export interface Wanted {
  sort: string;
  order: 'asc' | 'desc';
  offset: number;
  limit: number;
  /** By what rows of the same value are ordered. */
  ties?: string[];
  /** Whether whole rows are wanted, or their places. */
  whole: boolean;
}

/** How many rows match. */
export async function countMatches<T extends EntityTable>(db: Db, asked: AskedList<T>): Promise<number> {
  return (
    (await keptCount(db, asked)) ??
    (await countPresent(db, asked)) ??
    (await countRows(await narrow(db, asked, 'count')))
  );
}

async function countRows({ matching }: Awaited<ReturnType<typeof narrow>>): Promise<number> {
  const { count } = await matching.select((eb) => eb.fn.countAll<number>().as('count')).executeTakeFirstOrThrow();
  return Number(count);
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
    .where(inReach(db, caller, listing));
  for (const [name, match] of filters) {
    const nowhere = name === reach && query[name] === 'null';
    // '' is how the counts call nowhere; no place has that name.
    if (name === reach && query[name] === '') return 0;
    counts = counts.where(nowhere ? condition(name, 'exact', '') : condition(name, match, query[name]));
  }
  return Number((await counts.executeTakeFirst())?.count ?? 0);
}

/** Matches up to which a page is found by sorting them all. */
const maxMatchesToSort = 3000;
/** Rows looked at in order, at first and then again, before a page of matches is looked for otherwise. */
const scanSizes = [1000, 3000, 10_000];

/**
 * A page of the rows that match, which are `count`. What is found often is soon met by walking in order, unless all of it
 * is far from the beginning.
 */
export async function findRows<T extends EntityTable>(
  db: Db,
  asked: AskedList<T>,
  asWanted: Omit<Wanted, 'ties'>,
  count: number,
): Promise<unknown[]> {
  if (count === 0) return [];
  const { caller, listing, state } = asked;
  const wanted = { ...asWanted, ties: tiesOf(listing, asWanted.sort) };
  const filters = filtersOf(asked);
  const isOrdered = filters.length < 2 && filters.every(([name]) => isInOrder(listing, name));
  const isInIndex = isAccountWide(caller) && isOrdered && (filters.length === 0 || wanted.sort === listing.defaultSort);
  if (listing.counted && state === 'live' && count > maxMatchesToSort && !isInIndex && caller.kind !== 'station') {
    const rows = await scanToPage(db, asked, wanted, count);
    if (rows) return rows;
  }
  const { matching } = await narrow(db, asked, isInIndex ? 'page' : 'sort');
  const page = pageOf(matching, wanted);
  if (!wanted.whole) return page.select(placeOfRow(listing.table)).execute();
  // Of rows that are sorted or skipped only their numbers are looked at: the presence of a device is a second place.
  const isDirect = !listing.counted || (isInIndex && wanted.offset === 0);
  const found = page.select(sql.ref('row').as('row'));
  const rows = isDirect ? page : pageOf(allOf(db, asked).where(sql.ref('row'), 'in', found), { ...wanted, offset: 0 });
  return rows.selectAll().execute();
}

/** Everything of the caller's account, by its id. */
function allOf<T extends EntityTable>(db: Db, { caller, listing, state }: AskedList<T>) {
  return (db as unknown as Kysely<AnyTable>)
    .selectFrom(wholeOf(listing.table))
    .where('accountId', '=', caller.accountId)
    .where('deleted', state === 'live' ? 'is' : 'is not', null);
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
async function scanToPage<T extends EntityTable>(
  db: Db,
  asked: AskedList<T>,
  wanted: Wanted,
  count: number,
): Promise<unknown[] | undefined> {
  const { caller, listing, query } = asked;
  const filters = filtersOf(asked);
  const { sort, ties = [], offset, limit, whole } = wanted;
  const live = (db as unknown as Kysely<AnyTable>).selectFrom(wholeOf(listing.table)).where('deleted', 'is', null);
  const matches = sql<SqlBool>`${sql.join(
    [inReach(db, caller, listing), ...filters.map(([column, match]) => condition(column, match, query[column]))],
    sql` and `,
  )}`;
  // What is not named is not read: an index has the rows and what they are sorted by.
  const reach = isAccountWide(caller) ? [] : [listing.reach ?? 'id'];
  const columns = new Set(['row', sort, ...ties, ...reach, ...filters.map(([column]) => column)]);
  for (const steps of scanSizes) {
    if (offset + limit > steps) continue;
    const walked = pageOf(live.where(ofAccount(caller)), { ...wanted, offset: 0, limit: steps })
      .select([...columns].map((column) => sql.ref(column).as(column)))
      .as('walked');
    const found = pageOf(db.selectFrom(walked).where(matches), wanted).select(sql.ref('row').as('row'));
    const page = pageOf(allOf(db, asked).where(sql.ref('row'), 'in', found), { ...wanted, offset: 0 });
    const rows = await (whole ? page.selectAll() : page.select(placeOfRow(listing.table))).execute();
    if (rows.length === Math.min(limit, count - offset)) return rows;
  }
  return undefined;
}

/** Orders rows, ties by id unless otherwise said, and takes a page of them. */
export function pageOf<DB, TB extends keyof DB, O>(
  rows: SelectQueryBuilder<DB, TB, O>,
  { sort, order, offset, limit, ties = ['id'] }: Omit<Wanted, 'whole'>,
): SelectQueryBuilder<DB, TB, O> {
  const ordered = [sort, ...ties].reduce((query, column) => query.orderBy(sql.ref(column), order), rows);
  return ordered.limit(limit).offset(offset);
}

/** What rows with the same value are ordered by: as the indexes of devices have them, else by id. */
function tiesOf<T extends EntityTable>(listing: Listing<T>, sort: string): string[] {
  if (!listing.counted) return ['id'];
  return isInOrder(listing, sort) ? [listing.defaultSort, 'row'] : ['row'];
}
