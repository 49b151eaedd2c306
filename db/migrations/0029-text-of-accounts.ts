import { type Kysely, sql } from 'kysely';
import { executeAll } from './execute.ts';

/** Every character of ASCII is part of a word but NUL, which is between words. */
const ascii = Array.from({ length: 127 }, (_, n) => String.fromCharCode(n + 1)).join('');
const quoted = (text: string) => `'${text.replaceAll("'", "''")}'`;
const tokenizer = quoted(`ascii tokenchars ${quoted(ascii)}`);

const add = `INSERT INTO "devices_serialNumber_text" (rowid, "text")
  SELECT new."row", grams(substr(new."accountId", 27), new."serialNumber") WHERE new."deleted" IS NULL;`;
const remove = 'DELETE FROM "devices_serialNumber_text" WHERE rowid = old."row";';

/** How many live devices of an account have a firmware version, in each state. */
const counts = 'firmwareVersionCounts';
const keys = ['accountId', 'provisioningState', 'firmwareVersion'];
const names = keys.map((name) => `"${name}"`).join(', ');
const isCounted = (row: string) => `${row}"deleted" IS NULL AND ${row}"firmwareVersion" IS NOT NULL`;
const isOldRow = keys.map((name) => `"${name}" = old."${name}"`).join(' AND ');
const countNew = `INSERT INTO "${counts}" SELECT ${keys.map((name) => `new."${name}"`)}, 1 WHERE ${isCounted('new.')}
  ON CONFLICT DO UPDATE SET "count" = "count" + 1;`;
const countOld = `UPDATE "${counts}" SET "count" = "count" - 1 WHERE ${isOldRow} AND ${isCounted('old.')};
  DELETE FROM "${counts}" WHERE ${isOldRow} AND "count" = 0;`;

const counting = [
  `CREATE TABLE "${counts}" (
     ${keys.map((name) => `"${name}" TEXT NOT NULL`)}, "count" INTEGER NOT NULL, PRIMARY KEY (${names})
   ) STRICT, WITHOUT ROWID`,
  `INSERT INTO "${counts}" SELECT ${names}, count(*) FROM "devices" WHERE ${isCounted('')} GROUP BY ${names}`,
  `CREATE TRIGGER "${counts}_added" AFTER INSERT ON "devices" BEGIN ${countNew} END`,
  `CREATE TRIGGER "${counts}_removed" AFTER DELETE ON "devices" BEGIN ${countOld} END`,
  `CREATE TRIGGER "${counts}_changed" AFTER UPDATE OF "firmwareVersion", "provisioningState", "deleted" ON "devices"
   WHEN ${['firmwareVersion', 'provisioningState', 'deleted'].map((name) => `new."${name}" IS NOT old."${name}"`).join(' OR ')}
   BEGIN ${countOld} ${countNew} END`,
];

const statements = [
  ...['serialNumber', 'firmwareVersion'].flatMap((column) => [
    `DROP TRIGGER "devices_${column}"`,
    `DROP TABLE "devices_${column}_terms"`,
    `DROP TABLE "devices_${column}_text"`,
  ]),
  `CREATE VIRTUAL TABLE "devices_serialNumber_text"
   USING fts5("text", tokenize = ${tokenizer}, detail = none, content = '', contentless_delete = 1)`,
  `CREATE VIRTUAL TABLE "devices_serialNumber_terms" USING fts5vocab("devices_serialNumber_text", 'row')`,
  `INSERT INTO "devices_serialNumber_text" (rowid, "text")
   SELECT "row", grams(substr("accountId", 27), "serialNumber") FROM "devices" WHERE "deleted" IS NULL`,
  `CREATE TRIGGER "devices_text_added" AFTER INSERT ON "devices" BEGIN ${add} END`,
  `CREATE TRIGGER "devices_text_removed" AFTER DELETE ON "devices" BEGIN ${remove} END`,
  `CREATE TRIGGER "devices_text_changed" AFTER UPDATE OF "serialNumber", "deleted" ON "devices"
   WHEN new."serialNumber" IS NOT old."serialNumber" OR new."deleted" IS NOT old."deleted"
   BEGIN ${remove} ${add} END`,
];

/**
 * The index of serial numbers knows the account of each, and has words of one, two and three characters, so that it counts what is
 * found often. Firmware versions need no index of texts. The counts that were kept for lists go.
 */
export const name = '0029-text-of-accounts';

/** Lists count anew. */
export const mayLose = ['deviceListCounts'];

export async function up(db: Kysely<unknown>): Promise<void> {
  const { rows } = await sql<{ name: string; sql: string }>`
    SELECT "name", "sql" FROM "sqlite_schema" WHERE "type" = 'trigger'`.execute(db);
  const triggers = new Map(rows.map((trigger) => [trigger.name, trigger.sql]));
  const former = [...triggers.keys()].filter((trigger) => trigger.startsWith('deviceListCounts_'));
  // What they do besides stays as it is.
  const mixed = ['devices_added', 'devices_removed', 'devices_trashed'];
  await executeAll(db, [
    ...[...former, ...mixed].map((trigger) => `DROP TRIGGER "${trigger}"`),
    'DROP TABLE "deviceListCounts"',
    ...mixed.map((trigger) =>
      (triggers.get(trigger) ?? '').replaceAll(/(INSERT INTO|DELETE FROM) "devices_\w+_text"[^;]*;/g, ''),
    ),
    ...statements,
    ...counting,
  ]);
}
