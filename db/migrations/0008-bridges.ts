import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

const statements = `
  CREATE TABLE "bridges" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "accountId" TEXT NOT NULL REFERENCES "accounts" ("id"),
    "created" TEXT NOT NULL,
    "createdById" TEXT NOT NULL,
    "lastModified" TEXT NOT NULL,
    "lastModifiedById" TEXT NOT NULL,
    "version" INTEGER NOT NULL,
    "deleted" TEXT,
    "name" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "sealedUrl" TEXT NOT NULL,
    "sealedSecret" TEXT
  ) STRICT;
  CREATE UNIQUE INDEX "bridges_name" ON "bridges" ("accountId", "name") WHERE "deleted" IS NULL;
`;

/** Where messages are sent on to. */
export const name = '0008-bridges';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements.split(';'));
}
