/** A device as the API shows it. */
import { api, done } from '../app/api.ts';

export async function readDevice(id: string) {
  return (await done(api.GET('/api/v1/devices/{id}', { params: { path: { id } } }))).device;
}
export type DeviceRow = Awaited<ReturnType<typeof readDevice>>;
