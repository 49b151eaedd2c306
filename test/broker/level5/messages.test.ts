/** What MQTT 5 says of a message: properties, expiry, aliases, sizes. */
import type { Test } from 'tap';
import { startReceiver } from '../../bridges/receiver.ts';
import { openStream } from '../../support/events.ts';
import { part } from '../../support/part.ts';
import { startService } from '../../support/service.ts';
import { until } from '../../support/until.ts';
import { type Fixture, fixture, fixtureIn, neighbour, rawConnected, sibling, stored } from '../fixture.ts';
import { metric } from '../metrics.ts';
import { subscribePacket } from '../raw.ts';
import {
  admin,
  type Client,
  type Connected,
  connected,
  disconnectCode,
  leave,
  nextOf,
  ownDevice,
  payloads,
  published,
  soFar,
  subscribed,
  takenUntil,
} from './client.ts';
import { answer, type Heard, type Properties, publish } from './packets.ts';

const t = await part(import.meta);

/** All that travels, in an order and with texts that nobody would make up when writing it anew. */
const all = (responseTopic: string): Properties => ({
  payloadFormat: 1,
  contentType: 'text/plain; charset=utf-8',
  responseTopic,
  correlationData: '\0\xff\x07',
  userProperties: [
    ['b', '1'],
    ['a', 'ü'],
    ['', ''],
    ['a', '3'],
    ['b', '1'],
    ['\ufeffbom', '\ufeff'],
  ],
});

/** Of the tests that move the clock, or end the service. */
let f: Fixture;
let now = Date.parse('2026-05-01T00:00:00Z');
const clock = { now: () => now };
t.before(async () => {
  f = await fixture(t, { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' }, { clock });
});

/** A device of its own in the service with the clock. */
const ofClock = async (): Promise<Fixture> => fixtureIn(await f.service.inNewAccount());

async function listening(t: Test, who: Fixture, more = {}, channel = 'chat', options = {}): Promise<Connected> {
  const client = await connected(t, who, { clientId: `of ${channel}`, ...more });
  t.same(await subscribed(client, [[who.topic(channel), { qos: 2, ...options }]]), [2]);
  return client;
}

/** A session that is kept, and whose client is away. */
async function away(t: Test, who: Fixture, clientId = 'away', channel = 'chat'): Promise<() => Promise<Connected>> {
  const kept = { clientId, properties: { sessionExpiry: 100_000 } };
  await leave(await listening(t, who, kept, channel));
  return async () => {
    const client = await connected(t, who, { ...kept, clean: false });
    t.equal(client.connack.sessionPresent, true);
    return client;
  };
}

// Properties travel

t.test('properties reach a subscriber unchanged and in order: live, retained, and queued in a session', async (t) => {
  const f = await ownDevice(t);
  const properties = all(f.topic('chat'));
  const back = await away(t, f);
  const [sender, live] = [await connected(t, f), await listening(t, f)];
  for (const qos of [0, 1, 2] as const) {
    sender.send(publish(f.topic('chat'), `q${qos}`, { qos, id: 3, properties }));
    if (qos === 2) sender.send(answer('pubrel', 3));
    const heard = await nextOf(live, 'publish');
    t.match(heard, { payload: `q${qos}`, qos });
    t.strictSame(heard.properties, properties, `live at QoS ${qos}`);
    if (qos === 1) live.send(answer('puback', heard.id as number));
  }
  await published(sender, f.topic('chat'), 'retained', { retain: true, properties });
  const late = await listening(t, f, { clientId: 'late' });
  const retained = await late.next();
  t.match(retained, { payload: 'retained', retain: true });
  t.strictSame(retained.properties, properties, 'retained');
  const client = await back();
  const queued = [await client.next(), await client.next(), await client.next()];
  t.same(payloads(queued), ['q1', 'q2', 'retained']);
  for (const { properties: said } of queued) t.strictSame(said, properties, 'queued');
});

t.test('a message without properties has none, and explicit nothings travel too', async (t) => {
  const f = await ownDevice(t);
  const [sender, live] = [await connected(t, f), await listening(t, f)];
  for (const properties of [{}, { payloadFormat: 0, contentType: '', correlationData: '' }]) {
    sender.send(publish(f.topic('chat'), 'x', { properties }));
    t.strictSame((await live.next()).properties, properties);
  }
});

t.test(
  'properties are there after a restart, in sessions and in retained messages, unacknowledged ones too',
  async (t) => {
    const f = await fixture(t);
    const properties = all(f.topic('chat'));
    await away(t, f);
    const [sender, taker] = [
      await connected(t, f),
      await listening(t, f, { clientId: 'taker', properties: { sessionExpiry: 100 } }),
    ];
    sender.send(publish(f.topic('chat'), 'kept', { qos: 2, id: 3, retain: true, properties }), answer('pubrel', 3));
    await nextOf(sender, 'pubcomp');
    t.match(await taker.next(), { payload: 'kept', dup: false });
    await taker.drop();
    await f.service.close();
    const after = { ...f, service: await startService(t, { directory: f.service.directory }) };
    for (const [clientId, dup] of [
      ['away', false],
      ['taker', true],
    ] as const) {
      const client = await connected(t, after, { clientId, clean: false });
      t.equal(client.connack.sessionPresent, true);
      const heard = await client.next();
      t.match(heard, { payload: 'kept', dup }, clientId);
      t.strictSame(heard.properties, properties);
    }
    t.strictSame((await (await listening(t, after)).next()).properties, properties, 'retained');
  },
);

t.test('subscribers of levels 3 and 4 get the message without properties', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f);
  await published(sender, f.topic('chat'), 'retained', { retain: true, properties: all(f.topic('chat')) });
  for (const [clientId, level] of [
    ['three', { protocolId: 'MQIsdp', protocolVersion: 3 }],
    ['four', {}],
  ] as const) {
    const client = await rawConnected(t, f, { clientId, ...level });
    client.send(subscribePacket(1, [f.topic('chat'), 1]));
    t.match(await client.next(), { cmd: 'suback' });
    t.match(await client.next(), { topic: f.topic('chat'), payload: Buffer.from('retained'), retain: true });
    await published(sender, f.topic('chat'), 'live', { properties: all(f.topic('chat')) });
    t.match(await client.next(), { topic: f.topic('chat'), payload: Buffer.from('live') });
  }
});

t.test('a message of level 4 has no properties for a subscriber of level 5', async (t) => {
  const f = await ownDevice(t);
  const live = await listening(t, f);
  const four = await f.service.connect(f.who);
  await four.publishAsync(f.topic('chat'), 'x', { qos: 1, retain: true });
  t.match(await live.next(), { payload: 'x' });
  t.strictSame((await (await listening(t, f, { clientId: 'late' })).next()).properties, {});
});

t.test('streams over HTTP and webhooks carry them as `properties`', async (t) => {
  const f = await ofClock();
  const receiver = await startReceiver(t);
  await f.service.create('/bridges', 'bridge', { name: 'Bridge', kind: 'webhook', url: receiver.url });
  const template = await f.service.template({
    channels: [{ name: 'sure', persistenceType: 'timeSeries', streamBridgeDelivery: 2 }],
  });
  const { device, secret } = await f.service.device({ deviceTemplateId: template.id });
  const topic = f.service.topic(device.id, 'sure');
  const events = await openStream(t, f.service, topic);
  const sender = await connected(t, { ...f, device, secret });
  await published(sender, topic, '1', { properties: { messageExpiry: 0 } });
  t.match(
    await events.next(),
    { data: { payload: '1' } },
    'a stream is there at once; a bridge keeps what it delivers',
  );
  const properties = { ...all(topic), messageExpiry: 100 };
  await published(sender, topic, 'x', { properties });
  const shown = {
    contentType: properties.contentType,
    responseTopic: topic,
    correlationData: Buffer.from('\0\xff\x07', 'latin1').toString('base64'),
    userProperties: properties.userProperties,
    messageExpiry: 100,
  };
  const { data } = await events.next();
  t.strictSame((data as { properties?: object }).properties, shown, 'stream');
  const [bridged] = await receiver.received(1);
  t.strictSame(bridged?.properties, shown, 'webhook');
  t.same(await stored({ ...f, device }, 'sure'), [1], 'points are stored, whatever expires');
});

t.test('what is said of a message over HTTP reaches subscribers of level 5', async (t) => {
  const f = await ownDevice(t);
  const live = await listening(t, f);
  const query = new URLSearchParams({
    contentType: 'text/plain',
    responseTopic: f.topic('chat'),
    correlationData: 'AP8H',
    userProperties: '[["b","1"],["a","2"],["b","1"]]',
    messageExpiry: '100',
  });
  const path = `/api/v1/messaging/publish/${f.topic('chat')}?${query}` as const;
  t.equal((await f.service.http('POST', path, { body: 'x', headers: { 'content-type': 'text/plain' } })).status, 200);
  const { messageExpiry, ...properties } = (await live.next()).properties;
  t.strictSame(properties, {
    contentType: 'text/plain',
    responseTopic: f.topic('chat'),
    correlationData: '\0\xff\x07',
    userProperties: [
      ['b', '1'],
      ['a', '2'],
      ['b', '1'],
    ],
  });
  t.ok(messageExpiry === 100 || messageExpiry === 99, `${messageExpiry}`);
});

t.test(
  'a request of a back-end is answered by a device on the Response Topic, with its Correlation Data',
  async (t) => {
    const f = await ownDevice(t);
    const [device, user] = [await listening(t, f), await connected(t, f, admin(f))];
    t.same(await subscribed(user, [f.topic('temperature')]), [1]);
    const properties = { responseTopic: f.topic('temperature'), correlationData: 'request 1' };
    await published(user, f.topic('chat'), 'what is it?', { properties });
    const { responseTopic = '', correlationData = '' } = (await device.next()).properties;
    device.send(publish(responseTopic, '21.5', { properties: { correlationData } }));
    t.match(await nextOf(user, 'publish'), {
      topic: f.topic('temperature'),
      payload: '21.5',
      properties: { correlationData },
    });
  },
);

// Refusals

t.test('Payload Format Indicator 1 with bytes that are no UTF-8: 0x99, delivered to nobody, not stored', async (t) => {
  const f = await ownDevice(t);
  const [sender, live] = [await connected(t, f), await listening(t, f)];
  const bad = { properties: { payloadFormat: 1 } };
  const bytes = Buffer.from([0xff, 0xfe, 0, 0]);
  sender.send(publish(f.topic('chat'), bytes, { qos: 1, id: 2, ...bad }));
  t.match(await sender.next(), { cmd: 'puback', code: 0x99 });
  sender.send(publish(f.topic('temperature'), bytes, { qos: 2, id: 3, retain: true, ...bad }));
  t.match(await sender.next(), { cmd: 'pubrec', code: 0x99 });
  sender.send(publish(f.topic('chat'), bytes, bad));
  t.equal((await published(sender, f.topic('chat'), 'ü', bad)).code, 0);
  t.match(await live.next(), { payload: Buffer.from('ü').toString('latin1'), properties: { payloadFormat: 1 } });
  t.same(await stored(f), []);
  t.same(await subscribed(sender, [f.topic('temperature')]), [1]);
  t.same(await soFar(sender), [], 'nothing is retained');
  t.equal((await published(sender, f.topic('chat'), '\xff', { properties: { payloadFormat: 0 } })).code, 0);
});

t.test('a message has at most 32 user properties and 8 KiB of properties, beyond that 0x97', async (t) => {
  const f = await ownDevice(t);
  const [sender, live] = [await connected(t, f), await listening(t, f)];
  t.same(await subscribed(sender, [[f.topic('_rejected'), { qos: 0 }]]), [0]);
  const pairs = (count: number) => Array.from({ length: count }, (_, n): [string, string] => [`n${n}`, '']);
  for (const properties of [{ userProperties: pairs(33) }, { contentType: 'x'.repeat(8300) }] satisfies Properties[]) {
    t.equal((await published(sender, f.topic('chat'), 'too much', { properties })).code, 0x97);
    sender.send(publish(f.topic('chat'), 'too much', { qos: 2, id: 3, properties }));
    t.match(await nextOf(sender, 'pubrec'), { code: 0x97 });
  }
  for (const properties of [{ userProperties: pairs(32) }, { contentType: 'x'.repeat(8000) }] satisfies Properties[]) {
    t.equal((await published(sender, f.topic('chat'), 'fits', { properties })).code, 0);
    const heard = await live.next();
    t.match(heard, { payload: 'fits' });
    t.strictSame(heard.properties, properties);
    live.send(answer('puback', heard.id as number));
  }
});

t.test('a Response Topic that its sender may not subscribe to is refused with 0x87', async (t) => {
  const f = await ownDevice(t);
  const [sender, live] = [await connected(t, f), await listening(t, f)];
  const [other, stranger] = [await sibling(f), await neighbour(f)];
  const say = async (responseTopic: string, who = sender) =>
    (await published(who, f.topic('chat'), 'x', { properties: { responseTopic } })).code;
  for (const topic of [other.topic('chat'), stranger.topic('chat'), f.topic('nothing'), 'somewhere/else', '$SYS/x'])
    t.equal(await say(topic), 0x87, topic);
  sender.send(publish(f.topic('chat'), 'x', { qos: 2, id: 3, properties: { responseTopic: other.topic('chat') } }));
  t.match(await nextOf(sender, 'pubrec'), { code: 0x87 });
  t.same(await soFar(live), [], 'delivered to nobody');
  t.equal(await say(f.topic('temperature')), 0);
  const user = await connected(t, f, admin(f));
  t.equal(await say(other.topic('chat'), user), 0, 'an admin may');
});

t.test('a Response Topic with a wildcard is not delivered', async (t) => {
  const f = await ownDevice(t);
  for (const responseTopic of ['#', f.topic('+')]) {
    const [sender, live] = [await connected(t, f), await listening(t, f)];
    sender.send(publish(f.topic('chat'), 'x', { qos: 1, properties: { responseTopic } }));
    const { cmd, code = 0 } = await nextOf(sender, 'puback', 'disconnect');
    t.ok(code >= 0x80, `${cmd} ${code}`);
    t.same(await soFar(live), []);
  }
});

// Content Type

t.test('Content Type chooses how points are read where the channel says `auto`', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f);
  const say = async (contentType: string, payload: string, channel = 'temperature') =>
    (await published(sender, f.topic(channel), payload, { properties: { contentType } })).code;
  const cases: Array<[type: string, payload: string, stored: number | undefined]> = [
    ['application/octet-stream', '21.5', Buffer.from('21.5').readFloatLE()],
    ['text/plain', '21.5', 21.5],
    ['application/octet-stream', '123456', undefined],
    ['text/csv', ',x,7,', 7],
    ['text/csv', '8', undefined],
    ['application/json', ',x,9,', undefined],
    ['Application/JSON; charset=utf-8', '{"x":10}', 10],
    ['application/senml+json', '[{"n":"x","v":11}]', 11],
    ['application/senml+json', '12', undefined],
    ['image/png', '13', 13],
    ['', '14', 14],
  ];
  const expected: number[] = [];
  for (const [type, payload, value] of cases) {
    t.equal(await say(type, payload), value === undefined ? 0x99 : 0, `${type}: ${payload}`);
    if (value !== undefined) expected.unshift(value);
    t.same(await stored(f), expected, `${type}: ${payload}`);
  }
});

t.test('a channel that fixes the form of its payloads is not moved by a Content Type', async (t) => {
  const f = await ownDevice(t);
  const template = await f.service.template({
    channels: [{ name: 'fixed', persistenceType: 'timeSeries', payload: 'csv' }],
  });
  const { device, secret } = await f.service.device({ deviceTemplateId: template.id });
  const sender = await connected(t, { ...f, device, secret });
  const say = async (payload: string) => {
    const properties = { contentType: 'application/json' };
    return (await published(sender, f.service.topic(device.id, 'fixed'), payload, { properties })).code;
  };
  t.equal(await say('{"x":1}'), 0x99);
  t.equal(await say(',x,2,'), 0);
});

// Message Expiry

t.test('what is delivered carries the seconds that are left: live, queued and retained', async (t) => {
  const f = await ofClock();
  const back = await away(t, f);
  const [sender, live] = [await connected(t, f), await listening(t, f)];
  await published(sender, f.topic('chat'), 'x', { retain: true, properties: { messageExpiry: 100 } });
  t.equal((await live.next()).properties.messageExpiry, 100);
  now += 40_000;
  t.equal((await (await listening(t, f, { clientId: 'late' })).next()).properties.messageExpiry, 60, 'retained');
  const client = await back();
  t.equal((await client.next()).properties.messageExpiry, 60, 'queued');
  await client.drop();
  now += 10_500;
  const again = await (await back()).next();
  t.match(again, { dup: true }, 'not acknowledged');
  t.equal(again.properties.messageExpiry, 50, 'a part of a second is left, too');
});

t.test('what has expired is removed from queues and retained messages, and counted', async (t) => {
  const f = await ofClock();
  const expired = async () => (await metric(f, 'slipway_mqtt_expired_messages_total')) ?? 0;
  const back = await away(t, f);
  const sender = await connected(t, f);
  const before = await expired();
  await published(sender, f.topic('chat'), 'short', { retain: true, properties: { messageExpiry: 10 } });
  await published(sender, f.topic('chat'), 'long', { properties: { messageExpiry: 1000 } });
  await published(sender, f.topic('chat'), 'forever');
  now += 9000;
  const early = await listening(t, f);
  t.match(await early.next(), { payload: 'short', properties: { messageExpiry: 1 } }, 'not before its time');
  await leave(early);
  now += 1000;
  await until(async () => (await expired()) === before + 2);
  const client = await back();
  t.same(payloads(await takenUntil(client, 'forever')), ['long', 'forever']);
  const late = await listening(t, f, { clientId: 'late' });
  t.same(await soFar(late), [], 'nothing is retained');
});

t.test('expiry counts across a restart', async (t) => {
  let ahead = 0;
  const own = { clock: { now: () => Date.parse('2026-05-01T00:00:00Z') + ahead } };
  const f = await fixture(t, {}, own);
  await away(t, f);
  const sender = await connected(t, f);
  await published(sender, f.topic('chat'), 'short', { properties: { messageExpiry: 10 } });
  await published(sender, f.topic('chat'), 'long', { retain: true, properties: { messageExpiry: 100 } });
  await f.service.close();
  ahead = 30_000;
  const after = { ...f, service: await startService(t, { directory: f.service.directory, ...own }) };
  const client = await connected(t, after, { clientId: 'away', clean: false });
  t.match(await client.next(), { payload: 'long', properties: { messageExpiry: 70 } });
  t.match(await (await listening(t, after)).next(), { payload: 'long', properties: { messageExpiry: 70 } });
});

t.test('a message with expiry 0 is delivered at once, is in no queue, and is not retained', async (t) => {
  const f = await ofClock();
  const back = await away(t, f);
  const sender = await connected(t, f);
  const session = { clientId: 'connected', properties: { sessionExpiry: 100_000 } };
  const [clean, stored] = [await listening(t, f), await listening(t, f, session)];
  const member = await connected(t, f, { clientId: 'member' });
  await subscribed(member, [[`$share/g/${f.topic('chat')}`, { qos: 1 }]]);
  const stream = await openStream(t, f.service, f.topic('chat'));
  await published(sender, f.topic('chat'), 'before', { retain: true });
  for (const client of [clean, stored, member]) t.match(await nextOf(client, 'publish'), { payload: 'before' });
  await published(sender, f.topic('chat'), 'now', { retain: true, properties: { messageExpiry: 0 } });
  for (const client of [clean, stored, member])
    t.match(await nextOf(client, 'publish'), { payload: 'now', properties: { messageExpiry: 0 } });
  t.same(await stream.payloads(2), ['before', 'now']);
  await stored.drop();
  await published(sender, f.topic('chat'), 'later');
  t.same(payloads(await takenUntil(await back(), 'later')), ['before', 'later']);
  const again = await connected(t, f, { ...session, clean: false });
  t.same(payloads(await takenUntil(again, 'later')), ['before', 'later'], 'not acknowledged, and not kept');
  t.same(await soFar(await listening(t, f, { clientId: 'late' })), [], 'what was retained before is gone');
});

t.test('the expiry of a command is the expiry of its message', async (t) => {
  const f = await ofClock();
  const client = await connected(t, f);
  t.same(await subscribed(client, [f.topic('_commands')]), [1]);
  const expiresAt = new Date(now + 90_000).toISOString();
  await f.service.ok('POST', `/api/v1/devices/${f.device.id}/commands`, { body: { name: 'reboot', expiresAt } });
  const heard = await nextOf(client, 'publish');
  t.match(JSON.parse(heard.payload ?? ''), { name: 'reboot', expiresAt });
  t.equal(heard.properties.messageExpiry, 90);
});

// Topic aliases

t.test('inbound aliases 1 to 32 name a topic until they get another one', async (t) => {
  const f = await ownDevice(t);
  const [sender, live] = [await connected(t, f), await connected(t, f, { clientId: 'live' })];
  t.same(
    await subscribed(live, [
      [f.topic('chat'), { qos: 0 }],
      [f.topic('temperature'), { qos: 0 }],
    ]),
    [0, 0],
  );
  const say = (topic: string, topicAlias: number, more = {}) =>
    sender.send(publish(topic, '1', { properties: { topicAlias }, ...more }));
  const [chat, temperature] = [f.topic('chat'), f.topic('temperature')];
  say(chat, 1);
  say(temperature, 32);
  say('', 1);
  say('', 32, { qos: 1, id: 5 });
  say('', 1, { qos: 2, id: 6 });
  say(temperature, 1);
  say('', 1);
  const topics: Array<string | undefined> = [];
  for (let n = 0; n < 7; n += 1) {
    const heard = await live.next();
    topics.push(heard.topic);
    t.notOk('topicAlias' in heard.properties, 'an alias is between a client and the server');
  }
  t.same(topics, [chat, temperature, chat, temperature, chat, temperature, temperature]);
});

t.test('an alias that is 0, above the maximum, or unknown ends the connection with 0x94', async (t) => {
  const f = await ownDevice(t);
  for (const [topic, topicAlias] of [
    [f.topic('chat'), 0],
    [f.topic('chat'), 33],
    [f.topic('chat'), 65_535],
    ['', 0],
    ['', 33],
    ['', 2],
  ] as const) {
    const client = await connected(t, f);
    await published(client, f.topic('chat'), 'x', { properties: { topicAlias: 1 } });
    client.send(publish(topic, 'x', { properties: { topicAlias } }));
    t.equal(await disconnectCode(t, client), 0x94, `'${topic}' ${topicAlias}`);
  }
});

t.test('aliases last as long as the connection', async (t) => {
  const f = await ownDevice(t);
  const kept = { properties: { sessionExpiry: 100 } };
  const first = await connected(t, f, kept);
  await published(first, f.topic('chat'), 'x', { properties: { topicAlias: 1 } });
  await leave(first);
  const second = await connected(t, f, { ...kept, clean: false });
  t.equal(second.connack.sessionPresent, true);
  second.send(publish('', 'x', { properties: { topicAlias: 1 } }));
  t.equal(await disconnectCode(t, second), 0x94);
});

t.test('a refused message gives its alias all the same', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  const properties = { topicAlias: 3 };
  t.equal((await published(client, f.topic('nothing'), 'x', { properties })).code, 0x87);
  t.equal((await published(client, '', 'x', { properties })).code, 0x87);
  t.equal((await published(client, f.topic('chat'), 'x', { properties })).code, 0x10);
  t.equal((await published(client, '', 'x', { properties })).code, 0x10);
});

/** A device with so many plain channels, and a client that publishes on them. */
async function manyChannels(t: Test, count: number) {
  const own = await ownDevice(t);
  const names = Array.from({ length: count }, (_, n) => `c${n}`);
  const template = await own.service.template({ channels: names.map((name) => ({ name, persistenceType: 'simple' })) });
  const { device, secret } = await own.service.device({ deviceTemplateId: template.id });
  const f = { ...own, device, secret, topic: (name: string) => own.service.topic(device.id, name) };
  return { f, topics: names.map(f.topic), sender: await connected(t, f, { clientId: 'sender' }) };
}

/** The topics of messages as a client of aliases finds them. @throws Error for an alias that it was never told */
function resolved(heard: Heard[], aliases = new Map<number, string>()): string[] {
  return heard.map(({ topic = '', properties: { topicAlias } }) => {
    if (topicAlias !== undefined && topic !== '') aliases.set(topicAlias, topic);
    const found = topic === '' ? aliases.get(topicAlias ?? 0) : topic;
    if (found === undefined) throw new Error(`an unknown alias ${topicAlias}`);
    return found;
  });
}

async function heardOf(sender: Client, client: Client, topics: string[], qos: 0 | 1 = 0): Promise<Heard[]> {
  const heard: Heard[] = [];
  for (const topic of topics) {
    sender.send(publish(topic, 'x', { qos, id: 9 }));
    const one = await nextOf(client, 'publish');
    if (qos === 1) client.send(answer('puback', one.id as number));
    heard.push(one);
  }
  return heard;
}

t.test('aliases are used for the most recent topics, up to the maximum of the client', async (t) => {
  const { f, topics, sender } = await manyChannels(t, 3);
  const [a = '', b = '', c = ''] = topics;
  const client = await connected(t, f, { properties: { topicAliasMaximum: 2 } });
  t.same(await subscribed(client, [f.topic('+')]), [1]);
  const sent = [a, b, a, c, a, b, b];
  const aliases = new Map<number, string>();
  for (const qos of [0, 1] as const) {
    const heard = await heardOf(sender, client, sent, qos);
    t.same(resolved(heard, aliases), sent);
    if (qos === 0)
      t.same(
        heard.map(({ topic }) => topic === ''),
        [false, false, true, false, true, false, true],
        'b is the least recent one when c comes',
      );
    for (const { properties } of heard)
      t.ok([undefined, 1, 2].includes(properties.topicAlias), `${properties.topicAlias}`);
  }
});

t.test('no more than 32 aliases are used, and none without a Topic Alias Maximum', async (t) => {
  const { f, topics, sender } = await manyChannels(t, 40);
  const [many, none] = [
    await connected(t, f, { clientId: 'many', properties: { topicAliasMaximum: 65_535 } }),
    await connected(t, f, { clientId: 'none' }),
  ];
  for (const client of [many, none]) t.same(await subscribed(client, [[f.topic('+'), { qos: 0 }]]), [0]);
  const sent = [...topics, ...topics.slice(-32), ...topics];
  const heard = await heardOf(sender, many, sent);
  t.same(resolved(heard), sent);
  const used = new Set(heard.map(({ properties }) => properties.topicAlias).filter((alias) => alias !== undefined));
  t.equal(used.size, 32);
  t.ok([...used].every((alias) => alias >= 1 && alias <= 32));
  t.ok(
    heard.slice(40, 72).every(({ topic }) => topic === ''),
    'the last 32 topics have one',
  );
  for (const topic of sent) t.match(await none.next(), { topic, properties: {} });
  t.same(await soFar(none), []);
});

t.test('a session that is taken up again begins with the names of topics', async (t) => {
  const f = await ownDevice(t);
  const kept = { clientId: 'kept', properties: { sessionExpiry: 100, topicAliasMaximum: 5 } };
  const sender = await connected(t, f);
  for (const clean of [true, false]) {
    const client = await connected(t, f, { ...kept, clean });
    if (clean) t.same(await subscribed(client, [f.topic('chat')]), [1]);
    const heard = await heardOf(sender, client, [f.topic('chat'), f.topic('chat')], 1);
    t.same(
      heard.map(({ topic }) => topic),
      [f.topic('chat'), ''],
    );
    await client.drop();
  }
});

// The Maximum Packet Size of a client

t.test(
  'a message that does not fit into the Maximum Packet Size of a client is dropped for it and counted',
  async (t) => {
    const f = await ownDevice(t);
    const dropped = async () => (await metric(f, 'slipway_mqtt_dropped_messages_total{reason="size"}')) ?? 0;
    const [sender, large] = [await connected(t, f), await listening(t, f, { clientId: 'large' })];
    sender.send(publish(f.topic('chat'), 'x'.repeat(100)));
    const { size } = await large.next();
    const limited = { clientId: 'small', properties: { maximumPacketSize: size } };
    const small = await listening(t, f, limited);
    const before = await dropped();
    sender.send(publish(f.topic('chat'), 'x'.repeat(100)), publish(f.topic('chat'), 'x'.repeat(101)));
    for (const qos of [1, 2] as const) {
      sender.send(publish(f.topic('chat'), 'x'.repeat(101), { qos, id: qos }));
      await nextOf(sender, qos === 1 ? 'puback' : 'pubrec');
    }
    sender.send(publish(f.topic('chat'), 'y'));
    t.same(payloads(await takenUntil(small, 'y')), ['x'.repeat(100), 'y']);
    t.equal((await takenUntil(large, 'y')).length, 5, 'others get all');
    t.equal(await dropped(), before + 3);
  },
);

t.test('properties count in the size of a message', async (t) => {
  const f = await ownDevice(t);
  const [sender, small] = [await connected(t, f), await listening(t, f, { properties: { maximumPacketSize: 200 } })];
  sender.send(
    publish(f.topic('chat'), 'x', { properties: { contentType: 'a'.repeat(200) } }),
    publish(f.topic('chat'), 'y'),
  );
  t.same(payloads(await takenUntil(small, 'y')), ['y']);
});

t.test(
  'a message that is too large for a session is sent as far as the session goes, and holds up nothing',
  async (t) => {
    const f = await ownDevice(t);
    const kept = (maximumPacketSize: number) => ({
      clientId: 'kept',
      properties: { sessionExpiry: 100, receiveMaximum: 1, maximumPacketSize },
    });
    await leave(await listening(t, f, kept(10_000)));
    const sender = await connected(t, f);
    await published(sender, f.topic('chat'), 'x'.repeat(300), { retain: true });
    await published(sender, f.topic('chat'), 'y');
    const small = await connected(t, f, { ...kept(200), clean: false });
    t.same(payloads(await takenUntil(small, 'y')), ['y']);
    t.same(await subscribed(small, [f.topic('chat')]), [1]);
    t.same(await soFar(small), [], 'nor is it sent as retained');
    await leave(small);
    const large = await connected(t, f, { ...kept(10_000), clean: false });
    t.equal(large.connack.sessionPresent, true);
    t.same(await soFar(large), [], 'it has left the queue');
  },
);

t.end();
