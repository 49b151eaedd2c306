import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/** Of an audit record: somebody has set a password with a token that was mailed to the address. */
const byToken = `SELECT "targetId" FROM "auditRecords"
  WHERE "event" = 'passwordChanged' AND "outcome" = 'success' AND json_extract("details", '$.with') = 'token'
    AND "targetId" IS NOT NULL`;
const changedAddress = `SELECT "targetId" FROM "auditRecords"
  WHERE "event" = 'emailChanged' AND "outcome" = 'success' AND "targetId" IS NOT NULL`;

/** CAs that were registered before stay as they are: their devices are connected by them. */
const statements = `
  ALTER TABLE "certificateAuthorities" ADD COLUMN "state" TEXT NOT NULL DEFAULT 'pending';
  ALTER TABLE "certificateAuthorities" ADD COLUMN "challenge" TEXT;
  UPDATE "certificateAuthorities" SET "state" = 'active';
  DROP INDEX "certificateAuthorities_fingerprint";
  CREATE UNIQUE INDEX "certificateAuthorities_fingerprint"
    ON "certificateAuthorities" ("fingerprint", "accountId") WHERE "deleted" IS NULL;
  DROP INDEX "certificates_fingerprint";
  CREATE UNIQUE INDEX "certificates_fingerprint" ON "certificates" ("fingerprint", "accountId") WHERE "deleted" IS NULL;

  ALTER TABLE "identities" ADD COLUMN "emailConfirmed" INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE "identities" ADD COLUMN "passwordChosenBy" TEXT;
  UPDATE "identities" SET "emailConfirmed" = 1 WHERE "emailUnproven" = 0
    AND ("id" IN (SELECT "userId" FROM "federatedIdentities") OR "id" IN (${byToken}));
  UPDATE "identities" SET "passwordChosenBy" = CASE
    WHEN "emailUnproven" = 1 OR "id" IN (${changedAddress}) THEN 'other'
    WHEN "id" IN (${byToken}) THEN 'owner'
    WHEN "id" IN (SELECT "userId" FROM "accountUsers" WHERE "deleted" IS NULL) THEN 'operator'
    ELSE 'admin' END
    WHERE "passwordHash" IS NOT NULL;
  ALTER TABLE "identities" DROP COLUMN "emailUnproven";
`;

/** What has been proven: that a CA's key is the account's, that an e-mail address is its identity's. */
export const name = '0016-proofs';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements.split(';'));
}
