/** Files of a directory that get lost, and how a unit comes to them again. */
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { Journal } from '../../src/commands/line/journal.js';
import { type Json, type Service, startService } from '../support/service.js';
import { devicesOf, Station, serials } from './command.js';

let service: Service;
t.before(async () => {
  service = await startService(t);
});

t.test('a flash file or label that is lost is no unit that is done, and comes back with a new secret', async (t) => {
  const station = new Station(t, service);
  const csv = station.csv(serials(3, 'LOST'));
  t.equal((await station.provision(csv, '--labels')).code, 0);
  const before = station.units();
  rmSync(join(station.out, 'LOST-0002.csv'));
  rmSync(join(station.out, 'labels/LOST-0003.svg'));
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

t.test('a run whose token is gone is taken over, with new secrets for its units', async (t) => {
  const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
  const body = { accountId: service.accountId, kind: 'station', deviceTemplateId, maxDevices: 10 };
  const login = async (name: string) => {
    const made = { ...body, name, expiresAt: '2099-01-01T00:00:00Z' };
    const { application } = await service.ok('POST', '/api/v1/applications', { body: made });
    const { id: appId, appToken } = application;
    const { jwt } = await service.ok('POST', '/api/v1/auth/login-application', {
      body: { accountId: service.accountId, appId, appToken },
      token: '',
    });
    return { id: appId, token: jwt };
  };
  const [gone, next] = [await login('gone'), await login('next')];
  const rows = serials(2, 'OVER').map(({ serialNumber }) => ({ serialNumber, file: serialNumber, fields: {} }));
  const made = await service.http('POST', '/api/v1/provisioning/jobs?force=true', {
    token: gone.token,
    body: { rows: rows.map(({ serialNumber }) => ({ serialNumber })) },
  });
  const jobId = made.body.job.id;
  let job: Json;
  do job = (await service.ok('GET', `/api/v1/provisioning/jobs/${jobId}`)).job;
  while (job.state === 'pending' || job.state === 'running');
  await service.ok('DELETE', `/api/v1/applications/${gone.id}`);
  const station = new Station(t, service);
  const journal = await Journal.open(station.out);
  await journal.append({ type: 'settings', accountId: service.accountId, format: 'esp-nvs-csv', labels: 'none' });
  await journal.append({ type: 'chunk', key: 'gone', time: new Date().toISOString(), by: 'job', rows });
  await journal.append({ type: 'job', key: 'gone', jobId });
  await journal.close();
  const csv = station.csv(serials(2, 'OVER'));
  const refusal = { code: 4, stderr: /begun with another token .*--take-over/ };
  t.match(await station.provision(csv, '--token', next.token), refusal);
  t.match(await station.provision(csv), refusal);
  const { code, stderr } = await station.provision(csv, '--take-over');
  t.equal(code, 0, stderr);
  for (const { deviceId, secret } of station.units()) await service.connect({ deviceId, secret });
  t.equal((await devicesOf(service)).filter((one) => one.startsWith('OVER')).length, 2);
});

t.test('a directory that takes no files ends with a sentence that names it', async (t) => {
  const station = new Station(t, service);
  const csv = station.csv(serials(1, 'DISK'));
  const to = (out: string, ...more: string[]) =>
    station.run('provision', '--csv', csv, '--format', 'env', '--out', out, ...more);
  const oneLine = (text: string) => text.trimEnd().split('\n').length === 1 && !text.includes('    at ');
  for (const [ended, expected] of [
    [await to('/proc/x/y'), { code: 3, stderr: /^\/proc\/x\/y cannot be used: ENOENT/ }],
    [await to(csv), { code: 2, stderr: /units\.csv is a file/ }],
    [await to(join(csv, 'below')), { code: 2, stderr: /is a file, or in one/ }],
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
