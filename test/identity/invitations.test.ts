import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { Mailbox } from '../support/mailbox.js';
import { type Answer, type Made, type Service, startService } from '../support/service.js';

const day = 24 * 60 * 60_000;
let now = Date.parse('2026-06-01T00:00:00Z');
const mailbox = new Mailbox();
const logLines: string[] = [];
let service: Service;
let organization: Made<'organization'>;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now }, mail: mailbox, logLines });
  organization = await service.organization();
});
t.beforeEach(async () => {
  now += day;
  await service.login();
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
      SLIPWAY_PUBLIC_URL: 'https://iot.example.com/base/',
    },
  });
  const body = { createIdmUser: true, idmUserEmail: 'x@example.com' };
  const { userId } = await elsewhere.create('/account-users', 'accountUser', body);
  const [{ subject, text } = { subject: '', text: '' }] = mailbox.to('x@example.com');
  t.equal(subject, 'Your login at Acme Bcc: all@example.com and sons');
  t.notMatch(text, /^Bcc/m);
  const [link = ''] = /^https:\S+$/m.exec(text) ?? [];
  const { origin, pathname, hash } = new URL(link);
  t.equal(origin + pathname, 'https://iot.example.com/base/set-password');
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
