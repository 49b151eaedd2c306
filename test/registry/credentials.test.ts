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

t.test('an end-user makes a secret for itself, and for nobody else', async (t) => {
  const organization = await service.organization();
  const below = await service.organization({ parentId: organization.id });
  const { endUser, token } = await service.endUser(organization.id);
  const colleague = await service.endUser(organization.id);
  const { device } = await service.device({ organizationId: organization.id });
  const { userId } = endUser;
  const second = await service.create('/end-users', 'endUser', { organizationId: below.id, userId });
  const list = await service.ok('GET', `/api/v1/account-users?accountId=${service.accountId}`);
  const make = (entityType: string, entityId: string) => {
    const body = { accountId: service.accountId, entityType, entityId };
    return service.http('POST', '/api/v1/access/mqtt-credentials', { token, body });
  };
  for (const { id } of [endUser, second]) {
    const { status, body } = await make('endUser', id);
    t.equal(status, 200);
    t.match(body.mqttCredential, { entityId: id, entityType: 'endUser', createdById: userId });
    const client = await service.connect({ deviceId: id, secret: body.mqttCredential.secret });
    t.ok(client.connected);
  }
  await service.ok('DELETE', `/api/v1/end-users/${second.id}`, { headers: { etag: second.version } });
  for (const [entityType, entityId] of [
    ['endUser', colleague.endUser.id],
    ['endUser', second.id],
    ['endUser', userId],
    ['accountUser', list.accountUsers.results[0].id],
    ['accountUser', endUser.id],
    ['device', device.id],
    ['device', endUser.id],
    ['endUser', 'nothing'],
  ] as const) {
    const { status, body } = await make(entityType, entityId);
    t.match({ status, body }, { status: 400, body: { error: { code: 102, details: [{ path: 'entityId' }] } } });
  }
});
