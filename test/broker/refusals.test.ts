/** GET /devices/{id}/refusals: why something of a device was refused. */
import type { Test } from 'tap';
import { purgeNow } from '../support/clockwork.ts';
import { part } from '../support/part.ts';
import { type Service, startService, unlessBehindProxy } from '../support/service.ts';
import { storedRows } from '../support/stored.ts';
import { connected, published, subscribed } from './conversation.ts';
import { type Fixture, fixture, sibling, versionOf } from './fixture.ts';
import { connectPacket, publishPacket, rawClient } from './raw.ts';

const t = await part(import.meta);

const day = 24 * 60 * 60_000;
const address = '127.0.0.1';
let now = Date.parse('2026-05-01T00:00:00Z');
let f: Fixture;
t.before(async () => {
  const env = {
    SLIPWAY_MQTT_MAX_SUBSCRIPTIONS: '2',
    SLIPWAY_MQTT_FAILED_CONNECTS_PER_PRINCIPAL: '3',
    SLIPWAY_TRUSTED_PROXIES: '127.0.0.1',
  };
  f = await fixture(t, env, { clock: { now: () => now } });
});

const listOf = (service: Service, { device }: Pick<Fixture, 'device'>, token = service.admin, query = '?pageSize=50') =>
  service.ok('GET', `/api/v1/devices/${device.id}/refusals${query}`, { token }).then(({ refusals }) => refusals);
const resultsOf = async (one: Fixture, token?: string) => (await listOf(f.service, one, token)).results;
const storedRefusals = () => storedRows(f.service, 'SELECT * FROM "refusals"');

/** CONNACK's code, and that the connection ended. */
async function refusedConnect(
  t: Test,
  username: string,
  password: string,
  { from, ...more }: { from?: string } & Record<string, unknown> = {},
): Promise<number> {
  const client = await rawClient(t, f.service.server.mqttPort);
  if (from !== undefined) client.send(Buffer.from(`PROXY TCP6 ${from} ::1 1 2\r\n`));
  f.service.secrets.add(password);
  client.send(connectPacket({ username, password: Buffer.from(password), ...more }));
  const { returnCode } = (await client.next()) as { returnCode?: number };
  await client.closed;
  return returnCode ?? 0;
}

t.test('what a device was refused is listed, newest first, with the reason and from where', async (t) => {
  const [one, other] = [await sibling(f), await sibling(f)];
  const client = await connected(t, f.service.server, one, { clientId: 'thing' });
  const from = { address, clientId: 'thing' };
  const say = (topic: string, payload: string) => published(client, topic, payload);
  await say(other.topic('chat'), 'x');
  await say(one.topic('nothing'), 'x');
  await say(one.topic('temperature'), 'a,b,c,d,e,f');
  await say(one.topic('_log'), 'x'.repeat(20_000));
  await say(one.topic('_set/fields'), '{"state":{"latitude":"91"}}');
  await say(one.topic('_updates/fields'), '{}');
  t.same(
    await subscribed(client, [other.topic('chat'), 1], [one.topic('chat'), 1], [one.topic('#'), 1], ['+/#', 1]),
    [0x80, 1, 1, 0x80],
  );
  const principal = { type: 'device', id: one.device.id };
  const publish = { action: 'publish', principal, ...from };
  const subscribe = { action: 'subscribe', principal, ...from };
  t.match(await listOf(f.service, one), {
    results: [
      { ...subscribe, topic: '+/#', code: -199, reason: /^SLIPWAY_MQTT_MAX_SUBSCRIPTIONS: / },
      { ...subscribe, topic: other.topic('chat'), code: 100 },
      { ...publish, topic: one.topic('_updates/fields'), code: 21 },
      { ...publish, topic: one.topic('_set/fields'), code: 106, reason: /latitude/ },
      { ...publish, topic: one.topic('_log'), code: 106, reason: /at most 16384 bytes/ },
      { ...publish, topic: one.topic('temperature'), code: 106, reason: /^The payload was delivered but not stored/ },
      {
        ...publish,
        topic: one.topic('nothing'),
        code: 100,
        reason: 'topic: no such channel on the template of the device. The item does not exist.',
      },
      {
        ...publish,
        topic: other.topic('chat'),
        code: 100,
        reason: 'The item does not exist.',
        time: /^2026-05-01T.*Z$/,
      },
    ],
    meta: { count: 8, page: 1, pageSize: 50, sortOrder: 'desc' },
  });
  t.same(await resultsOf(other), [], 'the other device was not refused anything');
});

t.test('a payload over the limit ends the connection, and is in the list once, however large', async (t) => {
  const one = await sibling(f);
  for (const bytes of [132_000, 200_000]) {
    const client = await connected(t, f.service.server, one, { clientId: 'thing' });
    client.send(publishPacket(one.topic('chat'), Buffer.alloc(bytes), { qos: 1, messageId: 1 }));
    await client.closed;
  }
  const refusal = { action: 'publish', code: 106, reason: /^SLIPWAY_MQTT_MAX_PAYLOAD_BYTES: /, clientId: 'thing' };
  t.match(await resultsOf(one), [
    { ...refusal, topic: null },
    { ...refusal, topic: one.topic('chat') },
  ]);
  t.equal((await resultsOf(one)).length, 2);
});

t.test(
  'a refused CONNECT is listed where it names a device, no matter who sent it, and never with its password',
  async (t) => {
    const one = await sibling(f);
    const wrong = 'not the password at all';
    const before = storedRefusals().length;
    t.equal(await refusedConnect(t, one.device.id, wrong, { clientId: 'guess' }), 4);
    t.equal(await refusedConnect(t, '', wrong, { clientId: one.device.id }), 4);
    const will = { topic: f.topic('chat'), payload: Buffer.from('x'), qos: 0, retain: false };
    t.equal(await refusedConnect(t, one.device.id, one.secret, { will }), 5);
    t.equal(await refusedConnect(t, one.device.id, one.secret, { clientId: 'x'.repeat(200) }), 2);
    for (const nobody of ['nobody', 'Auth:JWT', f.service.accountId]) await refusedConnect(t, nobody, wrong);
    const connect = { action: 'connect', topic: null, address };
    const results = await resultsOf(one);
    t.match(results, [
      { ...connect, code: 2, clientId: 'x'.repeat(128) },
      { ...connect, code: 5, reason: 'will topic not permitted', clientId: 'raw' },
      { ...connect, code: 4, reason: 'unknown or wrong credentials', clientId: one.device.id },
    ]);
    t.strictSame(
      results.map(({ principal }) => principal),
      [null, { type: 'device', id: one.device.id }, null],
      'whose secret was right, and nobody else',
    );
    await f.service.ok('GET', `/api/v1/devices/${one.device.id}/refusals`);
    t.equal(storedRefusals().length, before + 3, 'nothing is kept of names that are no device');
    const stored = JSON.stringify(storedRefusals());
    for (const secret of [wrong, one.secret]) t.notOk(stored.includes(secret));
  },
);

const asProxy = unlessBehindProxy('the test is the proxy in front of the cell, and gives the addresses itself');
t.test('who only names a device has ten lines at most, one for each address and reason', asProxy, async (t) => {
  const one = await sibling(f);
  const client = await connected(t, f.service.server, one);
  const refuse = async (from: number, to: number) => {
    for (let n = from; n < to; n += 1) await published(client, one.topic(`no ${n}`), 'x');
  };
  await refuse(0, 30);
  await resultsOf(one);
  await refuse(30, 60);
  const guess = (from: string, more: object = {}) => refusedConnect(t, one.device.id, 'a guess', { from, ...more });
  const long = { clientId: 'x'.repeat(200) };
  await guess('2001:db8:9::1');
  for (const id of 'abcdefghijkl') t.equal(await guess('2001:db8::1', { clientId: id }), 4);
  await refusedConnect(t, '', 'a guess', { from: '2001:db8::1', clientId: one.device.id });
  now += 1000;
  const last = { time: new Date(now).toISOString(), address: '2001:db8::2' };
  await refusedConnect(t, one.device.id, 'a guess', { from: last.address, ...long });
  await resultsOf(one);
  await refusedConnect(t, one.device.id, 'a guess', { from: last.address, ...long });
  const wrong = { action: 'connect', code: 4, reason: 'unknown or wrong credentials' };
  const past = { ...wrong, reason: /^SLIPWAY_MQTT_FAILED_CONNECTS_PER_PRINCIPAL: / };
  const lines = await resultsOf(one);
  t.match(lines.slice(0, 4), [
    { action: 'connect', code: 2, ...last },
    { ...past, address: '2001:db8::1', clientId: one.device.id },
    { ...wrong, address: '2001:db8::1', clientId: 'c' },
    { ...wrong, address: '2001:db8:9::1' },
  ]);
  t.equal(
    lines[4]?.topic,
    one.topic('no 59'),
    'neighbours in a network of IPv6 are one address, before and after it is written',
  );
  for (let n = 0; n < 12; n += 1) await guess(`::ffff:203.0.113.${n}`, { clientId: 'end' });
  const full = await resultsOf(one);
  t.strictSame(
    full.slice(0, 10).map(({ address }) => address),
    Array.from({ length: 10 }, (_, n) => `203.0.113.${11 - n}`),
  );
  t.strictSame(
    full.slice(10).map(({ topic }) => topic),
    Array.from({ length: 40 }, (_, n) => one.topic(`no ${59 - n}`)),
    'the rest is of the device itself',
  );
});

t.test('what a stranger has sent as client id is for admins and back-ends', async (t) => {
  const one = await sibling(f);
  const organization = await f.service.organization();
  const person = await f.service.endUser(organization.id);
  const headers = { etag: await versionOf(f.service, one.device.id) };
  const body = { organizationId: organization.id };
  await f.service.ok('PUT', `/api/v1/devices/${one.device.id}`, { body, headers });
  await refusedConnect(t, one.device.id, 'a guess', { clientId: 'stranger' });
  await refusedConnect(t, one.device.id, 'a guess', { clientId: 'x'.repeat(200) });
  const will = { topic: f.topic('chat'), payload: Buffer.from('x'), qos: 0, retain: false };
  await refusedConnect(t, one.device.id, one.secret, { clientId: 'itself', will });
  t.match(await resultsOf(one, person.token), [
    { code: 5, address, clientId: 'itself' },
    { code: 2, address, clientId: null },
    { code: 4, address, clientId: null },
  ]);
  t.match(await resultsOf(one), [{ clientId: 'itself' }, { clientId: 'x'.repeat(128) }, { clientId: 'stranger' }]);
});

t.test('a device in the trash is refused, which can be read once it is back', async (t) => {
  const one = await sibling(f);
  const path = `/api/v1/devices/${one.device.id}`;
  const version = async () => ({ headers: { etag: await versionOf(f.service, one.device.id) } });
  const { device } = await f.service.ok('DELETE', path, await version());
  t.equal(await refusedConnect(t, one.device.id, one.secret), 5);
  t.match(await f.service.http('GET', `${path}/refusals`), { status: 410, body: { error: { code: 107 } } });
  await f.service.ok('POST', `/api/v1/trash/devices/${one.device.id}/recover`, { headers: { etag: device.version } });
  t.match(await resultsOf(one), [{ action: 'connect', code: 5, reason: 'the entity may not connect now' }]);
});

t.test('a message of a user is listed at the device in reach that it names, and nowhere else', async (t) => {
  const [one, hidden] = [await sibling(f), await sibling(f)];
  const organization = await f.service.organization();
  const person = await f.service.endUser(organization.id);
  const move = { organizationId: organization.id };
  const headers = { etag: await versionOf(f.service, one.device.id) };
  await f.service.ok('PUT', `/api/v1/devices/${one.device.id}`, { body: move, headers });
  const phone = await f.service.connect({ jwt: person.token }, { clientId: 'phone' });
  const rows = storedRefusals().length;
  await phone.publishAsync(one.topic('_log'), 'x', { qos: 1 });
  await phone.publishAsync(hidden.topic('chat'), 'x', { qos: 1 });
  await phone.publishAsync('somewhere/else', 'x', { qos: 1 });
  const principal = { type: 'user', id: person.endUser.userId };
  const refusal = { action: 'publish', topic: one.topic('_log'), code: 21, principal };
  t.match(await resultsOf(one), [{ ...refusal, address, clientId: 'phone' }]);
  t.match(
    await resultsOf(one, person.token),
    [{ ...refusal, address: null, clientId: null }],
    'where a user is, only admins are told',
  );
  t.same(await resultsOf(hidden), []);
  t.equal(storedRefusals().length, rows + 1);
  const question = { principal, action: 'publish', topic: one.topic('_log') };
  const why = await f.service.ok('POST', '/api/v1/permissions/explain', { body: question });
  t.match(why, { allowed: false, rule: 'service channel' }, 'ready to ask about');

  const program = await f.service.create('/applications', 'application', { name: 'P', kind: 'backEnd' });
  const login = { appId: program.id, appToken: program.appToken, accountId: f.service.accountId };
  const { jwt } = await f.service.ok('POST', '/api/v1/auth/login-application', { body: login, token: null });
  const said = await f.service.http('POST', `/messaging/publish/${one.topic('_rejected')}`, { token: jwt, body: 'x' });
  t.equal(said.status, 403);
  const ofProgram = { action: 'publish', code: 21, principal: { type: 'application', id: program.id } };
  t.match((await resultsOf(one))[0], { ...ofProgram, address });
  const path = `/api/v1/devices/${hidden.device.id}/refusals`;
  t.match(await f.service.http('GET', path, { token: person.token }), { status: 404, body: { error: { code: 100 } } });
});

t.test('the last fifty are kept, in pages of ten', async (t) => {
  const one = await sibling(f);
  const client = await connected(t, f.service.server, one);
  for (let n = 0; n < 30; n += 1) await published(client, one.topic(`no ${n}`), 'x');
  await resultsOf(one);
  for (let n = 30; n < 100; n += 1) await published(client, one.topic(`no ${n}`), 'x');
  const topics = (results: Array<{ topic: string }>) => results.map(({ topic }) => topic);
  const all = await resultsOf(one);
  t.same(
    topics(all),
    Array.from({ length: 50 }, (_, n) => one.topic(`no ${99 - n}`)),
  );
  const path = `/api/v1/devices/${one.device.id}/refusals`;
  const { refusals } = await f.service.ok('GET', `${path}?page=5`);
  t.same(topics(refusals.results), topics(all).slice(40));
  t.match(refusals.meta, { count: 50, page: 5, pageSize: 10 });
  t.match(await f.service.http('GET', `${path}?page=6`), { status: 416, body: { error: { code: 109 } } });
});

t.test('a client that is refused too often finds that in the list', async (t) => {
  const strict = await fixture(t, { SLIPWAY_MQTT_REFUSALS_PER_MINUTE: '2' });
  const client = await connected(t, strict.service.server, strict);
  for (let n = 0; n < 2; n += 1) await published(client, strict.topic('nothing'), 'x');
  await t.rejects(published(client, strict.topic('nothing'), 'x'));
  const [last] = (await listOf(strict.service, strict)).results;
  t.match(last, { action: 'publish', code: -199, reason: /^SLIPWAY_MQTT_REFUSALS_PER_MINUTE: / });
});

t.test('the list survives the end of the process', async (t) => {
  const before = await fixture(t);
  const client = await connected(t, before.service.server, before);
  await published(client, before.topic('nothing'), 'x');
  await before.service.close();
  const after = await startService(t, { directory: before.service.directory });
  t.match((await listOf(after, before)).results, [{ action: 'publish', topic: before.topic('nothing') }]);
});

t.test('the list goes with the device', async (t) => {
  const one = await sibling(f);
  await refusedConnect(t, one.device.id, 'wrong');
  t.equal((await resultsOf(one)).length, 1);
  const headers = { etag: await versionOf(f.service, one.device.id) };
  await f.service.ok('DELETE', `/api/v1/devices/${one.device.id}`, { headers });
  const rows = storedRefusals().length;
  now += 31 * day;
  await purgeNow(f.service);
  t.equal(storedRefusals().length, rows - 1);
  // The session of the admin has rested for too long.
  await f.service.login();
  await refusedConnect(t, one.device.id, one.secret);
  t.equal((await f.service.http('GET', `/api/v1/devices/${one.device.id}/refusals`)).status, 404);
  t.equal(storedRefusals().length, rows - 1, 'and nothing is noted of it any more');
});

t.end();
