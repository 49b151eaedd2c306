/** Who chose a password, and what becomes of it when its identity gets more rights (docs/identity.md). */
import { TOTP } from 'otpauth';
import type { Test } from 'tap';
import { Mailbox } from '../support/mailbox.ts';
import { Browser, type OpenIdProvider, register, startProvider } from '../support/oidc.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, type Made, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const mailbox = new Mailbox();
const stolen = 'the secret of a stranger';
const fresh = 'chosen by the owner alone';
let service: Service;
let provider: OpenIdProvider;
let known: Made<'identityProvider'>;
let appToken: string;
t.before(async () => {
  service = await startService(t, { mail: mailbox, env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' } });
  provider = await startProvider(t, service);
  known = await register(service, provider);
  const app = { name: 'App', kind: 'endUserApp' };
  appToken = (await service.create('/applications', 'application', app)).appToken;
});

const newEmail = () => `${service.unique('person').replace(' ', '')}@example.com`;
/** Anybody registers any address, by the appToken of a phone's app. */
async function selfRegister(email = newEmail()) {
  const body = { accountId: service.accountId, emailAddress: email, password: stolen };
  const headers = { accesstoken: appToken };
  const { userId } = await service.ok('POST', '/api/v1/auth/create-user', { token: null, headers, body });
  return { userId: userId as string, email };
}
const login = (emailAddress: string, password: string) =>
  service.http('POST', '/api/v1/auth/login-user', {
    token: null,
    body: { emailAddress, password, accountId: service.accountId },
  });
const profileOf = (userId: string) => service.ok('GET', `/api/v1/profile/${userId}`);
const setByToken = (userId: string, passwordResetToken: string, newPassword = fresh) =>
  service.ok('POST', `/api/v1/users/${userId}/change-password-with-token`, {
    token: null,
    body: { newPassword, passwordResetToken },
  });
const promote = (userId: string) => service.create('/account-users', 'accountUser', { userId });
const isOver = async (t: Test, { userId, jwt }: { userId: string; jwt: string }) =>
  t.equal((await service.http('GET', `/api/v1/profile/${userId}`, { token: jwt })).status, 401, 'its session is over');

t.test('(a) a stranger who registered an address first has nothing left when its owner links a provider', async (t) => {
  const { userId, email } = await selfRegister();
  const { jwt } = await service.loginAs(email, stolen);
  t.equal((await profileOf(userId)).emailConfirmed, false);
  const named = { name: 'Nest', endUserTemplateId: await endUserTemplate() };
  const own = await service.create('/organizations', 'organization', named, jwt);
  const entity = { entityId: own.defaultEndUser.id, entityType: 'endUser' };
  const { secret } = await service.create('/access/mqtt-credentials', 'mqttCredential', entity, jwt);
  const listener = await service.connect({ deviceId: own.defaultEndUser.id, secret });
  const cut = new Promise<void>((resolve) => listener.once('close', () => resolve()));

  provider.logsIn({ sub: service.unique('owner'), email, email_verified: true });
  const owner = await new Browser(service).logIn(known.id);
  t.equal(owner.status, 200, owner.text);
  await cut;
  t.equal((await login(email, stolen)).status, 401, 'the password is void');
  await isOver(t, { userId, jwt });
  await t.rejects(service.connect({ deviceId: own.defaultEndUser.id, secret }), { code: 4 }, 'so is the MQTT secret');
  t.equal((await profileOf(userId)).emailConfirmed, true);
  const path = `/api/v1/audit?accountId=${service.accountId}&event=passwordVoided&targetId=${userId}`;
  t.match((await service.ok('GET', path)).auditRecords.results, [
    { details: { chosenBy: 'other', grant: 'provider' } },
  ]);
});

t.test('(b) promotion does not make the password of a stranger an admin’s; the owner is invited', async (t) => {
  const { userId, email } = await selfRegister();
  const { jwt } = await service.loginAs(email, stolen);
  const { secret } = await service.ok('POST', `/api/v1/users/${userId}/mfa/totp`, { token: jwt });
  const code = new TOTP({ secret }).generate();
  await service.ok('POST', `/api/v1/users/${userId}/mfa/totp/confirm`, { token: jwt, body: { code } });
  const made = await promote(userId);
  t.equal(made.invitationSent, true);
  t.equal((await login(email, stolen)).status, 401);
  await isOver(t, { userId, jwt });
  t.equal(mailbox.to(email).length, 1);
  await setByToken(userId, mailbox.tokenTo(email));
  const owner = await login(email, fresh);
  t.match(owner, { status: 200, body: { jwt: String } }, 'without the factor of the stranger');
  const list = `/api/v1/account-users?accountId=${service.accountId}`;
  t.equal((await service.http('GET', list, { token: owner.body.jwt })).status, 200);
  t.equal((await profileOf(userId)).emailConfirmed, true);
});

t.test('(b) nor does becoming an end-user of an organization that has something', async (t) => {
  const { userId, email } = await selfRegister();
  const { jwt } = await service.loginAs(email, stolen);
  const organization = await service.organization();
  const made = await service.create('/end-users', 'endUser', { organizationId: organization.id, userId });
  t.equal(made.invitationSent, true);
  t.equal((await login(email, stolen)).status, 401);
  await isOver(t, { userId, jwt });
  await setByToken(userId, mailbox.tokenTo(email));
  t.equal((await login(email, fresh)).status, 200);
});

t.test('(c) a mailed token proves the address and who chose the password, which no grant voids then', async (t) => {
  const { userId, email } = await selfRegister();
  const headers = { accesstoken: appToken };
  await service.ok('GET', `/api/v1/users/${userId}/password-reset-token`, { token: null, headers });
  await setByToken(userId, mailbox.tokenTo(email));
  t.equal((await profileOf(userId)).emailConfirmed, true);
  const before = mailbox.to(email).length;
  const organization = await service.organization();
  const endUser = await service.create('/end-users', 'endUser', { organizationId: organization.id, userId });
  t.notOk('invitationSent' in endUser);
  const { jwt } = await service.loginAs(email, fresh);
  provider.logsIn({ sub: service.unique('owner'), email, email_verified: true });
  t.equal((await new Browser(service).logIn(known.id)).status, 200);
  t.equal((await service.http('GET', `/api/v1/profile/${userId}`, { token: jwt })).status, 200, 'the session goes on');
  await service.ok('DELETE', `/api/v1/end-users/${endUser.id}`, { headers: { etag: endUser.version } });
  await promote(userId);
  t.equal((await login(email, fresh)).status, 200);
  t.equal(mailbox.to(email).length, before, 'nobody had to be invited');
});

t.test('a password that its holder changes proves no more than the former one', async (t) => {
  const { userId, email } = await selfRegister();
  const { jwt } = await service.loginAs(email, stolen);
  const body = { userId, oldPassword: stolen, newPassword: 'another of the stranger' };
  await service.ok('POST', '/api/v1/profile/change-password', { token: jwt, body });
  t.equal((await promote(userId)).invitationSent, true);
  t.equal((await login(email, body.newPassword)).status, 401);
});

t.test('nor does an address that somebody else has confirmed for them', async (t) => {
  const { userId, email } = await selfRegister();
  const headers = { accesstoken: appToken };
  await service.ok('GET', `/api/v1/users/${userId}/password-reset-token`, { token: null, headers });
  await setByToken(userId, mailbox.tokenTo(email), stolen);
  const { jwt } = await service.loginAs(email, stolen);
  const victim = newEmail();
  const body = { userId, newEmailAddress: victim };
  await service.ok('POST', '/api/v1/profile/update-email-address', { token: jwt, body });
  await service.ok('POST', '/api/v1/auth/confirm-email', { token: null, body: { token: mailbox.tokenTo(victim) } });
  t.equal((await profileOf(userId)).emailConfirmed, true);
  t.equal((await promote(userId)).invitationSent, true);
  t.equal((await login(victim, stolen)).status, 401);
});

t.test('an admin’s choice holds for end-users, and ends with a promotion or a provider', async (t) => {
  const [here, there] = [await service.organization(), await service.organization()];
  const { endUser, email, password, token } = await service.endUser(here.id);
  const { userId } = endUser;
  const second = await service.create('/end-users', 'endUser', { organizationId: there.id, userId });
  t.notOk('invitationSent' in second);
  t.equal((await login(email, password)).status, 200);
  for (const one of [endUser, second])
    await service.ok('DELETE', `/api/v1/end-users/${one.id}`, { headers: { etag: one.version } });
  t.equal((await promote(userId)).invitationSent, true);
  t.equal((await login(email, password)).status, 401);
  await isOver(t, { userId, jwt: token });

  const other = await service.endUser(here.id);
  provider.logsIn({ sub: service.unique('owner'), email: other.email, email_verified: true });
  t.equal((await new Browser(service).logIn(known.id)).status, 200);
  t.equal((await login(other.email, other.password)).status, 401);
});

t.test('what an end-user chose for another ends when that one gets more', async (t) => {
  const [here, there] = [await service.organization(), await service.organization()];
  const chief = await service.endUser(here.id);
  const [email, password] = [newEmail(), 'chosen by the chief'];
  const body = { organizationId: here.id, createIdmUser: true, idmUserEmail: email, idmUserPassword: password };
  const { userId } = await service.create('/end-users', 'endUser', body, chief.token);
  t.equal((await login(email, password)).status, 200);
  await service.create('/end-users', 'endUser', { organizationId: there.id, userId });
  t.equal((await login(email, password)).status, 401, 'the chief does not reach there');
});

t.test('who was invited and becomes an admin before choosing a password is invited again', async (t) => {
  const organization = await service.organization();
  const email = newEmail();
  const invited = { organizationId: organization.id, createIdmUser: true, idmUserEmail: email };
  const endUser = await service.create('/end-users', 'endUser', invited);
  const former = mailbox.tokenTo(email);
  await service.ok('DELETE', `/api/v1/end-users/${endUser.id}`, { headers: { etag: endUser.version } });
  await promote(endUser.userId);
  const path = `/api/v1/users/${endUser.userId}/change-password-with-token`;
  const body = { newPassword: fresh, passwordResetToken: former };
  t.equal((await service.http('POST', path, { token: null, body })).status, 400, 'an application may have had it');
  await setByToken(endUser.userId, mailbox.tokenTo(email));
  t.equal((await login(email, fresh)).status, 200);
});

t.test('the operator’s choice holds: the first admin links a provider and keeps the way in', async (t) => {
  provider.logsIn({ sub: service.unique('owner'), email: adminEmail, email_verified: true });
  t.equal((await new Browser(service).logIn(known.id)).status, 200);
  t.equal((await login(adminEmail, adminPassword)).status, 200);
});

t.test('an identity of another account is granted nothing', async (t) => {
  const { accountId, admin: jwt } = await service.account();
  const { userId, email } = await selfRegister();
  const body = { accountId, userId };
  const refused = await service.http('POST', '/api/v1/account-users', { token: jwt, body });
  t.match(refused, { status: 400, body: { error: { code: 102 } } });
  t.equal((await login(email, stolen)).status, 200);
});

async function endUserTemplate(): Promise<string> {
  const path = `/api/v1/end-users/templates?accountId=${service.accountId}&default=true`;
  return (await service.ok('GET', path)).endUserTemplates.results[0].id;
}

t.end();
