/** Devices as their owners see them: by name, with the value that matters, and what their product lets people do. */
import { api, unwrap } from '../app/api.ts';
import type { Entity } from '../app/entities.ts';
import { accountId } from '../app/session.ts';
import { readConnectivity, type Topic } from '../device/row.ts';

export type Product = Entity<'deviceTemplate'>;
/** What `expand` adds. */
type WithProduct<T> = T & { deviceTemplate?: Product };

/** What a card shows, and nothing else: a page of many is small. */
const cardFields = 'name,serialNumber,deviceTemplateId,deviceTemplate.name,deviceTemplate.primary,connected,values';

/** As many devices, in the order of their serial numbers. */
export async function readCards(pageSize: number, signal: AbortSignal) {
  const query = {
    accountId: accountId.value,
    expand: 'device-template',
    values: 'primary',
    fields: cardFields,
    pageSize,
  };
  const { devices } = await unwrap(api.GET('/api/v1/devices', { params: { query }, signal }));
  return { results: (devices.results ?? []) as Card[], count: devices.meta?.count ?? 0 };
}
export type Card = WithProduct<Entity<'device'>>;

/** A device with its product. */
export async function readMine(id: string): Promise<Mine> {
  const params = { path: { id }, query: { expand: 'device-template' } };
  return (await unwrap(api.GET('/api/v1/devices/{id}', { params }))).device;
}
export type Mine = WithProduct<Entity<'device'>>;

const products = new Map<string, Promise<readonly Topic[]>>();

/** How the product of a device calls its values: asked of one device of each product, once. */
export function readCategories({ id, deviceTemplateId }: Card): Promise<readonly Topic[]> {
  const topics = async () => (await readConnectivity(id)).topics;
  const read = products.get(deviceTemplateId) ?? topics().catch(() => []);
  products.set(deviceTemplateId, read);
  return read;
}

export const nameOf = ({ name, serialNumber }: { name?: unknown; serialNumber?: string | undefined }): string =>
  typeof name === 'string' && name !== '' ? name : (serialNumber ?? '');

/** The name and the unit of the value that matters; those of the only category where the product does not say which matters. */
export function shownAs({ deviceTemplate }: Card, topics: readonly Topic[]): { label: string; unit: string } {
  const all = topics.flatMap(({ channel, categories }) => categories.map((one) => ({ ...one, channel })));
  const primary = deviceTemplate?.primary;
  const meant = primary
    ? all.find(({ channel, name }) => channel === primary.channel && name === primary.category)
    : all.length === 1
      ? all[0]
      : undefined;
  return { label: meant ? meant.label || meant.name || meant.channel : '', unit: meant?.unit ?? '' };
}
