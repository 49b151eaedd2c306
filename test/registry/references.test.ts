import t from 'tap';
import { type Entity, type Service, startService } from '../support/service.js';

let service: Service;
t.before(async () => {
  service = await startService(t);
});

const unknown = (path: string) => ({ status: 400, body: { error: { code: 102, details: [{ path }] } } });
const counts = () =>
  Promise.all(
    ['devices', 'endUsers', 'organizations', 'customFields', 'channelTemplates', 'credentials'].map((table) =>
      service.server.ctx.registry.query
        .selectFrom(table as 'devices')
        .select((eb) => eb.fn.countAll<number>().as('count'))
        .execute(),
    ),
  );

t.test('an empty text refers to nothing, and never to a default', async (t) => {
  const organization = await service.organization();
  const { endUser } = await service.endUser(organization.id);
  const { device } = await service.device();
  const code = await service.ok('POST', '/api/v1/association/create-association-code', {
    body: { deviceId: device.id },
  });
  const { accountId } = service;
  const person = { createIdmUser: true, idmUserEmail: 'nobody@example.com' };
  const field = { name: 'f', fieldType: 'string' };
  const before = await counts();
  for (const [path, body, property] of [
    ['/devices', { serialNumber: 'x' }, 'deviceTemplateId'],
    ['/devices', { serialNumber: 'x' }, 'organizationId'],
    ['/end-users', { ...person, organizationId: organization.id }, 'endUserTemplateId'],
    ['/end-users', person, 'organizationId'],
    ['/end-users', { organizationId: organization.id }, 'userId'],
    ['/organizations', { name: 'x' }, 'organizationTemplateId'],
    ['/organizations', { name: 'x' }, 'parentId'],
    ['/devices/custom-fields', field, 'deviceTemplateId'],
    ['/end-users/custom-fields', field, 'endUserTemplateId'],
    ['/organizations/custom-fields', field, 'organizationTemplateId'],
    ['/channels/templates', { name: 'c', entityType: 'deviceTemplate' }, 'entityId'],
    ['/access/mqtt-credentials', { entityType: 'device' }, 'entityId'],
    ['/account-users', {}, 'userId'],
    ['/association/start-association-with-code', code, 'endUserId'],
    ['/association/start-association-with-code', code, 'organizationId'],
  ] as Array<[string, object, string]>) {
    const title = `${path} ${property}`;
    const request = { accountId, ...body, [property]: '' };
    t.match(await service.http('POST', `/api/v1${path}`, { body: request }), unknown(property), title);
    const form = {
      body: new URLSearchParams(request as Record<string, string>).toString(),
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
    };
    t.match(await service.http('POST', `/api/v1${path}`, form), unknown(property), `${title}, as a form`);
  }
  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  for (const [path, entity, property] of [
    ['/devices', { ...device, version }, 'organizationId'],
    ['/end-users', endUser, 'organizationId'],
    ['/organizations', organization, 'parentId'],
  ] as Array<[string, Pick<Entity, 'id' | 'version'>, string]>) {
    const request = { headers: { etag: entity.version }, body: { [property]: '' } };
    t.match(await service.http('PUT', `/api/v1${path}/${entity.id}`, request), unknown(property), `PUT ${path}`);
  }
  t.same(await counts(), before);
});

t.test('nor for the first step of a newcomer, whose refused steps do not count', async (t) => {
  const { endUser, token } = await service.endUser((await service.organization()).id);
  await service.ok('DELETE', `/api/v1/end-users/${endUser.id}`, { headers: { etag: endUser.version } });
  const before = await counts();
  const post = (body: object) =>
    service.http('POST', '/api/v1/organizations', {
      body: { accountId: service.accountId, name: 'Mine', ...body },
      token,
    });
  for (let n = 0; n < 4; n += 1) t.match(await post({ endUserTemplateId: '' }), unknown('endUserTemplateId'));
  const { endUserTemplateId } = endUser;
  t.match(await post({ endUserTemplateId, organizationTemplateId: '' }), unknown('organizationTemplateId'));
  t.same(await counts(), before);
  t.match(await post({ endUserTemplateId }), {
    status: 200,
    body: { organization: { defaultEndUser: { userId: endUser.userId } } },
  });
});
