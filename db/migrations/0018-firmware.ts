import type { Kysely } from 'kysely';
import { commonColumns } from './common-columns.ts';
import { executeAll } from './execute.ts';

/** The states in which a device still has an update before it. */
const open = `"state" IN ('pending', 'offered', 'downloading', 'downloaded', 'installing')`;

/** How many devices of a stage are in a state: lists, failure limits and metrics need no counting. */
const counted = (row: 'NEW' | 'OLD', by: 1 | -1) => `
    INSERT INTO "firmwareCounts" ("rolloutId", "stage", "state", "count")
    VALUES (${row}."rolloutId", ${row}."stage", ${row}."state", ${by})
    ON CONFLICT DO UPDATE SET "count" = "count" + ${by}`;

const statements: readonly string[] = [
  `CREATE TABLE "firmwarePackages" (${commonColumns},
    "deviceTemplateId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "firmwareVersion" TEXT NOT NULL,
    "description" TEXT,
    "state" TEXT NOT NULL
  ) STRICT`,
  'CREATE INDEX "firmwarePackages_created" ON "firmwarePackages" ("accountId", "created", "id")',
  'CREATE INDEX "firmwarePackages_template" ON "firmwarePackages" ("deviceTemplateId")',
  'CREATE INDEX "firmwarePackages_deleted" ON "firmwarePackages" ("deleted") WHERE "deleted" IS NOT NULL',
  `CREATE TABLE "firmwareFiles" (
    "packageId" TEXT NOT NULL REFERENCES "firmwarePackages" ("id") ON DELETE CASCADE,
    "name" TEXT NOT NULL,
    "accountId" TEXT NOT NULL,
    "revision" TEXT NOT NULL,
    "size" INTEGER NOT NULL,
    "sha256" TEXT NOT NULL,
    "signature" TEXT,
    PRIMARY KEY ("packageId", "name")
  ) STRICT, WITHOUT ROWID`,
  'CREATE INDEX "firmwareFiles_content" ON "firmwareFiles" ("sha256", "packageId")',
  'CREATE INDEX "firmwareFiles_account" ON "firmwareFiles" ("accountId", "sha256", "size")',
  `CREATE TABLE "firmwareUploads" (
    "packageId" TEXT NOT NULL REFERENCES "firmwarePackages" ("id") ON DELETE CASCADE,
    "name" TEXT NOT NULL,
    "accountId" TEXT NOT NULL,
    "partial" TEXT NOT NULL,
    "total" INTEGER,
    "received" INTEGER NOT NULL,
    "digest" TEXT,
    "touched" TEXT NOT NULL,
    PRIMARY KEY ("packageId", "name")
  ) STRICT, WITHOUT ROWID`,
  'CREATE INDEX "firmwareUploads_touched" ON "firmwareUploads" ("touched")',
  'CREATE INDEX "firmwareUploads_account" ON "firmwareUploads" ("accountId", "received")',

  `CREATE TABLE "firmwareRollouts" (${commonColumns},
    "firmwarePackageId" TEXT NOT NULL,
    "target" TEXT NOT NULL,
    "stages" TEXT NOT NULL,
    "startAt" TEXT NOT NULL,
    "deviceDeadlineSeconds" INTEGER NOT NULL,
    "maxFailurePercent" INTEGER NOT NULL,
    "consent" TEXT NOT NULL,
    "state" TEXT NOT NULL,
    "stage" INTEGER NOT NULL,
    "stageBegun" TEXT,
    "threshold" INTEGER,
    "cursor" TEXT,
    "failuresAccepted" INTEGER NOT NULL,
    "reason" TEXT,
    "finished" TEXT,
    "due" INTEGER
  ) STRICT`,
  'CREATE INDEX "firmwareRollouts_created" ON "firmwareRollouts" ("accountId", "created", "id")',
  'CREATE INDEX "firmwareRollouts_package" ON "firmwareRollouts" ("firmwarePackageId")',
  'CREATE INDEX "firmwareRollouts_due" ON "firmwareRollouts" ("due") WHERE "due" IS NOT NULL',
  'CREATE INDEX "firmwareRollouts_finished" ON "firmwareRollouts" ("finished") WHERE "finished" IS NOT NULL',
  `CREATE TABLE "firmwareTargets" (
    "rolloutId" TEXT NOT NULL REFERENCES "firmwareRollouts" ("id") ON DELETE CASCADE,
    "deviceId" TEXT NOT NULL,
    PRIMARY KEY ("rolloutId", "deviceId")
  ) STRICT, WITHOUT ROWID`,
  `CREATE TABLE "firmwareDeliveries" (
    "rolloutId" TEXT NOT NULL REFERENCES "firmwareRollouts" ("id") ON DELETE CASCADE,
    "deviceId" TEXT NOT NULL,
    "accountId" TEXT NOT NULL,
    "stage" INTEGER NOT NULL,
    "state" TEXT NOT NULL,
    "bytes" INTEGER,
    "code" INTEGER,
    "message" TEXT,
    "files" TEXT,
    "offer" INTEGER NOT NULL,
    "consented" INTEGER NOT NULL,
    "updated" TEXT NOT NULL,
    "deadline" INTEGER NOT NULL,
    PRIMARY KEY ("rolloutId", "deviceId")
  ) STRICT, WITHOUT ROWID`,
  `CREATE UNIQUE INDEX "firmwareDeliveries_open" ON "firmwareDeliveries" ("deviceId") WHERE ${open}`,
  `CREATE INDEX "firmwareDeliveries_deadline" ON "firmwareDeliveries" ("deadline") WHERE ${open}`,
  'CREATE INDEX "firmwareDeliveries_state" ON "firmwareDeliveries" ("rolloutId", "state", "deviceId")',
  'CREATE INDEX "firmwareDeliveries_device" ON "firmwareDeliveries" ("deviceId", "rolloutId")',
  `CREATE TABLE "firmwareCounts" (
    "rolloutId" TEXT NOT NULL,
    "stage" INTEGER NOT NULL,
    "state" TEXT NOT NULL,
    "count" INTEGER NOT NULL,
    PRIMARY KEY ("rolloutId", "stage", "state")
  ) STRICT, WITHOUT ROWID`,
  `CREATE TRIGGER "firmwareDeliveries_made" AFTER INSERT ON "firmwareDeliveries" BEGIN ${counted('NEW', 1)}; END`,
  `CREATE TRIGGER "firmwareDeliveries_moved" AFTER UPDATE OF "state" ON "firmwareDeliveries"
   WHEN OLD."state" <> NEW."state" BEGIN ${counted('OLD', -1)}; ${counted('NEW', 1)}; END`,
  `CREATE TRIGGER "firmwareDeliveries_gone" AFTER DELETE ON "firmwareDeliveries" BEGIN ${counted('OLD', -1)}; END`,
];

/** Firmware: packages and their files, rollouts, and what has become of each device of one. */
export const name = '0018-firmware';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
