/** An account goes from one running cell to another behind the real HAProxy: all that it has, whatever dies on the way. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import mqtt from 'mqtt';
import t, { type Test } from 'tap';
import { messageRules, pointRules, registryRules } from '../../cells/moves/tables.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { slotOf } from '../../src/core/ids.ts';
import { Api } from '../crash/api.ts';
import { halves, type Proxied, placeOf, startCell, startProxy, through } from '../support/cells.ts';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { freePort } from '../support/free-port.ts';
import { withHaproxy } from '../support/haproxy.ts';
import { cliFile, inherited, plainNode, type Running, startProcess } from '../support/process.ts';
import { type Moved, populate, seen } from '../support/rich-account.ts';
import { adminEmail, adminPassword, nextMessage, type Service } from '../support/service.ts';

const moveToken = 'a token that moves whole accounts'.replaceAll(' ', '-');
const env = { SLIPWAY_MOVE_TOKEN: moveToken, SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' };

/** What is left of an account in a data directory, by table. */
function leftIn(directory: string, { accountId, bridgeId }: Moved): string[] {
  return (
    [
      ['registry.db', registryRules],
      ['messages.db', [...pointRules, ...messageRules]],
    ] as const
  ).flatMap(([database, rules]) => {
    const file = openSqlite(join(directory, database), { readonly: true });
    file.exec(`CREATE TEMP TABLE "moving" ("id" TEXT); INSERT INTO "temp"."moving" VALUES ('${accountId}');
      CREATE TEMP TABLE "movingBridges" ("id" TEXT); INSERT INTO "temp"."movingBridges" VALUES ('${bridgeId}')`);
    const left = rules.filter(({ table, where }) =>
      file.prepare(`SELECT 1 FROM "${table}" WHERE ${where.replaceAll('@', '')}`).get(),
    );
    file.close();
    return left.map(({ table }) => table);
  });
}

interface Cells {
  own: [Service, Service];
  proxied: Proxied;
  moved: Moved;
  /** The account as clients reach it. */
  public: Service;
  run(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }>;
}

async function startCells(t: Test): Promise<Cells> {
  const first = await startCell(t, 0, { env });
  const directory = temporaryDirectory(t);
  cpSync(join(first.directory, 'keys'), join(directory, 'keys'), { recursive: true });
  const own: [Service, Service] = [first, await startCell(t, 1, { env, directory })];
  const proxied = await startProxy(t, [placeOf(own[0]), placeOf(own[1])]);
  const moved = await populate(own[0]);
  const service = Object.assign(through(proxied, own[0]), { accountId: moved.accountId, admin: moved.admin });
  t.teardown(() => service.close());
  const config = join(proxied.directory, '..', 'cells.yaml');
  const run = (...args: string[]) =>
    runCommand(['account', 'move', moved.accountId, '--config', config, ...args], {
      SLIPWAY_MOVE_TOKEN: moveToken,
    });
  return { own, proxied, moved, public: service, run };
}

t.test('Two running cells behind HAProxy', withHaproxy, async (t) => {
  const { own, proxied, moved, public: service, run } = await startCells(t);
  const [device] = moved.devices as [Moved['devices'][number]];
  const before = await seen(service, moved);
  const client = mqtt.connect(`mqtt://127.0.0.1:${service.server.mqttPort}`, {
    username: device.id,
    password: device.secret,
    clientId: 'mover',
    clean: false,
    reconnectPeriod: 20,
  });
  t.teardown(() => client.end(true));
  let ended = 0;
  client.on('close', () => {
    ended += 1;
  });
  const sent: number[] = [];
  let going = true;
  const first = Date.parse('2026-01-10');
  const publishing = (async () => {
    for (let n = 0; going; n += 1) {
      await client.publishAsync(service.topic(device.id, 'series'), `${first + n},a,${n},`, { qos: 1 });
      sent.push(n);
    }
  })();

  t.test('what is not allowed is refused, and nothing has begun', async (t) => {
    const { code, stderr } = await run('--to', 'c03');
    t.equal(code, 2);
    t.match(stderr, /There is no cell c03/);
    for (const token of [undefined, 'x'.repeat(40)]) {
      const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` };
      t.equal((await fetch(`${own[0].server.url}/cell/move`, { headers })).status, 401);
    }
    t.equal((await fetch(`${service.server.url}/cell/move`)).status, 404, 'HAProxy does not pass it on');
  });

  t.test('the account works in the other cell, and nothing is left in the first one', async (t) => {
    const { code, stdout, stderr } = await run('--to', 'c02');
    t.equal(code, 0, stderr);
    t.equal(
      ended,
      1,
      'a device that publishes meanwhile loses its connection once, when it has to go to the other cell',
    );
    const done = JSON.parse(stdout);
    t.match(done, { accounts: [moved.accountId], in: 'c02', silence: Number });
    t.comment(`silence: ${done.silence} ms`);
    const slot = slotOf(moved.accountId);
    t.match(readFileSync(join(proxied.directory, 'slots.map'), 'utf8'), `${slot} c02`);
    t.match(await proxied.proxy.ask(`show map ${join(proxied.directory, 'slots.map')}`), ` ${slot} c02`);
    t.strictSame(leftIn(own[0].directory, moved), []);
    going = false;
    await publishing;
    const after = await seen(service, moved);
    const { kept, ...rest } = after;
    t.match(rest, { points: before.points.slice(0, 3), trash: before.trash, organizations: before.organizations });
    t.strictSame(rest.found, before.found);
    t.equal(rest.pending, before.pending);
    t.equal(kept.length, 3);
    await isComplete(t, service, moved, first, sent);
  });

  t.test('queued messages, retained messages and what was made before work there', async (t) => {
    const login = { username: 'Auth:JWT', password: moved.admin, clientId: 'reader', clean: false, reconnectPeriod: 0 };
    const reader = mqtt.connect(`mqtt://127.0.0.1:${service.server.mqttPort}`, login);
    t.teardown(() => reader.end(true));
    t.equal((await nextMessage(reader, (topic) => topic.endsWith('/state'))).text, 'state 0');
    const retained = await service.connect({ jwt: moved.admin });
    const told = nextMessage(retained);
    await retained.subscribeAsync(service.topic(device.id, 'state'));
    t.equal((await told).text, 'state 0');
    const organization = await service.organization();
    const claim = { associationCode: moved.code, organizationId: organization.id };
    await service.ok('POST', '/api/v1/association/start-association-with-code', { body: claim });
    t.equal((await own[0].http('GET', `/api/v1/devices/${device.id}`, { token: moved.admin })).status, 401);
  });

  t.test('after undo it is in the first cell again, with what has come since', async (t) => {
    const topic = service.topic(device.id, 'series');
    await client.publishAsync(topic, `${Date.parse('2026-01-20')},a,99,`, { qos: 1 });
    const { code, stdout, stderr } = await run('--to', 'c02', '--undo');
    t.equal(code, 0, stderr);
    t.match(JSON.parse(stdout), { in: 'c01' });
    t.strictSame(leftIn(own[1].directory, moved), []);
    await isComplete(t, service, moved, first, sent);
    const { result } = await service.ok('GET', `/api/v4/data/${topic}/latest?pageSize=1`);
    t.equal(result[0].numericValue, 99);
    t.match(await run('--to', 'c01'), { code: 0, stdout: /"movedBefore":true/ });
  });
});

/** Every point that was acknowledged is stored. */
async function isComplete(t: Test, service: Service, moved: Moved, first: number, sent: number[]): Promise<void> {
  const found = new Set<number>();
  for (let token: string | null = ''; token !== null; ) {
    const range = `startDateTime=${new Date(first).toISOString()}&endDateTime=2026-01-19`;
    const after: string = token === '' ? '' : `&pagingToken=${encodeURIComponent(token)}`;
    const { result, meta } = await service.ok('GET', `/api/v4/data/${moved.topic}?${range}&pageSize=1000${after}`);
    for (const { numericValue } of result) found.add(numericValue);
    token = meta.pagingToken;
  }
  t.strictSame(
    sent.filter((n) => !found.has(n)),
    [],
    `${sent.length} acknowledged points are stored`,
  );
}

t.test('kill -9 of either cell or of the command at any step loses nothing', withHaproxy, async (t) => {
  const directories = [temporaryDirectory(t), temporaryDirectory(t)] as const;
  const ports = [await freePorts(), await freePorts()] as const;
  const start = (place: 0 | 1) =>
    startProcess(t, directories[place], {
      ...env,
      ...ports[place],
      SLIPWAY_SLOTS: halves[place],
      SLIPWAY_TRUSTED_PROXIES: '127.0.0.1',
      ...(place === 1 && { SLIPWAY_ADMIN_EMAIL: 'other@example.com' }),
    });
  const cells = [await start(0)] as Running[];
  cpSync(join(directories[0], 'keys'), join(directories[1], 'keys'), { recursive: true });
  cells.push(await start(1));
  const proxied = await startProxy(t, [cells[0] as Running, cells[1] as Running]);
  const config = join(proxied.directory, '..', 'cells.yaml');
  const api = new Api(accountIn(directories[0]), { email: adminEmail, password: adminPassword });
  api.url = proxied.url;
  await api.login();
  const { deviceTemplate } = await api.ok('POST', '/api/v1/devices/templates', { name: 'Moved' });
  const made: string[] = [];
  const make = async () => {
    for (;;) {
      const body = { serialNumber: `S${made.length}`, deviceTemplateId: deviceTemplate.id };
      const { status, body: answer } = await api
        .ask('POST', '/api/v1/devices', body)
        .catch(() => ({ status: 0, body: undefined }));
      if (status === 200 && answer) return made.push(answer.device.id);
    }
  };
  let at: 0 | 1 = 0;
  const kills = ['source paused', 'target copied', 'command activated', 'source switched'];
  for (const [place, kill] of kills.entries()) {
    const [victim, step] = kill.split(' ') as [string, string];
    await make();
    const target = at === 0 ? 1 : 0;
    const to = `c0${target + 1}`;
    const args = ['account', 'move', api.accountId, '--to', to, '--config', config];
    const killed = await callAndKill(args, step, async (child) => {
      if (victim === 'command') return void child.kill('SIGKILL');
      const one = victim === 'source' ? at : target;
      await cells[one]?.stop('SIGKILL');
      cells[one] = await start(one);
    });
    t.ok(killed, `${kill}: killed`);
    const isUndone = place % 3 === 2;
    const again = await runCommand(isUndone ? [...args, '--undo'] : args, { SLIPWAY_MOVE_TOKEN: moveToken });
    t.equal(again.code, 0, `${kill}: ${again.stderr}`);
    at = JSON.parse(again.stdout).in === 'c01' ? 0 : 1;
    t.equal(at, isUndone ? 1 - target : target, `${kill}: ${isUndone ? 'taken back' : 'moved'}`);
    await make();
    for (const id of made) t.equal((await api.ask('GET', `/api/v1/devices/${id}`)).status, 200);
    const states = await Promise.all(
      cells.map(async ({ url }) => {
        const headers = { authorization: `Bearer ${moveToken}` };
        const answer = await fetch(`${url}/cell/move?accountId=${api.accountId}`, { headers });
        return ((await answer.json()) as { state: string }).state;
      }),
    );
    t.strictSame(states, at === 0 ? ['here', 'none'] : ['none', 'here'], `${kill}: one cell acts`);
  }
});

/** Calls the command, and kills at the first line that begins with `step`; whether there was one. */
async function callAndKill(
  args: string[],
  step: string,
  kill: (child: ChildProcess) => Promise<void>,
): Promise<boolean> {
  const child = spawn('env', [...plainNode, cliFile, ...args], {
    env: { ...inherited, SLIPWAY_MOVE_TOKEN: moveToken },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const closed = once(child, 'close');
  let killing: Promise<void> | undefined;
  for await (const line of createInterface({ input: child.stderr })) if (line.startsWith(step)) killing ??= kill(child);
  await closed;
  await killing;
  return killing !== undefined;
}

async function freePorts() {
  return { SLIPWAY_HTTP_PORT: String(await freePort()), SLIPWAY_MQTT_PORT: String(await freePort()) };
}

function accountIn(directory: string): string {
  const file = openSqlite(join(directory, 'registry.db'), { readonly: true });
  const id = file.prepare<[], string>('SELECT "id" FROM "accounts"').pluck().get();
  file.close();
  return id ?? '';
}
