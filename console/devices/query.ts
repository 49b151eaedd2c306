/** The query of the table of devices. */
import { api, done } from '../app/api.js';
import { accountId } from '../app/session.js';
import type { Sort } from '../parts/table.js';

export const sizes = ['50', '100', '250', '1000'] as const;

export interface DeviceFilter {
  serialNumber?: string;
  organizationId?: string;
  deviceTemplateId?: string;
  provisioningState?: string;
  connected?: boolean;
}

/** The filter that is in the address. */
export function filterOf(search: URLSearchParams): DeviceFilter {
  const [serialNumber, organizationId, deviceTemplateId, provisioningState, connected] = [
    'q',
    'organization',
    'product',
    'state',
    'connected',
  ].map((name) => search.get(name) ?? '');
  return {
    ...(serialNumber && { serialNumber }),
    ...(organizationId && { organizationId }),
    ...(deviceTemplateId && { deviceTemplateId }),
    ...(provisioningState && { provisioningState }),
    ...(connected && { connected: connected === 'true' }),
  };
}

export async function readDevices(
  filter: DeviceFilter,
  sort: Sort,
  page: number,
  pageSize: number,
  signal?: AbortSignal,
) {
  const query = {
    accountId: accountId.value,
    ...filter,
    page,
    pageSize,
    sortBy: sort.by as 'serialNumber',
    sortOrder: sort.order,
  };
  return (await done(api.GET('/api/v1/devices', { params: { query }, signal }))).devices;
}

export type Row = NonNullable<Awaited<ReturnType<typeof readDevices>>['results']>[number];
