import type { Kysely } from 'kysely';
import { countText } from './entity-bytes.ts';
import { executeAll } from './execute.ts';

const hasFailed = `"state" IN ('failed', 'timedOut')`;

/** What a device ran before an update and, where a rollout goes back, which package it gets; failures by their messages, and first. */
export const name = '0056-going-back';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [
    `ALTER TABLE "firmwareRollouts" ADD COLUMN "refused" TEXT NOT NULL DEFAULT '[]'`,
    'ALTER TABLE "firmwareDeliveries" ADD COLUMN "firmwarePackageId" TEXT',
    'ALTER TABLE "firmwareDeliveries" ADD COLUMN "formerVersion" TEXT',
    // Of earlier updates as far as it is known: what the one before has brought.
    `UPDATE "firmwareDeliveries" AS "own" SET "formerVersion" = (
       SELECT "firmwareVersion" FROM "firmwareDeliveries" AS "other"
       JOIN "firmwareRollouts" AS "r" ON "r"."id" = "other"."rolloutId"
       JOIN "firmwarePackages" AS "p" ON "p"."id" = "r"."firmwarePackageId"
       WHERE "other"."deviceId" = "own"."deviceId" AND "other"."rolloutId" < "own"."rolloutId" AND "other"."state" = 'succeeded'
       ORDER BY "other"."rolloutId" DESC LIMIT 1)
     WHERE "state" = 'succeeded'`,
    ...countText('firmwareDeliveries', 'formerVersion', 1),
    // Once more, for the index of failures.
    ...countText('firmwareDeliveries', 'message', 1),
    `CREATE INDEX "firmwareDeliveries_package" ON "firmwareDeliveries" ("firmwarePackageId")
     WHERE "firmwarePackageId" IS NOT NULL`,
    `CREATE INDEX "firmwareDeliveries_failures" ON "firmwareDeliveries" ("rolloutId", "message", "code", "updated", "state")
     WHERE ${hasFailed}`,
    `CREATE INDEX "firmwareDeliveries_failedFirst" ON "firmwareDeliveries" ("rolloutId", (NOT ${hasFailed}), "deviceId")`,
    'DROP INDEX "firmwarePackages_template"',
    'CREATE INDEX "firmwarePackages_template" ON "firmwarePackages" ("deviceTemplateId", "firmwareVersion")',
  ]);
}
