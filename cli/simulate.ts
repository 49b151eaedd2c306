/** `slipway simulate`: a believable fleet of sensors against a running server. */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import mqtt, { type MqttClient } from 'mqtt';
import { idsOfSerialNumber, type Page, readConnectivity } from './find-device.ts';
import type { Client } from './line/client.ts';
import { readCaFile } from './line/line.ts';
import { type Connection, printError } from './line/options.ts';
import { withClient } from './line/work.ts';
import { printJson } from './printed.ts';
import { UsageError } from './usage.ts';

interface SimulateFlags extends Connection {
  product: string | undefined;
  /** Seconds between two messages of a device. */
  every: number;
  /** Seconds; 0 is until Ctrl-C. */
  for: number;
}

/** A device that is played. */
interface Sensor {
  id: string;
  secret: string;
  /** Of its readings, without the channel. */
  root: string;
  /** What is its own: 0 to 1. */
  own: number;
}

const defaultProduct = 'Simulated sensor';
const channel = 'readings';
const firmwareVersion = '1.0.0';
const maxDevices = 1000;
/** Devices that are made or connected at the same time. */
const width = 8;
/** Seconds between two lines about how it goes. */
const tellEvery = 10;
/** One in so many messages has a log entry with it, or the device goes offline for a while after it. */
const rarely = { logs: 50, leaves: 200 };

/** @throws UsageError for a count that cannot be. */
export async function simulate(flags: SimulateFlags, [given = '']: readonly string[]): Promise<void> {
  const count = Number(given);
  if (!/^\d{1,4}$/.test(given) || count < 1 || count > maxDevices)
    throw new UsageError(`COUNT must be a whole number from 1 to ${maxDevices}.`);
  await withClient(flags, printError, async (client) => {
    const deviceTemplateId = await findOrMakeProduct(client, flags.product ?? defaultProduct);
    const sensors: Sensor[] = new Array(count);
    await forEach(sensors.keys(), async (n) => {
      sensors[n] = await findOrMakeSensor(client, deviceTemplateId, n);
    });
    printError(
      `${count} devices of ${flags.product ?? defaultProduct}, each publishes every ${flags.every} s. Ctrl-C ends it.`,
    );
    const [first] = sensors as [Sensor];
    const { host, port, tls } = await readConnectivity(client, first.id);
    const ca = tls ? readCaFile(flags.ca) : undefined;
    const url = `${tls ? 'mqtts' : 'mqtt'}://${host}:${port}`;
    const end = new AbortController();
    if (flags.for > 0) setTimeout(() => end.abort(), 1000 * flags.for);
    const counted = { messages: 0, online: 0 };
    const told = setInterval(
      () => printError(`${counted.online} online, ${counted.messages} messages`),
      1000 * tellEvery,
    );
    try {
      const lives = sensors.map((sensor) => live(sensor, { url, ca, every: flags.every, counted, signal: end.signal }));
      await Promise.all(lives);
    } finally {
      clearInterval(told);
    }
    const { messages } = counted;
    if (flags.json) printJson({ devices: count, messages });
    else process.stdout.write(`${count} devices have published ${messages} messages.\n`);
  });
}

async function findOrMakeProduct(client: Client, name: string): Promise<string> {
  const { accountId } = client;
  const query = new URLSearchParams({ accountId, name, pageSize: '1000' });
  const { deviceTemplates } = await client.ok<{ deviceTemplates: Page<{ id: string; name: string }> }>(
    'GET',
    `/devices/templates?${query}`,
  );
  const there = deviceTemplates.results.find((one) => one.name === name);
  if (there) return there.id;
  const { deviceTemplate } = await client.ok<{ deviceTemplate: { id: string } }>('POST', '/devices/templates', {
    body: { accountId, name },
    idempotencyKey: randomUUID(),
  });
  const { id } = deviceTemplate;
  const categories = [
    { name: 'temperature', label: 'Temperature', unit: '°C', kind: 'number' },
    { name: 'humidity', label: 'Humidity', unit: '%', kind: 'number' },
    { name: 'battery', label: 'Battery', unit: 'V', kind: 'number' },
    { name: 'door', label: 'Door', kind: 'state' },
  ];
  await client.ok('POST', '/channels/templates', {
    body: {
      accountId,
      entityId: id,
      entityType: 'deviceTemplate',
      name: channel,
      persistenceType: 'timeSeries',
      categories,
    },
    idempotencyKey: randomUUID(),
  });
  return id;
}

/** A device that is there already gets a new secret. */
async function findOrMakeSensor(client: Client, deviceTemplateId: string, n: number): Promise<Sensor> {
  const { accountId } = client;
  const serialNumber = `SIM-${String(n + 1).padStart(4, '0')}`;
  const [there] = await idsOfSerialNumber(client, serialNumber);
  const id = there ?? (await make());
  const { mqttCredential } = await client.ok<{ mqttCredential: { secret: string } }>(
    'POST',
    '/access/mqtt-credentials',
    {
      body: { accountId, entityId: id, entityType: 'device' },
      idempotencyKey: randomUUID(),
    },
  );
  const { topics } = await readConnectivity(client, id);
  const [any] = topics;
  const root = any ? any.topic.slice(0, -any.channel.length) : '';
  return { id, secret: mqttCredential.secret, root, own: ((n * 37) % 100) / 100 };

  async function make(): Promise<string> {
    const { device } = await client.ok<{ device: { id: string } }>('POST', '/devices', {
      body: { accountId, deviceTemplateId, serialNumber, firmwareVersion, ...placeOf(n) },
      idempotencyKey: randomUUID(),
    });
    return device.id;
  }
}

/** Somewhere in Europe, the same for the same device. */
function placeOf(n: number): { latitude: number; longitude: number } {
  return { latitude: 43 + ((n * 7.31) % 14), longitude: -3 + ((n * 11.17) % 24) };
}

interface Life {
  url: string;
  ca: string | undefined;
  every: number;
  counted: { messages: number; online: number };
  signal: AbortSignal;
}

/** Connects, publishes, goes offline now and then, until it is ended. */
async function live(sensor: Sensor, life: Life): Promise<void> {
  const { every, counted, signal } = life;
  const wait = (seconds: number) => delay(1000 * seconds, undefined, { signal }).catch(() => {});
  await wait(every * sensor.own);
  while (!signal.aborted) {
    const client = await connect(sensor, life);
    if (!client) {
      await wait(every);
      continue;
    }
    counted.online += 1;
    do {
      await publish(client, sensor, counted).catch(() => {});
      await wait(every * (0.9 + 0.2 * Math.random()));
    } while (!signal.aborted && client.connected && Math.random() > 1 / rarely.leaves);
    counted.online -= 1;
    await client.endAsync(true).catch(() => {});
    await wait(3 * every);
  }
}

async function connect({ id, secret, root }: Sensor, { url, ca }: Life): Promise<MqttClient | undefined> {
  const options = { username: id, password: secret, clientId: id, reconnectPeriod: 0, ...(ca && { ca }) };
  const client = await mqtt.connectAsync(url, options).catch(() => undefined);
  if (!client) return undefined;
  // It ends; the next connection is made by `live`.
  client.on('error', () => {});
  client.on('message', (topic, payload) => {
    if (topic === `${root}_commands`) answer(client, root, payload);
  });
  await client.subscribeAsync(`${root}_commands`, { qos: 1 }).catch(() => {});
  return client;
}

function answer(client: MqttClient, root: string, payload: Buffer): void {
  const { id } = JSON.parse(payload.toString()) as { id: string };
  const reply = JSON.stringify({ id, status: 'succeeded', result: 'done' });
  client.publish(`${root}_commands/replies`, reply, { qos: 1 }, () => {});
}

async function publish(client: MqttClient, { root, own }: Sensor, counted: { messages: number }): Promise<void> {
  const lines = Object.entries(readingsAt(Date.now(), own)).map(([category, value]) => `,${category},${value},`);
  await client.publishAsync(`${root}${channel}`, lines.join('\n'), { qos: 1 });
  counted.messages += 1;
  if (Math.random() > 1 / rarely.logs) return;
  const entry = { severity: 'notice', message: 'The sensor was calibrated.' };
  await client.publishAsync(`${root}_log`, JSON.stringify(entry), { qos: 1 });
}

/** What a sensor measures: the hour of the day, what is its own, and a little noise. */
function readingsAt(time: number, own: number): Record<string, number> {
  const wave = Math.sin(((time % 86_400_000) / 86_400_000) * 2 * Math.PI - 2);
  const noise = Math.random() - 0.5;
  const rounded = (value: number) => Math.round(value * 100) / 100;
  return {
    temperature: rounded(20 + 3 * wave + 2 * own + 0.4 * noise),
    humidity: rounded(50 - 8 * wave + 6 * own + 2 * noise),
    battery: rounded(3.6 - 0.5 * own + 0.01 * noise),
    door: Math.random() < 0.06 ? 1 : 0,
  };
}

/** Does `work` for all of them, a few at a time. */
async function forEach(items: Iterator<number>, work: (item: number) => Promise<void>): Promise<void> {
  const run = async () => {
    for (let next = items.next(); !next.done; next = items.next()) await work(next.value);
  };
  await Promise.all(Array.from({ length: width }, run));
}
