/** Whatever breaks off in the middle, every unit is made once, and every secret that was written works. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import mqtt from 'mqtt';
import t, { type Test } from 'tap';
import { devicesOf, Station, serials } from '../factory/command.ts';
import { flakyProxy, seeded } from '../factory/flaky.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { cliFile, launch, plainNode, startProcess } from '../support/process.ts';
import { adminEmail, adminPassword, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

/** Every serial number is a device once, and a file whose secret works. */
async function demandAll(t: Test, service: Service, station: Station, wanted: string[], prefix: string) {
  t.strictSame(
    (await devicesOf(service)).filter((one) => one.startsWith(prefix)),
    wanted,
  );
  const units = station.units();
  t.strictSame(units.map(({ serialNumber }) => serialNumber).sort(), wanted);
  let connected = 0;
  for (const { deviceId, secret } of units) {
    const client = await service.connect({ deviceId, secret });
    connected += client.connected ? 1 : 0;
    client.end(true);
  }
  t.equal(connected, wanted.length, 'every secret works');
  t.notOk(station.names().some((name) => name.endsWith('.partial')));
}

t.test('the command is killed at any moment and run again', async (t) => {
  const service = await sharedService(t);
  const station = new Station(t, service);
  const rows = serials(45, 'KILL');
  const csv = station.csv(rows);
  const args = [
    'provision',
    '--csv',
    csv,
    '--format',
    'esp-nvs-csv',
    '--out',
    station.out,
    '--chunk-rows',
    '15',
    '--labels',
    ...(await station.broker()),
  ];
  const random = seeded(20_261_121);
  let killed = 0;
  for (let round = 0; round < 5; round += 1) {
    const env = { PATH: process.env.PATH, ...station.environment };
    const child = spawn('env', [...plainNode, cliFile, ...args], { env, stdio: 'ignore' });
    const ended = once(child, 'exit');
    // The time is what is tested: a kill at any moment from the first request on.
    const kill = delay(150 + 350 * random()).then(() => child.kill('SIGKILL'));
    const [code] = await ended;
    await kill;
    if (code === null) killed += 1;
    if (code === 0) break;
  }
  t.ok(killed > 0, `killed ${killed} times`);
  const { code, stderr } = await station.run(...args);
  t.equal(code, 0, stderr);
  await demandAll(
    t,
    service,
    station,
    rows.map(({ serialNumber }) => serialNumber),
    'KILL',
  );
  t.equal(station.names('labels').length, rows.length);
});

t.test('the command for one unit is killed at any moment and run again', async (t) => {
  const service = await sharedService(t);
  const random = seeded(5);
  /** Pieces of requests and answers that still pass before the kill; some of a unit's are followed by its files alone. */
  let left = 0;
  let kill = () => {};
  const proxy = await flakyProxy(
    t,
    () => service.server.url,
    () => {
      left -= 1;
      if (left === 0) kill();
      return false;
    },
  );
  const station = new Station(t, service, { SLIPWAY_URL: proxy.url });
  const names = serials(20, 'KILLONE').map(({ serialNumber }) => serialNumber);
  const broker = await station.broker();
  let [made, killed] = [0, 0];
  for (let round = 0; round < 9; round += 1) {
    const unit = ['--serial', names[made] ?? '', '--format', 'esp-nvs-csv', '--out', station.out, ...broker];
    const env = { PATH: process.env.PATH, ...station.environment };
    const args = [...plainNode, cliFile, 'provision', 'one', ...unit];
    const child = spawn('env', args, { env, stdio: 'ignore' });
    const ended = once(child, 'exit');
    // The time is what is tested: the kill comes a moment after a piece has passed, so it also hits the writing of files.
    const pause = 8 * random();
    kill = () => {
      setTimeout(() => child.kill('SIGKILL'), pause);
    };
    left = 1 + Math.floor(12 * random());
    const [code] = await ended;
    if (code === null) killed += 1;
    else if (code === 0) made += 1;
  }
  kill = () => {};
  t.ok(killed > 3 && made > 0, `killed ${killed} times, and ${made} units were made`);
  const wanted = names.slice(0, made + 1);
  const { code, stderr } = await station.provision(station.csv(wanted.map((serialNumber) => ({ serialNumber }))));
  t.equal(code, 0, stderr);
  await demandAll(t, service, station, wanted, 'KILLONE');
});

t.test('answers and requests get lost, many units and one', async (t) => {
  const service = await sharedService(t);
  const random = seeded(7);
  const proxy = await flakyProxy(
    t,
    () => service.server.url,
    () => random() < 0.15,
  );
  const station = new Station(t, service, { SLIPWAY_URL: proxy.url });
  const rows = serials(40, 'LOST');
  const more = ['--chunk-rows', '10', '--concurrency', '3'];
  const { code, stderr } = await station.provision(station.csv(rows), ...more);
  t.equal(code, 0, stderr);
  const ones = serials(3, 'LOSTONE');
  for (const { serialNumber } of ones) {
    const one = ['provision', 'one', '--serial', serialNumber, '--format', 'esp-nvs-csv', '--out', station.out];
    const ended = await station.run(...one);
    t.equal(ended.code, 0, ended.stderr);
  }
  t.ok(proxy.broken() > 3, `${proxy.broken()} connections broke`);
  t.equal((await station.provision(station.csv(rows), ...more)).code, 0, 'the index names all');
  const all = [...rows, ...ones].map(({ serialNumber }) => serialNumber).sort();
  await demandAll(t, service, station, all, 'LOST');
});

t.test('the server is killed and comes back: one run ends well', async (t) => {
  const directory = temporaryDirectory(t);
  const first = await startProcess(t, directory);
  let url = first.url;
  const { url: address } = await flakyProxy(
    t,
    () => url,
    () => false,
  );
  const [, accountId = ''] = /account {3}(\S+)/.exec(first.output()) ?? [];
  const body = JSON.stringify({ accountId, emailAddress: adminEmail, password: adminPassword });
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(`${first.url}/api/v1/auth/login-user`, { method: 'POST', headers, body });
  const { jwt: admin } = (await answer.json()) as { jwt: string };
  const station = new Station(t, { server: { url: address }, admin } as unknown as Service);
  const rows = serials(40, 'SERVER');
  const running = station.provision(
    station.csv(rows),
    '--chunk-rows',
    '10',
    '--concurrency',
    '1',
    '--broker',
    'mqtt://units.test',
  );
  // Another process writes the journal, and sends no event.
  while (!station.names().includes('journal.ndjson') || !station.read('journal.ndjson').includes('"written"'))
    await delay(10);
  await first.stop('SIGKILL');
  const { child, listening } = launch(directory);
  t.teardown(() => child.kill('SIGKILL'));
  const second = await listening;
  url = second.url;
  const { code, stderr } = await running;
  t.equal(code, 0, stderr);
  const list = await fetch(`${url}/api/v1/devices?accountId=${accountId}&pageSize=1000`, {
    headers: { authorization: `Bearer ${admin}` },
  });
  const { devices } = (await list.json()) as { devices: { results: Array<{ serialNumber: string }> } };
  const wanted = rows.map(({ serialNumber }) => serialNumber);
  t.strictSame(devices.results.map(({ serialNumber }) => serialNumber).sort(), wanted);
  t.strictSame(
    station
      .units()
      .map(({ serialNumber }) => serialNumber)
      .sort(),
    wanted,
  );
  for (const { deviceId, secret } of station.units()) {
    const broker = `mqtt://127.0.0.1:${second.mqttPort}`;
    const client = await mqtt.connectAsync(broker, { username: deviceId, password: secret, reconnectPeriod: 0 });
    client.end(true);
  }
});
