/** Many rows, written as the service does but all at once: a test of what the page does with them does not wait for them. */
import type { EntityTable } from '../../db/registry/records.ts';
import { newId } from '../../src/ids.ts';
import type { Service } from '../support/service.ts';

/** Devices with the serial numbers `${prefix}0`, `${prefix}1`, … */
export async function makeDevices(service: Service, count: number, prefix: string): Promise<void> {
  const { device } = await service.device({ serialNumber: `${prefix}0` });
  await copy(service, 'devices', device.id, count - 1, (n) => ({ serialNumber: `${prefix}${n}` }));
}

/** Organizations below one, with the names `${prefix}0`, `${prefix}1`, … */
export async function makeOrganizations(service: Service, count: number, prefix: string, parentId: string) {
  const { id } = await service.organization({ name: `${prefix}0`, parentId });
  await copy(service, 'organizations', id, count - 1, (n) => ({ name: `${prefix}${n}` }));
}

async function copy(service: Service, table: EntityTable, id: string, count: number, own: (n: number) => object) {
  const { registry } = service.server.ctx;
  const found = await registry.query.selectFrom(table).selectAll().where('id', '=', id).executeTakeFirstOrThrow();
  // The database numbers rows.
  const { row: _, ...like } = found as typeof found & { row?: number };
  await registry.transaction(async (tx) => {
    for (let n = 1; n <= count; n += 1)
      await tx
        .insertInto(table)
        .values({ ...like, id: newId(service.accountId), ...own(n) } as never)
        .execute();
  });
}
