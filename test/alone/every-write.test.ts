/**
 * Every write of the API: with 20,000 rows behind it none of its statements on the event loop reads or writes all of them, nor
 * does one turn go through them. A write that is new is to be in one of the two lists.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import t from 'tap';
import { type Executed, watchStatements } from '../support/faults.ts';
import { feel } from '../support/feel.ts';
import { type FullAccount, fillAccount, many } from '../support/full-account.ts';
import { documentOf, operationsOf } from '../support/openapi.ts';
import { type Service, startService } from '../support/service.ts';

/** Rows of one statement: at most half of what is behind a write. */
const mostRows = many / 2;
/** Milliseconds of the processor, of one statement and of a turn of the event loop; the harness follows each promise. */
const longest = { statement: 20, turn: 110 };

/** A request, made when those before it are answered. `of` is what its path names, and whose version it sends. */
interface Write {
  of?: Exclude<keyof FullAccount, 'deviceIds'>;
  body?: object | string;
  headers?: Record<string, string>;
  /** The status; 200 or 202 without it. */
  refused?: number;
  /** What is waited for, so that it does not go on beside the next. */
  end?: (answer: { job: { id: string } }) => Promise<unknown>;
}

let service: Service;
let all: FullAccount;
let executed: Executed[];
t.before(async () => {
  service = await startService(t, { env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' } });
  all = await fillAccount(service);
  executed = watchStatements(t, service);
});

const cancelJob = async ({ job }: { job: { id: string } }) => {
  await service.http('POST', `/api/v1/provisioning/jobs/${job.id}/cancel`);
};
const recovers = (kind: string, of: NonNullable<Write['of']>): Array<[string, () => Write]> => [
  [`DELETE /api/v1/${kind}/{id}`, () => ({ of })],
  [`POST /api/v1/trash/${kind}/{id}/recover`, () => ({ of })],
];
const later = '2100-01-01T00:00:00Z';
const webhook = { name: 'dead', kind: 'webhook', url: 'http://127.0.0.1:9/again' };
const units = () => `serialNumber\n${Array.from({ length: many }, (_, n) => `unit ${n}`).join('\n')}`;

/** In this order: what is deleted last is needed by those before. */
const writes: ReadonlyArray<[operation: string, write: () => Write]> = [
  ['PUT /api/v1/devices/templates/{id}', () => ({ of: 'template', body: { name: 'renamed' } })],
  ['DELETE /api/v1/devices/templates/{id}', () => ({ of: 'template', refused: 400 })],
  [
    'PUT /api/v1/devices/custom-fields/{id}',
    () => {
      const { accountId, deviceTemplateId, fieldType } = all.field;
      return { of: 'field', body: { accountId, deviceTemplateId, fieldType, name: 'color', indexed: true } };
    },
  ],
  ...recovers('devices/custom-fields', 'field'),
  [
    'POST /api/v1/devices/custom-fields',
    () => ({
      body: { deviceTemplateId: all.template.id, name: 'size', fieldType: 'string', default: 'large', indexed: true },
    }),
  ],
  ['PUT /api/v1/channels/templates/{id}', () => ({ of: 'channel', body: { persistenceType: 'timeSeries' } })],
  ...recovers('channels/templates', 'channel'),
  [
    'POST /api/v1/channels/templates',
    () => ({
      body: { entityId: all.template.id, entityType: 'deviceTemplate', name: 'more', persistenceType: 'simple' },
    }),
  ],
  [
    'POST /api/v1/fleets/preview',
    () => ({ body: { filter: `deviceTemplateId eq "${all.template.id}" and not (serialNumber co "x")` } }),
  ],
  ['PUT /api/v1/organizations/{id}', () => ({ of: 'place', body: { parentId: all.other.id } })],
  ['PUT /api/v1/organizations/{id}', () => ({ of: 'top', body: { parentId: all.other.id } })],
  ['DELETE /api/v1/organizations/{id}', () => ({ of: 'place', refused: 400 })],
  ['POST /api/v1/organizations', () => ({ body: { name: 'one more', parentId: all.top.id } })],
  [
    'POST /api/v1/devices',
    () => ({ body: { serialNumber: 'one more', deviceTemplateId: all.template.id, organizationId: all.place.id } }),
  ],
  ['PUT /api/v1/devices/{id}', () => ({ of: 'device', body: { organizationId: all.other.id } })],
  ...recovers('devices', 'device'),
  [
    'POST /api/v1/end-users',
    () => ({
      body: {
        ...{ organizationId: all.place.id, createIdmUser: true, idmUserEmail: 'one.more@example.com' },
        idmUserPassword: 'a long enough secret',
      },
    }),
  ],
  ['PUT /api/v1/roles/{id}', () => ({ of: 'role', body: { rights: { device: ['read', 'subscribe'] } } })],
  ['PUT /api/v1/roles/{id}', () => ({ of: 'role', body: { rights: { device: ['read'] } } })],
  ['DELETE /api/v1/roles/{id}', () => ({ of: 'role', refused: 400 })],
  [
    'PUT /api/v1/identity-providers/{id}',
    () => {
      const { name, clientId, issuer, mappings } = all.provider;
      return { of: 'provider', body: { name, clientId, issuer: `${issuer}/other`, mappings } };
    },
  ],
  ['DELETE /api/v1/identity-providers/{id}', () => ({ of: 'provider' })],
  ['PUT /api/v1/enrollment-groups/{id}', () => ({ of: 'group', body: { name: 'renamed' } })],
  ['POST /api/v1/enrollment-groups/{id}/regenerate', () => ({ of: 'group', body: {} })],
  ...recovers('enrollment-groups', 'group'),
  ['POST /api/v1/firmware/rollouts/{id}/pause', () => ({ of: 'rollout' })],
  ['POST /api/v1/firmware/rollouts/{id}/resume', () => ({ of: 'rollout' })],
  ['POST /api/v1/firmware/rollouts/{id}/cancel', () => ({ of: 'rollout' })],
  ['POST /api/v1/firmware/rollouts/{id}/retry', () => ({ of: 'failedRollout' })],
  ['POST /api/v1/firmware/rollouts/{id}/revert', () => ({ of: 'failedRollout' })],
  [
    'POST /api/v1/firmware/rollouts/preview',
    () => ({ body: { firmwarePackageId: all.firmware.id, target: { filter: { deviceTemplateId: all.template.id } } } }),
  ],
  [
    'POST /api/v1/firmware/rollouts',
    () => {
      const target = { deviceIds: all.deviceIds.slice(0, 10_000) };
      return { body: { firmwarePackageId: all.firmware.id, target, startAt: later } };
    },
  ],
  ['PUT /api/v1/firmware/packages/{id}', () => ({ of: 'firmware', body: { name: 'renamed' } })],
  ['POST /api/v1/firmware/packages/{id}/retire', () => ({ of: 'firmware', body: {} })],
  ['DELETE /api/v1/firmware/packages/{id}', () => ({ of: 'firmware', refused: 400 })],
  [
    'POST /api/v1/provisioning/jobs',
    () => ({ body: units(), headers: { 'content-type': 'text/csv' }, end: cancelJob }),
  ],
  [
    'POST /api/v1/devices/jobs',
    () => {
      const filter = { deviceTemplateId: all.template.id };
      return { body: { action: 'move', organizationId: all.other.id, dryRun: true, filter }, end: cancelJob };
    },
  ],
  [
    'POST /api/v1/commands/bulk',
    () => {
      const filter = { deviceTemplateId: all.template.id };
      return { body: { accountId: service.accountId, filter, command: { name: 'blink' } }, end: cancelJob };
    },
  ],
  ['POST /api/v1/devices/jobs/{id}/undo', () => ({ of: 'moveJob', end: cancelJob })],
  ['POST /api/v1/provisioning/jobs/{id}/results/confirm', () => ({ of: 'job', body: {} })],
  ['POST /api/v1/provisioning/jobs/{id}/retry', () => ({ of: 'job' })],
  ['POST /api/v1/provisioning/jobs/{id}/cancel', () => ({ of: 'job' })],
  ['PUT /api/v1/bridges/{id}', () => ({ of: 'bridge', body: webhook })],
  ['POST /api/v1/bridges/{id}/replay', () => ({ of: 'bridge', body: { from: '1970-01-01T00:00:00Z', to: later } })],
  ['DELETE /api/v1/bridges/{id}', () => ({ of: 'bridge' })],
  ['DELETE /api/v1/applications/{id}', () => ({ of: 'program' })],
  ['PUT /api/v1/retention', () => ({ body: { retentionDays: 1 } })],
];

/** Writes that concern few rows whatever an account has, by the reason. */
const few: Record<string, string> = {
  'its body is one entity, message or bounded array, and nothing else changes with it': `
    POST /api/v1/account-users  POST /api/v1/applications  POST /api/v1/bridges  POST /api/v1/devices/templates
    POST /api/v1/devices/templates/custom-fields  POST /api/v1/end-users/custom-fields  POST /api/v1/end-users/templates
    POST /api/v1/enrollment-groups  POST /api/v1/firmware/packages  POST /api/v1/identity-providers
    POST /api/v1/organizations/custom-fields  POST /api/v1/organizations/templates  POST /api/v1/roles  POST /api/v1/tokens
    POST /api/v1/access/certificate-authorities  POST /api/v1/access/mqtt-certificates  POST /api/v1/access/mqtt-credentials
    POST /api/v1/association/create-association-code  POST /api/v1/association/give-away  POST /api/v1/devices/{id}/support
    POST /api/v1/devices/{id}/commands  POST /api/v1/devices/{id}/logs
    POST /api/v1/enroll  POST /api/v1/enroll/renew  POST /api/v4/data/{topic}  POST /api/v1/messaging/publish/{topic}
    POST /api/v1/firmware/status  POST /api/v1/identity-providers/{id}/scim-token  POST /api/v1/provisioning/verify
    POST /api/v1/bridges/{id}/test  PUT /api/v1/account/branding  PUT /api/v1/account/claiming`,
  'it changes one row, of a device or of a certificate': `
    POST /api/v1/association/start-association-with-code  POST /api/v1/association/sign-up-with-code
    POST /api/v1/devices/{id}/allow-enrollment  POST /api/v1/devices/{id}/firmware/install
    POST /api/v1/devices/{id}/firmware
    POST /api/v1/devices/{id}/replace  DELETE /api/v1/devices/{id}/commands/{commandId}
    DELETE /api/v1/association/give-away/{deviceId}  DELETE /api/v1/devices/{id}/support/{supportId}
    DELETE /api/v1/access/mqtt-certificates/{id}  POST /api/v1/access/certificate-authorities/{id}/issue
    POST /api/v1/access/certificate-authorities/{id}/proof  PUT /api/v1/access/certificate-authorities/{id}/certificate
    PUT /api/v1/access/certificate-authorities/{id}  DELETE /api/v1/access/certificate-authorities/{id}`,
  'it changes one person or program, whose sessions, tokens and end-users are limited': `
    DELETE /api/v1/internal/users/{userId}  PUT /api/v1/account-users/{id}  DELETE /api/v1/account-users/{id}
    PUT /api/v1/applications/{id}  DELETE /api/v1/tokens/{id}  PUT /api/v1/end-users/{id}  DELETE /api/v1/end-users/{id}
    POST /api/v1/trash/end-users/{id}/recover  POST /api/v1/users/{userId}/end-sessions
    POST /api/v1/users/{userId}/mfa/totp  DELETE /api/v1/users/{userId}/mfa/totp  POST /api/v1/users/{userId}/mfa/sms
    DELETE /api/v1/users/{userId}/mfa/sms  POST /api/v1/users/{userId}/mfa/sms/code
    POST /api/v1/users/{userId}/mfa/totp/confirm  POST /api/v1/users/{userId}/mfa/sms/confirm
    POST /api/v1/auth/login-user  POST /api/v1/auth/login-application  POST /api/v1/auth/mfa-trigger-auth
    POST /api/v1/auth/mfa-login-user  POST /api/v1/auth/forgot-password  POST /api/v1/auth/confirm-email
    POST /api/v1/auth/create-user  POST /api/v1/users/{userId}/change-password-with-token  POST /api/v1/sessions/logout
    POST /api/v1/sessions/renew-session  POST /api/v1/profile/update  POST /api/v1/profile/change-password
    POST /api/v1/profile/update-email-address`,
  'it changes what the write of devices in the table changes, in the same code': `
    PUT /api/v1/end-users/templates/{id}  DELETE /api/v1/end-users/templates/{id}
    POST /api/v1/trash/end-users/templates/{id}/recover  PUT /api/v1/organizations/templates/{id}
    DELETE /api/v1/organizations/templates/{id}  POST /api/v1/trash/organizations/templates/{id}/recover
    PUT /api/v1/end-users/custom-fields/{id}  DELETE /api/v1/end-users/custom-fields/{id}
    POST /api/v1/trash/end-users/custom-fields/{id}/recover  PUT /api/v1/organizations/custom-fields/{id}
    DELETE /api/v1/organizations/custom-fields/{id}  POST /api/v1/trash/organizations/custom-fields/{id}/recover
    PUT /api/v1/devices/templates/custom-fields/{id}  DELETE /api/v1/devices/templates/custom-fields/{id}
    POST /api/v1/trash/devices/templates/custom-fields/{id}/recover  POST /api/v1/provisioning/jobs/{id}/undo`,
  'it brings back what nothing could be below while it was in the trash': `
    POST /api/v1/trash/organizations/{id}/recover  POST /api/v1/trash/devices/templates/{id}/recover
    POST /api/v1/trash/roles/{id}/recover  POST /api/v1/trash/firmware/packages/{id}/recover`,
  'it writes a few rows and a file': `
    PUT /api/v1/firmware/packages/{id}/files/{name}  DELETE /api/v1/firmware/packages/{id}/files/{name}
    POST /api/v1/firmware/packages/{id}/publish`,
  'a thread writes a long list': 'PUT /api/v1/access/certificate-authorities/{id}/crl',
  'it reads': `
    POST /api/v1/auth/validate-jwt  POST /api/v1/association/look-up-code  POST /api/v1/users/batch
    POST /api/v1/logs/search  POST /api/v1/permissions/explain`,
  'it writes one row, which nothing names': `
    POST /api/v1/fleets  PUT /api/v1/fleets/{id}  DELETE /api/v1/fleets/{id}  POST /api/v1/trash/fleets/{id}/recover`,
  'its requests are those of other operations, at most 50': 'POST /api/v1/batch',
};

t.test('each write of the document is tried with 20,000 rows behind it, or concerns few', async (t) => {
  const tried = new Set(writes.map(([operation]) => operation));
  const known = [...tried, ...Object.values(few).flatMap((text) => text.trim().split(/\s{2,}|\n\s*/))];
  const documented = operationsOf(documentOf(service))
    .filter(({ method }) => method !== 'GET')
    .map(({ method, path }) => `${method} ${path}`);
  t.same(known.sort(), documented.sort());
});

/** The version that an entity has now; in the trash too. */
async function versionOf(path: string): Promise<string> {
  const { body } = await service.http('GET', path);
  return (Object.values(body)[0] as unknown as { version: string }).version;
}

for (const [operation, write] of writes)
  t.test(`${operation} holds nobody`, async (t) => {
    const { of, body, headers = {}, refused, end } = write();
    const [method = '', path = ''] = operation.split(' ');
    const id = of ? all[of].id : '';
    const url = path.replace(/\{\w+\}/, id);
    const needsVersion = of && /^(PUT|DELETE)|\/(recover|retire|regenerate)$/.test(operation);
    if (needsVersion) headers.etag = await versionOf(url.replace(/\/(recover|retire|regenerate)$/, ''));
    const sent = typeof body === 'object' && !of ? { accountId: service.accountId, ...body } : body;
    const from = executed.length;
    const request = { headers, ...(sent && { body: sent }) };
    const { result: answer, held } = await feel(() => service.http(method, url, request));
    // What was collected meanwhile is told.
    for (let turn = 0; turn < 3; turn += 1) await nextTurn();
    t.ok(refused === undefined ? answer.status < 300 : answer.status === refused, `${answer.status} ${answer.text}`);
    const statements = executed.splice(from);
    const large = statements.filter(({ rows, work }) => rows > mostRows || work > longest.statement);
    t.same(large, [], 'no statement has them all');
    t.ok(held < longest.turn, `${Math.round(held)} ms in one turn of the event loop`);
    await end?.(answer.body as unknown as { job: { id: string } });
  });
