import type { Kysely } from 'kysely';
import { countText } from './entity-bytes.ts';
import { executeAll } from './execute.ts';

export const name = '0044-groups';

/** What mappings of an identity provider make. */
const mapped = ['accountUsers', 'endUsers', 'identities'];

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, [
    'ALTER TABLE "identityProviders" ADD COLUMN "groupsClaim" TEXT',
    `ALTER TABLE "identityProviders" ADD COLUMN "mappings" TEXT NOT NULL DEFAULT '[]'`,
    ...countText('identityProviders', 'groupsClaim', 1),
    ...countText('identityProviders', 'mappings', 1),
    ...mapped.flatMap((table) => [
      `ALTER TABLE "${table}" ADD COLUMN "identityProviderId" TEXT`,
      `CREATE INDEX "${table}_identityProviderId" ON "${table}" ("identityProviderId") WHERE "identityProviderId" IS NOT NULL`,
      ...countText(table, 'identityProviderId', 2),
    ]),
    'ALTER TABLE "identities" ADD COLUMN "disabledById" TEXT',
    ...countText('identities', 'disabledById', 1),
  ]);
}
