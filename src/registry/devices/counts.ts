/** Counts of live devices, which triggers keep: there may be a million of them. */
import { sql } from 'kysely';
import type { Db } from '../../../db/registry/index.ts';

/** How many devices there are somewhere, and how many of these are connected. */
export interface DeviceCount {
  devices: number;
  online: number;
}

/** How many devices of the account are in each organization, or have each template; without those that have none. */
export async function deviceCounts(
  db: Db,
  column: 'organizationId' | 'deviceTemplateId',
  accountId: string,
  ids: readonly string[],
): Promise<Map<string, DeviceCount>> {
  if (ids.length === 0) return new Map();
  const parent = sql.ref<string>(column);
  const online = sql<number>`sum(iif("connected" = 1, "count", 0))`;
  const rows = await db
    .selectFrom(column === 'organizationId' ? 'placedDeviceCounts' : 'deviceCounts')
    .select((eb) => [parent.as('parent'), eb.fn.sum<number>('count').as('devices'), online.as('online')])
    .where('accountId', '=', accountId)
    .where(parent, 'in', [...ids])
    .groupBy(parent)
    .execute();
  return new Map(rows.map(({ parent, ...counts }) => [parent, counts]));
}

/** How many devices of the account run the firmware version of each package, of its product. */
export async function packageDeviceCounts(
  db: Db,
  accountId: string,
  ids: readonly string[],
): Promise<Map<string, number>> {
  if (ids.length === 0) return new Map();
  const rows = await db
    .selectFrom('firmwarePackages as p')
    .innerJoin('firmwareVersionCounts as c', (join) =>
      join
        .onRef('c.accountId', '=', 'p.accountId')
        .onRef('c.firmwareVersion', '=', 'p.firmwareVersion')
        .onRef('c.deviceTemplateId', '=', 'p.deviceTemplateId'),
    )
    .select((eb) => ['p.id', eb.fn.sum<number>('c.count').as('count')])
    .where('p.id', 'in', [...ids])
    .where('c.accountId', '=', accountId)
    .groupBy('p.id')
    .execute();
  return new Map(rows.map(({ id, count }) => [id, count]));
}
