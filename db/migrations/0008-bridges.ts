import type { Kysely } from 'kysely';
import { commonColumns } from './common-columns.ts';
import { executeAll } from './execute.ts';

const statements = `
  CREATE TABLE "bridges" (${commonColumns},
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
