/** How many devices there are: sums of the counts that triggers keep. */
import { sql } from 'kysely';
import { provisioningStates } from '../../../db/registry/records/devices.ts';
import { isAccountWide } from '../../core/caller.ts';
import { inReach } from '../../entity/list-filters.ts';
import type { OverviewRequest } from './reading.ts';
import { maxNamed, type Overview } from './shape.ts';

type Counts = Pick<Overview, 'online' | 'devices' | 'byState' | 'byProduct'>;

interface Counted {
  deviceTemplateId: string;
  name: string | null;
  provisioningState: string;
  count: number;
  online: number;
}

/** Devices in the reach of the caller. */
export async function deviceCountsOf({ caller, read, registry }: OverviewRequest): Promise<Counts> {
  const isAll = isAccountWide(caller);
  const reach = isAll ? sql`true` : inReach(registry.query, caller, 'organizationId');
  const rows = await read<Counted>(sql`
      select c."deviceTemplateId", (select "name" from "deviceTemplates" where "id" = c."deviceTemplateId") as "name",
        c."provisioningState", sum(c."count") as "count", sum(iif(c."connected" = 1, c."count", 0)) as "online"
      from ${sql.table(isAll ? 'deviceCounts' : 'placedDeviceCounts')} as c
      where c."accountId" = ${caller.accountId} and ${reach}
      group by c."deviceTemplateId", c."provisioningState"`);
  const states = provisioningStates.map((value) => ({
    value,
    ...sum(rows.filter((row) => row.provisioningState === value)),
  }));
  const products = new Map<string, Counted[]>();
  for (const row of rows) products.set(row.deviceTemplateId, [...(products.get(row.deviceTemplateId) ?? []), row]);
  const byProduct = [...products].map(([value, own]) => ({ value, name: own[0]?.name ?? '', ...sum(own) }));
  const { count: devices, online } = sum(rows);
  return { online, devices, byState: states, byProduct: byProduct.sort(byCount).slice(0, maxNamed) };
}

/** Devices in the reach of the caller by their firmware version; those that have none are what is missing from `counts`. */
export async function firmwareCountsOf(
  { caller, read, registry }: OverviewRequest,
  counts: Promise<Counts>,
): Promise<Overview['byFirmware']> {
  const versions = isAccountWide(caller)
    ? sql`select "firmwareVersion", "count" from "firmwareVersionCounts" where "accountId" = ${caller.accountId}`
    : sql`select "firmwareVersion", 1 as "count" from "devices" where "accountId" = ${caller.accountId}
        and "deleted" is null and "firmwareVersion" is not null and ${inReach(registry.query, caller, 'organizationId')}`;
  const rows = await read<{ value: string; count: number; all: number }>(sql`
      select "firmwareVersion" as "value", sum("count") as "count", sum(sum("count")) over () as "all" from (${versions})
      group by "firmwareVersion" order by "count" desc, "value" limit ${maxNamed}`);
  const without = (await counts).devices - (rows[0]?.all ?? 0);
  const found: NonNullable<Overview['byFirmware']> = rows.map(({ value, count }) => ({ value, count }));
  if (without > 0) found.push({ value: null, count: without });
  return found.sort(byCount).slice(0, maxNamed);
}

function sum(rows: readonly Pick<Counted, 'count' | 'online'>[]): { count: number; online: number } {
  return {
    count: rows.reduce((all, { count }) => all + count, 0),
    online: rows.reduce((all, { online }) => all + online, 0),
  };
}

function byCount(a: { count: number }, b: { count: number }): number {
  return b.count - a.count;
}
