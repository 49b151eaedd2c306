/** What MQTT sessions are promised across the end of a process, clean or not. */
import type { Packet } from 'mqtt-packet';
import t from 'tap';
import {
  connected,
  disconnected,
  keeper,
  left,
  type Message,
  published,
  start,
  subscribed,
  taken,
  texts,
} from './conversation.js';
import { publishPacket } from './raw.js';

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
