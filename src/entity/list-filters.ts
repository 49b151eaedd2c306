/** What a list matches: the filters that are asked for and the reach of the caller, put so that an index finds the rows. */
import { type Expression, type Kysely, type RawBuilder, type SqlBool, sql } from 'kysely';
import { accountKey } from '../../db/registry/account-key.ts';
import type { Db } from '../../db/registry/index.ts';
import type { Match } from '../../db/registry/records/columns.ts';
import { type EntityTable, type Row, wholeOf } from '../../db/registry/records.ts';
import { contains, rowsWithText, type TextColumn } from '../../db/registry/text.ts';
import { type Caller, isAccountWide } from '../access.ts';
import { invalid } from '../errors.ts';
import { degreesText } from '../formats/numbers.ts';
import { parseDate } from './values.ts';

/** Filters, sorts and searches of a list of one table. */
export interface Listing<T extends EntityTable> {
  table: T;
  filters: Readonly<Partial<Record<keyof Row<T> & string, Match>>>;
  sorts: readonly (keyof Row<T> & string)[];
  defaultSort: keyof Row<T> & string;
  /**
   * Columns of few values, for whose combinations the rows are counted as they are written, so that a list by some of them,
   * or by none, need not count: everywhere, and in each place that `reach` names.
   */
  counted?: { columns: readonly string[]; everywhere: 'deviceCounts'; placed: 'placedDeviceCounts' };
  /** Columns for each of whose values the rows are found in the default order. */
  inOrder?: readonly (keyof Row<T> & string)[];
  /** Columns that are in the table `devicePresence`. */
  presence?: readonly (keyof Row<T> & string)[];
  /** Columns whose text is indexed for partial matches. */
  text?: readonly TextColumn[];
  /** Filters for rows whose date in a column is before an instant, by their names. */
  before?: Readonly<Record<string, keyof Row<T> & string>>;
  /** Values that columns must have whatever is asked for. */
  within?: Readonly<Partial<Record<keyof Row<T> & string, string>>>;
  /** Whether `meta` names the column by which rows are sorted. */
  saysSort?: true;
  /** The column that says where a row is in the tree of organizations; absent where only admins list. */
  reach?: keyof Row<T> & string;
}

export interface ListQuery {
  accountId: string;
  meta?: boolean;
  results?: boolean;
  page?: number;
  pageSize?: number;
  sortBy?: string;
  sortOrder?: 'asc' | 'desc';
  expand?: string;
  count?: string;
  fields?: string;
  [filter: string]: unknown;
}

/** A list that a caller asks for: of live entities, or of the trash. */
export interface AskedList<T extends EntityTable> {
  caller: Caller;
  listing: Listing<T>;
  query: ListQuery;
  state: 'live' | 'trash';
}

// Every entity table, seen through columns of any name: the listing names them, the schema has checked them.
export type AnyTable = Record<EntityTable, { id: string; accountId: string; deleted: string | null }>;

/** Columns of devices that have an index without the order of a list. */
const places = ['latitude', 'longitude'];

/** Up to so many rows of an index are looked at again and again: to be counted, or page by page. */
export const fewRows = 5000;

type Filter = [string, Match];

/** Rows that have what some filters ask for, found by indexes: at most `size`. */
export interface RowSet {
  filters: readonly Filter[];
  rows: RawBuilder<{ row: number }>;
  size: number;
}

/** Everything that matches, found by the rows of `set` where it is given; wrapped, because a query cannot be awaited unexecuted. */
export function narrow<T extends EntityTable>(db: Db, asked: AskedList<T>, set: RowSet | undefined, whole = true) {
  const { caller, listing, query, state } = asked;
  const rest = filtersOf(asked).filter(([name]) => !set?.filters.some(([found]) => found === name));
  // Devices have two ways to their account: the key is in the indexes, so the planner takes one of those only if it is named.
  const isAll = isAccountWide(caller) || caller.kind === 'station';
  const byKey = listing.counted && state === 'live' && !set && isAll;
  // Where nothing of the presence is asked for row by row, it need not be looked up.
  const isWhole = whole || rest.some(([column]) => isPresence(listing, column));
  let matching = (db as unknown as Kysely<AnyTable>)
    .selectFrom(isWhole ? wholeOf(listing.table) : listing.table)
    .where(byKey ? ofAccount(caller) : sql<SqlBool>`"accountId" = ${caller.accountId}`)
    .where('deleted', state === 'live' ? 'is' : 'is not', null)
    .where(inReach(db, caller, listing));
  for (const [column, value] of Object.entries<string | undefined>(listing.within ?? {}))
    matching = matching.where(condition(column, 'exact', value));
  for (const [name, column] of Object.entries<string>(listing.before ?? {})) {
    if (query[name] === undefined) continue;
    const instant = parseDate(String(query[name]));
    if (instant === undefined) throw invalid(name, 'must be an ISO 8601 date');
    matching = matching.where(sql<SqlBool>`${sql.ref(column)} < ${new Date(instant).toISOString()}`);
  }
  if (set) matching = matching.where(sql<SqlBool>`"row" in (${set.rows})`);
  for (const [column, match] of rest) {
    // A station finds what it can name, and does not look around.
    const isNamed = match === 'partial' && caller.kind === 'station';
    matching = matching.where(condition(column, isNamed ? 'exact' : match, query[column]));
  }
  return { matching };
}

/** Entries of an index that are read in the time in which one device is looked up. */
const entriesOfLookup = 10;
/** Entries of a second index that are counted to see whether it helps. */
const maxEntriesOfSecond = 100_000;

/**
 * The rows that the filter with the fewest finds by its index, if they are at most `limit`, and fewer than the caller reaches.
 * Where a second index is not much longer, only those are looked up that both have.
 */
export async function smallestSet<T extends EntityTable>(
  db: Db,
  asked: AskedList<T>,
  limit: number,
): Promise<RowSet | undefined> {
  const { caller, listing, state } = asked;
  if (!listing.counted || state === 'trash') return undefined;
  const filters = filtersOf(asked);
  const isCounted = ([name]: Filter) => listing.counted?.columns.includes(name) ?? false;
  const reached = caller.kind === 'endUser' ? await sumOfCounts(db, asked, [], inReach(db, caller, listing)) : limit;
  let most = Math.min(limit, reached);
  const sets: RowSet[] = [];
  // Those whose number is kept first: the others are counted up to what the plan can take.
  for (const filter of [...filters.filter(isCounted), ...filters.filter((one) => !isCounted(one))]) {
    const rows = rowsOf(asked, filter);
    if (!rows) continue;
    const maxSize = sets.length > 0 ? Math.min(most * entriesOfLookup, maxEntriesOfSecond) : most;
    const size = isCounted(filter) ? await sumOfCounts(db, asked, [filter]) : await countUpTo(db, rows, maxSize + 1);
    if (size > maxSize) continue;
    sets.push({ filters: [filter], rows, size });
    most = Math.min(most, size);
  }
  const [smallest, second] = sets.sort((a, b) => a.size - b.size);
  if (!smallest || !second || second.size > smallest.size * entriesOfLookup) return smallest;
  return {
    filters: [...smallest.filters, ...second.filters],
    // The plus keeps SQLite from looking the rows of the second up one by one.
    rows: sql`select "row" from (${second.rows}) where +"row" in (${smallest.rows})`,
    size: smallest.size,
  };
}

/** The live devices that one filter finds by an index, if one has it. Those with a text are of all accounts. */
function rowsOf<T extends EntityTable>(asked: AskedList<T>, filter: Filter): RawBuilder<{ row: number }> | undefined {
  const { caller, listing, query } = asked;
  const [name, match] = filter;
  const column = listing.text?.find((indexed) => indexed === name);
  if (column) return caller.kind === 'station' ? undefined : rowsWithText(column, String(query[column]));
  // A device that is not connected may have no row there.
  if (isPresence(listing, name)) return query[name] === false ? undefined : present(asked, [filter]);
  // What an end-user reaches is found by its organizations.
  if (!isAccountWide(caller) || !(places.includes(name) || isInOrder(listing, name))) return undefined;
  return sql`select "row" from "devices"
    where ${ofAccount(caller)} and "deleted" is null and ${condition(name, match, query[name])}`;
}

/** How many rows there are, `limit` at most. */
async function countUpTo(db: Db, rows: RawBuilder<{ row: number }>, limit: number): Promise<number> {
  const { rows: found } = await sql<{ count: number }>`
    select count(*) as "count" from (${rows} limit ${limit})`.execute(db);
  return found[0]?.count ?? 0;
}

/** How many devices of the account match filters of columns that are counted as they are written, `within` some organizations. */
export async function sumOfCounts<T extends EntityTable>(
  db: Db,
  { caller, listing, query }: AskedList<T>,
  filters: readonly Filter[],
  within?: Expression<SqlBool>,
): Promise<number> {
  const { counted, reach } = listing;
  const isPlaced = within !== undefined || filters.some(([name]) => name === reach);
  const matches = filters.map(([name, match]) => {
    // '' is how the counts call nowhere; no place has that name.
    if (name !== reach || (query[name] !== 'null' && query[name] !== '')) return condition(name, match, query[name]);
    return query[name] === '' ? sql<SqlBool>`1 = 0` : condition(name, 'exact', '');
  });
  const table = sql.table((isPlaced ? counted?.placed : counted?.everywhere) ?? '');
  const { rows } = await sql<{ count: number | null }>`
    select sum("count") as "count" from ${table}
    where ${sql.join([sql`"accountId" = ${caller.accountId}`, within ?? sql`1 = 1`, ...matches], sql` and `)}`.execute(
    db,
  );
  return rows[0]?.count ?? 0;
}

/** Whether an index has the rows of each value of a column in the default order. */
export function isInOrder<T extends EntityTable>({ inOrder }: Listing<T>, column: string): boolean {
  return inOrder?.some((one) => one === column) ?? false;
}

/** Devices of the caller's account, by the key that their indexes begin with. */
export function ofAccount(caller: Caller): Expression<SqlBool> {
  return sql<SqlBool>`substr("accountId", 27) = ${accountKey(caller.accountId)}`;
}

/**
 * Whether a row stands where the caller reaches: anywhere for an admin, a station's own devices where it puts them (as
 * `reachesDevice` has it), else at or below its organizations.
 */
export function inReach<T extends EntityTable>(
  db: Db,
  caller: Caller,
  { table, reach }: Listing<T>,
): Expression<SqlBool> {
  if (isAccountWide(caller)) return sql<SqlBool>`1 = 1`;
  if (caller.kind === 'station' && table === 'devices') {
    const { id, deviceTemplateId, organizationId } = caller;
    // The plus keeps indexes of these out: the serial number, which few have, finds them.
    return sql<SqlBool>`+"createdById" = ${id} and +"deviceTemplateId" = ${deviceTemplateId} and +"organizationId" is ${organizationId}`;
  }
  const roots = caller.kind === 'endUser' ? caller.organizationIds : [];
  if (!reach || roots.length === 0) return sql<SqlBool>`1 = 0`;
  return sql<SqlBool>`${sql.ref(reach)} in ${subtree(db, roots)}`;
}

/** The filters that are asked for; the trash has none. */
export function filtersOf<T extends EntityTable>({ listing, query, state }: AskedList<T>): [string, Match][] {
  if (state === 'trash') return [];
  return Object.entries(listing.filters as Record<string, Match>).filter(([column]) => query[column] !== undefined);
}

/** The filters that a row in `devicePresence` answers by itself; a device that is not connected may have none. */
function seenOf<T extends EntityTable>(asked: AskedList<T>): [string, Match][] {
  const { listing, query } = asked;
  return filtersOf(asked).filter(([column]) => isPresence(listing, column) && query[column] !== false);
}

function isPresence<T extends EntityTable>({ presence }: Listing<T>, column: string): boolean {
  return presence?.some((one) => one === column) ?? false;
}

/** The live devices of the account that have these in `devicePresence`. */
function present<T extends EntityTable>({ caller, query }: AskedList<T>, seen: readonly [string, Match][]) {
  const matches = seen.map(([column, match]) =>
    match === 'flag' ? sql<SqlBool>`"connected" = 1` : condition(column, match, query[column]),
  );
  const account = accountKey(caller.accountId);
  return sql<{
    row: number;
  }>`select "row" from "devicePresence" where "account" = ${account} and ${sql.join(matches, sql` and `)}`;
}

/** How many match, where `devicePresence` alone can tell. */
export async function countPresent<T extends EntityTable>(db: Db, asked: AskedList<T>): Promise<number | undefined> {
  const seen = seenOf(asked);
  if (!isAccountWide(asked.caller) || seen.length === 0 || seen.length < filtersOf(asked).length) return undefined;
  return countUpTo(db, present(asked, seen), Number.MAX_SAFE_INTEGER);
}

/** The ids of live organizations at and below `roots`. */
function subtree(db: Db, roots: readonly string[]): Expression<string> {
  return sql<string>`(${db
    .withRecursive('reach', (qc) =>
      qc
        .selectFrom('organizations')
        .select('id')
        .where('id', 'in', [...roots])
        .where('deleted', 'is', null)
        .union(
          qc
            .selectFrom('organizations')
            .innerJoin('reach', 'reach.id', 'organizations.parentId')
            .select('organizations.id')
            .where('organizations.deleted', 'is', null),
        ),
    )
    .selectFrom('reach')
    .select('id')})`;
}

export function condition(column: string, match: Match, value: unknown): Expression<SqlBool> {
  const reference = sql.ref(column);
  const text = String(value);
  switch (match) {
    case 'flag':
      return sql<SqlBool>`${reference} = ${value === true ? 1 : 0}`;
    case 'partial':
      return contains(column, text);
    case 'reference':
      return text === 'null' ? sql<SqlBool>`${reference} is null` : sql<SqlBool>`${reference} = ${text}`;
    case 'latitude':
    case 'longitude': {
      const degrees = degreesText(text, match === 'latitude' ? 90 : 180);
      if (degrees === undefined) throw invalid(column, 'must be a number in range');
      return sql<SqlBool>`${reference} = ${degrees}`;
    }
    case 'date': {
      const instant = parseDate(text);
      if (instant === undefined) throw invalid(column, 'must be an ISO 8601 date');
      return sql<SqlBool>`${reference} = ${new Date(instant).toISOString()}`;
    }
    case 'exact':
      return sql<SqlBool>`${reference} = ${text}`;
  }
}
