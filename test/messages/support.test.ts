/** Somebody asks for support with a device; callers of the account read what had happened, and close the request. */
import { purgeNow } from '../support/clockwork.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const day = 24 * 60 * 60_000;
let now = Date.parse('2026-05-01T00:00:00Z');
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now } });
});
// A fixed time would give each test the day of the one before.
t.beforeEach(async () => {
  now += day;
  await service.login();
});

const path = (deviceId: string, more = '') => `/api/v1/devices/${deviceId}/support${more}`;
const ask = (deviceId: string, token: string | null = service.admin, body: object = {}) =>
  service.http('POST', path(deviceId), { body, token });
const listOf = async (deviceId: string, token = service.admin) =>
  (await service.ok('GET', path(deviceId, '?pageSize=100') as '/api/v1/devices/{id}/support', { token }))
    .supportRequests.results;
const close = (deviceId: string, id: string, token = service.admin) =>
  service.http('DELETE', path(deviceId, `/${id}`), { token });
const attention = async (at: Service = service) => {
  const { overview } = await at.ok('GET', `/api/v1/overview?accountId=${at.accountId}`);
  return overview.attention.filter(({ kind }) => kind === 'supportRequested');
};
const say = (deviceId: string, message: string, more: object = {}, token = service.admin) =>
  service.ok('POST', `/api/v1/devices/${deviceId}/logs`, { body: { message, ...more }, token });

t.test('what went wrong in the last day goes to the account, until somebody closes it', async (t) => {
  const template = await service.template({ name: service.unique('Kettle') });
  const home = await service.organization();
  const { token, endUser } = await service.endUser(home.id, { roleId: 'organization:viewer' });
  const { device, secret } = await service.device({ organizationId: home.id, deviceTemplateId: template.id });
  await say(device.id, 'two days ago', { sourceTimestamp: now - 2 * day });
  await say(device.id, 'it hums');
  const client = await service.connect({ deviceId: device.id, secret });
  await client.publishAsync(service.topic(device.id, 'nothing'), 'x', { qos: 1 });
  const refused = async () => (await service.ok('GET', `/api/v1/devices/${device.id}/refusals`)).refusals.results;
  await until(async () => (await refused()).length === 1);

  const { status, body } = await ask(device.id, token, { message: 'It does not get hot.' });
  t.equal(status, 200);
  const { supportRequest } = body;
  t.match(supportRequest, { deviceId: device.id, createdById: endUser.userId, message: 'It does not get hot.' });
  t.same(Object.keys(supportRequest).includes('log'), false, 'who asks gets nothing of it back');
  const [kept, ...others] = await listOf(device.id);
  t.same(others, []);
  t.match(kept, { ...supportRequest, refusals: await refused() });
  t.ok(kept?.log.some(({ message }) => message === 'it hums'));
  t.notOk(kept?.log.some(({ message }) => message === 'two days ago'));
  const [seen, ...more] = await attention();
  t.same(more, []);
  const { serialNumber } = device;
  t.match(seen, {
    id: supportRequest.id,
    deviceId: device.id,
    name: serialNumber,
    query: `devices/${device.id}/support`,
  });
  t.equal(seen?.sentence, `Somebody asks for support with ${serialNumber}: “It does not get hot.”`);

  t.match(await close(device.id, supportRequest.id), { status: 200, body: { supportRequest } });
  t.match(await close(device.id, supportRequest.id), { status: 404, body: { error: { code: 100 } } });
  t.same(await listOf(device.id), []);
  t.same(await attention(), []);
  const { auditRecords } = await service.ok(
    'GET',
    `/api/v1/audit?accountId=${service.accountId}&targetId=${device.id}`,
  );
  const details = { supportId: supportRequest.id };
  t.match(
    auditRecords.results.filter(({ event }) => event.startsWith('support')),
    [
      { event: 'supportClosed', actorKind: 'admin', details },
      { event: 'supportRequested', actorId: endUser.userId, details },
    ],
  );
});

t.test('who sees the device asks; callers of the account read, and more than reading closes', async (t) => {
  const home = await service.organization();
  const { device } = await service.device({ organizationId: home.id });
  for (const role of ['viewer', 'installer', 'manager']) {
    const { token } = await service.endUser(home.id, { roleId: `organization:${role}` });
    const { status, body } = await ask(device.id, token, role === 'viewer' ? {} : { message: null });
    t.equal(status, 200, role);
    t.equal((await service.http('GET', path(device.id), { token })).status, 403, role);
    t.equal((await close(device.id, body.supportRequest.id, token)).status, 403, role);
  }
  const stranger = await service.endUser((await service.organization()).id);
  t.match(await ask(device.id, stranger.token), { status: 404, body: { error: { code: 100 } } });
  t.equal((await ask(device.id, null)).status, 401);
  t.match(await ask('nothing'), { status: 404 });
  const mayClose = { admin: 200, operator: 200, support: 200, auditor: 403 };
  for (const [role, status] of Object.entries(mayClose)) {
    const email = `closing-${role}@example.com`;
    await service.create('/account-users', 'accountUser', {
      ...{ createIdmUser: true, idmUserEmail: email, idmUserPassword: 'a fine password', roleId: `account:${role}` },
    });
    const { jwt } = await service.loginAs(email, 'a fine password');
    const [first] = await listOf(device.id, jwt);
    const id = first?.id ?? (await ask(device.id)).body.supportRequest.id;
    t.equal((await close(device.id, id, jwt)).status, status, role);
  }
  const other = await service.account();
  const foreign = { token: other.admin };
  t.equal((await service.http('GET', path(device.id), foreign)).status, 404);
  t.equal((await ask(device.id, other.admin)).status, 404);
  const another = (await service.device({ organizationId: home.id })).device;
  const { supportRequest } = (await ask(another.id)).body;
  t.equal((await close(device.id, supportRequest.id)).status, 404, 'that of another device');
  t.equal((await close(another.id, supportRequest.id, other.admin)).status, 404);
});

t.test('five a device in a day, closed ones too', async (t) => {
  const { device } = await service.device();
  for (let n = 0; n < 5; n += 1) {
    const { status, body } = await ask(device.id);
    t.equal(status, 200);
    await close(device.id, body.supportRequest.id);
  }
  const sixth = await ask(device.id);
  t.match(sixth, { status: 429, body: { error: { code: -199 } } });
  t.ok(Number(sixth.headers.get('retry-after')) > 0);
  t.equal((await ask((await service.device()).device.id)).status, 200, 'of another device');
  now += day;
  await service.login();
  t.equal((await ask(device.id)).status, 200, 'tomorrow');
});

t.test(
  'the five of a day are counted on disk: a restart forgets none, and several at once do not get past it',
  async (t) => {
    const settings = { clock: { now: () => now }, directory: temporaryDirectory(t) };
    const before = await startService(t, settings);
    const { id } = (await before.device()).device;
    const sendTo = (of: Service) => of.http('POST', path(id), { body: {} });
    const first = await sendTo(before);
    await before.ok(
      'DELETE',
      path(id, `/${first.body.supportRequest.id}`) as '/api/v1/devices/{id}/support/{supportId}',
    );
    now += 60_000;
    const answers = await Promise.all(Array.from({ length: 8 }, () => sendTo(before)));
    t.same(answers.map(({ status }) => status).sort(), [200, 200, 200, 200, 429, 429, 429, 429]);
    await before.close();
    const after = await startService(t, settings);
    const refused = await sendTo(after);
    t.match(refused, { status: 429, body: { error: { code: -199 } } });
    t.equal(Number(refused.headers.get('retry-after')), (day - 60_000) / 1000, 'until the first is a day old');
    now += day - 60_000;
    await after.login();
    t.equal((await sendTo(after)).status, 200);
    t.equal((await sendTo(after)).status, 429, 'the others are not as old');
  },
);

t.test('an account has a hundred open ones for each thousand devices', async (t) => {
  const at = await service.inNewAccount();
  const devices = await Promise.all(Array.from({ length: 21 }, async () => (await at.device()).device.id));
  const last = devices.pop() ?? '';
  const all = devices.flatMap((id) => [id, id, id, id, id]);
  const answers = await Promise.all(all.map((id) => ask(id, at.admin)));
  t.same([...new Set(answers.map(({ status }) => status))], [200]);
  t.match(await ask(last, at.admin), { status: 429, body: { error: { code: -199 } } });
  t.equal((await attention(at)).length, 20, 'the newest are shown');
  const first = answers[0]?.body.supportRequest;
  await close(String(first?.deviceId), String(first?.id), at.admin);
  t.equal((await ask(last, at.admin)).status, 200, 'what was refused has not counted');
  await at.close();
});

t.test('what is kept is bounded, and is what the person may see', async (t) => {
  const [home, away] = [await service.organization(), await service.organization()];
  const { device } = await service.device({ organizationId: home.id });
  const long = Array.from({ length: 12 }, (_, n) => ({ message: `${n}`, details: 'é'.repeat(7500) }));
  await service.ok('POST', `/api/v1/devices/${device.id}/logs`, { body: long });
  await service.ok('POST', `/api/v1/devices/${device.id}/logs`, {
    body: { message: 'newest', sourceTimestamp: now + 1 },
  });
  await ask(device.id);
  const [kept] = await listOf(device.id);
  t.equal(kept?.log[0]?.message, 'newest');
  t.ok(kept && kept.log.length > 5 && kept.log.length < 12);
  t.ok(Buffer.byteLength(JSON.stringify(kept?.log)) <= 128 * 1024 + 100);
  t.match(await ask(device.id, service.admin, { message: 'x'.repeat(2001) }), { status: 400 });

  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  now += 1000;
  await service.ok('PUT', `/api/v1/devices/${device.id}`, {
    body: { organizationId: away.id },
    headers: { etag: version },
  });
  now += 1000;
  await say(device.id, 'of the next owner');
  const { token } = await service.endUser(away.id);
  await ask(device.id, token);
  const [next] = await listOf(device.id);
  t.same(
    next?.log.map(({ message }) => message),
    ['of the next owner'],
    'and nothing of the former owner',
  );
});

t.test('it goes with its device, which nobody is asked to look at while it is in the trash', async (t) => {
  const { device } = await service.device();
  const { id } = (await ask(device.id)).body.supportRequest;
  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: version } });
  t.notOk((await attention()).some((one) => one.id === id));
  t.equal((await ask(device.id)).status, 410);
  t.equal((await service.http('GET', path(device.id))).status, 410);
  now += 31 * day;
  await service.login();
  await purgeNow(service);
  t.equal(countStored(service, '"supportRequests"', '"id" = ?', [id]), 0);
});

t.end();
