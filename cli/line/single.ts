/** One unit by single calls, each under a key of its own: device, secret and code. */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Unit } from '../../src/factory/provisioning/unit.ts';
import { withCode } from '../../src/registry/addresses.ts';
import { refused, trouble, UsageError } from '../usage.ts';
import { type Answer, type Client, reasonOf } from './client.ts';
import type { Chunk, ChunkState, FailedUnit, UnitRow } from './journal.ts';
import {
  deliver,
  flagsOf,
  flashPath,
  isOfAnother,
  type Line,
  type NamedPlace,
  newKey,
  ofAnother,
  sheetPath,
  unitRow,
} from './line.ts';

interface Device {
  id: string;
  accountId: string;
  serialNumber: string;
  deviceTemplateId: string;
  created: string;
  channels: Array<{ channelTemplateName: string; channel: string }>;
}

/** The server keeps answers for 72 hours; before that is over, a key is not counted on any more. */
const keyLifetime = 70 * 60 * 60 * 1000;

/** Brings one unit to its end, from wherever it stands: why it failed, or nothing. @throws Ending 3, 4; UsageError. */
export async function runUnit(line: Line, begun: ChunkState): Promise<FailedUnit[]> {
  const { client, journal } = line;
  const chunk = await renewed(line, begun);
  const [row] = chunk.rows;
  if (!row) return [];
  const { key } = chunk;
  const device =
    row.deviceId === undefined ? await makeDevice(client, chunk) : await readDevice(client, row, row.deviceId);
  if ('reason' in device) {
    await journal.append({ type: 'dropped', key, reason: device.reason });
    return [{ serialNumber: row.serialNumber, reason: device.reason }];
  }
  const { accountId } = client;
  const [secret, code] = await Promise.all([
    client.call('POST', '/access/mqtt-credentials', {
      body: { accountId, entityId: device.id, entityType: 'device' },
      idempotencyKey: `${key}-secret`,
    }),
    client.call('POST', '/association/create-association-code', {
      body: { deviceId: device.id },
      idempotencyKey: `${key}-code`,
    }),
  ]);
  if (secret.status === 410) return used(line, chunk, device);
  const { mqttCredential } = demandAnswer<{ mqttCredential: { secret: string } }>(secret);
  const { associationCode } = demandAnswer<{ associationCode: string }>(code);
  const { broker, claimUrl } = line.addresses;
  const unit: Unit = {
    row: 1,
    serialNumber: device.serialNumber,
    deviceId: device.id,
    accountId: device.accountId,
    secret: mqttCredential.secret,
    associationCode,
    claimUrl: withCode(claimUrl, associationCode, device.accountId),
    broker,
    topics: Object.fromEntries(
      device.channels.map(({ channelTemplateName, channel }) => [channelTemplateName, channel]),
    ),
  };
  await deliver(line, chunk, [unit], []);
  return [];
}

function demandAnswer<T>(answer: Answer): T {
  if (answer.status < 300) return JSON.parse(answer.text) as T;
  const sentence = `The unit has no secret or code: ${reasonOf(answer)}`;
  throw answer.status === 403 ? refused(sentence) : trouble(sentence);
}

/** A chunk whose key is too old, or of another token, becomes another one, for the device that it has made if it has. */
async function renewed({ client, journal }: Line, chunk: ChunkState): Promise<ChunkState> {
  const [row] = chunk.rows;
  const isForeign = isOfAnother(client, chunk);
  if (!row || (!isForeign && Date.now() - Date.parse(chunk.time) < keyLifetime)) return chunk;
  // A station would not find the device.
  if (isForeign && client.caller.isStation) throw ofAnother(`${row.serialNumber} was`, '');
  const made = row.deviceId === undefined ? await findDevice(client, row.serialNumber) : undefined;
  // Clocks of a line may be wrong by a day; a device from long before is not this one.
  const isThis = made && Date.parse(made.created) > Date.parse(chunk.time) - 24 * 60 * 60 * 1000;
  const deviceId = isThis ? made.id : row.deviceId;
  const { jobId: _, state: __, ...rest } = chunk;
  const next: Chunk = { ...rest, ...newKey(client), rows: [{ ...row, deviceId }] };
  await journal.append({ type: 'recover', key: chunk.key, chunks: [next], failed: [] });
  return { ...next, state: 'begun' };
}

async function makeDevice(client: Client, chunk: ChunkState): Promise<Device | { reason: string }> {
  const [row] = chunk.rows;
  const { template, organization } = chunk;
  const body = {
    ...row?.fields,
    accountId: client.accountId,
    serialNumber: row?.serialNumber,
    ...(template && { deviceTemplateId: template }),
    ...(organization && { organizationId: organization }),
  };
  const answer = await client.call('POST', '/devices', { body, idempotencyKey: `${chunk.key}-device` });
  if (answer.status < 300) return (JSON.parse(answer.text) as { device: Device }).device;
  if (answer.status === 403) throw refused(`The server refuses: ${reasonOf(answer)}`);
  return { reason: reasonOf(answer) };
}

/** The device of a unit that was made before. Other hardware in its place keeps the secret that it has in the field. */
async function readDevice(client: Client, { serialNumber }: UnitRow, id: string): Promise<Device | { reason: string }> {
  const answer = await client.call('GET', `/devices/${id}`);
  if (answer.status === 404 && client.caller.isStation)
    return { reason: `Device ${id} is not this station's: another made it, or it is a customer's already.` };
  if (answer.status !== 200) return { reason: `Device ${id}: ${reasonOf(answer)}` };
  const { device } = JSON.parse(answer.text) as { device: Device };
  if (device.serialNumber === serialNumber) return device;
  return { reason: `Device ${id} has another serial number now, ${device.serialNumber}: its hardware was replaced.` };
}

/** The live device with exactly this serial number, of a template where one is named; the newest of several. */
export async function findDevice(client: Client, serialNumber: string, template?: string): Promise<Device | undefined> {
  const pageSize = 1000;
  let found: Device | undefined;
  for (let page = 1; ; page += 1) {
    const query = new URLSearchParams({
      accountId: client.accountId,
      serialNumber,
      ...(template && { deviceTemplateId: template }),
    });
    const answer = await client.call('GET', `/devices?${query}&pageSize=${pageSize}&page=${page}`);
    if (answer.status === 416) return found;
    const { results } = demandList<Device>(answer, 'devices');
    for (const device of results)
      if (device.serialNumber === serialNumber && (!found || device.created > found.created)) found = device;
    if (results.length < pageSize) return found;
  }
}

function demandList<T>(answer: Answer, plural: string): { results: T[] } {
  if (answer.status !== 200) throw refused(`The ${plural} cannot be read: ${reasonOf(answer)}`);
  return (JSON.parse(answer.text) as Record<string, { results: T[] }>)[plural] ?? { results: [] };
}

/** The ids of a template and an organization that are named. @throws UsageError for a name that none has, or several. */
export async function placeOf(
  client: Client,
  { template, organization }: NamedPlace,
): Promise<{ template: string | undefined; organization: string | undefined }> {
  if (template === undefined && organization === undefined) return { template, organization };
  const query = new URLSearchParams({ ...(template && { template }), ...(organization && { organization }) });
  const answer = await client.call('GET', `/provisioning/addresses?${query}`);
  const refusal = `The server refuses: ${reasonOf(answer)}${flagsOf({ template, organization })}`;
  if (answer.status === 403) throw refused(refusal);
  if (answer.status !== 200) throw new UsageError(refusal);
  const { provisioning } = JSON.parse(answer.text) as {
    provisioning: { deviceTemplateId?: string; organizationId?: string };
  };
  return { template: provisioning.deviceTemplateId, organization: provisioning.organizationId };
}

/** Its secret was used already: then the file was written before the command was killed, and has been flashed. */
async function used(line: Line, chunk: ChunkState, device: Device): Promise<FailedUnit[]> {
  const { journal } = line;
  const [row] = chunk.rows;
  const file = row?.file ?? '';
  const { serialNumber, id: deviceId } = device;
  if (await stat(join(journal.directory, flashPath(line, file))).catch(() => undefined)) {
    const unit = { serialNumber, deviceId, file, sheet: sheetPath(line, chunk) };
    await journal.append({ type: 'written', key: chunk.key, done: [unit], failed: [] });
    return [];
  }
  const reason = `Its secret has been used, and its file is not here. It is device ${deviceId}.`;
  await journal.append({ type: 'dropped', key: chunk.key, reason });
  return [{ serialNumber, reason }];
}

/** Begins a unit: writes it into the journal before anything is sent to the server. */
export async function beginUnit(
  { client, journal }: Line,
  serialNumber: string,
  fields: Record<string, string>,
  place: NamedPlace,
): Promise<ChunkState> {
  const chunk: Chunk = { ...newKey(client), by: 'unit', ...place, rows: [unitRow(serialNumber, fields)] };
  await journal.append({ type: 'chunk', ...chunk });
  return { ...chunk, state: 'begun' };
}
