/** Roles: built-in and made, who has one, and what becomes of connections when a role changes. */
import { audited } from '../support/audited.ts';
import { openStream } from '../support/events.ts';
import { holdJobs } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { accountUser, backEnd, role } from '../support/roles.ts';
import { closed, type Made, nextMessage, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const etag = (version: string) => ({ headers: { etag: version } });
const refused = (code: number, status = 400) => ({ status, body: { error: { code } } });

t.test('every account has the built-in roles, which stay as they are', async (t) => {
  const list = `/api/v1/roles?accountId=${service.accountId}&pageSize=100` as const;
  const { roles } = await service.ok('GET', `${list}&builtIn=true`);
  t.strictSame(
    roles.results.map(({ id }) => id).sort(),
    ['account:admin', 'account:auditor', 'account:operator', 'account:support']
      .concat(['organization:installer', 'organization:manager', 'organization:operator', 'organization:viewer'])
      .sort(),
  );
  t.equal(roles.meta.count, 8);
  for (const { id, version } of roles.results) {
    t.match((await service.ok('GET', `/api/v1/roles/${id}`)).role, { id, builtIn: true });
    t.match(
      await service.http('PUT', `/api/v1/roles/${id}`, { ...etag(version), body: { name: 'mine' } }),
      refused(21, 403),
    );
    t.match(await service.http('DELETE', `/api/v1/roles/${id}`, etag(version)), refused(21, 403));
  }
  const { id } = await role(service, 'account', {});
  const own = await service.ok('GET', `${list}&builtIn=false&sortBy=created`);
  t.ok(own.roles.results.every(({ builtIn }) => !builtIn));
  t.ok(own.roles.results.some((one) => one.id === id));
  const { token } = await service.endUser((await service.organization()).id);
  const seen = (await service.ok('GET', list, { token })).roles.results;
  t.ok(
    seen.length >= 4 && seen.every(({ scope }) => scope === 'organization'),
    'a manager sees those of organizations',
  );
  t.match(await service.http('GET', `/api/v1/roles/${id}`, { token }), refused(100, 404));
});

t.test('a role has the rights of its scope, and is not deleted while somebody has it', async (t) => {
  const make = (body: object) =>
    service.http('POST', '/api/v1/roles', { body: { accountId: service.accountId, name: 'r', ...body } });
  t.match(await make({ scope: 'organization', rights: { bridge: ['read'] } }), refused(106));
  t.match(await make({ scope: 'organization', rights: { device: ['delete'] } }), refused(106));
  t.match(await make({ scope: 'account', rights: { nothing: ['read'] } }), refused(106));
  t.match(await make({ scope: 'account', rights: { device: ['fly'] } }), refused(106));
  const made = await role(service, 'organization', { device: ['read'] });
  t.match(await make({ name: made.name, scope: 'account', rights: {} }), refused(106), 'names are unique');
  const { id: organizationId } = await service.organization();
  const post = (roleId: string) =>
    service.http('POST', '/api/v1/end-users', { body: { accountId: service.accountId, organizationId, roleId } });
  t.match(await post('account:auditor'), refused(102), 'of the other scope');
  t.match(await post('nothing'), refused(102));
  const { endUser } = (await post(made.id)).body;
  t.equal(endUser.roleId, made.id);
  t.equal((await service.create('/end-users', 'endUser', { organizationId })).roleId, 'organization:manager');
  const remove = () => service.http('DELETE', `/api/v1/roles/${made.id}`, etag(made.version));
  t.match(await remove(), refused(104));
  await service.ok('DELETE', `/api/v1/end-users/${endUser.id}`, etag(endUser.version));
  t.equal((await remove()).status, 200);
  const recover = `/api/v1/trash/end-users/${endUser.id}/recover` as const;
  t.match(await service.http('POST', recover, etag(endUser.version)), refused(102), 'its role is gone');
  await service.ok('POST', `/api/v1/trash/roles/${made.id}/recover`, etag(made.version));
  await service.ok('POST', recover, etag(endUser.version));
  const changes = await audited(service, `targetId=${made.id}`, 3);
  t.ok(changes.every(({ event }) => event === 'roleChanged'));
  t.match(await audited(service, `targetId=${endUser.id}&event=roleAssigned`), [{ details: { roleId: made.id } }]);
});

t.test('the last admin is neither deleted nor demoted', async (t) => {
  const account = await service.inNewAccount();
  const [first] = (await account.ok('GET', `/api/v1/account-users?accountId=${account.accountId}`)).accountUsers
    .results;
  const path = `/api/v1/account-users/${first?.id}` as const;
  const put = (roleId: string, version: string | undefined) =>
    account.http('PUT', path, { ...etag(version ?? ''), body: { roleId } });
  await accountUser(account, { roleId: 'account:auditor' });
  t.match(await put('account:auditor', first?.version), refused(104));
  t.match(await account.http('DELETE', path, etag(first?.version ?? '')), refused(104));
  const second = await accountUser(account);
  t.equal((await put('account:auditor', first?.version)).body.accountUser.roleId, 'account:auditor');
  const demoted = await account.http('DELETE', path, etag(first?.version ?? ''));
  t.match(demoted, refused(21, 403), 'from the answer on it is an auditor');
  await account.ok('GET', `/api/v1/audit?accountId=${account.accountId}`);
  const last = await account.http('DELETE', `/api/v1/account-users/${second.id}`, {
    ...etag(second.version),
    token: second.token,
  });
  t.match(last, refused(104));
});

t.test('in each organization a person has the role that it has there', async (t) => {
  const [seen, run] = [await service.organization(), await service.organization()];
  const below = await service.organization({ parentId: seen.id });
  const { endUser, token } = await service.endUser(seen.id, { roleId: 'organization:viewer' });
  const { userId } = endUser;
  for (const organizationId of [run.id, below.id])
    await service.create('/end-users', 'endUser', { organizationId, userId, roleId: 'organization:operator' });
  const make = async (organizationId: string) => {
    const { device } = await service.device({ organizationId });
    return (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  };
  const [inSeen, inRun, inBelow] = [await make(seen.id), await make(run.id), await make(below.id)];
  const put = (device: Made<'device'>, body: object) =>
    service.http('PUT', `/api/v1/devices/${device.id}`, { token, ...etag(device.version), body });
  t.match(await put(inSeen, { name: 'x' }), refused(21, 403), 'where it may only look, it changes nothing');
  t.match(
    await put(inRun, { organizationId: seen.id }),
    refused(102),
    'a device moves where both places may be changed',
  );
  t.equal((await put(inBelow, { organizationId: run.id })).status, 200);
  const { devices } = await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}`, { token });
  t.equal(devices.meta.count, 3, 'all of them are seen');
  const { endUsers } = await service.ok('GET', `/api/v1/end-users?accountId=${service.accountId}`, { token });
  t.strictSame(
    endUsers.results.map(({ organizationId }) => organizationId).sort(),
    [seen.id, below.id].sort(),
    'people are listed only where it may read them',
  );
  for (const [organizationId, hits] of [
    [seen.id, 1],
    [run.id, 0],
  ] as const) {
    const { email } = await service.endUser(organizationId);
    const found = await service.ok('GET', `/api/v1/search?accountId=${service.accountId}&q=${email}`, { token });
    t.equal(found.hits.length, hits, 'a search finds people only where it may read them');
  }
  const me = await service.ok('GET', '/api/v1/profile/me', { token });
  t.same(
    me.roles.map(({ organizationId, id }) => [organizationId, id]).sort(),
    [
      [seen.id, 'organization:viewer'],
      [run.id, 'organization:operator'],
      [below.id, 'organization:operator'],
    ].sort(),
  );
  t.strictSame(me.rights.device, ['read', 'update', 'publish', 'subscribe']);

  const client = await service.connect({ jwt: token }, { protocolVersion: 5 });
  await client.publishAsync(service.topic(inRun.id, '_set/fields'), JSON.stringify({ state: {} }), { qos: 1 });
  await t.rejects(client.publishAsync(service.topic(inSeen.id, '_set/fields'), '{"state":{}}', { qos: 1 }));
  const principal = { type: 'user', id: userId };
  const explain = (entity: string) =>
    service.ok('POST', '/api/v1/permissions/explain', {
      body: { principal, action: 'update', entity: { type: 'device', id: entity } },
    });
  t.match(await explain(inRun.id), { allowed: true, role: { id: 'organization:operator' } });
  t.match(await explain(inSeen.id), { allowed: false, rule: 'outside the reach' });
});

t.test(
  'a role that shrinks ends what was made of it before the answer: MQTT, stored sessions, streams, jobs',
  async (t) => {
    const organization = await service.organization();
    const template = await service.template({ channels: [{ name: 'chat', persistenceType: 'simple' }] });
    const { device, secret } = await service.device({ deviceTemplateId: template.id, organizationId: organization.id });
    const made = await role(service, 'organization', { device: ['read', 'subscribe', 'publish'] });
    const { token } = await service.endUser(organization.id, { roleId: made.id });
    const topic = service.topic(device.id, 'chat');
    const stored = { clean: false, clientId: 'stored' };
    const away = await service.connect({ jwt: token }, stored);
    await away.subscribeAsync(topic, { qos: 1 });
    await away.endAsync();
    const live = await service.connect({ jwt: token });
    await live.subscribeAsync(topic, { qos: 1 });
    const events = await openStream(t, service, topic, { token });
    const own = await service.connect({ deviceId: device.id, secret });
    const heard = nextMessage(live);
    await own.publishAsync(topic, 'before', { qos: 1 });
    t.equal((await heard).text, 'before');

    const late: string[] = [];
    const put = (rights: object, version: string) =>
      service.http('PUT', `/api/v1/roles/${made.id}`, { ...etag(version), body: { rights } });
    const shrunk = await put({ device: ['publish', 'read'] }, made.version);
    t.equal(shrunk.status, 200);
    t.match(shrunk.headers.get('platform-revocation'), /connections=1; subscriptions=\d/);
    live.on('message', (_, payload) => late.push(payload.toString()));
    await own.publishAsync(topic, 'after', { qos: 1 });
    await events.closed;
    t.ok(live.connected, 'it may still publish');
    await live.publishAsync(topic, 'mine', { qos: 1 });
    t.strictSame(late, []);

    const ended = closed(live);
    t.equal((await put({ device: ['read'] }, shrunk.body.role.version)).status, 200);
    await ended;
    await t.rejects(service.connect({ jwt: token }));
    const full = await put(
      { device: ['subscribe'] },
      (await service.ok('GET', `/api/v1/roles/${made.id}`)).role.version,
    );
    t.equal(full.status, 200);
    const again = await service.connect({ jwt: token }, { ...stored, manualConnect: false });
    const fresh = nextMessage(again);
    await again.subscribeAsync(topic, { qos: 1 });
    await own.publishAsync(topic, 'fresh', { qos: 1 });
    t.equal((await fresh).text, 'fresh', 'nothing that came meanwhile was kept');
  },
);

t.test('a back-end and an account user lose what a new role takes, before the answer', async (t) => {
  const template = await service.template({ channels: [{ name: 'chat', persistenceType: 'simple' }] });
  const { device } = await service.device({ deviceTemplateId: template.id });
  const topic = service.topic(device.id, 'chat');
  const blind = await role(service, 'account', { device: ['read'] });
  for (const [kind, one] of [
    ['applications', await backEnd(service)],
    ['account-users', await accountUser(service)],
  ] as const) {
    const client = await service.connect({ jwt: one.token });
    await client.subscribeAsync(topic);
    const ended = closed(client);
    const path = `/api/v1/${kind}/${one.id}`;
    await service.ok('PUT', path, { ...etag(one.version), body: { roleId: blind.id } });
    await ended;
    t.equal((await service.http('GET', `/api/v1/devices/${device.id}`, { token: one.token })).status, 200, kind);
    const change = { ...etag(device.version), token: one.token, body: { name: 'x' } };
    t.match(await service.http('PUT', `/api/v1/devices/${device.id}`, change), refused(21, 403));
  }
});

t.test('a running job stops at the first row that its maker may no longer do', async (t) => {
  const maker = await accountUser(service, { roleId: 'account:operator' });
  const rows = Array.from({ length: 3000 }, (_, n) => ({ serialNumber: service.unique(`J${n}`) }));
  const release = holdJobs(t, service);
  const started = await service.http('POST', '/api/v1/provisioning/jobs', { token: maker.token, body: { rows } });
  t.equal(started.status, 202);
  await service.ok('PUT', `/api/v1/account-users/${maker.id}`, {
    ...etag(maker.version),
    body: { roleId: 'account:auditor' },
  });
  const made = async () => {
    const query = `accountId=${service.accountId}&results=false&serialNumber=J` as const;
    return (await service.ok('GET', `/api/v1/devices?${query}`)).devices.meta.count;
  };
  const atOnce = await made();
  release();
  await service.http('GET', `/api/v1/provisioning/jobs/${started.body.job.id}/events`);
  const { job } = await service.ok('GET', `/api/v1/provisioning/jobs/${started.body.job.id}`);
  t.equal(job.state, 'failed');
  t.equal(await made(), atOnce, 'not one row after the answer');
});

t.test('nobody gives a right that it does not have', async (t) => {
  const { id: limitedId } = await role(service, 'account', {
    accountUser: ['create', 'read', 'update'],
    application: ['create', 'update', 'read'],
    role: ['create', 'read', 'update'],
    endUser: ['create', 'read', 'update', 'delete'],
    identityProvider: ['create', 'update'],
    bridge: ['create'],
    mqttCredential: ['create'],
    certificateAuthority: ['create'],
    profile: ['read', 'update'],
    device: ['read'],
    organization: ['read'],
  });
  const { token } = await accountUser(service, { roleId: limitedId });
  const { accountId } = service;
  const { id: organizationId } = await service.organization();
  const { device } = await service.device({ organizationId });
  const manager = await service.endUser(organizationId);
  const post = (path: string, body: object) =>
    service.http('POST', `/api/v1${path}`, { token, body: { accountId, ...body } });
  const person = () => ({ createIdmUser: true, idmUserEmail: `${service.unique('p').replace(' ', '')}@example.com` });
  const forbidden = refused(21, 403);
  t.match(await post('/account-users', person()), forbidden, 'the default role is admin');
  t.match(await post('/account-users', { ...person(), roleId: 'account:auditor' }), forbidden);
  t.match(await post('/account-users', { ...person(), roleId: limitedId }), { status: 200 }, 'its own role');
  t.match(await post('/applications', { name: 'x', kind: 'backEnd' }), forbidden);
  t.match(await post('/applications', { name: 'x', kind: 'endUserApp' }), forbidden);
  t.match(await post('/applications', { name: 'x', kind: 'backEnd', roleId: limitedId }), { status: 200 });
  t.match(await post('/roles', { name: 'x', scope: 'account', rights: { device: ['update'] } }), forbidden);
  t.match(await post('/roles', { name: 'x', scope: 'organization', rights: { device: ['publish'] } }), forbidden);
  const small = await post('/roles', { name: 'small', scope: 'organization', rights: { device: ['read'] } });
  t.equal(small.status, 200);
  t.match(await post('/end-users', { organizationId, ...person() }), forbidden, 'the default role is manager');
  t.match(await post('/end-users', { organizationId, ...person(), roleId: small.body.role.id }), { status: 200 });
  const provider = { name: 'x', issuer: 'https://id.example.com', clientId: 'c' };
  t.match(await post('/identity-providers', provider), forbidden);
  t.match(await post('/bridges', { name: 'x', kind: 'webhook', url: 'https://bridge.example/in' }), forbidden);
  t.match(await post('/access/mqtt-credentials', { entityId: device.id, entityType: 'device' }), forbidden);
  t.match(await post('/access/mqtt-credentials', { entityId: manager.endUser.id, entityType: 'endUser' }), forbidden);
  const change = { userId: manager.endUser.userId, oldPassword: manager.password, newPassword: 'another long secret' };
  const attributes = { attributes: { errorCode: 'ForbiddenError' } };
  t.match(await post('/profile/change-password', change), { status: 403, body: attributes });
  const address = { userId: manager.endUser.userId, newEmailAddress: 'taken@example.com' };
  t.match(await post('/profile/update-email-address', address), { status: 403, body: attributes });
  const etagOf = (await service.ok('GET', `/api/v1/roles/${limitedId}`)).role.version;
  const wider = { token, ...etag(etagOf), body: { rights: { bridge: ['read'] } } };
  t.match(await service.http('PUT', `/api/v1/roles/${limitedId}`, wider), forbidden, 'not even in its own role');
});

t.test('who may read something and not change it hears so, and of what is out of reach nothing', async (t) => {
  const [managed, viewed, foreign] = [
    await service.organization(),
    await service.organization(),
    await service.organization(),
  ];
  const { endUser, token } = await service.endUser(managed.id);
  const { userId } = endUser;
  await service.create('/end-users', 'endUser', { organizationId: viewed.id, userId, roleId: 'organization:viewer' });
  const asked = async (organizationId: string) => {
    const { device } = await service.device({ organizationId });
    const path = `/api/v1/devices/${device.id}`;
    const read = await service.http('GET', path, { token });
    const change = { token, ...etag(read.headers.get('etag') ?? device.version), body: { name: 'mine' } };
    return [read, await service.http('PUT', path, change)];
  };
  t.match(await asked(managed.id), [{ status: 200 }, { status: 200 }]);
  t.match(await asked(viewed.id), [{ status: 200 }, refused(21, 403)]);
  t.match(await asked(foreign.id), [refused(100, 404), refused(100, 404)]);
});

t.test('who makes an organization below another one does not become more there', async (t) => {
  const organization = await service.organization();
  const made = await role(service, 'organization', { organization: ['create', 'read'] });
  const { token } = await service.endUser(organization.id, { roleId: made.id });
  const [template] = (await service.ok('GET', `/api/v1/end-users/templates?accountId=${service.accountId}`))
    .endUserTemplates.results;
  const body = { accountId: service.accountId, name: 'below', parentId: organization.id };
  const withOwn = { ...body, endUserTemplateId: template?.id };
  t.match(await service.http('POST', '/api/v1/organizations', { token, body: withOwn }), refused(21, 403));
  t.match(await service.http('POST', '/api/v1/organizations', { token, body }), { status: 200 });
});

t.test('a raised role does not open to a password that somebody with less has chosen', async (t) => {
  const { id: roleId } = await role(service, 'account', {
    accountUser: ['create', 'read', 'update'],
    device: ['read'],
  });
  const limited = await accountUser(service, { roleId });
  const made = await accountUser(service, { roleId }, limited.token);
  await service.ok('PUT', `/api/v1/account-users/${made.id}`, {
    ...etag(made.version),
    body: { roleId: 'account:admin' },
  });
  t.equal((await service.http('GET', '/api/v1/profile/me', { token: made.token })).status, 401);
});

t.test('nor does a role to which rights are added', async (t) => {
  const rights = { accountUser: ['create', 'read', 'update'], device: ['read'] } as const;
  const made = await role(service, 'account', rights);
  const limited = await accountUser(service, { roleId: made.id });
  const chosen = await accountUser(service, { roleId: made.id }, limited.token);
  const put = (more: object) =>
    service
      .ok('GET', `/api/v1/roles/${made.id}`)
      .then(({ role: { version } }) =>
        service.ok('PUT', `/api/v1/roles/${made.id}`, { ...etag(version), body: { rights: { ...rights, ...more } } }),
      );
  const statusOf = async ({ token }: { token: string }) =>
    (await service.http('GET', '/api/v1/profile/me', { token })).status;
  await put({ device: [] });
  t.equal(await statusOf(chosen), 200, 'less rights open nothing');
  await put({ bridge: ['read'] });
  t.equal(await statusOf(chosen), 401);
  t.equal(await statusOf(limited), 200, 'an admin has chosen its password');
});

t.end();
