/** What a hostile client of MQTT 5 can make the service do, or keep, has a bound. */
import { part } from '../../support/part.ts';
import { countStored } from '../../support/stored.ts';
import { until } from '../../support/until.ts';
import { fixture, sibling } from '../fixture.ts';
import { hits, metric } from '../metrics.ts';
import {
  acknowledged,
  type Connected,
  connected,
  cut,
  disconnectCode,
  nextOf,
  ownDevice,
  payloads,
  published,
  soFar,
  subscribed,
  takenUntil,
} from './client.ts';
import { type Heard, publish } from './packets.ts';

const t = await part(import.meta);

/** Milliseconds of CPU of this thread: others work for other tests, too. */
async function cpuOf(work: () => Promise<unknown>): Promise<number> {
  const before = process.threadCpuUsage();
  await work();
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1000;
}

const forever = 0xffff_ffff;

t.test('a delayed will goes with its session, however many client ids a device takes', async (t) => {
  const f = await ownDevice(t);
  const ofDevice = '"clientId" LIKE ? AND "due" IS NOT NULL';
  const waiting = () => countStored(f.service, '"mqttWills"', ofDevice, [`%${f.device.id}%`], 'messages.db');
  const witness = await connected(t, f, { clientId: 'witness', properties: { sessionExpiry: 0 } });
  t.same(await subscribed(witness, [[f.topic('chat'), { qos: 1 }]]), [1]);
  for (let n = 0; n < 25; n += 1) {
    const will = { topic: f.topic('chat'), payload: `will ${n}`, qos: 1 as const, properties: { willDelay: forever } };
    await cut(await connected(t, f, { clientId: `mortal ${n}`, properties: { sessionExpiry: forever }, will }));
  }
  t.same(payloads(await takenUntil(witness, 'will 4')).sort(), ['will 0', 'will 1', 'will 2', 'will 3', 'will 4']);
  t.equal(await until(waiting, (count) => count === 20), 20, 'as many as a device may have sessions');
});

t.test('a message costs little, however many filters of a client match it', async (t) => {
  const f = await ownDevice(t);
  const other = await sibling(f);
  const levels = f.topic('chat').split('/');
  const wild = (some: string[], bits: number) => some.map((level, at) => ((bits >> at) & 1 ? '+' : level)).join('/');
  const filters = Array.from({ length: 2 ** levels.length }, (_, bits) => wild(levels, bits));
  for (let length = 0; length < levels.length; length += 1)
    for (let bits = 0; bits < 2 ** length; bits += 1)
      filters.push([...(length > 0 ? [wild(levels.slice(0, length), bits)] : []), '#'].join('/'));
  for (let n = 0; n < 19; n += 1) {
    const client = await connected(t, f, { clientId: `${n}` });
    const codes = await subscribed(client, filters, { subscriptionIdentifier: 1 });
    t.ok((codes?.filter((code) => code === 1).length ?? 0) > 50);
  }
  const sender = await connected(t, other);
  const cpu = await cpuOf(async () => {
    for (let n = 0; n < 20; n += 1) await published(sender, other.topic('chat'), 'of nobody');
  });
  t.ok(cpu < 1500, `${cpu} ms for 20 messages`);
});

t.test('properties take little time and count as bytes, however many there are', async (t) => {
  const f = await fixture(t, { SLIPWAY_MQTT_BYTE_RATE_PER_CLIENT: '300000' });
  const sender = await connected(t, f);
  // Of an empty name and an empty value.
  const pairs = Buffer.alloc(125_000, Buffer.from([0x26, 0, 0, 0, 0]));
  const cpu = await cpuOf(async () => {
    // In one write: a machine that is slow at each must reach the rate as well.
    const packets = Array.from({ length: 10 }, (_, n) =>
      publish(f.topic('chat'), 'x', { qos: 1, id: n + 1, properties: pairs }),
    );
    sender.send(...packets);
    for (const _ of packets) t.equal((await nextOf(sender, 'puback')).code, 0x97);
  });
  t.ok(cpu < 300, `${cpu} ms for 10 packets`);
  t.ok(((await hits(f, 'byte_rate_per_client')) ?? 0) > 0);
});

const long = 128 * 1024;
const megabytes = (messages: Heard[]) => (messages.length * long) / 2 ** 20;

/** Lets a client acknowledge what it was sent, one after another, to the message with this payload. */
async function drained(client: Connected, last: string): Promise<Heard[]> {
  const heard: Heard[] = [];
  for (;;) {
    const message = await nextOf(client, 'publish');
    heard.push(message);
    await acknowledged(client, message);
    if (message.payload?.startsWith(last)) return heard;
  }
}

t.test('what waits in memory for the window of a client, and of all clients of an account, has a limit', async (t) => {
  const f = await ownDevice(t);
  const dropped = async () => (await metric(f, 'slipway_mqtt_dropped_messages_total{reason="queue"}')) ?? 0;
  const before = await dropped();
  const clients: Connected[] = [];
  for (let n = 0; n < 12; n += 1) {
    const client = await connected(t, f, { clientId: `slow ${n}`, properties: { receiveMaximum: 1 } });
    t.same(await subscribed(client, [f.topic('chat')]), [1]);
    clients.push(client);
  }
  const sender = await connected(t, f, { clientId: 'sender' });
  for (let n = 0; n < 40; n += 1) {
    sender.send(publish(f.topic('chat'), `${n} `.padEnd(long, '.'), { qos: 1, id: 7 }));
    await nextOf(sender, 'puback');
  }
  t.ok((await dropped()) > before);
  const heard: Heard[][] = [];
  for (const client of clients) heard.push(await drained(client, '39 '));
  for (const [n, messages] of heard.entries())
    t.ok(megabytes(messages) > 0.2 && megabytes(messages) <= 4.2, `client ${n}: ${megabytes(messages)} MB`);
  t.ok(megabytes(heard.flat()) <= 32 + 12 / 8 + 1, `${megabytes(heard.flat())} MB`);
});

t.test('what a member of a group may not have, because it is too long for it, is not kept for others', async (t) => {
  const f = await ownDevice(t);
  const share = `$share/group/${f.topic('chat')}`;
  const small = await connected(t, f, { clientId: 'small', properties: { maximumPacketSize: 200 } });
  t.same(await subscribed(small, [share]), [1]);
  const sender = await connected(t, f, { clientId: 'sender' });
  await published(sender, f.topic('chat'), 'x'.repeat(500));
  await published(sender, f.topic('chat'), 'short');
  t.match(await small.next(), { payload: 'short' });
  const other = await connected(t, f, { clientId: 'other' });
  t.same(await subscribed(other, [share]), [1]);
  await cut(small);
  t.match(await other.next(), { payload: 'short' });
});

t.test('a session gets a message for sixteen of its groups, and each session has its own copies', async (t) => {
  const f = await ownDevice(t);
  const stored = (clientId: string) => ({ clientId, clean: false, properties: { sessionExpiry: 1000 } });
  for (const clientId of ['one', 'two']) {
    const client = await connected(t, f, stored(clientId));
    const groups = Array.from({ length: 50 }, (_, n) => `$share/${clientId}-${n}/${f.topic('chat')}`);
    t.same(new Set(await subscribed(client, groups)), new Set([1]));
    await cut(client);
  }
  const sender = await connected(t, f, { clientId: 'sender' });
  for (const text of ['x', 'y']) t.equal((await published(sender, f.topic('chat'), text)).code, 0);
  for (const clientId of ['one', 'two']) {
    const client = await connected(t, f, stored(clientId));
    const heard: Heard[] = [];
    for (let n = 0; n < 32; n += 1) {
      const message = await nextOf(client, 'publish');
      heard.push(message);
      await acknowledged(client, message);
    }
    t.same(payloads(heard), [...Array(16).fill('x'), ...Array(16).fill('y')]);
    t.same(await soFar(client), []);
  }
});

t.test('an alias keeps no topic that is longer than that of a channel', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  const topic = f.topic('x'.repeat(1000));
  t.equal((await published(client, topic, 'x', { properties: { topicAlias: 1 } })).code, 0x87);
  t.equal((await published(client, '', 'x', { properties: { topicAlias: 1 } })).code, 0x87);
  t.equal((await published(client, f.topic('x'.repeat(3000)), 'x', { properties: { topicAlias: 1 } })).code, 0x87);
  client.send(publish('', 'x', { qos: 1, id: 7, properties: { topicAlias: 1 } }));
  t.equal(await disconnectCode(t, client), 0x94);
});

t.test('a Response Topic is no shared subscription', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  const responseTopic = `$share/group/${f.topic('chat')}`;
  t.equal((await published(client, f.topic('chat'), 'x', { properties: { responseTopic } })).code, 0x87);
});

t.end();
