/** `kill -9` in the middle of enrollments: never two devices, never an answered credential that does not connect. */
import { setTimeout as sleep } from 'node:timers/promises';
import Sqlite from 'better-sqlite3';
import mqtt from 'mqtt';
import t from 'tap';
import { basic } from '../enrollment/devices.ts';
import { dice } from '../support/dice.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { type Running, startProcess } from '../support/process.ts';
import { adminEmail, adminPassword } from '../support/service.ts';

const rounds = Number(process.env.TEST_ROUNDS ?? 8);
const devicesOfRound = 12;
const accountId = '00000000-0000-7000-8000-0000000e4011';
const env = {
  SLIPWAY_ACCOUNT_ID: accountId,
  SLIPWAY_MQTT_FAILED_CONNECTS_PER_ADDRESS: '0',
  SLIPWAY_MQTT_FAILED_CONNECTS_PER_PRINCIPAL: '0',
};

interface Credential {
  username: string;
  secret: string;
}

/** A device, and the last credential that it was answered. */
interface Device {
  serialNumber: string;
  credential: Credential | undefined;
  /** Requests without an answer: each may have replaced a secret that was not used. */
  lost: number;
}

t.test(`kill -9 at ${rounds} random moments of enrollments`, async (t) => {
  const directory = temporaryDirectory(t);
  const random = dice(Number(process.env.TEST_SEED ?? 38));
  let server = await startProcess(t, directory, env);
  const { id, claimSecret } = await newGroup(server);
  const ask = (serialNumber: string): Promise<{ credential: Credential }> =>
    call(server, '/enroll', { method: 'POST', headers: basic(id, claimSecret), body: { serialNumber } });

  const faults: string[] = [];
  const all: Device[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const devices = Array.from({ length: devicesOfRound }, (_, n) => newDevice(`K-${round}-${n}`));
    all.push(...devices);
    // Two copies of each, again and again until the process is gone.
    const work = devices.flatMap((device) => [0, 1].map(() => askUntilGone(device, ask, server, random, faults)));
    await sleep(random() * 120);
    await server.stop('SIGKILL');
    await Promise.all(work);
    server = await startProcess(t, directory, env);
    await Promise.all(devices.map((device) => connectAfter(device, ask, server, faults)));
  }
  t.same(faults, []);
  const file = new Sqlite(`${directory}/registry.db`, { readonly: true });
  const count = (what: string) =>
    file.prepare(`SELECT ${what} FROM "devices" WHERE "serialNumber" LIKE 'K-%'`).pluck().get();
  t.equal(count('count(*)'), all.length);
  t.equal(count('count(DISTINCT "serialNumber")'), all.length);
  t.equal(file.prepare('SELECT "enrolledCount" FROM "enrollmentGroups"').pluck().get(), all.length);
  file.close();
  await server.stop('SIGTERM');
});

t.test('a connection that enrolls and does not ask ends after a minute', async (t) => {
  const server = await startProcess(t, temporaryDirectory(t), env);
  const { id, claimSecret } = await newGroup(server);
  const how = { username: `enroll/${id}`, password: claimSecret, reconnectPeriod: 0, keepalive: 10 };
  const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${server.mqttPort}`, how, false);
  const from = performance.now();
  await new Promise<void>((resolve) => client.once('close', () => resolve()));
  const seconds = (performance.now() - from) / 1000;
  t.ok(seconds > 59 && seconds < 75, `${seconds} s`);
  await server.stop('SIGTERM');
});

async function newGroup(server: Running): Promise<{ id: string; claimSecret: string }> {
  const headers = { authorization: `Bearer ${await login(server)}` };
  const { deviceTemplates } = await call(server, `/devices/templates?accountId=${accountId}&default=true`, { headers });
  const deviceTemplateId = deviceTemplates.results[0].id;
  const body = { accountId, name: 'kills', proof: 'claimSecret', deviceTemplateId };
  return (await call(server, '/enrollment-groups', { method: 'POST', headers, body })).enrollmentGroup;
}

function newDevice(serialNumber: string): Device {
  return { serialNumber, credential: undefined, lost: 0 };
}

type Ask = (serialNumber: string) => Promise<{ credential: Credential }>;

/** Asks and connects, until the server is gone or the device has connected. */
async function askUntilGone(device: Device, ask: Ask, server: Running, random: () => number, faults: string[]) {
  try {
    await sleep(random() * 60);
    if (device.credential) return;
    device.lost += 1;
    const { credential } = await ask(device.serialNumber);
    device.lost -= 1;
    device.credential = credential;
    if (device.lost > 0) return;
    const refusal = await connect(server, credential);
    if (refusal) faults.push(`${device.serialNumber}: ${refusal}`);
  } catch {
    // The server is gone.
  }
}

/** After the restart: what was answered connects, and what was not is asked for again. */
async function connectAfter(device: Device, ask: Ask, server: Running, faults: string[]): Promise<void> {
  const mustConnect = device.credential !== undefined && device.lost === 0;
  const refusal = device.credential ? await connect(server, device.credential) : 'not answered';
  if (refusal === undefined) return;
  if (mustConnect) faults.push(`${device.serialNumber}: ${refusal} after the restart`);
  device.credential = (await ask(device.serialNumber)).credential;
  const again = await connect(server, device.credential);
  if (again) faults.push(`${device.serialNumber}: ${again} when it had asked again`);
}

/** Why a credential was refused by CONNACK; undefined when it connects. @throws Error when the server is gone. */
async function connect({ mqttPort }: Running, { username, secret: password }: Credential): Promise<string | undefined> {
  const how = { username, password, reconnectPeriod: 0 };
  const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${mqttPort}`, how, false).catch((error) => {
    if (typeof error.code === 'number') return `refused with ${error.code}`;
    throw error;
  });
  if (typeof client === 'string') return client;
  await client.endAsync(true);
  return undefined;
}

async function login(server: Running): Promise<string> {
  const body = { accountId, emailAddress: adminEmail, password: adminPassword };
  return (await call(server, '/auth/login-user', { method: 'POST', body })).jwt;
}

interface Call {
  method?: string;
  headers?: Record<string, string>;
  body?: object;
}

async function call({ url }: Running, path: string, { method = 'GET', headers = {}, body }: Call) {
  const response = await fetch(`${url}/api/v1${path}`, {
    method,
    headers: { ...headers, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${await response.text()}`);
  // biome-ignore lint/suspicious/noExplicitAny: answers of many forms
  return (await response.json()) as any;
}
