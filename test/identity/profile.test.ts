import { audited } from '../support/audited.ts';
import { beforeTransaction } from '../support/faults.ts';
import { Mailbox } from '../support/mailbox.ts';
import { countStatuses } from '../support/many.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, type Made, present, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const minute = 60_000;
let now = Date.parse('2026-06-01T00:00:00Z');
const mailbox = new Mailbox();
let service: Service;
let top: Made<'organization'>;
let below: Made<'organization'>;
let elsewhere: Made<'organization'>;
/** The first admin’s. */
let adminId: string;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now }, mail: mailbox });
  top = await service.organization();
  below = await service.organization({ parentId: top.id });
  elsewhere = await service.organization();
  const { accountUsers } = await service.ok('GET', `/api/v1/account-users?accountId=${service.accountId}`);
  adminId = accountUsers.results[0].userId;
});
t.beforeEach(async () => {
  // Limits are by the hour; a test begins with fresh ones.
  now += 61 * minute;
  await service.login();
});

const read = (userId: string, token?: string) =>
  service.http('GET', `/api/v1/profile/${userId}`, token === undefined ? {} : { token });
const post = (path: string, body: object, token?: string | null) =>
  service.http('POST', `/api/v1${path}`, { body, ...(token === undefined ? {} : { token }) });
const update = (body: object, token?: string) => post('/profile/update', body, token);
const changePassword = (body: object, token?: string) =>
  post('/profile/change-password', { newPassword: 'an entirely new secret', ...body }, token);
const changeEmail = (userId: string, newEmailAddress: string, token?: string) =>
  post('/profile/update-email-address', { userId, newEmailAddress }, token);
const renewed = (token: string) => service.ok('POST', '/api/v1/sessions/renew-session', { token });
const confirm = (token: string) => post('/auth/confirm-email', { token }, null);
const tryLogin = async (emailAddress: string, password: string): Promise<number> =>
  (await post('/auth/login-user', { emailAddress, password, accountId: service.accountId }, null)).status;
const failure = (status: number, errorCode: string, path?: string) => ({
  status,
  body: { attributes: { errorCode, ...(path && { details: [{ path }] }) } },
});
const none = failure(404, 'NotFoundError');
const forbidden = failure(403, 'ForbiddenError');

/** An end-user, logged in, with its userId. */
async function person(organizationId: string) {
  const who = await service.endUser(organizationId);
  return { ...who, userId: who.endUser.userId };
}

/** The admin of another account. */
async function stranger(): Promise<string> {
  return (await service.account()).admin;
}

t.test('a profile is read by its owner, by admins, and by those who see the person as an end-user', async (t) => {
  const [boss, kid, outside] = [await person(top.id), await person(below.id), await person(elsewhere.id)];
  const profile = {
    userId: kid.userId,
    accountId: service.accountId,
    emailAddress: kid.email,
    emailConfirmed: false,
    createdAt: new Date(now).toISOString(),
    name: null,
    firstName: null,
    lastName: null,
    company: null,
    department: null,
    phoneNumber: null,
    address: null,
  };
  for (const token of [kid.token, boss.token, service.admin])
    t.strictSame((await read(kid.userId, token)).body, profile);
  const nobody = (await read('nobody', outside.token)).body;
  for (const [userId, token] of [
    [kid.userId, outside.token],
    [boss.userId, kid.token],
    [adminId, boss.token],
    [kid.userId, await stranger()],
  ] as Array<[string, string]>) {
    const answer = await read(userId, token);
    t.match(answer, none);
    t.same({ ...answer.body, requestId: '' }, { ...nobody, requestId: '' }, 'as if there were nobody');
  }
  t.match(await read(adminId), { status: 200 }, 'an admin without an end-user, itself');
});

t.test('a person changes its own profile, and null takes away', async (t) => {
  const { userId, email, token } = await person(top.id);
  const said = { name: 'Ada', firstName: 'Ada', lastName: 'L', company: 'C', department: 'D', phoneNumber: '1' };
  const answer = await update({ userId, ...said, address: 'A', emailAddress: 'x@example.com', id: 'x' }, token);
  t.match(answer, { status: 200, body: { userId, emailAddress: email, ...said, address: 'A' } });
  t.equal(answer.headers.get('platform-ignored-properties'), 'emailAddress, id');
  t.match((await update({ userId, company: null }, token)).body, { ...said, company: null, address: 'A' });
  t.match((await update({ userId }, token)).body, { name: 'Ada', company: null }, 'nothing changes nothing');
  for (const [path, value] of [
    ['name', 'x'.repeat(256)],
    ['phoneNumber', 'x'.repeat(51)],
    ['address', 'x'.repeat(1001)],
    ['lastName', 5],
  ] as const)
    t.match(await update({ userId, [path]: value }, token), failure(400, 'InvalidError', path));
  t.match((await update({ userId, name: 'By an admin' })).body, { name: 'By an admin', firstName: 'Ada' });
});

t.test('nobody changes whom it may only read, nor sees whom it may not', async (t) => {
  const [boss, kid, outside] = [await person(top.id), await person(below.id), await person(elsewhere.id)];
  const attempts = (userId: string, token: string, oldPassword: string) => [
    update({ userId, name: 'Mine now' }, token),
    changePassword({ userId, oldPassword }, token),
    changeEmail(userId, 'mine@example.com', token),
  ];
  for (const answer of await Promise.all(attempts(kid.userId, boss.token, kid.password))) t.match(answer, forbidden);
  for (const token of [outside.token, await stranger()])
    for (const answer of await Promise.all(attempts(kid.userId, token, kid.password))) t.match(answer, none);
  for (const answer of await Promise.all(attempts(adminId, boss.token, adminPassword))) t.match(answer, none);
  t.match((await read(kid.userId)).body, { name: null, emailAddress: kid.email });
  t.equal(await tryLogin(kid.email, kid.password), 200);
});

t.test('a password is changed by the old one, and every other session ends, over HTTP and MQTT', async (t) => {
  const { userId, email, password, token } = await person(top.id);
  const other = (await service.loginAs(email, password)).jwt;
  const [mine, theirs] = [await service.connect({ jwt: token }), await service.connect({ jwt: other })];
  const closed = new Promise((resolve) => theirs.once('close', () => resolve(true)));
  t.match(await changePassword({ userId, oldPassword: 'wrong' }, token), failure(401, 'InvalidCredentialsError'));
  t.match(await read(userId, other), { status: 200 }, 'a wrong one ends nothing');
  const answer = await changePassword({ userId, oldPassword: password }, token);
  t.strictSame(answer.body, { success: true, user: { userId } });
  t.match(await read(userId, token), { status: 200 });
  t.match(await read(userId, other), failure(401, 'TokenInvalidError'));
  t.ok(await closed);
  t.ok(mine.connected);
  t.equal(await tryLogin(email, password), 401);
  t.equal(await tryLogin(email, 'an entirely new secret'), 200);
  for (const outcome of ['success', 'failure']) {
    const records = await audited(service, `event=passwordChanged&targetId=${userId}&outcome=${outcome}`);
    t.match(records, [{ actorId: userId, address: '127.0.0.1' }], outcome);
    t.equal(records.length, 1);
  }
});

t.test('an admin needs the old password of others too, and loses no session of its own', async (t) => {
  const { userId, email, password, token } = await person(top.id);
  for (const oldPassword of [adminPassword, ''])
    t.match(await changePassword({ userId, oldPassword }), failure(401, 'InvalidCredentialsError'));
  t.match(await changePassword({ userId, oldPassword: password }), { status: 200 });
  t.match(await read(userId, token), failure(401, 'TokenInvalidError'));
  t.match(await read(userId), { status: 200 });
  t.equal(await tryLogin(email, 'an entirely new secret'), 200);
});

t.test('guessing the old password is limited as guessing at login is', async (t) => {
  const { userId, email, password, token } = await person(top.id);
  for (let n = 0; n < 10; n += 1)
    t.match(await changePassword({ userId, oldPassword: `guess ${n}` }, token), { status: 401 });
  const limited = await changePassword({ userId, oldPassword: password }, token);
  t.match(limited, { status: 429 });
  t.match(limited.headers.get('retry-after'), /^\d+$/);
  t.equal(await tryLogin(email, password), 429, 'the tries are counted together');
  now += 15 * minute;
  t.match(await changePassword({ userId, oldPassword: password }, token), { status: 200 });
});

t.test('of ten changes at once with one old password exactly one is made', async (t) => {
  const { userId, password, token } = await person(top.id);
  const answers = await Promise.all(
    Array.from({ length: 10 }, (_, n) =>
      changePassword({ userId, oldPassword: password, newPassword: `winner is ${n}` }, token),
    ),
  );
  t.equal(answers.filter(({ status }) => status === 200).length, 1);
  for (const { status } of answers) t.ok([200, 401].includes(status), `${status}`);
});

t.test('anyone who is logged out while the hash is computed changes nothing', async (t) => {
  const { userId, email, password, token } = await person(top.id);
  beforeTransaction(t, service, 'POST /api/v1/profile/change-password', () =>
    service.ok('POST', '/api/v1/sessions/logout', { token }),
  );
  t.match(await changePassword({ userId, oldPassword: password }, token), failure(401, 'TokenInvalidError'));
  t.equal(await tryLogin(email, password), 200);
});

t.test(
  'an email address changes when the email to the new one is answered, once, and the old one is told',
  async (t) => {
    const { userId, email, password, token } = await person(top.id);
    t.strictSame((await changeEmail(userId, 'fresh@example.com', token)).body, { success: true, userId });
    t.match((await read(userId)).body, { emailAddress: email }, 'not yet');
    t.strictSame(mailbox.to(email), []);
    const mailed = mailbox.tokenTo('fresh@example.com');
    t.match(await confirm(`${mailed}x`), failure(400, 'BadTokenError'));
    const answers = await Promise.all(Array.from({ length: 20 }, () => confirm(mailed)));
    t.equal(answers.filter(({ status }) => status === 200).length, 1, 'sent twenty times at once');
    t.match(await confirm(mailed), failure(400, 'BadTokenError'));
    t.match((await read(userId)).body, { emailAddress: 'fresh@example.com' });
    t.equal(await tryLogin('FRESH@example.com', password), 200);
    t.equal(await tryLogin(email, password), 401);
    t.match(mailbox.to(email), [{ subject: /has changed/ }]);
    t.notMatch(mailbox.to(email)[0]?.text, /fresh@example|token/, 'and neither whereto nor how');
    t.match(await read(userId, token), { status: 200 }, 'the session goes on');
    const query = `accountId=${service.accountId}&event=emailChanged&targetId=${userId}`;
    t.match((await service.ok('GET', `/api/v1/audit?${query}`)).auditRecords.results, [{ outcome: 'success' }]);
  },
);

t.test('a confirmation lasts a day, and the newest counts', async (t) => {
  const { userId, token, email } = await person(top.id);
  await changeEmail(userId, 'first@example.com', token);
  await changeEmail(userId, 'second@example.com', token);
  t.match(await confirm(mailbox.tokenTo('first@example.com')), failure(400, 'BadTokenError'));
  now += 24 * 60 * minute;
  t.match(await confirm(mailbox.tokenTo('second@example.com')), failure(400, 'BadTokenError'));
  await renewed(token);
  await changeEmail(userId, 'third@example.com', token);
  now += 24 * 60 * minute - 1;
  t.match(await confirm(mailbox.tokenTo('third@example.com')), { status: 200 });
  t.match(mailbox.to(email), [{ subject: /has changed/ }]);
});

t.test('an address must be free when it is asked for and when it is confirmed', async (t) => {
  const [one, other] = [await person(top.id), await person(top.id)];
  const taken = failure(400, 'NotUniqueError', 'newEmailAddress');
  t.match(await changeEmail(one.userId, other.email.toUpperCase(), one.token), taken);
  t.match(await changeEmail(one.userId, adminEmail, one.token), failure(400, 'UserExistsError'));
  t.match(await changeEmail(one.userId, 'no address', one.token), failure(400, 'InvalidError', 'newEmailAddress'));
  t.strictSame(mailbox.to(other.email.toUpperCase()), []);
  await changeEmail(one.userId, 'wanted@example.com', one.token);
  await service.create('/account-users', 'accountUser', {
    createIdmUser: true,
    idmUserEmail: 'wanted@example.com',
    idmUserPassword: 'a secret of an admin',
  });
  const mailed = mailbox.to('wanted@example.com')[0]?.text ?? '';
  const [, token = ''] = /^token: (\S+)$/m.exec(mailed) ?? [];
  t.match(await confirm(token), failure(400, 'UserExistsError'));
  t.match((await read(one.userId)).body, { emailAddress: one.email });
  t.match(
    await changeEmail(one.userId, one.email.toUpperCase(), one.token),
    { status: 200 },
    'email case is one’s own',
  );
});

t.test('an admin changes the address of others at once, its own as everybody', async (t) => {
  const { userId, email, password } = await person(top.id);
  const other = await person(top.id);
  t.match(await changeEmail(userId, other.email), failure(400, 'NotUniqueError'));
  t.match(await changeEmail(userId, adminEmail), failure(400, 'UserExistsError'));
  t.match(await changeEmail(userId, 'by-admin@example.com'), { status: 200 });
  t.equal(await tryLogin('by-admin@example.com', password), 200);
  t.match(mailbox.to(email), [{ subject: /has changed/ }]);
  t.strictSame(mailbox.to('by-admin@example.com'), []);
  t.match(await changeEmail(adminId, 'new-admin@example.com'), { status: 200 });
  t.match((await read(adminId)).body, { emailAddress: adminEmail });
  t.ok(mailbox.tokenTo('new-admin@example.com'));
});

t.test('a change of address ends the tokens that went to the old one', async (t) => {
  const { userId, email } = await person(top.id);
  const { appToken } = await service.create('/applications', 'application', { name: 'phone', kind: 'endUserApp' });
  const reset = `/api/v1/users/${userId}/password-reset-token`;
  await service.ok('GET', reset, { token: null, headers: { accesstoken: appToken } });
  const body = { newPassword: 'an entirely new secret', passwordResetToken: mailbox.tokenTo(email) };
  await changeEmail(userId, 'moved@example.com');
  const path = `/users/${userId}/change-password-with-token`;
  t.match(await post(path, body, null), failure(400, 'BadTokenError'));
});

t.test('a change of the password ends a change of address that is under way', async (t) => {
  const { userId, password, token } = await person(top.id);
  await changeEmail(userId, 'thief@example.com', token);
  await changePassword({ userId, oldPassword: password }, token);
  t.match(await confirm(mailbox.tokenTo('thief@example.com')), failure(400, 'BadTokenError'));
});

t.test('a person causes five emails to new addresses in an hour, and no more', async (t) => {
  const { userId, token } = await person(top.id);
  for (let n = 0; n < 5; n += 1) t.match(await changeEmail(userId, `n${n}@example.com`, token), { status: 200 });
  t.match(await changeEmail(userId, 'n5@example.com', token), { status: 429 });
  t.strictSame(mailbox.to('n5@example.com'), []);
  now += 60 * minute;
  await renewed(token);
  t.match(await changeEmail(userId, 'n5@example.com', token), { status: 200 });
});

t.test('without a mail server an own address stays, and an admin’s change stands', async (t) => {
  const { userId, email, token } = await person(top.id);
  mailbox.refusal = new Error('451 try later');
  t.match(await changeEmail(userId, 'lost@example.com', token), failure(500, 'ServerError'));
  t.match((await read(userId)).body, { emailAddress: email });
  t.match(await changeEmail(userId, 'kept@example.com'), { status: 200 });
  mailbox.refusal = undefined;
  t.match((await read(userId)).body, { emailAddress: 'kept@example.com' });
});

t.test('nobody changes the address of another admin, whose login would be theirs then', async (t) => {
  const { userId } = await service.create('/account-users', 'accountUser', {
    createIdmUser: true,
    idmUserEmail: 'second-admin@example.com',
    idmUserPassword: 'a secret of an admin',
  });
  const body = { accountId: service.accountId, name: 'office', kind: 'backEnd' };
  const { id: appId, appToken } = await service.create('/applications', 'application', body);
  const login = { accountId: service.accountId, appId, appToken };
  const { jwt } = (await post('/auth/login-application', login, null)).body;
  for (const token of [service.admin, jwt]) t.match(await changeEmail(userId, 'mine@example.com', token), forbidden);
  t.match((await read(userId)).body, { emailAddress: 'second-admin@example.com' });
  t.strictSame(mailbox.to('second-admin@example.com'), []);
  const { userId: endUserId } = await person(top.id);
  t.match(await changeEmail(endUserId, 'by-office@example.com', jwt), { status: 200 }, 'that of an end-user it does');
});

t.test('ten emails go to one address in an hour, no matter who causes them and for what', async (t) => {
  const victim = 'victim@example.com';
  const three = [await person(top.id), await person(top.id), await person(top.id)];
  for (let n = 0; n < 9; n += 1) {
    const { userId, token } = present(three[n % 3]);
    t.match(await changeEmail(userId, n % 2 ? victim : victim.toUpperCase(), token), { status: 200 });
  }
  const invitation = (token: string, idmUserEmail: string) =>
    post(
      '/end-users',
      { accountId: service.accountId, organizationId: top.id, createIdmUser: true, idmUserEmail },
      token,
    );
  const { userId, token } = present(three[0]);
  const made = await invitation(token, victim);
  t.match(made, { status: 200, body: { endUser: { invitationSent: true } } });
  const { appToken } = await service.create('/applications', 'application', { name: 'phone', kind: 'endUserApp' });
  const headers = { accesstoken: appToken };
  const reset = `/api/v1/users/${made.body.endUser.userId}/password-reset-token`;
  const limited = await service.http('GET', reset, { token: null, headers });
  t.match(limited, { status: 429, body: { attributes: { errorCode: 'TooManyError' } } });
  t.match(limited.headers.get('retry-after'), /^\d+$/);
  t.equal(limited.headers.get('ratelimit-limit'), '10');
  t.match(await changeEmail(userId, 'another@example.com', token), { status: 200 }, 'other addresses have their own');

  const often = 'often@example.com';
  now += 60 * minute;
  for (const { token } of three) await renewed(token);
  for (let n = 0; n < 10; n += 1) {
    const { userId, token } = present(three[n % 3]);
    t.match(await changeEmail(userId, often, token), { status: 200 });
  }
  t.match(await invitation(token, often), { status: 429 }, 'an invitation by an end-user');
  await service.login();
  t.match(await invitation(service.admin, often), { status: 200, body: { endUser: { invitationSent: true } } });
  t.match(await service.http('GET', reset, { token: null, headers }), { status: 200 }, 'an hour later');
});

t.test('the people of an account confirm 300 addresses in an hour', async (t) => {
  const people: Awaited<ReturnType<typeof person>>[] = [];
  for (let n = 0; n < 61; n += 1) people.push(await person(top.id));
  const ask = (n: number) => changeEmail(people[n % 61]?.userId ?? '', `all${n}@example.com`, people[n % 61]?.token);
  t.strictSame(await countStatuses(301, ask), { 200: 300, 429: 1 });
});

t.test('emails that the mail server refuses use nothing up, and neither does an address that is taken', async (t) => {
  const { userId, token } = await person(top.id);
  const other = await person(top.id);
  mailbox.refusal = new Error('451 try later');
  for (let n = 0; n < 12; n += 1) t.match(await changeEmail(userId, 'busy@example.com', token), { status: 500 });
  mailbox.refusal = undefined;
  for (let n = 0; n < 5; n += 1) t.match(await changeEmail(userId, 'busy@example.com', token), { status: 200 });
  t.match(await changeEmail(userId, 'busy@example.com', token), { status: 429 });
  const three = [await person(top.id), await person(top.id), await person(top.id)];
  for (let n = 0; n < 12; n += 1) {
    const { userId, token } = present(three[n % 3]);
    t.match(await changeEmail(userId, other.email, token), { status: 400 });
  }
  const { appToken } = await service.create('/applications', 'application', { name: 'phone', kind: 'endUserApp' });
  const reset = `/api/v1/users/${other.userId}/password-reset-token`;
  const answer = await service.http('GET', reset, { token: null, headers: { accesstoken: appToken } });
  t.match(answer, { status: 200 }, 'nobody has kept the owner from an email');
});

t.test('an address holds nothing that is not seen, nor reads as another one', async (t) => {
  const { userId, token } = await person(top.id);
  for (const address of [
    'a\u200bda@example.com',
    'ada\u202e@example.com',
    'ada\u0007@example.com',
    'ada@evil.example＠example.com',
    'ada＠example.com',
    'ada﹫example.com@evil.example',
    '=?utf-8?q?ada?=@example.com',
    '＝？utf-8?q?ada?=@example.com',
    'ada＜bob＞@example.com',
    'ada@example。com',
    'ada@example．com',
    'ada@exa_mple.com',
    'ada@-example.com',
    'ada@example-.com',
    'ada@example..com',
    'ada@exam!ple.com',
  ])
    t.match(await changeEmail(userId, address, token), failure(400, 'InvalidError', 'newEmailAddress'), address);
  for (const address of ['jürgen+x=?@bücher.example', 'मेल@उदाहरण.example'])
    t.match(await changeEmail(userId, address, token), { status: 200 }, address);
});

t.test(
  'idmUserProfile fills the profile of the identity that is made; an address is a text or an object',
  async (t) => {
    const organization = await service.organization();
    const profile = {
      firstName: 'Ada',
      lastName: 'Lovelace',
      name: 'Ada L.',
      department: 'Engines',
      phoneNumber: '+44 20 1234',
      company: 'Analytical',
    };
    const read = async (address: unknown) => {
      const { endUser } = await service.endUser(organization.id, { idmUserProfile: { ...profile, address } });
      return service.ok('GET', `/api/v1/profile/${endUser.userId}`);
    };
    t.match(await read('1 High Street'), { ...profile, address: '1 High Street' });
    const address = { street: 'High Street', number: 1, lines: ['a', 'b'], geo: { lat: 1.5 } };
    const shown = await read(address);
    t.strictSame(shown.address, address, 'as it was given');
    const update = (given: unknown) =>
      service.http('POST', '/api/v1/profile/update', { body: { userId: shown.userId, address: given } });
    t.match(await update('a text'), { status: 200, body: { address: 'a text' } });
    t.match(await update({ x: 'y' }), { status: 200, body: { address: { x: 'y' } } });
    t.match(await update(null), { status: 200, body: { address: null } });
    t.match(await update({ x: 'y'.repeat(1000) }), { status: 400, body: { message: /address/ } });
    t.match(await update(7), { status: 400 });
    const refused = await service.http('POST', '/api/v1/end-users', {
      body: {
        accountId: service.accountId,
        organizationId: organization.id,
        createIdmUser: true,
        idmUserEmail: 'long@example.com',
        idmUserProfile: { firstName: 'x'.repeat(300) },
      },
    });
    t.match(refused, { status: 400, body: { error: { details: [{ path: 'idmUserProfile.firstName' }] } } });
  },
);

t.test('answers say what existing clients read', async (t) => {
  const { endUser, password, token } = await service.endUser((await service.organization()).id);
  const { userId } = endUser;
  const ask = (path: string, body: object) =>
    service.ok('POST', `/api/v1/profile/${path}`, { token, body: { userId, ...body } });
  t.match(await ask('update', { name: 'Neo' }), { success: true, user: { userId }, userId, name: 'Neo' });
  const newPassword = 'another long secret';
  t.same(await ask('change-password', { oldPassword: password, newPassword }), { success: true, user: { userId } });
  t.same(await ask('update-email-address', { newEmailAddress: 'neo@example.com' }), { success: true, userId });
  t.type((await service.ok('GET', `/api/v1/profile/${userId}`, { token })).emailConfirmed, 'boolean');
});

t.end();
