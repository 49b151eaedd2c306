/** A mixed fleet, played by the simulator, with power losses, bad hashes and a server that is killed: every end is true. */

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { temporaryDirectory } from '../support/directory.js';
import { inherited, launch, plainNode } from '../support/process.js';
import { adminEmail, adminPassword, type Json, startService } from '../support/service.js';
import { devices, publish } from './fleet.js';

const ways = ['http', 'json', 'cbor'];
const count = 60;

t.test(`${count} devices update in stages while the server is killed twice`, async (t) => {
  const directory = temporaryDirectory(t);
  const service = await startService(t, { directory });
  const template = await service.template();
  const made = await devices(service, template.id, count);
  const firmware = await publish(service, template.id, '2.0', { 'app.bin': randomBytes(30_000) });
  const { accountId } = service;
  await service.close();

  const ports = { SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0' };
  let running = await launch(directory, ports).listening;
  // The ports stay, so that devices find the server again.
  const fixed = { SLIPWAY_HTTP_PORT: new URL(running.url).port, SLIPWAY_MQTT_PORT: String(running.mqttPort) };
  t.teardown(() => running.child.kill('SIGKILL'));
  const restart = async () => {
    await running.stop('SIGKILL');
    running = await launch(directory, fixed).listening;
  };
  const call = async (method: string, path: string, token?: string, body?: object): Promise<Json> => {
    const headers = { 'content-type': 'application/json', ...(token && { authorization: `Bearer ${token}` }) };
    const response = await fetch(`${running.url}/api/v1${path}`, {
      method,
      headers,
      ...(body && { body: JSON.stringify(body) }),
    });
    return response.json();
  };
  const login = { emailAddress: adminEmail, password: adminPassword, accountId };
  const { jwt } = await call('POST', '/auth/login-user', undefined, login);
  const stages = [{ percent: 5, pauseSeconds: 1 }, { percent: 30, pauseSeconds: 1 }, { percent: 100 }];
  const target = { filter: { deviceTemplateId: template.id } };
  const wanted = { accountId, firmwarePackageId: firmware.id, target, stages, maxFailurePercent: 100 };
  const { firmwareRollout } = await call('POST', '/firmware/rollouts', jwt, wanted);

  const fleet = made.map((device, n) => ({
    ...device,
    way: ways[n % 3],
    ...(n % 20 === 7 && { fail: true }),
    ...(n % 5 === 1 && { losePowerAt: 40 }),
  }));
  const file = join(temporaryDirectory(t), 'devices.ndjson');
  const simulator = join(process.cwd(), 'examples/device-simulator/simulator.mjs');
  const where = ['--url', running.url, '--mqtt', `mqtt://127.0.0.1:${running.mqttPort}`, '--account', accountId];
  const said = new Map<string, string>();
  /** Switches these devices on; `ended` resolves when the program of the last one has ended. */
  const play = (devices: typeof fleet) => {
    writeFileSync(file, devices.map((one) => JSON.stringify(one)).join('\n'));
    const child = spawn('env', [...plainNode, simulator, ...where, '--devices', file], {
      env: inherited,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    t.teardown(() => child.kill('SIGKILL'));
    let rest = '';
    child.stdout.on('data', (chunk) => {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        const { id, state } = JSON.parse(line);
        said.set(id, state);
      }
    });
    return { child, ended: once(child, 'close') };
  };
  const { child, ended } = play(fleet);
  for (const share of [2, 20]) {
    while (said.size < share) await once(child.stdout, 'data');
    await restart();
  }
  await ended;
  // A device whose program gave up while the server was away is switched on again, as its owner would.
  const silent = fleet.filter(({ id }) => !said.has(id));
  if (silent.length > 0) await play(silent).ended;
  t.equal(said.size, count, 'every device has come to an end');
  const { devices: rows } = await call('GET', `/firmware/rollouts/${firmwareRollout.id}/devices?pageSize=1000`, jwt);
  const stored = new Map(rows.results.map(({ deviceId, state }: Json) => [deviceId, state]));
  const wrong = fleet.filter(({ id, fail }) => stored.get(id) !== (fail ? 'failed' : 'succeeded'));
  t.same(wrong, [], 'and each state is true');
  const read = await call('GET', `/firmware/rollouts/${firmwareRollout.id}`, jwt);
  t.match(read.firmwareRollout, { state: 'finished', counts: { succeeded: 57, failed: 3 } });
});
