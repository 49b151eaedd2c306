import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/** About the bytes that a command takes: 500 for its row and its places in indexes, and its texts. */
const size = (row: string) =>
  `500 + ${['name', 'payload', 'result', 'lateReply'].map((column) => `coalesce(octet_length(${row}."${column}"), 0)`).join(' + ')}`;
const add = (row: 'NEW' | 'OLD', amount: string) =>
  `INSERT INTO "kept" VALUES (${row}."accountId", 'commandBytes', ${amount})
   ON CONFLICT DO UPDATE SET "amount" = "amount" + excluded."amount";`;

const statements = [
  `INSERT INTO "kept" SELECT "accountId", 'commandBytes', sum(${size('"commands"')}) FROM "commands" GROUP BY "accountId"`,
  `CREATE TRIGGER "commands_bytes_kept" AFTER INSERT ON "commands" BEGIN ${add('NEW', size('NEW'))} END`,
  `CREATE TRIGGER "commands_bytes_gone" AFTER DELETE ON "commands" BEGIN ${add('OLD', `-(${size('OLD')})`)} END`,
  `CREATE TRIGGER "commands_bytes_changed" AFTER UPDATE OF "result", "lateReply" ON "commands"
   BEGIN ${add('NEW', `${size('NEW')} - (${size('OLD')})`)} END`,
  // The oldest of an account that has ended.
  'CREATE INDEX "commands_ended" ON "commands" ("accountId", "finished") WHERE "finished" IS NOT NULL',
];

/** How many bytes the commands of an account take; kept by triggers. */
export const name = '0026-command-bytes';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
