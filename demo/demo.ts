/**
 * `npm run demo`: the main job of the service on real input, from an empty directory to a device that is moved away; ends 0 only if
 * every step held. With `--keep` it fills an account with a fleet instead, and serves it until Ctrl-C.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parse } from 'csv-parse/sync';
import mqtt, { type MqttClient } from 'mqtt';
import type { List, MadeEntity, Session } from './answers.ts';
import { makePassword } from './fleet.ts';
import { keep } from './keep.ts';
import { type Running, startServer, whileRunning } from './server.ts';

const deviceCount = 20;
const firmware = '2.4.1';
const readings = parse(readFileSync(new URL('demo/readings.csv', import.meta.resolve('#package'))), {
  columns: true,
}) as Reading[];

interface Reading {
  time: string;
  temperature: string;
  humidity: string;
  battery: string;
}

interface Device extends MadeEntity {
  client: MqttClient;
}

/** A page of a time-series. */
interface Page {
  result: Array<{ category: string; numericValue: number | null }>;
  meta: { pagingToken?: string };
}

const started = performance.now();
const summary: string[] = [];
const clients: MqttClient[] = [];

/** One step: its name while it runs, what it found and how long it took when it is done. */
async function step<T>(name: string, work: () => Promise<[T, string]>): Promise<T> {
  const from = performance.now();
  if (process.stdout.isTTY) process.stdout.write(`  … ${name}`);
  const [result, found] = await work();
  const line = `${name}: ${found} (${Math.round(performance.now() - from)} ms)`;
  const clear = process.stdout.isTTY ? '\r\u001b[K' : '';
  process.stdout.write(`${clear}  ✓ ${line}\n`);
  summary.push(line);
  return result;
}

function check(condition: boolean, otherwise: string): asserts condition {
  if (!condition) throw new Error(otherwise);
}

/** Resolves when the client has received `wanted` messages that match, counted from now. */
function received(
  client: MqttClient,
  wanted: number,
  matches: (topic: string, payload: string) => boolean,
): Promise<number> {
  return new Promise((resolve) => {
    let count = 0;
    const listen = (topic: string, payload: Buffer) => {
      if (!matches(topic, payload.toString())) return;
      count += 1;
      if (count < wanted) return;
      client.off('message', listen);
      resolve(count);
    };
    client.on('message', listen);
  });
}

async function demo(directory: string, signal: AbortSignal): Promise<void> {
  const password = makePassword();
  const running = await step('Start the server on an empty directory', async (): Promise<[Running, string]> => {
    const env = { SLIPWAY_DATA_DIR: join(directory, 'data'), SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0' };
    const server = await startServer({ directory, password, env, signal });
    return [server, `${server.url}, MQTT on ${server.port}`];
  });
  try {
    await whileRunning(running, scenario({ ...running, password }));
    await step('Stop the server with SIGTERM', async () => {
      const code = await running.stop();
      check(code === 0, `it ended with ${code}`);
      return [undefined, 'exit 0'];
    });
  } finally {
    await running.stop();
  }
}

async function scenario(at: { url: string; port: number; accountId: string; password: string }): Promise<void> {
  const { url, port, accountId } = at;
  let token = '';
  const call = async <T>(method: string, path: string, body?: object, headers = {}): Promise<T> => {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: { 'content-type': 'application/json', ...(token && { authorization: `Bearer ${token}` }), ...headers },
      ...(body && { body: JSON.stringify(body) }),
    });
    const answer = (await response.json()) as T;
    check(response.ok, `${method} ${path} answered ${response.status}: ${JSON.stringify(answer)}`);
    return answer;
  };
  const make = async <T = MadeEntity>(path: string, body: object): Promise<T> =>
    Object.values(await call<Record<string, T>>('POST', `/api/v1${path}`, { accountId, ...body }))[0] as T;
  const login = async (emailAddress: string, password: string): Promise<string> =>
    (await call<Session>('POST', '/api/v1/auth/login-user', { accountId, emailAddress, password })).jwt;
  const connect = async (username: string, password: string): Promise<MqttClient> => {
    const server = { protocol: 'mqtt', host: '127.0.0.1', port } as const;
    const client = await mqtt.connectAsync({ ...server, username, password, reconnectPeriod: 0 });
    clients.push(client);
    return client;
  };
  const topic = (deviceId: string, channel: string) => `slipway/v1/${accountId}/d/${deviceId}/${channel}`;

  token = await step('Log in as the admin', async () => [await login('admin@demo.example', at.password), 'a token']);

  const { template, here, there } = await step('Define the product', async () => {
    const template = await make('/devices/templates', { name: 'Room sensor', make: 'Demo' });
    await make('/channels/templates', {
      entityId: template.id,
      entityType: 'deviceTemplate',
      name: 'readings',
      persistenceType: 'timeSeries',
    });
    const here = await make('/organizations', { name: 'Harbour office' });
    const there = await make('/organizations', { name: 'Hill office' });
    return [{ template, here, there }, 'a template, a stored channel, two organizations'];
  });

  const [first, second] = await step('Make two end-users', async () => {
    const users: MqttClient[] = [];
    for (const [organization, email] of [
      [here, 'ann@demo.example'],
      [there, 'bob@demo.example'],
    ] as const) {
      const secret = makePassword();
      const user = {
        organizationId: organization.id,
        createIdmUser: true,
        idmUserEmail: email,
        idmUserPassword: secret,
      };
      await make('/end-users', user);
      users.push(await connect('Auth:JWT', await login(email, secret)));
    }
    return [users as [MqttClient, MqttClient], 'each logged in and connected, one in either organization'];
  });

  const devices = await step('Make and connect devices', async () => {
    const made = await Promise.all(
      Array.from({ length: deviceCount }, async (_, n): Promise<Device> => {
        const serialNumber = `RS-${String(n + 1).padStart(4, '0')}`;
        const device = await make('/devices', { serialNumber, deviceTemplateId: template.id, organizationId: here.id });
        const credential = await make<{ secret: string }>('/access/mqtt-credentials', {
          entityId: device.id,
          entityType: 'device',
        });
        return { ...device, client: await connect(device.id, credential.secret) };
      }),
    );
    return [made, `${made.length} with a credential each`];
  });
  const [device, neighbour] = devices as [Device, Device, ...Device[]];

  await step('Subscribe as the end-users', async () => {
    for (const user of [first, second]) {
      const granted = await user.subscribeAsync(`slipway/v1/${accountId}/d/+/#`, { qos: 1 });
      check(granted[0]?.qos === 1, 'the wildcard was not granted');
    }
    return [undefined, 'both to everything they may hear'];
  });

  const messages = deviceCount * readings.length;
  await step('Publish a recorded day', async () => {
    const heard = received(first, messages, (name) => name.endsWith('/readings'));
    for (const { time, temperature, humidity, battery } of readings) {
      const payload = `${time},temperature,${temperature},\n${time},humidity,${humidity},\n${time},battery,${battery},\n`;
      await Promise.all(
        devices.map(({ id, client }) => client.publishAsync(topic(id, 'readings'), payload, { qos: 1 })),
      );
    }
    return [await heard, `${messages} messages acknowledged, and heard by the end-user`];
  });

  await step('Read every series back', async () => {
    const [from, to] = [readings[0]?.time ?? '', new Date(Date.parse(readings.at(-1)?.time ?? '') + 1).toISOString()];
    let points = 0;
    for (const { id } of devices) {
      let pagingToken = '';
      let temperatures = 0;
      do {
        const page: Page = await call(
          'GET',
          `/api/v4/data/${topic(id, 'readings')}?startDateTime=${from}&endDateTime=${to}&pageSize=1000&pagingToken=${pagingToken}`.replace(
            /&pagingToken=$/,
            '',
          ),
        );
        points += page.result.length;
        temperatures += page.result.filter((point) => point.category === 'temperature').length;
        pagingToken = page.meta.pagingToken ?? '';
      } while (pagingToken);
      check(temperatures === readings.length, `${temperatures} temperatures instead of ${readings.length}`);
    }
    check(points === messages * 3, `${points} points instead of ${messages * 3}`);
    const latest = await call<Page>('GET', `/api/v4/data/${topic(device.id, 'readings')}/latest?pageSize=3`);
    check(
      latest.result.some((point) => point.numericValue === Number(readings.at(-1)?.temperature)),
      'the latest point is not the last one',
    );
    return [points, `${points} points, none missing`];
  });

  await step('Set a field over MQTT', async () => {
    const told = received(first, 1, (name, payload) => name.endsWith('/_updates/fields') && payload.includes(firmware));
    await device.client.publishAsync(
      topic(device.id, '_set/fields'),
      JSON.stringify({ state: { firmwareVersion: firmware } }),
      { qos: 1 },
    );
    await told;
    const { device: stored } = await call<{ device: { firmwareVersion: string; connected: boolean } }>(
      'GET',
      `/api/v1/devices/${device.id}`,
    );
    check(stored.firmwareVersion === firmware && stored.connected === true, 'the registry does not show it');
    return [undefined, `firmwareVersion ${firmware} in the registry, and told to the end-user`];
  });

  await step('Read the log back', async () => {
    await device.client.publishAsync(
      topic(device.id, '_log'),
      JSON.stringify({ message: 'sensor calibrated', severity: 'notice' }),
      { qos: 1 },
    );
    const { logs } = await call<{ logs: List<{ message: string; severity: string }> }>(
      'GET',
      `/api/v1/devices/${device.id}/logs?pageSize=50`,
    );
    const entry = logs.results.find((one) => one.message === 'sensor calibrated');
    check(entry?.severity === 'notice', 'the entry is not there');
    check(
      logs.results.some((one) => one.severity === 'lifecycle'),
      'the connection is not in the log',
    );
    return [undefined, `${logs.meta.count} entries, the device's own and its connection`];
  });

  await step('Move a device away from its audience', async () => {
    const { device: current } = await call<{ device: MadeEntity }>('GET', `/api/v1/devices/${device.id}`);
    await call('PUT', `/api/v1/devices/${device.id}`, { organizationId: there.id }, { etag: current.version });
    const strays: string[] = [];
    first.on('message', (name) => {
      if (name.includes(device.id)) strays.push(name);
    });
    const newAudience = received(second, 1, (name) => name === topic(device.id, 'readings'));
    // Whatever the first end-user was to hear of the moved device comes before this later message of the neighbour.
    const after = received(
      first,
      1,
      (name, payload) => name === topic(neighbour.id, 'readings') && payload.includes('after'),
    );
    await device.client.publishAsync(topic(device.id, 'readings'), ',move,1,', { qos: 1 });
    await newAudience;
    await neighbour.client.publishAsync(topic(neighbour.id, 'readings'), ',after,1,', { qos: 1 });
    await after;
    check(strays.length === 0, `the first end-user still heard ${strays.join(', ')}`);
    return [undefined, 'the new organization hears it, the first end-user nothing more'];
  });
}

async function story(signal: AbortSignal): Promise<void> {
  process.stdout.write(`\nSlipway demo: ${deviceCount} devices, ${readings.length} readings each\n\n`);
  const directory = mkdtempSync(join(tmpdir(), 'slipway-demo-'));
  try {
    await demo(directory, signal);
  } finally {
    for (const client of clients) client.end(true);
    rmSync(directory, { recursive: true, force: true });
  }
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  process.stdout.write(
    `\nAll ${summary.length} steps checked in ${seconds} s:\n${summary.map((line) => `  - ${line}`).join('\n')}\n`,
  );
}

/** Runs what the arguments ask for, and cleans up: the exit code. */
async function main(args: string[]): Promise<number> {
  if (args.some((arg) => arg !== '--keep')) {
    process.stderr.write('Usage: npm run demo [-- --keep]\n');
    return 2;
  }
  const stopped = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stopped.abort());
  const isKept = args.length > 0;
  try {
    await (isKept ? keep : story)(stopped.signal);
    return 0;
  } catch (error) {
    if (!stopped.signal.aborted) {
      process.stderr.write(`\nThe demo failed: ${(error as Error).message}\n`);
      return 1;
    }
    process.stderr.write('\nThe demo was interrupted.\n');
    return isKept ? 0 : 130;
  }
}

// Clients and requests of a demo that has failed would keep the process.
process.exit(await main(process.argv.slice(2)));
