/** What the tests of whole fleets share: a server that can be killed, and devices that the simulator plays. */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { temporaryDirectory } from '../../support/directory.ts';
import { inherited, launch, plainNode, type Running } from '../../support/process.ts';
import { type Anything, adminEmail, adminPassword, startService } from '../../support/service.ts';
import { type Device, devices as makeDevices, type Published, publish } from '../fleet.ts';

/** A device as the simulator plays it. */
export interface Played extends Device {
  way: string;
  fail?: boolean;
  slow?: boolean;
  losePowerAt?: number;
  disconnectAt?: number;
}

/** A server as a process of its own, on a directory that has devices already. Its ports stay over restarts. */
export interface Killable {
  running(): Running;
  /** As an admin, with a path after /api/v1. @throws Error for any answer but 2xx. */
  call(method: string, path: string, body?: object): Promise<Anything>;
  /** Kills it with `kill -9` and starts it again. */
  kill(): Promise<void>;
}

/** A server whose account has groups of devices, each of a template of its own with a published package. */
export interface Ground {
  server: Killable;
  accountId: string;
  groups: Group[];
}

export interface Group {
  templateId: string;
  devices: Device[];
  firmware: Published;
}

export async function startGround(t: Test, counts: readonly number[]): Promise<Ground> {
  const directory = temporaryDirectory(t);
  const service = await startService(t, { directory });
  const groups: Group[] = [];
  for (const count of counts) {
    const { id: templateId } = await service.template();
    const firmware = await publish(service, templateId, '2.0', { 'app.bin': randomBytes(30_000) });
    groups.push({ templateId, firmware, devices: await makeDevices(service, templateId, count) });
  }
  const { accountId } = service;
  await service.close();
  return { server: await startKillable(t, directory, accountId), accountId, groups };
}

async function startKillable(t: Test, directory: string, accountId: string): Promise<Killable> {
  const limits = { SLIPWAY_HTTP_MAX_CONNECTIONS_PER_ADDRESS: '0', SLIPWAY_MQTT_MAX_CONNECTIONS_PER_ADDRESS: '0' };
  let running = await launch(directory, limits).listening;
  const ports = { SLIPWAY_HTTP_PORT: new URL(running.url).port, SLIPWAY_MQTT_PORT: String(running.mqttPort) };
  t.teardown(() => running.child.kill('SIGKILL'));
  let token = '';
  const call = async (method: string, path: string, body?: object) => {
    const headers = { 'content-type': 'application/json', ...(token && { authorization: `Bearer ${token}` }) };
    const request = { method, headers, ...(body && { body: JSON.stringify(body) }) };
    const response = await fetch(`${running.url}/api/v1${path}`, request);
    if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${await response.text()}`);
    return (await response.json()) as Anything;
  };
  const login = { emailAddress: adminEmail, password: adminPassword, accountId };
  token = (await call('POST', '/auth/login-user', login)).jwt;
  const kill = async () => {
    await running.stop('SIGKILL');
    running = await launch(directory, { ...limits, ...ports }).listening;
  };
  return { running: () => running, call, kill };
}

/** Switches devices on. `said` fills with how each update has ended; `ended` resolves when all have. */
export function play(
  t: Test,
  server: Killable,
  accountId: string,
  devices: readonly Played[],
): { child: ChildProcess; said: Map<string, string>; ended: Promise<unknown>; until(count: number): Promise<void> } {
  const file = join(temporaryDirectory(t), 'devices.ndjson');
  writeFileSync(file, devices.map((one) => JSON.stringify(one)).join('\n'));
  const { url, mqttPort } = server.running();
  const where = ['--url', url, '--mqtt', `mqtt://127.0.0.1:${mqttPort}`, '--account', accountId, '--devices', file];
  const simulator = join(process.cwd(), 'examples/device-simulator/simulator.mjs');
  const child = spawn('env', [...plainNode, simulator, ...where], {
    env: inherited,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  const said = new Map<string, string>();
  let rest = '';
  child.stdout.on('data', (chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const { id, state } = JSON.parse(line);
      said.set(id, state);
    }
  });
  const until = async (count: number) => {
    while (said.size < count) await once(child.stdout, 'data');
  };
  return { child, said, ended: once(child, 'close'), until };
}
