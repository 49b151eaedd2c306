/** Rollups: the points of a range as aggregates by bucket of time and category. */
import { type Aggregate, aggregates, type Sum } from '../../../db/messages/series/sums.js';
import { Slices } from '../../../db/sqlite/slices.js';
import type { Caller } from '../../access.js';
import { invalid } from '../../errors.js';
import { isoDates } from '../../formats/iso-dates.js';
import { bucketEdges, bucketsIn, parseBucketSize, TimeZone } from './buckets.js';
import {
  demandStill,
  findSeries,
  group,
  readRange,
  type SeriesAnswer,
  type SeriesQuery,
  type Services,
  type Shown,
  type Stretch,
} from './query.js';

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
  const { from, to, values } = await sumUp(services, caller, topic, rollup, query);
  return {
    meta: {
      timeSpent: Math.round(performance.now() - started),
      start: new Date(from).toISOString(),
      end: new Date(to).toISOString(),
      count: values.length,
      pagingToken: null,
    },
    result: group(values, query),
  };
}

/** The result: `values` have a time, a category and the aggregates `wanted`. */
export interface Summary extends Stretch {
  wanted: readonly Aggregate[];
  values: Shown[];
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

  const edges = await bucketEdges({ from, to }, size, zone, new Slices());
  const { category } = query;
  const asked = { from, to, edges, wanted, limit: maxValues, ...(category !== undefined && { category }) };
  const sums = key ? await services.messages.sums(key, asked) : [];
  const values = sums && (query.fill === 'null' ? filled(sums, edges, asked) : sums);
  if (!values || values.length > maxValues)
    throw invalid('rollup', `would make more than ${maxValues} values: take larger buckets, or one category`);
  demandStill(services, caller, topic);

  const date = isoDates();
  const direction = query.order === 'desc' ? -1 : 1;
  values.sort((a, b) => direction * (a.bucket - b.bucket) || compare(a.category, b.category));
  const shown = values.map((sum) => show(sum, date(edges[sum.bucket] ?? 0), wanted, query));
  return { from, to, wanted, values: shown };
}

function readAggregates(text = 'avg'): Aggregate[] {
  const names = new Set(text.split(',').map((name) => name.trim()));
  const known = aggregates.filter((name) => names.has(name));
  if (known.length !== names.size)
    throw invalid('aggregate', `must be a comma-separated list of ${aggregates.join(', ')}`);
  return known;
}

const empty = { count: 0, numbers: 0, sum: null, min: null, max: null, first: null, last: null } as const;

/** With the buckets in which a category has nothing, of the categories that have something, or the one that was asked for. */
function filled(
  sums: Sum[],
  edges: readonly number[],
  { from, to, category }: { from: number; to: number; category?: string },
): Sum[] | undefined {
  const categories = new Set(category === undefined ? sums.map((sum) => sum.category) : [category]);
  const buckets = from < to ? edges.length - 1 : 0;
  if (buckets * categories.size > maxValues) return undefined;
  const known = new Set(sums.map((sum) => `${sum.bucket}/${sum.category}`));
  const missing: Sum[] = [];
  for (const one of categories)
    for (let bucket = 0; bucket < buckets; bucket += 1)
      if (!known.has(`${bucket}/${one}`)) missing.push({ bucket, category: one, ...empty });
  return [...sums, ...missing];
}

function show(sum: Sum, time: string, wanted: readonly Aggregate[], { omitNull = false }: SeriesQuery): Shown {
  const shown: Shown = { time, category: sum.category };
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
