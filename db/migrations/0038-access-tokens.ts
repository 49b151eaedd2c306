import type { Kysely } from 'kysely';
import { countRows } from './entity-bytes.ts';
import { executeAll } from './execute.ts';

export const name = '0038-access-tokens';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [
    `CREATE TABLE "accessTokens" ("id" TEXT NOT NULL PRIMARY KEY, "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
       "ownerId" TEXT NOT NULL, "name" TEXT NOT NULL, "tokenHash" TEXT NOT NULL, "created" TEXT NOT NULL,
       "expires" TEXT NOT NULL, "rights" TEXT, "organizationId" TEXT, "lastUsed" TEXT, "lastAddress" TEXT) STRICT`,
    'CREATE UNIQUE INDEX "accessTokens_hash" ON "accessTokens" ("tokenHash")',
    'CREATE INDEX "accessTokens_owner" ON "accessTokens" ("ownerId", "created")',
    'CREATE INDEX "accessTokens_account" ON "accessTokens" ("accountId", "created")',
    'CREATE INDEX "accessTokens_expires" ON "accessTokens" ("expires")',
    ...countRows('accessTokens', { row: 800, texts: { name: 1, rights: 1 } }),
    // The token that a job was made with: it works with its rights.
    'ALTER TABLE "jobs" ADD COLUMN "tokenId" TEXT',
  ]);
}
