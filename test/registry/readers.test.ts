/** The threads that read lists. */
import { join } from 'node:path';
import { openSqlite } from '../../db/sqlite/open.ts';
import { Readers } from '../../src/core/threads/readers.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

/** A statement as Kysely compiles it, which counts to `most`. */
function counting(most: number) {
  const sql =
    'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT max(i) AS "last" FROM n';
  return { sql, parameters: [most], query: { kind: 'RawNode' }, queryId: { queryId: '' } } as unknown as Parameters<
    Readers['read']
  >[1];
}

t.test('an account whose lists take long keeps no other account waiting, and makes one read at a time', async (t) => {
  const path = join(temporaryDirectory(t), 'registry.db');
  openSqlite(path).close();
  const readers = new Readers(path);
  t.teardown(() => readers.close());
  const ended: string[] = [];
  const read = async (accountId: string, most: number) => {
    t.same(await readers.read({ accountId, callerId: 'c' }, counting(most)), [{ last: most }]);
    ended.push(accountId);
  };
  // Each thread is started by its first read.
  await Promise.all([read('long', 1), read('short', 1)]);
  ended.length = 0;
  const long = Array.from({ length: 3 }, () => read('long', 1_000_000));
  t.equal(readers.waiting, 2, 'one of three has a thread');
  await read('short', 1);
  t.not(ended.length, 4, 'the other account was answered before them');
  await Promise.all(long);
});

t.end();
