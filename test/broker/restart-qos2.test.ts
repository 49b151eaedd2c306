/** QoS 2 across kill -9: each side goes on where it was. */
import t from 'tap';
import { startService } from '../support/service.js';
import { connected, keeper, left, published, start, subscribed } from './conversation.js';
import { rawConnected, stored } from './fixture.js';
import { publishPacket } from './raw.js';

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
