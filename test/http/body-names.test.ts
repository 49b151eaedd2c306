/** Names in bodies that have no effect: named in a header, or refused with SLIPWAY_STRICT_BODIES. */
import type { OpenApi, Schema } from '../support/openapi.ts';
import { part } from '../support/part.ts';
import { type Entity, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
let strict: Service;
t.before(async () => {
  service = await sharedService(t);
  strict = await startService(t, { env: { SLIPWAY_STRICT_BODIES: 'true' } });
});

/** Entities with custom fields: what a body may have depends on their template, so these need one that exists. */
const withFields = ['devices', 'end-users', 'organizations', 'templates'].flatMap((kind) => [
  `/api/v1/${kind}`,
  `/api/v1/${kind}/{id}`,
]);

/** Read while they arrive, or in a thread; what they do not have is refused in any case. */
const readAsItComes = ['/api/v1/provisioning/jobs', '/api/v1/access/certificate-authorities/{id}/crl'];

const refused = (path: string) => ({ status: 400, detail: { path, message: /^is not a property of this endpoint/ } });
const said = ({ status, body }: { status: number; body: unknown }) => {
  const { error, attributes } = body as Partial<Record<'error' | 'attributes', { details: object[] }>>;
  return { status, detail: (attributes ?? error)?.details?.[0] };
};

t.test('strict: every endpoint refuses a property that its schema does not have', async (t) => {
  const document = (await strict.ok('GET', '/openapi.json', { token: null })) as unknown as OpenApi;
  const { id: appId, appToken } = await strict.create('/applications', 'application', {
    name: 'A',
    kind: 'endUserApp',
  });
  t.ok(appId);
  const { device, secret } = await strict.device();
  const basic = `Basic ${Buffer.from(`${device.id}:${secret}`).toString('base64')}`;
  const schemaOf = (schema: Schema): Schema =>
    schema.$ref ? (document.components.schemas[schema.$ref.split('/').at(-1) ?? ''] as Schema) : schema;
  let walked = 0;
  for (const [path, item] of Object.entries(document.paths))
    for (const [method, { requestBody, security = [] }] of Object.entries(item)) {
      const schema = requestBody?.content['application/json']?.schema;
      const isOfKind = withFields.includes(path) || path.includes('/templates');
      if (!schema || !schemaOf(schema).properties || isOfKind || readAsItComes.includes(path)) continue;
      const byApplication = /appToken/i.test(JSON.stringify(security));
      const answer = await strict.http(method.toUpperCase(), path.replace(/\{[^}]*\}/g, device.id), {
        body: { zzUnknown: 1 },
        ...(byApplication && { token: null }),
        headers: {
          etag: '1',
          ...(byApplication && { accesstoken: appToken }),
          ...(path.startsWith('/api/v1/firmware/') && !path.includes('packages') && !path.includes('rollouts')
            ? { authorization: basic }
            : {}),
        },
      });
      t.match(said(answer), refused('zzUnknown'), `${method} ${path}`);
      walked += 1;
    }
  t.ok(walked > 40, `${walked} endpoints`);
});

t.test('strict: an entity goes back as it came, with custom, read-only and expanded properties', async (t) => {
  const { accountId } = strict;
  const template = await strict.template();
  const field = { deviceTemplateId: template.id, name: 'room', fieldType: 'string' };
  await strict.create('/devices/custom-fields', 'deviceField', field);
  const body = { accountId, serialNumber: 'S-1', deviceTemplateId: template.id, room: '7' };
  const made = await strict.http('POST', '/api/v1/devices', { body });
  t.equal(made.status, 200, made.text);
  t.match(said(await strict.http('POST', '/api/v1/devices', { body: { ...body, roomm: '7' } })), refused('roomm'));
  const other = { accountId, serialNumber: 'S-2', room: '7' };
  t.match(said(await strict.http('POST', '/api/v1/devices', { body: other })), refused('room'), 'another template');

  const path = `/api/v1/devices/${made.body.device.id}`;
  const whole = (await strict.ok('GET', `${path}?expand=account,device-template,organization`)).device;
  const put = (more: object) =>
    strict.http('PUT', path, { body: { ...whole, ...more }, headers: { etag: whole.version } });
  t.match(said(await put({ serialNumbr: 'x' })), refused('serialNumbr'));
  const changed = await put({ serialNumber: 'S-3' });
  t.equal(changed.status, 200, changed.text);
  t.match(changed.headers.get('platform-ignored-properties'), /connected/, 'read-only ones are named as ever');

  for (const [kind, wrapper, create] of [
    ['organizations', 'organization', { name: 'North' }],
    ['devices/templates', 'deviceTemplate', { name: 'Kettle' }],
    ['end-users/templates', 'endUserTemplate', { name: 'Staff' }],
  ] as const) {
    const url = `/api/v1/${kind}`;
    const bad = await strict.http('POST', url, { body: { accountId, ...create, zzUnknown: 1 } });
    t.match(said(bad), refused('zzUnknown'), kind);
    const good: unknown = await strict.ok('POST', url, { body: { accountId, ...create } });
    const entity = (good as Record<string, Entity>)[wrapper] as Entity;
    const query = kind === 'organizations' ? '?expand=parent&count=devices,children' : '';
    const shown = (await strict.ok('GET', `${url}/${entity.id}${query}`)) as unknown as Record<string, Entity>;
    const again = (more: object) =>
      strict.http('PUT', `${url}/${entity.id}`, {
        body: { ...shown[wrapper], ...more },
        headers: { etag: entity.version },
      });
    t.match(said(await again({ zzUnknown: 1 })), refused('zzUnknown'), kind);
    t.equal((await again({})).status, 200, kind);
  }
});

t.test('strict: names within a body are looked at too', async (t) => {
  const { accountId } = strict;
  const ask = (path: string, body: object) => strict.http('POST', `/api/v1${path}`, { body });
  const batch = { requests: [{ method: 'GET', path: '/api/v1/profile/me', methd: 'x' }] };
  t.match(said(await ask('/batch', batch)), refused('requests.0.methd'));
  const wanted = { principal: { type: 'user', id: 'x', kind: 'y' }, action: 'read' };
  t.match(said(await ask('/permissions/explain', wanted)), refused('principal.kind'));
  const organization = await strict.organization();
  const idmUserProfile = { name: 'Eve', shoeSize: 37 };
  const person = { createIdmUser: true, idmUserEmail: 'eve@example.com', idmUserProfile };
  const made = await ask('/end-users', { accountId, organizationId: organization.id, ...person });
  t.match(said(made), refused('idmUserProfile.shoeSize'));
  const { device } = await strict.device();
  t.equal((await ask(`/devices/${device.id}/logs`, { message: 'x', whatever: 1 })).status, 200, 'any name is kept');
});

t.test('otherwise every endpoint names what had no effect', async (t) => {
  const login = await service.http('POST', '/api/v1/auth/login-user', {
    token: null,
    body: { emailAddress: 'nobody@example.com', password: 'x', accountId: service.accountId, emialAddress: 'y' },
  });
  t.equal(login.headers.get('platform-ignored-properties'), 'emialAddress');
  const batch = await service.http('POST', '/api/v1/batch', { body: { requests: [], dryRun: true } });
  t.equal(batch.headers.get('platform-ignored-properties'), 'dryRun');
});

t.test('of a name that a body has twice, the last value counts', async (t) => {
  const body = `{"accountId":"${service.accountId}","serialNumber":"FIRST","serialNumber":"LAST","name":"a","name":"b"}`;
  t.match((await service.ok('POST', '/api/v1/devices', { body })).device, { serialNumber: 'LAST', name: 'b' });
});

t.test('a PUT of an end-user with a person names the properties of its person', async (t) => {
  const organization = await service.organization();
  const { endUser } = await service.endUser(organization.id);
  const put = (id: string, version: string, body: object) =>
    service.http('PUT', `/api/v1/end-users/${id}`, {
      body: { organizationId: organization.id, ...body },
      headers: { etag: version },
    });
  const named = await put(endUser.id, endUser.version, { name: 'Eve', idmUserEmail: 'other@example.com', foo: 1 });
  t.equal(named.status, 200, named.text);
  t.equal(named.headers.get('platform-ignored-properties'), 'idmUserEmail, foo');
  const alone = await service.create('/end-users', 'endUser', { organizationId: organization.id });
  const person = { createIdmUser: true, idmUserEmail: 'new@example.com', idmUserPassword: 'a long enough secret' };
  const given = await put(alone.id, alone.version, person);
  t.equal(given.status, 200, given.text);
  t.equal(given.headers.get('platform-ignored-properties'), null, 'one without a person gets it');
});

t.end();
