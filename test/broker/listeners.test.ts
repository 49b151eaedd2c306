import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import mqtt, { type IClientOptions } from 'mqtt';
import type { Test } from 'tap';
import { WebSocket } from 'ws';
import { whileRegistryFails } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { nextMessage, unlessBehindProxy } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { certificate } from './certificate.ts';
import { fixture, fixtureIn, hasty, secureFixture } from './fixture.ts';
import { connectPacket, speak } from './raw.ts';

const t = await part(import.meta);

async function echo(t: Test, url: string, options: IClientOptions, topic: string, payload = 'hello'): Promise<void> {
  const client = await mqtt.connectAsync(url, { reconnectPeriod: 0, ...options });
  t.teardown(() => client.end(true));
  await client.subscribeAsync(topic, { qos: 1 });
  const heard = nextMessage(client);
  await client.publishAsync(topic, payload, { qos: 1 });
  t.equal((await heard).text, payload);
}

t.test('MQTT over WebSocket is served at /mqtt of the HTTP port', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const login = { username: f.device.id, password: f.secret };
  await echo(t, f.service.webSocket(), login, f.topic('chat'));
  await echo(
    t,
    f.service.webSocket('/mqtt?x=1'),
    { ...login, protocolVersion: 3, protocolId: 'MQIsdp' },
    f.topic('chat'),
  );
  await echo(t, f.service.webSocket(), login, f.topic('chat'), 'x'.repeat(131_072));
  const bare = new WebSocket(f.service.webSocket());
  await new Promise((resolve) => bare.once('open', resolve));
  t.equal(bare.protocol, '', 'no subprotocol is fine');
  bare.terminate();
});

t.test('other paths, other subprotocols and text frames are refused', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const url = f.service.server.url.replace('http', 'ws');
  const failure = (socket: WebSocket) =>
    new Promise<string>((resolve) => socket.once('error', (e) => resolve(e.message)));
  t.match(await failure(new WebSocket(`${url}/other`)), /404/);
  t.match(await failure(new WebSocket(`${url}/mqtt`, ['chat'])), /400/);
  const texting = new WebSocket(`${url}/mqtt`, ['mqtt']);
  const code = await new Promise((resolve) => {
    texting.once('open', () => texting.send('hello'));
    texting.once('close', resolve);
  });
  t.ok(code === 1003 || code === 1006);
});

t.test('a WebSocket has the same deadline and limits', async (t) => {
  const f = await fixtureIn(await sharedService(t, hasty));
  const url = f.service.webSocket();
  const ended = (socket: WebSocket) => new Promise<void>((resolve) => socket.once('close', () => resolve()));
  const silent = new WebSocket(url, ['mqtt']);
  const greedy = new WebSocket(url, ['mqtt']);
  // The deadline may come before the handshake has ended, which is an error of it.
  for (const socket of [silent, greedy]) socket.on('error', () => {});
  greedy.once('open', () => greedy.send(Buffer.alloc(600_000, 0x10)));
  await Promise.all([ended(silent), ended(greedy)]);
});

t.test('with a certificate, one TLS port serves native MQTT and MQTT over WebSocket', async (t) => {
  const f = await secureFixture(t);
  const port = f.service.mqttsPort;
  const login = { username: f.device.id, password: f.secret, rejectUnauthorized: false };
  await echo(t, `mqtts://127.0.0.1:${port}`, login, f.topic('chat'));
  await echo(
    t,
    `wss://127.0.0.1:${port}/mqtt`,
    { ...login, wsOptions: { rejectUnauthorized: false } },
    f.topic('chat'),
  );
  const socket = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false });
  t.teardown(() => socket.destroy());
  const client = speak(socket);
  client.send(connectPacket({ username: f.device.id, password: Buffer.from('wrong') }));
  t.match(await client.next(), { cmd: 'connack', returnCode: 4 }, 'the refusal arrives before the end');
  await client.closed;
  await whileRegistryFails(f.service, 'hasCertificates', new Error('disk I/O error'), async () => {
    const unlucky = connect(port, '127.0.0.1').resume();
    await new Promise((resolve) => unlucky.once('close', resolve));
  });
  await echo(t, `mqtts://127.0.0.1:${port}`, login, f.topic('chat'), 'what cannot be read ends one socket alone');
  const old = connectTls({
    host: '127.0.0.1',
    port,
    rejectUnauthorized: false,
    maxVersion: 'TLSv1.1',
    ciphers: 'DEFAULT@SECLEVEL=0',
  });
  await new Promise((resolve) => old.once('error', resolve));
});

t.test('nothing on the TLS port stays open that never gets its CONNACK, however far it comes', async (t) => {
  // The one that is let in may need a second on a busy machine.
  const f = await fixture(t, { ...certificate(t), SLIPWAY_MQTT_CONNECT_TIMEOUT_SECONDS: '2' });
  const port = f.service.mqttsPort;
  const live = await mqtt.connectAsync(`mqtts://127.0.0.1:${port}`, {
    username: f.device.id,
    password: f.secret,
    rejectUnauthorized: false,
    reconnectPeriod: 0,
  });
  t.teardown(() => live.end(true));
  const plain = (...bytes: number[]) => {
    const socket = connect(port, '127.0.0.1');
    if (bytes.length > 0) socket.write(Buffer.from(bytes));
    return socket;
  };
  const secure = (text: string) => {
    const socket = connectTls({ host: '127.0.0.1', port });
    if (text !== '') socket.write(text);
    return socket;
  };
  const head = 'GET /mqtt HTTP/1.1\r\nHost: x\r\n';
  const wish = 'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n';
  const trickle = plain(0x16, 3, 1);
  const drops = setInterval(() => trickle.write(Buffer.from([1])), 100);
  t.teardown(() => clearInterval(drops));
  const closed = [
    plain(),
    trickle,
    plain(...Buffer.from(head)),
    secure(''),
    secure('\x10\x40'),
    secure(head),
    secure(`${head}\r\n`),
    secure(`${head}Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n`),
    secure(`${head}${wish}Sec-WebSocket-Key: ${Buffer.alloc(16).toString('base64')}\r\n\r\n`),
  ].map((socket) => {
    t.teardown(() => socket.destroy());
    return new Promise((resolve) =>
      socket
        .on('error', () => {})
        .once('close', resolve)
        .resume(),
    );
  });
  await Promise.all(closed);
  await live.publishAsync(f.topic('chat'), 'x', { qos: 1 });
  t.equal(live.connected, true, 'a connection that has its CONNACK is under no deadline');
});

/** Speaks HTTP on a bare socket: sends text and gives the next answer, head and body. */
function bareHttp(t: Test, socket: Socket): (text: string) => Promise<string> {
  t.teardown(() => socket.destroy());
  let arrived = '';
  let heard = () => {};
  socket.on('error', () => {});
  socket.on('data', (chunk: Buffer) => {
    arrived += chunk.toString('latin1');
    heard();
  });
  return (text) =>
    new Promise((resolve, reject) => {
      socket.once('close', () => reject(new Error(`the connection ended after: ${arrived}`)));
      heard = () => {
        const [head = '', body] = arrived.split('\r\n\r\n', 2);
        const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
        if (body === undefined || body.length < length) return;
        const answer = arrived.slice(0, head.length + 4 + length);
        arrived = arrived.slice(answer.length);
        heard = () => {};
        resolve(Buffer.from(answer, 'latin1').toString());
      };
      socket.write(text);
      heard();
    });
}

const h2c =
  'Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n';

t.test(
  'a request that offers another protocol than WebSocket is served as any request, on HTTP and HTTPS',
  async (t) => {
    for (const env of [{}, certificate(t)]) {
      const f = await fixture(t, env);
      const { url } = f.service.server;
      const port = Number(new URL(url).port);
      const socket = url.startsWith('https') ? connectTls({ host: '127.0.0.1', port }) : connect(port, '127.0.0.1');
      const ask = bareHttp(t, socket);
      const keys = 'GET /.well-known/jwks.json HTTP/1.1\r\n';
      t.match(await ask(`${keys}${h2c}\r\n`), /^HTTP\/1\.1 200 OK[\s\S]*"keys"/);
      const body = JSON.stringify({ accountId: f.service.accountId, serialNumber: 'né over h2c' });
      const head = `POST /api/v1/devices HTTP/1.1\r\n${h2c}Authorization: Bearer ${f.service.admin}\r\nContent-Type: application/json\r\n`;
      const length = `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n`;
      t.match(await ask(head + length + body), /^HTTP\/1\.1 200 OK[\s\S]*"serialNumber":"né over h2c"/);
      const [first, rest] = [body.slice(0, 20), body.slice(20)];
      t.match(await ask(`${head}Expect: 100-continue\r\n${length}${first}`), /100 Continue/);
      t.match(await ask(rest), /^HTTP\/1\.1 200 OK[\s\S]*"né over h2c"/, 'the body may come later');
      for (let n = 0; n < 12; n += 1)
        t.match(await ask(`${keys}${h2c}\r\n`), /^HTTP\/1\.1 200/, 'still the same socket');
      t.match(await ask(`${keys}Host: x\r\n\r\n`), /^HTTP\/1\.1 200/);
      // Sent at once: the second is answered after the first.
      const me = `GET /api/v1/devices?accountId=${f.service.accountId} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${f.service.admin}\r\n\r\n`;
      t.match(await ask(`${me}${keys}${h2c}\r\n`), /^HTTP\/1\.1 200[\s\S]*"devices"/);
      t.match(await ask(''), /^HTTP\/1\.1 200[\s\S]*"keys"/);
    }
  },
);

const withoutKey = unlessBehindProxy('HAProxy itself refuses a WebSocket without its key');
t.test(
  'a WebSocket at another path is 404 whatever the case of its header, and its socket is closed',
  withoutKey,
  async (t) => {
    const f = await fixtureIn(await sharedService(t));
    const { port } = new URL(f.service.server.url);
    // The peer never closes its own half.
    const socket = connect({ port: Number(port), host: '127.0.0.1', allowHalfOpen: true });
    const closed = new Promise((resolve) => socket.once('close', resolve));
    const ended = new Promise((resolve) => socket.once('end', resolve));
    const answer = await bareHttp(
      t,
      socket,
    )('GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n');
    t.match(answer, /^HTTP\/1\.1 404/);
    await ended;
    const beat = setInterval(() => socket.write('x'), 50);
    t.teardown(() => clearInterval(beat));
    await closed;
  },
);

t.test('the service closes with WebSocket connections open', async (t) => {
  const f = await fixture(t);
  const url = f.service.webSocket();
  const client = await mqtt.connectAsync(url, { username: f.device.id, password: f.secret, reconnectPeriod: 0 });
  const closed = new Promise<void>((resolve) => client.once('close', () => resolve()));
  await f.service.close();
  await closed;
});

t.end();
