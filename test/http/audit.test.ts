import { changeStored, noteWithin, whileRecordFails } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const time = { now: Date.parse('2026-03-01T00:00:00Z') };
let service: Service;
let adminId: string;
t.before(async () => {
  service = await startService(t, { clock: { now: () => time.now } });
  const { accountUsers } = await service.ok('GET', `/api/v1/account-users?accountId=${service.accountId}`);
  adminId = accountUsers.results[0].userId;
});

/** Records, newest first, once there are `count`; what is noted in the background comes a moment later. */
async function audit(filter: Record<string, string> = {}, count = 0) {
  const query = new URLSearchParams({ accountId: service.accountId, pageSize: '1000', ...filter });
  const ask = async () => (await service.ok('GET', `/api/v1/audit?${query}`)).auditRecords;
  await until(async () => (await ask()).results.length >= count);
  return ask();
}

t.test('logins and failed logins: who, when, from where', async (t) => {
  time.now += 1000;
  await service.loginAs(adminEmail, adminPassword);
  const body = { emailAddress: adminEmail, password: 'wrong', accountId: service.accountId };
  await service.http('POST', '/api/v1/auth/login-user', { body, token: null });
  await service.http('POST', '/api/v1/auth/login-user', { body: { ...body, emailAddress: 'x@y.z' }, token: null });
  const at = new Date(time.now).toISOString();
  const { results } = await audit({ event: 'login', from: at }, 3);
  t.match(
    results.filter(({ outcome }) => outcome === 'success'),
    [{ time: at, event: 'login', actorKind: 'admin', actorId: adminId, address: '127.0.0.1', details: {} }],
  );
  const failures = results.filter(({ outcome }) => outcome === 'failure');
  t.equal(failures.length, 2);
  t.ok(failures.some(({ targetId, actorId }) => targetId === adminId && actorId === null));
  t.ok(
    failures.some(({ targetId }) => targetId === null),
    'whom somebody unknown meant is not kept',
  );
});

t.test('credentials, codes, claims, admins, applications', async (t) => {
  const organization = await service.organization();
  const { device } = await service.device();
  const asked = { body: { deviceId: device.id } };
  const { associationCode } = await service.ok('POST', '/api/v1/association/create-association-code', asked);
  const claim = { body: { associationCode, organizationId: organization.id } };
  await service.ok('POST', '/api/v1/association/start-association-with-code', claim);
  const { results } = await audit({ targetId: device.id });
  t.strictSame(
    results.map(({ event, actorId, outcome }) => [event, actorId, outcome]),
    ['association', 'associationCodeCreated', 'credentialCreated'].map((event) => [event, adminId, 'success']),
  );
  const user = await service.create('/account-users', 'accountUser', {
    createIdmUser: true,
    idmUserEmail: 'second@example.com',
  });
  await service.ok('DELETE', `/api/v1/account-users/${user.id}`, { headers: { etag: user.version } });
  t.same(
    (await audit({ targetId: user.id })).results.map(({ event }) => event),
    ['accountUserDeleted', 'accountUserCreated'],
  );
  const application = await service.create('/applications', 'application', { name: 'A', kind: 'backEnd' });
  await service.ok('DELETE', `/api/v1/applications/${application.id}`);
  t.same(
    (await audit({ targetId: application.id })).results.map(({ event }) => event),
    ['applicationDeleted', 'applicationCreated'],
  );
});

t.test('what is refused and what is used is sampled: once in a quarter of an hour', async (t) => {
  const { token, endUser } = await service.endUser((await service.organization()).id);
  const make = () =>
    service.http('POST', '/api/v1/devices', { token, body: { accountId: service.accountId, serialNumber: 'x' } });
  for (let n = 0; n < 5; n += 1) t.equal((await make()).status, 403);
  const refused = (count: number) => audit({ actorId: endUser.userId, event: 'permissionRefused' }, count);
  t.match((await refused(1)).results, [{ outcome: 'failure', details: { endpoint: 'POST /api/v1/devices' } }]);
  t.equal((await audit({ actorId: endUser.userId, event: 'tokenUsed' }, 1)).meta.count, 1);
  time.now += 15 * 60_000;
  await make();
  t.equal((await refused(2)).meta.count, 2);
});

t.test('uses of an appToken, a token in the wrong place, and tokens over MQTT leave a trace', async (t) => {
  const { id, appToken } = await service.create('/applications', 'application', { name: 'Traced', kind: 'endUserApp' });
  const lookUp = '/api/v1/users/by-email/nobody@example.com/user-id';
  await service.http('GET', lookUp, { token: null, headers: { accesstoken: appToken } });
  const endpoint = 'GET /api/v1/users/by-email/:email/user-id';
  t.match((await audit({ actorId: id }, 1)).results, [{ event: 'tokenUsed', details: { endpoint } }]);
  await service.http('GET', '/api/v1/devices', { token: appToken });
  t.match((await audit({ targetId: id, event: 'permissionRefused' }, 1)).results, [{ outcome: 'failure' }]);
  const { token, endUser } = await service.endUser((await service.organization()).id);
  await service.connect({ jwt: token });
  t.match((await audit({ actorId: endUser.userId, event: 'tokenUsed' }, 1)).results, [{ details: { over: 'mqtt' } }]);
});

t.test('filters, order and pages', async (t) => {
  const all = await audit();
  t.equal(all.meta.count, all.results.length);
  const reversed = await audit({ sortOrder: 'asc' });
  t.strictSame(reversed.results, [...all.results].reverse());
  const page = await audit({ pageSize: '2', page: '2' });
  t.strictSame(page.results, all.results.slice(2, 4));
  t.ok((await audit({ outcome: 'failure' })).results.every(({ outcome }) => outcome === 'failure'));
  t.equal((await audit({ address: '192.0.2.1' })).meta.count, 0);
  const later = new Date(time.now + 1).toISOString();
  t.equal((await audit({ from: later })).meta.count, 0);
  t.equal((await audit({ to: later })).meta.count, all.meta.count);
  const asked = (query: string) => service.http('GET', `/api/v1/audit?accountId=${service.accountId}&${query}`);
  t.match(await asked('page=1000'), { status: 416, body: { error: { code: 109 } } });
  for (const query of ['event=nothing', 'from=yesterday', 'pageSize=1001', 'outcome=maybe'])
    t.match(await asked(query), { status: 400, body: { error: { code: 106 } } }, query);
});

t.test('a record is never changed nor deleted, not even by us, except the oldest beyond the limit', async (t) => {
  await audit();
  await t.rejects(changeStored(service, `UPDATE "auditRecords" SET "outcome" = 'success'`), /append-only/);
  await t.rejects(changeStored(service, 'DELETE FROM "auditRecords"'), /append-only/);
});

t.test('what is done and what is recorded of it stand or fall together', async (t) => {
  const body = { accountId: service.accountId, name: 'unrecorded', kind: 'backEnd' };
  const answer = await whileRecordFails(service, () => service.http('POST', '/api/v1/applications', { body }));
  t.equal(answer.status, 500);
  const { applications } = await service.ok(
    'GET',
    `/api/v1/applications?accountId=${service.accountId}&name=unrecorded`,
  );
  t.equal(applications.meta.count, 0);
});

t.test('what is noted while a transaction is under way is recorded too', async (t) => {
  const before = await audit({ event: 'login', outcome: 'failure' });
  await noteWithin(service, { noted: 'inside' });
  const { results } = await audit({ event: 'login', outcome: 'failure' }, before.results.length + 1);
  t.equal(results.filter(({ details }) => details.noted === 'inside').length, 1);
});

t.test('failed logins of strangers take a tenth of what an account keeps, and push out nothing else', async (t) => {
  const clock = { now: () => time.now };
  const service = await startService(t, { clock, env: { SLIPWAY_AUDIT_RECORDS_PER_ACCOUNT: '50' } });
  const { accountId } = service;
  const other = await service.account();
  const fail = async (count: number, ofAccount = accountId) => {
    for (let n = 0; n < count; n += 1) {
      const body = { emailAddress: `guess${n}@example.com`, password: 'wrong', accountId: ofAccount };
      const { status } = await service.http('POST', '/api/v1/auth/login-user', { body, token: null });
      t.equal(status, 401);
    }
  };
  const records = async (filter: string, count = 0, of = accountId, token = service.admin) => {
    const path = `/api/v1/audit?accountId=${of}&pageSize=1000&${filter}` as const;
    const ask = async () => (await service.ok('GET', path, { token })).auditRecords.results;
    await until(async () => (await ask()).length >= count);
    return ask();
  };
  const own = async () => (await records('outcome=success')).map(({ id }) => id);
  // That the token is used is written in the background.
  await records('event=tokenUsed', 1);
  for (let n = 0; n < 50; n += 1)
    await service.create('/applications', 'application', { name: `A${n}`, kind: 'backEnd' });
  const before = await own();
  t.equal(before.length, 50);
  await fail(40);
  t.equal((await records('event=login&outcome=failure', 5)).length, 5);
  await until(async () => (await own()).length <= 45);
  t.strictSame(await own(), before.slice(0, 45), 'the oldest five have gone, and no more');
  await fail(1, other.accountId);
  const theirs = await records('outcome=failure', 1, other.accountId, other.admin);
  t.equal(theirs.length, 1, 'each account has its own share');

  time.now += 30 * 24 * 60 * 60_000;
  const { jwt } = await service.loginAs(adminEmail, adminPassword);
  await fail(1);
  const [newest] = await records('outcome=failure', 6, accountId, jwt);
  t.strictSame(newest?.details, { omitted: 35 }, 'the next one says how many are not in the record');
});

t.end();
