/** What a device says that was claimed just now: its latest values, and each new one as it comes. */
import { useEffect, useState } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { pointsOf } from '../device/messages/points.ts';
import { readConnectivity, type Topic } from '../device/row.ts';
import { listen } from '../parts/data/live.ts';
import { Ago } from '../parts/formats/ago.tsx';
import { number } from '../parts/formats/reading.ts';
import { Button } from '../parts/forms/form.tsx';
import { texts } from '../words.ts';

const words = texts.claim;
/** Values that are shown at first, and points that are looked through for them. */
const maxShown = 6;
const maxRead = 50;
/** Milliseconds that a value may be ahead of its arrival; beyond them it is never the latest. */
const mostAhead = 24 * 3_600_000;

interface ShownReading {
  /** The channel and the category. */
  key: string;
  label: string;
  unit: string;
  value: string | number | boolean;
  time: string;
}

/** A value by the name and unit that the product gives its category; a message without one has the name of its channel. */
function shownAs(
  { channel, categories }: Topic,
  category: string,
  value: ShownReading['value'],
  time: string,
): ShownReading {
  const { label = category || channel, unit = '' } = categories.find(({ name }) => name === category) ?? {};
  return { key: `${channel} ${category}`, label, unit, value, time };
}

/** The stored values of a channel, the latest of each category. */
async function readStored(of: Topic): Promise<ShownReading[]> {
  const params = { path: { topic: `${of.topic}/latest` }, query: { pageSize: maxRead } };
  const answer = await unwrap(api.GET('/api/v4/data/{topic}', { params }));
  if (typeof answer === 'string') return [];
  const shown = new Map<string, ShownReading>();
  for (const { category = '', numericValue, stringValue, time = '' } of answer.result)
    if (!shown.has(category)) shown.set(category, shownAs(of, category, numericValue ?? stringValue ?? '', time));
  return [...shown.values()];
}

/** What a message says, the time of each value included. */
function readMessage(of: Topic, payload: string, arrived: string): ShownReading[] {
  const points = pointsOf(payload) ?? [{ category: '', value: payload.slice(0, 100) }];
  return points.flatMap(({ category, value, time = Date.parse(arrived) }) =>
    time > 0 && time <= Date.now() + mostAhead ? [shownAs(of, category, value, new Date(time).toISOString())] : [],
  );
}

/** Of each category the newest value; what was said last comes first. */
function newest(before: readonly ShownReading[], more: readonly ShownReading[]): ShownReading[] {
  const kept = new Map([...before].reverse().map((one) => [one.key, one]));
  for (const one of [...more].reverse()) {
    const other = kept.get(one.key);
    if (other && other.time >= one.time) continue;
    kept.delete(one.key);
    kept.set(one.key, one);
  }
  return [...kept.values()].reverse();
}

function useValues(deviceId: string): readonly ShownReading[] {
  const [values, setValues] = useState<readonly ShownReading[]>([]);
  useEffect(() => {
    let close = () => {};
    let isOver = false;
    const add = (more: readonly ShownReading[]) => setValues((before) => newest(before, more));
    const begin = async () => {
      const { topics } = await readConnectivity(deviceId);
      const own = topics.filter(({ service }) => !service);
      if (isOver || own.length === 0) return;
      const stored = own.filter(({ persistenceType }) => persistenceType === 'timeSeries');
      const read = async () => {
        for (const found of await Promise.all(stored.map(readStored))) if (!isOver) add(found);
      };
      const source = listen(
        own.map(({ topic }) => topic),
        ({ topic, payload, time }) => {
          const from = own.find((one) => one.topic === topic);
          if (from) add(readMessage(from, payload, time));
        },
        // What was said before the stream opened is read, too.
        (isOpen) => isOpen && read().catch(() => {}),
      );
      close = () => source.close();
      await read();
    };
    // Without it the page of the device still has them.
    begin().catch(() => {});
    return () => {
      isOver = true;
      close();
    };
  }, [deviceId]);
  return values;
}

/** The latest values of a device, and each new one as it comes. */
export function LatestValues({ deviceId, most, none }: { deviceId: string; most: number; none: string }) {
  const values = useValues(deviceId).slice(0, most);
  return (
    <section class="firstvalue" aria-label={words.values} aria-live="polite">
      {values.length === 0 ? (
        <p class="waiting">{none}</p>
      ) : (
        <dl>
          {values.map(({ key, label, value, unit, time }) => (
            <div key={key}>
              <dt>{label}</dt>
              <dd>
                <b>{typeof value === 'number' ? number.format(value) : String(value)}</b>{' '}
                {unit && <span class="unit">{unit}</span>}{' '}
                <span class="small soft">
                  <Ago iso={time} />
                </span>
              </dd>
            </div>
          ))}
        </dl>
      )}
    </section>
  );
}

export function FirstValue({ deviceId, again }: { deviceId: string; again: () => void }) {
  return (
    <>
      <LatestValues deviceId={deviceId} most={maxShown} none={words.waiting} />
      <div class="row end">
        <Button label={words.another} onClick={again} />
        <a class="button primary" href={`/console/my/${deviceId}`}>
          {words.open}
        </a>
      </div>
    </>
  );
}
