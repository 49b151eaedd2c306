/** What lists may be asked for: filters and sorts of a table, and the query of its URL as a schema. */
import { type TProperties, Type } from 'typebox';
import type { Match } from '../../db/registry/records/columns.ts';
import { type EntityTable, oneOf, type Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { invalid } from '../core/errors.ts';
import type { CompiledFilter } from './filters/compiled.ts';
import { maxLength } from './filters/parser.ts';
import type { ListServices, RowPlace } from './row-slices.ts';

type Name<T extends EntityTable> = keyof Row<T> & string;

/** Filters, sorts and searches of a list of one table. */
export interface Listing<T extends EntityTable> {
  table: T;
  filters: Readonly<Partial<Record<Name<T>, Match>>>;
  sorts: readonly Name<T>[];
  defaultSort: Name<T>;
  /** What is live is in this order unless the query asks otherwise; ascending when it is left out. */
  defaultOrder?: 'asc' | 'desc';
  /** Filters for rows whose date in a column is before an instant, by their names. */
  before?: Readonly<Record<string, Name<T>>>;
  /** Values that columns must have whatever is asked for. */
  within?: Readonly<Partial<Record<Name<T>, string>>>;
  /** Whether `meta` names the column by which rows are sorted. */
  saysSort?: true;
  /** The column that says where a row is in the tree of organizations; absent where only admins list. */
  reach?: Name<T>;
  /** Whether `below` may say that the filter organizationId means what is below it, too. */
  below?: true;
  /** The name in `expand` that shows rows of a table whose texts may be long, and the column that names them. */
  expands?: { name: string; table: EntityTable; column: Name<T> };
  /** Finds what is live, where an account may have too many rows for plain SQL. */
  search?: Search<T>;
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
  /** Never a text: one that nobody has read would select everything. */
  filter?: CompiledFilter | undefined;
  [filter: string]: unknown;
}

/** A list that a caller asks for: of live entities, or of the trash. */
export interface AskedList<T extends EntityTable> {
  caller: Caller;
  listing: Listing<T>;
  query: ListQuery;
  state: 'live' | 'trash';
}

/** A page of what matches: `order` are its columns, the last of which is unique. */
export interface WantedPage {
  order: readonly string[];
  sortOrder: 'asc' | 'desc';
  offset: number;
  limit: number;
}

/** What a list matches. */
export interface Matches<K = string> {
  count: number;
  /** Rows that had to be read one by one to see whether they match a filter. */
  scanned?: number;
  /** Where the rows of a page are found. */
  places(wanted: WantedPage): Promise<RowPlace<K>[]>;
}

export type Search<T extends EntityTable> = (services: SearchServices, asked: AskedList<T>) => Promise<Matches>;

export type SearchServices = Pick<ListServices, 'registry' | 'readers'>;

const pagination = {
  accountId: Type.String({ description: 'The account id. The id of another account answers 404.' }),
  meta: Type.Optional(Type.Boolean({ default: true, description: 'Include meta information.' })),
  results: Type.Optional(Type.Boolean({ default: true, description: 'Include results.' })),
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
};

const orderOf = (usual: 'asc' | 'desc' = 'asc') => Type.Optional(oneOf(['asc', 'desc'], { default: usual }));

const described: Record<Match, string> = {
  exact: 'Equal to this.',
  reference: 'Equal to this id; the text null selects entities without one.',
  partial: 'Contains this, ignoring case. With * in it the whole text is like this: each * stands for any text.',
  beginning: 'Begins with this.',
  flag: 'Equal to this.',
  latitude: 'Equal to this number.',
  longitude: 'Equal to this number.',
  date: 'At this instant, ISO 8601.',
  since: 'At this instant or later, ISO 8601.',
};

/**
 * The query of a list as a schema. `more` are parameters that are no filters, such as expand and count;
 * `aliases` are further names to sort by.
 */
export function listSchema<T extends EntityTable>(listing: Listing<T>, more: TProperties = {}, aliases: object = {}) {
  const filters = filterProperties(listing);
  for (const name of Object.keys(listing.before ?? {}))
    filters[name] = Type.Optional(Type.String({ description: 'Before this instant, ISO 8601.' }));
  const sorts = [...new Set([...listing.sorts, listing.defaultSort, ...Object.keys(aliases)])];
  const sortBy = Type.Optional(oneOf(sorts, { default: listing.defaultSort }));
  return Type.Object({ ...pagination, sortOrder: orderOf(listing.defaultOrder), sortBy, ...filters, ...more });
}

/** The query of a trash list: newest deletion first unless asked otherwise. */
export const trashListSchema = Type.Object({
  ...pagination,
  sortOrder: orderOf('desc'),
});

/** Characters of a filter in a body, where no URL bounds it. */
const maxFilter = 1000;

/** The filters of a list as properties of a body, and the names of those that match a part of a text. */
export function bodyFilters<T extends EntityTable>(listing: Listing<T>): { filters: TProperties; partial: string[] } {
  const partial = matchesOf(listing).flatMap(([name, match]) => (match === 'partial' ? [name] : []));
  return { filters: filterProperties(listing, { maxLength: maxFilter }), partial };
}

function filterProperties<T extends EntityTable>(
  listing: Listing<T>,
  bounds: { maxLength?: number } = {},
): TProperties {
  const schemaOf = (match: Match) =>
    match === 'flag' ? Type.Boolean() : Type.String({ ...bounds, description: described[match] });
  const filters = Object.fromEntries(matchesOf(listing).map(([name, match]) => [name, Type.Optional(schemaOf(match))]));
  return listing.below ? { ...filters, below: Type.Optional(belowSchema) } : filters;
}

/** A filter as a text, where a kind compiles it. */
export const filterText = Type.String({
  maxLength,
  description: 'An expression: docs/filters.md.',
});

const belowSchema = Type.Boolean({
  description:
    'With organizationId: those of the organizations below it, too. A firmware rollout to an organization takes the same.',
});

/** @throws PlatformError 400/106 for `below` without an organization: it must not select everything. */
export function demandBelow({ below, organizationId }: Record<string, unknown>, path = 'below'): void {
  if (below === true && (organizationId === undefined || organizationId === ''))
    throw invalid(path, 'needs organizationId');
}

/** The filters of a list, and how each matches. */
export function matchesOf<T extends EntityTable>({ filters }: Listing<T>): [name: string, match: Match][] {
  return Object.entries(filters as Record<string, Match>);
}
