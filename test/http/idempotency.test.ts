import { connect } from 'node:net';
import t from 'tap';
import { type Json, type Service, startService } from '../support/service.js';

let now = Date.parse('2026-05-01T00:00:00Z');
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now } });
});

const post = (path: string, body: object, key: string, token?: string) =>
  service.http('POST', `/api/v1${path}`, {
    body: { accountId: service.accountId, ...body },
    headers: { 'idempotency-key': key },
    ...(token && { token }),
  });
const deviceCount = async () =>
  (await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&results=false`)).devices.meta.count;

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
  const stored = JSON.stringify(
    await service.server.ctx.registry.query.selectFrom('idempotentAnswers').selectAll().execute(),
  );
  t.notMatch(stored, first.secret);
  t.notMatch(stored, 'a secret key');
  await service.connect({ deviceId: device.id, secret: first.secret });
  t.match(await ask(), { status: 410, body: { error: { code: 106 } } });
  t.ok(await service.connect({ deviceId: device.id, secret: first.secret }), 'and nothing was made anew');
});

t.test('a crash between the commit and the answer makes nothing twice', async (t) => {
  const { registry } = service.server.ctx;
  const first = await post('/devices', { serialNumber: 'crash' }, 'crashed');
  await registry.query
    .updateTable('idempotentAnswers')
    .set({ answer: null, status: null })
    .where('entityId', '=', first.body.device.id)
    .execute();
  const before = await deviceCount();
  t.same((await post('/devices', { serialNumber: 'crash' }, 'crashed')).body.device, first.body.device);
  t.equal(await deviceCount(), before);
});

t.test('a caller that goes away in the middle gets the answer when it asks again', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'abort' });
  const body = JSON.stringify({ accountId: service.accountId, entityId: device.id, entityType: 'device' });
  const { port } = new URL(service.server.url);
  const socket = connect(Number(port), '127.0.0.1');
  const made = new Promise<void>((resolve) => {
    const { registry } = service.server.ctx;
    const original = registry.transaction;
    registry.transaction = async (work) => {
      registry.transaction = original;
      socket.destroy();
      const result = await original.call(registry, work);
      resolve();
      return result as never;
    };
  });
  socket.write(
    `POST /api/v1/access/mqtt-credentials HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${service.admin}\r\nIdempotency-Key: gone\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  await made;
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

t.test('after 72 hours the key is free again', async (t) => {
  const first = await post('/devices', { serialNumber: 'old' }, 'old key');
  now += 72 * 3_600_000 - 1;
  const replayed: Json = await post('/devices', { serialNumber: 'old' }, 'old key');
  t.equal(replayed.body.device.id, first.body.device.id);
  now += 1;
  t.not((await post('/devices', { serialNumber: 'old' }, 'old key')).body.device.id, first.body.device.id);
});
