import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';
import { counting } from './messages-0015.ts';

/**
 * Points more than a day ahead of their arrival have a series of their own ("ahead" is 1), whose "oldest" is the first arrival;
 * "aheadPoints" has when each came, in milliseconds since 1970. What is there already counts as in time.
 */
const statements = [
  `CREATE TABLE "newSeries" (
    "id" INTEGER NOT NULL PRIMARY KEY,
    "accountId" TEXT NOT NULL,
    "deviceId" TEXT NOT NULL,
    "channelTemplateId" TEXT NOT NULL,
    "oldest" INTEGER,
    "lateAfter" INTEGER NOT NULL DEFAULT 0,
    "possession" INTEGER NOT NULL DEFAULT 0,
    "ahead" INTEGER NOT NULL DEFAULT 0,
    UNIQUE ("deviceId", "channelTemplateId", "accountId", "possession", "ahead")
  ) STRICT`,
  `INSERT INTO "newSeries" SELECT "id", "accountId", "deviceId", "channelTemplateId", "oldest", "lateAfter", "possession", 0
   FROM "series"`,
  'DROP TABLE "series"',
  'ALTER TABLE "newSeries" RENAME TO "series"',
  'CREATE INDEX "series_channel" ON "series" ("channelTemplateId", "oldest")',
  'CREATE INDEX "series_account" ON "series" ("accountId", "oldest")',
  'CREATE INDEX "series_oldest" ON "series" ("oldest") WHERE "oldest" IS NOT NULL',
  'CREATE INDEX "series_order" ON "series" ("accountId")',
  `CREATE TRIGGER "series_marks" AFTER DELETE ON "series" BEGIN
     DELETE FROM "categoryMarks" WHERE "series" = OLD."id";
   END`,
  `CREATE TRIGGER "series_late" AFTER DELETE ON "series" BEGIN
     DELETE FROM "latePoints" WHERE "series" = OLD."id";
   END`,
  ...counting(['series', { account: (row) => `${row}"accountId"`, size: () => '400' }]),
  `CREATE TABLE "aheadPoints" (
    "series" INTEGER NOT NULL,
    "received" INTEGER NOT NULL,
    "time" INTEGER NOT NULL,
    "sequence" INTEGER NOT NULL,
    PRIMARY KEY ("series", "received", "sequence")
  ) WITHOUT ROWID, STRICT`,
];

export const name = 'messages-0018';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
