/** What devices have stored of one channel: rollups of numbers, and texts as they came. */
import { api, unwrap } from '../../app/api.ts';
import type { Line, Reading } from '../../parts/charts/chart-lines.ts';
import type { Topic } from '../row.ts';

export const aggregates = ['avg', 'min', 'max', 'sum', 'count', 'first', 'last'] as const;
export type Aggregate = (typeof aggregates)[number];

/** How a page shows a category, as its channel template says. */
export type Category = Topic['categories'][number];

export interface WantedReadings {
  topic: string;
  /** Milliseconds since 1970. */
  from: number;
  to: number;
  aggregate: Aggregate;
}

/** Seconds of the buckets that there can be, and their names. */
const sizes = [
  [1, '1s'],
  [5, '5s'],
  [15, '15s'],
  [60, '1m'],
  [300, '5m'],
  [1800, '30m'],
  [7200, '2h'],
  [86_400, '1d'],
] as const;
/** A chart has a few hundred values. */
const maxBuckets = 400;
/** Points of a category of texts, the newest of the range; and such categories of a device. */
const maxTexts = 1000;
const maxTextCategories = 4;

/** The size of buckets for a range of milliseconds. */
export function bucketOf(span: number): readonly [seconds: number, name: string] {
  return sizes.find(([seconds]) => span / 1000 / seconds <= maxBuckets) ?? [86_400, '1d'];
}

type Bucket = { time?: string; category?: string } & Partial<Record<Aggregate, number | null>>;

export interface Stored {
  readings: Reading[];
  /** Whether every value is 0 or 1, as booleans are stored. */
  isBoolean: boolean;
  isText: boolean;
}

const seconds = (iso = '') => Date.parse(iso) / 1000;
const isBit = (value: number | null | undefined) => value === 0 || value === 1;

/** What one device has stored, by category. */
export async function readStored(
  { topic, from, to, aggregate }: WantedReadings,
  categories: readonly Category[],
  signal: AbortSignal,
): Promise<Map<string, Stored>> {
  const range = { startDateTime: new Date(from).toISOString(), endDateTime: new Date(to).toISOString() };
  const wanted = [...new Set([aggregate, 'min', 'max', 'last', 'count'])].join(',');
  const query = { ...range, rollup: bucketOf(to - from)[1], aggregate: wanted };
  const params = { path: { topic } };
  const answer = await unwrap(api.GET('/api/v4/data/{topic}', { params: { ...params, query }, signal }));
  const byCategory = new Map<string, Bucket[]>();
  for (const bucket of typeof answer === 'string' ? [] : (answer.result as Bucket[])) {
    const { category = '' } = bucket;
    byCategory.set(category, [...(byCategory.get(category) ?? []), bucket]);
  }
  const stored = new Map<string, Stored>();
  let texts = 0;
  for (const [category, buckets] of byCategory) {
    const isText = buckets.every(({ last }) => last === null);
    if (isText) {
      texts += 1;
      if (texts > maxTextCategories) continue;
      const query = { ...range, category, pageSize: maxTexts, order: 'desc' as const };
      const page = await unwrap(api.GET('/api/v4/data/{topic}', { params: { ...params, query }, signal }));
      const points = typeof page === 'string' ? [] : (page.result as { time?: string; stringValue?: string | null }[]);
      const readings = points.map(({ time, stringValue }) => ({ time: seconds(time), value: stringValue ?? '' }));
      stored.set(category, { readings: readings.reverse(), isBoolean: false, isText });
      continue;
    }
    const isBoolean = buckets.every(({ min, max }) => isBit(min) && isBit(max));
    const isState = isBoolean || categories.find(({ name }) => name === category)?.kind === 'state';
    const shown = isState ? 'last' : aggregate;
    const readings = buckets.flatMap(({ time, [shown]: value }) =>
      typeof value === 'number' ? [{ time: seconds(time), value }] : [],
    );
    stored.set(category, { readings, isBoolean, isText });
  }
  return stored;
}

export interface ChartOf {
  category: string;
  title: string;
  unit: string;
  isState: boolean;
  lines: Line[];
}

/** A chart for each category that one of the devices has, those first that the channel template names. */
export function chartsOf(
  devices: readonly { name: string; stored: Map<string, Stored> }[],
  categories: readonly Category[],
  otherwise: string,
): ChartOf[] {
  const named = categories.map(({ name }) => name);
  const found = [...new Set(devices.flatMap(({ stored }) => [...stored.keys()]))];
  const order = [
    ...named.filter((name) => found.includes(name)),
    ...found.filter((name) => !named.includes(name)).sort(),
  ];
  return order.map((category) => {
    const { label, unit = '', kind } = categories.find(({ name }) => name === category) ?? {};
    const all = devices.flatMap(({ stored }) => stored.get(category) ?? []);
    const isState = kind === 'state' || all.every(({ isBoolean, isText }) => isBoolean || isText);
    // A device without this category keeps its colour.
    const lines = devices.map(({ name, stored }) => ({ name, readings: stored.get(category)?.readings ?? [] }));
    return { category, title: label || category || otherwise, unit, isState, lines };
  });
}
