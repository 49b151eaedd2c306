/** What MQTT sessions are promised across the end of a process, clean or not. */
import type { Packet } from 'mqtt-packet';
import type { Test } from 'tap';
import { part } from '../support/part.ts';
import type { Running } from '../support/process.ts';
import { startService } from '../support/service.ts';
import * as conversation from './conversation.ts';
import { disconnected, keeper, type Message, published, start, subscribed, taken, texts } from './conversation.ts';
import { type Fixture, fixture, sibling, stored } from './fixture.ts';
import { publishPacket } from './raw.ts';

const t = await part(import.meta);

/** The processes on one data directory: how each ends, and its settings. The last one is a service of this process. */
const processes = [
  { ends: 'SIGKILL', env: { SLIPWAY_MQTT_MAX_SUBSCRIPTIONS: '2' } },
  { ends: 'SIGKILL', env: {} },
  { ends: 'SIGTERM', env: {} },
  { ends: 'SIGTERM', env: { SLIPWAY_MQTT_MAX_QUEUE: '6' } },
  { ends: undefined, env: { SLIPWAY_MQTT_MAX_QUEUE: '3' } },
] as const;

/** The process that runs now, and the test of what is done in it. */
interface Now {
  t: Test;
  server: Pick<Running, 'mqttPort'>;
}

type Who = Fixture & { other: Fixture };

/** What a device does in each process, until it yields. */
type Story = (f: Who, now: Now) => AsyncGenerator<void, void>;

/** A connection that is open until its process ends. */
const connected = ({ server }: Now, who: Fixture, more?: object) => conversation.connected(t, server, who, more);

/** Acknowledged before kill -9 of `processes[from]` reaches an absent subscriber, in order, QoS 2 once. */
const acknowledgedOn = (channel: string, from: number): Story =>
  async function* (f, now) {
    for (let n = 0; n < from; n += 1) yield;
    const subscriber = await connected(now, f, keeper);
    now.t.same(await subscribed(subscriber, [f.topic(channel), 2]), [2]);
    await disconnected(subscriber);

    const publisher = await connected(now, f, { clientId: 'publisher', clean: false });
    const acknowledged: number[] = [];
    let sent = 0;
    // The packet id is the number of the message; odd ones go with QoS 1, even ones with QoS 2.
    const publish = () => {
      sent += 1;
      publisher.send(publishPacket(f.topic(channel), `${sent}`, { qos: sent % 2 ? 1 : 2, messageId: sent }));
    };
    for (let n = 0; n < 50; n += 1) publish();
    while (acknowledged.length < 500) {
      const { cmd, messageId = 0 } = (await publisher.next()) as { cmd: string; messageId?: number };
      if (cmd === 'puback' || cmd === 'pubrec') {
        acknowledged.push(messageId);
        publish();
      }
      if (cmd === 'pubrec') publisher.send({ cmd: 'pubrel', messageId });
    }

    yield;
    const back = await connected(now, f, keeper);
    now.t.equal(back.sessionPresent, true, 'the subscription is still there');
    const has = (messages: Message[]) => new Set(texts(messages).map(Number));
    const messages = await taken(back, (soFar) => {
      const known = has(soFar);
      return acknowledged.every((n) => known.has(n));
    });
    for (const parity of [0, 1]) {
      const numbers = texts(messages)
        .map(Number)
        .filter((n) => n % 2 === parity);
      now.t.same(
        numbers,
        [...new Set(numbers)].sort((a, b) => a - b),
        parity ? 'QoS 1 in order' : 'QoS 2 in order and once',
      );
    }
    await disconnected(back);

    // What was published while the process was killed may come late.
    const had = has(messages);
    for (let n = 0; n < 2; n += 1) {
      yield;
      const last = await connected(now, f, keeper);
      const again = texts(await taken(last, () => true)).filter((text) => had.has(Number(text)));
      now.t.same(again, [], 'what the subscriber has acknowledged does not come again');
      await disconnected(last);
    }
  };

/** What a session and retained messages are after `processes[from]`. */
const keptBy = (from: number): Story =>
  async function* (f, now) {
    for (let n = 0; n < from; n += 1) yield;
    const isClean = processes[from]?.ends === 'SIGTERM';
    const subscriber = await connected(now, f, keeper);
    await subscribed(subscriber, [f.topic('chat'), 1], [f.topic('_set/fields'), 1]);
    await disconnected(subscriber);
    const publisher = await connected(now, f);
    for (const text of ['one', 'two', '']) await published(publisher, f.topic('chat'), text);
    await published(publisher, f.topic('_set/fields'), '{"state":{"name":"lamp"}}');
    await published(publisher, f.topic('temperature'), '20', { retain: true });
    await published(publisher, f.topic('temperature'), isClean ? '20' : '21', { retain: true, qos: 2 });
    // Of QoS 0 nothing is promised, but a clean end keeps it.
    if (isClean) publisher.send(publishPacket(f.topic('temperature'), '21', { retain: true }));
    await published(publisher, f.topic('chat'), 'kept', { retain: true });
    await published(publisher, f.topic('chat'), '', { retain: true });

    yield;
    const back = await connected(now, f, keeper);
    now.t.equal(back.sessionPresent, true);
    const messages = await taken(back, ({ length }) => length >= 6);
    now.t.same(texts(messages), ['one', 'two', '', '{"state":{"name":"lamp"}}', 'kept', '']);
    now.t.same(
      messages.map(({ retain, dup }) => retain || dup),
      messages.map(() => false),
    );
    for (const filter of [f.topic('temperature'), f.topic('+'), '#', f.topic('temperature/#')]) {
      const reader = await connected(now, f, { clientId: 'reader' });
      await subscribed(reader, [filter, 1]);
      const found = await taken(reader, (soFar) => soFar.some(({ retain }) => retain));
      const kept = found.filter(({ retain }) => retain);
      now.t.match(kept, [{ topic: f.topic('temperature'), payload: Buffer.from('21') }], filter);
      now.t.equal(kept.length, 1);
      await disconnected(reader);
    }
  };

const stories: Record<string, Story> = {
  'kill -9 loses nothing of a session; retained messages stay, cleared ones are gone': keptBy(1),
  'a clean end loses nothing of a session; retained messages stay, cleared ones are gone': keptBy(2),

  async *'a filter that was denied stays denied, and one that was given up stays away'(f, now) {
    const subscriber = await connected(now, f, keeper);
    const filters = [f.topic('_log'), f.topic('chat'), f.topic('temperature')];
    now.t.same(await subscribed(subscriber, ...filters.map((filter): [string, 1] => [filter, 1])), [1, 1, 128]);
    subscriber.send({ cmd: 'unsubscribe', messageId: 2, unsubscriptions: [f.topic('_log')] } as Packet);
    now.t.match(await subscriber.next(), { cmd: 'unsuback', messageId: 2 });

    yield;
    const publisher = await connected(now, f);
    for (const filter of filters) await published(publisher, filter, '1');
    const back = await connected(now, f, keeper);
    for (const filter of filters) await published(publisher, filter, '2');
    const messages = await taken(back, ({ length }) => length >= 2);
    now.t.same(
      messages.map(({ topic }) => topic),
      [f.topic('chat'), f.topic('chat')],
    );
  },

  async *'two principals with one client id stay apart'(f, now) {
    for (const one of [f, f.other]) {
      const client = await connected(now, one, keeper);
      await subscribed(client, [one.topic('chat'), 1], ['#', 1]);
      await disconnected(client);
    }
    for (const one of [f, f.other]) {
      const client = await connected(now, one);
      await published(client, one.topic('chat'), one.device.id);
    }

    yield;
    for (const one of [f, f.other]) {
      const client = await connected(now, one, keeper);
      const messages = await taken(client, (soFar) => soFar.some(({ topic }) => topic === one.topic('chat')));
      now.t.same([...new Set(messages.map(({ topic }) => topic.split('/d/')[1]?.split('/')[0]))], [one.device.id]);
    }
  },

  async *'a QoS 2 message is stored once, with kill -9 between PUBLISH and PUBREL'(f, now) {
    const publish = (n: number, more = {}) =>
      publishPacket(f.topic('temperature'), `${n}`, { qos: 2, messageId: 9, ...more });
    const first = await connected(now, f, keeper);
    first.send(publish(1));
    now.t.match(await first.next(), { cmd: 'pubrec', messageId: 9 });

    yield;
    const second = await connected(now, f, keeper);
    second.send(publish(1, { dup: true }));
    now.t.match(await second.next(), { cmd: 'pubrec', messageId: 9 });
    second.send({ cmd: 'pubrel', messageId: 9 });
    now.t.match(await second.next(), { cmd: 'pubcomp', messageId: 9 });

    yield;
    const third = await connected(now, f, keeper);
    third.send(publish(2));
    now.t.match(await third.next(), { cmd: 'pubrec', messageId: 9 });

    yield;
    yield;
    now.t.same(await stored(f), [2, 1], 'and after PUBCOMP the packet id names a new message');
  },

  async *'a QoS 2 message goes on where its subscriber was'(f, now) {
    const subscriber = await connected(now, f, keeper);
    await subscribed(subscriber, [f.topic('chat'), 2]);
    const publisher = await connected(now, f);
    await published(publisher, f.topic('chat'), 'received', { qos: 2 });
    const { messageId: received } = await subscriber.next();
    subscriber.send({ cmd: 'pubrec', messageId: received as number });
    now.t.match(await subscriber.next(), { cmd: 'pubrel', messageId: received });
    await published(publisher, f.topic('chat'), 'sent', { qos: 2 });
    const { messageId: sent } = await subscriber.next();

    yield;
    const back = await connected(now, f, keeper);
    now.t.match(await back.next(), { cmd: 'pubrel', messageId: received }, 'only released again');
    now.t.match(await back.next(), { cmd: 'publish', messageId: sent, dup: true, payload: Buffer.from('sent') });
  },

  async *'what was retained and has not been acknowledged is sent again'(f, now) {
    await published(await connected(now, f), f.topic('chat'), 'kept', { retain: true });
    const subscriber = await connected(now, f, keeper);
    await subscribed(subscriber, [f.topic('chat'), 1]);
    const kept = { cmd: 'publish', retain: true, payload: Buffer.from('kept') };
    now.t.match(await subscriber.next(), kept);

    yield;
    now.t.match(await (await connected(now, f, keeper)).next(), kept);

    yield;
    const back = await connected(now, f, keeper);
    now.t.match(await taken(back, ({ length }) => length > 0), [kept]);
    await disconnected(back);

    yield;
    now.t.same(await taken(await connected(now, f, keeper), () => true), [], 'and once it has been, no more');
  },

  async *'what was retained with QoS 2 goes on at its PUBREL'(f, now) {
    await published(await connected(now, f), f.topic('chat'), 'kept', { retain: true, qos: 2 });
    const subscriber = await connected(now, f, keeper);
    await subscribed(subscriber, [f.topic('chat'), 2]);
    const message = await subscriber.next();
    now.t.match(message, { cmd: 'publish', qos: 2, retain: true, payload: Buffer.from('kept') });
    const { messageId = 0 } = message as { messageId?: number };
    subscriber.send({ cmd: 'pubrec', messageId });
    now.t.match(await subscriber.next(), { cmd: 'pubrel', messageId });

    for (const end of ['SIGKILL', 'SIGTERM']) {
      yield;
      const back = await connected(now, f, keeper);
      now.t.match(await back.next(), { cmd: 'pubrel', messageId }, end);
      if (end === 'SIGKILL') continue;
      back.send({ cmd: 'pubcomp', messageId });
      await disconnected(back);
    }

    yield;
    now.t.same(await taken(await connected(now, f, keeper), () => true), [], 'and once it is complete, no more');
  },

  async *'a queue keeps its last messages, as many as are allowed'(f, now) {
    for (let n = 0; n < 3; n += 1) yield;
    const subscriber = await connected(now, f, keeper);
    await subscribed(subscriber, [f.topic('chat'), 1]);
    await disconnected(subscriber);
    const publisher = await connected(now, f);
    for (let n = 1; n <= 9; n += 1) await published(publisher, f.topic('chat'), `${n}`);

    yield;
    const back = await connected(now, f, keeper);
    now.t.same(texts(await taken(back, ({ length }) => length >= 3)), ['7', '8', '9']);
  },

  // The last ones: nothing else happens between what they publish and the kill of the first process, and of the second.
  'acknowledged on a stored channel reaches an absent subscriber, in order, QoS 2 once': acknowledgedOn(
    'temperature',
    0,
  ),
  'acknowledged on a plain channel reaches an absent subscriber, in order, QoS 2 once': acknowledgedOn('chat', 1),
};

t.test('One process after another', async (t) => {
  const f = await fixture(t);
  const going: Array<{ title: string; who: Who; now: Now; steps: ReturnType<Story>; isDone: boolean }> = [];
  for (const [title, story] of Object.entries(stories)) {
    const who: Who = { ...(await sibling(f)), other: await sibling(f) };
    const now: Now = { t, server: { mqttPort: 0 } };
    going.push({ title, who, now, steps: story(who, now), isDone: false });
  }
  await f.service.close();
  for (const [place, { ends, env }] of processes.entries()) {
    const process = ends && (await start(t, f, env));
    const service = process ? undefined : await startService(t, { directory: f.service.directory, env });
    const server = process ?? service?.server ?? { mqttPort: 0 };
    await t.test(`process ${place + 1}`, async (t) => {
      for (const one of going.filter(({ isDone }) => !isDone))
        await t.test(one.title, async (t) => {
          if (service) one.who.service = service;
          Object.assign(one.now, { t, server });
          one.isDone = (await one.steps.next()).done === true;
        });
    });
    if (process) t.equal(await process.stop(ends), ends === 'SIGKILL' ? ends : 0);
  }
  t.ok(
    going.every(({ isDone }) => isDone),
    'each has come to its end',
  );
});

t.end();
