import { createDecipheriv, createHash, hkdfSync } from 'node:crypto';
import { connect } from 'node:net';
import { audited } from '../support/audited.ts';
import { beforeTransaction, changeStored, losingAnswers } from '../support/faults.ts';
import { documentOf } from '../support/openapi.ts';
import { part } from '../support/part.ts';
import { claimsOf, present, type Service, startService } from '../support/service.ts';
import { countStored, storedRows } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

let now = Date.parse('2026-05-01T00:00:00Z');
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now }, env: { SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' } });
});

const post = (path: string, body: object, key: string, token?: string) =>
  service.http('POST', `/api/v1${path}`, {
    body: { accountId: service.accountId, ...body },
    headers: { 'idempotency-key': key },
    ...(token && { token }),
  });
const deviceCount = async () =>
  (await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&results=false`)).devices.meta.count;

/** What is stored when the process ends between the commit and the answer. */
const crash = (entityId: string) => change(entityId, '"answer" = NULL, "status" = NULL');
const change = (entityId: string, values: string) =>
  changeStored(service, `UPDATE "idempotentAnswers" SET ${values} WHERE ? IN ("entityId", "secretOf")`, [entityId]);

const keptOf = (entityId: string) =>
  present(
    storedRows<Record<'answer' | 'keyHash' | 'requestHash', string>>(
      service,
      'SELECT * FROM "idempotentAnswers" WHERE "entityId" = ?',
      [entityId],
    )[0],
  );

t.test('the same request twice makes one device and gets one answer', async (t) => {
  const before = await deviceCount();
  const first = await post('/devices', { serialNumber: 'I-1' }, 'key one');
  const again = await post('/devices', { serialNumber: 'I-1' }, 'key one');
  t.same(again.body, first.body);
  t.equal(again.headers.get('idempotent-replayed'), 'true');
  t.equal(await deviceCount(), before + 1);
  t.match(await post('/devices', { serialNumber: 'I-2' }, 'key one'), {
    status: 400,
    body: { error: { code: 106, details: [{ path: 'Idempotency-Key' }] } },
  });
  t.not((await post('/devices', { serialNumber: 'I-1' }, 'key two')).body.device.id, first.body.device.id);
  const others = await service.create('/account-users', 'accountUser', {
    createIdmUser: true,
    idmUserEmail: 'b@example.com',
    idmUserPassword: 'another secret',
  });
  t.ok(others.id);
  const { jwt } = await service.loginAs('b@example.com', 'another secret');
  t.not(
    (await post('/devices', { serialNumber: 'I-1' }, 'key one', jwt)).body.device.id,
    first.body.device.id,
    'keys are the caller’s own',
  );
});

t.test('twenty at once make one', async (t) => {
  const before = await deviceCount();
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => post('/devices', { serialNumber: 'race' }, 'racing')),
  );
  t.equal(new Set(answers.map(({ body }) => body.device.id)).size, 1);
  t.equal(await deviceCount(), before + 1);
});

t.test('a refusal is an answer too', async (t) => {
  const template = { name: 'T' };
  const refused = await post('/devices', { serialNumber: 5 }, 'bad');
  t.equal(refused.status, 400);
  t.equal((await post('/devices', { serialNumber: 5 }, 'bad')).body.requestId, refused.body.requestId);
  await post('/devices/templates', template, 'a');
  t.match(await post('/devices/templates', template, 'b'), { status: 400 });
  t.match(await post('/devices/templates', template, 'a'), { status: 200 });
  t.match(await post('/devices', { serialNumber: 'x' }, ''), { status: 400 });
  t.match(await post('/devices', { serialNumber: 'x' }, 'x'.repeat(256)), { status: 400 });
});

t.test('the answer with a secret is kept sealed until the secret has been used', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'S-1' });
  const ask = () => post('/access/mqtt-credentials', { entityId: device.id, entityType: 'device' }, 'a secret key');
  const first = (await ask()).body.mqttCredential;
  t.equal((await ask()).body.mqttCredential.secret, first.secret, 'a lost answer is no lost unit');
  const stored = JSON.stringify(storedRows(service, 'SELECT * FROM "idempotentAnswers"'));
  t.notMatch(stored, first.secret);
  t.notMatch(stored, 'a secret key');
  await service.connect({ deviceId: device.id, secret: first.secret });
  t.match(await ask(), { status: 410, body: { error: { code: 106 } } });
  t.ok(await service.connect({ deviceId: device.id, secret: first.secret }), 'and nothing was made again');
});

t.test('the first answer again has its headers too, and none that are the caller’s', async (t) => {
  const body = { serialNumber: 'headers', locatoin: 'typo' };
  const first = await post('/devices', body, 'with headers');
  t.equal(first.headers.get('etag'), `"${first.body.device.version}"`);
  t.equal(first.headers.get('platform-ignored-properties'), 'locatoin');
  const again = await post('/devices', body, 'with headers');
  for (const name of ['etag', 'platform-ignored-properties', 'content-type'])
    t.equal(again.headers.get(name), first.headers.get(name), name);
  t.not(again.headers.get('x-request-id'), first.headers.get('x-request-id'));

  const credential = { entityId: first.body.device.id, entityType: 'device', more: 1 };
  const secret = await post('/access/mqtt-credentials', credential, 'with a secret');
  const secretAgain = await post('/access/mqtt-credentials', credential, 'with a secret');
  t.equal(secretAgain.headers.get('idempotent-replayed'), 'true');
  t.equal(secretAgain.headers.get('etag'), `"${secret.body.mqttCredential.entityVersion}"`);
  t.equal(secretAgain.headers.get('platform-ignored-properties'), 'more');

  const unknown = { serialNumber: 'x', deviceTemplateId: 'nothing' };
  await post('/devices', unknown, 'refused');
  const refused = await post('/devices', unknown, 'refused');
  t.match(refused, { status: 400, body: { error: { code: 102 } } });
  t.equal(refused.headers.get('etag'), null);
});

t.test('a copy of the database opens no answer, however easily its key is guessed', async (t) => {
  const first = await post('/devices', { serialNumber: 'guessed' }, '42');
  const row = keptOf(first.body.device.id);
  const bytes = Buffer.from(row.answer, 'base64');
  const key = Buffer.from(hkdfSync('sha256', '42', bytes.subarray(0, 16), 'slipway idempotent answer', 32));
  const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(16, 28)).setAuthTag(bytes.subarray(28, 44));
  t.throws(() => Buffer.concat([decipher.update(bytes.subarray(44)), decipher.final()]));
  const { accountId, userId, roles } = claimsOf(service.admin);
  const guess = [accountId, userId, (roles as string[])[0], '42'].join('\0');
  t.not(row.keyHash, createHash('sha256').update(guess).digest('base64'), 'nor does its hash tell that it was right');
});

t.test('what is kept of a request tells nothing to who has not the key', async (t) => {
  const body = { accountId: service.accountId, serialNumber: 'guess me' };
  const first = await post('/devices', body, 'unknown key');
  const row = keptOf(first.body.device.id);
  const guess = (text: string) => createHash('sha256').update(text).digest('base64');
  for (const order of [body, { serialNumber: body.serialNumber, accountId: body.accountId }])
    for (const between of ['\0', '', '\n']) {
      const text = `/api/v1/devices${between}${JSON.stringify(order)}`;
      t.not(row.requestHash, guess(text));
      t.not(row.requestHash, guess(`POST${between}${text}`));
    }
  const other = await post('/devices', body, 'another key');
  const { requestHash } = keptOf(other.body.device.id);
  t.not(row.requestHash, requestHash, 'nor do two keys show that their requests are the same');
});

t.test('a crash between the commit and the answer makes nothing twice', async (t) => {
  const first = await post('/devices', { serialNumber: 'crash' }, 'crashed');
  await crash(first.body.device.id);
  const before = await deviceCount();
  const again = await post('/devices', { serialNumber: 'crash' }, 'crashed');
  t.same(again.body.device, first.body.device);
  t.equal(again.headers.get('etag'), first.headers.get('etag'));
  t.equal(await deviceCount(), before);
});

t.test('what is read back after a crash is read from where the caller is', async (t) => {
  const { id, appToken } = await service.create('/applications', 'application', { name: 'Behind', kind: 'backEnd' });
  const behind = { 'x-forwarded-for': '192.0.2.9' };
  const { accountId } = service;
  const login = { body: { appId: id, appToken, accountId }, token: null, headers: behind };
  const { jwt: token } = await service.ok('POST', '/api/v1/auth/login-application', login);
  const ask = () =>
    service.ok('POST', '/api/v1/devices', {
      body: { accountId, serialNumber: 'behind' },
      token,
      headers: { ...behind, 'idempotency-key': 'behind' },
    });
  await crash((await ask()).device.id);
  t.equal((await ask()).device.serialNumber, 'behind');
  const results = await audited(service, `actorId=${id}`);
  t.strictSame([...new Set(results.map(({ address }) => address))], ['192.0.2.9']);
});

t.test('a secret whose answer was lost in a crash comes with its version', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'S-2' });
  const body = { entityId: device.id, entityType: 'device' };
  const first = await losingAnswers(service, () => post('/access/mqtt-credentials', body, 'lost secret'));
  const again = await post('/access/mqtt-credentials', body, 'lost secret');
  t.same(again.body, first.body);
  t.equal(again.headers.get('etag'), `"${first.body.mqttCredential.entityVersion}"`);
});

t.test('what was made before a crash and deleted since is shown as it is in the trash', async (t) => {
  const made = [
    ['/devices', 'device', { serialNumber: 'deleted' }],
    ['/organizations', 'organization', { name: 'deleted' }],
    ['/devices/templates', 'deviceTemplate', { name: 'deleted' }],
  ] as const;
  for (const [path, wrapper, body] of made) {
    const key = `deleted ${wrapper}`;
    const entity = (await post(path, body, key)).body[wrapper];
    await crash(entity.id);
    const headers = { etag: entity.version };
    const trashed = await service.ok('DELETE', `/api/v1${path}/${entity.id}`, { headers });
    const again = await post(path, body, key);
    t.match(again, { status: 200, body: trashed }, wrapper);
    t.equal(again.headers.get('etag'), `"${entity.version}"`);
    await service.ok('POST', `/api/v1/trash${path}/${entity.id}/recover`, { headers });
    t.match(await post(path, body, key), { status: 200, body: { [wrapper]: { id: entity.id } } });
  }
  const body = { createIdmUser: true, idmUserEmail: 'leaver@example.com' };
  const { accountUser } = (await post('/account-users', body, 'leaver')).body;
  await crash(accountUser.id);
  await service.ok('DELETE', `/api/v1/account-users/${accountUser.id}`, { headers: { etag: accountUser.version } });
  t.match(await post('/account-users', body, 'leaver'), { status: 410, body: { error: { code: 107 } } });
});

t.test('a caller that goes away in the middle gets the answer when it asks again', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'abort' });
  const body = JSON.stringify({ accountId: service.accountId, entityId: device.id, entityType: 'device' });
  const { port } = new URL(service.server.url);
  const socket = connect(Number(port), '127.0.0.1');
  beforeTransaction(t, service, 'POST /api/v1/access/mqtt-credentials', async () => socket.destroy());
  socket.write(
    `POST /api/v1/access/mqtt-credentials HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${service.admin}\r\nIdempotency-Key: gone\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  await until(() => countStored(service, 'credentials', '"entityId" = ?', [device.id]) === 1);
  const again = await post('/access/mqtt-credentials', { entityId: device.id, entityType: 'device' }, 'gone');
  t.equal(again.status, 200);
  t.ok(await service.connect({ deviceId: device.id, secret: again.body.mqttCredential.secret }));
});

t.test('a batch and its requests may bear one key, and a right that is gone gets no answer again', async (t) => {
  const headers = { 'idempotency-key': 'shared' };
  const payload = { accountId: service.accountId, serialNumber: 'in a batch' };
  const requests = [{ method: 'POST', path: '/api/v1/devices', payload, headers }];
  const first = await service.http('POST', '/api/v1/batch', { body: { requests }, headers });
  t.same((await service.http('POST', '/api/v1/batch', { body: { requests }, headers })).body, first.body);
  const { accountUser } = (
    await post(
      '/account-users',
      { createIdmUser: true, idmUserEmail: 'gone@example.com', idmUserPassword: 'a fine password' },
      'user',
    )
  ).body;
  const { jwt } = await service.loginAs('gone@example.com', 'a fine password');
  t.equal((await post('/devices', { serialNumber: 'theirs' }, 'their key', jwt)).status, 200);
  await service.ok('DELETE', `/api/v1/account-users/${accountUser.id}`, { headers: { etag: accountUser.version } });
  t.match(await post('/devices', { serialNumber: 'theirs' }, 'their key', jwt), {
    status: 403,
    body: { error: { code: 21 } },
  });
});

/** POSTs that take no key: they make nothing that is kept, or may be repeated without harm. */
const others = [
  /^\/api\/v1\/(auth|sessions|profile)\//,
  /\/recover$/,
  /^\/api\/v1\/users\/(batch$|\{userId\}\/(change-password-with-token|end-sessions|mfa\/sms\/code)$)/,
  /^\/api\/v1\/(batch|logs\/search|permissions\/explain)$/,
  /^\/api\/v1\/provisioning\/jobs\/\{id\}\/(cancel|retry|results\/confirm)$/,
  /^\/api\/v1\/firmware\/packages\/\{id\}\/(publish|retire)$/,
  /^\/api\/v1\/firmware\/rollouts\/(preview|\{id\}\/(pause|resume|cancel|retry))$/,
  /^\/api\/v1\/fleets\/preview$/,
  /^\/api\/v1\/firmware\/status$/,
  /^\/api\/v1\/access\/certificate-authorities\/\{id\}\/proof$/,
  /^\/api\/v1\/bridges\/\{id\}\/test$/,
  /^\/api\/v1\/association\/(look-up-code|sign-up-with-code)$/,
  /^\/api\/v1\/(enroll(\/renew)?|devices\/\{id\}\/allow-enrollment)$/,
];

t.test('what is kept is only of POSTs that make something, by the list', async (t) => {
  const { paths } = documentOf(service);
  for (const [path, { post: operation }] of Object.entries(paths)) {
    if (!operation) continue;
    const takes = operation.parameters?.some(({ name }) => name === 'Idempotency-Key') ?? false;
    const isOther = others.some((pattern) => pattern.test(path)) && path !== '/api/v1/auth/create-user';
    t.equal(takes, !isOther, `${path}: a POST is in the list of the product or of this test`);
  }
  const before = countStored(service, 'idempotentAnswers');
  const search = { query: { bool: { must: [] } }, size: 10 };
  const answer = await service.http('POST', '/api/v1/logs/search', {
    body: search,
    headers: { 'idempotency-key': 'a search' },
  });
  t.equal(answer.status, 200);
  t.equal(countStored(service, 'idempotentAnswers'), before, 'a search keeps nothing');
});

t.test('a long answer is not kept, and says so', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'long' });
  const entries = Array.from({ length: 10 }, (_, n) => ({ message: `${n} ${'x'.repeat(8000)}` }));
  const ask = () =>
    service.http('POST', `/api/v1/devices/${device.id}/logs`, {
      body: entries,
      headers: { 'idempotency-key': 'long logs' },
    });
  const first = await ask();
  t.equal(first.status, 200);
  t.equal(first.headers.get('platform-idempotency'), 'not-kept');
  t.equal((await post('/devices', { serialNumber: 'short' }, 'short')).headers.get('platform-idempotency'), null);
  t.equal((await ask()).headers.get('idempotent-replayed'), null);
});

t.test('a repeat asks for the reach again', async (t) => {
  const [here, there] = [await service.organization(), await service.organization()];
  const user = await service.endUser(here.id);
  const parent = { name: 'below', parentId: here.id };
  const { organization } = (await post('/organizations', parent, 'reach', user.token)).body;
  t.equal((await post('/organizations', parent, 'reach', user.token)).body.organization.id, organization.id);
  await service.ok('PUT', `/api/v1/organizations/${organization.id}`, {
    body: { parentId: there.id },
    headers: { etag: organization.version },
  });
  t.match(await post('/organizations', parent, 'reach', user.token), { status: 404, body: { error: { code: 100 } } });
});

t.test('a caller has only so many keys; others are not held up', async (t) => {
  const limited = await startService(t, { env: { SLIPWAY_MAX_IDEMPOTENCY_KEYS: '3' } });
  const other = await limited.account();
  const make = (key: string, accountId = limited.accountId, token = limited.admin) =>
    limited.http('POST', '/api/v1/devices', {
      body: { accountId, serialNumber: key },
      headers: { 'idempotency-key': key },
      token,
    });
  const [first] = [await make('1'), await make('2'), await make('3')];
  const refused = await make('4');
  t.match(refused, { status: 429, body: { error: { details: [{ path: 'Idempotency-Key' }] } } });
  t.match(refused.text, /idempotencyKeys \(SLIPWAY_MAX_IDEMPOTENCY_KEYS\): at most 3/);
  t.same((await make('1')).body, first?.body, 'what is kept is answered');
  t.equal((await make('4', other.accountId, other.admin)).status, 200);
  const { usage } = await limited.ok('GET', '/api/v1/usage');
  t.match(
    usage.limits.find(({ name }) => name === 'idempotencyKeys'),
    { limit: 3, used: 3 },
  );
});

t.test('after 72 hours the key is free again', async (t) => {
  const first = await post('/devices', { serialNumber: 'old' }, 'old key');
  now += 72 * 3_600_000 - 1;
  const replayed = await post('/devices', { serialNumber: 'old' }, 'old key');
  t.equal(replayed.body.device.id, first.body.device.id);
  now += 1;
  t.not((await post('/devices', { serialNumber: 'old' }, 'old key')).body.device.id, first.body.device.id);
});

t.end();
