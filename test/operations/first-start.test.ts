import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import mqtt from 'mqtt';
import t, { type Test } from 'tap';
import { readConfig } from '../../src/config.js';
import { openLog } from '../../src/log.js';
import { startServer } from '../../src/process/server.js';
import { temporaryDirectory } from '../support/directory.js';
import { inherited, launch, mainFile, plainNode } from '../support/process.js';
import { adminEmail, adminPassword } from '../support/service.js';

const accountId = '01a20412-0bbf-70d0-bfb3-da148a24836e';

/** A port that somebody else listens on. */
async function takenPort(t: Test): Promise<{ port: number; free(): Promise<void> }> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const free = async () => void (server.listening && (await once(server.close(), 'close')));
  t.teardown(free);
  return { port: (server.address() as AddressInfo).port, free };
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

t.test('the first answers of the first start are right: password, readiness, MQTT', async (t) => {
  const [http, broker] = [await takenPort(t), await takenPort(t)];
  await http.free();
  await broker.free();
  const url = `http://127.0.0.1:${http.port}`;
  const { child } = launch(temporaryDirectory(t), {
    SLIPWAY_HTTP_PORT: `${http.port}`,
    SLIPWAY_MQTT_PORT: `${broker.port}`,
    SLIPWAY_ACCOUNT_ID: accountId,
  });
  t.teardown(() => child.kill('SIGKILL'));
  const who = { accountId, emailAddress: adminEmail, password: adminPassword };
  const address = { protocol: 'mqtt', host: '127.0.0.1', port: broker.port, reconnectPeriod: 0 } as const;
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
});

t.test('a first start that fails for its port has shown the password of the account that it leaves', async (t) => {
  for (const variable of ['SLIPWAY_HTTP_PORT', 'SLIPWAY_MQTT_PORT']) {
    const directory = temporaryDirectory(t);
    const { port } = await takenPort(t);
    const ports = { SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0', [variable]: `${port}` };
    const child = spawn('env', [...plainNode, mainFile], {
      cwd: directory,
      env: { ...inherited, ...ports, SLIPWAY_DATA_DIR: directory },
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk) => {
        output += chunk;
      });
    t.same(await once(child, 'close'), [1, null]);
    t.match(output, new RegExp(`slipway cannot start: ${variable}.* cannot be used`));
    t.match(output, 'The account above exists now');
    const [, id = ''] = /account\s+(\S{36})/.exec(output) ?? [];
    const [, emailAddress = ''] = /email\s+(\S+)/.exec(output) ?? [];
    const [, password = ''] = /password\s+(\S+)\n/.exec(output) ?? [];
    const env = { SLIPWAY_DATA_DIR: directory, SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0' };
    const again = await startServer(readConfig(env, directory), { log: openLog('fatal', { write() {} }) });
    t.teardown(() => again.close());
    t.equal((await again.ctx.registry.query.selectFrom('accounts').select('id').execute()).length, 1);
    const entered = await login(again.url, { accountId: id, emailAddress, password });
    t.equal(entered.status, 200);
  }
});
