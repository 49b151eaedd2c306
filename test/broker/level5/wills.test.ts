/** Wills of MQTT 5: what they say, and when. */
import type { Test } from 'tap';
import { changeStored, whileWillsFail } from '../../support/faults.ts';
import { part } from '../../support/part.ts';
import { startProcess } from '../../support/process.ts';
import { startService } from '../../support/service.ts';
import { countStored } from '../../support/stored.ts';
import { until } from '../../support/until.ts';
import { packetBytes } from '../bytes.ts';
import { left } from '../conversation.ts';
import { type Fixture, fixture, fixtureIn, neighbour, sibling, stored, versionOf } from '../fixture.ts';
import { connectPacket, rawClient } from '../raw.ts';
import {
  admin,
  attempt,
  type Connected,
  connected,
  cut,
  disconnectCode,
  leave,
  ownDevice,
  payloads,
  published,
  subscribed,
  takenUntil,
} from './client.ts';
import { disconnect, type Properties } from './packets.ts';

const t = await part(import.meta);

/** Of the tests that move the clock. */
let f: Fixture;
let now = Date.parse('2026-05-01T00:00:00Z');
const clock = { now: () => now };
t.before(async () => {
  f = await fixture(t, {}, { clock });
});
const ofClock = async (): Promise<Fixture> => fixtureIn(await f.service.inNewAccount());

/** CONNECT with a will on `chat`, a Will Delay and a Session Expiry. */
const withWill = (of: Fixture, willDelay?: number, sessionExpiry?: number, more: object = {}) => ({
  clientId: 'mortal',
  ...(sessionExpiry !== undefined && { properties: { sessionExpiry } }),
  will: {
    topic: of.topic('chat'),
    payload: 'will',
    qos: 1 as const,
    ...(willDelay !== undefined && { properties: { willDelay } }),
  },
  ...more,
});

/** A client that listens to `chat`. */
async function witness(t: Test, of: Fixture): Promise<Connected> {
  const client = await connected(t, of, { clientId: 'witness' });
  t.same(await subscribed(client, [of.topic('chat')]), [1]);
  return client;
}

/** What the witness has heard up to a message that is published now. */
async function heardUpToNow(t: Test, of: Fixture, client: Connected): Promise<Array<string | undefined>> {
  const mark = `mark ${now} ${performance.now()}`;
  const sender = await connected(t, of, { clientId: 'marker' });
  await published(sender, of.topic('chat'), mark);
  await leave(sender);
  return payloads(await takenUntil(client, mark)).slice(0, -1);
}

t.test('a will has its properties, its QoS and RETAIN, and its expiry begins when it is published', async (t) => {
  const f = await ofClock();
  const properties: Properties = {
    payloadFormat: 1,
    contentType: 'text/plain',
    responseTopic: f.topic('chat'),
    correlationData: '\0\xff',
    userProperties: [
      ['b', '1'],
      ['a', '2'],
      ['b', '1'],
    ],
  };
  const client = await witness(t, f);
  const will = { topic: f.topic('chat'), payload: 'will', qos: 2 as const, retain: true };
  const said = { ...properties, messageExpiry: 100, willDelay: 60 };
  const mortal = await connected(t, f, { ...withWill(f, 60, 1000), will: { ...will, properties: said } });
  await cut(mortal);
  now += 61_000;
  const heard = await client.next();
  t.match(heard, { payload: 'will', qos: 1, retain: false });
  t.strictSame(heard.properties, { ...properties, messageExpiry: 100 });
  now += 10_000;
  const late = await connected(t, f, { clientId: 'late' });
  t.same(await subscribed(late, [[f.topic('chat'), { qos: 2 }]]), [2]);
  const retained = await late.next();
  t.match(retained, { payload: 'will', qos: 2, retain: true });
  t.strictSame(retained.properties, { ...properties, messageExpiry: 90 });
});

t.test('a will is looked at in CONNECT as the message that it will be', async (t) => {
  const f = await fixture(t, { SLIPWAY_MQTT_MAX_PAYLOAD_BYTES: '1000', SLIPWAY_MQTT_MAX_PROPERTY_BYTES: '300' });
  const topic = f.topic('chat');
  const foreign = (await neighbour(f)).topic('chat');
  const cases: Array<[number, string | Buffer, Properties]> = [
    [0x97, 'x'.repeat(1001), {}],
    [0x97, 'will', { userProperties: [['a', 'x'.repeat(300)]] }],
    [0x99, Buffer.from([0xff]), { payloadFormat: 1 }],
    [0x87, 'will', { responseTopic: foreign }],
    [0, 'x'.repeat(1000), { payloadFormat: 1, responseTopic: topic, userProperties: [['a', 'x'.repeat(100)]] }],
  ];
  for (const [code, payload, properties] of cases) {
    const { connack } = await attempt(t, f, { will: { topic, payload, properties } });
    t.equal(connack.code, code);
    if (code > 0) t.match(connack.properties.reasonString, /^will: /);
  }
  const below5 = await rawClient(t, f.service.server.mqttPort);
  const will = { topic, payload: Buffer.alloc(1001), qos: 0, retain: false };
  below5.send(connectPacket({ username: f.device.id, password: Buffer.from(f.secret), clientId: 'a', will }));
  t.match(await below5.next(), { cmd: 'connack', returnCode: 5 });
});

t.test('DISCONNECT 0x00 takes the will back, every other reason sends it', async (t) => {
  const f = await ownDevice(t);
  const client = await witness(t, f);
  for (const [code, isSent] of [
    [undefined, false],
    [0x00, false],
    [0x04, true],
    [0x80, true],
    [0x98, true],
  ] as const) {
    await leave(await connected(t, f, withWill(f)), code);
    t.same(await heardUpToNow(t, f, client), isSent ? ['will'] : [], `${code}`);
  }
});

t.test('a connection that is cut, or ended by an error, sends its will', async (t) => {
  const f = await ownDevice(t);
  const client = await witness(t, f);
  await cut(await connected(t, f, withWill(f)));
  t.match(await client.next(), { payload: 'will' });
  const malformed = await connected(t, f, withWill(f));
  malformed.send(packetBytes(0xc1));
  t.equal(await disconnectCode(t, malformed), 0x81);
  t.match(await client.next(), { payload: 'will' });
  const refused = await connected(t, f, withWill(f));
  refused.send(disconnect(0, { sessionExpiry: 5 }));
  t.equal(await disconnectCode(t, refused), 0x82, 'no valid DISCONNECT');
  t.match(await client.next(), { payload: 'will' });
});

t.test('Will Delay: the will waits for it', async (t) => {
  const f = await ofClock();
  const client = await witness(t, f);
  await cut(await connected(t, f, withWill(f, 60, 1000)));
  t.same(await heardUpToNow(t, f, client), []);
  now += 59_000;
  t.same(await heardUpToNow(t, f, client), []);
  now += 2000;
  t.match(await client.next(), { payload: 'will' });
  now += 2_000_000;
  t.same(await heardUpToNow(t, f, client), [], 'once');
});

t.test('a will that waits is not sent for the next owner of its device', async (t) => {
  for (const keepHistory of [false, true]) {
    const f = await ofClock();
    const { service } = f;
    const [first, second] = [await service.organization(), await service.organization()];
    const move = async (organizationId: string) => {
      const { device } = await service.ok('GET', `/api/v1/devices/${f.device.id}`);
      const body = { organizationId, ...(keepHistory && { keepHistory }) };
      await service.ok('PUT', `/api/v1/devices/${f.device.id}`, { headers: { etag: device.version }, body });
    };
    await move(first.id);
    now += 1000;
    const client = await witness(t, f);
    await cut(await connected(t, f, withWill(f, 60, 1000)));
    now += 1000;
    const waiting = () => {
      const ofDevice = '"clientId" LIKE ? AND "due" IS NOT NULL';
      return countStored(service, '"mqttWills"', ofDevice, [`%${f.device.id}%`], 'messages.db');
    };
    await until(async () => waiting() === 1);
    await move(second.id);
    now += 61_000;
    await until(async () => waiting() === 0);
    t.same(await heardUpToNow(t, f, client), keepHistory ? ['will'] : []);
  }
});

t.test('or for the end of the session, if that is earlier', async (t) => {
  const f = await ofClock();
  const client = await witness(t, f);
  await cut(await connected(t, f, withWill(f, 60, 10)));
  now += 9000;
  t.same(await heardUpToNow(t, f, client), []);
  now += 2000;
  t.match(await client.next(), { payload: 'will' });
  for (const expiry of [0, undefined]) {
    await cut(await connected(t, f, withWill(f, 60, expiry)));
    t.match(await client.next(), { payload: 'will' }, `expiry ${expiry}: at once`);
  }
});

t.test('a client that returns cancels its delayed will, with Clean Start it sends it', async (t) => {
  const f = await ofClock();
  const client = await witness(t, f);
  for (const clean of [false, true]) {
    await cut(await connected(t, f, withWill(f, 60, 1000)));
    now += 30_000;
    const again = await connected(t, f, { clientId: 'mortal', clean, properties: { sessionExpiry: 1000 } });
    t.equal(again.connack.sessionPresent, !clean);
    t.same(await heardUpToNow(t, f, client), clean ? ['will'] : [], `clean ${clean}`);
    now += 120_000;
    t.same(await heardUpToNow(t, f, client), []);
    await leave(again);
  }
});

t.test('and the same when it takes over its own connection', async (t) => {
  const f = await ofClock();
  const client = await witness(t, f);
  for (const [willDelay, clean, isSent] of [
    [60, false, false],
    [60, true, true],
    [0, false, true],
    [0, true, true],
  ] as const) {
    const first = await connected(t, f, withWill(f, willDelay, 1000));
    const second = await connected(t, f, { clientId: 'mortal', clean, properties: { sessionExpiry: 1000 } });
    t.equal(await disconnectCode(t, first), 0x8e);
    t.same(await heardUpToNow(t, f, client), isSent ? ['will'] : [], `delay ${willDelay}, clean ${clean}`);
    now += 120_000;
    t.same(await heardUpToNow(t, f, client), []);
    await leave(second);
  }
});

t.test('DISCONNECT 0x04 sends a delayed will after its delay, or with the session that it ends', async (t) => {
  const f = await ofClock();
  const client = await witness(t, f);
  await leave(await connected(t, f, withWill(f, 60, 1000)), 0x04);
  now += 59_000;
  t.same(await heardUpToNow(t, f, client), []);
  now += 2000;
  t.match(await client.next(), { payload: 'will' });
  const ending = await connected(t, f, withWill(f, 60, 1000));
  await leave(ending, 0x04, { sessionExpiry: 0 });
  t.match(await client.next(), { payload: 'will' });
  await leave(await connected(t, f, withWill(f, 60, 1000)), 0x00);
  now += 120_000;
  t.same(await heardUpToNow(t, f, client), [], '0x00 takes it back');
});

t.test('a principal that has lost its right to connect sends no will, delayed or not', async (t) => {
  const f = await ofClock();
  const user = await connected(t, f, admin(f));
  t.same(await subscribed(user, [f.topic('chat').replace(f.device.id, '+')]), [1]);
  await cut(await connected(t, f, withWill(f, 60, 1000)));
  const live = await connected(t, f, withWill(f, 0, 1000, { clientId: 'live' }));
  const headers = { etag: await versionOf(f.service, f.device.id) };
  await f.service.ok('DELETE', `/api/v1/devices/${f.device.id}`, { headers });
  t.equal(await disconnectCode(t, live), 0x98);
  now += 120_000;
  const { secret, device } = await f.service.device({ deviceTemplateId: f.device.deviceTemplateId });
  const sender = await connected(t, { ...f, device, secret }, { clientId: 'sender' });
  await published(sender, f.service.topic(device.id, 'chat'), 'mark');
  t.same(payloads(await takenUntil(user, 'mark')), ['mark']);
});

t.test('delayed wills of different clients come each at its time', async (t) => {
  const f = await ofClock();
  const client = await witness(t, f);
  for (const [clientId, delay] of [
    ['c', 30],
    ['a', 10],
    ['b', 20],
  ] as const) {
    const will = { topic: f.topic('chat'), payload: clientId, qos: 1 as const, properties: { willDelay: delay } };
    await cut(await connected(t, f, { clientId, will, properties: { sessionExpiry: 1000 } }));
  }
  for (const text of ['a', 'b', 'c']) {
    now += 10_500;
    t.match(await client.next(), { payload: text });
    t.same(await heardUpToNow(t, f, client), []);
  }
});

t.test('what a will says is on disk until it is due, not in memory', async (t) => {
  const f = await ofClock();
  const client = await witness(t, f);
  const will = { topic: f.topic('chat'), payload: 'from memory', qos: 1 as const, properties: { willDelay: 30 } };
  await cut(await connected(t, f, { clientId: 'mortal', will, properties: { sessionExpiry: 1000 } }));
  const keeper = await connected(t, f, { clientId: 'keeper', properties: { sessionExpiry: 1000 } });
  // Answered after the will is on disk.
  t.same(await subscribed(keeper, [f.topic('chat')]), [1]);
  const change = `UPDATE "mqttWills" SET "payload" = CAST('from disk' AS BLOB) WHERE "clientId" LIKE ?`;
  await changeStored(f.service, change, [`${f.service.accountId}%`], 'messages.db');
  await whileWillsFail(f.service, async (failures) => {
    now += 30_500;
    await until(failures);
  });
  t.match(await client.next(), { payload: 'from disk' }, 'as soon as it can be read');
});

t.test('the end of the process sends wills that are due, and a restart keeps those that are delayed', async (t) => {
  let ahead = 0;
  const own = { clock: { now: () => Date.parse('2026-05-01T00:00:00Z') + ahead } };
  const f = await fixture(t, {}, own);
  const willOf = (payload: string, willDelay = 0) => ({
    clientId: payload,
    properties: { sessionExpiry: 1000 },
    will: { topic: f.topic('temperature'), payload, qos: 1 as const, properties: { willDelay } },
  });
  await cut(await connected(t, f, willOf('1', 60)));
  await cut(await connected(t, f, willOf('2', 200)));
  await connected(t, f, willOf('3'));
  await f.service.close();
  ahead = 30_000;
  const after = { ...f, service: await startService(t, { directory: f.service.directory, ...own }) };
  t.same(await stored(after), [3], 'SIGTERM sends what was not delayed');
  const again = await connected(t, after, { clientId: '2', clean: false, properties: { sessionExpiry: 1000 } });
  t.equal(again.connack.sessionPresent, true, 'its client is back');
  ahead = 59_000;
  t.same(await stored(after), [3]);
  ahead = 61_000;
  await until(async () => (await stored(after)).length === 2);
  ahead = 300_000;
  t.same(await stored(after), [1, 3]);
});

t.test('a delayed will survives kill -9', async (t) => {
  const f = await left(t);
  const server = await startProcess(t, f.service.directory);
  const running = { ...f, service: Object.create(f.service, { server: { value: server } }) } as Fixture;
  const will = { topic: f.topic('temperature'), payload: '1', qos: 1 as const, properties: { willDelay: 60 } };
  const mortal = await connected(t, running, { clientId: 'mortal', will, properties: { sessionExpiry: 1000 } });
  const kept = { clientId: 'keeper', properties: { sessionExpiry: 1000 } };
  const keeper = await connected(t, running, kept);
  const connections = async () =>
    /^slipway_mqtt_connections (\d+)$/m.exec(await (await fetch(`${server.url}/metrics`)).text())?.[1];
  await until(async () => (await connections()) === '2');
  const leaving = Date.now();
  await mortal.drop();
  await until(async () => (await connections()) === '1');
  const gone = Date.now();
  // Answered after the will is on disk.
  t.same(await subscribed(keeper, [f.topic('chat')]), [1]);
  await server.stop('SIGKILL');

  let time = leaving + 59_000;
  const service = await startService(t, { directory: f.service.directory, clock: { now: () => time } });
  const after = { ...f, service };
  t.same(await stored(after), []);
  time = gone + 61_000;
  await until(async () => (await stored(after)).length > 0);
  t.same(await stored(after), [1]);
});

t.test('a will that says what a message may not say is delivered to nobody', async (t) => {
  const f = await ownDevice(t);
  const [client, other] = [await witness(t, f), await sibling(f)];
  const pairs = Array.from({ length: 33 }, (_, n): [string, string] => [`n${n}`, '']);
  for (const properties of [
    { payloadFormat: 1 },
    { responseTopic: other.topic('chat') },
    { userProperties: pairs },
  ] satisfies Properties[]) {
    const will = { topic: f.topic('chat'), payload: Buffer.from([0xff]), qos: 1 as const, properties };
    const mortal = await attempt(t, f, { clientId: 'mortal', will });
    if (mortal.connack.code === 0) await cut(mortal);
    t.same(await heardUpToNow(t, f, client), [], JSON.stringify(properties));
  }
});

t.end();
