/** What a device says now: a card for each category, with its age and a line of its last day. They follow what it publishes. */
import { Link } from 'wouter-preact';
import { Spark } from '../../parts/charts/spark.tsx';
import { useHeard } from '../../parts/data/heard.ts';
import { useLoad } from '../../parts/data/load.ts';
import { Ago } from '../../parts/formats/ago.tsx';
import { number, readingText } from '../../parts/formats/reading.ts';
import { ErrorNote } from '../../parts/forms/form.tsx';
import { Loading } from '../../parts/page/page.tsx';
import { texts } from '../../texts.ts';
import type { Topic } from '../row.ts';
import { dayLength, type Latest, readLatest } from './latest.ts';

const words = texts.device;
/** Milliseconds after a message until the values are read again: many that come together are read once. */
const settleTime = 1000;
/** Of a strip of states, in its own units; and what its states are told apart by. */
const width = 240;
const shades = ['var(--line)', 'var(--accent)', 'var(--warn)', 'var(--good)'];

export function Values({ id, topics }: { id: string; topics: readonly Topic[] }) {
  const stored = topics.filter(({ persistenceType }) => persistenceType === 'timeSeries');
  const topicsOf = stored.map(({ topic }) => topic);
  const { data, error, reload } = useLoad(() => readLatest(stored), [topicsOf], 60_000);
  useHeard(topicsOf, settleTime, reload, true);
  if (!data) return error ? <ErrorNote error={error} /> : <Loading />;
  if (data.length === 0)
    return (
      <div class="panel empty">
        <p>{stored.length === 0 ? words.noSeries : words.noValues}</p>
        <Link class="button" href={`/devices/${id}/live`}>
          {words.listenLive}
        </Link>
      </div>
    );
  const channels = [...new Set(data.map(({ channel }) => channel))];
  return (
    <>
      {channels.map((channel) => (
        <section key={channel} aria-label={words.valuesOf(channel)}>
          {channels.length > 1 && <h3>{channel}</h3>}
          <ul class="values">
            {data
              .filter((one) => one.channel === channel)
              .map((one) => (
                <Value key={one.category} id={id} of={one} />
              ))}
          </ul>
        </section>
      ))}
    </>
  );
}

function Value({ id, of: { label, unit, last, isState, day, low, high, states } }: { id: string; of: Latest }) {
  const now = Date.now();
  const hasRange = day.length > 1 && high > low;
  return (
    <li class="value">
      <Link href={`/devices/${id}/series`}>{label}</Link>
      <p class="figure">
        {last === undefined ? (
          <span class="soft">–</span>
        ) : typeof last.value === 'number' ? (
          <>
            {number.format(last.value)} {unit && <span class="unit">{unit}</span>}
          </>
        ) : (
          last.value
        )}
      </p>
      {isState ? (
        <States states={states} from={now - dayLength} to={now} label={words.dayOf(label)} />
      ) : day.length > 1 ? (
        <Spark points={day} from={now - dayLength} to={now} gap={gapOf(day)} label={words.dayOf(label)} />
      ) : (
        <div class="spark" />
      )}
      <p class="foot">
        <span>
          {isState && states.length > 1 && words.changes(states.length - 1)}
          {hasRange && words.between(number.format(low), readingText(high, unit))}
        </span>
        {last ? <Ago iso={last.time} /> : words.noValue}
      </p>
    </li>
  );
}

/** Values that come further apart than three times as usual have a gap between them. */
function gapOf(day: Latest['day']): number {
  const steps = day.slice(1).map(({ time }, at) => time - (day[at]?.time ?? time));
  const usual = steps.sort((a, b) => a - b)[Math.floor(steps.length / 2)] ?? 0;
  return 3 * usual;
}

/** A day as a strip: each state has a shade of its own. However often it changes, a state is one shape. */
function States({ states, from, to, label }: { states: Latest['states']; from: number; to: number; label: string }) {
  const x = (time: number) => ((time - from) / (to - from)) * width;
  const shapes = new Map<string, string>();
  for (const [at, { time, value }] of states.entries()) {
    const [start, end] = [x(time), x(states[at + 1]?.time ?? to)].map((one) => one.toFixed(2));
    shapes.set(value, `${shapes.get(value) ?? ''}M${start} 14H${end}V30H${start}Z`);
  }
  return (
    <svg class="spark" viewBox={`0 0 ${width} 44`} preserveAspectRatio="none" role="img" aria-label={label}>
      {[...shapes].sort().map(([value, shape], at) => (
        <path key={value} class="state" fill={shades[at % shades.length]} d={shape}>
          <title>{value}</title>
        </path>
      ))}
    </svg>
  );
}
