import { setImmediate as nextTurn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { forAll, type Incoming, type Outgoing } from '../../broker/message-types.ts';
import { FilterTree } from '../../broker/sessions/filter-tree.ts';
import type { SessionStore } from '../../broker/sessions/persistence.ts';
import type { MqttChange } from '../../db/messages/sessions/changes.ts';
import { part } from '../support/part.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { type Fixture, fixtureIn, rawConnected, sibling, stored } from './fixture.ts';
import { metric } from './metrics.ts';
import { connectPacket, publishPacket, type RawClient, rawClient, subscribePacket } from './raw.ts';
import { clientOf, openStore, retainedFor } from './store.ts';

const t = await part(import.meta);

const client = clientOf('a/b/c');

function message(brokerCounter: number, payload = Buffer.from(`${brokerCounter}`)): Outgoing {
  return {
    cmd: 'publish',
    brokerId: forAll,
    brokerCounter,
    topic: 'x',
    payload,
    qos: 1,
    retain: false,
    dup: false,
  } as Outgoing;
}

async function queued(store: SessionStore, of = client): Promise<string[]> {
  const packets: string[] = [];
  for await (const packet of store.queues.keptFor(of))
    if (packet.cmd === 'publish') packets.push(packet.payload.toString());
  return packets;
}

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

/** A device of its own in the service of all these tests. */
const shared = () => fixtureIn(service);

t.test('a full queue loses its oldest message, and counts it', async (t) => {
  const { store, counters } = await openStore(t, { maxQueue: 3 });
  store.begin(client);
  for (let n = 1; n <= 5; n += 1) store.queues.enqueueFor(client, message(n));
  t.same(await queued(store), ['3', '4', '5']);
  t.equal(counters.dropped.queue, 2);
});

t.test('an acknowledgement of an unknown packet id removes nothing', async (t) => {
  const { store } = await openStore(t);
  store.begin(client);
  for (const n of [1, 2, 3]) store.queues.enqueueFor(client, message(n));
  store.queues.acknowledge(client, 99);
  t.same(await queued(store), ['1', '2', '3']);
  store.queues.forget(client, { brokerCounter: 2 });
  t.same(await queued(store), ['1', '3'], 'one that may not be delivered leaves');
  await store.queues.noteSent(client, { ...message(3), messageId: 7 } as Outgoing);
  store.queues.acknowledge(client, 7);
  t.same(await queued(store), ['1']);
});

t.test('filters that may not stand any more are forgotten, those of other principals stay', async (t) => {
  const { store } = await openStore(t, { mayStand: (_, filter) => filter !== 'x' });
  const other = clientOf('a/c/c');
  for (const one of [client, other]) {
    store.begin(one);
    const filters = ['x', 'y/#'].map((topic) => ({ topic, qos: 1 as const }));
    await store.filters.addSubscriptions(one, filters);
  }
  const removed: string[] = [];
  await store.revocation.forgetRefused(
    'a/b',
    () => true,
    (...one) => removed.push(one.join()),
  );
  t.same(removed, [`${client.id},x`]);
  t.same(store.filters.filtersOf(client), [{ topic: 'y/#', qos: 1 }]);
  store.enqueue(message(1));
  t.same(await queued(store), [], 'nothing is kept for it');
  t.same(await queued(store, other), ['1']);
});

t.test('retained messages of others are not looked at, however many there are', async (t) => {
  const { store, messages } = await openStore(t);
  for (let n = 0; n < 500; n += 1) store.storeRetained({ ...message(n), topic: `a/${n}` } as Outgoing);
  store.storeRetained({ ...message(500), topic: 'b/mine' } as Outgoing);
  store.begin(client);
  await store.filters.addSubscriptions(client, [{ topic: 'x', qos: 1 }]);
  const rows = messages.mqtt;
  const read: string[] = [];
  const retainedTopics = rows.retainedTopics.bind(rows);
  rows.retainedTopics = (...given) => {
    const topics = retainedTopics(...given);
    read.push(...topics);
    return topics;
  };
  const found = [];
  for await (const { topic } of retainedFor(store, client.live, ['b/#', 'b/+'])) found.push(topic);
  t.same(found, ['b/mine']);
  t.same([...new Set(read)], ['b/mine']);
});

/** Hands a message to the disk, as before its acknowledgement; `then` is called in the same turn as the answer. */
function promised(store: SessionStore, packet: Outgoing, then = () => {}): Promise<Error | undefined> {
  return new Promise((resolve) =>
    store.keep(undefined, packet as Incoming, (error) => {
      then();
      resolve(error);
    }),
  );
}

async function retainedNow(store: SessionStore): Promise<string[]> {
  const payloads: string[] = [];
  for await (const { payload } of retainedFor(store, client.live, ['x'])) payloads.push(payload.toString());
  return payloads;
}

t.test('an older retained message is not written over one that has been acknowledged', async (t) => {
  const { store, messages } = await openStore(t);
  const [first, second] = [1, 2].map((n) => ({ ...message(n), retain: true })) as [Outgoing, Outgoing];
  const onDisk = () => Buffer.from(messages.mqtt.retained('x')?.payload ?? []).toString();
  const delivered = promised(store, first, () => store.storeRetained(first));
  await Promise.all([delivered, promised(store, second)]);
  // Both may have been acknowledged, and the process may end before the second is handed on.
  await store.durable();
  t.equal(onDisk(), '2');
  store.storeRetained(second);
  await store.durable();
  t.equal(onDisk(), '2');
});

t.test('a QoS 0 message is not written over one that came after it and is on its way to the disk', async (t) => {
  const { store, messages } = await openStore(t);
  const [older, newer] = [{ ...message(1), qos: 0, retain: true } as Outgoing, { ...message(2), retain: true }];
  const isKept = promised(store, newer);
  store.storeRetained(older);
  t.same(await retainedNow(store), ['1'], 'it is what subscribers are told until then');
  t.equal(await isKept, undefined);
  await store.durable();
  t.equal(Buffer.from(messages.mqtt.retained('x')?.payload ?? []).toString(), '2');
  store.storeRetained(newer);
  t.same(await retainedNow(store), ['2']);
  await store.durable();
  t.equal(Buffer.from(messages.mqtt.retained('x')?.payload ?? []).toString(), '2');
  t.equal(store.kept('a').retained, 1);
});

t.test('a QoS 0 message is written after all when the one that came after it is refused', async (t) => {
  const { store, messages } = await openStore(t);
  const record = messages.record.bind(messages);
  let refuse = () => {};
  messages.record = (_, done) => {
    refuse = () => done(new Error('refused'));
  };
  const isKept = promised(store, { ...message(2), retain: true });
  messages.record = record;
  store.storeRetained({ ...message(1), qos: 0, retain: true } as Outgoing);
  refuse();
  t.match(await isKept, { message: 'refused' });
  await store.durable();
  t.equal(Buffer.from(messages.mqtt.retained('x')?.payload ?? []).toString(), '1');
  t.same(store.kept('a'), { ...store.kept('a'), retained: 1, retainedBytes: 2 });
});

t.test('a kept message does not keep the read buffer that it came in', async (t) => {
  const { store, messages } = await openStore(t);
  const kept: MqttChange[] = [];
  const record = messages.record.bind(messages);
  messages.record = (changes, done) => {
    kept.push(...changes);
    record(changes, done);
  };
  const part = () => Buffer.alloc(65_536, 'x').subarray(0, 10);
  store.begin(clientOf(client.id, { will: { topic: 'x', qos: 1, retain: false, payload: part() } }));
  store.storeRetained(message(1, part()));
  store.queues.enqueueFor(client, message(2, part()));
  store.close();
  const payloads = kept.flatMap((change) => {
    if (change.kind === 'retain') return [change.retained.payload];
    if (change.kind === 'message') return [change.message.payload];
    return change.kind === 'will' ? [change.will.payload] : [];
  });
  t.same(
    payloads.map(({ buffer }) => buffer.byteLength),
    [10, 10, 10],
  );
});

t.test('of QoS 2 messages that are never released only the packet ids are kept', async (t) => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const f = await shared();
  const client = await rawConnected(t, f);
  const payload = Buffer.alloc(100_000);
  const held = () => {
    collect();
    return process.memoryUsage().arrayBuffers;
  };
  const before = held();
  for (let messageId = 1; messageId <= 200; messageId += 1) {
    client.send(publishPacket(f.topic('chat'), payload, { qos: 2, messageId }));
    t.match(await client.next(), { cmd: 'pubrec', messageId });
  }
  // What the socket has read last is let go a few turns of the loop later.
  let kept = held() - before;
  for (let turn = 0; turn < 100 && kept >= 5e6; turn += 1) {
    await nextTurn();
    kept = held() - before;
  }
  t.ok(kept < 5e6, `${kept} of 20,000,000 bytes are kept`);
  client.send(publishPacket(f.topic('chat'), payload, { qos: 2, messageId: 1, dup: true }));
  t.match(await client.next(), { cmd: 'pubrec', messageId: 1 });
  client.send({ cmd: 'pubrel', messageId: 1 });
  t.match(await client.next(), { cmd: 'pubcomp', messageId: 1 });
});

t.test('of the stored sessions of a principal the one that was left first goes when there are too many', async (t) => {
  const f = await shared();
  const other = await sibling(f);
  const session = (n: number) => ({ clientId: `session ${n}`, clean: false });
  const present = async (of: Fixture, n: number) => {
    const client = await rawClient(t, f.service.server.mqttPort);
    client.send(connectPacket({ username: of.device.id, password: Buffer.from(of.secret), ...session(n) }));
    const { sessionPresent } = (await client.next()) as { sessionPresent: boolean };
    return { client, sessionPresent };
  };
  const open = async (n: number, of = f) => {
    const client = await rawConnected(t, of, session(n));
    client.send(subscribePacket(1, [of.topic('chat'), 1]));
    t.match(await client.next(), { cmd: 'suback', granted: [1] });
    return client;
  };
  const leave = (client: RawClient) => {
    client.send({ cmd: 'disconnect' });
    return client.closed;
  };
  await leave(await open(0, other));
  const staying = await open(1);
  const first = await open(2);
  first.send(publishPacket(f.topic('temperature'), '1', { qos: 2, messageId: 9 }));
  t.match(await first.next(), { cmd: 'pubrec', messageId: 9 });
  await leave(first);
  for (let n = 3; n <= 20; n += 1) await leave(await open(n));
  // The twentieth is the last that has room; the session that was used again is not the oldest any more.
  const third = await present(f, 3);
  t.equal(third.sessionPresent, true);
  await leave(third.client);
  await leave(await open(21));

  const again = await present(f, 2);
  t.equal(again.sessionPresent, false, 'the one that was left first is gone');
  again.client.send(publishPacket(f.topic('temperature'), '2', { qos: 2, messageId: 9, dup: true }));
  t.match(await again.client.next(), { cmd: 'pubrec', messageId: 9 });
  t.same(await stored(f), [2, 1], 'with its packet ids');
  await leave(again.client);
  t.equal((await present(f, 4)).sessionPresent, false, 'which made room for itself');
  t.equal((await present(f, 3)).sessionPresent, true);
  t.equal((await present(f, 21)).sessionPresent, true);
  staying.send({ cmd: 'pingreq' });
  t.match(await staying.next(), { cmd: 'pingresp' });
  staying.socket.destroy();
  t.equal((await present(other, 0)).sessionPresent, true, 'that of another device is not counted');
});

t.test('the filter tree finds what matches, each client once', async (t) => {
  const tree = new FilterTree();
  const filters = ['a/b', 'a/+', 'a/#', '#', '+/b', 'a/b/#', '+', 'a/b/c', '/a', '+/+/+'];
  for (const filter of filters) tree.add(filter, filter);
  const match = (topic: string) => [...tree.match(topic)].sort();
  t.same(match('a/b'), ['#', '+/b', 'a/#', 'a/+', 'a/b', 'a/b/#']);
  t.same(match('a'), ['#', '+', 'a/#']);
  t.same(match('/a'), ['#', '/a']);
  t.same(match('$SYS'), [], 'wildcards do not match topics that begin with $');
  tree.add('a/b', 'me');
  tree.add('a/#', 'me');
  t.same(match('a/b'), ['#', '+/b', 'a/#', 'a/+', 'a/b', 'a/b/#', 'me']);
  for (const filter of filters) tree.delete(filter, filter);
  t.same(match('a/b'), ['me']);
});

t.test('a stored session gets what it missed, once, marked when it had been sent before', async (t) => {
  const f = await shared();
  const session = { clientId: 'keeper', clean: false };
  const first = await rawConnected(t, f, session);
  first.send(subscribePacket(1, [f.topic('chat'), 1], [f.topic('+'), 1]));
  await first.next();
  const publisher = await rawConnected(t, f, { clientId: 'publisher' });
  const publish = async (payload: string, messageId: number) => {
    publisher.send(publishPacket(f.topic('chat'), payload, { qos: 1, messageId }));
    t.match(await publisher.next(), { cmd: 'puback', messageId });
  };
  await publish('one', 1);
  t.match(await first.next(), { cmd: 'publish', dup: false }, 'not acknowledged');
  // The service knows that it has gone, and sends it nothing more.
  first.send({ cmd: 'disconnect' });
  await first.closed;
  await publish('two', 2);
  const again = await rawConnected(t, f, session);
  const packets = [await again.next(), await again.next()];
  t.match(packets, [
    { payload: Buffer.from('one'), dup: true },
    { payload: Buffer.from('two'), dup: false },
  ]);
  for (const packet of packets) again.send({ cmd: 'puback', messageId: packet.messageId as number });
  again.send({ cmd: 'pingreq' });
  t.match(await again.next(), { cmd: 'pingresp' });
  again.socket.destroy();
  const empty = await rawConnected(t, f, session);
  empty.send({ cmd: 'pingreq' });
  t.match(await empty.next(), { cmd: 'pingresp' }, 'nothing is left');
});

t.test('a stored session of a device queues nothing of others, whatever wildcard it holds', async (t) => {
  const f = await shared();
  const other = await sibling(f);
  const dropped = () => metric(f, 'slipway_mqtt_dropped_messages_total{reason="queue"}');
  const before = await dropped();
  const keeper = await rawConnected(t, f, { clientId: 'keeper', clean: false });
  keeper.send(subscribePacket(1, ['#', 1]));
  t.match(await keeper.next(), { cmd: 'suback', granted: [1] });
  keeper.socket.destroy();
  const speaker = await rawConnected(t, other);
  speaker.send(publishPacket(other.topic('chat'), 'x', { qos: 1, messageId: 1 }));
  await speaker.next();
  t.equal(await dropped(), before);
  const again = await rawConnected(t, f, { clientId: 'keeper', clean: false });
  again.send({ cmd: 'pingreq' });
  for (;;) {
    const packet = await again.next();
    if (packet.cmd === 'pingresp') break;
    t.match(packet, { cmd: 'publish', topic: f.topic('_updates/fields') });
  }
});

t.end();
