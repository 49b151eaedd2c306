/** Tokens that people and back-ends make for their programs, over HTTP and MQTT. */
import { audited } from '../support/audited.ts';
import { openStream } from '../support/events.ts';
import { holdJobs } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { accountUser, backEnd, role } from '../support/roles.ts';
import { closed, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const refused = (code: number, status = 400) => ({ status, body: { error: { code } } });
const tomorrow = () => new Date(Date.now() + 86_400_000).toISOString();
const etag = (version: string) => ({ headers: { etag: version } });

async function make(token: string, body: object = {}) {
  const request = { token, body: { name: 'script', expiresAt: tomorrow(), ...body } };
  return (await service.ok('POST', '/api/v1/tokens', request)).token;
}

/** A client with a token as its password. */
const connect = (token: string, options = {}) =>
  service.connect({ deviceId: service.accountId, secret: token }, { clientId: service.unique('c'), ...options });

async function watched() {
  const organization = await service.organization();
  const template = await service.template({ channels: [{ name: 'chat', persistenceType: 'simple' }] });
  const { device } = await service.device({ deviceTemplateId: template.id, organizationId: organization.id });
  return { organization, device, topic: service.topic(device.id, 'chat') };
}

t.test('its text is shown once, and works as Bearer and as the password of MQTT', async (t) => {
  const { device, topic } = await watched();
  const made = await make(service.admin);
  t.match(made.token, /^slp_[0-9a-f]{3}[0-9A-Za-z]{38}$/);
  t.equal(made.token.slice(4, 7), service.accountId.slice(26, 29));
  const get = (token: string) => service.http('GET', `/api/v1/devices/${device.id}`, { token });
  t.equal((await get(made.token)).status, 200);
  const [last = ''] = made.token.slice(-1);
  const mistyped = made.token.slice(0, -1) + (last === 'x' ? 'y' : 'x');
  t.match(await get(mistyped), refused(31, 401));
  const client = await connect(made.token);
  await client.subscribeAsync(topic);
  await t.rejects(service.connect({ deviceId: device.id, secret: made.token }), 'the username is the account');
  await t.rejects(connect(mistyped));

  const listed = async () =>
    (await service.ok('GET', '/api/v1/tokens')).tokens.results.find(({ id }) => id === made.id);
  t.match(await listed(), { name: 'script', rights: null, ownerId: String });
  t.notMatch(JSON.stringify(await listed()), made.token);
  const ended = closed(client);
  const gone = await service.http('DELETE', `/api/v1/tokens/${made.id}`);
  t.match(gone.headers.get('platform-revocation'), /connections=1/);
  await ended;
  t.match(await get(made.token), refused(31, 401));
  await t.rejects(connect(made.token));
  t.equal(await listed(), undefined);
  t.match(await audited(service, `targetId=${made.id}`, 2), [{ event: 'tokenDeleted' }, { event: 'tokenCreated' }]);
});

t.test('it says when and from where it was used last', async (t) => {
  const made = await make(service.admin);
  await service.ok('GET', '/api/v1/profile/me', { token: made.token });
  const { tokens } = await service.ok('GET', '/api/v1/tokens');
  t.match(
    tokens.results.find(({ id }) => id === made.id),
    { lastUsed: /^20/, lastAddress: String },
  );
});

t.test('it has at most the rights of its owner, and makes neither tokens nor sessions', async (t) => {
  const { organization, device } = await watched();
  const made = await make(service.admin, { rights: { device: ['read'] } });
  const { token } = made;
  t.match((await service.ok('GET', '/api/v1/profile/me', { token })).rights, { device: ['read'] });
  const put = { token, ...etag(device.version), body: { name: 'x' } };
  t.match(await service.http('PUT', `/api/v1/devices/${device.id}`, put), refused(21, 403));
  const body = { name: 'x', expiresAt: tomorrow() };
  t.match(await service.http('POST', '/api/v1/tokens', { token, body }), refused(21, 403));
  for (const path of ['logout', 'renew-session'] as const)
    t.equal((await service.http('POST', `/api/v1/sessions/${path}`, { token })).status, 403, path);
  const { userId } = (await service.ok('GET', `/api/v1/account-users?accountId=${service.accountId}`)).accountUsers
    .results[0] as { userId: string };
  t.equal((await service.http('POST', `/api/v1/users/${userId}/mfa/totp`, { token })).status, 403);
  t.equal((await service.http('POST', `/api/v1/users/${userId}/end-sessions`, { token })).status, 403);
  const email = { userId, newEmailAddress: 'thief@example.com' };
  t.equal((await service.http('POST', '/api/v1/profile/update-email-address', { token, body: email })).status, 403);

  const { tokens } = await service.ok('GET', '/api/v1/tokens', { token });
  t.match(
    tokens,
    { results: [{ id: made.id }], meta: { count: 1 } },
    'of the tokens of its owner it sees itself alone',
  );

  const viewer = await service.endUser(organization.id, { roleId: 'organization:viewer' });
  const ask = (more: object) =>
    service.http('POST', '/api/v1/tokens', { token: viewer.token, body: { ...body, ...more } });
  t.match(await ask({ rights: { device: ['update'] } }), refused(21, 403));
  t.match(await ask({ rights: { nothing: ['read'] } }), refused(106));
  t.match(await ask({ expiresAt: '2020-01-01' }), refused(106));
  t.match(await ask({ expiresAt: new Date(Date.now() + 400 * 86_400_000).toISOString() }), refused(106));
  t.match(await ask({ organizationId: (await service.organization()).id }), refused(102), 'out of its reach');
  const own = (await ask({})).body.token;
  t.match(await service.http('DELETE', `/api/v1/tokens/${made.id}`, { token: viewer.token }), refused(100, 404));
  t.match(
    await service.http('GET', `/api/v1/tokens?accountId=${service.accountId}`, { token: viewer.token }),
    refused(21, 403),
  );
  const all = await service.ok('GET', `/api/v1/tokens?accountId=${service.accountId}&pageSize=100`);
  t.ok(
    all.tokens.results.some(({ id }) => id === own.id),
    'an admin sees all of the account',
  );
  t.equal((await service.http('DELETE', `/api/v1/tokens/${own.id}`)).status, 200, 'and ends them');
});

t.test('it makes no way in that outlives it: no program, no password of others, no provider', async (t) => {
  const { accountId } = service;
  const { token } = await make(service.admin);
  const template = await service.template();
  const organization = await service.organization();
  const limits = { deviceTemplateId: template.id, maxDevices: 1, expiresAt: tomorrow() };
  const stranger = () => ({
    createIdmUser: true,
    idmUserEmail: `${service.unique('p').replace(' ', '-')}@example.com`,
  });
  const secret = { idmUserPassword: 'a long enough secret' };
  const issuer = 'https://id.example.com/';
  const about = { name: 'Company', clientId: 'slipway', issuer };
  const { id, version } = await service.create('/identity-providers', 'identityProvider', about);
  const asks: Array<['POST' | 'PUT', string, object]> = [
    ['POST', '/applications', { name: 'script', kind: 'backEnd' }],
    ['POST', '/applications', { name: 'script', kind: 'backEnd', roleId: 'account:support' }],
    ['POST', '/applications', { name: 'script', kind: 'endUserApp' }],
    ['POST', '/applications', { name: 'script', kind: 'station', ...limits }],
    ['POST', '/account-users', { ...stranger(), ...secret }],
    ['POST', '/end-users', { organizationId: organization.id, ...stranger(), ...secret }],
    ['POST', '/identity-providers', { ...about, name: 'Other', issuer: `${issuer}other` }],
    ['PUT', `/identity-providers/${id}`, { ...about, issuer: `${issuer}third` }],
  ];
  for (const [method, path, more] of asks) {
    const ask = (by: string) =>
      service.http(method, `/api/v1${path}`, { token: by, ...etag(version), body: { accountId, ...more } });
    t.match(await ask(token), refused(21, 403), `${path} ${JSON.stringify(more)}`);
    t.equal((await ask(service.admin)).status, 200, `${path}: its owner does`);
  }
  for (const [path, more] of [
    ['/account-users', stranger()],
    ['/end-users', { organizationId: organization.id, ...stranger() }],
  ] as const)
    t.equal((await service.http('POST', `/api/v1${path}`, { token, body: { accountId, ...more } })).status, 200, path);
});

t.test('it counts in its organization only, for an admin and for an end-user, wherever the tree goes', async (t) => {
  const { organization, device, topic } = await watched();
  const other = await watched();
  const person = await service.endUser(organization.id);
  const below = await service.organization({ parentId: organization.id });
  const { device: inBelow } = await service.device({ organizationId: below.id });
  const get = async (id: string, token: string) =>
    (await service.http('GET', `/api/v1/devices/${id}`, { token })).status;
  const ofAdmin = await make(service.admin, { organizationId: organization.id });
  t.strictSame([await get(device.id, ofAdmin.token), await get(other.device.id, ofAdmin.token)], [200, 404]);
  const list = await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}`, { token: ofAdmin.token });
  t.equal(list.devices.meta.count, 2);
  t.match(
    await service.http('GET', `/api/v1/applications?accountId=${service.accountId}`, { token: ofAdmin.token }),
    refused(21, 403),
  );
  const client = await connect(ofAdmin.token, { protocolVersion: 5 });
  await client.publishAsync(topic, 'x', { qos: 1 });
  await t.rejects(client.publishAsync(other.topic, 'x', { qos: 1 }));

  const ofPerson = await make(person.token, { organizationId: below.id });
  t.strictSame([await get(inBelow.id, ofPerson.token), await get(device.id, ofPerson.token)], [200, 404]);
  const put = (id: string, version: string) =>
    service.http('PUT', `/api/v1/devices/${id}`, { token: ofPerson.token, ...etag(version), body: { name: 'x' } });
  const { version } = (await service.ok('GET', `/api/v1/devices/${inBelow.id}`)).device;
  t.equal((await put(inBelow.id, version)).status, 200);
  const move = { ...etag(below.version), body: { parentId: other.organization.id } };
  await service.ok('PUT', `/api/v1/organizations/${below.id}`, move);
  t.equal(await get(inBelow.id, ofPerson.token), 404, 'it has left the tree of its owner');
});

t.test('what its owner loses it loses too, before the answer: over HTTP, MQTT and streams', async (t) => {
  const { topic } = await watched();
  const small = await role(service, 'account', { device: ['read', 'publish'] });
  for (const [kind, owner] of [
    ['account-users', await accountUser(service)],
    ['applications', await backEnd(service)],
  ] as const) {
    const { token } = await make(owner.token);
    const client = await connect(token, { protocolVersion: 5 });
    await client.subscribeAsync(topic);
    const events = await openStream(t, service, topic, { token });
    const changed = await service.http('PUT', `/api/v1/${kind}/${owner.id}`, {
      ...etag(owner.version),
      body: { roleId: small.id },
    });
    t.match(changed.headers.get('platform-revocation'), /subscriptions=[1-9]/);
    await events.closed;
    const late: string[] = [];
    client.on('message', (_, payload) => late.push(payload.toString()));
    await client.publishAsync(topic, 'mine', { qos: 1 });
    t.strictSame(late, [], `${kind}: nothing is heard any more`);
    const query = `/api/v1/applications?accountId=${service.accountId}` as const;
    t.match(await service.http('GET', query, { token }), refused(21, 403));
    const ended = closed(client);
    const path = `/api/v1/${kind}/${owner.id}`;
    const version = (await service.http('GET', path)).headers.get('etag') ?? '';
    await service.ok('DELETE', path, etag(version));
    await ended;
    t.equal(
      (await service.http('GET', '/api/v1/profile/me', { token })).status,
      401,
      `${kind}: it ends with its owner`,
    );
  }
});

t.test('a job has the rights of the token that made it, and ends with it', async (t) => {
  const owner = await accountUser(service);
  const rights = {
    job: ['create', 'read'],
    device: ['create', 'publish'],
    mqttCredential: ['create'],
    associationCode: ['create'],
  };
  const made = await make(owner.token, { rights });
  const rows = Array.from({ length: 3000 }, () => ({ serialNumber: service.unique('T') }));
  const { token } = made;
  const release = holdJobs(t, service);
  const started = await service.http('POST', '/api/v1/provisioning/jobs', { token, body: { rows } });
  t.equal(started.status, 202);
  await service.ok('DELETE', `/api/v1/tokens/${made.id}`, { token: owner.token });
  release();
  const path = `/api/v1/provisioning/jobs/${started.body.job.id}` as const;
  await service.http('GET', `${path}/events`);
  t.equal((await service.ok('GET', path)).job.state, 'failed');

  const first = await service.http('POST', '/api/v1/provisioning/jobs', {
    token: owner.token,
    body: { rows: [{ serialNumber: service.unique('T') }] },
  });
  const results = `/api/v1/provisioning/jobs/${first.body.job.id}/results` as const;
  await service.http('GET', `/api/v1/provisioning/jobs/${first.body.job.id}/events`);
  const narrow = await make(owner.token, { rights: { job: ['read'] } });
  t.not((await service.http('GET', results, { token: narrow.token })).status, 200, 'results are those of their maker');
  t.equal((await service.http('GET', results, { token: owner.token })).status, 200);
});

t.test('nobody has more than the limit', async (t) => {
  const account = await service.inNewAccount();
  const body = { name: 'n', expiresAt: tomorrow() };
  for (let n = 0; n < 100; n += 1) await account.ok('POST', '/api/v1/tokens', { body });
  t.match(await account.http('POST', '/api/v1/tokens', { body }), refused(106));
});

t.end();
