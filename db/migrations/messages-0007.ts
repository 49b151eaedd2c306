import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/**
 * What those who come back to a stream have missed, in order of arrival. Points with a time before an earlier one of their series
 * are listed after the sequence "lateAfter"; none are of before this step. "byService" entries are the service's own.
 */
const statements = [
  `CREATE TABLE "latePoints" (
    "series" INTEGER NOT NULL,
    "sequence" INTEGER NOT NULL,
    "time" INTEGER NOT NULL,
    PRIMARY KEY ("series", "sequence")
  ) WITHOUT ROWID, STRICT`,
  'ALTER TABLE "series" ADD COLUMN "lateAfter" INTEGER NOT NULL DEFAULT 0',
  `CREATE TRIGGER "series_late" AFTER DELETE ON "series" BEGIN
     DELETE FROM "latePoints" WHERE "series" = OLD."id";
   END`,
  'CREATE INDEX "series_order" ON "series" ("accountId")',
  'CREATE INDEX "logs_order" ON "logs" ("accountId")',
  'ALTER TABLE "logs" ADD COLUMN "byService" INTEGER NOT NULL DEFAULT 0',
  `UPDATE "logs" SET "byService" = 1
   WHERE "severity" = 8 AND "message" IN ('connected', 'disconnected') AND "custom" ->> '$.clientId' IS NOT NULL
   AND json_type("custom", '$.connected') IN ('true', 'false')`,
];

export const name = 'messages-0007';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
