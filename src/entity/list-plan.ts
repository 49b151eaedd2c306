/**
 * How a list finds its count and its page in tables of a million rows: counts that are kept, an index of texts, and rows
 * looked at in the order of the page. docs/decisions/006-partial-match-and-kept-counts.md tells when each is used.
 */
import {
  type CompiledQuery,
  type Expression,
  type Kysely,
  type RawBuilder,
  type SelectQueryBuilder,
  type SqlBool,
  sql,
} from 'kysely';
import { type Db, isStoreFull } from '../../db/registry/index.ts';
import { countAndKeep, countedAtOnce, keptCount, type Question } from '../../db/registry/list-counts.ts';
import { longColumns } from '../../db/registry/records/by-table.ts';
import type { Match } from '../../db/registry/records/columns.ts';
import { type EntityTable, wholeOf } from '../../db/registry/records.ts';
import { fold } from '../../db/sqlite/fold.ts';
import { isAccountWide } from '../access.ts';
import { laneOf } from '../limits/fair-queue.ts';
import { maxRowsOnLoop, type Query } from '../threads/long-reads.ts';
import {
  type AnyTable,
  type AskedList,
  condition,
  countPresent,
  fewRows,
  filtersOf,
  inReach,
  isInOrder,
  type Listing,
  type ListQuery,
  narrow,
  ofAccount,
  type RowSet,
  smallestSet,
  sumOfCounts,
} from './list-filters.ts';
import { type ListServices, placesOfRow } from './row-slices.ts';

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

/** How many rows match. What is expensive to count is counted once, in turns of the caller, and then kept. */
export async function countMatches<T extends EntityTable>(
  { registry, reads, longReads, firstCounts }: Pick<ListServices, 'registry' | 'reads' | 'longReads' | 'firstCounts'>,
  asked: AskedList<T>,
): Promise<number> {
  const db = registry.query;
  const { caller, listing, query, state } = asked;
  const filters = filtersOf(asked);
  const { counted, text = [], reach } = listing;
  const countRows = async (set?: RowSet) => {
    const { matching } = narrow(db, asked, set, false);
    const counts = matching.select((eb) => eb.fn.countAll<number>().as('count'));
    const rows = set?.size ?? (await rowsLookedThrough(db, asked));
    const [found] = await longReads.find<{ count: number }>(laneOf(caller), counts, rows);
    return Number(found?.count ?? 0);
  };
  if (!counted || state === 'trash' || caller.kind === 'station') return countRows();
  if (filters.every(([name]) => counted.columns.includes(name))) {
    const within = isAccountWide(caller) ? undefined : inReach(db, caller, listing);
    return sumOfCounts(db, asked, filters, within);
  }
  const present = await countPresent(db, asked);
  if (present !== undefined) return present;
  const isKeepable =
    isAccountWide(caller) &&
    filters.every(([name]) => counted.columns.includes(name) || text.some((column) => column === name)) &&
    !(reach && query[reach] === '');
  if (!isKeepable) return countRows(await smallestSet(db, asked, maxRowsToSort));
  const question = questionOf(asked);
  const kept = await keptCount(db, caller.accountId, question);
  if (kept !== undefined) return kept;
  const set = await smallestSet(db, asked, maxRowsCounted);
  // The index of texts knows nothing of accounts: its own count is the answer where no other account has devices.
  if (set && filters.length === 1 && (await isOnlyAccount(db, caller.accountId))) {
    const distinct = db
      .selectFrom(sql<{ row: number }>`(${set.rows})`.as('found'))
      .select((eb) => eb.fn.count<number>('row').distinct().as('count'));
    const [found] = await longReads.find(laneOf(caller), distinct, set.size);
    return found?.count ?? 0;
  }
  if (set && set.size <= fewRows) return countRows(set);
  const among = set && set.size <= maxRowsCountedAtOnce ? set.rows : undefined;
  const matches = sql.join(
    filters.map((filter) => conditionOfDevice(filter, query)),
    sql` and `,
  ) as Expression<SqlBool>;
  let place: 'last' | 'first' = 'last';
  const inTurn = (work: () => Promise<number | undefined>) => {
    const counted = reads.run(laneOf(caller), countedAtOnce / placesOfRow, work, place);
    place = 'first';
    return counted;
  };
  try {
    const counting = { accountId: caller.accountId, question, matches, among };
    return await firstCounts.run(laneOf(caller), 1, () => countAndKeep(db, counting, inTurn));
  } catch (error) {
    // A full disk keeps nothing, and must not keep anybody from reading.
    if (isStoreFull(error)) return countRows();
    throw error;
  }
}

async function isOnlyAccount(db: Db, accountId: string): Promise<boolean> {
  const others = db.selectFrom('deviceCounts').select('accountId').where('accountId', '!=', accountId);
  return (await others.limit(1).executeTakeFirst()) === undefined;
}

/** A filter as devices have it without their presence. */
function conditionOfDevice([name, match]: [string, Match], query: ListQuery): Expression<SqlBool> {
  if (match !== 'flag') return condition(name, match, query[name]);
  const connected = sql`select p."connected" from "devicePresence" as p where p."row" = "devices"."row"`;
  return sql<SqlBool>`coalesce((${connected}), 0) = ${query[name] === true ? 1 : 0}`;
}

function questionOf<T extends EntityTable>(asked: AskedList<T>): Question {
  const { query } = asked;
  const values = filtersOf(asked).map(([name, match]) => {
    if (match === 'flag') return [name, query[name] === true ? 1 : 0];
    if (match === 'partial') return [name, fold(String(query[name]))];
    return [name, match === 'reference' && query[name] === 'null' ? '' : String(query[name])];
  });
  return Object.fromEntries(values) as Question;
}

/** How many rows a list looks at where no index finds what it asks for; the rows of some tables are counted up to a limit. */
export async function rowsLookedThrough<T extends EntityTable>(db: Db, asked: AskedList<T>): Promise<number> {
  const { caller, listing, query, state } = asked;
  // A station looks for a device by what it can name.
  if (caller.kind === 'station' && listing.text?.some((column) => query[column] !== undefined)) return 1;
  if (listing.counted && state === 'live')
    return sumOfCounts(db, asked, [], caller.kind === 'endUser' ? inReach(db, caller, listing) : undefined);
  const { rows } = await sql<{ count: number }>`
    select count(*) as "count" from (
      select 1 from ${sql.table(listing.table)}
      where "accountId" = ${caller.accountId} and "deleted" is ${state === 'live' ? sql`null` : sql`not null`}
      limit ${maxRowsOnLoop + 1}
    )`.execute(db);
  return rows[0]?.count ?? 0;
}

/** Rows that are looked at in order until a page of matches is full. */
const maxRowsInOrder = 10_000;
/** With more rows in its index a filter does not help to find those that are sorted. */
const maxRowsToSort = 100_000;
/** Rows of one filter whose index is counted at each request, and that are looked at in one transaction. */
const maxRowsCounted = 50_000;
const maxRowsCountedAtOnce = 10_000;

/**
 * A page of the rows that match, which are `count`. What is found often is soon met by walking in order, unless all of it
 * is far from the beginning. Where many rows are looked at, the answer is the query that finds the page: it is for `LongReads`.
 */
export async function findRows<T extends EntityTable>(
  db: Db,
  asked: AskedList<T>,
  asWanted: Omit<Wanted, 'ties'>,
  count: number,
): Promise<unknown[] | CompiledQuery> {
  if (count === 0) return [];
  const { caller, listing, state } = asked;
  const wanted = { ...asWanted, ties: tiesOf(listing, asWanted.sort) };
  const filters = filtersOf(asked);
  const isCounted = listing.counted && state === 'live' && caller.kind !== 'station';
  // The index of a filter has its rows in the default order.
  const ordered = wanted.sort === listing.defaultSort ? filters.filter(([name]) => isInOrder(listing, name)) : [];
  const isInIndex = isAccountWide(caller) && filters.length < 2 && filters.length === ordered.length;
  let set: RowSet | undefined;
  if (isCounted && !isInIndex) {
    const walk = await walkTo(db, asked, wanted, count, ordered);
    set = await smallestSet(db, asked, Math.min(walk.expected, maxRowsInOrder));
    const rows = set || walk.expected > maxRowsInOrder ? undefined : await walk.page();
    if (rows) return rows;
    set ??= await smallestSet(db, asked, maxRowsToSort);
  }
  // Of rows that are sorted or skipped only their numbers are looked at: the presence of a device is a second place.
  const isDirect = !listing.counted || (isInIndex && wanted.offset === 0);
  const { matching } = narrow(db, asked, set, isDirect && wanted.whole);
  const page = pageOf(matching, wanted);
  const found = page.select(sql.ref('row').as('row'));
  const rows = isDirect ? page : pageOf(allOf(db, asked).where(sql.ref('row'), 'in', found), { ...wanted, offset: 0 });
  const query: Query = wanted.whole ? rows.selectAll() : page.select(placeOfRow(listing.table));
  const inOrder = isCounted && isInIndex ? wanted.offset + wanted.limit : undefined;
  const isLong = (set?.size ?? inOrder ?? (await rowsLookedThrough(db, asked))) > maxRowsOnLoop;
  return isLong ? query.compile() : query.execute();
}

/** Everything of the caller's account, by its id. */
function allOf<T extends EntityTable>(db: Db, { caller, listing, state }: AskedList<T>) {
  return (db as unknown as Kysely<AnyTable>)
    .selectFrom(wholeOf(listing.table))
    .where('accountId', '=', caller.accountId)
    .where('deleted', state === 'live' ? 'is' : 'is not', null);
}

/** The columns of a RowPlace. */
function placeOfRow(table: EntityTable) {
  return [sql.ref<string>('id').as('id'), bytesOf(longColumns(table)).as('bytes')] as const;
}

/** About how many bytes these columns of a row have: the length is read without the text. */
export function bytesOf(columns: readonly string[]): RawBuilder<number> {
  if (columns.length === 0) return sql<number>`0`;
  const lengths = columns.map((column) => sql`coalesce(octet_length(${sql.ref(column)}), 0)`);
  return sql<number>`${sql.join(lengths, sql` + `)}`;
}

/**
 * A page of rows that is met in order, in the index of the sort or of the filter in `ordered` with the fewest rows; and how
 * many rows that takes, if those that match are everywhere.
 */
async function walkTo<T extends EntityTable>(
  db: Db,
  asked: AskedList<T>,
  wanted: Required<Wanted>,
  count: number,
  ordered: [string, Match][],
) {
  const { caller, listing, query } = asked;
  const filters = filtersOf(asked);
  const { sort, ties, offset, limit, whole } = wanted;
  let [within, rows]: [[string, Match][], number] = [[], await sumOfCounts(db, asked, [])];
  for (const filter of ordered) {
    const size = await sumOfCounts(db, asked, [filter]);
    if (size <= rows) [within, rows] = [[filter], size];
  }
  let live = (db as unknown as Kysely<AnyTable>).selectFrom(wholeOf(listing.table)).where('deleted', 'is', null);
  for (const [column, match] of within) live = live.where(condition(column, match, query[column]));
  const rest = filters.filter(([name]) => within.every(([column]) => column !== name));
  const matches = [
    inReach(db, caller, listing),
    ...rest.map(([column, match]) => condition(column, match, query[column])),
  ];
  // What is not named is not read: an index has the rows and what they are sorted by.
  const reach = isAccountWide(caller) ? [] : [listing.reach ?? 'id'];
  const columns = new Set(['row', sort, ...ties, ...reach, ...rest.map(([column]) => column)]);
  const walked = pageOf(live.where(ofAccount(caller)), { ...wanted, offset: 0, limit: maxRowsInOrder })
    .select([...columns].map((column) => sql.ref(column).as(column)))
    .as('walked');
  // A subquery with a limit gives its rows in its order, and only as many as are taken; sorted again, all would be. "Is true"
  // keeps SQLite from making an index for the conditions, which would have another order.
  const found = db
    .selectFrom(walked)
    .where(sql<SqlBool>`(${sql.join(matches, sql` and `)}) is true`)
    .select(sql.ref('row').as('row'))
    .limit(limit)
    .offset(offset);
  const page = pageOf(allOf(db, asked).where(sql.ref('row'), 'in', found), { ...wanted, offset: 0 });
  return {
    expected: Math.ceil((offset + limit) * (rows / count)),
    page: async () => {
      const met: unknown[] = await (whole ? page.selectAll() : page.select(placeOfRow(listing.table))).execute();
      return met.length === Math.min(limit, count - offset) ? met : undefined;
    },
  };
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
