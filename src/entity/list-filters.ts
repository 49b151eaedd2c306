/** What a list matches: the filters that are asked for and the reach of the caller, put so that an index finds the rows. */
import { type Expression, type Kysely, type SqlBool, sql } from 'kysely';
import { accountKey } from '../../db/registry/account-key.js';
import type { Db } from '../../db/registry/index.js';
import type { Match } from '../../db/registry/records/columns.js';
import { type EntityTable, type Row, wholeOf } from '../../db/registry/records.js';
import { contains, rowsInTextIndex, type TextColumn } from '../../db/registry/text.js';
import { type Caller, isAccountWide } from '../access.js';
import { invalid } from '../errors.js';
import { degreesText } from '../formats/numbers.js';
import { parseDate } from './values.js';

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

/**
 * What the rows are looked for: `count`; `page`, of those of one filter at most, in an order that an index has; `sort`, to be
 * sorted afterwards; `walk`, all of them in the order of their ids, some at a time.
 */
export type Purpose = 'count' | 'page' | 'sort' | 'walk';

/** Everything that matches; wrapped, because a query cannot be awaited unexecuted. */
export async function narrow<T extends EntityTable>(db: Db, asked: AskedList<T>, purpose: Purpose) {
  const { caller, listing, query, state } = asked;
  const filters = filtersOf(asked);
  const { sets, rest } = listing.counted ? await rowSets(db, asked, purpose) : { sets: [], rest: filters };
  // Devices have two ways to their account: the key is in the indexes, so the planner takes one of those only if it is named.
  const byKey =
    listing.counted &&
    state === 'live' &&
    sets.length === 0 &&
    (isAccountWide(caller) || caller.kind === 'station') &&
    !(purpose === 'walk' && rest.some(([, match]) => match === 'reference'));
  // Nothing of the presence is asked for row by row: to count, SQLite would look for it all the same.
  const isPlain = purpose === 'count' && !rest.some(([column]) => isPresence(listing, column));
  let matching = (db as unknown as Kysely<AnyTable>)
    .selectFrom(isPlain ? listing.table : wholeOf(listing.table))
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
  for (const set of sets) matching = matching.where(sql<SqlBool>`"row" in (${set})`);
  for (const [column, match] of rest) {
    // A station finds what it can name, and does not look around.
    const isNamed = match === 'partial' && caller.kind === 'station';
    matching = matching.where(condition(column, isNamed ? 'exact' : match, query[column]));
  }
  return { matching };
}

/** Places of a text up to which they are looked at rather than the devices of an organization, or those that are connected. */
const fewPlaces = 3000;

/** The rows that some filters find by their indexes, and the filters that are left to be looked at row by row. */
async function rowSets<T extends EntityTable>(db: Db, asked: AskedList<T>, purpose: Purpose) {
  const { caller, listing, query } = asked;
  const filters = filtersOf(asked);
  const seen = seenOf(asked);
  const isReference = ([name]: [string, Match]) => name !== 'provisioningState' && isInOrder(listing, name);
  const rest = (found: [string, Match][]) => filters.filter((filter) => !found.includes(filter));

  const limit = seen.length > 0 || filters.some(isReference) ? fewPlaces : undefined;
  for (const filter of filters) {
    const column = listing.text?.find((indexed) => indexed === filter[0]);
    const rows =
      column && caller.kind !== 'station' && (await rowsInTextIndex(db, column, String(query[column]), limit));
    if (rows) return { sets: [rows], rest: rest([filter]) };
  }
  const isFlag = ([, match]: [string, Match]) => match === 'flag';
  const isFew = !seen.some(isFlag) || !seen.every(isFlag) || (await areFewConnected(db, asked));
  const reported = isFew ? seen : [];
  if (reported.length > 0) return { sets: [present(asked, reported)], rest: rest(reported) };

  // What an end-user reaches is found by its organizations.
  if (!isAccountWide(caller)) return { sets: [], rest: filters };
  const indexed = filters.filter(([name]) => places.includes(name) || (purpose === 'sort' && isInOrder(listing, name)));
  if (indexed.length === 0) return { sets: [], rest: filters };
  const matches = indexed.map(([column, match]) => condition(column, match, query[column]));
  const set = sql`select "row" from "devices" where ${ofAccount(caller)}
    and "deleted" is null and ${sql.join(matches, sql` and `)}`;
  return { sets: [set], rest: rest(indexed) };
}

/** Whether fewer devices are connected than have what is asked for of the columns in `counted`; by the counts that are kept. */
async function areFewConnected<T extends EntityTable>(db: Db, asked: AskedList<T>): Promise<boolean> {
  const { caller, listing, query } = asked;
  const others = filtersOf(asked).filter(([name]) => isInOrder(listing, name));
  if (others.length === 0) return true;
  const isPlaced = others.some(([name]) => name === 'organizationId');
  const matches = others.map(([name, match]) =>
    match === 'reference' && query[name] === 'null'
      ? condition(name, 'exact', '')
      : condition(name, match, query[name]),
  );
  const sum = async (table: string, matching: Expression<SqlBool>) => {
    const { rows } = await sql<{ count: number | null }>`
      select sum("count") as "count" from ${sql.table(table)} where "accountId" = ${caller.accountId} and ${matching}`.execute(
      db,
    );
    return rows[0]?.count ?? 0;
  };
  const connected = await sum('deviceCounts', sql<SqlBool>`"connected" = 1`);
  return connected <= (await sum(isPlaced ? 'placedDeviceCounts' : 'deviceCounts', sql.join(matches, sql` and `)));
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
  return sql`select "row" from "devicePresence" where "account" = ${account} and ${sql.join(matches, sql` and `)}`;
}

/** How many match, where `devicePresence` alone can tell. */
export async function countPresent<T extends EntityTable>(db: Db, asked: AskedList<T>): Promise<number | undefined> {
  const seen = seenOf(asked);
  if (!isAccountWide(asked.caller) || seen.length === 0 || seen.length < filtersOf(asked).length) return undefined;
  const { rows } = await sql<{ count: number }>`
    select count(*) as "count" from (${present(asked, seen)})`.execute(db);
  return rows[0]?.count;
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
