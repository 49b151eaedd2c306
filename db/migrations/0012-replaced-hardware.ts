import { type Kysely, sql } from 'kysely';

/** When the hardware of a device was replaced last. */
export const name = '0012-replaced-hardware';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql.raw('ALTER TABLE "devices" ADD COLUMN "replaced" TEXT').execute(db);
}
