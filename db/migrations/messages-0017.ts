import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';
import { counting } from './messages-0015.ts';

/**
 * A series for each possession of its device (0046-possession), and when a message was retained, in milliseconds since 1970:
 * 0 is before this step.
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
    UNIQUE ("deviceId", "channelTemplateId", "accountId", "possession")
  ) STRICT`,
  `INSERT INTO "newSeries" SELECT "id", "accountId", "deviceId", "channelTemplateId", "oldest", "lateAfter", 0 FROM "series"`,
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
  'ALTER TABLE "mqttRetained" ADD COLUMN "stored" INTEGER NOT NULL DEFAULT 0',
];

export const name = 'messages-0017';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
