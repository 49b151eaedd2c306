/** What the broker holds and one that lets Aedes 1.2 serve its clients does not. Each test fails when the fault comes back. */
import { interceptChecks, interceptPoints, whileAccessFails } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { nextMessage, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { until } from '../support/until.ts';
import { fixture, fixtureIn, hasty, rawConnected, sibling, stored, versionOf } from './fixture.ts';
import { metric } from './metrics.ts';
import { connectPacket, publishPacket, rawClient, subscribePacket } from './raw.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

/** A device of its own in a service that most tests share: those that look at all of it, or leave it changed, have their own. */
const shared = () => fixtureIn(service);

t.test('QoS 1 on a stored channel is acknowledged after it is on disk, not before', async (t) => {
  const f = await shared();
  const client = await rawConnected(t, f);
  let release = () => {};
  const asked = new Promise<void>((resolve) => {
    interceptPoints(t, f.service, (store) => {
      release = store;
      resolve();
    });
  });
  client.send(publishPacket(f.topic('temperature'), '21.5', { qos: 1, messageId: 7 }));
  await asked;
  const answer = client.next();
  const other = await rawConnected(t, f, { clientId: 'other' });
  other.send({ cmd: 'pingreq' });
  t.match(await Promise.race([answer, other.next()]), { cmd: 'pingresp' }, 'no PUBACK has come');
  release();
  t.match(await answer, { cmd: 'puback', messageId: 7 });
  t.same(await stored(f), [21.5]);
});

t.test('a message that was stored is delivered although its connection closed meanwhile', async (t) => {
  const f = await shared();
  const admin = await f.service.connect({ jwt: f.service.admin });
  await admin.subscribeAsync(f.topic('temperature'), { qos: 1 });
  const client = await rawConnected(t, f);
  let release = () => {};
  const asked = new Promise<void>((resolve) => {
    interceptPoints(t, f.service, (store) => {
      release = store;
      resolve();
    });
  });
  client.send(publishPacket(f.topic('temperature'), '21.5', { qos: 1, messageId: 7 }));
  await asked;
  await f.service.credential(f.device.id);
  await client.closed;
  const heard = nextMessage(admin);
  release();
  t.equal((await heard).text, '21.5');
});

t.test('a message of one packet id and QoS 2 is stored once, sent again or not', async (t) => {
  const f = await shared();
  const client = await rawConnected(t, f, { clean: false, clientId: 'twice' });
  const message = { qos: 2, messageId: 9 };
  client.send(publishPacket(f.topic('temperature'), '1', message));
  t.match(await client.next(), { cmd: 'pubrec', messageId: 9 });
  client.send(publishPacket(f.topic('temperature'), '1', { ...message, dup: true }));
  t.match(await client.next(), { cmd: 'pubrec', messageId: 9 });
  client.socket.destroy();
  const again = await rawConnected(t, f, { clean: false, clientId: 'twice' });
  again.send(publishPacket(f.topic('temperature'), '1', { ...message, dup: true }));
  t.match(await again.next(), { cmd: 'pubrec', messageId: 9 });
  again.send({ cmd: 'pubrel', messageId: 9 });
  t.match(await again.next(), { cmd: 'pubcomp', messageId: 9 });
  t.same(await stored(f), [1]);
});

t.test('a duplicate that comes while the first is being written is stored and delivered once', async (t) => {
  const f = await shared();
  const first = await rawConnected(t, f, { clean: false, clientId: 'twice' });
  const releases: Array<() => void> = [];
  const asked = new Promise<void>((resolve) => {
    interceptPoints(t, f.service, (store) => {
      releases.push(store);
      resolve();
    });
  });
  const message = { qos: 2, messageId: 9 };
  first.send(publishPacket(f.topic('temperature'), '1', message));
  await asked;
  const second = await rawConnected(t, f, { clean: false, clientId: 'twice' });
  await first.closed;
  second.send(publishPacket(f.topic('temperature'), '1', { ...message, dup: true }));
  const other = await rawConnected(t, f, { clientId: 'other' });
  other.send({ cmd: 'pingreq' });
  t.match(await other.next(), { cmd: 'pingresp' });
  for (const release of releases) release();
  t.match(await second.next(), { cmd: 'pubrec', messageId: 9 });
  t.equal(releases.length, 1);
  t.same(await stored(f), [1]);
});

t.test('a denied filter next to a granted one is not stored with the session', async (t) => {
  const f = await shared();
  const organization = await f.service.organization();
  const { token } = await f.service.endUser(organization.id);
  const session = { username: 'Auth:JWT', password: Buffer.from(token), clientId: 'phone', clean: false };
  const phone = await rawClient(t, f.service.server.mqttPort);
  phone.send(connectPacket(session));
  t.match(await phone.next(), { cmd: 'connack', returnCode: 0 });
  phone.send(subscribePacket(1, ['+/+/+/d/+/_log', 1], [f.topic('chat'), 1]));
  t.match(await phone.next(), { cmd: 'suback', granted: [1, 0x80] });
  phone.socket.destroy();

  await f.service.ok('PUT', `/api/v1/devices/${f.device.id}`, {
    body: { organizationId: organization.id },
    headers: { etag: await versionOf(f.service, f.device.id) },
  });
  const admin = await f.service.connect({ jwt: f.service.admin });
  await admin.publishAsync(f.topic('chat'), 'not asked for', { qos: 1 });
  await admin.publishAsync(f.topic('_log'), 'asked for', { qos: 1 });
  const again = await rawClient(t, f.service.server.mqttPort);
  again.send(connectPacket(session));
  t.match(await again.next(), { cmd: 'connack', returnCode: 0, sessionPresent: true });
  t.match(await again.next(), { cmd: 'publish', topic: f.topic('_log') });
  await admin.publishAsync(f.topic('chat'), 'still not asked for', { qos: 1 });
  again.send({ cmd: 'pingreq' });
  t.match(await again.next(), { cmd: 'pingresp' });
});

t.test('no message is lost between retained, QoS 1 and QoS 0 ones sent at once', async (t) => {
  const f = await shared();
  const subscriber = await rawConnected(t, f, { clientId: 'subscriber', clean: false });
  subscriber.send(subscribePacket(1, [`${f.topic('chat')}`, 1]));
  await subscriber.next();
  const publisher = await rawConnected(t, f, { clientId: 'publisher' });
  const rounds = 50;
  const burst = Array.from({ length: rounds }, (_, n) => [
    publishPacket(f.topic('chat'), `${3 * n}`, { retain: true }),
    publishPacket(f.topic('chat'), `${3 * n + 1}`),
    publishPacket(f.topic('chat'), `${3 * n + 2}`, { qos: 1, messageId: n + 1 }),
  ]).flat();
  publisher.send(...burst);
  const seen = new Set<string>();
  while (seen.size < 3 * rounds) {
    const packet = await subscriber.next();
    if (packet.cmd !== 'publish') continue;
    seen.add(packet.payload.toString());
    if (packet.qos > 0) subscriber.send({ cmd: 'puback', messageId: packet.messageId as number });
  }
  t.equal(seen.size, 3 * rounds);
});

t.test('a persistent subscriber loses no QoS 1 message of several fast publishers', async (t) => {
  const f = await shared();
  const subscriber = await rawConnected(t, f, { clientId: 'subscriber', clean: false });
  subscriber.send(subscribePacket(1, [`${f.topic('temperature')}`, 1]));
  await subscriber.next();
  const each = 250;
  for (let p = 0; p < 4; p += 1) {
    const publisher = await rawConnected(t, f, { clientId: `publisher ${p}` });
    publisher.send(
      ...Array.from({ length: each }, (_, n) =>
        publishPacket(f.topic('temperature'), `${p * each + n}`, { qos: 1, messageId: n + 1 }),
      ),
    );
  }
  const seen = new Set<string>();
  while (seen.size < 4 * each) {
    const packet = await subscriber.next();
    if (packet.cmd !== 'publish') continue;
    seen.add(packet.payload.toString());
    subscriber.send({ cmd: 'puback', messageId: packet.messageId as number });
  }
  t.equal(seen.size, 4 * each);
});

t.test('the same client id of two principals never disturbs either', async (t) => {
  const f = await shared();
  const other = await sibling(f);
  const one = await rawConnected(t, f, { clientId: 'sensor' });
  const two = await rawConnected(t, other, { clientId: 'sensor' });
  for (const client of [one, two]) {
    client.send({ cmd: 'pingreq' });
    t.match(await client.next(), { cmd: 'pingresp' });
  }
  const successor = await rawConnected(t, f, { clientId: 'sensor' });
  await one.closed;
  t.pass('the same principal takes over [MQTT-3.1.4-2]');
  for (const client of [two, successor]) {
    client.send({ cmd: 'pingreq' });
    t.match(await client.next(), { cmd: 'pingresp' });
  }
});

t.test('an unproven CONNECT under the private id of a session does not touch the session', async (t) => {
  const f = await shared();
  // Aedes clears what has been received of a clean session by its id, no matter who has closed.
  const client = await rawConnected(t, f, { clientId: 'mine' });
  const message = { qos: 2, messageId: 5 };
  client.send(publishPacket(f.topic('temperature'), '1', message));
  t.match(await client.next(), { cmd: 'pubrec' });
  const intruder = await rawClient(t, f.service.server.mqttPort);
  intruder.send(connectPacket({ clientId: `${f.service.accountId}/${f.device.id}/mine`, username: f.device.id }));
  t.match(await intruder.next(), { cmd: 'connack', returnCode: 4 });
  await intruder.closed;
  client.send(publishPacket(f.topic('temperature'), '1', { ...message, dup: true }));
  t.match(await client.next(), { cmd: 'pubrec' });
  t.same(await stored(f), [1]);
});

t.test('a packet over the limit ends the connection while its bytes arrive', async (t) => {
  const f = await fixture(t, { SLIPWAY_MQTT_MAX_PAYLOAD_BYTES: '2000' });
  const stranger = await rawClient(t, f.service.server.mqttPort);
  // A CONNECT that announces 100 MB; only its header is sent.
  stranger.send(Buffer.from([0x10, 0x80, 0x80, 0x80, 0x30, 0, 4]));
  await stranger.closed;
  const early = await rawClient(t, f.service.server.mqttPort);
  early.send({ cmd: 'pingreq' });
  await early.closed;

  const device = await rawConnected(t, f);
  device.send(Buffer.from([0x30, 0x80, 0x80, 0x80, 0x30, 0, 4]));
  await device.closed;
  const slightly = await rawConnected(t, f);
  slightly.send(publishPacket(f.topic('chat'), Buffer.alloc(2001), { qos: 1, messageId: 1 }));
  await slightly.closed;
  const exactly = await rawConnected(t, f);
  exactly.send(publishPacket(f.topic('chat'), Buffer.alloc(2000), { qos: 1, messageId: 1 }));
  t.match(await exactly.next(), { cmd: 'puback', messageId: 1 });
});

t.test('packets sent along with CONNECT wait for CONNACK, however many there are', async (t) => {
  const f = await shared();
  const client = await rawClient(t, f.service.server.mqttPort);
  const messages = Array.from({ length: 200 }, (_, n) =>
    publishPacket(f.topic('temperature'), `${n}`, { qos: 1, messageId: n + 1 }),
  );
  client.send(connectPacket({ username: f.device.id, password: Buffer.from(f.secret) }), ...messages);
  t.match(await client.next(), { cmd: 'connack', returnCode: 0 });
  for (let n = 1; n <= 200; n += 1) t.match(await client.next(), { cmd: 'puback', messageId: n });
  t.equal((await stored(f)).length, 200);
});

t.test('a subscriber that does not read holds up nobody else', async (t) => {
  const f = await shared();
  const lazy = await rawConnected(t, f, { clientId: 'lazy' });
  lazy.send(subscribePacket(1, [f.topic('chat'), 1]));
  await lazy.next();
  lazy.socket.pause();
  const reader = await f.service.connect(f.who, { clientId: 'reader' });
  await reader.subscribeAsync(f.topic('chat'));
  const payload = Buffer.alloc(100_000);
  const publisher = await f.service.connect({ jwt: f.service.admin });
  const shed = async () => Number(await metric(f, 'slipway_mqtt_shed_messages_total'));
  const before = await shed();
  let longest = 0;
  for (let n = 0; n < 200; n += 1) {
    const begun = performance.now();
    const heard = nextMessage(reader);
    publisher.publish(f.topic('chat'), payload, { qos: 0 });
    await heard;
    longest = Math.max(longest, performance.now() - begun);
  }
  t.ok(longest < 4900, 'nobody waited for a drain timeout, of 5 s');
  t.ok((await shed()) > before, 'QoS 0 messages were shed');
});

t.test('a connection without CONNECT, or refused before it is proven, does not stay open', async (t) => {
  const f = await fixtureIn(await sharedService(t, hasty));
  const silent = await rawClient(t, f.service.server.mqttPort);
  const half = await rawClient(t, f.service.server.mqttPort);
  half.send(Buffer.from([0x10, 0x40, 0]));
  await f.service.credential(f.device.id);
  const unanswered = await rawClient(t, f.service.server.mqttPort);
  // A stored session without a client id, which the packet library does not write.
  unanswered.send(Buffer.from([0x10, 12, 0, 4, ...Buffer.from('MQTT'), 4, 0, 0, 60, 0, 0]));
  t.match(await unanswered.next(), { cmd: 'connack', returnCode: 2 });
  await Promise.all([silent.closed, half.closed, unanswered.closed]);
});

t.test('a credential check that never ends does not keep the socket', async (t) => {
  const f = await fixtureIn(await sharedService(t, hasty));
  interceptChecks(t, f.service, () => new Promise(() => {}));
  const client = await rawClient(t, f.service.server.mqttPort);
  client.send(connectPacket({ username: f.device.id, password: Buffer.from(f.secret) }));
  await client.closed;
});

t.test('a CONNECT that is being checked does not survive the end of its credential', async (t) => {
  const f = await shared();
  let release = () => {};
  const reached = new Promise<void>((resolve) => {
    interceptChecks(t, f.service, async (verify) => {
      const proven = await verify();
      await new Promise<void>((go) => {
        release = go;
        resolve();
      });
      return proven;
    });
  });
  const client = await rawClient(t, f.service.server.mqttPort);
  client.send(connectPacket({ username: f.device.id, password: Buffer.from(f.secret) }));
  await reached;
  await f.service.credential(f.device.id);
  release();
  t.match(await client.next(), { cmd: 'connack', returnCode: 4 });
  await client.closed;
});

t.test('a new secret ends every connection made with the old one before the answer leaves', async (t) => {
  const f = await shared();
  const clients = await Promise.all(['a', 'b', 'c'].map((clientId) => rawConnected(t, f, { clientId })));
  const body = { accountId: f.service.accountId, entityId: f.device.id, entityType: 'device' };
  const renew = async () => {
    const { headers } = await f.service.http('POST', '/api/v1/access/mqtt-credentials', { body });
    return headers.get('platform-revocation');
  };
  t.match(await renew(), /connections=3/);
  t.match(await renew(), /connections=0/, 'none is left');
  await Promise.all(clients.map(({ closed }) => closed));
});

t.test('small packets do not wait for each other', async (t) => {
  const f = await shared();
  const client = await rawConnected(t, f);
  client.socket.setNoDelay(true);
  client.send(subscribePacket(1, [f.topic('chat'), 0]));
  await client.next();
  const median = async () => {
    const times: number[] = [];
    for (let messageId = 1; messageId <= 20; messageId += 1) {
      const begun = performance.now();
      client.send(publishPacket(f.topic('chat'), 'x', { qos: 1, messageId }));
      await client.next();
      await client.next();
      times.push(performance.now() - begun);
    }
    return times.sort((a, b) => a - b)[10] as number;
  };
  // A busy machine is slow for a while, Nagle always, once a connection has exchanged some packets.
  let time = await median();
  for (let more = 0; more < 5 && time >= 20; more += 1) time = await median();
  t.ok(time < 20, `median ${time.toFixed(1)} ms; Nagle costs 40`);
});

t.test('a hook that throws ends one connection, not the process', async (t) => {
  const f = await shared();
  const client = await rawConnected(t, f, { clientId: 'unlucky' });
  const witness = await rawConnected(t, f, { clientId: 'witness' });
  await whileAccessFails(f.service, 'mayPublish', async () => {
    client.send(publishPacket(f.topic('chat'), 'x', { qos: 1, messageId: 1 }));
    await client.closed;
  });
  witness.send(subscribePacket(1, [f.topic('chat'), 1]));
  await witness.next();
  await whileAccessFails(f.service, 'mayHear', async () => {
    witness.send(publishPacket(f.topic('chat'), 'x', { qos: 1, messageId: 1 }));
    t.match(await witness.next(), { cmd: 'puback' });
  });
  interceptChecks(t, f.service, () => Promise.reject(new Error('a fault')));
  const stranger = await rawClient(t, f.service.server.mqttPort);
  stranger.send(connectPacket({ username: f.device.id, password: Buffer.from(f.secret) }));
  t.match(await stranger.next(), { cmd: 'connack', returnCode: 3 });
  witness.send({ cmd: 'pingreq' });
  t.match(await witness.next(), { cmd: 'pingresp' });
});

t.test('a refused PUBLISH is acknowledged, dropped and explained; the connection stays', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const other = await sibling(f);
  const admin = await f.service.connect({ jwt: f.service.admin });
  const heard: string[] = [];
  admin.on('message', (topic) => heard.push(topic));
  await admin.subscribeAsync(['#', f.service.topic(other.device.id, 'temperature')]);
  const client = await rawConnected(t, f);
  client.send(subscribePacket(1, [f.topic('_rejected'), 1]));
  await client.next();
  for (const [messageId, topic] of [
    [1, f.service.topic(other.device.id, 'temperature')],
    [2, f.topic('nowhere')],
    [3, 'somewhere/else'],
    [4, '$SYS/x/new/clients'],
    [5, f.topic('_rejected')],
  ] as const) {
    client.send(publishPacket(topic, '1', { qos: 1, messageId, retain: true }));
    const packets = [await client.next(), await client.next()];
    t.ok(packets.some((packet) => packet.cmd === 'puback' && packet.messageId === messageId));
    const explained = packets.find((packet) => packet.cmd === 'publish');
    t.match(explained, { topic: f.topic('_rejected'), retain: false });
    const body = JSON.parse((explained as { payload: Buffer }).payload.toString());
    const [code, details] = messageId === 5 ? [21, { length: 0 }] : [100, [{ path: 'topic' }]];
    t.match(body, { error: { code, message: String, details }, topic });
    client.send({ cmd: 'puback', messageId: (explained as { messageId: number }).messageId });
  }
  client.send({ cmd: 'pingreq' });
  t.match(await client.next(), { cmd: 'pingresp' });
  t.same(await stored({ ...f, device: other.device }), []);
  await until(() => heard.filter((topic) => topic === f.topic('_rejected')).length >= 5);
  const expected = [f.topic('_rejected'), f.topic('_updates/fields')];
  t.same(
    heard.filter((topic) => !expected.includes(topic)),
    [],
    'others see only the explanations',
  );
  t.equal(heard.filter((topic) => topic === f.topic('_rejected')).length, 5);
});

t.test('a client that keeps being refused is disconnected', async (t) => {
  const f = await fixture(t, { SLIPWAY_MQTT_REFUSALS_PER_MINUTE: '3' });
  const client = await rawConnected(t, f);
  for (let n = 1; n <= 3; n += 1) {
    client.send(publishPacket('elsewhere', '', { qos: 1, messageId: n }));
    t.match(await client.next(), { cmd: 'puback', messageId: n });
  }
  client.send(publishPacket('elsewhere', '', { qos: 1, messageId: 4 }));
  await client.closed;
});

t.test('a queued message that may not be delivered any more leaves the queue, not the subscriber', async (t) => {
  const f = await shared();
  const organization = await f.service.organization();
  const { token } = await f.service.endUser(organization.id);
  const held = await f.service.device({
    deviceTemplateId: f.device.deviceTemplateId,
    organizationId: organization.id,
  });
  const topic = f.service.topic(held.device.id, 'chat');
  const session = { username: 'Auth:JWT', password: Buffer.from(token), clientId: 'phone', clean: false };
  const phone = await rawClient(t, f.service.server.mqttPort);
  phone.send(connectPacket(session), subscribePacket(1, [`${topic.slice(0, topic.indexOf('/d/'))}/d/+/chat`, 1]));
  t.match(await phone.next(), { cmd: 'connack', returnCode: 0 });
  t.match(await phone.next(), { cmd: 'suback', granted: [1] });
  const admin = await f.service.connect({ jwt: f.service.admin });
  await admin.publishAsync(topic, 'mine', { qos: 1 });
  t.match(await phone.next(), { cmd: 'publish', topic });
  await f.service.ok('PUT', `/api/v1/devices/${held.device.id}`, {
    body: { organizationId: null },
    headers: { etag: await versionOf(f.service, held.device.id) },
  });
  await admin.publishAsync(topic, 'not mine any more', { qos: 1 });
  // An acknowledgement and a PUBREL that nobody waits for are no reason to disconnect either.
  const unknown = [{ cmd: 'pubrel', messageId: 4712 } as const, { cmd: 'pubrec', messageId: 4713 } as const];
  phone.send({ cmd: 'puback', messageId: 4711 }, ...unknown);
  const answers = [await phone.next(), await phone.next()].map(({ cmd, messageId }) => `${cmd} ${messageId}`);
  t.same(answers.sort(), ['pubcomp 4712', 'pubrel 4713']);
  phone.send({ cmd: 'pingreq' });
  t.match(await phone.next(), { cmd: 'pingresp' });
});

t.test('messages of one client pass in order however long each takes to be stored', async (t) => {
  const f = await shared();
  const admin = await f.service.connect({ jwt: f.service.admin });
  const heard: string[] = [];
  admin.on('message', (_, payload) => heard.push(payload.toString()));
  await admin.subscribeAsync([f.topic('temperature'), f.topic('chat')], { qos: 1 });
  const held: Array<() => void> = [];
  interceptPoints(t, f.service, (store, points) => {
    if (points[0]?.numericValue === 1) held.push(store);
    else store();
  });
  const client = await rawConnected(t, f);
  client.send(
    publishPacket(f.topic('temperature'), '1', { qos: 1, messageId: 1 }),
    publishPacket(f.topic('temperature'), '2', { qos: 1, messageId: 2 }),
    publishPacket(f.topic('chat'), '3', { qos: 1, messageId: 3 }),
    publishPacket(f.topic('chat'), '4', { qos: 0 }),
  );
  await until(async () => (await stored(f)).length > 0);
  for (const release of held) release();
  const acknowledged = [await client.next(), await client.next(), await client.next()];
  t.match(acknowledged, [{ messageId: 1 }, { messageId: 2 }, { messageId: 3 }]);
  if (heard.length < 4) await nextMessage(admin, () => heard.length === 4);
  t.same(
    heard.filter((payload) => payload !== '4'),
    ['1', '2', '3'],
  );
});

t.test('malformed filters and topics end the connection; $ topics are refused', async (t) => {
  const f = await shared();
  for (const filter of ['a#', '+a', 'a/#/b', `${f.topic('chat')}+`, 'a\0b']) {
    const client = await rawConnected(t, f, { clientId: 'strange' });
    client.send(subscribePacket(1, [filter, 0]));
    await client.closed;
  }
  for (const topic of ['a\0b', `${f.topic('chat')}\0`, Buffer.from([0xff, 0xfe]).toString('latin1')]) {
    const client = await rawConnected(t, f, { clientId: 'strange' });
    if (topic.startsWith('ÿ')) client.send(Buffer.from([0x30, 4, 0, 2, 0xff, 0xfe]));
    else client.send(publishPacket(topic, ''));
    await client.closed;
  }
  const client = await rawConnected(t, f, { clientId: 'curious' });
  const filters = ['$SYS/#', '$SYS/+/new/clients', '$share/g/$SYS/#', '$share/g'];
  client.send(subscribePacket(1, ...filters.map((filter): [string, 0] => [filter, 0])));
  t.match(await client.next(), { cmd: 'suback', granted: [0x80, 0x80, 0x80, 0x80] });
});

t.test('publishing what Aedes says to itself disconnects nobody', async (t) => {
  const f = await shared();
  const victim = await rawConnected(t, f, { clientId: 'victim' });
  const other = await sibling(f);
  const attacker = await rawConnected(t, other, { clientId: 'attacker' });
  const id = `${f.service.accountId}/${f.device.id}/victim`;
  attacker.send(publishPacket('$SYS/x/new/clients', id, { qos: 1, messageId: 1 }));
  t.match(await attacker.next(), { cmd: 'puback' });
  victim.send({ cmd: 'pingreq' });
  t.match(await victim.next(), { cmd: 'pingresp' });
});

t.test('a will on a topic that the client may not publish refuses the CONNECT', async (t) => {
  const f = await shared();
  const other = await sibling(f);
  const client = await rawClient(t, f.service.server.mqttPort);
  const will = { topic: f.service.topic(other.device.id, 'chat'), payload: Buffer.from('gone'), qos: 0, retain: false };
  client.send(connectPacket({ username: f.device.id, password: Buffer.from(f.secret), will }));
  t.match(await client.next(), { cmd: 'connack', returnCode: 5 });
});

t.test('a will fires on an unclean end and is stored; not when its principal is cut off', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const admin = await f.service.connect({ jwt: f.service.admin });
  const heard: string[] = [];
  admin.on('message', (_, payload) => heard.push(payload.toString()));
  await admin.subscribeAsync(f.topic('temperature'), { qos: 1 });
  const will = (payload: string) => ({
    will: { topic: f.topic('temperature'), payload: Buffer.from(payload), qos: 1, retain: false },
  });
  const dropped = await rawConnected(t, f, { clientId: 'dropped', ...will('13') });
  const secret = await f.service.credential(f.device.id);
  await dropped.closed;
  const unclean = await rawConnected(t, { ...f, secret }, { clientId: 'unclean', ...will('14') });
  const fired = nextMessage(admin);
  unclean.socket.destroy();
  t.equal((await fired).text, '14');
  t.same(heard, ['14']);
  t.same(await stored(f), [14]);
});

t.test('a will of QoS 2 is stored like any publish', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const admin = await f.service.connect({ jwt: f.service.admin });
  const state = { firmwareVersion: 'the last' };
  for (const [channel, payload] of [
    ['temperature', '14'],
    ['_log', 'good bye'],
    ['_set/fields', JSON.stringify({ state })],
  ] as const) {
    await admin.subscribeAsync(f.topic(channel), { qos: 2 });
    const will = { topic: f.topic(channel), payload: Buffer.from(payload), qos: 2, retain: false };
    const client = await rawConnected(t, f, { clientId: channel, will });
    const fired = nextMessage(admin, (topic) => topic === f.topic(channel));
    client.socket.destroy();
    t.equal((await fired).text, payload, 'delivered, and so stored');
  }
  t.same(await stored(f), [14]);
  const { logs } = await f.service.ok('GET', `/api/v1/devices/${f.device.id}/logs`);
  t.ok(logs.results.some(({ message }: { message: string }) => message === 'good bye'));
  t.match(await f.service.ok('GET', `/api/v1/devices/${f.device.id}`), { device: state });
});

t.test('no line of the log holds a secret, whatever a client does after its CONNECT', async (t) => {
  const logLines: string[] = [];
  const f = await fixture(t, {}, { logLines });
  const secret = Buffer.from(f.secret);
  const login = connectPacket({ username: f.device.id, password: secret });
  const twice = await rawConnected(t, f);
  twice.send(login);
  await twice.closed;
  const atOnce = await rawClient(t, f.service.server.mqttPort);
  atOnce.send(login, login);
  await atOnce.closed;
  const wrong = await rawClient(t, f.service.server.mqttPort);
  wrong.send(connectPacket({ username: f.device.id, password: Buffer.from(`${f.secret}x`) }), login);
  await wrong.closed;
  const malformed = await rawClient(t, f.service.server.mqttPort);
  malformed.send(connectPacket({ username: f.device.id, password: secret, clientId: 'a\0b' }));
  await malformed.closed;
  t.ok(logLines.filter((line) => line.includes('a second CONNECT')).length >= 2, 'what happened is told');
  const forms = [
    f.secret,
    secret.toString('base64'),
    secret.toString('base64url'),
    secret.toString('hex'),
    [...secret].join(),
  ];
  t.same(
    logLines.filter((line) => forms.some((form) => line.includes(form.slice(0, -4)))),
    [],
  );
});

t.test('deliveries are capped to the QoS of a wildcard filter', async (t) => {
  const f = await shared();
  const client = await rawConnected(t, f);
  client.send(subscribePacket(1, [f.topic('+'), 1]));
  await client.next();
  const admin = await f.service.connect({ jwt: f.service.admin });
  await admin.publishAsync(f.topic('chat'), 'x', { qos: 2 });
  t.match(await client.next(), { cmd: 'publish', qos: 1 });
});

t.end();
