import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/** The states in which a command can still reach its device, or is being carried out. */
const open = `"state" IN ('queued', 'sent', 'accepted')`;

const counted = (row: 'NEW' | 'OLD', by: 1 | -1) => `
    INSERT INTO "commandCounts" ("accountId", "state", "count") VALUES (${row}."accountId", ${row}."state", ${by})
    ON CONFLICT DO UPDATE SET "count" = "count" + ${by}`;

const statements: readonly string[] = [
  `CREATE TABLE "commands" (
    "sequence" INTEGER PRIMARY KEY,
    "id" TEXT NOT NULL UNIQUE,
    "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
    "deviceId" TEXT NOT NULL,
    "created" TEXT NOT NULL,
    "createdById" TEXT NOT NULL,
    "createdByKind" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "payload" TEXT,
    "parallel" INTEGER NOT NULL,
    "timeoutSeconds" INTEGER NOT NULL,
    "expiresAt" TEXT NOT NULL,
    "state" TEXT NOT NULL,
    "attempt" INTEGER NOT NULL,
    "due" INTEGER NOT NULL,
    "sent" TEXT,
    "accepted" TEXT,
    "finished" TEXT,
    "result" TEXT,
    "lateReply" TEXT
  ) STRICT`,
  'CREATE INDEX "commands_device" ON "commands" ("deviceId", "sequence")',
  `CREATE INDEX "commands_open" ON "commands" ("deviceId", "sequence") WHERE ${open}`,
  `CREATE INDEX "commands_due" ON "commands" ("due") WHERE ${open}`,
  `CREATE INDEX "commands_maker" ON "commands" ("createdById") WHERE ${open}`,
  'CREATE INDEX "commands_finished" ON "commands" ("finished") WHERE "finished" IS NOT NULL',
  `CREATE TABLE "commandCounts" (
    "accountId" TEXT NOT NULL,
    "state" TEXT NOT NULL,
    "count" INTEGER NOT NULL,
    PRIMARY KEY ("accountId", "state")
  ) STRICT, WITHOUT ROWID`,
  `CREATE TRIGGER "commands_made" AFTER INSERT ON "commands" BEGIN ${counted('NEW', 1)}; END`,
  `CREATE TRIGGER "commands_moved" AFTER UPDATE OF "state" ON "commands"
   WHEN OLD."state" <> NEW."state" BEGIN ${counted('OLD', -1)}; ${counted('NEW', 1)}; END`,
  `CREATE TRIGGER "commands_gone" AFTER DELETE ON "commands" BEGIN ${counted('OLD', -1)}; END`,
];

/** Commands to devices, and what has become of each. */
export const name = '0019-commands';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
