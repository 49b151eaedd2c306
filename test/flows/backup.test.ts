/** What survives the machine: backups under load, restores elsewhere, and the way back from an upgrade. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  watch,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { inflateRawSync } from 'node:zlib';
import yazl from 'yazl';
import { type Login, openLink } from '../../bench/link.ts';
import { stepsHad } from '../../db/files/schema.ts';
import { migrate, registryMigrations } from '../../db/migrations/index.ts';
import { messageMigrations } from '../../db/migrations/messages.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { cliFile, plainNode } from '../support/process.ts';
import { type Point, type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

/** Where backups go, and the one that everybody restores. */
const shelf = temporaryDirectory(t);
const file = join(shelf, 'all.zip');
const target = temporaryDirectory(t);
let service: Service;
t.before(async () => {
  service = await startService(t, { env: { SLIPWAY_MQTT_MAX_QUEUE: '200000' } });
});

const slipway = (dataDir: string, ...args: string[]) => runCommand([...args, '--data-dir', dataDir]);

/** Every file below a directory but the lock, with its bytes. */
function contents(directory: string): Record<string, string> {
  const names = readdirSync(directory, { recursive: true, withFileTypes: true });
  const files = names.filter((one) => one.isFile() && one.name !== 'server.lock');
  return Object.fromEntries(
    files.map((one) => [join(one.parentPath, one.name), readFileSync(join(one.parentPath, one.name), 'base64')]),
  );
}

/** Publishes, and makes devices that say something at once, until it is stopped; what has been acknowledged so far. */
async function startLoad(topic: string, who: { deviceId: string; secret: string }) {
  const publisher = await service.connect(who, { clientId: 'load' });
  const done = { points: 0, devices: [] as string[] };
  let running = true;
  const publishing = (async () => {
    while (running) {
      const numbers = Array.from({ length: 20 }, (_, n) => done.points + n + 1);
      await Promise.all(numbers.map((n) => publisher.publishAsync(topic, `${n},n,${n},`, { qos: 1 })));
      done.points += numbers.length;
    }
  })();
  const { deviceTemplateId } = (await service.ok('GET', `/api/v1/devices/${who.deviceId}`)).device;
  const making = (async () => {
    while (running) {
      const { device } = await service.device({ deviceTemplateId });
      await service.ok('POST', `/api/v4/data/${service.topic(device.id, 'readings')}`, { body: '1,n,1,' });
      done.devices.push(device.id);
    }
  })();
  const stop = async () => {
    running = false;
    await Promise.all([publishing, making]);
  };
  return { done, stop };
}

t.test('a backup under load, restored elsewhere, has everything that was acknowledged before it began', async (t) => {
  const template = await service.template({ channels: ['readings'] });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const topic = service.topic(device.id, 'readings');
  const session = { clientId: 'kept', clean: false };
  const subscriber = await service.connect({ jwt: service.admin }, session);
  await subscriber.subscribeAsync(topic, { qos: 1 });
  await subscriber.endAsync(true);
  const load = await startLoad(topic, { deviceId: device.id, secret });
  t.teardown(load.stop);
  await until(() => load.done.points >= 500 && load.done.devices.length >= 5);

  const before = { points: load.done.points, devices: [...load.done.devices] };
  const { code, stdout, stderr } = await slipway(service.directory, 'backup', file);
  t.equal(code, 0, stderr);
  t.ok(load.done.points > before.points, 'acknowledgements went on meanwhile');
  await load.stop();
  t.match(JSON.parse(stdout), { backup: file, slipway: /^\d/, schema: { 'registry.db': /^\d{4}-/ } });
  t.equal(statSync(file).mode & 0o777, 0o600, 'only its owner reads it: the keys are in it');
  t.same(readdirSync(shelf), ['all.zip'], 'nothing else is left');
  mkdirSync(`${file}.partial-999999999`);
  t.equal((await slipway(service.directory, 'backup', file)).code, 2, 'it is not overwritten');
  t.same(readdirSync(shelf), ['all.zip'], 'a kill that came when it was there already has left nothing either');

  const elsewhere = temporaryDirectory(t);
  const restored = await slipway(elsewhere, 'restore', file);
  t.equal(restored.code, 0, restored.stderr);
  t.same(keysIn(elsewhere), keysIn(service.directory), 'what is sealed can be opened');
  const second = await startService(t, { directory: elsewhere });
  const { result } = await second.ok(
    'GET',
    `/api/v4/data/${topic}?startDateTime=1970-01-01T00:00:00Z&pageSize=500&order=asc`,
  );
  t.same(numbers(result), range(1, 500));
  const last = await second.ok('GET', `/api/v4/data/${topic}/latest?pageSize=1`);
  const stored = last.result[0].numericValue;
  t.ok(stored >= before.points, `${stored} of ${before.points} points`);
  for (const id of before.devices) {
    t.equal((await second.http('GET', `/api/v1/devices/${id}`)).status, 200);
    t.equal((await second.ok('GET', `/api/v4/data/${second.topic(id, 'readings')}/latest`)).result.length, 1);
  }
  t.same(orphans(elsewhere), [], 'nothing is of a device that is not there');

  t.equal((await devices(second, service.admin)).status, 200, 'tokens hold');
  const again = await second.connect({ deviceId: device.id, secret }, { clientId: 'again' });
  await again.publishAsync(topic, `${stored + 1},n,${stored + 1},`, { qos: 1 });
  again.end(true);
  const heard = await listen(
    second,
    { username: 'Auth:JWT', password: service.admin, clientId: 'kept' },
    before.points,
  );
  t.same(heard.slice(0, before.points), range(1, before.points), 'the stored session has every one of them, in order');
});

t.test('a backup that is not whole is refused, and nothing is touched', async (t) => {
  t.equal((await slipway(target, 'restore', file)).code, 0);
  const before = contents(target);
  const whole = readFileSync(file);
  const other = whole.toString('latin1').replaceAll('messages.db', '../../s.db.');
  for (const [what, bytes] of [
    ['one bit is another', withOtherBit(whole)],
    ['the end is missing', whole.subarray(0, whole.length - 1000)],
    ['a name leads elsewhere', Buffer.from(other, 'latin1')],
    ['it is no backup at all', Buffer.from('PK')],
    ['its manifest names nothing', await zipOf({ files: [null] })],
    ['its version is a path, by which a snapshot would be called', await zipOf({ slipway: '../../elsewhere' })],
    ['what it holds is no database', await zipOf({})],
  ] as const) {
    const broken = join(shelf, 'broken.zip');
    writeFileSync(broken, bytes);
    const { code, stderr } = await slipway(target, 'restore', broken, '--force');
    t.equal(code, 2, what);
    t.match(stderr, /not a backup of Slipway, or it is damaged: .*[^.]\. Nothing has been changed/, what);
    t.same(contents(target), before, what);
  }
});

t.test('what the disk refuses is told in a sentence', async (t) => {
  const bomb = join(shelf, 'bomb.zip');
  writeFileSync(bomb, await zipOf({ files: [{ name: 'registry.db', bytes: 2 ** 52, sha256: '' }] }));
  const tooLarge = await slipway(target, 'restore', bomb, '--force');
  t.equal(tooLarge.code, 2);
  t.match(tooLarge.stderr, /^There is no room in .*: it takes 4503599627370496 bytes/, 'before anything is written');
  const { code, stderr } = await slipway(service.directory, 'backup', join(file, 'b.zip'));
  t.equal(code, 3);
  t.match(stderr, /^The command failed \(ENOTDIR\): .*\n$/);
});

t.test('a restore replaces data only with --force, and never while a server runs', async (t) => {
  const before = contents(target);
  const refused = await slipway(target, 'restore', file);
  t.equal(refused.code, 2);
  t.match(refused.stderr, /holds data/);
  t.same(contents(target), before);
  const forced = await slipway(target, 'restore', file, '--force');
  const { replaced } = JSON.parse(forced.stdout);
  t.same(readdirSync(replaced).sort(), ['keys', 'messages.db', 'registry.db', 'version'], 'what was there is kept');

  const running = await slipway(service.directory, 'restore', file, '--force');
  t.equal(running.code, 2);
  t.match(running.stderr, /another server is running/);
  t.equal((await slipway(service.directory, 'rollback')).code, 2);
  t.equal((await devices(service)).status, 200);
});

t.test('a restore that was broken off when it had been decided is ended by the next start', async (t) => {
  // As a kill leaves it that came after the first of the files.
  const incoming = join(target, 'incoming');
  mkdirSync(incoming);
  renameSync(join(target, 'messages.db'), join(incoming, 'messages.db'));
  writeFileSync(join(target, 'messages.db'), 'the former one');
  const names = ['registry.db', 'messages.db'];
  writeFileSync(join(incoming, 'plan.json'), JSON.stringify({ going: names, coming: names, aside: 'replaced-x' }));
  const list = await slipway(target, 'account', 'list');
  t.equal(list.code, 2, 'commands wait for that');
  const ended = await startService(t, { directory: target });
  t.equal((await devices(ended)).status, 200);
  t.equal(readFileSync(join(target, 'replaced-x', 'messages.db'), 'utf8'), 'the former one');
  t.notOk(existsSync(incoming));

  // A kill, or a break of power, that came while it was cleared away.
  await ended.close();
  mkdirSync(incoming);
  writeFileSync(join(incoming, 'registry.db-shm'), '');
  const started = await startService(t, { directory: target });
  t.equal((await devices(started)).status, 200);
  t.notOk(existsSync(incoming));
});

for (const signal of ['SIGKILL', 'SIGTERM'] as const)
  t.test(`a backup that ${signal} ends leaves no file, and what is left of it goes with the next`, async (t) => {
    const directory = temporaryDirectory(t);
    const begunFile = join(directory, 'b.zip');
    const args = [...plainNode, cliFile, 'backup', begunFile, '--data-dir', service.directory];
    const begun = new Promise<void>((resolve) => {
      const watcher = watch(directory, () => {
        watcher.close();
        resolve();
      });
    });
    const child = spawn('env', args, { env: { PATH: process.env.PATH }, stdio: 'ignore' });
    await begun;
    child.kill(signal);
    await once(child, 'exit');
    t.notOk(existsSync(begunFile));
    if (signal === 'SIGTERM') {
      t.same(readdirSync(directory), []);
      return;
    }
    t.match(readdirSync(directory), [/^b\.zip\.partial-\d+$/], 'it has left what it had begun');
    mkdirSync(`${begunFile}.partial-notes`);
    // In a container that was started again the next backup has the number of the one that was killed.
    const script = 'mkdir "$0.partial-$$" && exec "$@"';
    const again = spawn('sh', ['-c', script, begunFile, 'env', ...args], { env: { PATH: process.env.PATH } });
    t.same(await once(again, 'exit'), [0, null]);
    const left = readdirSync(directory);
    t.same(left, ['b.zip', 'b.zip.partial-notes'], 'what was killed has left nothing, and what is not ours is there');
  });

t.test('after an upgrade, rollback puts back what was there for the version that ran on it', async (t) => {
  const directory = temporaryDirectory(t);
  await migrate(join(directory, 'registry.db'), registryMigrations.slice(0, -1));
  await migrate(join(directory, 'messages.db'), messageMigrations.slice(0, -1));
  writeFileSync(join(directory, 'version'), '0.0.9');
  const had = () => ['registry.db', 'messages.db'].map((name) => stepsHad(join(directory, name)).length);
  const old = had();
  t.equal((await slipway(directory, 'rollback')).code, 2, 'nothing has been upgraded');
  const made = ['account', 'create', '--name', 'New', '--admin-email', 'new@example.com'];
  t.equal((await slipway(directory, ...made)).code, 0);
  t.same(had(), [registryMigrations.length, messageMigrations.length]);

  const { code, stdout, stderr } = await slipway(directory, 'rollback');
  t.equal(code, 0, stderr);
  t.match(JSON.parse(stdout), { needs: '0.0.9', lost: /^everything written since 20/ });
  t.match(stderr, /needs Slipway 0\.0\.9.*\n.*everything written since/);
  t.same(had(), old);
  const lost = openSqlite(join(JSON.parse(stdout).replaced, 'registry.db'), { readonly: true });
  t.same(
    lost.prepare('SELECT "name" FROM "accounts"').pluck().all(),
    ['New'],
    'what was written since is kept next to it',
  );
  lost.close();

  // As a kill leaves it, with another upgrade before.
  const earlier = join(directory, 'snapshots', '0.0.8-20200101T000000000Z');
  mkdirSync(earlier, { recursive: true });
  renameSync(join(directory, 'messages.db'), join(earlier, 'messages.db'));
  mkdirSync(join(directory, 'incoming'));
  writeFileSync(join(directory, 'incoming', 'plan.json'), JSON.stringify({ going: [], coming: [], aside: 'none' }));
  const again = await slipway(directory, 'rollback');
  t.equal(again.code, 0, again.stderr);
  t.same(JSON.parse(again.stdout), { finished: true, needs: '0.0.9' });
  t.ok(existsSync(join(earlier, 'messages.db')), 'what was broken off is ended, and no more is rolled back');
});

t.test('rollback takes the snapshot that was made last, whatever the clock said', async (t) => {
  const directory = temporaryDirectory(t);
  const upgrade = async (from: string) => {
    for (const [name, steps] of [
      ['registry.db', registryMigrations],
      ['messages.db', messageMigrations],
    ] as const) {
      rmSync(join(directory, name), { force: true });
      await migrate(join(directory, name), steps.slice(0, -1));
    }
    writeFileSync(join(directory, 'version'), from);
    const made = ['account', 'create', '--name', from, '--admin-email', 'new@example.com'];
    t.equal((await slipway(directory, ...made)).code, 0);
  };
  await upgrade('0.0.8');
  const snapshots = join(directory, 'snapshots');
  const [first = ''] = readdirSync(snapshots);
  renameSync(join(snapshots, first), join(snapshots, '0.0.8-20360101T000000000Z'));
  await upgrade('0.0.9');
  const { code, stdout, stderr } = await slipway(directory, 'rollback');
  t.equal(code, 0, stderr);
  t.match(JSON.parse(stdout), { needs: '0.0.9' });
});

const devices = (asked: Service, token = asked.admin) =>
  asked.http('GET', `/api/v1/devices?accountId=${asked.accountId}`, { token });
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, n) => from + n);
const numbers = (points: Point[]) => points.map(({ numericValue }) => numericValue);
const keysIn = (directory: string) =>
  readdirSync(join(directory, 'keys')).map((name) => [name, readFileSync(join(directory, 'keys', name), 'utf8')]);

/** A ZIP whose first file inflates as before, to as many bytes, which are others: nothing but their checksum tells. */
function withOtherBit(zip: Buffer): Buffer {
  const begin = 30 + zip.readUInt16LE(26) + zip.readUInt16LE(28);
  const whole = inflateRawSync(zip.subarray(begin));
  for (let at = begin + 5000; ; at += 1) {
    const other = Buffer.from(zip);
    other.writeUInt8(other.readUInt8(at) ^ 1, at);
    try {
      const inflated = inflateRawSync(other.subarray(begin));
      if (inflated.length === whole.length && !inflated.equals(whole)) return other;
    } catch {
      // This bit was one that the form needs.
    }
  }
}

/** A backup of something that is no database, of which the manifest says what is `said` in place of what it should. */
async function zipOf(said: object): Promise<Buffer> {
  const bytes = Buffer.from('no database');
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const files = [{ name: 'registry.db', bytes: bytes.length, sha256 }];
  const manifest = { format: 1, slipway: '0.1.0', time: new Date().toISOString(), schema: {}, files, ...said };
  const zip = new yazl.ZipFile();
  zip.addBuffer(bytes, 'registry.db');
  zip.addBuffer(Buffer.from(JSON.stringify(manifest)), 'manifest.json');
  zip.end();
  return buffer(zip.outputStream);
}

/** Devices that only the messages know. */
function orphans(directory: string): unknown[] {
  const messages = openSqlite(join(directory, 'messages.db'), { readonly: true });
  const registry = openSqlite(join(directory, 'registry.db'), { readonly: true });
  try {
    const isThere = registry.prepare('SELECT 1 FROM "devices" WHERE "id" = ?');
    const named = messages.prepare<[], string>('SELECT "deviceId" FROM "series"').pluck().all();
    return named.filter((id) => isThere.get(id) === undefined);
  } finally {
    messages.close();
    registry.close();
  }
}

/** What a stored session is sent, `count` messages of it at least: the numbers in them. */
async function listen({ server }: Service, login: Login, count: number): Promise<number[]> {
  const heard: number[] = [];
  return new Promise((resolve, reject) => {
    openLink({ port: server.mqttPort }, { ...login, clean: false }, (packet, link) => {
      if (packet.cmd !== 'publish') return;
      heard.push(Number(packet.payload.toString().split(',')[2]));
      link.send({ cmd: 'puback', messageId: packet.messageId ?? 0 });
      if (heard.length < count) return;
      link.socket.destroy();
      resolve(heard);
    }).then((link) => {
      if (!link.sessionPresent) reject(new Error('the session is not there'));
    }, reject);
  });
}

t.end();
