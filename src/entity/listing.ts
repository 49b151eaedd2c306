/** Lists of entities: match, reach, sort, page and count. */

import { type Expression, type Kysely, type SelectQueryBuilder, type SqlBool, sql } from 'kysely';
import { type TProperties, Type } from 'typebox';
import type { Db } from '../../db/registry/index.js';
import { accountKey } from '../../db/registry/presence.js';
import type { Match } from '../../db/registry/records/columns.js';
import { type EntityTable, oneOf, type Row, wholeOf } from '../../db/registry/records.js';
import { contains, countContaining, rowsInTextIndex, type TextColumn } from '../../db/registry/text.js';
import { type Caller, isAccountWide } from '../access.js';
import { invalid, PlatformError } from '../errors.js';
import { degreesText } from '../formats/numbers.js';
import { laneOf } from '../limits/fair-queue.js';
import { type ListServices, oneSlice, type RowPlace, type RowSlice, readSlices } from './row-slices.js';
import { findUnstorable, parseDate, unstorable } from './values.js';

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

export interface Meta {
  count: number;
  page: number;
  pageSize: number;
  sortOrder: 'asc' | 'desc';
  sortBy?: string;
}

export interface Page<T extends EntityTable> {
  /** Read as they are taken. */
  rows: AsyncIterable<RowSlice<T>> | undefined;
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
  const { page = 1, pageSize = 10, meta = true, results = true } = query;
  const order = query.sortOrder ?? (state === 'live' ? 'asc' : 'desc');
  const sort = state === 'trash' ? 'deleted' : (query.sortBy ?? listing.defaultSort);

  for (const [name, value] of Object.entries(query))
    if (findUnstorable(value) !== undefined) throw invalid(name, unstorable);
  // Skipping to a page is expensive, so whether there is one is asked first.
  const count =
    (await keptCount(db, caller, listing, query, state)) ??
    (await countPresent(db, caller, listing, query, state)) ??
    (await countRows(await narrow(db, caller, listing, query, state)));
  demandPage(page, pageSize, count);
  const wanted = { sort, order, offset: (page - 1) * pageSize, limit: pageSize, whole: pageSize <= readWhole };
  const find = () => findRows(db, caller, listing, query, state, wanted, count);
  const inTurn = () => services.reads.run(laneOf(caller), pageSize / placesOfRow, find);
  const rows = !results
    ? undefined
    : wanted.whole
      ? oneSlice(caller, (await find()) as unknown as Row<T>[])
      : readSlices(services, caller, {
          ...{ table: listing.table, state },
          count: Math.min(pageSize, count - wanted.offset),
          find: async () => (await inTurn()) as RowPlace[],
        });
  const said = { count, page, pageSize, sortOrder: order, ...(listing.saysSort && { sortBy: sort }) };
  return { rows, meta: meta ? said : undefined };
}

/** Everything that a list would show, from after the id `after`, in the order of ids: at most `limit` of them. */
export async function idsOf<T extends EntityTable>(
  db: Db,
  caller: Caller,
  listing: Listing<T>,
  query: ListQuery,
  { after, limit }: { after: string; limit: number },
): Promise<string[]> {
  const { matching } = await narrow(db, caller, listing, query, 'live');
  const rows = await matching.select('id').where('id', '>', after).orderBy('id').limit(limit).execute();
  return rows.map(({ id }) => id);
}

/** Up to this page size rows are read at once; of longer pages their places first. */
const readWhole = 10;
/** Places of rows whose finding takes as long as reading and showing one. */
const placesOfRow = 20;

interface Wanted {
  sort: string;
  order: 'asc' | 'desc';
  offset: number;
  limit: number;
  /** Whether whole rows are wanted, or their places. */
  whole: boolean;
}

// Every entity table, seen through columns of any name: the listing names them, the schema has checked them.
type AnyTable = Record<EntityTable, { id: string; accountId: string; deleted: string | null }>;

/** Everything that matches, by the indexes that there are; wrapped, because a query cannot be awaited unexecuted. */
async function narrow<T extends EntityTable>(
  db: Db,
  caller: Caller,
  listing: Listing<T>,
  query: ListQuery,
  state: 'live' | 'trash',
) {
  let matching = (db as unknown as Kysely<AnyTable>)
    .selectFrom(wholeOf(listing.table))
    .where('accountId', '=', caller.accountId)
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
  const asked = askedOf(listing, query, state);
  const seen = seenOf(listing, query, asked);
  if (seen.length > 0) matching = matching.where(sql<SqlBool>`"row" in (${present(caller, query, seen)})`);
  for (const [column, match] of asked.filter((one) => !seen.includes(one))) {
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
function inReach<T extends EntityTable>(db: Db, caller: Caller, { table, reach }: Listing<T>): Expression<SqlBool> {
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
function askedOf<T extends EntityTable>({ filters }: Listing<T>, query: ListQuery, state: 'live' | 'trash') {
  if (state === 'trash') return [];
  return Object.entries(filters as Record<string, Match>).filter(([column]) => query[column] !== undefined);
}

/** The filters that a row in `devicePresence` answers by itself; a device that is not connected may have none. */
function seenOf<T extends EntityTable>({ presence }: Listing<T>, query: ListQuery, asked: [string, Match][]) {
  const names: readonly string[] = presence ?? [];
  return asked.filter(([column]) => names.includes(column) && query[column] !== false);
}

/** The live devices of the account that have these in `devicePresence`. */
function present(caller: Caller, query: ListQuery, seen: readonly [string, Match][]) {
  const matches = seen.map(([column, match]) =>
    match === 'flag' ? sql<SqlBool>`"connected" = 1` : condition(column, match, query[column]),
  );
  const account = accountKey(caller.accountId);
  return sql`select "row" from "devicePresence" where "account" = ${account} and ${sql.join(matches, sql` and `)}`;
}

/** As countRows, from `devicePresence` alone, where that can tell. */
async function countPresent<T extends EntityTable>(
  db: Db,
  caller: Caller,
  listing: Listing<T>,
  query: ListQuery,
  state: 'live' | 'trash',
): Promise<number | undefined> {
  const asked = askedOf(listing, query, state);
  const seen = seenOf(listing, query, asked);
  if (!isAccountWide(caller) || seen.length === 0 || seen.length < asked.length) return undefined;
  const { rows } = await sql<{ count: number }>`
    select count(*) as "count" from (${present(caller, query, seen)})`.execute(db);
  return rows[0]?.count;
}

async function countRows({ matching }: Awaited<ReturnType<typeof narrow>>): Promise<number> {
  const { count } = await matching.select((eb) => eb.fn.countAll<number>().as('count')).executeTakeFirstOrThrow();
  return Number(count);
}

/** The count that is kept for what is asked for, if there is one: of a combination of columns, or of one text. */
async function keptCount<T extends EntityTable>(
  db: Db,
  caller: Caller,
  listing: Listing<T>,
  query: ListQuery,
  state: 'live' | 'trash',
): Promise<number | undefined> {
  const { counted, text = [], reach } = listing;
  if (!counted || state === 'trash' || caller.kind === 'station') return undefined;
  const asked = askedOf(listing, query, state);
  const column = text.find((name) => query[name] !== undefined);
  if (column && asked.length === 1 && isAccountWide(caller))
    return countContaining(db, caller.accountId, column, String(query[column]));
  if (!asked.every(([name]) => counted.columns.includes(name))) return undefined;
  const placed = !isAccountWide(caller) || asked.some(([name]) => name === reach);
  let counts = db
    .selectFrom(placed ? counted.placed : counted.everywhere)
    .select((eb) => eb.fn.sum<number | null>('count').as('count'))
    .where('accountId', '=', caller.accountId)
    .where(inReach(db, caller, listing));
  for (const [name, match] of asked) {
    const nowhere = name === reach && query[name] === 'null';
    // '' is how the counts call nowhere; no place has that name.
    if (name === reach && query[name] === '') return 0;
    counts = counts.where(nowhere ? condition(name, 'exact', '') : condition(name, match, query[name]));
  }
  return Number((await counts.executeTakeFirst())?.count ?? 0);
}

/** Matches up to which a page is found by sorting them all. */
const maxMatchesToSort = 3000;
/** Rows looked at in order, at first and then, before a page of matches is looked for otherwise. */
const scanSizes = [1000, 10_000];

/**
 * A page of the rows that match, which are `count`. What is found often is soon met by walking in order, unless all of it
 * is far from the beginning.
 */
async function findRows<T extends EntityTable>(
  db: Db,
  caller: Caller,
  listing: Listing<T>,
  query: ListQuery,
  state: 'live' | 'trash',
  wanted: Wanted,
  count: number,
): Promise<unknown[]> {
  if (count === 0) return [];
  const asked = askedOf(listing, query, state);
  const isInOrder = asked.length < 2 && asked.every(([name]) => listing.inOrder?.some((one) => one === name));
  const isInIndex = isAccountWide(caller) && isInOrder && wanted.sort === listing.defaultSort;
  if (listing.counted && state === 'live' && count > maxMatchesToSort && !isInIndex && caller.kind !== 'station') {
    const rows = await scanToPage(db, caller, listing, query, wanted, count);
    if (rows) return rows;
  }
  const { matching } = await narrow(db, caller, listing, query, state);
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
async function scanToPage<T extends EntityTable>(
  db: Db,
  caller: Caller,
  listing: Listing<T>,
  query: ListQuery,
  wanted: Wanted,
  count: number,
): Promise<unknown[] | undefined> {
  const asked = askedOf(listing, query, 'live');
  const { sort, order, offset, limit, whole } = wanted;
  const everything = (db as unknown as Kysely<AnyTable>)
    .selectFrom(wholeOf(listing.table))
    .where('accountId', '=', caller.accountId)
    .where('deleted', 'is', null);
  const matches = sql<SqlBool>`${sql.join(
    [inReach(db, caller, listing), ...asked.map(([column, match]) => condition(column, match, query[column]))],
    sql` and `,
  )}`;
  const columns = new Set(['id', sort, listing.reach ?? 'id', ...asked.map(([column]) => column)]);
  for (const steps of scanSizes) {
    if (offset + limit > steps) continue;
    const walked = pageOf(everything, { sort, order, offset: 0, limit: steps, whole })
      .select([...columns].map((column) => sql.ref(column).as(column)))
      .as('walked');
    const ids = pageOf(db.selectFrom(walked).where(matches), wanted).select(sql.ref<string>('id').as('id'));
    const page = pageOf(everything.where('id', 'in', ids), { ...wanted, offset: 0 });
    const rows = await (whole ? page.selectAll() : page.select(placeOfRow(listing.table))).execute();
    if (rows.length === Math.min(limit, count - offset)) return rows;
  }
  return undefined;
}

/** Orders rows, ties by id, and takes a page of them. */
function pageOf<DB, TB extends keyof DB, O>(
  rows: SelectQueryBuilder<DB, TB, O>,
  { sort, order, offset, limit }: Wanted,
): SelectQueryBuilder<DB, TB, O> {
  return rows.orderBy(sql.ref(sort), order).orderBy(sql.ref('id'), order).limit(limit).offset(offset);
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

function condition(column: string, match: Match, value: unknown): Expression<SqlBool> {
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

/** @throws PlatformError 416/109 for a page (from 1) past the last; the first one of nothing is empty. */
export function demandPage(page: number, pageSize: number, count: number): void {
  if (page > 1 && (page - 1) * pageSize >= count) throw new PlatformError('pageOutside');
}
