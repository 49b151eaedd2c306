/** Lists of entities (spec 4.1): match, reach, sort, page, count, and the parents and child counts beside them. */
import { type Expression, type ExpressionBuilder, type Kysely, type SqlBool, sql } from 'kysely';
import { type TProperties, Type } from 'typebox';
import type { Db } from '../../db/index.js';
import type { EntityTable, Row } from '../../db/records.js';
import { type Caller, isAccountWide } from '../access.js';
import { invalid, PlatformError } from '../errors.js';
import { degreesText, findUnstorable, parseDate, unstorable } from './values.js';

/**
 * How a column is matched: `exact` text; `reference`, an id or the text `null`; `partial`, anywhere, ignoring case;
 * `flag`, a boolean; `latitude` and `longitude`, numbers kept as text; `date`, an instant.
 */
export type Match = 'exact' | 'reference' | 'partial' | 'flag' | 'latitude' | 'longitude' | 'date';

/** What a list of one table offers, as the spec names it. */
export interface Listing<T extends EntityTable> {
  table: T;
  filters: Readonly<Partial<Record<keyof Row<T> & string, Match>>>;
  sorts: readonly (keyof Row<T> & string)[];
  defaultSort: keyof Row<T> & string;
  /** Columns whose values are counted as rows are written, so that a list by one of them, or by none, need not count. */
  counted?: { table: 'deviceCounts'; facets: readonly string[] };
  /** The trigram index of the columns that are matched partially. */
  text?: 'devicesText';
  /** Values that columns must have whatever is asked for. */
  within?: Readonly<Partial<Record<keyof Row<T> & string, string>>>;
  /** The column that says where a row stands in the tree of organizations; absent where only admins list. */
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
  rows: Row<T>[] | undefined;
  meta: Meta | undefined;
}

/** A text that is one of these. */
export function oneOf<V extends string>(values: readonly V[], options: { default?: V; description?: string } = {}) {
  return Type.Unsafe<V>({ type: 'string', enum: [...values], ...options });
}

const pagination = {
  accountId: Type.String({ description: 'The account; a foreign one answers 404.' }),
  meta: Type.Optional(Type.Boolean({ default: true, description: 'Include meta information.' })),
  results: Type.Optional(Type.Boolean({ default: true, description: 'Include results.' })),
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
  sortOrder: Type.Optional(oneOf(['asc', 'desc'], { default: 'asc' })),
};

/**
 * The query of a list as a schema (spec 4.1). `more` are parameters that are no filters, such as expand and count;
 * `aliases` are further names to sort by.
 */
export function listSchema<T extends EntityTable>(listing: Listing<T>, more: TProperties = {}, aliases: object = {}) {
  const filters = Object.fromEntries(
    Object.entries(listing.filters).map(([name, match]) => [
      name,
      Type.Optional(match === 'flag' ? Type.Boolean() : Type.String({ description: described[match as Match] })),
    ]),
  );
  const sorts = [...new Set([...listing.sorts, listing.defaultSort, ...Object.keys(aliases)])];
  const sortBy = Type.Optional(oneOf(sorts, { default: listing.defaultSort }));
  return Type.Object({ ...pagination, sortBy, ...filters, ...more });
}

/** The query of a trash list: newest deletion first unless asked otherwise (decisions 2). */
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
  db: Db,
  caller: Caller,
  listing: Listing<T>,
  query: ListQuery,
  state: 'live' | 'trash' = 'live',
): Promise<Page<T>> {
  const { page = 1, pageSize = 10, meta = true, results = true } = query;
  const order = query.sortOrder ?? (state === 'live' ? 'asc' : 'desc');
  const sort = state === 'trash' ? 'deleted' : (query.sortBy ?? listing.defaultSort);

  // Skipping to a page is dear, so whether there is one is asked first.
  const indexed = narrow(db, caller, listing, query, state);
  const count = (await keptCount(db, caller, listing, query, state)) ?? (await countRows(indexed));
  if (page > 1 && (page - 1) * pageSize >= count) throw new PlatformError('pageOutside');
  // Where a text is found everywhere, walking in order meets a page of it sooner than sorting all of it.
  const { text, ...withoutText } = listing;
  const isAscii = Object.values(query).every((value) => /^[\p{ASCII}]*$/u.test(String(value)));
  const matching = text && count > oftenFound && isAscii ? narrow(db, caller, withoutText, query, state) : indexed;
  const found = results
    ? await matching
        .selectAll()
        .orderBy(sql.ref(sort), order)
        .orderBy('id', order)
        .limit(pageSize)
        .offset((page - 1) * pageSize)
        .execute()
    : undefined;
  return {
    rows: found as unknown as Row<T>[] | undefined,
    meta: meta ? { count, page, pageSize, sortOrder: order } : undefined,
  };
}

/** Matches from which on a page is looked for by walking in order. */
const oftenFound = 2000;

// Every entity table, seen through columns of any name: the listing names them, the schema has checked them.
type AnyTable = Record<EntityTable, { id: string; accountId: string; deleted: string | null }>;

function narrow<T extends EntityTable>(
  db: Db,
  caller: Caller,
  listing: Listing<T>,
  query: ListQuery,
  state: 'live' | 'trash',
) {
  let matching = (db as unknown as Kysely<AnyTable>)
    .selectFrom(listing.table as EntityTable)
    .where('accountId', '=', caller.accountId)
    .where('deleted', state === 'live' ? 'is' : 'is not', null);
  for (const [name, value] of Object.entries(query))
    if (findUnstorable(value) !== undefined) throw invalid(name, unstorable);
  for (const [column, value] of Object.entries<string | undefined>(listing.within ?? {}))
    matching = matching.where(condition(column, 'exact', value));
  for (const [column, match] of Object.entries(listing.filters)) {
    const value = query[column];
    if (value === undefined || state === 'trash') continue;
    const found = match === 'partial' && listing.text ? trigrams(listing.text, column, String(value)) : undefined;
    matching = matching.where(found ?? condition(column, match as Match, value));
  }
  if (isAccountWide(caller)) return matching;
  const roots = caller.kind === 'endUser' ? caller.organizationIds : [];
  if (!listing.reach || roots.length === 0) return matching.where(sql<SqlBool>`1 = 0`);
  return matching.where(sql.ref(listing.reach), 'in', subtree(db, roots));
}

async function countRows(matching: ReturnType<typeof narrow>): Promise<number> {
  const { count } = await matching.select((eb) => eb.fn.countAll<number>().as('count')).executeTakeFirstOrThrow();
  return Number(count);
}

/** The count that is kept for what is asked for, if there is one: the whole account, or one value of one column. */
async function keptCount<T extends EntityTable>(
  db: Db,
  caller: Caller,
  { counted, filters, text }: Listing<T>,
  query: ListQuery,
  state: 'live' | 'trash',
): Promise<number | undefined> {
  const asked = Object.keys(filters).filter((name) => query[name] !== undefined);
  const [facet = 'all', another] = asked;
  if (!counted || another || !isAccountWide(caller) || state === 'trash') return undefined;
  if (!counted.facets.includes(facet)) {
    const phrase =
      text && filters[facet as keyof typeof filters] === 'partial' && phraseOf(facet, String(query[facet]));
    return phrase ? textCount(db, caller, counted.table, text, phrase) : undefined;
  }
  const given = query[facet];
  if (given === '') return undefined;
  const value = typeof given === 'boolean' ? String(Number(given)) : given === 'null' ? '' : String(given ?? '');
  const kept = await db
    .selectFrom(counted.table)
    .select('count')
    .where('accountId', '=', caller.accountId)
    .where('facet', '=', facet)
    .where('value', '=', value)
    .executeTakeFirst();
  return kept?.count ?? 0;
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

/** The text index knows nothing of accounts, so that its own count is the answer where there is one account only. */
async function textCount(
  db: Db,
  caller: Caller,
  counts: 'deviceCounts',
  table: string,
  phrase: string,
): Promise<number | undefined> {
  const all = db.selectFrom(counts).select('accountId').where('facet', '=', 'all').where('count', '>', 0);
  if (await all.where('accountId', '!=', caller.accountId).limit(1).executeTakeFirst()) return undefined;
  const { rows } = await sql<{ count: number }>`
    select count(*) as count from ${sql.table(table)} where ${sql.table(table)} match ${phrase}`.execute(db);
  return Number(rows[0]?.count ?? 0);
}

/** What the trigram index is asked for; nothing for a text of less than three characters, which has no trigram. */
function phraseOf(column: string, text: string): string | undefined {
  return [...text].length < 3 || text.includes('\0') ? undefined : `"${column}" : "${text.replaceAll('"', '""')}"`;
}

function trigrams(table: string, column: string, text: string): Expression<SqlBool> | undefined {
  const phrase = phraseOf(column, text);
  if (phrase === undefined) return undefined;
  return sql<SqlBool>`"row" in (select rowid from ${sql.table(table)} where ${sql.table(table)} match ${phrase})`;
}

function condition(column: string, match: Match, value: unknown): Expression<SqlBool> {
  const reference = sql.ref(column);
  const text = String(value);
  switch (match) {
    case 'flag':
      return sql<SqlBool>`${reference} = ${value === true ? 1 : 0}`;
    case 'partial': {
      const pattern = `%${text.replace(/[\\%_]/g, '\\$&')}%`;
      return sql<SqlBool>`${reference} like ${pattern} escape '\\'`;
    }
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

/** The names in a comma-separated `expand` or `count`. @throws PlatformError 400 with 106 for an unknown one. */
export function readNames<N extends string>(path: string, value: string | undefined, known: readonly N[]): Set<N> {
  const names = new Set<N>();
  for (const name of (value ?? '').split(',')) {
    const trimmed = name.trim();
    if (trimmed === '') continue;
    if (!(known as readonly string[]).includes(trimmed)) throw invalid(path, `must be among ${known.join(', ')}`);
    names.add(trimmed as N);
  }
  return names;
}

/** The rows that `column` of a page of children names, live or in the trash, by id: what `expand` puts beside them. */
export async function parentsOf<T extends EntityTable, C extends string>(
  db: Db,
  table: T,
  children: ReadonlyArray<Record<C, string | null>>,
  column: C,
): Promise<Map<string, Row<T>>> {
  const wanted = [...new Set(children.map((child) => child[column]))].filter((id) => id !== null);
  if (wanted.length === 0) return new Map();
  const rows = await (db as unknown as Kysely<AnyTable>)
    .selectFrom(table as EntityTable)
    .selectAll()
    .where('id', 'in', wanted)
    .execute();
  return new Map(rows.map((row) => [row.id, row as unknown as Row<T>]));
}

/** How many live rows of `table` name each of `ids` in `column`: direct children only (decisions 2). */
export async function childCounts<T extends EntityTable>(
  db: Db,
  table: T,
  column: keyof Row<T> & string,
  ids: readonly string[],
): Promise<Map<string, number>> {
  if (ids.length === 0) return new Map();
  const parent = sql.ref<string>(column);
  const rows = await (db as unknown as Kysely<AnyTable>)
    .selectFrom(table as EntityTable)
    .select((eb: ExpressionBuilder<AnyTable, EntityTable>) => [
      parent.as('parent'),
      eb.fn.countAll<number>().as('count'),
    ])
    .where(parent, 'in', [...ids])
    .where('deleted', 'is', null)
    .groupBy(parent)
    .execute();
  return new Map(rows.map((row) => [row.parent, Number(row.count)]));
}
