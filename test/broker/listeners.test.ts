import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import mqtt, { type IClientOptions } from 'mqtt';
import t, { type Test } from 'tap';
import { WebSocket } from 'ws';
import { temporaryDirectory } from '../support/directory.js';
import { nextMessage } from '../support/service.js';
import { testCertificate, testKey } from './certificate.js';
import { fixture } from './fixture.js';
import { connectPacket, speak } from './raw.js';

function certificate(t: Test): Record<string, string> {
  const directory = temporaryDirectory(t);
  const paths = { SLIPWAY_TLS_CERT: join(directory, 'cert.pem'), SLIPWAY_TLS_KEY: join(directory, 'key.pem') };
  writeFileSync(paths.SLIPWAY_TLS_CERT, testCertificate);
  writeFileSync(paths.SLIPWAY_TLS_KEY, testKey);
  return paths;
}

async function echo(t: Test, url: string, options: IClientOptions, topic: string, payload = 'hello'): Promise<void> {
  const client = await mqtt.connectAsync(url, { reconnectPeriod: 0, ...options });
  t.teardown(() => client.end(true));
  await client.subscribeAsync(topic, { qos: 1 });
  const heard = nextMessage(client);
  await client.publishAsync(topic, payload, { qos: 1 });
  t.equal((await heard).text, payload);
}

t.test('MQTT over WebSocket is served at /mqtt of the HTTP port', async (t) => {
  const f = await fixture(t);
  const url = f.service.server.url.replace('http', 'ws');
  const login = { username: f.device.id, password: f.secret };
  await echo(t, `${url}/mqtt`, login, f.topic('chat'));
  await echo(t, `${url}/mqtt?x=1`, { ...login, protocolVersion: 3, protocolId: 'MQIsdp' }, f.topic('chat'));
  await echo(t, `${url}/mqtt`, login, f.topic('chat'), 'x'.repeat(131_072));
  const bare = new WebSocket(`${url}/mqtt`);
  await new Promise((resolve) => bare.once('open', resolve));
  t.equal(bare.protocol, '', 'no subprotocol is fine');
  bare.terminate();
});

t.test('other paths, other subprotocols and text frames are refused', async (t) => {
  const f = await fixture(t);
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
  const f = await fixture(t, { SLIPWAY_MQTT_CONNECT_TIMEOUT_SECONDS: '1' });
  const url = `${f.service.server.url.replace('http', 'ws')}/mqtt`;
  const ended = (socket: WebSocket) => new Promise<void>((resolve) => socket.once('close', () => resolve()));
  const silent = new WebSocket(url, ['mqtt']);
  const greedy = new WebSocket(url, ['mqtt']);
  greedy.on('error', () => {});
  greedy.once('open', () => greedy.send(Buffer.alloc(600_000, 0x10)));
  await Promise.all([ended(silent), ended(greedy)]);
});

t.test('with a certificate, one TLS port serves native MQTT and MQTT over WebSocket', async (t) => {
  // The harness speaks HTTPS to the service, whose certificate nobody has signed.
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
  const f = await fixture(t, certificate(t));
  const port = f.service.server.ctx.broker.addresses.mqtts as number;
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
  const old = connectTls({
    host: '127.0.0.1',
    port,
    rejectUnauthorized: false,
    maxVersion: 'TLSv1.1',
    ciphers: 'DEFAULT@SECLEVEL=0',
  });
  await new Promise((resolve) => old.once('error', resolve));
});

t.test('an HTTP connection to the TLS port that never becomes a WebSocket does not stay open', async (t) => {
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
  const f = await fixture(t, { ...certificate(t), SLIPWAY_MQTT_CONNECT_TIMEOUT_SECONDS: '1' });
  const port = f.service.server.ctx.broker.addresses.mqtts as number;
  const socket = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false });
  socket.write('GET /mqtt HTTP/1.1\r\nHost: x\r\n');
  await new Promise((resolve) => socket.once('close', resolve).resume());
});

t.test('the service closes with WebSocket connections open', async (t) => {
  const f = await fixture(t);
  const url = `${f.service.server.url.replace('http', 'ws')}/mqtt`;
  const client = await mqtt.connectAsync(url, { username: f.device.id, password: f.secret, reconnectPeriod: 0 });
  const closed = new Promise<void>((resolve) => client.once('close', () => resolve()));
  await f.service.close();
  await closed;
});
