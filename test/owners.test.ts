/** Each table of both databases has somebody who pays for it: src/limits/owners.ts against the schema. */
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import t from 'tap';
import { bringUpToDate } from '../db/files/schema.ts';
import { messageOwners, type Owner, ownTables, registryOwners } from '../src/limits/owners.ts';
import { limits } from '../src/limits/table.ts';
import { temporaryDirectory } from './support/directory.ts';

/** What the triggers of a table write into the tables that count by account. */
const counted = {
  'registry.db': /"kept"/,
  'messages.db': /"heldBytes"|"mqttRetainedUse"/,
};
/** Their jobs count rows of jobs, the writer of messages.db counts points and log entries, and the broker the rest. */
const withoutTriggers = ['jobRows', 'points', 'logs', 'mqttQueue', 'mqttIncoming'];

for (const [name, owners] of [
  ['registry.db', registryOwners],
  ['messages.db', messageOwners],
] as const)
  t.test(`every table of ${name} has a limit that counts it by account, or a reason why it needs none`, async (t) => {
    const directory = temporaryDirectory(t);
    await bringUpToDate(directory, name);
    const file = new Sqlite(join(directory, name), { readonly: true });
    t.teardown(() => file.close());
    const schema = (type: string, table: string) =>
      file
        .prepare<[string, string], string>('SELECT "sql" FROM "sqlite_schema" WHERE "type" = ? AND "tbl_name" = ?')
        .pluck()
        .all(type, table);
    const tables = file
      .prepare<[], string>(`SELECT "name" FROM pragma_table_list WHERE "schema" = 'main' AND "type" <> 'view'`)
      .pluck()
      .all()
      .filter((table) => !ownTables.test(table));
    t.same(Object.keys(owners).sort(), tables.sort());
    const names = new Set<string>(limits.map((limit) => limit.name));
    for (const [table, owner] of Object.entries<Owner>(owners)) {
      if ('within' in owner) {
        t.ok(tables.includes(owner.within), `${table} is bounded by ${owner.within}`);
        continue;
      }
      if ('because' in owner) continue;
      const { counted: limit, and } = owner;
      t.ok(limit === 'diskShare' || names.has(limit), `${table} is counted by ${limit}`);
      if (and !== undefined) t.ok(names.has(and), `and by ${and}`);
      if (withoutTriggers.includes(table)) continue;
      const triggers = schema('trigger', table).filter((sql) => counted[name].test(sql));
      for (const event of ['INSERT', 'DELETE'])
        t.ok(
          triggers.some((sql) => sql.includes(`AFTER ${event} ON`)),
          `${table} is counted on ${event}`,
        );
    }
  });
