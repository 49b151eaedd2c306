import { statSync } from 'node:fs';
import { join } from 'node:path';
import { Kysely, sql } from 'kysely';
import { isUniqueViolation, SqliteDialect, transact } from '../../db/sqlite/dialect.ts';
import { Writer } from '../../db/sqlite/group-commit.ts';
import { logBytes, openSqlite } from '../../db/sqlite/open.ts';
import { StatementCache } from '../../db/sqlite/statements.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

interface Schema {
  items: { id: string; size: number };
}

function open(t: Parameters<typeof temporaryDirectory>[0]) {
  const path = join(temporaryDirectory(t), 'test.db');
  const writer = openSqlite(path);
  writer.exec('CREATE TABLE items (id TEXT PRIMARY KEY, size INTEGER NOT NULL) STRICT');
  const db = new Kysely<Schema>({
    dialect: SqliteDialect.of({ writer, reader: openSqlite(path, { readonly: true }) }),
  });
  t.teardown(() => db.destroy());
  return { db, path };
}

t.test('a transaction is on disk when it resolves, and readers see nothing of it before', async (t) => {
  const { db, path } = open(t);
  const other = openSqlite(path, { readonly: true });
  t.teardown(() => other.close());
  const count = other.prepare<[], number>('SELECT count(*) FROM items').pluck();
  await transact(db, async (tx) => {
    await tx.insertInto('items').values({ id: 'a', size: 1 }).execute();
    t.equal(count.get(), 0);
  });
  t.equal(count.get(), 1);
});

t.test('transactions that run at once share commits and do not see one another half done', async (t) => {
  const { db } = open(t);
  await db.insertInto('items').values({ id: 'total', size: 0 }).execute();
  const add = () =>
    transact(db, async (tx) => {
      const row = await tx.selectFrom('items').select('size').where('id', '=', 'total').executeTakeFirstOrThrow();
      await tx
        .updateTable('items')
        .set({ size: row.size + 1 })
        .where('id', '=', 'total')
        .execute();
    });
  await Promise.all(Array.from({ length: 500 }, add));
  const row = await db.selectFrom('items').select('size').executeTakeFirstOrThrow();
  t.equal(row.size, 500);
});

t.test('one that fails takes nothing of its neighbours with it', async (t) => {
  const { db } = open(t);
  const results = await Promise.allSettled(
    Array.from({ length: 50 }, (_, n) =>
      transact(db, async (tx) => {
        await tx
          .insertInto('items')
          .values({ id: `item ${n}`, size: n })
          .execute();
        if (n % 10 === 3) throw new Error('changed my mind');
      }),
    ),
  );
  t.equal(results.filter(({ status }) => status === 'rejected').length, 5);
  const { count } = await db
    .selectFrom('items')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .executeTakeFirstOrThrow();
  t.equal(count, 45);
});

t.test('the outer handle inside a transaction throws instead of hanging', async (t) => {
  const { db } = open(t);
  await t.rejects(
    transact(db, async () => {
      await db.insertInto('items').values({ id: 'a', size: 1 }).execute();
    }),
    /outer database handle/,
  );
  await db.insertInto('items').values({ id: 'b', size: 1 }).execute();
  t.same(await db.selectFrom('items').select('id').execute(), [{ id: 'b' }]);
});

t.test('a raw query that only reads does not wait for the writer', async (t) => {
  const { db } = open(t);
  await transact(db, async (tx) => {
    await tx.insertInto('items').values({ id: 'a', size: 1 }).execute();
  });
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const writing = transact(db, async (tx) => {
    await tx.insertInto('items').values({ id: 'b', size: 2 }).execute();
    await held;
  });
  const { rows } = await sql<{ n: number }>`select count(*) as n from items`.execute(db);
  t.same(rows, [{ n: 1 }]);
  release();
  await writing;
});

t.test('a single statement that fails leaves the writer free, and a unique violation is told apart', async (t) => {
  const { db } = open(t);
  const insert = () => db.insertInto('items').values({ id: 'a', size: 1 }).execute();
  await insert();
  const error = await insert().catch((caught) => caught);
  t.notOk(isUniqueViolation(error), 'a primary key is no unique index of ours');
  await sql`create unique index one_size on items (size)`.execute(db);
  const again = await db
    .insertInto('items')
    .values({ id: 'b', size: 1 })
    .execute()
    .catch((caught) => caught);
  t.ok(isUniqueViolation(again));
  await db.insertInto('items').values({ id: 'c', size: 2 }).execute();
});

t.test('the pages that all connections of a server keep in memory stay under 100 MB', async (t) => {
  const path = join(temporaryDirectory(t), 'test.db');
  const cacheOf = (options: Parameters<typeof openSqlite>[1]) => {
    const file = openSqlite(path, options);
    t.teardown(() => file.close());
    return -(file.pragma('cache_size', { simple: true }) as number);
  };
  const [busy, usual] = [cacheOf({ cache: 'busy' }), cacheOf({})];
  // The registry: the writer, its reader, the thread of long transactions. Messages: the writing thread; two that read.
  t.ok(4 * busy + 2 * usual <= 100 * 1024, `${busy} KiB of busy connections, ${usual} KiB of others`);
});

t.test('accounts take turns to write, and the event loop goes round meanwhile', async (t) => {
  const file = openSqlite(join(temporaryDirectory(t), 'test.db'));
  t.teardown(() => file.close());
  let lane = { accountId: 'other', callerId: 'other' };
  const writer = new Writer(new StatementCache(file), undefined, () => lane);
  const order: string[] = [];
  // Turns are of what a transaction takes, and not of what the machine does besides.
  let time = performance.now();
  t.intercept(performance, 'now', { value: () => time });
  const write = async (accountId: string, name: string) => {
    lane = { accountId, callerId: accountId };
    await writer.begin();
    order.push(name);
    time += 1;
    await writer.commit();
  };
  const giveBack = await writer.lend();
  let turns = 0;
  let isOver = false;
  const count = () => {
    turns += 1;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  const all = Array.from({ length: 30 }, (_, n) => write('greedy', `greedy ${n}`));
  for (let n = 0; n < 3; n += 1) all.push(write('modest', `modest ${n}`));
  giveBack();
  await Promise.all(all);
  isOver = true;
  t.ok(order.indexOf('modest 0') < 4, `first of another account: ${order.indexOf('modest 0')}`);
  t.ok(order.indexOf('modest 2') < 20, `third of another account: ${order.indexOf('modest 2')}`);
  t.ok(turns >= 8, `${turns} turns of the event loop in 33 ms of transactions`);
});

t.test('a commit is charged to nobody: it is for all that were written before it', async (t) => {
  /** A writer whose commits take 100 ms, and the order in which the transactions that waited have had their turn. */
  const start = async () => {
    const file = openSqlite(join(temporaryDirectory(t), 'test.db'));
    t.teardown(() => file.close());
    const fence = { checkHolder: () => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50) };
    let accountId = '';
    const writer = new Writer(new StatementCache(file), fence, () => ({ accountId, callerId: accountId }));
    const as = (account: string) => {
      accountId = account;
      return writer;
    };
    const order: string[] = [];
    const write = async (account: string) => {
      await as(account).begin();
      order.push(account);
      await writer.commit();
    };
    const queue = () => Array.from({ length: 100 }, () => write('other')).concat(write('tested'));
    return { as, order, queue };
  };
  // Ages of groups are as the test says.
  let now = Date.now();
  t.intercept(Date, 'now', { value: () => now });

  const ending = await start();
  await ending.as('opener').begin();
  const opened = ending.as('opener').commit();
  const begun = ending.as('tested').begin();
  await begun;
  const queued = ending.queue();
  now += 1000;
  const ended = ending.as('tested').commit();
  await Promise.all([opened, ended, ...queued]);
  t.ok(ending.order.indexOf('tested') < 50, `who ends a group: ${ending.order.indexOf('tested')} others went first`);

  const lending = await start();
  await lending.as('opener').begin();
  const before = lending.as('opener').commit();
  const giveBack = await lending.as('tested').lend();
  const waiting = lending.queue();
  giveBack();
  await Promise.all([before, ...waiting]);
  t.ok(lending.order.indexOf('tested') < 50, `who gets the file: ${lending.order.indexOf('tested')} others went first`);
});

t.test('the log that a long reader has made long is cut once the reader has gone', async (t) => {
  const path = join(temporaryDirectory(t), 'long.db');
  const [writer, reader] = [openSqlite(path), openSqlite(path)];
  writer.exec('CREATE TABLE blobs (content BLOB NOT NULL) STRICT');
  reader.exec('BEGIN; SELECT * FROM blobs');
  const insert = writer.prepare('INSERT INTO blobs VALUES (zeroblob(1048576))');
  const logSize = () => statSync(`${path}-wal`).size;
  while (logSize() < 2 * logBytes) insert.run();
  reader.close();
  // The first one copies the log into the file, the next one begins it anew.
  for (let n = 0; n < 3; n += 1) insert.run();
  t.ok(logSize() <= logBytes, `${logSize()} bytes`);
  writer.close();
});

t.end();
