import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Secret } from 'otpauth';
import { resolveComponents } from '../../src/http/openapi/components.ts';
import { Passwords } from '../../src/identity/secrets/passwords.ts';
import { audited } from '../support/audited.ts';
import { purgeNow } from '../support/clockwork.ts';
import { beforeTransaction, changeStored, storeMore } from '../support/faults.ts';
import { countStatuses } from '../support/many.ts';
import { answerOf, documentOf, type OpenApi } from '../support/openapi.ts';
import { part } from '../support/part.ts';
import { scanSvg } from '../support/scanned.ts';
import { atOnce, otherCode, type Person, secondFactors, statuses } from '../support/second-factors.ts';
import {
  type Answer,
  adminEmail,
  adminPassword,
  claimsOf,
  type Failure,
  type Service,
  startService,
} from '../support/service.ts';
import { storedRows } from '../support/stored.ts';

const t = await part(import.meta);

const minute = 60_000;
const step = 30_000;
const logLines: string[] = [];
let service: Service;
let organizationId: string;
const factors = secondFactors(() => service);
const { time, texts, options, codeAt, wrongCode, textedCode, mfa, enrolTotp, enrolSms } = factors;
const { passwordStep, mfaToken, trigger, codeStep, rows, sessionsOf } = factors;
t.before(async () => {
  service = await startService(t, { ...options, logLines });
  organizationId = (await service.organization()).id;
});
t.beforeEach(() => factors.muchLater());

const person = (at = service, organization = organizationId) => factors.person(organization, at);
const devices = (token: string) => service.http('GET', `/api/v1/devices?accountId=${service.accountId}`, { token });
const refused = { status: 401, body: { statusCode: 401, attributes: { errorCode: 'InvalidCredentialsError' } } };
const badCode = { status: 400, body: { attributes: { errorCode: 'BadCodeError' } } };
const absent = { status: 404, body: { attributes: { errorCode: 'NotFoundError' } } };

t.test('an authenticator app is asked for once it is confirmed, and logs in', async (t) => {
  const who = await person();
  const { secret, otpauthUrl, qrSvg } = (await mfa(who, 'POST', 'totp')).body;
  const { host, pathname, searchParams } = new URL(otpauthUrl);
  t.equal(host, 'totp');
  t.match(decodeURIComponent(pathname), who.email);
  t.equal(searchParams.get('secret'), secret);
  t.ok(searchParams.get('issuer'));
  t.equal(scanSvg(qrSvg), otpauthUrl);
  t.match(await passwordStep(who), { status: 200, body: { jwt: String } }, 'it does not count yet');

  t.match(await mfa(who, 'POST', 'totp/confirm', { code: wrongCode(secret) }), badCode);
  const confirmed = await mfa(who, 'POST', 'totp/confirm', { code: codeAt(secret) });
  t.equal(confirmed.status, 200);
  t.equal(confirmed.body.success, true);
  t.equal(new Set(confirmed.body.recoveryCodes).size, 10);

  const first = await passwordStep(who, { renewalType: 'short' });
  t.equal(first.status, 200);
  t.strictSame(Object.keys(first.body).sort(), ['mfaMethods', 'mfaRequired', 'mfaToken'], 'no token of a session');
  t.match(first.body, { mfaRequired: true, mfaToken: /^[0-9a-f-]{36}$/, mfaMethods: ['totp'] });
  t.equal(first.headers.get('set-cookie'), null);
  t.equal(first.headers.get('platform-access-token'), null);
  t.equal((await devices(first.body.mfaToken)).status, 401, 'an mfaToken opens nothing else');

  time.now += step;
  const second = await codeStep(first.body.mfaToken, 'totp', codeAt(secret));
  t.equal(second.status, 200);
  t.strictSame(Object.keys(second.body).sort(), ['csrfToken', 'jwt'], 'it answers like login');
  t.equal(second.headers.get('platform-access-token'), second.body.jwt);
  t.match(second.headers.get('set-cookie'), /^platform-access-token=[^;]+;.*HttpOnly/);
  t.equal((await devices(second.body.jwt)).status, 200);
  for (const passed of [15 * minute, 15 * minute - 1]) {
    time.now += passed;
    t.equal((await devices(second.body.jwt)).status, 200);
  }
  time.now += 1;
  t.equal((await devices(second.body.jwt)).status, 401, 'the session lasts as long as login-user was asked for');
});

t.test('a phone is confirmed and logs in by a texted code', async (t) => {
  const who = await person();
  t.match(await mfa(who, 'POST', 'sms', { phoneNumber: '+1 (555) 010-0' }), { status: 200, body: { success: true } });
  t.equal(texts.at(-1)?.to, '+15550100');
  t.equal((await mfa(who, 'POST', 'sms/confirm', { code: textedCode() })).body.recoveryCodes.length, 10);
  const { mfaToken: token, mfaMethods } = (await passwordStep(who)).body;
  t.strictSame(mfaMethods, ['sms']);
  t.match(await codeStep(token, 'sms', textedCode()), refused, 'the code that confirmed cannot be used again');
  t.match(await trigger(token), { status: 200, body: { status: 'poll' } });
  t.equal(texts.at(-1)?.to, '+15550100');
  t.match(await codeStep(token, 'sms', textedCode()), { status: 200, body: { jwt: String, csrfToken: String } });
});

t.test('what is no phone number is refused', async (t) => {
  const who = await person();
  for (const phoneNumber of [
    '',
    'call me',
    '+',
    '+12345',
    `+${'1'.repeat(16)}`,
    '+1555\n0100x',
    '15550100',
    '0015550100',
    '+0155501000',
    '++15550100',
  ])
    t.match(await mfa(who, 'POST', 'sms', { phoneNumber }), {
      status: 400,
      body: { attributes: { errorCode: 'InvalidError' } },
    });
});

t.test('the second method has no recovery codes of its own, and both are offered', async (t) => {
  const who = await person();
  const { secret, recoveryCodes } = await enrolTotp(who);
  const before = rows('recoveryCodes', who.userId);
  t.notOk(await enrolSms(who));
  t.strictSame(rows('recoveryCodes', who.userId), before, 'the first ones stay');
  const token = await mfaToken(who);
  t.strictSame((await passwordStep(who)).body.mfaMethods, ['totp', 'sms']);
  t.equal((await codeStep(token, 'totp', codeAt(secret))).status, 200);
  t.equal((await codeStep(await mfaToken(who), 'recovery', recoveryCodes[0] ?? '')).status, 200);
});

t.test('an enrolment that starts again replaces the unconfirmed one; a confirmed one stays', async (t) => {
  const who = await person();
  const { secret: former } = (await mfa(who, 'POST', 'totp')).body;
  const { secret } = (await mfa(who, 'POST', 'totp')).body;
  t.not(secret, former);
  t.match(await mfa(who, 'POST', 'totp/confirm', { code: codeAt(former) }), badCode);
  t.equal((await mfa(who, 'POST', 'totp/confirm', { code: codeAt(secret) })).status, 200);
  const taken = { status: 400, body: { attributes: { errorCode: 'NotUniqueError' } } };
  t.match(await mfa(who, 'POST', 'totp'), taken);
  time.now += step;
  t.match(await mfa(who, 'POST', 'totp/confirm', { code: codeAt(secret) }), badCode, 'it is confirmed once');
  t.equal((await codeStep(await mfaToken(who), 'totp', codeAt(secret))).status, 200);
  await enrolSms(who);
  t.match(await mfa(who, 'POST', 'sms', { phoneNumber: '+15550199' }), taken);
});

t.test('five wrong codes end an enrolment', async (t) => {
  const who = await person();
  t.match(await mfa(who, 'POST', 'totp/confirm', { code: '000000' }), absent, 'there is nothing to confirm');
  const { secret } = (await mfa(who, 'POST', 'totp')).body;
  for (let n = 0; n < 5; n += 1) t.match(await mfa(who, 'POST', 'totp/confirm', { code: wrongCode(secret) }), badCode);
  t.match(await mfa(who, 'POST', 'totp/confirm', { code: codeAt(secret) }), badCode);
  await mfa(who, 'POST', 'sms', { phoneNumber: '+15550100' });
  const right = textedCode();
  for (let n = 0; n < 5; n += 1) await mfa(who, 'POST', 'sms/confirm', { code: otherCode(right) });
  t.match(await mfa(who, 'POST', 'sms/confirm', { code: right }), badCode);
  t.ok((await passwordStep(who)).body.jwt, 'nothing has been confirmed');
});

t.test('a method that is not confirmed lets nobody in', async (t) => {
  const who = await person();
  await enrolSms(who);
  const { secret } = (await mfa(who, 'POST', 'totp')).body;
  t.match(await codeStep(await mfaToken(who), 'totp', codeAt(secret)), refused);
  const other = await person();
  const { secret: confirmed } = await enrolTotp(other);
  await mfa(other, 'POST', 'sms', { phoneNumber: '+15550100' });
  const token = await mfaToken(other);
  t.match(await trigger(token), { status: 400, body: { attributes: { errorCode: 'InvalidError' } } });
  t.match(await codeStep(token, 'sms', textedCode()), refused);
  t.equal((await codeStep(token, 'totp', codeAt(confirmed))).status, 200);
});

t.test('a TOTP code works once, and none from before it; the clock may be one step away', async (t) => {
  const who = await person();
  const { secret } = (await mfa(who, 'POST', 'totp')).body;
  const confirming = codeAt(secret);
  await mfa(who, 'POST', 'totp/confirm', { code: confirming });
  t.match(await codeStep(await mfaToken(who), 'totp', confirming), refused, 'the code that confirmed');
  time.now += 4 * step;
  const attempt = async (away: number) => codeStep(await mfaToken(who), 'totp', codeAt(secret, time.now + away * step));
  for (const away of [-2, 2]) t.match(await attempt(away), refused, `${away} steps away`);
  t.equal((await attempt(-1)).status, 200);
  t.match(await attempt(-1), refused, 'again');
  t.equal((await attempt(1)).status, 200);
  for (const away of [1, 0, -1]) t.match(await attempt(away), refused, `${away}: the same or an earlier one`);
  for (const code of ['', '12345', 'éééééé', '½½½½½½', '0'.repeat(100)])
    t.match(await codeStep(await mfaToken(who), 'totp', code), refused, code);
});

t.test('a recovery code works once, as it is shown or as people type it', async (t) => {
  const who = await person();
  const [first = '', second = '', third = ''] = (await enrolTotp(who)).recoveryCodes;
  t.match(first, /^([0-9A-HJKMNP-TV-Z]{4}-){3}[0-9A-HJKMNP-TV-Z]{4}$/, '80 bits');
  t.equal((await codeStep(await mfaToken(who), 'recovery', first)).status, 200);
  t.match(await codeStep(await mfaToken(who), 'recovery', first), refused);
  t.equal((await codeStep(await mfaToken(who), 'recovery', second.toLowerCase().replaceAll('-', ' '))).status, 200);
  const stranger = await person();
  await enrolTotp(stranger);
  t.match(await codeStep(await mfaToken(stranger), 'recovery', third), refused, 'it is of one person');
  t.equal(rows('recoveryCodes', who.userId).length, 8);
});

t.test('of twenty confirmations at once one succeeds', async (t) => {
  const who = await person();
  const { secret } = (await mfa(who, 'POST', 'totp')).body;
  const confirms = await atOnce(20, () => mfa(who, 'POST', 'totp/confirm', { code: codeAt(secret) }));
  t.strictSame(statuses(confirms), { 200: 1, 400: 19 });
  t.equal(rows('recoveryCodes', who.userId).length, 10);
});

t.test('of twenty logins at once with one mfaToken one succeeds, whatever their codes', async (t) => {
  const who = await person();
  const { secret, recoveryCodes } = await enrolTotp(who);
  await enrolSms(who);
  const before = sessionsOf(who);
  const [first, second, third] = [await mfaToken(who), await mfaToken(who), await mfaToken(who)];
  const byTotp = await atOnce(20, () => codeStep(first, 'totp', codeAt(secret)));
  t.strictSame(statuses(byTotp), { 200: 1, 401: 19 });
  const byMany = await atOnce(20, (n) => codeStep(second, 'recovery', recoveryCodes[n % 10] ?? ''));
  t.strictSame(statuses(byMany), { 200: 1, 401: 19 });
  t.equal(rows('recoveryCodes', who.userId).length, 9, 'and the codes of the others are not taken');
  await trigger(third);
  const byText = await atOnce(20, () => codeStep(third, 'sms', textedCode()));
  t.strictSame(statuses(byText), { 200: 1, 401: 19 });
  t.equal(sessionsOf(who), before + 3);
});

t.test('of twenty logins at once with one code and an mfaToken each one succeeds', async (t) => {
  const who = await person();
  const { secret, recoveryCodes } = await enrolTotp(who);
  const before = sessionsOf(who);
  const codes = { totp: codeAt(secret), recovery: recoveryCodes[0] ?? '' };
  for (const [method, code] of Object.entries(codes)) {
    const tokens = await Promise.all(Array.from({ length: 20 }, () => mfaToken(who)));
    t.equal(new Set(tokens).size, 20);
    const answers = await atOnce(20, (n) => codeStep(tokens[n] ?? '', method, code));
    t.strictSame(statuses(answers), { 200: 1, 401: 19 }, method);
  }
  t.equal(sessionsOf(who), before + 2);
});

t.test('a person has 1,000 logins that wait for a second factor: the oldest end', async (t) => {
  const who = await person();
  const { secret } = await enrolTotp(who);
  await mfaToken(who);
  const [row] = rows('mfaLogins', who.userId);
  if (!row) throw new Error('nothing waits');
  const others = Array.from({ length: 999 }, (_, n) => ({ tokenHash: `${who.userId} ${n}` }));
  await storeMore(service, 'mfaLogins', String(row.tokenHash), others, 'tokenHash');
  time.now += 1;
  const last = await mfaToken(who);
  t.equal(rows('mfaLogins', who.userId).length, 1000);
  t.equal((await codeStep(last, 'totp', codeAt(secret))).status, 200);
  t.equal(rows('mfaLogins', who.userId).length, 999);
});

t.test('five wrong tries end an mfaToken, also when they come at once', async (t) => {
  const who = await person();
  const { secret, recoveryCodes } = await enrolTotp(who);
  const token = await mfaToken(who);
  for (let n = 0; n < 4; n += 1) t.match(await codeStep(token, 'totp', wrongCode(secret)), refused);
  t.match(await codeStep(token, 'recovery', 'AAAA-AAAA-AAAA-AAAA'), refused, 'of whatever method');
  t.match(await codeStep(token, 'totp', codeAt(secret)), refused);
  t.match(await codeStep(token, 'recovery', recoveryCodes[0] ?? ''), refused);
  t.match(await trigger(token), refused);
  const another = await mfaToken(who);
  await atOnce(20, () => codeStep(another, 'totp', wrongCode(secret)));
  t.equal(rows('mfaLogins', who.userId).at(-1)?.tries, 5, 'no more than five have been looked at');
  t.match(await codeStep(another, 'totp', codeAt(secret)), refused);
  const third = await mfaToken(who);
  for (let n = 0; n < 4; n += 1) await codeStep(third, 'totp', wrongCode(secret));
  t.equal((await codeStep(third, 'totp', codeAt(secret))).status, 200, 'the fifth is a try, too');
  t.match(await codeStep(third, 'totp', codeAt(secret)), refused);
});

t.test('an mfaToken ends after ten minutes, with one login, and works for nobody else', async (t) => {
  const who = await person();
  const { secret } = await enrolTotp(who);
  const [early, late] = [await mfaToken(who), await mfaToken(who)];
  time.now += 10 * minute - 1;
  t.equal((await codeStep(early, 'totp', codeAt(secret))).status, 200);
  time.now += 1;
  t.match(await codeStep(late, 'totp', codeAt(secret, time.now + step)), refused, 'the right code, too late');
  t.match(await trigger(late), refused);
  for (const none of [randomUUID(), 'none', service.admin]) t.match(await codeStep(none, 'totp', '000000'), refused);
  const missing = await service.http('POST', '/api/v1/auth/mfa-login-user', {
    token: null,
    body: { mfaMethod: 'totp', code: '000000' },
  });
  t.match(missing, { status: 401, body: { attributes: { errorCode: 'TokenMissingError' } } });
  t.match(await codeStep(await mfaToken(who), 'mail', '000000'), { status: 400 });
  const other = await person();
  const { secret: others } = await enrolTotp(other);
  t.match(await codeStep(await mfaToken(who), 'totp', codeAt(others)), refused, 'the code of somebody else');
});

t.test('a texted code ends after ten minutes, with the next one, and with its login', async (t) => {
  const who = await person();
  await mfa(who, 'POST', 'sms', { phoneNumber: '+15550100' });
  time.now += 10 * minute;
  t.match(await mfa(who, 'POST', 'sms/confirm', { code: textedCode() }), badCode);
  await mfa(who, 'POST', 'sms', { phoneNumber: '+15550100' });
  time.now += 10 * minute - 1;
  t.equal((await mfa(who, 'POST', 'sms/confirm', { code: textedCode() })).status, 200);
  const [token, another] = [await mfaToken(who), await mfaToken(who)];
  await trigger(token);
  const former = textedCode();
  t.match(await codeStep(another, 'sms', former), refused, 'it is of one mfaToken');
  await trigger(token);
  if (former !== textedCode()) t.match(await codeStep(token, 'sms', former), refused, 'the newest alone is good');
  t.equal((await codeStep(token, 'sms', textedCode())).status, 200);
  t.match(await codeStep(await mfaToken(who), 'sms', textedCode()), refused);
});

t.test('texts are limited: three for an mfaToken, ten an hour for an identity, ten to a number', async (t) => {
  const who = await person();
  await enrolSms(who, '+15550111');
  const token = await mfaToken(who);
  const sent = texts.length;
  const answers = await atOnce(8, () => trigger(token));
  t.strictSame(statuses(answers), { 200: 3, 429: 5 });
  t.equal(texts.length, sent + 3);
  const wait = Number((await trigger(token)).headers.get('retry-after'));
  t.ok(wait > 0 && wait <= 600, 'until the mfaToken is over');
  for (let n = 0; n < 2; n += 1) {
    const next = await mfaToken(who);
    for (let m = 0; m < 3; m += 1) await trigger(next);
  }
  t.equal(texts.length, sent + 9);
  t.match(await trigger(await mfaToken(who)), { status: 429, body: { attributes: { errorCode: 'TooManyError' } } });
  t.match(await mfa(who, 'POST', 'sms/code'), { status: 429 });
  time.now += 60 * minute;
  t.equal((await trigger(await mfaToken(who))).status, 200);

  const many = await Promise.all(Array.from({ length: 4 }, () => person()));
  const rings: Answer[] = [];
  for (let n = 0; n < 12; n += 1)
    rings.push(
      await mfa(many[n % 4] as Person, 'POST', 'sms', { phoneNumber: n % 2 ? '+15550122' : '+1 (555) 01-22' }),
    );
  t.strictSame(statuses(rings), { 200: 10, 429: 2 }, 'however it is spelled');
});

const setHash = ({ userId }: Person, hash: unknown) =>
  changeStored(service, 'UPDATE "identities" SET "passwordHash" = ? WHERE "id" = ?', [hash, userId]);

t.test('a new password and the end of an identity make its open logins void', async (t) => {
  const who = await person();
  const { secret } = await enrolTotp(who);
  const token = await mfaToken(who);
  const { endUser, ...known } = await service.endUser(organizationId);
  const other = { ...known, userId: endUser.userId, at: service };
  const { secret: others } = await enrolTotp(other);
  const untouched = await mfaToken(other);
  const hash = await new Passwords({ memoryCost: 8, timeCost: 1 }).hashNew('password', 'a new one altogether', 'x@y.z');
  await setHash(who, hash);
  t.match(await codeStep(token, 'totp', codeAt(secret)), refused);
  const renewed = { ...who, password: 'a new one altogether' };
  t.equal((await codeStep(await mfaToken(renewed), 'totp', codeAt(secret))).status, 200, 'the factor stays');
  await service.ok('DELETE', `/api/v1/end-users/${endUser.id}`, { headers: { etag: endUser.version } });
  await service.ok('DELETE', `/api/v1/internal/users/${other.userId}`);
  t.match(await codeStep(untouched, 'totp', codeAt(others)), refused);
  t.strictSame(rows('mfaMethods', other.userId), []);
});

t.test('what changes while a login is under way counts', async (t) => {
  const who = await person();
  let secret = '';
  beforeTransaction(t, service, 'POST /api/v1/auth/login-user', async () => {
    ({ secret } = await enrolTotp(who));
  });
  t.match(await passwordStep(who), refused, 'a second factor is confirmed');
  for (const change of [
    () => setHash(who, 'another'),
    () => service.ok('DELETE', `/api/v1/users/${who.userId}/mfa/totp`),
  ]) {
    const token = await mfaToken(who);
    const [identity] = storedRows(service, 'SELECT "passwordHash" FROM "identities" WHERE "id" = ?', [who.userId]);
    beforeTransaction(t, service, 'POST /api/v1/auth/mfa-login-user', change);
    t.match(await codeStep(token, 'totp', codeAt(secret)), refused);
    await setHash(who, identity?.passwordHash);
  }

  const { endUser, token, ...known } = await service.endUser(organizationId);
  const leaving = { ...known, token, userId: endUser.userId, at: service };
  await service.ok('DELETE', `/api/v1/end-users/${endUser.id}`, { headers: { etag: endUser.version } });
  await enrolTotp(leaving);
  const { accountId } = service;
  beforeTransaction(t, service, `DELETE /api/v1/users/${leaving.userId}/mfa/totp`, () =>
    service.ok('POST', '/api/v1/account-users', { body: { accountId, userId: leaving.userId } }),
  );
  t.match(await service.http('DELETE', `/api/v1/users/${leaving.userId}/mfa/totp`), absent, 'it becomes an admin');
});

t.test('a wrong password with a second factor looks like one without', async (t) => {
  const [plain, guarded] = [await person(), await person()];
  await enrolTotp(guarded);
  const [a, b] = [await passwordStep(plain, { password: 'wrong' }), await passwordStep(guarded, { password: 'wrong' })];
  const seen = ({ status, headers, body }: Answer<Failure>) => {
    const varying = ['date', 'x-request-id', 'ratelimit-reset'];
    const named = [...headers].filter(([name]) => !varying.includes(name));
    return { status, headers: named, body: { ...body, requestId: '' } };
  };
  t.equal(a.status, 401);
  t.strictSame(seen(b), seen(a));
});

t.test('removing what is confirmed needs a code, of it or a recovery code', async (t) => {
  const who = await person();
  t.match(await mfa(who, 'DELETE', 'totp', { code: '000000' }), absent);
  const { secret, recoveryCodes } = await enrolTotp(who);
  await enrolSms(who);
  t.match(await mfa(who, 'DELETE', 'totp'), { status: 400, body: { attributes: { errorCode: 'InvalidError' } } });
  t.match(await mfa(who, 'DELETE', 'totp', {}), { status: 400 });
  t.match(await mfa(who, 'DELETE', 'totp', { code: wrongCode(secret) }), badCode);
  const open = await mfaToken(who);
  t.match(await mfa(who, 'DELETE', 'totp', { code: codeAt(secret) }), { status: 200, body: { success: true } });
  t.match(await codeStep(open, 'recovery', recoveryCodes[0] ?? ''), refused, 'logins that waited have ended');
  t.strictSame((await passwordStep(who)).body.mfaMethods, ['sms']);
  t.equal(rows('recoveryCodes', who.userId).length, 10);

  t.match(await mfa(who, 'DELETE', 'sms', { code: textedCode() }), badCode, 'the code that confirmed');
  t.match(await mfa(who, 'POST', 'sms/code'), { status: 200, body: { success: true } });
  t.match(await mfa(who, 'DELETE', 'sms', { code: otherCode(textedCode()) }), badCode);
  t.equal((await mfa(who, 'DELETE', 'sms', { code: textedCode() })).status, 200);
  t.ok((await passwordStep(who)).body.jwt, 'no factor is left');
  t.strictSame(rows('recoveryCodes', who.userId), [], 'nor a recovery code');
  t.match(await mfa(who, 'POST', 'sms/code'), absent);

  const again = (await enrolTotp(who)).recoveryCodes[3] ?? '';
  t.equal((await mfa(who, 'DELETE', 'totp', { code: again })).status, 200, 'by recovery code');
  await mfa(who, 'POST', 'totp');
  t.equal((await mfa(who, 'DELETE', 'totp')).status, 200, 'what is not confirmed needs none');
});

t.test('five wrong codes end the text that removes a phone', async (t) => {
  const who = await person();
  const recoveryCodes = await enrolSms(who);
  await mfa(who, 'POST', 'sms/code');
  const right = textedCode();
  for (let n = 0; n < 5; n += 1) await mfa(who, 'DELETE', 'sms', { code: otherCode(right) });
  t.match(await mfa(who, 'DELETE', 'sms', { code: right }), badCode);
  t.equal((await mfa(who, 'DELETE', 'sms', { code: recoveryCodes[0] })).status, 200, 'a recovery code is another way');
});

t.test('an admin removes what an end-user of the account has lost, and nothing of anybody else', async (t) => {
  const who = await person();
  await enrolTotp(who);
  const password = 'another fine one';
  const user = { createIdmUser: true, idmUserEmail: 'second@example.com', idmUserPassword: password };
  const { userId } = await service.create('/account-users', 'accountUser', user);
  const colleague = { userId, email: user.idmUserEmail, password, token: '', at: service };
  colleague.token = (await passwordStep(colleague)).body.jwt;
  await enrolTotp(colleague);
  const { admin: beside } = await service.account();
  const neighbour = await person();
  const as = (token: string, target: Person, path = 'totp') => mfa({ ...target, token }, 'DELETE', path);
  t.match(await as(service.admin, colleague), absent, 'of another admin');
  for (const token of [beside, neighbour.token]) t.match(await as(token, who), absent, 'by somebody else');
  t.match(await as(colleague.token, who, 'sms'), absent, 'what is not there');
  for (const token of [service.admin, beside, neighbour.token])
    for (const target of [who, colleague]) {
      t.match(await mfa({ ...target, token }, 'POST', 'totp'), absent);
      t.match(await mfa({ ...target, token }, 'POST', 'sms', { phoneNumber: '+15550100' }), absent);
      t.match(await mfa({ ...target, token }, 'POST', 'sms/code'), absent);
      t.match(await mfa({ ...target, token }, 'POST', 'totp/confirm', { code: '000000' }), absent);
    }
  t.equal((await passwordStep(who)).body.mfaRequired, true);
  t.match(await as(service.admin, who), { status: 200, body: { success: true } });
  t.ok((await passwordStep(who)).body.jwt);
  t.strictSame(rows('recoveryCodes', who.userId), []);
  t.match(await as(colleague.token, colleague), { status: 400 }, 'an admin needs a code for its own');

  const backEnd = await service.create('/applications', 'application', { name: 'Back', kind: 'backEnd' });
  const login = { appId: backEnd.id, appToken: backEnd.appToken, accountId: service.accountId };
  const { jwt } = await service.ok('POST', '/api/v1/auth/login-application', { token: null, body: login });
  t.match(await as(jwt, who), { status: 403, body: { attributes: { errorCode: 'ForbiddenError' } } });
});

t.test('with the first method every other session ends, over HTTP and MQTT; with the second none', async (t) => {
  const who = await person();
  const other = (await passwordStep(who)).body.jwt;
  const client = await service.connect({ jwt: other });
  const stays = await service.connect({ jwt: who.token });
  const ended = new Promise<void>((resolve) => client.once('close', () => resolve()));
  const { secret } = await enrolTotp(who);
  await ended;
  t.equal((await devices(other)).status, 401);
  t.equal((await devices(who.token)).status, 200);
  t.ok(stays.connected);
  const second = (await codeStep(await mfaToken(who), 'totp', codeAt(secret))).body.jwt;
  await enrolSms(who);
  t.equal((await devices(second)).status, 200);
});

t.test('an admin may have a second factor, and so may an identity without an end-user', async (t) => {
  const admin = await startService(t, { ...options, env: {} });
  const { userId } = JSON.parse(Buffer.from(admin.admin.split('.')[1] ?? '', 'base64url').toString());
  const boss = { userId, email: adminEmail, password: adminPassword, token: admin.admin, at: admin };
  const { secret } = await enrolTotp(boss);
  const answer = await codeStep(await mfaToken(boss), 'totp', codeAt(secret), {}, admin);
  t.equal(answer.status, 200);
  const farewell = await admin.organization();
  const { endUser, token, ...known } = await admin.endUser(farewell.id);
  await admin.ok('DELETE', `/api/v1/end-users/${endUser.id}`, { headers: { etag: endUser.version } });
  await enrolTotp({ ...known, token, userId: endUser.userId, at: admin });
});

t.test('names that are as long as can be have a QR code, too', async (t) => {
  const { admin: jwt } = await service.account(`${'漢'.repeat(240)}@example.com`, adminPassword, '🚀'.repeat(300));
  const { userId } = claimsOf(jwt);
  const { qrSvg, otpauthUrl } = await service.ok('POST', `/api/v1/users/${userId}/mfa/totp`, { token: jwt });
  t.equal(scanSvg(qrSvg), otpauthUrl);
});

t.test('wrong codes are limited over many mfaTokens, and a right password forgets none', async (t) => {
  const limited = await startService(t, { ...options, env: {} });
  const who = await person(limited, (await limited.organization()).id);
  const { secret } = await enrolTotp(who);
  const wrong = async () => codeStep(await mfaToken(who), 'totp', wrongCode(secret), {}, limited);
  for (let n = 0; n < 9; n += 1) t.equal((await wrong()).status, 401);
  const right = async () => codeStep(await mfaToken(who), 'totp', codeAt(secret), {}, limited);
  t.equal((await right()).status, 200, 'the tenth may be right, and what was wrong is forgotten');
  for (let n = 0; n < 10; n += 1) t.equal((await wrong()).status, 401);
  time.now += step;
  const over = await right();
  t.match(over, { status: 429, body: { attributes: { errorCode: 'TooManyError' } } });
  t.ok(Number(over.headers.get('retry-after')) > 0);
  t.match(await mfa(who, 'DELETE', 'totp', { code: codeAt(secret) }), { status: 429 }, 'removal counts as well');
  time.now += 15 * minute;
  t.equal((await right()).status, 200);
});

t.test(
  'anyone who knows the password cannot go on guessing codes from many addresses; the owner gets in',
  async (t) => {
    const env = { SLIPWAY_TRUSTED_PROXIES: '127.0.0.1', SLIPWAY_LOGIN_FAILURES_PER_ADDRESS: '0' };
    const limited = await startService(t, { ...options, env });
    const who = await person(limited, (await limited.organization()).id);
    const { secret, recoveryCodes } = await enrolTotp(who);
    const from = (n: number) => ({ 'x-forwarded-for': `203.0.113.${n}` });
    const attempt = async (headers: object, mfaMethod: string, code: string) =>
      codeStep(await mfaToken(who), mfaMethod, code, headers, limited);
    for (let n = 0; n < 30; n += 1) t.equal((await attempt(from(n), 'totp', wrongCode(secret))).status, 401);
    t.equal((await attempt(from(50), 'totp', codeAt(secret))).status, 429);
    time.now += 12 * 60 * minute;
    t.equal((await attempt(from(50), 'totp', codeAt(secret))).status, 429, 'half a day later');
    t.equal(
      (await attempt(from(51), 'recovery', recoveryCodes[0] ?? '')).status,
      200,
      'a recovery code is too long to guess',
    );
    for (let n = 0; n < 30; n += 1) await attempt(from(n), 'totp', wrongCode(secret));
    t.equal((await attempt(from(52), 'totp', codeAt(secret))).status, 429);
    t.equal((await attempt({}, 'totp', codeAt(secret))).status, 200, 'where they have logged in before');
  },
);

t.test('the audit record reports it, and of no code', async (t) => {
  const who = await person();
  const { secret } = await enrolTotp(who);
  const token = await mfaToken(who);
  await codeStep(token, 'totp', wrongCode(secret));
  await codeStep(token, 'totp', codeAt(secret));
  await service.ok('DELETE', `/api/v1/users/${who.userId}/mfa/totp`);
  const about = (query: string) => audited(service, query);
  t.match(await about(`event=mfaRequired&actorId=${who.userId}`), [{ outcome: 'success', address: '127.0.0.1' }]);
  t.match(await about(`event=mfaChanged&targetId=${who.userId}`), [
    { actorKind: 'admin', details: { mfaMethod: 'totp', change: 'removed' } },
    { actorKind: 'endUser', details: { mfaMethod: 'totp', change: 'confirmed' } },
  ]);
  t.match(await about(`event=login&outcome=failure&targetId=${who.userId}`), [{ details: { mfaMethod: 'totp' } }]);
  const [last] = await about(`event=login&outcome=success&actorId=${who.userId}`);
  t.match(last, { details: { mfaMethod: 'totp' } });
});

t.test('an mfaToken that is over is purged', async (t) => {
  const who = await person();
  await enrolTotp(who);
  await mfaToken(who);
  time.now += 5 * minute;
  await mfaToken(who);
  time.now += 5 * minute;
  await purgeNow(service);
  t.equal(rows('mfaLogins', who.userId).length, 1);
});

t.test('the OpenAPI document shows both answers of login-user', async (t) => {
  const { paths } = resolveComponents(documentOf(service)) as OpenApi;
  const { anyOf = [] } = answerOf({ paths }, '/api/v1/auth/login-user');
  t.strictSame(
    anyOf.map(({ required }) => required),
    [
      ['jwt', 'csrfToken'],
      ['mfaRequired', 'mfaToken', 'mfaMethods'],
    ],
  );
});

t.test('nothing secret is in clear on disk or in the log', async (t) => {
  const who = await person();
  const { secret, recoveryCodes } = await enrolTotp(who);
  await mfa(who, 'POST', 'sms', { phoneNumber: '+15550133' });
  const confirming = textedCode();
  await mfa(who, 'POST', 'sms/confirm', { code: confirming });
  const token = await mfaToken(who);
  await trigger(token);
  const texted = textedCode();
  await codeStep(token, 'totp', codeAt(secret));
  await mfa(who, 'POST', 'sms/code');
  const open = await mfaToken(who);
  const files = readdirSync(service.directory).filter((name) => name.startsWith('registry.db'));
  const bytes = Buffer.concat(files.map((name) => readFileSync(join(service.directory, name)))).toString('latin1');
  t.ok(bytes.includes(who.email), 'this is where it would stand');
  const raw = Buffer.from(Secret.fromBase32(secret).bytes).toString('latin1');
  const secrets = [secret, raw, token, open, ...recoveryCodes, ...recoveryCodes.map((one) => one.replaceAll('-', ''))];
  const log = logLines.join('\n');
  for (const one of secrets) {
    t.notOk(bytes.includes(one), 'on disk');
    t.notOk(log.includes(one), 'in the log');
  }
  // Six digits may be in any file by chance; as the whole of a stored text or number they do not.
  for (const table of ['mfaMethods', 'mfaLogins', 'auditRecords']) {
    const stored = JSON.stringify(storedRows(service, `SELECT * FROM "${table}"`));
    for (const code of [confirming, texted, textedCode()]) t.notMatch(stored, new RegExp(`\\b${code}\\b`), table);
  }
  // How long a request took has six digits behind its point.
  const said = log.replace(/"ms":[\d.]+/g, '');
  for (const code of [confirming, texted, textedCode()]) t.notMatch(said, new RegExp(`\\b${code}\\b`), 'in the log');
});

t.test('an account has 200 texts an hour to numbers that are set up, which keep nobody from logging in', async (t) => {
  const one = await person();
  await enrolSms(one, '+15550140');
  for (let n = 0; n < 10; n += 1) t.match(await mfa(one, 'POST', 'sms', { phoneNumber: '+15550141' }), { status: 400 });
  const others = await Promise.all(Array.from({ length: 20 }, () => person()));
  const setUp = (n: number) => mfa(others[n % 20] as Person, 'POST', 'sms', { phoneNumber: `+1555${1000 + n}` });
  t.strictSame(await countStatuses(200, setUp), { 200: 199, 429: 1 }, 'what sends no text is not counted');
  const phoneless = await person();
  for (let n = 0; n < 11; n += 1) t.match(await mfa(phoneless, 'POST', 'sms/code'), absent);
  t.equal((await trigger(await mfaToken(one))).status, 200);
});

t.test('wrong codes at confirmation and removal are in the audit record', async (t) => {
  const who = await person();
  const { secret } = (await mfa(who, 'POST', 'totp')).body;
  await mfa(who, 'POST', 'totp/confirm', { code: wrongCode(secret) });
  await mfa(who, 'POST', 'totp/confirm', { code: codeAt(secret) });
  time.now += step;
  await mfa(who, 'DELETE', 'totp', { code: wrongCode(secret) });
  await mfa(who, 'DELETE', 'totp', { code: codeAt(secret) });
  await service.login();
  const results = await audited(service, `event=mfaChanged&targetId=${who.userId}`, 4);
  for (const record of results) t.match(record, { actorId: who.userId, address: '127.0.0.1' });
  t.strictSame(results.map(({ outcome, details }) => `${outcome} ${details.mfaMethod} ${details.change}`).sort(), [
    'failure totp confirmed',
    'failure totp removed',
    'success totp confirmed',
    'success totp removed',
  ]);
});

t.end();
