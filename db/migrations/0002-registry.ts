import type { Kysely } from 'kysely';
import { commonColumns } from './common-columns.ts';
import { executeAll } from './execute.ts';

const statements = `
  CREATE TABLE "customFields" (${commonColumns},
    "kind" TEXT NOT NULL,
    "templateId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "fieldType" TEXT NOT NULL,
    "description" TEXT,
    "required" INTEGER NOT NULL,
    "default" TEXT
  ) STRICT;
  CREATE UNIQUE INDEX "customFields_name" ON "customFields" ("templateId", "name") WHERE "deleted" IS NULL;
  CREATE INDEX "customFields_account" ON "customFields" ("accountId", "kind", "name") WHERE "deleted" IS NULL;
  CREATE INDEX "customFields_trash" ON "customFields" ("accountId", "kind", "deleted") WHERE "deleted" IS NOT NULL;

  ALTER TABLE "identities" ADD COLUMN "organizationsMade" INTEGER NOT NULL DEFAULT 0;

  CREATE TABLE "associationCodes" (
    "deviceId" TEXT NOT NULL PRIMARY KEY REFERENCES "devices" ("id") ON DELETE CASCADE,
    "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
    "codeHash" TEXT NOT NULL,
    "created" TEXT NOT NULL,
    "createdById" TEXT NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX "associationCodes_code" ON "associationCodes" ("codeHash");

  CREATE TABLE "idempotentAnswers" (
    "keyHash" TEXT NOT NULL PRIMARY KEY,
    "requestHash" TEXT NOT NULL,
    "created" TEXT NOT NULL,
    "entityId" TEXT,
    "secretOf" TEXT,
    "status" INTEGER,
    "answer" TEXT
  ) STRICT;
  CREATE INDEX "idempotentAnswers_created" ON "idempotentAnswers" ("created");
  CREATE INDEX "idempotentAnswers_secret" ON "idempotentAnswers" ("secretOf") WHERE "secretOf" IS NOT NULL;
`;

/**
 * Custom fields (`templateId` is the account's id for fields of device templates themselves), association
 * codes, and the answers kept for Idempotency-Key.
 */
export const name = '0002-registry';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements.split(';'));
}
