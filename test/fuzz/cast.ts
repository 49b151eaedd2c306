/** Who calls during the fuzzing, and what there is to call about. Requests name both, as `«name»`, and get the real thing when sent. */

import { rootCertificates } from 'node:tls';
import type { Anything, Made } from '../support/service.ts';
import type { Pairs } from './hostile.ts';
import type { Target } from './target.ts';

const topicRoot = 'slipway/v1';
const password = 'a long enough secret 7';

export const callers = ['admin', 'browser', 'endUser', 'station', 'backEnd', 'app', 'device', 'nobody'] as const;
export type Caller = (typeof callers)[number];

/** Names of things, by what they stand for. */
export type Known = Record<string, string>;

export interface Cast {
  known: Known;
  headers: Record<Caller, Pairs>;
}

/** Makes all of it again: the former cast may have lost its sessions, its organization or itself. */
export async function makeCast({ api }: Target, take: number): Promise<Cast> {
  const { accountId } = api;
  const make = async <N extends keyof Anything>(path: string, body: object, wrapper: N): Promise<Made<N>> =>
    (await api.ok('POST', `/api/v1${path}`, { accountId, ...body }))[wrapper];
  const anyOf = async (path: string, list: 'endUserTemplates' | 'organizationTemplates') =>
    (await api.ok('GET', `/api/v1${path}?accountId=${accountId}&default=true`))[list].results[0];

  const organization = await make('/organizations', { name: `Fuzz ${take}` }, 'organization');
  const child = await make('/organizations', { name: `Child ${take}`, parentId: organization.id }, 'organization');
  const template = await make('/devices/templates', { name: `Fuzz ${take}` }, 'deviceTemplate');
  const channels: string[] = [];
  for (const [name, persistenceType, streamBridgeDelivery] of [
    ['temperature', 'timeSeries', 2],
    ['chat', 'simple', 0],
  ]) {
    const about = { entityId: template.id, entityType: 'deviceTemplate', name, persistenceType, streamBridgeDelivery };
    channels.push((await make('/channels/templates', about, 'channelTemplate')).id);
  }
  const deviceField = await make(
    '/devices/custom-fields',
    { deviceTemplateId: template.id, name: 'floor', fieldType: 'int' },
    'deviceField',
  );
  const newDevice = (serialNumber: string, organizationId: string) =>
    make('/devices', { serialNumber, deviceTemplateId: template.id, organizationId }, 'device');
  const device = await newDevice(`fuzz ${take}`, child.id);
  const other = await newDevice(`other ${take}`, organization.id);
  const honest = await newDevice(`honest ${take}`, organization.id);
  const gone = await newDevice(`gone ${take}`, organization.id);
  await api.ok('DELETE', `/api/v1/devices/${gone.id}`, undefined, gone.version);
  const credential = (entityId: string) =>
    make('/access/mqtt-credentials', { entityId, entityType: 'device' }, 'mqttCredential');
  const { secret } = await credential(device.id);
  const association = await api.ok('POST', '/api/v1/association/create-association-code', { deviceId: other.id });

  const [userEmail, adminEmail] = [`user${take}@example.com`, `admin${take}@example.com`];
  const person = (idmUserEmail: string) => ({ createIdmUser: true, idmUserEmail, idmUserPassword: password });
  const endUser = await make('/end-users', { organizationId: organization.id, ...person(userEmail) }, 'endUser');
  const accountUser = await make('/account-users', person(adminEmail), 'accountUser');
  const stationLimits = { maxDevices: 100_000, expiresAt: '2099-01-01T00:00:00Z' };
  const program = (kind: string, more: object = {}) =>
    make('/applications', { name: `${kind} ${take}`, kind, ...more }, 'application');
  const station = await program('station', {
    deviceTemplateId: template.id,
    organizationId: organization.id,
    ...stationLimits,
  });
  const [backEnd, app] = [await program('backEnd'), await program('endUserApp')];

  const provider = await make(
    '/identity-providers',
    {
      name: `Provider ${take}`,
      issuer: 'http://127.0.0.1:9',
      clientId: 'fuzz',
      redirectUris: ['http://127.0.0.1:9/in'],
    },
    'identityProvider',
  );
  // An account has five at most.
  const { bridges } = await api.ok('GET', `/api/v1/bridges?accountId=${accountId}`);
  const newBridge = { name: `Bridge ${take}`, kind: 'webhook', url: 'http://127.0.0.1:9/' };
  const bridge = bridges.results[0] ?? (await make('/bridges', newBridge, 'bridge'));
  const job = await jobOf(api, `/api/v1/provisioning/jobs?template=${template.id}`, {
    accountId: undefined,
    rows: [{ serialNumber: `row ${take}` }],
  });
  const bulk = await jobOf(api, '/api/v1/devices/jobs', { action: 'regenerate', ids: [other.id] });

  const login = (path: string, body: object) => api.ok('POST', `/api/v1/auth/${path}`, body);
  const user = await login('login-user', { emailAddress: userEmail, password });
  const admin = await login('login-user', { emailAddress: adminEmail, password });
  const tokenOf = async ({ id: appId, appToken }: Record<'id' | 'appToken', string>) =>
    (await login('login-application', { appId, appToken })).jwt;

  await offerFirmware(api, template.id, device.id);
  const { command } = await api.ok('POST', `/api/v1/devices/${device.id}/commands`, { name: 'fuzz' });

  const topic = (channel: string) => `${topicRoot}/${accountId}/d/${device.id}/${channel}`;
  const bearer = (token: string): Pairs => [['authorization', `Bearer ${token}`]];
  const basic = Buffer.from(`${device.id}:${secret}`).toString('base64');
  return {
    known: {
      accountId,
      device: device.id,
      serialNumber: device.serialNumber,
      otherDevice: other.id,
      goneDevice: gone.id,
      secret,
      honest: honest.id,
      honestSecret: (await credential(honest.id)).secret,
      organization: organization.id,
      child: child.id,
      deviceTemplate: template.id,
      endUserTemplate: (await anyOf('/end-users/templates', 'endUserTemplates')).id,
      organizationTemplate: (await anyOf('/organizations/templates', 'organizationTemplates')).id,
      channelTemplate: channels[0] ?? '',
      deviceField: deviceField.id,
      endUser: endUser.id,
      accountUser: accountUser.id,
      user: endUser.userId,
      adminUser: accountUser.userId,
      email: userEmail,
      adminEmail,
      password,
      station: station.id,
      app: app.id,
      appToken: app.appToken,
      provider: provider.id,
      bridge: bridge.id,
      job,
      bulk,
      // Any that is valid now.
      certificate: rootCertificates[0] ?? '',
      associationCode: association.associationCode,
      jwt: user.jwt,
      temperature: topic('temperature'),
      chat: topic('chat'),
      log: topic('_log'),
      fields: topic('_set/fields'),
      control: `slipway/ctrl/v1/${device.id}/svc`,
      firmwareStatus: topic('_firmware/status'),
      replies: topic('_commands/replies'),
      command: command.id,
    },
    headers: {
      admin: bearer(admin.jwt),
      browser: [
        ['cookie', `platform-access-token=${admin.jwt}`],
        ['platform-csrf-token', admin.csrfToken],
      ],
      endUser: bearer(user.jwt),
      station: bearer(await tokenOf(station)),
      backEnd: bearer(await tokenOf(backEnd)),
      app: [['accesstoken', app.appToken]],
      device: [['authorization', `Basic ${basic}`]],
      nobody: [],
    },
  };
}

/** A package with a file, rolled out to the device. */
async function offerFirmware(api: Target['api'], deviceTemplateId: string, deviceId: string): Promise<void> {
  const post = (path: string, body?: object, etag?: string) => api.ok('POST', `/api/v1/firmware${path}`, body, etag);
  const { firmwarePackage } = await post('/packages', { deviceTemplateId, name: 'Fuzz', firmwareVersion: '1' });
  const path = `/packages/${firmwarePackage.id}`;
  const uploaded = await fetch(`${api.url}/api/v1/firmware${path}/files/app.bin`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${api.token}`, 'content-type': 'application/octet-stream' },
    body: new Uint8Array(1000),
  });
  const { firmwarePackage: filled } = (await uploaded.json()) as { firmwarePackage: Made<'firmwarePackage'> };
  await post(`${path}/publish`, undefined, filled.version);
  const target = { deviceIds: [deviceId] };
  await post('/rollouts', { firmwarePackageId: firmwarePackage.id, target, deviceDeadlineSeconds: 3600 });
}

async function jobOf(api: Target['api'], path: string, body: object): Promise<string> {
  const answer = await api.ask('POST', path, body);
  if (answer.status !== 202) throw new Error(`${path} answered ${answer.status}: ${JSON.stringify(answer.body)}`);
  return answer.body.job.id;
}

/** Replaces names by the real things, written as the place wants it. */
export function fill(text: string, known: Known, write: (value: string) => string = (value) => value): string {
  return text.replace(/«(\w+)»/g, (_, name: string) => write(known[name] ?? ''));
}
