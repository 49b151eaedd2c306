import type { Kysely } from 'kysely';
import { countRows } from './entity-bytes.ts';
import { executeAll } from './execute.ts';

export const name = '0045-scim';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [
    `CREATE TABLE "scimUsers" ("id" TEXT NOT NULL PRIMARY KEY, "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
       "identityProviderId" TEXT NOT NULL, "userId" TEXT NOT NULL REFERENCES "identities" ("id") ON DELETE CASCADE,
       "userNameKey" TEXT NOT NULL, "externalId" TEXT, "active" INTEGER NOT NULL,
       "resource" TEXT NOT NULL, "stale" INTEGER NOT NULL, "created" TEXT NOT NULL, "lastModified" TEXT NOT NULL) STRICT`,
    'CREATE UNIQUE INDEX "scimUsers_userName" ON "scimUsers" ("identityProviderId", "userNameKey")',
    'CREATE UNIQUE INDEX "scimUsers_userId" ON "scimUsers" ("userId")',
    'CREATE INDEX "scimUsers_id" ON "scimUsers" ("identityProviderId", "id")',
    `CREATE INDEX "scimUsers_externalId" ON "scimUsers" ("identityProviderId", "externalId") WHERE "externalId" IS NOT NULL`,
    'CREATE INDEX "scimUsers_stale" ON "scimUsers" ("identityProviderId") WHERE "stale" = 1',
    'CREATE INDEX "scimUsers_account" ON "scimUsers" ("accountId")',
    ...countRows('scimUsers', { row: 900, texts: { userNameKey: 2, externalId: 2, resource: 1 } }),
    `CREATE TABLE "scimGroups" ("id" TEXT NOT NULL PRIMARY KEY, "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
       "identityProviderId" TEXT NOT NULL, "displayName" TEXT NOT NULL, "displayNameKey" TEXT NOT NULL, "externalId" TEXT,
       "created" TEXT NOT NULL, "lastModified" TEXT NOT NULL) STRICT`,
    'CREATE UNIQUE INDEX "scimGroups_displayName" ON "scimGroups" ("identityProviderId", "displayNameKey")',
    'CREATE INDEX "scimGroups_id" ON "scimGroups" ("identityProviderId", "id")',
    `CREATE INDEX "scimGroups_externalId" ON "scimGroups" ("identityProviderId", "externalId") WHERE "externalId" IS NOT NULL`,
    'CREATE INDEX "scimGroups_account" ON "scimGroups" ("accountId")',
    ...countRows('scimGroups', { row: 600, texts: { displayName: 1, displayNameKey: 2, externalId: 2 } }),
    `CREATE TABLE "scimMembers" ("groupId" TEXT NOT NULL REFERENCES "scimGroups" ("id") ON DELETE CASCADE,
       "memberId" TEXT NOT NULL REFERENCES "scimUsers" ("id") ON DELETE CASCADE,
       "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"), PRIMARY KEY ("groupId", "memberId")) STRICT`,
    'CREATE INDEX "scimMembers_member" ON "scimMembers" ("memberId")',
    'CREATE INDEX "scimMembers_account" ON "scimMembers" ("accountId")',
    ...countRows('scimMembers', { row: 450 }),
  ]);
}
