/** Transactions whose statements a thread executes: they keep what those of the event loop promise. */

import { join } from 'node:path';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { Kysely, sql } from 'kysely';
import { isUniqueViolation, SqliteDialect, transact } from '../../db/sqlite/dialect.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { WriterThread } from '../../db/sqlite/writer-thread.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

interface Schema {
  items: { id: string; size: number; bytes: Buffer | null };
}

const path = join(temporaryDirectory(t), 'test.db');
const writer = openSqlite(path);
writer.exec('CREATE TABLE items (id TEXT UNIQUE, size INTEGER NOT NULL, bytes BLOB) STRICT');
const thread = new WriterThread({ path, mark: undefined, triggers: [] });
const dialects = SqliteDialect.withThread({ writer, reader: openSqlite(path, { readonly: true }) }, thread);
const local = new Kysely<Schema>({ dialect: dialects.local });
const threaded = new Kysely<Schema>({ dialect: dialects.threaded });
t.teardown(async () => {
  await threaded.destroy();
  await local.destroy();
});
const item = (id: string, size = 0) => ({ id, size, bytes: null });
const sizeOf = async (id: string) =>
  (await local.selectFrom('items').select('size').where('id', '=', id).execute())[0]?.size;

t.test('long and short transactions take turns: no change of either is lost', async (t) => {
  await local.insertInto('items').values(item('total')).execute();
  const add = (db: Kysely<Schema>) =>
    transact(db, async (tx) => {
      const { size } = await tx.selectFrom('items').select('size').where('id', '=', 'total').executeTakeFirstOrThrow();
      await tx
        .updateTable('items')
        .set({ size: size + 1 })
        .where('id', '=', 'total')
        .execute();
    });
  await Promise.all(Array.from({ length: 300 }, (_, at) => add(at % 3 === 0 ? threaded : local)));
  t.equal(await sizeOf('total'), 300);
});

t.test('nobody sees one before its end; then it is on disk', async (t) => {
  const other = openSqlite(path, { readonly: true });
  t.teardown(() => other.close());
  const count = other.prepare<[], number>(`SELECT count(*) FROM items WHERE id = 'late'`).pluck();
  await transact(threaded, async (tx) => {
    await tx
      .insertInto('items')
      .values({ ...item('late'), bytes: Buffer.from([1, 2]) })
      .execute();
    t.equal(count.get(), 0);
    const { bytes } = await tx.selectFrom('items').select('bytes').where('id', '=', 'late').executeTakeFirstOrThrow();
    t.ok(bytes && Buffer.isBuffer(bytes) && bytes.equals(Buffer.from([1, 2])), 'bytes go there and back');
  });
  t.equal(count.get(), 1);
});

t.test('one that fails leaves nothing, and says why as others do', async (t) => {
  const failing = transact(threaded, async (tx) => {
    await tx.insertInto('items').values(item('half')).execute();
    await tx.insertInto('items').values(item('half')).execute();
  });
  t.ok(isUniqueViolation(await failing.catch((error) => error)));
  t.equal(await sizeOf('half'), undefined);
  await local.insertInto('items').values(item('half', 1)).execute();
  t.equal(await sizeOf('half'), 1, 'its turn is over');
  await t.rejects(
    transact(local, () => transact(threaded, async () => {})),
    'none is begun inside another',
  );
});

/** Some tenths of a second of work. */
const long = sql<number>`(with recursive "n" ("at") as (select 1 union all select "at" + 1 from "n" where "at" < 1000000)
  select count(*) from "n")`;

t.test('the event loop goes on while one works; who writes waits for its end', async (t) => {
  let ended = false;
  const busy = transact(threaded, async (tx) => {
    await tx.updateTable('items').set({ size: long }).where('id', '=', 'total').execute();
  }).then(() => {
    ended = true;
  });
  let turns = 0;
  const waiting = local
    .insertInto('items')
    .values(item('waited'))
    .execute()
    .then(() => ended);
  while (!ended) {
    await nextTurn();
    turns += 1;
  }
  await busy;
  t.ok(turns > 5, `${turns} turns`);
  t.equal(await waiting, true);
});

t.test('its thread ends when nobody needs it, never in the middle, and starts again', async (t) => {
  let resting: Promise<void> | undefined;
  await transact(threaded, async (tx) => {
    await tx.insertInto('items').values(item('first')).execute();
    resting = thread.rest();
    // Time in which a thread that did not wait for the transaction would end.
    await sleep(20);
    await tx.insertInto('items').values(item('second')).execute();
  });
  await resting;
  t.equal(await sizeOf('first'), 0);
  t.equal(await sizeOf('second'), 0);
  await transact(threaded, async (tx) => void (await tx.insertInto('items').values(item('third')).execute()));
  t.equal(await sizeOf('third'), 0);
});

t.test('one that begins while the thread ends is done by the next thread', async (t) => {
  await transact(threaded, async (tx) => void (await tx.insertInto('items').values(item('before')).execute()));
  const resting = thread.rest();
  const next = thread.transaction();
  for (const sql of ['BEGIN IMMEDIATE', `INSERT INTO items VALUES ('meanwhile', 7, NULL)`, 'COMMIT'])
    await next.run({ sql, parameters: [] });
  next.ended();
  await resting;
  t.equal(await sizeOf('meanwhile'), 7);
});

t.test('a statement for a thread that has ended is refused, and is not done by another', async (t) => {
  const open = thread.transaction();
  open.ended();
  await thread.rest();
  await t.rejects(open.run({ sql: `INSERT INTO items VALUES ('alone', 0, NULL)`, parameters: [] }), /has ended/);
  t.equal(await sizeOf('alone'), undefined);
});

t.end();
