/** An account with something in most tables, and what its admin sees of it. */
import { makeKey, makeRequest } from '../../src/certificates/pki/making.ts';
import { basic, claim, newGroup } from '../enrollment/devices.ts';
import type { Service } from './service.ts';

export const points = Array.from(
  { length: 40 },
  (_, n) => `${Date.parse('2026-01-01') + n * 1000},${n % 2 ? 'a' : 'b'},${n},`,
);

export interface Unit {
  id: string;
  secret: string;
}

export interface Moved {
  accountId: string;
  admin: string;
  devices: Unit[];
  code: string;
  bridgeId: string;
  topic: string;
  /** A group, and the device that it has made and that has renewed its secret for a certificate. */
  group: { id: string; claimSecret: string };
  enrolled: Unit;
  /** What a device has done for two owners, and a token of the second one. */
  passed: { topic: string; token: string };
}

/** An account with something in most tables: what the service of the first one has besides stays there. */
export async function populate(service: Service): Promise<Moved> {
  const { accountId, admin } = await service.account();
  Object.assign(service, { accountId, admin });
  const post = (path: string, body: object) => service.ok('POST', `/api/v1${path}`, { body: { accountId, ...body } });
  const template = await service.template({
    channels: ['series', { name: 'state' }, { name: 'events', streamBridgeDelivery: 2 }, 'history'],
  });
  const { bridge } = await post('/bridges', { name: 'B', kind: 'webhook', url: 'http://127.0.0.1:9/' });
  const organization = await service.organization();
  const user = await service.endUser(organization.id);
  const made = [];
  for (let n = 0; n < 4; n += 1)
    made.push(await service.device({ deviceTemplateId: template.id, organizationId: organization.id }));
  const devices = made.map(({ device, secret }) => ({ id: device.id, secret }));
  const [first, second, third, fourth] = devices as [Unit, Unit, Unit, Unit];
  const { device } = await service.ok('GET', `/api/v1/devices/${fourth.id}`);
  await service.ok('DELETE', `/api/v1/devices/${fourth.id}`, { headers: { etag: device.version } });
  const { associationCode: code } = await post('/association/create-association-code', { deviceId: third.id });

  // A stored session that is away while messages come.
  const reader = await service.connect({ jwt: admin }, { clientId: 'reader', clean: false });
  await reader.subscribeAsync([service.topic('+', 'state'), service.topic('+', 'series')], { qos: 1 });
  await reader.endAsync();
  for (const [n, { id, secret }] of [first, second].entries()) {
    const client = await service.connect({ deviceId: id, secret });
    // The second half first: its times are later than those that follow.
    for (const part of [points.slice(20), points.slice(0, 20)])
      await client.publishAsync(service.topic(id, 'series'), part.join('\n'), { qos: 1 });
    await client.publishAsync(service.topic(id, 'state'), `state ${n}`, { qos: 1, retain: true });
    await client.publishAsync(service.topic(id, 'events'), `event ${n}`, { qos: 1 });
    await client.publishAsync(service.topic(id, '_log'), JSON.stringify({ message: `pump ${n} overheated` }), {
      qos: 1,
    });
    await client.endAsync();
  }
  const topic = service.topic(first.id, 'series');
  await service.loginAs(user.email, user.password);
  const enrollment = await enroll(service, template.id);
  const passed = await passOn(service, template.id, organization.id);
  return { accountId, admin, devices, code, bridgeId: bridge.id, topic, passed, ...enrollment };
}

/** A CA, a group with what it made and refused, a certificate that has ended, and a renewal that is under way. */
async function enroll(service: Service, deviceTemplateId: string): Promise<Pick<Moved, 'group' | 'enrolled'>> {
  const issuer = { name: 'Issuer', issuing: true };
  const { id: certificateAuthorityId } = await service.create(
    '/access/certificate-authorities',
    'certificateAuthority',
    issuer,
  );
  const more = { issues: 'either', certificateAuthorityId, serialNumberPattern: 'E-*' };
  const { id, claimSecret = '' } = await newGroup(service, { deviceTemplateId, ...more });
  const asked = (serialNumber: string, csr?: string) => claim(service, { id, claimSecret }, { serialNumber, csr });
  const { credential } = (await asked('E-1')).body;
  const certified = await asked('E-2', makeRequest(makeKey(), 'E-2'));
  await asked('X-1');
  const list = `/api/v1/access/mqtt-certificates?accountId=${service.accountId}&entityId=${certified.body.device.id}`;
  for (const { id, version } of (await service.ok('GET', list)).mqttCertificates.results ?? [])
    await service.ok('DELETE', `/api/v1/access/mqtt-certificates/${id}`, { headers: { etag: version } });
  const enrolled = { id: credential.username, secret: String(credential.secret) };
  const headers = basic(enrolled.id, enrolled.secret);
  const body = { csr: makeRequest(makeKey(), 'E-1') };
  await service.ok('POST', '/api/v1/enroll/renew', { token: null, headers, body });
  return { group: { id, claimSecret }, enrolled };
}

/** A device that goes from one organization to another, with a point for each. */
async function passOn(service: Service, deviceTemplateId: string, organizationId: string) {
  const { device, secret } = await service.device({ deviceTemplateId, organizationId });
  const topic = service.topic(device.id, 'history');
  const next = await service.organization();
  const client = await service.connect({ deviceId: device.id, secret });
  // By its clock it has measured later what was for the first.
  await client.publishAsync(topic, `${Date.now() + 3_600_000},first,1,`, { qos: 1 });
  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  const body = { organizationId: next.id };
  await service.ok('PUT', `/api/v1/devices/${device.id}`, { body, headers: { etag: version } });
  await client.publishAsync(topic, `${Date.now() + 1000},second,2,`, { qos: 1 });
  await client.endAsync();
  const expiresAt = new Date(Date.now() + 86_400_000).toISOString();
  const { token } = await service.ok('POST', '/api/v1/tokens', {
    body: { name: 'T', expiresAt, organizationId: next.id },
  });
  return { topic, token: token.token };
}

/** What its admin sees of the account. */
export async function seen(service: Service, { accountId, admin, topic, bridgeId, devices, group, passed }: Moved) {
  const get = async (path: string) => {
    const { status, body } = await service.http('GET', path, { token: admin });
    if (status !== 200) throw new Error(`${path} answered ${status}: ${JSON.stringify(body)}`);
    return body;
  };
  const list = (path: string) =>
    get(`/api/v1${path}${path.includes('?') ? '&' : '?'}accountId=${accountId}&pageSize=100`);
  const search = { query: { bool: { must: [{ match: { message: 'overheated' } }] } } };
  const found = await service.ok('POST', '/api/v1/logs/search', { body: search, token: admin });
  const { usage } = await list('/usage');
  return {
    devices: await list('/devices'),
    trash: await list('/trash/devices'),
    organizations: await list('/organizations?count=devices,end-users'),
    endUsers: await list('/end-users'),
    templates: await list('/devices/templates'),
    points: (await get(`/api/v4/data/${topic}?startDateTime=2025-12-31&endDateTime=2026-02-01&pageSize=1000`)).result,
    category: (await get(`/api/v4/data/${topic}?startDateTime=2025-12-31&endDateTime=2026-02-01&category=a`)).result,
    logs: (await get(`/api/v1/devices/${devices[0]?.id}/logs`)).logs.results,
    passed: (await service.ok('GET', `/api/v4/data/${passed.topic}/latest`, { token: passed.token })).result,
    found: found.hits.hits.map(({ _id }) => _id).sort(),
    groups: await list('/enrollment-groups'),
    refused: await get(`/api/v1/enrollment-groups/${group.id}/refusals`),
    enrolled: await get(`/api/v1/enrollment-groups/${group.id}/devices`),
    certificates: await list('/access/mqtt-certificates'),
    authorities: await list('/access/certificate-authorities'),
    pending: (await get(`/api/v1/bridges/${bridgeId}`)).bridge.status.pending,
    kept: [usage.points, usage.logs, usage.outbox],
  };
}
