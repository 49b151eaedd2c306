import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

const statements = `
  CREATE TABLE "series" (
    "id" INTEGER NOT NULL PRIMARY KEY,
    "accountId" TEXT NOT NULL,
    "deviceId" TEXT NOT NULL,
    "channelTemplateId" TEXT NOT NULL,
    UNIQUE ("deviceId", "channelTemplateId", "accountId")
  ) STRICT;
  CREATE INDEX "series_channel" ON "series" ("channelTemplateId");

  CREATE TABLE "categories" ("id" INTEGER NOT NULL PRIMARY KEY, "text" TEXT NOT NULL UNIQUE) STRICT;

  CREATE TABLE "points" (
    "series" INTEGER NOT NULL,
    "time" INTEGER NOT NULL,
    "sequence" INTEGER NOT NULL,
    "category" INTEGER NOT NULL,
    "number" REAL,
    "text" TEXT,
    PRIMARY KEY ("series", "time", "sequence")
  ) WITHOUT ROWID, STRICT;

  CREATE TABLE "logs" (
    "sequence" INTEGER NOT NULL PRIMARY KEY,
    "id" TEXT NOT NULL,
    "accountId" TEXT NOT NULL,
    "deviceId" TEXT NOT NULL,
    "time" INTEGER NOT NULL,
    "received" INTEGER NOT NULL,
    "severity" INTEGER NOT NULL,
    "message" TEXT,
    "code" TEXT,
    "details" TEXT,
    "tags" TEXT NOT NULL,
    "custom" TEXT
  ) STRICT;
  CREATE INDEX "logs_device" ON "logs" ("deviceId", "time", "severity");

  CREATE TABLE "counters" ("name" TEXT NOT NULL PRIMARY KEY, "value" INTEGER NOT NULL) STRICT;
  INSERT INTO "counters" VALUES ('sequence', 0);
`;

/** Time-series and logs. No reference is declared between them: a check for each point would cost more than the point. */
export const name = 'messages-0001';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements.split(';'));
}
