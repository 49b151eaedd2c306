/** Charts of what devices have stored: by range, zoomed, live, up to five devices together. The address holds all of it. */
import { useMemo } from 'preact/hooks';
import { useSearchParams } from 'wouter-preact';
import { api, unwrap } from '../../app/api.ts';
import { browserStore } from '../../app/stores.ts';
import { Chart } from '../../parts/charts/chart.tsx';
import type { Span } from '../../parts/charts/span.ts';
import { Swatch } from '../../parts/charts/swatch.tsx';
import { useHeard } from '../../parts/data/heard.ts';
import { useLoad } from '../../parts/data/load.ts';
import { nameOf } from '../../parts/data/names.tsx';
import { Button, ErrorNote, Select } from '../../parts/forms/form.tsx';
import { Picker } from '../../parts/forms/picker.tsx';
import { Icon } from '../../parts/page/icons.tsx';
import { Loading } from '../../parts/page/page.tsx';
import { texts } from '../../texts.ts';
import { type DeviceRow, readConnectivity } from '../row.ts';
import { Range } from './range.tsx';
import { type Aggregate, aggregates, bucketOf, type Category, chartsOf, readStored } from './readings.ts';

const words = texts.device;
const hour = 3_600_000;
const ranges = { '1h': hour, '6h': 6 * hour, '24h': 24 * hour, '7d': 168 * hour, '30d': 720 * hour } as const;
type RangeName = keyof typeof ranges;
const maxDevices = 5;
/** Milliseconds: a loud device must not keep the page busy; a silent one moves out of the chart. */
const liveEvery = 2000;
const againEvery = 30_000;

/** What was looked at last, in this browser: another device may have the same channel. */
const lastKey = 'slipway-chart';
const kept = ['channel', 'range', 'value'];
/** Channels among which the first one with points is looked for. */
const maxLookedAt = 20;

/** What the address says is shown, else what was looked at last. */
function useShown() {
  const [asked, setSearch] = useSearchParams();
  const last = useMemo(() => new URLSearchParams(browserStore.get(lastKey) ?? ''), []);
  const search = kept.some((name) => asked.has(name)) ? asked : new URLSearchParams([...last, ...asked]);
  const set = (values: Record<string, string>) => {
    const changed = kept.flatMap((name) => [[name, values[name] ?? search.get(name) ?? '']]).filter(([, text]) => text);
    browserStore.set(lastKey, String(new URLSearchParams(changed)));
    setSearch(
      (before) => {
        for (const [name, value] of [...search, ...Object.entries(values)])
          value === '' ? before.delete(name) : before.set(name, value);
        return before;
      },
      { replace: true },
    );
  };
  const range = (search.get('range') ?? '24h') as RangeName;
  const [from, to] = [Number(search.get('from')), Number(search.get('to'))];
  return {
    set,
    channel: search.get('channel') ?? '',
    range: range in ranges ? range : '24h',
    zoom: from > 0 && to > from ? ([from, to] as const) : undefined,
    aggregate: aggregates.find((one) => one === search.get('value')) ?? 'avg',
    others: (search.get('with') ?? '')
      .split(',')
      .filter(Boolean)
      .slice(0, maxDevices - 1),
  };
}

/** The first channel that has points, or the first. */
async function firstWithPoints(topics: readonly { channel: string; topic: string }[], signal: AbortSignal) {
  const has = async ({ topic }: { topic: string }) => {
    const params = { path: { topic: `${topic}/latest` }, query: { pageSize: 1 } };
    const answer = await unwrap(api.GET('/api/v4/data/{topic}', { params, signal }));
    return typeof answer !== 'string' && answer.result.length > 0;
  };
  const found = await Promise.all(topics.slice(0, maxLookedAt).map(has));
  return topics[Math.max(0, found.indexOf(true))]?.channel ?? '';
}

export function Series({ device }: { device: DeviceRow }) {
  const { set, channel, range, zoom, aggregate, others } = useShown();
  const { data: connectivity, error: failure } = useLoad(() => readConnectivity(device.id), [device.id]);
  const stored = connectivity?.topics.filter(({ persistenceType }) => persistenceType === 'timeSeries');
  const asked = stored?.find((one) => one.channel === channel);
  const isOpen = stored !== undefined && !asked && stored.length > 1;
  const { data: first } = useLoad(
    async (signal) => (isOpen ? firstWithPoints(stored, signal) : undefined),
    [isOpen, device.id],
  );
  const chosen = asked ?? (isOpen ? stored.find((one) => one.channel === first) : stored?.[0]);
  const categories: readonly Category[] = chosen?.categories ?? [];
  const ids = [device.id, ...others.filter((id) => id !== device.id)];
  const topics = chosen ? ids.map((id) => chosen.topic.replace(device.id, id)) : [];
  const { data, error, reload } = useLoad(
    async (signal) => {
      const [from, to] = zoom ?? [Date.now() - ranges[range], Date.now()];
      const read = (topic: string) => readStored({ topic, from, to, aggregate }, categories, signal);
      return { from, to, devices: await Promise.all(topics.map(read)) };
    },
    [topics, range, zoom, aggregate],
    zoom ? 0 : againEvery,
  );
  useHeard(zoom ? [] : topics, liveEvery, reload);
  const [askedFrom, askedTo] = zoom ?? [data?.from ?? 0, data?.to ?? 0];
  const span = { from: askedFrom / 1000, to: askedTo / 1000 };
  const zoomTo = ({ from, to }: Span) =>
    set({ from: String(Math.round(from * 1000)), to: String(Math.round(to * 1000)) });
  const names = ids.map((id) => (id === device.id ? device.serialNumber : (nameOf('device', id) ?? '…')));
  const charts = useMemo(
    () =>
      chartsOf(
        (data?.devices ?? []).map((stored, at) => ({ name: names[at] ?? '', stored })),
        categories,
        texts.charts.values,
      ),
    [data, names.join()],
  );
  // Until the channels are known, nothing is asked for and nothing is found.
  const hasAsked = data !== undefined && (data.devices.length > 0 || topics.length === 0);
  const isWaiting = !stored || (isOpen && !chosen) || (!hasAsked && !error);
  const isEmpty = charts.every(({ lines }) => lines.every(({ readings }) => readings.length === 0));
  return (
    <section class="panel">
      <div class="toolbar">
        <Select
          label={texts.channel}
          value={chosen?.channel}
          options={(stored ?? []).map(({ channel }) => [channel, channel] as const)}
          onText={(channel) => set({ channel })}
        />
        <Select
          label={words.range}
          value={range}
          options={Object.entries(texts.charts.ranges)}
          onText={(range) => set({ range, from: '', to: '' })}
        />
        <Select
          label={texts.value}
          value={aggregate}
          options={aggregates.map((one) => [one, texts.charts.aggregates[one]] as const)}
          onText={(value) => set({ value: value as Aggregate })}
        />
        {ids.length < maxDevices && (
          <Picker
            key={ids.join()}
            kind="device"
            label={texts.charts.compare}
            none={texts.charts.noOther}
            value=""
            onText={(id) => id && !ids.includes(id) && set({ with: [...others, id].join() })}
          />
        )}
      </div>
      {ids.length > 1 && (
        <ul class="compared">
          {ids.map((id, at) => (
            <li key={id}>
              <Swatch line={at} /> <bdi>{names[at]}</bdi>
              {at > 0 && (
                <Button
                  label={<Icon name="close" />}
                  class="plain"
                  aria-label={texts.charts.remove(names[at] ?? '')}
                  onClick={() => set({ with: others.filter((one) => one !== id).join() })}
                />
              )}
            </li>
          ))}
        </ul>
      )}
      <Range
        span={span}
        of={zoom?.join() ?? range}
        onSpan={zoomTo}
        onWhole={zoom && (() => set({ from: '', to: '' }))}
      />
      <ErrorNote error={failure ?? error} />
      {isWaiting ? (
        !failure && <Loading />
      ) : stored.length === 0 || isEmpty ? (
        <p class="empty">{stored.length === 0 ? words.noSeries : words.noPoints}</p>
      ) : (
        <div class="charts">
          {charts.map(({ category, ...chart }) => (
            <Chart
              key={category}
              {...chart}
              from={(data?.from ?? 0) / 1000}
              to={(data?.to ?? 0) / 1000}
              asked={span}
              bucket={bucketOf((data?.to ?? 0) - (data?.from ?? 0))[0]}
              onZoom={(from, to) => zoomTo({ from, to })}
            />
          ))}
        </div>
      )}
    </section>
  );
}
