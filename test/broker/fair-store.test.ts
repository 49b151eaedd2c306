/** Accounts share the message store: what one sends in bulk does not make another wait, and nobody's order changes. */
import type { Test } from 'tap';
import { countPayloadReads, interceptPoints, interceptSessions, interceptSteps } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { sharedService } from '../support/shared.ts';
import { countStored } from '../support/stored.ts';
import { until } from '../support/until.ts';
import { type Fixture, fixture, fixtureIn, neighbour, rawConnected, sibling, stored } from './fixture.ts';
import { hits, metric } from './metrics.ts';
import { publishPacket, type RawClient, subscribePacket } from './raw.ts';

const t = await part(import.meta);

const rows = (count: number, from = 0) => Array.from({ length: count }, (_, n) => `,,${from + n}\n`).join('');

interface Acknowledged {
  /** Ids of the acknowledged messages, as they come. */
  readonly ids: Array<number | undefined>;
  readonly first: Promise<void>;
  readonly all: Promise<void>;
}

/** Messages of all accounts that wait for the store, beside those that have waited before. */
async function countWaiting(f: Fixture): Promise<() => Promise<number>> {
  const depth = async () => Number(await metric(f, 'slipway_queue_depth{queue="ingest"}'));
  const before = await depth();
  return async () => (await depth()) - before;
}

function acknowledged(client: RawClient, count: number): Acknowledged {
  const ids: Array<number | undefined> = [];
  let firstCame = () => {};
  const first = new Promise<void>((resolve) => {
    firstCame = resolve;
  });
  const all = (async () => {
    while (ids.length < count) {
      const packet = await client.next();
      if (packet.cmd !== 'puback') continue;
      ids.push(packet.messageId);
      firstCame();
    }
  })();
  return { ids, first, all };
}

t.test('a flood of rows of one account does not make another wait for all of it', async (t) => {
  const f = await fixture(t, { SLIPWAY_MQTT_POINT_RATE_PER_CLIENT: '0' });
  const victim = await neighbour(f);
  const villains = [f, await sibling(f), await sibling(f), await sibling(f)];
  const clients = await Promise.all(villains.map((one) => rawConnected(t, one)));
  const calm = await rawConnected(t, victim);
  const each = 10;
  const floods = clients.map((client) => acknowledged(client, each));
  for (const [n, client] of clients.entries())
    client.send(
      ...Array.from({ length: each }, (_, id) =>
        publishPacket((villains[n] as Fixture).topic('temperature'), rows(5000), { qos: 1, messageId: id + 1 }),
      ),
    );
  // The first of them is on disk, the store is busy with the others.
  await Promise.race(floods.map(({ first }) => first));
  const before = floods.reduce((sum, { ids }) => sum + ids.length, 0);
  calm.send(publishPacket(victim.topic('temperature'), ',x,1,', { qos: 1, messageId: 1 }));
  t.match(await calm.next(), { cmd: 'puback', messageId: 1 });
  const passed = floods.reduce((sum, { ids }) => sum + ids.length, 0) - before;
  t.ok(passed <= 5, `${passed} payloads of 5,000 rows went before one of a neighbour, of ${each * clients.length}`);
  await Promise.all(floods.map(({ all }) => all));
  for (const { ids } of floods)
    t.same(
      ids,
      Array.from({ length: each }, (_, n) => n + 1),
      'in the order of the client',
    );
});

t.test('a message for many stored sessions costs its sender as many points', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const victim = await neighbour(f);
  for (let n = 0; n < 20; n += 1) {
    const keeper = await rawConnected(t, f, { clientId: `keeper ${n}`, clean: false });
    keeper.send(subscribePacket(1, [f.topic('chat'), 1]));
    t.match(await keeper.next(), { cmd: 'suback' });
    keeper.send({ cmd: 'disconnect' });
    await keeper.closed;
  }
  const client = await rawConnected(t, f);
  const calm = await rawConnected(t, victim);
  const waiting = await countWaiting(f);
  /** What the store has been given, oldest first, and has not been let do. */
  const held: Array<{ of: 'villain' | 'victim'; go(): void }> = [];
  const restore = interceptSessions(t, f.service, (write, kinds) => {
    const go = () => write();
    if (kinds.includes('retain')) held.push({ of: 'victim', go });
    else if (kinds.includes('message')) held.push({ of: 'villain', go });
    else go();
  });
  const count = 400;
  const { all } = acknowledged(client, count);
  client.send(
    ...Array.from({ length: count }, (_, n) => publishPacket(f.topic('chat'), 'x', { qos: 1, messageId: n + 1 })),
  );
  await until(async () => (await waiting()) === count);
  t.ok(held.length < 250, `${held.length} of ${count} are in the store, each with 20 places`);
  calm.send(publishPacket(victim.topic('temperature'), ',x,1,', { qos: 1, messageId: 1, retain: true }));
  await until(async () => (await waiting()) === count + 1);
  const before = held.length;
  for (let released = 0; !held.some(({ of }) => of === 'victim'); released += 1) {
    held[released]?.go();
    await until(async () => (await waiting()) < count + 1 - released);
  }
  t.ok(held.length - before < 40, 'soon after the first has left, the neighbour has its turn');
  restore();
  for (const { go } of held.splice(0)) go();
  await all;
});

t.test('of large payloads only a few are read before they are stored, of each account', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const victim = await neighbour(f);
  const senders = await Promise.all(Array.from({ length: 7 }, () => sibling(f)));
  const clients = await Promise.all(senders.map((one) => rawConnected(t, one)));
  const calm = await rawConnected(t, victim);
  const waiting = await countWaiting(f);
  const held: Array<() => void> = [];
  const restore = interceptPoints(t, f.service, (store) => void held.push(store));
  const reads = countPayloadReads(t, f.service);
  const large = rows(1500);
  t.ok(large.length > 8192);
  const floods = clients.map((client) => acknowledged(client, 2));
  for (const [n, client] of clients.entries())
    for (const messageId of [1, 2])
      client.send(publishPacket((senders[n] as Fixture).topic('temperature'), large, { qos: 1, messageId }));
  await until(async () => (await waiting()) === 14 && held.length > 0);
  t.equal(reads.begun(), 4, 'the others wait as they came');
  calm.send(publishPacket(victim.topic('temperature'), large, { qos: 1, messageId: 1 }));
  await until(async () => (await waiting()) === 15);
  t.equal(reads.begun(), 5, 'another account has places of its own');
  restore();
  for (const go of held.splice(0)) go();
  await Promise.all(floods.map(({ all }) => all));
  t.match(await calm.next(), { cmd: 'puback', messageId: 1 });
  t.same(
    floods.map(({ ids }) => ids),
    senders.map(() => [1, 2]),
    'each in the order of its client',
  );
});

t.test('small messages do not overtake a large one of the same client, which a thread reads', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const client = await rawConnected(t, f);
  const topic = f.topic('temperature');
  const sent = [rows(1500, 0), ',,1500,', rows(1500, 1501), ',,3001,', '3002'];
  const { ids, all } = acknowledged(client, sent.length);
  client.send(...sent.map((payload, n) => publishPacket(topic, payload, { qos: 1, messageId: n + 1 })));
  await all;
  t.same(ids, [1, 2, 3, 4, 5]);
  const { text } = await f.service.http('GET', `/api/v4/data/${topic}?format=ndjson`);
  const values = text.trim().split('\n');
  t.equal(values.length, 3003);
  t.ok((await stored(f)).includes(3002));
});

t.test('QoS 0 that a thread reads is handed on, and so is what comes behind it', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const client = await rawConnected(t, f);
  const topic = f.topic('temperature');
  client.send(subscribePacket(1, [topic, 0]));
  await client.next();
  const sent = [rows(1500), ',,1500,', rows(1500, 1501), ',,3001,'];
  client.send(...sent.map((payload) => publishPacket(topic, payload, { qos: 0 })));
  for (const payload of sent) t.match(await client.next(), { cmd: 'publish', payload: Buffer.from(payload) });
});

/** Rows of as many categories, which nothing else has. */
const categories = (count: number, name: string) =>
  Array.from({ length: count }, (_, n) => `,${name}${n},1\n`).join('');

t.test('a message of many categories goes in short steps, in turns of accounts, and is there as a whole', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const [other, victim] = [await neighbour(f), await neighbour(f)];
  const clients = await Promise.all([f, other].map((one) => rawConnected(t, one)));
  const calm = await rawConnected(t, victim);
  const steps: Array<{ accountId: string; points: number; go(): void }> = [];
  interceptSteps(t, f.service, (go, { length }, accountId) => void steps.push({ accountId, points: length, go }));
  const floods = clients.map((client) => acknowledged(client, 2));
  const reads = countPayloadReads(t, f.service);
  for (const [n, { topic }] of [f, other].entries())
    clients[n]?.send(publishPacket(topic('temperature'), categories(4900, `of ${n} `), { qos: 1, messageId: 1 }));
  // The first step is held until both have been read: from here on they take turns.
  await until(() => steps.length > 0 && reads.ended() === 2);
  for (const [n, { topic }] of [f, other].entries())
    clients[n]?.send(publishPacket(topic('temperature'), ',last,2,', { qos: 1, messageId: 2 }));
  const known = () => countStored(f.service, '"categories"', `"text" LIKE 'of _ %'`, [], 'messages.db');
  const pointsOf = ({ device }: Fixture) =>
    countStored(f.service, '"points" JOIN "series" ON "id" = "series"', '"deviceId" = ?', [device.id], 'messages.db');
  interceptPoints(t, f.service, (store, points) => {
    if (points.length > 1) t.ok(known() >= points.length, 'nothing is left to do but the points');
    store();
  });
  for (let n = 0; n < 40; n += 1) {
    await until(() => steps.length > n);
    if (n === 30) {
      calm.send(publishPacket(victim.topic('temperature'), ',x,1,', { qos: 1, messageId: 1 }));
      t.match(await calm.next(), { cmd: 'puback', messageId: 1 }, 'written while both are on their way');
      for (const one of [f, other]) t.equal(pointsOf(one), 0, 'nobody sees a part');
    }
    t.equal(steps.length, n + 1, 'one step at a time');
    steps[n]?.go();
  }
  await Promise.all(floods.map(({ all }) => all));
  t.ok(steps.every(({ points }) => points <= 250));
  const [first, second] = steps.slice(10, 30).map(({ accountId }) => accountId);
  t.not(first, second);
  t.ok(
    steps.slice(10, 30).every(({ accountId }, n) => accountId === (n % 2 ? second : first)),
    'in turns',
  );
  for (const { ids } of floods) t.same(ids, [1, 2], 'in the order of the client');
  for (const one of [f, other]) t.equal(pointsOf(one), 4901);
});

t.test('categories of a message cost what they take: few such messages are in the store at once', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const senders = await Promise.all(Array.from({ length: 12 }, () => sibling(f)));
  const clients = await Promise.all(senders.map((one) => rawConnected(t, one)));
  const waiting = await countWaiting(f);
  const held: Array<() => void> = [];
  const restore = interceptPoints(t, f.service, (store) => void held.push(store));
  const floods = clients.map((client) => acknowledged(client, 1));
  for (const [n, client] of clients.entries())
    client.send(
      publishPacket((senders[n] as Fixture).topic('temperature'), categories(390, `${n} `), { qos: 1, messageId: 1 }),
    );
  await until(async () => (await waiting()) === clients.length && held.length > 1);
  t.equal(held.length, 2, 'of 390 points and as many categories each');
  restore();
  for (const go of held.splice(0)) go();
  await Promise.all(floods.map(({ all }) => all));
});

t.test('a payload over the maximum of points or depth is delivered, not stored, and explained', async (t) => {
  const f = await fixture(t, { SLIPWAY_MQTT_MAX_POINTS: '100' });
  const client = await rawConnected(t, f);
  client.send(subscribePacket(1, [f.topic('temperature'), 0], [f.topic('_rejected'), 0]));
  t.match(await client.next(), { cmd: 'suback' });
  const senml = (count: number) => JSON.stringify(Array.from({ length: count }, (_, n) => ({ n: 'a', v: n })));
  const object = (count: number) => JSON.stringify(Object.fromEntries(Array.from({ length: count }, (_, n) => [n, n])));
  const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`;
  const refused: Array<[string, RegExp]> = [
    [rows(101), /more than 100 points \(SLIPWAY_MQTT_MAX_POINTS\)/],
    [senml(101), /more than 100 points/],
    [JSON.stringify({ e: JSON.parse(senml(101)) }), /more than 100 points/],
    [object(101), /more than 100 points/],
    [nested(33), /32 levels deep \(SLIPWAY_MQTT_MAX_DEPTH\)/],
  ];
  const posted = (body: string) =>
    f.service.http('POST', `/api/v4/data/${f.topic('temperature')}`, {
      body,
      headers: { 'content-type': 'application/octet-stream' },
    });
  for (const [payload, reason] of refused) {
    client.send(publishPacket(f.topic('temperature'), payload, { qos: 0 }));
    const packets = [await client.next(), await client.next()] as Array<{ topic: string; payload: Buffer }>;
    const explained = packets.find(({ topic }) => topic.endsWith('_rejected'));
    t.match(String(explained?.payload), reason);
    t.ok(
      packets.some((one) => one.payload.toString() === payload),
      'delivered all the same',
    );
    const answer = await posted(payload);
    t.equal(answer.status, 400);
    t.match(answer.text, reason);
  }
  t.same(await stored(f), []);
  for (const payload of [
    rows(100),
    `timestamp,category,numericValue,stringValue\n${rows(100)}`,
    senml(100),
    object(100),
  ])
    t.match(await posted(payload), { status: 200, body: { count: 100 } });
  t.match(
    await posted(JSON.stringify({ text: nested(33) })),
    { status: 200, body: { count: 1 } },
    'as a text it is flat',
  );
  t.match((await posted(nested(60_000))).text, /32 levels deep/);
  const body = `{"name":${nested(60_000)}}`;
  t.match(await f.service.http('POST', '/api/v1/organizations', { body }), { status: 400 });
});

async function slowedBy(t: Test, env: Record<string, string>, payload: string): Promise<Fixture> {
  // Over HTTP the rate is that of a second of this clock, which stands still.
  const now = Date.now();
  const f = await fixture(t, env, { clock: { now: () => now } });
  const client = await rawConnected(t, f);
  const ids = [1, 2, 3, 4, 5];
  // In one write: a machine that is slow at each must reach the rate as well.
  client.send(...ids.map((messageId) => publishPacket(f.topic('temperature'), payload, { qos: 1, messageId })));
  for (const messageId of ids)
    t.match(await client.next(), { cmd: 'puback', messageId }, 'slowed, and nothing is lost');
  return f;
}

t.test('points and bytes count as packets do: who sends too many is read more slowly', async (t) => {
  const ofPoints = await slowedBy(t, { SLIPWAY_MQTT_POINT_RATE_PER_CLIENT: '1000' }, rows(500));
  t.ok(((await hits(ofPoints, 'point_rate_per_client')) ?? 0) > 0);
  t.equal(await hits(ofPoints, 'publish_rate_per_client'), 0);
  const ofBytes = await slowedBy(
    t,
    { SLIPWAY_MQTT_BYTE_RATE_PER_CLIENT: '5000' },
    `,,,${'x'.repeat(1000)}\n`.repeat(3),
  );
  t.ok(((await hits(ofBytes, 'byte_rate_per_client')) ?? 0) > 0);
  const path = `/api/v4/data/${ofPoints.topic('temperature')}`;
  const post = () => ofPoints.service.http('POST', path, { body: rows(1000), headers: { 'content-type': 'text/csv' } });
  const answers = [await post(), await post(), await post()];
  const refused = answers.find(({ status }) => status === 429);
  t.match(refused?.text, /SLIPWAY_MQTT_POINT_RATE_PER_CLIENT/);
});

t.end();
