/** `slipway cells check|write|status` with two running cells. */
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { type Cell, type CellsConfig, readCells } from '../../cells/config.ts';
import { writeCells } from '../../cells/haproxy/files.ts';
import { mapsOf } from '../../cells/haproxy/maps.ts';
import { readCell, readDirectory } from '../../cli/cells/asking.ts';
import { checkCells } from '../../cli/cells/check.ts';
import { cellsWrite } from '../../cli/cells/write.ts';
import { halves, placeOf, startCell } from '../support/cells.ts';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const token = 'of-the-operator';
const env = { SLIPWAY_METRICS_TOKEN: token };
let [first, second]: Service[] = [];
let file: string;
t.before(async () => {
  [first, second] = [await startCell(t, 0, { env }), await startCell(t, 1, { env })];
  file = join(temporaryDirectory(t), 'cells.yaml');
  writeFileSync(file, text());
});

/** `cells.yaml` of the two; the port of the second may be another. */
function text(port = new URL((second as Service).server.url).port, more = ''): string {
  const [one, two] = [placeOf(first as Service), placeOf(second as Service)];
  return `cells:
  c01: { address: 127.0.0.1, http: ${new URL(one.url).port}, mqtt: ${one.mqttPort}, slots: ${halves[0]} }
  c02: { address: 127.0.0.1, http: ${port}, mqtt: ${two.mqttPort}, slots: ${halves[1]} }
${more}`;
}

const cells = (verb: string, ...args: string[]) => runCommand(['cells', verb, '--config', file, ...args], env);

const read = () => readCells(text());
const checked = (config: CellsConfig) => checkCells(config, (cell) => readCell(cell, token));

t.test('check finds cells that fit, and says what does not', async (t) => {
  const fits = await cells('check');
  t.strictSame([fits.code, fits.stderr], [0, '']);
  t.match(fits.stdout, /^c01: version \S+, accounts: 1, slots: 2048\.\nc02: .*\ncells\.yaml fits\.\n$/);

  const { accountId, directory } = second as Service;
  // A device of the time before ids carried digits.
  const { device } = await (second as Service).device();
  const old = `${device.id.slice(0, 26)}000${device.id.slice(29)}`;
  const database = new Sqlite(join(directory, 'registry.db'));
  database.pragma('foreign_keys = OFF');
  database.prepare('UPDATE devices SET id = ? WHERE id = ?').run(old, device.id);
  database.close();
  const lacks = await cells('check');
  t.equal(lacks.code, 1);
  t.ok(lacks.stdout.endsWith(`accounts:\n  ${accountId}:\n    - ${old}\n`), lacks.stdout);
  t.equal(lacks.stderr, '1 ids do not carry the digits of their account and are not in cells.yaml.\n');
  const ofDirectory = await checkCells(read(), async (cell) =>
    cell.name === 'c02' ? readDirectory(directory) : undefined,
  );
  t.strictSame([...ofDirectory.missing], [[accountId, [old]]], 'the data directory says the same');
  t.equal((await checked(readCells(text(undefined, `accounts: { ${accountId}: [${old}] }`)))).missing.size, 0);
  const asking = await checked(readCells(text(undefined, 'public: { lookup: all }')));
  t.equal(asking.missing.size, 0);
  t.equal(asking.notes.at(-1), 'c02: ids without digits that HAProxy asks the cells for: 1.');

  const moved = text('1').replace(halves[0], '000-6ff').replace(halves[1], '700-fff');
  const { problems } = await checked(readCells(moved));
  t.match(problems[0], 'c01: SLIPWAY_SLOTS is 000-7ff, but cells.yaml says 000-6ff.');
  t.match(problems.at(-1), /^c02 \(127\.0\.0\.1:1\): .*ECONNREFUSED/);
  await t.rejects(readCell([...read().cells.values()][0] as Cell, 'wrong'), /^\/cell answers 401: /);
});

t.test('check notes cells of different versions', async (t) => {
  const { version } = await readCell([...read().cells.values()][0] as Cell, token);
  const older = await checkCells(read(), async (cell) => {
    const content = await readCell(cell, token);
    return cell.name === 'c02' ? { ...content, version: '0.1.0' } : content;
  });
  t.equal(older.notes.at(-1), `The cells have different versions: ${version}, 0.1.0.`);
});

t.test('an account in a cell that does not have its slot is named', async (t) => {
  const { accountId } = first as Service;
  const slot = accountId.slice(26, 29);
  const [other, rest] = slot === '000' ? ['001', '000, 002-fff'] : ['000', '001-fff'];
  const swapped = text().replace(halves[0], other).replace(`slots: ${halves[1]}`, `slots: [${rest}]`);
  const { problems } = await checked(readCells(swapped));
  t.ok(problems.includes(`c01 has the account ${accountId}, but its slot ${slot} belongs to c02.`), `${problems}`);
});

t.test('write makes the files that HAProxy reads, also over old ones', async (t) => {
  const out = join(temporaryDirectory(t), 'haproxy');
  writeCells(readCells(text('1')), out);
  const { code, stdout } = await cells('write', '--out', out);
  const names = ['slots.map', 'ids.map', 'hosts.map', 'lookup.lua', 'haproxy.cfg'].map((name) => join(out, name));
  t.strictSame([code, stdout.trim().split('\n')], [0, names]);
  t.equal(readFileSync(join(out, 'slots.map'), 'utf8'), mapsOf(readCells(text()))['slots.map']);
  t.match(readFileSync(join(out, 'haproxy.cfg'), 'utf8'), `map_str(${out}/slots.map)`);
  t.equal(statSync(join(out, 'haproxy.cfg')).mode & 0o777, 0o644, 'HAProxy reads it as another user');
  await t.rejects(cellsWrite({ config: file, out: join(out, 'haproxy.cfg') }), /^The files cannot be written/);
});

t.test('status shows each cell, and one that does not answer', async (t) => {
  const client = await (second as Service).connect({ jwt: (second as Service).admin });
  t.teardown(() => client.end(true));
  const { code, stdout } = await cells('status', '--json');
  t.equal(code, 0);
  const [one, two] = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  t.match(one, { cell: 'c01', health: 'ready', slots: 2048, accounts: 1, connections: 0, messages: Number });
  t.match(two, { cell: 'c02', health: 'ready', connections: 1, version: String });
  writeFileSync(file, text('1'));
  const down = await cells('status');
  t.equal(down.code, 1);
  t.match(
    down.stdout,
    /^cell +address +health +version +slots +accounts +connections +messages +points\nc01 .*ready.*\nc02 .*down +- +2048 +- /,
  );
  t.match(down.stderr, /^c02 is down: .*ECONNREFUSED/);
});

t.test('the endpoints for the operator are closed to everybody else', async (t) => {
  const open = await startService(t);
  for (const path of ['/cell', '/cell/accounts', '/cell/ids']) {
    t.equal((await (first as Service).http('GET', path, { token: null })).status, 401, path);
    t.equal((await (first as Service).http('GET', path)).status, 401, `${path} for an admin of an account`);
    t.equal((await open.http('GET', path, { token })).status, 404, `${path} where no token is set`);
  }
});

t.end();
