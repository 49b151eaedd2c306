/** What a flood of logins costs: neither the process nor the turn of others. */
import { audited } from '../support/audited.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { hashesWaiting } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await startService(t, { env: { SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' }, slowHashes: true });
});
const login = (body: object, address = '192.0.2.1') =>
  service.http('POST', '/api/v1/auth/login-user', {
    token: null,
    headers: { 'x-forwarded-for': address },
    body: { emailAddress: adminEmail, password: adminPassword, accountId: service.accountId, ...body },
  });

t.test(
  'texts that grow when they are normalized, or are long, are refused before anything is done with them',
  async (t) => {
    // One character that becomes eighteen.
    const long = '\uFDFA'.repeat(100_000);
    // Without a token a body has 16 KiB.
    const fitting = '\uFDFA'.repeat(5000);
    const organization = await service.organization();
    const { token, endUser } = await service.endUser(organization.id);
    const { appToken } = await service.create('/applications', 'application', { name: 'A', kind: 'endUserApp' });
    const { accountId } = service;
    const invited = { accountId, organizationId: organization.id, createIdmUser: true, idmUserEmail: 'a@example.com' };
    for (const [path, body, headers] of [
      ['auth/login-user', { emailAddress: fitting, password: 'p', accountId }],
      ['auth/login-user', { emailAddress: adminEmail, password: fitting, accountId }],
      ['auth/login-user', { emailAddress: adminEmail, password: 'p', accountId: fitting }],
      ['auth/login-application', { appId: fitting, appToken: 'x', accountId }],
      ['auth/create-user', { accountId, emailAddress: 'b@example.com', password: long }, { accesstoken: appToken }],
      ['profile/change-password', { userId: endUser.userId, oldPassword: 'x', newPassword: long }],
      ['end-users', { ...invited, idmUserPassword: long }],
    ] as const) {
      const answer = await service.http('POST', `/api/v1/${path}`, {
        body,
        token: path.startsWith('auth') ? null : path === 'end-users' ? service.admin : token,
        ...(headers && { headers }),
      });
      t.equal(answer.status, 400, path);
    }
  },
);

t.test('anyone who floods the hashes waits for them alone', async (t) => {
  const answered: string[] = [];
  const flood = Array.from({ length: 60 }, async (_, n) => {
    await login({ emailAddress: `guess${n}@example.com` });
    answered.push('flood');
  });
  const owner = login({}, '198.51.100.1').then(({ status }) => {
    t.equal(status, 200);
    answered.push('owner');
  });
  await Promise.all([...flood, owner]);
  // In one queue it would be the last; hashing begins before all of them are there.
  t.ok(answered.indexOf('owner') < 45, `the owner came ${answered.indexOf('owner') + 1}th of ${answered.length}`);
});

t.test('a login from where the owner has logged in before goes before 60 strangers, after a restart too', async (t) => {
  const directory = temporaryDirectory(t);
  const settings = { env: { SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' }, directory };
  const home = '2001:db8:77:1::5';
  const loginAt = (at: Service, address: string, body: object) =>
    at.http('POST', '/api/v1/auth/login-user', {
      token: null,
      headers: { 'x-forwarded-for': address },
      body: { emailAddress: adminEmail, password: adminPassword, accountId: at.accountId, ...body },
    });
  const before = await startService(t, settings);
  t.equal((await loginAt(before, home, {})).status, 200);
  await before.close();

  const restarted = await startService(t, { ...settings, slowHashes: true });
  let answered = 0;
  const flood = Array.from({ length: 60 }, async (_, n) => {
    const { status } = await loginAt(restarted, `198.51.100.${n}`, { emailAddress: `guess${n}@example.com` });
    answered += 1;
    t.equal(status, 401);
  });
  await Promise.race(flood);
  const waited = answered;
  const owner = await loginAt(restarted, home.replace('::5', '::9'), {});
  const served = answered - waited;
  t.equal(owner.status, 200);
  t.ok(served <= 12, `${served} strangers were served before the owner, of 60`);
  await Promise.all(flood);
});

t.test(
  'networks that have failed wait behind a login from a new network, and behind who signs up with a device',
  async (t) => {
    const { device } = await service.device();
    const { associationCode } = await service.ok('POST', '/api/v1/association/create-association-code', {
      body: { deviceId: device.id },
    });
    let answered = 0;
    const guess = async (n: number) => {
      const { status } = await login({ emailAddress: `guess${n}@example.com` }, `203.0.113.${n}`);
      answered += 1;
      t.equal(status, 401);
    };
    const numbers = Array.from({ length: 50 }, (_, n) => n);
    await Promise.all(numbers.map(guess));
    const flood = Promise.all(numbers.map(guess));
    // More than may be served first; how many come before the first of them is computed depends on the machine.
    await until(() => hashesWaiting(service) > 20);
    const before = answered;
    const signUp = service.http('POST', '/api/v1/association/sign-up-with-code', {
      ...{ token: null, headers: { 'x-forwarded-for': '198.51.100.70' } },
      body: {
        ...{ accountId: service.accountId, associationCode },
        emailAddress: 'new@example.com',
        password: adminPassword,
      },
    });
    const statuses = [login({}, '198.51.100.71'), signUp].map(async (one) => ({
      ...(await one),
      served: answered - before,
    }));
    for (const { status, served } of await Promise.all(statuses)) {
      t.equal(status, 200);
      t.ok(served <= 12, `${served} of 50 that had failed before were served first`);
    }
    await flood;
  },
);

t.test('a hash whose client has gone is not computed', async (t) => {
  const gone = new AbortController();
  const guesses = Array.from({ length: 50 }, (_, n) =>
    fetch(`${service.server.url}/api/v1/auth/login-user`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-forwarded-for': `203.0.113.${100 + n}` },
      body: JSON.stringify({ emailAddress: `gone${n}@example.com`, password: 'x', accountId: service.accountId }),
      signal: gone.signal,
    }).catch(() => {}),
  );
  const waiting = await until(
    () => hashesWaiting(service),
    (count) => count > 20,
  );
  gone.abort();
  await Promise.all(guesses);
  t.equal((await login({}, '198.51.100.72')).status, 200);
  await until(() => hashesWaiting(service) === 0);
  // A guess that was computed leaves a record; the last of them has one for certain.
  t.equal((await login({ password: 'wrong' }, '198.51.100.73')).status, 401);
  const records = await audited(service, 'event=login&outcome=failure&address=198.51.100.73');
  t.ok(records.length >= 1);
  const { auditRecords } = await service.ok(
    'GET',
    `/api/v1/audit?accountId=${service.accountId}&event=login&outcome=failure&pageSize=1000`,
  );
  const computed = auditRecords.results.filter(
    ({ address }) => Number(address?.match(/^203\.0\.113\.(\d+)$/)?.[1]) >= 100,
  );
  t.ok(computed.length <= 50 - waiting + 10, `${computed.length} of 50 were computed; ${waiting} waited`);
});

t.end();
