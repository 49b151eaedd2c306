/** Files of a directory that get lost, and how a unit comes to them again. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { type Service, startService } from '../support/service.js';
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
