import { part } from '../support/part.ts';
import { adminEmail, adminPassword, claimsOf, present, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const post = (body: object, token?: string) =>
  service.http('POST', '/api/v1/end-users', {
    body: { accountId: service.accountId, ...body },
    ...(token && { token }),
  });

t.test('a new end-user has an identity that can log in', async (t) => {
  const organization = await service.organization();
  const { endUser, email, password } = await service.endUser(organization.id, { city: 'Bern', countryCode: 'CH' });
  t.match(endUser, {
    organizationId: organization.id,
    userId: String,
    endUserTemplateId: String,
    city: 'Bern',
    name: null,
  });
  t.not(endUser.userId, endUser.id);
  t.match(await service.loginAs(email.toUpperCase(), password), { jwt: String });
  t.notMatch(JSON.stringify(endUser), /assword|secret/);
});

t.test('the rules of the body, each with its property', async (t) => {
  const organization = await service.organization();
  const good = {
    organizationId: organization.id,
    createIdmUser: true,
    idmUserEmail: 'eve@example.com',
    idmUserPassword: 'a fine password',
  };
  for (const [path, change] of [
    ['createIdmUser', { createIdmUser: false }],
    ['createIdmUser', { createIdmUser: 'true' }],
    ['idmUserEmail', { idmUserEmail: 'eve' }],
    ['idmUserEmail', { idmUserEmail: undefined }],
    ['idmUserPassword', { idmUserPassword: 'short' }],
    ['idmUserPassword', { idmUserPassword: 'my eve@example.com word' }],
    ['idmUserPassword', { idmUserPassword: 'fouuuur in a row' }],
    ['idmUserPassword', { idmUserPassword: 'x1'.repeat(200) }],
    ['name', { name: '' }],
    ['postalCode', { postalCode: '12345678901' }],
  ] as const)
    t.match(
      await post({ ...good, ...change }),
      { status: 400, body: { error: { code: 106, details: [{ path }] } } },
      JSON.stringify(change),
    );
  t.match(await post({ ...good, organizationId: 'nothing' }), { status: 400, body: { error: { code: 102 } } });
  t.match(await post({ ...good, endUserTemplateId: 'nothing' }), { status: 400, body: { error: { code: 102 } } });
  t.match(await post({ ...good, idmUserEmail: adminEmail }), { status: 400, body: { error: { code: 110 } } });
  t.match(await post({ ...good, idmUserPassword: 'three in a rooow' }), { status: 200 });
  t.match(
    await post(good),
    { status: 400, body: { error: { code: 106, details: [{ path: 'idmUserEmail' }] } } },
    'the email is taken',
  );
});

t.test('one person may be several end-users, and reaches what each of them reaches', async (t) => {
  const [here, there] = [await service.organization(), await service.organization()];
  const { endUser, token } = await service.endUser(here.id);
  const second = await service.create('/end-users', 'endUser', { organizationId: there.id, userId: endUser.userId });
  t.equal(second.userId, endUser.userId);
  const list = await service.ok('GET', `/api/v1/organizations?accountId=${service.accountId}`, { token });
  t.equal(list.organizations.meta.count, 2);
  const admin = claimsOf(service.admin);
  t.match(await post({ organizationId: here.id, userId: admin.userId }), {
    status: 400,
    body: { error: { code: 110 } },
  });
  t.match(await post({ organizationId: here.id, userId: 'nobody' }), { status: 400, body: { error: { code: 102 } } });
});

t.test('an end-user makes further end-users only of people it can see', async (t) => {
  const [mine, theirs] = [await service.organization(), await service.organization()];
  const { endUser, token } = await service.endUser(mine.id);
  const { endUser: stranger } = await service.endUser(theirs.id);
  const admin = claimsOf(service.admin);
  const refused = { status: 400, body: { error: { code: 102, details: [{ path: 'userId' }] } } };
  for (const userId of [stranger.userId, admin.userId, 'nobody'])
    t.match(await post({ organizationId: mine.id, userId }, token), refused, 'all the same');
  t.match(await post({ organizationId: mine.id, userId: endUser.userId }, token), { status: 200 });
});

t.test('a deleted end-user reaches nothing at once; its email stays reserved; recovery restores it', async (t) => {
  const organization = await service.organization();
  const { endUser, email, token } = await service.endUser(organization.id);
  const path = `/api/v1/organizations/${organization.id}`;
  const etag = { headers: { etag: endUser.version } };
  t.match(await service.http('GET', path, { token }), { status: 200 });
  await service.ok('DELETE', `/api/v1/end-users/${endUser.id}`, etag);
  t.match(await service.http('GET', path, { token }), { status: 403, body: { error: { code: 21 } } });
  const again = {
    organizationId: organization.id,
    createIdmUser: true,
    idmUserEmail: email,
    idmUserPassword: 'another password',
  };
  t.match(await post(again), { status: 400, body: { error: { code: 106 } } });
  await service.ok('POST', `/api/v1/trash/end-users/${endUser.id}/recover`, etag);
  t.match(await service.http('GET', path, { token }), { status: 200 });
});

t.test('who has become an account user meanwhile does not come back as an end-user', async (t) => {
  const organization = await service.organization();
  const { endUser } = await service.endUser(organization.id);
  const etag = { headers: { etag: endUser.version } };
  await service.ok('DELETE', `/api/v1/end-users/${endUser.id}`, etag);
  const admin = await service.create('/account-users', 'accountUser', { userId: endUser.userId });
  const recover = () => service.http('POST', `/api/v1/trash/end-users/${endUser.id}/recover`, etag);
  t.match(await recover(), { status: 400, body: { error: { code: 110 } } });
  t.match(await service.http('GET', `/api/v1/trash/end-users/${endUser.id}`), { status: 200 }, 'it stays in the trash');
  await service.ok('DELETE', `/api/v1/account-users/${admin.id}`, { headers: { etag: admin.version } });
  t.match(await recover(), { status: 200, body: { endUser: { id: endUser.id } } });
});

t.test('moving an end-user moves its reach', async (t) => {
  const [from, to] = [await service.organization(), await service.organization()];
  const { endUser, token } = await service.endUser(from.id);
  const path = `/api/v1/end-users/${endUser.id}`;
  const headers = { etag: endUser.version };
  t.match(await service.http('PUT', path, { headers, body: {} }), {
    status: 400,
    body: { error: { code: 106, details: [{ path: 'organizationId' }] } },
  });
  await service.ok('PUT', path, { headers, body: { organizationId: to.id, emailAddress: 'x@y.example' } });
  t.match(await service.http('GET', `/api/v1/organizations/${from.id}`, { token }), { status: 404 });
  t.match(await service.http('GET', `/api/v1/organizations/${to.id}`, { token }), { status: 200 });
});

t.test('an end-user manages the end-users in its reach only', async (t) => {
  const top = await service.organization();
  const below = await service.organization({ parentId: top.id });
  const elsewhere = await service.organization();
  const { endUser: boss, token } = await service.endUser(top.id);
  const { endUser: stranger } = await service.endUser(elsewhere.id);
  const made = await post({ organizationId: below.id, createIdmUser: true, idmUserEmail: 'kid@example.com' }, token);
  t.equal(made.status, 200, 'without a password it is an invitation');
  const list = (await service.ok('GET', `/api/v1/end-users?accountId=${service.accountId}`, { token })).endUsers;
  t.same(
    list.results.map((one) => one.id),
    [boss.id, made.body.endUser.id],
  );
  t.match(await service.http('GET', `/api/v1/end-users/${stranger.id}`, { token }), { status: 404 });
  t.match(await post({ organizationId: elsewhere.id, createIdmUser: true, idmUserEmail: 'x@example.com' }, token), {
    status: 400,
    body: { error: { code: 102 } },
  });
  const { id, version } = made.body.endUser;
  const away = await service.http('PUT', `/api/v1/end-users/${id}`, {
    token,
    headers: { etag: version },
    body: { organizationId: elsewhere.id },
  });
  t.match(away, { status: 400, body: { error: { code: 102 } } });
  const refused = await service.http('POST', '/api/v1/auth/login-user', {
    token: null,
    body: { emailAddress: 'kid@example.com', password: '', accountId: service.accountId },
  });
  t.equal(refused.status, 401, 'nobody logs in without a password');
});

t.test('expand adds organization, template and account', async (t) => {
  const organization = await service.organization();
  const { endUser } = await service.endUser(organization.id);
  const path = `/api/v1/end-users/${endUser.id}?expand=organization,end-user-template,account`;
  t.match((await service.ok('GET', path)).endUser, {
    organization: { id: organization.id },
    endUserTemplate: { default: 'true' },
    account: { id: service.accountId },
  });
});

const postAdmin = (body: object, token?: string) =>
  service.http('POST', '/api/v1/account-users', {
    body: { accountId: service.accountId, ...body },
    ...(token && { token }),
  });

t.test('a second admin is made, works, and can be ended; the last one stays', async (t) => {
  const made = await postAdmin({
    createIdmUser: true,
    idmUserEmail: 'second@example.com',
    idmUserPassword: 'a second secret',
  });
  t.match(made, { status: 200, body: { accountUser: { userId: String, accountId: service.accountId, version: '1' } } });
  const { accountUser } = made.body;
  const { jwt } = await service.loginAs('second@example.com', 'a second secret');
  const list = await service.ok('GET', `/api/v1/account-users?accountId=${service.accountId}`, { token: jwt });
  t.equal(list.accountUsers.meta.count, 2);
  const first = present(list.accountUsers.results.find((user) => user.id !== accountUser.id));
  t.strictSame(
    list.accountUsers.results.map((user) => user.emailAddress).sort(),
    ['admin@example.com', 'second@example.com'],
    'admins see the addresses of each other',
  );
  const path = `/api/v1/account-users/${first.id}`;
  t.match(await service.http('DELETE', path, { token: jwt }), { status: 400, body: { error: { code: 103 } } });
  await service.ok('DELETE', path, { token: jwt, headers: { etag: first.version } });
  const lists = () => service.http('GET', `/api/v1/devices?accountId=${service.accountId}`);
  t.match(await lists(), { status: 403, body: { error: { code: 21 } } }, 'the ended one can do nothing');
  const own = { token: jwt, headers: { etag: accountUser.version } };
  t.match(await service.http('DELETE', `/api/v1/account-users/${accountUser.id}`, own), {
    status: 400,
    body: { error: { code: 104 } },
  });
  t.match(await service.http('GET', path, { token: jwt }), { status: 410 });
  t.match(await postAdmin({ userId: first.userId }, jwt), { status: 200 }, 'made an admin again');
  t.match(await lists(), { status: 200 });
});

t.test('an identity is never both account user and end-user', async (t) => {
  const { endUser, token } = await service.endUser((await service.organization()).id);
  t.match(await postAdmin({ userId: endUser.userId }), { status: 400, body: { error: { code: 110 } } });
  t.match(await postAdmin({ createIdmUser: true, idmUserEmail: adminEmail, idmUserPassword: adminPassword }), {
    status: 400,
    body: { error: { code: 110 } },
  });
  t.match(await postAdmin({ userId: 'nobody' }), { status: 400, body: { error: { code: 102 } } });
  t.match(await postAdmin({}), { status: 400, body: { error: { code: 106 } } });
  t.match(await postAdmin({ userId: endUser.userId }, token), { status: 403, body: { error: { code: 21 } } });
});

t.end();
