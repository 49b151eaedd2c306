import type { Kysely } from 'kysely';
import { countRows } from './entity-bytes.ts';
import { executeAll } from './execute.ts';

/** A device has a code of each kind: that of its label, and the one with which its owner gives it away, which expires. */
const statements = [
  `CREATE TABLE "codesOfKinds" (
    "deviceId" TEXT NOT NULL REFERENCES "devices" ("id") ON DELETE CASCADE,
    "kind" TEXT NOT NULL,
    "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
    "codeHash" TEXT NOT NULL,
    "created" TEXT NOT NULL,
    "createdById" TEXT NOT NULL,
    "keepHistory" INTEGER NOT NULL DEFAULT 0,
    "expires" TEXT,
    PRIMARY KEY ("deviceId", "kind")
  ) STRICT`,
  `INSERT INTO "codesOfKinds"
   SELECT "deviceId", 'label', "accountId", "codeHash", "created", "createdById", "keepHistory", NULL FROM "associationCodes"`,
  // Row by row, so that the triggers take off what the new table adds again.
  'DELETE FROM "associationCodes"',
  'DROP TABLE "associationCodes"',
  'ALTER TABLE "codesOfKinds" RENAME TO "associationCodes"',
  'CREATE UNIQUE INDEX "associationCodes_code" ON "associationCodes" ("codeHash")',
  'CREATE INDEX "associationCodes_expires" ON "associationCodes" ("expires") WHERE "expires" IS NOT NULL',
  ...countRows('associationCodes', { row: 300 }),
  'ALTER TABLE "accounts" ADD COLUMN "customersMayRemove" INTEGER NOT NULL DEFAULT 1',
];

export const name = '0053-kinds-of-codes';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
