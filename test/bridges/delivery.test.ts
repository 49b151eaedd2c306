/** What is sent on, in what form, how it is tried again, and what becomes of what cannot be delivered. */
import { readFileSync } from 'node:fs';
import { Webhook as StandardWebhook } from 'standardwebhooks';
import type { Test } from 'tap';
import { certificate } from '../broker/certificate.ts';
import { purgeNow } from '../support/clockwork.ts';
import { deadLetterLooks, leaveDeadLetter, whileOutboxFails } from '../support/faults.ts';
import { freePort } from '../support/free-port.ts';
import { part } from '../support/part.ts';
import { closed, type Made, present, type Service, startService } from '../support/service.ts';
import { countOutbox, countStored } from '../support/stored.ts';
import { until } from '../support/until.ts';
import { byDevice, type Receiver, startReceiver, textOf } from './receiver.ts';

const t = await part(import.meta);

let offset = 0;
const minute = 60_000;
const hour = 60 * minute;
let service: Service;
let templateId: string;
t.before(async () => {
  const env = {
    SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true',
    SLIPWAY_BRIDGE_TIMEOUT_SECONDS: '1',
    SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0',
  };
  service = await startService(t, { env, clock: { now: () => Date.now() + offset } });
  const channels = [
    { name: 'none', streamBridgeDelivery: 0 },
    { name: 'effort', streamBridgeDelivery: 1 },
    { name: 'sure', streamBridgeDelivery: 2 },
    { name: 'series', streamBridgeDelivery: 2, persistenceType: 'timeSeries' },
  ];
  templateId = (await service.template({ channels })).id;
});

interface Bridged {
  receiver: Receiver;
  bridge: Omit<Made<'bridge'>, 'status'>;
}

/** A bridge to a new receiver; it is deleted with the test. */
async function bridged(t: Test, receiver?: Receiver): Promise<Bridged> {
  const to = receiver ?? (await startReceiver(t));
  const bridge = await service.create('/bridges', 'bridge', {
    name: service.unique('Bridge'),
    kind: 'webhook',
    url: to.url,
  });
  t.teardown(() => removed(bridge.id));
  return { receiver: to, bridge };
}

async function removed(id: string): Promise<void> {
  const { status, body } = await service.http('GET', `/api/v1/bridges/${id}`);
  if (status === 200) await service.ok('DELETE', `/api/v1/bridges/${id}`, { headers: { etag: body.bridge.version } });
}

/** A device, connected: publishes and waits for the acknowledgement. */
async function speaker(more: object = {}) {
  const { device, secret } = await service.device({ deviceTemplateId: templateId, ...more });
  const client = await service.connect({ deviceId: device.id, secret });
  const say = (channel: string, text: string, qos: 0 | 1 | 2 = 1) =>
    client.publishAsync(service.topic(device.id, channel), text, { qos });
  return { id: device.id, device, secret, client, say };
}

const statusOf = async ({ id }: { id: string }) => (await service.ok('GET', `/api/v1/bridges/${id}`)).bridge.status;
const deadLettersOf = async ({ id }: { id: string }) =>
  (await service.ok('GET', `/api/v1/bridges/${id}/dead-letters?pageSize=100`)).deadLetters;
const all = { from: '2020-01-01', to: '2100-01-01' };
const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => String(from + index));

t.test('an address of another scheme is refused, and told that http is allowed here', async (t) => {
  const body = { accountId: service.accountId, name: 'ftp', kind: 'webhook', url: 'ftp://127.0.0.1/' };
  t.match(await service.http('POST', '/api/v1/bridges', { body }), {
    status: 400,
    body: { error: { details: [{ path: 'url', message: 'must be an address with https or http' }] } },
  });
});

t.test('each message arrives with its names, signed as a library of Standard Webhooks checks it', async (t) => {
  const receiver = await startReceiver(t);
  const bridge = await service.create('/bridges', 'bridge', { name: 'Hook', kind: 'webhook', url: receiver.url });
  t.teardown(() => removed(bridge.id));
  const organization = await service.organization();
  const { device, say } = await speaker({ organizationId: organization.id });
  const before = Date.now() + offset;
  await say('sure', 'häh\0');
  const message = present((await receiver.received(1))[0]);
  t.match(message, {
    id: /^[0-9a-f-]{36}$/,
    topic: service.topic(device.id, 'sure'),
    accountId: service.accountId,
    deviceId: device.id,
    organizationId: organization.id,
    deviceTemplateId: templateId,
    channel: 'sure',
    qos: 1,
  });
  t.equal(textOf(message), 'häh\0');
  t.ok(Date.parse(message.time) >= before && Date.parse(message.time) <= Date.now() + offset);
  t.equal(Object.keys(message).length, 10);

  const [{ headers, body }] = receiver.tries as [Receiver['tries'][0]];
  const standard = (secret: string) => new StandardWebhook(Buffer.from(secret).toString('base64'));
  const sent = headers as Record<string, string>;
  t.strictSame(standard(bridge.secret).verify(body, sent), JSON.parse(body), 'a library of Standard Webhooks takes it');
  t.throws(() => standard('another secret').verify(body, sent));
});

t.test(
  'what is accepted on a channel of level 1 or 2 is sent, no matter who says it and with any QoS; nothing else is',
  async (t) => {
    const { receiver } = await bridged(t);
    const { id, client, say, secret } = await speaker();
    const admin = await service.connect({ jwt: service.admin });
    for (const channel of ['none', 'effort', 'sure'])
      for (const qos of [0, 1, 2] as const) await say(channel, `${channel} ${qos}`, qos);
    await admin.publishAsync(service.topic(id, 'sure'), 'by an admin', { qos: 1 });
    await say('series', ',a,1,');
    await say('series', 'in none of the forms');
    await say('no such channel', 'refused');
    await admin.publishAsync(service.topic(id, '_rejected'), 'refused', { qos: 1 });
    const will = { topic: service.topic(id, 'sure'), payload: Buffer.from('a will'), qos: 1 as const, retain: false };
    const dying = await service.connect({ deviceId: id, secret }, { will });
    dying.stream.destroy();
    await closed(dying);
    const messages = await receiver.received(10);
    await say('sure', 'the last');
    await receiver.received(11);
    t.strictSame(messages.map(textOf).sort(), [
      ',a,1,',
      'a will',
      'by an admin',
      'effort 0',
      'effort 1',
      'effort 2',
      'in none of the forms',
      'sure 0',
      'sure 1',
      'sure 2',
      'the last',
    ]);
    t.equal(new Set(messages.map((one) => one.id)).size, 11);

    const templates = await service.ok(
      'GET',
      `/api/v1/channels/templates?accountId=${service.accountId}&entityId=${templateId}&pageSize=100`,
    );
    const logs = present(templates.channelTemplates.results.find((one) => one.name === '_log'));
    await service.ok('PUT', `/api/v1/channels/templates/${logs.id}`, {
      headers: { etag: logs.version },
      body: { streamBridgeDelivery: 2 },
    });
    await say('_log', '{"message":"logged"}');
    t.match(
      (await receiver.received(12))[11],
      { channel: '_log', deviceId: id },
      'a service channel, once it is marked',
    );
    client.end(true);
  },
);

t.test('a bridge hears its own account alone, and without one nothing is written', async (t) => {
  const { say } = await speaker();
  const rows = () => countStored(service, 'outbox', '1', [], 'messages.db');
  await until(() => rows() === 0);
  await say('sure', 'nobody listens');
  t.equal(rows(), 0);
  const { accountId, admin: jwt } = await service.account();
  const receiver = await startReceiver(t);
  const about = { accountId, name: 'theirs', kind: 'webhook', url: receiver.url };
  const theirs = await service.create('/bridges', 'bridge', about, jwt);
  await say('sure', 'not for them');
  await say('effort', 'nor this');
  t.equal(rows(), 0);
  t.strictSame(receiver.tries, []);
  const etag = { headers: { etag: theirs.version }, token: jwt };
  await service.ok('DELETE', `/api/v1/bridges/${theirs.id}`, etag);
});

t.test(
  'a refused message is a dead letter; those before and after it pass, in order, and it can be replayed',
  async (t) => {
    const { receiver, bridge } = await bridged(t);
    receiver.behave = () => 503;
    const [one, other] = [await speaker(), await speaker()];
    await Promise.all(numbers(1, 40).map((n) => one.say('sure', n === '20' ? 'poison' : n)));
    await Promise.all(numbers(1, 40).map((n) => other.say('sure', n)));
    await until(async () => (await statusOf(bridge)).lastFailureReason === 'answered 503');
    receiver.behave = ({ messages }) => (messages.some((message) => textOf(message) === 'poison') ? 400 : 200);
    offset += minute;
    const messages = await receiver.received(79);
    t.strictSame(byDevice(messages), {
      [one.id]: numbers(1, 40).filter((n) => n !== '20'),
      [other.id]: numbers(1, 40),
    });
    await until(async () => (await deadLettersOf(bridge)).meta.count === 1);
    const [dead] = (await deadLettersOf(bridge)).results;
    t.match(dead, { deviceId: one.id, channel: 'sure', reason: 'answered 400', died: String });
    t.equal(textOf(dead), 'poison');
    await until(async () => (await statusOf(bridge)).pending === 0);

    receiver.behave = () => 200;
    receiver.messages.length = 0;
    const path = `/api/v1/bridges/${bridge.id}/replay`;
    const early = { from: '2020-01-01', to: '2020-02-01' };
    t.match(await service.ok('POST', path, { body: early }), { replay: { messages: 0 } });
    t.match(await service.ok('POST', path, { body: all }), { replay: { messages: 80 } });
    const again = await receiver.received(80);
    t.strictSame(byDevice(again), {
      [one.id]: numbers(1, 40).map((n) => (n === '20' ? 'poison' : n)),
      [other.id]: numbers(1, 40),
    });
    t.ok(
      again.some((message) => message.id === dead.id),
      'under the id that it had',
    );
    t.match(await deadLettersOf(bridge), { results: { length: 0 }, meta: { count: 0 } });
    t.equal(receiver.messages.length, 80, 'each once');
  },
);

t.test('a device whose messages fail waits alone, and goes on in order', async (t) => {
  const { receiver, bridge } = await bridged(t);
  const [bad, good] = [await speaker(), await speaker()];
  let broken = true;
  receiver.behave = ({ messages }) => {
    if (!broken) return 200;
    return messages.some((message) => message.deviceId === bad.id && textOf(message) === '3') ? 500 : 200;
  };
  await Promise.all(numbers(1, 6).map((n) => bad.say('sure', n)));
  await until(async () => {
    offset += 2000;
    return (await statusOf(bridge)).pending === 4;
  });
  await Promise.all(numbers(1, 30).map((n) => good.say('sure', n)));
  await until(() => {
    offset += 100;
    return receiver.messages.length >= 32;
  });
  t.strictSame(byDevice(receiver.messages), { [bad.id]: ['1', '2'], [good.id]: numbers(1, 30) });
  await Promise.all(numbers(7, 9).map((n) => bad.say('sure', n)));
  broken = false;
  offset += 10 * minute;
  t.strictSame(byDevice(await receiver.received(39))[bad.id], numbers(1, 9));
  t.equal(receiver.messages.length, 39, 'each once');

  broken = true;
  await bad.say('sure', '3');
  await bad.say('sure', 'after it');
  await until(async () => {
    await good.say('sure', 'others get through');
    offset += 6 * minute;
    return (await deadLettersOf(bridge)).meta.count === 1;
  });
  t.match(
    (await deadLettersOf(bridge)).results,
    [{ deviceId: bad.id, reason: 'answered 500' }],
    'twenty tries are enough',
  );
  await until(() => receiver.messages.some((message) => textOf(message) === 'after it'));
});

t.test('a page of large dead letters is read and sent a few at a time', async (t) => {
  const bridge = await service.create('/bridges', 'bridge', {
    name: 'Far',
    kind: 'webhook',
    url: 'http://127.0.0.1:9/',
  });
  const { accountId } = service;
  const count = 50;
  const idOf = (n: number) => `${accountId.slice(0, -4)}${String(n).padStart(4, '0')}`;
  const placeOf = ({ id }: { id: string }) => Number(id.slice(-4));
  for (let n = 0; n < count; n += 1)
    await leaveDeadLetter(service, bridge.id, 'too far', { id: idOf(n), payload: Buffer.alloc(120_000, n) });
  const looks = deadLetterLooks(t, service);
  const read = (query: string) => service.http('GET', `/api/v1/bridges/${bridge.id}/dead-letters?${query}`);
  const { results, meta } = (await read('pageSize=100')).body.deadLetters;
  t.match(meta, { count, page: 1, pageSize: 100 });
  t.strictSame(
    results.map(placeOf),
    Array.from({ length: count }, (_, n) => count - 1 - n),
    'all of them, newest first',
  );
  for (const dead of results)
    if (!Buffer.from(dead.payloadBase64, 'base64').equals(Buffer.alloc(120_000, placeOf(dead))))
      t.fail('another payload');
  t.ok(looks.length > 0 && Math.max(...looks) <= 8, `${looks} are read at once`);
  const second = (await read('pageSize=20&page=3')).body.deadLetters.results;
  t.strictSame(
    second.map(placeOf),
    Array.from({ length: 10 }, (_, n) => 9 - n),
  );
  t.match(await read('pageSize=20&page=4'), { status: 416 });
  await service.ok('DELETE', `/api/v1/bridges/${bridge.id}`, { headers: { 'if-match': `"${bridge.version}"` } });
});

t.test('what cannot be read of the outbox is read later, and ends nothing', async (t) => {
  const { receiver } = await bridged(t);
  const { say } = await speaker();
  await whileOutboxFails(service, async (failures) => {
    await say('sure', '1');
    await until(() => failures() > 0);
  });
  await until(() => {
    offset += 100;
    return receiver.messages.length > 0;
  });
  t.strictSame(receiver.messages.map(textOf), ['1']);
});

t.test('behind a target that is away messages wait, for three days', async (t) => {
  const receiver = await startReceiver(t, { port: await freePort() });
  const { bridge } = await bridged(t, receiver);
  await receiver.close();
  const { say, id } = await speaker();
  await say('sure', 'first');
  await until(async () => (await statusOf(bridge)).lastFailureReason?.includes('ECONNREFUSED'));
  offset += 71 * hour;
  const later = new Date(Date.now() + offset).toISOString();
  await say('sure', 'second');
  await until(async () => (await statusOf(bridge)).lastFailure >= later);
  t.match(await statusOf(bridge), { pending: 2, deadLetters: 0 });
  offset += 2 * hour;
  await until(async () => (await statusOf(bridge)).deadLetters === 1);
  const [dead] = (await deadLettersOf(bridge)).results;
  t.match(dead, { reason: /not delivered for too long: Nothing accepts connections.*ECONNREFUSED/ });
  t.equal(textOf(dead), 'first');
  const back = await startReceiver(t, { port: receiver.port });
  offset += 10 * minute;
  t.strictSame(byDevice(await back.received(1)), { [id]: ['second'] });
});

t.test(
  'a target says when to come again; redirects are not followed; a changed address is tried at once',
  async (t) => {
    const { receiver, bridge } = await bridged(t);
    const trap = await startReceiver(t);
    receiver.behave = () => ({ status: 307, headers: { location: trap.url, 'retry-after': '3000' } });
    const { say } = await speaker();
    await say('sure', 'x');
    await until(async () => (await statusOf(bridge)).lastFailureReason === 'answered 307');
    const { length } = receiver.tries;
    offset += 40 * minute;
    const other = await speaker();
    const hears = await startReceiver(t);
    const second = await bridged(t, hears);
    await other.say('sure', 'y');
    await hears.received(1);
    // Both bridges hear of each message: the first would have tried again by the time that another comes to the second.
    await other.say('sure', 'z');
    t.strictSame((await hears.received(2)).map(textOf), ['y', 'z']);
    t.equal(receiver.tries.length, length, 'it waits as long as its target says');
    t.strictSame(trap.tries, []);
    const { version } = (await service.ok('GET', `/api/v1/bridges/${bridge.id}`)).bridge;
    const fresh = await startReceiver(t);
    const change = { headers: { etag: version }, body: { url: fresh.url, secret: null } };
    const changed = (await service.ok('PUT', `/api/v1/bridges/${bridge.id}`, change)).bridge;
    t.strictSame((await fresh.received(3)).map(textOf), ['x', 'y', 'z']);
    t.not(changed.secret, bridge.secret);
    await removed(second.bridge.id);
  },
);

t.test('a message that is too much for a batch goes in smaller ones; a late answer counts as no answer', async (t) => {
  const { receiver, bridge } = await bridged(t);
  receiver.behave = () => 'never';
  const { say, id } = await speaker();
  await Promise.all(numbers(1, 30).map((n) => say('sure', n)));
  await until(async () => (await statusOf(bridge)).lastFailureReason === 'no answer in time');
  receiver.behave = ({ messages }) => (messages.length > 5 ? 413 : 200);
  offset += minute;
  t.strictSame(byDevice(await receiver.received(30)), { [id]: numbers(1, 30) });
  t.match(await statusOf(bridge), { deadLetters: 0 });
});

t.test('a target that answers and never ends takes no more connections than batches', async (t) => {
  const { receiver } = await bridged(t);
  const { say } = await speaker();
  for (const [answer, count] of [
    ['long', 40],
    ['endless', 6],
  ] as const) {
    receiver.behave = () => answer;
    const before = receiver.messages.length;
    for (const channel of ['effort', 'sure'])
      for (let at = 0; at < count / 2; at += 1) {
        const { length } = receiver.tries;
        await say(channel, answer);
        if (answer === 'long') await receiver.tried(length + 1);
      }
    await receiver.received(before + count);
  }
  t.ok(receiver.maxConnections <= 5, `${receiver.maxConnections} connections`);
  receiver.behave = () => 200;
  await say('sure', 'after it');
  t.equal(textOf(present((await receiver.received(47))[46])), 'after it');
});

t.test('level 1 never slows a publisher: what finds no room is dropped, the oldest first, and counted', async (t) => {
  const { receiver, bridge } = await bridged(t);
  receiver.behave = () => 'never';
  const { client, id } = await speaker();
  const topic = service.topic(id, 'effort');
  await client.publishAsync(topic, 'first', { qos: 1 });
  await receiver.tried(1);
  const texts = numbers(1, 10_300);
  await Promise.all(texts.map((n) => client.publishAsync(topic, n, { qos: 1 })));
  const { dropped } = await statusOf(bridge);
  t.ok(dropped >= 300 && dropped <= 3000, `dropped ${dropped}`);
  t.match(await statusOf(bridge), { pending: 0 });
  receiver.behave = () => 200;
  offset += 10 * minute;
  const all = ['first', ...texts];
  await until(async () => {
    offset += 1000;
    return (await statusOf(bridge)).waiting === 0;
  });
  const left = receiver.messages.map(textOf).filter((text) => text !== 'first');
  t.strictSame(left, all.slice(all.length - left.length), 'the newest are left');
  t.equal(receiver.messages.length + (await statusOf(bridge)).dropped, all.length);
});

t.test('a deleted bridge takes with it what is pending; delivered and dead rows go when they are old', async (t) => {
  const { receiver, bridge } = await bridged(t);
  const { say } = await speaker();
  await say('sure', 'x');
  await receiver.received(1);
  await until(() => countOutbox(service, bridge.id, 'delivered') === 1);
  receiver.behave = () => 503;
  await say('sure', 'y');
  await until(async () => (await statusOf(bridge)).lastFailure !== null);
  t.equal((await service.ok('GET', '/api/v1/usage')).usage.outbox, 2);
  offset += 25 * hour;
  const other = await bridged(t);
  await removed(other.bridge.id);
  await until(() => countOutbox(service, bridge.id, 'delivered') === 0);
  t.match(await statusOf(bridge), { pending: 1 });
  await removed(bridge.id);
  await until(() => countOutbox(service, bridge.id) === 0);
});

t.test('over HTTPS the certificate counts', async (t) => {
  const { SLIPWAY_TLS_CERT = '', SLIPWAY_TLS_KEY = '' } = certificate(t);
  delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
  const tls = { cert: readFileSync(SLIPWAY_TLS_CERT), key: readFileSync(SLIPWAY_TLS_KEY) };
  const receiver = await startReceiver(t, { tls });
  const { bridge } = await bridged(t, receiver);
  const { say } = await speaker();
  await say('sure', 'x');
  await until(async () => (await statusOf(bridge)).lastFailureReason?.includes('DEPTH_ZERO_SELF_SIGNED_CERT'));
  t.strictSame(receiver.tries, []);
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
  offset += minute;
  t.strictSame((await receiver.received(1)).map(textOf), ['x']);
});

t.test('what is kept of a device goes with it when it is purged, and nothing of others', async (t) => {
  const { receiver, bridge } = await bridged(t);
  const [gone, stays] = [await speaker(), await speaker()];
  const kept = (id: string) => countStored(service, 'outbox', '"deviceId" = ?', [id], 'messages.db');
  for (const { say } of [gone, stays]) await say('sure', 'delivered');
  await receiver.received(2);
  await until(() => countOutbox(service, bridge.id, 'delivered') === 2);
  receiver.behave = ({ messages }) => (messages.some((message) => textOf(message) === 'poison') ? 400 : 503);
  for (const { say } of [gone, stays]) await say('sure', 'poison');
  await until(() => countOutbox(service, bridge.id, 'dead') === 2);
  for (const { say } of [gone, stays]) await say('sure', 'pending');
  t.strictSame([kept(gone.id), kept(stays.id)], [3, 3]);
  const { version } = (await service.ok('GET', `/api/v1/devices/${gone.id}`)).device;
  await service.ok('DELETE', `/api/v1/devices/${gone.id}`, { headers: { etag: version } });
  offset += 30 * 24 * hour + 1;
  await purgeNow(service);
  t.strictSame([kept(gone.id), kept(stays.id)], [0, 3]);
  await service.login();
});

t.end();
