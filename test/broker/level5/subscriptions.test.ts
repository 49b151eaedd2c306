/** Options and identifiers of MQTT 5 subscriptions. */
import type { Test } from 'tap';
import { part } from '../../support/part.ts';
import { startService } from '../../support/service.ts';
import { connected as connectedAt4 } from '../conversation.ts';
import { type Fixture, fixture, sibling } from '../fixture.ts';
import { publishPacket } from '../raw.ts';
import {
  acknowledged,
  admin,
  type Client,
  connected,
  leave,
  nextOf,
  ownDevice,
  payloads,
  published,
  soFar,
  subscribed,
  takenUntil,
} from './client.ts';
import { answer, type FilterOptions, type Heard, publish, subscribe, unsubscribe } from './packets.ts';

const t = await part(import.meta);

const identifiers = ({ properties }: Heard) => [properties.subscriptionIdentifier ?? []].flat().sort((a, b) => a - b);

/** Publishes, and gives what a client has heard on that topic, acknowledged: wildcards hear of the device as well. */
async function heardOf(sender: Client, client: Client, topic: string, qos: 0 | 1 | 2 = 0): Promise<Heard[]> {
  sender.send(publish(topic, '1', { qos, id: 9 }));
  // QoS 0 is not answered, and may be read after what the client sends now.
  if (qos === 0) await soFar(sender);
  if (qos === 1) await nextOf(sender, 'puback');
  if (qos === 2) {
    await nextOf(sender, 'pubrec');
    sender.send(answer('pubrel', 9));
    await nextOf(sender, 'pubcomp');
  }
  const heard = await soFar(client);
  for (const one of heard) await acknowledged(client, one);
  return heard.filter((one) => one.topic === topic);
}

// No Local

t.test('with No Local a client does not hear itself, but others with the same rights', async (t) => {
  const f = await ownDevice(t);
  const [one, other] = [await connected(t, f, { clientId: 'one' }), await connected(t, f, { clientId: 'other' })];
  for (const qos of [0, 1, 2] as const) {
    t.same(await subscribed(one, [[f.topic('chat'), { qos, noLocal: true }]]), [qos]);
    one.send(publish(f.topic('chat'), 'own'));
    other.send(publish(f.topic('chat'), 'of the other'));
    const heard = await nextOf(one, 'publish');
    t.equal(heard.payload, 'of the other');
    t.same(await soFar(one), []);
  }
  t.same(await subscribed(one, [[f.topic('chat'), { qos: 0 }]]), [0]);
  one.send(publish(f.topic('chat'), 'own'));
  t.equal((await one.next()).payload, 'own', 'without it, it does');
});

t.test('a client that has connected again under its id is still itself for No Local', async (t) => {
  const f = await ownDevice(t);
  const kept = { clientId: 'kept', properties: { sessionExpiry: 100 } };
  const first = await connected(t, f, kept);
  t.same(await subscribed(first, [[f.topic('chat'), { noLocal: true }]]), [1]);
  await leave(first);
  const second = await connected(t, f, { ...kept, clean: false });
  t.equal((await published(second, f.topic('chat'), 'own')).code, 0x10);
  await published(await connected(t, f), f.topic('chat'), 'of another');
  t.same(payloads(await takenUntil(second, 'of another')), ['of another']);
  await leave(second);
  t.same(await soFar(await connected(t, f, { ...kept, clean: false })), [], 'nothing of its own is kept');
});

// Retain As Published, Retain Handling

t.test('RETAIN is 0 on what is live, as published with Retain As Published, and 1 on what is retained', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f);
  for (const [retainAsPublished, retain] of [
    [false, false],
    [true, true],
  ]) {
    const client = await connected(t, f, { clientId: `${retainAsPublished}` });
    t.same(await subscribed(client, [[f.topic('chat'), { qos: 0, retainAsPublished }]]), [0]);
    await soFar(client);
    sender.send(publish(f.topic('chat'), 'retained', { retain: true }), publish(f.topic('chat'), 'live'));
    t.match(await client.next(), { payload: 'retained', retain });
    t.match(await client.next(), { payload: 'live', retain: false });
    t.same(await subscribed(client, [[f.topic('chat'), { qos: 0, retainAsPublished }]]), [0]);
    t.match(await soFar(client), [{ payload: 'retained', retain: true }]);
  }
});

t.test('Retain As Published holds for what is queued in a session', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f);
  for (const retainAsPublished of [false, true]) {
    const kept = { clientId: `kept ${retainAsPublished}`, properties: { sessionExpiry: 100 } };
    const client = await connected(t, f, kept);
    t.same(await subscribed(client, [[f.topic('chat'), { retainAsPublished, retainHandling: 2 }]]), [1]);
    await leave(client);
    await published(sender, f.topic('chat'), 'x', { retain: true });
    const again = await connected(t, f, { ...kept, clean: false });
    t.match(await again.next(), { payload: 'x', retain: retainAsPublished });
    await leave(again);
  }
});

t.test('Retain Handling: 0 sends what is retained each time, 1 to a new subscription, 2 never', async (t) => {
  const f = await ownDevice(t);
  await published(await connected(t, f), f.topic('chat'), 'retained', { retain: true });
  for (const [retainHandling, first, second, third] of [
    [0, 1, 1, 1],
    [1, 1, 0, 1],
    [2, 0, 0, 0],
  ] as const) {
    const client = await connected(t, f, { clientId: `client ${retainHandling}` });
    const times = async (options: FilterOptions = {}) => {
      t.same(await subscribed(client, [[f.topic('chat'), { qos: 0, retainHandling, ...options }]]), [0]);
      return (await soFar(client)).length;
    };
    t.equal(await times(), first, `${retainHandling}: new`);
    t.equal(await times({ retainAsPublished: true }), second, `${retainHandling}: again, with other options`);
    client.send(unsubscribe(3, [f.topic('chat')]));
    t.match(await client.next(), { cmd: 'unsuback', codes: [0] });
    t.equal(await times(), third, `${retainHandling}: after UNSUBSCRIBE`);
  }
});

t.test('a subscription of a session that was taken up again is not a new one', async (t) => {
  const f = await ownDevice(t);
  await published(await connected(t, f), f.topic('chat'), 'retained', { retain: true });
  const kept = { clientId: 'kept', properties: { sessionExpiry: 100 } };
  const asked: Array<[string, FilterOptions]> = [[f.topic('chat'), { qos: 0, retainHandling: 1 }]];
  for (const [clean, count] of [
    [true, 1],
    [false, 0],
    [true, 1],
  ] as const) {
    const client = await connected(t, f, { ...kept, clean });
    t.same(await subscribed(client, asked), [0]);
    t.equal((await soFar(client)).length, count, `clean ${clean}`);
    await leave(client);
  }
});

t.test('one SUBSCRIBE may have filters of different options', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f);
  await published(sender, f.topic('chat'), 'chat', { retain: true });
  await published(sender, f.topic('temperature'), '1', { retain: true });
  const client = await connected(t, f, { clientId: 'client' });
  t.same(
    await subscribed(client, [
      [f.topic('chat'), { qos: 1, retainHandling: 2 }],
      [f.topic('temperature'), { qos: 0, retainAsPublished: true }],
    ]),
    [1, 0],
  );
  t.match(await soFar(client), [{ payload: '1', qos: 0 }]);
  await published(sender, f.topic('chat'), 'chat', { retain: true });
  t.match(await client.next(), { payload: 'chat', qos: 1, retain: false });
  await published(sender, f.topic('temperature'), '2', { retain: true });
  t.match(await client.next(), { payload: '2', qos: 0, retain: true });
});

// Subscription Identifiers

t.test('a message has the identifier of the filter that it matches, on retained ones too', async (t) => {
  const f = await ownDevice(t);
  const [client, sender] = [await connected(t, f), await connected(t, f, { clientId: 'sender' })];
  await published(sender, f.topic('chat'), 'x', { retain: true });
  t.same(await subscribed(client, [f.topic('chat')], { subscriptionIdentifier: 1 }), [1]);
  t.same((await soFar(client)).map(identifiers), [[1]], 'retained');
  t.same(
    await subscribed(client, [[f.topic('temperature'), { qos: 0 }]], { subscriptionIdentifier: 268_435_455 }),
    [0],
  );
  t.same((await heardOf(sender, client, f.topic('temperature'))).map(identifiers), [[268_435_455]]);
  t.same((await heardOf(sender, client, f.topic('chat'), 1)).map(identifiers), [[1]]);
});

t.test('a subscription that is made again has the new identifier, or none any more', async (t) => {
  const f = await ownDevice(t);
  const [client, sender] = [await connected(t, f), await connected(t, f, { clientId: 'sender' })];
  for (const [properties, found] of [
    [{ subscriptionIdentifier: 1 }, [1]],
    [{ subscriptionIdentifier: 2 }, [2]],
    [{}, []],
  ] as const) {
    t.same(await subscribed(client, [f.topic('chat')], properties), [1]);
    t.same((await heardOf(sender, client, f.topic('chat'), 1)).map(identifiers), [found]);
  }
});

t.test('what several filters match is delivered once, with all identifiers and the highest QoS', async (t) => {
  const f = await ownDevice(t);
  const [client, sender] = [await connected(t, f), await connected(t, f, { clientId: 'sender' })];
  t.same(await subscribed(client, [[f.topic('chat'), { qos: 0 }]], { subscriptionIdentifier: 7 }), [0]);
  t.same(await subscribed(client, [[f.topic('+'), { qos: 2 }]], { subscriptionIdentifier: 300 }), [2]);
  t.same(await subscribed(client, ['#']), [1]);
  t.same(await subscribed(client, [['+/+/+/d/+/chat', { qos: 1 }]], { subscriptionIdentifier: 7 }), [1]);
  for (const qos of [0, 1, 2] as const) {
    const heard = await heardOf(sender, client, f.topic('chat'), qos);
    t.match(heard, [{ payload: '1', qos }]);
    t.equal(heard.length, 1);
    t.same([...new Set(heard.flatMap(identifiers))], [7, 300]);
  }
  t.same((await heardOf(sender, client, f.topic('temperature'))).map(identifiers), [[300]]);
  client.send(unsubscribe(3, [f.topic('+')]));
  await nextOf(client, 'unsuback');
  t.match(await heardOf(sender, client, f.topic('chat'), 2), [{ qos: 1 }]);
});

t.test('a filter with No Local is none of those that its own message matches', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  t.same(await subscribed(client, [[f.topic('chat'), { qos: 2, noLocal: true }]], { subscriptionIdentifier: 1 }), [2]);
  t.same(await subscribed(client, [[f.topic('+'), { qos: 0 }]], { subscriptionIdentifier: 2 }), [0]);
  client.send(publish(f.topic('chat'), 'own', { qos: 1, id: 5 }));
  const heard = (await soFar(client)).filter(({ cmd }) => cmd === 'publish');
  t.match(heard, [{ payload: 'own', qos: 0 }]);
  t.same(heard.map(identifiers), [[2]]);
  const other = await connected(t, f, { clientId: 'other' });
  t.same((await heardOf(other, client, f.topic('chat'), 2)).map(identifiers), [[1, 2]]);
});

t.test('of a device and of a user the identifiers are their own', async (t) => {
  const f = await ownDevice(t);
  const [device, user, sender] = [
    await connected(t, f),
    await connected(t, f, admin(f)),
    await connected(t, f, { clientId: 'sender' }),
  ];
  t.same(await subscribed(device, [f.topic('chat')], { subscriptionIdentifier: 1 }), [1]);
  t.same(await subscribed(user, [f.topic('chat').replace(f.device.id, '+')], { subscriptionIdentifier: 2 }), [1]);
  await published(sender, f.topic('chat'), 'x');
  t.same(identifiers(await device.next()), [1]);
  t.same(identifiers(await user.next()), [2]);
});

/** A session with options of each kind, whose client is away. */
async function awayWithOptions(t: Test, f: Fixture): Promise<void> {
  const client = await connected(t, f, { clientId: 'kept', properties: { sessionExpiry: 100 } });
  const chat: FilterOptions = { qos: 1, noLocal: true, retainAsPublished: true, retainHandling: 2 };
  t.same(await subscribed(client, [[f.topic('chat'), chat]], { subscriptionIdentifier: 5 }), [1]);
  t.same(await subscribed(client, [f.topic('+')], { subscriptionIdentifier: 6 }), [1]);
  t.same(await subscribed(client, [[f.topic('temperature'), { qos: 2 }]]), [2]);
  await leave(client);
}

async function hearsWithOptions(t: Test, f: Fixture): Promise<void> {
  const [client, sender] = [await connected(t, f, { clientId: 'kept', clean: false }), await connected(t, f)];
  t.equal(client.connack.sessionPresent, true);
  const queued = await soFar(client);
  t.match(queued, [{ payload: 'queued', retain: true, qos: 1 }]);
  t.same(queued.map(identifiers), [[5, 6]], 'queued');
  for (const one of queued) await acknowledged(client, one);
  t.same((await heardOf(sender, client, f.topic('chat'), 1)).map(identifiers), [[5, 6]], 'live');
  t.same((await heardOf(sender, client, f.topic('temperature'), 2)).map(identifiers), [[6]]);
  await published(client, f.topic('chat'), 'own');
  t.same((await soFar(client)).map(identifiers), [[6]], 'No Local');
}

t.test('options and identifiers belong to the session', async (t) => {
  const f = await ownDevice(t);
  await awayWithOptions(t, f);
  await published(await connected(t, f), f.topic('chat'), 'queued', { retain: true });
  await hearsWithOptions(t, f);
});

t.test('and they are there after a restart', async (t) => {
  const f = await fixture(t);
  await awayWithOptions(t, f);
  await published(await connected(t, f), f.topic('chat'), 'queued', { retain: true });
  await f.service.close();
  await hearsWithOptions(t, { ...f, service: await startService(t, { directory: f.service.directory }) });
});

t.test('a message of level 4 has the identifiers of the filters that it matches', async (t) => {
  const f = await ownDevice(t);
  const four = await connectedAt4(t, f.service.server, f, { clientId: 'four' });
  const five = await connected(t, f);
  t.same(await subscribed(five, [f.topic('chat')], { subscriptionIdentifier: 3 }), [1]);
  four.send(publishPacket(f.topic('chat'), 'x'));
  t.match(await five.next(), { payload: 'x', properties: { subscriptionIdentifier: 3 } });
});

// SUBSCRIBE and UNSUBSCRIBE

t.test('a filter that stands twice in a SUBSCRIBE has the options of the last one', async (t) => {
  const f = await ownDevice(t);
  const [client, sender] = [await connected(t, f), await connected(t, f, { clientId: 'sender' })];
  t.same(
    await subscribed(client, [
      [f.topic('chat'), { qos: 2 }],
      [f.topic('chat'), { qos: 0, noLocal: true }],
    ]),
    [2, 0],
  );
  t.match(await heardOf(sender, client, f.topic('chat'), 2), [{ qos: 0 }]);
  client.send(publish(f.topic('chat'), 'own'));
  t.same(await soFar(client), []);
});

t.test('messages that wait when UNSUBSCRIBE comes may be completed, and nothing comes after', async (t) => {
  const f = await ownDevice(t);
  const [client, sender] = [await connected(t, f), await connected(t, f, { clientId: 'sender' })];
  t.same(await subscribed(client, [[f.topic('chat'), { qos: 2 }]]), [2]);
  sender.send(publish(f.topic('chat'), 'x', { qos: 2, id: 1 }));
  const heard = await nextOf(client, 'publish');
  client.send(unsubscribe(3, [f.topic('chat')], { userProperties: [['a', 'b']] }));
  t.match(await client.next(), { cmd: 'unsuback', id: 3, codes: [0] });
  client.send(answer('pubrec', heard.id as number));
  t.match(await client.next(), { cmd: 'pubrel', id: heard.id, code: 0 });
  client.send(answer('pubcomp', heard.id as number));
  t.equal((await published(await connected(t, f, { clientId: 'other' }), f.topic('chat'), 'y')).code, 0x10);
  t.same(await soFar(client), []);
});

t.test('User Properties of SUBSCRIBE and UNSUBSCRIBE are taken and go nowhere', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  const properties = { userProperties: [['a', 'b'] as [string, string], ['a', 'b'] as [string, string]] };
  client.send(subscribe(2, [f.topic('chat')], properties), unsubscribe(3, [f.topic('chat')], properties));
  t.strictSame((await client.next()).properties, {});
  t.strictSame((await client.next()).properties, {});
});

t.test('a refused filter beside granted ones changes nothing for these', async (t) => {
  const f = await ownDevice(t);
  const other = await sibling(f);
  const [client, sender] = [await connected(t, f), await connected(t, f, { clientId: 'sender' })];
  t.same(
    await subscribed(client, [other.topic('chat'), [f.topic('chat'), { qos: 0 }], 'a#'], { subscriptionIdentifier: 4 }),
    [0x87, 0, 0x8f],
  );
  const theirs = await connected(t, other);
  t.equal((await published(theirs, other.topic('chat'), 'x')).code, 0x10);
  t.same((await heardOf(sender, client, f.topic('chat'))).map(identifiers), [[4]]);
});

t.end();
