import { type Kysely, sql } from 'kysely';

/** Whether the code of an entry was sent as a number. */
export const name = 'messages-0012';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql.raw('ALTER TABLE "logs" ADD COLUMN "codeIsNumber" INTEGER NOT NULL DEFAULT 0').execute(db);
}
