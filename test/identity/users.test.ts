import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { metric } from '../broker/metrics.ts';
import { changeStored } from '../support/faults.ts';
import { Mailbox } from '../support/mailbox.ts';
import { part } from '../support/part.ts';
import { type Answer, adminEmail, claimsOf, type Made, type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';

const t = await part(import.meta);

const minute = 60_000;
const day = 24 * 60 * minute;
const mailbox = new Mailbox();
const logLines: string[] = [];
let now = Date.parse('2026-06-01T00:00:00Z');
let service: Service;
let organization: Made<'organization'>;
let phoneApp: Made<'application'>;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now }, mail: mailbox, logLines });
  organization = await service.organization();
  phoneApp = await application('endUserApp');
});
t.beforeEach(async () => {
  now += day;
  await service.login();
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
async function stranger(): Promise<{ accountId: string; token: string; userId: string }> {
  const { accountId, admin: token } = await service.account();
  return { accountId, token, userId: claimsOf(token).userId };
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
  const other = await stranger();
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
  const other = await stranger();
  const ids = [kid, outside, boss, gone, kid].map(({ endUser }) => endUser.userId);
  const all = [...ids, other.userId, 'nobody'];
  const seen = async (token: string) => (await batch(token, all)).body.users.map(({ userId }) => userId);
  const [kidId, outsideId, bossId, goneId] = ids;
  t.strictSame(await seen(boss.token), [kidId, bossId]);
  t.strictSame(await seen(kid.token), [kidId], 'not whom is above');
  t.strictSame(await seen(gone.token), [goneId], 'without an end-user, itself');
  t.strictSame(await seen(service.admin), [kidId, outsideId, bossId, goneId], 'those in the trash, too');
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
  for (const table of ['sessions', 'mailedTokens'])
    t.equal(countStored(service, table, '"userId" = ?', [userId]), 0, table);
  t.equal(countStored(service, 'credentials', '"entityId" = ?', [who.endUser.id]), 0, 'the secret for the broker too');
  t.match(await register({ emailAddress: who.email }), { status: 200 });
  const audit = await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&targetId=${userId}`);
  t.match(audit.auditRecords.results[0], { event: 'identityDeleted', outcome: 'success' });
});

t.test('a back-end deletes identities; end-users, other accounts and telephones do not', async (t) => {
  const who = await service.endUser(organization.id);
  const { userId } = who.endUser;
  await toTrash(who.endUser);
  const other = await stranger();
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
  await changeStored(service, 'DELETE FROM "endUsers" WHERE "id" = ?', [who.endUser.id]);
  const connections = await metric({ service }, 'slipway_mqtt_connections');
  t.match(await remove(who.endUser.userId), { status: 200 });
  t.equal(await metric({ service }, 'slipway_mqtt_connections'), Number(connections) - 1);
  t.ok(await closed);
});

const inviteTo = (path: string, idmUserEmail: string, body: object = {}, token = service.admin): Promise<Answer> =>
  service.http('POST', `/api/v1${path}`, {
    token,
    body: { accountId: service.accountId, createIdmUser: true, idmUserEmail, ...body },
  });
const invite = (email: string, body: object = {}, token?: string) =>
  inviteTo('/end-users', email, { organizationId: organization.id, ...body }, token);
const accept = (userId: string, passwordResetToken: string) =>
  service.http('POST', `/api/v1/users/${userId}/change-password-with-token`, {
    token: null,
    body: { passwordResetToken, newPassword: 'the first secret of mine' },
  });
const canLogIn = (email: string) =>
  service.loginAs(email, 'the first secret of mine').then(
    () => true,
    () => false,
  );

t.test('who is made without a password gets an email, and sets the first one with it', async (t) => {
  for (const [answer, wrapper, email] of [
    [await invite('kid@example.com'), 'endUser', 'kid@example.com'],
    [await inviteTo('/account-users', 'boss@example.com'), 'accountUser', 'boss@example.com'],
  ] as const) {
    t.match(answer, { status: 200, body: { [wrapper]: { userId: String, invitationSent: true } } });
    t.match(mailbox.to(email), [{ subject: 'Your login at My company', text: /seven days/ }]);
    const { userId } = answer.body[wrapper];
    t.notOk(answer.text.includes(mailbox.tokenTo(email)), 'the answer does not hold the token');
    t.match(await accept(userId, mailbox.tokenTo(email)), { status: 200 });
    t.ok(await canLogIn(email));
    t.match(await accept(userId, mailbox.tokenTo(email)), { status: 400 }, 'once');
  }
  const { endUsers } = await service.ok('GET', `/api/v1/end-users?accountId=${service.accountId}`);
  t.ok(
    endUsers.results.every((one) => !('invitationSent' in one)),
    'only its own answer reports an email',
  );
});

t.test('an invitation lasts seven days', async (t) => {
  const { userId } = (await invite('late@example.com')).body.endUser;
  now += 7 * day;
  t.match(await accept(userId, mailbox.tokenTo('late@example.com')), { status: 400 });
  const other = (await invite('intime@example.com')).body.endUser;
  now += 7 * day - 1;
  t.match(await accept(other.userId, mailbox.tokenTo('intime@example.com')), { status: 200 });
});

t.test('who is made with a password, or not made, or is there already, gets no email', async (t) => {
  const count = mailbox.emails.length;
  const made = await invite('with@example.com', { idmUserPassword: 'a secret that is set' });
  t.match(made, { status: 200 });
  t.notOk('invitationSent' in made.body.endUser);
  t.match(await invite('with@example.com'), { status: 400 }, 'taken');
  t.match(await invite('nowhere@example.com', { organizationId: 'nothing' }), { status: 400 });
  t.match(await invite('nofield@example.com', { postalCode: 'far too long for one' }), { status: 400 });
  const { userId } = made.body.endUser;
  const again = { organizationId: organization.id, userId };
  t.match(await service.create('/end-users', 'endUser', again), { userId });
  t.equal(mailbox.emails.length, count);
});

t.test('a mail server that refuses undoes nothing, and a reset sends another token', async (t) => {
  mailbox.refusal = Object.assign(new Error('451 unlucky@example.com: later'), { responseCode: 451 });
  const from = logLines.length;
  const answer = await invite('unlucky@example.com');
  mailbox.refusal = undefined;
  t.match(answer, { status: 200, body: { endUser: { invitationSent: false } } });
  const lines = logLines.slice(from).join('\n');
  t.match(lines, /"responseCode":451/);
  t.notMatch(lines, 'unlucky@example.com');
  const { id, userId } = answer.body.endUser;
  t.match(await service.http('GET', `/api/v1/end-users/${id}`), { status: 200 });
  const { appToken } = await service.create('/applications', 'application', { name: 'phone', kind: 'endUserApp' });
  const path = `/api/v1/users/${userId}/password-reset-token`;
  await service.ok('GET', path, { token: null, headers: { accesstoken: appToken } });
  t.match(await accept(userId, mailbox.tokenTo('unlucky@example.com')), { status: 200 });
  t.ok(await canLogIn('unlucky@example.com'));
});

t.test('the same request with an Idempotency-Key sends one email', async (t) => {
  const headers = { 'idempotency-key': 'one email' };
  const body = {
    accountId: service.accountId,
    organizationId: organization.id,
    createIdmUser: true,
    idmUserEmail: 'once@example.com',
  };
  const first = await service.ok('POST', '/api/v1/end-users', { body, headers });
  t.same(await service.ok('POST', '/api/v1/end-users', { body, headers }), first);
  t.equal(mailbox.to('once@example.com').length, 1);
});

t.test('an end-user invites a hundred people in an hour, an admin as many as it likes', async (t) => {
  const { token } = await service.endUser(organization.id);
  for (let n = 0; n < 100; n += 1) t.match((await invite(`n${n}@example.com`, {}, token)).status, 200);
  t.match(await invite('n100@example.com', {}, token), { status: 429, body: { error: { code: -199 } } });
  t.strictSame(mailbox.to('n100@example.com'), []);
  t.match(await invite('n100@example.com', { idmUserPassword: 'a secret that is set' }, token), { status: 200 });
  t.match(await invite('n101@example.com'), { status: 200 });
});

t.test('an email has the name of the account on one line, and a link where there is an address', async (t) => {
  const mailbox = new Mailbox();
  const elsewhere = await startService(t, {
    mail: mailbox,
    env: {
      SLIPWAY_ACCOUNT_NAME: 'Acme\r\nBcc: all@example.com\u2028\n\nand   sons',
      SLIPWAY_PUBLIC_URL: 'https://iot.example.com/',
    },
  });
  const body = { createIdmUser: true, idmUserEmail: 'x@example.com' };
  const { userId } = await elsewhere.create('/account-users', 'accountUser', body);
  const [{ subject, text } = { subject: '', text: '' }] = mailbox.to('x@example.com');
  t.equal(subject, 'Your login at Acme Bcc: all@example.com and sons');
  t.notMatch(text, /^Bcc/m);
  const [link = ''] = /^https:\S+$/m.exec(text) ?? [];
  const { origin, pathname, hash } = new URL(link);
  t.equal(origin + pathname, 'https://iot.example.com/set-password');
  const parameters = new URLSearchParams(hash.slice(1));
  t.equal(parameters.get('userId'), userId);
  const token = parameters.get('token') ?? '';
  const change = { newPassword: 'the first secret of mine', passwordResetToken: token };
  const path = `/api/v1/users/${userId}/change-password-with-token`;
  t.match(await elsewhere.http('POST', path, { token: null, body: change }), { status: 200 });
});

t.test('invitations are at rest hashed, and in no log', async (t) => {
  await invite('secret@example.com');
  const token = mailbox.tokenTo('secret@example.com');
  const files = ['registry.db', 'registry.db-wal'].map((name) => readFileSync(join(service.directory, name), 'latin1'));
  t.ok(files.join('').includes('secret@example.com'));
  t.notOk(files.join('').includes(token));
  t.notOk(logLines.join('\n').includes(token));
});

t.end();
