/** The latest value of each category of a device, and what its last day was like. */
import { api, unwrap } from '../../app/api.ts';
import type { SparkPoint } from '../../parts/charts/spark.tsx';
import type { Topic } from '../row.ts';

export interface Latest {
  channel: string;
  category: string;
  label: string;
  unit: string;
  /** Whether a value lasts until the next one. */
  isState: boolean;
  /** Undefined where none is stored. */
  last: { time: string; value: number | string } | undefined;
  /** Of numbers: a quarter of an hour each. */
  day: SparkPoint[];
  low: number;
  high: number;
  /** Of states: from when on it was so. */
  states: { time: number; value: string }[];
}

export const dayLength = 24 * 3_600_000;
/** Points that hold all categories of usual devices; what is rarer is asked for by its name. */
const latestPoints = 200;
const maxRare = 20;
const maxStates = 1000;
export const maxCategories = 60;

type Point = { time?: string; category?: string; numericValue?: number | null; stringValue?: string | null };
type Bucket = { time?: string; category?: string; avg?: number | null; min?: number | null; max?: number | null };

async function readPoints(topic: string, query: Record<string, string | number>): Promise<Point[]> {
  const answer = await unwrap(api.GET('/api/v4/data/{topic}', { params: { path: { topic }, query } }));
  return typeof answer === 'string' ? [] : answer.result;
}

/** Of all channels that store something. */
export async function readLatest(topics: readonly Topic[]): Promise<Latest[]> {
  const stored = topics.filter(({ persistenceType }) => persistenceType === 'timeSeries');
  return (await Promise.all(stored.map(readChannel))).flat();
}

async function readChannel({ channel, topic, categories }: Topic): Promise<Latest[]> {
  const [points, buckets] = await Promise.all([
    readPoints(`${topic}/latest`, { pageSize: latestPoints }),
    readPoints(topic, { rollup: '15m', aggregate: 'avg,min,max' }) as Promise<Bucket[]>,
  ]);
  const said = new Map(categories.map((one) => [one.name, one]));
  const seen = [...points, ...buckets].map(({ category = '' }) => category);
  const names = [...new Set([...said.keys(), ...seen.sort()])].slice(0, maxCategories);
  const lasts = new Map<string, Point>();
  for (const point of points) if (!lasts.has(point.category ?? '')) lasts.set(point.category ?? '', point);
  const rare = names.filter((name) => !lasts.has(name)).slice(0, maxRare);
  await Promise.all(
    rare.map(async (category) => {
      const [point] = await readPoints(`${topic}/latest`, { pageSize: 1, category });
      if (point) lasts.set(category, point);
    }),
  );
  return Promise.all(
    names.map(async (category) => {
      const { label = category || channel, unit = '', kind } = said.get(category) ?? {};
      const last = lasts.get(category);
      const isState = kind === 'state' || (kind === undefined && last !== undefined && last.numericValue === null);
      const own = buckets.filter((one) => (one.category ?? '') === category);
      return {
        ...{ channel, category, label, unit, isState },
        ...(isState ? { day: [], low: 0, high: 0 } : dayOf(own)),
        last: last?.time === undefined ? undefined : { time: last.time, value: readingOf(last) },
        states: isState && own.length > 0 ? await readStates(topic, category) : [],
      };
    }),
  );
}

const readingOf = ({ numericValue, stringValue }: Point) => numericValue ?? stringValue ?? '';

function dayOf(buckets: readonly Bucket[]): Pick<Latest, 'day' | 'low' | 'high'> {
  const known = buckets.filter(({ avg }) => typeof avg === 'number');
  return {
    day: known.map(({ time = '', avg }) => ({ time: Date.parse(time), value: avg ?? 0 })),
    low: Math.min(...known.map(({ min, avg }) => min ?? avg ?? 0)),
    high: Math.max(...known.map(({ max, avg }) => max ?? avg ?? 0)),
  };
}

/** The changes of the last day, oldest first. */
async function readStates(topic: string, category: string): Promise<Latest['states']> {
  const points = await readPoints(topic, { category, pageSize: maxStates, order: 'desc' });
  const states: Latest['states'] = [];
  for (const point of points.reverse()) {
    const value = String(point.stringValue ?? point.numericValue ?? '');
    if (states.at(-1)?.value !== value) states.push({ time: Date.parse(point.time ?? ''), value });
  }
  return states;
}
