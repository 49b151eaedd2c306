/** Rows that the registry keeps in memory are those of the last commit, whoever wrote it. */
import { join } from 'node:path';
import { type Db, Registry } from '../../db/registry/index.ts';
import { KeptRows } from '../../db/sqlite/kept-rows.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { changeStored } from '../support/faults.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const session = { accountId: 'a', userId: 'u', applicationId: null, csrfHash: '', created: '2026', address: null };
const directory = temporaryDirectory(t);
const registry = await Registry.open(directory);
t.teardown(() => registry.close());
t.before(async () => {
  const stored = { directory };
  await changeStored(stored, `INSERT INTO "accounts" ("id", "name", "created") VALUES ('a', 'A', '2026')`);
  await makePerson('u');
});

function makePerson(id: string): Promise<void> {
  const columns = '"id", "accountId", "email", "emailKey", "created"';
  return changeStored({ directory }, `INSERT INTO "identities" (${columns}) VALUES (?, 'a', ?, ?, '2026')`, [
    id,
    id,
    id,
  ]);
}

async function open(id: string, userId = 'u'): Promise<string> {
  await registry.query
    .insertInto('sessions')
    .values({ ...session, id, userId, expires: '2027', ended: null, lastUsed: null })
    .execute();
  // Twice: the second answer is kept.
  for (const _ of [1, 2]) registry.session(id);
  return id;
}
const end = (db: Db, id: string, ended = 'now') =>
  db.updateTable('sessions').set({ ended }).where('id', '=', id).execute();
const ended = (id: string) => registry.session(id)?.ended;

t.test('a change counts from its commit on, and not before', async (t) => {
  const id = await open('changed');
  await registry.transaction(async (tx) => {
    await end(tx, id);
    t.equal(ended(id), null, 'read again before the commit');
  });
  t.equal(ended(id), 'now');
  await registry.query.deleteFrom('sessions').where('id', '=', id).execute();
  t.equal(ended(id), undefined);
  await open(id);
  t.equal(ended(id), null, 'and it is there again');
});

t.test('one that is taken back has not been', async (t) => {
  const [one, other] = [await open('kept'), await open('neighbour')];
  const failing = registry.transaction(async (tx) => {
    await end(tx, one);
    throw new Error('no');
  });
  // They share a commit.
  const [failed] = await Promise.allSettled([failing, registry.transaction((tx) => end(tx, other))]);
  t.equal(failed.status, 'rejected');
  t.equal(ended(one), null);
  t.equal(ended(other), 'now');
});

t.test('so do those of a thread and of another program', async (t) => {
  const [one, other] = [await open('thread'), await open('program')];
  await registry.longTransaction(async (tx) => {
    await end(tx, one);
    t.equal(ended(one), null);
  });
  t.equal(ended(one), 'now');
  await changeStored({ directory }, 'UPDATE "sessions" SET "ended" = \'now\' WHERE "id" = ?', [other]);
  t.equal(ended(other), 'now');
});

t.test('and those of ten thousand rows at once, or of what goes with another row', async (t) => {
  await makePerson('gone');
  const theirs = await open('theirs', 'gone');
  await registry.query.deleteFrom('identities').where('id', '=', 'gone').execute();
  t.equal(registry.session(theirs), undefined);
  const id = await open('many');
  await registry.transaction(async (tx) => {
    for (let at = 0; at < 10_001; at += 1)
      await tx
        .insertInto('sessions')
        .values({ ...session, id: `more ${at}`, expires: '2027', ended: null, lastUsed: null })
        .execute();
    await end(tx, id);
  });
  t.equal(ended(id), 'now');
});

t.test('a row is read once, nobody can change it, and the memory for all has a bound', async (t) => {
  const writer = openSqlite(join(temporaryDirectory(t), 'test.db'));
  t.teardown(() => writer.close());
  writer.exec('CREATE TABLE items ("id" TEXT PRIMARY KEY, "text" TEXT) STRICT');
  const kept = new KeptRows(writer);
  kept.watch('items');
  let reads = 0;
  const ask = (id: string) =>
    kept.get('items', id, () => {
      reads += 1;
      return { id, text: 'x'.repeat(100_000) };
    });
  const row = ask('first');
  t.equal(ask('first'), row);
  t.equal(reads, 1);
  t.throws(() => Object.assign(row ?? {}, { text: '' }), TypeError);
  for (let at = 0; at < 100; at += 1) ask(`item ${at}`);
  reads = 0;
  for (let at = 99; at >= 0; at -= 1) ask(`item ${at}`);
  t.ok(reads > 10 && reads < 100, `${reads} of 100 rows of 200 KB were read again`);
  kept.get('items', 'none', () => undefined);
  t.match(
    kept.get('items', 'none', () => ({ id: 'none' })),
    { id: 'none' },
    'what is missing is looked for again',
  );
});

t.end();
