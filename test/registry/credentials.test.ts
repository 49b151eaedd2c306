import mqtt from 'mqtt';
import { makeCertificate } from '../support/certificates.ts';
import { changeStored } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { closed, type Made, nextMessage, present, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { countStored, storedRows } from '../support/stored.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

t.test('the first credential activates a device; the secret is in that answer and nowhere else', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'C-1' });
  const body = { entityId: device.id, entityType: 'device' };
  const first = await service.create('/access/mqtt-credentials', 'mqttCredential', body);
  t.match(first, {
    accountId: service.accountId,
    entityId: device.id,
    entityType: 'device',
    secret: /^[\w-]{43}$/,
    version: '1',
  });
  t.notOk('secretHash' in first);
  const { device: activated } = await service.ok('GET', `/api/v1/devices/${device.id}`);
  t.equal(activated.provisioningState, 'activated');
  t.not(activated.version, device.version);
  const second = await service.create('/access/mqtt-credentials', 'mqttCredential', body);
  t.not(second.secret, first.secret);
  t.equal(second.id, first.id);
  t.equal((await service.ok('GET', `/api/v1/devices/${device.id}`)).device.version, activated.version);
  const rows = storedRows(service, 'SELECT * FROM "credentials"');
  const stored = JSON.stringify(rows);
  t.notOk(stored.includes(first.secret) || stored.includes(second.secret), 'stored hashed');
});

t.test('only for live devices of the account', async (t) => {
  const make = (body: object) =>
    service.http('POST', '/api/v1/access/mqtt-credentials', {
      body: { accountId: service.accountId, entityType: 'device', ...body },
    });
  t.match(await make({ entityId: 'nothing' }), {
    status: 400,
    body: { error: { code: 102, details: [{ path: 'entityId' }] } },
  });
  t.match(await make({ entityId: 'x', entityType: 'toaster' }), { status: 400, body: { error: { code: 106 } } });
  t.match(await make({ entityId: 'x', accountId: 'another' }), { status: 404, body: { error: { code: 100 } } });
  const device = await service.create('/devices', 'device', { serialNumber: 'C-2' });
  await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: device.version } });
  t.match(await make({ entityId: device.id }), { status: 400, body: { error: { code: 102 } } });
});

t.test('an end-user makes a secret for itself, and for nobody else', async (t) => {
  const organization = await service.organization();
  const below = await service.organization({ parentId: organization.id });
  const { endUser, token } = await service.endUser(organization.id);
  const colleague = await service.endUser(organization.id);
  const { device } = await service.device({ organizationId: organization.id });
  const { userId } = endUser;
  const second = await service.create('/end-users', 'endUser', { organizationId: below.id, userId });
  const list = await service.ok('GET', `/api/v1/account-users?accountId=${service.accountId}`);
  const make = (entityType: string, entityId: string) => {
    const body = { accountId: service.accountId, entityType, entityId };
    return service.http('POST', '/api/v1/access/mqtt-credentials', { token, body });
  };
  for (const { id } of [endUser, second]) {
    const { status, body } = await make('endUser', id);
    t.equal(status, 200);
    t.match(body.mqttCredential, { entityId: id, entityType: 'endUser', createdById: userId });
    const client = await service.connect({ deviceId: id, secret: body.mqttCredential.secret });
    t.ok(client.connected);
  }
  await service.ok('DELETE', `/api/v1/end-users/${second.id}`, { headers: { etag: second.version } });
  for (const [entityType, entityId] of [
    ['endUser', colleague.endUser.id],
    ['endUser', second.id],
    ['endUser', userId],
    ['accountUser', list.accountUsers.results[0].id],
    ['accountUser', endUser.id],
    ['device', device.id],
    ['device', endUser.id],
    ['endUser', 'nothing'],
  ] as const) {
    const { status, body } = await make(entityType, entityId);
    t.match({ status, body }, { status: 400, body: { error: { code: 102, details: [{ path: 'entityId' }] } } });
  }
});

let template: Made<'deviceTemplate'>;
t.before(async () => {
  template = await service.template({ channels: ['temperature', { name: 'orders', persistenceType: 'simple' }] });
});

const replace = (id: string, version: string | undefined, headers: Record<string, string> = {}) =>
  service.http('POST', `/api/v1/devices/${id}/replace`, {
    body: { serialNumber: 'new hardware' },
    headers: { ...headers, ...(version !== undefined && { etag: version }) },
  });
const read = async (id: string) => (await service.ok('GET', `/api/v1/devices/${id}`)).device;

t.test('the device stays what it is, with another serial number and secret', async (t) => {
  const { id: organizationId } = await service.organization();
  const { device, secret } = await service.device({ deviceTemplateId: template.id, organizationId, name: 'Boiler' });
  const topic = service.topic(device.id, 'temperature');
  const old = await service.connect({ deviceId: device.id, secret });
  await old.publishAsync(topic, ',t,21,', { qos: 1 });
  const listener = await service.connect({ jwt: service.admin });
  await listener.subscribeAsync(service.topic('+', '_updates/fields'));
  const told = nextMessage(listener, (_, payload) => JSON.parse(payload.toString()).state.serialNumber !== undefined);
  const ended = closed(old);
  const answer = await replace(device.id, (await read(device.id)).version);
  t.equal(answer.status, 200);
  t.equal(answer.headers.get('platform-revocation'), 'connections=1; subscriptions=0');
  const { device: replaced, mqttCredential } = answer.body;
  t.match(replaced, { id: device.id, serialNumber: 'new hardware', name: 'Boiler', provisioningState: 'activated' });
  t.match(mqttCredential, { entityId: device.id, entityType: 'device', version: '2' });
  t.equal(answer.headers.get('etag'), `"${replaced.version}"`);
  t.equal((await read(device.id)).version, replaced.version);
  await ended;
  t.match(JSON.parse((await told).text), { state: { serialNumber: 'new hardware' } });
  await t.rejects(service.connect({ deviceId: device.id, secret }), { code: 4 }, 'the old hardware');
  const client = await service.connect({ deviceId: device.id, secret: mqttCredential.secret });
  await client.publishAsync(topic, ',t,22,', { qos: 1 });
  const { result } = await service.ok('GET', `/api/v4/data/${topic}`);
  t.strictSame(
    result.map(({ numericValue }) => numericValue),
    [21, 22],
    'one history',
  );
  t.notOk(JSON.stringify(await read(device.id)).includes(mqttCredential.secret));
});

t.test('its stored session waits for the new hardware', async (t) => {
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const orders = service.topic(device.id, 'orders');
  const stay = { clientId: 'unit', clean: false } as const;
  const old = await service.connect({ deviceId: device.id, secret }, stay);
  await old.subscribeAsync(orders, { qos: 1 });
  const { mqttCredential } = (await replace(device.id, (await read(device.id)).version)).body;
  const admin = await service.connect({ jwt: service.admin });
  await admin.publishAsync(orders, 'open', { qos: 1 });
  // Connected by hand: the message comes right after CONNACK.
  const who = { username: device.id, password: mqttCredential.secret, reconnectPeriod: 0 };
  const client = mqtt.connect(`mqtt://127.0.0.1:${service.server.mqttPort}`, { ...stay, ...who });
  t.teardown(() => client.end(true));
  const { text } = await nextMessage(client);
  t.equal(text, 'open');
});

t.test('the will of the old hardware is not published, that of the new one is', async (t) => {
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const topic = service.topic(device.id, 'orders');
  const admin = await service.connect({ jwt: service.admin });
  await admin.subscribeAsync(topic, { qos: 1 });
  const heard: string[] = [];
  admin.on('message', (_, payload) => void heard.push(payload.toString()));
  const will = (payload: string) =>
    ({ will: { topic, payload: Buffer.from(payload), qos: 1, retain: false } }) as const;
  const old = await service.connect({ deviceId: device.id, secret }, { clientId: 'unit', ...will('old will') });
  const ended = closed(old);
  const { mqttCredential } = (await replace(device.id, (await read(device.id)).version)).body;
  await ended;
  const who = { deviceId: device.id, secret: mqttCredential.secret };
  const client = await service.connect(who, { clientId: 'unit', ...will('new will') });
  const fired = nextMessage(admin, (_, payload) => payload.toString() === 'new will');
  client.stream.destroy();
  await fired;
  t.strictSame(heard, ['new will']);
});

t.test('what the old hardware could show ends: certificates, code, verification', async (t) => {
  const { device } = await service.device();
  const other = await service.device();
  for (const { id } of [device, other.device]) {
    const { cert: certificate } = await makeCertificate();
    const body = { entityId: id, entityType: 'device', certificate };
    await service.create('/access/mqtt-certificates', 'mqttCertificate', body);
    await changeStored(service, `INSERT INTO "publications" ("deviceId", "time") VALUES (?, '')`, [id]);
  }
  const asked = { body: { deviceId: device.id } };
  const { associationCode } = await service.ok('POST', '/api/v1/association/create-association-code', asked);
  await replace(device.id, (await read(device.id)).version);
  const count = (table: string, column: string, id: string) => countStored(service, table, `"${column}" = ?`, [id]);
  t.equal(count('certificates', 'entityId', device.id), 0);
  t.equal(count('certificates', 'entityId', other.device.id), 1, 'those of others stay');
  t.equal(count('publications', 'deviceId', device.id), 0);
  const { id: organizationId } = await service.organization();
  const claim = { body: { associationCode, organizationId } };
  const claimed = await service.http('POST', '/api/v1/association/start-association-with-code', claim);
  t.match(claimed, { status: 404, body: { error: { code: 100 } } }, 'the label of the old hardware');
});

t.test('a lost answer can be had again, until the new hardware has connected', async (t) => {
  const { device } = await service.device();
  const { version } = await read(device.id);
  const ask = () => replace(device.id, version, { 'idempotency-key': `replace ${device.id}` });
  const [first, again] = [await ask(), await ask()];
  t.strictSame(again.body, first.body);
  t.equal(again.headers.get('idempotent-replayed'), 'true');
  t.equal(again.headers.get('etag'), first.headers.get('etag'));
  await service.connect({ deviceId: device.id, secret: first.body.mqttCredential.secret });
  t.match(await ask(), { status: 410, body: { error: { code: 106 } } });
});

t.test('it needs the version of a live device, and leaves a claimed one claimed', async (t) => {
  const { device } = await service.device();
  t.match(await replace(device.id, undefined), { status: 400, body: { error: { code: 103 } } });
  t.match(await replace(device.id, '!'), { status: 412, body: { error: { code: 103 } } });
  t.match(await replace(device.id, device.version), { status: 412, body: { error: { code: 108 } } });
  t.match(await replace('nothing', '1'), { status: 404, body: { error: { code: 100 } } });
  const body = {};
  const path = `/api/v1/devices/${device.id}`;
  t.match(await service.http('POST', `${path}/replace`, { body, headers: { etag: '2' } }), { status: 400 });
  const asked = { body: { deviceId: device.id } };
  const { associationCode } = await service.ok('POST', '/api/v1/association/create-association-code', asked);
  const claim = { body: { associationCode, organizationId: (await service.organization()).id } };
  await service.ok('POST', '/api/v1/association/start-association-with-code', claim);
  const { version } = await read(device.id);
  t.match(await replace(device.id, version), { status: 200, body: { device: { provisioningState: 'associated' } } });
  const latest = await read(device.id);
  await service.ok('DELETE', path, { headers: { etag: latest.version } });
  t.match(await replace(device.id, latest.version), { status: 410, body: { error: { code: 107 } } });
});

t.test('of twenty at once with one version one wins, and its secret is the one that works', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'defined' });
  const answers = await Promise.all(Array.from({ length: 20 }, () => replace(device.id, device.version)));
  const won = answers.filter(({ status }) => status === 200);
  t.equal(won.length, 1);
  t.equal(won[0]?.body.device.provisioningState, 'activated');
  const { secret } = present(won[0]).body.mqttCredential;
  t.ok((await service.connect({ deviceId: device.id, secret })).connected);
});

t.test('who has replaced what is in the audit record', async (t) => {
  const { device } = await service.device({ serialNumber: 'old hardware' });
  await replace(device.id, (await read(device.id)).version);
  const query = `accountId=${service.accountId}&event=deviceReplaced&targetId=${device.id}`;
  t.match((await service.ok('GET', `/api/v1/audit?${query}`)).auditRecords.results, [
    { outcome: 'success', actorKind: 'admin', details: { from: 'old hardware', to: 'new hardware' } },
  ]);
});

t.end();
