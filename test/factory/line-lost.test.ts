/** Files of a directory that get lost, and how a unit comes to them again. */
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Journal } from '../../cli/line/journal.ts';
import { part } from '../support/part.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { devicesOf, Station, serials } from './command.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

t.test('a flash file or label that is lost is no unit that is done, and comes back with a new secret', async (t) => {
  const station = new Station(t, service);
  const csv = station.csv(serials(3, 'LOST'));
  t.equal((await station.provision(csv, '--labels')).code, 0);
  const before = station.units();
  rmSync(join(station.out, 'LOST-0002.csv'));
  rmSync(join(station.out, 'labels/LOST-0003.svg'));
  const tried = await station.run('provision', '--csv', csv, '--dry-run', '--json', '--out', station.out);
  t.match(JSON.parse(tried.stdout), { rows: 3, good: 1, failed: 2 }, 'a dry run misses them too');
  const { code, stdout, stderr } = await station.provision(csv, '--labels', '--json');
  t.equal(code, 1, stderr);
  t.match(JSON.parse(stdout), { rows: 3, done: 1, made: 0, failed: 2, open: 0 });
  const failed = station.read('failed.csv');
  t.match(failed, /LOST-0002,.*LOST-0002\.csv is not there any more; --again 'LOST-0002'/);
  t.match(failed, /LOST-0003,.*LOST-0003\.svg is not there/);
  t.equal((await station.provision(csv, '--labels', '--again', 'LOST-0002', '--again', 'LOST-0003')).code, 0);
  const after = station.units();
  t.strictSame(
    after.map(({ deviceId }) => deviceId),
    before.map(({ deviceId }) => deviceId),
  );
  for (const { deviceId, secret } of after) await service.connect({ deviceId, secret });
  t.equal(after[0]?.secret, before[0]?.secret, 'the others are left alone');
  await t.rejects(service.connect({ deviceId: before[1]?.deviceId ?? '', secret: before[1]?.secret ?? '' }));
  t.match(await station.provision(csv, '--labels', '--again', 'NONE'), {
    code: 2,
    stderr: /--again NONE: no such unit/,
  });

  const one = [
    'provision',
    'one',
    '--serial',
    'LOST-0001',
    '--format',
    'esp-nvs-csv',
    '--out',
    station.out,
    '--labels',
  ];
  t.equal((await station.run(...one)).code, 0);
  rmSync(join(station.out, 'LOST-0001.csv'));
  t.match(await station.run(...one), { code: 1, stderr: /LOST-0001\.csv is not there any more; --again/ });
  t.equal((await station.run(...one, '--again')).code, 0);
  const [first] = station.units();
  await service.connect({ deviceId: first?.deviceId ?? '', secret: first?.secret ?? '' });
  t.equal((await devicesOf(service)).length, 3);
});

t.test(
  'a unit whose hardware was replaced is not made again: the secret in the field works, and the run goes on',
  async (t) => {
    const station = new Station(t, service);
    t.equal((await station.provision(station.csv(serials(1, 'SWAP')))).code, 0);
    const { deviceId = '' } = station.units()[0] ?? {};
    const { device } = await service.ok('GET', `/api/v1/devices/${deviceId}`);
    const { mqttCredential } = await service.ok('POST', `/api/v1/devices/${deviceId}/replace`, {
      body: { serialNumber: 'SWAP-NEW' },
      headers: { etag: device.version },
    });
    const csv = station.csv(serials(2, 'SWAP'));
    t.equal((await station.provision(csv, '--again', 'SWAP-0001')).code, 1);
    t.match(station.read('failed.csv'), /SWAP-0001,.*another serial number now, SWAP-NEW/);
    const one = [
      'provision',
      'one',
      '--serial',
      'SWAP-0001',
      '--format',
      'esp-nvs-csv',
      '--out',
      station.out,
      '--again',
    ];
    t.match(await station.run(...one), { code: 1, stderr: /another serial number now/ });
    await service.connect({ deviceId, secret: mqttCredential.secret });
    t.equal((await station.provision(csv)).code, 0, 'nothing is left open');
    t.equal(station.units().length, 2);
  },
);

t.test('a sheet of labels that is lost is missed for every unit on it', async (t) => {
  const station = new Station(t, service);
  const csv = station.csv(serials(2, 'SHEET'));
  t.equal((await station.provision(csv, '--labels', 'html')).code, 0);
  const [sheet = ''] = station.names('labels');
  const one = ['provision', 'one', '--serial', 'SHEET-0001', '--format', 'esp-nvs-csv', '--out', station.out];
  const { stdout } = await station.run(...one, '--labels', 'html', '--json');
  t.equal(JSON.parse(stdout).label, join(station.out, 'labels', sheet));
  rmSync(join(station.out, 'labels', sheet));
  t.equal((await station.provision(csv, '--labels', 'html')).code, 1);
  t.match(station.read('failed.csv'), /SHEET-0001,.*sheet-.*\.html is not there .*\nSHEET-0002,.*sheet-/);
  const again = ['--again', 'SHEET-0001', '--again', 'SHEET-0002'];
  t.equal((await station.provision(csv, '--labels', 'html', ...again)).code, 0);
  t.strictSame(station.names('labels'), ['SHEET-0001.html', 'SHEET-0002.html']);
});

t.test('a directory with files of units and no journal is left as it is', async (t) => {
  const station = new Station(t, service);
  mkdirSync(station.out);
  writeFileSync(join(station.out, 'units.csv'), 'mine');
  const refusal = { code: 2, stderr: /There is units\.csv in .*, and no journal\.ndjson/ };
  t.match(await station.provision(station.csv(serials(1, 'NEW'))), refusal);
  const one = ['provision', 'one', '--serial', 'NEW-1', '--format', 'env', '--out', station.out];
  t.match(await station.run(...one), refusal);
  t.equal(station.read('units.csv'), 'mine');
});

/** A station that can log in, and a token of it. */
async function makeStation(name: string): Promise<{ id: string; token: string }> {
  const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
  const limits = { deviceTemplateId, maxDevices: 10, expiresAt: '2099-01-01T00:00:00Z' };
  const body = { accountId: service.accountId, kind: 'station', name, ...limits };
  const { application } = await service.ok('POST', '/api/v1/applications', { body });
  const { id: appId, appToken } = application;
  const login = { body: { accountId: service.accountId, appId, appToken }, token: '' };
  const { jwt } = await service.ok('POST', '/api/v1/auth/login-application', login);
  return { id: appId, token: jwt };
}

/** A job of the rows that has come to its end: its id. */
async function makeJob(rows: ReadonlyArray<{ serialNumber: string }>, token: string): Promise<string> {
  const body = { rows: rows.map(({ serialNumber }) => ({ serialNumber })) };
  const made = await service.http('POST', '/api/v1/provisioning/jobs?force=true', { token, body });
  let { job } = made.body;
  while (job.state === 'pending' || job.state === 'running')
    job = (await service.ok('GET', `/api/v1/provisioning/jobs/${job.id}`)).job;
  return job.id;
}

const rowsOf = (prefix: string) =>
  serials(2, prefix).map(({ serialNumber }) => ({ serialNumber, file: serialNumber, fields: {} }));
const settings = () => ({ accountId: service.accountId, format: 'esp-nvs-csv', labels: 'none' }) as const;

t.test('a run whose token is gone is taken over, also where the answer of its job was lost', async (t) => {
  const [gone, next] = [await makeStation('gone'), await makeStation('next')];
  const [over, lost, never] = [rowsOf('OVER'), rowsOf('OVERLOST'), rowsOf('OVERNEVER')];
  const jobId = await makeJob(over, gone.token);
  await makeJob(lost, gone.token);
  await service.ok('DELETE', `/api/v1/applications/${gone.id}`);
  const station = new Station(t, service);
  const journal = await Journal.open(station.out);
  await journal.append({ type: 'settings', ...settings() });
  const chunk = { type: 'chunk', time: new Date().toISOString(), by: 'job', caller: gone.id } as const;
  await journal.append({ ...chunk, key: 'lost', rows: lost });
  await journal.append({ ...chunk, key: 'never', rows: never });
  await journal.close();
  const csv = station.csv([...serials(2, 'OVER'), ...serials(2, 'OVERLOST'), ...serials(2, 'OVERNEVER')]);
  const unknown = { code: 4, stderr: /2 rows, OVER[A-Z]+-0001 first, were begun with another token.*--take-over/ };
  t.match(await station.provision(csv, '--token', next.token), unknown);
  t.match(await station.provision(csv, '--token', next.token, '--take-over'), unknown, 'a station sees no other');
  t.match(await station.provision(csv), unknown);
  const known = await Journal.open(station.out);
  await known.append({ ...chunk, key: 'gone', rows: over });
  await known.append({ type: 'job', key: 'gone', jobId });
  await known.close();
  const refusal = { code: 4, stderr: /begun with another token.*--take-over/ };
  t.match(await station.provision(csv, '--token', next.token), refusal);
  t.match(await station.provision(csv), refusal);
  const { code, stderr } = await station.provision(csv, '--take-over');
  t.equal(code, 0, stderr);
  const units = station.units();
  for (const { deviceId, secret } of units) await service.connect({ deviceId, secret });
  const wanted = [...over, ...lost, ...never].map(({ serialNumber }) => serialNumber).sort();
  t.strictSame(units.map(({ serialNumber }) => serialNumber).sort(), wanted);
  t.strictSame(
    (await devicesOf(service)).filter((one) => one.startsWith('OVER')),
    wanted,
  );
});

t.test('where the results of a job cannot be destroyed, the command says how long they stay', async (t) => {
  const former = await makeStation('former');
  const rows = rowsOf('STAY');
  const jobId = await makeJob(rows, former.token);
  const station = new Station(t, service);
  const journal = await Journal.open(station.out);
  await journal.append({ type: 'settings', ...settings() });
  const time = new Date().toISOString();
  await journal.append({ type: 'chunk', key: 'stay', time, by: 'job', caller: former.id, rows });
  await journal.append({ type: 'job', key: 'stay', jobId });
  const done = rows.map(({ serialNumber, file }) => ({ serialNumber, deviceId: 'x', file }));
  await journal.append({ type: 'written', key: 'stay', done, failed: [] });
  await journal.close();
  for (const { file } of rows) writeFileSync(join(station.out, `${file}.csv`), '');
  const csv = station.csv(serials(2, 'STAY'));
  const said = new RegExp(`^Job ${jobId} was made with another token: .* until 24 hours after its end\\.$`, 'm');
  t.match(await station.provision(csv), { code: 0, stderr: said });
  t.notMatch((await station.provision(csv)).stderr, said, 'once');
});

t.test('a unit that one station has begun is not made again by another', async (t) => {
  const [first, second] = [await makeStation('first'), await makeStation('second')];
  const [row] = rowsOf('HANDED') as [{ serialNumber: string; file: string; fields: object }];
  const { serialNumber } = row;
  const made = await service.http('POST', '/api/v1/devices', {
    token: first.token,
    body: { accountId: service.accountId, serialNumber },
    headers: { 'idempotency-key': 'handed-device' },
  });
  const station = new Station(t, service);
  const journal = await Journal.open(station.out);
  await journal.append({ type: 'settings', ...settings() });
  const time = new Date().toISOString();
  await journal.append({
    type: 'chunk',
    key: 'handed',
    time,
    by: 'unit',
    caller: first.id,
    rows: [{ ...row, fields: {} }],
  });
  await journal.close();
  const one = ['provision', 'one', '--serial', serialNumber, '--format', 'esp-nvs-csv', '--out', station.out];
  const refusal = { code: 4, stderr: /^HANDED-0001 was begun with another token/ };
  t.match(await station.run(...one, '--token', second.token), refusal);
  const { code, stderr } = await station.run(...one);
  t.equal(code, 0, stderr);
  const unit = station.unitIn('HANDED-0001.csv');
  t.equal(unit.deviceId, made.body.device.id);
  await service.connect({ deviceId: unit.deviceId, secret: unit.secret });
  t.strictSame(
    (await devicesOf(service)).filter((name) => name.startsWith('HANDED')),
    [serialNumber],
  );
});

t.test('a directory that takes no files ends with a sentence that names it', async (t) => {
  const station = new Station(t, service);
  const csv = station.csv(serials(1, 'DISK'));
  const to = (out: string, ...more: string[]) =>
    station.run('provision', '--csv', csv, '--format', 'env', '--out', out, ...more);
  const oneLine = (text: string) => text.trimEnd().split('\n').length === 1 && !text.includes('    at ');
  for (const [ended, expected] of [
    [await to('/proc/x/y'), { code: 3, stderr: /^\/proc\/x\/y cannot be used: ENOENT/ }],
    [await to(csv), { code: 2, stderr: /units\.csv is not a directory/ }],
    [await to(join(csv, 'below')), { code: 2, stderr: /units\.csv\/below is not a directory/ }],
    [await to(station.out, '--certify', '/no/such'), { code: 2, stderr: /--certify \/no\/such cannot be called/ }],
  ] as const) {
    t.match(ended, expected);
    t.ok(oneLine(ended.stderr), ended.stderr);
  }
  mkdirSync(join(station.out, 'journal.lock'), { recursive: true });
  t.match(await to(station.out), { code: 3, stderr: /out cannot be used: EISDIR/ });
  rmSync(join(station.out, 'journal.lock'), { recursive: true });
  symlinkSync('/dev/full', join(station.out, 'FULL-1.env.partial'));
  const one = ['provision', 'one', '--serial', 'FULL-1', '--format', 'env', '--out', station.out];
  const full = await station.run(...one);
  t.match(full, { code: 3, stderr: /out cannot be written: ENOSPC/ });
  t.ok(oneLine(full.stderr), full.stderr);
  rmSync(join(station.out, 'FULL-1.env.partial'), { force: true });
  t.equal((await station.run(...one)).code, 0);
  const unnamed = await to(join(station.directory, 'other'), '--certify', 'no-such-program');
  t.match(unnamed, { code: 2, stderr: /--certify no-such-program cannot be called/ });
});

t.end();
