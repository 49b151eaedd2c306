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

t.test('a form has at most 1,000 fields', async (t) => {
  const { accountId } = service;
  const fields = (count: number) => `&${Array.from({ length: count }, (_, at) => `f${at}=`).join('&')}`;
  const named = (name: string) => new URLSearchParams({ accountId, name }).toString();
  t.equal((await send('/api/v1/organizations', named('Full') + fields(998))).status, 200);
  t.match(await send('/api/v1/organizations', named('Too full') + fields(999)), {
    status: 400,
    body: { error: { code: 106, details: [{ path: 'body', message: 'has more than 1000 fields' }] } },
  });
});

t.test('a text that cannot be stored is named by its place, in lists and below', async (t) => {
  const place = async (more: object) => {
    const body = { accountId: service.accountId, name: 'Places', ...more };
    const { status, body: answer } = await service.http('POST', '/api/v1/organizations', { body });
    return status === 400 ? answer.error.details[0].path : status;
  };
  t.equal(await place({ a: [1, { b: ['\0'] }] }), 'a.1.b.0');
  t.equal(await place({ a: [{ '\ud800': 1 }] }), 'a.0.\ud800');
  t.equal(await place({ a: JSON.parse(`${'['.repeat(32)}${']'.repeat(32)}`) }), 200);
  t.match(await place({ a: JSON.parse(`${'['.repeat(33)}${']'.repeat(33)}`) }), /^a(\.0)+$/);
});
