import t from 'tap';
import { createAccount } from '../../src/registry/accounts.js';
import { Mailbox } from '../support/mailbox.js';
import { adminEmail, type Made, type Service, startService } from '../support/service.js';

const minute = 60_000;
let now = Date.parse('2026-06-01T00:00:00Z');
let service: Service;
let organization: Made<'organization'>;
let phoneApp: Made<'application'>;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now }, mail: new Mailbox() });
  organization = await service.organization();
  phoneApp = await application('endUserApp');
});

const application = (kind: string) => service.create('/applications', 'application', { name: kind, kind });
const register = (body: object, appToken = phoneApp.appToken) =>
  service.http('POST', '/api/v1/auth/create-user', {
    token: null,
    headers: { accesstoken: appToken },
    body: { accountId: service.accountId, password: 'a walk in the park', ...body },
  });
const batch = (token: string, userIds: unknown) =>
  service.http('POST', '/api/v1/users/batch', { token, body: { userIds } });
const remove = (userId: string, token = service.admin) =>
  service.http('DELETE', `/api/v1/internal/users/${userId}`, { token });
const failure = (status: number, errorCode: string, path?: string) => ({
  status,
  body: { attributes: { errorCode, ...(path && { details: [{ path }] }) } },
});
const toTrash = ({ id, version }: Record<'id' | 'version', string>) =>
  service.ok('DELETE', `/api/v1/end-users/${id}`, { headers: { etag: version } });

/** An admin of another account. */
async function stranger(name: string): Promise<{ accountId: string; token: string; userId: string }> {
  const account = { name, adminEmail: 'boss@example.com', adminPassword: 'another fine one' };
  const { accountId } = await createAccount(service.server.ctx, account);
  const { jwt } = await service.loginAs(account.adminEmail, account.adminPassword, accountId);
  const { accountUsers } = await service.ok('GET', `/api/v1/account-users?accountId=${accountId}`, { token: jwt });
  return { accountId, token: jwt, userId: accountUsers.results[0].userId };
}

t.test('anyone who registers may log in and make a first organization, and has told who they are', async (t) => {
  const said = { name: 'Ada L', firstName: 'Ada', lastName: 'Lovelace', phoneNumber: '+41 44 000 00 00' };
  const { body } = await register({ emailAddress: 'Ada@example.com', ...said });
  t.strictSame(body, {
    userId: body.userId,
    emailAddress: 'Ada@example.com',
    accountId: service.accountId,
    createdAt: new Date(now).toISOString(),
  });
  const { jwt: token } = await service.loginAs('ada@example.com', 'a walk in the park');
  t.match(await service.ok('GET', `/api/v1/profile/${body.userId}`, { token }), { ...said, userId: body.userId });
  const templates = await service.ok('GET', `/api/v1/end-users/templates?accountId=${service.accountId}`);
  const endUserTemplateId = templates.endUserTemplates.results[0].id;
  const made = await service.create('/organizations', 'organization', { name: 'Home', endUserTemplateId }, token);
  t.equal(made.defaultEndUser.userId, body.userId);
  const audit = await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&targetId=${body.userId}`);
  t.match(audit.auditRecords.results.at(-1), { event: 'identityCreated', actorId: phoneApp.id });
});

t.test('what cannot be registered, and why', async (t) => {
  const { email } = await service.endUser(organization.id);
  const other = await stranger('Beside');
  t.match(await register({ emailAddress: adminEmail.toUpperCase() }), failure(400, 'UserExistsError'));
  t.match(await register({ emailAddress: email.toUpperCase() }), failure(400, 'NotUniqueError', 'emailAddress'));
  t.match(await register({ emailAddress: 'nobody' }), failure(400, 'InvalidError', 'emailAddress'));
  t.match(await register({}), failure(400, 'InvalidError', 'emailAddress'));
  t.match(await register({ emailAddress: 'n@example.com', accountId: other.accountId }), failure(404, 'NotFoundError'));
  const app = { accountId: other.accountId, name: 'theirs', kind: 'endUserApp' };
  const theirs = await service.create('/applications', 'application', app, other.token);
  t.match(await register({ emailAddress: 'n@example.com' }, theirs.appToken), failure(404, 'NotFoundError'));
  t.match(await register({}, service.admin), failure(403, 'WrongTokenError'), 'who calls is asked first');
  t.match(await register({}, 'made up'), failure(401, 'TokenInvalidError'));
  t.match(await register({ emailAddress: 'n@example.com' }), { status: 200 }, 'it was free all the time');
});

t.test('of twenty registrations of one address at once exactly one is made', async (t) => {
  const answers = await Promise.all(Array.from({ length: 20 }, () => register({ emailAddress: 'race@example.com' })));
  t.equal(answers.filter(({ status }) => status === 200).length, 1);
  t.equal(answers.filter(({ status }) => status === 400).length, 19);
});

t.test('an application registers 300 people in a minute', async (t) => {
  const { appToken } = await application('endUserApp');
  // Refused by the policy, so that no hash is computed; they count all the same.
  const body = { emailAddress: 'many@example.com', password: 'short' };
  const statuses = new Set<number>();
  for (let n = 0; n < 300; n += 1) statuses.add((await register(body, appToken)).status);
  t.strictSame([...statuses], [400]);
  t.match(await register(body, appToken), { status: 429 });
  t.match(await register(body), { status: 400 }, 'another one has its own');
  now += minute;
  t.match(await register(body, appToken), { status: 400 });
});

t.test('a batch shows whom the caller sees as end-users, and itself, in the order asked for', async (t) => {
  const [top, elsewhere] = [await service.organization(), await service.organization()];
  const below = await service.organization({ parentId: top.id });
  const [boss, kid, outside, gone] = [
    await service.endUser(top.id),
    await service.endUser(below.id),
    await service.endUser(elsewhere.id),
    await service.endUser(below.id),
  ];
  await toTrash(gone.endUser);
  const other = await stranger('Batch');
  const ids = [kid, outside, boss, gone, kid].map(({ endUser }) => endUser.userId);
  const all = [...ids, other.userId, 'nobody'];
  const seen = async (token: string) => (await batch(token, all)).body.users.map(({ userId }) => userId);
  const [kidId, outsideId, bossId, goneId] = ids;
  t.strictSame(await seen(boss.token), [kidId, bossId]);
  t.strictSame(await seen(kid.token), [kidId], 'not whom is above');
  t.strictSame(await seen(gone.token), [goneId], 'without an end-user, itself');
  t.strictSame(await seen(service.admin), [kidId, outsideId, bossId]);
  t.strictSame(await seen(other.token), [other.userId], 'another account is a wall');
  const [profile] = (await batch(boss.token, [kidId])).body.users;
  t.match(profile, { userId: kidId, emailAddress: kid.email, accountId: service.accountId, name: null });
  t.notMatch(JSON.stringify(profile), /assword|argon/);
  t.strictSame((await batch(boss.token, [])).body, { success: true, users: [] });
  t.match(
    await batch(
      boss.token,
      Array.from({ length: 101 }, () => kidId),
    ),
    failure(400, 'InvalidError', 'userIds'),
  );
  t.match(await batch(boss.token, [5]), failure(400, 'InvalidError'));
});

t.test('an identity stays while it is an account user or has live end-users', async (t) => {
  const { endUser } = await service.endUser(organization.id);
  t.match(await remove(endUser.userId), failure(400, 'ConstraintError'));
  const users = await service.ok('GET', `/api/v1/account-users?accountId=${service.accountId}`);
  t.match(await remove(users.accountUsers.results[0].userId), failure(400, 'ConstraintError'));
  t.match(await service.ok('GET', `/api/v1/profile/${endUser.userId}`), { userId: endUser.userId });
});

t.test('a deleted identity is gone, with its sessions, its trash and its tokens, and its email is free', async (t) => {
  const who = await service.endUser(organization.id);
  const { userId } = who.endUser;
  await service.http('GET', `/api/v1/users/${userId}/password-reset-token`, {
    token: null,
    headers: { accesstoken: phoneApp.appToken },
  });
  const holder = { accountId: service.accountId, entityId: who.endUser.id, entityType: 'endUser' };
  await service.ok('POST', '/api/v1/access/mqtt-credentials', { body: holder });
  await toTrash(who.endUser);
  t.match(await service.http('GET', `/api/v1/profile/${userId}`, { token: who.token }), { status: 200 });
  t.strictSame((await remove(userId)).body, { success: true });
  const own = await service.http('GET', `/api/v1/profile/${userId}`, { token: who.token });
  t.match(own, failure(401, 'TokenInvalidError'));
  t.match(await service.http('GET', `/api/v1/profile/${userId}`), failure(404, 'NotFoundError'));
  t.match(await remove(userId), failure(404, 'NotFoundError'));
  const trash = `/api/v1/trash/end-users/${who.endUser.id}`;
  t.match(await service.http('GET', trash), { status: 404, body: { error: { code: 100 } } });
  const etag = { headers: { etag: who.endUser.version } };
  t.match(await service.http('POST', `${trash}/recover`, etag), { status: 404 }, 'it would belong to nobody');
  const { query } = service.server.ctx.registry;
  for (const table of ['sessions', 'mailedTokens'] as const)
    t.strictSame(await query.selectFrom(table).selectAll().where('userId', '=', userId).execute(), [], table);
  const secrets = query.selectFrom('credentials').select('id').where('entityId', '=', who.endUser.id);
  t.strictSame(await secrets.execute(), [], 'the secret for the broker too');
  t.match(await register({ emailAddress: who.email }), { status: 200 });
  const audit = await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&targetId=${userId}`);
  t.match(audit.auditRecords.results[0], { event: 'identityDeleted', outcome: 'success' });
});

t.test('a back-end deletes identities; end-users, other accounts and telephones do not', async (t) => {
  const who = await service.endUser(organization.id);
  const { userId } = who.endUser;
  await toTrash(who.endUser);
  const other = await stranger('Delete');
  const boss = await service.endUser(organization.id);
  const loggedIn = async ({ id, appToken }: Record<'id' | 'appToken', string>): Promise<string> => {
    const body = { appId: id, appToken, accountId: service.accountId };
    return (await service.ok('POST', '/api/v1/auth/login-application', { token: null, body })).jwt;
  };
  t.match(await remove(userId, other.token), failure(404, 'NotFoundError'));
  for (const token of [boss.token, who.token, await loggedIn(phoneApp)])
    t.match(await remove(userId, token), failure(403, 'ForbiddenError'));
  t.strictSame((await remove(userId, await loggedIn(await application('backEnd')))).body, { success: true });
});

t.test('a connection of the identity ends before the answer', async (t) => {
  const who = await service.endUser(organization.id);
  const client = await service.connect({ jwt: who.token });
  const closed = new Promise((resolve) => client.once('close', () => resolve(true)));
  // Behind the back of the service, so that nothing has ended the connection before.
  const { registry, access } = service.server.ctx;
  await registry.query.deleteFrom('endUsers').where('id', '=', who.endUser.id).execute();
  access.identityChanged(who.endUser.userId);
  t.match(await remove(who.endUser.userId), { status: 200 });
  t.equal(
    (await service.server.ctx.broker.principalDeleted(service.accountId, who.endUser.userId)).connections,
    0,
    'there is none left to end',
  );
  t.ok(await closed);
});
