import type { EntityTable } from '../db/registry/records.ts';
import { purge } from '../src/purge/purge.ts';
import { makeCertificate } from './support/certificates.ts';
import { part } from './support/part.ts';
import { present, type Service, startService } from './support/service.ts';
import { until } from './support/until.ts';

const t = await part(import.meta);

const day = 24 * 60 * 60_000;
let now = Date.parse('2026-05-01T00:00:00Z');
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now } });
});

const remove = (path: string, version: string) =>
  service.ok('DELETE', `/api/v1${path}`, { headers: { etag: version } });
const count = async (table: EntityTable | 'credentials' | 'associationCodes') =>
  (
    await service.server.ctx.registry.query
      .selectFrom(table as 'devices')
      .select((eb) => eb.fn.countAll<number>().as('n'))
      .executeTakeFirstOrThrow()
  ).n;

t.test(
  'after thirty days a device goes with its credential, certificate, code, points and log, and not before',
  async (t) => {
    const template = await service.template({ channels: ['data'] });
    const { device, secret } = await service.device({ deviceTemplateId: template.id });
    const kept = await service.device({ deviceTemplateId: template.id });
    const { cert: certificate } = await makeCertificate({ from: now - day, to: now + 90 * day });
    const ofDevice = { entityId: device.id, entityType: 'device', certificate };
    await service.create('/access/mqtt-certificates', 'mqttCertificate', ofDevice);
    await service.ok('POST', '/api/v1/association/create-association-code', { body: { deviceId: device.id } });
    for (const one of [{ device, secret }, kept]) {
      const client = await service.connect({ deviceId: one.device.id, secret: one.secret });
      await client.publishAsync(service.topic(one.device.id, 'data'), ',x,1,', { qos: 1 });
      await client.publishAsync(service.topic(one.device.id, '_log'), 'hello', { qos: 1 });
    }
    const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
    await remove(`/devices/${device.id}`, version);
    const [devices, credentials] = [await count('devices'), await count('credentials')];
    t.equal(await count('certificates'), 1);
    const { messages } = service.server.ctx;
    const logs = async () => (await messages.logs.read(device.id, {}, { page: 1, pageSize: 10 }))?.total ?? 0;
    // Its own entry, and those of its connection, which are stored a moment later.
    await until(async () => (await logs()) >= 3);

    now += 30 * day;
    await service.login();
    await purge(service.server.ctx);
    t.equal(await count('devices'), devices, 'thirty days to the millisecond are still recoverable');
    now += 1;
    await purge(service.server.ctx);
    t.equal(await count('devices'), devices - 1);
    t.equal(await count('credentials'), credentials - 1);
    t.equal(await count('certificates'), 0);
    t.equal(await count('associationCodes'), 0);
    t.equal(await logs(), 0);
    const channel = present(template.channelTemplates.find((one) => one.name === 'data'));
    const points = (deviceId: string) =>
      messages.read(
        { accountId: service.accountId, deviceId, channelTemplateId: channel.id },
        { from: 0, to: now, order: 'asc', limit: 10 },
      ).length;
    t.equal(points(device.id), 0);
    t.equal(points(kept.device.id), 1, 'what belongs to others stays');
    t.match(await service.http('GET', `/api/v1/devices/${device.id}`), { status: 404, body: { error: { code: 100 } } });
    t.match(await service.http('GET', `/api/v1/trash/devices/${device.id}`), { status: 404 });
  },
);

t.test('what something still points at stays until that is gone too', async (t) => {
  const parent = await service.organization();
  const child = await service.organization({ parentId: parent.id });
  const template = await service.template({ channels: ['data'] });
  const deviceTemplateId = template.id;
  const field = { deviceTemplateId, name: 'colour', fieldType: 'string' };
  await service.create('/devices/custom-fields', 'deviceField', field);
  const named = { deviceTemplateId, name: 'Thermometer', firmwareVersion: '2.0.0' };
  const firmware = await service.create('/firmware/packages', 'firmwarePackage', named);
  const device = await service.create('/devices', 'device', {
    serialNumber: 'p',
    organizationId: child.id,
    deviceTemplateId: template.id,
  });
  await remove(`/devices/${device.id}`, device.version);
  now += 5 * day;
  for (const organization of [child, parent]) await remove(`/organizations/${organization.id}`, organization.version);
  await remove(`/devices/templates/${template.id}`, template.version);
  const [organizations, templates, channels, fields] = [
    await count('organizations'),
    await count('deviceTemplates'),
    await count('channelTemplates'),
    await count('customFields'),
  ];
  now += 5 * day;
  await service.login();
  await remove(`/firmware/packages/${firmware.id}`, firmware.version);
  now += 25 * day + 1;
  await service.login();
  await purge(service.server.ctx);
  t.equal(await count('organizations'), organizations - 2);
  t.equal(await count('deviceTemplates'), templates, 'a package names the template');
  now += 5 * day;
  await purge(service.server.ctx);
  t.equal(await count('deviceTemplates'), templates - 1);
  t.equal(await count('channelTemplates'), channels - 5, 'with its channels');
  t.equal(await count('customFields'), fields - 1, 'and its fields');
});

t.test('a purged field leaves no value behind', async (t) => {
  const template = await service.template();
  const field = await service.create('/devices/custom-fields', 'deviceField', {
    deviceTemplateId: template.id,
    name: 'gone',
    fieldType: 'string',
  });
  const stay = await service.create('/devices/custom-fields', 'deviceField', {
    deviceTemplateId: template.id,
    name: 'stays',
    fieldType: 'string',
  });
  for (let n = 0; n < 120; n += 1)
    await service.create('/devices', 'device', {
      serialNumber: `f${n}`,
      deviceTemplateId: template.id,
      gone: 'old',
      stays: 'here',
    });
  await remove(`/devices/custom-fields/${field.id}`, field.version);
  now += 30 * day + 1;
  await service.login();
  await purge(service.server.ctx);
  const rows = await service.server.ctx.registry.query
    .selectFrom('devices')
    .select('fields')
    .where('deviceTemplateId', '=', template.id)
    .execute();
  t.equal(rows.length, 120);
  t.ok(rows.every(({ fields }) => fields === JSON.stringify({ [stay.id]: 'here' })));
  t.match(
    await service.http('POST', `/api/v1/trash/devices/custom-fields/${field.id}/recover`, {
      headers: { etag: field.version },
    }),
    { status: 404 },
  );
});

t.test('values that look like the key of a purged field stay, and the purge comes to an end', async (t) => {
  const { id: deviceTemplateId } = await service.template();
  const field = (name: string) =>
    service.create('/devices/custom-fields', 'deviceField', { deviceTemplateId, name, fieldType: 'string' });
  const [gone, stays] = await Promise.all([field('gone'), field('stays')]);
  // More of them than one step takes, in front of those that have a value of the field.
  const texts = [...Array(120).fill(gone.id), `"${gone.id}":`, `{"${gone.id}":1}`, `\\"${gone.id}":`, gone.id];
  for (const [n, text] of texts.entries())
    await service.create('/devices', 'device', {
      serialNumber: `k${n + 1000}`,
      deviceTemplateId,
      stays: text,
      ...(n >= 120 && { gone: 'old' }),
    });
  await remove(`/devices/custom-fields/${gone.id}`, gone.version);
  now += 30 * day + 1;
  await service.login();
  let steps = 0;
  await purge(service.server.ctx, () => {
    steps += 1;
    return steps > 100;
  });
  t.ok(steps < 100, `${steps} steps`);
  const { query } = service.server.ctx.registry;
  const devices = query.selectFrom('devices').select('fields').where('deviceTemplateId', '=', deviceTemplateId);
  t.same(
    (await devices.orderBy('serialNumber').execute()).map(({ fields }) => JSON.parse(fields)),
    texts.map((text) => ({ [stays.id]: text })),
  );
  const fields = query.selectFrom('customFields').select('name').where('templateId', '=', deviceTemplateId);
  t.same(await fields.execute(), [{ name: 'stays' }]);
});

t.test('tokens that were mailed go when their time is over, and not before', async (t) => {
  const { endUser } = await service.endUser((await service.organization()).id);
  const { query } = service.server.ctx.registry;
  const token = (tokenHash: string, left: number) => ({
    tokenHash,
    userId: endUser.userId,
    purpose: 'password',
    email: null,
    created: new Date(now).toISOString(),
    expires: new Date(now + left).toISOString(),
  });
  const over = Array.from({ length: 250 }, (_, n) => token(`over ${n}`, -1));
  await query
    .insertInto('mailedTokens')
    .values([...over, token('good', 1)])
    .execute();
  await purge(service.server.ctx);
  t.match(await query.selectFrom('mailedTokens').selectAll().execute(), [{ tokenHash: 'good' }]);
});

t.test('what cannot be purged keeps nothing else from it', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'stuck' });
  const organization = await service.organization();
  await remove(`/devices/${device.id}`, device.version);
  await remove(`/organizations/${organization.id}`, organization.version);
  now += 30 * day + 1;
  await service.login();
  const { ctx } = service.server;
  const { messages } = ctx;
  const original = messages.deleteDevice;
  messages.deleteDevice = () => Promise.reject(new Error('of the test'));
  await purge(ctx);
  messages.deleteDevice = original;
  const left = async (table: 'devices' | 'organizations', id: string) =>
    (await ctx.registry.query.selectFrom(table).select('id').where('id', '=', id).execute()).length;
  t.equal(await left('organizations', organization.id), 0);
  t.equal(await left('devices', device.id), 1);
  await purge(ctx);
  t.equal(await left('devices', device.id), 0, 'and it is tried again');
});

t.test('recovery after thirty days is refused even before the purge has come by', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'late' });
  await remove(`/devices/${device.id}`, device.version);
  now += 30 * day + 1;
  await service.login();
  const late = await service.http('POST', `/api/v1/trash/devices/${device.id}/recover`, {
    headers: { etag: device.version },
  });
  t.match(late, { status: 410, body: { error: { code: 107 } } });
});

t.test('a deleted application goes after thirty days too', async (t) => {
  await service.login();
  const made = await service.create('/applications', 'application', { name: 'Gone', kind: 'backEnd' });
  await remove(`/applications/${made.id}`, made.version);
  now += 30 * day;
  await purge(service.server.ctx);
  await service.login();
  t.match(await service.http('GET', `/api/v1/applications/${made.id}`), { status: 410 });
  now += 1;
  await purge(service.server.ctx);
  t.match(await service.http('GET', `/api/v1/applications/${made.id}`), {
    status: 404,
    body: { error: { code: 100 } },
  });
});

t.end();
