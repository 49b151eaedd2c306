/** An account with something in most tables, and what its admin sees of it. */
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
}

/** An account with something in most tables: what the service of the first one has besides stays there. */
export async function populate(service: Service): Promise<Moved> {
  const { accountId, admin } = await service.account();
  Object.assign(service, { accountId, admin });
  const post = (path: string, body: object) => service.ok('POST', `/api/v1${path}`, { body: { accountId, ...body } });
  const template = await service.template({
    channels: ['series', { name: 'state' }, { name: 'events', streamBridgeDelivery: 2 }],
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
  return { accountId, admin, devices, code, bridgeId: bridge.id, topic };
}

/** What its admin sees of the account. */
export async function seen(service: Service, { accountId, admin, topic, bridgeId, devices }: Moved) {
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
    found: found.hits.hits.map(({ _id }) => _id).sort(),
    pending: (await get(`/api/v1/bridges/${bridgeId}`)).bridge.status.pending,
    kept: [usage.points, usage.logs, usage.outbox],
  };
}
