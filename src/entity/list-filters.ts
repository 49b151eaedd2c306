/** What a list matches: the filters that are asked for and the reach of the caller, as conditions of SQL. */
import { type Expression, type Kysely, type SqlBool, sql } from 'kysely';
import type { Db } from '../../db/registry/index.js';
import { accountKey } from '../../db/registry/presence.js';
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

/** Everything that matches, by the indexes that there are; wrapped, because a query cannot be awaited unexecuted. */
export async function narrow<T extends EntityTable>(db: Db, asked: AskedList<T>) {
  const { caller, listing, query, state } = asked;
  let matching = (db as unknown as Kysely<AnyTable>)
    .selectFrom(wholeOf(listing.table))
    .where('accountId', '=', caller.accountId)
    .where('deleted', state === 'live' ? 'is' : 'is not', null)
    .where(inReach(db, asked));
  for (const [column, value] of Object.entries<string | undefined>(listing.within ?? {}))
    matching = matching.where(condition(column, 'exact', value));
  for (const [name, column] of Object.entries<string>(listing.before ?? {})) {
    if (query[name] === undefined) continue;
    const instant = parseDate(String(query[name]));
    if (instant === undefined) throw invalid(name, 'must be an ISO 8601 date');
    matching = matching.where(sql<SqlBool>`${sql.ref(column)} < ${new Date(instant).toISOString()}`);
  }
  const filters = filtersOf(asked);
  const inPresence = presenceFiltersOf(asked, filters);
  if (inPresence.length > 0) matching = matching.where(sql<SqlBool>`"row" in (${rowsInPresence(asked, inPresence)})`);
  for (const [column, match] of filters.filter((one) => !inPresence.includes(one))) {
    // A station finds what it can name, and does not look around.
    if (match === 'partial' && caller.kind === 'station') {
      matching = matching.where(condition(column, 'exact', query[column]));
      continue;
    }
    const text = listing.text?.find((indexed) => indexed === column);
    const rows = text && (await rowsInTextIndex(db, text, String(query[column])));
    matching = matching.where(rows ? sql<SqlBool>`"row" in (${rows})` : condition(column, match, query[column]));
  }
  return { matching };
}

/**
 * Whether a row stands where the caller reaches: anywhere for an admin, a station's own devices where it puts them (as
 * `reachesDevice` has it), else at or below its organizations.
 */
export function inReach<T extends EntityTable>(db: Db, { caller, listing }: AskedList<T>): Expression<SqlBool> {
  const { table, reach } = listing;
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
export function filtersOf<T extends EntityTable>({ listing, query, state }: AskedList<T>) {
  if (state === 'trash') return [];
  return Object.entries(listing.filters as Record<string, Match>).filter(([column]) => query[column] !== undefined);
}

/** The filters that a row in `devicePresence` answers by itself; a device that is not connected may have none. */
export function presenceFiltersOf<T extends EntityTable>({ listing, query }: AskedList<T>, filters: [string, Match][]) {
  const names: readonly string[] = listing.presence ?? [];
  return filters.filter(([column]) => names.includes(column) && query[column] !== false);
}

/** The live devices of the account that have these in `devicePresence`. */
export function rowsInPresence(
  { caller, query }: Pick<AskedList<EntityTable>, 'caller' | 'query'>,
  filters: readonly [string, Match][],
) {
  const matches = filters.map(([column, match]) =>
    match === 'flag' ? sql<SqlBool>`"connected" = 1` : condition(column, match, query[column]),
  );
  const account = accountKey(caller.accountId);
  return sql`select "row" from "devicePresence" where "account" = ${account} and ${sql.join(matches, sql` and `)}`;
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
