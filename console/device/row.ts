/** A device as the API shows it. */
import { api, unwrap } from '../app/api.ts';

export async function readDevice(id: string) {
  return (await unwrap(api.GET('/api/v1/devices/{id}', { params: { path: { id } } }))).device;
}
export type DeviceRow = Awaited<ReturnType<typeof readDevice>>;
