import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

const statements = [
  'CREATE INDEX "logs_account" ON "logs" ("accountId", "time", "severity", "deviceId")',
  // Terms and no positions: what is found is looked at again (db/messages/logs/terms.ts).
  `CREATE VIRTUAL TABLE "logsText"
   USING fts5("terms", tokenize = 'ascii', content = '', contentless_delete = 1, detail = none)`,
  // Whoever removes entries, for whatever reason, removes them from the index.
  `CREATE TRIGGER "logs_removed" AFTER DELETE ON "logs"
   BEGIN DELETE FROM "logsText" WHERE rowid = old."sequence"; END`,
  `INSERT INTO "counters" VALUES ('logsIndexed', 0)`,
];

/**
 * The log of an account in order, and an index of texts. Entries that are there already are indexed by the writer when it
 * has nothing else to do: up to `logsIndexed` they are.
 */
export const name = 'messages-0003';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
