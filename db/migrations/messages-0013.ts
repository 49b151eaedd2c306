import { type Kysely, sql } from 'kysely';

/** Whose message it is: room is made, and new messages are refused, by account. Rows from before count as one account. */
export const name = 'messages-0013';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql.raw(`ALTER TABLE "outbox" ADD COLUMN "accountId" TEXT NOT NULL DEFAULT ''`).execute(db);
}
