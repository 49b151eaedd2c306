/** Stations: what they may, what they may not, and when it ends. The matrix has every other endpoint. */

import { randomUUID } from 'node:crypto';
import { audited } from '../support/audited.ts';
import { beforeTransaction } from '../support/faults.ts';
import { follow, postRows } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import { accountUser } from '../support/roles.ts';
import { closed, type Made, present, type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';

const t = await part(import.meta);

const start = Date.parse('2026-03-01T00:00:00Z');
const hour = 60 * 60_000;
const time = { now: start };
let service: Service;
let template: Made<'deviceTemplate'>;
let organization: Made<'organization'>;
t.before(async () => {
  service = await startService(t, { clock: { now: () => time.now } });
  template = await service.template({ channels: ['temperature'] });
  organization = await service.organization();
});
t.beforeEach(() => {
  time.now = start;
});

const limits = () => ({
  kind: 'station',
  deviceTemplateId: template.id,
  organizationId: organization.id,
  maxDevices: 100,
  expiresAt: new Date(start + hour).toISOString(),
});
const login = ({ id: appId, appToken }: Record<'id' | 'appToken', string>) =>
  service.http('POST', '/api/v1/auth/login-application', {
    token: null,
    body: { appId, appToken, accountId: service.accountId },
  });

/** A station, logged in. */
async function station(body: object = {}): Promise<{ id: string; appToken: string; jwt: string }> {
  const made = await service.create('/applications', 'application', {
    name: service.unique('Station'),
    ...limits(),
    ...body,
  });
  return { ...made, jwt: (await login(made)).body.jwt };
}

const post = (path: string, token: string, body: object, headers: Record<string, string> = {}) =>
  service.http('POST', `/api/v1${path}`, { token, headers, body: { accountId: service.accountId, ...body } });
const make = (token: string, body: object = {}, headers: Record<string, string> = {}) =>
  post('/devices', token, { serialNumber: service.unique('S'), ...body }, headers);
const madeDevices = async (id: string): Promise<number> =>
  (await service.ok('GET', `/api/v1/applications/${id}`)).application.madeDevices;
const find = (token: string, query: string) =>
  service.http('GET', `/api/v1/devices?accountId=${service.accountId}&${query}`, { token });

t.test('a station is made with its limits, all of them and right', async (t) => {
  const { id, appToken: _, jwt: __ } = await station();
  t.match((await service.ok('GET', `/api/v1/applications/${id}`)).application, {
    ...limits(),
    madeDevices: 0,
    appToken: undefined,
  });
  const gone = await service.template();
  await service.ok('DELETE', `/api/v1/devices/templates/${gone.id}`, { headers: { etag: gone.version } });
  for (const [body, code, path] of [
    [{ deviceTemplateId: undefined }, 106, 'deviceTemplateId'],
    [{ deviceTemplateId: 'nothing' }, 102, 'deviceTemplateId'],
    [{ deviceTemplateId: gone.id }, 102, 'deviceTemplateId'],
    [{ organizationId: 'nothing' }, 102, 'organizationId'],
    [{ maxDevices: undefined }, 106, 'maxDevices'],
    [{ maxDevices: 0 }, 106, 'maxDevices'],
    [{ maxDevices: 1.5 }, 106, 'maxDevices'],
    [{ expiresAt: undefined }, 106, 'expiresAt'],
    [{ expiresAt: 'tomorrow' }, 106, 'expiresAt'],
    [{ expiresAt: '2026-02-30' }, 106, 'expiresAt'],
    [{ expiresAt: new Date(start).toISOString() }, 106, 'expiresAt'],
    [{ kind: 'backEnd' }, 106, 'deviceTemplateId'],
    [
      { kind: 'backEnd', deviceTemplateId: undefined, organizationId: undefined, maxDevices: undefined },
      106,
      'expiresAt',
    ],
  ] as const) {
    const answer = await post('/applications', service.admin, { name: 'x', ...limits(), ...body });
    t.match(answer, { status: 400, body: { error: { code, details: [{ path }] } } }, JSON.stringify(body));
  }
});

t.test('it provisions a unit: device, secret and code, in its place, and the unit works', async (t) => {
  const { id, jwt } = await station();
  const { status, body } = await make(jwt);
  t.equal(status, 200);
  const { device } = body;
  const place = { deviceTemplateId: template.id, organizationId: organization.id };
  t.match(device, { ...place, createdById: id, provisioningState: 'defined' });
  const named = { entityId: device.id, entityType: 'device' };
  const { secret } = (await post('/access/mqtt-credentials', jwt, named)).body.mqttCredential;
  const code = await post('/association/create-association-code', jwt, { deviceId: device.id });
  t.match(code, { status: 200, body: { associationCode: /^\w{4}-\w{4}-\w{4}$/ } });
  const client = await service.connect({ deviceId: device.id, secret });
  await client.publishAsync(service.topic(device.id, 'temperature'), '21', { qos: 1 });
  t.equal((await make(jwt, place)).status, 200, 'it may name what is its own');
  t.equal(await madeDevices(id), 2);
});

t.test('another template or organization looks like none', async (t) => {
  const { id, jwt } = await station();
  const other = await service.template();
  const elsewhere = await service.organization({ parentId: organization.id });
  for (const body of [
    { deviceTemplateId: other.id },
    { deviceTemplateId: 'nothing' },
    { organizationId: elsewhere.id },
    { organizationId: null },
    { organizationId: 'nothing' },
  ])
    t.match(await make(jwt, body), {
      status: 400,
      body: { error: { code: 102, details: [{ path: Object.keys(body)[0] }] } },
    });
  const rows = { rows: [{ serialNumber: 'S' }] };
  const said = async (name: string, text: string) => {
    const path = `/api/v1/provisioning/jobs?dryRun=true&${name}=${encodeURIComponent(text)}`;
    const answer = await service.http('POST', path, { body: rows, token: jwt });
    return [answer.status, answer.text.replaceAll(text, 'given').replace(/"requestId":"[^"]*"/, '')];
  };
  const namesakes = await service.organization({ name: 'Namesake' });
  await service.organization({ name: 'Namesake', parentId: namesakes.id });
  for (const [name, theirs] of [
    ['template', [other.id, other.name]],
    ['organization', [elsewhere.id, elsewhere.name, 'Namesake']],
  ] as const)
    for (const text of theirs) {
      // By id or by name, as what does not exist.
      const none = /^[0-9a-f-]{36}$/.test(text) ? randomUUID() : 'nothing';
      t.strictSame(await said(name, text), await said(name, none), `${name} ${text}`);
    }
  t.equal((await said('organization', organization.name))[0], 202, 'its own has a name');
  t.equal(await madeDevices(id), 0, 'and nothing is counted');
  const { jwt: free } = await station({ organizationId: null });
  t.match(await make(free), { status: 200, body: { device: { organizationId: null } } });
  t.match(await make(free, { organizationId: organization.id }), { status: 400, body: { error: { code: 102 } } });
});

t.test(
  'it makes a serial number of its template once, no matter who has made that, and not twice at once either',
  async (t) => {
    const [first, second] = [await station(), await station()];
    const taken = {
      status: 400,
      body: {
        error: {
          code: 106,
          details: [{ path: 'serialNumber', message: 'Another device of the template has this serial number.' }],
        },
      },
    };
    const serialNumber = service.unique('ONCE');
    const both = await Promise.all(
      [first, second].flatMap(({ jwt }) => [make(jwt, { serialNumber }), make(jwt, { serialNumber })]),
    );
    t.equal(both.filter(({ status }) => status === 200).length, 1);
    for (const answer of both) if (answer.status !== 200) t.match(answer, taken);
    t.equal((await madeDevices(first.id)) + (await madeDevices(second.id)), 1, 'what is refused is not counted');

    const { device } = await service.device({ deviceTemplateId: template.id });
    t.match(
      await make(second.jwt, { serialNumber: device.serialNumber }),
      taken,
      'made by an admin, in no organization',
    );
    const other = await service.device();
    t.equal((await make(second.jwt, { serialNumber: other.device.serialNumber })).status, 200, 'of another template');
    await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: '2' } });
    t.equal((await make(second.jwt, { serialNumber: device.serialNumber })).status, 200, "it is nobody's any more");
  },
);

t.test('twenty at once do not get past its count, and what is deleted is not given back', async (t) => {
  const { id, jwt } = await station({ maxDevices: 5 });
  const answers = await Promise.all(Array.from({ length: 20 }, () => make(jwt)));
  const made = answers.filter(({ status }) => status === 200);
  t.equal(made.length, 5);
  for (const { status, body } of answers)
    if (status !== 200)
      t.match({ status, body }, { status: 403, body: { error: { code: 21, message: /5 of its 5 devices/ } } });
  t.equal(countStored(service, 'devices', '"createdById" = ?', [id]), 5);
  const { device } = present(made[0]).body;
  await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: device.version } });
  t.equal((await make(jwt)).status, 403);
  t.equal(await madeDevices(id), 5);
});

t.test('a dry run says how many it may still make, as the job does', async (t) => {
  const { jwt: token } = await station({ maxDevices: 3 });
  t.equal((await make(token)).status, 200);
  const rows = Array.from({ length: 4 }, () => ({ serialNumber: service.unique('R') }));
  const run = async (query: string) => {
    const { body } = await postRows(service, rows, query, { token });
    const { done, failed } = (await follow(service, body.job.id, token)).at(-1);
    const answer = await service.ok('GET', `/api/v1/provisioning/jobs/${body.job.id}/rows`, { token });
    return [done, failed, answer.rows.results.map(({ state, errors }) => [state, errors])];
  };
  const dry = await run('?dryRun=true');
  t.match(dry, [2, 2]);
  t.strictSame(await run(''), dry);
});

t.test('what is refused is not counted, and a request that is sent again is counted once', async (t) => {
  const { id, jwt } = await station();
  t.equal((await make(jwt, { latitude: 91 })).status, 400);
  const again = () => make(jwt, { serialNumber: 'again' }, { 'idempotency-key': 'unit 1' });
  const [first, second] = [await again(), await again()];
  t.equal(first.body.device.id, second.body.device.id);
  t.equal(await madeDevices(id), 1);
});

t.test('it finds its own devices by their whole serial number, and sees nothing else', async (t) => {
  const { jwt } = await station();
  const another = await station();
  const serialNumber = 'Serial 4711';
  const { device } = (await make(jwt, { serialNumber })).body;
  await make(another.jwt, { serialNumber });
  await service.create('/devices', 'device', { ...limits(), serialNumber });
  const idsIn = ({ body }: Awaited<ReturnType<typeof find>>) => body.devices.results.map(({ id }) => id);
  const found = await find(jwt, 'serialNumber=Serial%204711');
  t.match(found.body.devices.meta, { count: 1 });
  t.strictSame(idsIn(found), [device.id]);
  t.strictSame(idsIn(await find(jwt, 'serialNumber=Serial%20471')), [], 'a part of it finds nothing');
  for (const query of ['', 'provisioningState=defined'])
    t.match(await find(jwt, query), {
      status: 400,
      body: { error: { code: 106, details: [{ path: 'serialNumber' }] } },
    });
  t.match(await find(jwt, 'serialNumber=Serial%204711&expand=organization'), { status: 403 });
  const path = `/api/v1/devices/${device.id}`;
  t.equal((await service.http('GET', path, { token: jwt })).status, 200);
  t.equal((await service.http('GET', `${path}?expand=device-template`, { token: jwt })).status, 403);
  t.equal((await service.http('GET', path, { token: another.jwt })).status, 404);
  const customer = await service.organization();
  await service.ok('PUT', path, { body: { organizationId: customer.id }, headers: { etag: device.version } });
  t.equal(
    (await service.http('GET', path, { token: jwt })).status,
    404,
    'once it is a customer’s, it is the customer’s',
  );
  t.strictSame(idsIn(await find(jwt, 'serialNumber=Serial%204711')), []);
  const named = { entityId: device.id, entityType: 'device' };
  t.match(await post('/access/mqtt-credentials', jwt, named), { status: 400, body: { error: { code: 102 } } });
});

t.test('a station token connects nowhere', async (t) => {
  const { jwt } = await station();
  await t.rejects(service.connect({ jwt }), { code: 5 });
  const topic = service.topic('x', 'temperature');
  t.equal((await post(`/messaging/publish/${topic}`, jwt, {})).status, 403);
  t.equal((await service.http('GET', '/api/v1/stream?topics=%23', { token: jwt })).status, 403);
});

t.test('it ends when it expires: no session outlives it, and it cannot log in again', async (t) => {
  const made = await station();
  time.now = start + hour - 1;
  const { jwt: renewed } = await service.ok('POST', '/api/v1/sessions/renew-session', { token: made.jwt });
  t.equal((await make(renewed)).status, 200);
  const { jwt: late } = (await login(made)).body;
  const [, claims = ''] = late.split('.');
  t.equal(JSON.parse(Buffer.from(claims, 'base64url').toString()).expires, start + hour);
  time.now = start + hour;
  for (const token of [made.jwt, late]) t.match(await make(token), { status: 401, body: { error: { code: 31 } } });
  t.match(await login(made), { status: 401, body: { message: 'The station has expired.' } });
  t.match(await login({ ...made, appToken: 'wrong' }), { status: 401, body: { message: 'Unauthorized' } });
});

t.test('its name and its limits are changed, and its sessions end with the new end', async (t) => {
  const { id, jwt, ...made } = await station();
  const change = async (body: object, token = service.admin) => {
    const etag = (await service.ok('GET', `/api/v1/applications/${id}`)).application.version;
    return service.http('PUT', `/api/v1/applications/${id}`, { token, headers: { etag }, body });
  };
  const soon = new Date(time.now + hour / 2).toISOString();
  const changed = await change({ name: 'Line 2', maxDevices: 1, expiresAt: soon });
  t.match(changed, { status: 200, body: { application: { name: 'Line 2', maxDevices: 1, expiresAt: soon } } });
  t.equal((await make(jwt)).status, 200);
  t.match(await make(jwt), { status: 403 }, 'no more than it may make now');
  t.equal((await change({ maxDevices: 2 })).status, 200);
  t.equal((await make(jwt)).status, 200);
  for (const [body, path] of [
    [{ maxDevices: 0 }, 'maxDevices'],
    [{ expiresAt: 'tomorrow' }, 'expiresAt'],
    [{ expiresAt: new Date(time.now).toISOString() }, 'expiresAt'],
  ] as const)
    t.match(await change(body), { status: 400, body: { error: { code: 106, details: [{ path }] } } });
  const role = await service.create('/roles', 'role', {
    name: 'Renames programs',
    scope: 'account',
    rights: { application: ['read', 'update'] },
  });
  const { token } = await accountUser(service, { roleId: role.id });
  t.equal((await change({ name: 'Line 3' }, token)).status, 200);
  t.equal((await change({ maxDevices: 9 }, token)).status, 403, 'who may not make devices gives no room for them');
  time.now += hour / 2;
  t.match(await make(jwt), { status: 401, body: { error: { code: 31 } } });
  t.equal((await login({ ...made, id })).status, 401);
  t.equal((await change({ expiresAt: new Date(time.now + hour).toISOString() })).status, 200);
  t.equal((await login({ ...made, id })).status, 200);
  const { application } = await service.ok('POST', '/api/v1/applications', {
    body: { accountId: service.accountId, name: 'app', kind: 'endUserApp' },
  });
  const refused = await service.http('PUT', `/api/v1/applications/${application.id}`, {
    headers: { etag: application.version },
    body: { maxDevices: 3 },
  });
  t.match(refused, { status: 400, body: { error: { details: [{ path: 'maxDevices' }] } } });
});

t.test('a write that began before the expiry is refused after it', async (t) => {
  const { jwt, id } = await station();
  beforeTransaction(t, service, 'POST /api/v1/devices', async () => {
    time.now = start + hour;
  });
  t.match(await make(jwt), { status: 403, body: { error: { code: 21, message: 'The station has expired.' } } });
  t.equal(await madeDevices(id), 0);
});

t.test('its deletion ends it at once, also in the middle of its work', async (t) => {
  const { id, jwt } = await station();
  const answers = Promise.all(Array.from({ length: 20 }, () => make(jwt)));
  await service.ok('DELETE', `/api/v1/applications/${id}`);
  for (const { status } of await answers) t.ok([200, 401, 403].includes(status), String(status));
  t.match(await make(jwt), { status: 401, body: { error: { code: 31 } } });
});

t.test('every use of it is in the audit record, with the endpoint', async (t) => {
  const { id, jwt } = await station();
  const { device } = (await make(jwt)).body;
  await make(jwt);
  await service.http('GET', `/api/v1/devices/${device.id}`, { token: jwt });
  await service.http('GET', `/api/v1/audit?accountId=${service.accountId}`, { token: jwt });
  const requests = [{ method: 'GET', path: `/api/v1/devices/${device.id}` }];
  await service.http('POST', '/api/v1/batch', { token: jwt, body: { requests } });
  await t.rejects(service.connect({ jwt }));
  await audited(service, `actorId=${id}&event=tokenUsed`, 7);
  const said = (await audited(service, `actorId=${id}&sortOrder=asc`)).map(
    ({ event, details }) => [event, String(details.endpoint ?? details.over)] as const,
  );
  t.strictSame(
    said.filter(([event]) => event === 'tokenUsed'),
    [
      'POST /api/v1/devices',
      'POST /api/v1/devices',
      'GET /api/v1/devices/:id',
      'GET /api/v1/audit',
      'POST /api/v1/batch',
      'GET /api/v1/devices/:id',
      'mqtt',
    ].map((endpoint) => ['tokenUsed', endpoint]),
  );
  t.ok(said.some(([event]) => event === 'applicationLogin'));
  t.ok(said.some(([event, endpoint]) => event === 'permissionRefused' && endpoint === 'GET /api/v1/audit'));
});

t.test('explain says of it what HTTP does', async (t) => {
  const { id, jwt } = await station();
  const { device: own } = (await make(jwt)).body;
  const { device: other } = await service.device({ ...limits() });
  const explain = (action: string, entity: object) =>
    service
      .ok('POST', '/api/v1/permissions/explain', {
        body: { principal: { type: 'application', id }, action, entity },
      })
      .then(({ allowed, rule }) => [allowed, rule]);
  const here = organization.id;
  t.strictSame(await explain('read', { type: 'device', id: own.id }), [true, 'made by the station']);
  t.strictSame(await explain('read', { type: 'device', id: other.id }), [false, 'outside the reach']);
  t.strictSame(await explain('update', { type: 'device', id: own.id }), [false, 'role may not do this']);
  t.strictSame(await explain('read', { type: 'organization', id: here }), [false, 'role may not do this']);
  t.strictSame(await explain('create', { type: 'device', id: here }), [true, 'made by the station']);
  t.strictSame(await explain('create', { type: 'device', id: null }), [false, 'outside the reach']);
});

t.test('a station has no MQTT connections, so none end with it', async (t) => {
  const { id, jwt } = await station();
  const { device } = (await make(jwt)).body;
  const named = { entityId: device.id, entityType: 'device' };
  const { secret } = (await post('/access/mqtt-credentials', jwt, named)).body.mqttCredential;
  const client = await service.connect({ deviceId: device.id, secret });
  await service.ok('DELETE', `/api/v1/applications/${id}`);
  const topic = service.topic(device.id, 'temperature');
  await client.publishAsync(topic, '21', { qos: 1 });
  t.ok(client.connected, 'the units that it has made go on');
  client.end(true);
  await closed(client);
});

t.end();
