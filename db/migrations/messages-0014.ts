import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

const size = (row: string) => `octet_length(${row}"topic") + octet_length(${row}"payload")`;
const add = (row: 'NEW' | 'OLD', count: string, bytes: string) =>
  `INSERT INTO "mqttRetainedUse" VALUES (${row}."accountId", ${count}, ${bytes})
   ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count", "bytes" = "bytes" + excluded."bytes";`;

const statements = [
  `ALTER TABLE "mqttRetained" ADD COLUMN "accountId" TEXT NOT NULL DEFAULT ''`,
  // Topics are <root>/<account>/d/<device>/<channel>, and an account has 36 characters.
  `UPDATE "mqttRetained" SET "accountId" = substr("topic", instr("topic", '/d/') - 36, 36) WHERE instr("topic", '/d/') > 36`,
  `CREATE TABLE "mqttRetainedUse" (
     "accountId" TEXT NOT NULL PRIMARY KEY,
     "count" INTEGER NOT NULL,
     "bytes" INTEGER NOT NULL
   ) WITHOUT ROWID, STRICT`,
  `INSERT INTO "mqttRetainedUse" SELECT "accountId", count(*), sum(${size('')}) FROM "mqttRetained" GROUP BY "accountId"`,
  `CREATE TRIGGER "mqttRetained_added" AFTER INSERT ON "mqttRetained"
   BEGIN ${add('NEW', '1', size('NEW.'))} END`,
  `CREATE TRIGGER "mqttRetained_removed" AFTER DELETE ON "mqttRetained"
   BEGIN ${add('OLD', '-1', `-(${size('OLD.')})`)} END`,
  `CREATE TRIGGER "mqttRetained_changed" AFTER UPDATE OF "payload" ON "mqttRetained"
   BEGIN ${add('NEW', '0', `${size('NEW.')} - (${size('OLD.')})`)} END`,
];

/** Whose a retained message is, and how many and how many bytes an account has; kept by triggers. */
export const name = 'messages-0014';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
