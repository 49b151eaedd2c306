import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/** What the service notes about a device that connects. */
const moved = ['lastConnected', 'externalIp', 'geoIpLatitude', 'geoIpLongitude', 'reverseDns'];
const names = ['connected', ...moved].map((name) => `"${name}"`).join(', ');

/** The end of an account's id stands for it where millions of rows name it; the index on accounts sees that it is unique. */
const accountOf = (row: string) => `substr(${row}"accountId", 27)`;

const table = [
  'CREATE UNIQUE INDEX "accounts_key" ON "accounts" (substr("id", 27))',
  // `account` is null while the device is in the trash.
  `CREATE TABLE "devicePresence" (
     "row" INTEGER NOT NULL PRIMARY KEY REFERENCES "devices" ("row"),
     "account" TEXT,
     "connected" INTEGER NOT NULL DEFAULT 0,
     ${moved.map((name) => `"${name}" TEXT`)}
   ) STRICT`,
  `INSERT INTO "devicePresence" SELECT "row", CASE WHEN "deleted" IS NULL THEN ${accountOf('')} END, ${names} FROM "devices"
   WHERE "connected" = 1 OR ${moved.map((name) => `"${name}" IS NOT NULL`).join(' OR ')}`,
  'CREATE INDEX "devicePresence_connected" ON "devicePresence" ("account") WHERE "connected" = 1',
  ...moved.map(
    (name) => `CREATE INDEX "devicePresence_${name}" ON "devicePresence" ("account", "${name}")
      WHERE "account" IS NOT NULL AND "${name}" IS NOT NULL`,
  ),
];

const former = [
  ...['added', 'removed', 'trashed', 'counted'].map((name) => `DROP TRIGGER "devices_${name}"`),
  'DROP INDEX "devices_connected"',
  ...['connected', ...moved].flatMap((name) => [
    `DROP INDEX "devices_with_${name}"`,
    `ALTER TABLE "devices" DROP COLUMN "${name}"`,
  ]),
];

const view = `CREATE VIEW "wholeDevices" AS
  SELECT d.*, ${accountOf('d.')} AS "account", coalesce(p."connected", 0) AS "connected", ${moved.map((name) => `p."${name}"`)}
  FROM "devices" AS d LEFT JOIN "devicePresence" AS p ON p."row" = d."row"`;

const kinds = ['deviceTemplateId', 'provisioningState'];
const counts = [
  { table: 'deviceCounts', keys: ['accountId', ...kinds] },
  { table: 'placedDeviceCounts', keys: ['accountId', 'organizationId', ...kinds] },
];
const keyOf = (name: string, row: string) =>
  name === 'organizationId' ? `coalesce(${row}."organizationId", '')` : `${row}."${name}"`;
/** No device without presence is connected. */
const isConnected = (row: string) =>
  `coalesce((SELECT "connected" FROM "devicePresence" WHERE "row" = ${row}."row"), 0)`;

const add = (row: string, connected: string) =>
  counts
    .map(
      ({ table, keys }) =>
        `INSERT INTO "${table}" SELECT ${keys.map((name) => keyOf(name, row))}, ${connected}, 1 WHERE ${row}."deleted" IS NULL
         ON CONFLICT DO UPDATE SET "count" = "count" + 1;`,
    )
    .join('\n');
const subtract = (row: string, connected: string) =>
  counts
    .map(({ table, keys }) => {
      const same = `${keys.map((name) => `"${name}" = ${keyOf(name, row)}`).join(' AND ')} AND "connected" = ${connected}`;
      return `UPDATE "${table}" SET "count" = "count" - 1 WHERE ${same} AND ${row}."deleted" IS NULL;
        DELETE FROM "${table}" WHERE ${same} AND "count" = 0;`;
    })
    .join('\n');

/** A live device that is connected, or not any more, is counted as such. */
const recount = (row: string, from: string, to: string) =>
  counts
    .map(({ table, keys }) => {
      const all = keys.map((name) => `"${name}"`);
      const ofDevice = `FROM "devices" AS d WHERE d."row" = ${row}."row" AND d."deleted" IS NULL`;
      const values = keys.map((name) => keyOf(name, 'd'));
      const same = `(${all}, "connected") = (SELECT ${values}, ${from} ${ofDevice})`;
      return `UPDATE "${table}" SET "count" = "count" - 1 WHERE ${same};
        DELETE FROM "${table}" WHERE ${same} AND "count" = 0;
        INSERT INTO "${table}" SELECT ${values}, ${to}, 1 ${ofDevice} ON CONFLICT DO UPDATE SET "count" = "count" + 1;`;
    })
    .join('\n');

// The texts as in the step 0004, whose triggers are made anew.
const columns = ['serialNumber', 'firmwareVersion'];
const folded = (value: string) =>
  `CASE WHEN octet_length(${value}) > length(${value}) THEN fold(${value}) ELSE lower(${value}) END`;
const countText = (row: string, column: string, step: '+ 1' | '- 1') =>
  `UPDATE "deviceTextCounts" SET "count" = "count" ${step}
   WHERE "accountId" = ${row}."accountId" AND "column" = '${column}' AND ${row}."deleted" IS NULL
     AND instr(${folded(`${row}."${column}"`)}, "pattern") > 0;`;
const indexAll = columns
  .map(
    (column) =>
      `${countText('new', column, '+ 1')}
       INSERT INTO "devices_${column}_text" (rowid, "text") SELECT new."row", ${folded(`new."${column}"`)} || char(1, 1)
       WHERE new."deleted" IS NULL AND new."${column}" IS NOT NULL;`,
  )
  .join('\n');
const forgetAll = columns
  .map((column) => `${countText('old', column, '- 1')} DELETE FROM "devices_${column}_text" WHERE rowid = old."row";`)
  .join('\n');

const counted = [...kinds, 'organizationId'];
const differs = counted.map((name) => `new."${name}" IS NOT old."${name}"`).join(' OR ');

const triggers = [
  `CREATE TRIGGER "devices_added" AFTER INSERT ON "devices" BEGIN ${add('new', '0')} ${indexAll} END`,
  `CREATE TRIGGER "devices_leaving" BEFORE DELETE ON "devices"
   BEGIN DELETE FROM "devicePresence" WHERE "row" = old."row"; END`,
  `CREATE TRIGGER "devices_removed" AFTER DELETE ON "devices" BEGIN ${subtract('old', '0')} ${forgetAll} END`,
  `CREATE TRIGGER "devices_trashed" AFTER UPDATE OF "deleted" ON "devices" WHEN new."deleted" IS NOT old."deleted" BEGIN
     ${subtract('old', isConnected('old'))} ${forgetAll} ${add('new', isConnected('new'))} ${indexAll}
     UPDATE "devicePresence" SET "account" = CASE WHEN new."deleted" IS NULL THEN ${accountOf('new.')} END
     WHERE "row" = new."row"; END`,
  `CREATE TRIGGER "devices_counted" AFTER UPDATE OF ${counted.map((name) => `"${name}"`)} ON "devices"
   WHEN (${differs}) AND new."deleted" IS NULL AND old."deleted" IS NULL
   BEGIN ${subtract('old', isConnected('old'))} ${add('new', isConnected('new'))} END`,
  `CREATE TRIGGER "devicePresence_added" AFTER INSERT ON "devicePresence" WHEN new."connected" = 1
   BEGIN ${recount('new', '0', '1')} END`,
  `CREATE TRIGGER "devicePresence_changed" AFTER UPDATE OF "connected" ON "devicePresence"
   WHEN new."connected" <> old."connected" BEGIN ${recount('new', 'old."connected"', 'new."connected"')} END`,
  `CREATE TRIGGER "devicePresence_removed" AFTER DELETE ON "devicePresence" WHEN old."connected" = 1
   BEGIN ${recount('old', '1', '0')} END`,
];

/**
 * What a connection writes about its device is in a narrow table of its own: a write touches few indexes, and no device that
 * never connects has any of them. `wholeDevices` shows both together.
 */
export const name = '0023-presence';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [...table, ...former, view, ...triggers]);
}
