/** Charts of what a device has stored, by range and roll-up. */
import { useMemo, useState } from 'preact/hooks';
import { api, done } from '../app/api.ts';
import { Chart } from '../parts/chart.tsx';
import { ErrorNote, Select } from '../parts/form.tsx';
import { useLoad } from '../parts/load.ts';
import { Loading } from '../parts/page.tsx';
import { texts } from '../texts.ts';
import type { DeviceRow } from './row.ts';

const words = texts.device;
const hour = 3_600_000;
/** Milliseconds, and the roll-up that makes a few hundred values of it. */
const ranges = {
  '1h': [hour, '15s'],
  '6h': [6 * hour, '1m'],
  '24h': [24 * hour, '5m'],
  '7d': [168 * hour, '30m'],
  '30d': [720 * hour, '2h'],
} as const;
type Range = keyof typeof ranges;
const aggregates = ['avg', 'min', 'max', 'sum', 'count', 'first', 'last'] as const;
type Aggregate = (typeof aggregates)[number];
type Bucket = { time?: string; category?: string } & Partial<Record<Aggregate, unknown>>;

export function Series({ device }: { device: DeviceRow }) {
  const [range, setRange] = useState<Range>('24h');
  const [aggregate, setAggregate] = useState<(typeof aggregates)[number]>('avg');
  const stored = useLoad(
    () => done(api.GET('/api/v1/devices/{id}/connectivity', { params: { path: { id: device.id } } })),
    [device.id],
  ).data?.connectivity.topics.filter(({ persistenceType }) => persistenceType === 'timeSeries');
  const [chosen, setTopic] = useState<string>();
  const topic = chosen ?? stored?.[0]?.topic;
  const { data, error } = useLoad(() => readBuckets(topic, range, aggregate), [topic, range, aggregate], 30_000);
  const lines = useMemo(() => linesOf(data ?? [], aggregate), [data, aggregate]);
  return (
    <section class="panel">
      <div class="toolbar">
        <Select
          label={words.channel}
          value={topic}
          options={(stored ?? []).map(({ topic, channel }) => [topic, channel] as const)}
          onText={setTopic}
        />
        <Select
          label={words.range}
          value={range}
          options={Object.keys(ranges).map((one) => [one, one] as const)}
          onText={(one) => setRange(one as Range)}
        />
        <Select
          label={words.rollup}
          value={aggregate}
          options={aggregates.map((one) => [one, one] as const)}
          onText={(one) => setAggregate(one as 'avg')}
        />
      </div>
      <ErrorNote error={error} />
      {!stored || (!data && !error && stored.length > 0) ? (
        <Loading />
      ) : stored.length === 0 || lines.times.length === 0 ? (
        <p class="empty">{stored.length === 0 ? words.noSeries : words.noPoints}</p>
      ) : (
        <div class="charts">
          {lines.lines.map((line) => (
            <div key={line.label}>
              <h3>{line.label}</h3>
              <Chart label={words.chart(line.label)} times={lines.times} line={line} />
            </div>
          ))}
        </div>
      )}
    </section>
  );
}

async function readBuckets(
  topic: string | undefined,
  range: Range,
  aggregate: (typeof aggregates)[number],
): Promise<Bucket[] | undefined> {
  if (topic === undefined) return undefined;
  const [length, rollup] = ranges[range];
  const query = { startDateTime: new Date(Date.now() - length).toISOString(), rollup, aggregate };
  const answer = await done(api.GET('/api/v4/data/{topic}', { params: { path: { topic }, query } }));
  return typeof answer === 'string' ? [] : answer.result;
}

function linesOf(buckets: Bucket[], aggregate: Aggregate) {
  const times = [...new Set(buckets.map(({ time = '' }) => Date.parse(time) / 1000))].sort((a, b) => a - b);
  const place = new Map(times.map((time, at) => [time, at]));
  const byCategory = new Map<string, (number | null)[]>();
  for (const { time = '', category = '', [aggregate]: value } of buckets) {
    const values = byCategory.get(category) ?? times.map(() => null);
    byCategory.set(category, values);
    values[place.get(Date.parse(time) / 1000) ?? 0] = typeof value === 'number' ? value : null;
  }
  return { times, lines: [...byCategory].map(([label, values]) => ({ label: label || aggregate, values })) };
}
