/** What MQTT sessions are promised across the end of a process, clean or not. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Packet } from 'mqtt-packet';
import t, { type Test } from 'tap';
import { type Running, startProcess } from '../support/process.js';
import { startService } from '../support/service.js';
import { type Fixture, fixture, rawConnected, sibling, stored } from './fixture.js';
import { connectPacket, publishPacket, type RawClient, rawClient, subscribePacket } from './raw.js';

interface Message {
  cmd: string;
  topic: string;
  payload: Buffer;
  qos: number;
  dup: boolean;
  retain: boolean;
  messageId: number;
}
type Who = Pick<Fixture, 'device' | 'secret'>;

/** Things of a fixture whose service has ended, so that a process can take its directory. */
async function left(t: Test, env: Record<string, string> = {}): Promise<Fixture & { other: Fixture }> {
  const f = await fixture(t, env);
  const other = await sibling(f);
  await f.service.close();
  return { ...f, other };
}

const start = (t: Test, { service }: Fixture, env = {}) => startProcess(t, service.directory, env);
const keeper = { clientId: 'keeper', clean: false };

/** A connection of a device, and whether it found its session. */
async function connected(
  t: Test,
  { mqttPort }: Pick<Running, 'mqttPort'>,
  { device, secret }: Who,
  more: object = {},
): Promise<RawClient & { sessionPresent: boolean }> {
  const client = await rawClient(t, mqttPort);
  client.send(connectPacket({ username: device.id, password: Buffer.from(secret), ...more }));
  const connack = (await client.next()) as Packet & { sessionPresent: boolean };
  t.match(connack, { cmd: 'connack', returnCode: 0 });
  return { ...client, sessionPresent: connack.sessionPresent };
}

async function subscribed(client: RawClient, ...filters: Array<[string, 0 | 1 | 2]>): Promise<number[]> {
  client.send(subscribePacket(1, ...filters));
  for (;;) {
    const packet = await client.next();
    if (packet.cmd === 'suback') return packet.granted as number[];
  }
}

async function disconnected(client: RawClient): Promise<void> {
  client.send({ cmd: 'disconnect' });
  await client.closed;
}

/** Publishes and waits for the acknowledgement: PUBACK, or PUBREC and PUBCOMP. */
async function published(client: RawClient, topic: string, payload: string, more: object = {}): Promise<void> {
  client.send(publishPacket(topic, payload, { qos: 1, messageId: 7, ...more }));
  for (;;) {
    const { cmd, messageId } = await client.next();
    if (cmd === 'pubrec') client.send({ cmd: 'pubrel', messageId: messageId as number });
    if (cmd === 'puback' || cmd === 'pubcomp') return;
  }
}

/** Takes and acknowledges messages until `enough`, and what follows within two round trips. */
async function taken(client: RawClient, enough: (messages: Message[]) => boolean): Promise<Message[]> {
  const messages: Message[] = [];
  let pings = 0;
  client.send({ cmd: 'pingreq' });
  while (pings < 2) {
    const packet = (await client.next()) as Packet & Message;
    const { messageId } = packet;
    if (packet.cmd === 'pingresp') {
      if (enough(messages)) pings += 1;
      client.send({ cmd: 'pingreq' });
    } else if (packet.cmd === 'pubrel') client.send({ cmd: 'pubcomp', messageId });
    else {
      messages.push(packet);
      if (packet.qos > 0) client.send({ cmd: packet.qos === 1 ? 'puback' : 'pubrec', messageId });
    }
  }
  return messages;
}

/** For what nobody announces: what the disk holds in the end. */
async function until(isTrue: () => boolean): Promise<void> {
  while (!isTrue()) await nextTurn();
}

const texts = (messages: Message[]) => messages.map(({ payload }) => payload.toString());

for (const channel of ['chat', 'temperature'])
  t.test(`acknowledged on ${channel} before kill -9 reaches an absent subscriber, in order, QoS 2 once`, async (t) => {
    const f = await left(t);
    const server = await start(t, f);
    const subscriber = await connected(t, server, f, keeper);
    t.same(await subscribed(subscriber, [f.topic(channel), 2]), [2]);
    await disconnected(subscriber);

    const publisher = await connected(t, server, f, { clientId: 'publisher', clean: false });
    const acknowledged: number[] = [];
    let sent = 0;
    // The packet id is the number of the message; odd ones go with QoS 1, even ones with QoS 2.
    const publish = () => {
      sent += 1;
      publisher.send(publishPacket(f.topic(channel), `${sent}`, { qos: sent % 2 ? 1 : 2, messageId: sent }));
    };
    for (let n = 0; n < 50; n += 1) publish();
    while (acknowledged.length < 1000) {
      const { cmd, messageId = 0 } = (await publisher.next()) as { cmd: string; messageId?: number };
      if (cmd === 'puback' || cmd === 'pubrec') {
        acknowledged.push(messageId);
        publish();
      }
      if (cmd === 'pubrec') publisher.send({ cmd: 'pubrel', messageId });
    }
    t.equal(await server.stop('SIGKILL'), 'SIGKILL');

    const again = await start(t, f);
    const back = await connected(t, again, f, keeper);
    t.equal(back.sessionPresent, true, 'the subscription is still there');
    const has = (messages: Message[]) => new Set(texts(messages).map(Number));
    const messages = await taken(back, (soFar) => acknowledged.every((n) => has(soFar).has(n)));
    for (const parity of [0, 1]) {
      const numbers = texts(messages)
        .map(Number)
        .filter((n) => n % 2 === parity);
      t.same(
        numbers,
        [...new Set(numbers)].sort((a, b) => a - b),
        parity ? 'QoS 1 in order' : 'QoS 2 in order and once',
      );
    }
    await disconnected(back);
    t.equal(await again.stop('SIGTERM'), 0);

    const third = await start(t, f);
    const last = await connected(t, third, f, keeper);
    t.same(await taken(last, () => true), [], 'what the subscriber has acknowledged does not come again');
  });

t.test('a clean restart loses nothing of a session; retained messages stay, cleared ones are gone', async (t) => {
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    const f = await left(t);
    const server = await start(t, f);
    const subscriber = await connected(t, server, f, keeper);
    await subscribed(subscriber, [f.topic('chat'), 1], [f.topic('_set/fields'), 1]);
    await disconnected(subscriber);
    const publisher = await connected(t, server, f);
    for (const text of ['one', 'two', '']) await published(publisher, f.topic('chat'), text);
    await published(publisher, f.topic('_set/fields'), '{"state":{"name":"lamp"}}');
    await published(publisher, f.topic('temperature'), '20', { retain: true });
    await published(publisher, f.topic('temperature'), '21', { retain: true, qos: 2 });
    await published(publisher, f.other.topic('chat').replace(f.other.device.id, f.device.id), 'kept', { retain: true });
    await published(publisher, f.topic('chat'), '', { retain: true });
    await server.stop(signal);

    const again = await start(t, f);
    const back = await connected(t, again, f, keeper);
    t.equal(back.sessionPresent, true);
    const messages = await taken(back, ({ length }) => length >= 6);
    t.same(texts(messages), ['one', 'two', '', '{"state":{"name":"lamp"}}', 'kept', ''], signal);
    t.same(
      messages.map(({ retain, dup }) => retain || dup),
      messages.map(() => false),
    );
    for (const filter of [f.topic('temperature'), f.topic('+'), '#', f.topic('temperature/#')]) {
      const reader = await connected(t, again, f, { clientId: 'reader' });
      await subscribed(reader, [filter, 1]);
      const kept = (await taken(reader, ({ length }) => length > 0)).filter(({ retain }) => retain);
      t.match(kept, [{ topic: f.topic('temperature'), payload: Buffer.from('21') }], filter);
      t.equal(kept.length, 1);
      await disconnected(reader);
    }
    await again.stop('SIGTERM');
  }
});

t.test('a QoS 2 message of a stored session is stored once, with kill -9 between PUBLISH and PUBREL', async (t) => {
  const f = await left(t);
  const server = await start(t, f);
  const publish = (n: number, more = {}) =>
    publishPacket(f.topic('temperature'), `${n}`, { qos: 2, messageId: 9, ...more });
  const first = await connected(t, server, f, keeper);
  first.send(publish(1));
  t.match(await first.next(), { cmd: 'pubrec', messageId: 9 });
  await server.stop('SIGKILL');

  const again = await start(t, f);
  const second = await connected(t, again, f, keeper);
  second.send(publish(1, { dup: true }));
  t.match(await second.next(), { cmd: 'pubrec', messageId: 9 });
  second.send({ cmd: 'pubrel', messageId: 9 });
  t.match(await second.next(), { cmd: 'pubcomp', messageId: 9 });
  await again.stop('SIGKILL');

  const service = await startService(t, { directory: f.service.directory });
  const g = { ...f, service };
  const third = await rawConnected(t, g, keeper);
  third.send(publish(2));
  t.match(await third.next(), { cmd: 'pubrec', messageId: 9 });
  t.same(await stored(g), [2, 1], 'and after PUBCOMP the packet id names a new message');
});

t.test('a QoS 2 message goes on after kill -9 where its subscriber was', async (t) => {
  const f = await left(t);
  const server = await start(t, f);
  const subscriber = await connected(t, server, f, keeper);
  await subscribed(subscriber, [f.topic('chat'), 2]);
  const publisher = await connected(t, server, f);
  await published(publisher, f.topic('chat'), 'received', { qos: 2 });
  const { messageId: received } = await subscriber.next();
  subscriber.send({ cmd: 'pubrec', messageId: received as number });
  t.match(await subscriber.next(), { cmd: 'pubrel', messageId: received });
  await published(publisher, f.topic('chat'), 'sent', { qos: 2 });
  const { messageId: sent } = await subscriber.next();
  await server.stop('SIGKILL');

  const again = await start(t, f);
  const back = await connected(t, again, f, keeper);
  t.match(await back.next(), { cmd: 'pubrel', messageId: received }, 'only released again');
  t.match(await back.next(), { cmd: 'publish', messageId: sent, dup: true, payload: Buffer.from('sent') });
});

t.test('a filter that was denied stays denied, and one that was given up stays away', async (t) => {
  const f = await left(t);
  const server = await start(t, f, { SLIPWAY_MQTT_MAX_SUBSCRIPTIONS: '2' });
  const subscriber = await connected(t, server, f, keeper);
  const filters = [f.topic('_log'), f.topic('chat'), f.topic('temperature')];
  t.same(await subscribed(subscriber, ...filters.map((filter): [string, 1] => [filter, 1])), [1, 1, 128]);
  subscriber.send({ cmd: 'unsubscribe', messageId: 2, unsubscriptions: [f.topic('_log')] } as Packet);
  t.match(await subscriber.next(), { cmd: 'unsuback', messageId: 2 });
  await server.stop('SIGKILL');

  const again = await start(t, f);
  const publisher = await connected(t, again, f);
  for (const filter of filters) await published(publisher, filter, '1');
  const back = await connected(t, again, f, keeper);
  for (const filter of filters) await published(publisher, filter, '2');
  const messages = await taken(back, ({ length }) => length >= 2);
  t.same(
    messages.map(({ topic }) => topic),
    [f.topic('chat'), f.topic('chat')],
  );
});

t.test('two principals with one client id stay apart', async (t) => {
  const f = await left(t);
  const server = await start(t, f);
  for (const one of [f, f.other]) {
    const client = await connected(t, server, one, keeper);
    await subscribed(client, [one.topic('chat'), 1], ['#', 1]);
    await disconnected(client);
  }
  for (const one of [f, f.other]) {
    const client = await connected(t, server, one);
    await published(client, one.topic('chat'), one.device.id);
  }
  await server.stop('SIGKILL');
  const again = await start(t, f);
  for (const one of [f, f.other]) {
    const client = await connected(t, again, one, keeper);
    const messages = await taken(client, (soFar) => soFar.some(({ topic }) => topic === one.topic('chat')));
    t.same([...new Set(messages.map(({ topic }) => topic.split('/d/')[1]?.split('/')[0]))], [one.device.id]);
  }
});

t.test('a message that comes while a session gets its queue does not overtake it', async (t) => {
  const f = await left(t);
  const server = await start(t, f);
  const subscriber = await connected(t, server, f, keeper);
  await subscribed(subscriber, [f.topic('chat'), 1]);
  await disconnected(subscriber);
  const publisher = await connected(t, server, f);
  const publish = (n: number) =>
    publisher.send(publishPacket(f.topic('chat'), `${n}`, { qos: 1, messageId: (n % 60_000) + 1 }));
  const acknowledged = async (count: number) => {
    for (let n = 0; n < count; n += 1) await publisher.next();
  };
  for (let n = 0; n < 500; n += 1) publish(n);
  await acknowledged(500);
  const connecting = connected(t, server, f, keeper);
  let last = 500;
  const back = await connecting;
  const flood = (async () => {
    for (; last < 1000; last += 10) {
      for (let n = 0; n < 10; n += 1) publish(last + n);
      await acknowledged(10);
    }
  })();
  const messages = await taken(back, ({ length }) => length >= 1000);
  await flood;
  t.same(
    texts(messages),
    Array.from({ length: 1000 }, (_, n) => `${n}`),
  );
});

t.test('the wills of a crashed process are published once, of clients that stay away and still may', async (t) => {
  const f = await left(t);
  const server = await start(t, f);
  const willOf = (who: Fixture, payload: string) => ({
    will: { topic: who.topic('temperature'), payload: Buffer.from(payload), qos: 1, retain: false },
  });
  const cutOff = f.other;
  await connected(t, server, f, { clientId: 'away', ...willOf(f, '1') });
  await connected(t, server, f, { clientId: 'back', ...willOf(f, '2') });
  await connected(t, server, cutOff, { clientId: 'cut off', ...willOf(cutOff, '3') });
  await disconnected(await connected(t, server, f, { clientId: 'polite', ...willOf(f, '4') }));
  const taker = { clientId: 'taker', clean: false };
  const over = await connected(t, server, f, { ...taker, ...willOf(f, '5') });
  await connected(t, server, f, { ...taker, ...willOf(f, '6') });
  await over.closed;
  // What is asked for now is answered after the wills are on disk.
  await subscribed(await connected(t, server, f, keeper), [f.topic('temperature'), 1]);
  await server.stop('SIGKILL');

  let now = Date.now();
  const clock = { now: () => now };
  const service = await startService(t, { directory: f.service.directory, clock });
  const g = { ...f, service };
  t.same(await stored(g), [5], 'only the one that was taken over has spoken so far');
  await service.credential(cutOff.device.id);
  const witness = await rawConnected(t, g, keeper);
  const heard = new Promise<string[]>((resolve) => {
    const texts: string[] = [];
    const listen = async () => {
      const { cmd, payload } = (await witness.next()) as Message;
      if (cmd === 'publish') texts.push(`${payload}`);
      if (texts.length === 2) resolve(texts);
      else void listen();
    };
    void listen();
  });
  await rawConnected(t, g, { clientId: 'back' });
  now += 59_000;
  t.same(await stored(g), [5]);
  now += 1000;
  t.same((await heard).sort(), ['1', '6'], 'the stored session hears them as well');
  t.same((await stored(g)).sort(), [1, 5, 6]);
  t.same(await stored({ ...g, device: cutOff.device }), [], 'a principal that was cut off is silent');
  await service.close();

  const later = await startService(t, { directory: f.service.directory, clock });
  now += 120_000;
  await rawConnected(t, { ...f, service: later });
  await until(() => later.server.ctx.messages.mqtt.wills().length === 0);
  t.same((await stored({ ...f, service: later })).sort(), [1, 5, 6], 'and never again');
});

t.test('a session that nobody came back to ends after its time, with what was queued for it', async (t) => {
  let now = Date.now();
  const f = await fixture(t, { SLIPWAY_MQTT_SESSION_EXPIRY_HOURS: '3' }, { clock: { now: () => now } });
  const { mqtt } = f.service.server.ctx.messages;
  for (const clientId of ['early', 'late', 'here']) {
    const client = await rawConnected(t, f, { clientId, clean: false });
    await subscribed(client, [f.topic('chat'), 1]);
    if (clientId !== 'here') {
      await disconnected(client);
      await until(() => [...mqtt.sessions()].some((row) => row.clientId.endsWith(`/${clientId}`) && row.left === now));
    }
    now += 3_600_000;
  }
  const publisher = await rawConnected(t, f);
  await published(publisher, f.topic('chat'), 'x');
  await until(() => ![...mqtt.sessions()].some(({ clientId }) => clientId.endsWith('/early')));
  const ids = [...mqtt.sessions()].map(({ clientId }) => clientId.split('/')[2]).sort();
  t.same(ids, ['here', 'late']);
  t.equal([...mqtt.subscriptions()].length, 2);
});

t.test('a queue keeps its last messages over a restart, as many as are allowed', async (t) => {
  const f = await left(t);
  const server = await start(t, f, { SLIPWAY_MQTT_MAX_QUEUE: '4' });
  const subscriber = await connected(t, server, f, keeper);
  await subscribed(subscriber, [f.topic('chat'), 1]);
  await disconnected(subscriber);
  const publisher = await connected(t, server, f);
  for (let n = 1; n <= 9; n += 1) await published(publisher, f.topic('chat'), `${n}`);
  await server.stop('SIGTERM');
  const again = await start(t, f, { SLIPWAY_MQTT_MAX_QUEUE: '3' });
  const back = await connected(t, again, f, keeper);
  t.same(texts(await taken(back, ({ length }) => length >= 3)), ['7', '8', '9']);
});

t.test('a clean session leaves nothing of the stored one before it', async (t) => {
  const f = await fixture(t);
  const { mqtt } = f.service.server.ctx.messages;
  const first = await rawConnected(t, f, keeper);
  await subscribed(first, [f.topic('chat'), 1]);
  await disconnected(first);
  await published(await rawConnected(t, f), f.topic('chat'), 'x');
  t.equal([...mqtt.queue()].length, 1);
  await rawConnected(t, f, { ...keeper, clean: true });
  await until(() => [...mqtt.sessions(), ...mqtt.subscriptions(), ...mqtt.queue()].length === 0);
  t.pass('nothing is left on disk');
});

t.test('what the store refuses is not acknowledged, and the session goes on as it was', async (t) => {
  const f = await fixture(t);
  const { messages } = f.service.server.ctx;
  const subscriber = await rawConnected(t, f, keeper);
  await subscribed(subscriber, [f.topic('chat'), 1]);
  await disconnected(subscriber);
  const record = messages.record.bind(messages);
  messages.record = (_, done) => setImmediate(done, new Error('the disk is full'));
  const refused = await rawConnected(t, f);
  refused.send(publishPacket(f.topic('chat'), 'refused', { qos: 1, messageId: 1 }));
  await refused.closed;
  await t.rejects(refused.next(), 'no PUBACK');
  messages.record = record;
  await published(await rawConnected(t, f), f.topic('chat'), 'accepted');
  const back = await rawConnected(t, f, keeper);
  t.same(texts(await taken(back, ({ length }) => length > 0)), ['accepted']);
});
