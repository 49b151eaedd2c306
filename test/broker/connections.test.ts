/** What a connection must be, whatever Node does by default. */
import { once } from 'node:events';
import { connect as connectTls } from 'node:tls';
import mqtt from 'mqtt';
import { generate } from 'mqtt-packet';
import type { Test } from 'tap';
import { WebSocket } from 'ws';
import { whileAccessFails, whileOnItsWay, whileSecretEnds, whileSettingFails } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { nextMessage, present, unlessBehindProxy } from '../support/service.ts';
import { until } from '../support/until.ts';
import { connectBytes } from './bytes.ts';
import { certificate } from './certificate.ts';
import { type Fixture, fixture, rawConnected, sibling, versionOf } from './fixture.ts';
import { metric } from './metrics.ts';
import { connectPacket, publishPacket, type RawClient, rawClient, speak, subscribePacket } from './raw.ts';

const t = await part(import.meta);

let f: Fixture;
let ahead = 0;
const clock = { now: () => Date.now() + ahead };

t.before(async () => {
  f = await fixture(t, { ...certificate(t), SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0' }, { clock });
});

const securePort = () => f.service.mqttsPort;
const login = () => ({ username: f.device.id, password: Buffer.from(f.secret) });

async function alive(t: Test, client: RawClient): Promise<void> {
  client.send({ cmd: 'pingreq' });
  t.match(await client.next(), { cmd: 'pingresp' });
}

/** Milliseconds from publish to receive on one socket, the median of several. */
async function echoTime(client: RawClient): Promise<number> {
  client.socket.setNoDelay(true);
  client.send(subscribePacket(1, [f.topic('chat'), 0]));
  await client.next();
  const times: number[] = [];
  for (let messageId = 1; messageId <= 11; messageId += 1) {
    const begun = performance.now();
    client.send(publishPacket(f.topic('chat'), 'x', { qos: 1, messageId }));
    await client.next();
    await client.next();
    times.push(performance.now() - begun);
  }
  return times.sort((a, b) => a - b)[5] as number;
}

t.test('a subscriber that does not read what it must acknowledge holds up nobody, and is cut off', async (t) => {
  const [own, other] = [await sibling(f), await sibling(f)];
  const lazy = await rawConnected(t, own, { clientId: 'lazy' });
  lazy.send(subscribePacket(1, [own.topic('chat'), 1]));
  await lazy.next();
  lazy.socket.pause();
  const witness = await f.service.connect({ jwt: f.service.admin });
  await witness.subscribeAsync([own.topic('_updates/fields'), other.topic('chat')]);
  let isCutOff = false;
  void nextMessage(witness, (_, payload) => payload.includes('"connected":false')).then(() => {
    isCutOff = true;
  });
  const sent = (payload: Buffer, count: number) =>
    Array.from({ length: count }, (_, n) => publishPacket(own.topic('chat'), payload, { qos: 1, messageId: n + 1 }));
  // Who publishes for it waits with it, one read chunk each: several are needed to fill what all share.
  const admin = { username: 'Auth:JWT', password: Buffer.from(f.service.admin) };
  for (const [n, packets] of [
    sent(Buffer.alloc(130_000), 80),
    ...Array(6).fill(sent(Buffer.alloc(20_000), 200)),
  ].entries()) {
    const publisher = await rawClient(t, f.service.server.mqttPort);
    publisher.send(connectPacket({ ...admin, clientId: `${n}` }));
    await publisher.next();
    publisher.send(...packets);
  }
  let longest = 0;
  const sentAt = performance.now();
  while (!isCutOff) {
    // It has a minute to read something, which passes at once when others wait no longer.
    if (performance.now() - sentAt > 6000) ahead = 61_000;
    const begun = performance.now();
    const heard = nextMessage(witness, (topic) => topic === other.topic('chat'));
    witness.publish(other.topic('chat'), 'to others', { qos: 1 });
    await heard;
    longest = Math.max(longest, performance.now() - begun);
  }
  t.ok(longest < 4900, `${Math.round(longest)} ms; anyone who waits for it waits for 5 s`);
});

t.test('a CONNECT that is refused before its proof ends its socket itself, long before the deadline', async (t) => {
  const begun = Date.now();
  const will = { topic: 'a\0b', payload: Buffer.from('x'), qos: 0, retain: false };
  for (const more of [{ clientId: 'x'.repeat(129) }, { clientId: 'a\0b' }, { will }]) {
    const client = await rawClient(t, f.service.server.mqttPort);
    client.send(connectPacket({ ...login(), ...more }));
    await client.closed;
  }
  t.ok(Date.now() - begun < 10_000, `${Date.now() - begun} ms; the deadline is after ten seconds`);
});

t.test(
  'while an account is on its way to another cell, a client that leaves before the answer is not kept',
  async (t) => {
    const name = 'slipway_mqtt_refused_connects_total{reason="unavailable"}';
    const before = (await metric(f, name)) ?? 0;
    await whileOnItsWay(f.service, async () => {
      const clients = await Promise.all(Array.from({ length: 3 }, () => rawClient(t, f.service.server.mqttPort)));
      for (const client of clients) client.send(connectPacket({ ...login(), clientId: 'leaving' }));
      for (const client of clients) client.socket.end();
      // A CONNECT that is over is counted: those that wait are not.
      await until(async () => (await metric(f, name)) === before + clients.length);
      t.pass('before the account is back');
    });
  },
);

t.test('of connections that take each other over at once one is left, which its secret ends', async (t) => {
  const other = await sibling(f);
  const clients = await Promise.all(Array.from({ length: 12 }, () => rawClient(t, f.service.server.mqttPort)));
  const connack = { username: other.device.id, password: Buffer.from(other.secret), clientId: 'one' };
  const left = new Set(clients);
  const oneIsLeft = new Promise<void>((resolve) => {
    for (const client of clients) void client.closed.then(() => left.delete(client) && left.size === 1 && resolve());
  });
  for (const client of clients) client.send(connectPacket(connack));
  await oneIsLeft;
  const [winner] = left;
  if (!winner) throw new Error('all have ended');
  t.match(await winner.next(), { cmd: 'connack', returnCode: 0 });
  await alive(t, winner);
  await f.service.credential(other.device.id);
  await winner.closed;
  const body = { accountId: f.service.accountId, entityId: other.device.id, entityType: 'device' };
  const { headers } = await f.service.http('POST', '/api/v1/access/mqtt-credentials', { body });
  t.match(headers.get('platform-revocation'), /connections=0/, 'nothing was left');
});

t.test('a secret that ends between its proof and CONNACK, or right after it, lets nobody stay', async (t) => {
  for (const looksBefore of [0, 1]) {
    const looks = await whileSecretEnds(f.service, looksBefore, async () => {
      const client = await rawClient(t, f.service.server.mqttPort);
      client.send(connectPacket(login()));
      await client.closed;
    });
    t.equal(looks, looksBefore + 1);
  }
  await alive(t, await rawConnected(t, f));
});

t.test('small packets do not wait for each other over TLS either', async (t) => {
  const secure = connectTls({ host: '127.0.0.1', port: securePort(), rejectUnauthorized: false });
  t.teardown(() => secure.destroy());
  const client = speak(secure);
  client.send(connectPacket(login()));
  t.match(await client.next(), { cmd: 'connack', returnCode: 0 });
  // A busy machine is slow for a while, Nagle always, once a connection has exchanged some packets.
  let time = await echoTime(client);
  for (let more = 0; more < 5 && time >= 25; more += 1) time = await echoTime(client);
  t.ok(time < 25, `${time.toFixed(1)} ms over TLS; Nagle costs 40`);
});

const oneCell = unlessBehindProxy('it breaks the hooks of the broker that it connects to');

t.test('nothing that is thrown in a hook, ends the process', oneCell, async (t) => {
  const { mqttPort } = f.service.server;
  const witness = await rawConnected(t, f, { clientId: 'witness' });
  await whileSettingFails(f.service, async () => {
    const stranger = await rawClient(t, mqttPort);
    stranger.send(connectPacket(login()));
    await stranger.closed;
  });
  const unlucky = await rawConnected(t, f, { clientId: 'unlucky' });
  await whileAccessFails(f.service, 'may', async () => {
    unlucky.send(subscribePacket(1, ['#', 1]));
    await unlucky.closed;
  });
  const { now } = clock;
  clock.now = () => {
    throw new Error('a fault');
  };
  const late = await rawClient(t, mqttPort);
  late.send(connectPacket({ ...login(), clientId: 'late' }));
  t.match(await late.next(), { cmd: 'connack' }, 'a listener that throws ends nothing either');
  clock.now = now;
  await whileAccessFails(f.service, 'placement', async () => {
    const refused = await rawClient(t, mqttPort);
    refused.send(connectPacket({ username: 'nobody', clientId: 'x'.repeat(200) }));
    t.match(await refused.next(), { cmd: 'connack', returnCode: 2 });
    await refused.closed;
  });
  await alive(t, witness);
});

t.test('a will is decided again when it fires', async (t) => {
  const template = await f.service.template({ channels: [{ name: 'chat', persistenceType: 'simple' }] });
  const { device, secret } = await f.service.device({ deviceTemplateId: template.id });
  const topic = f.service.topic(device.id, 'chat');
  const will = { topic, payload: Buffer.from('last words'), qos: 1, retain: true };
  const mortal = await rawConnected(t, { ...f, device, secret }, { clientId: 'mortal', will });
  const admin = await f.service.connect({ jwt: f.service.admin });
  const heard: string[] = [];
  const explained = new Promise<string>((resolve) => {
    admin.on('message', (topic, payload) => {
      heard.push(topic);
      if (topic.endsWith('/_rejected')) resolve(payload.toString());
    });
  });
  await admin.subscribeAsync(f.service.topic(device.id, '#'), { qos: 1 });
  const { channelTemplates } = (await f.service.ok('GET', `/api/v1/devices/templates/${template.id}`)).deviceTemplate;
  const { id } = present(channelTemplates.find(({ name }) => name === 'chat'));
  const { version } = (await f.service.ok('GET', `/api/v1/channels/templates/${id}`)).channelTemplate;
  await f.service.ok('DELETE', `/api/v1/channels/templates/${id}`, { headers: { etag: version } });
  mortal.socket.destroy();
  t.match(JSON.parse(await explained), { error: { code: 100 }, topic });
  t.notOk(heard.includes(topic));
});

// below the table: WebSocket
t.test('a WebSocket is not compressed, has its limit after CONNACK too, and tells where it comes from', async (t) => {
  const { device, secret } = await f.service.device({ deviceTemplateId: f.device.deviceTemplateId });
  const url = f.service.webSocket();
  const offering = new WebSocket(url, ['mqtt'], { perMessageDeflate: true, rejectUnauthorized: false });
  await new Promise((resolve) => offering.once('open', resolve));
  t.equal(offering.extensions, '');
  offering.terminate();

  const client = await mqtt.connectAsync(url, {
    username: device.id,
    password: secret,
    reconnectPeriod: 0,
    wsOptions: { rejectUnauthorized: false },
  });
  t.teardown(() => client.end(true));
  for (let externalIp = null; externalIp !== '127.0.0.1'; )
    ({ externalIp } = (await f.service.ok('GET', `/api/v1/devices/${device.id}`)).device);
  // A message is buffered until its last fragment, which never comes.
  const endless = new WebSocket(url, ['mqtt'], { rejectUnauthorized: false });
  const ended = new Promise((resolve) => endless.once('close', resolve));
  endless.on('error', () => {});
  await new Promise((resolve) => endless.once('open', resolve));
  endless.send(connectBytes({ clientId: 'endless', username: f.device.id, password: f.secret }));
  await new Promise((resolve) => endless.once('message', resolve));
  for (let n = 0; n < 3; n += 1) endless.send(Buffer.alloc(400_000), { fin: false });
  await ended;
  t.ok(await versionOf(f.service, device.id), 'and the service lives');
});

// below the table: TLS
t.test('TLS takes suites with forward secrecy and authenticated encryption only', async (t) => {
  const attempt = (ciphers: string) =>
    new Promise<string>((resolve) => {
      const about = {
        host: '127.0.0.1',
        port: securePort(),
        rejectUnauthorized: false,
        maxVersion: 'TLSv1.2' as const,
      };
      const socket = connectTls({ ...about, ciphers }, () => {
        resolve(socket.getCipher().name);
        socket.destroy();
      });
      socket.on('error', () => resolve('refused'));
    });
  t.equal(await attempt('ECDHE-ECDSA-AES128-GCM-SHA256'), 'ECDHE-ECDSA-AES128-GCM-SHA256');
  for (const weak of ['ECDHE-ECDSA-AES128-SHA', 'ECDHE-ECDSA-AES256-SHA384']) t.equal(await attempt(weak), 'refused');
});

t.test('nothing of a WebSocket is a packet from its first text frame on', async (t) => {
  const own = await sibling(f);
  const listener = await rawConnected(t, own, { clientId: 'listener' });
  listener.send(subscribePacket(1, [own.topic('chat'), 0]));
  await listener.next();
  const webSocket = new WebSocket(f.service.webSocket(), ['mqtt']);
  await once(webSocket, 'open');
  const login = { username: own.device.id, password: Buffer.from(own.secret), clientId: 'texts' };
  webSocket.send(generate(connectPacket(login)));
  await once(webSocket, 'message');
  const closed = once(webSocket, 'close');
  webSocket.send(generate(publishPacket(own.topic('chat'), 'in a text')).toString('latin1'));
  webSocket.send(generate(publishPacket(own.topic('chat'), 'after it')));
  t.equal((await closed)[0], 1003);
  listener.send({ cmd: 'pingreq' });
  t.match(await listener.next(), { cmd: 'pingresp' }, 'nothing was published');
});

t.test('any character of Unicode but U+0000 may be in a topic', async (t) => {
  const own = await sibling(f);
  const client = await rawConnected(t, own, { clientId: 'replaced' });
  client.send(publishPacket(own.topic('\uFFFD'), '', { qos: 1, messageId: 1 }));
  t.match(await client.next(), { cmd: 'puback' });
  client.send(subscribePacket(2, [own.topic('\uFFFD'), 0]));
  t.match(await client.next(), { cmd: 'suback' });
});

t.end();
