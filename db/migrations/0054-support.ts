import type { Kysely } from 'kysely';
import { countRows } from './entity-bytes.ts';
import { executeAll } from './execute.ts';

/** Requests for support that are open, with what had happened to the device: `log` and `refusals` are JSON. */
const statements = [
  `CREATE TABLE "supportRequests" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
    "deviceId" TEXT NOT NULL REFERENCES "devices" ("id"),
    "created" TEXT NOT NULL,
    "createdById" TEXT NOT NULL,
    "message" TEXT,
    "log" TEXT NOT NULL,
    "refusals" TEXT NOT NULL
  ) STRICT`,
  'CREATE INDEX "supportRequests_device" ON "supportRequests" ("deviceId", "created", "id")',
  'CREATE INDEX "supportRequests_account" ON "supportRequests" ("accountId", "created")',
  ...countRows('supportRequests', { row: 500, texts: { message: 1, log: 1, refusals: 1 } }),
];

export const name = '0054-support';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
