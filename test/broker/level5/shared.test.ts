/** Shared subscriptions, of every level. */
import type { Test } from 'tap';
import { slices } from '../../../src/core/scheduler/time-slice.ts';
import { part } from '../../support/part.ts';
import { startService } from '../../support/service.ts';
import { until } from '../../support/until.ts';
import { connected as connectedAt4, subscribed as subscribedAt4 } from '../conversation.ts';
import { type Fixture, fixture, fixtureIn, sibling, versionOf } from '../fixture.ts';
import {
  acknowledged,
  admin,
  type Client,
  type Connected,
  connected,
  cut,
  disconnectCode,
  leave,
  nextOf,
  ownDevice,
  payloads,
  published,
  soFar,
  subscribed,
  takenUntil,
} from './client.ts';
import { answer, disconnect, type FilterOptions, type Heard, publish, subscribe, unsubscribe } from './packets.ts';

const t = await part(import.meta);

const share = (filter: string, name = 'group') => `$share/${name}/${filter}`;
const keeping = { properties: { sessionExpiry: 1000 } };
const numbers = (count: number) => Array.from({ length: count }, (_, n) => `${n}`);

/** A member of the group of `chat`. */
async function member(
  t: Test,
  f: Fixture,
  clientId: string,
  options: FilterOptions = {},
  more: object = {},
): Promise<Connected> {
  const client = await connected(t, f, { clientId, ...more });
  t.same(await subscribed(client, [[share(f.topic('chat')), options]]), [options.qos ?? 1]);
  return client;
}

/** Publishes at QoS 1, one after another, and gives the reasons. */
async function say(f: Fixture, sender: Client, ...texts: string[]): Promise<Array<number | undefined>> {
  const codes: Array<number | undefined> = [];
  for (const text of texts) codes.push((await published(sender, f.topic('chat'), text)).code);
  return codes;
}

/** What a member has heard so far, acknowledged. */
async function taken(client: Client): Promise<Heard[]> {
  const heard = (await soFar(client)).filter(({ cmd }) => cmd === 'publish');
  for (const one of heard) await acknowledged(client, one);
  return heard;
}

// One member, in turns

t.test('a message goes to one member of a group, in turns', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const members = [await member(t, f, 'a'), await member(t, f, 'b'), await member(t, f, 'c')];
  t.same(new Set(await say(f, sender, ...numbers(30))), new Set([0]));
  const heard: Array<string | undefined> = [];
  for (const client of members) {
    const own = payloads(await taken(client));
    t.equal(own.length, 10, 'each has its turn');
    heard.push(...own);
  }
  t.same(
    heard
      .map(Number)
      .sort((a, b) => a - b)
      .map(String),
    numbers(30),
    'each message once',
  );
});

t.test('a group is a name and a filter: each gets a copy, and so does an ordinary subscription', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const clients = [
    await member(t, f, 'a'),
    await connected(t, f, { clientId: 'b' }),
    await connected(t, f, { clientId: 'c' }),
  ];
  const filters = [share(f.topic('chat')), share(f.topic('chat'), 'other'), share(f.topic('+'))];
  for (const [place, client] of clients.entries()) t.same(await subscribed(client, [filters[place] ?? '']), [1]);
  const ordinary = await connected(t, f, { clientId: 'd' });
  t.same(await subscribed(ordinary, [f.topic('chat')]), [1]);
  await say(f, sender, ...numbers(5));
  for (const client of [...clients, ordinary]) t.same(payloads(await taken(client)), numbers(5));
});

t.test('a group is of one account', async (t) => {
  const f = await ownDevice(t);
  const other = await fixtureIn(await f.service.inNewAccount());
  const everything = share('+/+/+/d/+/chat');
  for (const one of [f, other]) {
    const client = await connected(t, one, { clientId: 'member', ...admin(one) });
    t.same(await subscribed(client, [everything]), [1]);
    const [mine, theirs] = [await connected(t, one), await connected(t, one === f ? other : f)];
    await say(one, mine, ...numbers(6));
    await say(one === f ? other : f, theirs, 'not here');
    t.same(payloads(await taken(client)), numbers(6));
    await leave(client);
  }
});

t.test('devices and users of an account share one group', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const members = [await member(t, f, 'device'), await member(t, f, 'user', {}, admin(f))];
  await say(f, sender, ...numbers(10));
  for (const client of members) t.equal((await taken(client)).length, 5);
});

t.test('clients of levels 3, 4 and 5 are members of one group', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const five = await member(t, f, 'five');
  const below = [];
  for (const [clientId, level] of [
    ['four', {}],
    ['three', { protocolId: 'MQIsdp', protocolVersion: 3 }],
  ] as const) {
    const client = await connectedAt4(t, f.service.server, f, { clientId, ...level });
    t.same(await subscribedAt4(client, [share(f.topic('chat')), 0]), [0]);
    below.push(client);
  }
  await say(f, sender, ...numbers(12));
  t.equal((await taken(five)).length, 4);
  for (const client of below) {
    client.send({ cmd: 'pingreq' });
    let count = 0;
    while ((await client.next()).cmd === 'publish') count += 1;
    t.equal(count, 4);
  }
});

t.test('a member gets a message at the QoS and with the options of its own subscription', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  for (const qos of [0, 1, 2] as const) {
    const client = await connected(t, f, { clientId: `member ${qos}` });
    const asked: Array<[string, FilterOptions]> = [[share(f.topic('chat')), { qos, retainAsPublished: qos > 0 }]];
    t.same(await subscribed(client, asked, { subscriptionIdentifier: 5 }), [qos]);
    sender.send(publish(f.topic('chat'), 'x', { qos: 2, id: 3, retain: true }), answer('pubrel', 3));
    await nextOf(sender, 'pubcomp');
    const heard = await taken(client);
    t.match(heard, [{ payload: 'x', qos, retain: qos > 0, properties: { subscriptionIdentifier: 5 } }]);
    t.equal(heard.length, 1);
    await leave(client);
  }
});

t.test('order is kept per publisher while one member is chosen', async (t) => {
  const f = await ownDevice(t);
  const only = await member(t, f, 'only', {}, { properties: { receiveMaximum: 3 } });
  const senders = [await connected(t, f, { clientId: 'one' }), await connected(t, f, { clientId: 'two' })];
  for (const [place, sender] of senders.entries())
    sender.send(...numbers(40).map((n) => publish(f.topic('chat'), `${place} ${n}`, { qos: 1, id: Number(n) + 1 })));
  const heard: string[] = [];
  while (heard.length < 80) {
    const one = await nextOf(only, 'publish');
    await acknowledged(only, one);
    heard.push(one.payload ?? '');
  }
  for (const place of [0, 1])
    t.same(
      heard.filter((text) => text.startsWith(`${place} `)),
      numbers(40).map((n) => `${place} ${n}`),
    );
});

t.test('the only member of a group loses nothing while it changes its subscription', async (t) => {
  const usual = { ...slices.packets };
  t.teardown(() => Object.assign(slices.packets, usual));
  // Most messages wait for a later turn of the event loop.
  Object.assign(slices.packets, { time: 0, least: 8, perLook: 1 });
  const f = await fixture(t);
  const only = await member(t, f, 'only');
  const sender = await connected(t, f, { clientId: 'sender' });
  const texts = numbers(300);
  sender.send(...texts.map((text, n) => publish(f.topic('chat'), text, { qos: 1, id: n + 1 })));
  const asked = (n: number) => subscribe(n + 1, [[share(f.topic('chat')), { qos: n % 2 === 0 ? 2 : 1 }]]);
  only.send(...Array.from({ length: 100 }, (_, n) => asked(n)));
  t.same(payloads(await takenUntil(only, '299')), texts);
});

t.test('nothing is delivered twice and nothing is lost while members come and go politely', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const heard: Array<string | undefined> = [];
  let members = [await member(t, f, 'm0'), await member(t, f, 'm1')];
  let said = 0;
  for (let round = 2; round < 8; round += 1) {
    await say(f, sender, ...numbers(10).map((n) => `${said + Number(n)}`));
    said += 10;
    members.push(await member(t, f, `m${round}`));
    for (const client of members) heard.push(...payloads(await taken(client)));
    await leave(members[0] as Connected);
    members = members.slice(1);
  }
  t.same(
    heard
      .map(Number)
      .sort((a, b) => a - b)
      .map(String),
    numbers(60),
  );
});

// Who is chosen

t.test('a member may hear what it is sent: rights are checked for each delivery', async (t) => {
  const f = await ownDevice(t);
  const [organization, other] = [await f.service.organization(), await sibling(f)];
  const { token } = await f.service.endUser(organization.id);
  const move = async (organizationId: string | null) => {
    const headers = { etag: await versionOf(f.service, f.device.id) };
    await f.service.ok('PUT', `/api/v1/devices/${f.device.id}`, { body: { organizationId }, headers });
  };
  await move(organization.id);
  const filter = share(f.topic('chat').replace(f.device.id, '+'));
  const [user, phone] = [
    await connected(t, f, { clientId: 'user', ...admin(f) }),
    await connected(t, f, { clientId: 'phone', username: 'Auth:JWT', password: token }),
  ];
  for (const client of [user, phone]) t.same(await subscribed(client, [filter]), [1]);
  const [sender, stranger] = [await connected(t, f), await connected(t, other)];
  await say(f, sender, ...numbers(10));
  for (const client of [user, phone]) t.equal((await taken(client)).length, 5, 'both may hear it');
  await say(other, stranger, ...numbers(10));
  t.same(payloads(await taken(user)), numbers(10), 'one may hear it');
  t.same(await taken(phone), []);
  await move(null);
  await say(f, sender, ...numbers(10));
  t.same(payloads(await taken(user)), numbers(10), 'a right that is lost ends nothing but the turns of its owner');
  t.same(await taken(phone), []);
});

t.test('a member with a free window comes first', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const slow = await member(t, f, 'slow', {}, { properties: { receiveMaximum: 1 } });
  const quick = await member(t, f, 'quick');
  await say(f, sender, ...numbers(10));
  const held = await soFar(slow);
  t.equal(held.length, 1);
  t.equal((await taken(quick)).length, 9);
  await acknowledged(slow, held[0] as Heard);
  t.same(await soFar(slow), [], 'its window is free');
  await say(f, sender, ...numbers(2));
  t.equal((await soFar(slow)).length, 1, 'its turn comes again');
});

t.test('a message waits when no member has a free window', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const window = { properties: { receiveMaximum: 1 } };
  const members = [await member(t, f, 'a', {}, window), await member(t, f, 'b', {}, window)];
  await say(f, sender, ...numbers(6));
  const heard: Array<string | undefined> = [];
  for (const client of members) {
    const [first, ...others] = await soFar(client);
    t.same(others, []);
    heard.push(first?.payload);
    await acknowledged(client, first as Heard);
  }
  while (heard.length < 6)
    for (const client of members)
      for (const one of await soFar(client)) {
        heard.push(one.payload);
        await acknowledged(client, one);
      }
  t.same([...heard].sort(), numbers(6));
});

t.test(
  'connected members come before stored ones; without one it waits in the session of a stored member',
  async (t) => {
    const f = await ownDevice(t);
    const sender = await connected(t, f, { clientId: 'sender' });
    await leave(await member(t, f, 'stored', {}, keeping));
    const live = await member(t, f, 'live');
    t.same(await say(f, sender, ...numbers(4)), [0, 0, 0, 0]);
    t.same(payloads(await taken(live)), numbers(4));
    await leave(live);
    t.same(await say(f, sender, 'waits'), [0]);
    const back = await connected(t, f, { clientId: 'stored', clean: false, ...keeping });
    t.same(payloads(await taken(back)), ['waits']);
  },
);

t.test('a group without a member receives nothing', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const client = await member(t, f, 'member');
  t.same(await say(f, sender, 'x'), [0]);
  client.send(unsubscribe(3, [share(f.topic('chat')), share(f.topic('chat'))]));
  t.match(await nextOf(client, 'unsuback'), { codes: [0, 0x11] });
  t.same(await say(f, sender, 'x'), [0x10]);
});

// A member that goes

t.test('what a member had not acknowledged when it left goes to another', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  for (const [clientId, more, end] of [
    ['clean', {}, leave],
    ['cut', {}, cut],
    ['stored', keeping, cut],
  ] as const) {
    const going = await member(t, f, clientId, {}, more);
    await say(f, sender, '1', '2', '3');
    const [first] = await soFar(going);
    await acknowledged(going, first as Heard);
    await soFar(going);
    const staying = await member(t, f, 'staying');
    t.same(await taken(staying), [], 'nothing while it is there');
    await end(going);
    const heard = [await nextOf(staying, 'publish'), await nextOf(staying, 'publish')];
    t.same(payloads(heard), ['2', '3'], clientId);
    for (const one of heard) await acknowledged(staying, one);
    const back = await connected(t, f, { clientId, clean: false });
    t.same(await taken(back), [], 'and not to both');
    await leave(back);
    await leave(staying);
  }
});

t.test('with UNSUBSCRIBE a member completes what it has', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const going = await member(t, f, 'going');
  await say(f, sender, '1');
  const [held] = await soFar(going);
  const staying = await member(t, f, 'staying');
  going.send(unsubscribe(3, [share(f.topic('chat'))]));
  t.match(await nextOf(going, 'unsuback'), { codes: [0] });
  await say(f, sender, '2', '3');
  t.same(payloads(await taken(staying)), ['2', '3'], 'the group goes on');
  await acknowledged(going, held as Heard);
  t.same(await soFar(going), []);
});

t.test('what was waiting for the window of a member that left goes to another', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const going = await member(t, f, 'going', {}, { properties: { receiveMaximum: 1 } });
  await say(f, sender, ...numbers(5));
  t.equal((await soFar(going)).length, 1);
  const staying = await member(t, f, 'staying');
  await cut(going);
  const heard = new Set<string | undefined>();
  while (heard.size < 5) {
    const one = await nextOf(staying, 'publish');
    heard.add(one.payload);
    await acknowledged(staying, one);
  }
  t.same([...heard].sort(), numbers(5));
});

t.test('without another member it waits in the session of the one that left, and comes with DUP', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const going = await member(t, f, 'stored', {}, keeping);
  await say(f, sender, 'x');
  t.match(await soFar(going), [{ payload: 'x', dup: false }]);
  await cut(going);
  const back = await connected(t, f, { clientId: 'stored', clean: false, ...keeping });
  t.match(await taken(back), [{ payload: 'x', dup: true }]);
});

t.test('a QoS 2 message goes to another before its PUBREC, and never after', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const q2 = async (text: string) => {
    sender.send(publish(f.topic('chat'), text, { qos: 2, id: 3 }), answer('pubrel', 3));
    await nextOf(sender, 'pubcomp');
  };
  const going = await member(t, f, 'going', { qos: 2 }, keeping);
  await q2('received');
  await q2('on its way');
  const [received, sent] = await soFar(going);
  going.send(answer('pubrec', received?.id as number));
  t.match(await going.next(), { cmd: 'pubrel', id: received?.id });
  t.match(sent, { payload: 'on its way' });
  const staying = await member(t, f, 'staying', { qos: 2 });
  await cut(going);
  t.match(await nextOf(staying, 'publish'), { payload: 'on its way', qos: 2 });
  t.same(await soFar(staying), []);
  const back = await connected(t, f, { clientId: 'going', clean: false, ...keeping });
  t.match(await soFar(back), [{ cmd: 'pubrel', id: received?.id }], 'it completes what it has received');
});

t.test('a message that a member refuses goes to nobody else', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const members = [await member(t, f, 'a', { qos: 2 }), await member(t, f, 'b', { qos: 2 })];
  await say(f, sender, 'q1');
  sender.send(publish(f.topic('chat'), 'q2', { qos: 2, id: 3 }), answer('pubrel', 3));
  await nextOf(sender, 'pubcomp');
  for (const client of members)
    for (const { id = 0, qos } of await soFar(client)) client.send(answer(qos === 1 ? 'puback' : 'pubrec', id, 0x83));
  for (const client of members) t.same(await soFar(client), []);
  for (const client of members) await cut(client);
  t.same(await taken(await member(t, f, 'late', { qos: 2 })), []);
});

t.test('a member that loses its right leaves what it has not acknowledged to others', async (t) => {
  const f = await ownDevice(t);
  const organization = await f.service.organization();
  const { token } = await f.service.endUser(organization.id);
  const headers = { etag: await versionOf(f.service, f.device.id) };
  const path = `/api/v1/devices/${f.device.id}` as const;
  await f.service.ok('PUT', path, { body: { organizationId: organization.id }, headers });
  const sender = await connected(t, f, { clientId: 'sender' });
  const phone = await member(t, f, 'phone', {}, { username: 'Auth:JWT', password: token });
  await say(f, sender, 'x');
  t.equal((await soFar(phone)).length, 1);
  const user = await member(t, f, 'user', {}, admin(f));
  await f.service.ok('POST', '/api/v1/sessions/logout', { token });
  t.equal(await disconnectCode(t, phone), 0x87);
  t.match(await nextOf(user, 'publish'), { payload: 'x' });
});

t.test('what waits for a member that loses its right goes to another', async (t) => {
  const f = await ownDevice(t);
  const organization = await f.service.organization();
  const { token } = await f.service.endUser(organization.id);
  const move = async (organizationId: string | null) => {
    const headers = { etag: await versionOf(f.service, f.device.id) };
    await f.service.ok('PUT', `/api/v1/devices/${f.device.id}`, { body: { organizationId }, headers });
  };
  const sender = await connected(t, f, { clientId: 'sender' });
  const filter = share(f.topic('chat'));
  for (const properties of [{ receiveMaximum: 1 }, { receiveMaximum: 1, ...keeping.properties }]) {
    await move(organization.id);
    const phone = await connected(t, f, { clientId: 'phone', username: 'Auth:JWT', password: token, properties });
    t.same(await subscribed(phone, [filter]), [1]);
    await say(f, sender, '0', '1', '2');
    const first = await nextOf(phone, 'publish');
    const user = await member(t, f, 'user', {}, admin(f));
    await move(null);
    await acknowledged(phone, first);
    const heard = new Set<string | undefined>();
    while (!heard.has('1') || !heard.has('2')) {
      const one = await nextOf(user, 'publish');
      heard.add(one.payload);
      await acknowledged(user, one);
    }
    t.same(payloads(await taken(phone)), [], 'and not to both');
    await leave(phone);
    await leave(user);
  }
});

t.test('a long queue of a member whose session ends goes to another, while others get their turn', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const going = await member(t, f, 'going', {}, { properties: { sessionExpiry: 1000, receiveMaximum: 1 } });
  const texts = numbers(2000);
  sender.send(...texts.map((text) => publish(f.topic('chat'), text, { qos: 1, id: 7 })));
  for (const _ of texts) await nextOf(sender, 'puback');
  await soFar(going);
  const staying = await member(t, f, 'staying', {}, keeping);
  going.send(disconnect(0, { sessionExpiry: 0 }));
  sender.send(publish(f.topic('chat'), 'last', { qos: 1, id: 7 }));
  const heard: Array<string | undefined> = [];
  while (heard.length <= texts.length) {
    const one = await nextOf(staying, 'publish');
    heard.push(one.payload);
    await acknowledged(staying, one);
  }
  t.ok(heard.indexOf('last') < texts.length, 'what comes meanwhile is not held up');
  t.same([...heard].sort(), [...texts, 'last'].sort());
});

// A group lasts

t.test('groups, and what waits for them, are there after a restart', async (t) => {
  const f = await fixture(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  const going = await member(t, f, 'a', {}, keeping);
  await say(f, sender, 'not acknowledged');
  t.equal((await soFar(going)).length, 1);
  await cut(going);
  await say(f, sender, 'queued');
  await leave(await member(t, f, 'b', {}, keeping));
  await f.service.close();
  const after = { ...f, service: await startService(t, { directory: f.service.directory }) };
  const heard: Array<string | undefined> = [];
  const members: Connected[] = [];
  for (const clientId of ['a', 'b']) {
    const client = await connected(t, after, { clientId, clean: false, ...keeping });
    t.equal(client.connack.sessionPresent, true);
    members.push(client);
    heard.push(...payloads(await taken(client)));
  }
  t.same(heard, ['not acknowledged', 'queued']);
  const again = await connected(t, after, { clientId: 'sender' });
  await say(after, again, ...numbers(10));
  for (const client of members) t.equal((await taken(client)).length, 5);
});

t.test('a stored member that takes up its session has one turn, not two', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  await leave(await member(t, f, 'stored', {}, keeping));
  const stored = await connected(t, f, { clientId: 'stored', clean: false, ...keeping });
  t.same(await subscribed(stored, [share(f.topic('chat'))]), [1], 'and subscribes again');
  const other = await member(t, f, 'other');
  await say(f, sender, ...numbers(10));
  for (const client of [stored, other]) t.equal((await taken(client)).length, 5);
});

t.test('a session that expires ends its membership', async (t) => {
  let now = Date.parse('2026-05-01T00:00:00Z');
  const f = await fixture(t, {}, { clock: { now: () => now } });
  const sender = await connected(t, f, { clientId: 'sender' });
  await leave(await member(t, f, 'stored', {}, { properties: { sessionExpiry: 10 } }));
  t.same(await say(f, sender, 'x'), [0]);
  now += 11_000;
  await until(async () => (await say(f, sender, 'y'))[0] === 0x10);
  t.same(await taken(await connected(t, f, { clientId: 'stored', clean: false })), []);
});

// SUBSCRIBE

t.test('a shared subscription gets no retained messages', async (t) => {
  const f = await ownDevice(t);
  await published(await connected(t, f), f.topic('chat'), 'retained', { retain: true });
  for (const retainHandling of [0, 1] as const) t.same(await taken(await member(t, f, 'a', { retainHandling })), []);
});

t.test('No Local with a shared subscription ends the connection with 0x82', async (t) => {
  const f = await ownDevice(t);
  const client = await connected(t, f);
  client.send(subscribe(3, [[share(f.topic('chat')), { noLocal: true }]]));
  t.equal(await disconnectCode(t, client), 0x82);
});

t.test('a share name has 1 to 100 characters without / + #, anything else is 0x8F', async (t) => {
  const f = await ownDevice(t);
  const chat = f.topic('chat');
  for (const filter of [
    share(chat, ''),
    share(chat, 'a+b'),
    share(chat, '#'),
    share(chat, 'x'.repeat(101)),
    '$share/group',
    '$share/group/',
    '$share',
    share(`${chat}#`),
    share('a/#/b'),
    share('somewhere/else'),
    share('$SYS/#'),
    share(share(chat)),
  ]) {
    const client = await connected(t, f);
    t.same(await subscribed(client, [filter, chat]), [0x8f, 1], filter);
  }
  const client = await connected(t, f);
  t.same(await subscribed(client, [share(chat, 'x'), share(chat, 'ä'.repeat(100)), share(chat, '$a b')]), [1, 1, 1]);
});

t.test('a shared subscription of what is out of reach is 0x87', async (t) => {
  const f = await ownDevice(t);
  const other = await sibling(f);
  const client = await connected(t, f);
  t.same(await subscribed(client, [share(other.topic('chat')), share(f.topic('nothing'))]), [0x87, 0x87]);
});

t.test('an account has at most 1,000 groups, beyond them 0x97', async (t) => {
  const f = await fixture(t, { SLIPWAY_MQTT_MAX_SUBSCRIPTIONS: '0' });
  const client = await connected(t, f, { clientId: 'client' });
  const groups = Array.from({ length: 1000 }, (_, n) => share(f.topic('chat'), `${n}`));
  for (let from = 0; from < 1000; from += 100)
    t.same(new Set(await subscribed(client, groups.slice(from, from + 100))), new Set([1]));
  const other = await connected(t, f, { clientId: 'other' });
  const [known, next] = [share(f.topic('chat'), '7'), share(f.topic('chat'), 'one more')];
  t.same(await subscribed(other, [next, known]), [0x97, 1], 'a group that exists may be joined');
  client.send(unsubscribe(3, [share(f.topic('chat'), '7'), share(f.topic('chat'), '8')]));
  t.match(await nextOf(client, 'unsuback'), { codes: [0, 0] });
  t.same(await subscribed(other, [next, share(f.topic('chat'), 'yet another')]), [1, 0x97], 'one has ended');
});

t.end();
