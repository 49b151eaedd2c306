/** `slipway device list|show|new|send`. */
import { randomUUID } from 'node:crypto';
import { type ErrorDetail, lineOf } from '../src/core/errors.ts';
import {
  findDeviceId,
  findFleetId,
  findTopic,
  idsOfSerialNumber,
  type Page,
  readConnectivity,
  readPairs,
} from './find-device.ts';
import type { Client } from './line/client.ts';
import { type Connection, printError } from './line/options.ts';
import { placeOf } from './line/single.ts';
import { withClient } from './line/work.ts';
import { ago, printJson, printPairs, printTable } from './printed.ts';
import { Ending, exitCodes, UsageError } from './usage.ts';

/** What is read of a device. */
interface Device {
  id: string;
  serialNumber: string;
  provisioningState: string;
  connected: boolean;
  lastConnected: string | null;
  firmwareVersion: string | null;
  deviceTemplate?: { name: string };
  organization?: { name: string } | null;
}

interface ListFlags extends Connection {
  product: string | undefined;
  organization: string | undefined;
  fleet: string | undefined;
  /** Each is field=value. */
  where: string[];
  limit: number;
}

/** The first devices by serial number. */
export async function deviceList(flags: ListFlags): Promise<void> {
  const where = readPairs('--where', flags.where);
  await withClient(flags, printError, async (client) => {
    const { template, organization } = await placeOf(client, { ...flags, template: flags.product });
    const query = new URLSearchParams({
      accountId: client.accountId,
      pageSize: String(flags.limit),
      expand: 'device-template',
      ...(template && { deviceTemplateId: template }),
      ...(organization && { organizationId: organization }),
      ...(flags.fleet !== undefined && { fleetId: await findFleetId(client, flags.fleet) }),
      ...Object.fromEntries(where),
    });
    const { devices } = await client.ok<{ devices: Page<Device> }>('GET', `/devices?${query}`);
    const { results, meta } = devices;
    if (flags.json) return printJson(results);
    printTable(
      ['SERIAL NUMBER', 'PRODUCT', 'STATE', 'ONLINE', 'LAST CONNECTED', 'FIRMWARE', 'ID'],
      results.map(({ serialNumber, deviceTemplate, provisioningState, connected, ...device }) => [
        serialNumber,
        deviceTemplate?.name ?? '',
        provisioningState,
        connected ? 'yes' : 'no',
        ago(device.lastConnected),
        device.firmwareVersion ?? '',
        device.id,
      ]),
    );
    if (meta.count > results.length) printError(`${results.length} of ${meta.count} devices. --limit shows more.`);
    if (meta.count === 0) printError('No device.');
  });
}

/** A point as `/latest` answers it. */
interface Latest {
  time: string;
  category: string;
  numericValue: number | null;
  stringValue: string | null;
}

export async function deviceShow(flags: Connection, [device = '']: readonly string[]): Promise<void> {
  await withClient(flags, printError, async (client) => {
    const id = await findDeviceId(client, device);
    const path = `/devices/${encodeURIComponent(id)}?expand=device-template,organization`;
    const { device: shown } = await client.ok<{ device: Device }>('GET', path);
    if (flags.json) return printJson(shown);
    printPairs([
      ['Serial number', shown.serialNumber],
      ['Id', shown.id],
      ['Product', shown.deviceTemplate?.name ?? ''],
      ['Organization', shown.organization?.name ?? ''],
      ['State', shown.provisioningState],
      ['Online', shown.connected ? 'yes' : `no, last connected ${ago(shown.lastConnected)}`],
      ['Firmware', shown.firmwareVersion ?? 'not known'],
    ]);
    const values = await latestValues(client, id);
    if (values.length > 0) process.stdout.write('\n');
    printTable(['CHANNEL', 'CATEGORY', 'VALUE', 'TIME'], values);
  });
}

async function latestValues(client: Client, id: string): Promise<string[][]> {
  const { topics } = await readConnectivity(client, id);
  const rows: string[][] = [];
  for (const { channel, topic } of topics.filter(({ service }) => !service)) {
    // It is next to /api/v1.
    const answer = await client.call('GET', `/../v4/data/${topic}/latest`);
    if (answer.status !== 200) continue;
    const { result } = JSON.parse(answer.text) as { result: Latest[] };
    // The newest come first.
    const newest = new Map(result.toReversed().map((one) => [one.category, one]));
    for (const { category, numericValue, stringValue, time } of newest.values())
      rows.push([channel, category, `${numericValue ?? stringValue ?? ''}`, ago(time)]);
  }
  return rows;
}

interface NewFlags extends Connection {
  product: string;
  organization: string | undefined;
  /** Each is name=value. */
  field: string[];
}

/** A device with its secret, which is shown once. @throws UsageError for a serial number that a device has already. */
export async function deviceNew(flags: NewFlags, [serialNumber = '']: readonly string[]): Promise<void> {
  const fields = Object.fromEntries(readPairs('--field', flags.field));
  await withClient(flags, printError, async (client) => {
    const { accountId } = client;
    const [there] = await idsOfSerialNumber(client, serialNumber);
    if (there) throw new UsageError(`Device ${there} has the serial number ${serialNumber} already.`);
    const { template, organization } = await placeOf(client, { ...flags, template: flags.product });
    const place = { deviceTemplateId: template, ...(organization && { organizationId: organization }) };
    const { device } = await client.ok<{ device: Device }>('POST', '/devices', {
      body: { ...fields, accountId, serialNumber, ...place },
      idempotencyKey: randomUUID(),
    });
    const { mqttCredential } = await client.ok<{ mqttCredential: { secret: string } }>(
      'POST',
      '/access/mqtt-credentials',
      {
        body: { accountId, entityId: device.id, entityType: 'device' },
        idempotencyKey: randomUUID(),
      },
    );
    const { secret } = mqttCredential;
    const { host, port, tls, topics } = await readConnectivity(client, device.id);
    const broker = { host, port, tls };
    const channels = Object.fromEntries(
      topics.filter(({ service }) => !service).map((one) => [one.channel, one.topic]),
    );
    if (flags.json) return printJson({ device, secret, broker, channels });
    printPairs([
      ['Id and username', device.id],
      ['Secret', secret],
      ['Broker', `${tls ? 'mqtts' : 'mqtt'}://${host}:${port}`],
      ...Object.entries(channels).map(([name, topic]) => [`Topic of ${name}`, topic] as const),
    ]);
    printError('The secret is shown only now. A new one ends it.');
  });
}

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
  rejection?: { message: string; details: ErrorDetail[] };
}

/** @throws Ending 1 for a message that was delivered and not stored; UsageError for an unknown device or channel. */
export async function deviceSend(flags: SendFlags, [device = '', channel = '', text = '']: readonly string[]) {
  const query = queryOf(flags);
  await withClient(flags, printError, async (client) => {
    const topic = await findTopic(client, await findDeviceId(client, device), channel);
    const path = `/messaging/publish/${topic.split('/').map(encodeURIComponent).join('/')}?${query}`;
    const call = { body: text, type: 'text/plain', idempotencyKey: randomUUID() };
    const answer = await client.ok<Published>('POST', path, call);
    if (flags.json) printJson({ topic, ...answer });
    else process.stdout.write(`${topic}\n`);
    const { rejection } = answer;
    if (!rejection) return;
    throw new Ending(exitCodes.failed, lineOf(rejection));
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

/** The name of a user property may be empty. */
function pairOf(given: string): [name: string, value: string] {
  const at = given.indexOf('=');
  if (at < 0) throw new UsageError(`--user-property ${given} must be NAME=VALUE.`);
  return [given.slice(0, at), given.slice(at + 1)];
}
