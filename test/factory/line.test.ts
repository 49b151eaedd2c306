/** `slipway provision`: from a CSV file to units that connect with exactly what is in their files. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, rmdirSync, statSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import mqtt from 'mqtt';
import type { Client } from '../../cli/line/client.ts';
import { Journal } from '../../cli/line/journal.ts';
import { deliver, readFileOptions } from '../../cli/line/line.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { cliFile } from '../support/process.ts';
import { type Made, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { devicesOf, Station, serials } from './command.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

t.test('every unit of a file connects with what is in its flash file, and publishes on its topic', async (t) => {
  const template = await service.template({ channels: ['readings'] });
  const { name: organization, id: organizationId } = await service.organization();
  const station = new Station(t, service);
  const csv = station.csv(serials(5, 'TCP').map((row, at) => ({ ...row, name: `unit, "${at}"` })));
  const place = ['--template', template.name, '--organization', organization];
  const { code, stdout } = await station.provision(csv, ...place, '--labels');
  t.equal(code, 0);
  t.equal(stdout, '5 rows: 5 done (5 now), 0 failed, 0 open\n');
  const units = station.units();
  t.strictSame(
    units.map(({ serialNumber }) => serialNumber),
    serials(5, 'TCP').map(({ serialNumber }) => serialNumber),
  );
  for (const { deviceId, secret, broker } of units) {
    const client = await mqtt.connectAsync(broker, { username: deviceId, password: secret, reconnectPeriod: 0 });
    await client.publishAsync(service.topic(deviceId, 'readings'), ',temperature,21,', { qos: 1 });
    await client.endAsync();
  }
  const { device } = await service.ok('GET', `/api/v1/devices/${units[1]?.deviceId}`);
  t.match(device, { organizationId, deviceTemplateId: template.id, name: 'unit, "1"', provisioningState: 'activated' });
  t.strictSame(
    station.names('labels'),
    serials(5, 'TCP').map(({ serialNumber }) => `${serialNumber}.svg`),
  );
  const label = station.read('labels/TCP-0001.svg');
  t.match(label, '>TCP-0001</text>');
  t.notMatch(label, units[0]?.secret ?? '-');
});

t.test('a token that has expired while nobody used its session is renewed by the command itself', async (t) => {
  const time = { now: Date.now() };
  const resting = await startService(t, { clock: { now: () => time.now } });
  const station = new Station(t, resting);
  const csv = station.csv(serials(1, 'RESTED'));
  time.now += 3 * 3_600_000;
  const list = `/api/v1/devices?accountId=${resting.accountId}`;
  const { admin: token } = resting;
  // A token in its own words: the service of tests renews the one of the admin by itself.
  const ask = () => fetch(resting.server.url + list, { headers: { authorization: `Bearer ${token}` } });
  t.equal((await ask()).status, 401);
  t.match(await station.provision(csv), { code: 0, stdout: '1 row: 1 done (1 now), 0 failed, 0 open\n' });
  const broker = await station.broker();
  await resting.ok('POST', '/api/v1/sessions/logout', { token });
  const refused = await station.provision(station.csv(serials(1, 'AFTER')), ...broker);
  t.match(refused, { code: 4, stderr: /The token is refused/ }, 'a session that is over is not');
});

t.test('run again it does nothing; a changed file leaves what is done and makes what is new', async (t) => {
  const station = new Station(t, service);
  t.equal((await station.provision(station.csv(serials(3, 'AGAIN')))).code, 0);
  const [first] = station.units();
  const { stdout } = await station.provision(station.csv(serials(3, 'AGAIN')), '--json');
  t.strictSame(JSON.parse(stdout), { rows: 3, done: 3, made: 0, failed: 0, open: 0 });
  const changed = station.csv(serials(4, 'AGAIN').map((row) => ({ ...row, name: 'changed' })));
  const again = await station.provision(changed, '--json');
  t.strictSame(JSON.parse(again.stdout), { rows: 4, done: 4, made: 1, failed: 0, open: 0 });
  t.strictSame(station.units()[0], first);
  const said = /^3 done before with another --broker, --ca or --template: they stay as they are\.$/m;
  const more = ['--broker', 'mqtt://elsewhere.example:1883'];
  const rerun = station.csv(serials(3, 'AGAIN'), 'few.csv');
  t.match(await station.provision(rerun, ...more), { code: 0, stderr: said });
  t.notMatch((await station.provision(rerun)).stderr, said);
  t.strictSame(station.units()[0], first);
  const dry = await station.run('provision', '--csv', changed, '--dry-run', '--out', station.out, '--json');
  t.match(JSON.parse(dry.stdout), { rows: 4, good: 4, failed: 0 }, 'a dry run knows them');
  t.equal((await devicesOf(service)).filter((one) => one.startsWith('AGAIN')).length, 4);
});

t.test('rows that fail are listed with the reason, and are made when their file is given again mended', async (t) => {
  const station = new Station(t, service);
  await service.create('/devices', 'device', { serialNumber: 'BAD-0004' });
  const rows = serials(4, 'BAD').map((row) => ({ ...row, latitude: row.serialNumber === 'BAD-0002' ? 'north' : '' }));
  const given = [...rows, { serialNumber: 'BAD-0001', latitude: '1' }, { serialNumber: '', latitude: '2' }];
  const { code, stderr } = await station.provision(station.csv(given));
  t.equal(code, 1);
  t.match(stderr, /4 rows failed: see .*out\/failed\.csv\./);
  const failed = station.read('failed.csv');
  t.match(failed, /^serialNumber,latitude,failedBecause\n/);
  t.match(failed, /^BAD-0002,north,latitude must be a number between -90 and 90$/m);
  t.match(
    failed,
    /^BAD-0004,,serialNumber Another device of the template has this serial number\. It is device [0-9a-f-]{36}\.$/m,
  );
  t.match(failed, /^BAD-0001,1,serialNumber is on line 2 too$/m);
  t.match(failed, /^,2,serialNumber is empty$/m);
  const mended = join(station.directory, 'mended.csv');
  const lines = failed.split('\n').filter((line) => /^serialNumber|^BAD-0002/.test(line));
  writeFileSync(mended, lines.join('\n').replace('north', '12'));
  t.equal((await station.provision(mended)).code, 0);
  t.notOk(station.names().includes('failed.csv'));
  t.strictSame(
    station.units().map(({ serialNumber }) => serialNumber),
    ['BAD-0001', 'BAD-0003', 'BAD-0002'],
  );
});

t.test('a file with semicolons or tabs is read as its header says, and its failed rows come back so', async (t) => {
  for (const [separator, first] of [
    [';', '\ufeffsep=;\r\n'],
    [';', ''],
    ['\t', ''],
  ]) {
    const station = new Station(t, service);
    const file = join(station.directory, 'german.csv');
    const serial = `DE-${Math.random()}`;
    const rows = [
      ['serialNumber', 'name', 'latitude'],
      [`${serial}-1`, `"Nord${separator}Süd"`, '12.5'],
      [`${serial}-2`, 'Länge, Breite', 'nord'],
    ].map((row) => row.join(separator));
    writeFileSync(file, first + rows.join('\r\n'));
    t.equal((await station.provision(file)).code, 1, JSON.stringify(separator));
    const failed = station.read('failed.csv').trimEnd().split('\n');
    t.strictSame(
      failed.map((line) => line.split(separator ?? '')),
      [
        ['serialNumber', 'name', 'latitude', 'failedBecause'],
        [`${serial}-2`, 'Länge, Breite', 'nord', 'latitude must be a number between -90 and 90'],
      ],
    );
    writeFileSync(file, failed.join('\n').replace('nord', '2'));
    t.equal((await station.provision(file)).code, 0, 'mended');
    const { devices } = await service.ok(
      'GET',
      `/api/v1/devices?accountId=${service.accountId}&serialNumber=${serial}`,
    );
    t.strictSame(devices.results.map(({ name, latitude }) => [name, latitude]).sort(), [
      ['Länge, Breite', '2'],
      [`Nord${separator}Süd`, '12.5'],
    ]);
  }
});

t.test('one row is no rows', async (t) => {
  const station = new Station(t, service);
  const csv = station.csv([{ serialNumber: 'SINGLE', latitude: 'north' }]);
  const stdout = '1 row: 0 done (0 now), 1 failed, 0 open\n';
  t.match(await station.provision(csv), { code: 1, stdout, stderr: /^1 row failed: see /m });
});

t.test('a dry run says what would fail, makes nothing and writes nothing', async (t) => {
  const station = new Station(t, service);
  const csv = station.csv([
    { serialNumber: 'DRY-1', latitude: '1' },
    { serialNumber: 'DRY-2', latitude: '91' },
  ]);
  const { code, stdout } = await station.run('provision', '--csv', csv, '--dry-run', '--json');
  const blank = station.csv([{ serialNumber: '', latitude: '1' }], 'blank.csv');
  const told = await station.run('provision', '--csv', blank, '--dry-run');
  t.match(told.stderr, /^line 2: serialNumber is empty$/m, 'a row without a name has its line');
  t.match(told.stderr, /no other machine can connect there/, 'and what a real run would refuse');
  t.equal(code, 1);
  t.match(JSON.parse(stdout), { dryRun: true, rows: 2, good: 1, failed: 1, errors: [{ serialNumber: 'DRY-2' }] });
  t.equal((await devicesOf(service)).filter((one) => one.startsWith('DRY')).length, 0);
  t.strictSame(station.names(), []);
});

t.test('a file of a spreadsheet is taken with its mark, quotes, blanks and cleared rows', async (t) => {
  const station = new Station(t, service);
  const csv = join(station.directory, 'sheet.csv');
  writeFileSync(csv, '\ufeffserialNumber,name\r\nSHEET-1,"a, ""b"""\r\n\u00a0SHEET-2 \u00a0,\r\n,\r\n"",""\r\n\r\n');
  t.match(await station.provision(csv), { code: 0, stdout: '2 rows: 2 done (2 now), 0 failed, 0 open\n' });
  const inside = station.csv([{ serialNumber: 'SHEET\u0007-3' }], 'inside.csv');
  t.match(await station.run('provision', '--csv', inside, '--dry-run'), { code: 1, stderr: /control characters/ });
  t.strictSame(
    station.units().map(({ serialNumber }) => serialNumber),
    ['SHEET-1', 'SHEET-2'],
  );
});

t.test('output that nobody reads any more changes no exit code', async (t) => {
  const station = new Station(t, service);
  const args = ['provision', '--csv', station.csv(serials(1, 'PIPE')), '--format', 'env', '--out', station.out];
  const child = spawn(process.execPath, [cliFile, ...args, ...(await station.broker())], {
    env: { PATH: process.env.PATH, ...station.environment },
  });
  child.stdout.destroy();
  child.stderr.destroy();
  t.strictSame(await once(child, 'exit'), [0, null]);
});

t.test('secrets are in the flash files alone, which are for their owner alone', async (t) => {
  const station = new Station(t, service);
  const { stdout, stderr } = await station.provision(station.csv(serials(2, 'SECRET')), '--labels', 'html');
  for (const name of station.names()) t.equal(statSync(join(station.out, name)).mode & 0o077, 0, name);
  const sheets = station.names('labels').map((name) => station.read(`labels/${name}`));
  t.match(sheets.join(''), /SECRET-0002/);
  const others = [stdout, stderr, station.read('journal.ndjson'), station.read('units.csv'), ...sheets];
  for (const { secret } of station.units()) for (const text of others) t.notMatch(text, secret);
  // A part of a UUID may look like one.
  const code = /(?<![\w-])[0-9A-Z]{4}-?[0-9A-Z]{4}-?[0-9A-Z]{4}(?![\w-])/;
  t.notMatch(station.read('journal.ndjson'), code, 'nor a code');
});

t.test('what a serial number holds stays in the directory, and no two share a file', async (t) => {
  const station = new Station(t, service);
  const nasty = ['../../evil', 'a', 'A', 'CON', '.hidden', '-rf', 'x/y', 'x y', "it's", 'é😀', 'Z'.repeat(200)];
  const { code } = await station.provision(station.csv(nasty.map((serialNumber) => ({ serialNumber }))));
  t.equal(code, 0);
  t.strictSame(
    station.units().map(({ serialNumber }) => serialNumber),
    nasty,
  );
  const lower = station.names().map((name) => name.toLowerCase());
  t.equal(new Set(lower).size, lower.length);
  t.equal(lower.length, nasty.length + 3, 'with the journal, its lock and the index');
});

t.test('a station of the account works with its appToken', async (t) => {
  const body = { accountId: service.accountId, name: 'Line 1', kind: 'backEnd' };
  const { application } = await service.ok('POST', '/api/v1/applications', { body });
  const env = { SLIPWAY_TOKEN: application.appToken, SLIPWAY_APP_ID: application.id };
  const station = new Station(t, service, { ...env, SLIPWAY_ACCOUNT_ID: service.accountId });
  t.equal((await station.provision(station.csv(serials(1, 'APP')))).code, 0);
  const other = new Station(t, service, { ...env, SLIPWAY_ACCOUNT_ID: '' });
  t.match(await other.provision(other.csv(serials(1, 'APP2'))), { code: 2, stderr: /SLIPWAY_ACCOUNT_ID/ });
});

t.test('the exit code says what a script has to do', async (t) => {
  const station = new Station(t, service);
  const good = station.csv(serials(1, 'EXIT'));
  const unknown = station.csv([{ serialNumber: 'EXIT-9', nmae: 'x' }], 'unknown.csv');
  const noSerial = station.csv([{ serial: 'EXIT-9' }], 'serial.csv');
  const file = (name: string, content: string | Buffer) => {
    writeFileSync(join(station.directory, name), content);
    return join(station.directory, name);
  };
  const latin = file('latin.csv', Buffer.from('serialNumber,name\nA,x\nB,M\xfcnchen\n', 'latin1'));
  const header = file('header.csv', 'serialNumber,name\n');
  const format = ['--format', 'env', '--out', 'DIRECTORY'];
  const cases: Array<[string[], number, RegExp]> = [
    [['provision', '--csv', good, ...format, '--nothing'], 2, /nothing/],
    [['provision', '--csv', `${good}x`, ...format], 2, /cannot be read/],
    [['provision', '--csv', noSerial, ...format], 2, /no column serialNumber/],
    [['provision', '--csv', latin, ...format], 2, /latin\.csv is not UTF-8, line 3/],
    [['provision', '--csv', header, ...format], 2, /a header but no units/],
    [['provision', '--csv', unknown, ...format], 2, /nmae is not a known column/],
    [['provision', '--csv', good, '--format', 'xml', '--out', 'DIRECTORY'], 2, /--format must be one of esp-nvs-csv/],
    [['provision', '--csv', good, '--format', 'env'], 2, /--out is missing/],
    [['provision', '--csv', good, ...format, '--template', 'none'], 2, /--template none/],
    [['provision', '--csv', good, ...format, '--concurrency', '0'], 2, /--concurrency must be/],
    [['provision', '--csv', good, ...format, '--token', 'eyJx.eyJhY2NvdW50SWQiOiJ4In0.x'], 4, /token/],
    [['provision', '--csv', good, ...format, '--url', 'http://127.0.0.1:9', '--retry-for', '0'], 3, /ECONNREFUSED/],
    [['provision', '--csv', good, ...format, '--url', 'ftp://x'], 2, /SLIPWAY_URL/],
  ];
  const ended = await Promise.all(
    cases.map(([args]) => {
      const own = new Station(t, service);
      return own.run(...args.map((one) => (one === 'DIRECTORY' ? own.out : one)));
    }),
  );
  for (const [at, { code, stderr }] of ended.entries()) {
    const [args, expected, sentence] = cases[at] ?? [[], 0, /x/];
    t.equal(code, expected, args.slice(3).join(' '));
    t.match(stderr, sentence);
  }
  const { token } = await service.endUser((await service.organization()).id);
  t.equal((await station.provision(good, '--token', token)).code, 4, 'an end-user');
  t.equal((await station.provision(good)).code, 0, 'and nothing of all this is in the way of the next run');
  t.match(await station.provision(good, '--labels'), { code: 2, stderr: /begun with labels none/ });
});

t.test('one command works in a directory at a time, and what is damaged is not guessed at', async (t) => {
  const station = new Station(t, service);
  const journal = await Journal.open(station.out);
  const silent = createServer(() => {}).listen(0, '127.0.0.1');
  await once(silent, 'listening');
  t.teardown(() => silent.close());
  const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
  const from = Date.now();
  const login = { SLIPWAY_TOKEN: 'an appToken', SLIPWAY_APP_ID: 'x', SLIPWAY_ACCOUNT_ID: 'x', SLIPWAY_URL: url };
  const waiting = new Station(t, service, login);
  const lines = ['provision', '--csv', station.csv(serials(1, 'LOCK')), '--format', 'env', '--out', station.out];
  t.match(await waiting.run(...lines), { code: 3, stderr: /^Another command works in .*\n$/ });
  t.ok(Date.now() - from < 20_000, 'whatever the server does meanwhile');
  await journal.close();
  writeFileSync(join(station.out, 'journal.ndjson'), '{"type":\n');
  t.match(await station.provision(station.csv(serials(1, 'LOCK'))), { code: 2, stderr: /is damaged/ });
});

t.test('files that cannot be written leave the results on the server, for the next run', async (t) => {
  const station = new Station(t, service);
  const csv = station.csv(serials(2, 'FULL'));
  t.equal((await station.provision(station.csv(serials(1, 'FIRST'), 'first.csv'), '--labels')).code, 0);
  const labels = join(station.out, 'labels');
  // A folder instead of a file: nobody can write over it.
  mkdirSync(join(labels, 'FULL-0002.svg'));
  t.match(await station.provision(csv, '--labels'), { code: 3, stderr: /cannot be written/ });
  rmdirSync(join(labels, 'FULL-0002.svg'));
  t.equal((await station.provision(csv, '--labels')).code, 0);
  t.equal(station.units().length, 3);
});

t.test('while the files of many units are written, it is told how many are', async (t) => {
  const rows = serials(600, 'TOLD').map(({ serialNumber }) => ({ serialNumber, file: serialNumber, fields: {} }));
  const journal = await Journal.open(join(temporaryDirectory(t), 'out'));
  t.teardown(() => journal.close());
  const none = { broker: undefined, ca: undefined, certify: undefined, template: undefined };
  const files = readFileOptions({ format: 'env', labels: 'none', ...none });
  const told: number[] = [];
  const addresses = { broker: 'mqtt://x:1883', claimUrl: 'x' };
  const line = {
    ...files,
    addresses,
    journal,
    client: {} as Client,
    printLine: () => {},
    written: (units: number) => told.push(units),
  };
  const chunk = { key: 'k', time: '', by: 'job', rows, state: 'begun' } as const;
  await journal.append({ type: 'chunk', ...chunk, rows });
  const unit = { deviceId: 'x', accountId: 'x', secret: 'x', associationCode: 'x', claimUrl: 'x', topics: {} };
  const units = rows.map(({ serialNumber }, at) => ({ row: at + 1, serialNumber, broker: 'mqtt://x:1883', ...unit }));
  await deliver(line, chunk, units, []);
  t.strictSame(told, [250, 250, 100]);
  t.equal(journal.done.size, 600);
});

t.test('results that expired before they were written: the units get new secrets, once', async (t) => {
  let now = Date.now();
  const aged = await startService(t, { clock: { now: () => now }, directory: temporaryDirectory(t) });
  const station = new Station(t, aged);
  const csv = station.csv(serials(3, 'OLD'));
  // As if the command had been killed when it had its job.
  const rows = serials(3, 'OLD').map(({ serialNumber }) => ({ serialNumber, file: serialNumber, fields: {} }));
  const body = rows.map(({ serialNumber }) => `${JSON.stringify({ serialNumber })}\n`).join('');
  const headers = { 'content-type': 'application/x-ndjson', 'idempotency-key': 'a-key' };
  const made = await aged.http('POST', '/api/v1/provisioning/jobs?force=true', { body, headers });
  const jobId = made.body.job.id;
  const journal = await Journal.open(station.out);
  await journal.append({ type: 'settings', accountId: aged.accountId, format: 'esp-nvs-csv', labels: 'none' });
  await journal.append({ type: 'chunk', key: 'a-key', time: new Date().toISOString(), by: 'job', rows });
  await journal.append({ type: 'job', key: 'a-key', jobId });
  await journal.close();
  let job: Made<'job'>;
  do job = (await aged.ok('GET', `/api/v1/provisioning/jobs/${jobId}`)).job;
  while (job.state === 'pending' || job.state === 'running');
  now += 25 * 60 * 60 * 1000;
  await aged.login();
  const { code, stderr } = await station.provision(csv);
  t.equal(code, 0, stderr);
  t.equal((await devicesOf(aged)).length, 3);
  for (const { deviceId, secret } of station.units()) await aged.connect({ deviceId, secret });
});

t.end();
