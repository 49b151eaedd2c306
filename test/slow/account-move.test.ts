/** An account goes from one data directory into another: all that it has, whatever breaks the move off. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import mqtt from 'mqtt';
import t, { type Test } from 'tap';
import { movingIn } from '../../cells/moves/offline/marker.ts';
import { abandonMove, type Move, moveAccounts, type Step } from '../../cells/moves/offline/move.ts';
import { messageRules, pointRules, registryRules, tablesOfTheFile } from '../../cells/moves/tables.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { makeKey, makeRequest } from '../../src/certificates/pki/making.ts';
import { claim } from '../enrollment/devices.ts';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { cliFile, inherited, mainFile, plainNode, runToEnd, startProcess } from '../support/process.ts';
import { type Moved, points, populate, seen, type Unit } from '../support/rich-account.ts';
import { nextMessage, type Service, startService } from '../support/service.ts';

const env = { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' };
interface Prepared {
  move: Move;
  moved: Moved;
  before: object;
}

/** Two directories, each with a first account that stays there; the second one has points, log entries and a session of its own. */
async function makeDirectories(t: Test): Promise<Prepared> {
  const from = await startService(t, { env });
  const directory = temporaryDirectory(t);
  cpSync(join(from.directory, 'keys'), join(directory, 'keys'), { recursive: true });
  const to = await startService(t, { env, directory });
  const other = await to.template({ channels: ['series'] });
  const { device, secret } = await to.device({ deviceTemplateId: other.id });
  const client = await to.connect({ deviceId: device.id, secret }, { clean: false, clientId: 'own' });
  await client.subscribeAsync(to.topic(device.id, 'series'), { qos: 1 });
  await client.publishAsync(to.topic(device.id, 'series'), points.join('\n'), { qos: 1 });
  await client.publishAsync(to.topic(device.id, '_log'), '{"message":"fine"}', { qos: 1 });
  const moved = await populate(from);
  await Promise.all([from.close(), to.close()]);
  // After another start nobody is connected.
  const started = await again(t, from.directory);
  const before = await seen(Object.assign(started, { accountId: moved.accountId, admin: moved.admin }), moved);
  await started.close();
  return { move: { accounts: [moved.accountId], from: from.directory, to: to.directory }, moved, before };
}

/** Copies of both directories for a test of its own. */
let made: Prepared;
t.before(async () => {
  made = await makeDirectories(t);
});
function prepare(t: Test): Prepared {
  const [from, to] = [made.move.from, made.move.to].map((directory) => {
    const copy = temporaryDirectory(t);
    cpSync(directory, copy, { recursive: true });
    return copy;
  }) as [string, string];
  return { ...made, move: { ...made.move, from, to } };
}

/** Starts a service on a directory again, in which the first account is everybody's. */
const again = (t: Test, directory: string) => startService(t, { env, directory });

/** The account is in one directory, as it was, and not in the other one. */
async function isIn(t: Test, there: string, elsewhere: string, moved: Moved, before: object): Promise<Service> {
  for (const directory of [there, elsewhere]) t.equal(movingIn(directory), undefined);
  for (const [database, rules] of [
    ['registry.db', registryRules],
    ['messages.db', [...pointRules, ...messageRules]],
  ] as const) {
    const file = openSqlite(join(elsewhere, database), { readonly: true });
    file.exec(`CREATE TEMP TABLE "moving" ("id" TEXT); INSERT INTO "temp"."moving" VALUES ('${moved.accountId}');
      CREATE TEMP TABLE "movingBridges" ("id" TEXT); INSERT INTO "temp"."movingBridges" VALUES ('${moved.bridgeId}')`);
    const left = rules.filter(({ table, where }) =>
      file.prepare(`SELECT 1 FROM "${table}" WHERE ${where.replaceAll('@', '')}`).get(),
    );
    t.strictSame(left, [], `nothing of it is left in ${database}`);
    if (database === 'messages.db') {
      const lost = file
        .prepare('SELECT count(*) FROM "points" WHERE "series" NOT IN (SELECT "id" FROM "series")')
        .pluck();
      t.equal(lost.get(), 0, 'no points without their series');
    }
    t.strictSame(file.pragma('integrity_check'), [{ integrity_check: 'ok' }]);
    file.close();
  }
  const service = await again(t, there);
  Object.assign(service, { accountId: moved.accountId, admin: moved.admin });
  t.strictSame(await seen(service, moved), before);
  return service;
}

t.test('every table belongs to the account or to the file', async (t) => {
  const service = await startService(t);
  await service.close();
  for (const [database, rules] of [
    ['registry.db', registryRules],
    ['messages.db', [...pointRules, ...messageRules]],
  ] as const) {
    const file = openSqlite(join(service.directory, database), { readonly: true });
    const tables = file.prepare<[], string>(`SELECT "name" FROM "sqlite_schema" WHERE "type" = 'table'`).pluck().all();
    file.close();
    const known = new Set([...rules.map(({ table }) => table), ...tablesOfTheFile]);
    // Search indexes of devices and logs are made by triggers and by the server.
    const unknown = tables.filter(
      (name) => !known.has(name) && !/^(devices_\w+_(text|terms)|logsText)(_|$)/.test(name),
    );
    t.strictSame(unknown, [], `${database}: cells/moves/tables.ts says what becomes of their rows`);
    t.strictSame(
      rules.filter(({ table }) => !tables.includes(table)),
      [],
    );
  }
});

t.test('an account has in the other directory all that it had, and nothing in the first one', async (t) => {
  const { move, moved, before } = prepare(t);
  const command = ['account', 'move', moved.accountId, '--to', move.to];
  const done = await runCommand(command, { SLIPWAY_DATA_DIR: move.from });
  t.match(done, { code: 0, stderr: '' });
  t.match(JSON.parse(done.stdout), { accounts: [moved.accountId], in: move.to });
  t.match(await runCommand(command, { SLIPWAY_DATA_DIR: move.from }), { code: 0, stdout: /"movedBefore":true/ });

  const target = await isIn(t, move.to, move.from, moved, before);
  const [device] = moved.devices as [Unit];
  // Listens before it is connected: what was queued comes right after CONNACK.
  const login = { username: 'Auth:JWT', password: moved.admin, clientId: 'reader', clean: false, reconnectPeriod: 0 };
  const reader = mqtt.connect(`mqtt://127.0.0.1:${target.server.mqttPort}`, login);
  t.teardown(() => reader.end(true));
  const waiting = nextMessage(reader, (topic) => topic.endsWith('/state'));
  t.equal((await waiting).text, 'state 0', 'queued messages wait for their session');
  const retained = await target.connect({ jwt: moved.admin });
  const told = nextMessage(retained);
  await retained.subscribeAsync(target.topic(device.id, 'state'));
  t.equal((await told).text, 'state 0', 'retained messages are there');
  const client = await target.connect({ deviceId: device.id, secret: device.secret });
  const live = nextMessage(reader, (topic, payload) => topic.endsWith('/state') && `${payload}` === 'new');
  await client.publishAsync(target.topic(device.id, 'state'), 'new', { qos: 1 });
  await live;
  await client.publishAsync(target.topic(device.id, 'series'), `${Date.parse('2026-01-02')},a,99,`, { qos: 1 });
  const { result } = await target.ok('GET', `/api/v4/data/${moved.topic}/latest?pageSize=1`);
  t.equal(result[0].numericValue, 99);
  const organization = await target.organization();
  const claiming = { associationCode: moved.code, organizationId: organization.id };
  await target.ok('POST', '/api/v1/association/start-association-with-code', { body: claiming });
  const { id, version } = (await target.ok('GET', `/api/v1/trash/devices?accountId=${moved.accountId}`)).devices
    .results[0];
  await target.ok('POST', `/api/v1/trash/devices/${id}/recover`, { headers: { etag: version } });

  const asked = (serialNumber: string, more: object = {}) => claim(target, moved.group, { serialNumber, ...more });
  const { enrolled } = moved;
  const known = await asked('E-1', { previousSecret: enrolled.secret });
  t.match(known, { status: 200, body: { device: { id: enrolled.id } } }, 'its group knows it');
  const next = await asked('E-9', { csr: makeRequest(makeKey(), 'E-9') });
  t.match(next.body.credential, { certificate: /BEGIN/ }, 'and its CA signs for the next');
  t.match(await asked('X-1'), { status: 403 });

  const source = await again(t, move.from);
  t.equal((await source.http('GET', `/api/v1/devices/${device.id}`, { token: moved.admin })).status, 401);
  await t.rejects(source.connect({ deviceId: device.id, secret: device.secret }), { code: 4 });
});

t.test('broken off at any step, a move goes on or is taken back, and goes back with what has come since', async (t) => {
  const { move, moved, before } = prepare(t);
  const steps: Step[] = [
    'marking',
    'copying messages',
    'copied points',
    'copying registry',
    'copied',
    'removing',
    'unmarking',
  ];
  const breakOff = (at: Step, one: Move) =>
    t.rejects(
      moveAccounts({
        ...one,
        onStep: (step) => {
          if (step === at) throw new Error(`broken off at ${at}`);
        },
      }),
      { message: `broken off at ${at}` },
    );
  const swapped = ({ from, to, accounts }: Move): Move => ({ accounts, from: to, to: from });
  let one = move;
  for (const at of steps) {
    await breakOff(at, one);
    if (at === 'copied') {
      const { code, stderr } = await runToEnd(mainFile, [], { SLIPWAY_DATA_DIR: move.from, SLIPWAY_HTTP_PORT: '0' });
      t.equal(code, 1, 'no server starts on half of it');
      t.match(stderr, /takes part in a move of .* Run slipway account move again/);
    }
    const isCopied = at === 'removing' || at === 'unmarking';
    t.equal(await abandonMove(one), !isCopied, `${at}: taken back`);
    if (isCopied) one = swapped(one);
    await breakOff(at, one);
    await moveAccounts(one);
    one = swapped(one);
  }
  if (one.from === move.to) await moveAccounts(one);
  await breakOff('copied', move);
  await t.rejects(moveAccounts({ ...move, accounts: ['another'] }), { message: /another move/ });
  await abandonMove(move);
  await isIn(t, move.from, move.to, moved, before);
});

t.test('kill -9 of the command at any moment loses nothing', async (t) => {
  const { move, moved, before } = prepare(t);
  const start = (...args: string[]) => {
    const command = [...plainNode, cliFile, 'account', 'move', moved.accountId, '--to', move.to, ...args];
    const child = spawn('env', command, {
      env: { ...inherited, SLIPWAY_DATA_DIR: move.from },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let said = '';
    child.stderr.on('data', (chunk) => {
      said += chunk;
    });
    return { child, ended: once(child, 'close').then(([code]) => ({ code: code as number | null, said })) };
  };
  // The times are what is tested: each kill hits another step of the command. The run after the last kill of a row is left alone.
  for (const [args, delays] of [
    [[], [200, 260, 320, 380]],
    [['--undo'], [230, 290, 350]],
  ] as const) {
    for (const delay of delays) {
      const { child, ended } = start(...args);
      await Promise.race([sleep(delay), ended]);
      child.kill('SIGKILL');
      await ended;
    }
    t.strictSame(await start(...args).ended, { code: 0, said: '' });
  }
  await isIn(t, move.from, move.to, moved, before);
});

t.test('what cannot be moved is refused, and nothing has changed', async (t) => {
  const { move, moved, before } = prepare(t);
  const run = (directory: string, ...args: string[]) =>
    runCommand(['account', 'move', ...args], { SLIPWAY_DATA_DIR: directory });
  const refused = async (message: RegExp, directory: string, ...args: string[]) =>
    t.match(await run(directory, ...args), { code: 2, stderr: message });
  await refused(/There is no account 0190/, move.from, '01900000-0000-7000-8000-000000000000', '--to', move.to);
  await refused(/--to/, move.from, moved.accountId);
  await refused(/another data directory/, move.from, moved.accountId, '--to', move.from);
  const running = await again(t, move.to);
  await refused(/another server is running on it.* Stop it first/, move.from, moved.accountId, '--to', move.to);
  await running.close();
  const key = join(move.to, 'keys', 'sealing.key');
  const content = readFileSync(key);
  writeFileSync(key, Buffer.alloc(32, 1).toString('base64'));
  await refused(/another sealing\.key/, move.from, moved.accountId, '--to', move.to);
  writeFileSync(key, content);

  // Into an empty directory: it gets the keys, and is a cell by itself.
  const empty = join(temporaryDirectory(t), 'new');
  t.match(await run(move.from, moved.accountId, '--to', empty), { code: 0, stderr: '' });
  t.ok(existsSync(join(empty, 'keys', 'sealing.key')));
  const cell = await startProcess(t, empty);
  const headers = { authorization: `Bearer ${moved.admin}` };
  t.equal((await fetch(`${cell.url}/api/v1/devices/${moved.devices[0]?.id}`, { headers })).status, 200);
  await cell.stop('SIGTERM');
  t.match(await run(move.from, moved.accountId, '--to', empty, '--undo'), { code: 0, stderr: '' });
  await isIn(t, move.from, empty, moved, before);
});
