/** Every POST that makes something, sent twice with one Idempotency-Key. */

import { newGroup } from '../enrollment/devices.ts';
import { devices, publish, rollOut, rolloutUntil } from '../firmware/fleet.ts';
import { makeAuthority, makeCertificate } from '../support/certificates.ts';
import { losingAnswers } from '../support/faults.ts';
import { follow } from '../support/jobs.ts';
import { documentOf } from '../support/openapi.ts';
import { openssl } from '../support/openssl.ts';
import { part } from '../support/part.ts';
import { type Person, secondFactors } from '../support/second-factors.ts';
import { type Anything, present, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

/** One request that succeeds. */
interface Sent {
  /** Where it goes, if its path has parameters. */
  path?: string;
  body?: object | string;
  token?: string | null;
  headers?: Record<string, string>;
}

let service: Service;
const { options, person, time, mfa, codeAt, textedCode } = secondFactors(() => service);
t.before(async () => {
  time.now = Date.now();
  service = await startService(t, options);
});

const emailAddress = () => `${service.unique('twice').replace(' ', '')}@example.com`;
const field = { name: 'colour', fieldType: 'string' };
const newDevice = async (body: object = {}) => (await service.device(body)).device;
const ofDevice = async (path: string, body: object): Promise<Sent> => ({
  path: `/api/v1/devices/${(await newDevice()).id}/${path}`,
  body,
});
const someone = async () => person((await service.organization()).id);
const ofPerson = ({ userId, token }: Person, path: string, body?: object): Sent => ({
  path: `/api/v1/users/${userId}/mfa/${path}`,
  token,
  ...(body && { body }),
});
const newTemplate = {
  endUsers: () => service.create('/end-users/templates', 'endUserTemplate', { name: service.unique('Template') }),
  organizations: () =>
    service.create('/organizations/templates', 'organizationTemplate', { name: service.unique('Template') }),
};
/** A device with a stored channel, as part of a path. */
const topic = async () => {
  const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
  return service.topic((await newDevice({ deviceTemplateId })).id, 'readings');
};
const bridge = { kind: 'webhook', url: 'https://hooks.example.com/in' };
/** A job that has deleted a device. */
const deletion = async () => {
  const body = { action: 'delete', ids: [(await newDevice()).id] };
  const { job } = (await service.http('POST', '/api/v1/devices/jobs', { body })).body;
  await follow(service, job.id);
  return job.id;
};
const firmware = async () => {
  const template = await service.template();
  const [device] = await devices(service, template.id, 1);
  return { device: present(device), firmware: await publish(service, template.id, '2.0') };
};

/** What to send, by the path of the document. Each makes what it needs. */
const requests: Record<string, () => Promise<Sent>> = {
  '/api/v1/devices': async () => ({ body: { serialNumber: service.unique('twice') } }),
  '/api/v1/end-users': async () => ({
    body: {
      organizationId: (await service.organization()).id,
      createIdmUser: true,
      idmUserEmail: emailAddress(),
      idmUserPassword: 'a long enough secret',
    },
  }),
  '/api/v1/organizations': async () => ({ body: { name: service.unique('Twice') } }),
  '/api/v1/devices/templates': async () => ({ body: { name: service.unique('Twice') } }),
  '/api/v1/end-users/templates': async () => ({ body: { name: service.unique('Twice') } }),
  '/api/v1/organizations/templates': async () => ({ body: { name: service.unique('Twice') } }),
  '/api/v1/channels/templates': async () => {
    const { id: entityId } = await service.template();
    return { body: { entityId, entityType: 'deviceTemplate', name: 'twice', persistenceType: 'timeSeries' } };
  },
  '/api/v1/devices/custom-fields': async () => ({
    body: { ...field, deviceTemplateId: (await service.template()).id },
  }),
  '/api/v1/end-users/custom-fields': async () => ({
    body: { ...field, endUserTemplateId: (await newTemplate.endUsers()).id },
  }),
  '/api/v1/organizations/custom-fields': async () => ({
    body: { ...field, organizationTemplateId: (await newTemplate.organizations()).id },
  }),
  '/api/v1/devices/templates/custom-fields': async () => ({
    body: { ...field, name: service.unique('colour').replace(' ', '') },
  }),
  '/api/v1/account-users': async () => ({
    body: { createIdmUser: true, idmUserEmail: emailAddress(), idmUserPassword: 'a long enough secret' },
  }),
  '/api/v1/auth/create-user': async () => {
    const { appToken } = await service.create('/applications', 'application', {
      name: service.unique('Phone'),
      kind: 'endUserApp',
    });
    const body = { emailAddress: emailAddress(), password: 'a walk in the park' };
    return { token: null, headers: { accesstoken: present(appToken) }, body };
  },
  '/api/v1/tokens': async () => ({
    body: { name: 'Twice', expiresAt: new Date(Date.now() + 86_400_000).toISOString() },
  }),
  '/api/v1/fleets': async () => ({ body: { name: service.unique('Twice'), filter: 'connected eq true' } }),
  '/api/v1/roles': async () => ({ body: { name: service.unique('Twice'), scope: 'organization', rights: {} } }),
  '/api/v1/applications': async () => ({ body: { name: service.unique('Twice'), kind: 'backEnd' } }),
  '/api/v1/identity-providers': async () => ({
    body: { name: service.unique('Twice'), issuer: 'https://id.example.com', clientId: 'client' },
  }),
  '/api/v1/identity-providers/{id}/scim-token': async () => {
    const about = { name: service.unique('Twice'), issuer: 'https://id.example.com', clientId: 'client' };
    const { id } = await service.create('/identity-providers', 'identityProvider', about);
    const expiresAt = new Date(Date.now() + 86_400_000).toISOString();
    return { path: `/api/v1/identity-providers/${id}/scim-token`, body: { expiresAt } };
  },
  '/api/v1/users/{userId}/mfa/totp': async () => ofPerson(await someone(), 'totp'),
  '/api/v1/users/{userId}/mfa/sms': async () => ofPerson(await someone(), 'sms', { phoneNumber: '+15550101' }),
  '/api/v1/users/{userId}/mfa/totp/confirm': async () => {
    const who = await someone();
    const { secret } = (await mfa(who, 'POST', 'totp')).body;
    return ofPerson(who, 'totp/confirm', { code: codeAt(secret) });
  },
  '/api/v1/users/{userId}/mfa/sms/confirm': async () => {
    const who = await someone();
    await mfa(who, 'POST', 'sms', { phoneNumber: '+15550102' });
    return ofPerson(who, 'sms/confirm', { code: textedCode() });
  },
  '/api/v1/access/mqtt-credentials': async () => ({
    body: { entityId: (await newDevice()).id, entityType: 'device' },
  }),
  '/api/v1/access/mqtt-certificates': async () => {
    const { cert: certificate } = await makeCertificate();
    return { body: { entityId: (await newDevice()).id, entityType: 'device', certificate } };
  },
  '/api/v1/access/certificate-authorities': async () => ({
    body: { name: service.unique('Twice'), certificate: (await makeAuthority()).cert },
  }),
  '/api/v1/enrollment-groups': async () => ({
    body: { name: service.unique('Twice'), deviceTemplateId: (await service.template()).id, proof: 'claimSecret' },
  }),
  '/api/v1/enrollment-groups/{id}/regenerate': async () => {
    const { id, version } = await newGroup(service);
    return { path: `/api/v1/enrollment-groups/${id}/regenerate`, headers: { etag: version }, body: {} };
  },
  '/api/v1/access/certificate-authorities/{id}/issue': async () => {
    const body = { name: service.unique('Issuer'), issuing: true };
    const { id } = await service.create('/access/certificate-authorities', 'certificateAuthority', body);
    const { csr } = openssl(t).request();
    const path = `/api/v1/access/certificate-authorities/${id}/issue`;
    return { path, body: { deviceId: (await newDevice()).id, csr } };
  },
  '/api/v1/association/create-association-code': async () => ({ body: { deviceId: (await newDevice()).id } }),
  '/api/v1/association/give-away': async () => {
    const { id: organizationId } = await service.organization();
    return { body: { deviceId: (await service.device({ organizationId })).device.id } };
  },
  '/api/v1/devices/{id}/support': () => ofDevice('support', { message: 'twice' }),
  '/api/v1/association/start-association-with-code': async () => {
    const { id: organizationId } = await service.organization();
    const { token } = await service.endUser(organizationId);
    const { associationCode } = await service.ok('POST', '/api/v1/association/create-association-code', {
      body: { deviceId: (await newDevice()).id },
    });
    return { token, body: { associationCode, organizationId } };
  },
  '/api/v1/devices/{id}/replace': async () => {
    const { id, version } = (await service.ok('GET', `/api/v1/devices/${(await newDevice()).id}`)).device;
    return {
      path: `/api/v1/devices/${id}/replace`,
      headers: { etag: version },
      body: { serialNumber: service.unique('new') },
    };
  },
  '/api/v1/devices/{id}/logs': () => ofDevice('logs', { message: 'twice' }),
  '/api/v1/devices/{id}/commands': () => ofDevice('commands', { name: 'reboot' }),
  '/api/v1/devices/{id}/firmware/install': async () => {
    const { device, firmware: update } = await firmware();
    const { id } = await rollOut(service, update, { target: { deviceIds: [device.id] }, consent: 'user' });
    await rolloutUntil(service, id, ({ counts }) => counts.pending === 1);
    return { path: `/api/v1/devices/${device.id}/firmware/install`, body: {} };
  },
  '/api/v1/devices/{id}/firmware': async () => {
    const { device, firmware: update } = await firmware();
    return { path: `/api/v1/devices/${device.id}/firmware`, body: { packageId: update.id } };
  },
  '/api/v1/provisioning/jobs': async () => ({ body: { rows: [{ serialNumber: service.unique('job') }] } }),
  '/api/v1/provisioning/jobs/{id}/undo': async () => ({
    path: `/api/v1/provisioning/jobs/${await deletion()}/undo`,
    body: {},
  }),
  '/api/v1/provisioning/verify': async () => ({ body: { deviceId: (await newDevice()).id, timeoutSeconds: 0 } }),
  '/api/v1/devices/jobs': async () => ({ body: { action: 'delete', ids: [(await newDevice()).id] } }),
  '/api/v1/commands/bulk': async () => {
    const { deviceTemplateId } = await newDevice();
    return { body: { filter: { deviceTemplateId }, command: { name: 'blink' } } };
  },
  '/api/v1/devices/jobs/{id}/undo': async () => ({ path: `/api/v1/devices/jobs/${await deletion()}/undo`, body: {} }),
  '/api/v1/bridges': async () => ({ body: { ...bridge, name: service.unique('Twice') } }),
  '/api/v1/bridges/{id}/replay': async () => {
    const { id } = await service.create('/bridges', 'bridge', { ...bridge, name: service.unique('Replayed') });
    return { path: `/api/v1/bridges/${id}/replay`, body: { from: '2020-01-01', to: '2020-02-01' } };
  },
  '/api/v1/firmware/packages': async () => ({
    body: { deviceTemplateId: (await service.template()).id, name: service.unique('Twice'), firmwareVersion: '1' },
  }),
  '/api/v1/firmware/rollouts': async () => {
    const { id, deviceTemplateId } = (await firmware()).firmware;
    // In an hour, so that it is the same in two answers.
    const startAt = new Date(time.now + 3_600_000).toISOString();
    return { body: { firmwarePackageId: id, target: { filter: { deviceTemplateId } }, startAt } };
  },
  '/api/v1/firmware/rollouts/{id}/revert': async () => {
    const { device, firmware: update } = await firmware();
    const { id } = await rollOut(service, update, { target: { deviceIds: [device.id] } });
    return { path: `/api/v1/firmware/rollouts/${id}/revert`, body: {} };
  },
  '/api/v4/data/{topic}': async () => ({
    path: `/api/v4/data/${await topic()}`,
    headers: { 'content-type': 'text/csv' },
    body: ',temperature,21,',
  }),
  '/api/v1/messaging/publish/{topic}': async () => ({
    path: `/api/v1/messaging/publish/${await topic()}`,
    headers: { 'content-type': 'text/plain' },
    body: ',temperature,22,',
  }),
};

/** With the account, which most bodies need and others ignore. */
const bodyOf = (body: object | string) =>
  typeof body === 'string' || 'rows' in body || 'ids' in body ? body : { accountId: service.accountId, ...body };
const otherThan = (body: object | string) => {
  if (typeof body === 'string') return `${body} `;
  return 'rows' in body ? { rows: [{ serialNumber: 'another' }] } : { ...body, more: 'differs' };
};
/** A job and a rollout go on by themselves between two answers. */
const lasting = (body: Anything) => {
  const { job, firmwareRollout } = body as Partial<Anything>;
  return job?.id ?? firmwareRollout?.id ?? body;
};

const method: string = 'POST';

/** Sends what a path takes, with a key. */
async function prepare(path: string) {
  const { path: to = path, body = {}, token = service.admin, headers } = await present(requests[path])();
  const sent = bodyOf(body);
  const key = service.unique('key');
  const ask = (of: object | string = sent) =>
    service.http(method, to, { body: of, token, headers: { ...headers, 'idempotency-key': key } });
  return { ask, another: () => ask(otherThan(sent)) };
}

t.test('every POST that makes something gives its first answer again, and takes its key for no other', async (t) => {
  const { paths } = documentOf(service);
  const creating = Object.entries(paths).flatMap(([path, { post }]) =>
    post?.parameters?.some(({ name }) => name === 'Idempotency-Key') ? [path] : [],
  );
  t.strictSame(creating.toSorted(), Object.keys(requests).toSorted(), 'each has a request here');
  for (const path of creating) {
    const { ask, another } = await prepare(path);
    const first = await ask();
    t.ok(first.status < 300, `${path} answered ${first.status}: ${first.text}`);
    const again = await ask();
    t.strictSame([again.status, again.body], [first.status, first.body], path);
    t.equal(again.headers.get('idempotent-replayed'), 'true', path);
    t.equal(again.headers.get('etag'), first.headers.get('etag'), path);
    t.match(await another(), { status: 400, text: /has been used with another request/ }, path);
  }
});

t.test('an entity that was made before a crash is in the answer to the same request after it', async (t) => {
  for (const path of Object.keys(requests)) {
    const { ask } = await prepare(path);
    const first = await losingAnswers(service, ask);
    const again = await ask();
    t.equal(again.status, first.status, path);
    t.match(lasting(again.body), lasting(first.body), path);
    if (!('firmwareRollout' in again.body)) t.equal(again.headers.get('etag'), first.headers.get('etag'), path);
  }
});

t.end();
