import { part } from '../support/part.ts';
import { nextMessage, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

t.test('define, connect, publish, read back', async (t) => {
  const template = await service.template({ channels: ['temperature'] });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const client = await service.connect({ deviceId: device.id, secret });
  const topic = service.topic(device.id, 'temperature');
  await client.publishAsync(topic, ',inside,21.5,\n,outside,-3,cold', { qos: 1 });
  const { result } = await service.ok('GET', `/api/v4/data/${topic}`);
  t.match(result, [
    { category: 'inside', numericValue: 21.5, stringValue: null },
    { category: 'outside', numericValue: -3, stringValue: 'cold' },
  ]);
  const latest = await service.ok('GET', `/api/v4/data/${encodeURIComponent(topic)}/latest?pageSize=1`);
  t.match(latest.result, [{ category: 'outside' }]);
  // It is written a moment after the connection.
  const log = async () => (await service.ok('GET', `/api/v1/devices/${device.id}/logs`)).logs.results;
  await until(async () => (await log()).length > 0);
  t.match(await log(), [{ severity: 'lifecycle', custom: { connected: true } }]);
});

t.test('a wrong secret, a regenerated one and an unknown device get CONNACK 4, a deleted device 5', async (t) => {
  const { device, secret } = await service.device();
  const refused = (deviceId: string, password: string) =>
    service.connect({ deviceId, secret: password }).then(
      () => 0,
      (error) => error.code,
    );
  t.equal(await refused(device.id, 'wrong'), 4);
  t.equal(await refused('f7a55bd4-8f8e-4b92-8b47-111111111111', secret), 4);
  const newSecret = await service.credential(device.id);
  t.equal(await refused(device.id, secret), 4);
  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: version } });
  t.equal(await refused(device.id, newSecret), 5);
  t.equal(await refused(device.id, 'wrong'), 4);
  await service.ok('POST', `/api/v1/trash/devices/${device.id}/recover`, { headers: { etag: version } });
  t.equal(
    (await service.connect({ deviceId: device.id, secret: newSecret })).connected,
    true,
    'without being re-flashed',
  );
});

t.test('a publish outside its channels: still connected, nothing stored or delivered, explained', async (t) => {
  const template = await service.template({ channels: ['data'] });
  const [one, other] = [
    await service.device({ deviceTemplateId: template.id }),
    await service.device({ deviceTemplateId: template.id }),
  ];
  const client = await service.connect({ deviceId: one.device.id, secret: one.secret });
  const admin = await service.connect({ jwt: service.admin });
  await admin.subscribeAsync('#', { qos: 1 });
  const heard: string[] = [];
  admin.on('message', (topic) => heard.push(topic));
  await client.subscribeAsync(service.topic(one.device.id, '_rejected'), { qos: 1 });

  for (const topic of [
    service.topic(other.device.id, 'data'),
    service.topic(one.device.id, 'no-such-channel'),
    service.topic(one.device.id, '_updates/fields'),
    'elsewhere/entirely',
    '$SYS/x/new/clients',
  ]) {
    const said = nextMessage(client);
    await client.publishAsync(topic, ',x,1,', { qos: 1, retain: true });
    const rejection = JSON.parse((await said).text);
    t.match(rejection, { topic, error: { code: Number, message: String, details: Array } }, topic);
  }
  const last = nextMessage(admin, (topic) => topic === service.topic(one.device.id, 'data'));
  await client.publishAsync(service.topic(one.device.id, 'data'), ',fine,1,', { qos: 1 });
  await last;
  t.same(
    heard.filter((topic) => !topic.endsWith('/_rejected') && !topic.endsWith('/_updates/fields')),
    [service.topic(one.device.id, 'data')],
  );
  t.same((await service.ok('GET', `/api/v4/data/${service.topic(other.device.id, 'data')}`)).result, []);
  t.equal(client.connected, true);
});

t.test('an end-user of another organization: 404 over HTTP, 0x80 over MQTT, silence through #', async (t) => {
  const template = await service.template({ channels: ['data'] });
  const [mine, theirs] = [await service.organization(), await service.organization()];
  const inside = await service.device({ deviceTemplateId: template.id, organizationId: mine.id });
  const outside = await service.device({ deviceTemplateId: template.id, organizationId: theirs.id });
  const { token } = await service.endUser(theirs.id);
  const topic = service.topic(inside.device.id, 'data');
  t.match(await service.http('GET', `/api/v1/devices/${inside.device.id}`, { token }), {
    status: 404,
    body: { error: { code: 100 } },
  });
  t.match(await service.http('GET', `/api/v4/data/${topic}`, { token }), {
    status: 404,
    body: { error: { code: 100 } },
  });
  t.match(await service.http('GET', `/api/v1/devices/${inside.device.id}/logs`, { token }), { status: 404 });

  const user = await service.connect({ jwt: token });
  const refused = await user.subscribeAsync(topic, { qos: 1 }).catch((error) => error.packet?.granted ?? [error.code]);
  t.same(refused, [0x80]);
  await user.subscribeAsync('#', { qos: 1 });
  const heard: string[] = [];
  user.on('message', (name) => heard.push(name));
  const own = nextMessage(user, (name) => name === service.topic(outside.device.id, 'data'));
  const first = await service.connect({ deviceId: inside.device.id, secret: inside.secret });
  await first.publishAsync(topic, ',secret,1,', { qos: 1, retain: true });
  const second = await service.connect({ deviceId: outside.device.id, secret: outside.secret });
  await second.publishAsync(service.topic(outside.device.id, 'data'), ',mine,1,', { qos: 1 });
  await own;
  t.ok(
    heard.every((name) => name.includes(outside.device.id)),
    heard.join(),
  );

  const later = await service.connect({ jwt: token });
  const retained: string[] = [];
  later.on('message', (name) => retained.push(name));
  await later.subscribeAsync('#', { qos: 1 });
  const again = nextMessage(later, (name) => name === service.topic(outside.device.id, 'data'));
  await second.publishAsync(service.topic(outside.device.id, 'data'), ',mine,2,', { qos: 1 });
  await again;
  t.ok(
    retained.every((name) => name.includes(outside.device.id)),
    'retained messages are in reach or not at all',
  );
});

t.test('a logged out user is cut off from the broker', async (t) => {
  const { email, password } = await service.endUser((await service.organization()).id);
  const { jwt } = await service.loginAs(email, password);
  const user = await service.connect({ jwt });
  const closed = new Promise<void>((resolve) => user.once('close', () => resolve()));
  await service.ok('POST', '/api/v1/sessions/logout', { token: jwt });
  await closed;
  t.equal(await service.connect({ jwt }).catch((error) => error.code), 4);
});

t.test('_set/fields changes the device, all or nothing, and everybody in reach is told', async (t) => {
  const organization = await service.organization();
  const { device, secret } = await service.device({ organizationId: organization.id });
  const { token } = await service.endUser(organization.id);
  const client = await service.connect({ deviceId: device.id, secret });
  const user = await service.connect({ jwt: token });
  const updates = service.topic(device.id, '_updates/fields');
  // That the device has connected may be told meanwhile.
  const whole = nextMessage(user, (_, payload) => payload.includes('serialNumber'));
  await user.subscribeAsync(updates, { qos: 1 });
  t.match(JSON.parse((await whole).text).state, { firmwareVersion: null, serialNumber: device.serialNumber });
  const change = nextMessage(user, (_, payload) => payload.includes('firmwareVersion'));
  await client.publishAsync(
    service.topic(device.id, '_set/fields'),
    '{"state":{"firmwareVersion":"2.0","name":"pump"}}',
    { qos: 1 },
  );
  t.same(JSON.parse((await change).text), { state: { firmwareVersion: '2.0', name: 'pump' } });
  t.match((await service.ok('GET', `/api/v1/devices/${device.id}`)).device, {
    firmwareVersion: '2.0',
    name: 'pump',
    lastModifiedById: device.id,
  });

  await client.subscribeAsync(service.topic(device.id, '_rejected'), { qos: 1 });
  for (const payload of [
    '{"state":{"firmwareVersion":"3.0","latitude":99}}',
    '{"state":{"firmwareVersion":"3.0","colour":"red"}}',
    '{"state":{"firmwareVersion":"3.0","organizationId":null}}',
    '{"state":{"firmwareVersion":3}}',
    '{"state":[]}',
    '{"firmwareVersion":"3.0"}',
    'not json',
    '{"state":{"serialNumber":"a\\u0000b"}}',
    '{"state":{"firmwareVersion":"\\ud800x"}}',
    '{"state":{"name":{"a":1}}}',
  ]) {
    const said = nextMessage(client);
    await client.publishAsync(service.topic(device.id, '_set/fields'), payload, { qos: 1 });
    t.match(
      JSON.parse((await said).text),
      { error: { code: 106 }, topic: service.topic(device.id, '_set/fields') },
      payload,
    );
  }
  t.equal((await service.ok('GET', `/api/v1/devices/${device.id}`)).device.firmwareVersion, '2.0');
});

t.test('a log entry of more than 16 KiB is delivered, not stored, and explained', async (t) => {
  const { device, secret } = await service.device();
  const client = await service.connect({ deviceId: device.id, secret });
  await client.subscribeAsync(service.topic(device.id, '_rejected'), { qos: 1 });
  const said = nextMessage(client);
  await client.publishAsync(service.topic(device.id, '_log'), 'x'.repeat(16_385), { qos: 1 });
  t.match(JSON.parse((await said).text), { error: { code: 106 }, topic: service.topic(device.id, '_log') });
  await client.publishAsync(service.topic(device.id, '_log'), 'y'.repeat(16_384), { qos: 1 });
  const { logs } = await service.ok('GET', `/api/v1/devices/${device.id}/logs?text=y`);
  t.equal(logs.meta.count, 1);
});

t.end();
