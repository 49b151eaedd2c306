/** What a filter matches that no index tells by itself: rows are read one by one, some thousand in a turn. */
import { type RawBuilder, sql } from 'kysely';
import type { EntityTable } from '../../../db/registry/records.ts';
import type { Matches, WantedPage } from '../list-query.ts';
import type { RowPlace } from '../row-slices.ts';
import type { CompiledFilter } from './compiled.ts';

/** Comparisons of a filter that a thread makes before it is another account's turn: some 50 ms. */
const comparisonsAtOnce = 20_000;
/** Rows whose ids are kept, to be sorted for each page. */
export const few = 5000;

/** The rows among which a filter is decided. `bytes` is how long one of them is. */
export interface Source {
  table: EntityTable;
  bytes: RawBuilder<number>;
  read<R>(query: RawBuilder<R>): Promise<R[]>;
}

/** A way to rows, and their order; without one it is that of ids, from after `after`. */
export interface Way {
  from: RawBuilder<unknown>;
  by?: RawBuilder<unknown>;
  after?: string;
}

/** Ways to all rows, and to the `count` that match in the order of a page. */
export interface Ways {
  toAll: Way;
  toPage(wanted: WantedPage, count: number): Required<Pick<Way, 'from' | 'by'>>;
}

/** `known` is how many match, where that is known. */
export async function matchesOfFilter(
  source: Source,
  filter: CompiledFilter,
  { toAll, toPage }: Ways,
  known?: number,
): Promise<Matches> {
  const matches = { count: known ?? 0, scanned: 0, ids: [] as string[] };
  if (known === undefined || known <= few) {
    matches.count = 0;
    for await (const { ids, looked } of slicesOf(source, filter, toAll)) {
      matches.count += ids.length;
      if (known === undefined) matches.scanned += looked;
      if (matches.ids.length <= few) matches.ids.push(...ids);
    }
  }
  const { count, scanned } = matches;
  const places = async (wanted: WantedPage) => {
    const { offset, limit } = wanted;
    const { from, by } = toPage(wanted, count);
    if (count <= few) return source.read(placesOf(source, matches.ids, by, wanted));
    const ids: string[] = [];
    for await (const slice of slicesOf(source, filter, { from, by })) {
      ids.push(...slice.ids);
      if (ids.length >= offset + limit) break;
    }
    return source.read(placesOf(source, ids.slice(offset, offset + limit), by, { offset: 0, limit }));
  };
  return { count, scanned, places };
}

function placesOf(
  { table, bytes }: Source,
  ids: readonly string[],
  by: RawBuilder<unknown>,
  { offset, limit }: Pick<WantedPage, 'offset' | 'limit'>,
) {
  return sql<RowPlace>`select "id", ${bytes} as "bytes" from ${sql.table(table)}
    where "id" in (select value from json_each(${JSON.stringify(ids)})) order by ${by} limit ${limit} offset ${offset}`;
}

/** The ids of what matches in each slice, and how many rows were looked at. */
export async function* slicesOf(
  { read }: Pick<Source, 'read'>,
  filter: CompiledFilter,
  { from, by, after = '' }: Way,
): AsyncGenerator<{ ids: string[]; looked: number }> {
  const limit = Math.ceil(comparisonsAtOnce / filter.terms);
  for (let offset = 0, last = after; ; offset += limit) {
    // The order of ids goes on where it ended, which spares going past those that have been looked at.
    const place = by
      ? sql`order by ${by} limit ${limit} offset ${offset}`
      : sql`and "id" > ${last} order by "id" limit ${limit}`;
    const [slice] = await read(sql<{ ids: string; looked: number; last: string }>`
      select json_group_array("id") filter (where "matches") as "ids", count(*) as "looked", max("id") as "last"
      from (select "id", ${filter.condition} as "matches" ${from} ${place})`);
    if (!slice) return;
    yield { ids: JSON.parse(slice.ids) as string[], looked: slice.looked };
    if (slice.looked < limit) return;
    last = slice.last;
  }
}

/** Columns in an order. */
export function orderBy(columns: readonly string[], sortOrder: 'asc' | 'desc' = 'asc'): RawBuilder<unknown> {
  return sql.join(columns.map((column) => sql`${sql.ref(column)} ${sql.raw(sortOrder)}`));
}
