/** `slipway provision one`: one unit for one cycle of the line. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { statSync, writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Test } from 'tap';
import type { Client } from '../../cli/line/client.ts';
import { Journal } from '../../cli/line/journal.ts';
import { readAddresses } from '../../cli/line/line.ts';
import { runCommand } from '../support/command.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { devicesOf, Station } from './command.ts';
import { nvsText, readNvs } from './nvs.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await startService(t, { env: { SLIPWAY_CLAIM_URL: 'https://claim.example.com/start?via=label' } });
});

const one = (station: Station, serial: string, ...more: string[]) =>
  station.run('provision', 'one', '--serial', serial, '--format', 'esp-nvs-csv', '--out', station.out, ...more);

t.test('a unit is made with its fields, in its place, and connects; asked for again it is the same', async (t) => {
  const template = await service.template({ channels: ['readings'] });
  const { name: organization, id: organizationId } = await service.organization();
  const station = new Station(t, service);
  const place = ['--template', template.name, '--organization', organization, '--field', 'name=a=b', '--labels'];
  const { code, stdout, stderr } = await one(station, 'ONE-1', ...place);
  t.equal(code, 0, stderr);
  const file = join(station.out, 'ONE-1.csv');
  t.equal(stdout, `${file}\n`);
  t.equal(statSync(file).mode & 0o077, 0);
  const nvs = readNvs(station.read('ONE-1.csv'));
  const [deviceId = '', secret = ''] = [nvsText(nvs, 'slipway/username'), nvsText(nvs, 'slipway/password')];
  const client = await service.connect({ deviceId, secret });
  await client.publishAsync(nvsText(nvs, 'slipway_topics/readings') ?? '', ',temperature,21,', { qos: 1 });
  const { device } = await service.ok('GET', `/api/v1/devices/${deviceId}`);
  t.match(device, { serialNumber: 'ONE-1', name: 'a=b', organizationId, deviceTemplateId: template.id });
  t.match(station.read('labels/ONE-1.svg'), '>ONE-1</text>');
  const again = await one(station, 'ONE-1', ...place, '--json');
  t.strictSame(JSON.parse(again.stdout), {
    serialNumber: 'ONE-1',
    deviceId,
    file,
    label: join(station.out, 'labels/ONE-1.svg'),
  });
  t.notMatch(station.read('journal.ndjson') + stdout + again.stdout, secret);
  t.match((await one(station, 'ONE-1', ...place, '--print')).stdout, secret, 'only when it is asked for');
});

/** The line of a station that makes units of a template in an organization. */
async function stationOf(t: Test, deviceTemplateId: string, organizationId: string): Promise<Station> {
  const { id, appToken } = await service.create('/applications', 'application', {
    ...{ name: service.unique('Line'), kind: 'station', deviceTemplateId, organizationId },
    ...{ maxDevices: 10, expiresAt: '2099-01-01T00:00:00Z' },
  });
  const { accountId } = service;
  return new Station(t, service, { SLIPWAY_TOKEN: appToken, SLIPWAY_APP_ID: id, SLIPWAY_ACCOUNT_ID: accountId });
}

t.test('a station names its own template and organization, by name or by id, and no other', async (t) => {
  const [template, other] = [await service.template(), await service.template()];
  const [organization, elsewhere] = [await service.organization(), await service.organization()];
  const station = await stationOf(t, template.id, organization.id);
  const named = await one(station, 'NAMED-1', '--template', template.name, '--organization', organization.name);
  t.match(named, { code: 0, stderr: '' });
  t.equal((await one(station, 'NAMED-2', '--template', template.id, '--organization', organization.id)).code, 0);
  const { devices } = await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&serialNumber=NAMED`);
  const place = { deviceTemplateId: template.id, organizationId: organization.id };
  t.match(devices.results, [place, place]);
  for (const [flag, value] of [
    ['--template', other.name],
    ['--template', other.id],
    ['--organization', elsewhere.name],
  ] as const) {
    const refused = await one(station, 'NAMED-3', flag, value, '--field', 'colour=red');
    t.match(refused, { code: 2, stderr: `(${flag} ${value})` }, `${flag} ${value}`);
    t.notMatch(refused.stderr, 'trying again', 'nor does any other call');
  }
});

t.test(
  'of a place and a field that are refused it is the place that is named, whichever answer comes first',
  async (t) => {
    const other = await service.template();
    const station = await stationOf(t, (await service.template()).id, (await service.organization()).id);
    for (const late of ['/provisioning/addresses?template', '/provisioning/jobs']) {
      const proxy = await delayingProxy(t, service, late);
      const behind = new Station(t, service, { ...station.env, SLIPWAY_URL: proxy });
      const refused = await one(behind, 'LATE-1', '--template', other.id, '--field', 'colour=red');
      t.match(refused, { code: 2, stderr: `(--template ${other.id})` }, `${late} answers last`);
    }
  },
);

/** In front of the service: what is asked of `late` goes on once another answer has been sent. */
async function delayingProxy(t: Test, { server }: Service, late: string): Promise<string> {
  let answered = () => {};
  const another = new Promise<void>((resolve) => {
    answered = resolve;
  });
  const proxy = createServer((asked, reply) => {
    const pass = () => {
      const { method, url, headers } = asked;
      const passed = request(server.url + url, { method, headers }, (answer) => {
        reply.writeHead(answer.statusCode ?? 500, answer.headers);
        answer.pipe(reply);
        if (/addresses\?template|jobs/.test(url ?? '')) reply.once('finish', answered);
      });
      asked.pipe(passed);
    };
    if (asked.url?.includes(late)) void another.then(pass);
    else pass();
  });
  await once(proxy.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => {
    proxy.closeAllConnections();
    proxy.close();
  });
  return `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
}

t.test('a name that several have is refused', async (t) => {
  for (const _ of [1, 2]) await service.organization({ name: 'Twin' });
  const refused = await one(new Station(t, service), 'TWIN-1', '--organization', 'Twin');
  t.match(refused, { code: 2, stderr: /several entities.*\(--organization Twin\)/ });
});

t.test('units are not told to connect to their own machine, unless --broker says so', async (t) => {
  const station = new Station(t, service);
  const made = ['--format', 'env', '--out', station.out];
  const csv = station.csv([{ serialNumber: 'OWN-1' }]);
  const commands = [
    ['provision', 'one', '--serial', 'OWN-1', ...made],
    ['provision', '--csv', csv, ...made],
  ];
  for (const command of commands) {
    const refused = await runCommand(command, station.environment);
    t.match(refused, { code: 2, stderr: /mqtt:\/\/127\.0\.0\.1:\d+.* --broker .* SLIPWAY_MQTT_PUBLIC_URL/ });
  }
  t.notOk((await devicesOf(service)).includes('OWN-1'));
  const given = ['--broker', 'mqtt://localhost:1883'];
  for (const command of commands) t.equal((await runCommand([...command, ...given], station.environment)).code, 0);
  t.match(station.read('OWN-1.env'), 'localhost');
});

t.test(
  'a server on all addresses, or with a public address of its own, is told from one on this machine',
  async (t) => {
    const cases: Array<[broker: string, code: number]> = [
      ['mqtt://0.0.0.0:1883', 2],
      ['mqtt://[::]:1883', 2],
      ['mqtt://[::1]:1883', 2],
      ['mqtt://localhost:1883', 2],
      ['mqtts://127.1.2.3:8883', 2],
      ['mqtt://127.example.com:1883', 0],
      ['mqtts://things.example.com:8883', 0],
    ];
    for (const [broker, code] of cases) {
      const client = { ok: async () => ({ provisioning: { broker, claimUrl: '' } }) } as unknown as Client;
      const found = await readAddresses(client, undefined).then(
        () => 0,
        () => 2,
      );
      t.equal(found, code, broker);
    }
  },
);

t.test('a serial number that is there already, made elsewhere, is not made twice', async (t) => {
  await service.create('/devices', 'device', { serialNumber: 'THERE-1' });
  const station = new Station(t, service);
  t.match(await one(station, 'THERE-1'), { code: 1, stderr: /has this serial number already/ });
  t.equal((await one(station, 'THERE')).code, 0, 'a part of it is another one');
  t.equal((await devicesOf(service)).filter((serial) => serial.startsWith('THERE')).length, 2);
});

t.test('a unit that cannot be made says why, and can be made afterwards', async (t) => {
  const station = new Station(t, service);
  t.match(await one(station, 'BAD-1', '--field', 'latitude=north'), { code: 1, stderr: /latitude must be a number/ });
  t.match(await one(station, 'BAD-1', '--field', 'latitude'), { code: 2, stderr: /name=value/ });
  t.match(await one(station, 'BAD-1', '--field', 'colour=red'), { code: 2, stderr: /colour is not a known column/ });
  t.match(await one(station, 'BAD-1', '--field', 'organizationId=x'), { code: 2, stderr: /flag of its own/ });
  t.match(await station.run('verify', '--serial', '--help'), { code: 2, stderr: /serial/ });
  t.match(await station.run('verify', '--serial=--help'), { code: 1, stderr: /no such unit/ });
  t.match(await one(station, '  '), { code: 2, stderr: /--serial must not be empty/ });
  t.match(await one(station, 'x'.repeat(256)), { code: 2, stderr: /at most 255/ });
  t.match(await one(station, 'BAD-1', '--template', 'none'), { code: 2, stderr: /template .*\(--template none\)/ });
  t.match(await one(station, 'BAD\t1'), { code: 2, stderr: /control characters/ });
  t.equal((await one(station, '\u00a0BAD-1 \ufeff', '--field', 'latitude=12')).code, 0);
  t.ok((await devicesOf(service)).includes('BAD-1'), 'trimmed, as a cell is');
});

t.test('a unit begun three days ago goes on with the device that was made then', async (t) => {
  const station = new Station(t, service);
  await service.create('/devices', 'device', { serialNumber: 'OLD-1' });
  const time = new Date(Date.now() - 71 * 60 * 60 * 1000).toISOString();
  const journal = await Journal.open(station.out);
  await journal.append({ type: 'settings', accountId: service.accountId, format: 'esp-nvs-csv', labels: 'none' });
  const rows = [{ serialNumber: 'OLD-1', file: 'OLD-1', fields: {} }];
  await journal.append({ type: 'chunk', key: 'old-key', time, by: 'unit', rows });
  await journal.close();
  t.equal((await one(station, 'OLD-1')).code, 0);
  t.equal((await devicesOf(service)).filter((serial) => serial === 'OLD-1').length, 1);
  const nvs = readNvs(station.read('OLD-1.csv'));
  await service.connect({
    deviceId: nvsText(nvs, 'slipway/username') ?? '',
    secret: nvsText(nvs, 'slipway/password') ?? '',
  });
});

t.test('a certificate that a program makes for the device goes onto the unit with its key', async (t) => {
  const station = new Station(t, service);
  const program = join(station.directory, 'certify.sh');
  const make = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" 2>/dev/null';
  const write = (script: string) => writeFileSync(program, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  write('echo The CA is locked >&2; exit 1');
  const failing: Array<[string, RegExp]> = [
    ['/bin/true', /no certificate and key for CERT-1/],
    [program, /certify\.sh has failed for CERT-1: .*\nThe CA is locked\n$/],
  ];
  for (const [name, stderr] of failing) t.match(await one(station, 'CERT-1', '--certify', name), { code: 3, stderr });
  write(`openssl ${make} -keyout /dev/null; openssl genpkey -algorithm ed25519`);
  const strange = await one(station, 'CERT-1', '--certify', program);
  t.match(strange, { code: 3, stderr: /a key for CERT-1 that do not belong together/ });
  write(`openssl ${make} -keyout -`);
  t.equal((await one(station, 'CERT-1', '--certify', program)).code, 0);
  const nvs = readNvs(station.read('CERT-1.csv'));
  const deviceId = nvsText(nvs, 'slipway/username');
  const certificate = new X509Certificate(nvsText(nvs, 'slipway/client_cert') ?? '');
  t.equal(certificate.subject, `CN=${deviceId}`);
  t.ok(certificate.checkPrivateKey(createPrivateKey(nvsText(nvs, 'slipway/client_key') ?? '')));
});

t.test('verify says what was missing, or that nothing was', async (t) => {
  const station = new Station(t, service);
  const template = await service.template({ channels: ['readings'] });
  const { device, secret } = await service.device({ serialNumber: 'SEEN-1', deviceTemplateId: template.id });
  const verify = () => station.run('verify', '--serial', 'SEEN-1', '--timeout', '0');
  t.match(await verify(), { code: 1, stdout: 'SEEN-1 failed: it does not connect\n', stderr: /has not passed/ });
  const client = await service.connect({ deviceId: device.id, secret });
  t.match(await verify(), { code: 1, stdout: 'SEEN-1 failed: it connects, and has published nothing\n' });
  await client.publishAsync(service.topic(device.id, 'readings'), ',temperature,21,', { qos: 1 });
  const passing = ['verify', '--device', device.id, '--timeout', '30'];
  t.match(await station.run(...passing), { code: 0, stdout: `${device.id} passed: it connects and publishes\n` });
  await client.endAsync();
  t.match(await verify(), { code: 1, stdout: 'SEEN-1 failed: it has published, is not connected now\n' });
});

t.test('where units connect and are claimed is told to who may make codes', async (t) => {
  const { provisioning } = await service.ok('GET', '/api/v1/provisioning/addresses');
  t.strictSame(provisioning, {
    broker: `mqtt://127.0.0.1:${service.server.mqttPort}`,
    claimUrl: 'https://claim.example.com/start?via=label',
  });
  const { token } = await service.endUser((await service.organization()).id);
  t.equal((await service.http('GET', '/api/v1/provisioning/addresses', { token })).status, 403);
});

t.end();
