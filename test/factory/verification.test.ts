/** POST /provisioning/verify: a unit really connects, and really publishes. */
import { beforeTransaction, changeStored, watchesBegun } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { type Made, type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

let service: Service;
let template: Made<'deviceTemplate'>;
t.before(async () => {
  service = await startService(t);
  template = await service.template({ channels: ['temperature', { name: 'state', persistenceType: 'simple' }] });
});

const verify = (body: object, token = service.admin) =>
  service.http('POST', '/api/v1/provisioning/verify', { body, token });
/** Resolves when so many more verifications have begun to wait for a unit. */
const begun = (deviceId: string, count: number) => watchesBegun(service, deviceId, count);

/** As it is now. */
const look = async (deviceId: string) => (await verify({ deviceId, timeoutSeconds: 0 })).body.verification;
const unit = (body: object = {}) => service.device({ deviceTemplateId: template.id, ...body });
const listed = async (query: string) =>
  (await service.ok('GET', `/api/v1/provisioning/verifications?accountId=${service.accountId}&${query}`)).verifications;
/** Resolves once the first messages so far are on record. */
const recorded = (deviceId: string) =>
  until(() => countStored(service, 'publications', '"deviceId" = ?', [deviceId]) > 0);

t.test('it passes as soon as the unit is connected and has published', async (t) => {
  const { device, secret } = await unit({ serialNumber: 'unit 1' });
  const began = Date.now();
  const verdict = verify({ deviceId: device.id, timeoutSeconds: 60 });
  const client = await service.connect({ deviceId: device.id, secret });
  await client.publishAsync(service.topic(device.id, 'state'), 'on', { qos: 0 });
  const { status, body } = await verdict;
  t.equal(status, 200);
  t.match(body.verification, {
    deviceId: device.id,
    serialNumber: 'unit 1',
    accountId: service.accountId,
    passed: true,
    connected: true,
    published: true,
    time: /Z$/,
  });
  t.ok(Date.now() - began < 30_000, 'and not when the time is over');
  t.match(await verify({ serialNumber: 'unit 1' }), { body: { verification: { passed: true, deviceId: device.id } } });
});

t.test('when the time is over it says what was missing', async (t) => {
  const { device, secret } = await unit();
  t.match(await look(device.id), { passed: false, connected: false, published: false });
  const client = await service.connect({ deviceId: device.id, secret });
  const verdict = await verify({ deviceId: device.id, timeoutSeconds: 0.2 });
  t.match(verdict.body.verification, { passed: false, connected: true, published: false });
  await client.publishAsync(service.topic(device.id, 'temperature'), '21', { qos: 1 });
  await recorded(device.id);
  t.match(await look(device.id), { passed: true });
  await client.endAsync();
  // Its end has its own connection: it may come after the next request.
  await until(async () => !(await look(device.id)).connected);
  const late = (await verify({ deviceId: device.id, timeoutSeconds: 0.5 })).body.verification;
  t.match(late, { passed: false, connected: false, published: true });
});

t.test('what is refused is no message, nor is a will', async (t) => {
  const { device, secret } = await unit();
  const will = {
    topic: service.topic(device.id, 'state'),
    payload: Buffer.from('gone'),
    qos: 1,
    retain: false,
  } as const;
  const client = await service.connect({ deviceId: device.id, secret }, { will });
  await client.publishAsync(service.topic(device.id, 'no channel'), '21', { qos: 1 });
  t.match(await look(device.id), { connected: true, published: false });
  const listener = await service.connect({ jwt: service.admin });
  await listener.subscribeAsync(will.topic);
  const fired = new Promise((resolve) => listener.once('message', resolve));
  client.stream.destroy();
  await fired;
  t.match((await verify({ deviceId: device.id, timeoutSeconds: 0.5 })).body.verification, { published: false });
});

t.test('what was published before the unit was provisioned again does not count', async (t) => {
  const { device, secret } = await unit();
  const topic = service.topic(device.id, 'temperature');
  const old = await service.connect({ deviceId: device.id, secret });
  await old.publishAsync(topic, '21', { qos: 1 });
  // On its way to the record, perhaps, when the secret changes.
  const next = await service.credential(device.id);
  const client = await service.connect({ deviceId: device.id, secret: next });
  const verdict = (await verify({ deviceId: device.id, timeoutSeconds: 0.5 })).body.verification;
  t.match(verdict, { connected: true, published: false });
  await client.publishAsync(topic, '22', { qos: 1 });
  t.match((await verify({ deviceId: device.id })).body.verification, { passed: true });
});

t.test('while two secrets are in force only the new one counts', async (t) => {
  const { device, secret } = await unit();
  const topic = service.topic(device.id, 'temperature');
  const old = await service.connect({ deviceId: device.id, secret });
  await old.publishAsync(topic, '21', { qos: 1 });
  await recorded(device.id);
  const body = { entityId: device.id, entityType: 'device', graceSeconds: 3600 };
  const next = (await service.create('/access/mqtt-credentials', 'mqttCredential', body)).secret;
  const again = await service.connect({ deviceId: device.id, secret }, { clientId: 'again' });
  for (const client of [old, again]) await client.publishAsync(topic, '22', { qos: 1 });
  const verdict = (await verify({ deviceId: device.id, timeoutSeconds: 0.5 })).body.verification;
  t.match(verdict, { passed: false, connected: false, published: false });
  const client = await service.connect({ deviceId: device.id, secret: next }, { clientId: 'new' });
  await client.publishAsync(topic, '23', { qos: 1 });
  t.match((await verify({ deviceId: device.id })).body.verification, { passed: true });
});

t.test('a connection that goes on is looked at again when somebody asks', async (t) => {
  const { device, secret } = await unit();
  const topic = service.topic(device.id, 'temperature');
  const client = await service.connect({ deviceId: device.id, secret });
  await client.publishAsync(topic, '21', { qos: 1 });
  await recorded(device.id);
  // What a certificate that is registered does to the record.
  await changeStored(service, 'DELETE FROM "publications" WHERE "deviceId" = ?', [device.id]);
  t.match(await look(device.id), { connected: true, published: false });
  const verdict = verify({ deviceId: device.id });
  await client.publishAsync(topic, '22', { qos: 1 });
  t.match((await verdict).body.verification, { passed: true });
});

t.test('no device is chosen among several, and none is found that is not there', async (t) => {
  for (let n = 0; n < 2; n += 1) await unit({ serialNumber: 'twin' });
  const refused = (body: object, status: number, code: number) =>
    verify(body).then((answer) => t.match(answer, { status, body: { error: { code } } }, JSON.stringify(body)));
  await refused({ serialNumber: 'twin' }, 400, 106);
  await refused({ serialNumber: 'unknown' }, 404, 100);
  await refused({ serialNumber: 'TWIN' }, 404, 100);
  await refused({ deviceId: 'unknown' }, 404, 100);
  await refused({}, 400, 106);
  await refused({ serialNumber: 'twin', deviceId: 'x' }, 400, 106);
  const { device } = await unit();
  for (const timeoutSeconds of [-1, 61, '1']) await refused({ deviceId: device.id, timeoutSeconds }, 400, 106);
  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: version } });
  await refused({ deviceId: device.id }, 410, 107);
});

t.test('verifications are kept and listed, newest first', async (t) => {
  const { device } = await unit({ serialNumber: 'listed' });
  const made: Made<'verification'>[] = [];
  for (let n = 0; n < 3; n += 1) made.unshift(await look(device.id));
  t.match(await listed(`deviceId=${device.id}&pageSize=2`), { results: made.slice(0, 2), meta: { count: 3 } });
  t.strictSame((await listed(`deviceId=${device.id}&pageSize=2&page=2`)).results, made.slice(2));
  t.equal((await listed('serialNumber=listed&passed=false')).meta.count, 3);
  t.strictSame((await listed('serialNumber=listed&passed=true')).results, []);
  t.ok((await listed('passed=true&pageSize=1000')).results.every(({ passed }) => passed));
  const past = `/api/v1/provisioning/verifications?accountId=${service.accountId}&page=1000`;
  t.match(await service.http('GET', past), { status: 416, body: { error: { code: 109 } } });
});

t.test('in a batch it looks and does not wait', async (t) => {
  const { device } = await unit();
  const one = (payload: object) => ({ method: 'POST', path: '/api/v1/provisioning/verify', payload });
  const requests = [one({ deviceId: device.id, timeoutSeconds: 0 }), one({ deviceId: device.id })];
  const answers = await service.ok('POST', '/api/v1/batch', { body: { requests } });
  t.match(answers, [{ verification: { passed: false } }, { error: { code: 106 } }]);
});

t.test(
  'a hundred at once of one caller, no more; anyone who goes away gives its place back and leaves nothing',
  async (t) => {
    const { device } = await unit();
    const gone = new AbortController();
    const url = `${service.server.url}/api/v1/provisioning/verify`;
    const headers = { authorization: `Bearer ${service.admin}`, 'content-type': 'application/json' };
    const body = JSON.stringify({ deviceId: device.id, timeoutSeconds: 60 });
    // One that comes while the look below has the last place is refused, and asks again.
    const wait = async (): Promise<unknown> => {
      const { status } = await fetch(url, { method: 'POST', headers, body, signal: gone.signal });
      return status === 429 ? wait() : status;
    };
    const waiting = Array.from({ length: 100 }, () => wait().catch(() => 'gone'));
    let refused: Awaited<ReturnType<typeof verify>>;
    do refused = await verify({ deviceId: device.id, timeoutSeconds: 0 });
    while (refused.status === 200);
    t.match(refused, { status: 429, body: { error: { code: -199 } } });
    t.match(refused.headers.get('retry-after'), /^\d+$/);
    const before = (await listed(`deviceId=${device.id}`)).meta.count;
    gone.abort();
    t.ok((await Promise.all(waiting)).every((outcome) => outcome === 'gone'));
    let answer: Awaited<ReturnType<typeof verify>>;
    do answer = await verify({ deviceId: device.id, timeoutSeconds: 0 });
    while (answer.status !== 200);
    t.equal((await listed(`deviceId=${device.id}`)).meta.count, before + 1);
  },
);

t.test('a wait ends with the login behind it: logout, deletion of a station', async (t) => {
  const limits = { deviceTemplateId: template.id, maxDevices: 2, expiresAt: '2999-01-01' };
  const program = async (kind: string, more: object = {}) => {
    const { id, appToken } = await service.create('/applications', 'application', { name: kind, kind, ...more });
    const login = { body: { appId: id, appToken, accountId: service.accountId }, token: null };
    return { id, jwt: (await service.ok('POST', '/api/v1/auth/login-application', login)).jwt };
  };
  const station = await program('station', limits);
  const backEnd = await program('backEnd');
  const device = await service.create('/devices', 'device', { serialNumber: 'of a station' }, station.jwt);
  const wait = begun(device.id, 2);
  const waits = [station, backEnd].map(({ jwt }) => verify({ deviceId: device.id, timeoutSeconds: 60 }, jwt));
  await wait;
  const began = Date.now();
  await service.ok('DELETE', `/api/v1/applications/${station.id}`);
  await service.ok('POST', '/api/v1/sessions/logout', { token: backEnd.jwt });
  for (const answer of waits) t.match(await answer, { status: 401, body: { error: { code: 31 } } });
  t.ok(Date.now() - began < 30_000, 'and not when the time is over');
  t.strictSame((await listed(`deviceId=${device.id}`)).results, []);
});

t.test('a unit that is deleted while it is waited for has no verdict', async (t) => {
  const { device } = await unit();
  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  beforeTransaction(t, service, 'POST /api/v1/provisioning/verify', () =>
    service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: version } }),
  );
  t.match(await verify({ deviceId: device.id, timeoutSeconds: 1 }), { status: 410, body: { error: { code: 107 } } });
});

t.test('the end of the process does not wait for a unit, and gives no verdict', async (t) => {
  const { device } = await unit();
  const wait = begun(device.id, 1);
  const verdict = verify({ deviceId: device.id, timeoutSeconds: 60 });
  await wait;
  const began = Date.now();
  const [answer] = await Promise.all([verdict, service.close()]);
  t.match(answer, { status: 503, body: { error: { code: -199 } } });
  t.ok(Date.now() - began < 20_000, 'not for the minute that it was given');
});

t.end();
