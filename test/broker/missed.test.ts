/** What is found for a reader that comes back: everything that came meanwhile, whatever the clocks of devices say. */
import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import type { Test } from 'tap';
import { readMissed, TooMuchMissed } from '../../broker/http/missed.ts';
import { maxMissed } from '../../db/messages/series/missed.ts';
import { MessageStore, type Point } from '../../db/messages/store.ts';
import type { StoreEnd } from '../../db/messages/threads/protocol.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const now = Date.parse('2026-03-01T12:00:00.000Z');
const centuries = { from: Date.UTC(1900), to: Date.UTC(2300) };

async function open(t: Test) {
  const store = await MessageStore.open(t.testdir(), { log: { error() {} } });
  t.teardown(() => store.close());
  const channel = { id: 'channel', name: 'values', persistenceType: 'timeSeries' };
  const access = {
    placement: () => ({ deviceTemplateId: 'template' }),
    channelsOf: () => new Map([[channel.name, channel]]),
  };
  const services = { messages: store, access, config: { topicRoot: 'x' } } as unknown as Parameters<
    typeof readMissed
  >[0];
  const append = (deviceId: string, times: readonly number[], accountId = 'account') => {
    const points = times.map((time): Point => ({ time, category: '', numericValue: 1, stringValue: null }));
    return new Promise<StoreEnd>((resolve, reject) =>
      store.append({ accountId, deviceId, channelTemplateId: channel.id }, points, (error, end) =>
        error || !end ? reject(error) : resolve({ ...end }),
      ),
    );
  };
  const log = (deviceId: string, accountId = 'account') => {
    const about = { id: randomUUID(), accountId, deviceId, time: now, received: now, severity: 'info' as const };
    const entry = { ...about, message: deviceId, code: null, details: null, tags: [], custom: null };
    return new Promise<void>((resolve, reject) =>
      store.appendLog(entry, (error) => (error ? reject(error) : resolve())),
    );
  };
  const missed = (from: StoreEnd, filter: string) =>
    readMissed(services, { accountId: 'account', filters: [filter], mayHear: () => true, from, to: store.end });
  return { store, append, log, missed };
}

t.test('every point that came meanwhile is found once, in the order in which they came, at any times', async (t) => {
  const { store, append, missed } = await open(t);
  const time = fc.oneof(fc.integer({ min: 0, max: 3 }), fc.integer({ min: centuries.from, max: centuries.to }));
  let count = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(time, { minLength: 1, maxLength: 30 }), fc.nat(29), async (times, place) => {
      count += 1;
      const device = `device${count}`;
      const away = Math.min(place, times.length - 1);
      const from = away === 0 ? { ...store.end } : await append(device, times.slice(0, away));
      const to = await append(device, times.slice(away));
      const found = await missed(from, `x/account/d/${device}/+`);
      t.strictSame(
        found.map(({ time }) => time),
        times.slice(away),
      );
      t.equal(found.at(-1)?.place.points, to.points);
    }),
    { numRuns: 80 },
  );
});

t.test('a device with many points, at times to come too, keeps nothing from others', async (t) => {
  const { store, append, log, missed } = await open(t);
  const many = Array.from({ length: 20_000 }, (_, at) => now + 1e12 + at);
  for (let batch = 0; batch < 5; batch += 1) await append('ahead', many);
  await append('other', [now]);
  const from = { ...store.end };
  await append('ahead', [now]);
  await append('other', [now - 1e9]);
  for (let at = 0; at < 3; at += 1) await log('foreign', 'another account');
  await log('other');
  const found = await missed(from, '#');
  t.same(
    found.map(({ topic }) => topic),
    ['x/account/d/ahead/values', 'x/account/d/other/values', 'x/account/d/other/_log'],
  );
  t.same(store.missed.logs('account', from.logs, 10).length, 1, 'of other accounts nothing is looked at');
  t.same(
    store.missed.newest(1, from.points, { time: now + 1e15, sequence: 0 }, 10).points,
    [],
    'nor of what was known',
  );
});

t.test('the list of late points has as many as are sent again, and who needs more is told so', async (t) => {
  const { store, append, missed } = await open(t);
  const long = { ...(await append('device', [now])) };
  // Backwards, so that each is late.
  const back = Array.from({ length: maxMissed + 4000 }, (_, at) => now - 1 - at);
  await append('device', back.slice(0, 4000));
  const from = { ...store.end };
  await append('device', back.slice(4000));
  const [series] = store.missed.seriesOf('account', 'device');
  t.ok((series?.lateAfter ?? 0) > long.points, 'some have left the list');
  const refused = () => missed(long, '#').catch((error) => error);
  t.ok((await refused()) instanceof TooMuchMissed);
  t.equal((await missed(from, '#')).length, maxMissed);
  const listed = () => store.missed.late(1, 0, 1e6).length;
  t.ok(listed() <= maxMissed + 2000);
  await store.expireSome({ channelTemplateId: 'channel', before: now - maxMissed });
  t.ok(listed() < maxMissed, 'what is removed leaves it');
  t.ok((await refused()) instanceof TooMuchMissed, 'and is not forgotten');
  while (await store.evictSome(0));
  t.equal(listed(), 0);
});

t.end();
