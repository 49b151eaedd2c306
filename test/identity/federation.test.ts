import { createPublicKey } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { TOTP } from 'otpauth';
import type { Test } from 'tap';
import { purgeNow } from '../support/clockwork.ts';
import { storeMore } from '../support/faults.ts';
import {
  altered,
  Browser,
  clientIds,
  invitedPerson,
  linksOf,
  makeKey,
  type OpenIdProvider,
  register,
  sessionsOf,
  startProvider,
} from '../support/oidc.ts';
import { part } from '../support/part.ts';
import { type Answer, adminEmail, claimsOf, type Made, type Service, startService } from '../support/service.ts';
import { countStored, storedRows } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const minute = 60_000;
const logLines: string[] = [];
const time = { ahead: 0 };
let service: Service;
let provider: OpenIdProvider;
/** The provider as the service knows it. */
let known: Made<'identityProvider'>;
const app = 'https://app.example.com/in';

t.before(async () => {
  service = await startService(t, {
    clock: { now: () => Date.now() + time.ahead },
    logLines,
    env: {
      SLIPWAY_LOGIN_FAILURES_PER_ADDRESS: '0',
      SLIPWAY_TRUSTED_PROXIES: '127.0.0.1',
      SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true',
    },
  });
  provider = await startProvider(t, service);
  known = await register(service, provider, { redirectUris: [app, 'com.example.app:/in'] });
});
t.beforeEach(() => {
  time.ahead = 0;
  provider.instead.clear();
});

/** An invited end-user who is the next to log in at the provider. */
const somebody = (at = provider) => invitedPerson(service, at);

function isRefused(t: Test, answer: Answer, title: string) {
  const body = { statusCode: 401, attributes: { errorCode: 'InvalidCredentialsError' } };
  t.match(answer, { status: 401, body }, `${title}: ${answer.text}`);
  t.equal(answer.headers.get('platform-access-token'), null, `${title}: no token`);
}

t.test('the callback address is told before there is a provider, and is the one that is used', async (t) => {
  const { callbackUrl } = await service.ok('GET', '/api/v1/oauth2/callback-url', { token: null });
  t.equal(callbackUrl, `${service.server.url}/api/v1/oauth2/callback`);
  const begun = await service.http('GET', `/api/v1/oauth2/authorize?providerId=${known.id}`, { token: null });
  t.equal(new URL(begun.headers.get('location') ?? '').searchParams.get('redirect_uri'), callbackUrl);
});

t.test('a verified email links a person once; from then on it is the subject that counts', async (t) => {
  const { userId, person } = await somebody();
  const before = sessionsOf(service, userId);
  const answer = await new Browser(service).logIn(known.id, { renewalType: 'short' });
  t.equal(answer.status, 200, answer.text);
  t.match(claimsOf(answer.body.jwt), { userId, accountId: service.accountId, roles: ['endUser'] });
  t.equal(
    (await service.http('GET', `/api/v1/organizations?accountId=${service.accountId}`, { token: answer.body.jwt }))
      .status,
    200,
  );
  const cookies = answer.headers.getSetCookie();
  t.ok(cookies.some((line) => line.startsWith(`platform-access-token=${answer.body.jwt};`)));
  t.equal(answer.headers.get('cache-control'), 'no-store');
  t.equal(answer.headers.get('referrer-policy'), 'no-referrer');
  t.equal(sessionsOf(service, userId), before + 1);
  t.match(linksOf(service, userId), [{ issuer: provider.issuer, subject: person.sub }]);

  provider.logsIn({ sub: person.sub, email: adminEmail, email_verified: false });
  const again = await new Browser(service).logIn(known.id);
  t.equal(claimsOf(again.body.jwt).userId, userId, 'whatever the email is now');
  const path = `/api/v1/audit?accountId=${service.accountId}&event=federatedLogin&actorId=${userId}`;
  const records = (await service.ok('GET', path)).auditRecords.results;
  t.strictSame(
    records.map((one) => one.details.linked),
    [false, true],
  );
});

t.test('behind a proxy that is trusted a login counts for where the browser is', async (t) => {
  const { userId } = await somebody();
  const answer = await new Browser(service, { 'x-forwarded-for': '192.0.2.55' }).logIn(known.id);
  t.equal(answer.status, 200, answer.text);
  const records = (await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&actorId=${userId}`))
    .auditRecords.results;
  t.match(
    records.map(({ event, address }) => [event, address]),
    [
      ['login', '192.0.2.55'],
      ['federatedLogin', '192.0.2.55'],
    ],
  );
  const session = storedRows(service, 'SELECT "address" FROM "sessions" WHERE "userId" = ?', [userId]);
  t.same(session, [{ address: '192.0.2.55' }], 'so that it is known there when strangers are slowed');
});

t.test('an address that somebody registered before its owner came is taken over, with nothing of theirs', async (t) => {
  const { appToken } = await service.create('/applications', 'application', { name: 'App', kind: 'endUserApp' });
  const email = 'taken.before@example.com';
  const password = 'the secret of the first comer';
  const registration = { accountId: service.accountId, emailAddress: email, password };
  const { userId } = await service.ok('POST', '/api/v1/auth/create-user', {
    token: null,
    headers: { accesstoken: appToken },
    body: registration,
  });
  const { jwt } = await service.loginAs(email, password);
  const { secret } = await service.ok('POST', `/api/v1/users/${userId}/mfa/totp`, { token: jwt });
  const code = new TOTP({ secret }).generate({ timestamp: Date.now() + time.ahead });
  await service.ok('POST', `/api/v1/users/${userId}/mfa/totp/confirm`, { token: jwt, body: { code } });
  provider.logsIn({ sub: 'the owner', email, email_verified: true });
  const answer = await new Browser(service).logIn(known.id);
  t.equal(claimsOf(answer.body.jwt).userId, userId);
  const still = await service.http('GET', `/api/v1/profile/${userId}`, { token: jwt });
  t.equal(still.status, 401, 'the session of the first comer has ended');
  const again = await service.http('POST', '/api/v1/auth/login-user', { token: null, body: registration });
  t.equal(again.status, 401, 'and its password is void');
  t.equal((await service.http('GET', `/api/v1/profile/${userId}`, { token: answer.body.jwt })).status, 200);
});

t.test('a second factor is asked for behind a provider too', async (t) => {
  const { email, userId, person } = await somebody();
  const first = await new Browser(service).logIn(known.id);
  const { jwt: token } = first.body;
  const { secret } = await service.ok('POST', `/api/v1/users/${userId}/mfa/totp`, { token });
  const totp = new TOTP({ secret });
  const code = (at: number) => totp.generate({ timestamp: Date.now() + at });
  await service.ok('POST', `/api/v1/users/${userId}/mfa/totp/confirm`, { token, body: { code: code(0) } });
  t.ok(email);
  provider.logsIn(person);
  const second = await new Browser(service).logIn(known.id);
  t.match(second.body, { mfaRequired: true, mfaMethods: ['totp'] });
  t.equal(second.body.jwt, undefined);
  t.equal(second.headers.get('platform-access-token'), null);
  time.ahead = minute;
  const login = await service.http('POST', '/api/v1/auth/mfa-login-user', {
    token: null,
    headers: { 'platform-mfa-token': second.body.mfaToken },
    body: { mfaMethod: 'totp', code: code(minute) },
  });
  t.equal(claimsOf(login.body.jwt).userId, userId);
});

t.test('a session by a provider lasts as long as renewalType says', async (t) => {
  await somebody();
  const answer = await new Browser(service).logIn(known.id, { renewalType: 'short' });
  time.ahead = 31 * minute;
  const late = await service.http('GET', `/api/v1/devices?accountId=${service.accountId}`, { token: answer.body.jwt });
  t.equal(late.status, 401);
});

t.test('an email that is in the ID token, in other letter case, links an admin', async (t) => {
  const other = await startProvider(t, service, { claimsInToken: true });
  const { id } = await register(service, other);
  other.logsIn({ sub: 'boss', email: adminEmail.toUpperCase(), email_verified: true });
  t.match(claimsOf((await new Browser(service).logIn(id)).body.jwt), { roles: ['admin'] });
  t.notOk(other.asked.includes('/me'), 'userinfo was not needed');
});

t.test('a text says that an email is verified, as Cognito, Apple and JumpCloud send it', async (t) => {
  for (const flag of ['true', 'True']) {
    const { userId, person } = await somebody();
    provider.logsIn({ ...person, email_verified: flag });
    const answer = await new Browser(service).logIn(known.id);
    t.equal(claimsOf(answer.body.jwt).userId, userId, flag);
  }
});

t.test('who has no verified email is refused, and nothing is linked', async (t) => {
  const { userId, email } = await somebody();
  const [name = '', domain = ''] = email.split('@');
  for (const said of [
    { email, email_verified: false },
    { email, email_verified: 'false' },
    { email, email_verified: 'yes' },
    { email, email_verified: null },
    { email, email_verified: 1 },
    { email },
    { email_verified: true },
    { email: [email], email_verified: true },
    // To us these are one address; to a provider they are mailboxes of different people.
    {
      email: `${String.fromCodePoint(0xff00 + name.charCodeAt(0) - 0x20)}${name.slice(1)}@${domain}`,
      email_verified: true,
    },
    { email: `${name}@${domain.replace('m', '\uff4d')}`, email_verified: true },
    { email: `nobody@${domain}`, email_verified: true },
  ]) {
    provider.logsIn({ sub: service.unique('subject'), ...(said as object) });
    isRefused(t, await new Browser(service).logIn(known.id), JSON.stringify(said));
  }
  t.strictSame(linksOf(service, userId), []);
});

t.test('a callback works once, also when it comes twice at a time', async (t) => {
  const { userId } = await somebody();
  const browser = new Browser(service);
  const callback = await browser.through(await browser.begin(known.id));
  const before = sessionsOf(service, userId);
  const kept = new Map([...browser.cookies].map(([origin, cookies]) => [origin, new Map(cookies)]));
  const twin = () => Object.assign(new Browser(service), { cookies: structuredClone(kept) });
  const answers = await Promise.all([twin(), twin(), twin()].map((one) => one.visit(callback)));
  t.strictSame(answers.map(({ status }) => status).sort(), [200, 400, 400]);
  const late = await twin().visit(callback);
  t.match(late, { status: 400, body: { attributes: { errorCode: 'BadTokenError' } } });
  t.equal(sessionsOf(service, userId), before + 1);
});

t.test('a code is worth nothing in another login', async (t) => {
  await somebody();
  const browser = new Browser(service);
  const first = await browser.through(await browser.begin(known.id));
  const second = await browser.through(await browser.begin(known.id));
  const code = new URL(first).searchParams.get('code');
  isRefused(
    t,
    await browser.visit(altered(second, 'code', code)),
    'the code of the first with the state of the second',
  );

  const third = await browser.through(await browser.begin(known.id));
  t.equal((await browser.visit(third)).status, 200);
  const fourth = await browser.through(await browser.begin(known.id));
  const used = new URL(third).searchParams.get('code');
  isRefused(t, await browser.visit(altered(fourth, 'code', used)), 'a code that has been used');
});

t.test('a state is known, young, and of the browser that began', async (t) => {
  await somebody();
  const browser = new Browser(service);
  const callback = await browser.through(await browser.begin(known.id));
  for (const state of ['made up', '', null]) {
    const answer = await browser.visit(altered(callback, 'state', state));
    t.equal(answer.status, 400, `state ${state}`);
  }
  const stranger = await new Browser(service).visit(callback);
  t.match(stranger, { status: 400, body: { attributes: { errorCode: 'BadTokenError' } } }, 'another browser');
  const other = new Browser(service);
  await other.begin(known.id);
  t.equal((await other.visit(callback)).status, 400, 'another browser that has begun a login, too');
  t.equal((await browser.visit(callback)).status, 200, 'the right one has lost nothing by that');

  const slow = await browser.through(await browser.begin(known.id));
  time.ahead = 10 * minute;
  t.match(await browser.visit(slow), { status: 400, body: { attributes: { errorCode: 'BadTokenError' } } }, 'too old');
});

t.test('two logins of one browser do not disturb each other', async (t) => {
  await somebody();
  const browser = new Browser(service);
  const first = await browser.begin(known.id);
  const second = await browser.begin(known.id);
  for (const begun of [first, second]) t.equal((await browser.visit(await browser.through(begun))).status, 200);
});

t.test('the way back is remembered by a cookie that scripts and other addresses do not see', async (t) => {
  const answer = await service.http('GET', `/api/v1/oauth2/authorize?providerId=${known.id}`, {
    token: null,
  });
  const [cookie = ''] = answer.headers.getSetCookie();
  t.match(
    cookie,
    /^platform-login-[\w-]{16}=[\w-]{43}; Max-Age=600; Path=\/api\/v1\/oauth2\/callback; HttpOnly; SameSite=Lax$/,
  );
  const { searchParams } = new URL(answer.headers.get('location') ?? '');
  t.match(Object.fromEntries(searchParams), {
    response_type: 'code',
    client_id: clientIds[0],
    scope: 'openid email profile',
    code_challenge_method: 'S256',
    redirect_uri: `${service.server.url}/api/v1/oauth2/callback`,
  });
});

t.test('a nonce or a PKCE challenge that was changed on the way is noticed', async (t) => {
  const { userId } = await somebody();
  for (const name of ['nonce', 'code_challenge']) {
    const browser = new Browser(service);
    const url = altered(await browser.begin(known.id), name, 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM');
    isRefused(t, await browser.visit(await browser.through(url)), name);
  }
  const browser = new Browser(service);
  const callback = await browser.through(altered(await browser.begin(known.id), 'nonce', null));
  isRefused(t, await browser.visit(callback), 'no nonce');
  t.strictSame(linksOf(service, userId), []);
});

t.test('an answer of another provider is refused', async (t) => {
  const other = await startProvider(t, service);
  const { id } = await register(service, other);
  const { email, userId } = await somebody();
  other.logsIn({ sub: 'anybody', email, email_verified: true });
  const browser = new Browser(service);
  const ask = async () => {
    const [mine, theirs] = [await browser.begin(known.id), await browser.begin(id)];
    return [await browser.through(mine), await browser.through(theirs)] as const;
  };
  const stateOf = (url: string) => new URL(url).searchParams.get('state');
  const [mine, theirs] = await ask();
  isRefused(t, await browser.visit(altered(theirs, 'state', stateOf(mine))), 'its code and issuer with our state');
  const [once, more] = await ask();
  const disguised = altered(altered(more, 'state', stateOf(once)), 'iss', provider.issuer);
  isRefused(t, await browser.visit(disguised), 'its code under the name of ours');
  for (const iss of [other.issuer, `${provider.issuer}/`, null]) {
    const callback = await browser.through(await browser.begin(known.id));
    isRefused(t, await browser.visit(altered(callback, 'iss', iss)), `iss ${iss}`);
  }
  t.strictSame(linksOf(service, userId), []);
});

t.test('the same subject at two issuers is two people, at one issuer it is one', async (t) => {
  const other = await startProvider(t, service);
  const there = await register(service, other);
  const [first, second] = [await somebody(), await somebody()];
  provider.logsIn({ ...first.person, sub: 'same' });
  other.logsIn({ ...second.person, sub: 'same' });
  for (let round = 0; round < 2; round += 1) {
    t.equal(claimsOf((await new Browser(service).logIn(known.id)).body.jwt).userId, first.userId);
    t.equal(claimsOf((await new Browser(service).logIn(there.id)).body.jwt).userId, second.userId);
  }
  const twin = await register(service, provider, { clientId: clientIds[1] });
  provider.logsIn({ sub: 'same' });
  t.equal(claimsOf((await new Browser(service).logIn(twin.id)).body.jwt).userId, first.userId, 'by another client');
  const browser = new Browser(service);
  const [mine, its] = [await browser.begin(known.id), await browser.begin(twin.id)];
  const state = new URL(await browser.through(mine)).searchParams.get('state');
  isRefused(t, await browser.visit(altered(await browser.through(its), 'state', state)), 'a code of the other client');
});

t.test('a provider lets in people of its own account, and of no other', async (t) => {
  const { accountId, admin: jwt, email } = await service.account();
  const hostile = await register(service, provider, { accountId }, jwt);
  const { userId, person } = await somebody();
  isRefused(t, await new Browser(service).logIn(hostile.id), 'by email');
  t.equal(claimsOf((await new Browser(service).logIn(known.id)).body.jwt).userId, userId);
  isRefused(t, await new Browser(service).logIn(hostile.id), 'by issuer and subject');
  provider.logsIn({ sub: service.unique('subject'), email: email, email_verified: true });
  t.match(claimsOf((await new Browser(service).logIn(hostile.id)).body.jwt), { accountId, roles: ['admin'] });
  isRefused(t, await new Browser(service).logIn(known.id), 'its own people here');
  provider.logsIn({ ...person, email: email });
  t.match(
    claimsOf((await new Browser(service).logIn(hostile.id)).body.jwt),
    { accountId },
    'the same subject is linked there, too',
  );
  t.equal(claimsOf((await new Browser(service).logIn(known.id)).body.jwt).userId, userId, 'and is who it was here');
});

t.test('the browser gets the cookie of a session only where a page of this service began the login', async (t) => {
  const { userId } = await somebody();
  const hasCookie = ({ headers }: Answer) =>
    headers.getSetCookie().some((line) => line.startsWith('platform-access-token='));
  for (const redirectUri of [undefined, app]) {
    const query = redirectUri ? { redirectUri } : undefined;
    for (const site of ['cross-site', 'same-site', 'none']) {
      // The attacker's page sends the browser to authorize; the provider knows the person, who is asked for nothing.
      const browser = new Browser(service);
      const answer = await browser.visit(await browser.through(await browser.begin(known.id, query, site)));
      t.notOk(hasCookie(answer), `${site}: no cookie`);
      t.notOk(browser.cookies.get(service.server.url)?.has('platform-access-token'), site);
      const jwt = redirectUri
        ? new URLSearchParams(new URL(answer.headers.get('location') ?? '').hash.slice(1)).get('jwt')
        : answer.body.jwt;
      t.equal(claimsOf(jwt ?? '').userId, userId, `${site}: an app has its tokens all the same`);
    }
    const browser = new Browser(service);
    t.ok(hasCookie(await browser.visit(await browser.through(await browser.begin(known.id, query)))), 'our own page');
  }
  const program = `/api/v1/oauth2/authorize?providerId=${known.id}`;
  const browser = new Browser(service);
  const begun = await browser.visit(service.server.url + program);
  const answer = await browser.visit(await browser.through(begun.headers.get('location') ?? ''));
  t.equal(answer.status, 200);
  t.notOk(hasCookie(answer), 'nor where nobody says who began');
});

t.test('with a redirectUri the answer is in the fragment, and nowhere else', async (t) => {
  const { userId } = await somebody();
  for (const redirectUri of [app, 'com.example.app:/in']) {
    const answer = await new Browser(service).logIn(known.id, { redirectUri });
    t.equal(answer.status, 302);
    const [address, fragment] = (answer.headers.get('location') ?? '').split('#');
    t.equal(address, redirectUri);
    const { jwt, csrfToken, ...rest } = Object.fromEntries(new URLSearchParams(fragment));
    t.strictSame(rest, {});
    t.equal(claimsOf(jwt ?? '').userId, userId);
    const cookies = answer.headers.getSetCookie();
    t.ok(cookies.some((line) => line.startsWith(`platform-access-token=${jwt};`) && /HttpOnly/.test(line)));
    t.equal(answer.headers.get('cache-control'), 'no-store');
    t.equal(answer.headers.get('referrer-policy'), 'no-referrer');
    t.equal(answer.text, '');
    const cookie = `platform-access-token=${jwt}`;
    const changed = await service.http('POST', '/api/v1/sessions/renew-session', {
      token: null,
      headers: { cookie, 'platform-csrf-token': csrfToken ?? '' },
    });
    t.equal(changed.status, 200, 'the CSRF token is that of the cookie');
  }
  provider.logsIn({ sub: service.unique('subject'), email: 'nobody@example.com', email_verified: true });
  const refused = await new Browser(service).logIn(known.id, { redirectUri: app });
  t.equal(refused.status, 302);
  t.match(
    refused.headers.get('location'),
    /^https:\/\/app\.example\.com\/in#error=InvalidCredentialsError&message=There/,
  );
  t.notOk(refused.headers.getSetCookie().some((line) => line.startsWith('platform-access-token')));
});

t.test('browsers are sent to no address that the provider does not list', async (t) => {
  const before = loginsUnderWay();
  for (const redirectUri of [
    'https://evil.example.com/in',
    `${app}/`,
    `${app}?a=b`,
    `${app}#`,
    'https://APP.example.com/in',
    'https://app.example.com/other',
    '',
  ]) {
    const query = new URLSearchParams({ providerId: known.id, redirectUri });
    const answer = await service.http('GET', `/api/v1/oauth2/authorize?${query}`, { token: null });
    t.match(answer, { status: 400, body: { attributes: { details: [{ path: 'redirectUri' }] } } }, redirectUri);
    t.strictSame(answer.headers.getSetCookie(), []);
  }
  t.equal(loginsUnderWay(), before);
});

const loginsUnderWay = () => countStored(service, 'federatedLogins');

t.test('a person who is refused by the provider is refused here', async (t) => {
  provider.logsIn({ sub: '' });
  isRefused(t, await new Browser(service).logIn(known.id), 'access_denied');
  const { headers } = await new Browser(service).logIn(known.id, { redirectUri: app });
  t.match(headers.get('location'), /#error=InvalidCredentialsError&message=/);
});

t.test('a login under way ends with its provider, and with every change of it', async (t) => {
  await somebody();
  const one = await register(service, provider, { redirectUris: [app] });
  const browser = new Browser(service);
  const [plain, redirected] = [
    await browser.through(await browser.begin(one.id)),
    await browser.through(await browser.begin(one.id, { redirectUri: app })),
  ];
  const path = `/api/v1/identity-providers/${one.id}`;
  const change = (method: string, version: string, body?: object) =>
    service.ok(method, path, { headers: { etag: version }, ...(body && { body }) });
  const { version } = (await change('PUT', one.version, { redirectUris: [] })).identityProvider;
  isRefused(t, await browser.visit(plain), 'changed');
  isRefused(t, await browser.visit(redirected), 'changed: not sent to where it once was');
  const last = await browser.through(await browser.begin(one.id));
  await change('DELETE', version);
  t.equal((await browser.visit(last)).status, 400, 'deleted');
  for (const providerId of [one.id, 'nothing'])
    t.match(await service.http('GET', `/api/v1/oauth2/authorize?providerId=${providerId}`, { token: null }), {
      status: 404,
      body: { attributes: { errorCode: 'NotFoundError' } },
    });
});

t.test('a provider that is changed while it proves somebody lets nobody in', async (t) => {
  const { userId } = await somebody();
  const one = await register(service, provider);
  const browser = new Browser(service);
  const callback = await browser.through(await browser.begin(one.id));
  provider.instead.set('/me', (request, response) => {
    provider.instead.delete('/me');
    const options = { headers: { etag: one.version } };
    void service.ok('DELETE', `/api/v1/identity-providers/${one.id}`, options).then(async () => {
      const { authorization = '' } = request.headers;
      const answer = await fetch(`${provider.issuer}/me`, { headers: { authorization } });
      sendJson(response, await answer.json());
    });
  });
  isRefused(t, await browser.visit(callback), 'deleted meanwhile');
  t.strictSame(linksOf(service, userId), []);
});

t.test('a subject that says of itself to be two people at a time is one of them', async (t) => {
  const [first, second] = [await somebody(), await somebody()];
  const { sub } = first.person;
  provider.logsIn(first.person);
  let other: Answer | undefined;
  provider.instead.set('/me', (_, response) => {
    provider.instead.delete('/me');
    provider.logsIn({ ...second.person, sub });
    void new Browser(service).logIn(known.id).then((answer) => {
      other = answer;
      sendJson(response, { ...first.person, sub });
    });
  });
  isRefused(t, await new Browser(service).logIn(known.id), 'the one that comes later');
  t.ok(other && claimsOf(other.body.jwt).userId === second.userId);
  t.strictSame(linksOf(service, first.userId), []);
});

function sendJson(response: ServerResponse, body: unknown): void {
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify(body));
}

t.test('an ID token is signed by the provider, and not over on the clock of the service', async (t) => {
  const { userId } = await somebody();
  const { kty, n, e } = createPublicKey({
    key: makeKey('one') as import('node:crypto').JsonWebKey,
    format: 'jwk',
  }).export({ format: 'jwk' });
  provider.instead.set('/jwks', (_, response) =>
    sendJson(response, { keys: [{ kty, n, e, kid: 'one', alg: 'RS256' }] }),
  );
  isRefused(t, await new Browser(service).logIn(known.id), 'another key of the same name');
  provider.instead.clear();
  const browser = new Browser(service);
  const callback = await browser.through(await browser.begin(known.id));
  time.ahead = 5 * minute;
  isRefused(t, await browser.visit(callback), 'an ID token of one minute, five minutes later');
  t.strictSame(linksOf(service, userId), []);
});

t.test('a provider that signs with a shared secret proves nobody, and the admin is told the algorithm', async (t) => {
  const own = await startProvider(t, service, { signsWith: 'HS256' });
  const discovery = '/.well-known/openid-configuration';
  const metadata = (await (await fetch(own.issuer + discovery)).json()) as object;
  const { userId } = await somebody(own);
  for (const id_token_signing_alg_values_supported of [['RS256', 'HS256'], ['RS256'], undefined]) {
    const said = `${id_token_signing_alg_values_supported}`;
    const configuration = { ...metadata, id_token_signing_alg_values_supported };
    own.instead.set(discovery, (_, response) => sendJson(response, configuration));
    const { id } = await register(service, own);
    const answer = await new Browser(service).logIn(id);
    isRefused(t, answer, said);
    t.match(answer.text, /The provider signs ID tokens with HS256, which is not accepted/, said);
    const path = `/api/v1/audit?accountId=${service.accountId}&event=federatedLogin&targetId=${id}` as const;
    const [record] = await until(
      async () => (await service.ok('GET', path)).auditRecords.results,
      ({ length }) => length > 0,
    );
    t.match(record, { outcome: 'failure', details: { reason: /with HS256.* Choose RS256/ } }, said);
  }
  t.strictSame(linksOf(service, userId), []);
});

t.test('userinfo about somebody else links nobody', async (t) => {
  const { email } = await somebody();
  provider.instead.set('/me', (_, response) => sendJson(response, { sub: 'else', email, email_verified: true }));
  isRefused(t, await new Browser(service).logIn(known.id), 'another subject');
});

t.test('a provider that does not answer as one is 502, and is asked again the next time', async (t) => {
  const { userId } = await somebody();
  const lines = logLines.length;
  const failed = { status: 502, body: { statusCode: 502, attributes: { errorCode: 'ProviderFailedError' } } };
  const authorize = (id: string) => service.http('GET', `/api/v1/oauth2/authorize?providerId=${id}`, { token: null });
  const discovery = '/.well-known/openid-configuration';
  const risen = await startProvider(t, service);
  // Not a port that nobody listens on: until the provider rises another program could be given it.
  risen.instead.set(discovery, ({ socket }) => socket.destroy());
  const down = await register(service, risen);
  t.match(await authorize(down.id), failed, 'nobody answers');
  const [line = ''] = logLines.slice(lines).filter((one) => one.includes('"request failed"'));
  t.equal(JSON.parse(line).level, 40, 'a warning: it is no fault of the service');
  risen.instead.clear();
  risen.logsIn({ sub: 'risen', email: adminEmail, email_verified: true });
  t.equal((await new Browser(service).logIn(down.id)).status, 200, 'the failure was not kept');

  let led = false;
  const elsewhere = createServer((_, response) => {
    led = true;
    sendJson(response, {});
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => elsewhere.once('listening', resolve));
  t.teardown(() => elsewhere.close());
  const away = `http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}`;
  const metadata = await (await fetch(provider.issuer + discovery)).json();
  const bad: Record<string, (response: ServerResponse) => void> = {
    'metadata of another issuer': (response) => sendJson(response, { ...(metadata as object), issuer: away }),
    'no metadata': (response) => response.end('<html>'),
    'an error': (response) => response.writeHead(500).end(),
    'a redirect': (response) => response.writeHead(302, { location: away }).end(),
    'too much': (response) => sendJson(response, { ...(metadata as object), more: 'x'.repeat(1_100_000) }),
    'a login page in clear': (response) =>
      sendJson(response, { ...(metadata as object), authorization_endpoint: 'http://id.example.com/auth' }),
    'no login page': (response) => sendJson(response, { issuer: provider.issuer }),
    'a script as login page': (response) =>
      sendJson(response, { ...(metadata as object), authorization_endpoint: 'javascript:alert(1)' }),
  };
  for (const [title, answer] of Object.entries(bad)) {
    const fresh = await register(service, provider);
    provider.instead.set(discovery, (_, response) => answer(response));
    t.match(await authorize(fresh.id), failed, title);
    provider.instead.clear();
    t.equal((await authorize(fresh.id)).status, 302, `${title}: not kept`);
  }
  for (const path of ['/token', '/jwks', '/me'])
    for (const [title, answer] of Object.entries(bad).slice(1, 5)) {
      const browser = new Browser(service);
      const callback = await browser.through(await browser.begin(known.id));
      provider.instead.set(path, (_, response) => answer(response));
      t.match(await browser.visit(callback), failed, `${path}: ${title}`);
      provider.instead.clear();
    }
  t.notOk(led, 'nobody is asked but the provider');
  t.strictSame(linksOf(service, userId), []);
  const browser = new Browser(service);
  const callback = await browser.through(await browser.begin(known.id, { redirectUri: app }));
  provider.instead.set('/token', (request) => request.socket.destroy());
  const { headers } = await browser.visit(callback);
  t.match(headers.get('location'), /^https:\/\/app\.example\.com\/in#error=ProviderFailedError&message=/);
});

t.test('a new provider with a wrong issuer says what is wrong with it', async (t) => {
  const discovery = '/.well-known/openid-configuration';
  const make = (issuer: string) => register(service, { issuer, clientSecret: 'x' });
  // It has five seconds; the others are made meanwhile.
  const silent = await startProvider(t, service);
  silent.instead.set(discovery, () => {});
  const unanswered = make(silent.issuer);
  t.equal((await make(provider.issuer)).issuerProblem, null);
  const metadata = (await (await fetch(provider.issuer + discovery)).json()) as object;
  const cases: Array<[RegExp, (response: ServerResponse) => void]> = [
    [
      /calls itself "https:\/\/id\.example\.com\/": .* exactly that/,
      (response) => sendJson(response, { ...metadata, issuer: 'https://id.example.com/' }),
    ],
    [/does not answer at \/\.well-known\/openid-configuration/, (response) => response.end('<html>')],
    [/does not answer at \/\.well-known\/openid-configuration/, (response) => response.writeHead(404).end()],
    [
      /addresses are https/,
      (response) => sendJson(response, { ...metadata, authorization_endpoint: 'http://id.example.com' }),
    ],
    [/cannot be reached \(ECONNRESET\)/, (response) => response.destroy()],
  ];
  for (const [says, answer] of cases) {
    provider.instead.set(discovery, (_, response) => answer(response));
    const made = await make(provider.issuer);
    t.match(made.issuerProblem, says);
    provider.instead.clear();
    t.notOk('issuerProblem' in (await service.ok('GET', `/api/v1/identity-providers/${made.id}`)).identityProvider);
  }
  const { id, version, issuerProblem } = await make('https://nowhere.invalid');
  t.match(issuerProblem, /host of the issuer is not found \(ENOTFOUND\)|cannot be reached/);
  const put = async (etag: string, body: object) =>
    (await service.ok('PUT', `/api/v1/identity-providers/${id}`, { headers: { etag }, body })).identityProvider;
  const moved = await put(version, { issuer: provider.issuer, clientSecret: 'x' });
  t.equal(moved.issuerProblem, null);
  t.notOk('issuerProblem' in (await put(moved.version, { name: service.unique('Renamed') })), 'not asked again');
  t.equal((await unanswered).issuerProblem, 'The issuer did not answer within 5 seconds.');
});

t.test('what a provider says of itself is kept for five minutes', async (t) => {
  const one = await register(service, provider);
  const discoveries = () => provider.asked.filter((path) => path.startsWith('/.well-known/')).length;
  const before = discoveries();
  for (let n = 0; n < 3; n += 1) await new Browser(service).begin(one.id);
  t.equal(discoveries(), before + 1);
  time.ahead = 5 * minute;
  await new Browser(service).begin(one.id);
  t.equal(discoveries(), before + 2);
});

t.test('a provider that keeps silent does not hold up the end of the service', async (t) => {
  const own = await startService(t, { env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' } });
  const silent = createServer((_, response) => (asked ? asked() : response.end())).listen(0, '127.0.0.1');
  t.teardown(() => {
    silent.closeAllConnections();
    silent.close();
  });
  let asked: (() => void) | undefined;
  await new Promise((resolve) => silent.once('listening', resolve));
  const issuer = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
  const { id } = await register(own, { issuer, clientSecret: 'x' });
  const reached = new Promise<void>((resolve) => {
    asked = resolve;
  });
  const answer = own.http('GET', `/api/v1/oauth2/authorize?providerId=${id}`, { token: null });
  await reached;
  const since = Date.now();
  const waited = answer.then(() => Date.now() - since);
  await own.close();
  // A request under way has three seconds: SIGTERM ends the service within five. Without that the provider has five.
  t.ok((await waited) < 4500, `${await waited} ms`);
  t.equal((await answer).status, 502, 'and who waits gets an answer');
});

t.test('logins that are begun and not finished are limited per address; finished ones are not counted', async (t) => {
  const env = { SLIPWAY_LOGIN_FAILURES_PER_ADDRESS: '2', SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' };
  const own = await startService(t, { env });
  const at = await startProvider(t, own);
  const { id } = await register(own, at);
  at.logsIn({ sub: 'boss', email: adminEmail, email_verified: true });
  for (let n = 0; n < 4; n += 1) t.equal((await new Browser(own).logIn(id)).status, 200);
  for (let n = 0; n < 2; n += 1) await new Browser(own).begin(id);
  const answer = await own.http('GET', `/api/v1/oauth2/authorize?providerId=${id}`, {
    token: null,
  });
  t.match(answer, { status: 429, body: { attributes: { errorCode: 'TooManyError' } } });
  t.match(answer.headers.get('retry-after'), /^3[56]\d\d$/);
  t.equal(
    (await own.loginAs(adminEmail, 'correct horse battery')).jwt !== undefined,
    true,
    'passwords are counted apart',
  );
});

t.test('a provider has 10,000 logins that nobody has finished: the oldest end', async (t) => {
  const at = await startProvider(t, service);
  const { id } = await register(service, at);
  const first = new Browser(service);
  await first.begin(id);
  const [row = {}] = storedRows(service, 'SELECT * FROM "federatedLogins" WHERE "providerId" = ?', [id]);
  time.ahead += 1;
  const expires = new Date(Date.parse(String(row.expires)) + 1).toISOString();
  const others = Array.from({ length: 9999 }, (_, n) => ({ stateHash: `${row.stateHash} ${n}`, expires }));
  await storeMore(service, 'federatedLogins', String(row.stateHash), others, 'stateHash');
  time.ahead += 1;
  await new Browser(service).begin(id);
  t.equal(countStored(service, 'federatedLogins', '"providerId" = ?', [id]), 10_000);
  t.equal(countStored(service, 'federatedLogins', '"stateHash" = ?', [row.stateHash]), 0);
});

t.test('logins that nobody came back from are purged', async (t) => {
  await new Browser(service).begin(known.id);
  time.ahead = 9 * minute;
  await purgeNow(service);
  t.ok(loginsUnderWay() > 0, 'not while they may be finished');
  time.ahead = 30 * minute;
  await purgeNow(service);
  t.equal(loginsUnderWay(), 0);
});

t.test('nothing of a login is in the log or, but sealed, on disk', async (t) => {
  await somebody();
  const browser = new Browser(service);
  const url = await browser.begin(known.id);
  const { nonce = '', state = '' } = Object.fromEntries(new URL(url).searchParams);
  const [cookie = ''] = [...(browser.cookies.get(service.server.url)?.values() ?? [])];
  const secrets = { nonce, state, cookie, 'client secret': provider.clientSecret };
  const read = () =>
    Object.entries(secrets).flatMap(([name, secret]) =>
      readdirSync(service.directory)
        .filter((file) => file.startsWith('registry.db'))
        .filter((file) => readFileSync(join(service.directory, file)).includes(secret))
        .map((file) => `${name} in ${file}`),
    );
  t.ok(loginsUnderWay() > 0);
  t.strictSame(read(), [], 'while it is under way');
  const callback = await browser.through(url);
  const code = new URL(callback).searchParams.get('code') ?? '';
  const failed = altered(callback, 'iss', 'https://other.example.com');
  isRefused(t, await browser.visit(failed), 'a failure, which is logged');
  t.strictSame(read(), [], 'afterwards');
  const log = logLines.join('\n');
  t.match(log, /"reason":"OAUTH_INVALID_RESPONSE"/);
  for (const [name, secret] of Object.entries({ ...secrets, code }))
    t.notOk(log.includes(secret), `${name}: not in the log`);
  const shown = await service.http('GET', `/api/v1/identity-providers/${known.id}`);
  t.notOk(shown.text.includes(provider.clientSecret));
});

t.test('a provider that was deleted is purged after thirty days', async (t) => {
  const { id, version } = await register(service, provider);
  await service.ok('DELETE', `/api/v1/identity-providers/${id}`, { headers: { etag: version } });
  const stored = () => countStored(service, 'identityProviders', '"id" = ?', [id]);
  await purgeNow(service);
  t.equal(stored(), 1);
  // The sessions of this file go with it.
  time.ahead = 31 * 24 * 60 * minute;
  await purgeNow(service);
  t.equal(stored(), 0);
});

t.test('who gets another address is linked no longer, for the former one is somebody else’s now', async (t) => {
  await service.login();
  const [byAdmin, byEmail] = [await somebody(), await somebody()];
  for (const { person, userId } of [byAdmin, byEmail]) {
    provider.logsIn(person);
    const { status, body } = await new Browser(service).logIn(known.id);
    t.equal(status, 200);
    t.equal(linksOf(service, userId).length, 1);
    const newEmailAddress = `moved-${userId}@example.com`;
    const token = userId === byAdmin.userId ? service.admin : body.jwt;
    const change = { token, body: { userId, newEmailAddress } };
    await service.ok('POST', '/api/v1/profile/update-email-address', change);
    if (userId === byEmail.userId) {
      t.equal(linksOf(service, userId).length, 1, 'not before the email is answered');
      const outbox = readFileSync(join(service.directory, 'outbox.ndjson'), 'utf8').trim().split('\n');
      const email = outbox.map((line) => JSON.parse(line)).find(({ to }) => to === newEmailAddress);
      const [, mailed] = /^token: (\S+)$/m.exec(email.text) ?? [];
      await service.ok('POST', '/api/v1/auth/confirm-email', { token: null, body: { token: mailed } });
    }
    t.strictSame(linksOf(service, userId), []);
    provider.logsIn(person);
    isRefused(t, await new Browser(service).logIn(known.id), 'with the former address');
    provider.logsIn({ ...person, email: newEmailAddress });
    t.equal(
      claimsOf((await new Browser(service).logIn(known.id)).body.jwt).userId,
      userId,
      'and with the new one is linked again',
    );
  }
});

t.test('with the last provider of an issuer its links go, and those of others stay', async (t) => {
  await service.login();
  const passing = await startProvider(t, service);
  const [one, two] = [await register(service, passing), await register(service, passing)];
  const { userId, person } = await somebody(passing);
  t.equal((await new Browser(service).logIn(one.id)).status, 200);
  const other = await somebody();
  t.equal((await new Browser(service).logIn(known.id)).status, 200);
  const end = ({ id, version }: Record<'id' | 'version', string>) =>
    service.ok('DELETE', `/api/v1/identity-providers/${id}`, { headers: { etag: version } });
  await end(one);
  t.match(linksOf(service, userId), [{ issuer: passing.issuer, subject: person.sub }], 'another one speaks for it');
  await service.ok('PUT', `/api/v1/identity-providers/${two.id}`, {
    headers: { etag: two.version },
    body: { issuer: 'https://elsewhere.example.com', clientSecret: null },
  });
  t.strictSame(linksOf(service, userId), [], 'another issuer is another one');
  const three = await register(service, passing);
  passing.logsIn(person);
  t.equal((await new Browser(service).logIn(three.id)).status, 200);
  await end(three);
  t.strictSame(linksOf(service, userId), []);
  t.equal(linksOf(service, other.userId).length, 1);
});

t.end();
