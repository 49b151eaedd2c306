/** Finds what commands name: a device by its id or serial number, a fleet by its id or name. */

import { normalizeSerialNumber } from '../src/core/formats/serial-numbers.ts';
import type { Client } from './line/client.ts';
import { UsageError } from './usage.ts';

/** Devices whose serial number contains the one that is looked for; the service finds parts too. */
const maxFound = 1000;
const idForm = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** A list of the API. */
export interface Page<T> {
  results: T[];
  meta: { count: number };
}

/** The id of a device that is given by its id or its whole serial number. @throws UsageError for none, or several. */
export async function findDeviceId(client: Client, device: string): Promise<string> {
  if (idForm.test(device.trim())) return device.trim();
  const found = await idsOfSerialNumber(client, device);
  if (found.length > 1) throw new UsageError(`Several devices have the serial number ${device}. Give the device id.`);
  if (!found[0]) throw new UsageError(`There is no device with the serial number ${device}.`);
  return found[0];
}

export async function idsOfSerialNumber(client: Client, given: string): Promise<string[]> {
  const { accountId } = client;
  const serialNumber = normalizeSerialNumber(given);
  const asked = { accountId, serialNumber, fields: 'serialNumber', pageSize: String(maxFound) };
  const { devices } = await client.ok<{ devices: Page<{ id: string; serialNumber: string }> }>(
    'GET',
    `/devices?${new URLSearchParams(asked)}`,
  );
  return devices.results.flatMap((one) => (one.serialNumber === serialNumber ? [one.id] : []));
}

/** The id of a fleet that is given by its id or its name. @throws UsageError for none. */
export async function findFleetId(client: Client, fleet: string): Promise<string> {
  if (idForm.test(fleet.trim())) return fleet.trim();
  const asked = new URLSearchParams({ accountId: client.accountId, name: fleet });
  const { fleets } = await client.ok<{ fleets: Page<{ id: string }> }>('GET', `/fleets?${asked}`);
  const [found] = fleets.results;
  if (!found) throw new UsageError(`There is no fleet ${fleet}.`);
  return found.id;
}

/** Where a device connects, and its topics. */
export interface Connectivity {
  host: string;
  port: number;
  tls: boolean;
  topics: Array<{ channel: string; topic: string; service: boolean }>;
}

export async function readConnectivity(client: Client, deviceId: string): Promise<Connectivity> {
  const path = `/devices/${encodeURIComponent(deviceId)}/connectivity`;
  return (await client.ok<{ connectivity: Connectivity }>('GET', path)).connectivity;
}

/** @throws UsageError naming the channels of the device. */
export async function findTopic(client: Client, deviceId: string, channel: string): Promise<string> {
  const { topics } = await readConnectivity(client, deviceId);
  const found = topics.find((one) => one.channel === channel);
  if (found) return found.topic;
  const names = topics.map((one) => one.channel).join(', ');
  throw new UsageError(`The device has no channel ${channel}. Its channels are: ${names}.`);
}

/** `field=value` pairs of a flag. @throws UsageError for another form. */
export function readPairs(flag: string, given: readonly string[]): Array<[name: string, value: string]> {
  return given.map((one) => {
    const at = one.indexOf('=');
    if (at < 1) throw new UsageError(`${flag} ${one} must be NAME=VALUE.`);
    return [one.slice(0, at), one.slice(at + 1)];
  });
}
