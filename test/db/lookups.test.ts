/** What is looked up for each message, connection or request reads few rows, however many an account has. */
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { Registry } from '../../db/registry/index.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

t.test('no lookup reads every device of an account', async (t) => {
  const directory = temporaryDirectory(t);
  const sources = new Set<string>();
  const { prepare } = Sqlite.prototype;
  Sqlite.prototype.prepare = function (this: Sqlite.Database, source: string) {
    if (this.readonly) sources.add(source);
    return prepare.call(this, source);
  } as typeof prepare;
  t.teardown(() => Object.assign(Sqlite.prototype, { prepare }));
  const registry = await Registry.open(directory);
  t.teardown(() => registry.close());
  const file = openSqlite(join(directory, 'registry.db'), { readonly: true });
  t.teardown(() => file.close());
  const ofDevices = [...sources].filter((source) => /FROM "devices"/.test(source));
  t.ok(ofDevices.length >= 3, `${ofDevices.length} statements`);
  for (const source of ofDevices) {
    const bound = source.match(/\?/g) ?? [];
    const plan = file.prepare<unknown[], { detail: string }>(`EXPLAIN QUERY PLAN ${source}`).all(...bound);
    const details = plan.map(({ detail }) => detail).join('\n');
    t.notMatch(details, /SCAN devices|\(<expr>=\? AND deleted=\?\)/, source);
  }
});

t.end();
