import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Secret, TOTP } from 'otpauth';
import { audited } from '../support/audited.ts';
import { Mailbox } from '../support/mailbox.ts';
import { countStatuses } from '../support/many.ts';
import { part } from '../support/part.ts';
import { type Answer, adminEmail, type Made, type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';

const t = await part(import.meta);

const minute = 60_000;
let now = Date.parse('2026-06-01T00:00:00Z');
const mailbox = new Mailbox();
const logLines: string[] = [];
let service: Service;
let organization: Made<'organization'>;
let phoneApp: Made<'application'>;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now }, mail: mailbox, logLines });
  organization = await service.organization();
  phoneApp = await application('endUserApp');
});
t.beforeEach(async () => {
  // Limits are by the hour; a test begins with fresh ones.
  now += 61 * minute;
  await service.login();
});

const application = (kind: string, body: object = {}) =>
  service.create('/applications', 'application', { name: kind, kind, ...body });
const withApp = (path: string, appToken = phoneApp.appToken): Promise<Answer> =>
  service.http('GET', `/api/v1${path}`, { token: null, headers: { accesstoken: appToken } });
const ask = (userId: string, appToken?: string) => withApp(`/users/${userId}/password-reset-token`, appToken);
const lookUp = (email: string, query = '', appToken?: string) =>
  withApp(`/users/by-email/${encodeURIComponent(email)}/user-id${query}`, appToken);
const change = (userId: string, passwordResetToken: string, newPassword = 'an entirely new secret') =>
  service.http('POST', `/api/v1/users/${userId}/change-password-with-token`, {
    token: null,
    body: { newPassword, passwordResetToken },
  });
const tryLogin = async (emailAddress: string, password: string): Promise<number> => {
  const body = { emailAddress, password, accountId: service.accountId };
  return (await service.http('POST', '/api/v1/auth/login-user', { token: null, body })).status;
};
const list = (token: string) => service.http('GET', `/api/v1/devices?accountId=${service.accountId}`, { token });
const refused = { status: 400, body: { attributes: { errorCode: 'BadTokenError' } } };

/** An end-user who has asked for a reset: the person, and the token from the mail. */
async function forgetful() {
  const who = await service.endUser(organization.id);
  await ask(who.endUser.userId);
  return { ...who, userId: who.endUser.userId, resetToken: mailbox.tokenTo(who.email) };
}

/** An admin next to the first one. */
const anotherAdmin = (idmUserEmail: string) =>
  service.create('/account-users', 'accountUser', {
    createIdmUser: true,
    idmUserEmail,
    idmUserPassword: 'a secret of an admin',
  });

t.test('a reset goes by mail, sets the password once, and tells the application nothing', async (t) => {
  const who = await service.endUser(organization.id);
  const { userId } = who.endUser;
  const answer = await ask(userId);
  t.strictSame(answer.body, { success: true, userId });
  t.equal(answer.headers.get('cache-control'), 'no-store');
  const [email, ...more] = mailbox.to(who.email);
  t.strictSame(more, []);
  t.match(email?.subject, /My company/);
  const token = mailbox.tokenTo(who.email);
  const changed = await change(userId, token);
  t.strictSame(changed.body, { success: true });
  t.equal(changed.headers.get('set-cookie'), null, 'nobody is logged in');
  t.equal(changed.headers.get('platform-access-token'), null);
  t.equal(await tryLogin(who.email, who.password), 401);
  t.equal(await tryLogin(who.email, 'an entirely new secret'), 200);
  t.match(await change(userId, token, 'a second new secret'), refused, 'it works once');
  const audit = await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&targetId=${userId}`);
  const records = audit.auditRecords.results.filter(({ event, outcome }) => event !== 'login' && outcome === 'success');
  t.match(records, [
    { event: 'passwordChanged', actorId: null, address: '127.0.0.1' },
    { event: 'passwordReset', actorId: phoneApp.id },
    { event: 'identityCreated' },
  ]);
});

t.test('an hour later it is worth nothing', async (t) => {
  const { userId, resetToken } = await forgetful();
  now += 60 * minute;
  t.match(await change(userId, resetToken), refused);
  const late = await forgetful();
  now += 60 * minute - 1;
  t.match(await change(late.userId, late.resetToken), { status: 200 });
});

t.test('sent twenty times at once, a token sets one password', async (t) => {
  const { userId, email, resetToken } = await forgetful();
  const passwords = Array.from({ length: 20 }, (_, n) => `password of sender ${n}`);
  const answers = await Promise.all(passwords.map((password) => change(userId, resetToken, password)));
  t.equal(answers.filter(({ status }) => status === 200).length, 1);
  const winner = passwords[answers.findIndex(({ status }) => status === 200)] ?? '';
  for (const answer of answers) if (answer.status !== 200) t.match(answer, refused);
  t.equal(await tryLogin(email, winner), 200);
});

t.test('a password against the policy leaves the token as it was', async (t) => {
  const { userId, email, resetToken } = await forgetful();
  for (const newPassword of ['short', `my ${email} word`, 'fouuuur in a row', 'TrustNo1'])
    t.match(await change(userId, resetToken, newPassword), {
      status: 400,
      body: { attributes: { errorCode: 'InvalidError', details: [{ path: 'newPassword' }] } },
    });
  t.match(await change(userId, resetToken), { status: 200 });
});

t.test('of several tokens the newest works', async (t) => {
  const { userId, email, resetToken } = await forgetful();
  await ask(userId);
  t.match(await change(userId, resetToken), refused);
  t.match(await change(userId, mailbox.tokenTo(email)), { status: 200 });
});

t.test('a token is worth nothing for another person, nor a made-up one for anybody', async (t) => {
  const [one, other] = [await forgetful(), await forgetful()];
  t.match(await change(other.userId, one.resetToken), refused);
  t.match(await change('nobody', one.resetToken), refused);
  for (const token of ['', 'made up', `${one.resetToken}x`]) t.match(await change(one.userId, token), refused);
  t.match(await change(one.userId, one.resetToken), { status: 200 }, 'and is not used up by it');
});

t.test('only an application made for it gets the token, and then no mail goes out', async (t) => {
  const { appToken } = await application('backEnd', { revealResetToken: true });
  const { endUser, email } = await service.endUser(organization.id);
  const { body } = await ask(endUser.userId, appToken);
  t.match(body, { success: true, userId: endUser.userId, resetToken: String });
  t.strictSame(mailbox.to(email), []);
  t.match(await change(endUser.userId, body.resetToken), { status: 200 });
  t.equal(await tryLogin(email, 'an entirely new secret'), 200);
});

t.test('an admin’s token is in no answer, and goes by mail', async (t) => {
  const { appToken } = await application('endUserApp', { revealResetToken: true });
  const { userId } = await anotherAdmin('forgetful-admin@example.com');
  t.strictSame((await ask(userId, appToken)).body, { success: true, userId });
  t.match(await change(userId, mailbox.tokenTo('forgetful-admin@example.com')), { status: 200 });
});

t.test('anyone who becomes an admin keeps no token that an application has seen', async (t) => {
  const { appToken } = await application('endUserApp', { revealResetToken: true });
  const { endUser } = await service.endUser(organization.id);
  await service.ok('DELETE', `/api/v1/end-users/${endUser.id}`, { headers: { etag: endUser.version } });
  const { resetToken } = (await ask(endUser.userId, appToken)).body;
  await service.create('/account-users', 'accountUser', { userId: endUser.userId });
  t.match(await change(endUser.userId, resetToken), refused);
});

t.test('any change of the password ends the tokens', async (t) => {
  const { userId, token, password, resetToken } = await forgetful();
  const body = { userId, oldPassword: password, newPassword: 'changed in the meantime' };
  await service.ok('POST', '/api/v1/profile/change-password', { token, body });
  t.match(await change(userId, resetToken), refused);
});

t.test('every session ends with the old password, over HTTP and MQTT, and every login half way', async (t) => {
  const { userId, email, password, token, resetToken } = await forgetful();
  const other = (await service.loginAs(email, password)).jwt;
  const client = await service.connect({ jwt: other });
  const closed = new Promise((resolve) => client.once('close', () => resolve(true)));
  const path = `/api/v1/users/${userId}/mfa/totp`;
  const { secret } = await service.ok('POST', path, { token });
  const code = new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp: now });
  await service.ok('POST', `${path}/confirm`, { token, body: { code } });
  await service.ok('POST', '/api/v1/auth/login-user', {
    token: null,
    body: { emailAddress: email, password, accountId: service.accountId },
  });
  t.equal(countStored(service, 'mfaLogins', '"userId" = ?', [userId]), 1);
  t.match(await list(token), { status: 200 });
  t.match(await change(userId, resetToken), { status: 200 });
  for (const jwt of [token, other]) t.match(await list(jwt), { status: 401, body: { error: { code: 31 } } });
  t.ok(await closed);
  t.equal(countStored(service, 'mfaLogins', '"userId" = ?', [userId]), 0);
  t.equal(countStored(service, 'mfaMethods', '"userId" = ?', [userId]), 1, 'second factors stay');
});

t.test('by-email finds end-users, and anyone who has registered, and no admin', async (t) => {
  const { endUser, email } = await service.endUser(organization.id);
  const here = `?accountId=${service.accountId}`;
  for (const [asked, query] of [
    [email, ''],
    [email.toUpperCase(), here],
  ] as const)
    t.strictSame((await lookUp(asked, query)).body, { success: true, userId: endUser.userId });
  const body = { accountId: service.accountId, emailAddress: 'walk+in@example.com', password: 'a walk in the park' };
  const headers = { accesstoken: phoneApp.appToken };
  const walkIn = await service.ok('POST', '/api/v1/auth/create-user', { token: null, headers, body });
  t.strictSame((await lookUp('walk+in@example.com')).body, { success: true, userId: walkIn.userId });
  const { jwt } = await service.loginAs(body.emailAddress, body.password);
  t.match(await service.http('GET', `/api/v1/devices?accountId=${service.accountId}`, { token: jwt }), {
    status: 403,
    body: { error: { code: 21, message: /create your first organization: POST .* with endUserTemplateId/ } },
  });
  const none = { status: 404, body: { attributes: { errorCode: 'NotFoundError' } } };
  const [admin, nobody] = [await lookUp(adminEmail), await lookUp('nobody@example.com')];
  for (const answer of [admin, nobody]) t.match(answer, none);
  t.same({ ...admin.body, requestId: '' }, { ...nobody.body, requestId: '' }, 'an admin looks like nobody');
});

t.test('an application finds and resets people of its own account only', async (t) => {
  const { accountId, admin: jwt } = await service.account();
  const body = { accountId, name: 'theirs', kind: 'backEnd', revealResetToken: true };
  const theirs = await service.create('/applications', 'application', body, jwt);
  const { endUser, email } = await service.endUser(organization.id);
  const none = { status: 404, body: { attributes: { errorCode: 'NotFoundError' } } };
  t.match(await ask(endUser.userId, theirs.appToken), none);
  t.match(await lookUp(email, '', theirs.appToken), none);
  t.match(await lookUp(email, `?accountId=${service.accountId}`, theirs.appToken), none);
  t.match(await ask('nobody'), none);
  t.strictSame(mailbox.to(email), []);
});

t.test('the AccessToken is the appToken of a live application, and nothing else', async (t) => {
  const { endUser, email, token } = await service.endUser(organization.id);
  const gone = await application('endUserApp');
  await service.ok('DELETE', `/api/v1/applications/${gone.id}`);
  for (const [given, status, errorCode] of [
    ['', 401, 'TokenMissingError'],
    ['made up', 401, 'TokenInvalidError'],
    [gone.appToken, 401, 'TokenInvalidError'],
    [token, 403, 'WrongTokenError'],
    [service.admin, 403, 'WrongTokenError'],
  ] as const)
    for (const answer of [await ask(endUser.userId, given), await lookUp(email, '', given)])
      t.match(answer, { status, body: { attributes: { errorCode } } }, `${status} for ${given.slice(0, 8)}`);
  const bearer = await service.http('GET', `/api/v1/users/${endUser.userId}/password-reset-token`);
  t.match(bearer, { status: 401 }, 'a bearer token does not stand for it');
  t.strictSame(mailbox.to(email), []);
});

t.test('a person gets five reset mails in an hour', async (t) => {
  const { endUser, email } = await service.endUser(organization.id);
  for (let n = 0; n < 5; n += 1) t.match(await ask(endUser.userId), { status: 200 });
  const limited = await ask(endUser.userId);
  t.match(limited, { status: 429 });
  t.match(limited.headers.get('retry-after'), /^\d+$/);
  t.equal(mailbox.to(email).length, 5);
  t.match(await change(endUser.userId, mailbox.tokenTo(email)), { status: 200 }, 'the last one works');
  t.match(await ask((await service.endUser(organization.id)).endUser.userId), { status: 200 }, 'others get theirs');
  now += 60 * minute;
  t.match(await ask(endUser.userId), { status: 200 });
});

t.test('an application asks 600 times in a minute', async (t) => {
  const { appToken } = await application('endUserApp');
  const statuses = await countStatuses(601, () => lookUp('nobody@example.com', '', appToken));
  t.strictSame(statuses, { 404: 600, 429: 1 });
  t.match(await lookUp('nobody@example.com'), { status: 404 }, 'another one has its own');
  now += minute;
  t.match(await lookUp('nobody@example.com', '', appToken), { status: 404 });
});

t.test('when the mail server refuses, the answer says so, and the log neither to whom nor what', async (t) => {
  const { endUser, email } = await service.endUser(organization.id);
  mailbox.refusal = Object.assign(new Error(`550 no such mailbox ${email}`), { code: 'EENVELOPE', rejected: [email] });
  const from = logLines.length;
  t.match(await ask(endUser.userId), { status: 500, body: { attributes: { errorCode: 'ServerError' } } });
  mailbox.refusal = undefined;
  const lines = logLines.slice(from).join('\n');
  t.match(lines, /EENVELOPE/);
  t.notMatch(lines, email);
  t.match(await ask(endUser.userId), { status: 200 }, 'asked again, it works');
  mailbox.refusal = new Error('451 later');
  for (let n = 0; n < 12; n += 1) t.match(await ask(endUser.userId), { status: 500 });
  mailbox.refusal = undefined;
  for (let n = 0; n < 4; n += 1) t.match(await ask(endUser.userId), { status: 200 }, 'and has used nothing up');
  t.match(await ask(endUser.userId), { status: 429 });
});

t.test('neither tokens nor passwords are at rest in clear, nor in the log', async (t) => {
  const { appToken } = await application('backEnd', { revealResetToken: true });
  const used = await forgetful();
  const waiting = await forgetful();
  const revealed = (await ask((await service.endUser(organization.id)).endUser.userId, appToken)).body.resetToken;
  await change(used.userId, used.resetToken, 'a password to be found');
  const secrets = ['a password to be found', used.password, used.resetToken, waiting.resetToken, revealed, appToken];
  const files = ['registry.db', 'registry.db-wal'].map((name) => readFileSync(join(service.directory, name), 'latin1'));
  t.ok(files.join('').includes(waiting.email), 'the bytes are those that hold the rest');
  for (const secret of secrets) {
    t.notOk(files.join('').includes(secret), 'not in the database');
    t.notOk(logLines.join('\n').includes(secret), 'not in the log');
  }
});

t.test('an application causes 300 reset mails in an hour', async (t) => {
  const { appToken } = await application('endUserApp');
  const people: string[] = [];
  for (let n = 0; n < 61; n += 1) people.push((await service.endUser(organization.id)).endUser.userId);
  const statuses = await countStatuses(301, (n) => ask(people[n % 61] ?? '', appToken));
  t.strictSame(statuses, { 200: 300, 429: 1 });
  t.match(await ask(people[60] ?? ''), { status: 200 }, 'another one has its own');
});

t.test('tokens that are wrong or spent are in the audit record of whom they were tried on', async (t) => {
  const [one, other] = [await forgetful(), await forgetful()];
  for (const userId of [other.userId, other.userId, 'nobody', one.userId]) await change(userId, one.resetToken);
  await change(one.userId, one.resetToken);
  await change('nobody', 'made up');
  const query = `event=passwordChanged&outcome=failure&sortOrder=asc&from=${new Date(now).toISOString()}`;
  const results = await audited(service, query, 3);
  const entry = { outcome: 'failure', actorId: null, address: '127.0.0.1', details: { with: 'token' } };
  t.match(results, [
    { ...entry, targetKind: 'identity', targetId: other.userId },
    { ...entry, targetKind: null, targetId: null },
    { ...entry, targetKind: 'identity', targetId: one.userId },
  ]);
  t.equal(results.length, 3, 'sampled, and nothing of who is nobody’s');
});

t.end();
