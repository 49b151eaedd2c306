/** Who holds a data directory: after another process has taken over, nothing more is committed. */
import { join } from 'node:path';
import { Kysely, sql } from 'kysely';
import { commitAsHolder, Fence, Fenced, lockDirectory, takeOver } from '../../db/files/lock.ts';
import { MessageStore } from '../../db/messages/store.ts';
import { type Db, Registry } from '../../db/registry/index.ts';
import { SqliteDialect, transact } from '../../db/sqlite/dialect.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { WriterThread } from '../../db/sqlite/writer-thread.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

t.test('a second process is told which one holds the directory', async (t) => {
  const directory = temporaryDirectory(t);
  const lock = lockDirectory(directory);
  const fence = takeOver(directory);
  t.throws(
    () => lockDirectory(directory),
    new RegExp(`another server is running on it: process ${process.pid} on .+ since 2`),
  );
  fence.checkHolder();
  lock.release();
  lockDirectory(directory).release();
  fence.close();
});

t.test('the number grows with each start, and two that take over at once differ', async (t) => {
  const directory = temporaryDirectory(t);
  t.equal(Fence.open(directory), undefined, 'no server has been here');
  const marks = [takeOver(directory), takeOver(directory)].map((fence) => {
    fence.close();
    return fence.mark;
  });
  t.strictSame(
    marks.map((mark) => Number(mark.slice(0, 16))),
    [1, 2],
  );
  t.not(marks[0]?.slice(17), marks[1]?.slice(17));
});

t.test('no connection of a process commits after another one has taken over', async (t) => {
  const directory = temporaryDirectory(t);
  const fence = takeOver(directory);
  const { mark } = fence;
  const registry = await Registry.open(directory, mark);
  const messages = await MessageStore.open(directory, { log: { error() {} }, mark });
  t.teardown(async () => {
    await messages.close();
    await registry.close();
    fence.close();
  });
  const count = async () => (await sql`SELECT * FROM "migrations"`.execute(registry.query)).rows.length;
  const before = await count();
  const add = (tx: Db, name: string) => sql`INSERT INTO "migrations" VALUES (${name}, 'now')`.execute(tx);
  await registry.transaction((tx) => add(tx, 'ours'));
  await messages.proveWritable();
  await registry.proveWritable();
  const other = takeOver(directory);
  t.teardown(() => other.close());
  t.throws(() => fence.checkHolder(), Fenced);
  await t.rejects(
    registry.transaction((tx) => add(tx, 'short')),
    { code: 'FENCED' },
  );
  await t.rejects(
    registry.longTransaction((tx) => add(tx, 'long')),
    { code: 'FENCED' },
  );
  await t.rejects(registry.proveWritable(), { code: 'FENCED' });
  await t.rejects(messages.proveWritable(), { message: /taken over/ });
  t.equal(await count(), before + 1, 'what was committed before is all there is');
});

t.test('a commit during which another process takes over is not acknowledged', async (t) => {
  const path = join(temporaryDirectory(t), 'test.db');
  const writer = openSqlite(path);
  writer.exec('CREATE TABLE items (n INTEGER) STRICT');
  const directory = temporaryDirectory(t);
  const fence = takeOver(directory);
  let checks = 0;
  // The second look of a commit is the one after it.
  const checkHolder = () => {
    checks += 1;
    if (checks === 2) takeOver(directory).close();
    fence.checkHolder();
  };
  const files = { writer, reader: openSqlite(path, { readonly: true }), fence: { checkHolder } };
  const db = new Kysely<{ items: { n: number } }>({
    dialect: SqliteDialect.withThread(files, new WriterThread({ path, mark: undefined, triggers: [] })).local,
  });
  t.teardown(async () => {
    await db.destroy();
    fence.close();
  });
  await t.rejects(
    transact(db, (tx) => tx.insertInto('items').values({ n: 1 }).execute()),
    { code: 'FENCED' },
  );
  t.equal(checks, 2);
  t.strictSame(await db.selectFrom('items').selectAll().execute(), [{ n: 1 }], 'it was committed before');
});

t.test('what commits outside of the registry looks before and after, and passes errors of the commit on', (t) => {
  const calls: string[] = [];
  const fence = { checkHolder: () => calls.push('check') };
  commitAsHolder(fence, () => calls.push('commit'));
  t.strictSame(calls, ['check', 'commit', 'check']);
  const full = new Error('disk full');
  t.throws(
    () =>
      commitAsHolder(fence, () => {
        throw full;
      }),
    full,
  );
  commitAsHolder(undefined, () => calls.push('alone'));
  t.equal(calls.at(-1), 'alone');
  t.end();
});

t.end();
