/** `slipway device send`: a message to a channel of a device, with the properties of MQTT 5. */
import { randomUUID } from 'node:crypto';
import type { Client } from './line/client.ts';
import { type Connection, printError } from './line/options.ts';
import { withClient } from './line/work.ts';
import { Ending, exitCodes, UsageError } from './usage.ts';

/** Devices whose serial number contains the one that is looked for; the service finds parts too. */
const maxFound = 1000;
const idForm = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

interface SendFlags extends Connection {
  qos: '0' | '1' | '2' | undefined;
  retain: boolean;
  contentType: string | undefined;
  responseTopic: string | undefined;
  /** Base64. */
  correlationData: string | undefined;
  /** Each is name=value. */
  userProperty: string[];
  /** Seconds. */
  messageExpiry: string | undefined;
}

/** What the service answers to a message. */
interface Published {
  success: true;
  rejection?: { message: string; details: Array<{ message: string }> };
}

/** @throws Ending 1 for a message that was delivered and not stored; UsageError for an unknown device or channel. */
export async function deviceSend(flags: SendFlags, [device = '', channel = '', text = '']: readonly string[]) {
  const query = queryOf(flags);
  await withClient(flags, printError, async (client) => {
    const topic = await topicOf(client, await idOf(client, device), channel);
    const path = `/messaging/publish/${topic.split('/').map(encodeURIComponent).join('/')}?${query}`;
    const call = { body: text, type: 'text/plain', idempotencyKey: randomUUID() };
    const answer = await client.ok<Published>('POST', path, call);
    process.stdout.write(`${flags.json ? JSON.stringify({ topic, ...answer }) : topic}\n`);
    const { rejection } = answer;
    if (!rejection) return;
    const why = [rejection.message, ...rejection.details.map(({ message }) => message)].join(' ');
    throw new Ending(exitCodes.failed, why);
  });
}

function queryOf(flags: SendFlags): URLSearchParams {
  const { qos, retain, contentType, responseTopic, correlationData, userProperty, messageExpiry } = flags;
  const userProperties = userProperty.map(pairOf);
  return new URLSearchParams({
    ...(qos !== undefined && { qos }),
    ...(retain && { retain: 'true' }),
    ...(contentType !== undefined && { contentType }),
    ...(responseTopic !== undefined && { responseTopic }),
    ...(correlationData !== undefined && { correlationData }),
    ...(userProperties.length > 0 && { userProperties: JSON.stringify(userProperties) }),
    ...(messageExpiry !== undefined && { messageExpiry }),
  });
}

function pairOf(given: string): [name: string, value: string] {
  const at = given.indexOf('=');
  if (at < 0) throw new UsageError(`--user-property ${given} must be NAME=VALUE.`);
  return [given.slice(0, at), given.slice(at + 1)];
}

/** The id of a device that is given by its id or its whole serial number. */
async function idOf(client: Client, device: string): Promise<string> {
  if (idForm.test(device)) return device;
  const { accountId } = client;
  const asked = { accountId, serialNumber: device, fields: 'serialNumber', pageSize: String(maxFound) };
  const { devices } = await client.ok<{ devices: { results: Array<{ id: string; serialNumber: string }> } }>(
    'GET',
    `/devices?${new URLSearchParams(asked)}`,
  );
  const found = devices.results.filter(({ serialNumber }) => serialNumber === device);
  if (found.length > 1) throw new UsageError(`Several devices have the serial number ${device}. Give the device id.`);
  if (!found[0]) throw new UsageError(`There is no device with the serial number ${device}.`);
  return found[0].id;
}

async function topicOf(client: Client, deviceId: string, channel: string): Promise<string> {
  const { connectivity } = await client.ok<{ connectivity: { topics: Array<{ channel: string; topic: string }> } }>(
    'GET',
    `/devices/${encodeURIComponent(deviceId)}/connectivity`,
  );
  const found = connectivity.topics.find((one) => one.channel === channel);
  if (found) return found.topic;
  const names = connectivity.topics.map((one) => one.channel).join(', ');
  throw new UsageError(`The device has no channel ${channel}. Its channels are: ${names}.`);
}
