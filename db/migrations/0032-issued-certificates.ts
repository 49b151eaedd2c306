/** Certificates that the service issues itself: their CA and its key, and what has been revoked. */
import type { Kysely } from 'kysely';
import { countRows, countText } from './entity-bytes.ts';
import { executeAll } from './execute.ts';

export const name = '0032-issued-certificates';

/** Puts a certificate that ends on the list of its CA, once. */
const revoke = (row: 'NEW' | 'OLD', time: string) => `
  INSERT OR IGNORE INTO "revokedCertificates" ("accountId", "certificateAuthorityId", "serialNumber", "revoked", "validTo")
  VALUES (${row}."accountId", ${row}."certificateAuthorityId", ${row}."serialNumber", ${time}, ${row}."validTo");`;

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [
    'ALTER TABLE "certificates" ADD COLUMN "certificateAuthorityId" TEXT',
    'ALTER TABLE "certificates" ADD COLUMN "serialNumber" TEXT',
    'ALTER TABLE "certificates" ADD COLUMN "publicKeyHash" TEXT',
    'ALTER TABLE "certificateAuthorities" ADD COLUMN "issuing" INTEGER NOT NULL DEFAULT 0',
    'ALTER TABLE "certificateAuthorities" ADD COLUMN "certificateRequest" TEXT',
    'ALTER TABLE "certificateAuthorities" ADD COLUMN "sealedKey" TEXT',
    `CREATE INDEX "certificates_authority" ON "certificates" ("certificateAuthorityId")
     WHERE "certificateAuthorityId" IS NOT NULL`,
    `CREATE TABLE "revokedCertificates" (
       "sequence" INTEGER PRIMARY KEY AUTOINCREMENT,
       "accountId" TEXT NOT NULL,
       "certificateAuthorityId" TEXT NOT NULL,
       "serialNumber" TEXT NOT NULL,
       "revoked" TEXT NOT NULL,
       "validTo" TEXT NOT NULL
     ) STRICT`,
    `CREATE UNIQUE INDEX "revokedCertificates_serial"
     ON "revokedCertificates" ("certificateAuthorityId", "serialNumber")`,
    'CREATE INDEX "revokedCertificates_authority" ON "revokedCertificates" ("certificateAuthorityId", "sequence")',
    'CREATE INDEX "revokedCertificates_validTo" ON "revokedCertificates" ("validTo")',
    'CREATE INDEX "revokedCertificates_account" ON "revokedCertificates" ("accountId")',
    `CREATE TRIGGER "certificates_trashed" AFTER UPDATE OF "deleted" ON "certificates"
     WHEN OLD."deleted" IS NULL AND NEW."deleted" IS NOT NULL AND NEW."certificateAuthorityId" IS NOT NULL
     BEGIN ${revoke('NEW', 'NEW."deleted"')} END`,
    `CREATE TRIGGER "certificates_gone" AFTER DELETE ON "certificates"
     WHEN OLD."deleted" IS NULL AND OLD."certificateAuthorityId" IS NOT NULL
     BEGIN ${revoke('OLD', "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')")} END`,
    ...countRows('revokedCertificates', { row: 400 }),
    ...countText('certificates', 'serialNumber', 1),
    ...countText('certificates', 'publicKeyHash', 1),
    ...countText('certificateAuthorities', 'certificateRequest', 1),
    ...countText('certificateAuthorities', 'sealedKey', 1),
  ]);
}
