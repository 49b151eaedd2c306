/** The query of the table of devices. */
import type { paths } from '../api-types.d.ts';
import { ApiError, api, unwrap } from '../app/api.ts';
import { type Entity, readList } from '../app/entities.ts';
import { accountId } from '../app/session.ts';
import type { Sort } from '../parts/lists/table.tsx';

export const sizes = ['50', '100', '250', '1000'] as const;

export interface DeviceFilter {
  serialNumber?: string;
  organizationId?: string;
  /** Always with those below: as a rollout to an organization means it. */
  below?: true;
  deviceTemplateId?: string;
  provisioningState?: string;
  connected?: boolean;
  firmwareVersion?: string;
  offlineSince?: string;
  silent?: boolean;
}

/** What the address calls the properties of the filter. */
const inAddress = {
  ...{ q: 'serialNumber', organization: 'organizationId', product: 'deviceTemplateId', state: 'provisioningState' },
  ...{ connected: 'connected', firmware: 'firmwareVersion', offlineSince: 'offlineSince', silent: 'silent' },
};

/** The filter that is in the address. */
export function filterOf(search: URLSearchParams): DeviceFilter {
  const set = Object.entries(inAddress).flatMap(([name, property]) => {
    const text = search.get(name);
    return text ? [[property, ['connected', 'silent'].includes(name) ? text === 'true' : text]] : [];
  });
  return { ...Object.fromEntries(set), ...(search.get('organization') && { below: true }) };
}

/** What the table shows of a device: all of a device is many times longer. */
const shownFields = [
  'serialNumber',
  'name',
  'connected',
  'provisioningState',
  'deviceTemplate.name',
  'organization.name',
  'firmwareVersion',
  'lastConnected',
  'created',
] as const;
const expand = 'organization,device-template';
/** What columns of values need besides. */
const fieldsOfValues = ['values', 'deviceTemplateId', 'deviceTemplate.primary'];

type Device = paths['/api/v1/devices/{id}']['get']['responses'][200]['content']['application/json']['device'];
export type Row = Pick<Device, 'id' | Extract<(typeof shownFields)[number], keyof Device>> & {
  deviceTemplateId?: string;
  deviceTemplate?: Pick<Entity<'deviceTemplate'>, 'name'> & Partial<Pick<Entity<'deviceTemplate'>, 'primary'>>;
  values?: Device['values'];
  organization?: { name: string } | null;
} & Record<string, unknown>;

interface WantedRows {
  filter: DeviceFilter;
  sort: Sort;
  page: number;
  pageSize: number;
}

/** One page of the table, with the values of these names, and these custom fields as far as there are such. */
export async function readRows(
  wanted: WantedRows,
  custom: readonly string[],
  values: readonly string[],
  signal: AbortSignal,
) {
  const more = values.length > 0 ? { values: values.join(',') } : {};
  const fields = [...shownFields, ...(values.length > 0 ? fieldsOfValues : [])];
  const read = (names: readonly string[]) =>
    readDevices<Row>(wanted, { fields: [...fields, ...names].join(','), expand, ...more }, signal);
  return read(custom).catch((error) => {
    // Somebody has removed a field whose column this person has chosen.
    if (custom.length > 0 && error instanceof ApiError && error.details.some(({ path }) => path === 'fields'))
      return read([]);
    throw error;
  });
}

/** Products whose custom fields are offered as columns. */
const maxProducts = 20;

/** The names of the custom fields of a product, or of the first products. */
export async function readCustomNames(product: string | undefined): Promise<string[]> {
  const products = async () => {
    const { results = [] } = await readList('deviceTemplate', 1, { pageSize: maxProducts, fields: 'name' });
    return results.map(({ id }) => id);
  };
  const fieldsOf = async (deviceTemplateId: string) =>
    (await readList('customField', 1, { deviceTemplateId, pageSize: 100 })).results ?? [];
  const found = await Promise.all((product ? [product] : await products()).map(fieldsOf));
  return [...new Set(found.flat().map(({ name }) => name))].sort();
}

/** One page of devices, of which each has its id and these properties. */
export function readColumns<Name extends keyof Device>(wanted: WantedRows, names: readonly Name[]) {
  return readDevices<Pick<Device, Name>>(wanted, { fields: names.join(',') });
}

async function readDevices<T>(
  { filter, sort: { by, order }, page, pageSize }: WantedRows,
  chosen: { fields: string; expand?: string; values?: string },
  signal: AbortSignal | null = null,
) {
  const sort = { sortBy: by as 'serialNumber', sortOrder: order };
  const query = { accountId: accountId.value, ...filter, page, pageSize, ...sort, ...chosen };
  const { devices } = await unwrap(api.GET('/api/v1/devices', { params: { query }, signal }));
  return devices as unknown as { results?: T[]; meta?: { count: number } };
}
