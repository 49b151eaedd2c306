/** What a deleted identity provider leaves behind: it counts no more, and goes in small steps. */
import { type RawBuilder, sql } from 'kysely';
import type { Registry, Tx } from '../../../db/registry/index.ts';

/** Rows of one step, so that everybody else has a turn in between. */
const stepSize = 50;

/** Who was in a group goes before groups and people, whose removal would take all of it along. */
const steps: ReadonlyArray<(providerId: string) => RawBuilder<unknown>> = [
  (id) => sql`delete from "scimMembers" where rowid in (select m.rowid from "scimGroups" as g
    join "scimMembers" as m on m."groupId" = g."id" where g."identityProviderId" = ${id} limit ${stepSize})`,
  ...['scimGroups', 'scimUsers'].map(
    (table) => (id: string) => sql`delete from ${sql.table(table)} where rowid in (${rowsOf(table, id)})`,
  ),
  // Nobody manages them any more: they stay, as if an admin had made them.
  ...['accountUsers', 'endUsers'].map(
    (table) => (id: string) =>
      sql`update ${sql.table(table)} set "identityProviderId" = null where rowid in (${rowsOf(table, id)})`,
  ),
];

function rowsOf(table: string, id: string): RawBuilder<unknown> {
  return sql`select rowid from ${sql.table(table)} where "identityProviderId" = ${id} limit ${stepSize}`;
}

/** Removes the people and groups of a provider in the trash, and the marks of those whom it has managed. */
export async function forgetPeople({ registry }: { registry: Registry }, providerId: string): Promise<void> {
  for (const step of steps) while (await registry.transaction((tx) => removesSome(tx, step(providerId))));
}

async function removesSome(tx: Tx, step: RawBuilder<unknown>): Promise<boolean> {
  return ((await step.execute(tx)).numAffectedRows ?? 0n) > 0n;
}

/** As forgetPeople, for a provider whose deletion has been interrupted. @returns whether there was one. */
export async function forgetInterrupted(ctx: { registry: Registry }): Promise<boolean> {
  const left = ['scimGroups', 'scimUsers', 'accountUsers', 'endUsers'].map(
    (table) => sql`exists (select 1 from ${sql.table(table)} as o where o."identityProviderId" = p."id")`,
  );
  const { rows } = await sql<{ id: string }>`select "id" from "identityProviders" as p
    where "deleted" is not null and (${sql.join(left, sql` or `)}) limit 1`.execute(ctx.registry.query);
  const [provider] = rows;
  if (provider) await forgetPeople(ctx, provider.id);
  return provider !== undefined;
}
