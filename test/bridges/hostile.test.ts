/** Targets that mean harm: they answer without end, or with what no client expects. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import type { Test } from 'tap';
import { NatsSocket, type SocketOptions } from '../../src/bridges/targets/nats-socket.ts';
import { part } from '../support/part.ts';
import { startService } from '../support/service.ts';

const t = await part(import.meta);

/** What a target may get rid of before its connection ends: our allowance, and what the buffers of both ends hold. */
const maxTaken = 16 * 1024 * 1024;
const block = Buffer.alloc(65_536, 'x');

/** Answers the first bytes that come, or the connection itself, with `first` and then with blocks for as long as they are taken. */
async function startFlood(t: Test, first: Buffer, { speaksFirst }: { speaksFirst: boolean }) {
  const ended: Array<Promise<number>> = [];
  const server = createServer((socket: Socket) => {
    let taken = 0;
    const flood = () => {
      while (!socket.destroyed && taken < 4 * maxTaken) {
        taken += block.length;
        if (!socket.write(block)) return;
      }
    };
    socket.on('drain', flood);
    socket.on('error', () => {});
    ended.push(new Promise((resolve) => socket.once('close', () => resolve(taken))));
    const begin = () => {
      socket.write(first);
      flood();
    };
    if (speaksFirst) begin();
    else socket.once('data', begin);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return { port: (server.address() as AddressInfo).port, ended };
}

const floods = {
  nats: { first: Buffer.from('INFO {"a":"'), speaksFirst: true, scheme: 'nats', settings: {} },
  // CONNACK, and a PUBLISH whose length says 256 MiB.
  mqtt: { first: Buffer.from('2002000030ffffff7f0001', 'hex'), speaksFirst: false, scheme: 'mqtt', settings: {} },
  // An answer whose length says 2 GiB.
  kafka: { first: Buffer.from('7fffffff', 'hex'), speaksFirst: false, scheme: 'kafka', settings: {} },
  kinesis: {
    first: Buffer.from('HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.1\r\n\r\n'),
    speaksFirst: false,
    scheme: 'http',
    settings: { stream: 'messages', region: 'eu-west-1' },
  },
  webhook: { first: Buffer.from('HTTP/1.1 200 OK\r\n\r\n'), speaksFirst: false, scheme: 'http', settings: {} },
};

t.test('no target makes us keep what it sends without end', async (t) => {
  const env = { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true', SLIPWAY_BRIDGE_TIMEOUT_SECONDS: '2' };
  const service = await startService(t, { env });
  for (const [kind, { first, speaksFirst, scheme, settings }] of Object.entries(floods))
    await t.test(kind, async (t) => {
      const target = await startFlood(t, first, { speaksFirst });
      const password = `hidden-${kind}-password`;
      service.secrets.add(password);
      const login = kind === 'kinesis' ? { accessKeyId: 'a', secretAccessKey: password } : { username: 'me', password };
      const bridge = await service.create('/bridges', 'bridge', {
        name: service.unique(kind),
        kind,
        url: `${scheme}://127.0.0.1:${target.port}`,
        settings,
        ...(kind === 'webhook' ? { secret: password } : { credentials: login }),
      });
      const { test } = await service.ok('POST', `/api/v1/bridges/${bridge.id}/test`);
      // A webhook has said 200 before the flood.
      t.equal(test.delivered, kind === 'webhook', JSON.stringify(test));
      await service.ok('DELETE', `/api/v1/bridges/${bridge.id}`, { headers: { etag: bridge.version } });
      t.ok(target.ended.length > 0, 'it was connected to');
      for (const taken of await Promise.all(target.ended)) t.ok(taken < maxTaken, `${taken} bytes`);
    });
});

/** Accepts connections, sends `greeting` and never answers. */
async function startSilence(t: Test, greeting: string) {
  const closed: Array<Promise<void>> = [];
  const server = createServer((socket) => {
    socket.on('error', () => {}).resume();
    // Not `once` of node:events, for which a reset would be an error.
    closed.push(new Promise((resolve) => socket.once('close', () => resolve())));
    socket.write(greeting);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return { port: (server.address() as AddressInfo).port, closed };
}

t.test('a target that never answers is given up, and its connection ends', async (t) => {
  const env = { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true', SLIPWAY_BRIDGE_TIMEOUT_SECONDS: '1' };
  const service = await startService(t, { env });
  const tries = Object.entries(floods).map(async ([kind, { scheme, settings }]) => {
    const target = await startSilence(t, kind === 'nats' ? 'INFO {"version":"2.10.0","headers":true}\r\n' : '');
    const credentials = { accessKeyId: 'a', secretAccessKey: 'b' };
    const bridge = await service.create('/bridges', 'bridge', {
      name: service.unique(kind),
      kind,
      url: `${scheme}://127.0.0.1:${target.port}`,
      settings,
      ...(kind === 'kinesis' && { credentials }),
    });
    const { test } = await service.ok('POST', `/api/v1/bridges/${bridge.id}/test`);
    t.match(test, { delivered: false, reason: /./ }, `${kind}: ${JSON.stringify(test)}`);
    t.ok(target.closed.length > 0, `${kind} was connected to`);
    await Promise.all(target.closed);
  });
  await Promise.all(tries);
});

t.test('a server of NATS whose version is no version is refused before the client prints it', async (t) => {
  const target = await startSilence(t, 'INFO {"version":"2\\nforged"}\r\n');
  const socket = new NatsSocket();
  const openSocket = () => connect(target.port, '127.0.0.1');
  const options = { openSocket, tls: undefined } as SocketOptions;
  await t.rejects(socket.connect(undefined, options), { code: 'NOT_NATS' });
});

t.end();
