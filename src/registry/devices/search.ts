/**
 * Lists of devices, of which an account may have a million: counts that triggers keep, an index of texts, and rows that are met
 * in the order of the page. docs/decisions/006-partial-match-and-kept-counts.md tells when each is used.
 */
import { type Expression, type RawBuilder, type SqlBool, sql } from 'kysely';
import { accountKey } from '../../../db/registry/account-key.ts';
import type { Db } from '../../../db/registry/index.ts';
import { longColumns } from '../../../db/registry/records/by-table.ts';
import type { Match } from '../../../db/registry/records/columns.ts';
import { presenceNames } from '../../../db/registry/records/devices.ts';
import type { Row } from '../../../db/registry/records.ts';
import { contains, countOfWord, isLike, isWord, literalOf, rowsWithText } from '../../../db/registry/text.ts';
import { type Caller, isAccountWide } from '../../core/caller.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import type { CompiledFilter } from '../../entity/filters/compiled.ts';
import { few, matchesOfFilter, orderBy, slicesOf, type Way } from '../../entity/filters/slices.ts';
import { allOf, bytesOf } from '../../entity/list.ts';
import { atOrBelow, condition, filtersOf, inReach } from '../../entity/list-filters.ts';
import {
  type AskedList,
  demandBelow,
  type Matches,
  type SearchServices,
  type WantedPage,
} from '../../entity/list-query.ts';
import type { RowPlace } from '../../entity/row-slices.ts';
import { builtInFields } from '../../entity/values.ts';

type ListFilter = readonly [name: string, match: Match];

/** Columns whose combinations triggers count; the indexes of all but the last have the default order too. */
const counted = ['organizationId', 'deviceTemplateId', 'provisioningState', 'connected'];
const ordered = counted.slice(0, -1);
/** Columns for whose combinations they count devices that have a firmware version. */
const countedByVersion = ['deviceTemplateId', 'provisioningState', 'firmwareVersion'];
const defaultSort = 'serialNumber';
const presence: readonly string[] = presenceNames;

/** Rows that an index finds for one filter, if they are to be told from others. */
const maxRows = 50_000;
const fewNamed = 1000;
/** The rows that an index has of a filter; `isExact` where every one of them matches. */
interface Rows {
  rows: RawBuilder<{ row: number }>;
  isExact: boolean;
}

/** How the devices that match are found: by the rows of some filters, and by the shortest index of the others. */
interface Ways {
  sets: Array<Rows & { name: string; size: number }>;
  /** `hasOrder` where its devices are in the default order. */
  index: { name: string; hasOrder: boolean; size: number } | undefined;
}

/** A list that is looked for. */
interface Search {
  db: Db;
  asked: Pick<AskedList<'devices'>, 'caller' | 'query'>;
  account: string;
  filters: readonly ListFilter[];
  /** What a filter asks for besides these. */
  rest: CompiledFilter | undefined;
  rows: Map<string, Rows>;
  read<R>(query: RawBuilder<R>): Promise<R[]>;
}

/** The devices that a list matches. @throws PlatformError 400/106 for a filter value that can be none. */
export async function searchDevices(services: SearchServices, asked: AskedList<'devices'>): Promise<Matches> {
  const search = listSearch(services, asked);
  const { read, rest } = search;
  const known = await knownCount(search);
  const ways = await waysOf(search, !rest && search.filters.length === 1 && isEverywhere(search) ? known : undefined);
  if (rest) {
    const toPage = (wanted: WantedPage, count: number) => wayToPage(search, ways, wanted, count);
    const source = { table: 'devices', bytes: bytesOfRow, read } as const;
    return matchesOfFilter(source, rest, { toAll: wayToAll(search, ways), toPage }, known);
  }
  const count = known ?? (await countOf(search, ways));
  return { count, places: async (wanted) => (count === 0 ? [] : search.read(pageOf(search, ways, wanted, count))) };
}

/** The ids of what a list matches, from after the id `after`, in the order of ids: at most `limit` of them. */
export async function deviceIds(
  services: SearchServices,
  asked: AskedList<'devices'>,
  { after, limit }: { after: string; limit: number },
): Promise<string[]> {
  const search = listSearch(services, asked);
  const ways = await waysOf(search);
  const { index } = ways;
  // Few are sorted for each page; else the order of ids goes on where the last page ended.
  const from = byFew(search, ways) ?? byIndex(search, ways, index && index.size <= few ? index.name : 'id');
  if (search.rest) {
    const matching: string[] = [];
    for await (const slice of slicesOf(search, search.rest, { from, after })) {
      matching.push(...slice.ids);
      if (matching.length >= limit) break;
    }
    return matching.slice(0, limit);
  }
  const ids = await search.read(
    sql<{ id: string }>`select "id" ${from} and "id" > ${after} order by "id" limit ${limit}`,
  );
  return ids.map(({ id }) => id);
}

/** The shortest way to all that may match. */
function wayToAll(search: Search, { sets, index }: Ways): Way {
  const ways = { sets: sets.filter(({ size }) => size <= maxRows), index };
  const set = byFew(search, ways);
  if (set) return { from: set };
  if (!index) return { from: byIndex(search, ways, 'id') };
  return { from: byIndex(search, ways, index.name), by: orderBy([index.name, defaultSort, 'row']) };
}

/** A device that one text finds. */
export type FoundDevice = Pick<
  Row<'devices'>,
  'id' | 'accountId' | 'organizationId' | 'deviceTemplateId' | 'createdById' | 'serialNumber'
> & { name: string | null; match: string | null };

const nameOfDevice = sql<string | null>`json_extract("fields", '$.name')`;
const found = sql`"id", "accountId", "organizationId", "deviceTemplateId", "createdById", "serialNumber", ${nameOfDevice} as "name"`;

const otherFields = builtInFields.devices.flatMap(({ key }) => (key === 'name' ? [] : [key]));

/** The first field of a device, other than its name, that contains a text, as `name: value`. What is in the trash is none. */
function fieldWith(text: string): RawBuilder<string | null> {
  return sql<string | null>`(select coalesce(c."name", f."key") || ': ' || f."value" from json_each("fields") as f
    left join "customFields" as c on c."id" = f."key" and c."deleted" is null
    where f."type" in ('text', 'integer', 'real') and (c."id" is not null or f."key" in (${sql.join(otherFields)}))
      and ${contains(sql`f."value"`, text)} limit 1)`;
}

/**
 * At most `limit` devices that one filter finds, which may be a part of their names, or of another of their `fields`. They are not
 * counted: that can take long.
 */
export async function findDevices(
  services: SearchServices,
  caller: Caller,
  filter: ListFilter,
  { value, limit }: { value: string; limit: number },
): Promise<FoundDevice[]> {
  const [column, match] = filter;
  const asked = { caller, query: { accountId: caller.accountId, [column]: value } };
  const search = searchOf(services, asked, [filter]);
  // What begins with a text stands together in the order of the page: the first are read without counting the rest.
  const isTogether = match !== 'partial' && isAccountWide(caller);
  const ways = isTogether ? { sets: [], index: undefined } : await waysOf(search);
  const most = Math.min(...[...ways.sets, ...(ways.index ? [ways.index] : [])].map(({ size }) => size));
  const wanted = { order: [column === 'id' ? 'id' : defaultSort], sortOrder: 'asc', offset: 0, limit } as const;
  const matched = column === 'fields' ? fieldWith(value) : sql`null`;
  return search.read(pageOf<FoundDevice>(search, ways, wanted, most, sql`${found}, ${matched} as "match"`));
}

/** A list with its filter, the parts of which that lists filter by themselves are found as theirs are. */
function listSearch(services: SearchServices, asked: AskedList<'devices'>): Search {
  const { filter, ...query } = asked.query;
  demandBelow(query);
  if (!filter) return searchOf(services, asked, columnFilters(asked));
  const parts = filter.split(
    (name) => query[name] !== undefined || (name === 'organizationId' && query.below === true),
  );
  const merged = { ...asked, query: { ...query, ...parts.filters } };
  return { ...searchOf(services, merged, columnFilters(merged)), rest: parts.rest };
}

/** The filters that are looked at column by column: not those of a place. */
function columnFilters(asked: AskedList<'devices'>): ListFilter[] {
  const filters = filtersOf(asked);
  return rootOf(asked) === undefined ? filters : filters.filter(([name]) => name !== 'organizationId');
}

/** The organization at or below which devices are asked for; nothing is below no organization. */
function rootOf({ query: { below, organizationId } }: Search['asked']): string | undefined {
  return below === true && organizationId !== 'null' ? String(organizationId) : undefined;
}

/** How many match, where counts that are kept tell it, or an index by itself. */
async function knownCount(search: Search): Promise<number | undefined> {
  const { account, asked, filters, read } = search;
  if (asked.caller.kind === 'station') return undefined;
  if (search.rest) {
    const exact = filters.length === 0 && isEverywhere(search) ? search.rest.exactRows : undefined;
    if (!exact) return undefined;
    const { count = sql<{ count: number }>`select count(*) as "count" from (${exact.rows})` } = exact;
    return (await read(count))[0]?.count;
  }
  if (filters.every(([name]) => counted.includes(name))) return sumOf(search, filters, reachOf(search));
  const isAll = isEverywhere(search);
  if (isAll && filters.every(([name]) => countedByVersion.includes(name)))
    return sumIn('firmwareVersionCounts', search, filters);
  const [[name] = [''], ...others] = filters;
  const { rows, isExact } = search.rows.get(name) ?? {};
  if (!rows || !isExact || others.length > 0 || !isAll) return undefined;
  const counts = sql<{ count: number }>`select count(*) as "count" from (${rows})`;
  const isSerial = name === 'serialNumber';
  return (await read(isSerial ? countOfWord(account, String(asked.query[name])) : counts))[0]?.count ?? 0;
}

async function countOf(search: Search, ways: Ways): Promise<number> {
  const { sets, index } = ways;
  const [set] = sets;
  const column = search.filters.some(([name]) => name === 'firmwareVersion') ? 'firmwareVersion' : defaultSort;
  const isBySet = set && set.size <= (index?.size ?? maxRows);
  const from = isBySet ? bySet(search, ways) : byIndex(search, ways, index?.name ?? column);
  const [found] = await search.read(sql<{ count: number }>`select count(*) as "count" ${from}`);
  return found?.count ?? 0;
}

function searchOf(
  { registry, readers }: SearchServices,
  asked: Search['asked'],
  filters: readonly ListFilter[],
): Search {
  const { caller } = asked;
  const [db, lane] = [registry.query, laneOf(caller)];
  const search: Search = {
    db,
    asked,
    account: accountKey(caller.accountId),
    filters,
    rest: undefined,
    rows: new Map(),
    read: (query) => readers.read(lane, query.compile(db)),
  };
  // A station finds by whole serial numbers what it has made.
  for (const filter of caller.kind === 'station' ? [] : search.filters) {
    const rows = rowsOf(search, filter);
    if (rows) search.rows.set(filter[0], rows);
  }
  return search;
}

/** The rows that an index has of a filter, if it has one: mostly of few devices. */
function rowsOf(search: Search, [name, match]: ListFilter): Rows | undefined {
  const value = search.asked.query[name];
  if (ordered.includes(name) || (match === 'flag' && value === false)) return undefined;
  if (presence.includes(name)) return { rows: present(search, [name, match], value), isExact: true };
  const text = String(value);
  // However common a name is: where everything is in reach, any of them will do.
  if (name === 'name' || name === 'fields') {
    const limit = isEverywhere(search) ? fewNamed : maxRows;
    const rows = sql<{ row: number }>`select "row" from (${rowsWithText(search.account, text, name)} limit ${limit})`;
    return { rows, isExact: name === 'name' && isWord(text) };
  }
  if (name === 'serialNumber' && match === 'partial') {
    const literal = literalOf(text);
    if (literal === '') return undefined;
    return { rows: rowsWithText(search.account, literal), isExact: literal === text && isWord(text) };
  }
  const live = sql`select "row" from "devices" where ${isOfAccount(search)}`;
  if (name !== 'firmwareVersion') return { rows: sql`${live} and ${condition(name, match, value)}`, isExact: true };
  const ofAccount = sql`"accountId" = ${search.asked.caller.accountId}`;
  const versions = sql`select "firmwareVersion" from "firmwareVersionCounts" where ${ofAccount} and ${isLike(name, text)}`;
  return { rows: sql`${live} and "firmwareVersion" in (${versions})`, isExact: true };
}

/** Where devices are that are asked for and that the caller reaches, if that is not everywhere. */
function reachOf({ db, asked }: Search): Expression<SqlBool>[] {
  const { caller } = asked;
  const root = rootOf(asked);
  const below = root === undefined ? [] : [atOrBelow(db, [root], 'organizationId')];
  if (isAccountWide(caller)) return below;
  if (caller.kind !== 'station') {
    // Where it asks above its reach, nothing is there: that devices of its own are below is not told.
    const isReached = root === undefined ? [] : [inReach(db, caller, sql`${root}`)];
    return [inReach(db, caller, 'organizationId'), ...isReached, ...below];
  }
  // A station's own stand where it puts them.
  const { id, deviceTemplateId, organizationId } = caller;
  const own = sql<SqlBool>`"createdById" = ${id} and "deviceTemplateId" = ${deviceTemplateId} and "organizationId" is ${organizationId}`;
  return [own, ...below];
}

function isEverywhere({ asked }: Search): boolean {
  return isAccountWide(asked.caller) && rootOf(asked) === undefined;
}

/** One filter as it is looked at device by device. A station finds what it can name, and does not look around. */
function conditionOf(search: Search, [name, match]: ListFilter): Expression<SqlBool> {
  const { caller, query } = search.asked;
  if (match === 'partial' && caller.kind === 'station') return condition(name, 'exact', query[name]);
  if (name === 'name') return contains(nameOfDevice, String(query[name]));
  if (name === 'fields') return sql<SqlBool>`${fieldWith(String(query[name]))} is not null`;
  if (!presence.includes(name)) return condition(name, match, query[name]);
  const isIn = query[name] === false ? sql`not in` : sql`in`;
  return sql<SqlBool>`"row" ${isIn} (${present(search, [name, match], query[name])})`;
}

function present({ account, asked }: Search, [name, match]: ListFilter, value: unknown): RawBuilder<{ row: number }> {
  const matches = condition(name, match, match === 'flag' ? true : value);
  const rows = sql<{ row: number }>`select "row" from "devicePresence" where "account" = ${account} and ${matches}`;
  if (isAccountWide(asked.caller) || !(name === 'lastConnected' || name === 'offlineSince')) return rows;
  // People see only when a device has connected for them.
  return sql`${rows} and not exists (select 1 from "devices" as d where d."row" = "devicePresence"."row"
    and d."possessionSince" >= "lastConnected")`;
}

function isOfAccount({ account }: Search): Expression<SqlBool> {
  return sql<SqlBool>`substr("accountId", 27) = ${account} and "deleted" is null`;
}

/** The same where a set is short. */
function byFew(search: Search, ways: Ways): RawBuilder<unknown> | undefined {
  const [set] = ways.sets;
  return set && set.size <= few ? bySet(search, ways) : undefined;
}

/** The devices that match, looked up by the rows of sets: those are live, and of the account. */
function bySet(search: Search, ways: Ways): RawBuilder<unknown> {
  return sql`from "devices" where ${allOf(conditionsOf(search, ways))}`;
}

/** The devices that match, looked through in an index. What is no row of a set is not looked up. */
function byIndex(search: Search, ways: Ways, column: string): RawBuilder<unknown> {
  const conditions = allOf([isOfAccount(search), ...conditionsOf(search, ways)]);
  return sql`from "devices" indexed by ${sql.ref(`devices_by_${column}`)} where ${conditions}`;
}

function conditionsOf(search: Search, { sets }: Ways): Expression<SqlBool>[] {
  const members = sets.map(({ rows }) => sql<SqlBool>`"row" in (${rows})`);
  const others = search.filters.filter(([name]) => !sets.some((set) => set.isExact && set.name === name));
  return [...members, ...reachOf(search), ...others.map((filter) => conditionOf(search, filter))];
}

/** How many devices of the account match filters of columns that are counted, within the reach that is given. */
function sumOf(
  search: Search,
  filters: readonly ListFilter[],
  reach: readonly Expression<SqlBool>[] = [],
): Promise<number> {
  const isPlaced = reach.length > 0 || filters.some(([name]) => name === 'organizationId');
  return sumIn(isPlaced ? 'placedDeviceCounts' : 'deviceCounts', search, filters, reach);
}

async function sumIn(
  table: 'deviceCounts' | 'placedDeviceCounts' | 'firmwareVersionCounts',
  { asked: { caller, query }, read }: Search,
  filters: readonly ListFilter[],
  reach: readonly Expression<SqlBool>[] = [],
): Promise<number> {
  const matches = filters.map(([name, match]) => {
    // '' is how the counts call nowhere; no place has that name.
    if (name !== 'organizationId' || (query[name] !== 'null' && query[name] !== ''))
      return condition(name, match, query[name]);
    return query[name] === '' ? sql<SqlBool>`1 = 0` : condition(name, 'exact', '');
  });
  const where = allOf([sql<SqlBool>`"accountId" = ${caller.accountId}`, ...reach, ...matches]);
  const [found] = await read(sql<{ count: number | null }>`
    select sum("count") as "count" from ${sql.table(table)} where ${where}`);
  return found?.count ?? 0;
}

/** `known` is how many devices the only filter finds. */
async function waysOf(search: Search, known?: number): Promise<Ways> {
  const { asked, filters } = search;
  if (asked.caller.kind === 'station') return { sets: [], index: { name: defaultSort, hasOrder: true, size: 0 } };
  const reach = reachOf(search);
  const reached = reach.length > 0 ? [await sumOf(search, [], reach)] : [];
  const indexes = reached.map((size) => ({ name: 'organizationId', hasOrder: false, size }));
  const sets: Ways['sets'] = [];
  for (const filter of filters) {
    const [name] = filter;
    if (ordered.includes(name)) indexes.push({ name, hasOrder: true, size: known ?? (await sumOf(search, [filter])) });
    const rows = search.rows.get(name);
    if (!rows) continue;
    const size = known ?? (await sizeOf(search, rows));
    // No index of another filter has the firmware version: to count, its rows are told from others however many they are.
    if (size <= maxRows || (name === 'firmwareVersion' && filters.length > 1)) sets.push({ name, ...rows, size });
  }
  for (const { rows } of search.rest?.rows ?? []) {
    const size = await sizeOf(search, { rows });
    // The whole filter is looked at anyway.
    if (size <= maxRows) sets.push({ name: 'filter', rows, isExact: false, size });
  }
  const bySize = (a: { size: number }, b: { size: number }) => a.size - b.size;
  return { sets: sets.sort(bySize), index: indexes.sort(bySize)[0] };
}

/** How many rows a set has, as far as it is short enough to be used. */
async function sizeOf({ read }: Search, { rows }: Pick<Rows, 'rows'>): Promise<number> {
  const sizes = sql<{ size: number }>`select count(*) as "size" from (select * from (${rows}) limit ${maxRows + 1})`;
  return (await read(sizes))[0]?.size ?? 0;
}

/** The query of a page of the `count` devices that match. */
function pageOf<R = RowPlace>(
  search: Search,
  ways: Ways,
  wanted: WantedPage,
  count: number,
  columns = sql`"id", ${bytesOfRow} as "bytes"`,
): RawBuilder<R> {
  const { limit, offset } = wanted;
  const { from, by } = wayToPage(search, ways, wanted, count);
  return sql`select ${columns} ${from} order by ${by} limit ${limit} offset ${offset}`;
}

const bytesOfRow = bytesOf(longColumns('devices'));

/** How a page is read: few are looked up and sorted, others are met in order. */
function wayToPage(search: Search, ways: Ways, { order: [sort = defaultSort], sortOrder }: WantedPage, count: number) {
  const order = [sort, ...(ordered.includes(sort) ? [defaultSort] : []), 'row'];
  const by = orderBy(order, sortOrder);
  const { index } = ways;
  const sets = ways.sets.filter(({ size }) => size <= maxRows);
  const isInIndex = index && ((sort === defaultSort && index.hasOrder) || (sets.length === 0 && count <= few));
  const from = byFew(search, { sets, index }) ?? byIndex(search, { sets, index }, isInIndex ? index.name : sort);
  return { from, by };
}
