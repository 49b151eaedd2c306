import type { Kysely } from 'kysely';
import { countRows } from './entity-bytes.ts';
import { executeAll } from './execute.ts';

/** Of the last week, per account and five minutes; `time` (milliseconds) is their beginning, `causes` JSON: refusals by cause. */
const activity = [
  `CREATE TABLE "activity" (
     "accountId" TEXT NOT NULL,
     "time" INTEGER NOT NULL,
     "connected" INTEGER NOT NULL,
     "messages" INTEGER NOT NULL,
     "refusals" INTEGER NOT NULL,
     "causes" TEXT NOT NULL,
     PRIMARY KEY ("accountId", "time")
   ) STRICT, WITHOUT ROWID`,
  'CREATE INDEX "activity_time" ON "activity" ("time")',
  ...countRows('activity', { row: 180, texts: { causes: 1 } }),
];

const noted = ['lastConnected', 'externalIp', 'geoIpLatitude', 'geoIpLongitude', 'reverseDns', 'offlineSince'];
const presence = [
  // Null while a device is connected, and before its first connection.
  'ALTER TABLE "devicePresence" ADD COLUMN "offlineSince" TEXT',
  'ALTER TABLE "devicePresence" ADD COLUMN "silent" INTEGER NOT NULL DEFAULT 0',
  // Seconds between its messages, about; null until it has sent one.
  'ALTER TABLE "devicePresence" ADD COLUMN "usualInterval" INTEGER',
  `CREATE INDEX "devicePresence_offlineSince" ON "devicePresence" ("account", "offlineSince")
   WHERE "account" IS NOT NULL AND "offlineSince" IS NOT NULL`,
  'CREATE INDEX "devicePresence_silent" ON "devicePresence" ("account") WHERE "silent" = 1',
  'DROP VIEW "wholeDevices"',
  `CREATE VIEW "wholeDevices" AS
   SELECT d.*, substr(d."accountId", 27) AS "account", coalesce(p."connected", 0) AS "connected",
     coalesce(p."silent", 0) AS "silent", p."usualInterval", ${noted.map((name) => `p."${name}"`)}
   FROM "devices" AS d LEFT JOIN "devicePresence" AS p ON p."row" = d."row"`,
];

const found = [
  'ALTER TABLE "refusals" ADD COLUMN "cause" TEXT',
  'CREATE INDEX "certificates_account_end" ON "certificates" ("accountId", "validTo") WHERE "deleted" IS NULL',
  `CREATE INDEX "firmwareDeliveries_succeeded" ON "firmwareDeliveries" ("accountId", "updated") WHERE "state" = 'succeeded'`,
];

/** What the overview of an account tells: what went on lately, and which devices have gone or say nothing. */
export const name = '0031-activity';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [...activity, ...presence, ...found]);
}
