import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import mqtt from 'mqtt';
import type { Test } from 'tap';
import { certificate } from '../broker/certificate.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { freePort } from '../support/free-port.ts';
import { part } from '../support/part.ts';
import { inherited, launch, mainFile, plainNode, type Running } from '../support/process.ts';
import { refusedStart } from '../support/refused-start.ts';
import { adminEmail, adminPassword } from '../support/service.ts';

const t = await part(import.meta);

const accountId = '01a20412-0bbf-70d0-bfb3-da148a24836e';

/** A port that somebody else listens on. */
async function takenPort(t: Test): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return (server.address() as AddressInfo).port;
}

function login(url: string, account: { accountId: string; emailAddress: string; password: string }): Promise<Response> {
  const headers = { 'content-type': 'application/json' };
  return fetch(`${url}/api/v1/auth/login-user`, { method: 'POST', headers, body: JSON.stringify(account) });
}

/** Asks again and again until somebody listens. */
async function firstAnswer<T>(ask: () => Promise<T>): Promise<T> {
  for (const end = Date.now() + 60_000; Date.now() < end; ) {
    try {
      return await ask();
    } catch (error) {
      const { code } = ((error as Error).cause ?? error) as { code?: string };
      if (code !== 'ECONNREFUSED') throw error;
      // Short enough to come while the start goes on; without it the asking would take the processor from the start.
      await delay(2);
    }
  }
  throw new Error('nobody listens');
}

const firstLine = (server: Running) => server.output().split('\n').find(Boolean);

t.test('the first answers and the first line of the first start are right', async (t) => {
  const [http, broker] = [await freePort(), await freePort()];
  const url = `http://127.0.0.1:${http}`;
  const { child, listening } = launch(temporaryDirectory(t), {
    SLIPWAY_HTTP_PORT: `${http}`,
    SLIPWAY_MQTT_PORT: `${broker}`,
    SLIPWAY_ACCOUNT_ID: accountId,
    SLIPWAY_LOG_LEVEL: 'trace',
    SLIPWAY_UNKNOWN: 'x',
  });
  t.teardown(() => child.kill('SIGKILL'));
  const who = { accountId, emailAddress: adminEmail, password: adminPassword };
  const address = { protocol: 'mqtt', host: '127.0.0.1', port: broker, reconnectPeriod: 0 } as const;
  const [entered, ready, refused] = await Promise.all([
    firstAnswer(() => login(url, who)),
    firstAnswer(() => fetch(`${url}/health/ready`)),
    firstAnswer(() =>
      mqtt.connectAsync({ ...address, username: 'nobody', password: 'x' }).catch((error) => {
        if (error.code === 'ECONNREFUSED') throw error;
        return error;
      }),
    ),
  ]);
  t.equal(entered.status, 200);
  t.equal(ready.status, 200);
  t.match(refused, { code: 4 });
  // Lines of the log do not come before it either, where the port is known.
  t.equal(firstLine(await listening), `Console ${url}/console/`);
});

/** A start on a directory: its end, what it has said, and what it has left there. */
async function failedStart(directory: string, env: Record<string, string>, asUser: string[] = []) {
  const ports = { SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0', SLIPWAY_MQTTS_PORT: '0' };
  const [command = '', ...args] = [...asUser, 'env', ...plainNode, mainFile];
  const child = spawn(command, args, { env: { ...inherited, ...ports, SLIPWAY_DATA_DIR: directory, ...env } });
  const said = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const)
    child[name].on('data', (chunk) => {
      said[name] += chunk;
    });
  const [code] = await once(child, 'close');
  return { code, ...said };
}

t.test('a first start that cannot have a port or its address names the variable and leaves nothing', async (t) => {
  const port = await takenPort(t);
  const tls = certificate(t);
  // Of the addresses for documentation: no machine has it.
  const elsewhere = '192.0.2.1';
  for (const [variable, env, reason] of [
    ['SLIPWAY_HTTP_PORT', { SLIPWAY_HTTP_PORT: `${port}` }, 'EADDRINUSE'],
    ['SLIPWAY_MQTT_PORT', { SLIPWAY_MQTT_PORT: `${port}` }, 'EADDRINUSE'],
    ['SLIPWAY_MQTTS_PORT', { ...tls, SLIPWAY_MQTTS_PORT: `${port}` }, 'EADDRINUSE'],
    ['SLIPWAY_HOST', { SLIPWAY_HOST: elsewhere }, 'EADDRNOTAVAIL'],
    ['SLIPWAY_HOST', { SLIPWAY_HOST: elsewhere, SLIPWAY_HTTP_PORT: '3999' }, 'EADDRNOTAVAIL'],
  ] as const) {
    const directory = join(temporaryDirectory(t), 'data');
    t.match(await refusedStart(directory, env), new RegExp(`^${variable} cannot be used: .*${reason}.*$`));
    t.notOk(existsSync(directory), 'not even the directory');
  }
  const directory = join(temporaryDirectory(t), 'data');
  const { code, stdout, stderr } = await failedStart(directory, { SLIPWAY_HTTP_PORT: `${port}` });
  t.equal(code, 1);
  t.match(stderr, /^slipway cannot start: SLIPWAY_HTTP_PORT cannot be used: .*EADDRINUSE.*\n$/);
  t.equal(stdout, '');
  t.notOk(existsSync(directory), 'nor in a process of its own');
});

t.test('a first start that cannot use its directory names the variable and leaves nothing', async (t) => {
  const parent = temporaryDirectory(t);
  const file = join(parent, 'file');
  writeFileSync(file, '');
  const sentence = `SLIPWAY_DATA_DIR cannot be used: ${file}: it is not a directory.`;
  for (const directory of [file, join(file, 'data')]) t.equal(await refusedStart(directory, {}), sentence);
  const closed = join(parent, 'closed');
  mkdirSync(closed, { mode: 0o500 });
  chmodSync(parent, 0o755);
  const isRoot = process.getuid?.() === 0;
  // Root may write anywhere: its start is that of another user, who has to be able to read this checkout.
  const asUser = isRoot ? ['setpriv', '--reuid', '65534', '--clear-groups', '--'] : [];
  if (isRoot) chmodSync(closed, 0o555);
  const canRun =
    !isRoot || spawnSync('setpriv', [...asUser.slice(1), process.execPath, '--check', mainFile]).status === 0;
  if (!canRun) return t.comment('skipped as root: another user cannot read the checkout');
  for (const directory of [join(closed, 'new', 'data'), closed]) {
    const start = await failedStart(directory, {}, asUser);
    const reason = `SLIPWAY_DATA_DIR cannot be used: ${closed}: this user may not write there.`;
    t.match(start, { code: 1, stdout: '', stderr: `slipway cannot start: ${reason}\n` }, directory);
    t.same(readdirSync(closed), []);
  }
});

t.test('a directory that the system refuses oddly ends the start with a sentence', async (t) => {
  if (!existsSync('/proc/self')) return t.comment('skipped: there is no /proc');
  t.match(await refusedStart('/proc/slipway/data', {}), /^SLIPWAY_DATA_DIR cannot be used: \/proc\//);
});

t.test('who reads the output may go away: the service goes on, and a signal ends it', async (t) => {
  const directory = temporaryDirectory(t);
  const [port, broker] = [await freePort(), await freePort()];
  // The line of the log that names the unknown setting is written when nobody reads any more.
  const env = {
    ...inherited,
    SLIPWAY_DATA_DIR: directory,
    SLIPWAY_HTTP_PORT: `${port}`,
    SLIPWAY_MQTT_PORT: `${broker}`,
    SLIPWAY_UNKNOWN: 'x',
  };
  const [command = '', ...args] = ['env', ...plainNode, mainFile];
  const child = spawn(command, args, { env, stdio: ['ignore', 'pipe', 'ignore'] });
  t.teardown(() => child.kill('SIGKILL'));
  await once(child.stdout, 'data');
  child.stdout.destroy();
  const ready = await firstAnswer(() => fetch(`http://127.0.0.1:${port}/health/live`));
  t.equal(ready.status, 200);
  child.kill('SIGTERM');
  t.match(await once(child, 'exit'), [0, null]);
});

t.test('a start with a key that other users can read names the variable and leaves nothing', async (t) => {
  const tls = certificate(t);
  const { SLIPWAY_TLS_KEY: key = '' } = tls;
  for (const mode of [0o644, 0o604, 0o660]) {
    chmodSync(key, mode);
    const directory = join(temporaryDirectory(t), 'data');
    const sentence = `SLIPWAY_TLS_KEY cannot be used: other users can read ${key} (mode ${mode.toString(8)}). Run: chmod 600 ${key}`;
    t.equal(await refusedStart(directory, tls), sentence);
    t.notOk(existsSync(directory));
  }
});

t.test('standard output of every start begins with the address of the console', async (t) => {
  const tls = certificate(t);
  const directory = temporaryDirectory(t);
  for (const [env, address] of [
    [{ SLIPWAY_HOST: '0.0.0.0' }, 'http://127\\.0\\.0\\.1:\\d+'],
    [{ ...tls, SLIPWAY_MQTTS_PORT: '0' }, 'https://127\\.0\\.0\\.1:\\d+'],
    [{ SLIPWAY_PUBLIC_URL: 'https://things.example.com' }, 'https://things\\.example\\.com'],
  ] as const) {
    const { child, listening } = launch(directory, env);
    t.teardown(() => child.kill('SIGKILL'));
    const server = await listening;
    t.match(firstLine(server), new RegExp(`^Console ${address}/console/$`));
    await server.stop('SIGTERM');
  }
});

t.end();
