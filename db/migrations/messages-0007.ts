import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/**
 * What those who come back to a stream have missed, in the order in which it came: log entries and series by account, and
 * points with a time before that of another point of their series that came earlier. "lateAfter" is the sequence up to
 * which these are not listed any more; none are of points from before this step. "byService" entries are the service's
 * own: what says so until now may be a device's as well.
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
