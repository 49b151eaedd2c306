/** Wills of a process that has crashed. */

import { part } from '../support/part.ts';
import { startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';
import { until } from '../support/until.ts';
import { connected, disconnected, keeper, left, type Message, start, subscribed } from './conversation.ts';
import { type Fixture, rawConnected, stored } from './fixture.ts';

const t = await part(import.meta);

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
  const listener = await connected(t, server, f, keeper);
  await subscribed(listener, [f.topic('temperature'), 1]);
  const over = await connected(t, server, f, { ...taker, ...willOf(f, '5') });
  await connected(t, server, f, { ...taker, ...willOf(f, '6') });
  await over.closed;
  const { messageId } = await listener.next();
  listener.send({ cmd: 'puback', messageId: messageId as number });
  // What is asked for now is answered after the wills are on disk.
  await subscribed(listener, [f.topic('chat'), 1]);
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
  await until(() => countStored(later, '"mqttWills"', '1', [], 'messages.db') === 0);
  t.same((await stored({ ...f, service: later })).sort(), [1, 5, 6], 'and never again');
});

t.end();
