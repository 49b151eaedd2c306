/** Many rows, written as the service does but all at once: a test of what the page does with them does not wait for them. */
import { newId } from '../../src/core/ids.ts';
import { storeMore } from '../support/faults.ts';
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

function copy(service: Service, table: string, id: string, count: number, own: (n: number) => object) {
  const copies = Array.from({ length: count }, (_, n) => ({ id: newId(service.accountId), ...own(n + 1) }));
  return storeMore(service, table, id, copies);
}
