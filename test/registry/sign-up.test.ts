/** Signing up with the code of a device: login, organization and claim at once. */
import { checkCharacter } from '../../src/registry/credentials/association-codes.ts';
import { audited } from '../support/audited.ts';
import { Mailbox } from '../support/mailbox.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const mailbox = new Mailbox();
let now = Date.parse('2026-05-01T00:00:00Z');
let free = Number.MAX_SAFE_INTEGER;
let service: Service;
t.before(async () => {
  const env = { SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' };
  service = await startService(t, { mail: mailbox, clock: { now: () => now }, freeOnDisk: async () => free, env });
});
// Whatever was counted is forgotten.
t.beforeEach(() => {
  now += 24 * 60 * 60_000;
});

type Claimed = { jwt: string; organizationId: string };
const password = 'a long secret of hers';
const lookUp = (associationCode: string, accountId = service.accountId, address = '192.0.2.1') =>
  service.http('POST', '/api/v1/association/look-up-code', {
    ...{ token: null, headers: { 'x-forwarded-for': address } },
    body: { accountId, associationCode },
  });
const signUp = (associationCode: string, emailAddress: string, more: object = {}, address = '192.0.2.1') =>
  service.http('POST', '/api/v1/association/sign-up-with-code', {
    ...{ token: null, headers: { 'x-forwarded-for': address } },
    body: { accountId: service.accountId, associationCode, emailAddress, password, ...more },
  });
const claim = (associationCode: string, organizationId: string, token: string) =>
  service.http('POST', '/api/v1/association/start-association-with-code', {
    token,
    body: { associationCode, organizationId },
  });

async function labelled(body: object = {}) {
  const { device } = await service.device(body);
  const made = await service.ok('POST', '/api/v1/association/create-association-code', {
    body: { deviceId: device.id },
  });
  return { device, code: made.associationCode };
}
const unknownCode = () => {
  const characters = Array.from({ length: 11 }, () => '0123456789'.charAt(Math.floor(Math.random() * 10))).join('');
  return characters + checkCharacter(characters);
};
/** Rows that a sign-up makes. */
const counts = () =>
  ['identities', 'organizations', 'endUsers'].map((table) => countStored(service, table as 'identities', 'TRUE', []));

t.test('a person with a device gets a login, an organization and the device with one request', async (t) => {
  const template = await service.template({ name: 'Thermometer' });
  const { device, code } = await labelled({ deviceTemplateId: template.id });
  t.same((await lookUp(code.toLowerCase().replaceAll('-', ' '))).body, {
    ...{ serialNumber: device.serialNumber, productName: 'Thermometer', signUp: true, taken: false },
  });
  const answer = await signUp(code, 'Ada@example.com', { name: 'Ada' });
  t.match(answer, { status: 200, body: { deviceId: device.id } });
  t.match(answer.headers.get('set-cookie'), /platform-access-token=/);
  const { jwt: token, organizationId } = answer.body as Claimed;
  const me = await service.ok('GET', '/api/v1/profile/me', { token });
  t.match(me, { kind: 'endUser', emailAddress: 'Ada@example.com', name: 'Ada', organizationIds: [organizationId] });
  t.match(await service.ok('GET', `/api/v1/devices/${device.id}`, { token }), {
    device: { organizationId, provisioningState: 'associated' },
  });
  t.match(await service.ok('GET', `/api/v1/organizations/${organizationId}`, { token }), {
    organization: { name: 'Ada', parentId: null },
  });
  const records = await audited(service, `actorId=${me.id}`, 4);
  t.same(records.map(({ event }) => event).sort(), ['association', 'identityCreated', 'login', 'tokenUsed']);
  t.match((await lookUp(code)).body, { signUp: false, taken: true });
});

t.test('a lost answer is asked for again; two requests at once make one of everything', async (t) => {
  const { device, code } = await labelled();
  const before = counts();
  const both = await Promise.all([signUp(code, 'bo@example.com'), signUp(code, 'bo@example.com')]);
  t.match(both, [
    { status: 200, body: { deviceId: device.id } },
    { status: 200, body: { deviceId: device.id } },
  ]);
  t.match(await signUp(code, 'BO@example.com'), { status: 200, body: { deviceId: device.id } });
  t.same(
    counts(),
    before.map((count) => count + 1),
  );
  t.match(await signUp(code, 'bo@example.com', { password: 'a wrong secret of his' }), {
    ...{
      status: 400,
      body: { error: { code: 110, message: 'There is a login with this email address. Sign in instead.' } },
    },
  });
  const other = await labelled();
  t.match(await signUp(other.code, 'bo@example.com'), { status: 400, body: { error: { code: 110 } } }, 'one claim');
  t.match(await signUp(code, 'cy@example.com'), { status: 422, body: { error: { code: 106 } } }, 'taken by another');
});

t.test('the address is confirmed by email before a second claim', async (t) => {
  const [first, second, third] = [await labelled(), await labelled(), await labelled()];
  const email = 'dora@example.com';
  const { jwt: token, organizationId } = (await signUp(first.code, email)).body as Claimed;
  t.match(await claim(second.code, organizationId, token), {
    status: 403,
    body: { error: { code: 21, message: /^Confirm your email address/ } },
  });
  t.match(await claim(first.code, organizationId, token), { status: 200 }, 'a repeat is no second claim');
  // Nobody gets round it by somebody else whom they let in.
  const person = { createIdmUser: true, idmUserEmail: 'friend@example.com', idmUserPassword: password };
  await service.create('/end-users', 'endUser', { organizationId, ...person }, token);
  const friend = (await service.loginAs('friend@example.com', password)).jwt;
  t.match(await claim(second.code, organizationId, friend), { status: 403 });
  const mailed = await mailbox.nextTokenTo(email);
  t.match(mailbox.to(email)[0]?.subject, /^Confirm your email address for /);
  const userId = (await service.ok('GET', '/api/v1/profile/me', { token })).id;
  const again = { userId, newEmailAddress: email };
  await service.ok('POST', '/api/v1/profile/update-email-address', { token, body: again });
  t.equal(mailbox.to(email).length, 2, 'asked for again');
  t.equal(
    (await service.http('POST', '/api/v1/auth/confirm-email', { token: null, body: { token: mailed } })).status,
    400,
  );
  const body = { token: mailbox.tokenTo(email) };
  await service.ok('POST', '/api/v1/auth/confirm-email', { token: null, body });
  t.equal(mailbox.to(email).length, 2, 'nobody is told that the address has changed');
  t.match(await claim(second.code, organizationId, token), { status: 200 });
  const { token: other, endUser: known } = await service.endUser((await service.organization()).id);
  t.match(
    await claim(third.code, known.organizationId, other),
    { status: 200 },
    'whom an admin has let in claims as before',
  );
});

t.test('a code that does not count looks like none, whatever else it is', async (t) => {
  const { device, code } = await labelled();
  const other = await service.account();
  const before = counts();
  const answers = [
    await lookUp(unknownCode()),
    await lookUp(code, other.accountId),
    await lookUp(code, '018f0000-0000-7000-8000-00000000000a'),
    await signUp(code, 'eve@example.com', { accountId: other.accountId }),
    await signUp(unknownCode(), 'eve@example.com'),
    await signUp(unknownCode(), 'Ada@example.com'),
  ];
  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: version } });
  answers.push(await lookUp(code), await signUp(code, 'eve@example.com'));
  for (const { status, body } of answers)
    t.match(
      [status, body],
      [404, { error: { code: 100, message: 'The association code does not exist.', details: { length: 0 } } }],
    );
  t.match(await lookUp('AAAA-AAAA-AAAA'), { status: 400, body: { error: { code: 106 } } }, 'mistyped');
  t.same(counts(), before);
});

t.test('guesses of codes are limited by address, and tries to log in by it as logins are', async (t) => {
  const { code } = await labelled();
  const from = '198.51.100.7';
  const guesses = await Promise.all(Array.from({ length: 12 }, () => lookUp(unknownCode(), service.accountId, from)));
  t.same(guesses.map(({ status }) => status).sort(), [...Array(10).fill(404), 429, 429]);
  t.equal((await lookUp(code, service.accountId, from)).status, 429);
  t.equal((await signUp(code, 'fay@example.com', {}, from)).status, 429);
  t.equal((await lookUp(code)).status, 200, 'from elsewhere');
  const victim = await service.endUser((await service.organization()).id);
  const statuses: number[] = [];
  for (let n = 0; n < 12; n += 1)
    statuses.push((await signUp(code, victim.email, { password: `a wrong one ${n} yes` })).status);
  t.same(statuses, [...Array(10).fill(400), 429, 429]);
  const login = { accountId: service.accountId, emailAddress: victim.email, password: victim.password };
  const headers = { 'x-forwarded-for': '192.0.2.1' };
  t.equal((await service.http('POST', '/api/v1/auth/login-user', { token: null, body: login, headers })).status, 429);
});

t.test(
  'nothing is half made: a bad password, a held device, a full disk, an account that does not allow it',
  async (t) => {
    const { device, code } = await labelled();
    const before = counts();
    const held = await labelled({ organizationId: (await service.organization()).id });
    t.match((await lookUp(held.code)).body, { signUp: false });
    t.match(await signUp(held.code, 'gil@example.com'), { status: 422 });
    t.match(await signUp(code, 'gil@example.com', { password: 'short' }), {
      status: 400,
      body: { error: { code: 106 } },
    });
    t.match(await signUp(code, 'no address'), { status: 400, body: { error: { code: 106 } } });
    await service.ok('PUT', '/api/v1/account/claiming', { body: { signUp: false } });
    t.match(await service.ok('GET', '/api/v1/account/claiming'), { claiming: { signUp: false } });
    t.match((await lookUp(code)).body, { serialNumber: device.serialNumber, signUp: false });
    t.match(await signUp(code, 'gil@example.com'), { status: 403, body: { error: { code: 21 } } });
    const after = counts();
    t.equal(after[0], before[0]);
    await service.ok('PUT', '/api/v1/account/claiming', { body: { signUp: true } });
    const { keeping } = service.server.ctx;
    free = 0;
    await until(() => keeping.refusal(service.accountId) !== undefined);
    t.equal((await signUp(code, 'gil@example.com')).status, 507);
    free = Number.MAX_SAFE_INTEGER;
    await until(() => keeping.refusal(service.accountId) === undefined);
    t.same(counts(), after);
    t.match(await signUp(code, 'gil@example.com'), { status: 200 });
  },
);

t.end();
