import { AsyncLocalStorage } from 'node:async_hooks';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Worker } from 'node:worker_threads';
import Sqlite from 'better-sqlite3';
import fc from 'fast-check';
import type { Test } from 'tap';
import {
  type LogEntry,
  MessageStore,
  type NewLogEntry,
  type Point,
  type SeriesKey,
  type Severity,
} from '../../db/messages/store.ts';
import { part } from '../support/part.ts';
import { present } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const now = Date.parse('2026-03-01T12:00:00.000Z');
const accountId = '018f0000-0000-7000-8000-00000000000a';
const everything = { from: now - 1_000_000, to: now + 1_000_000, order: 'asc', limit: 1000 } as const;

const keyOf = (device: string): SeriesKey => ({ accountId, deviceId: device, channelTemplateId: 'channel' });
const pointOf = (values: Partial<Point> = {}): Point => ({
  time: now,
  category: 'temperature',
  numericValue: 21.5,
  stringValue: null,
  ...values,
});
const entryOf = (values: Partial<LogEntry> = {}): NewLogEntry => ({
  id: randomUUID(),
  accountId,
  deviceId: 'device',
  time: now,
  received: now,
  severity: 'info',
  message: null,
  code: null,
  details: null,
  tags: [],
  custom: null,
  ...values,
});

async function open(t: Test, directory = t.testdir()) {
  const errors: object[] = [];
  const log = { error: (details: object) => errors.push(details) };
  const store = await MessageStore.open(directory, { log });
  t.teardown(() => store.close());
  return { store, directory, errors };
}

function append(store: MessageStore, key: SeriesKey, ...points: Point[]): Promise<void> {
  return new Promise((resolve, reject) => store.append(key, points, (error) => (error ? reject(error) : resolve())));
}

function appendLog(store: MessageStore, entry: NewLogEntry): Promise<void> {
  return new Promise((resolve, reject) => store.appendLog(entry, (error) => (error ? reject(error) : resolve())));
}

const values = (points: Point[]) => points.map((point) => point.numericValue);

t.test('a point is readable as soon as it is acknowledged, and after the store was opened again', async (t) => {
  const { store, directory } = await open(t);
  await append(store, keyOf('device'), pointOf());
  t.match(store.series.read(keyOf('device'), everything), [pointOf()]);
  t.equal(store.pending, 0);
  await store.close();

  const again = await open(t, directory);
  t.match(again.store.series.read(keyOf('device'), everything), [pointOf()]);
});

t.test('texts and numbers are kept exactly, whatever they hold', async (t) => {
  const { store } = await open(t);
  const text = fc.string({ unit: 'binary' });
  const point = fc.record(
    {
      time: fc.integer({ min: now - 1000, max: now + 1000 }),
      category: text,
      numericValue: fc.option(fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => number + 0)),
      stringValue: fc.option(text),
    },
    { noNullPrototype: true },
  );
  let run = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(point, { maxLength: 50 }), async (points) => {
      run += 1;
      const key = keyOf(`device ${run}`);
      await append(store, key, ...points);
      const stored = store.series.read(key, everything).map(({ sequence: _, ...rest }) => rest);
      t.strictSame(
        stored,
        points.toSorted((a, b) => a.time - b.time),
      );
    }),
    { numRuns: 30 },
  );
  await append(store, keyOf('nul'), pointOf({ category: 'a\0b', numericValue: null, stringValue: '\0' }));
  t.match(store.series.read(keyOf('nul'), everything), [{ category: 'a\0b', numericValue: null, stringValue: '\0' }]);
});

t.test('callbacks come in the order of the calls, points and logs alike, and never inside the call', async (t) => {
  const { store } = await open(t);
  const called: number[] = [];
  await new Promise<void>((resolve) => {
    for (let call = 0; call < 300; call += 1) {
      const done = () => {
        if (called.push(call) === 300) resolve();
      };
      if (call % 3 === 0) store.appendLog(entryOf(), done);
      else if (call % 7 === 0) store.append(keyOf('device'), [pointOf({ numericValue: Number.NaN })], done);
      else store.append(keyOf(`device ${call % 5}`), [pointOf()], done);
      if (called.length > 0) t.fail('a callback came inside a call');
    }
  });
  t.strictSame(called, [...called.keys()]);
});

t.test('what came before a long message is committed without it, and what comes after it later', async (t) => {
  const { store } = await open(t);
  const before = store.writer.commits.count;
  const long = Array.from({ length: 1000 }, (_, n) => pointOf({ time: now + n }));
  const calls = [append(store, keyOf('short'), pointOf()), append(store, keyOf('long'), ...long)];
  const commits = await Promise.all(calls.map((call) => call.then(() => store.writer.commits.count - before)));
  t.strictSame(commits, [1, 2], 'the transaction after which each was acknowledged');
});

t.test('a callback that throws disturbs no other', async (t) => {
  const { store, errors } = await open(t);
  store.append(keyOf('device'), [pointOf()], () => {
    throw new Error('from the callback');
  });
  await append(store, keyOf('device'), pointOf());
  t.match(errors, [{ err: { message: 'from the callback' } }]);
});

t.test('a point that cannot be stored is refused alone', async (t) => {
  const { store } = await open(t);
  const bad = [
    pointOf({ numericValue: Number.POSITIVE_INFINITY }),
    pointOf({ time: Number.NaN }),
    pointOf({ time: 1.5 }),
    pointOf({ time: 1e16 }),
  ];
  const results = await Promise.allSettled([
    ...bad.map((point) => append(store, keyOf('device'), pointOf(), point)),
    append(store, keyOf('device'), pointOf({ numericValue: 7 })),
  ]);
  t.strictSame(
    results.map((result) => result.status),
    ['rejected', 'rejected', 'rejected', 'rejected', 'fulfilled'],
  );
  t.strictSame(values(store.series.read(keyOf('device'), everything)), [7]);
});

t.test('a range has its start and not its end, one category when asked, in either order', async (t) => {
  const { store } = await open(t);
  const key = keyOf('device');
  const points = [1, 2, 3, 4].map((n) => pointOf({ time: now + n, numericValue: n, category: n % 2 ? 'odd' : 'even' }));
  await append(store, key, ...points.toReversed());
  const range = { from: now + 2, to: now + 4, limit: 10 };
  t.strictSame(values(store.series.read(key, { ...range, order: 'asc' })), [2, 3]);
  t.strictSame(values(store.series.read(key, { ...range, order: 'desc' })), [3, 2]);
  t.strictSame(values(await store.series.page(key, { ...range, order: 'asc' }, 'odd')), [3]);
  t.strictSame(values(await store.series.page(key, { ...range, order: 'asc' }, 'unknown')), []);
  t.strictSame(values(store.series.read(keyOf('other'), everything)), []);
  t.strictSame(values(store.series.latest(key, 3)), [4, 3, 2]);
  t.strictSame(values(await store.series.page(key, { ...everything, order: 'desc', limit: 3 }, 'odd')), [3, 1]);
});

for (const order of ['asc', 'desc'] as const)
  t.test(`pages (${order}) show what was there at the start once each, while points arrive everywhere`, async (t) => {
    const { store } = await open(t);
    const key = keyOf('device');
    // Three of each time, so that pages end between points of one time.
    const first = Array.from({ length: 60 }, (_, n) => pointOf({ time: now + Math.floor(n / 3), numericValue: n }));
    await append(store, key, ...first);
    const seen: Array<number | null> = [];
    let page = store.series.read(key, { ...everything, order, limit: 7 });
    for (let pages = 0; page.length > 0; pages += 1) {
      seen.push(...values(page));
      const arriving = [-5, 3, 10, 30].map((n) => pointOf({ time: now + n, numericValue: -1 }));
      if (pages < 10) await append(store, key, ...arriving);
      const after = page.at(-1);
      page = after ? store.series.read(key, { ...everything, order, limit: 7, after }) : [];
    }
    const old = seen.filter((value) => value !== -1);
    const expected = values(first).toSorted((a, b) => (order === 'asc' ? 1 : -1) * (Number(a) - Number(b)));
    t.strictSame(old, expected);
  });

t.test('the sequence goes on where it was after the store was opened again', async (t) => {
  const { store, directory } = await open(t);
  await append(store, keyOf('device'), pointOf(), pointOf());
  await store.deleteDevice('device');
  await store.close();
  const again = await open(t, directory);
  await append(again.store, keyOf('device'), pointOf());
  t.match(again.store.series.read(keyOf('device'), everything), [{ sequence: 3 }]);
});

t.test('a transaction that fails fails its own messages, and the next ones are stored', async (t) => {
  const { store, directory, errors } = await open(t);
  const file = new Sqlite(join(directory, 'messages.db'));
  t.teardown(() => file.close());
  file.exec(`CREATE TRIGGER "poison" BEFORE INSERT ON "points" WHEN NEW."number" = 13
    BEGIN SELECT RAISE(ABORT, 'poison'); END`);
  const group = [1, 13, 2].map((numericValue) => append(store, keyOf('new'), pointOf({ numericValue })));
  for (const result of await Promise.allSettled(group))
    t.match(result, { status: 'rejected', reason: { message: 'poison' } });
  t.match(errors, [{ err: Sqlite.SqliteError }]);

  // The series and the category of the failed transaction were not kept either.
  await append(store, keyOf('new'), pointOf({ numericValue: 3 }));
  t.match(store.series.read(keyOf('new'), everything), [{ numericValue: 3, category: 'temperature', sequence: 1 }]);
  t.equal(store.pending, 0);
});

t.test('when the writer dies, what it had is refused, and it comes back', async (t) => {
  const own = new AsyncLocalStorage<true>();
  const threads: Worker[] = [];
  const note = (worker: Worker) => own.getStore() && threads.push(worker);
  process.on('worker', note);
  t.teardown(() => process.off('worker', note));
  const { store } = await own.run(true, () => open(t));
  const worker = present(threads[0]);
  await append(store, keyOf('device'), pointOf({ numericValue: 1 }));

  const exited = once(worker, 'exit');
  const caught = Array.from({ length: 100 }, () => append(store, keyOf('device'), pointOf({ numericValue: 2 })));
  const results = Promise.allSettled(caught);
  await worker.terminate();
  await exited;
  t.equal((await results).length, 100, 'every callback was called');
  t.equal(store.pending, 0);
  // All at once: the next one starts after a second.
  const unavailable = [
    append(store, keyOf('device'), pointOf()),
    appendLog(store, entryOf()),
    store.deleteDevice('device'),
  ];
  for (const result of await Promise.allSettled(unavailable))
    t.match(result, { status: 'rejected', reason: { message: /not available/ } });

  const storeOne = () => append(store, keyOf('device'), pointOf({ numericValue: 3 }));
  await until(() =>
    storeOne().then(
      () => true,
      () => false,
    ),
  );
  t.equal(store.series.latest(keyOf('device'), 1)[0]?.numericValue, 3);
});

t.test('closing stores what was appended before, and refuses what comes later', async (t) => {
  const { store, directory } = await open(t);
  const appended = Array.from({ length: 500 }, () => append(store, keyOf('device'), pointOf()));
  const closed = store.close();
  await t.rejects(append(store, keyOf('device'), pointOf()), { message: /closed/ });
  await closed;
  await Promise.all(appended);
  const again = await open(t, directory);
  t.equal(again.store.series.read(keyOf('device'), everything).length, 500);
});

t.test('a store that cannot be written does not open', async (t) => {
  const directory = t.testdir({ 'messages.db': 'no database, but long enough to be looked at as one'.repeat(20) });
  await t.rejects(MessageStore.open(directory, { log: { error() {} } }));
});

t.test('deleting a device removes its points and logs, and nothing else', async (t) => {
  const { store, directory } = await open(t);
  const many = Array.from({ length: 45_000 }, (_, n) => pointOf({ time: now + n }));
  await append(store, keyOf('gone'), ...many);
  await append(store, { ...keyOf('gone'), channelTemplateId: 'second' }, pointOf());
  await append(store, keyOf('stays'), pointOf());
  await appendLog(store, entryOf({ deviceId: 'gone' }));
  await appendLog(store, entryOf({ deviceId: 'stays' }));
  const deleted = store.deleteDevice('gone');
  const meanwhile = append(store, keyOf('stays'), pointOf());
  await Promise.all([deleted, meanwhile]);

  t.equal(store.series.latest(keyOf('gone'), 1).length, 0);
  t.equal(store.series.latest(keyOf('stays'), 10).length, 2);
  t.equal((await store.logs.read('gone', {}, { page: 1, pageSize: 10 }))?.total, 0);
  t.equal((await store.logs.read('stays', {}, { page: 1, pageSize: 10 }))?.total, 1);
  const file = new Sqlite(join(directory, 'messages.db'), { readonly: true });
  t.equal(file.prepare('SELECT count(*) FROM "points"').pluck().get(), 2);
  t.equal(file.prepare('SELECT count(*) FROM "series"').pluck().get(), 1);
  file.close();
});

t.test('log entries come newest first, filtered, in pages with the total', async (t) => {
  const { store } = await open(t);
  const levels: Severity[] = ['emergency', 'error', 'info', 'debug', 'lifecycle'];
  for (const [n, severity] of levels.entries())
    await appendLog(store, entryOf({ time: now + n, severity, message: `Überhitzung ${severity}`, code: `E${n}` }));
  const full = { tags: ['a', '\ud800'], custom: { connected: true, deep: { '\0': [1] } }, details: 'in the Öl' };
  await appendLog(store, entryOf({ time: now + 2, ...full }));

  const read = async (filter: Parameters<MessageStore['logs']['read']>[1], page = 1, pageSize = 10) => {
    const found = await store.logs.read('device', filter, { page, pageSize });
    return { entries: found?.entries ?? [], total: found?.total };
  };
  t.strictSame(
    (await read({})).entries.map((entry) => entry.code),
    ['E4', 'E3', null, 'E2', 'E1', 'E0'],
  );
  t.match((await read({})).entries[2], {
    ...full,
    accountId,
    deviceId: 'device',
    time: now + 2,
    received: now,
    severity: 'info',
  });
  t.equal((await read({ severities: ['emergency', 'alert', 'critical', 'error'] })).total, 2);
  t.equal((await read({ from: now + 1, to: now + 3 })).total, 3);
  t.equal((await read({ text: 'ÜBERHITZUNG' })).total, 5);
  t.equal((await read({ text: 'öl' })).total, 1);
  t.equal((await read({ text: 'e3' })).total, 1);
  t.equal((await read({ text: '%' })).total, 0);
  const page = await read({}, 2, 4);
  t.equal(page.total, 6);
  t.equal(page.entries.length, 2);
  t.strictSame(await read({}, 3, 4), { entries: [], total: 6 });
  t.equal(new Set((await read({})).entries.map((entry) => entry.id)).size, 6);
});

t.test('kill -9 loses nothing that was acknowledged', async (t) => {
  const directory = t.testdir();
  const writer = fileURLToPath(new URL('killed-writer.ts', import.meta.url));
  const child = spawn(process.execPath, [writer, directory, String(now), JSON.stringify(keyOf('device'))], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const acknowledged: number[] = [];
  for await (const line of createInterface(child.stdout)) {
    acknowledged.push(Number(line));
    if (acknowledged.length === 2000) child.kill('SIGKILL');
  }

  const { store } = await open(t, directory);
  const range = { ...everything, limit: 1_000_000 };
  const stored = new Set(values(store.series.read(keyOf('device'), range)));
  t.strictSame(
    acknowledged.filter((value) => !stored.has(value)),
    [],
  );
});

t.end();
