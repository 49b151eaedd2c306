import { createHmac, createPrivateKey, generateKeyPairSync, sign } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import type { Test } from 'tap';
import type { Clock } from '../../src/core/clock.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { changeStored } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, claimsOf, closed, type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const start = Date.parse('2026-03-01T00:00:00Z');
const minute = 60_000;
const time = { now: start };
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => time.now } });
});
t.beforeEach(() => {
  time.now = start;
});

const list = (token: string | null, headers = {}) =>
  service.http('GET', `/api/v1/devices?accountId=${service.accountId}`, { token, headers });
const validate = async (jwt: string) =>
  (await service.http('POST', '/api/v1/auth/validate-jwt', { body: { jwt }, token: null })).body;
const login = (body: object = {}) =>
  service.http('POST', '/api/v1/auth/login-user', {
    token: null,
    body: { emailAddress: adminEmail, password: adminPassword, accountId: service.accountId, ...body },
  });

/** A service on which an application has at most three sessions. */
async function manySessions(t: Test, clock?: Clock) {
  const service = await startService(t, { env: { SLIPWAY_MAX_SESSIONS: '3' }, ...(clock && { clock }) });
  const { accountId } = service;
  const application = await service.create('/applications', 'application', { accountId, name: 'A', kind: 'backEnd' });
  const body = { accountId, appId: application.id, appToken: application.appToken };
  const open = async () => (await service.ok('POST', '/api/v1/auth/login-application', { token: null, body })).jwt;
  const read = async (token: string) =>
    (await service.http('GET', `/api/v1/devices?accountId=${accountId}`, { token })).status;
  return { service, application, open, read };
}

t.test(
  'a person or an application has so many sessions: the one that has rested longest ends, with its connections',
  async (t) => {
    const { service, application, open, read } = await manySessions(t);
    const first = await open();
    const connection = await service.connect({ jwt: first });
    const ended = closed(connection);
    const [second, third] = [await open(), await open()];
    t.same([await read(first), await read(second), await read(third)], [200, 200, 200]);
    const fourth = await open();
    await ended;
    t.same([await read(first), await read(second), await read(third), await read(fourth)], [401, 200, 200, 200]);
    t.equal(countStored(service, 'sessions', '"applicationId" = ?', [application.id]), 3, 'nothing of it is kept');
    t.equal(await read(service.admin), 200, 'others have their own');
  },
);

t.test('a session that was used a moment ago has not rested, although the registry knows an earlier use', async (t) => {
  let ahead = 0;
  const { open, read } = await manySessions(t, { now: () => Date.now() + ahead });
  const tokens: string[] = [];
  for (let count = 0; count < 3; count += 1) {
    tokens.push(await open());
    ahead += minute;
  }
  const [first = '', second = '', third = ''] = tokens;
  t.equal(await read(first), 200);
  t.equal(await read(await open()), 200);
  t.same([await read(first), await read(second), await read(third)], [200, 401, 200]);
});

t.test('login answers the token in body, header and cookie', async (t) => {
  const answer = await login();
  t.equal(answer.status, 200);
  const { jwt, csrfToken } = answer.body;
  t.equal(answer.headers.get('platform-access-token'), jwt);
  t.match(answer.headers.get('set-cookie'), /^platform-access-token=[^;]+;.*HttpOnly.*SameSite=Lax/);
  t.equal(typeof csrfToken, 'string');
  const claims = claimsOf(jwt);
  t.match(claims, {
    iss: 'slipway',
    sub: claims.userId,
    accountId: service.accountId,
    roles: ['admin'],
    id: String,
    jti: String,
  });
  t.equal(claims.expires, start + 20 * minute);
});

t.test('unknown person, wrong password, wrong account: one and the same answer', async (t) => {
  const answers = [
    await login({ emailAddress: 'nobody@example.com' }),
    await login({ password: 'wrong' }),
    await login({ accountId: 'f7a55bd4-8f8e-4b92-8b47-111111111111' }),
  ];
  for (const { status, body } of answers) {
    t.equal(status, 401);
    t.match(body, {
      statusCode: 401,
      error: 'Unauthorized',
      message: String,
      attributes: { errorCode: 'InvalidCredentialsError' },
    });
    const [first] = answers;
    t.same({ ...body, requestId: '' }, { ...first?.body, requestId: '' });
  }
  t.match(await login({ renewalType: 'forever' }), {
    status: 400,
    body: { statusCode: 400, attributes: { errorCode: 'InvalidError' } },
  });
  t.match(await login({ password: 5 }), { status: 400 });
});

t.test('a token that is old is renewed, one that has expired is served while its session is used', async (t) => {
  const { jwt } = (await login({ renewalType: 'short' })).body;
  t.equal((await list(jwt)).headers.get('platform-access-token'), null, 'young enough');
  t.match(await validate(jwt), { success: true, result: 'Valid', resultCode: 0 });
  time.now = start + 2 * minute;
  const renewed = (await list(jwt)).headers.get('platform-access-token') ?? '';
  t.match(await validate(renewed), { resultCode: 0 });
  time.now = start + 21 * minute;
  t.match(await validate(jwt), { success: false, result: 'RenewalNeeded', resultCode: 1 });
  const late = await list(jwt);
  t.equal(late.status, 200);
  const last = late.headers.get('platform-access-token') ?? '';
  time.now = start + 30 * minute;
  t.match(await validate(jwt), { result: 'Expired', resultCode: 2 });
  t.match(await validate(last), { resultCode: 2 }, 'a renewal never outlives the session');
  t.match(await list(last), { status: 401, body: { error: { code: 31 } } });
});

t.test(
  'an expired token of a session that nobody has used for 20 minutes is refused until the session is renewed',
  async (t) => {
    const { jwt } = (await login()).body;
    time.now = start + 19 * minute;
    t.equal((await list(jwt)).status, 200);
    time.now = start + 39 * minute - 1;
    t.equal((await list(jwt)).status, 200, 'expired, and used within 20 minutes');
    time.now += 20 * minute;
    t.match(await list(jwt), { status: 401, body: { error: { code: 31 } } });
    t.match(await list(jwt), { status: 401 }, 'a refused request is no use');
    t.match(await service.http('POST', '/api/v1/sessions/logout', { token: jwt }), {
      status: 401,
      body: { attributes: { errorCode: 'TokenInvalidError' } },
    });
    t.match(await validate(jwt), { result: 'RenewalNeeded', resultCode: 1 }, 'it can be renewed');
    const renewed = await service.http('POST', '/api/v1/sessions/renew-session', { token: jwt });
    t.equal(renewed.status, 200);
    t.match(await validate(renewed.body.jwt), { resultCode: 0 });
    t.equal((await list(renewed.body.jwt)).status, 200);
    t.equal((await list(jwt)).status, 200, 'the session is in use again');
    time.now += 13 * 1440 * minute;
    t.equal((await list(renewed.body.jwt)).status, 401);
    const late = await service.http('POST', '/api/v1/sessions/renew-session', { token: jwt });
    t.equal(late.status, 200, 'as long as the session lives');
    time.now += 1440 * minute;
    t.match(await service.http('POST', '/api/v1/sessions/renew-session', { token: late.body.jwt }), { status: 401 });
    t.match(await validate(late.body.jwt), { result: 'Expired', resultCode: 2 }, 'it can no longer be renewed');
  },
);

t.test('the tokens of an application rest by the lifetime of that application', async (t) => {
  const application = { name: 'Brief', kind: 'backEnd', accessTokenLifetime: 60 };
  const { id: appId, appToken } = await service.create('/applications', 'application', application);
  const { accountId } = service;
  const { jwt } = await service.ok('POST', '/api/v1/auth/login-application', {
    token: null,
    body: { appId, appToken, accountId },
  });
  time.now += 59_000;
  t.equal((await list(jwt)).status, 200);
  time.now += 59_000;
  t.equal((await list(jwt)).status, 200);
  time.now += 60_000;
  t.match(await list(jwt), { status: 401, body: { error: { code: 31 } } });
});

t.test('after a restart a session counts as used when it was last used', async (t) => {
  const directory = temporaryDirectory(t);
  const settings = { clock: { now: () => time.now }, directory };
  const before = await startService(t, settings);
  const { jwt } = await before.loginAs(adminEmail, adminPassword);
  const ask = (at: Service) => at.http('GET', `/api/v1/devices?accountId=${at.accountId}`, { token: jwt });
  time.now += 15 * minute;
  t.equal((await ask(before)).status, 200);
  await before.close();
  const after = await startService(t, settings);
  time.now += 20 * minute - 1;
  t.equal((await ask(after)).status, 200);
  time.now += 20 * minute;
  t.equal((await ask(after)).status, 401);
});

t.test('a use that could not be written is written when it can', async (t) => {
  const logLines: string[] = [];
  const service = await startService(t, { clock: { now: () => time.now }, logLines });
  const { id } = claimsOf(service.admin);
  const refusing = `"refusing" BEFORE UPDATE OF "lastUsed" ON "sessions" BEGIN SELECT RAISE(ABORT, 'no'); END`;
  await changeStored(service, `CREATE TRIGGER ${refusing}`);
  time.now += minute;
  await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}`);
  await until(() => logLines.some((line) => line.includes('the last uses of sessions could not be written')));
  await changeStored(service, 'DROP TRIGGER "refusing"');
  const used = new Date(time.now).toISOString();
  await until(() => countStored(service, 'sessions', '"id" = ? AND "lastUsed" = ?', [id, used]) === 1);
});

for (const [renewalType, minutes] of [
  ['remembered', 7 * 1440],
  ['extended', 100 * 1440],
  [undefined, 14 * 1440],
] as const)
  t.test(`a session of type ${renewalType} lasts ${minutes / 1440} days`, async (t) => {
    const { jwt } = (await login(renewalType ? { renewalType } : {})).body;
    const renew = () => service.http('POST', '/api/v1/sessions/renew-session', { token: jwt });
    time.now = start + minutes * minute - 1;
    t.equal((await renew()).status, 200);
    t.equal((await list(jwt)).status, 200);
    time.now = start + minutes * minute;
    t.equal((await list(jwt)).status, 401);
    t.equal((await renew()).status, 401);
  });

t.test('after logout the token is worth nothing, everywhere', async (t) => {
  const { jwt } = (await login()).body;
  const answer = await service.http('POST', '/api/v1/sessions/logout', { token: jwt });
  t.match(answer, { status: 200, body: { success: true, message: String } });
  t.match(await list(jwt), { status: 401, body: { error: { code: 31 } } });
  t.match(await validate(jwt), { resultCode: 2 });
  t.match(await service.http('POST', '/api/v1/sessions/logout', { token: jwt }), {
    status: 401,
    body: { statusCode: 401 },
  });
});

t.test('with the cookie, a change needs the CSRF header', async (t) => {
  const { jwt, csrfToken } = (await login()).body;
  const cookie = { cookie: `platform-access-token=${jwt}` };
  t.equal((await list(null, cookie)).status, 200);
  const create = (headers: Record<string, string>) =>
    service.http('POST', '/api/v1/devices', {
      token: null,
      headers,
      body: { accountId: service.accountId, serialNumber: 'c' },
    });
  t.match(await create(cookie), { status: 403, body: { error: { code: 21 } } });
  t.match(await create({ ...cookie, 'platform-csrf-token': 'guess' }), { status: 403, body: { error: { code: 21 } } });
  t.equal((await create({ ...cookie, 'platform-csrf-token': csrfToken })).status, 200);
  time.now = start + 2 * minute;
  t.match((await list(null, cookie)).headers.get('set-cookie'), /^platform-access-token=/, 'renewed in the cookie');
});

t.test('a request that names another session than that of its token is refused, whatever it asks', async (t) => {
  const [mine, theirs] = [(await login()).body, (await login()).body];
  const me = (session?: string) =>
    service.http('GET', '/api/v1/profile/me', {
      token: null,
      headers: { cookie: `platform-access-token=${mine.jwt}`, ...(session && { 'platform-session': session }) },
    });
  const { sessionId } = (await me()).body;
  t.equal(sessionId, claimsOf(mine.jwt).id);
  t.equal((await me(sessionId)).status, 200);
  t.match(await me(claimsOf(theirs.jwt).id), {
    status: 403,
    body: { attributes: { details: [{ path: 'platform-session' }] } },
  });
  const headers = {
    cookie: `platform-access-token=${theirs.jwt}`,
    'platform-csrf-token': theirs.csrfToken,
    'platform-session': sessionId,
  };
  const body = { accountId: service.accountId, serialNumber: 'of another' };
  t.match(await service.http('POST', '/api/v1/devices', { token: null, headers, body }), {
    status: 403,
    body: { error: { code: 20, details: [{ path: 'platform-session' }] } },
  });
  t.match(await service.http('GET', `/api/v1/devices?accountId=${service.accountId}&serialNumber=of+another`), {
    body: { devices: { meta: { count: 0 } } },
  });
});

t.test('forged tokens are refused', async (t) => {
  const [header = '', payload = '', signature = ''] = service.admin.split('.');
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const decoded = JSON.parse(Buffer.from(header, 'base64url').toString());
  const jwks = await service.ok('GET', '/.well-known/jwks.json', { token: null });
  t.same(Object.keys(jwks.keys[0]).sort(), ['alg', 'e', 'kid', 'kty', 'n', 'use'], 'public parts only');
  const hmac = (text: string) => createHmac('sha256', JSON.stringify(jwks.keys[0])).update(text).digest('base64url');
  const foreign = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey;
  const changed = encode({ ...JSON.parse(Buffer.from(payload, 'base64url').toString()), accountId: 'another' });
  const hs = `${encode({ ...decoded, alg: 'HS256' })}.${payload}`;
  for (const [name, token] of Object.entries({
    'no signature': `${encode({ ...decoded, alg: 'none' })}.${payload}.`,
    'an HMAC with the public key': `${hs}.${hmac(hs)}`,
    'a foreign key': `${header}.${payload}.${sign('sha256', Buffer.from(`${header}.${payload}`), foreign).toString('base64url')}`,
    'an unknown kid': `${encode({ ...decoded, kid: 'mine' })}.${payload}.${signature}`,
    'a changed payload': `${header}.${changed}.${signature}`,
    garbage: 'a.b.c',
  })) {
    t.match(await list(token), { status: 401, body: { error: { code: 31 } } }, name);
    t.match(await validate(token), { success: false, result: 'Error', resultCode: 3 }, name);
  }
  t.match(await list(null), { status: 401, body: { error: { code: 30 } } });
});

t.test('a token that our own key signed is good for the session that it names, and for nothing else', async (t) => {
  const claims = claimsOf(service.admin);
  const { accountId, admin: beside } = await service.account();
  const others = claimsOf(beside);
  const [file = ''] = readdirSync(join(service.directory, 'keys')).filter((one) => one.endsWith('.json'));
  const jwk = JSON.parse(readFileSync(join(service.directory, 'keys', file), 'utf8'));
  const forge = (issuer: string, typ: string, more: object = {}) =>
    new SignJWT({ ...claims, ...more })
      .setProtectedHeader({ alg: 'RS256', typ, kid: jwk.kid })
      .setIssuer(issuer)
      .sign(createPrivateKey({ key: jwk, format: 'jwk' }));
  t.equal((await list(await forge('slipway', 'JWT'))).status, 200, 'the forger knows how');
  for (const [name, changed] of Object.entries({
    'the session of another account': { id: others.id },
    'another account for the session': { accountId },
    'another person': { userId: others.userId },
    'no session': { id: 'nothing' },
  })) {
    const token = await forge('slipway', 'JWT', changed);
    t.match(await list(token), { status: 401, body: { error: { code: 31 } } }, name);
    t.match(await validate(token), { resultCode: 2 }, name);
  }
  for (const token of [await forge('somebody', 'JWT'), await forge('slipway', 'at+jwt')]) {
    t.match(await list(token), { status: 401, body: { error: { code: 31 } } });
    t.match(await validate(token), { resultCode: 3 });
  }
});

t.test('renew-session gives fresh tokens; the former CSRF token is void, the former JWT is not', async (t) => {
  const { jwt, csrfToken } = (await login({ renewalType: 'short' })).body;
  const cookie = { cookie: `platform-access-token=${jwt}` };
  time.now = start + 10 * minute;
  const renew = (proof: string) =>
    service.http('POST', '/api/v1/sessions/renew-session', {
      token: null,
      headers: { ...cookie, 'platform-csrf-token': proof },
    });
  const renewed = await renew(csrfToken);
  t.equal(renewed.status, 200);
  t.equal(renewed.headers.get('platform-access-token'), renewed.body.jwt);
  t.match(renewed.headers.get('set-cookie'), /^platform-access-token=[^;]+/);
  t.match(await renew(csrfToken), {
    status: 403,
    body: { statusCode: 403, attributes: { errorCode: 'ForbiddenError' } },
  });
  t.equal((await renew(renewed.body.csrfToken)).status, 200);
  t.equal((await list(jwt)).status, 200);
  time.now = start + 30 * minute;
  t.match(await validate(renewed.body.jwt), { resultCode: 2 }, 'the session ends when it would have ended');
});

t.test('a token can be validated by GET too', async (t) => {
  const ask = (jwt: string) =>
    service.http('GET', `/api/v1/auth/validate-jwt?jwt=${encodeURIComponent(jwt)}`, { token: null });
  t.match(await ask((await login()).body.jwt), {
    status: 200,
    body: { success: true, result: 'Valid', resultCode: 0 },
  });
  t.match(await ask('a b'), { status: 200, body: { success: false, result: 'Error', resultCode: 3 } });
  t.match(await service.http('GET', '/api/v1/auth/validate-jwt', { token: null }), { status: 400 });
});

t.test('behind a proxy that ends TLS the cookie is for TLS only', async (t) => {
  const behind = await startService(t, { env: { SLIPWAY_PUBLIC_URL: 'https://things.example.com' } });
  const body = { emailAddress: adminEmail, password: adminPassword, accountId: behind.accountId };
  const answer = await behind.http('POST', '/api/v1/auth/login-user', { token: null, body });
  t.match(answer.headers.get('set-cookie'), /; Secure/);
  t.notMatch((await login()).headers.get('set-cookie'), /; Secure/, 'without TLS it would never come back');
});

t.test(
  'a form on another site logs no browser in; answers with tokens are not kept by anybody on the way',
  async (t) => {
    const body = new URLSearchParams({
      emailAddress: adminEmail,
      password: adminPassword,
      accountId: service.accountId,
    });
    const send = (said: Record<string, string>) =>
      service.http('POST', '/api/v1/auth/login-user', {
        token: null,
        headers: { 'content-type': 'application/x-www-form-urlencoded', ...said },
        body: String(body),
      });
    for (const site of ['cross-site', 'same-site']) {
      const foreign = await send({ 'sec-fetch-site': site });
      t.equal(foreign.status, 200);
      t.equal(foreign.headers.get('set-cookie'), null, site);
    }
    for (const origin of ['http://evil.example.com', 'null']) {
      const foreign = await send({ origin });
      t.equal(foreign.status, 200);
      t.equal(foreign.headers.get('set-cookie'), null, `plain HTTP, where browsers say ${origin} only`);
    }
    t.match((await send({ origin: service.server.url })).headers.get('set-cookie'), /^platform-access-token=/);
    const own = await send({ 'sec-fetch-site': 'same-origin' });
    t.match(own.headers.get('set-cookie'), /^platform-access-token=/);
    t.equal(own.headers.get('cache-control'), 'no-store');
    t.equal((await list(service.admin)).headers.get('cache-control'), 'no-store');
  },
);

t.end();
