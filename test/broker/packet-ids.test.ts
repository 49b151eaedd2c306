/** Packet ids: one message at a time has an id, on every connection of a session, and few messages are under way at once. */
import { once } from 'node:events';
import { createServer, connect as open, type Socket } from 'node:net';
import mqtt from 'mqtt';
import type { Test } from 'tap';
import { lastPacketId, PacketIds } from '../../broker/sessions/packet-ids.ts';
import { part } from '../support/part.ts';
import { startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { type Message, texts } from './conversation.ts';
import { type Fixture, fixture, fixtureIn } from './fixture.ts';
import { metric } from './metrics.ts';
import { connectPacket, publishPacket, type RawClient, rawClient, subscribePacket } from './raw.ts';

const t = await part(import.meta);

type Level = 3 | 4 | 5;
/** `role` is in the client id. */
type Options = { clean?: boolean; role?: string; receiveMaximum?: number };
const levels = [4, 5] as const;

/** CONNECT of a client with a stored session, or without one. */
function connecting({ device, secret }: Fixture, level: Level, { clean = false, role = '', ...more }: Options) {
  const properties = level === 5 ? { properties: { sessionExpiryInterval: clean ? 0 : 1000, ...more } } : {};
  const who = { username: device.id, password: Buffer.from(secret), protocolVersion: level, clean };
  if (level === 3) Object.assign(who, { protocolId: 'MQIsdp' });
  return connectPacket({ clientId: `${role}, level ${level}, clean ${clean}`, ...who, ...properties });
}

async function connected(t: Test, f: Fixture, level: Level, more: Options = {}) {
  const client = await rawClient(t, f.service.server.mqttPort, level === 5 ? 5 : 4);
  client.send(connecting(f, level, more));
  t.match(await client.next(), { cmd: 'connack' });
  return client;
}

async function subscribed(client: RawClient, topic: string, qos: 1 | 2 = 1): Promise<void> {
  client.send(subscribePacket(1, [topic, qos]));
  while ((await client.next()).cmd !== 'suback');
}

/** The next so many messages, and that nothing follows them until a PINGREQ is answered. */
async function next(t: Test, client: RawClient, count: number): Promise<Message[]> {
  const messages: Message[] = [];
  for (let isAsked = false; ; ) {
    if (!isAsked && messages.length >= count) client.send({ cmd: 'pingreq' });
    isAsked ||= messages.length >= count;
    const packet = await client.next();
    if (packet.cmd === 'publish') messages.push(packet as unknown as Message);
    if (packet.cmd !== 'pingresp') continue;
    t.equal(messages.length, count, 'so many and no more');
    return messages;
  }
}

const ack = ({ messageId }: Message) => ({ cmd: 'puback', messageId }) as const;

/** Publishes texts from `from` on, some at a time, each acknowledged; `between` is called after each of these. */
async function publish(f: Fixture, publisher: RawClient, count: number, between = async () => {}): Promise<void> {
  const atOnce = 500;
  for (let n = 0; n < count; n += atOnce) {
    const few = Array.from({ length: Math.min(atOnce, count - n) }, (_, at) => n + at);
    publisher.send(
      ...few.map((one) => publishPacket(f.topic('chat'), `${one}`, { qos: 1, messageId: (one % atOnce) + 1 })),
    );
    for (const _ of few) await publisher.next();
    await between();
  }
}

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, n) => `${from + n}`);

t.test('a retained message has no packet id of a message that a stored session has sent before', async (t) => {
  const retained = Array.from({ length: 40 }, (_, n) => ({ name: `r${n}`, persistenceType: 'simple' }));
  const service = await sharedService(t);
  // Every connection begins with the same id, where it begins with any.
  const { random } = Math;
  Math.random = () => 0.25;
  t.teardown(() => {
    Math.random = random;
  });
  for (const level of levels) {
    const own = await fixtureIn(service);
    const template = await service.template({ channels: [...retained, { name: 'chat', persistenceType: 'simple' }] });
    const { device, secret } = await service.device({ deviceTemplateId: template.id });
    const f = { ...own, device, secret, topic: (name: string) => service.topic(device.id, name) };
    const publisher = await connected(t, f, 4, { clean: true, role: 'publisher' });
    for (const { name } of retained) {
      publisher.send(publishPacket(f.topic(name), 'x', { qos: 1, messageId: 1, retain: true }));
      await publisher.next();
    }
    const first = await connected(t, f, level);
    await subscribed(first, f.topic('chat'));
    const count = 900;
    await publish(f, publisher, count);
    await next(t, first, count);
    first.socket.destroy();
    const second = await rawClient(t, service.server.mqttPort, level);
    second.send(connecting(f, level, { receiveMaximum: 500 }), subscribePacket(1, [f.topic('+'), 1]));
    const ids = new Set<number>();
    const found: string[] = [];
    const left = new Set(numbers(0, count));
    while (found.length < retained.length) {
      const packet = (await second.next()) as unknown as Message;
      if (packet.cmd !== 'publish') continue;
      t.notOk(ids.has(packet.messageId), 'no two that are not acknowledged have the same id');
      const text = packet.payload.toString();
      if (packet.retain) found.push(packet.topic);
      // What is acknowledged makes room, and is all that leaves the session.
      if (packet.retain || text.endsWith('5')) second.send(ack(packet));
      else ids.add(packet.messageId);
      if (!packet.retain && text.endsWith('5')) left.delete(text);
    }
    second.send({ cmd: 'pingreq' });
    while ((await second.next()).cmd !== 'pingresp');
    second.socket.destroy();
    const third = await connected(t, f, level);
    t.same(texts(await next(t, third, left.size)), [...left], `level ${level}: the others come again`);
    third.socket.destroy();
  }
});

t.test(
  'what is sent again has the packet id and the QoS of the first time, whatever was subscribed to since',
  async (t) => {
    for (const level of levels) {
      const f = await fixture(t);
      const publisher = await connected(t, f, 4, { clean: true, role: 'publisher' });
      const first = await connected(t, f, level);
      const sent: Message[] = [];
      for (const [text, qos] of [
        ['a', 1],
        ['b', 2],
      ] as const) {
        await subscribed(first, f.topic('chat'), qos);
        publisher.send(publishPacket(f.topic('chat'), text, { qos: 2, messageId: 9 }));
        t.match(await publisher.next(), { cmd: 'pubrec' });
        publisher.send({ cmd: 'pubrel', messageId: 9 });
        t.match(await publisher.next(), { cmd: 'pubcomp' });
        sent.push(...(await next(t, first, 1)));
      }
      const about = ({ payload, messageId, qos, dup }: Message) => ({ text: `${payload}`, messageId, qos, dup });
      t.same(sent.map(about), [
        { text: 'a', messageId: sent[0]?.messageId, qos: 1, dup: false },
        { text: 'b', messageId: sent[1]?.messageId, qos: 2, dup: false },
      ]);
      const again = sent.map((message) => ({ ...about(message), dup: true }));
      first.socket.destroy();
      const second = await connected(t, f, level);
      t.same((await next(t, second, 2)).map(about), again, `level ${level}: two of one subscription`);
      await subscribed(second, f.topic('chat'), 1);
      second.socket.destroy();
      const third = await connected(t, f, level);
      t.same((await next(t, third, 2)).map(about), again, 'with less');
      third.send({ cmd: 'unsubscribe', messageId: 1, unsubscriptions: [f.topic('chat')] });
      while ((await third.next()).cmd !== 'unsuback');
      third.socket.destroy();
      const fourth = await connected(t, f, level);
      t.same((await next(t, fourth, 2)).map(about), again, 'with none');
      await f.service.close();
      const service = await startService(t, { directory: f.service.directory });
      const fifth = await connected(t, { ...f, service }, level);
      const [, b] = (await next(t, fifth, 2)).map(about);
      t.same(b, again[1], 'and after a restart, where it was of QoS 2');
    }
  },
);

t.test('a client that acknowledges nothing is sent 1,000 messages, and the rest as it does', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const publisher = await connected(t, f, 4, { clean: true, role: 'publisher' });
  for (const level of [3, ...levels] as const)
    for (const clean of [true, false]) {
      const client = await connected(t, f, level, { clean });
      await subscribed(client, f.topic('chat'));
      const count = 2500;
      await publish(f, publisher, count);
      const heard = await next(t, client, 1000);
      t.same(texts(heard), numbers(0, 1000), `level ${level}, clean ${clean}`);
      for (let done = 0; done < count; done += 500) {
        client.send(...heard.slice(done, done + 500).map(ack));
        heard.push(...(await next(t, client, Math.min(500, count - heard.length))));
      }
      t.same(texts(heard), numbers(0, count), 'each once, in order');
      client.send({ cmd: 'disconnect' });
      await client.closed;
    }
});

t.test('an id costs the same however many are in use, and comes back as late as possible', async (t) => {
  const ids = new PacketIds();
  // As many as there may be; a search from one end would pass them each time.
  while (!ids.areShort) ids.expect(ids.take(), 'puback');
  let last = ids.take();
  let steps = 0;
  const count = 200_000;
  for (let n = 0; n < count; n += 1) {
    const id = ids.take();
    if (ids.awaited(id) !== undefined) t.fail(`${id} is in use`);
    steps += ((id - last - 1 + lastPacketId) % lastPacketId) + 1;
    last = id;
  }
  t.ok(steps <= 2 * count + lastPacketId, `${steps} steps for ${count} ids`);
});

t.test('more messages wait than there are packet ids, and others are answered meanwhile', async (t) => {
  const f = await fixture(t, {
    SLIPWAY_MQTT_MAX_QUEUE: '100000',
    SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0',
  });
  const first = await connected(t, f, 4);
  await subscribed(first, f.topic('chat'));
  const [publisher, other] = [await connected(t, f, 5, { clean: true }), await connected(t, f, 5)];
  const count = 67_000;
  let answers = 0;
  await publish(f, publisher, count, async () => {
    await next(t, other, 0);
    answers += 1;
  });
  t.equal(answers, count / 500);
  t.same(texts(await next(t, first, 1000)), numbers(0, 1000));
  first.socket.destroy();
  const again = await connected(t, f, 4);
  t.same(texts(await next(t, again, 1000)), numbers(0, 1000), 'the oldest are still there');
  t.equal(await metric(f, 'slipway_mqtt_dropped_messages_total{reason="queue"}'), 0);
});

/** A way to the service that can lose answers: it cuts the connection instead of passing on a packet of this type. */
async function losing(t: Test, port: number, type: number) {
  let isLosing = true;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const service = open(port, '127.0.0.1');
    for (const socket of [client, service]) {
      sockets.add(socket);
      socket.on('error', () => {});
    }
    client.on('data', (bytes) => service.write(bytes));
    client.on('close', () => service.destroy());
    service.on('close', () => client.destroy());
    service.on('data', (bytes) => {
      if (!isLosing || (bytes[0] as number) >> 4 !== type) {
        client.write(bytes);
        return;
      }
      isLosing = false;
      client.destroy();
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { port: (server.address() as { port: number }).port, hasLost: () => !isLosing };
}

t.test('MQTT.js publishes once at QoS 2 when PUBREC or PUBCOMP is lost with the connection', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const listener = await connected(t, f, 4, { clean: true });
  await subscribed(listener, f.topic('chat'));
  for (const protocolVersion of levels)
    for (const lost of [5, 7]) {
      const way = await losing(t, f.service.server.mqttPort, lost);
      const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${way.port}`, {
        ...{ protocolVersion, clientId: `${protocolVersion} ${lost}`, username: f.device.id, password: f.secret },
        ...{ clean: false, reconnectPeriod: 10, properties: { sessionExpiryInterval: 1000 } },
      });
      t.teardown(() => client.endAsync(true));
      const text = `level ${protocolVersion}, ${lost === 5 ? 'PUBREC' : 'PUBCOMP'}`;
      await client.publishAsync(f.topic('chat'), text, { qos: 2 });
      t.ok(way.hasLost(), text);
      await client.publishAsync(f.topic('chat'), `${text}, next`, { qos: 2 });
      t.same(texts(await next(t, listener, 2)), [text, `${text}, next`]);
      await client.endAsync();
    }
});

t.end();
