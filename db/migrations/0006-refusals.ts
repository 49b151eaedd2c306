import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

const statements = `
  CREATE TABLE "refusals" (
    "sequence" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    "deviceId" TEXT NOT NULL REFERENCES "devices" ("id") ON DELETE CASCADE,
    "time" TEXT NOT NULL,
    "action" TEXT NOT NULL,
    "topic" TEXT,
    "reason" TEXT NOT NULL,
    "code" INTEGER NOT NULL,
    "address" TEXT,
    "clientId" TEXT,
    "byDevice" INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX "refusals_device" ON "refusals" ("deviceId", "sequence");
`;

/** The last refusals of each device. */
export const name = '0006-refusals';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements.split(';'));
}
