/** A device as the API shows it, and where it connects. */
import { api, unwrap } from '../app/api.ts';
import { readOne } from '../app/entities.ts';

export const readDevice = (id: string) => readOne('device', id);
export type DeviceRow = Awaited<ReturnType<typeof readDevice>>;

/** Its broker and its topics; with `lines` that connect it for each tool. */
export async function readConnectivity(id: string, lines = false) {
  const params = { path: { id }, query: { lines } };
  return (await unwrap(api.GET('/api/v1/devices/{id}/connectivity', { params }))).connectivity;
}
export type Connectivity = Awaited<ReturnType<typeof readConnectivity>>;
export type Topic = Connectivity['topics'][number];
