import { Mailbox } from '../support/mailbox.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const mailbox = new Mailbox();
let service: Service;
t.before(async () => {
  service = await startService(t, { mail: mailbox });
});

const nobody = { token: null };

t.test('GET /profile/me tells who one is, and names the rights that the API enforces', async (t) => {
  const admin = await service.ok('GET', '/api/v1/profile/me');
  t.match(admin, { kind: 'admin', accountId: service.accountId, emailAddress: 'admin@example.com' });
  t.ok(admin.rights.device?.includes('create'));
  const organization = await service.organization();
  const person = await service.endUser(organization.id);
  const me = await service.ok('GET', '/api/v1/profile/me', { token: person.token });
  t.match(me, { kind: 'endUser', emailAddress: person.email, organizationIds: [organization.id] });
  t.strictSame(me.rights.device, ['read', 'update', 'publish', 'subscribe']);
  t.notOk(me.rights.auditRecord);
  t.notOk(me.rights.session, 'what everybody may do to itself comes from no role');
  const refused = await service.http('GET', `/api/v1/audit?accountId=${service.accountId}`, { token: person.token });
  t.equal(refused.status, 403);
  t.match(await service.http('GET', '/api/v1/profile/me', nobody), { status: 401 });
});

t.test('the id of an only account is public, and no longer once there are two', async (t) => {
  const only = await startService(t);
  t.strictSame((await only.http('GET', '/api/v1/auth/default-account', nobody)).body, { accountId: only.accountId });
  await only.account();
  t.match(await only.http('GET', '/api/v1/auth/default-account', nobody), {
    status: 404,
    body: { attributes: { errorCode: 'NotFoundError' } },
  });
});

t.test('the sign-in page can name the identity providers of an account, and no more of them', async (t) => {
  const { id } = await service.create('/identity-providers', 'identityProvider', {
    name: 'Example login',
    issuer: 'https://login.example.com',
    clientId: 'slipway',
    clientSecret: 'the secret of the client',
  });
  const path = '/api/v1/auth/login-providers?accountId=';
  const { body } = await service.http('GET', path + service.accountId, nobody);
  t.strictSame(body, { identityProviders: [{ id, name: 'Example login' }] });
  t.strictSame((await service.http('GET', `${path}nothing`, nobody)).body, { identityProviders: [] });
});

t.test('a forgotten password is set with the token of the email; the answer never tells who exists', async (t) => {
  const person = await service.endUser((await service.organization()).id);
  const ask = (emailAddress: string) =>
    service.http('POST', '/api/v1/auth/forgot-password', {
      ...nobody,
      body: { accountId: service.accountId, emailAddress },
    });
  const [known, unknown] = [await ask(person.email), await ask('stranger@example.com')];
  t.strictSame([known.status, known.body], [200, { success: true }]);
  t.strictSame([unknown.status, unknown.body], [200, { success: true }]);
  const passwordResetToken = await mailbox.nextTokenTo(person.email);
  t.equal(mailbox.emails.filter(({ to }) => to === 'stranger@example.com').length, 0);
  const path = `/api/v1/users/${person.endUser.userId}/change-password-with-token`;
  const body = { newPassword: 'an entirely new secret', passwordResetToken };
  await service.ok('POST', path, { ...nobody, body });
  t.ok((await service.loginAs(person.email, 'an entirely new secret')).jwt);
  for (let tries = 0; tries < 18; tries += 1) await ask('stranger@example.com');
  t.match(await ask(person.email), { status: 429 });
});

t.test('the sessions of a person are listed, and end for that person and for admins', async (t) => {
  const person = await service.endUser((await service.organization()).id);
  const { userId } = person.endUser;
  const path = `/api/v1/users/${userId}`;
  const phone = (await service.loginAs(person.email, person.password)).jwt;
  const { security } = await service.ok('GET', `${path}/security`, { token: phone });
  t.strictSame(security.mfaMethods, []);
  t.strictSame([security.sessions.length, security.sessions.filter(({ current }) => current).length], [2, 1]);
  t.strictSame(await service.ok('POST', `${path}/end-sessions`, { token: phone }), { success: true, ended: 1 });
  const look = (token: string) => service.http('GET', '/api/v1/profile/me', { token });
  t.strictSame([(await look(person.token)).status, (await look(phone)).status], [401, 200]);

  const body = { accountId: service.accountId, emailAddress: person.email, password: person.password };
  const browsers = [
    ['Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0', 'Firefox on Windows'],
    ['Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/139.0 Safari/537.36 Edg/139.0', 'Edge on Windows'],
    ['Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) Version/18.5 Safari/604.1', 'Safari on iOS'],
    ['Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 Chrome/139.0 Safari/537.36', 'Chrome on Android'],
    ['curl/8.5.0', 'curl'],
    ['<b>x</b>', null],
    [`${'x'.repeat(100)}/1`, 'x'.repeat(60)],
  ] as const;
  for (const [agent, browser] of browsers) {
    const headers = { 'user-agent': agent };
    const { jwt: token } = await service.ok('POST', '/api/v1/auth/login-user', { token: null, headers, body });
    const { sessions } = (await service.ok('GET', `${path}/security`, { token })).security;
    t.equal(sessions.find(({ current }) => current)?.browser, browser, agent);
  }
  t.equal((await service.ok('POST', `${path}/end-sessions`, { token: phone })).ended, browsers.length);

  const neighbour = await service.endUser((await service.organization()).id);
  for (const method of ['GET', 'POST'])
    t.equal(
      (
        await service.http(method, `${path}/${method === 'GET' ? 'security' : 'end-sessions'}`, {
          token: neighbour.token,
        })
      ).status,
      404,
    );
  t.equal((await service.ok('POST', `${path}/end-sessions`)).ended, 1, 'an admin ends the last one');
  t.equal((await look(phone)).status, 401);
});

t.end();
