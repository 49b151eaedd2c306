import { part } from '../support/part.ts';
import { present, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const families = [
  ['devices', 'deviceTemplate'],
  ['end-users', 'endUserTemplate'],
  ['organizations', 'organizationTemplate'],
] as const;

for (const [kind, wrapper] of families) {
  t.test(`${kind}: a default template is there, and stays`, async (t) => {
    const list = await service.ok('GET', `/api/v1/${kind}/templates?accountId=${service.accountId}&default=true`);
    const [template, ...others] = list[`${wrapper}s`].results;
    t.same(others, []);
    t.equal(template.default, 'true', 'the text');
    const path = `/api/v1/${kind}/templates/${template.id}`;
    const removed = await service.http('DELETE', path, { headers: { etag: template.version } });
    t.match(removed, { status: 400, body: { error: { code: 104 } } });
    t.match(await service.http('GET', path), { status: 200 });
  });

  t.test(`${kind}: create, rename, list, delete, recover`, async (t) => {
    const made = await service.create(`/${kind}/templates`, wrapper, { name: 'First' });
    t.equal(made.default, 'false');
    const twin = await service.http('POST', `/api/v1/${kind}/templates`, {
      body: { accountId: service.accountId, name: 'First' },
    });
    t.match(twin, { status: 400, body: { error: { code: 106, details: [{ path: 'name' }] } } });
    const path = `/api/v1/${kind}/templates/${made.id}`;
    const renamed = (await service.ok('PUT', path, { headers: { etag: made.version }, body: { name: 'Second' } }))[
      wrapper
    ];
    const meta = (await service.ok('GET', `/api/v1/${kind}/templates?accountId=${service.accountId}&name=Second`))[
      `${wrapper}s`
    ].meta;
    t.same(meta, { count: 1, page: 1, pageSize: 10, sortOrder: 'asc', sortBy: 'name' });
    await service.ok('DELETE', path, { headers: { etag: renamed.version } });
    t.match(await service.http('GET', path), { status: 410, body: { error: { code: 107 } } });
    await service.create(`/${kind}/templates`, wrapper, { name: 'Second' });
    const recover = (etag: string) =>
      service.http('POST', `/api/v1/trash/${kind}/templates/${made.id}/recover`, { headers: { etag } });
    t.match(await recover(renamed.version), { status: 400, body: { error: { code: 106 } } }, 'the name has been taken');
    const trash = await service.ok('GET', `/api/v1/trash/${kind}/templates?accountId=${service.accountId}`);
    t.equal(trash[`${wrapper}s`].results[0].id, made.id);
  });
}

t.test('a template in use stays; its children are counted when asked for', async (t) => {
  const template = await service.template({ make: 'Acme', description: 'x'.repeat(1000) });
  t.equal(template.make, 'Acme');
  t.equal(template.category, null);
  const of = { deviceTemplateId: template.id };
  const { device } = await service.device(of);
  const { id: organizationId } = await service.organization();
  const defined = await service.create('/devices', 'device', { ...of, serialNumber: 'counted', organizationId });
  const path = `/api/v1/devices/templates/${template.id}`;
  const count = async () => (await service.ok('GET', `${path}?count=devices`)).deviceTemplate.deviceCount;
  t.equal(await count(), 2, 'in whatever state and place');
  await service.ok('DELETE', `/api/v1/devices/${defined.id}`, { headers: { etag: defined.version } });
  t.equal(await count(), 1, 'live ones only');
  t.notOk('deviceCount' in (await service.ok('GET', path)).deviceTemplate);
  const remove = () => service.http('DELETE', path, { headers: { etag: template.version } });
  t.match(await remove(), { status: 400, body: { error: { code: 104 } } });
  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: version } });
  t.match(await remove(), { status: 200 });
  const body = { accountId: service.accountId, serialNumber: 'x', deviceTemplateId: template.id };
  t.match(await service.http('POST', '/api/v1/devices', { body }), { status: 400, body: { error: { code: 102 } } });
});

t.test('channel templates: names, types, service channels', async (t) => {
  const template = await service.template({ channels: ['temperature'] });
  const names = template.channelTemplates.map((channel) => channel.name).sort();
  t.same(names, ['_log', '_rejected', '_set/fields', '_updates/fields', 'temperature']);
  const make = (body: object) =>
    service.http('POST', '/api/v1/channels/templates', {
      body: { accountId: service.accountId, entityId: template.id, entityType: 'deviceTemplate', name: 'c', ...body },
    });
  for (const name of ['_mine', 'a/b', 'a+', '#', 'bell\u0007', 'x'.repeat(101), '', 'latest', 'temperature'])
    t.match(
      await make({ name }),
      { status: 400, body: { error: { code: 106, details: [{ path: 'name' }] } } },
      JSON.stringify(name),
    );
  for (const body of [
    { entityType: 'device' },
    { streamBridgeDelivery: 3 },
    { streamBridgeDelivery: '1' },
    { persistenceType: 'both' },
  ])
    t.match(await make(body), { status: 400, body: { error: { code: 106 } } }, JSON.stringify(body));
  t.match(await make({ entityId: 'nothing' }), { status: 400, body: { error: { code: 102 } } });
  const { channelTemplate } = (await make({ name: 'Größe 1', streamBridgeDelivery: 2 })).body;
  t.match(channelTemplate, {
    persistenceType: 'simple',
    streamBridgeDelivery: 2,
    serviceTopic: false,
    entityId: template.id,
  });
  const path = `/api/v1/channels/templates/${channelTemplate.id}`;
  const { channelTemplate: changed } = await service.ok('PUT', path, {
    headers: { etag: channelTemplate.version },
    body: { streamBridgeDelivery: 0 },
  });
  t.equal(changed.streamBridgeDelivery, 0);
  const log = present(template.channelTemplates.find((channel) => channel.name === '_log'));
  const { channelTemplate: service_ } = await service.ok('GET', `/api/v1/channels/templates/${log.id}`);
  t.equal(service_.serviceTopic, true);
  const removed = await service.http('DELETE', `/api/v1/channels/templates/${log.id}`, {
    headers: { etag: service_.version },
  });
  t.match(removed, { status: 400, body: { error: { code: 104 } } });
  const list = await service.ok(
    'GET',
    `/api/v1/channels/templates?accountId=${service.accountId}&entityId=${template.id}`,
  );
  t.equal(list.channelTemplates.meta.count, 6);
});

t.test('a channel template says how values of its categories are shown', async (t) => {
  const template = await service.template();
  const temperature = { name: 'temperature', label: 'Temperature', unit: '°C', kind: 'number' };
  const door = { name: 'door', kind: 'state' };
  const made = await service.channel(template.id, {
    name: 'data',
    persistenceType: 'timeSeries',
    categories: [temperature, door],
  });
  t.same(made.categories, [temperature, door]);
  const path = `/api/v1/channels/templates/${made.id}`;
  const put = (etag: string, body: object) => service.http('PUT', path, { headers: { etag }, body });
  const kept = (await put(made.version, { streamBridgeDelivery: 1 })).body.channelTemplate;
  t.same(kept.categories, [temperature, door], 'a PUT without categories keeps them');

  const organization = await service.organization();
  const { device } = await service.device({ deviceTemplateId: template.id, organizationId: organization.id });
  const { token } = await service.endUser(organization.id);
  const { connectivity } = await service.ok('GET', `/api/v1/devices/${device.id}/connectivity`, { token });
  const shown = Object.fromEntries(connectivity.topics.map(({ channel, categories }) => [channel, categories]));
  t.same(shown.data, [temperature, door], 'an end-user sees them at the device');
  t.same(shown._log, []);

  const refused = async (categories: unknown, path: string) =>
    t.match(await put(kept.version, { categories }), { status: 400, body: { error: { details: [{ path }] } } }, path);
  await refused([door, temperature, door], 'categories.2.name');
  await refused([{ name: 'door' }], 'categories.0.kind');
  await refused([{ ...door, kind: 'text' }], 'categories.0.kind');
  await refused([{ ...door, colour: 'red' }], 'categories.0.colour');
  await refused([{ ...door, unit: 'x'.repeat(21) }], 'categories.0.unit');
  await refused([{ ...door, label: 'x'.repeat(101) }], 'categories.0.label');
  await refused([{ ...door, name: 'x'.repeat(256) }], 'categories.0.name');
  const many = Array.from({ length: 51 }, (_, n) => ({ name: `c${n}`, kind: 'number' }));
  await refused(many, 'categories');
  const { channelTemplate } = (await put(kept.version, { categories: many.slice(1) })).body;
  t.equal(channelTemplate.categories.length, 50);
  t.same((await put(channelTemplate.version, { categories: [] })).body.channelTemplate.categories, []);
});

t.test('an end-user has nothing to do with templates and channels', async (t) => {
  const { token } = await service.endUser((await service.organization()).id);
  for (const path of [
    '/devices/templates',
    '/end-users/templates',
    '/organizations/templates',
    '/channels/templates',
  ]) {
    const refused = { status: 403, body: { error: { code: 21 } } };
    t.match(await service.http('GET', `/api/v1${path}?accountId=${service.accountId}`, { token }), refused);
    t.match(await service.http('GET', `/api/v1${path}/some-id`, { token }), refused);
    t.match(await service.http('GET', `/api/v1/trash${path}?accountId=${service.accountId}`, { token }), refused);
  }
});

t.test(
  'a whole channel template may be sent back, and only streamBridgeDelivery and retentionDays have an effect',
  async (t) => {
    const [template, other] = [await service.template({ channels: ['data'] }), await service.template()];
    const { id } = present(template.channelTemplates.find((channel) => channel.name === 'data'));
    const path = `/api/v1/channels/templates/${id}`;
    const before = (await service.ok('GET', path)).channelTemplate;
    const accountId = 'f7a55bd4-8f8e-4b92-8b47-111111111111';
    const sent = {
      ...before,
      accountId,
      entityId: other.id,
      name: 'injected',
      version: -7,
      created: [],
      flags: {},
      colour: 'red',
      streamBridgeDelivery: 1,
    };
    const answer = await service.http('PUT', path, { headers: { etag: before.version }, body: sent });
    t.match(answer, {
      status: 200,
      body: { channelTemplate: { ...before, version: '2', lastModified: String, streamBridgeDelivery: 1 } },
    });
    t.match(answer.headers.get('platform-ignored-properties'), 'accountId');
  },
);

t.test('a channel may have the name of anything that objects inherit', async (t) => {
  const names = ['constructor', 'toString', 'valueOf', 'hasOwnProperty'];
  const template = await service.template({ channels: names });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const client = await service.connect({ deviceId: device.id, secret });
  for (const name of names) {
    t.equal(device.channels.find((channel) => channel.channelTemplateName === name)?.serviceTopic, false);
    await client.publishAsync(service.topic(device.id, name), ',x,1,', { qos: 1 });
    t.match((await service.ok('GET', `/api/v4/data/${service.topic(device.id, name)}`)).result, [{ numericValue: 1 }]);
  }
});

t.end();
