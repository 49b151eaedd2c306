/** An id in capitals is the same id, wherever it is sent; what only looks like one stays as it was sent. */
import { randomUUID } from 'node:crypto';
import { certificate } from '../broker/certificate.ts';
import { basic, path as enrollPath, newGroup } from '../enrollment/devices.ts';
import { makeAuthority, makeCertificate, registerAuthority } from '../support/certificates.ts';
import { openStream } from '../support/events.ts';
import { follow, postRows, provision, rowsOf } from '../support/jobs.ts';
import { joinWith } from '../support/openssl.ts';
import { part } from '../support/part.ts';
import { adminEmail, nextMessage, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await startService(t, { env: { ...certificate(t), SLIPWAY_STRICT_QUERIES: 'true' } });
});

const capitals = (id: string) => id.toUpperCase();

t.test('in paths, parameters and bodies', async (t) => {
  const template = await service.template({ channels: ['readings'] });
  const organization = await service.organization();
  const account = capitals(service.accountId);
  const body = {
    ...{ accountId: account, serialNumber: 'CASE-1' },
    ...{ deviceTemplateId: capitals(template.id), organizationId: capitals(organization.id) },
  };
  const { device } = await service.ok('POST', '/api/v1/devices', { body });
  t.match(device, { accountId: service.accountId, deviceTemplateId: template.id, organizationId: organization.id });
  const path = `/api/v1/devices/${capitals(device.id)}` as const;
  t.equal((await service.ok('GET', path)).device.id, device.id);
  for (const query of [
    `accountId=${account}&deviceTemplateId=${capitals(template.id)}&organizationId=${capitals(organization.id)}`,
    `organizationId=${capitals(organization.id)}&expand=organization&accountId=${account}`,
  ])
    t.match((await service.ok('GET', `/api/v1/devices?${query}`)).devices.results, [{ id: device.id }], query);
  const moved = { headers: { etag: device.version }, body: { organizationId: null } };
  t.equal((await service.ok('PUT', path, moved)).device.organizationId, null);
  const credential = { accountId: account, entityId: capitals(device.id), entityType: 'device' };
  const made = await service.ok('POST', '/api/v1/access/mqtt-credentials', { body: credential });
  service.secrets.add(made.mqttCredential.secret);
  t.equal(made.mqttCredential.entityId, device.id);
  const explained = await service.ok('POST', '/api/v1/permissions/explain', {
    body: {
      principal: { type: 'device', id: capitals(device.id) },
      ...{
        action: 'publish',
        topic: service.topic(capitals(device.id), 'readings').replace(service.accountId, account),
      },
    },
  });
  t.match(explained, { allowed: true, rule: 'own channel' });
  const login = { emailAddress: adminEmail, password: 'correct horse battery', accountId: account };
  t.equal((await service.http('POST', '/api/v1/auth/login-user', { token: null, body: login })).status, 200);
  const batch = { body: { requests: [{ method: 'GET', path }] } };
  t.match((await service.http('POST', '/api/v1/batch', batch)).body, [{ device: { id: device.id } }]);
});

t.test('in rows, filters and targets of jobs and rollouts', async (t) => {
  const template = await service.template();
  const organization = await service.organization();
  const row = { serialNumber: 'CASE-2', deviceTemplateId: capitals(template.id) };
  const job = await provision(service, [{ ...row, organizationId: capitals(organization.id) }]);
  const [{ deviceId }] = await rowsOf(service, job.id);
  t.match((await service.ok('GET', `/api/v1/devices/${deviceId}`)).device, {
    ...{ deviceTemplateId: template.id, organizationId: organization.id },
  });
  const usual = `?dryRun=true&template=${capitals(template.id)}`;
  t.equal((await postRows(service, [{ serialNumber: 'CASE-3' }], usual)).status, 202);
  for (const wanted of [
    { filter: { deviceTemplateId: template.id } },
    { ids: [capitals(deviceId)] },
    { filter: { deviceTemplateId: capitals(template.id) } },
  ]) {
    const body = { accountId: capitals(service.accountId), action: 'delete', dryRun: true, ...wanted };
    const answer = await service.http('POST', '/api/v1/devices/jobs', { body });
    t.equal(answer.status, 202, answer.text);
    t.match((await follow(service, answer.body.job.id)).at(-1), { state: 'succeeded', total: 1, done: 1 });
  }
});

t.test('what only looks like an id is as it was sent', async (t) => {
  const other = capitals(randomUUID());
  const template = await service.template({ channels: [other] });
  await service.create('/devices/custom-fields', 'customField', {
    ...{ deviceTemplateId: template.id, name: 'assetId', fieldType: 'string' },
  });
  const device = await service.create('/devices', 'device', {
    ...{ deviceTemplateId: template.id, serialNumber: other, assetId: other },
  });
  t.match(device, { serialNumber: other, assetId: other });
  const published = { headers: { 'content-type': 'text/plain' }, body: '1' };
  const path = `/api/v1/messaging/publish/${service.topic(capitals(device.id), other)}` as const;
  t.equal((await service.http('POST', path, published)).status, 200);
  t.match((await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&serialNumber=${other}`)).devices, {
    results: [{ id: device.id }],
  });
});

t.test('in topics and usernames, over HTTP and MQTT', async (t) => {
  const template = await service.template({ channels: [{ name: 'chat', persistenceType: 'simple' }] });
  const { device } = await service.device({ deviceTemplateId: template.id });
  const secret = (
    await service.ok('POST', '/api/v1/access/mqtt-credentials', {
      body: { accountId: service.accountId, entityId: device.id, entityType: 'device' },
    })
  ).mqttCredential.secret;
  const topic = service.topic(device.id, 'chat');
  const inCapitals = topic
    .replace(service.accountId, capitals(service.accountId))
    .replace(device.id, capitals(device.id));
  const events = await openStream(t, service, inCapitals);
  for (const [protocolVersion, clientId] of [
    [4, undefined],
    [5, undefined],
    [5, capitals(device.id)],
  ] as const) {
    const will = { topic: inCapitals, payload: Buffer.from('gone'), qos: 1 as const, retain: false };
    const options = { protocolVersion, will, ...(clientId !== undefined && { clientId }) };
    const client = await service.connect({ deviceId: capitals(device.id), secret }, options);
    const granted = await client.subscribeAsync(inCapitals, { qos: 1 });
    t.match(granted, [{ qos: 1 }], `level ${protocolVersion}`);
    const heard = nextMessage(client);
    await client.publishAsync(inCapitals, 'hello', { qos: 1 });
    t.equal((await heard).topic, topic);
    t.match(await events.next(), { data: { topic, payload: 'hello' } });
    await client.unsubscribeAsync(inCapitals);
    const reader = await service.connect({ jwt: service.admin });
    await reader.subscribeAsync(topic, { qos: 1 });
    const will2 = nextMessage(reader);
    client.stream.destroy();
    t.equal((await will2).topic, topic);
    t.match(await events.next(), { data: { topic, payload: 'gone' } });
    await reader.endAsync();
  }
  const asText = { headers: { 'content-type': 'text/plain' }, body: 'posted' };
  for (const path of [inCapitals, encodeURIComponent(inCapitals)]) {
    t.equal((await service.http('POST', `/api/v1/messaging/publish/${path}`, asText)).status, 200, path);
    t.match(await events.next(), { data: { topic, payload: 'posted' } });
  }
  const byDevice = { ...asText, token: null, headers: { ...asText.headers, ...basic(capitals(device.id), secret) } };
  t.equal((await service.http('POST', `/api/v1/messaging/publish/${inCapitals}`, byDevice)).status, 200);
});

t.test('in certificates and at an enrollment', async (t) => {
  const { device } = await service.device();
  const made = await makeAuthority();
  await registerAuthority(service, made);
  const own = await makeCertificate({ subject: `CN=${capitals(device.id)}`, issuer: made });
  for (const username of ['', capitals(device.id), capitals(service.accountId)])
    t.equal((await joinWith(t, service.mqttsPort, own, { username })).returnCode, 0, username);
  const group = await newGroup(service);
  const headers = basic(capitals(group.id), group.claimSecret);
  const body = { serialNumber: 'CASE-9' };
  t.equal((await service.http('POST', enrollPath, { token: null, headers, body })).status, 200);
});

t.end();
