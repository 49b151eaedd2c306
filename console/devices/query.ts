/** The query of the table of devices. */
import type { paths } from '../api-types.d.ts';
import { api, done } from '../app/api.ts';
import { accountId } from '../app/session.ts';
import type { Sort } from '../parts/lists/table.tsx';

export const sizes = ['50', '100', '250', '1000'] as const;

export interface DeviceFilter {
  serialNumber?: string;
  organizationId?: string;
  deviceTemplateId?: string;
  provisioningState?: string;
  connected?: boolean;
  firmwareVersion?: string;
  offlineSince?: string;
  silent?: boolean;
}

/** The filter that is in the address. */
export function filterOf(search: URLSearchParams): DeviceFilter {
  const [
    serialNumber,
    organizationId,
    deviceTemplateId,
    provisioningState,
    connected,
    firmwareVersion,
    offlineSince,
    silent,
  ] = ['q', 'organization', 'product', 'state', 'connected', 'firmware', 'offlineSince', 'silent'].map(
    (name) => search.get(name) ?? '',
  );
  return {
    ...(serialNumber && { serialNumber }),
    ...(organizationId && { organizationId }),
    ...(deviceTemplateId && { deviceTemplateId }),
    ...(provisioningState && { provisioningState }),
    ...(connected && { connected: connected === 'true' }),
    ...(firmwareVersion && { firmwareVersion }),
    ...(offlineSince && { offlineSince }),
    ...(silent && { silent: silent === 'true' }),
  };
}

/** What the table shows of a device: all of a device is many times longer. */
const shownFields = [
  'serialNumber',
  'connected',
  'provisioningState',
  'deviceTemplate.name',
  'organization.name',
  'firmwareVersion',
  'lastConnected',
  'created',
] as const;
const expand = 'organization,device-template';

type Device = paths['/api/v1/devices/{id}']['get']['responses'][200]['content']['application/json']['device'];
export type Row = Pick<Device, 'id' | Extract<(typeof shownFields)[number], keyof Device>> & {
  deviceTemplate?: { name: string };
  organization?: { name: string } | null;
};

interface Wanted {
  filter: DeviceFilter;
  sort: Sort;
  page: number;
  pageSize: number;
}

/** One page of the table. */
export function readRows(wanted: Wanted, signal: AbortSignal) {
  return readDevices<Row>(wanted, { fields: shownFields.join(','), expand }, signal);
}

/** One page of devices, of which each has its id and these properties. */
export function readColumns<Name extends keyof Device>(wanted: Wanted, names: readonly Name[]) {
  return readDevices<Pick<Device, Name>>(wanted, { fields: names.join(',') });
}

async function readDevices<T>(
  { filter, sort: { by, order }, page, pageSize }: Wanted,
  chosen: { fields: string; expand?: string },
  signal: AbortSignal | null = null,
) {
  const sort = { sortBy: by as 'serialNumber', sortOrder: order };
  const query = { accountId: accountId.value, ...filter, page, pageSize, ...sort, ...chosen };
  const { devices } = await done(api.GET('/api/v1/devices', { params: { query }, signal }));
  return devices as unknown as { results?: T[]; meta?: { count: number } };
}
