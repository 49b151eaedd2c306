import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { copyDatabases } from '../../db/files/copies.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

t.test('copies are of one moment, whatever is written to either file meanwhile', async (t) => {
  const directory = temporaryDirectory(t);
  const copies = join(directory, 'copies');
  mkdirSync(copies);
  const [registry, messages] = ['registry.db', 'messages.db'].map((name) => {
    const file = openSqlite(join(directory, name));
    file.exec('CREATE TABLE "a" ("id" INTEGER PRIMARY KEY, "filling" BLOB)');
    t.teardown(() => file.close());
    const add = file.prepare('INSERT INTO "a" VALUES (?, zeroblob(10000))');
    return (id: number) => add.run(id);
  });
  let last = 0;
  const write = () => {
    last += 1;
    // First the device, then what it says.
    registry?.(last);
    messages?.(last);
  };
  // So large that a copy takes many steps.
  while (last < 400) write();
  const copied = copyDatabases(directory, copies);
  for (let n = 0; n < 200; n += 1) {
    await nextTurn();
    write();
  }
  await copied;
  for (const name of ['registry.db', 'messages.db']) {
    const copy = openSqlite(join(copies, name), { readonly: true });
    t.same(copy.prepare('SELECT count(*), max("id") FROM "a"').raw().get(), [400, 400], name);
    t.equal(copy.pragma('integrity_check', { simple: true }), 'ok');
    copy.close();
  }
});

t.end();
