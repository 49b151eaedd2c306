import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

const statements = `
  ALTER TABLE "refusals" ADD COLUMN "principalType" TEXT;
  ALTER TABLE "refusals" ADD COLUMN "principalId" TEXT;
  UPDATE "refusals" SET "principalType" = 'device', "principalId" = "deviceId" WHERE "byDevice" = 1;
  ALTER TABLE "refusals" DROP COLUMN "byDevice";
`;

/** Who was refused: the device itself, or the user or application that spoke to it. */
export const name = '0011-refused-principals';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements.split(';'));
}
