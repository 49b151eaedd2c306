/** A directory that was in use and has lost a part: no start makes it anew by itself, and no backup is made without it. */
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { takeOver } from '../../db/files/lock.ts';
import { finishSnapshot, snapshotBeforeMigration, snapshotsOf } from '../../db/files/snapshots.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { cliFile, inherited, plainNode, runToEnd } from '../support/process.ts';
import { refusedStart } from '../support/refused-start.ts';

const t = await part(import.meta);

const directory = temporaryDirectory(t);
const slipway = (...args: string[]) => runCommand([...args, '--data-dir', directory]);
const start = () => refusedStart(directory, {});
t.before(start);

t.test('a directory that has lost a part is refused, and the file and the ways out are named', async (t) => {
  t.equal(await start(), 'it has started');
  const zip = join(temporaryDirectory(t), 'all.zip');
  for (const name of ['registry.db', 'messages.db', 'keys/sealing.key'] as const) {
    const path = join(directory, name);
    const aside = `${path}.aside`;
    const said = (fault: string) =>
      new RegExp(`${name} ${fault}, and the directory was in use: .*restore a backup.*slipway data give-up ${name}`);
    renameSync(path, aside);
    t.match(await start(), said('is missing'));
    t.notOk(existsSync(path), 'nothing was made');
    t.not((await slipway('backup', zip)).code, 0, 'a backup of less does not exist');
    t.notOk(existsSync(zip));
    const { found } = await doctor();
    t.match(found, said('is missing'));
    writeFileSync(path, '', { mode: 0o600 });
    t.match(await start(), said('is empty'));
    rmSync(path);
    renameSync(aside, path);
    t.equal(await start(), 'it has started');
  }
  t.equal((await slipway('data', 'give-up', 'messages.db')).code, 2, 'what is there is not given up');
  t.equal((await slipway('backup', zip)).code, 0);
});

t.test('a directory that has lost several parts is no first start either', async (t) => {
  const aside = temporaryDirectory(t);
  const lost = (fault: RegExp) => new RegExp(`${fault.source}, and the directory was in use`);
  for (const [names, said] of [
    [['registry.db', 'messages.db'], /registry\.db is missing/],
    [['registry.db', 'messages.db', 'version'], /registry\.db is missing/],
    [['registry.db', 'messages.db', 'version', 'keys'], /registry\.db is missing/],
    [['messages.db', 'keys'], /messages\.db is missing/],
    [['keys'], /keys\/sealing\.key is missing/],
  ] as const) {
    for (const name of names) renameSync(join(directory, name), join(aside, name));
    t.match(await start(), lost(said), names.join(', '));
    for (const name of names) t.notOk(existsSync(join(directory, name)), `no new ${name}`);
    for (const name of names) renameSync(join(aside, name), join(directory, name));
  }
  t.equal(await start(), 'it has started');
});

t.test('a new cell with a copy of the keys starts, also when its first start was broken off early', async (t) => {
  const fresh = temporaryDirectory(t);
  cpSync(join(directory, 'keys'), join(fresh, 'keys'), { recursive: true });
  takeOver(fresh).close();
  writeFileSync(join(fresh, 'registry.db'), '', { mode: 0o600 });
  t.equal(await refusedStart(fresh, {}), 'it has started');
});

t.test('a sealing key of another directory is refused', async (t) => {
  const path = join(directory, 'keys', 'sealing.key');
  const own = readFileSync(path);
  writeFileSync(path, randomBytes(32).toString('base64'));
  t.match(await start(), /keys\/sealing\.key is not the key of this registry/);
  writeFileSync(path, own);
  t.equal(await start(), 'it has started');
});

t.test('a backup without a firmware file that the registry names is none', async (t) => {
  const registry = openSqlite(join(directory, 'registry.db'));
  registry.pragma('foreign_keys = OFF');
  const columns = registry.prepare('SELECT * FROM pragma_table_info(?)').all('firmwareFiles') as Array<{
    name: string;
    type: string;
    notnull: number;
  }>;
  const values = columns.map(({ name, type }) => (name === 'sha256' ? 'a'.repeat(64) : type === 'TEXT' ? 'x' : 1));
  registry.prepare(`INSERT INTO "firmwareFiles" VALUES (${columns.map(() => '?').join(', ')})`).run(...values);
  const zip = join(temporaryDirectory(t), 'all.zip');
  const { code, stderr } = await slipway('backup', zip);
  t.equal(code, 2);
  t.match(stderr, /firmware\/a{64} is missing, and the registry names it/);
  t.notOk(existsSync(zip));
  registry.exec('DELETE FROM "firmwareFiles"');
  registry.close();
});

t.test('a part is given up by a command that says what is lost', async (t) => {
  for (const name of ['messages.db', 'keys/sealing.key', 'registry.db'] as const) {
    truncateSync(join(directory, name));
    const { code, stdout, stderr } = await slipway('data', 'give-up', name);
    t.equal(code, 0, stderr);
    t.match(stderr, /^Lost: /);
    t.match(JSON.parse(stdout), { gaveUp: name });
    t.equal(await start(), 'it has started');
  }
});

t.test('snapshots are in the order in which they were made, whatever the clock said', async (t) => {
  const had = temporaryDirectory(t);
  openSqlite(join(had, 'registry.db')).close();
  for (const year of [2036, 2026]) {
    await snapshotBeforeMigration(had, Date.UTC(year, 0));
    finishSnapshot(had);
  }
  t.match(snapshotsOf(had)[0]?.time, /^2026/);
});

t.test('a damaged database is a finding of the doctor, with and without a look at its integrity', async (t) => {
  const damaged = temporaryDirectory(t);
  mkdirSync(join(damaged, 'keys'), { mode: 0o700 });
  for (const name of ['registry.db', 'messages.db']) writeFileSync(join(damaged, name), 'no database', { mode: 0o600 });
  const { code, found, stderr } = await doctor(damaged);
  t.equal(code, 2);
  t.equal(stderr, '');
  t.match(found, /file is not a database/);
});

/** Runs a program with a read-only directory, in a mount namespace that ends with it. */
const readOnly = [
  '--mount',
  'sh',
  '-c',
  'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"',
  directory,
];
const mayMount = spawnSync('unshare', [...readOnly, 'true']).status === 0;

t.test(
  'a disk that cannot be written is no end of the doctor',
  mayMount ? {} : { skip: 'who runs the tests may mount nothing' },
  async (t) => {
    const written = spawnSync('unshare', [...readOnly, 'touch', join(directory, 'new')], { encoding: 'utf8' });
    t.match(written.stderr, /Read-only file system/);
    const args = ['env', ...plainNode, cliFile, 'doctor', '--skip-integrity', '--data-dir', directory];
    const { stdout, stderr } = spawnSync('unshare', [...readOnly, ...args], { env: inherited, encoding: 'utf8' });
    t.equal(stderr, '');
    for (const check of ['files', 'schema', 'disk', 'clock']) t.match(stdout, new RegExp(`^\\w+ +${check} `, 'm'));
  },
);

t.test('a directory that is a file is a finding of the doctor', async (t) => {
  const file = join(temporaryDirectory(t), 'data');
  writeFileSync(file, 'x');
  const { code, found, stderr } = await doctor(file);
  t.equal(stderr, '');
  t.equal(code, 2);
  t.match(found, /^error /m);
});

t.test('a backup that may not lower its priority goes on with the usual one', async (t) => {
  const zip = join(temporaryDirectory(t), 'usual.zip');
  const forbidden = `import os from 'node:os'; import { syncBuiltinESMExports } from 'node:module';
    os.setPriority = () => { throw new Error('EPERM'); }; syncBuiltinESMExports();`;
  const loaded = `--import=data:text/javascript,${encodeURIComponent(forbidden)}`;
  const { code, stderr } = await runToEnd(loaded, [cliFile, 'backup', zip, '--data-dir', directory], {});
  t.equal(code, 0, stderr);
  t.match(stderr, /^The backup runs with the usual priority: EPERM\.\n/);
  t.ok(existsSync(zip));
});

async function doctor(dataDir = directory): Promise<{ code: number | null; found: string; stderr: string }> {
  const { code, stdout, stderr } = await runCommand(['doctor', '--skip-integrity', '--data-dir', dataDir]);
  return { code, found: stdout, stderr };
}

t.end();
