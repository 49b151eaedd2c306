/** Devices that go back to what they ran before a rollout. */
import { type RawBuilder, sql } from 'kysely';
import type { Tx } from '../../../db/registry/index.ts';

/**
 * The devices that run what a rollout has brought them, after an id, each with the package of the version that it ran before: null
 * where there is no such package that can be rolled out. As a query in parentheses.
 */
export function returning(rolloutId: string, after = ''): RawBuilder<unknown> {
  return sql`(
    select d."deviceId", d."formerVersion", (
      select f."id" from "firmwarePackages" as f
      where f."deviceTemplateId" = p."deviceTemplateId" and f."firmwareVersion" = d."formerVersion"
        and f."state" = 'published' and f."deleted" is null
      order by f."id" desc limit 1) as "firmwarePackageId"
    from "firmwareDeliveries" as d
    join "firmwareRollouts" as r on r."id" = d."rolloutId"
    join "firmwarePackages" as p on p."id" = coalesce(d."firmwarePackageId", r."firmwarePackageId")
    join "devices" as v on v."id" = d."deviceId"
    where d."rolloutId" = ${rolloutId} and d."deviceId" > ${after} and d."state" = 'succeeded'
      and v."deleted" is null and v."deviceTemplateId" = p."deviceTemplateId"
      and v."firmwareVersion" = p."firmwareVersion" and d."formerVersion" is not p."firmwareVersion")`;
}

/** The packages to which these devices go back from a rollout, by device; without those that have none. */
export async function formerPackages(tx: Tx, rolloutId: string, ids: readonly string[]): Promise<Map<string, string>> {
  const { rows } = await sql<{ deviceId: string; firmwarePackageId: string }>`
    select "deviceId", "firmwarePackageId" from ${returning(rolloutId)}
    where "deviceId" in (select value from json_each(${JSON.stringify(ids)})) and "firmwarePackageId" is not null`.execute(
    tx,
  );
  return new Map(rows.map(({ deviceId, firmwarePackageId }) => [deviceId, firmwarePackageId]));
}
