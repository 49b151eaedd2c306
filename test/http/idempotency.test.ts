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

t.test('after 72 hours the key is free again', async (t) => {
  const first = await post('/devices', { serialNumber: 'old' }, 'old key');
  now += 72 * 3_600_000 - 1;
  const replayed: Json = await post('/devices', { serialNumber: 'old' }, 'old key');
  t.equal(replayed.body.device.id, first.body.device.id);
  now += 1;
  t.not((await post('/devices', { serialNumber: 'old' }, 'old key')).body.device.id, first.body.device.id);
});
