/** Retained messages are searched within the caller's reach, and each client has one search at a time. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { interceptSearches } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { sharedService } from '../support/shared.ts';
import { until } from '../support/until.ts';
import { connected, published } from './conversation.ts';
import { fixture, fixtureIn } from './fixture.ts';
import { metric } from './metrics.ts';

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
  while (packets.length < 40) packets.push((await device.next()).cmd);
  t.equal(packets.filter((cmd) => cmd === 'publish').length, 20, 'once for each SUBSCRIBE');
  t.same([...prefixes], [f.topic('')]);
  t.equal(searches, 20);
  t.equal(maxAtOnce, 1);
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

t.end();
