/** CAs are found by the hash of their subject as it is compared (RFC 5280, 7.1): letter case and spacing make no difference. */
import { type Kysely, sql } from 'kysely';
import { nameHash } from '../registry/distinguished-names.ts';
import { executeAll } from './execute.ts';

export const name = '0052-names-of-authorities';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [`ALTER TABLE "certificateAuthorities" ADD COLUMN "subjectHash" TEXT NOT NULL DEFAULT ''`]);
  // An account has 20 at most, and those in its trash.
  const { rows } = await sql<{ subject: string }>`SELECT DISTINCT "subject" FROM "certificateAuthorities"`.execute(db);
  for (const { subject } of rows)
    await sql`UPDATE "certificateAuthorities" SET "subjectHash" = ${nameHash(subject)} WHERE "subject" = ${subject}`.execute(
      db,
    );
  await executeAll(db, [
    'DROP INDEX "certificateAuthorities_subject"',
    'CREATE INDEX "certificateAuthorities_subjectHash" ON "certificateAuthorities" ("subjectHash") WHERE "deleted" IS NULL',
  ]);
}
