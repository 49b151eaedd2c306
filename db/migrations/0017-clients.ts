import type { Kysely } from 'kysely';
import { commonColumns } from './common-columns.ts';
import { executeAll } from './execute.ts';

/**
 * An end-user may have no person: `userId` can be null, which in SQLite needs a new table. An address may be an object.
 * A channel template may fix the form of payloads.
 */
export const name = '0017-clients';

const statements = `
  CREATE TABLE "endUsersNew" (${commonColumns},
    "endUserTemplateId" TEXT NOT NULL REFERENCES "endUserTemplates" ("id"),
    "organizationId" TEXT NOT NULL REFERENCES "organizations" ("id"),
    "userId" TEXT REFERENCES "identities" ("id"),
    "fields" TEXT NOT NULL
  ) STRICT;
  INSERT INTO "endUsersNew"
    SELECT "id", "accountId", "created", "createdById", "lastModified", "lastModifiedById", "version", "deleted",
           "endUserTemplateId", "organizationId", "userId", "fields" FROM "endUsers";
  DROP TABLE "endUsers";
  ALTER TABLE "endUsersNew" RENAME TO "endUsers";
  CREATE INDEX "endUsers_created" ON "endUsers" ("accountId", "created", "id") WHERE "deleted" IS NULL;
  CREATE INDEX "endUsers_user" ON "endUsers" ("userId", "deleted");
  CREATE INDEX "endUsers_organization" ON "endUsers" ("organizationId", "deleted");
  CREATE INDEX "endUsers_template" ON "endUsers" ("endUserTemplateId", "deleted");

  ALTER TABLE "identities" ADD COLUMN "addressObject" TEXT;
  ALTER TABLE "channelTemplates" ADD COLUMN "payload" TEXT NOT NULL DEFAULT 'auto';
`;

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements.split(';'));
}
