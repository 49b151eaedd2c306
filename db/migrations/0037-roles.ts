import type { Kysely } from 'kysely';
import { commonColumns } from './common-columns.ts';
import { countRows, countText } from './entity-bytes.ts';
import { executeAll } from './execute.ts';

export const name = '0037-roles';

/** Who has a role: null is the default one. */
const holders = ['accountUsers', 'applications', 'endUsers'];

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [
    `CREATE TABLE "roles" (${commonColumns}, "name" TEXT NOT NULL, "description" TEXT, "scope" TEXT NOT NULL,
       "rights" TEXT NOT NULL) STRICT`,
    'CREATE UNIQUE INDEX "roles_name" ON "roles" ("accountId", "name") WHERE "deleted" IS NULL',
    ...countRows('roles', { row: 400, texts: { name: 2, description: 1, rights: 1 } }),
    ...holders.flatMap((table) => [
      `ALTER TABLE "${table}" ADD COLUMN "roleId" TEXT`,
      `CREATE INDEX "${table}_roleId" ON "${table}" ("roleId") WHERE "roleId" IS NOT NULL`,
      ...countText(table, 'roleId', 2),
    ]),
  ]);
}
