/** Mistakes that people make with HTTP on their first day: each answer says what is wrong and what to send instead. */
import { request } from 'node:http';
import t from 'tap';
import { type Service, startService } from '../support/service.js';

let service: Service;
t.before(async () => {
  service = await startService(t);
});

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
    [`/api/v1/audit?accountId=${accountId}`, 'auditRecords'],
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
      { meta: { message: /keeps no data.*timeSeries/ }, result: [] },
      path,
    );
    t.notOk((await service.ok('GET', url('kept'))).meta.message);
  }
  const named = await service.ok('GET', `/api/v4/data/${service.topic(device.id, 'kept')}?limit=5`);
  t.same(named.meta.ignored, ['limit']);
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
