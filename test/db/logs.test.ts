import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import fc from 'fast-check';
import type { Test } from 'tap';
import { LogReader } from '../../db/messages/logs/reader.ts';
import type { LogSearch } from '../../db/messages/logs/search.ts';
import { wordsOf } from '../../db/messages/logs/terms.ts';
import { LogWriter } from '../../db/messages/logs/writer.ts';
import { type LogEntry, type LogQuestion, MessageStore, type NewLogEntry } from '../../db/messages/store.ts';
import { MessageReader } from '../../db/messages/threads/reader.ts';
import { migrate } from '../../db/migrations/index.ts';
import { messageMigrations } from '../../db/migrations/messages.ts';
import { fold } from '../../db/sqlite/fold.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const now = Date.parse('2026-03-01T12:00:00.000Z');
const page = { page: 1, pageSize: 1000 };
const entryOf = (values: Partial<LogEntry> = {}): NewLogEntry => ({
  id: randomUUID(),
  accountId: 'account',
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
  const store = await MessageStore.open(directory, { log: { error() {} } });
  t.teardown(() => store.close());
  const file = new Sqlite(join(directory, 'messages.db'));
  t.teardown(() => file.close());
  const number = (query: string) => file.prepare<[], number>(query).pluck().get() ?? 0;
  const indexed = () => number(`SELECT "value" FROM "counters" WHERE "name" = 'logsIndexed'`);
  return { store, file, directory, number, indexed };
}

const append = (store: MessageStore, ...entries: Partial<LogEntry>[]) =>
  Promise.all(
    entries.map(
      (entry) =>
        new Promise<void>((resolve, reject) =>
          store.appendLog(entryOf(entry), (error) => (error ? reject(error) : resolve())),
        ),
    ),
  );
const texts = async (store: MessageStore, text: string, deviceId = 'device') =>
  (await store.logs.read(deviceId, { text }, page))?.entries.map(({ message }) => message);
const question = (more: Partial<LogQuestion>): LogQuestion => ({
  scope: { deviceId: 'device' },
  conditions: [],
  sort: 'newest',
  offset: 0,
  limit: 1000,
  ...more,
});

t.test('the index finds exactly what looking at every entry finds, for texts and words of any kind', async (t) => {
  const { store, number, indexed } = await open(t);
  const character = fc.constantFrom(...'abABéÉßẞσςΣ "\'*(-\u0000_01'.split(''), '\u{1f600}', 'e\u0301');
  const texted = fc.string({ unit: character, maxLength: 8 });
  const entries = fc.sample(fc.record({ message: fc.option(texted), details: fc.option(texted) }), {
    numRuns: 300,
    seed: 1,
  });
  await append(store, ...entries.map((entry, n) => ({ ...entry, time: now + n })));
  await append(store, { deviceId: 'other', message: 'ab ab' });
  t.equal(indexed(), number('SELECT max("sequence") FROM "logs"'), 'all of them are indexed');
  const times = async (asked: LogQuestion) => (await store.logs.search(asked))?.entries.map(({ time }) => time - now);
  const naive = (fits: (texts: string[]) => boolean) =>
    entries
      .map(({ message, details }, n) => ({ n, texts: [message, details].filter((text) => text !== null) }))
      .filter(({ texts }) => fits(texts))
      .map(({ n }) => n)
      .toReversed();

  await fc.assert(
    fc.asyncProperty(texted, async (text) => {
      const wanted = fold(text);
      if (wanted === '') return;
      const found = await times(question({ conditions: [{ kind: 'contains', text: wanted }] }));
      t.strictSame(
        found,
        naive((all) => all.some((one) => fold(one).includes(wanted))),
        JSON.stringify(text),
      );
    }),
    { numRuns: 100, seed: 2 },
  );
  await fc.assert(
    fc.asyncProperty(texted, fc.boolean(), async (text, all) => {
      const words = wordsOf(text);
      if (words.length === 0) return;
      const found = await times(question({ conditions: [{ kind: 'words', field: 'message', words, all }] }));
      const expected = entries.flatMap(({ message }, n) => {
        const has = wordsOf(message ?? '');
        return (all ? words.every((word) => has.includes(word)) : words.some((word) => has.includes(word))) ? [n] : [];
      });
      t.strictSame(found, expected.toReversed(), JSON.stringify(text));
    }),
    { numRuns: 50, seed: 3 },
  );
});

t.test('entries of an older file are found at once, and indexed bit by bit', async (t) => {
  const directory = t.testdir();
  const path = join(directory, 'messages.db');
  await migrate(path, messageMigrations.slice(0, 2));
  const old = new Sqlite(path);
  const insert = old.prepare(
    `INSERT INTO "logs" ("id", "accountId", "deviceId", "time", "received", "severity", "message", "tags")
     VALUES (?, 'account', 'device', ?, ?, 6, ?, '[]')`,
  );
  old.transaction(() => {
    for (let n = 0; n < 6000; n += 1) insert.run(`id ${n}`, now + n, now, n % 1000 === 7 ? `needle ${n}` : `hay ${n}`);
  })();
  old.close();
  await migrate(path, messageMigrations);

  const file = new Sqlite(path);
  const writer = new LogWriter(file);
  file.transaction(() => writer.indexSome())();
  const share =
    file.prepare<[], number>(`SELECT "value" FROM "counters" WHERE "name" = 'logsIndexed'`).pluck().get() ?? 0;
  t.ok(share > 100 && share < 3000, `${share} in one transaction`);
  file.close();

  const { store, number, indexed } = await open(t, directory);
  const needles = ['needle 5007', 'needle 4007', 'needle 3007', 'needle 2007', 'needle 1007', 'needle 7'];
  t.strictSame(await texts(store, 'NEEDLE'), needles);
  while (indexed() < 6000) await append(store, { deviceId: 'other' });
  t.strictSame(await texts(store, 'needle'), needles);
  t.equal(number(`SELECT count(*) FROM "logsText" WHERE "logsText" MATCH 'wneedle'`), 6);
});

t.test('entries that wait for the index are found with those that are in it, and after a restart', async (t) => {
  const { store, file, indexed, directory } = await open(t);
  await append(store, { message: 'needle 1', time: now + 1 });
  await store.close();
  // As a flood leaves it: the last ones are stored and not yet indexed.
  file.exec(
    `INSERT INTO "logs" ("id", "accountId", "deviceId", "time", "received", "severity", "message", "tags")
     VALUES ('late', 'account', 'device', ${now + 2}, ${now}, 6, 'needle 2', '[]')`,
  );
  const reader = new LogReader(directory);
  const search: LogSearch = {
    ...question({ conditions: [{ kind: 'contains', text: 'needle' }] }),
    from: 0,
    to: now + 9,
    severities: [6],
  };
  t.match(reader.search(search), { total: 2, rows: [{ message: 'needle 2' }, { message: 'needle 1' }] });
  t.equal(indexed(), 1);
  reader.close();

  const again = await open(t, directory);
  await append(again.store, { message: 'needle 3', time: now + 3 });
  t.strictSame(await texts(again.store, 'needle'), ['needle 3', 'needle 2', 'needle 1']);
  t.equal(indexed(), 3);
});

t.test('who removes entries removes them from the index, and their numbers come back for nobody', async (t) => {
  const { store, file, number } = await open(t);
  await append(store, { message: 'needle 1' }, { message: 'needle 2', deviceId: 'gone' });
  await store.deleteDevice('gone');
  t.equal(number(`SELECT count(*) FROM "logsText" WHERE "logsText" MATCH 'wneedle'`), 1);
  await append(store, { message: 'needle 3' });
  t.strictSame(await texts(store, 'needle'), ['needle 3', 'needle 1']);
  t.equal(number('SELECT max("sequence") FROM "logs"'), 3);
  file.exec('DELETE FROM "logsText" WHERE rowid = 1');
  t.strictSame(await texts(store, 'needle'), ['needle 3'], 'it is the index that finds');
  file.exec('DELETE FROM "logs"');
  t.equal(number(`SELECT count(*) FROM "logsText" WHERE "logsText" MATCH 'wneedle'`), 0);
});

t.test('an index that fails fails no entry: they are stored, and found without it', async (t) => {
  const { store, file } = await open(t);
  await append(store, { message: 'needle 1' });
  file.exec('DROP TABLE "logsText"');
  await append(store, { message: 'needle 2' });
  await append(store, { message: 'needle 3' });
  t.strictSame(await texts(store, 'needle'), ['needle 3', 'needle 2', 'needle 1']);
});

t.test('a search that would take too long goes with what fills its page, and otherwise says so', async (t) => {
  const { store, directory } = await open(t);
  await append(store, ...Array.from({ length: 2000 }, (_, n) => ({ time: now - n, received: now + (n % 2) })));
  const reader = new LogReader(directory, -1);
  const find = (from: number, limit: number) =>
    reader.search({
      ...question({ conditions: [{ kind: 'received', from, to: now + 9 }], limit }),
      from: 0,
      to: now + 1,
      severities: [6],
    });
  t.equal(find(now + 1, 20)?.rows.length, 20);
  t.equal(find(now + 1, 1000), undefined);
  t.equal(find(now + 2, 1), undefined);
  reader.close();
});

t.test('the thread that reads closes with the store', async (t) => {
  const { store } = await open(t);
  await append(store, { message: 'one' });
  t.strictSame(await texts(store, 'one'), ['one']);
  await store.close();
  await t.rejects(texts(store, 'one'), { message: /closed/ });
});

t.test('a reading thread that cannot open its files fails the calls to it, and is closed all the same', async (t) => {
  const reader = new MessageReader(join(t.testdir(), 'nothing here'));
  const search = { ...question({}), from: 0, to: 1, severities: [] };
  const asked = reader.ask('searchLogs', search);
  const closed = reader.close();
  await t.rejects(asked, { message: /directory does not exist/ });
  await closed;
});

t.end();
