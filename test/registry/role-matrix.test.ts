/**
 * Every endpoint for every built-in role, and 200 random roles: HTTP, MQTT, streams, batches and jobs agree with the rights of
 * the role, from the answer on that has changed it.
 */
import { builtInRoles, ownRights, type Rights, type RoleScope } from '../../src/core/rights.ts';
import { documentOf, operationsOf } from '../support/openapi.ts';
import { part } from '../support/part.ts';
import { type PlainOperation, plainRequest } from '../support/plain-request.ts';
import { accountUser, randomNumbers, randomRights, role } from '../support/roles.ts';
import type { Made, Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

const seed = Number(process.env.SEED ?? 39);
const random = randomNumbers(seed);

interface Holder {
  scope: RoleScope;
  path: string;
  token: string;
  explained: { type: string; id: string };
}

let service: Service;
let operations: PlainOperation[];
let device: Made<'device'>;
let organizationId: string;
const holders: Partial<Record<RoleScope, Holder>> = {};
t.before(async () => {
  service = await sharedService(t, {
    SLIPWAY_HTTP_REQUESTS_PER_SECOND: '0',
    SLIPWAY_MQTT_CONNECT_RATE_PER_ADDRESS: '0',
  });
  const isAsked = ({ path, security }: PlainOperation) =>
    security.some((one) => 'bearer' in one) && !/logout$|batch$|\/stream$/.test(path) && path.startsWith('/api/');
  operations = operationsOf(documentOf(service)).filter(isAsked);
  organizationId = (await service.organization()).id;
  const template = await service.template({ channels: [{ name: 'chat', persistenceType: 'simple' }] });
  device = (await service.device({ deviceTemplateId: template.id, organizationId })).device;
  const admin = await accountUser(service);
  const { endUser, token } = await service.endUser(organizationId);
  holders.account = {
    scope: 'account',
    path: `/api/v1/account-users/${admin.id}`,
    token: admin.token,
    explained: { type: 'accountUser', id: admin.id },
  };
  holders.organization = {
    scope: 'organization',
    path: `/api/v1/end-users/${endUser.id}`,
    token,
    explained: { type: 'endUser', id: endUser.id },
  };
});

const holderOf = (scope: RoleScope) => holders[scope] as Holder;

async function give({ scope, path }: Holder, roleId: string): Promise<void> {
  const etag = (await service.http('GET', path)).headers.get('etag') ?? '';
  const body = { roleId, ...(scope === 'organization' && { organizationId }) };
  await service.ok('PUT', path, { headers: { etag }, body });
}

const has = (rights: Rights, action: string, kind: string) =>
  (rights as Record<string, readonly string[]>)[kind]?.includes(action) ?? false;

/** Jobs need the rights of their rows too. */
const needsMore = /\/(jobs|bulk|undo|retry)$/;

async function asksAll(t: Tap, { token }: Holder, rights: Rights, asked: PlainOperation[], title: string) {
  const wrong: string[] = [];
  for (const operation of asked) {
    const [action = '', kind = ''] = operation['x-right']?.split(' ') ?? [];
    const { method, url, ...plain } = plainRequest(operation, service.accountId);
    const { status, body } = await service.http(method, url, { token, ...plain });
    const message = body.message ?? body.error?.message ?? '';
    const isRefused = status === 403 && /^The caller is not permitted/.test(message);
    const isGiven = action === '' || has(rights, action, kind);
    // With oneself everybody may do these; the others are nobody here.
    if (!isGiven && has(ownRights, action, kind)) continue;
    if (needsMore.test(operation.path) && isGiven) continue;
    if (isRefused === isGiven) wrong.push(`${method} ${operation.path} (${action} ${kind}): ${status} ${message}`);
  }
  t.strictSame(wrong, [], `${title}: every endpoint does what the rights say`);
}

type Tap = Pick<typeof t, 'equal' | 'strictSame'>;

/** Each way in, with what it should say for these rights. */
async function waysAgree(t: Tap, holder: Holder, rights: Rights, roleId: string, title: string) {
  const { token, scope, explained } = holder;
  const may = (action: string, kind = 'device') => has(rights, action, kind);
  const topic = service.topic(device.id, 'chat');
  const status = async (method: string, path: string, body?: object) =>
    (await service.http(method, `/api/v1${path}`, { token, ...(body && { body }) })).status;

  const read = await status('GET', `/devices/${device.id}`);
  t.equal(read, may('read') ? 200 : 403, `${title}: GET`);
  const published = await status('POST', `/messaging/publish/${topic}`, {});
  t.equal(published, may('publish') ? 200 : 403, `${title}: publish over HTTP`);
  const requests = [
    { method: 'GET', path: `/api/v1/devices/${device.id}` },
    { method: 'POST', path: `/api/v1/messaging/publish/${topic}`, payload: {} },
  ];
  const answers = (await service.ok('POST', '/api/v1/batch?status=true', { token, body: { requests } })) as unknown;
  const statuses = (answers as Array<{ status: number }>).map((one) => one.status);
  t.strictSame(statuses, [read, published], `${title}: a batch`);

  const fields = await status('POST', `/messaging/publish/${service.topic(device.id, '_set/fields')}`, {
    state: { firmwareVersion: '1' },
  });
  if (may('publish')) t.equal(fields === 200, may('update'), `${title}: _set/fields needs update`);
  const log = await status('POST', `/messaging/publish/${service.topic(device.id, '_log')}`, { message: 'x' });
  if (may('publish')) t.equal(log === 200, may('create', 'logEntry'), `${title}: _log needs logEntry`);

  const url = `${service.server.url}/api/v1/stream?topics=${encodeURIComponent(topic)}`;
  const ended = new AbortController();
  const stream = await fetch(url, { headers: { authorization: `Bearer ${token}` }, signal: ended.signal });
  t.equal(stream.status, may('subscribe') ? 200 : 403, `${title}: a stream`);
  ended.abort();

  const move = { action: 'move', ids: [device.id], organizationId, dryRun: true };
  const isJob = scope === 'account' && may('create', 'bulkChange') && may('update');
  t.equal(await status('POST', '/devices/jobs', move), isJob ? 202 : 403, `${title}: a job`);
  const blink = { accountId: service.accountId, filter: { serialNumber: 'none has it' }, command: { name: 'blink' } };
  const isBulk = scope === 'account' && may('create', 'bulkChange') && may('create', 'command');
  t.equal(await status('POST', '/commands/bulk', blink), isBulk ? 202 : 403, `${title}: a command to many devices`);

  await mqttAgrees(t, token, rights, topic, title);

  for (const action of ['read', 'update']) {
    const question = { principal: explained, action, entity: { type: 'device', id: device.id } };
    const { allowed, role } = await service.ok('POST', '/api/v1/permissions/explain', { body: question });
    t.strictSame([allowed, role?.id], [may(action), roleId], `${title}: explain of ${action} names the role`);
  }
}

async function mqttAgrees(t: Tap, token: string, rights: Rights, topic: string, title: string) {
  const may = (action: string) => has(rights, action, 'device');
  const client = await service.connect({ jwt: token }, { protocolVersion: 5 }).catch(() => undefined);
  t.equal(client !== undefined, may('publish') || may('subscribe'), `${title}: CONNECT`);
  if (!client) return;
  const accepted = (done: Promise<unknown>) => done.then(() => true).catch(() => false);
  const granted = await client.subscribeAsync(topic, { qos: 1 }).then(
    ([one]) => (one?.qos ?? 128) < 128,
    () => false,
  );
  t.equal(granted, may('subscribe'), `${title}: SUBSCRIBE`);
  t.equal(await accepted(client.publishAsync(topic, 'x', { qos: 1 })), may('publish'), `${title}: PUBLISH`);
  await client.endAsync(true);
}

for (const { id, scope, rights } of builtInRoles.values())
  t.test(`${id}: every endpoint, MQTT, streams, batches and jobs`, async (t) => {
    const holder = holderOf(scope);
    await give(holder, id);
    await asksAll(t, holder, rights, operations, id);
    await waysAgree(t, holder, rights, id, id);
  });

for (const scope of ['account', 'organization'] as const)
  t.test(`100 random roles of the scope ${scope}, seed ${seed}`, async (t) => {
    const holder = holderOf(scope);
    const { id } = await role(service, scope, {});
    await give(holder, id);
    for (let n = 0; n < 100; n += 1) {
      const rights = randomRights(scope, random);
      const etag = (await service.ok('GET', `/api/v1/roles/${id}`)).role.version;
      await service.ok('PUT', `/api/v1/roles/${id}`, { headers: { etag }, body: { rights } });
      const title = `${n}, ${JSON.stringify(rights)}`;
      const asked = operations.filter(() => random() < 0.08);
      await asksAll(t, holder, rights, asked, title);
      if (n % 2 === 0) await waysAgree(t, holder, rights, id, title);
    }
  });

t.end();
