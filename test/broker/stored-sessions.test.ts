/** The life of a stored session in one process: its order, its bounds, its end. */

import { purgeNow } from '../support/clockwork.ts';
import { interceptSessions } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { sharedService } from '../support/shared.ts';
import { storedRows } from '../support/stored.ts';
import { until } from '../support/until.ts';
import {
  connected,
  disconnected,
  keeper,
  left,
  type Message,
  published,
  start,
  subscribed,
  taken,
  texts,
} from './conversation.ts';
import { type Fixture, fixture, fixtureIn, rawConnected, sibling, versionOf } from './fixture.ts';
import { publishPacket, subscribePacket } from './raw.ts';

const t = await part(import.meta);

/** What is on disk of sessions. */
const rowsOf = ({ service }: Fixture, statement: string) =>
  storedRows<{ clientId: string; topic: string; left: number | null }>(service, statement, [], 'messages.db');

t.test('a message that comes while a session gets its queue does not overtake it', async (t) => {
  const f = await left(t);
  const server = await start(t, f);
  const subscriber = await connected(t, server, f, keeper);
  await subscribed(subscriber, [f.topic('chat'), 1]);
  await disconnected(subscriber);
  const publisher = await connected(t, server, f);
  const publish = (n: number) =>
    publisher.send(publishPacket(f.topic('chat'), `${n}`, { qos: 1, messageId: (n % 60_000) + 1 }));
  const acknowledged = async (count: number) => {
    for (let n = 0; n < count; n += 1) await publisher.next();
  };
  const backlog = 3000;
  for (let n = 0; n < backlog; n += 1) publish(n);
  await acknowledged(backlog);
  // The publisher goes on before the subscriber is back, and until it has heard something.
  let published = backlog;
  let isBack = false;
  const flood = (async () => {
    while (!isBack) {
      for (let n = 0; n < 10; n += 1) publish(published + n);
      published += 10;
      await acknowledged(10);
    }
  })();
  const back = await connected(t, server, f, keeper);
  const messages = await taken(back, ({ length }) => {
    // However slowly the disk takes them, more than the first ten have come.
    isBack ||= length >= backlog && published > backlog + 10;
    return isBack && length >= published;
  });
  await flood;
  t.ok(published > backlog + 10, `${published - backlog} came meanwhile`);
  t.same(
    texts(messages),
    Array.from({ length: published }, (_, n) => `${n}`),
  );
});

t.test('a session that nobody came back to ends after its time, with what was queued for it', async (t) => {
  let now = Date.now();
  const f = await fixture(t, { SLIPWAY_MQTT_SESSION_EXPIRY_HOURS: '3' }, { clock: { now: () => now } });
  const sessions = () => rowsOf(f, 'SELECT "clientId", "left" FROM "mqttSessions"');
  for (const clientId of ['early', 'late', 'here']) {
    const client = await rawConnected(t, f, { clientId, clean: false });
    await subscribed(client, [f.topic('chat'), 1]);
    if (clientId !== 'here') {
      await disconnected(client);
      await until(() => sessions().some((row) => row.clientId.endsWith(`/${clientId}`) && row.left === now));
    }
    now += 3_600_000;
  }
  const publisher = await rawConnected(t, f);
  await published(publisher, f.topic('chat'), 'x');
  await until(() => !sessions().some(({ clientId }) => clientId.endsWith('/early')));
  const ids = sessions()
    .map(({ clientId }) => clientId.split('/')[2])
    .sort();
  t.same(ids, ['here', 'late']);
  t.equal(rowsOf(f, 'SELECT * FROM "mqttSubscriptions"').length, 2);
});

t.test('what belongs to a device that is gone for good is cleared: its sessions, what is retained there', async (t) => {
  let now = Date.now();
  const f = await fixture(t, { SLIPWAY_MQTT_SESSION_EXPIRY_HOURS: '0' }, { clock: { now: () => now } });
  const other = await sibling(f);
  for (const one of [f, other]) {
    const client = await rawConnected(t, one, keeper);
    await subscribed(client, [one.topic('chat'), 1]);
    await published(client, one.topic('temperature'), '1', { retain: true });
    await disconnected(client);
  }
  const etag = await versionOf(f.service, f.device.id);
  await f.service.ok('DELETE', `/api/v1/devices/${f.device.id}`, { headers: { etag } });
  now += 31 * 86_400_000;
  await purgeNow(f.service);
  const sessions = () => rowsOf(f, 'SELECT "clientId" FROM "mqttSessions"');
  const retained = () => rowsOf(f, 'SELECT "topic" FROM "mqttRetained"');
  await until(() => sessions().length === 1 && retained().length === 1);
  t.match(sessions(), [{ clientId: new RegExp(other.device.id) }]);
  t.match(retained(), [{ topic: other.topic('temperature') }]);
});

t.test('a clean session leaves nothing of the stored one before it', async (t) => {
  const f = await fixture(t);
  const count = (table: string) => rowsOf(f, `SELECT * FROM "${table}"`).length;
  const first = await rawConnected(t, f, keeper);
  await subscribed(first, [f.topic('chat'), 1]);
  await disconnected(first);
  await published(await rawConnected(t, f), f.topic('chat'), 'x');
  t.equal(count('mqttQueue'), 1);
  await rawConnected(t, f, { ...keeper, clean: true });
  await until(() => count('mqttSessions') + count('mqttSubscriptions') + count('mqttQueue') === 0);
  t.pass('nothing is left on disk');
});

t.test('a session keeps messages at the QoS that its filter has last been given', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const publisher = await rawConnected(t, f);
  const missed = async (count: number) => {
    await published(publisher, f.topic('chat'), 'missed', { qos: 2 });
    const back = await rawConnected(t, f, keeper);
    const messages = await taken(back, ({ length }) => length >= count);
    return { back, heard: messages.map(({ qos }) => qos) };
  };
  let keeps = await rawConnected(t, f, keeper);
  for (const [at, qos] of ([0, 1, 2, 1, 0] as const).entries()) {
    // The last of two counts, in one SUBSCRIBE too.
    t.same(await subscribed(keeps, [f.topic('chat'), 2], [f.topic('chat'), qos]), [2, qos]);
    await disconnected(keeps);
    const { back, heard } = await missed(Math.min(qos, 1));
    t.same(heard, qos === 0 ? [] : [qos], `the filter of ${at + 1}. SUBSCRIBE`);
    keeps = back;
  }
  await subscribed(keeps, [f.topic('chat'), 1]);
  keeps.send({ cmd: 'unsubscribe', messageId: 2, unsubscriptions: [f.topic('chat')] });
  t.match(await keeps.next(), { cmd: 'unsuback' });
  await disconnected(keeps);
  const { heard } = await missed(0);
  t.same(heard, [], 'none without it');
});

t.test('what the store refuses is not acknowledged, and the session goes on as it was', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const subscriber = await rawConnected(t, f, keeper);
  await subscribed(subscriber, [f.topic('chat'), 1]);
  await disconnected(subscriber);
  const restore = interceptSessions(t, f.service, (write) => write(new Error('the disk is full')));
  const refused = await rawConnected(t, f);
  refused.send(publishPacket(f.topic('chat'), 'refused', { qos: 1, messageId: 1 }));
  await refused.closed;
  await t.rejects(refused.next(), 'no PUBACK');
  restore();
  await published(await rawConnected(t, f), f.topic('chat'), 'accepted');
  const back = await rawConnected(t, f, keeper);
  t.same(texts(await taken(back, ({ length }) => length > 0)), ['accepted']);
});

t.test(
  'what was said out of reach stays unheard when the right comes back, queued or retained meanwhile',
  async (t) => {
    const f = await fixtureIn(await sharedService(t));
    const organization = await f.service.organization();
    const { token } = await f.service.endUser(organization.id);
    const admin = await f.service.connect({ jwt: f.service.admin });
    const say = (payload: string, retain = false) => admin.publishAsync(f.topic('chat'), payload, { qos: 1, retain });
    const move = async (organizationId: string | null) =>
      f.service.ok('PUT', `/api/v1/devices/${f.device.id}`, {
        body: { organizationId },
        headers: { etag: await versionOf(f.service, f.device.id) },
      });
    const session = { clientId: 'phone', clean: false, username: 'Auth:JWT', password: Buffer.from(token) };
    const filter = f.topic('chat').replace(f.device.id, '+');
    /** What a connection of the phone is told; with a subscription, what is retained too. */
    const phoneHears = async (subscribes: boolean, atLeast = 0) => {
      const phone = await rawConnected(t, f, session);
      if (subscribes) phone.send(subscribePacket(1, [filter, 1]));
      const messages = (all: Message[]) => all.filter(({ cmd }) => cmd === 'publish');
      const heard = await taken(phone, (all) => messages(all).length >= atLeast);
      await disconnected(phone);
      return texts(messages(heard));
    };
    await move(organization.id);
    t.same(await phoneHears(true), []);
    await say('in reach', true);
    await move(null);
    await say('out of reach');
    t.same(await phoneHears(true), [], 'neither the queued message nor the retained one');
    await say('still out of reach');
    await move(organization.id);
    await say('in reach again');
    t.same(await phoneHears(false, 1), ['in reach again']);
    t.same(await phoneHears(true, 1), ['in reach'], 'the retained one is in reach as well again');
    await say('before');
    await move(null);
    await move(organization.id);
    await say('after');
    t.same(await phoneHears(false, 1), ['after'], 'what was queued went with the right, though nobody had asked');
  },
);

t.end();
