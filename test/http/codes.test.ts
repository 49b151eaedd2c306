import Sqlite from 'better-sqlite3';
import t from 'tap';
import { checkCharacter } from '../../src/registry/credentials/association-codes.js';
import { documentOf } from '../support/openapi.js';
import { type Answer, type Service, startService } from '../support/service.js';

/** Every documented error code. */
const documentedCodes = [100, 102, 103, 104, 105, 106, 107, 108, 109, 110, 30, 31, 20, 21, -199];

let service: Service;
t.before(async () => {
  service = await startService(t);
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

/** `work` while a method of the registry fails. */
async function broken(method: 'session' | 'transaction', error: Error, work: () => Promise<Answer>): Promise<Answer> {
  const { registry } = service.server.ctx;
  registry[method] = () => {
    throw error;
  };
  const answer = await work();
  delete (registry as Partial<typeof registry>)[method];
  return answer;
}

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
  const stopping = setInterval(() => service.server.ctx.broker.endWatches(), 10);
  const answer = await post('/provisioning/verify', { deviceId: id });
  clearInterval(stopping);
  return answer;
}

function full(): Error {
  return new Sqlite.SqliteError('database or disk is full', 'SQLITE_FULL');
}
