/** Many timers with one of Node: when they are due, what they are by key, and how the clock may be set meanwhile. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Test } from 'tap';
import { TimerWheel } from '../../src/core/timer-wheel.ts';
import { part } from '../support/part.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

/** A wheel by a clock that only the test sets, and what was due, in order. */
function wheelOf(test: Test) {
  const clock = { time: Date.parse('2026-05-01T00:00:00Z'), now: () => clock.time };
  const wheel = new TimerWheel({ clock });
  test.teardown(() => wheel.stop());
  const due: string[] = [];
  return { clock, wheel, due, timers: wheel.timersOf((key) => due.push(key)) };
}

t.test('timers are due in the order of their times, also when thousands were moved and cancelled', async (t) => {
  const { clock, wheel, due, timers } = wheelOf(t);
  const expected = new Map<string, number>();
  let chance = 1;
  const dice = (sides: number) => {
    chance = (chance * 48_271) % 0x7fffffff;
    return chance % sides;
  };
  for (let n = 0; n < 20_000; n += 1) {
    const key = `device ${dice(5000)}`;
    if (dice(4) === 0) {
      timers.cancel(key);
      expected.delete(key);
    } else {
      const time = clock.time + 1 + dice(100_000);
      timers.set(key, time);
      expected.set(key, time);
    }
    if (n % 1000 === 0) t.equal(wheel.size, expected.size);
  }
  clock.time += 50_000;
  const [before, after] = [[], []] as [string[], string[]];
  for (const [key, time] of expected) (time <= clock.time ? before : after).push(key);
  await until(
    () => due.length,
    (count) => count === before.length,
  );
  const times = due.map((key) => expected.get(key) ?? 0);
  t.same(
    times,
    [...times].sort((one, other) => one - other),
  );
  t.same(new Set(due), new Set(before));
  clock.time += 50_001;
  await until(
    () => due.length,
    (count) => count === expected.size,
  );
  t.same(new Set(due.slice(before.length)), new Set(after));
  t.equal(wheel.size, 0);
});

t.test('a clock that is set ahead makes due what it has passed, and one that is set back makes it wait', async (t) => {
  const { clock, due, timers } = wheelOf(t);
  timers.set('in an hour', clock.time + 3_600_000);
  timers.set('in ten days', clock.time + 864_000_000);
  clock.time += 86_400_000;
  await until(() => due.length);
  t.same(due, ['in an hour']);
  clock.time -= 864_000_000;
  timers.set('now', clock.time);
  await until(() => due.length === 2);
  t.same(due, ['in an hour', 'now']);
});

t.test('the keys of users are their own, a timer may set the next one, and who has ended hears nothing', async (t) => {
  const { clock, wheel, due, timers } = wheelOf(t);
  const others: string[] = [];
  const other = wheel.timersOf((key) => {
    others.push(key);
    if (others.length < 3) other.set(key, clock.time);
  });
  const ended = wheel.timersOf(() => t.fail('it has ended'));
  for (const one of [timers, other, ended]) one.set('same', clock.time + 1);
  t.equal(wheel.size, 3);
  ended.end();
  ended.set('same', clock.time);
  clock.time += 1;
  await until(() => others.length === 3);
  t.same([due, others], [['same'], ['same', 'same', 'same']]);
});

t.test('a timer that is nearer than those before it is due first', async (t) => {
  const wheel = new TimerWheel({ clock: { now: Date.now } });
  t.teardown(() => wheel.stop());
  const due: string[] = [];
  const timers = wheel.timersOf((key) => due.push(key));
  timers.set('later', Date.now() + 60_000);
  const since = Date.now();
  timers.set('soon', since + 30);
  await until(() => due.length);
  t.same(due, ['soon']);
  t.ok(Date.now() >= since + 30);
});

t.test('thousands that are due at once leave the event loop to others', async (t) => {
  const { clock, due, wheel } = wheelOf(t);
  const count = 3000;
  const busy = wheel.timersOf((key) => {
    due.push(key);
    for (const until = performance.now() + 0.03; performance.now() < until; );
  });
  for (let n = 0; n < count; n += 1) busy.set(String(n), clock.time + n);
  clock.time += count;
  await until(() => due.length);
  let turns = 0;
  for (; due.length < count; turns += 1) await nextTurn();
  t.ok(turns > 10, `${turns} turns of others`);
});

t.end();
