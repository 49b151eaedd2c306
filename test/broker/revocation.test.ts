/** Who loses a right loses all that was made of it, before the answer leaves; the answer counts what ended. */

import type { Test } from 'tap';
import { countQueueLooks } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { connected, disconnected, published, subscribed, taken, texts } from './conversation.ts';
import { type Fixture, fixture, fixtureIn, sibling, versionOf } from './fixture.ts';
import { metric } from './metrics.ts';
import { connectPacket, publishPacket, type RawClient, rawClient } from './raw.ts';

const t = await part(import.meta);

const header = 'platform-revocation';

/** A connection by a token. */
async function phone(t: Test, { service }: Fixture, token: string, more: object = {}) {
  const client = await rawClient(t, service.server.mqttPort);
  client.send(connectPacket({ username: 'Auth:JWT', password: Buffer.from(token), ...more }));
  const connack = await client.next();
  t.match(connack, { cmd: 'connack', returnCode: 0 });
  return { ...client, sessionPresent: 'sessionPresent' in connack && connack.sessionPresent };
}

/** A stored session that has subscribed and gone away. */
async function away(t: Test, f: Fixture, token: string, clientId: string, ...filters: string[]) {
  const client = await phone(t, f, token, { clientId, clean: false });
  await subscribed(client, ...filters.map((filter) => [filter, 1] as [string, 1]));
  // What is retained, which would come again.
  await taken(client, () => true);
  await disconnected(client);
}

async function put({ service }: Fixture, path: string, body: object): Promise<string | null> {
  const { body: found } = await service.http('GET', `/api/v1${path}`);
  const [entity] = Object.values(found) as [{ version: string }];
  const answer = await service.http('PUT', `/api/v1${path}`, { body, headers: { etag: entity.version } });
  if (answer.status !== 200) throw new Error(answer.text);
  return answer.headers.get(header);
}

async function remove({ service }: Fixture, path: string, version: string): Promise<string | null> {
  const answer = await service.http('DELETE', `/api/v1${path}`, { headers: { etag: version } });
  if (answer.status !== 200) throw new Error(answer.text);
  return answer.headers.get(header);
}

/** What a connection gets until its own PINGRESP, after the device has published `text`. */
async function heard(client: RawClient, device: RawClient, topic: string, text: string): Promise<string[]> {
  await published(device, topic, text);
  return texts(await taken(client, () => true)).filter((one) => !one.startsWith('{'));
}

const deviceOf = (t: Test, f: Fixture, more: object = {}) =>
  connected(t, f.service.server, f, { clientId: 'device', ...more });

/** Of the tests that leave it as it is. */
let service: Service;
t.before(async () => {
  service = await startService(t);
});

t.test('a device that is moved away leaves the filters, queues and retained reads of its audience', async (t) => {
  const f = await fixtureIn(service);
  const [from, to] = [await f.service.organization(), await f.service.organization()];
  const { token } = await f.service.endUser(from.id);
  const move = (organizationId: string) => put(f, `/devices/${f.device.id}`, { organizationId });
  await move(from.id);
  const device = await deviceOf(t, f);
  const own = f.topic('chat');
  const live = await phone(t, f, token, { clientId: 'live' });
  t.same(await subscribed(live, [own, 1]), [1]);
  await away(t, f, token, 'by name', own);
  await away(t, f, token, 'by wildcard', '#');
  await published(device, own, 'before', { retain: true });
  t.same(texts(await taken(live, ({ length }) => length > 0)), ['before']);

  t.equal(await move(to.id), 'connections=0; subscriptions=2', 'one that is live, one that is stored');
  t.same(await heard(live, device, own, 'during'), []);
  const elsewhere = await phone(t, f, token);
  t.same(await subscribed(elsewhere, ['#', 1]), [1]);
  t.same(await taken(elsewhere, () => true), [], 'nothing retained');
  t.same(await subscribed(elsewhere, [own, 1]), [0x80]);

  t.equal(await move(from.id), 'connections=0; subscriptions=0');
  t.same(await heard(live, device, own, 'after'), [], 'the filter is gone for good');
  const byName = await phone(t, f, token, { clientId: 'by name', clean: false });
  t.same(texts(await taken(byName, () => true)), [], 'and what was queued with it');
  const byWildcard = await phone(t, f, token, { clientId: 'by wildcard', clean: false });
  t.equal(byWildcard.sessionPresent, true);
  const messages = await taken(byWildcard, (all) => texts(all).includes('after'));
  t.same(
    texts(messages).filter((one) => !one.startsWith('{')),
    ['after'],
    'what was queued before left the queue',
  );
});

t.test('an organization that is moved takes its devices away from those above it', async (t) => {
  const f = await fixtureIn(service);
  const [top, other] = [await f.service.organization(), await f.service.organization()];
  const below = await f.service.organization({ parentId: top.id });
  const [{ token }, neighbour] = [await f.service.endUser(top.id), await f.service.endUser(below.id)];
  await put(f, `/devices/${f.device.id}`, { organizationId: below.id });
  const own = f.topic('chat');
  const [live, staying] = [await phone(t, f, token), await phone(t, f, neighbour.token)];
  for (const client of [live, staying]) await subscribed(client, [own, 1]);
  await away(t, f, token, 'away', own, f.topic('+'));
  const device = await deviceOf(t, f);
  await published(device, own, 'queued');
  for (const client of [live, staying]) await taken(client, ({ length }) => length > 0);

  t.equal(await put(f, `/organizations/${below.id}`, { parentId: other.id }), 'connections=0; subscriptions=3');
  t.same(await heard(live, device, own, 'moved'), []);
  t.same(texts(await taken(staying, ({ length }) => length > 0)), ['moved'], 'who reaches it still hears it');
  t.equal(await put(f, `/organizations/${below.id}`, { parentId: top.id }), 'connections=0; subscriptions=0');
  const back = await phone(t, f, token, { clientId: 'away', clean: false });
  t.same(await heard(back, device, own, 'again'), [], 'neither the queue nor the filters came back');
});

t.test(
  'a deleted device loses its connection, will, session and queue, and others what they asked of it',
  async (t) => {
    const f = await fixtureIn(service);
    const admin = await phone(t, f, f.service.admin);
    await subscribed(admin, ['#', 1], [f.topic('chat'), 1]);
    await away(t, f, f.service.admin, 'away', f.topic('temperature'));
    const kept = await deviceOf(t, f, { clientId: 'kept', clean: false });
    await subscribed(kept, [f.topic('chat'), 1]);
    await disconnected(kept);
    await published(admin, f.topic('chat'), 'queued');
    const will = { topic: f.topic('chat'), payload: Buffer.from('will'), qos: 1, retain: false };
    const device = await deviceOf(t, f, { will });
    await subscribed(device, [f.topic('chat'), 1]);

    const path = `/devices/${f.device.id}`;
    t.equal(await remove(f, path, await versionOf(f.service, f.device.id)), 'connections=1; subscriptions=4');
    await device.closed;
    const { device: trashed } = await f.service.ok('GET', `/api/v1/trash${path}`);
    await f.service.ok('POST', `/api/v1/trash${path}/recover`, { headers: { etag: trashed.version } });
    const again = await deviceOf(t, f, { clientId: 'kept', clean: false });
    t.equal(again.sessionPresent, false);
    await published(again, f.topic('chat'), 'after');
    const after = texts(await taken(admin, (messages) => texts(messages).includes('after')));
    t.notOk(after.includes('will'), 'the will has not fired');
    t.equal(after.filter((one) => one === 'after').length, 1, 'through the wildcard alone');
  },
);

t.test('a channel that is deleted ends the filters that name it, no matter who holds them', async (t) => {
  const f = await fixtureIn(service);
  const template = f.device.deviceTemplateId;
  const { channelTemplates } = await f.service.ok(
    'GET',
    `/api/v1/channels/templates?accountId=${f.service.accountId}&entityId=${template}&name=chat`,
  );
  const [channel] = channelTemplates.results;
  const other = await sibling(f);
  const [device, admin] = [await deviceOf(t, f), await phone(t, f, f.service.admin)];
  await subscribed(device, [f.topic('chat'), 1], [f.topic('temperature'), 1]);
  await subscribed(admin, [other.topic('chat'), 1], [f.topic('+'), 1]);
  await away(t, f, f.service.admin, 'away', '#', f.topic('chat'));
  await published(device, f.topic('chat'), 'queued');

  const path = `/channels/templates/${channel.id}`;
  t.equal(await remove(f, path, channel.version), 'connections=0; subscriptions=3');
  const { channelTemplate } = await f.service.ok('GET', `/api/v1/trash${path}`);
  await f.service.ok('POST', `/api/v1/trash${path}/recover`, { headers: { etag: channelTemplate.version } });
  const back = await phone(t, f, f.service.admin, { clientId: 'away', clean: false });
  await published(device, f.topic('chat'), 'later');
  // It comes after what its session has kept.
  const later = texts(await taken(back, (all) => texts(all).includes('later')));
  t.same(
    later.filter((one) => !one.startsWith('{')),
    ['later'],
    'by the wildcard; what was queued is gone',
  );
  t.same(
    texts(await taken(admin, () => true)).filter((one) => one === 'later'),
    ['later'],
  );
});

t.test('an end-user that is deleted or moved, a logout, and a new secret say what they ended', async (t) => {
  const f = await fixture(t);
  const [one, two] = [await f.service.organization(), await f.service.organization()];
  const person = await f.service.endUser(one.id);
  await put(f, `/devices/${f.device.id}`, { organizationId: one.id });
  const live = await phone(t, f, person.token, { clientId: 'live' });
  await subscribed(live, [f.topic('chat'), 1], ['#', 0]);
  await away(t, f, person.token, 'away', f.topic('chat'), '#');
  const path = `/end-users/${person.endUser.id}`;
  t.equal(await put(f, path, { organizationId: two.id }), 'connections=0; subscriptions=2', 'wildcards stay');
  const { endUser } = await f.service.ok('GET', `/api/v1${path}`);
  t.equal(await remove(f, path, endUser.version), 'connections=1; subscriptions=2', 'nothing is left in reach');
  await live.closed;
  t.equal(await metric(f, 'slipway_mqtt_stored_sessions'), 0);

  const { jwt } = await f.service.loginAs('admin@example.com', 'correct horse battery');
  const admin = await phone(t, f, jwt);
  await subscribed(admin, ['#', 0]);
  const logout = await f.service.http('POST', '/api/v1/sessions/logout', { token: jwt });
  t.equal(logout.headers.get(header), 'connections=1; subscriptions=1');
  await admin.closed;

  const device = await deviceOf(t, f);
  await subscribed(device, [f.topic('chat'), 1]);
  const body = { accountId: f.service.accountId, entityId: f.device.id, entityType: 'device' };
  const regenerate = () =>
    f.service.http('POST', '/api/v1/access/mqtt-credentials', { body, headers: { 'idempotency-key': 'again' } });
  t.equal((await regenerate()).headers.get(header), 'connections=1; subscriptions=1');
  await device.closed;
  t.equal((await regenerate()).headers.get(header), 'connections=1; subscriptions=1', 'a repetition says the same');
});

t.test('a right that is lost between SUBSCRIBE and SUBACK leaves no filter', async (t) => {
  const f = await fixtureIn(service);
  const organization = await f.service.organization();
  const { token } = await f.service.endUser(organization.id);
  const version = await versionOf(f.service, f.device.id);
  await f.service.ok('PUT', `/api/v1/devices/${f.device.id}`, {
    body: { organizationId: organization.id },
    headers: { etag: version },
  });
  const live = await phone(t, f, token, { clientId: 'live', clean: false });
  const move = put(f, `/devices/${f.device.id}`, { organizationId: null });
  for (let round = 0; round < 50; round += 1) await subscribed(live, [f.topic('chat'), 1]);
  await move;
  await put(f, `/devices/${f.device.id}`, { organizationId: organization.id });
  const device = await deviceOf(t, f);
  device.send(publishPacket(f.topic('chat'), 'x', { qos: 0 }), { cmd: 'pingreq' });
  t.match(await device.next(), { cmd: 'pingresp' });
  t.same(texts(await taken(live, () => true)), []);
});

t.test('filters of QoS 0, and messages whose filter is gone already, end with the right as well', async (t) => {
  const f = await fixtureIn(service);
  const organization = await f.service.organization();
  const { token } = await f.service.endUser(organization.id);
  await put(f, `/devices/${f.device.id}`, { organizationId: organization.id });
  const quiet = await phone(t, f, token, { clientId: 'quiet', clean: false });
  t.same(await subscribed(quiet, [f.topic('chat'), 0]), [0]);
  await disconnected(quiet);
  const device = await deviceOf(t, f);
  const leaving = await phone(t, f, token, { clientId: 'leaving', clean: false });
  await subscribed(leaving, [f.topic('chat'), 1]);
  await published(device, f.topic('chat'), 'queued');
  t.match(await leaving.next(), { cmd: 'publish' }, 'and not acknowledged');
  leaving.send({ cmd: 'unsubscribe', messageId: 9, unsubscriptions: [f.topic('chat')] });
  t.match(await leaving.next(), { cmd: 'unsuback' });
  await disconnected(leaving);
  t.equal(await put(f, `/devices/${f.device.id}`, { organizationId: null }), 'connections=0; subscriptions=1');
  t.equal(
    await put(f, `/devices/${f.device.id}`, { organizationId: organization.id }),
    'connections=0; subscriptions=0',
  );
  for (const clientId of ['quiet', 'leaving'])
    t.same(await heard(await phone(t, f, token, { clientId, clean: false }), device, f.topic('chat'), 'after'), []);
});

t.test('a device that moves where nobody loses it is not looked for in long queues', async (t) => {
  const f = await fixtureIn(service);
  const organization = await f.service.organization();
  const { token } = await f.service.endUser(organization.id);
  await away(t, f, token, 'away', f.topic('chat').replace(f.device.id, '+'));
  const other = await sibling(f);
  await put(f, `/devices/${f.device.id}`, { organizationId: organization.id });
  const device = await deviceOf(t, f);
  for (let n = 0; n < 20; n += 1) await published(device, f.topic('chat'), `${n}`);
  const looks = countQueueLooks(t, f.service);
  await put(f, `/devices/${other.device.id}`, { organizationId: (await f.service.organization()).id });
  await put(f, `/devices/${other.device.id}`, { organizationId: organization.id });
  await put(f, `/devices/${other.device.id}`, { organizationId: null });
  t.equal(looks(), 0, 'neither one that was never in reach, nor one that has said nothing');
  await put(f, `/devices/${f.device.id}`, { organizationId: null });
  t.ok(looks() >= 20);
});

t.end();
