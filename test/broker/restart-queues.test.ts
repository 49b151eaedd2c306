/** What is queued and retained, across a clean end of the process and kill -9. */
import t from 'tap';
import { connected, disconnected, keeper, left, published, start, subscribed, taken, texts } from './conversation.js';
import { publishPacket } from './raw.js';

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
    const last = signal === 'SIGTERM' ? '20' : '21';
    await published(publisher, f.topic('temperature'), last, { retain: true, qos: 2 });
    // Of QoS 0 nothing is promised, but a clean end keeps it.
    if (signal === 'SIGTERM') publisher.send(publishPacket(f.topic('temperature'), '21', { retain: true }));
    await published(publisher, f.topic('chat'), 'kept', { retain: true });
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
