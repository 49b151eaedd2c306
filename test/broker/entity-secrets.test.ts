/** End-users and account users that connect with a secret of their own. */
import type { Test } from 'tap';
import { part } from '../support/part.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { connected, published, subscribed, taken, texts } from './conversation.ts';
import { type Fixture, fixtureIn, versionOf } from './fixture.ts';
import { connectPacket, rawClient } from './raw.ts';

const t = await part(import.meta);

async function secretOf({ service }: Fixture, entityType: string, entityId: string): Promise<string> {
  return (await service.create('/access/mqtt-credentials', 'mqttCredential', { entityType, entityId })).secret;
}

async function connack(t: Test, { service }: Fixture, username: string, secret: string): Promise<number> {
  const client = await rawClient(t, service.server.mqttPort);
  client.send(connectPacket({ username, password: Buffer.from(secret) }));
  return (await client.next().then((packet) => 'returnCode' in packet && packet.returnCode)) as number;
}

const connect = (t: Test, f: Fixture, id: string, secret: string, more = {}) =>
  connected(t, f.service.server, { device: { id, deviceTemplateId: '' }, secret }, more);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

/** A device of its own in the service of all these tests. */
const shared = () => fixtureIn(service);

t.test('an end-user with a secret reaches what that end-user reaches, not all of its identity', async (t) => {
  const f = await shared();
  const [one, two] = [await f.service.organization(), await f.service.organization()];
  const { endUser } = await f.service.endUser(one.id);
  const second = await f.service.create('/end-users', 'endUser', { organizationId: two.id, userId: endUser.userId });
  await f.service.ok('PUT', `/api/v1/devices/${f.device.id}`, {
    body: { organizationId: one.id },
    headers: { etag: await versionOf(f.service, f.device.id) },
  });
  const device = await connect(t, f, f.device.id, f.secret, { clientId: 'same' });
  const reaching = await connect(t, f, endUser.id, await secretOf(f, 'endUser', endUser.id), { clientId: 'same' });
  const beside = await connect(t, f, second.id, await secretOf(f, 'endUser', second.id), { clientId: 'same' });
  t.same(await subscribed(reaching, [f.topic('chat'), 1], ['#', 0]), [1, 0]);
  t.same(await subscribed(beside, [f.topic('chat'), 1], ['#', 0]), [0x80, 0]);
  await published(device, f.topic('chat'), 'hello');
  t.ok(texts(await taken(reaching, ({ length }) => length > 0)).includes('hello'));
  t.same(texts(await taken(beside, () => true)), []);

  await published(reaching, f.topic('_set/fields'), '{"state":{"firmwareVersion":"9"}}');
  const { device: changed } = await f.service.ok('GET', `/api/v1/devices/${f.device.id}`);
  t.match(changed, { firmwareVersion: '9', lastModifiedById: endUser.userId }, 'it acts as its person');

  const first = `/api/v1/end-users/${endUser.id}`;
  const { version } = (await f.service.ok('GET', first)).endUser;
  const answer = await f.service.http('DELETE', first, { headers: { etag: version } });
  t.equal(answer.headers.get('platform-revocation'), 'connections=1; subscriptions=2');
  await reaching.closed;
  beside.send({ cmd: 'pingreq' });
  t.match(await beside.next(), { cmd: 'pingresp' }, 'the other end-user of the identity goes on');
});

t.test('an account user with a secret reaches the account, until it is deleted', async (t) => {
  const f = await shared();
  const user = await f.service.create('/account-users', 'accountUser', {
    createIdmUser: true,
    idmUserEmail: 'second@example.com',
    idmUserPassword: 'a long enough secret',
  });
  const former = await secretOf(f, 'accountUser', user.id);
  const watching = await connect(t, f, user.id, former);
  t.same(await subscribed(watching, [f.topic('chat'), 1]), [1]);
  const device = await connect(t, f, f.device.id, f.secret);
  await published(device, f.topic('chat'), 'hello');
  t.same(texts(await taken(watching, ({ length }) => length > 0)), ['hello']);
  const secret = await secretOf(f, 'accountUser', user.id);
  await watching.closed;
  t.equal(await connack(t, f, user.id, former), 4, 'the former secret');
  const again = await connect(t, f, user.id, secret);
  await f.service.ok('DELETE', `/api/v1/account-users/${user.id}`, { headers: { etag: user.version } });
  await again.closed;
  t.equal(await connack(t, f, user.id, secret), 5, 'right, and in the trash');
  t.equal(await connack(t, f, user.id, 'wrong'), 4);
});

t.test('a stored session of an entity is its own, and queues what that entity may hear', async (t) => {
  const f = await shared();
  const organization = await f.service.organization();
  const { endUser, token } = await f.service.endUser(organization.id);
  const secret = await secretOf(f, 'endUser', endUser.id);
  const keeper = await connect(t, f, endUser.id, secret, { clientId: 'k', clean: false });
  await subscribed(keeper, ['#', 1]);
  keeper.socket.destroy();
  await keeper.closed;
  const device = await connect(t, f, f.device.id, f.secret);
  await published(device, f.topic('chat'), 'out of reach');
  await f.service.ok('PUT', `/api/v1/devices/${f.device.id}`, {
    body: { organizationId: organization.id },
    headers: { etag: await versionOf(f.service, f.device.id) },
  });
  await published(device, f.topic('chat'), 'in reach');
  const asUser = await connected(
    t,
    f.service.server,
    { device: { id: 'Auth:JWT', deviceTemplateId: '' }, secret: token },
    { clientId: 'k', clean: false },
  );
  t.equal(asUser.sessionPresent, false, 'the session of the identity is another one');
  const back = await connect(t, f, endUser.id, secret, { clientId: 'k', clean: false });
  const messages = texts(await taken(back, (all) => texts(all).includes('in reach')));
  t.notOk(messages.includes('out of reach'));
});

t.test('a secret is for an entity of the kind that is named', async (t) => {
  const f = await shared();
  const organization = await f.service.organization();
  const { endUser } = await f.service.endUser(organization.id);
  for (const [entityType, entityId] of [
    ['device', endUser.id],
    ['endUser', f.device.id],
    ['accountUser', endUser.id],
    ['endUser', organization.id],
  ]) {
    const body = { accountId: f.service.accountId, entityType, entityId };
    const answer = await f.service.http('POST', '/api/v1/access/mqtt-credentials', { body });
    t.match(answer, { status: 400, body: { error: { code: 102 } } }, `${entityType}`);
  }
});

t.end();
