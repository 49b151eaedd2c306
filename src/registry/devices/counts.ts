/** Counts of live devices, which triggers keep: there may be a million of them. */
import { sql } from 'kysely';
import type { Db } from '../../../db/registry/index.ts';

/** How many devices of the account are in each organization, or have each template; without those that have none. */
export async function deviceCounts(
  db: Db,
  column: 'organizationId' | 'deviceTemplateId',
  accountId: string,
  ids: readonly string[],
): Promise<Map<string, number>> {
  if (ids.length === 0) return new Map();
  const parent = sql.ref<string>(column);
  const rows = await db
    .selectFrom(column === 'organizationId' ? 'placedDeviceCounts' : 'deviceCounts')
    .select((eb) => [parent.as('parent'), eb.fn.sum<number>('count').as('count')])
    .where('accountId', '=', accountId)
    .where(parent, 'in', [...ids])
    .groupBy(parent)
    .execute();
  return new Map(rows.map((row) => [row.parent, Number(row.count)]));
}
