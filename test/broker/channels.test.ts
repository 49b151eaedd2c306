import type { Packet } from 'mqtt-packet';
import type { Test } from 'tap';
import { interceptPoints, notePresence } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { nextMessage, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { until } from '../support/until.ts';
import { type Fixture, fixture, fixtureIn, rawConnected, sibling, stored, versionOf } from './fixture.ts';
import { metric } from './metrics.ts';
import { connectPacket, publishPacket, type RawClient, rawClient, subscribePacket } from './raw.ts';

const t = await part(import.meta);

const payloadOf = (packet: Packet) => JSON.parse((packet as { payload: Buffer }).payload.toString());

/** CONNACK's code for these credentials. */
async function connackFor(t: Test, f: Fixture, username: string | undefined, password: string, more = {}) {
  const client = await rawClient(t, f.service.server.mqttPort);
  client.send(connectPacket({ username, password: Buffer.from(password), ...more }));
  const packet = await client.next();
  return (packet as { returnCode?: number }).returnCode;
}

async function subscribed(client: RawClient, ...filters: string[]): Promise<number[]> {
  client.send(subscribePacket(1, ...filters.map((filter): [string, 1] => [filter, 1])));
  return ((await client.next()) as { granted: number[] }).granted;
}

/** The next PUBLISH, acknowledged. */
async function published(client: RawClient): Promise<Packet & { topic: string }> {
  for (;;) {
    const packet = await client.next();
    if (packet.cmd !== 'publish') continue;
    if (packet.qos > 0) client.send({ cmd: 'puback', messageId: packet.messageId as number });
    return packet;
  }
}

/** A logged-in end-user of a new organization, and how it connects. */
async function person({ service }: Fixture) {
  const organization = await service.organization();
  const { token } = await service.endUser(organization.id);
  return { organization, token, login: { username: 'Auth:JWT', password: Buffer.from(token), clientId: 'phone' } };
}

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

/** A device of its own in a service that most tests share: those that look at all of it, or leave it changed, have their own. */
const shared = () => fixtureIn(service);

t.test('CONNACK says 4 for bad credentials, 5 for a device in the trash, 2 for a client id', async (t) => {
  const f = await shared();
  t.equal(await connackFor(t, f, f.device.id, f.secret), 0);
  t.equal(await connackFor(t, f, f.device.id, 'wrong'), 4);
  t.equal(await connackFor(t, f, f.device.id, ''), 4);
  t.equal(await connackFor(t, f, 'nobody', f.secret), 4);
  t.equal(await connackFor(t, f, 'Auth:JWT', 'no.jwt.atall'), 4);
  t.equal(await connackFor(t, f, 'Auth:JWT', f.service.admin), 0);
  t.equal(await connackFor(t, f, undefined, '', { clientId: f.device.id, password: undefined }), 4);
  t.equal(
    await connackFor(t, f, f.device.id, f.secret, {
      clientId: 'x'.repeat(128),
      protocolId: 'MQIsdp',
      protocolVersion: 3,
    }),
    0,
  );
  t.equal(await connackFor(t, f, f.device.id, f.secret, { clientId: 'x'.repeat(129) }), 2);
  await f.service.ok('DELETE', `/api/v1/devices/${f.device.id}`, {
    headers: { etag: await versionOf(f.service, f.device.id) },
  });
  t.equal(await connackFor(t, f, f.device.id, f.secret), 5);
});

t.test('a device may connect with an empty username and its id as client id', async (t) => {
  const f = await shared();
  t.equal(await connackFor(t, f, '', f.secret, { clientId: f.device.id }), 0);
});

t.test('deleting a device ends its connections at once', async (t) => {
  const f = await shared();
  const client = await rawConnected(t, f);
  await f.service.ok('DELETE', `/api/v1/devices/${f.device.id}`, {
    headers: { etag: await versionOf(f.service, f.device.id) },
  });
  await client.closed;
});

t.test('an end-user of another organization hears nothing, and gets 0x80 where it asks by name', async (t) => {
  const f = await shared();
  const { login } = await person(f);
  const phone = await rawClient(t, f.service.server.mqttPort);
  phone.send(connectPacket(login));
  t.match(await phone.next(), { cmd: 'connack', returnCode: 0 });
  const own = f.topic('chat');
  const [root] = own.split('/d/') as [string];
  const refused = [
    own,
    f.topic('#'),
    f.topic('+'),
    `${root}/d`,
    'other/root/#',
    own.replace(f.service.accountId, f.device.id),
    `${root}/d/+/a/b/c`,
  ];
  t.same(await subscribed(phone, ...refused), Array(refused.length).fill(0x80));
  t.same(await subscribed(phone, '#', `${root}/#`, `${root}/d/+/chat`, '+/+/+/+/+/_log'), [1, 1, 1, 1]);
  const admin = await f.service.connect({ jwt: f.service.admin });
  await admin.publishAsync(own, 'secret', { qos: 1, retain: true });
  const device = await rawConnected(t, f);
  device.send(publishPacket(f.topic('_log'), 'hello', { qos: 1, messageId: 1 }));
  t.match(await device.next(), { cmd: 'puback' });
  t.same(await subscribed(phone, `${root}/d/+/+`), [1], 'nothing retained comes either');
  phone.send({ cmd: 'pingreq' });
  t.match(await phone.next(), { cmd: 'pingresp' });
});

t.test('moving a device into an organization lets its end-users hear it, and away silences it', async (t) => {
  const f = await shared();
  const { organization, login } = await person(f);
  const move = async (organizationId: string | null) =>
    f.service.ok('PUT', `/api/v1/devices/${f.device.id}`, {
      body: { organizationId },
      headers: { etag: await versionOf(f.service, f.device.id) },
    });
  const phone = await rawClient(t, f.service.server.mqttPort);
  phone.send(connectPacket(login));
  await phone.next();
  t.same(await subscribed(phone, '+/+/+/d/+/chat'), [1]);
  await move(organization.id);
  const device = await rawConnected(t, f);
  device.send(publishPacket(f.topic('chat'), 'in', { qos: 1, messageId: 1 }));
  t.equal((await published(phone)).topic, f.topic('chat'));
  await move(null);
  device.send(publishPacket(f.topic('chat'), 'out', { qos: 1, messageId: 2 }), { cmd: 'pingreq' });
  t.match(await device.next(), { messageId: 1 });
  t.match([await device.next(), await device.next()], [{ messageId: 2 }, { cmd: 'pingresp' }]);
  phone.send({ cmd: 'pingreq' });
  t.match(await phone.next(), { cmd: 'pingresp' });
});

t.test('a PUBLISH of a user out of its reach is acknowledged and noticed by nobody', async (t) => {
  const f = await shared();
  const refused = async () => Number(await metric(f, 'slipway_mqtt_refused_publishes_total{reason="no_such_channel"}'));
  const before = await refused();
  const { login } = await person(f);
  const phone = await rawClient(t, f.service.server.mqttPort);
  phone.send(connectPacket(login));
  await phone.next();
  const device = await rawConnected(t, f);
  t.same(await subscribed(device, f.topic('#')), [1]);
  phone.send(publishPacket(f.topic('temperature'), '1', { qos: 1, messageId: 1, retain: true }));
  t.match(await phone.next(), { cmd: 'puback', messageId: 1 });
  t.same(await stored(f), []);
  device.send(publishPacket(f.topic('chat'), 'mine', { qos: 1, messageId: 1 }));
  const heard = [await published(device)];
  while (heard.at(-1)?.topic !== f.topic('chat')) heard.push(await published(device));
  t.ok(heard.every(({ topic }) => [f.topic('chat'), f.topic('_updates/fields')].includes(topic)));
  t.equal((await refused()) - before, 1);
});

t.test('a payload that is no reading is delivered, not stored, and explained', async (t) => {
  const f = await shared();
  const client = await rawConnected(t, f);
  t.same(await subscribed(client, f.topic('_rejected'), f.topic('temperature')), [1, 1]);
  client.send(publishPacket(f.topic('temperature'), '{"broken"', { qos: 1, messageId: 1 }));
  const heard = [await published(client), await published(client)];
  t.same(heard.map(({ topic }) => topic).sort(), [f.topic('_rejected'), f.topic('temperature')].sort());
  const explained = heard.find(({ topic }) => topic === f.topic('_rejected'));
  t.match(payloadOf(explained as Packet), {
    error: { code: 106, message: String, details: [{ message: String }] },
    topic: f.topic('temperature'),
  });
  t.same(await stored(f), []);
});

t.test('what the store cannot take is not acknowledged, and explained with -199', async (t) => {
  const f = await shared();
  interceptPoints(t, f.service, (store) => store(new Error('disk full')));
  const witness = await rawConnected(t, f, { clientId: 'witness' });
  t.same(await subscribed(witness, f.topic('_rejected')), [1]);
  for (const qos of [0, 1, 2]) {
    const client = await rawConnected(t, f, { clientId: `publisher ${qos}` });
    client.send(publishPacket(f.topic('temperature'), '1', { qos, messageId: 1 }));
    t.match(payloadOf(await published(witness)), { error: { code: -199 }, topic: f.topic('temperature') });
    if (qos === 0) continue;
    await t.rejects(client.next(), 'no acknowledgement: the connection ends, and the client sends it again');
  }
});

t.test('_updates/fields gives the whole state on subscribing, then changes only', async (t) => {
  const f = await shared();
  const client = await rawConnected(t, f);
  t.same(await subscribed(client, f.topic('_updates/fields')), [1]);
  let packet = await published(client);
  // The change to `connected` may be on its way when the subscription begins.
  if (!('serialNumber' in payloadOf(packet).state)) packet = await published(client);
  t.match(payloadOf(packet), { state: { serialNumber: String, name: null } });
  await f.service.ok('PUT', `/api/v1/devices/${f.device.id}`, {
    body: { firmwareVersion: '2.0' },
    headers: { etag: await versionOf(f.service, f.device.id) },
  });
  for (;;) {
    const { state } = payloadOf(await published(client));
    if (!('firmwareVersion' in state)) continue;
    t.same(state, { firmwareVersion: '2.0' });
    break;
  }
});

t.test('_set/fields changes the device before it is acknowledged, or is refused as a whole', async (t) => {
  const f = await shared();
  const client = await rawConnected(t, f);
  for (const [messageId, qos] of [
    [1, 1],
    [2, 2],
  ] as const) {
    const state = { firmwareVersion: `1.${messageId}` };
    client.send(publishPacket(f.topic('_set/fields'), JSON.stringify({ state }), { qos, messageId }));
    t.match(await client.next(), { cmd: qos === 1 ? 'puback' : 'pubrec', messageId });
    t.match(await f.service.ok('GET', `/api/v1/devices/${f.device.id}`), { device: state });
  }
  t.same(await subscribed(client, f.topic('_rejected'), f.topic('_set/fields')), [1, 1]);
  for (const [messageId, qos] of [
    [3, 1],
    [4, 2],
  ] as const) {
    const state = { firmwareVersion: '3', organizationId: null, nonsense: 1 };
    client.send(publishPacket(f.topic('_set/fields'), JSON.stringify({ state }), { qos, messageId }));
    const refused = await published(client);
    t.equal(refused.topic, f.topic('_rejected'));
    t.match(payloadOf(refused), { error: { code: Number, message: String }, topic: f.topic('_set/fields'), state });
  }
  t.match(await f.service.ok('GET', `/api/v1/devices/${f.device.id}`), { device: { firmwareVersion: '1.2' } });
});

t.test('a refused state that is nested deeply or long is acknowledged, and explained without the state', async (t) => {
  const f = await shared();
  const other = await sibling(f);
  const client = await rawConnected(t, f);
  const witness = await rawConnected(t, f, { clientId: 'witness' });
  t.same(await subscribed(witness, f.topic('_rejected')), [1]);
  const deep = `{"state":{"name":${'['.repeat(5000)}${']'.repeat(5000)}}}`;
  const long = (bytes: number) => JSON.stringify({ state: { nonsense: 'x'.repeat(bytes - '{"nonsense":""}'.length) } });
  let messageId = 0;
  for (const qos of [1, 2] as const) {
    for (const [payload, isRepeated] of [
      [deep, false],
      [long(16_384), true],
      [long(16_385), false],
    ] as const) {
      messageId += 1;
      client.send(publishPacket(f.topic('_set/fields'), payload, { qos, messageId }));
      t.match(await client.next(), { cmd: qos === 1 ? 'puback' : 'pubrec', messageId });
      const explained = payloadOf(await published(witness));
      t.match(explained, { error: { code: Number }, topic: f.topic('_set/fields') });
      t.equal('state' in explained, isRepeated);
    }
  }
  client.send(publishPacket(f.topic('_set/fields'), deep));
  t.match(payloadOf(await published(witness)), { topic: f.topic('_set/fields') });
  client.send(publishPacket(other.topic('_set/fields'), deep, { qos: 1, messageId: 100 }));
  t.match(await client.next(), { cmd: 'puback', messageId: 100 }, 'refused by permission');
  await f.service.close();
});

t.test('a log entry is stored before it is acknowledged', async (t) => {
  const f = await shared();
  const client = await rawConnected(t, f);
  client.send(publishPacket(f.topic('_log'), '{"message":"hot","severity":"warn"}', { qos: 1, messageId: 1 }));
  t.match(await client.next(), { cmd: 'puback' });
  const { logs } = await f.service.ok('GET', `/api/v1/devices/${f.device.id}/logs`);
  t.ok(logs.results.some((entry) => entry.message === 'hot' && entry.severity === 'warn'));
});

t.test('presence follows the connections of a device and changes neither version nor lastModified', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const admin = await f.service.connect({ jwt: f.service.admin });
  await admin.subscribeAsync('+/+/+/d/+/_updates/fields');
  const told = (connected: boolean) =>
    nextMessage(admin, (_, payload) => JSON.parse(payload.toString()).state.connected === connected);
  const read = async () => (await f.service.ok('GET', `/api/v1/devices/${f.device.id}`)).device;
  const before = await read();
  t.equal(before.connected, false);
  const up = told(true);
  const one = await rawConnected(t, f, { clientId: 'one' });
  t.same(JSON.parse((await up).text), { state: { connected: true, externalIp: '127.0.0.1' } });
  const { version, lastModified } = before;
  t.match(await read(), { connected: true, externalIp: '127.0.0.1', lastConnected: /Z$/, version, lastModified });
  const two = await rawConnected(t, f, { clientId: 'two' });
  const down = told(false);
  one.socket.destroy();
  two.send({ cmd: 'pingreq' });
  await two.next();
  t.match(await read(), { connected: true });
  two.socket.destroy();
  t.same(JSON.parse((await down).text), { state: { connected: false } });
  t.match(await read(), { connected: false, version, lastModified });
  const log = () => f.service.ok('GET', `/api/v1/devices/${f.device.id}/logs?severity=lifecycle`);
  // It is written after the device has been told.
  await until(async () => (await log()).logs.meta.count >= 2);
  t.same((await log()).logs.results.map((entry) => entry.custom?.connected).sort(), [false, true]);
});

t.test('nothing is connected when the service starts, whatever it left behind', async (t) => {
  const f = await fixture(t);
  const { directory } = f.service;
  await f.service.close();
  await notePresence({ directory }, f.device.id, { connected: 1 });
  const again = await startService(t, { directory });
  t.match(await again.ok('GET', `/api/v1/devices/${f.device.id}`), { device: { connected: false } });
});

t.test('a user connection ends with its session', async (t) => {
  let ahead = 0;
  const service = await startService(t, { clock: { now: () => Date.now() + ahead } });
  const client = await rawClient(t, service.server.mqttPort);
  const { jwt } = await service.loginAs('admin@example.com', 'correct horse battery');
  client.send(connectPacket({ username: 'Auth:JWT', password: Buffer.from(jwt) }));
  t.match(await client.next(), { returnCode: 0 });
  const other = await rawClient(t, service.server.mqttPort);
  other.send(connectPacket({ username: 'Auth:JWT', password: Buffer.from(service.admin), clientId: 'other' }));
  t.match(await other.next(), { returnCode: 0 });
  await service.ok('POST', '/api/v1/sessions/logout', { token: jwt });
  await client.closed;
  other.send({ cmd: 'pingreq' });
  t.match(await other.next(), { cmd: 'pingresp' }, 'the other session lives');
  ahead = 365 * 86_400_000;
  await other.closed;
});

t.test('a user connection that rests longer than its token lasts ends; any packet is use of the session', async (t) => {
  const time = { now: Date.parse('2026-03-01T00:00:00Z') };
  const minute = 60_000;
  const service = await startService(t, { clock: { now: () => time.now } });
  const logIn = async () => (await service.loginAs('admin@example.com', 'correct horse battery')).jwt;
  const attempt = async (jwt: string) => {
    const client = await rawClient(t, service.server.mqttPort);
    client.send(connectPacket({ username: 'Auth:JWT', password: Buffer.from(jwt), clientId: jwt.slice(-20) }));
    const { returnCode } = (await client.next()) as { returnCode: number };
    return { client, returnCode };
  };
  const tokens = { active: await logIn(), resting: await logIn(), elsewhere: await logIn(), away: await logIn() };
  const active = (await attempt(tokens.active)).client;
  const resting = (await attempt(tokens.resting)).client;
  const elsewhere = (await attempt(tokens.elsewhere)).client;
  const ping = async (client: RawClient) => {
    client.send({ cmd: 'pingreq' });
    t.match(await client.next(), { cmd: 'pingresp' });
  };
  for (let n = 0; n < 2; n += 1) {
    time.now += 15 * minute;
    await ping(active);
    await service.ok('GET', '/api/v1/profile/me', { token: tokens.elsewhere });
  }
  await resting.closed;
  await ping(active);
  await ping(elsewhere);

  for (const name of ['resting', 'away'] as const) t.equal((await attempt(tokens[name])).returnCode, 4, name);
  t.equal((await attempt(tokens.active)).returnCode, 0, 'expired, of a session in use');
  await service.ok('POST', '/api/v1/sessions/renew-session', { token: tokens.away });
  t.equal((await attempt(tokens.away)).returnCode, 0, 'until its session is renewed');
});

t.test('an end-user with nothing left in reach is disconnected', async (t) => {
  const f = await shared();
  const { organization, login } = await person(f);
  const phone = await rawClient(t, f.service.server.mqttPort);
  phone.send(connectPacket(login));
  t.match(await phone.next(), { returnCode: 0 });
  const { results } = (
    await f.service.ok('GET', `/api/v1/end-users?accountId=${f.service.accountId}&organizationId=${organization.id}`)
  ).endUsers;
  await f.service.ok('DELETE', `/api/v1/end-users/${results[0].id}`, { headers: { etag: results[0].version } });
  await phone.closed;
});

t.test('another device of the account cannot be heard or spoken for', async (t) => {
  const f = await shared();
  const other = await sibling(f);
  const client = await rawConnected(t, f);
  const [root] = f.topic('').split(f.device.id) as [string];
  t.same(await subscribed(client, other.topic('chat'), `${root}+/chat`, '#', f.topic('nothing')), [0x80, 1, 1, 0x80]);
  const speaker = await rawConnected(t, other);
  speaker.send(publishPacket(other.topic('chat'), 'x', { qos: 1, messageId: 1 }));
  await speaker.next();
  client.send(publishPacket(f.topic('chat'), 'y', { qos: 0 }));
  t.equal((await published(client)).topic.replace('_updates/fields', 'chat'), f.topic('chat'));
});

t.test('no more filters than allowed', async (t) => {
  const f = await fixture(t, { SLIPWAY_MQTT_MAX_SUBSCRIPTIONS: '2' });
  const client = await rawConnected(t, f);
  t.same(await subscribed(client, f.topic('chat'), f.topic('temperature'), f.topic('_log')), [1, 1, 0x80]);
  client.send({ cmd: 'unsubscribe', messageId: 2, unsubscriptions: [f.topic('chat')] });
  t.match(await client.next(), { cmd: 'unsuback' });
  t.same(await subscribed(client, f.topic('_log')), [1]);
});

t.end();
