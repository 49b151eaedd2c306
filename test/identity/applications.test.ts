import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { part } from '../support/part.ts';
import { closed, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const start = Date.parse('2026-03-01T00:00:00Z');
const time = { now: start };
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => time.now } });
});
t.beforeEach(() => {
  time.now = start;
});

const application = (body: object = {}) =>
  service.create('/applications', 'application', { name: service.unique('App'), kind: 'backEnd', ...body });
const login = (body: object) =>
  service.http('POST', '/api/v1/auth/login-application', {
    token: null,
    body: { accountId: service.accountId, ...body },
  });
const tokenOf = async ({ id, appToken }: Record<'id' | 'appToken', string>): Promise<string> =>
  (await login({ appId: id, appToken })).body.jwt;
const devices = (token: string | null) =>
  service.http('GET', `/api/v1/devices?accountId=${service.accountId}`, { token });

t.test('an appToken is shown once and stored hashed', async (t) => {
  const made = await application({ accessTokenLifetime: 600 });
  t.match(made, { id: String, kind: 'backEnd', accessTokenLifetime: 600, revealResetToken: false, version: '1' });
  t.match(made.appToken, /^[0-9a-f]{3}[\w-]{43}$/);
  const { application: read } = await service.ok('GET', `/api/v1/applications/${made.id}`);
  const { appToken, ...rest } = made;
  t.strictSame(read, rest);
  const { applications } = await service.ok(
    'GET',
    `/api/v1/applications?accountId=${service.accountId}&name=${made.name}`,
  );
  t.strictSame(applications.results, [rest]);
  for (const file of ['registry.db', 'registry.db-wal'])
    t.notOk(readFileSync(join(service.directory, file)).includes(appToken), file);
});

t.test('a back-end acts as an admin, over HTTP and MQTT, and what it makes bears its id', async (t) => {
  const backEnd = await application();
  const jwt = await tokenOf(backEnd);
  const claims = JSON.parse(Buffer.from(jwt.split('.')[1] ?? '', 'base64url').toString());
  t.match(claims, { userId: backEnd.id, sub: backEnd.id, accountId: service.accountId, roles: ['backEnd'] });
  const organization = await service.create('/organizations', 'organization', { name: 'by a program' }, jwt);
  t.equal(organization.createdById, backEnd.id);
  const body = { serialNumber: 'by a program', organizationId: organization.id };
  const device = await service.create('/devices', 'device', body, jwt);
  const client = await service.connect({ jwt });
  t.match(await client.subscribeAsync(service.topic(device.id, '#')), [{ qos: 0 }]);
  const asEndUser = { accountId: service.accountId, name: 'x', endUserTemplateId: 'any' };
  const answer = await service.http('POST', '/api/v1/organizations', { body: asEndUser, token: jwt });
  t.match(answer, { status: 400, body: { error: { code: 110 } } }, 'it is no person, so it becomes no end-user');
});

t.test('an application for end-users manages nothing', async (t) => {
  const jwt = await tokenOf(await application({ kind: 'endUserApp' }));
  t.match(await devices(jwt), { status: 403, body: { error: { code: 21 } } });
  await t.rejects(service.connect({ jwt }), { code: 5 });
});

t.test('wrong tokens, wrong ids, other accounts: one and the same answer', async (t) => {
  const [one, other] = [await application(), await application()];
  for (const body of [
    { appId: one.id, appToken: other.appToken },
    { appId: one.id, appToken: 'x' },
    { appId: 'x', appToken: one.appToken },
    { appId: one.id, appToken: one.appToken, accountId: 'f7a55bd4-8f8e-4b92-8b47-111111111111' },
  ])
    t.match(await login(body), { status: 401, body: { attributes: { errorCode: 'InvalidCredentialsError' } } });
  t.match(await devices(one.appToken), { status: 403, body: { error: { code: 20 } } }, 'an appToken is no JWT');
  const inAccessToken = (accesstoken: string) =>
    service.http('GET', '/api/v1/usage', { token: null, headers: { accesstoken } });
  const elsewhere = { status: 403, body: { error: { code: 20, message: /in the header Authorization/ } } };
  t.match(await inAccessToken(service.admin), elsewhere, 'a JWT in the header of appTokens');
  t.match(await inAccessToken(one.appToken), { status: 403, body: { error: { code: 20 } } });
  t.match(await inAccessToken('made up'), { status: 401, body: { error: { code: 30 } } });
});

t.test('the lifetime of its tokens is its own; they are renewed within the session', async (t) => {
  const jwt = await tokenOf(await application({ accessTokenLifetime: 120 }));
  const worth = async (token: string) =>
    (await service.ok('GET', `/api/v1/auth/validate-jwt?jwt=${token}`, { token: null })).resultCode;
  time.now = start + 119_999;
  t.equal(await worth(jwt), 0);
  t.equal((await devices(jwt)).status, 200);
  time.now = start + 120_000;
  t.equal(await worth(jwt), 1);
  const late = await devices(jwt);
  t.equal(late.status, 200);
  t.equal(await worth(late.headers.get('platform-access-token') ?? ''), 0);
  time.now = start + 14 * 24 * 60 * 60_000;
  t.equal(await worth(jwt), 2);
});

t.test('a lifetime is a whole number of seconds, from a minute to 30 days', async (t) => {
  for (const accessTokenLifetime of [0, 59, 2_592_001, 1.5, '600'])
    t.match(
      await service.http('POST', '/api/v1/applications', {
        body: { accountId: service.accountId, name: 'x', kind: 'backEnd', accessTokenLifetime },
      }),
      { status: 400, body: { error: { code: 106 } } },
    );
});

t.test('deleting an application ends its tokens and its connections before the answer leaves', async (t) => {
  const made = await application();
  const jwt = await tokenOf(made);
  const client = await service.connect({ jwt });
  const ended = closed(client);
  const answer = await service.http('DELETE', `/api/v1/applications/${made.id}`);
  t.match(answer, { status: 200, body: { application: { id: made.id } } });
  t.match(await devices(jwt), { status: 401, body: { error: { code: 31 } } });
  await ended;
  t.match(await login({ appId: made.id, appToken: made.appToken }), { status: 401 });
  t.match(await service.http('GET', `/api/v1/applications/${made.id}`), {
    status: 410,
    body: { error: { code: 107 } },
  });
  t.match(await service.http('DELETE', `/api/v1/applications/${made.id}`), { status: 410 });
});

t.test('logout works for applications, and ends the one session', async (t) => {
  const made = await application();
  const [one, other] = [await tokenOf(made), await tokenOf(made)];
  t.equal((await service.http('POST', '/api/v1/sessions/logout', { token: one })).status, 200);
  t.equal((await devices(one)).status, 401);
  t.equal((await devices(other)).status, 200);
});

t.test('applications are deleted while they write: nothing is made afterwards', async (t) => {
  const made = await application();
  const jwt = await tokenOf(made);
  const create = (n: number) =>
    service.http('POST', '/api/v1/devices', {
      token: jwt,
      body: { accountId: service.accountId, serialNumber: `race ${n}` },
    });
  const answers = Promise.all(Array.from({ length: 40 }, (_, n) => create(n)));
  const gone = await service.ok('DELETE', `/api/v1/applications/${made.id}`);
  t.ok(gone);
  for (const { status } of await answers) t.ok([200, 401, 403].includes(status), String(status));
  t.equal((await create(99)).status, 401);
});

t.end();
