/** CONNECT and CONNACK of MQTT 5. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import mqtt from 'mqtt';
import { interceptChecks } from '../../support/faults.ts';
import { part } from '../../support/part.ts';
import { unlessBehindProxy } from '../../support/service.ts';
import { until } from '../../support/until.ts';
import { packetBytes } from '../bytes.ts';
import { type Fixture, fixture, neighbour, versionOf } from '../fixture.ts';
import { publishPacket, rawClient, subscribePacket } from '../raw.ts';
import {
  admin,
  attempt,
  connected,
  disconnectCode,
  disconnection,
  ended,
  leave,
  openSocket,
  ownDevice,
  published,
  refused,
  soFar,
  subscribed,
} from './client.ts';
import {
  block,
  type ConnectOptions,
  connect,
  field,
  type Name,
  pingreq,
  property,
  publish,
  subscribe,
  unsubscribe,
  type Written,
} from './packets.ts';

const t = await part(import.meta);

const week = 7 * 24 * 3600;
const never = 0xffff_ffff;
const nothing = Buffer.alloc(0);

// What CONNACK tells

t.test(
  'CONNACK tells Receive Maximum, Topic Alias Maximum and Maximum Packet Size, and nothing that is at its best',
  async (t) => {
    const f = await ownDevice(t);
    const { connack } = await connected(t, f);
    const { maximumPacketSize = 0, ...rest } = connack.properties;
    t.strictSame(rest, { receiveMaximum: 1000, topicAliasMaximum: 32 });
    t.ok(maximumPacketSize > 131_072, 'the largest payload fits');
    t.equal(connack.sessionPresent, false);
  },
);

t.test('a payload of the most bytes is taken, a packet beyond the Maximum Packet Size is not', async (t) => {
  const f = await fixture(t, { SLIPWAY_MQTT_MAX_PAYLOAD_BYTES: '1000' });
  const client = await connected(t, f);
  const { maximumPacketSize = 0 } = client.connack.properties;
  t.ok(maximumPacketSize > 1000, `${maximumPacketSize}`);
  t.equal((await published(client, f.topic('chat'), 'x'.repeat(1000))).code, 0x10);
  client.send(publish(f.topic('chat'), 'x'.repeat(maximumPacketSize), { qos: 1 }));
  t.equal(await disconnectCode(t, client), 0x95);
  const other = await connected(t, f);
  other.send(publish(f.topic('chat'), 'x'.repeat(1001), { qos: 1 }));
  t.equal(await disconnectCode(t, other), 0x95, 'a payload over the limit in a packet of a fitting size');
});

t.test('Session Expiry Interval is told when another one is granted than was asked for', async (t) => {
  const f = await ownDevice(t);
  for (const [asked, told] of [
    [undefined, undefined],
    [0, undefined],
    [60, undefined],
    [week, undefined],
    [week + 1, week],
    [never, week],
  ] as const) {
    const { connack } = await connected(t, f, asked === undefined ? {} : { properties: { sessionExpiry: asked } });
    t.equal(connack.properties.sessionExpiry, told, `${asked}`);
  }
});

t.test('a client without an id is told the public one, by which its session is found again', async (t) => {
  const f = await ownDevice(t);
  const ids = new Set<string>();
  for (const clean of [true, false]) {
    const client = await connected(t, f, { clientId: '', clean, properties: { sessionExpiry: 60 } });
    const { assignedClientId = '' } = client.connack.properties;
    t.match(assignedClientId, /^.{1,128}$/);
    t.notOk(
      assignedClientId.includes(f.service.accountId) || assignedClientId.includes(f.device.id),
      'not the private form',
    );
    t.equal(client.connack.sessionPresent, false);
    ids.add(assignedClientId);
    await leave(client);
    const again = await connected(t, f, {
      clientId: assignedClientId,
      clean: false,
      properties: { sessionExpiry: 60 },
    });
    t.equal(again.connack.sessionPresent, true);
    t.notOk('assignedClientId' in again.connack.properties, 'a client that has one is not told');
  }
  t.equal(ids.size, 2, 'each gets another one');
});

t.test('Server Keep Alive is told when the keep alive is clamped', async (t) => {
  const f = await ownDevice(t);
  for (const [asked, told] of [
    [60, undefined],
    [3600, undefined],
    [3601, 3600],
    [0, 3600],
  ] as const)
    t.equal((await connected(t, f, { keepAlive: asked })).connack.properties.serverKeepAlive, told, `${asked}`);
});

t.test('Response Information is the prefix of the topics of a device that asks for it', async (t) => {
  const f = await ownDevice(t);
  const told = async (requestResponseInformation: number, who = {}) => {
    const client = await connected(t, f, { properties: { requestResponseInformation }, ...who });
    return client.connack.properties.responseInformation;
  };
  t.equal(await told(1), f.topic(''));
  t.equal(await told(0), undefined);
  t.equal((await connected(t, f)).connack.properties.responseInformation, undefined, 'nor without a request');
  t.equal(await told(1, admin(f)), undefined, 'a user has no topics of its own');
});

// Refusals

t.test('a wrong name and a wrong secret are refused with 0x86 and a Reason String', async (t) => {
  const f = await ownDevice(t);
  for (const who of [{ password: 'wrong' }, { username: 'nobody' }, { username: 'Auth:JWT', password: 'wrong' }]) {
    const { code, sessionPresent, properties } = await refused(t, f, { ...who, clean: false });
    t.strictSame([code, sessionPresent], [0x86, false], JSON.stringify(who));
    t.match(properties.reasonString, /\w+/);
    t.ok(Buffer.byteLength(properties.reasonString ?? '') <= 256);
  }
});

t.test('a device in the trash is refused with 0x87', async (t) => {
  const f = await ownDevice(t);
  const headers = { etag: await versionOf(f.service, f.device.id) };
  await f.service.ok('DELETE', `/api/v1/devices/${f.device.id}`, { headers });
  const { code, properties } = await refused(t, f);
  t.equal(code, 0x87);
  t.match(properties.reasonString, /\w+/);
});

t.test('a client id that is too long is refused with 0x85', async (t) => {
  const f = await ownDevice(t);
  const { code, properties } = await refused(t, f, { clientId: 'x'.repeat(200) });
  t.equal(code, 0x85);
  t.match(properties.reasonString, /\w+/);
  t.equal((await connected(t, f, { clientId: 'x'.repeat(128) })).connack.code, 0);
});

t.test('an Authentication Method is refused with 0x8C, whatever the secret is', async (t) => {
  const f = await ownDevice(t);
  for (const properties of [
    { authenticationMethod: 'SCRAM-SHA-1' },
    { authenticationMethod: 'SCRAM-SHA-1', authenticationData: '\0x' },
    { authenticationMethod: '' },
  ]) {
    const { code, properties: told } = await refused(t, f, { properties });
    t.equal(code, 0x8c);
    t.notOk('authenticationMethod' in told);
  }
});

t.test('a will on a topic that no channel can have is refused with 0x90, on a foreign topic with 0x87', async (t) => {
  const f = await ownDevice(t);
  const other = await neighbour(f);
  for (const [topic, code] of [
    ['somewhere/else', 0x90],
    ['$SYS/x', 0x90],
    [f.topic('').slice(0, -1), 0x90],
    [f.topic('nothing'), 0x87],
    [other.topic('chat'), 0x87],
  ] as const)
    t.equal((await refused(t, f, { will: { topic } })).code, code, topic);
});

t.test('a CONNECT that is too large is refused with 0x95', async (t) => {
  const f = await ownDevice(t);
  const properties = { userProperties: [['a', 'x'.repeat(20_000)] as [string, string]] };
  t.equal((await refused(t, f, { properties })).code, 0x95);
});

t.test('connections and stored sessions beyond a limit are refused with 0x97', async (t) => {
  const f = await fixture(t, {
    SLIPWAY_MQTT_MAX_CONNECTIONS_PER_DEVICE: '2',
    SLIPWAY_MQTT_MAX_STORED_SESSIONS_PER_ACCOUNT: '1',
  });
  const kept = { properties: { sessionExpiry: 60 } };
  await leave(await connected(t, f, { clientId: 'a', ...kept }));
  const session = await refused(t, f, { clientId: 'b', ...kept });
  t.equal(session.code, 0x97);
  t.match(session.properties.reasonString, 'SLIPWAY_MQTT_MAX_STORED_SESSIONS_PER_ACCOUNT');
  await connected(t, f, { clientId: 'a', clean: false, ...kept });
  await connected(t, f, { clientId: 'b' });
  const connection = await refused(t, f, { clientId: 'c' });
  t.equal(connection.code, 0x97);
  t.match(connection.properties.reasonString, 'SLIPWAY_MQTT_MAX_CONNECTIONS_PER_DEVICE');
});

t.test('a limit that strikes before CONNECT is told, too: 0x89, 0x97, 0x9F', async (t) => {
  for (const [variable, code] of [
    ['MAX_CONNECTIONS', 0x89],
    ['MAX_CONNECTIONS_PER_ADDRESS', 0x97],
  ] as const) {
    const f = await fixture(t, { [`SLIPWAY_MQTT_${variable}`]: '1' });
    await connected(t, f, { clientId: 'a' });
    const { code: given, properties } = await refused(t, f, { clientId: 'b' });
    t.equal(given, code);
    t.match(properties.reasonString, `SLIPWAY_MQTT_${variable}`);
  }
});

t.test(
  'who waits for its turn has all of the CONNECT timeout from then on; who would wait longer is told 0x9F',
  async (t) => {
    const overTcp = (f: Fixture, clientId: string) => attempt(t, f, { clientId }).then(({ connack }) => connack.code);
    const overWebSocket = async ({ service, device, secret }: Fixture, clientId: string) => {
      const url = service.webSocket('/mqtt');
      const of = { username: device.id, password: secret, protocolVersion: 5, reconnectPeriod: 0 } as const;
      const client = mqtt.connect(url, { clientId, ...of, connectTimeout: 60_000 });
      t.teardown(() => client.endAsync(true));
      return new Promise<number | string>((resolve) => {
        client.once('connect', () => resolve(0));
        client.stream.once('error', ({ message }) => resolve(message));
      });
    };
    const later = { tcp: 0x9f, ws: 'Unexpected server response: 503' };
    const lettingIn = async (kind: 'tcp' | 'ws', enter: typeof overTcp | typeof overWebSocket) => {
      const rates = { SLIPWAY_MQTT_CONNECT_RATE_PER_ADDRESS: '1', SLIPWAY_MQTT_CONNECT_TIMEOUT_SECONDS: '6' };
      const f = await fixture(t, rates);
      const begun = performance.now();
      const passed = (milliseconds: number) => performance.now() - begun > milliseconds;
      interceptChecks(t, f.service, async (verify) => {
        if (passed(4500)) await until(() => passed(7500));
        return verify();
      });
      const after = (error: Error) => `after ${Math.round(performance.now() - begun)} ms: ${error.message}`;
      // One a second, the last at about the end of the timeout.
      const answers = await Promise.all([...'abcdefghijklmn'].map((clientId) => enter(f, clientId).catch(after)));
      t.same(new Set(answers), new Set([0, later[kind]]), kind);
    };
    await Promise.all([lettingIn('tcp', overTcp), lettingIn('ws', overWebSocket)]);
  },
);

t.test('Reason Strings of CONNACK are sent whatever Request Problem Information says', async (t) => {
  const f = await ownDevice(t);
  const { code, properties } = await refused(t, f, { password: 'wrong', properties: { requestProblemInformation: 0 } });
  t.equal(code, 0x86);
  t.match(properties.reasonString, /\w+/);
});

t.test('a refusal fits into the Maximum Packet Size of the client', async (t) => {
  const f = await ownDevice(t);
  const { code, size, properties } = await refused(t, f, { password: 'wrong', properties: { maximumPacketSize: 12 } });
  t.equal(code, 0x86);
  t.ok(size <= 12, `${size} bytes`);
  t.notOk('reasonString' in properties);
});

// Malformed packets

const twice: Array<[Name, number | string]> = [
  ['sessionExpiry', 1],
  ['receiveMaximum', 1],
  ['maximumPacketSize', 1000],
  ['topicAliasMaximum', 1],
  ['requestResponseInformation', 1],
  ['requestProblemInformation', 1],
  ['authenticationMethod', 'a'],
  ['authenticationData', 'a'],
];
const twiceInWill: Array<[Name, number | string]> = [
  ['willDelay', 1],
  ['payloadFormat', 1],
  ['messageExpiry', 1],
  ['contentType', 'a'],
  ['responseTopic', 'a'],
  ['correlationData', 'a'],
];

t.test('a CONNECT that says a property twice, or a value that it must not have, is refused with 0x82', async (t) => {
  const f = await ownDevice(t);
  const will = (properties: Written): ConnectOptions => ({ will: { topic: f.topic('chat'), properties } });
  for (const one of twice) t.equal((await refused(t, f, { properties: [one, one] })).code, 0x82, one[0]);
  for (const one of twiceInWill) t.equal((await refused(t, f, will([one, one]))).code, 0x82, `${one[0]} of a will`);
  for (const properties of [
    { receiveMaximum: 0 },
    { maximumPacketSize: 0 },
    { requestProblemInformation: 2 },
    { requestResponseInformation: 2 },
    { authenticationData: 'without a method' },
  ])
    t.equal((await refused(t, f, { properties })).code, 0x82, JSON.stringify(properties));
});

t.test('a CONNECT with a property that is unknown or belongs to another packet is refused with 0x81', async (t) => {
  const f = await ownDevice(t);
  const strange = [
    Buffer.from([0x7f, 1]),
    Buffer.from([0x00, 1]),
    Buffer.from([0xff, 0x01, 1]),
    property('topicAlias', 1),
    property('subscriptionIdentifier', 1),
    property('willDelay', 1),
    property('contentType', 'a'),
    property('assignedClientId', 'a'),
    property('serverKeepAlive', 1),
    property('reasonString', 'a'),
    property('maximumQos', 1),
  ];
  for (const properties of strange)
    t.equal((await refused(t, f, { properties })).code, 0x81, properties.toString('hex'));
  for (const properties of [property('sessionExpiry', 1), property('topicAlias', 1), Buffer.from([0x7f, 1])]) {
    const will = { topic: f.topic('chat'), properties };
    t.equal((await refused(t, f, { will })).code, 0x81, `${properties.toString('hex')} of a will`);
  }
});

t.test('a malformed CONNECT is refused with 0x81', async (t) => {
  const f = await ownDevice(t);
  const will = { topic: f.topic('chat') };
  const notUtf8 = Buffer.from('61c080', 'hex');
  const asked: Record<string, ConnectOptions> = {
    'the reserved flag': { flags: 1 },
    'a will of QoS 3': { will, flags: 0x18 },
    'bytes after the last field': { surplus: Buffer.from('x') },
    'a client id of bad UTF-8': { clientId: notUtf8 },
    'a client id with U+0000': { clientId: 'a\0b' },
    'a property of bad UTF-8': { properties: Buffer.concat([Buffer.from([0x26]), field('a'), field(notUtf8)]) },
    'a property with U+0000': { properties: { userProperties: [['a', 'b\0']] } },
    'a property that is cut off': { properties: Buffer.from([0x11, 0, 0]) },
  };
  for (const [name, one] of Object.entries(asked)) t.equal((await refused(t, f, one)).code, 0x81, name);

  const withLength = (length: Buffer) =>
    packetBytes(0x10, field('MQTT'), Buffer.from([5, 2, 0, 60]), length, field('five'));
  const bytes: Record<string, Buffer> = {
    'a property length of five bytes': withLength(Buffer.from('ffffffff01', 'hex')),
    'a property length that is longer than it must be': withLength(Buffer.from('8000', 'hex')),
    'properties that are longer than the packet': withLength(Buffer.from([100])),
    'no client id': packetBytes(0x10, field('MQTT'), Buffer.from([5, 2, 0, 60]), block()),
    'no flags': packetBytes(0x10, field('MQTT'), Buffer.from([5])),
  };
  for (const [name, one] of Object.entries(bytes)) {
    const client = await openSocket(t, f.service.server.mqttPort);
    client.send(one);
    t.match(await client.next(), { cmd: 'connack', code: 0x81, sessionPresent: false }, name);
    await ended(t, client, name);
  }
});

t.test('will flags without a will are refused', async (t) => {
  const f = await ownDevice(t);
  for (const flags of [0x08, 0x10, 0x20])
    t.match([0x81, 0x82], [(await refused(t, f, { flags })).code as number], `flags ${flags}`);
});

t.test('a password without a user name is well-formed', async (t) => {
  const f = await ownDevice(t);
  const { service, device, secret } = f;
  const client = await openSocket(t, service.server.mqttPort);
  client.send(connect({ clientId: device.id, password: secret }));
  t.match(await client.next(), { cmd: 'connack', code: 0 }, 'the client id names the device, as at level 4');
  const wrong = await openSocket(t, service.server.mqttPort);
  wrong.send(connect({ clientId: device.id, password: 'wrong' }));
  t.match(await wrong.next(), { cmd: 'connack', code: 0x86 });
});

t.test('User Properties of CONNECT may stand many times', async (t) => {
  const f = await ownDevice(t);
  const userProperties: Array<[string, string]> = [
    ['a', '1'],
    ['a', '1'],
    ['', ''],
  ];
  await connected(t, f, { properties: { userProperties } });
});

t.test('a second CONNECT ends the connection with 0x82, and AUTH does', async (t) => {
  const f = await ownDevice(t);
  for (const packet of [
    connect({ username: f.device.id, password: f.secret }),
    packetBytes(0xf0, Buffer.from([0x18, 0])),
  ]) {
    const client = await connected(t, f);
    client.send(packet);
    t.equal(await disconnectCode(t, client), 0x82);
  }
});

const inCell = unlessBehindProxy('HAProxy ends a connection of a level that it does not know');
t.test('a connection that does not begin with CONNECT ends without an answer', inCell, async (t) => {
  const f = await ownDevice(t);
  for (const first of [pingreq, publish(f.topic('chat'), 'x'), packetBytes(0xf0), nothing]) {
    const client = await openSocket(t, f.service.server.mqttPort);
    client.send(first, packetBytes(0xe0));
    await ended(t, client);
  }
});

t.test('levels 0 to 2 and above 5 get CONNACK 1 in the form of level 4', inCell, async (t) => {
  const f = await ownDevice(t);
  for (const level of [0, 1, 2, 6, 7, 127]) {
    const client = await rawClient(t, f.service.server.mqttPort);
    const heard: Buffer[] = [];
    client.socket.on('data', (chunk) => heard.push(chunk));
    client.send(connect({ username: f.device.id, password: f.secret, level }));
    await client.closed;
    t.equal(Buffer.concat(heard).toString('hex'), '20020001', `level ${level}`);
  }
});

// Levels, transports

t.test('what is sent right behind CONNECT is answered after CONNACK', async (t) => {
  const f = await ownDevice(t);
  const client = await openSocket(t, f.service.server.mqttPort);
  client.send(
    connect({ username: f.device.id, password: f.secret }),
    publish(f.topic('temperature'), '1', { qos: 1, id: 3 }),
    pingreq,
  );
  t.match(await client.next(), { cmd: 'connack', code: 0 });
  t.match(await client.next(), { cmd: 'puback', id: 3, code: 0 });
  t.match(await client.next(), { cmd: 'pingresp' });
});

t.test('clients of levels 3, 4 and 5 are on one channel, and each gets packets of its own level', async (t) => {
  const f = await ownDevice(t);
  const five = await connected(t, f, { clientId: 'five' });
  t.same(await subscribed(five, [f.topic('chat')]), [1]);
  const others = [
    { protocolId: 'MQIsdp', protocolVersion: 3, clientId: 'three' },
    { protocolId: 'MQTT', protocolVersion: 4, clientId: 'four' },
  ];
  const clients = [];
  for (const other of others) {
    const client = await rawClient(t, f.service.server.mqttPort);
    const login = { username: f.device.id, password: Buffer.from(f.secret), clean: true, keepalive: 60 };
    client.send({ cmd: 'connect', ...login, ...other } as never, subscribePacket(1, [f.topic('chat'), 1]));
    t.match(await client.next(), { cmd: 'connack', returnCode: 0 });
    t.match(await client.next(), { cmd: 'suback', granted: [1] });
    clients.push(client);
  }
  five.send(publish(f.topic('chat'), 'from 5', { properties: { contentType: 'text/plain' } }));
  clients[0]?.send(publishPacket(f.topic('chat'), 'from 3'));
  t.same([(await five.next()).payload, (await five.next()).payload].sort(), ['from 3', 'from 5']);
  for (const client of clients) {
    const heard = [await client.next(), await client.next()] as Array<{ payload?: Buffer }>;
    t.same(heard.map(({ payload }) => `${payload}`).sort(), ['from 3', 'from 5']);
  }
});

t.test('MQTT 5 is spoken over WebSocket, with the subprotocol mqtt', async (t) => {
  const f = await ownDevice(t);
  const login = { username: f.device.id, password: f.secret, reconnectPeriod: 0, protocolVersion: 5 } as const;
  for (const path of ['/mqtt', '/']) {
    const client = await mqtt.connectAsync(f.service.webSocket(path), login);
    t.equal((await client.subscribeAsync(f.topic('chat'), { qos: 1 }))[0]?.qos, 1);
    const heard = new Promise((resolve) => client.once('message', (...message) => resolve(message[2])));
    await client.publishAsync(f.topic('chat'), 'x', { qos: 1, properties: { contentType: 'text/plain' } });
    t.match(await heard, { properties: { contentType: 'text/plain' } });
    await client.endAsync();
  }
});

t.test('a refused CONNECT is in the list of refusals of its device', async (t) => {
  const f = await ownDevice(t);
  await refused(t, f, { password: 'wrong', clientId: 'stranger' });
  const { refusals } = await f.service.ok('GET', `/api/v1/devices/${f.device.id}/refusals`);
  t.match(refusals.results, [{ action: 'connect', topic: null, clientId: 'stranger', reason: /wrong/ }]);
});

t.test('the CONNECT of one connection says nothing about another', async (t) => {
  const f = await ownDevice(t);
  const [one, other] = [
    await connected(t, f, { clientId: 'one', properties: { receiveMaximum: 1, topicAliasMaximum: 1 } }),
    await connected(t, f, { clientId: 'other' }),
  ];
  for (const client of [one, other]) t.same(await subscribed(client, [f.topic('chat')]), [1]);
  const sender = await connected(t, f, { clientId: 'sender' });
  for (const text of ['1', '2']) await published(sender, f.topic('chat'), text);
  t.equal((await soFar(one)).length, 1);
  t.match(await soFar(other), [{ properties: {} }, { properties: {} }]);
  t.strictSame((await attempt(t, f)).connack.properties.topicAliasMaximum, 32);
});

// What does not fit, and what no name is

t.test('CONNACK is not longer than the client takes: it leaves out what it may, or is 0x95', async (t) => {
  const f = await ownDevice(t);
  const asking = (maximumPacketSize: number) => ({ maximumPacketSize, requestResponseInformation: 1 as const });
  const { connack } = await connected(t, f, { properties: asking(100) });
  t.ok(connack.size <= 100, `${connack.size} bytes`);
  t.equal(connack.properties.responseInformation, undefined);
  const small = await connected(t, f, { properties: asking(13) });
  t.ok(small.connack.size <= 13, `${small.connack.size} bytes`);
  t.match(await refused(t, f, { properties: asking(12) }), { code: 0x95, size: 5 });
});

t.test('SUBSCRIBE and UNSUBSCRIBE may be as long as CONNACK says', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  const { maximumPacketSize = 0 } = client.connack.properties;
  const pairs = Array.from({ length: 80 }, (_, n): [string, string] => [`${n}`, 'x'.repeat(1000)]);
  const make = {
    suback: (last: string) => subscribe(2, [f.topic('chat')], { userProperties: [...pairs, ['last', last]] }),
    unsuback: (last: string) => unsubscribe(2, [f.topic('chat')], { userProperties: [...pairs, ['last', last]] }),
  };
  /** A packet of so many bytes, its fixed header of four among them. */
  const ofBytes = (cmd: keyof typeof make, bytes: number) => make[cmd]('x'.repeat(bytes - make[cmd]('').length));
  for (const cmd of ['suback', 'unsuback'] as const) {
    const whole = ofBytes(cmd, maximumPacketSize);
    t.equal(whole.length, maximumPacketSize);
    client.send(whole);
    t.match(await client.next(), { cmd }, cmd);
  }
  // Its length is told without the fixed header.
  for (const cmd of ['suback', 'unsuback'] as const) {
    const other = await connected(t, f);
    other.send(ofBytes(cmd, maximumPacketSize + 5));
    t.equal(await disconnectCode(t, other), 0x95, cmd);
  }
});

t.test('a CONNECT that is too long is told so, wherever it is cut', async (t) => {
  const f = await ownDevice(t);
  const bytes = connect({ clientId: 'x'.repeat(20_000) });
  for (const at of [1, 2, 3, 4, 8, 10, 11, 14]) {
    const client = await openSocket(t, f.service.server.mqttPort);
    client.socket.setNoDelay(true);
    client.send(bytes.subarray(0, at));
    // Until the service has read them.
    for (let turns = 0; turns < 50; turns += 1) await nextTurn();
    client.send(bytes.subarray(at, 100));
    t.match(await client.next(), { cmd: 'connack', code: 0x95 }, `after ${at} bytes`);
  }
});

t.test('a wildcard in a Response Topic is a protocol error, an empty filter is malformed', async (t) => {
  const f = await ownDevice(t);
  const responseTopic = f.topic('+');
  const will = { topic: f.topic('chat'), payload: '', properties: { responseTopic } };
  const told = { code: 0x82, properties: { reasonString: /a wildcard in a Response Topic/ } };
  t.match(await refused(t, f, { will }), told);
  const client = await connected(t, f);
  client.send(publish(f.topic('chat'), '', { properties: { responseTopic } }));
  t.match(await disconnection(t, client), told);
  for (const packet of [subscribe(1, ['']), unsubscribe(1, [''])]) {
    const other = await connected(t, f);
    other.send(packet);
    t.equal(await disconnectCode(t, other), 0x81);
  }
});

t.test('what an SDK says of itself behind a username is no part of it', async (t) => {
  const f = await ownDevice(t);
  await connected(t, f, { username: `${f.device.id}?SDK=Python&Version=1.4.8` });
  await connected(t, f, { username: '?SDK=Python', clientId: f.device.id });
  t.match(await refused(t, f, { username: `${f.device.id}x?SDK=Python` }), { code: 0x86 });
});

t.end();
