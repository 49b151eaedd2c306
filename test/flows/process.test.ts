import { execFile, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, globSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import mqtt from 'mqtt';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { mainFile, type Running, runToEnd, startProcess } from '../support/process.ts';
import { type Anything, adminEmail, adminPassword } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const run = promisify(execFile);
const project = fileURLToPath(new URL('../../', import.meta.url));

/** An admin of a running process: requests, and a device on a template with a stored channel. */
async function admin(url: string, accountId: string) {
  const call = async (method: string, path: string, body?: object, token = '') => {
    const response = await fetch(url + path, {
      method,
      headers: { 'content-type': 'application/json', ...(token && { authorization: `Bearer ${token}` }) },
      ...(body && { body: JSON.stringify(body) }),
    });
    return (await response.json()) as Anything;
  };
  const { jwt } = await call('POST', '/api/v1/auth/login-user', {
    accountId,
    emailAddress: adminEmail,
    password: adminPassword,
  });
  const api = (method: string, path: string, body?: object) => call(method, path, body && { accountId, ...body }, jwt);
  const device = async (): Promise<{ id: string; secret: string; topic: string }> => {
    const { deviceTemplate } = await api('POST', '/api/v1/devices/templates', { name: `T ${Math.random()}` });
    await api('POST', '/api/v1/channels/templates', {
      entityId: deviceTemplate.id,
      entityType: 'deviceTemplate',
      name: 'data',
      persistenceType: 'timeSeries',
    });
    const made = (await api('POST', '/api/v1/devices', { serialNumber: 'p', deviceTemplateId: deviceTemplate.id }))
      .device;
    const { mqttCredential } = await api('POST', '/api/v1/access/mqtt-credentials', {
      entityId: made.id,
      entityType: 'device',
    });
    return { id: made.id, secret: mqttCredential.secret, topic: `slipway/v1/${accountId}/d/${made.id}/data` };
  };
  return { jwt, api, device };
}

/** A server that runs next to what a test does, for those that leave it as it is. */
let running: Running;
let runningIn: string;
t.before(async () => {
  runningIn = temporaryDirectory(t);
  running = await startProcess(t, runningIn);
});

const accountOf = (output: string) => /account\s+(\S{36})/.exec(output)?.[1] ?? '';

t.test('a start that refuses the password creates no account: the first to succeed prints one, once', async (t) => {
  const directory = temporaryDirectory(t);
  const env = { SLIPWAY_DATA_DIR: directory, SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0' };
  const weak = await runToEnd(mainFile, [], { ...env, SLIPWAY_ADMIN_PASSWORD: 'short' });
  const stderr = 'slipway cannot start: SLIPWAY_ADMIN_PASSWORD must have 8 to 256 characters.\n';
  t.strictSame(weak, { code: 1, stdout: '', stderr });
  const server = await startProcess(t, directory, { SLIPWAY_ADMIN_PASSWORD: undefined });
  const [, password = ''] = /password {2}(\S+)/.exec(server.output()) ?? [];
  t.ok(password.length >= 20);
  // Its commands can be pasted.
  const commands = server
    .output()
    .split('\n')
    .slice(server.output().split('\n').indexOf('1. Log in:'))
    .filter((line) => !/^([123]\. |mosquitto_pub)/.test(line));
  t.equal(commands.filter((line) => line.includes('npx --yes mqtt@5 pub')).length, 1);
  const { stdout } = await run('bash', ['-e', '-c', commands.join('\n')], { cwd: project });
  const answer = JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
  t.match(answer.result, [{ category: 'temperature', numericValue: 21.5 }]);
  t.equal(await server.stop('SIGTERM'), 0);

  const delay = { SLIPWAY_SHUTDOWN_DELAY_SECONDS: '60' };
  const again = await startProcess(t, directory, { SLIPWAY_ADMIN_PASSWORD: undefined, ...delay });
  t.notMatch(again.output(), /password/);
  const { stdout: found } = await run('bash', ['-c', `grep -rlF -e '${password}' . || true`], { cwd: directory });
  t.equal(found, '', 'nowhere in the data directory');
  const ended = again.stop('SIGTERM');
  // Its port is open until its clients have had time to hear that it ends.
  await until(async () => (await fetch(`${again.url}/health/ready`)).status !== 200);
  // A second signal ends the wait.
  again.child.kill('SIGTERM');
  t.equal(await ended, 0);
});

t.test('a start on the data of another version says from which to which, once', async (t) => {
  const directory = temporaryDirectory(t);
  const first = await startProcess(t, directory);
  await first.stop('SIGTERM');
  t.notMatch(first.output(), /The data was of/);
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
  t.equal(readFileSync(join(directory, 'version'), 'utf8'), version);
  writeFileSync(join(directory, 'version'), '0.0.9');
  const upgraded = await startProcess(t, directory);
  await upgraded.stop('SIGTERM');
  t.match(upgraded.output(), `The data was of Slipway 0.0.9, and is of ${version} now.`);
  const again = await startProcess(t, directory);
  t.notMatch(again.output(), /The data was of/);
});

t.test('acknowledged before kill -9 is there after the restart, and after a clean stop in the two files', async (t) => {
  const directory = temporaryDirectory(t);
  const server = await startProcess(t, directory);
  const accountId = accountOf(server.output());
  const { id, secret, topic } = await (await admin(server.url, accountId)).device();
  const publisher = await mqtt.connectAsync(`mqtt://127.0.0.1:${server.mqttPort}`, {
    username: id,
    password: secret,
    reconnectPeriod: 0,
  });
  publisher.on('error', () => {});
  const first = Date.parse('2026-01-01T00:00:00Z');
  const acknowledged: number[] = [];
  const enough = new Promise<void>((resolve) => {
    const publish = (n: number) =>
      publisher.publish(topic, `${first + n},n,${n},`, { qos: 1 }, (error) => {
        if (error) return;
        acknowledged.push(n);
        if (acknowledged.length === 2000) resolve();
        publish(n + 100);
      });
    for (let n = 0; n < 100; n += 1) publish(n);
  });
  await enough;
  t.equal(await server.stop('SIGKILL'), 'SIGKILL');
  publisher.end(true);

  const restarted = await startProcess(t, directory);
  const { api } = await admin(restarted.url, accountId);
  const stored = new Set<number>();
  let pagingToken = '';
  do {
    const query = `startDateTime=2026-01-01T00:00:00Z&endDateTime=2026-02-01T00:00:00Z&pageSize=1000${pagingToken && `&pagingToken=${pagingToken}`}`;
    const page = await api('GET', `/api/v4/data/${topic}?${query}`);
    for (const { numericValue } of page.result) stored.add(numericValue);
    pagingToken = page.meta.pagingToken ?? '';
  } while (pagingToken);
  t.ok(acknowledged.length >= 2000);
  t.same(
    acknowledged.filter((n) => !stored.has(n)),
    [],
  );
  const { device } = await api('GET', `/api/v1/devices/${id}`);
  t.equal(device.connected, false, 'nobody is left connected by a crash');

  const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${restarted.mqttPort}`, { username: id, password: secret });
  await client.publishAsync(topic, ',x,1,', { qos: 1 });
  client.end(true);
  await restarted.stop('SIGINT');
  t.same(
    readdirSync(directory).filter((file) => /-(wal|shm|journal)$/.test(file)),
    [],
    'the two database files hold everything',
  );
  t.match(restarted.output(), /^(?!.*"level":50)/s, 'and no error is logged');
});

/** Moves the wall clock of a process, and leaves the monotonic one: libfaketime, which Debian keeps in a directory of the machine's kind. */
const [faketime] = globSync('/usr/lib/*/faketime/libfaketimeMT.so.1');

t.test(
  'a wall clock that jumps 400 days ends no stored session and drops no message, until it is confirmed',
  faketime ? {} : { skip: 'libfaketime is not here' },
  async (t) => {
    const directory = temporaryDirectory(t);
    const shift = join(temporaryDirectory(t), 'shift');
    const moveClock = (by: string) => {
      writeFileSync(`${shift}.new`, by);
      renameSync(`${shift}.new`, shift);
    };
    moveClock('+0d');
    const server = await startProcess(t, directory, {
      ...{
        LD_PRELOAD: faketime,
        FAKETIME_TIMESTAMP_FILE: shift,
        FAKETIME_NO_CACHE: '1',
        FAKETIME_DONT_FAKE_MONOTONIC: '1',
      },
      SLIPWAY_RETENTION_DAYS: '30',
    });
    const accountId = accountOf(server.output());
    const { api, device } = await admin(server.url, accountId);
    const { id, secret, topic } = await device();
    const come = async (clientId: string, clean = false) => {
      const client = mqtt.connect(`mqtt://127.0.0.1:${server.mqttPort}`, {
        ...{ clientId, clean, username: id, password: secret, protocolVersion: 5, reconnectPeriod: 0 },
        properties: { sessionExpiryInterval: 3600 },
      });
      t.teardown(() => client.end(true));
      const heard = new Promise<string>((resolve) => client.once('message', (_, payload) => resolve(`${payload}`)));
      const sessionPresent = await new Promise<boolean>((resolve) => {
        client.once('connect', (connack) => resolve(connack.sessionPresent));
      });
      return { client, sessionPresent, heard };
    };
    for (const clientId of ['first', 'second']) {
      const { client } = await come(clientId);
      await client.subscribeAsync(topic, { qos: 1 });
      await client.endAsync();
    }
    const { client: sender } = await come('sender', true);
    const properties = { messageExpiryInterval: 600 };
    await sender.publishAsync(topic, ',before,1,', { qos: 1, properties });
    const doubt = join(directory, 'clock-doubt');
    t.notOk(existsSync(doubt));

    moveClock('+400d');
    const back = await come('first');
    t.equal(back.sessionPresent, true);
    t.equal(await back.heard, ',before,1,', 'nothing has expired');
    t.match(server.output(), /"msg":"the clock has jumped ahead: nothing is deleted/);
    const { api: ahead } = await admin(server.url, accountId);
    /** Whole days that Home says the clock is ahead. */
    const attention = async (): Promise<number | undefined> => {
      const { overview } = await ahead('GET', `/api/v1/overview?accountId=${accountId}`);
      return overview.attention.find(({ kind }: { kind: string }) => kind === 'clockDoubted')?.count;
    };
    t.ok([399, 400].includes((await attention()) ?? 0));
    t.ok(existsSync(doubt));

    const { code, stderr } = await runCommand(['clock', 'confirm', '--data-dir', directory]);
    t.equal(code, 0, stderr);
    await until(async () => (await attention()) === undefined);
    t.match(server.output(), /"msg":"the clock has been confirmed"/);
    t.equal((await come('second')).sessionPresent, false, 'it has been away for 400 days');

    moveClock('+0d');
    t.equal((await api('GET', `/api/v1/devices/${id}`)).device.id, id);
    t.equal(await server.stop('SIGTERM'), 0);
  },
);

t.test('a second server on the same data directory is refused', async (t) => {
  const env = { SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0' };
  const second = await runToEnd(mainFile, [], { ...env, SLIPWAY_DATA_DIR: runningIn });
  t.equal(second.code, 1);
  t.match(
    second.stderr.trim(),
    `slipway cannot start: SLIPWAY_DATA_DIR cannot be used: ${runningIn}: another server is running on it: process `,
  );
});

t.test('slipway account create works while a server is running, which serves the account at once', async (t) => {
  const create = ['account', 'create', '--data-dir', runningIn];
  const made = await runCommand([...create, '--name', 'Second', '--admin-email', 'boss@second.example']);
  t.equal(made.code, 0, made.stderr);
  const { accountId, adminEmail: emailAddress, adminPassword: password } = JSON.parse(made.stdout);
  const response = await fetch(`${running.url}/api/v1/auth/login-user`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ accountId, emailAddress, password }),
  });
  t.equal(response.status, 200);
  const refused = await runCommand([...create, '--name', 'Third', '--admin-email', 'nobody']);
  t.equal(refused.code, 2);
  t.match(refused.stderr, /adminEmail must be an email address/);
});

t.test('SIGTERM: a request under way is answered, connections are closed, exit 0 within 5 seconds', async (t) => {
  // The last test of the server that the others leave as it is.
  const server = running;
  const accountId = accountOf(server.output());
  const { jwt, device } = await admin(server.url, accountId);
  const { id, secret } = await device();
  const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${server.mqttPort}`, {
    username: id,
    password: secret,
    reconnectPeriod: 0,
  });
  const closed = new Promise<void>((resolve) => client.once('close', () => resolve()));
  const idle = connect(Number(new URL(server.url).port), '127.0.0.1');
  await once(idle, 'connect');

  // The head and half of the body are there when the signal comes.
  const body = JSON.stringify({ accountId, serialNumber: 'under way' });
  const slow = connect(Number(new URL(server.url).port), '127.0.0.1');
  const head = `POST /api/v1/devices HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${jwt}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nExpect: 100-continue\r\n\r\n`;
  slow.write(head + body.slice(0, 10));
  const [progress] = await once(slow, 'data');
  t.match(String(progress), /100 Continue/, 'the server is in the middle of it');
  const started = process.hrtime.bigint();
  const ended = server.stop('SIGTERM');
  slow.write(body.slice(10));
  let answer = '';
  slow.on('data', (chunk) => {
    answer += chunk;
  });
  const answered = new Promise<void>((resolve) => slow.once('close', () => resolve()));
  t.equal(await ended, 0);
  await answered;
  t.match(answer, /^HTTP\/1\.1 200 OK/);
  t.ok(Number(process.hrtime.bigint() - started) < 5e9);
  await closed;
  idle.destroy();
});

const hasPrlimit = spawnSync('prlimit', ['--version']).status === 0;
t.test(
  'while the disk refuses writes it is not ready and says why; it is ready again when they work',
  hasPrlimit ? {} : { skip: 'the writes of a process are refused with prlimit of Linux' },
  async (t) => {
    const { child, url, output } = await startProcess(t, temporaryDirectory(t));
    const { api, device } = await admin(url, accountOf(output()));
    const { id, secret, topic } = await device();
    const publish = () =>
      fetch(`${url}/messaging/publish/${topic}`, {
        method: 'POST',
        headers: { authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}` },
        body: '1',
      });
    t.equal((await publish()).status, 200);
    const mayWrite = (bytes: string) => run('prlimit', ['--pid', String(child.pid), `--fsize=${bytes}:unlimited`]);
    const ready = async () =>
      (await fetch(`${url}/health/ready`)).json() as Promise<{ ready: boolean; problems: object[] }>;
    t.match(await ready(), { ready: true });
    await mayWrite('1');
    t.match(await api('POST', '/api/v1/organizations', { name: 'Lost' }), { error: {} });
    t.ok((await publish()).status >= 500);
    const reason = 'The database cannot be written: the disk has failed.';
    await until(async () => (await ready()).problems.length === 2);
    t.match(await ready(), {
      ready: false,
      problems: [
        { part: 'messages', reason },
        { part: 'registry', reason },
      ],
    });
    t.equal((await fetch(`${url}/health/live`)).status, 200);
    await mayWrite('unlimited');
    await until(async () => (await ready()).ready);
    t.match(await api('POST', '/api/v1/organizations', { name: 'Kept' }), { organization: { name: 'Kept' } });
    t.equal((await publish()).status, 200);
  },
);

t.end();
