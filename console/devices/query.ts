/** The query of the table of devices. */
import type { paths } from '../api-types.d.ts';
import { ApiError, api, unwrap } from '../app/api.ts';
import { type Entity, readList } from '../app/entities.ts';
import { accountId } from '../app/session.ts';
import type { Sort } from '../parts/lists/table.tsx';
import { type Attribute, ofField } from './filter/attributes.ts';
import { demanded, joined, partsOf, termText } from './filter/text.ts';

export const sizes = ['50', '100', '250', '1000'] as const;

/** Which devices: those that a search finds, and that match the text of a filter, or are in a fleet. */
export interface DeviceFilter {
  q?: string;
  text?: string;
  fleetId?: string;
}

/** What jobs and rollouts take of it; undefined where they have no words for it: a text has no stars. */
export function selectionOf({ q = '', text = '' }: DeviceFilter): string | { serialNumber: string } | undefined {
  if (text === '') return { serialNumber: q };
  return q.includes('*') ? undefined : textOf({ q, text });
}

/** What is done to many. */
export const actions = ['move', 'command', 'regenerate', 'delete'] as const;
export type Action = (typeof actions)[number];

/** The devices of a job: by their ids, or what they match. */
export type Chosen = { ids: string[] } | { filter: string | { serialNumber: string } };
export const hasBelow = (what: Chosen) =>
  'filter' in what && typeof what.filter === 'string' && demanded(what.filter, 'within') !== undefined;

/** One text for all of it. A search by a pattern has none. */
export function textOf({ q = '', text = '' }: DeviceFilter): string {
  const search = q === '' ? [] : [{ text: termText({ names: ['serialNumber'], operator: 'co', value: q }) }];
  return joined([...(partsOf(text) ?? [{ text }]), ...search]);
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

/** The custom fields of a product, or of the first products: one of each name. */
export async function readCustomFields(product: string | undefined): Promise<Attribute[]> {
  const products = async () => {
    const { results = [] } = await readList('deviceTemplate', 1, { pageSize: maxProducts, fields: 'name' });
    return results.map(({ id }) => id);
  };
  const fieldsOf = async (deviceTemplateId: string) =>
    (await readList('customField', 1, { deviceTemplateId, pageSize: 100 })).results ?? [];
  const found = (await Promise.all((product ? [product] : await products()).map(fieldsOf))).flat();
  const byName = new Map(found.map(({ name, fieldType }) => [name, ofField(name, fieldType)]));
  return [...byName.values()].sort((a, b) => (a.label < b.label ? -1 : 1));
}

/** Devices whose values are offered: no field has to be searched for them. */
const maxSampled = 200;

/** What the first devices that match have under a name. */
export async function readValues(filter: DeviceFilter, name: string, signal: AbortSignal): Promise<string[]> {
  const wanted = { filter, sort: { by: 'serialNumber', order: 'asc' }, page: 1, pageSize: maxSampled } as const;
  const { results = [] } = await readDevices<Record<string, unknown>>(wanted, { fields: name }, signal);
  const values = results.flatMap(({ [name]: value }) => (value === null || value === undefined ? [] : String(value)));
  return [...new Set(values)].sort();
}

/** One page of devices, of which each has its id and these properties. */
export function readColumns<Name extends keyof Device>(wanted: WantedRows, names: readonly Name[]) {
  return readDevices<Pick<Device, Name>>(wanted, { fields: names.join(',') });
}

async function readDevices<T>(
  { filter: { q, text, fleetId }, sort: { by, order }, page, pageSize }: WantedRows,
  chosen: { fields: string; expand?: string; values?: string },
  signal: AbortSignal | null = null,
) {
  const sort = { sortBy: by as 'serialNumber', sortOrder: order };
  const filters = { ...(q && { serialNumber: q }), ...(text && { filter: text }), ...(fleetId && { fleetId }) };
  const query = { accountId: accountId.value, ...filters, page, pageSize, ...sort, ...chosen };
  const { devices } = await unwrap(api.GET('/api/v1/devices', { params: { query }, signal }));
  return devices as unknown as { results?: T[]; meta?: { count: number; scanned?: number } };
}
