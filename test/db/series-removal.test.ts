import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { MessageStore, type NewLogEntry, type Point, type SeriesKey } from '../../db/messages/store.js';
import { temporaryDirectory } from '../support/directory.js';

const now = Date.parse('2026-03-01T12:00:00.000Z');
const keyOf = (accountId: string, deviceId = 'device', channelTemplateId = 'channel'): SeriesKey => ({
  accountId,
  deviceId,
  channelTemplateId,
});
const pointAt = (time: number): Point => ({ time, category: 'c', numericValue: time, stringValue: null });
const entryOf = (accountId: string, deviceId: string, received: number): NewLogEntry => ({
  id: randomUUID(),
  accountId,
  deviceId,
  time: received,
  received,
  severity: 'info',
  message: 'm',
  code: null,
  details: null,
  tags: [],
  custom: null,
});

async function open(t: Test, directory = temporaryDirectory(t)) {
  const store = await MessageStore.open(directory, {
    log: { error: (details) => t.fail('error', details) },
    now: () => now,
  });
  t.teardown(() => store.close());
  return { store, directory };
}

function append(store: MessageStore, key: SeriesKey, points: Point[]): Promise<void> {
  return new Promise((resolve, reject) => store.append(key, points, (error) => (error ? reject(error) : resolve())));
}

function appendLog(store: MessageStore, entry: NewLogEntry): Promise<void> {
  return new Promise((resolve, reject) => store.appendLog(entry, (error) => (error ? reject(error) : resolve())));
}

/** What `usage` says, counted row by row. */
function recount(directory: string, accountId: string) {
  const file = new Sqlite(join(directory, 'messages.db'), { readonly: true });
  const points = file
    .prepare<[string], { count: number; oldest: number | null }>(
      `SELECT count(*) AS "count", min(p."time") AS "oldest" FROM "points" p JOIN "series" s ON s."id" = p."series"
       WHERE s."accountId" = ?`,
    )
    .get(accountId) ?? { count: 0, oldest: null };
  const logs = file
    .prepare<[string], { count: number; oldest: number | null }>(
      'SELECT count(*) AS "count", min("received") AS "oldest" FROM "logs" WHERE "accountId" = ?',
    )
    .get(accountId) ?? { count: 0, oldest: null };
  const series = file
    .prepare(
      `SELECT "id", "oldest" FROM "series" s
       WHERE "oldest" IS NOT (SELECT min("time") FROM "points" p WHERE p."series" = s."id")`,
    )
    .all();
  file.close();
  const known = [points.oldest, logs.oldest].filter((time) => time !== null);
  const oldest = known.length > 0 ? Math.min(...known) : null;
  return { usage: { points: points.count, logs: logs.count, oldest }, series };
}

async function all(step: () => Promise<boolean>): Promise<void> {
  while (await step());
}

t.test('whatever comes and goes, the counts and the oldest are those of a recount', async (t) => {
  const account = fc.constantFrom('a', 'b');
  const device = fc.constantFrom('1', '2', '3');
  const channel = fc.constantFrom('x', 'y');
  const time = fc.integer({ min: now - 1000, max: now + 10 });
  const act = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        append: fc.tuple(account, device, channel),
        times: fc.array(time, { minLength: 1, maxLength: 30 }),
      }),
    },
    { weight: 3, arbitrary: fc.record({ log: fc.tuple(account, device), time }) },
    { weight: 1, arbitrary: fc.record({ deviceId: device }) },
    { weight: 1, arbitrary: fc.record({ channelTemplateId: channel }) },
    { weight: 2, arbitrary: fc.record({ expire: channel, before: time }) },
    { weight: 2, arbitrary: fc.record({ expireLogs: account, before: time }) },
    { weight: 2, arbitrary: fc.record({ evict: fc.integer({ min: 1, max: 3 }) }) },
  );
  // One file for all lives, opened again now and then: each goes on with what the one before has left.
  let { store, directory } = await open(t);
  let lives = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(act, { minLength: 10, maxLength: 40 }), async (acts) => {
      for (const act of acts) {
        if ('append' in act) await append(store, keyOf(...act.append), act.times.map(pointAt));
        else if ('log' in act) await appendLog(store, entryOf(...act.log, act.time));
        else if ('deviceId' in act) await store.deleteDevice(act.deviceId);
        else if ('channelTemplateId' in act) await store.deleteChannel(act.channelTemplateId);
        else if ('expire' in act)
          await all(() => store.expireSome({ channelTemplateId: act.expire, before: act.before }));
        else if ('expireLogs' in act) await all(() => store.expireSome({ logsOf: act.expireLogs, before: act.before }));
        else for (let n = 0; n < act.evict; n += 1) await store.evictSome(store.size);
      }
      lives += 1;
      if (lives % 10 === 0) {
        await store.close();
        ({ store } = await open(t, directory));
      }
      for (const accountId of ['a', 'b']) {
        const { usage, series } = recount(directory, accountId);
        if (series.length > 0) throw new Error(`series with a wrong oldest: ${JSON.stringify(series)}`);
        const said = store.usage(accountId);
        if (JSON.stringify(said) !== JSON.stringify(usage))
          throw new Error(`${JSON.stringify(said)} is not ${JSON.stringify(usage)}`);
      }
    }),
    { numRuns: 40 },
  );
});

t.test('the oldest go first, over all series and the log', async (t) => {
  const { store } = await open(t);
  const devices = ['1', '2', '3', '4'];
  const span = 40_000;
  for (const [index, device] of devices.entries())
    await append(
      store,
      keyOf('a', device),
      Array.from({ length: span / 4 }, (_, n) => pointAt(now - span + 4 * n + index)),
    );
  for (let n = 0; n < 100; n += 1) await appendLog(store, entryOf('a', '1', now - span + (n * span) / 100));
  const before = store.size;
  while (store.usage('a').points > span / 2) t.ok(await store.evictSome(store.size));
  t.ok(store.size < before * 0.7, 'the room is there again');

  const { points, oldest } = store.usage('a');
  t.equal(points + store.usage('a').logs, store.usage().points + store.usage().logs);
  const firsts = devices.map(
    (device) => store.read(keyOf('a', device), { from: now - span, to: now, order: 'asc', limit: 1 })[0]?.time ?? now,
  );
  const logs = await store.readLogs('1', {}, { page: 1, pageSize: 100 });
  firsts.push(logs?.entries.at(-1)?.received ?? now);
  t.ok(Math.max(...firsts) - Math.min(...firsts) < span / 20, 'nobody has lost younger ones than the others have');
  t.equal(oldest, Math.min(...firsts));
  for (const device of devices)
    t.equal(store.latest(keyOf('a', device), 1)[0]?.time, now - 4 + devices.indexOf(device));
});

t.test('many small series give way as well, and nothing is left in the end', async (t) => {
  const { store } = await open(t);
  await Promise.all(
    Array.from({ length: 3000 }, (_, n) =>
      append(
        store,
        keyOf('a', `device ${n}`),
        [5, 4, 3, 2, 1].map((back) => pointAt(now - back * 1000 - n)),
      ),
    ),
  );
  t.equal(store.usage('a').points, 15_000);
  let steps = 0;
  while (await store.evictSome(0)) steps += 1;
  t.ok(steps < 1000, `${steps} steps`);
  t.strictSame(store.usage('a'), { points: 0, logs: 0, oldest: null });
  await append(store, keyOf('a', 'device 7'), [pointAt(now - 1_000_000)]);
  t.strictSame(
    store.usage('a'),
    { points: 1, logs: 0, oldest: now - 1_000_000 },
    'a series goes on after it was empty',
  );
});

t.test('points that arrive meanwhile wait for a step at most, and those that are young enough stay', async (t) => {
  const { store } = await open(t);
  for (const device of ['1', '2', '3'])
    await append(
      store,
      keyOf('a', device),
      Array.from({ length: 60_000 }, (_, n) => pointAt(now - 60_000 + n)),
    );
  let steps = 0;
  let arrived = 0;
  const expired = (async () => {
    while (await store.expireSome({ channelTemplateId: 'channel', before: now - 100 })) steps += 1;
  })();
  const arriving = (async () => {
    while (store.usage('a').points > 1000 && arrived < 10_000) {
      await append(store, keyOf('a', '2'), [pointAt(now)]);
      arrived += 1;
    }
  })();
  await Promise.all([expired, arriving]);
  t.ok(steps >= 2, `${steps} steps`);
  t.ok(arrived >= 2, `${arrived} points came in between`);
  t.equal(store.usage('a').points, 300 + arrived);
});

t.test('no log entry takes the place of one that was removed', async (t) => {
  const { store, directory } = await open(t);
  const places = () => {
    const file = new Sqlite(join(directory, 'messages.db'), { readonly: true });
    const found = file.prepare<[], number>('SELECT "sequence" FROM "logs"').pluck().all();
    file.close();
    return found;
  };
  for (let n = 0; n < 3; n += 1) await appendLog(store, entryOf('a', 'device', now));
  const last = Math.max(...places());
  await all(() => store.expireSome({ logsOf: 'a', before: now + 1 }));
  t.strictSame(places(), []);
  await store.close();
  const again = await open(t, directory);
  await appendLog(again.store, entryOf('a', 'device', now));
  t.ok(Math.min(...places()) > last);
});
