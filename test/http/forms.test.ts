import t from 'tap';
import { adminEmail, adminPassword, type Service, startService } from '../support/service.js';

let service: Service;
t.before(async () => {
  service = await startService(t);
});

const send = (path: string, values: Record<string, string> | string, request: object = {}) =>
  service.http('POST', path, {
    body: new URLSearchParams(values).toString(),
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    ...request,
  });

t.test('a form is understood where JSON would be', async (t) => {
  const login = { emailAddress: adminEmail, password: adminPassword, accountId: service.accountId };
  t.equal((await send('/api/v1/auth/login-user', login, { token: null })).status, 200);
  const organization = await service.organization();
  const { accountId } = service;
  const endUser = {
    accountId,
    organizationId: organization.id,
    createIdmUser: 'true',
    idmUserEmail: 'form@example.com',
    idmUserPassword: 'a password in a form',
  };
  t.match(await send('/api/v1/end-users', endUser), {
    status: 200,
    body: { endUser: { organizationId: organization.id } },
  });
  const template = await service.template();
  await service.create('/devices/custom-fields', 'deviceField', {
    deviceTemplateId: template.id,
    name: 'size',
    fieldType: 'int',
  });
  const device = await send('/api/v1/devices', {
    accountId,
    serialNumber: '0007',
    latitude: '5',
    organizationId: 'null',
    size: '12',
    name: 'null',
    deviceTemplateId: template.id,
  });
  t.match(device, {
    status: 200,
    body: { device: { serialNumber: '0007', latitude: '5', organizationId: null, size: 12, name: null } },
  });
  const channel = {
    accountId,
    entityId: template.id,
    entityType: 'deviceTemplate',
    name: 'c',
    streamBridgeDelivery: '2',
  };
  t.match(await send('/api/v1/channels/templates', channel), {
    status: 200,
    body: { channelTemplate: { streamBridgeDelivery: 2 } },
  });
  t.match(await send('/api/v1/channels/templates', { ...channel, name: 'd', streamBridgeDelivery: 'two' }), {
    status: 400,
    body: { error: { code: 106 } },
  });
  t.match(await send('/api/v1/devices', { accountId, serialNumber: 'null' }), {
    status: 200,
    body: { device: { serialNumber: 'null' } },
  });
  t.match(await send('/api/v1/devices', '__proto__=x&serialNumber=1'), { status: 400 });
  t.match(await send('/api/v1/devices', ''), { status: 400 });
});
