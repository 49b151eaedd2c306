/** MQTT to the letter, over real sockets: what any client can meet. */
import mqtt from 'mqtt';
import mqttPacket, { type Packet } from 'mqtt-packet';
import { part } from '../support/part.ts';
import { type Service, unlessBehindProxy } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { until } from '../support/until.ts';
import { answerBytes, connectBytes, packetBytes, publishBytes, subscribeBytes, unsubscribeBytes } from './bytes.ts';
import { connected, disconnected, subscribed } from './conversation.ts';
import { fixture, fixtureIn, rawConnected, secureFixture } from './fixture.ts';
import { metric } from './metrics.ts';
import { connectPacket, publishPacket, type RawClient, rawClient, subscribePacket } from './raw.ts';

const t = await part(import.meta);

/** The next packets in short: command, packet id, and of a message its payload and QoS. */
async function next(client: RawClient, count: number): Promise<string[]> {
  const heard: string[] = [];
  while (heard.length < count) {
    const packet = await client.next();
    if (packet.cmd === 'publish') heard.push(`${packet.payload} q${packet.qos}`);
    else heard.push(`${packet.cmd} ${packet.messageId ?? ''}`.trim());
  }
  return heard;
}

const retained = { retain: true };
const bytes = (text: string) => Buffer.from(text, 'hex');

/** Of the tests that leave it as it is. */
let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

t.test('refused SUBSCRIBEs in one write are each answered', async (t) => {
  const f = await fixtureIn(service);
  const client = await rawConnected(t, f);
  for (const [first, second, third] of [
    ['chat', 'nothing', 'chat'],
    ['nothing', 'chat', 'nothing'],
    ['nothing', 'nothing', 'nothing'],
  ] as const) {
    client.send(
      subscribePacket(1, [f.topic(first), 1]),
      subscribePacket(2, [f.topic(second), 1]),
      { cmd: 'pingreq' },
      subscribePacket(3, [f.topic(third), 1]),
    );
    const code = (name: string) => [name === 'chat' ? 1 : 128];
    t.match(await client.next(), { cmd: 'suback', messageId: 1, granted: code(first) });
    t.match(await client.next(), { cmd: 'suback', messageId: 2, granted: code(second) });
    t.match(await client.next(), { cmd: 'pingresp' });
    t.match(await client.next(), { cmd: 'suback', messageId: 3, granted: code(third) });
  }
});

t.test('MQTT over WebSocket is served at / next to /mqtt, on the HTTP port and on the TLS port', async (t) => {
  const f = await secureFixture(t);
  const login = { username: f.device.id, password: f.secret, reconnectPeriod: 0 };
  const options = { ...login, rejectUnauthorized: false, wsOptions: { rejectUnauthorized: false } };
  const secure = `wss://127.0.0.1:${f.service.mqttsPort}`;
  const paths = ['/', '/?a=1', '/mqtt'];
  for (const at of [...paths.map((path) => f.service.webSocket(path)), ...paths.map((path) => secure + path)]) {
    const client = await mqtt.connectAsync(at, options);
    t.equal((await client.subscribeAsync(f.topic('chat')))[0]?.qos, 0, at);
    await client.endAsync();
  }
});

t.test('PUBRECs and deliveries have the order of the messages, whatever is retained or stored', async (t) => {
  const f = await fixtureIn(service);
  const publisher = await rawConnected(t, f);
  const listener = await rawConnected(t, f, { clientId: 'listener' });
  t.same(await subscribed(listener, [f.topic('chat'), 0]), [0]);
  const q2 = (n: number, more = {}) => publishPacket(f.topic('chat'), `${n}`, { qos: 2, messageId: n, ...more });
  publisher.send(...Array.from({ length: 20 }, (_, n) => q2(n + 1, n % 5 === 0 ? retained : {})));
  const numbers = Array.from({ length: 20 }, (_, n) => n + 1);
  t.same(
    await next(publisher, 20),
    numbers.map((n) => `pubrec ${n}`),
  );
  t.same(
    await next(listener, 20),
    numbers.map((n) => `${n} q0`),
  );
  publisher.send(publishPacket(f.topic('temperature'), '1', { qos: 2, messageId: 31 }), q2(32));
  t.same(await next(publisher, 2), ['pubrec 31', 'pubrec 32']);
});

t.test('a message behind a SUBSCRIBE is delivered at the QoS that was granted', async (t) => {
  const f = await fixtureIn(service);
  const client = await rawConnected(t, f);
  const message = publishPacket(f.topic('chat'), 'x', { qos: 2, messageId: 2 });
  client.send(subscribePacket(1, ['+/+/+/d/+/chat', 1]), message);
  t.same((await next(client, 3)).sort(), ['pubrec 2', 'suback 1', 'x q1']);
});

t.test('of several filters that match, the highest QoS counts', async (t) => {
  const f = await fixtureIn(service);
  const client = await rawConnected(t, f);
  t.same(await subscribed(client, [f.topic('chat'), 1]), [1]);
  const message = (id: number) => publishPacket(f.topic('chat'), `${id}`, { qos: 1, messageId: id });
  client.send(message(2), subscribePacket(3, ['+/+/+/d/+/chat', 0]));
  t.same(await next(client, 3), ['puback 2', '2 q1', 'suback 3']);
  client.send(message(4));
  t.same(await next(client, 2), ['puback 4', '4 q1'], 'with both filters in force, too');
});

t.test('packets around refused SUBSCRIBEs, CONNECT among them, are answered in their order', async (t) => {
  const f = await fixtureIn(service);
  const client = await rawClient(t, f.service.server.mqttPort);
  const refused = (id: number) => subscribePacket(id, [f.topic('nothing'), 1]);
  const q2 = (id: number, channel: string) => publishPacket(f.topic(channel), 'x', { qos: 2, messageId: id });
  client.send(
    connectPacket({ username: f.device.id, password: Buffer.from(f.secret) }),
    ...[q2(1, 'chat'), refused(2), q2(3, 'nothing'), refused(4), subscribePacket(5, [f.topic('chat'), 1])],
    ...[refused(6), { cmd: 'unsubscribe', messageId: 7, unsubscriptions: [f.topic('chat')] } as Packet, refused(8)],
  );
  const answers = ['pubrec 1', 'suback 2', 'pubrec 3', 'suback 4', 'suback 5', 'suback 6', 'unsuback 7', 'suback 8'];
  t.same(await next(client, 9), ['connack', ...answers]);
});

t.test('SUBACK has a return code for every filter, the same ones too', async (t) => {
  const f = await fixtureIn(service);
  const client = await rawConnected(t, f);
  const [chat, nothing] = [f.topic('chat'), f.topic('nothing')];
  t.same(await subscribed(client, [chat, 1], [nothing, 0], [chat, 0], [nothing, 2]), [1, 128, 0, 128]);
});

t.test('Session Present reports a stored session without subscriptions, and MQTT 3.1 is not told', async (t) => {
  const f = await fixtureIn(service);
  const stays = { clientId: 'stays', clean: false };
  const first = await connected(t, f.service.server, f, stays);
  t.equal(first.sessionPresent, false);
  first.send(publishPacket(f.topic('chat'), 'x', { qos: 2, messageId: 1 }));
  t.same(await next(first, 1), ['pubrec 1']);
  await disconnected(first);
  const second = await connected(t, f.service.server, f, stays);
  t.equal(second.sessionPresent, true);
  second.send(publishPacket(f.topic('chat'), 'x', { qos: 2, messageId: 1, dup: true }), {
    cmd: 'pubrel',
    messageId: 1,
  });
  t.same(await next(second, 2), ['pubrec 1', 'pubcomp 1']);
  await disconnected(second);
  const old = { ...stays, protocolId: 'MQIsdp', protocolVersion: 3 };
  t.equal((await connected(t, f.service.server, f, old)).sessionPresent, false);
  t.equal((await connected(t, f.service.server, f, { clientId: 'stays' })).sessionPresent, false, 'a clean session');
});

t.test('after UNSUBSCRIBE nothing is delivered, before it everything is', async (t) => {
  const f = await fixtureIn(service);
  const client = await rawConnected(t, f);
  t.same(await subscribed(client, [f.topic('chat'), 1]), [1]);
  const message = (id: number) => publishPacket(f.topic('chat'), `${id}`, { qos: 1, messageId: id });
  client.send(message(2), { cmd: 'unsubscribe', messageId: 3, unsubscriptions: [f.topic('chat')] }, message(4), {
    cmd: 'pingreq',
  });
  t.same(await next(client, 5), ['puback 2', '2 q1', 'unsuback 3', 'puback 4', 'pingresp']);
});

/** A CONNECT in the form of MQTT 5, of a level that may come. */
function ofLevel6(packet: object): Buffer {
  const bytes = mqttPacket.generate(connectPacket(packet), { protocolVersion: 5 });
  bytes[bytes.indexOf('MQTT') + 4] = 6;
  return bytes;
}

const unknownLevels = unlessBehindProxy('HAProxy ends a connection of a level that it does not know');
t.test('a protocol level that is not spoken is answered with CONNACK 1', unknownLevels, async (t) => {
  const f = await fixtureIn(service);
  for (const [level, protocol] of [
    ...[0, 1, 2, 3, 6, 0x80, 0x85, 255].map((level) => [level, 'MQTT'] as const),
    ...[1, 4].map((level) => [level, 'MQIsdp'] as const),
  ]) {
    const client = await rawClient(t, f.service.server.mqttPort);
    client.send(connectBytes({ clientId: 'a', username: f.device.id, password: f.secret, level, protocol }));
    t.match(await client.next(), { cmd: 'connack', returnCode: 1 }, `${protocol} ${level}`);
    await client.closed;
  }
});

t.test(
  'a refused protocol level is in the log, the metrics and the refusals of its device',
  unknownLevels,
  async (t) => {
    const logLines: string[] = [];
    const f = await fixture(t, {}, { logLines });
    const reason = 'slipway_mqtt_refused_connects_total{reason="level"}';
    const will = { topic: 'a', payload: Buffer.from('x'), qos: 0, retain: false, properties: { willDelayInterval: 9 } };
    const later = {
      protocolVersion: 5,
      properties: { sessionExpiryInterval: 60, userProperties: { a: 'b'.repeat(200) } },
    };
    const cut = connectBytes({ clientId: 'a', username: f.device.id, level: 6 }).subarray(0, 20);
    cut[1] = 18;
    for (const packet of [
      ofLevel6({ ...later, username: f.device.id, password: Buffer.from('x'), will }),
      ofLevel6({ ...later, clientId: f.device.id }),
      connectBytes({ clientId: 'old', username: f.device.id, level: 2 }),
      ofLevel6({ ...later, username: 'nobody', password: Buffer.from('x') }),
      cut,
    ]) {
      const client = await rawClient(t, f.service.server.mqttPort);
      client.send(packet);
      t.match(await client.next(), { cmd: 'connack', returnCode: 1 });
      await client.closed;
    }
    t.equal(await metric(f, reason), 5);
    const { refusals } = await f.service.ok('GET', `/api/v1/devices/${f.device.id}/refusals`);
    const refused = { action: 'connect', topic: null, code: 1, address: '127.0.0.1', principal: null };
    t.match(
      refusals.results,
      [{ ...refused, clientId: 'old', reason: 'this protocol level is not supported; use MQTT 5 or 3.1.1' }],
      'one line for each address and reason, however often',
    );
    t.equal(refusals.results.length, 1);
    const lines = logLines.map((line) => JSON.parse(line)).filter(({ msg }) => /^CONNECT refused/.test(msg));
    const info = 30;
    t.match(lines[0], { level: info, protocolLevel: 6, clientId: 'raw', address: '127.0.0.1' });
    t.equal(lines.filter(({ level }) => level >= info).length, 1, 'once a minute for each network');
  },
);

t.test('a first PUBLISH with an empty topic ends the connection', async (t) => {
  const f = await fixtureIn(service);
  for (const qos of [0, 2]) {
    const client = await rawConnected(t, f);
    client.send(publishBytes('', 'x', qos));
    await client.closed;
    await t.rejects(client.next());
  }
});

t.test('a malformed packet gets nothing but a closed connection, and those before it are answered', async (t) => {
  const f = await fixtureIn(service);
  const [topic, notUtf8] = [f.topic('chat'), bytes('61c080')];
  const ping = bytes('c000');
  const malformed: Record<string, Buffer> = {
    'PUBLISH q1 without packet id, PINGREQ': Buffer.concat([publishBytes(topic, '', 0).fill(0x32, 0, 1), ping]),
    'PUBREC of length 0': Buffer.concat([bytes('5000'), ping]),
    'PUBREL of length 0': Buffer.concat([bytes('6200'), ping]),
    'PUBACK of length 1': Buffer.concat([bytes('400100'), ping]),
    'PUBLISH with packet id 0': publishBytes(topic, 'x', 2, 0),
    'PUBLISH q2 with packet id 0': publishBytes(topic, 'x', 4, 0),
    'SUBSCRIBE with packet id 0': subscribeBytes(0, [topic]),
    'UNSUBSCRIBE with packet id 0': unsubscribeBytes(0, [topic]),
    'PUBACK with packet id 0': answerBytes(0x40, 0),
    'UNSUBSCRIBE without a filter': unsubscribeBytes(1, []),
    'SUBSCRIBE without a filter': subscribeBytes(1, []),
    ...Object.fromEntries(
      ['', 'a\0b', notUtf8, 'a#', 'a/#/b', 'ab/+e', 'a+'].flatMap((filter) => [
        [`UNSUBSCRIBE ${JSON.stringify(filter)}`, unsubscribeBytes(1, [topic, filter])],
        [`SUBSCRIBE ${JSON.stringify(filter)}`, subscribeBytes(1, [topic, filter])],
      ]),
    ),
    'SUBSCRIBE with QoS 3': subscribeBytes(1, [topic], 3),
    'SUBSCRIBE with reserved bits': subscribeBytes(1, [topic], 0x81),
    'SUBSCRIBE with DUP': subscribeBytes(1, [topic], 1, 0x8a),
    'QoS 0 with DUP': publishBytes(topic, 'x', 8),
    'QoS 3': publishBytes(topic, 'x', 6),
    'PUBLISH of bad UTF-8': publishBytes(Buffer.concat([Buffer.from(topic), notUtf8]), 'x'),
    'PUBLISH on a filter': publishBytes(f.topic('+'), 'x', 2),
    'PUBLISH without a topic': publishBytes('', 'x', 2),
    'PINGREQ with surplus bytes': bytes('c00100'),
    'DISCONNECT with surplus bytes': bytes('e00100'),
    'PUBACK with surplus bytes': bytes('4003000100'),
    'PUBREL without its flags': answerBytes(0x60, 1),
    'UNSUBSCRIBE with a cut filter': packetBytes(0xa2, bytes('00010005'), Buffer.from('abc')),
    'a second CONNECT': connectBytes({ clientId: 'a' }),
    'a packet of servers': bytes('d000'),
    'type 15': bytes('f000'),
    'a length of five bytes': bytes('30ffffffff01'),
  };
  for (const [name, packet] of Object.entries(malformed)) {
    const client = await rawConnected(t, f);
    client.send(publishPacket(topic, 'x', { qos: 1, messageId: 5 }), packet);
    t.same(await next(client, 1), ['puback 5'], name);
    await client.closed;
    await t.rejects(client.next(), name);
  }
  const { refusals } = await f.service.ok('GET', `/api/v1/devices/${f.device.id}/refusals`);
  t.ok(refusals.meta.count > 0, 'malformed topics are in the list of the device');
  const login = { clientId: 'a', username: f.device.id, password: f.secret };
  const will = { topic, payload: 'gone' };
  const surplus = Buffer.concat([connectBytes(login), Buffer.from('x')]);
  surplus[1] = (surplus[1] as number) + 1;
  const nameless = connectBytes({ clientId: f.device.id, password: f.secret });
  for (const connect of [connectBytes({ ...login, will, flags: 2 | 0x18 }), nameless, surplus]) {
    const client = await rawClient(t, f.service.server.mqttPort);
    client.send(connect);
    await client.closed;
    await t.rejects(client.next());
  }
});

t.test('a wrong kind of acknowledgement ends the connection, one for an unknown message does not', async (t) => {
  const f = await fixtureIn(service);
  const admin = await f.service.connect({ jwt: f.service.admin });
  const answers = { 1: [0x50, 0x70], 2: [0x40, 0x70] } as const;
  for (const qos of [1, 2] as const)
    for (const clean of [true, false])
      for (const wrong of answers[qos]) {
        const client = await connected(t, f.service.server, f, { clientId: 'wrong', clean });
        for (const first of [0x40, 0x50, 0x70]) client.send(answerBytes(first, 9));
        t.same(await next(client, 1), ['pubrel 9']);
        await subscribed(client, [f.topic('chat'), qos]);
        admin.publish(f.topic('chat'), 'x', { qos });
        const { messageId = 0 } = (await client.next()) as { messageId?: number };
        client.send(answerBytes(wrong, messageId));
        await client.closed;
        const clear = await connected(t, f.service.server, f, { clientId: 'wrong' });
        await disconnected(clear);
      }
});

t.test('MQTT 3.1 sends PUBREL, SUBSCRIBE and UNSUBSCRIBE again with DUP', async (t) => {
  const f = await fixtureIn(service);
  const old = { clientId: 'old', clean: false, protocolId: 'MQIsdp', protocolVersion: 3 };
  const client = await connected(t, f.service.server, f, old);
  client.send(
    publishBytes(f.topic('chat'), 'x', 4 | 8, 1),
    answerBytes(0x6a, 1),
    subscribeBytes(2, [f.topic('chat')], 1, 0x8a),
    unsubscribeBytes(3, [f.topic('chat')], 0xaa),
  );
  t.same(await next(client, 4), ['pubrec 1', 'pubcomp 1', 'suback 2', 'unsuback 3']);
});

t.test('what was sent before DISCONNECT is answered before the connection ends', async (t) => {
  const f = await secureFixture(t);
  const client = await rawConnected(t, f);
  t.same(await subscribed(client, [f.topic('chat'), 1]), [1]);
  client.send(
    publishPacket(f.topic('temperature'), '1', { qos: 1, messageId: 2 }),
    publishPacket(f.topic('chat'), 'x', { qos: 2, messageId: 3 }),
    { cmd: 'pubrel', messageId: 3 },
    subscribePacket(4, [f.topic('nothing'), 1]),
    { cmd: 'pingreq' },
    { cmd: 'disconnect' },
  );
  client.socket.end();
  const heard = await next(client, 6);
  t.same(
    heard.filter((text) => text !== 'x q1'),
    ['puback 2', 'pubrec 3', 'pubcomp 3', 'suback 4', 'pingresp'],
  );
  await client.closed;
});

t.test('a will is not published when a DISCONNECT waits behind other packets while the socket is reset', async (t) => {
  const f = await fixture(t);
  const admin = await f.service.connect({ jwt: f.service.admin });
  await admin.subscribeAsync(f.topic('chat'));
  const heard: string[] = [];
  admin.on('message', (_, payload) => heard.push(payload.toString()));
  const will = { topic: f.topic('chat'), payload: Buffer.from('will'), qos: 1, retain: false };
  const client = await rawConnected(t, f, { will });
  const messages = Array.from({ length: 50 }, (_, n) =>
    publishPacket(f.topic('temperature'), `${n}`, { qos: 1, messageId: n + 1 }),
  );
  client.send(...messages, subscribePacket(60, [f.topic('chat'), 1]), { cmd: 'disconnect' });
  client.socket.end(() => client.socket.resetAndDestroy());
  await client.closed;
  await until(async () => Number(await metric(f, 'slipway_mqtt_connections')) <= 1);
  await admin.publishAsync(f.topic('chat'), 'end', { qos: 1 });
  while (!heard.includes('end')) await new Promise((resolve) => admin.once('message', resolve));
  t.same(heard, ['end']);
});

t.test('a later filter does not hear an earlier message, and QoS 0 does not overtake QoS 1 or 2', async (t) => {
  const f = await fixtureIn(service);
  const client = await rawConnected(t, f);
  const listeners: RawClient[] = [];
  for (const [clean, qos] of [
    [true, 0],
    [false, 2],
  ] as const) {
    const listener = await connected(t, f.service.server, f, { clientId: `listener ${qos}`, clean });
    t.same(await subscribed(listener, [f.topic('chat'), qos]), [qos]);
    listeners.push(listener);
  }
  const message = (n: number, qos: 0 | 1 | 2) =>
    publishPacket(f.topic('chat'), `${n}`, { qos, ...(qos > 0 && { messageId: n }) });
  client.send(
    ...Array.from({ length: 30 }, (_, n) => message(n + 1, ([2, 1, 0] as const)[n % 3] as 0 | 1 | 2)),
    subscribePacket(40, [f.topic('chat'), 1]),
    { cmd: 'pingreq' },
  );
  t.notOk(
    (await next(client, 22)).some((text) => text.includes('q')),
    'answers only',
  );
  const order = Array.from({ length: 30 }, (_, n) => `${n + 1}`);
  for (const listener of listeners)
    t.same(
      (await next(listener, 30)).map((text) => text.split(' ')[0]),
      order,
    );
});

t.end();
