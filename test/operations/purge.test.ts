import { makeCertificate } from '../support/certificates.ts';
import { purgeNow } from '../support/clockwork.ts';
import { changeStored, whileDevicesStay } from '../support/faults.ts';
import { openssl } from '../support/openssl.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { countStored, storedRows } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const day = 24 * 60 * 60_000;
let now = Date.parse('2026-05-01T00:00:00Z');
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now } });
});

const remove = (path: string, version: string) =>
  service.ok('DELETE', `/api/v1${path}`, { headers: { etag: version } });
const count = (table: string) => countStored(service, table);

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
    const [devices, credentials] = [count('devices'), count('credentials')];
    t.equal(count('certificates'), 1);
    const inMessages = (table: string, deviceId: string) =>
      countStored(service, table, '"deviceId" = ?', [deviceId], 'messages.db');
    const logs = () => inMessages('logs', device.id);
    // Its own entry, and those of its connection, which are stored a moment later.
    await until(() => logs() >= 3);

    now += 30 * day;
    await service.login();
    await purgeNow(service);
    t.equal(count('devices'), devices, 'thirty days to the millisecond are still recoverable');
    now += 1;
    await purgeNow(service);
    t.equal(count('devices'), devices - 1);
    t.equal(count('credentials'), credentials - 1);
    t.equal(count('certificates'), 0);
    t.equal(count('associationCodes'), 0);
    t.equal(logs(), 0);
    const points = (deviceId: string) =>
      inMessages('"series" JOIN "points" ON "series"."id" = "points"."series"', deviceId);
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
    count('organizations'),
    count('deviceTemplates'),
    count('channelTemplates'),
    count('customFields'),
  ];
  now += 5 * day;
  await service.login();
  await remove(`/firmware/packages/${firmware.id}`, firmware.version);
  now += 25 * day + 1;
  await service.login();
  await purgeNow(service);
  t.equal(count('organizations'), organizations - 2);
  t.equal(count('deviceTemplates'), templates, 'a package names the template');
  now += 5 * day;
  await purgeNow(service);
  t.equal(count('deviceTemplates'), templates - 1);
  t.equal(count('channelTemplates'), channels - 5, 'with its channels');
  t.equal(count('customFields'), fields - 1, 'and its fields');
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
  await purgeNow(service);
  const rows = storedRows(service, 'SELECT "fields" FROM "devices" WHERE "deviceTemplateId" = ?', [template.id]);
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
  await purgeNow(service, () => {
    steps += 1;
    return steps > 100;
  });
  t.ok(steps < 100, `${steps} steps`);
  const ofTemplate = 'FROM "devices" WHERE "deviceTemplateId" = ? ORDER BY "serialNumber"';
  t.same(
    storedRows(service, `SELECT "fields" ${ofTemplate}`, [deviceTemplateId]).map(({ fields }) =>
      JSON.parse(String(fields)),
    ),
    texts.map((text) => ({ [stays.id]: text })),
  );
  const fields = storedRows(service, 'SELECT "name" FROM "customFields" WHERE "templateId" = ?', [deviceTemplateId]);
  t.same(fields, [{ name: 'stays' }]);
});

t.test('tokens that were mailed go when their time is over, and not before', async (t) => {
  const { endUser } = await service.endUser((await service.organization()).id);
  const token = (tokenHash: string, left: number) => ({
    tokenHash,
    userId: endUser.userId,
    purpose: 'password',
    created: new Date(now).toISOString(),
    expires: new Date(now + left).toISOString(),
  });
  const over = Array.from({ length: 250 }, (_, n) => token(`over ${n}`, -1));
  await changeStored(
    service,
    `INSERT INTO "mailedTokens" ("tokenHash", "userId", "purpose", "created", "expires")
     SELECT "value" ->> 'tokenHash', "value" ->> 'userId', "value" ->> 'purpose', "value" ->> 'created', "value" ->> 'expires'
     FROM json_each(?)`,
    [JSON.stringify([...over, token('good', 1)])],
  );
  await purgeNow(service);
  t.match(storedRows(service, 'SELECT * FROM "mailedTokens"'), [{ tokenHash: 'good' }]);
});

t.test('a revoked certificate is forgotten when it has expired', async (t) => {
  await service.login();
  const ca = await service.create('/access/certificate-authorities', 'certificateAuthority', {
    name: 'I',
    issuing: true,
  });
  const device = await service.create('/devices', 'device', { serialNumber: 'revoked' });
  const body = { deviceId: device.id, csr: openssl(t).request().csr, certificateDays: 3 };
  const path = `/api/v1/access/certificate-authorities/${ca.id}/issue` as const;
  const { mqttCertificate } = await service.ok('POST', path, { body });
  await remove(`/access/mqtt-certificates/${mqttCertificate.id}`, mqttCertificate.version);
  const revoked = () => countStored(service, 'revokedCertificates', '"certificateAuthorityId" = ?', [ca.id]);
  now += 4 * day;
  await purgeNow(service);
  t.equal(revoked(), 1, 'lists may still have it');
  now += 2 * day;
  await purgeNow(service);
  t.equal(revoked(), 0);
});

t.test('what cannot be purged keeps nothing else from it', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'stuck' });
  const organization = await service.organization();
  await remove(`/devices/${device.id}`, device.version);
  await remove(`/organizations/${organization.id}`, organization.version);
  now += 30 * day + 1;
  await service.login();
  await whileDevicesStay(service, () => purgeNow(service));
  const left = (table: string, id: string) => countStored(service, table, '"id" = ?', [id]);
  t.equal(left('organizations', organization.id), 0);
  t.equal(left('devices', device.id), 1);
  await purgeNow(service);
  t.equal(left('devices', device.id), 0, 'and it is tried again');
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
  await purgeNow(service);
  await service.login();
  t.match(await service.http('GET', `/api/v1/applications/${made.id}`), { status: 410 });
  now += 1;
  await purgeNow(service);
  t.match(await service.http('GET', `/api/v1/applications/${made.id}`), {
    status: 404,
    body: { error: { code: 100 } },
  });
});

t.end();
