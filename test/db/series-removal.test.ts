import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import fc from 'fast-check';
import type { Test } from 'tap';
import { MessageStore, type NewLogEntry, type Point, type SeriesKey, timeLimit } from '../../db/messages/store.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

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
  const bytes = file
    .prepare<[string, string], number>(
      `SELECT (SELECT coalesce(sum(32 + coalesce(octet_length(p."text") * 9 / 8, 0)), 0)
                 FROM "points" p JOIN "series" s ON s."id" = p."series" WHERE s."accountId" = ?)
            + (SELECT coalesce(sum(600 + (octet_length("tags") + coalesce(octet_length("message"), 0)
                 + coalesce(octet_length("code"), 0) + coalesce(octet_length("details"), 0)
                 + coalesce(octet_length("custom"), 0)) * 7 / 4), 0) FROM "logs" WHERE "accountId" = ?)`,
    )
    .pluck()
    .get(accountId, accountId);
  const series = file
    .prepare(
      `SELECT "id", "oldest" FROM "series" s
       WHERE "oldest" IS NOT (SELECT min("time") FROM "points" p WHERE p."series" = s."id")`,
    )
    .all();
  file.close();
  const known = [points.oldest, logs.oldest].filter((time) => time !== null);
  const oldest = known.length > 0 ? Math.min(...known) : null;
  return { usage: { points: points.count, logs: logs.count, bytes, oldest }, series };
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
        else for (let n = 0; n < act.evict; n += 1) await store.evictSome(store.size - 1);
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
    { numRuns: 12 },
  );
});

t.test('the oldest arrivals go first, over all series and the log, whatever their times are', async (t) => {
  const { store } = await open(t);
  const devices = ['in order', 'backwards', 'far away'];
  const rounds = 200;
  const perRound = 100;
  // The time of the nth point of a device, and when it came.
  const times = (device: string, n: number) =>
    device === 'in order' ? n : device === 'backwards' ? -n : (n % 2 === 0 ? 1 : -1) * 200_000_000_000_000 + n;
  const came = new Map<string, number>();
  for (let round = 0; round < rounds; round += 1) {
    for (const device of devices) {
      const points = Array.from({ length: perRound }, (_, n) => pointAt(times(device, round * perRound + n)));
      for (const { time } of points) came.set(`${device} ${time}`, round);
      await append(store, keyOf('a', device), points);
    }
    await appendLog(store, entryOf('a', 'in order', now));
  }
  const before = store.size;
  const half = (rounds * perRound * devices.length) / 2;
  while (store.usage('a').points > half) t.ok(await store.evictSome(store.size - 1));
  t.ok(store.size < before * 0.8, 'the room is there again');
  const all = { from: -timeLimit, to: timeLimit, order: 'asc', limit: 1_000_000 } as const;
  const oldest = devices.map((device) => {
    const left = store.series.read(keyOf('a', device), all).map(({ time }) => came.get(`${device} ${time}`) ?? -1);
    t.ok(left.includes(rounds - 1), `${device}: the newest is there`);
    return Math.min(...left);
  });
  t.ok(Math.max(...oldest) - Math.min(...oldest) <= rounds / 8, `the oldest that are left came in ${oldest}`);
  t.ok(store.usage('a').logs < rounds * 0.75, 'log entries as well');
});

t.test('room is made by the account that has stored most, however old or young the others are', async (t) => {
  const { store } = await open(t);
  const victim = Array.from({ length: 2000 }, (_, n) => pointAt(n));
  await append(store, keyOf('victim', '1'), victim);
  for (let n = 0; n < 100; n += 1)
    await append(
      store,
      keyOf('attacker', '1'),
      Array.from({ length: 1000 }, (_, m) => pointAt(timeLimit - n * 1000 - m)),
    );
  for (let n = 0; n < 1000 && store.usage('attacker').points > 3000; n += 1) await store.evictSome(store.size - 1);
  t.ok(store.usage('attacker').points <= 3000);
  t.equal(store.usage('victim').points, victim.length);
  for (let n = 0; n < 5; n += 1)
    await append(
      store,
      keyOf('attacker', '2'),
      Array.from({ length: 10_000 }, (_, m) => pointAt(m)),
    );
  while (await store.evictSome(Number.MAX_SAFE_INTEGER, 320_000));
  t.ok(store.usage('attacker').bytes <= 320_000, 'an account over its maximum is cut down to it');
  t.ok(store.usage('attacker').bytes > 160_000, 'and not much further');
  t.equal(store.usage('victim').points, victim.length);
});

t.test('categories count for who brought them, and go with their last point', async (t) => {
  const { store, directory } = await open(t);
  const file = new Sqlite(join(directory, 'messages.db'), { readonly: true });
  t.teardown(() => file.close());
  const texts = () => file.prepare<[], string>('SELECT "text" FROM "categories" ORDER BY "id"').pluck().all();
  const held = async (accountId: string) =>
    (await store.heldByAccount()).find((one) => one.accountId === accountId)?.bytes ?? 0;
  const named = (category: string, time: number): Point => ({ time, category, numericValue: 1, stringValue: null });
  const long = (n: number) => `${n}`.padEnd(1000, 'x');
  await append(store, keyOf('a', '1'), [named('shared', 0)]);
  await append(
    store,
    keyOf('a', '2'),
    Array.from({ length: 300 }, (_, n) => named(long(n), n)),
  );
  t.ok((await held('a')) > 300 * 5000);
  await append(store, keyOf('b', '3'), [named('shared', 0), named(long(7), 0), named('last', 0)]);
  t.ok((await held('b')) < 2000, 'what another account has brought costs nothing');
  await store.deleteDevice('2');
  await all(() => store.expireSome({ channelTemplateId: 'channel', before: -1 }));
  await store.expireSome({ channelTemplateId: 'channel', before: -1 });
  t.same(texts(), ['shared', long(7), 'last']);
  t.ok((await held('a')) < 10_000);
  await append(store, keyOf('a', '2'), [named(long(8), 5)]);
  const { time, category } = store.series.latest(keyOf('a', '2'), 1)[0] ?? {};
  t.same({ time, category }, { time: 5, category: long(8) }, 'a text that comes back is a new category');
  t.equal(store.series.latest(keyOf('b', '3'), 3).length, 3);
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
  t.strictSame(store.usage('a'), { points: 0, logs: 0, bytes: 0, oldest: null });
  await append(store, keyOf('a', 'device 7'), [pointAt(now - 1_000_000)]);
  t.strictSame(
    store.usage('a'),
    { points: 1, logs: 0, bytes: 32, oldest: now - 1_000_000 },
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

t.end();
