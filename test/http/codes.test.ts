import { request } from 'node:http';
import Sqlite from 'better-sqlite3';
import { checkCharacter } from '../../src/registry/credentials/association-codes.ts';
import { whileRegistryFails, whileWatchesEnd } from '../support/faults.ts';
import { documentOf } from '../support/openapi.ts';
import { part } from '../support/part.ts';
import { type Answer, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

/** Every documented error code. */
const documentedCodes = [100, 102, 103, 104, 105, 106, 107, 108, 109, 110, 30, 31, 20, 21, -199];

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const http = (method: string, path: string, request: object = {}) => service.http(method, `/api/v1${path}`, request);
const post = (path: string, body: object, request: object = {}) =>
  http('POST', path, { body: { accountId: service.accountId, ...body }, ...request });
const drop = (path: string, etag?: string) => http('DELETE', path, { headers: etag === undefined ? {} : { etag } });
const device = () => service.create('/devices', 'device', { serialNumber: 'C' });
const start = (associationCode: string, organizationId: string, token = service.admin) =>
  post('/association/start-association-with-code', { associationCode, organizationId }, { token });

async function trashed() {
  const { id, version } = await device();
  await drop(`/devices/${id}`, version);
  return { id, version };
}

const broken = (method: 'session' | 'transaction', error: Error, work: () => Promise<Answer>) =>
  whileRegistryFails(service, method, error, work);

const table: Array<[code: number, status: number, when: string, request: () => Promise<Answer>]> = [
  [100, 404, 'there is no such device', () => http('GET', '/devices/nothing')],
  [102, 400, 'the template does not exist', () => post('/devices', { serialNumber: 'C', deviceTemplateId: 'nothing' })],
  [103, 400, 'the etag is missing', async () => drop(`/devices/${(await device()).id}`)],
  [103, 412, 'the etag could never be a version', async () => drop(`/devices/${(await device()).id}`, '!')],
  [104, 400, 'a default template is deleted', dropDefault],
  [105, 400, 'an organization would be on the sixth level', nest],
  [106, 400, 'a value is beyond its limits', () => post('/devices', { serialNumber: 'C', latitude: 91 })],
  [106, 400, 'a name is taken', () => post('/end-users/templates', { name: 'Default' })],
  [106, 410, 'the secret of a kept answer has been used', replayUsed],
  [106, 413, 'the body is too large', () => post('/devices', { serialNumber: 'x'.repeat(2_000_000) })],
  [
    106,
    415,
    'the media type is not supported',
    () => post('/devices', {}, { headers: { 'content-type': 'text/xml' } }),
  ],
  [106, 422, 'a deleted device is claimed', claimDeleted],
  [107, 410, 'the device is in the trash', async () => http('GET', `/devices/${(await trashed()).id}`)],
  [108, 412, 'the etag is stale', async () => drop(`/devices/${(await device()).id}`, 'zz')],
  [109, 416, 'the page is past the end', () => http('GET', `/devices?accountId=${service.accountId}&page=1000`)],
  [110, 400, 'the email is an admin’s', admittedTwice],
  [30, 401, 'there is no token', () => http('GET', '/devices', { token: null })],
  [31, 401, 'the token is invalid', () => http('GET', '/devices', { token: 'no.such.token' })],
  [20, 403, 'an appToken is sent where a JWT is wanted', withAppToken],
  [21, 403, 'an end-user makes a template', forbidden],
  [-199, 429, 'too many codes have been tried', guess],
  [-199, 500, 'something breaks', () => broken('session', new Error('broken'), () => http('GET', '/devices'))],
  [-199, 503, 'the service stops while a unit is waited for', stopMeanwhile],
  [-199, 507, 'the disk is full', () => broken('transaction', full(), () => post('/devices', { serialNumber: 'C' }))],
];

for (const [code, status, when, request] of table)
  t.test(`${code} with ${status} when ${when}`, async (t) => {
    const answer = await request();
    t.match(answer, { status, body: { error: { code, message: String, details: Array }, requestId: String } });
    if (status === 429) t.match(answer.headers.get('retry-after'), /^\d+$/);
  });

t.test('that is every code of the spec, and every one that the OpenAPI document names', async (t) => {
  const shown = new Set(table.map(([code, status]) => `${code}/${status}`));
  t.strictSame([...new Set(table.map(([code]) => code))].sort(), [...documentedCodes].sort());
  const documented = new Set<string>();
  for (const operations of Object.values(documentOf(service).paths))
    for (const { tags, 'x-codes': codes } of Object.values(operations))
      for (const [status, list] of tags.includes('Identity') ? [] : Object.entries(codes))
        for (const code of list) documented.add(`${code}/${status}`);
  t.strictSame([...documented].sort(), [...shown].sort());
});

async function dropDefault(): Promise<Answer> {
  const query = `accountId=${service.accountId}&default=true`;
  const { deviceTemplates } = await service.ok('GET', `/api/v1/devices/templates?${query}`);
  const [{ id, version }] = deviceTemplates.results;
  return drop(`/devices/templates/${id}`, version);
}

async function withAppToken(): Promise<Answer> {
  const { appToken } = await service.create('/applications', 'application', { name: 'C', kind: 'backEnd' });
  return http('GET', '/devices', { token: appToken });
}

async function nest(): Promise<Answer> {
  let parentId: string | null = null;
  for (let level = 1; level <= 5; level += 1) parentId = (await service.organization({ parentId })).id;
  return post('/organizations', { name: 'Too deep', parentId });
}

async function replayUsed(): Promise<Answer> {
  const { id } = await device();
  const ask = () =>
    post(
      '/access/mqtt-credentials',
      { entityId: id, entityType: 'device' },
      { headers: { 'idempotency-key': 'once' } },
    );
  const { secret } = (await ask()).body.mqttCredential;
  await service.connect({ deviceId: id, secret });
  return ask();
}

async function claimDeleted(): Promise<Answer> {
  const { id, version } = await device();
  const { associationCode } = (await post('/association/create-association-code', { deviceId: id })).body;
  await drop(`/devices/${id}`, version);
  return start(associationCode, (await service.organization()).id);
}

async function admittedTwice(): Promise<Answer> {
  const body = { createIdmUser: true, idmUserEmail: 'twice@example.com', idmUserPassword: 'a long enough secret' };
  await service.create('/account-users', 'accountUser', body);
  const { id: organizationId } = await service.organization();
  return post('/end-users', { ...body, organizationId });
}

async function forbidden(): Promise<Answer> {
  const { token } = await service.endUser((await service.organization()).id);
  return post('/devices/templates', { name: 'Mine' }, { token });
}

async function guess(): Promise<Answer> {
  const { id } = await service.organization();
  const { token } = await service.endUser(id);
  const unknown = (n: number) => {
    const characters = String(n).padStart(11, '0');
    return characters + checkCharacter(characters);
  };
  for (let n = 0; n < 10; n += 1) await start(unknown(n), id, token);
  return start(unknown(10), id, token);
}

async function stopMeanwhile(): Promise<Answer> {
  const { id } = await device();
  return whileWatchesEnd(service, () => post('/provisioning/verify', { deviceId: id }));
}

function full(): Error {
  return new Sqlite.SqliteError('database or disk is full', 'SQLITE_FULL');
}

const foreign = 'f7a55bd4-8f8e-4b92-8b47-111111111111';

t.test('a wrong accountId is named', async (t) => {
  const named = { status: 404, body: { error: { code: 100, details: [{ path: 'accountId' }] } } };
  t.match(await service.http('GET', `/api/v1/devices?accountId=${foreign}`), named);
  t.match(await service.http('GET', '/api/v1/devices?accountId=typo'), named, 'and looks like one that is foreign');
  t.match(await service.http('POST', '/api/v1/devices', { body: { accountId: foreign, serialNumber: 'x' } }), named);
  t.match(await service.http('GET', `/api/v1/audit?accountId=${foreign}`), named);
});

t.test('an unsupported method answers 405 with Allow', async (t) => {
  const { device } = await service.device();
  for (const [method, path, allow] of [
    ['PATCH', `/api/v1/devices/${device.id}`, 'DELETE, GET, HEAD, PUT'],
    ['PATCH', `/api/v1/devices/${device.id}/?x=1`, 'DELETE, GET, HEAD, PUT'],
    ['PUT', '/api/v1/devices', 'GET, HEAD, POST'],
    ['GET', '/api/v1/auth/login-user', 'POST'],
    ['DELETE', `/api/v4/data/${service.topic(device.id, 'x')}`, 'GET, HEAD, POST'],
    ['POST', '/health/live', 'GET, HEAD'],
  ] as const) {
    const answer = await service.http(method, path);
    t.match(answer, { status: 405, body: { error: { code: 106, message: new RegExp(allow) } } }, `${method} ${path}`);
    t.equal(answer.headers.get('allow'), allow);
  }
  t.match(await service.http('PATCH', '/api/v1/nothing'), { status: 404, body: { error: { code: 100 } } });
});

t.test('all properties that are missing are named at once', async (t) => {
  const missing = async (path: string, body: object) => {
    const { error } = (await service.http('POST', `/api/v1${path}`, { body })).body;
    return error.details.map(({ path, message }: { path: string; message: string }) => `${path} ${message}`);
  };
  t.same(await missing('/devices', {}), ['accountId is required', 'serialNumber is required']);
  t.same(await missing('/channels/templates', { accountId: 'x' }), [
    'entityId is required',
    'entityType is required',
    'name is required',
  ]);
  t.same(await missing('/batch', { requests: [{}] }), ['requests.0.method is required', 'requests.0.path is required']);
});

/** A POST as curl -d sends it, or without any Content-Type. */
const send = (path: string, body: string, contentType?: string) =>
  new Promise<{
    status: number;
    body: { error: { message: string; details: Array<{ path: string; message: string }> } };
  }>((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${service.admin}`,
      'content-length': Buffer.byteLength(body),
      ...(contentType && { 'content-type': contentType }),
    };
    const sent = request(service.server.url + path, { method: 'POST', headers }, async (response) => {
      const pieces = await response.toArray();
      resolve({ status: response.statusCode ?? 0, body: JSON.parse(Buffer.concat(pieces).toString()) });
    });
    sent.on('error', reject).end(body);
  });

t.test('JSON without its content-type is told that it was read as a form', async (t) => {
  const json = JSON.stringify({ accountId: service.accountId, serialNumber: 'curl' });
  const form = await send('/api/v1/devices', json, 'application/x-www-form-urlencoded');
  t.equal(form.status, 400);
  t.match(form.body.error.details, [
    { path: 'content-type', message: /read as a form; send JSON as application\/json/ },
  ]);
  const none = await send('/api/v1/devices', json);
  t.equal(none.status, 415);
  t.match(none.body.error.message, /no Content-Type/);
  t.match(none.body.error.details, [{ path: 'content-type', message: /application\/json/ }]);
});

t.test('an unknown parameter of a list is named in meta, and has no effect', async (t) => {
  const { device } = await service.device();
  const { accountId } = service;
  for (const [path, key] of [
    [`/api/v1/devices?accountId=${accountId}`, 'devices'],
    [`/api/v1/trash/devices?accountId=${accountId}`, 'devices'],
    [`/api/v1/applications?accountId=${accountId}`, 'applications'],
    // Of the others some are written a moment later.
    [`/api/v1/audit?accountId=${accountId}&event=credentialCreated`, 'auditRecords'],
    [`/api/v1/provisioning/jobs?accountId=${accountId}`, 'jobs'],
    [`/api/v1/provisioning/verifications?accountId=${accountId}`, 'verifications'],
    [`/api/v1/devices/${device.id}/refusals?page=1`, 'refusals'],
    [`/api/v1/devices/${device.id}/logs?page=1`, 'logs'],
  ] as const) {
    const plain = await service.http('GET', path);
    const { status, body, headers } = await service.http('GET', `${path}&limit=5&offset=10&room=7`);
    t.equal(status, 200, path);
    t.same(body[key].meta, { ...plain.body[key].meta, ignored: ['limit', 'offset', 'room'] }, path);
    t.equal(headers.get('platform-ignored-properties'), 'limit, offset, room');
  }
  const none = await service.ok('GET', `/api/v1/devices?accountId=${accountId}&meta=false&limit=1`);
  t.notOk(none.devices.meta, 'nothing where there is no meta');
});

t.test('a bulk job refuses an unknown filter', async (t) => {
  const job = { action: 'delete', dryRun: true, filter: { serialNumber: 'no such', room: '7' } };
  t.match(await service.http('POST', '/api/v1/devices/jobs', { body: job }), {
    status: 400,
    body: { error: { code: 106, details: [{ path: 'filter.room', message: /supported: .*serialNumber/ }] } },
  });
});

t.test('the series of a channel that keeps no data says so', async (t) => {
  const template = await service.template({ channels: ['kept', { name: 'passing' }] });
  const { device } = await service.device({ deviceTemplateId: template.id });
  for (const path of ['', '/latest', '?rollup=1h']) {
    const url = (channel: string) => `/api/v4/data/${service.topic(device.id, channel)}${path}`;
    t.match(
      await service.ok('GET', url('passing')),
      { meta: { message: /keeps no data.*timeSeries/ }, result: { length: 0 } },
      path,
    );
    t.notOk((await service.ok('GET', url('kept'))).meta.message);
  }
  const named = await service.ok('GET', `/api/v4/data/${service.topic(device.id, 'kept')}?limit=5`);
  t.same(named.meta.ignored, ['limit']);
});

t.test('with SLIPWAY_STRICT_BODIES a filter that is not known is refused', async (t) => {
  const strict = await startService(t, { env: { SLIPWAY_STRICT_BODIES: 'true' } });
  const list = `/api/v1/devices?accountId=${strict.accountId}&firmwareVersion=1.*`;
  t.equal((await strict.http('GET', list)).status, 200);
  t.match(await strict.http('GET', `${list}&room=7`), {
    ...{ status: 400, body: { error: { code: 106, details: [{ path: 'room', message: /firmwareVersion/ }] } } },
  });
});

t.test('with SLIPWAY_STRICT_QUERIES an unknown parameter is refused', async (t) => {
  const strict = await startService(t, { env: { SLIPWAY_STRICT_QUERIES: 'true' } });
  const list = `/api/v1/devices?accountId=${strict.accountId}`;
  t.equal((await strict.http('GET', list)).status, 200);
  t.match(await strict.http('GET', `${list}&limit=5&room=7`), {
    status: 400,
    body: { error: { code: 106, details: [{ path: 'limit', message: /pageSize/ }, { path: 'room' }] } },
  });
  const { device } = await strict.device();
  const series = `/api/v4/data/${strict.topic(device.id, '_log')}`;
  t.equal((await strict.http('GET', series)).status, 200);
  t.match(await strict.http('GET', `${series}?limit=5`), { status: 400, body: { error: { code: 106 } } });
  const body = { serialNumber: 'x', accountId: strict.accountId, roomm: '7' };
  t.equal((await strict.http('POST', '/api/v1/devices', { body })).status, 200, 'bodies are as before');
});

t.end();
