/** Last values in lists of devices, and the value that matters of a device template. */
import type { Test } from 'tap';
import { part } from '../support/part.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

const temperature = { name: 'temperature', label: 'Inside', unit: '°C', kind: 'number' } as const;
const door = { name: 'door', kind: 'state' } as const;
const up = { name: 'up', persistenceType: 'timeSeries', categories: [temperature, door] };
const primary = { channel: 'up', category: 'temperature' };

/** The version of an entity now. */
async function etagOf(service: Service, path: string): Promise<string> {
  return (await service.http('GET', path)).headers.get('etag') ?? '';
}

async function start(t: Test) {
  const service = await sharedService(t);
  const template = await service.template({ channels: [up, 'down', { name: 'chat', persistenceType: 'simple' }] });
  const path = `/api/v1/devices/templates/${template.id}`;
  const put = (body: object) => service.http('PUT', path, { headers: { etag: template.version }, body });
  return { service, template, path, put };
}

/** Points of a device, over HTTP. */
async function points(service: Service, id: string, channel: string, rows: readonly string[]) {
  const path = `/api/v4/data/${service.topic(id, channel)}`;
  await service.ok('POST', path, { headers: { 'content-type': 'text/csv' }, body: rows.join('\n') });
}

const now = Math.floor(Date.now() / 1000) * 1000;
const at = (seconds: number) => new Date(now + seconds * 1000).toISOString();

async function valuesOf(service: Service, names: string, more = '', token = service.admin) {
  const path = `/api/v1/devices?accountId=${service.accountId}&values=${encodeURIComponent(names)}&pageSize=1000${more}`;
  const { results } = (await service.ok('GET', path, { token })).devices as {
    results: { id: string; values?: Record<string, unknown> }[];
  };
  return new Map(results.map(({ id, values }) => [id, values]));
}

t.test('a device template has a primary value, which is of a channel of it and of a declared category', async (t) => {
  const { service, template, path, put } = await start(t);
  t.equal(template.primary, null);
  const refused = { status: 400, body: { error: { code: 102 } } };
  for (const [body, wrong] of [
    [{ channel: 'other', category: 'temperature' }, 'primary/channel'],
    [{ channel: 'up', category: 'other' }, 'primary/category'],
    [{ channel: 'down', category: 'temperature' }, 'primary/category'],
  ] as const)
    t.match(await put({ primary: body }), { ...refused, body: { error: { details: [{ path: wrong }] } } });
  for (const body of ['up.temperature', { channel: 'up' }, { ...primary, more: 1 }])
    t.match(await put({ primary: body }), { status: 400, body: { error: { code: 106 } } }, JSON.stringify(body));
  const of = { accountId: service.accountId, name: 'other', primary };
  t.match(await service.http('POST', '/api/v1/devices/templates', { body: of }), refused, 'it has no channels yet');
  const set = await put({ primary });
  t.strictSame(set.body.deviceTemplate.primary, primary);
  const listed = await service.ok('GET', `/api/v1/devices/templates?accountId=${service.accountId}&fields=primary`);
  const own = listed.deviceTemplates.results.find(({ id }) => id === template.id);
  t.strictSame(own, { id: template.id, primary });
  t.strictSame((await service.ok('GET', path)).deviceTemplate.primary, primary);
  const change = async (body: object) =>
    service.http('PUT', path, { headers: { etag: await etagOf(service, path) }, body });
  const channel = template.channelTemplates.find(({ name }) => name === 'up');
  const channelPath = `/api/v1/channels/templates/${channel?.id}`;
  await service.ok('DELETE', channelPath, { headers: { etag: await etagOf(service, channelPath) } });
  t.match(await change({ name: 'renamed', primary }), { status: 200 }, 'what it was may be sent back');
  t.strictSame((await change({ primary: null })).body.deviceTemplate.primary, null);
  t.match(await change({ primary }), refused, 'once it is another, the channel must be there');
});

t.test('a list of devices has their last values by name, in one read for a page', async (t) => {
  const { service, template, put } = await start(t);
  await put({ primary });
  const made = [];
  for (let n = 0; n < 3; n += 1) made.push((await service.device({ deviceTemplateId: template.id })).device.id);
  const [one = '', two = '', three = ''] = made;
  await points(service, one, 'up', [
    `${at(-3)},temperature,20,`,
    `${at(-2)},temperature,21.5,`,
    `${at(-1)},door,,open`,
  ]);
  await points(service, one, 'down', [`${at(-5)},a.b,4,`, `${at(-4)},,3,`]);
  await points(service, two, 'down', [`${at(-9)},x,1,`, `${at(500_000)},x,2,`]);
  const reads: number[] = [];
  const { series } = service.server.ctx.messages;
  const lasts = series.lasts.bind(series);
  series.lasts = (devices) => {
    reads.push(devices.length);
    return lasts(devices);
  };
  t.teardown(() => {
    series.lasts = lasts;
  });
  const names = ['up.temperature', 'up.door', 'down.a.b', 'chat.x', 'primary'];
  const found = await valuesOf(service, names.join());
  t.strictSame(reads, [3]);
  const last = { value: 21.5, time: at(-2) };
  t.strictSame(found.get(one), {
    'up.temperature': last,
    'up.door': { value: 'open', time: at(-1) },
    'down.a.b': { value: 4, time: at(-5) },
    'chat.x': null,
    primary: last,
  });
  await points(service, one, 'up', [`${at(-60)},temperature,5,`]);
  t.strictSame((await valuesOf(service, 'up.temperature,primary')).get(one), {
    ...{ 'up.temperature': last, primary: last },
  });
  const none = Object.fromEntries(names.map((name) => [name, null]));
  t.strictSame(found.get(two), none);
  t.strictSame(found.get(three), none);
  await put({ primary }).then(({ status }) => t.equal(status, 412, 'the version is another one'));
  const path = `/api/v1/devices/templates/${template.id}`;
  const headers = { etag: await etagOf(service, path) };
  await service.ok('PUT', path, { headers, body: { primary: null } });
  const newest = await valuesOf(service, 'primary,down.x,up.nothing,nowhere.x');
  t.strictSame(newest.get(one), {
    ...{ primary: { value: 'open', time: at(-1) }, 'down.x': null },
    ...{ 'up.nothing': null, 'nowhere.x': null },
  });
  const x = { value: 1, time: at(-9) };
  t.match(newest.get(two), { primary: x, 'down.x': x }, 'what came ahead of its time is never the last');
  t.equal(newest.get(three)?.primary, null);
  t.notOk('values' in (await service.ok('GET', `/api/v1/devices/${one}`)).device);
  const { device } = await service.ok('GET', `/api/v1/devices/${one}?values=up.door`);
  t.strictSame(device.values, { 'up.door': { value: 'open', time: at(-1) } });
  const chosen = `/api/v1/devices?accountId=${service.accountId}&values=up.door&fields=values&deviceTemplateId=${template.id}`;
  t.strictSame(Object.keys((await service.ok('GET', chosen)).devices.results[0] ?? {}), ['id', 'values']);
});

t.test('a rare category is found behind thousands of points of another', async (t) => {
  const { service, template } = await start(t);
  const { device } = await service.device({ deviceTemplateId: template.id });
  await points(service, device.id, 'up', [`${at(-10_000)},door,,shut`]);
  const many = Array.from({ length: 9000 }, (_, n) => `${at(n - 9500)},temperature,${n},`);
  for (let from = 0; from < many.length; from += 1000)
    await points(service, device.id, 'up', many.slice(from, from + 1000));
  const found = (await valuesOf(service, 'up.door,up.temperature')).get(device.id);
  t.strictSame(found, {
    'up.door': { value: 'shut', time: at(-10_000) },
    'up.temperature': { value: 8999, time: at(-501) },
  });
});

t.test('what is no name of a value is refused', async (t) => {
  const { service } = await start(t);
  for (const wrong of [
    'up',
    'up.',
    '.x',
    '',
    '.',
    'a.b,',
    'a.b,c',
    Array(6).fill('a.b').join(),
    'Primary',
    `${'x'.repeat(201)}.y`,
  ])
    t.match(
      await service.http('GET', `/api/v1/devices?accountId=${service.accountId}&values=${wrong}`),
      { status: 400, body: { error: { code: 106, details: [{ path: 'values' }] } } },
      wrong,
    );
});

t.test('values are what the caller may read of the points, and of its possession alone', async (t) => {
  const { service, template } = await start(t);
  const [first, second] = [await service.organization(), await service.organization()];
  const blind = { organization: ['read'], device: ['read', 'update'] };
  const role = await service.create('/roles', 'role', { name: 'sees no points', scope: 'organization', rights: blind });
  const reader = await service.endUser(first.id, { roleId: 'organization:viewer' });
  const { token } = await service.endUser(first.id, { roleId: role.id });
  const next = await service.endUser(second.id);
  const { device } = await service.device({ deviceTemplateId: template.id, organizationId: first.id });
  await points(service, device.id, 'up', [`${at(-3)},temperature,20,`]);
  const known = { value: 20, time: at(-3) };
  const both = 'up.temperature,primary';
  t.strictSame((await valuesOf(service, both, '', reader.token)).get(device.id), {
    'up.temperature': known,
    primary: known,
  });
  const topic = service.topic(device.id, 'up');
  t.match(await service.http('GET', `/api/v4/data/${topic}/latest`, { token }), { status: 403 });
  t.strictSame((await valuesOf(service, both, '', token)).get(device.id), { 'up.temperature': null, primary: null });
  const path = `/api/v1/devices/${device.id}`;
  const headers = { etag: await etagOf(service, path) };
  await service.ok('PUT', path, { headers, body: { organizationId: second.id } });
  t.strictSame((await valuesOf(service, both, '', next.token)).get(device.id), {
    'up.temperature': null,
    primary: null,
  });
  t.strictSame((await valuesOf(service, both, '', reader.token)).size, 0);
  t.strictSame(
    (await valuesOf(service, both)).get(device.id),
    { 'up.temperature': known, primary: known },
    'admins see all',
  );
});

t.end();
