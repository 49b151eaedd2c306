/** The windows of MQTT 5: how many messages are under way at once. */
import type { Test } from 'tap';
import { RetainedSearch } from '../../../broker/sessions/retained-search.ts';
import { slices } from '../../../src/core/scheduler/time-slice.ts';
import { interceptSearches, interceptSessions } from '../../support/faults.ts';
import { part } from '../../support/part.ts';
import { until } from '../../support/until.ts';
import { type Fixture, fixture, neighbour, sibling, versionOf } from '../fixture.ts';
import { metric } from '../metrics.ts';
import {
  acknowledged,
  type Client,
  connected,
  cut,
  disconnectCode,
  leave,
  nextOf,
  openSocket,
  ownDevice,
  payloads,
  published,
  soFar,
  subscribed,
  takenUntil,
} from './client.ts';
import { answer, connect, type Heard, pingreq, publish, subscribe, unsubscribe } from './packets.ts';

const t = await part(import.meta);

const clean = { clientId: 'clean' };
const kept = { clientId: 'kept', properties: { sessionExpiry: 1000 } };

/** CONNECT with a Receive Maximum. */
const window = (one: { clientId: string; properties?: object }, receiveMaximum: number) => ({
  ...one,
  properties: { ...one.properties, receiveMaximum },
});

/** Publishes these texts at a QoS, to the end. */
async function say(sender: Client, topic: string, qos: 1 | 2, ...texts: string[]): Promise<void> {
  for (const text of texts) {
    sender.send(publish(topic, text, { qos, id: 9 }));
    await nextOf(sender, qos === 1 ? 'puback' : 'pubrec');
    if (qos === 1) continue;
    sender.send(answer('pubrel', 9));
    await nextOf(sender, 'pubcomp');
  }
}

// The window of the client

t.test('no more messages are under way than the Receive Maximum of the client, QoS 0 passes', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f);
  for (const one of [clean, kept]) {
    const client = await connected(t, f, window(one, 2));
    t.same(await subscribed(client, [[f.topic('chat'), { qos: 2 }]]), [2]);
    await say(sender, f.topic('chat'), 1, '1', '2', '3');
    await say(sender, f.topic('chat'), 2, '4');
    sender.send(publish(f.topic('chat'), 'q0'));
    await say(sender, f.topic('chat'), 1, '5');
    const first = await soFar(client);
    t.same(payloads(first), ['1', '2', 'q0'], one.clientId);
    await acknowledged(client, first[1] as Heard);
    const third = await client.next();
    t.equal(third.payload, '3', 'each acknowledgement lets one more come');
    t.same(await soFar(client), []);
    await acknowledged(client, first[0] as Heard);
    await acknowledged(client, third);
    const [fourth, fifth] = [await client.next(), await client.next()];
    t.match(
      [fourth, fifth],
      [
        { payload: '4', qos: 2 },
        { payload: '5', qos: 1 },
      ],
    );
    await leave(client);
  }
});

t.test('a message of QoS 2 is under way until PUBCOMP, or until a PUBREC with an error', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f);
  for (const one of [clean, kept]) {
    const client = await connected(t, f, window(one, 1));
    t.same(await subscribed(client, [[f.topic('chat'), { qos: 2 }]]), [2]);
    await say(sender, f.topic('chat'), 2, '1', '2', '3');
    const first = await client.next();
    t.match(first, { payload: '1', qos: 2 });
    client.send(answer('pubrec', first.id as number));
    t.match(await client.next(), { cmd: 'pubrel', id: first.id });
    t.same(await soFar(client), [], 'PUBREL waits for its answer');
    client.send(answer('pubcomp', first.id as number));
    const second = await client.next();
    t.match(second, { payload: '2', qos: 2 });
    client.send(answer('pubrec', second.id as number, 0x97, { reasonString: 'no room' }));
    t.match(await client.next(), { cmd: 'publish', payload: '3', qos: 2 }, 'no PUBREL follows an error');
    await leave(client);
    const again = await connected(t, f, { ...one, clean: false });
    if (one === kept) t.match(await soFar(again), [{ payload: '3', dup: true }], 'nor does the message come again');
    await leave(again);
  }
});

/** A client whose window is full, with messages in the queue of its session, and their sender. */
async function withQueue(t: Test, f: Fixture) {
  const sender = await connected(t, f, { clientId: 'sender' });
  const client = await connected(t, f, window(kept, 1));
  t.same(await subscribed(client, [f.topic('chat')]), [1]);
  await say(sender, f.topic('chat'), 1, '1', '2', '3');
  const first = await nextOf(client, 'publish');
  t.equal(first.payload, '1');
  return { sender, client, first };
}

t.test('what comes while UNSUBSCRIBE is on its way to the disk does not overtake what waits', async (t) => {
  const f = await fixture(t);
  const { sender, client, first } = await withQueue(t, f);
  const held: Array<() => void> = [];
  let isHeld = () => {};
  const holding = new Promise<void>((resolve) => {
    isHeld = resolve;
  });
  const restore = interceptSessions(t, f.service, (write, kinds) => {
    if (held.length === 0 && !kinds.includes('unsubscribe')) write();
    else held.push(write);
    if (held.length > 0) isHeld();
  });
  client.send(unsubscribe(2, [f.topic('chat')]));
  await holding;
  await say(sender, f.topic('chat'), 1, 'late');
  restore();
  for (const write of held) write();
  await nextOf(client, 'unsuback');
  await acknowledged(client, first);
  t.same(payloads(await takenUntil(client, '3')), ['2', '3']);
  t.same(await soFar(client), []);
});

t.test('what waits for receivers while a filter gets a QoS does not overtake what is queued', async (t) => {
  const usual = { ...slices.packets };
  t.teardown(() => Object.assign(slices.packets, usual));
  // A few deliveries in a turn of the event loop.
  Object.assign(slices.packets, { time: 0, least: 4, perLook: 1 });
  const f = await fixture(t, { SLIPWAY_MQTT_MAX_CONNECTIONS_PER_DEVICE: '0' });
  const ears = await Promise.all(Array.from({ length: 60 }, (_, n) => connected(t, f, { clientId: `ear ${n}` })));
  for (const ear of ears) await subscribed(ear, [[f.topic('chat'), { qos: 0 }]]);
  const { sender, client, first } = await withQueue(t, f);
  t.same(await subscribed(client, [[f.topic('chat'), { qos: 0 }]]), [0]);
  for (const ear of ears) await soFar(ear);
  sender.send(publish(f.topic('chat'), 'late', { qos: 1, id: 9 }));
  t.match(await nextOf(ears[0] as Client, 'publish'), { payload: 'late' }, 'the others come after it');
  t.same(await subscribed(client, [f.topic('+')]), [1]);
  const late = await client.next();
  t.match(late, { payload: 'late', qos: 0 }, 'with the QoS that its filter had');
  await acknowledged(client, first);
  await say(sender, f.topic('chat'), 1, 'last');
  t.same(payloads(await takenUntil(client, 'last')), ['2', '3', 'last']);
});

t.test('a PUBACK with an error is an acknowledgement', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f);
  const client = await connected(t, f, window(kept, 1));
  t.same(await subscribed(client, [f.topic('chat')]), [1]);
  await say(sender, f.topic('chat'), 1, '1', '2');
  const { id = 0 } = await client.next();
  client.send(answer('puback', id, 0x83));
  t.match(await client.next(), { payload: '2' });
  await client.drop();
  const again = await connected(t, f, { ...kept, clean: false });
  t.same(payloads(await soFar(again)), ['2']);
});

/** A device with a retained message on each of its channels, in a service whose queues hold five messages. */
async function withRetained(t: Test, channels: number): Promise<Fixture> {
  const f = await fixture(t, { SLIPWAY_MQTT_MAX_QUEUE: '5' });
  const template = await f.service.template({
    channels: Array.from({ length: channels }, (_, n) => ({ name: `c${n}`, persistenceType: 'simple' })),
  });
  const { device, secret } = await f.service.device({ deviceTemplateId: template.id });
  const own = { ...f, device, secret, topic: (name: string) => f.service.topic(device.id, name) };
  const sender = await connected(t, own, { clientId: 'sender' });
  for (let n = 0; n < channels; n += 1) await published(sender, own.topic(`c${n}`), `${n}`, { retain: true });
  return own;
}

/** Takes and acknowledges so many messages. */
async function takeSome(client: Client, count: number): Promise<Heard[]> {
  const heard: Heard[] = [];
  while (heard.length < count) {
    const message = await nextOf(client, 'publish');
    heard.push(message);
    await acknowledged(client, message);
  }
  return heard;
}

const numbers = (messages: Heard[]) =>
  payloads(messages)
    .map(Number)
    .sort((a, b) => a - b);

t.test('what is retained waits for the window as well, however much it is, and holds up nothing', async (t) => {
  const f = await withRetained(t, 20);
  const all = Array.from({ length: 20 }, (_, n) => n);
  for (const one of [clean, kept])
    for (const qos of [1, 2] as const) {
      const client = await connected(t, f, window(one, 2));
      client.send(subscribe(1, [[f.topic('+'), { qos }]]), publish(f.topic('c0'), 'live', { qos: 1, id: 9 }), pingreq);
      const first: Heard[] = [];
      for (const cmd of ['suback', 'publish', 'publish', 'puback', 'pingresp'] as const) {
        const packet = await client.next();
        t.equal(packet.cmd, cmd, `${one.clientId}, QoS ${qos}`);
        if (packet.cmd === 'publish') first.push(packet);
      }
      for (const message of first) await acknowledged(client, message);
      const heard = [...first, ...(await takeSome(client, 19))];
      t.same(numbers(heard.filter(({ retain }) => retain)), all, 'none is lost');
      t.same(payloads(heard.filter(({ retain }) => !retain)), ['live']);
      t.same(await soFar(client), []);
      await leave(client);
    }
});

t.test('what is retained and not received whole comes when a stored session is back', async (t) => {
  const f = await withRetained(t, 5);
  const all = [0, 1, 2, 3, 4];
  const back = { ...window(kept, 2), clean: false };
  const first = await connected(t, f, window(kept, 2));
  t.same(await subscribed(first, [f.topic('+')]), [1]);
  await takeSome(first, 1);
  await cut(first);
  const second = await connected(t, f, back);
  t.equal(second.connack.sessionPresent, true);
  const [again] = await takeSome(second, 1);
  t.match(again, { payload: '0', retain: true, dup: false });
  const third = await connected(t, f, back);
  await second.closed;
  const heard = await takeSome(third, 5);
  t.same(numbers(heard), all, 'also after a take-over');
  t.ok(heard.every(({ retain }) => retain));
  await cut(third);
  const fourth = await connected(t, f, back);
  t.same(await soFar(fourth), [], 'and once it has been received, no more');
  t.same(await subscribed(fourth, [f.topic('+')]), [1]);
  await cut(fourth);
  const fifth = await connected(t, f, back);
  // As who does not look at Session Present: at most what was on its way comes twice.
  fifth.send(subscribe(1, [f.topic('+')]));
  const twice = await takeSome(fifth, 5);
  while (new Set(numbers(twice)).size < 5) twice.push(...(await takeSome(fifth, 1)));
  t.ok(twice.length <= 7, numbers(twice).join());
  t.same(await soFar(fifth), []);
  await leave(fifth);
});

t.test('who subscribes as soon as it is back gets what was due, and leaves no search behind', async (t) => {
  const f = await withRetained(t, 5);
  const asking = [{ qos: 1 }, { qos: 2, retainHandling: 1 }, { qos: 2, retainHandling: 2 }] as const;
  for (const options of asking) {
    const one = window({ ...kept, clientId: JSON.stringify(options) }, 1);
    const first = await connected(t, f, one);
    t.same(await subscribed(first, [f.topic('+')]), [1]);
    await cut(first);
    const second = await openSocket(t, f.service.server.mqttPort);
    const back = { ...one, clean: false, username: f.device.id, password: f.secret };
    second.send(connect(back), subscribe(1, [[f.topic('+'), options]]));
    const heard = await takeSome(second, 5);
    while (new Set(numbers(heard)).size < 5) heard.push(...(await takeSome(second, 1)));
    await second.drop();
    await until(() => f.service.server.ctx.broker.queues.retained === 0);
  }
});

t.test(
  'what could not be read comes when a stored session is back, and what is asked for next comes now',
  async (t) => {
    const f = await withRetained(t, 5);
    const one = { ...kept, clientId: 'unread' };
    let faults = 1;
    interceptSearches(t, f.service, (search, ...asked) => {
      if (asked[0] !== '' && faults-- > 0) throw new Error('a fault');
      return search(...asked);
    });
    const first = await connected(t, f, one);
    t.same(await subscribed(first, [f.topic('+')]), [1]);
    t.same(await soFar(first), []);
    t.same(await subscribed(first, [f.topic('c3')]), [1]);
    t.same(numbers(await takeSome(first, 1)), [3]);
    await cut(first);
    const second = await connected(t, f, { ...one, clean: false });
    t.same(numbers(await takeSome(second, 5)), [0, 1, 2, 3, 4]);
    await leave(second);
  },
);

t.test('who waits for the window is not looked at when others publish', async (t) => {
  const f = await withRetained(t, 2);
  const other = await neighbour(f);
  const client = await connected(t, f, window(clean, 1));
  t.same(await subscribed(client, [f.topic('+')]), [1]);
  const looks = t.capture(RetainedSearch.prototype, 'isAhead', RetainedSearch.prototype.isAhead);
  const beside = await sibling(f);
  await published(await connected(t, beside), beside.topic('c0'), 'beside', { retain: true });
  await published(await connected(t, other), other.topic('chat'), 'of another account', { retain: true });
  t.equal(looks().length, 0);
  await published(await connected(t, f), f.topic('c0'), 'own', { retain: true });
  t.equal(looks().length, 1);
});

t.test(
  'what is retained comes no more for a filter that was given up, and anew for one that is subscribed to again',
  async (t) => {
    const f = await withRetained(t, 6);
    for (const one of [clean, kept]) {
      const client = await connected(t, f, window(one, 2));
      t.same(await subscribed(client, [f.topic('+')]), [1]);
      const unacknowledged = [await client.next(), await client.next()];
      client.send(unsubscribe(2, [f.topic('+')]));
      t.match(await client.next(), { cmd: 'unsuback', codes: [0] });
      for (const message of unacknowledged) await acknowledged(client, message);
      t.same(await soFar(client), [], one.clientId);
      t.same(await subscribed(client, [f.topic('+')]), [1]);
      await takeSome(client, 1);
      client.send(subscribe(3, [f.topic('+')]), subscribe(4, [f.topic('c5')], { subscriptionIdentifier: 7 }));
      const heard: Heard[] = [];
      const isNamed = ({ properties }: Heard) => properties.subscriptionIdentifier === 7;
      while (!heard.some(isNamed)) heard.push(...(await takeSome(client, 1)));
      t.same(await soFar(client), []);
      t.same([...new Set(numbers(heard))], [0, 1, 2, 3, 4, 5], 'all of it comes after the second SUBSCRIBE');
      t.equal(heard.filter(isNamed).length, 1);
      t.ok(heard.length <= 9, 'and the first one stops');
      await leave(client);
    }
  },
);

t.test('who subscribes right behind CONNECT gets what is retained once', async (t) => {
  const f = await withRetained(t, 3);
  for (const one of [clean, kept]) {
    const client = await openSocket(t, f.service.server.mqttPort);
    const who = { username: f.device.id, password: f.secret };
    client.send(connect({ ...who, ...one }), subscribe(1, [[f.topic('+'), { qos: 1 }]]));
    const heard = await takeSome(client, 3);
    t.same(numbers(heard), [0, 1, 2]);
    t.same(await soFar(client), [], one.clientId);
    await client.drop();
  }
});

t.test('a session that is taken up again keeps the window of its new CONNECT', async (t) => {
  const f = await ownDevice(t);
  const first = await connected(t, f, window(kept, 3));
  t.same(await subscribed(first, [f.topic('chat')]), [1]);
  await leave(first);
  const sender = await connected(t, f);
  const texts = ['1', '2', '3', '4', '5'];
  await say(sender, f.topic('chat'), 1, ...texts);
  const second = await connected(t, f, { ...window(kept, 3), clean: false });
  t.match(await soFar(second), [
    { payload: '1', dup: false },
    { payload: '2', dup: false },
    { payload: '3', dup: false },
  ]);
  await cut(second);
  const third = await connected(t, f, { ...window(kept, 2), clean: false });
  t.match(await soFar(third), [
    { payload: '1', dup: true },
    { payload: '2', dup: true },
  ]);
  await cut(third);
  const fourth = await connected(t, f, { ...kept, clean: false });
  t.same(payloads(await soFar(fourth)), texts, 'without a Receive Maximum there is room for all');
});

t.test('what waits belongs to the session: kept with it, gone without', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f);
  for (const [one, left] of [
    [clean, []],
    [kept, ['1', '2', '3']],
  ] as const) {
    const client = await connected(t, f, window(one, 1));
    t.same(await subscribed(client, [f.topic('chat')]), [1]);
    await say(sender, f.topic('chat'), 1, '1', '2', '3');
    t.same(payloads(await soFar(client)), ['1']);
    await cut(client);
    const again = await connected(t, f, { ...one, clean: false });
    t.same(payloads(await soFar(again)), left);
    await leave(again);
  }
});

t.test('what waits is at most as long as the queue of a session, and loses its oldest', async (t) => {
  const f = await fixture(t, { SLIPWAY_MQTT_MAX_QUEUE: '3' });
  const dropped = async () => (await metric(f, 'slipway_mqtt_dropped_messages_total{reason="queue"}')) ?? 0;
  const sender = await connected(t, f);
  for (const one of [clean, kept]) {
    const before = await dropped();
    const client = await connected(t, f, window(one, 1));
    t.same(await subscribed(client, [f.topic('chat')]), [1]);
    const texts = Array.from({ length: 10 }, (_, n) => `${n}`);
    await say(sender, f.topic('chat'), 1, ...texts);
    const heard = payloads(await takenUntil(client, '9'));
    // What was read from the disk before it was dropped may come as well.
    t.ok(heard.length >= 4 && heard.length <= 5, `${heard}`);
    t.same([heard[0], ...heard.slice(-3)], ['0', '7', '8', '9'], 'the newest, in order');
    t.ok((await dropped()) >= before + 10 - heard.length);
    await leave(client);
  }
});

t.test('what expires while it waits is not sent', async (t) => {
  let now = Date.parse('2026-05-01T00:00:00Z');
  const f = await fixture(t, {}, { clock: { now: () => now } });
  const sender = await connected(t, f);
  for (const one of [clean, kept]) {
    const client = await connected(t, f, window(one, 1));
    t.same(await subscribed(client, [f.topic('chat')]), [1]);
    await say(sender, f.topic('chat'), 1, 'first');
    await published(sender, f.topic('chat'), 'short', { properties: { messageExpiry: 10 } });
    await published(sender, f.topic('chat'), 'long', { properties: { messageExpiry: 100 } });
    const first = await client.next();
    now += 30_000;
    await acknowledged(client, first);
    t.match(await client.next(), { payload: 'long', properties: { messageExpiry: 70 } }, one.clientId);
    await leave(client);
  }
});

t.test('a right that is lost while a message waits keeps it from being sent', async (t) => {
  const f = await ownDevice(t);
  const organization = await f.service.organization();
  const { token } = await f.service.endUser(organization.id);
  const move = async (organizationId: string | null) => {
    const headers = { etag: await versionOf(f.service, f.device.id) };
    await f.service.ok('PUT', `/api/v1/devices/${f.device.id}`, { body: { organizationId }, headers });
  };
  await move(organization.id);
  const sender = await connected(t, f);
  for (const one of [clean, kept]) {
    const phone = await connected(t, f, { ...window(one, 1), username: 'Auth:JWT', password: token });
    t.same(await subscribed(phone, ['#', f.topic('chat')]), [1, 1]);
    await say(sender, f.topic('chat'), 1, 'before', 'secret');
    let first = await nextOf(phone, 'publish');
    // That the device is connected may be told in between.
    while (first.payload !== 'before') {
      await acknowledged(phone, first);
      first = await nextOf(phone, 'publish');
    }
    await move(null);
    await acknowledged(phone, first);
    t.same(
      payloads(await soFar(phone)).filter((text) => text === 'secret'),
      [],
      one.clientId,
    );
    await move(organization.id);
    await leave(phone);
  }
});

t.test('without a Receive Maximum many are under way', async (t) => {
  const f = await ownDevice(t);
  const [client, sender] = [await connected(t, f), await connected(t, f, { clientId: 'sender' })];
  t.same(await subscribed(client, [f.topic('chat')]), [1]);
  sender.send(...Array.from({ length: 300 }, (_, n) => publish(f.topic('chat'), `${n}`, { qos: 1, id: n + 1 })));
  for (let n = 0; n < 300; n += 1) await nextOf(sender, 'puback');
  const heard = await soFar(client);
  t.same(
    payloads(heard),
    Array.from({ length: 300 }, (_, n) => `${n}`),
  );
  t.equal(new Set(heard.map(({ id }) => id)).size, 300, 'each has a packet id of its own');
});

t.test('a slow client does not hold up others', async (t) => {
  const f = await ownDevice(t);
  const [slow, quick, sender] = [
    await connected(t, f, window({ clientId: 'slow' }, 1)),
    await connected(t, f, { clientId: 'quick' }),
    await connected(t, f, { clientId: 'sender' }),
  ];
  for (const client of [slow, quick]) t.same(await subscribed(client, [f.topic('chat')]), [1]);
  await say(sender, f.topic('chat'), 1, '1', '2', '3');
  t.same(payloads(await takenUntil(quick, '3')), ['1', '2', '3']);
  t.same(payloads(await takenUntil(slow, '3')), ['1', '2', '3']);
});

// The window of the server

t.test('1,000 messages of QoS 2 may be under way, one more ends the connection with 0x93', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  const q2 = (id: number, more = {}) => publish(f.topic('chat'), `${id}`, { qos: 2, id, ...more });
  client.send(publish(f.topic('nothing'), 'x', { qos: 2, id: 5000 }));
  t.match(await client.next(), { cmd: 'pubrec', id: 5000, code: 0x87 }, 'one that is refused is not under way');
  const ids = Array.from({ length: 1000 }, (_, n) => n + 1);
  client.send(...ids.map((id) => q2(id)));
  for (const id of ids) {
    const heard = await client.next();
    if (heard.cmd !== 'pubrec' || heard.id !== id || (heard.code ?? 0) >= 0x80)
      t.match(heard, { cmd: 'pubrec', id, code: 0x10 });
  }
  client.send(q2(7, { dup: true }));
  t.match(await client.next(), { cmd: 'pubrec', id: 7 }, 'what is sent again is no new message');
  client.send(answer('pubrel', 1));
  t.match(await client.next(), { cmd: 'pubcomp', id: 1, code: 0 });
  client.send(q2(1001));
  t.match(await client.next(), { cmd: 'pubrec', id: 1001, code: 0x10 }, 'PUBCOMP makes room for one');
  client.send(publish(f.topic('chat'), 'q0'));
  t.same(await soFar(client), [], 'QoS 0 is not counted');
  client.send(q2(1002));
  t.equal(await disconnectCode(t, client), 0x93);
});

t.test('a full window of QoS 1 messages in one write is acknowledged', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  const count = 1000;
  client.send(
    ...Array.from({ length: count }, (_, n) => publish(f.topic('temperature'), `${n}`, { qos: 1, id: n + 1 })),
  );
  const codes = new Set<number | undefined>();
  for (let n = 0; n < count; n += 1) codes.add((await nextOf(client, 'puback')).code);
  t.same([...codes], [0]);
  t.same(await soFar(client), []);
});

t.end();
