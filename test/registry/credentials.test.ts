import t from 'tap';
import { type Service, startService } from '../support/service.js';

let service: Service;
t.before(async () => {
  service = await startService(t);
});

t.test('the first credential activates a device; the secret is in that answer and nowhere else', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'C-1' });
  const body = { entityId: device.id, entityType: 'device' };
  const first = await service.create('/access/mqtt-credentials', 'mqttCredential', body);
  t.match(first, {
    accountId: service.accountId,
    entityId: device.id,
    entityType: 'device',
    secret: /^[\w-]{43}$/,
    version: '1',
  });
  t.notOk('secretHash' in first);
  const { device: activated } = await service.ok('GET', `/api/v1/devices/${device.id}`);
  t.equal(activated.provisioningState, 'activated');
  t.not(activated.version, device.version);
  const second = await service.create('/access/mqtt-credentials', 'mqttCredential', body);
  t.not(second.secret, first.secret);
  t.equal(second.id, first.id);
  t.equal((await service.ok('GET', `/api/v1/devices/${device.id}`)).device.version, activated.version);
  const rows = await service.server.ctx.registry.query.selectFrom('credentials').selectAll().execute();
  const stored = JSON.stringify(rows);
  t.notOk(stored.includes(first.secret) || stored.includes(second.secret), 'stored hashed');
});

t.test('only for live devices of the account', async (t) => {
  const make = (body: object) =>
    service.http('POST', '/api/v1/access/mqtt-credentials', {
      body: { accountId: service.accountId, entityType: 'device', ...body },
    });
  t.match(await make({ entityId: 'nothing' }), {
    status: 400,
    body: { error: { code: 102, details: [{ path: 'entityId' }] } },
  });
  t.match(await make({ entityId: 'x', entityType: 'toaster' }), { status: 400, body: { error: { code: 106 } } });
  t.match(await make({ entityId: 'x', accountId: 'another' }), { status: 404, body: { error: { code: 100 } } });
  const device = await service.create('/devices', 'device', { serialNumber: 'C-2' });
  await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: device.version } });
  t.match(await make({ entityId: device.id }), { status: 400, body: { error: { code: 102 } } });
});
