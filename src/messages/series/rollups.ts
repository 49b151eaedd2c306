/** Rollups: the points of a range as aggregates by bucket of time and category. */
import { type Aggregate, aggregates, type Sum } from '../../../db/messages/series/sums.ts';
import type { Caller } from '../../core/caller.ts';
import { invalid } from '../../core/errors.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import { bucketEdges, bucketsIn, parseBucketSize, TimeZone } from './buckets.ts';
import {
  demandStillReadable,
  findSeries,
  jsonOf,
  readRange,
  type SeriesAnswer,
  type SeriesQuery,
  type Services,
  type ShownValue,
  type Stretch,
} from './query.ts';

const maxBuckets = 20_000;
/** Buckets times categories. */
const maxValues = 50_000;

/** The whole range in one answer, in groups if they are asked for. @throws PlatformError as sumUp. */
export async function readRollup(
  services: Services,
  caller: Caller,
  topic: string,
  rollup: string,
  query: SeriesQuery,
): Promise<SeriesAnswer> {
  const started = performance.now();
  const { from, to, sums, show } = await sumUp(services, caller, topic, rollup, query);
  return {
    meta: {
      timeSpent: Math.round(performance.now() - started),
      start: new Date(from).toISOString(),
      end: new Date(to).toISOString(),
      count: sums.length,
      pagingToken: null,
    },
    result: jsonOf({ all: sums, keyOf, show }, query),
  };
}

const keyOf = { category: ({ category }: Sum) => category, time: ({ bucket }: Sum) => bucket };

/** The result: as they are shown, `sums` have a time, a category and the aggregates `wanted`. */
export interface Summary extends Stretch {
  wanted: readonly Aggregate[];
  sums: readonly Sum[];
  show(sum: Sum): ShownValue;
}

/**
 * The whole range as aggregates, by bucket and category, in the order of time and then of category.
 * @throws PlatformError as findSeries; 400/106 for a bad parameter, and for more buckets or values than one answer holds.
 */
export async function sumUp(
  services: Services,
  caller: Caller,
  topic: string,
  rollup: string,
  query: SeriesQuery,
): Promise<Summary> {
  const key = findSeries(services, caller, topic);
  const { from, to } = readRange(query, services.clock.now());
  const wanted = readAggregates(query.aggregate);
  const zone = TimeZone.named(query.timezone ?? 'UTC');
  if (!zone) throw invalid('timezone', 'must be an IANA name, such as Europe/Berlin');
  const size = parseBucketSize(rollup);
  if (!size)
    throw invalid('rollup', 'must be a number and s, m, h, d, w or M; seconds, minutes and hours divide a day');
  const count = bucketsIn(to - from, size);
  if (count > maxBuckets)
    throw invalid('rollup', `would divide the range into ${count} buckets; the maximum is ${maxBuckets}`);

  const edges = await bucketEdges({ from, to }, size, zone, new LongWork());
  const { category } = query;
  const asked = { from, to, edges, wanted, limit: maxValues, ...(category !== undefined && { category }) };
  const found = key ? await services.messages.series.sums(key, asked) : [];
  const sums = found && (await inOrder(found, edges, { ...asked, ...query }));
  if (!sums) throw invalid('rollup', `would make more than ${maxValues} values: take larger buckets, or one category`);
  demandStillReadable(services, caller, topic, key);

  return {
    from,
    to,
    wanted,
    sums,
    show: (sum) => show(sum, new Date(edges[sum.bucket] ?? 0).toISOString(), wanted, query),
  };
}

function readAggregates(text = 'avg'): Aggregate[] {
  const names = new Set(text.split(',').map((name) => name.trim()));
  const known = aggregates.filter((name) => names.has(name));
  if (known.length !== names.size)
    throw invalid('aggregate', `must be a comma-separated list of ${aggregates.join(', ')}`);
  return known;
}

const empty = { count: 0, numbers: 0, sum: null, min: null, max: null, first: null, last: null } as const;

/**
 * The sums in the order of time and then of category; undefined when there are more than one answer holds. With `fill` also
 * those of the buckets in which a category has nothing, of the categories that have something, or the one that was asked for.
 */
async function inOrder(
  found: readonly Sum[],
  edges: readonly number[],
  { from, to, category, fill, order }: Stretch & Pick<SeriesQuery, 'category' | 'fill' | 'order'>,
): Promise<Sum[] | undefined> {
  const longWork = new LongWork();
  const buckets = new Map<number, Sum[]>();
  for (const sum of found) {
    const bucket = buckets.get(sum.bucket);
    if (bucket) bucket.push(sum);
    else buckets.set(sum.bucket, [sum]);
  }
  await longWork.giveWay();
  const categories = [...new Set(category === undefined ? found.map((sum) => sum.category) : [category])];
  const count = from < to ? edges.length - 1 : 0;
  if (found.length > maxValues || (fill === 'null' && count * categories.length > maxValues)) return undefined;
  const sums: Sum[] = [];
  for (let place = 0; place < count; place += 1) {
    const bucket = order === 'desc' ? count - 1 - place : place;
    const present = buckets.get(bucket) ?? [];
    const known = new Set(present.map((sum) => sum.category));
    const missing = fill === 'null' ? categories.filter((one) => !known.has(one)) : [];
    const all = [...present, ...missing.map((one) => ({ bucket, category: one, ...empty }))];
    sums.push(...all.sort((a, b) => compare(a.category, b.category)));
    await longWork.giveWay();
  }
  return sums;
}

function show(sum: Sum, time: string, wanted: readonly Aggregate[], { omitNull = false }: SeriesQuery): ShownValue {
  const shown: ShownValue = { time, category: sum.category };
  for (const name of wanted) {
    const value = finite(name === 'avg' ? average(sum) : sum[name]);
    if (!omitNull || value !== null) shown[name] = value;
  }
  return shown;
}

/** Null for a sum beyond what a number can be, which JSON cannot say. */
function finite(value: number | null): number | null {
  return Number.isFinite(value) ? value : null;
}

function average({ sum, numbers }: Sum): number | null {
  return sum === null ? null : sum / numbers;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
