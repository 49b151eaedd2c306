/** Revocation lists of registered CAs. */
import type { Kysely } from 'kysely';
import { countRows, countText } from './entity-bytes.ts';
import { executeAll } from './execute.ts';

export const name = '0041-revocation-lists';

const forget = 'DELETE FROM "revocationListParts" WHERE "certificateAuthorityId" = OLD."id";';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [
    ...[
      ['crlUrl', 'TEXT'],
      ['crlPolicy', "TEXT NOT NULL DEFAULT 'warn'"],
      ['crlNumber', 'TEXT'],
      ['crlNextUpdate', 'TEXT'],
      ['crlCount', 'INTEGER'],
      ['crlTaken', 'TEXT'],
      ['crlChecked', 'TEXT'],
      ['crlError', 'TEXT'],
    ].map(([column, type]) => `ALTER TABLE "certificateAuthorities" ADD COLUMN "${column}" ${type}`),
    // Digests of serial numbers, sorted, in parts: a look-up reads one of them.
    `CREATE TABLE "revocationListParts" (
       "certificateAuthorityId" TEXT NOT NULL,
       "first" TEXT NOT NULL,
       "accountId" TEXT NOT NULL,
       "digests" BLOB NOT NULL,
       PRIMARY KEY ("certificateAuthorityId", "first")
     ) STRICT`,
    'CREATE INDEX "revocationListParts_account" ON "revocationListParts" ("accountId")',
    `CREATE INDEX "certificateAuthorities_crlUrl" ON "certificateAuthorities" ("crlChecked")
     WHERE "crlUrl" IS NOT NULL AND "deleted" IS NULL`,
    `CREATE INDEX "certificateAuthorities_crlNextUpdate" ON "certificateAuthorities" ("crlNextUpdate")
     WHERE "crlPolicy" = 'refuse' AND "deleted" IS NULL`,
    // A CA in the trash does not come back.
    `CREATE TRIGGER "certificateAuthorities_list_trashed" AFTER UPDATE OF "deleted" ON "certificateAuthorities"
     WHEN NEW."deleted" IS NOT NULL BEGIN ${forget} END`,
    `CREATE TRIGGER "certificateAuthorities_list_gone" AFTER DELETE ON "certificateAuthorities" BEGIN ${forget} END`,
    ...countRows('revocationListParts', { row: 250, texts: { digests: 1 } }),
    ...['crlUrl', 'crlError'].flatMap((column) => countText('certificateAuthorities', column, 1)),
  ]);
}
