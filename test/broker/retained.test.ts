/** Retained messages are searched within the caller's reach, and each client has one search at a time. */
import type { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { generate, type Packet } from 'mqtt-packet';
import type { Test } from 'tap';
import { interceptPoints, interceptSearches, interceptSessions } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { sharedService } from '../support/shared.ts';
import { until } from '../support/until.ts';
import { connected, disconnected, published, subscribed, taken, texts } from './conversation.ts';
import { type Fixture, fixture, fixtureIn } from './fixture.ts';
import { metric } from './metrics.ts';
import { connectPacket, publishPacket, rawClient, subscribePacket } from './raw.ts';

const t = await part(import.meta);

t.test('a SUBSCRIBE waits for the search of the one before, and nobody else’s topics are looked at', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const device = await connected(t, f.service.server, f);
  await published(device, f.topic('chat'), 'retained', { retain: true });
  const prefixes = new Set<string>();
  let searching = 0;
  let searches = 0;
  let maxAtOnce = 0;
  // Each search finds ten pages of topics that nobody may hear, and then what is there.
  interceptSearches(t, f.service, (search, prefix, after, limit) => {
    // The sweep of all topics is no search.
    if (prefix === '') return search(prefix, after, limit);
    prefixes.add(prefix);
    if (after === '') {
      searching += 1;
      searches += 1;
      maxAtOnce = Math.max(maxAtOnce, searching);
    }
    const page = after === '' ? 0 : Number(/page(\d+)/.exec(after)?.[1] ?? 0) + 1;
    if (page < 10) return Array.from({ length: limit }, (_, n) => `${prefix}none-page${page}-${n}`);
    searching -= 1;
    return search(prefix, '', limit);
  });
  const spellings = ['#', '+/#', '+/+/#', '+/v1/#', f.topic('#'), f.topic('+'), '+/+/+/+/+/chat'];
  for (let messageId = 1; messageId <= 20; messageId += 1)
    device.send({ cmd: 'subscribe', messageId, subscriptions: spellings.map((topic) => ({ topic, qos: 0 as const })) });
  const packets: string[] = [];
  while (packets.length < 40) {
    const packet = await device.next();
    // That the device has connected comes at some time.
    if (packet.cmd !== 'publish' || packet.topic === f.topic('chat')) packets.push(packet.cmd);
  }
  t.equal(packets.filter((cmd) => cmd === 'publish').length, 20, 'once for each SUBSCRIBE');
  t.same([...prefixes], [f.topic('')]);
  t.equal(searches, 20);
  t.equal(maxAtOnce, 1);
});

t.test('what is retained is found by every filter that matches its topic, and by no other', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  await published(await connected(t, f.service.server, f), f.topic('chat'), 'retained', { retain: true });
  const chat = f.topic('chat');
  const found = ['#', '+/#', `${chat}/#`, f.topic('#'), f.topic('+'), chat.replace(/^[^/]+/, '+'), '+/+/+/+/+/chat'];
  for (const filter of found) t.same(await retainedOn(t, f, filter), ['retained'], filter);
  for (const filter of ['+', '+/+', `${chat}/+`, f.topic('temperature'), '+/+/+/+/+/temperature', '+/+/+/+/+/+/+'])
    t.same(await retainedOn(t, f, filter), [], filter);
});

t.test('a search ends when its client has gone', async (t) => {
  const f = await fixture(t);
  const device = await connected(t, f.service.server, f);
  let pages = 0;
  interceptSearches(t, f.service, (_search, prefix, _after, limit) => {
    if (prefix === '') return [];
    pages += 1;
    return Array.from({ length: limit }, (_, n) => `${prefix}none-${pages}-${n}`);
  });
  device.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: '#', qos: 0 }] });
  t.match(await device.next(), { cmd: 'suback' });
  device.socket.destroy();
  await until(async () => (await metric(f, 'slipway_mqtt_sockets')) === 0);
  const before = pages;
  for (let turns = 0; turns < 100; turns += 1) await nextTurn();
  t.ok(before > 0);
  t.ok(pages <= before + 1, `${pages - before} pages in a hundred turns; an endless search takes one in each`);
});

/** One write of packets. */
function inOneWrite(client: { socket: Socket }, ...packets: Packet[]): void {
  client.socket.write(Buffer.concat(packets.map((packet) => generate(packet))));
}

/** What is retained on a topic of a device, for somebody who subscribes now. */
async function retainedOn(t: Test, f: Fixture, topic: string): Promise<string[]> {
  const client = await connected(t, f.service.server, f, { clientId: 'reader' });
  client.send(subscribePacket(1, [topic, 1]));
  t.match(await client.next(), { cmd: 'suback' });
  const found = texts((await taken(client, () => true)).filter(({ retain }) => retain));
  await disconnected(client);
  return found;
}

t.test('the birth of a device comes after its will, whatever their QoS is', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const listener = await connected(t, f.service.server, f, { clientId: 'listener' });
  await subscribed(listener, [f.topic('chat'), 1]);
  for (const willQos of [0, 1, 2] as const)
    for (const retain of [true, false]) {
      const will = { topic: f.topic('chat'), payload: Buffer.from('Offline'), qos: willQos, retain };
      const login = { username: f.device.id, password: Buffer.from(f.secret), clientId: 'tasmota', will };
      for (let round = 0; round < 5; round += 1) {
        await connected(t, f.service.server, f, { clientId: 'tasmota', will });
        const next = await rawClient(t, f.service.server.mqttPort);
        inOneWrite(next, connectPacket(login), publishPacket(f.topic('chat'), 'Online', { qos: 0, retain }));
        t.match(await next.next(), { cmd: 'connack', returnCode: 0 });
        const heard = texts(await taken(listener, (messages) => messages.length >= 2));
        t.same(heard, ['Offline', 'Online'], `a will of QoS ${willQos}, retained: ${retain}`);
        if (retain) t.same(await retainedOn(t, f, f.topic('chat')), ['Online']);
        await disconnected(next);
      }
    }
});

t.test(
  'what a client retains comes after what it retained on the connection before, whatever their QoS is',
  async (t) => {
    const f = await fixtureIn(await sharedService(t));
    const listener = await connected(t, f.service.server, f, { clientId: 'listener' });
    await subscribed(listener, [f.topic('chat'), 1]);
    const login = { username: f.device.id, password: Buffer.from(f.secret), clientId: 'again' };
    let former = 0;
    for (const qos of [1, 2] as const)
      for (let round = 0; round < 10; round += 1) {
        const [before, next] = [
          await connected(t, f.service.server, f, login),
          await rawClient(t, f.service.server.mqttPort),
        ];
        const birth = publishPacket(f.topic('chat'), `now ${round}`, { qos: 0, retain: true });
        before.send(publishPacket(f.topic('chat'), `before ${round}`, { qos, messageId: 1, retain: true }));
        inOneWrite(next, connectPacket(login), birth);
        t.match(await next.next(), { cmd: 'connack', returnCode: 0 });
        next.send({ cmd: 'pingreq' });
        t.match(await next.next(), { cmd: 'pingresp' });
        const heard = texts(await taken(listener, (messages) => texts(messages).includes(`now ${round}`)));
        t.same(heard.slice(-1), [`now ${round}`], `QoS ${qos}`);
        former += heard.length - 1;
        t.same(await retainedOn(t, f, f.topic('chat')), [`now ${round}`]);
        await disconnected(next);
      }
    t.ok(former > 0, 'some have come before their connection was taken over');
  },
);

t.test('what a client says comes after what it said on the connection before, and after its will', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const listener = await connected(t, f.service.server, f, { clientId: 'listener' });
  await subscribed(listener, [f.topic('temperature'), 1], [f.topic('chat'), 1]);
  const will = { topic: f.topic('temperature'), payload: Buffer.from('2'), qos: 1 as const, retain: false };
  const login = { username: f.device.id, password: Buffer.from(f.secret), clientId: 'again' };
  const before = await connected(t, f.service.server, f, { ...login, will });
  const next = await rawClient(t, f.service.server.mqttPort);
  const stores: Array<() => void> = [];
  const restore = interceptPoints(t, f.service, (store) => stores.push(store));
  before.send(publishPacket(f.topic('temperature'), '1', { qos: 1, messageId: 1 }));
  await until(() => stores.length === 1);
  const birth = publishPacket(f.topic('chat'), 'Online', { qos: 0 });
  inOneWrite(next, connectPacket(login), birth, publishPacket(f.topic('temperature'), '3', { qos: 1, messageId: 1 }));
  t.match(await next.next(), { cmd: 'connack', returnCode: 0 });
  // The birth has come: what was sent after it is there.
  await until(() => stores.length === 3);
  restore();
  for (const store of stores) store();
  t.same(texts(await taken(listener, (messages) => messages.length >= 4)), ['1', '2', 'Online', '3']);
});

t.test('a retained message of QoS 0 comes after one that is being stored, also that of another client', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const first = await connected(t, f.service.server, f, { clientId: 'first' });
  const second = await connected(t, f.service.server, f, { clientId: 'second' });
  const listener = await connected(t, f.service.server, f, { clientId: 'listener' });
  await subscribed(listener, [f.topic('chat'), 1]);
  for (let round = 0; round < 10; round += 1) {
    const held: Array<() => void> = [];
    let isStoring = false;
    const restore = interceptSessions(t, f.service, (write, kinds) => {
      held.push(() => write());
      isStoring ||= kinds.includes('retain');
    });
    first.send(publishPacket(f.topic('chat'), `stored ${round}`, { qos: 1, messageId: 1, retain: true }));
    await until(() => isStoring);
    second.send(publishPacket(f.topic('chat'), `at once ${round}`, { qos: 0, retain: true }));
    // What is sent after it is answered.
    listener.send({ cmd: 'pingreq' });
    t.match(await listener.next(), { cmd: 'pingresp' });
    restore();
    for (const write of held) write();
    const heard = texts(await taken(listener, (messages) => messages.length >= 2));
    t.same(heard, [`stored ${round}`, `at once ${round}`]);
    t.same(await retainedOn(t, f, f.topic('chat')), [`at once ${round}`]);
  }
});

t.test('who subscribes while messages flow gets one retained message, and after it those that follow', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const sender = await connected(t, f.service.server, f, { clientId: 'sender' });
  let sent = 0;
  const send = () => {
    sent += 1;
    sender.send(publishPacket(f.topic('chat'), `${sent}`, { qos: 1, messageId: 1 + (sent % 60_000), retain: true }));
  };
  await published(sender, f.topic('chat'), '0', { retain: true });
  let isOver = false;
  for (let ahead = 0; ahead < 20; ahead += 1) send();
  const flows = (async () => {
    for (; !isOver; send()) await sender.next();
  })();
  for (let round = 0; round < 40; round += 1) {
    const clean = round % 2 === 0;
    const client = await connected(t, f.service.server, f, { clientId: `late ${round}`, clean });
    client.send(subscribePacket(1, [f.topic('chat'), 1]));
    t.match(await client.next(), { cmd: 'suback' });
    const messages = await taken(client, (some) => some.length >= 10);
    t.same(
      messages.map(({ retain }) => retain),
      messages.map((_, at) => at === 0),
      'the first is the retained one',
    );
    const numbers = texts(messages).map(Number);
    t.same(
      numbers,
      numbers.map((_, at) => (numbers[0] as number) + at),
      'and none is missing',
    );
    await disconnected(client);
  }
  isOver = true;
  await flows;
});

t.end();
