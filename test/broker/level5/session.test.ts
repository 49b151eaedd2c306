/** Sessions of MQTT 5: Clean Start and Session Expiry are two things. */
import { part } from '../../support/part.ts';
import { startService } from '../../support/service.ts';
import { until } from '../../support/until.ts';
import { connected as connectedAt4 } from '../conversation.ts';
import { type Fixture, fixture, fixtureIn, sibling, stored } from '../fixture.ts';
import {
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
} from './client.ts';
import { answer, disconnect, publish } from './packets.ts';

const t = await part(import.meta);

const never = 0xffff_ffff;
const week = 7 * 24 * 3600;

/** Of the tests that move the clock. */
let f: Fixture;
let now = Date.parse('2026-05-01T00:00:00Z');
const clock = { now: () => now };
t.before(async () => {
  f = await fixture(t, {}, { clock });
});
const ofClock = async (): Promise<Fixture> => fixtureIn(await f.service.inNewAccount());

/** CONNECT that keeps its session for so long. */
const keeping = (sessionExpiry: number | undefined, more: object = {}) => ({
  clientId: 'kept',
  ...(sessionExpiry !== undefined && { properties: { sessionExpiry } }),
  ...more,
});
const back = { clean: false };
const isPresent = ({ connack }: Connected) => connack.sessionPresent;

t.test('Session Present is 0 for a new session, 1 for one that is taken up, 0 after Clean Start', async (t) => {
  const f = await ownDevice(t);
  for (const [more, expected] of [
    [back, false],
    [back, true],
    [{ clean: true }, false],
    [back, true],
    [{ clean: true }, false],
  ] as const) {
    const client = await connected(t, f, keeping(100, more));
    t.equal(isPresent(client), expected);
    await leave(client);
  }
});

t.test('a session has its subscriptions, and Clean Start ends them', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f);
  const first = await connected(t, f, keeping(100));
  t.same(await subscribed(first, [f.topic('chat')]), [1]);
  await leave(first);
  t.equal((await published(sender, f.topic('chat'), 'queued')).code, 0);
  const second = await connected(t, f, keeping(100, back));
  t.same(payloads(await soFar(second)), ['queued']);
  await leave(second);
  const third = await connected(t, f, keeping(100));
  t.same(await soFar(third), []);
  t.equal((await published(sender, f.topic('chat'), 'x')).code, 0x10);
});

t.test('with expiry 0, or without one, the session ends with the connection, however that ends', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f, { clientId: 'sender' });
  for (const sessionExpiry of [0, undefined])
    for (const end of [leave, cut])
      for (const clean of [true, false]) {
        const client = await connected(t, f, keeping(sessionExpiry, { clean }));
        t.equal(isPresent(client), false);
        t.same(await subscribed(client, [f.topic('chat')]), [1]);
        await end(client);
        t.equal((await published(sender, f.topic('chat'), 'x')).code, 0x10);
        const again = await connected(t, f, keeping(sessionExpiry, back));
        t.equal(isPresent(again), false);
        await leave(again);
      }
});

t.test('expiry 0 also ends the session of a client that has taken one up', async (t) => {
  const f = await ownDevice(t);
  const first = await connected(t, f, keeping(100));
  t.same(await subscribed(first, [f.topic('chat')]), [1]);
  await leave(first);
  const second = await connected(t, f, keeping(0, back));
  t.equal(isPresent(second), true);
  await published(second, f.topic('chat'), 'x');
  t.match(await second.next(), { payload: 'x' }, 'with its subscriptions');
  await leave(second);
  t.equal(isPresent(await connected(t, f, keeping(100, back))), false);
});

t.test('a session ends when it has expired, and not before', async (t) => {
  const f = await ofClock();
  const sender = await connected(t, f);
  for (const end of [leave, cut]) {
    const first = await connected(t, f, keeping(10));
    t.same(await subscribed(first, [f.topic('chat')]), [1]);
    now += 60_000;
    await end(first);
    now += 9000;
    const second = await connected(t, f, keeping(10, back));
    t.equal(isPresent(second), true, 'the time of the connection does not count');
    await end(second);
    now += 10_000;
    await until(async () => (await published(sender, f.topic('chat'), 'x')).code === 0x10);
    const third = await connected(t, f, keeping(10, back));
    t.equal(isPresent(third), false);
    t.same(await soFar(third), []);
    await leave(third);
    now += 11_000;
  }
});

t.test('a session that has expired is gone, whether it has been cleared away or not', async (t) => {
  const f = await ofClock();
  const first = await connected(t, f, keeping(10));
  t.same(await subscribed(first, [f.topic('chat')]), [1]);
  await leave(first);
  now += 10_001;
  t.equal(isPresent(await connected(t, f, keeping(10, back))), false);
});

t.test('the longest expiry is what the service grants', async (t) => {
  const f = await ofClock();
  for (const [clientId, asked] of [
    ['never', never],
    ['long', 2 * week],
  ] as const) {
    const client = await connected(t, f, keeping(asked, { clientId }));
    t.equal(client.connack.properties.sessionExpiry, week);
    await leave(client);
    now += week * 1000 - 1000;
    const again = await connected(t, f, keeping(asked, { clientId, ...back }));
    t.equal(isPresent(again), true);
    await leave(again);
    now += week * 1000 + 1000;
    t.equal(isPresent(await connected(t, f, keeping(asked, { clientId, ...back }))), false);
  }
});

t.test('DISCONNECT may change the expiry: to 0, to less, to more', async (t) => {
  const f = await ofClock();
  for (const [asked, changed, after, expected] of [
    [100, 0, 0, false],
    [100, 10, 9, true],
    [100, 10, 11, false],
    [10, 100, 99, true],
    [10, 100, 101, false],
  ] as const) {
    const client = await connected(t, f, keeping(asked));
    await leave(client, 0, { sessionExpiry: changed });
    now += after * 1000;
    const again = await connected(t, f, keeping(asked, back));
    t.equal(isPresent(again), expected, `${asked} to ${changed}, after ${after} seconds`);
    await leave(again);
    now += 1_000_000;
  }
});

t.test('DISCONNECT may not change the expiry from 0', async (t) => {
  const f = await ownDevice(t);
  for (const sessionExpiry of [0, undefined]) {
    const client = await connected(t, f, keeping(sessionExpiry));
    client.send(disconnect(0, { sessionExpiry: 100 }));
    t.equal(await disconnectCode(t, client), 0x82);
    t.equal(isPresent(await connected(t, f, keeping(0, back))), false);
    const other = await connected(t, f, keeping(sessionExpiry));
    other.send(disconnect(0, { sessionExpiry: 0 }));
    await other.closed;
    await t.rejects(other.next(), 'to 0 it may');
  }
});

t.test('sessions expire in time across a restart', async (t) => {
  let ahead = 0;
  const own = { clock: { now: () => Date.parse('2026-05-01T00:00:00Z') + ahead } };
  const f = await fixture(t, {}, own);
  for (const [clientId, expiry] of [
    ['short', 10],
    ['long', 100],
  ] as const) {
    const client = await connected(t, f, keeping(expiry, { clientId }));
    t.same(await subscribed(client, [f.topic('chat')]), [1]);
    await leave(client);
  }
  const live = await connected(t, f, keeping(10, { clientId: 'live' }));
  await f.service.close();
  await live.closed;
  ahead = 50_000;
  const after = { ...f, service: await startService(t, { directory: f.service.directory, ...own }) };
  t.equal(isPresent(await connected(t, after, keeping(10, { clientId: 'short', ...back }))), false);
  t.equal(isPresent(await connected(t, after, keeping(100, { clientId: 'long', ...back }))), true);
});

t.test('what was not acknowledged comes again with DUP, in order, and what was is gone', async (t) => {
  const f = await ownDevice(t);
  const sender = await connected(t, f);
  const first = await connected(t, f, keeping(100));
  t.same(await subscribed(first, [[f.topic('chat'), { qos: 2 }]]), [2]);
  for (const [qos, text] of [
    [1, 'a'],
    [2, 'b'],
    [1, 'c'],
    [2, 'd'],
  ] as const) {
    sender.send(publish(f.topic('chat'), text, { qos, id: 9 }));
    await nextOf(sender, qos === 1 ? 'puback' : 'pubrec');
    if (qos === 2) sender.send(answer('pubrel', 9));
    if (qos === 2) await nextOf(sender, 'pubcomp');
  }
  const [a, b, c, d] = await soFar(first);
  first.send(answer('puback', a?.id as number), answer('pubrec', b?.id as number));
  t.match(await first.next(), { cmd: 'pubrel', id: b?.id, code: 0 });
  await first.drop();
  const second = await connected(t, f, keeping(100, back));
  t.equal(isPresent(second), true);
  const heard = await soFar(second);
  t.match(
    heard.find(({ cmd }) => cmd === 'pubrel'),
    { id: b?.id },
    'PUBREL again',
  );
  t.match(
    heard.filter(({ cmd }) => cmd === 'publish'),
    [
      { payload: 'c', qos: 1, dup: true, id: c?.id },
      { payload: 'd', qos: 2, dup: true, id: d?.id },
    ],
  );
  t.equal(heard.length, 3);
  second.send(answer('pubcomp', b?.id as number), answer('puback', c?.id as number), answer('pubrec', d?.id as number));
  t.match(await second.next(), { cmd: 'pubrel', id: d?.id });
  second.send(answer('pubcomp', d?.id as number));
  await leave(second);
  t.same(await soFar(await connected(t, f, keeping(100, back))), []);
});

t.test('packet ids of QoS 2 messages belong to the session', async (t) => {
  const f = await ownDevice(t);
  const listener = await connected(t, f, { clientId: 'listener' });
  t.same(await subscribed(listener, [[f.topic('chat'), { qos: 0 }]]), [0]);
  const send = async (client: Connected, text: string, dup: boolean) => {
    client.send(publish(f.topic('chat'), text, { qos: 2, id: 5, dup }));
    return (await client.next()).code;
  };
  const first = await connected(t, f, keeping(100));
  t.equal(await send(first, 'once', false), 0);
  await first.drop();
  const second = await connected(t, f, keeping(100, back));
  t.equal(await send(second, 'once', true), 0);
  second.send(answer('pubrel', 5));
  t.match(await second.next(), { cmd: 'pubcomp', id: 5, code: 0 });
  t.equal(await send(second, 'twice', false), 0);
  await second.drop();
  const third = await connected(t, f, keeping(100));
  t.equal(await send(third, 'of a new session', true), 0);
  await leave(third);
  t.same(payloads(await soFar(listener)), ['once', 'twice', 'of a new session']);
});

t.test(
  'what a client of QoS 2 repeats on a new connection succeeds, with DUP or without, and is delivered once',
  async (t) => {
    const f = await ownDevice(t);
    const listener = await connected(t, f, { clientId: 'listener' });
    t.same(await subscribed(listener, [[f.topic('chat'), { qos: 0 }]]), [0]);
    const send = async (client: Connected, text: string, dup = false) => {
      client.send(publish(f.topic('chat'), text, { qos: 2, id: 5, dup }));
      return (await client.next()).code;
    };
    const release = async (client: Connected) => {
      client.send(answer('pubrel', 5));
      return (await client.next()).code;
    };
    await cut(await connected(t, f, keeping(100)));
    for (const dup of [false, true]) {
      const first = await connected(t, f, keeping(100, back));
      t.equal(await send(first, `${dup}`), 0);
      await first.drop();
      const second = await connected(t, f, keeping(100, back));
      t.equal(await send(second, `${dup}`, dup), 0);
      t.equal(await release(second), 0);
      await second.drop();
      const third = await connected(t, f, keeping(100, back));
      t.equal(await release(third), 0, 'PUBCOMP was lost');
      t.equal(await send(third, `next after ${dup}`), 0, 'the id is free');
      t.equal(await release(third), 0);
      await third.drop();
    }
    t.same(payloads(await soFar(listener)), ['false', 'next after false', 'true', 'next after true']);
  },
);

t.test('a packet id that is used twice on a new connection is 0x91 there, and free after that', async (t) => {
  const f = await ownDevice(t);
  const send = async (client: Connected, text: string) => {
    client.send(publish(f.topic('temperature'), text, { qos: 2, id: 5 }));
    return (await client.next()).code;
  };
  const first = await connected(t, f, keeping(100));
  t.equal(await send(first, '1'), 0);
  await first.drop();
  const second = await connected(t, f, keeping(100, back));
  t.equal(await send(second, '1'), 0);
  t.equal(await send(second, '2'), 0x91);
  t.equal(await send(second, '3'), 0);
  await second.drop();
  const third = await connected(t, f, keeping(100, back));
  t.equal(await send(third, '3'), 0);
  t.same(await stored(f), [3, 1]);
});

t.test('a session is of one principal, whatever client ids others use', async (t) => {
  const f = await ownDevice(t);
  const other = await sibling(f);
  const first = await connected(t, f, keeping(100));
  t.equal(isPresent(await connected(t, other, keeping(100, back))), false);
  t.same(await soFar(first), [], 'nor is it taken over');
});

t.test('a live connection is taken over with its session, if that outlives the connection', async (t) => {
  const f = await ownDevice(t);
  for (const [expiry, expected] of [
    [100, true],
    [0, false],
  ] as const) {
    const first = await connected(t, f, keeping(expiry));
    t.same(await subscribed(first, [f.topic('chat')]), [1]);
    const second = await connected(t, f, keeping(0, back));
    t.equal(isPresent(second), expected, `expiry ${expiry}`);
    t.equal(await disconnectCode(t, first), 0x8e);
    await published(second, f.topic('chat'), 'x');
    t.same(payloads(await soFar(second)), expected ? ['x'] : []);
    await leave(second);
  }
});

t.test('a session of level 4 without Clean Session is found at level 5, and one of level 5 at level 4', async (t) => {
  const f = await ownDevice(t);
  const login = { clientId: 'kept', clean: false };
  const four = await connectedAt4(t, f.service.server, f, login);
  four.send({ cmd: 'disconnect' });
  await four.closed;
  const five = await connected(t, f, keeping(100, back));
  t.equal(isPresent(five), true);
  await leave(five);
  t.equal((await connectedAt4(t, f.service.server, f, login)).sessionPresent, true);
});

t.end();
