/** What timers take of memory. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t from 'tap';
import { TimerWheel } from '../../src/core/timer-wheel.ts';
import { until } from '../support/until.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Megabytes in use. */
function used(): number {
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return (heapUsed + arrayBuffers) / 1e6;
}

t.test('100,000 timers take 20 MB at most, 1,000,000 take 100 MB, and nothing is left of them', async (t) => {
  const wheel = new TimerWheel({ clock: { now: Date.now } });
  const timers = wheel.timersOf(() => {});
  const far = Date.now() + 3_600_000;
  const keyOf = (n: number) => `0195${String(n).padStart(8, '0')}-7000-8000-000000000000`;
  const before = used();
  for (let n = 0; n < 100_000; n += 1) timers.set(keyOf(n), far + n);
  const few = used() - before;
  for (let n = 100_000; n < 1_000_000; n += 1) timers.set(keyOf(n), far - n);
  const many = used() - before;
  t.ok(few <= 20, `${few} MB`);
  t.ok(many <= 100, `${many} MB`);
  timers.end();
  t.equal(wheel.size, 0);
  // What arrays had is given back by another thread, a little after the collection.
  await until(
    () => used() - before,
    (left) => left < 1,
  );
  wheel.stop();
});
