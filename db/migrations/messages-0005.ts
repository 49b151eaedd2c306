import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/**
 * What removing the oldest asks for. "oldest" is the time of a series' first point, null when it has none: nobody has to
 * go through points to find what is due. Points and log entries are counted by account.
 */
const statements = `
  ALTER TABLE "series" ADD COLUMN "oldest" INTEGER;
  UPDATE "series" SET "oldest" = (SELECT min("time") FROM "points" WHERE "points"."series" = "series"."id");
  DROP INDEX "series_channel";
  CREATE INDEX "series_channel" ON "series" ("channelTemplateId", "oldest");
  CREATE INDEX "series_account" ON "series" ("accountId", "oldest");
  CREATE INDEX "series_oldest" ON "series" ("oldest") WHERE "oldest" IS NOT NULL;
  CREATE INDEX "logs_received" ON "logs" ("accountId", "received");

  CREATE TABLE "messageCounts" (
    "accountId" TEXT NOT NULL PRIMARY KEY,
    "points" INTEGER NOT NULL,
    "logs" INTEGER NOT NULL
  ) WITHOUT ROWID, STRICT;
  INSERT INTO "messageCounts"
    SELECT "accountId", sum("points"), sum("logs") FROM (
      SELECT s."accountId", count(*) AS "points", 0 AS "logs"
        FROM "points" p JOIN "series" s ON s."id" = p."series" GROUP BY s."accountId"
      UNION ALL
      SELECT "accountId", 0, count(*) FROM "logs" GROUP BY "accountId"
    ) GROUP BY "accountId";
`;

export const name = 'messages-0005';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements.split(';'));
}
