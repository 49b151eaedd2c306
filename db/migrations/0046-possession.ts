import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/**
 * The possessions of a device are counted; points name theirs, and null is from its beginning. Of a device in no organization,
 * `left…` is the top-level organization in which it was last, and what that saw.
 */
const statements = [
  'ALTER TABLE "devices" ADD COLUMN "possession" INTEGER NOT NULL DEFAULT 0',
  'ALTER TABLE "devices" ADD COLUMN "possessionFirst" INTEGER NOT NULL DEFAULT 0',
  'ALTER TABLE "devices" ADD COLUMN "possessionSince" TEXT',
  'ALTER TABLE "devices" ADD COLUMN "leftTree" TEXT',
  'ALTER TABLE "devices" ADD COLUMN "leftFirst" INTEGER',
  'ALTER TABLE "devices" ADD COLUMN "leftSince" TEXT',
  'ALTER TABLE "associationCodes" ADD COLUMN "keepHistory" INTEGER NOT NULL DEFAULT 0',
];

export const name = '0046-possession';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
