import { type Kysely, sql } from 'kysely';

/** How many days messages are kept: of a channel, of an account. Null is what stands above; 0 is forever. */
export const name = '0009-retention';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`ALTER TABLE "channelTemplates" ADD COLUMN "retentionDays" INTEGER`.execute(db);
  await sql`ALTER TABLE "accounts" ADD COLUMN "retentionDays" INTEGER`.execute(db);
}
