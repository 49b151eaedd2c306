/** Reason codes of MQTT 5: in acknowledgements, and in the DISCONNECT of the server. */
import { part } from '../../support/part.ts';
import { until } from '../../support/until.ts';
import { packetBytes } from '../bytes.ts';
import { connected as connectedAt4 } from '../conversation.ts';
import { fixture, neighbour, stored, versionOf } from '../fixture.ts';
import {
  admin,
  attempt,
  type Connected,
  connected,
  disconnectCode,
  disconnection,
  ended,
  leave,
  nextOf,
  ownDevice,
  soFar,
  subscribed,
} from './client.ts';
import {
  type Asked,
  answer,
  block,
  connect,
  disconnect,
  field,
  pingreq,
  publish,
  subscribe,
  unsubscribe,
  type Written,
} from './packets.ts';

const t = await part(import.meta);

/** Publishes at a QoS to the end, and gives the code of PUBACK or PUBREC, and its Reason String. */
async function outcome(client: Connected, qos: 1 | 2, topic: string, payload: string, more = {}) {
  client.send(publish(topic, payload, { qos, id: 9, ...more }));
  const { code = 0, properties } = await nextOf(client, qos === 1 ? 'puback' : 'pubrec');
  if (qos === 2 && code < 0x80) {
    client.send(answer('pubrel', 9));
    await nextOf(client, 'pubcomp');
  }
  return { code, reasonString: properties.reasonString };
}

// Acknowledgements of PUBLISH

t.test('0x00 for a message that somebody receives, or that is stored, queued or retained', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  for (const qos of [1, 2] as const) {
    t.equal((await outcome(client, qos, f.topic('temperature'), '1')).code, 0, 'stored');
    t.equal((await outcome(client, qos, f.topic('chat'), 'x', { retain: true })).code, 0, 'retained');
    const other = await connected(t, f, { clientId: 'other' });
    t.same(await subscribed(other, [f.topic('chat')]), [1]);
    t.equal((await outcome(client, qos, f.topic('chat'), 'x')).code, 0, 'received');
    await leave(other);
    const kept = await connected(t, f, { clientId: `kept ${qos}`, properties: { sessionExpiry: 60 } });
    t.same(await subscribed(kept, [f.topic('chat')]), [1]);
    await leave(kept);
    t.equal((await outcome(client, qos, f.topic('chat'), 'x')).code, 0, 'queued');
    await leave(await connected(t, f, { clientId: `kept ${qos}` }));
  }
});

t.test('0x10 for a message that nobody receives and nothing stores', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  for (const qos of [1, 2] as const) t.equal((await outcome(client, qos, f.topic('chat'), 'x')).code, 0x10);
  t.same(await subscribed(client, [[f.topic('chat'), { noLocal: true }]]), [1]);
  for (const qos of [1, 2] as const)
    t.equal((await outcome(client, qos, f.topic('chat'), 'x')).code, 0x10, 'the only filter does not want it');
});

t.test('0x10 whatever another account has subscribed to: live, for a stored session or a group', async (t) => {
  const f = await ownDevice(t);
  const other = await neighbour(f);
  const filters = ['#', '$share/all/#', '+/#', 'slipway/v1/+/d/+/#'];
  const live = await connected(t, other, { clientId: 'live' });
  t.same(await subscribed(live, filters), [1, 1, 1, 1]);
  const kept = await connected(t, other, { clientId: 'kept', properties: { sessionExpiry: 60 } });
  t.same(await subscribed(kept, filters), [1, 1, 1, 1]);
  await leave(kept);
  const client = await connected(t, f);
  for (const qos of [1, 2] as const) t.equal((await outcome(client, qos, f.topic('chat'), 'x')).code, 0x10);
  t.equal((await outcome(await connected(t, other), 1, other.topic('chat'), 'x')).code, 0, 'its own messages come');
});

t.test('0x87 for a message that is not permitted, and the connection stays', async (t) => {
  const f = await ownDevice(t);
  const other = await neighbour(f);
  const client = await connected(t, f);
  t.same(await subscribed(client, [[f.topic('_rejected'), { qos: 0 }]]), [0]);
  for (const qos of [1, 2] as const)
    for (const topic of [f.topic('nothing'), other.topic('chat'), f.topic('_updates/fields')]) {
      client.send(publish(topic, 'x', { qos, id: 9 }));
      const [first, second] = [await client.next(), await client.next()];
      const heard = [first, second].find(({ cmd }) => cmd === 'publish');
      const acknowledgement = [first, second].find(({ cmd }) => cmd !== 'publish');
      t.match(acknowledgement, { cmd: qos === 1 ? 'puback' : 'pubrec', id: 9, code: 0x87 }, topic);
      t.match(heard, { topic: f.topic('_rejected') }, 'and it is explained as before');
      t.match(acknowledgement?.properties.reasonString, /\w+/);
    }
  t.same(await soFar(client), []);
});

t.test('the Reason String is the sentence of the refusal list, in at most 256 bytes', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  const told = [
    await outcome(client, 1, f.topic('nothing'), 'x'),
    await outcome(client, 2, f.topic('temperature'), 'a,b,c,d,e,f'),
    await outcome(client, 1, f.topic('_set/fields'), JSON.stringify({ state: { latitude: '9'.repeat(300) } })),
  ];
  client.send(subscribe(2, [f.topic('nothing')]));
  const { codes, properties } = await client.next();
  t.same(codes, [0x87]);
  const said = [...told.map(({ reasonString }) => reasonString), properties.reasonString].reverse();
  const { refusals } = await f.service.ok('GET', `/api/v1/devices/${f.device.id}/refusals`);
  const listed = refusals.results as Array<{ reason: string }>;
  t.equal(listed.length, said.length);
  for (const [place, { reason }] of listed.entries()) {
    const text = said[place] ?? '';
    t.ok(text !== '' && Buffer.byteLength(text) <= 256, text);
    t.ok(text === reason || reason.startsWith(text.replace(/…$/, '')), `${text} of ${reason}`);
  }
});

t.test('0x90 for a topic that cannot be the topic of a channel', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  for (const qos of [1, 2] as const)
    for (const topic of ['somewhere/else', '$SYS/x', '$share/a/b', f.topic('').slice(0, -1), `x${f.topic('chat')}`]) {
      const { code, reasonString } = await outcome(client, qos, topic, 'x');
      t.equal(code, 0x90, topic);
      t.match(reasonString, /\w+/);
    }
});

t.test('0x99 for a payload of another form than the channel takes: delivered, not stored', async (t) => {
  const f = await ownDevice(t);
  const [client, other] = [await connected(t, f), await connected(t, f, { clientId: 'other' })];
  t.same(await subscribed(other, [[f.topic('temperature'), { qos: 0 }]]), [0]);
  for (const qos of [1, 2] as const) {
    const { code, reasonString } = await outcome(client, qos, f.topic('temperature'), 'no number at all');
    t.equal(code, 0x99);
    t.match(reasonString, /delivered but not stored/);
    t.match(await other.next(), { cmd: 'publish', payload: 'no number at all' });
  }
  t.equal((await outcome(client, 1, f.topic('temperature'), '1')).code, 0);
  t.same(await stored(f), [1]);
});

t.test('0x99 for what a service channel cannot use', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  for (const qos of [1, 2] as const)
    t.equal((await outcome(client, qos, f.topic('_set/fields'), '{"state":{"latitude":"91"}}')).code, 0x99);
});

t.test('0x97 beyond the limit of retained messages: delivered, not retained', async (t) => {
  const f = await fixture(t, { SLIPWAY_MQTT_MAX_RETAINED_PER_ACCOUNT: '1' });
  const [client, other] = [await connected(t, f), await connected(t, f, { clientId: 'other' })];
  t.equal((await outcome(client, 1, f.topic('chat'), 'first', { retain: true })).code, 0);
  t.same(await subscribed(other, [[f.topic('temperature'), { qos: 0 }]]), [0]);
  for (const qos of [1, 2] as const) {
    const { code, reasonString } = await outcome(client, qos, f.topic('temperature'), '1', { retain: true });
    t.equal(code, 0x97);
    t.match(reasonString, /delivered but not retained/);
    t.match(await other.next(), { cmd: 'publish', payload: '1' });
  }
  t.same(await subscribed(client, [f.topic('temperature')]), [1]);
  t.same(await soFar(client), [], 'nothing is retained');
});

t.test('0x97 when the disk has reached its reserve, and the connection stays', async (t) => {
  let free = 1e12;
  const f = await fixture(t, {}, { freeOnDisk: async () => free });
  const client = await connected(t, f);
  free = 1;
  await until(async () => (await f.service.http('GET', '/health/ready', { token: null })).status === 503);
  for (const qos of [1, 2] as const) {
    const { code, reasonString } = await outcome(client, qos, f.topic('temperature'), '1');
    t.equal(code, 0x97);
    t.match(reasonString, /could not be stored/);
  }
  free = 1e12;
  await until(async () => (await f.service.http('GET', '/health/ready', { token: null })).status === 200);
  t.equal((await outcome(client, 1, f.topic('temperature'), '2')).code, 0);
  t.same(await stored(f), [2]);
});

t.test('a PUBREC with an error ends the message: its packet id is free', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  client.send(publish(f.topic('nothing'), 'x', { qos: 2, id: 4 }));
  t.match(await client.next(), { cmd: 'pubrec', id: 4, code: 0x87 });
  client.send(answer('pubrel', 4));
  t.match(await client.next(), { cmd: 'pubcomp', id: 4, code: 0x92 });
  client.send(publish(f.topic('temperature'), '1', { qos: 2, id: 4 }));
  t.match(await client.next(), { cmd: 'pubrec', id: 4, code: 0 }, 'a new message');
  client.send(answer('pubrel', 4));
  t.match(await client.next(), { cmd: 'pubcomp', id: 4, code: 0 });
});

// Packet ids

t.test('0x92 for a PUBREL of an unknown id, and in the PUBREL for an unknown PUBREC', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  client.send(answer('pubrel', 5));
  t.match(await client.next(), { cmd: 'pubcomp', id: 5, code: 0x92 });
  client.send(answer('pubrec', 6));
  t.match(await client.next(), { cmd: 'pubrel', id: 6, code: 0x92 });
  client.send(answer('pubcomp', 6), answer('puback', 7), answer('pubcomp', 8, 0x92));
  t.same(await soFar(client), [], 'and nothing for others');
});

t.test('a QoS 2 message whose id is under way: 0x91 with DUP 0, PUBREC again with DUP 1', async (t) => {
  const f = await ownDevice(t);
  const [client, other] = [await connected(t, f), await connected(t, f, { clientId: 'other' })];
  t.same(await subscribed(other, [[f.topic('chat'), { qos: 0 }]]), [0]);
  const send = async (text: string, dup: boolean) => {
    client.send(publish(f.topic('chat'), text, { qos: 2, id: 3, dup }));
    return client.next();
  };
  t.match(await send('first', false), { cmd: 'pubrec', id: 3, code: 0 });
  t.match(await send('first', true), { cmd: 'pubrec', id: 3, code: 0 });
  client.send(publish(f.topic('chat'), 'of QoS 1', { qos: 1, id: 3 }));
  t.match(await client.next(), { cmd: 'puback', id: 3, code: 0x91 });
  t.match(await send('second', false), { cmd: 'pubrec', id: 3, code: 0x91 });
  t.match(await send('third', false), { cmd: 'pubrec', id: 3, code: 0 }, 'the client has been told: the id is free');
  client.send(answer('pubrel', 3));
  t.match(await client.next(), { cmd: 'pubcomp', id: 3, code: 0 });
  client.send(answer('pubrel', 3));
  t.match(await client.next(), { cmd: 'pubcomp', id: 3, code: 0x92 });
  t.match(await send('last', false), { cmd: 'pubrec', id: 3, code: 0 });
  t.match(await other.next(), { payload: 'first' });
  t.match(await other.next(), { payload: 'third' });
  t.match(await other.next(), { payload: 'last' });
});

t.test('SUBSCRIBE and UNSUBSCRIBE with an id that is under way: 0x91 for each filter', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  client.send(publish(f.topic('temperature'), '1', { qos: 2, id: 3 }));
  t.match(await client.next(), { cmd: 'pubrec', code: 0 });
  client.send(subscribe(3, [f.topic('chat'), f.topic('temperature')]), unsubscribe(3, [f.topic('chat')]));
  t.match(await client.next(), { cmd: 'suback', id: 3, codes: [0x91, 0x91] });
  t.match(await client.next(), { cmd: 'unsuback', id: 3, codes: [0x91] });
  t.equal((await outcome(client, 1, f.topic('chat'), 'x')).code, 0x10, 'nothing is subscribed to');
});

// SUBACK and UNSUBACK

t.test('SUBACK has a code for every filter: the QoS, 0x87 or 0x8F', async (t) => {
  const f = await ownDevice(t);
  const other = await neighbour(f);
  const client = await connected(t, f);
  const asked: Array<[Asked, number]> = [
    [[f.topic('chat'), { qos: 0 }], 0],
    [f.topic('temperature'), 1],
    [[f.topic('chat'), { qos: 2 }], 2],
    [f.topic('nothing'), 0x87],
    [other.topic('chat'), 0x87],
    [other.topic('#'), 0x87],
    ['somewhere/else', 0x8f],
    ['+/+', 0x8f],
    ['$SYS/#', 0x8f],
    [f.topic('').slice(0, -1), 0x8f],
    ['a#', 0x8f],
    ['a/#/b', 0x8f],
    [`${f.topic('chat')}+`, 0x8f],
    ['#', 1],
  ];
  client.send(
    subscribe(
      2,
      asked.map(([filter]) => filter),
    ),
  );
  const { codes, id } = await client.next();
  t.equal(id, 2);
  for (const [place, [filter, code]] of asked.entries()) t.equal(codes?.[place], code, JSON.stringify(filter));
  t.equal(codes?.length, asked.length);
  client.send(pingreq);
  t.ok(await nextOf(client, 'pingresp'), 'the connection stays');
});

t.test('SUBACK 0x97 for a filter more than a client may have', async (t) => {
  const f = await fixture(t, { SLIPWAY_MQTT_MAX_SUBSCRIPTIONS: '1' });
  const client = await connected(t, f);
  client.send(subscribe(2, [f.topic('chat'), f.topic('temperature'), f.topic('chat')]));
  const { codes, properties } = await client.next();
  t.same(codes, [1, 0x97, 1]);
  t.match(properties.reasonString, 'SLIPWAY_MQTT_MAX_SUBSCRIPTIONS');
});

t.test('UNSUBACK has a code for every filter: 0x00, 0x11 for no such subscription, 0x8F for none at all', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  t.same(await subscribed(client, [f.topic('chat'), '#']), [1, 1]);
  const filters = [f.topic('chat'), f.topic('temperature'), f.topic('nothing'), '#', f.topic('chat'), 'a#'];
  client.send(unsubscribe(3, filters));
  t.match(await client.next(), { cmd: 'unsuback', id: 3, codes: [0, 0x11, 0x11, 0, 0x11, 0x8f] });
});

t.test('without Request Problem Information no acknowledgement has a Reason String or User Properties', async (t) => {
  const f = await ownDevice(t);
  for (const [requestProblemInformation, isTold] of [
    [0, false],
    [1, true],
  ] as const) {
    const client = await connected(t, f, { properties: { requestProblemInformation } });
    client.send(
      publish(f.topic('nothing'), 'x', { qos: 1, id: 2 }),
      publish(f.topic('nothing'), 'x', { qos: 2, id: 3 }),
      subscribe(4, [f.topic('nothing')]),
    );
    for (const cmd of ['puback', 'pubrec', 'suback'] as const) {
      const { properties } = await nextOf(client, cmd);
      t.equal(
        'reasonString' in properties,
        isTold,
        `${cmd} with Request Problem Information ${requestProblemInformation}`,
      );
      t.notOk('userProperties' in properties && !isTold);
    }
    client.send(answer('pubrel', 77), unsubscribe(5, ['a#', f.topic('chat')]));
    for (const cmd of ['pubcomp', 'unsuback'] as const) {
      const { properties } = await nextOf(client, cmd);
      if (!isTold) t.same(properties, {}, cmd);
    }
    client.send(connect({}));
    t.equal(await disconnectCode(t, client), 0x82);
  }
});

t.test('a Reason String that would not fit into the Maximum Packet Size of the client is left out', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f, { properties: { maximumPacketSize: 20 } });
  client.send(publish(f.topic('nothing'), 'x', { qos: 1, id: 2 }), subscribe(4, [f.topic('nothing')]));
  for (const [cmd, said] of [
    ['puback', { code: 0x87 }],
    ['suback', { codes: [0x87] }],
  ] as const) {
    const { size, ...packet } = await nextOf(client, cmd);
    t.match(packet, said);
    t.ok(size <= 20, `${size} bytes`);
  }
});

// The server ends a connection

const bytes = (text: string) => Buffer.from(text, 'hex');

t.test('a malformed packet gets a DISCONNECT with its reason, and what came before is answered', async (t) => {
  const f = await ownDevice(t);
  const topic = f.topic('chat');
  const chat = field(topic);
  const id = bytes('0001');
  const notUtf8 = bytes('61c080');
  const one = (properties: Written) => publish(topic, 'x', { qos: 1, properties });
  const [malformed, protocol] = [0x81, 0x82];
  const either = [malformed, protocol];
  const cases: Record<string, [Buffer, number | number[]]> = {
    'PUBLISH q1 without a packet id': [packetBytes(0x32, chat), malformed],
    'PUBLISH without properties': [packetBytes(0x32, chat, id), malformed],
    'PUBREC of length 0': [packetBytes(0x50), malformed],
    'PUBREL of length 0': [packetBytes(0x62), malformed],
    'PUBACK of length 1': [packetBytes(0x40, bytes('01')), malformed],
    'PUBLISH with packet id 0': [publish(topic, 'x', { qos: 1, id: 0 }), either],
    'SUBSCRIBE with packet id 0': [subscribe(0, [topic]), either],
    'UNSUBSCRIBE with packet id 0': [unsubscribe(0, [topic]), either],
    'PUBACK with packet id 0': [answer('puback', 0), either],
    'SUBSCRIBE without a filter': [subscribe(1, []), protocol],
    'UNSUBSCRIBE without a filter': [unsubscribe(1, []), protocol],
    'SUBSCRIBE with QoS 3': [subscribe(1, [[topic, { byte: 3 }]]), protocol],
    'SUBSCRIBE with Retain Handling 3': [subscribe(1, [[topic, { byte: 0x31 }]]), protocol],
    'SUBSCRIBE with the reserved bit 6': [subscribe(1, [[topic, { byte: 0x41 }]]), malformed],
    'SUBSCRIBE with the reserved bit 7': [subscribe(1, [[topic, { byte: 0x81 }]]), malformed],
    'SUBSCRIBE without options': [packetBytes(0x82, id, block(), chat), malformed],
    'SUBSCRIBE without its flags': [subscribe(1, [topic], {}, 0x80), malformed],
    'UNSUBSCRIBE without its flags': [unsubscribe(1, [topic], {}, 0xa0), malformed],
    'PUBREL without its flags': [packetBytes(0x60, id), malformed],
    'PUBACK with flags': [packetBytes(0x42, id), malformed],
    'PINGREQ with flags': [packetBytes(0xc1), malformed],
    'DISCONNECT with flags': [packetBytes(0xe1), malformed],
    'PINGREQ with a body': [packetBytes(0xc0, bytes('00')), malformed],
    'DUP with QoS 0': [publish(topic, 'x', { dup: true }), either],
    'QoS 3': [publish(topic, 'x', { qos: 3 }), malformed],
    'a topic of bad UTF-8': [publish(Buffer.concat([Buffer.from(topic), notUtf8]), 'x'), malformed],
    'a topic with U+0000': [publish('a\0b', 'x'), malformed],
    'a topic with a wildcard': [publish(f.topic('+'), 'x', { qos: 1 }), [...either, 0x90]],
    'an empty topic without an alias': [publish('', 'x', { qos: 1 }), protocol],
    'a filter of bad UTF-8': [subscribe(1, [notUtf8]), malformed],
    'a filter with U+0000': [subscribe(1, ['a\0b']), malformed],
    'UNSUBSCRIBE of bad UTF-8': [unsubscribe(1, [notUtf8]), malformed],
    'a filter that is cut off': [packetBytes(0xa2, id, block(), bytes('0005'), Buffer.from('abc')), malformed],
    'a second CONNECT': [connect({}), protocol],
    'AUTH without a method': [packetBytes(0xf0), protocol],
    CONNACK: [packetBytes(0x20, bytes('000000')), either],
    SUBACK: [packetBytes(0x90, id, block(), bytes('00')), either],
    PINGRESP: [packetBytes(0xd0), either],
    'type 0': [packetBytes(0x00), either],
    'a length of five bytes': [bytes('30ffffffff01'), malformed],
    'a length that is longer than it must be': [bytes('c08000'), malformed],
    'properties that are longer than the packet': [packetBytes(0x30, chat, bytes('40')), malformed],
    'a property length of five bytes': [packetBytes(0x30, chat, bytes('ffffffff01')), malformed],
    'a property length that is longer than it must be': [packetBytes(0x30, chat, bytes('8000')), malformed],
    'a property that is cut off': [one(bytes('0200')), malformed],
    'a property of bad UTF-8': [one(Buffer.concat([bytes('03'), field(notUtf8)])), malformed],
    'a property with U+0000': [one({ contentType: 'a\0' }), malformed],
    'a user property of half a pair': [one(Buffer.concat([bytes('26'), field('a')])), malformed],
    'an unknown property': [one(bytes('7f01')), malformed],
    'an unknown property of PUBACK': [answer('puback', 1, 0, bytes('7f01')), malformed],
    'a property of CONNECT in PUBLISH': [one({ sessionExpiry: 1 }), malformed],
    'a property of a will in PUBLISH': [one({ willDelay: 1 }), malformed],
    'a property of PUBLISH in PUBACK': [answer('puback', 1, 0, { contentType: 'a' }), malformed],
    'a property of PUBLISH in SUBSCRIBE': [subscribe(1, [topic], { contentType: 'a' }), malformed],
    'a property of SUBSCRIBE in UNSUBSCRIBE': [unsubscribe(1, [topic], { subscriptionIdentifier: 1 }), malformed],
    'a property of PUBLISH in DISCONNECT': [disconnect(0, { topicAlias: 1 }), malformed],
    'Payload Format Indicator 2': [one({ payloadFormat: 2 }), either],
    'Subscription Identifier 0': [subscribe(1, [topic], { subscriptionIdentifier: 0 }), protocol],
    'a Subscription Identifier of five bytes': [subscribe(1, [topic], bytes('0bffffffff01')), malformed],
    'a Subscription Identifier that is longer than it must be': [subscribe(1, [topic], bytes('0b8100')), malformed],
    'a Subscription Identifier in PUBLISH': [one({ subscriptionIdentifier: 1 }), protocol],
    'DISCONNECT with a Session Expiry after 0': [disconnect(0, { sessionExpiry: 1 }), protocol],
    ...Object.fromEntries(
      (
        [
          ['payloadFormat', 1],
          ['messageExpiry', 1],
          ['contentType', 'a'],
          ['responseTopic', topic],
          ['correlationData', 'a'],
          ['topicAlias', 1],
        ] as const
      ).map((pair) => [`${pair[0]} twice`, [one([pair, pair]), protocol]]),
    ),
    'Reason String twice': [
      answer('puback', 1, 0x80, [
        ['reasonString', 'a'],
        ['reasonString', 'a'],
      ]),
      protocol,
    ],
    'Subscription Identifier twice': [subscribe(1, [topic], { subscriptionIdentifier: [1, 2] }), protocol],
    'Session Expiry twice': [
      disconnect(0, [
        ['sessionExpiry', 0],
        ['sessionExpiry', 0],
      ]),
      protocol,
    ],
  };
  for (const [name, [packet, codes]] of Object.entries(cases)) {
    const client = await connected(t, f);
    client.send(publish(f.topic('temperature'), '1', { qos: 1, id: 5 }), packet, pingreq);
    t.match(await client.next(), { cmd: 'puback', id: 5, code: 0 }, name);
    const code = await disconnectCode(t, client, name);
    t.ok([codes].flat().includes(code as number), `${name}: 0x${code?.toString(16)}`);
  }
});

t.test('a wrong kind of acknowledgement ends the connection with 0x82', async (t) => {
  const f = await ownDevice(t);
  const other = await connected(t, f, { clientId: 'other' });
  for (const [qos, wrong] of [
    [1, 'pubrec'],
    [1, 'pubcomp'],
    [2, 'puback'],
    [2, 'pubcomp'],
  ] as const) {
    const client = await connected(t, f);
    t.same(await subscribed(client, [[f.topic('chat'), { qos }]]), [qos]);
    other.send(publish(f.topic('chat'), 'x', { qos: 2, id: 1 }));
    t.match(await other.next(), { cmd: 'pubrec' });
    other.send(answer('pubrel', 1));
    t.match(await other.next(), { cmd: 'pubcomp' });
    const { id = 0 } = await nextOf(client, 'publish');
    client.send(answer(wrong, id));
    t.equal(await disconnectCode(t, client), 0x82, `${wrong} for QoS ${qos}`);
  }
});

t.test('a connection that another one takes over gets 0x8E', async (t) => {
  const f = await ownDevice(t);
  for (const clean of [true, false]) {
    const first = await connected(t, f, { properties: { sessionExpiry: 60 } });
    const second = await connected(t, f, { clean });
    t.equal(second.connack.sessionPresent, !clean);
    t.match(await disconnection(t, first), { code: 0x8e, properties: { reasonString: /^Another connection / } });
    t.same(await soFar(second), []);
    await leave(second);
  }
});

t.test(
  'the connections of a principal that is deleted, or may do nothing any more, get 0x98 and hear why',
  async (t) => {
    const f = await ownDevice(t);
    const device = await connected(t, f);
    const organization = await f.service.organization();
    const person = await f.service.endUser(organization.id);
    const phone = await connected(t, f, { username: 'Auth:JWT', password: person.token });
    const version = { headers: { etag: await versionOf(f.service, f.device.id) } };
    await f.service.ok('DELETE', `/api/v1/devices/${f.device.id}`, version);
    t.match(await disconnection(t, device), { code: 0x98, properties: { reasonString: 'It has been deleted.' } });
    const path = `/api/v1/end-users/${person.endUser.id}` as const;
    const { endUser } = await f.service.ok('GET', path);
    await f.service.ok('DELETE', path, { headers: { etag: endUser.version } });
    // The person is still there, and may log in elsewhere.
    const out = { code: 0x98, properties: { reasonString: 'Nothing is within its reach any more.' } };
    t.match(await disconnection(t, phone), out);
    const role = await f.service.create('/roles', 'role', {
      ...{ name: 'listener', scope: 'organization', rights: { device: ['read', 'subscribe'] } },
    });
    const listener = await f.service.endUser(organization.id, { roleId: role.id });
    const program = await connected(t, f, { username: 'Auth:JWT', password: listener.token });
    const body = { rights: { device: ['read'] } };
    await f.service.ok('PUT', `/api/v1/roles/${role.id}`, { headers: { etag: role.version }, body });
    t.match(await disconnection(t, program), { code: 0x98, properties: { reasonString: /^No role / } });

    // An end-user with a secret of its own, and a token of a person.
    const other = await f.service.endUser(organization.id);
    const about = { entityType: 'endUser', entityId: other.endUser.id };
    const { secret } = await f.service.create('/access/mqtt-credentials', 'mqttCredential', about);
    const expiresAt = new Date(Date.now() + 3_600_000).toISOString();
    const made = { token: other.token, body: { name: 'program', expiresAt } };
    const { token } = await f.service.ok('POST', '/api/v1/tokens', made);
    f.service.secrets.add(token.token);
    const entity = await connected(t, f, { username: other.endUser.id, password: secret, clientId: 'entity' });
    const byToken = await connected(t, f, { username: f.service.accountId, password: token.token, clientId: 'token' });
    const otherPath = `/api/v1/end-users/${other.endUser.id}` as const;
    const { version: etag } = (await f.service.ok('GET', otherPath)).endUser;
    await f.service.ok('DELETE', otherPath, { headers: { etag } });
    t.match(await disconnection(t, entity), { code: 0x98, properties: { reasonString: 'It has been deleted.' } });
    t.match(await disconnection(t, byToken), out);
  },
);

t.test('a replaced secret and a logout end connections with 0x87 and their reasons', async (t) => {
  const f = await ownDevice(t);
  const device = await connected(t, f);
  await f.service.credential(f.device.id);
  t.match(await disconnection(t, device), { code: 0x87, properties: { reasonString: /^The secret / } });
  const { jwt } = await f.service.loginAs('admin@example.com', 'correct horse battery', f.service.accountId);
  const user = await connected(t, f, { username: 'Auth:JWT', password: jwt });
  await f.service.ok('POST', '/api/v1/sessions/logout', { token: jwt });
  t.match(await disconnection(t, user), { code: 0x87, properties: { reasonString: /^The login session / } });
});

t.test('a silent client gets 0x8D after one and a half times its keep alive', async (t) => {
  const f = await ownDevice(t);
  const begun = performance.now();
  const silent = await connected(t, f, { clientId: 'silent', keepAlive: 1 });
  const isSilent = performance.now();
  const alive = await connected(t, f, { clientId: 'alive', keepAlive: 1 });
  const pings = setInterval(() => alive.send(pingreq), 500);
  t.teardown(() => clearInterval(pings));
  t.equal(await disconnectCode(t, silent), 0x8d);
  const [most, least] = [begun, isSilent].map((time) => Math.round(performance.now() - time)) as [number, number];
  t.ok(most >= 1500 && least < 4000, `${least} to ${most} ms`);
  t.match(await alive.next(), { cmd: 'pingresp' });
});

t.test('a process that ends says 0x8B to everyone, after the answers that are due', async (t) => {
  const f = await fixture(t);
  const clients = [
    await connected(t, f),
    await connected(t, f, { clientId: 'other' }),
    await connected(t, f, admin(f)),
  ];
  clients[0]?.send(publish(f.topic('temperature'), '1', { qos: 1, id: 2 }));
  t.match(await clients[0]?.next(), { cmd: 'puback', code: 0 });
  const closing = f.service.close();
  for (const client of clients) t.equal(await disconnectCode(t, client), 0x8b);
  await closing;
});

t.test('a client that is refused too often gets 0x97', async (t) => {
  const f = await fixture(t, { SLIPWAY_MQTT_REFUSALS_PER_MINUTE: '2' });
  const client = await connected(t, f);
  for (let n = 0; n < 2; n += 1) t.equal((await outcome(client, 1, f.topic('nothing'), 'x')).code, 0x87);
  client.send(publish(f.topic('nothing'), 'x', { qos: 1, id: 2 }));
  t.equal((await nextOf(client, 'disconnect')).code, 0x97);
  await ended(t, client);
});

t.test('a client that stays over its rate gets 0x96', async (t) => {
  let ahead = 0;
  const clock = { now: () => Date.now() + ahead };
  const f = await fixture(t, { SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '100' }, { clock });
  const client = await connected(t, f);
  const send = () =>
    client.send(
      ...Array.from({ length: 300 }, (_, n) => publish(f.topic('temperature'), `${n}`, { qos: 1, id: n + 1 })),
    );
  send();
  t.match(await client.next(), { cmd: 'puback' });
  send();
  await client.next();
  ahead += 30_001;
  const { code } = await nextOf(client, 'disconnect');
  t.equal(code, 0x96);
  await ended(t, client);
});

t.test('after a DISCONNECT of the client the server says no more', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  client.send(publish(f.topic('temperature'), '1', { qos: 1, id: 2 }), disconnect(), pingreq, packetBytes(0x00));
  t.match(await client.next(), { cmd: 'puback', id: 2 });
  await ended(t, client);
  for (const code of [0x00, 0x04, 0x80, 0x81, 0x93]) {
    const other = await connected(t, f);
    other.send(disconnect(code, { reasonString: 'a', userProperties: [['a', 'b']] }));
    await ended(t, other);
  }
});

t.test('clients of other levels are ended without a word, as before', async (t) => {
  const f = await ownDevice(t);
  const five = await attempt(t, f);
  const four = await connectedAt4(t, f.service.server, f, { clientId: 'four' });
  await f.service.credential(f.device.id);
  t.equal(await disconnectCode(t, five), 0x87);
  await t.rejects(four.next(), 'no packet');
});

t.test('a client that writes on after what ends it reads why', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  client.socket.pause();
  const window = Array.from({ length: 1001 }, (_, n) => publish(f.topic('chat'), 'x', { qos: 2, id: n + 1 }));
  client.send(...window);
  const path = `/api/v1/devices/${f.device.id}` as const;
  await until(async () => !(await f.service.ok('GET', path)).device.connected);
  for (let n = 0; n < 20; n += 1) client.send(answer('pubrel', n + 1));
  client.socket.resume();
  t.match(await nextOf(client, 'disconnect'), { code: 0x93 });
});

t.end();
