/** GET /overview: how many devices, messages and refusals there are, what needs attention, and what happened lately. */
import type { MqttClient } from 'mqtt';
import type { Rights } from '../../src/core/rights.ts';
import { startReceiver } from '../bridges/receiver.ts';
import { devices, publish, rollOut, rolloutUntil, update } from '../firmware/fleet.ts';
import { makeCertificate } from '../support/certificates.ts';
import { purgeNow } from '../support/clockwork.ts';
import { changeStored, countReadRows, readsWaiting, watchStatements } from '../support/faults.ts';
import { provision } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import { accountUser, role } from '../support/roles.ts';
import { type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const minute = 60_000;
const day = 24 * 60 * minute;
let now = Date.parse('2026-03-01T00:00:00Z');
let service: Service;
const env = { SLIPWAY_MAX_CUSTOM_FIELDS: '5', SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' };
t.before(async () => {
  service = await startService(t, { clock: { now: () => now }, env });
});

type Overview = Awaited<ReturnType<typeof read>>;

async function read(of: Service, query = '', token = of.admin) {
  const { overview } = await of.ok('GET', `/api/v1/overview?accountId=${of.accountId}${query}`, { token });
  return overview;
}

async function readUntil(of: Service, isWanted: (overview: Overview) => boolean, query = ''): Promise<Overview> {
  let overview = await read(of, query);
  await until(async () => {
    overview = await read(of, query);
    return isWanted(overview);
  });
  return overview;
}

const attention = ({ attention }: Overview, kind: string) => attention.filter((row) => row.kind === kind);

/** What the list of an attention row has. */
async function listed(of: Service, { query }: { query: string }): Promise<number> {
  const answer = (await of.ok('GET', `/api/v1/${query}`)) as unknown as Record<string, { meta: { count: number } }>;
  return Object.values(answer)[0]?.meta.count ?? -1;
}

t.test('devices by state, product and firmware, and those that are online', async (t) => {
  const own = await service.inNewAccount();
  const template = await own.template({ name: 'Sensor', channels: ['data'] });
  const { device, secret } = await own.device({ deviceTemplateId: template.id, firmwareVersion: '1.0' });
  await own.create('/devices', 'device', { serialNumber: 'a', deviceTemplateId: template.id, firmwareVersion: '1.0' });
  await own.create('/devices', 'device', { serialNumber: 'b' });
  const client = await own.connect({ deviceId: device.id, secret });
  const overview = await readUntil(own, ({ online }) => online === 1);
  t.match(overview, { devices: 3, online: 1 });
  t.same(
    overview.byState.map(({ value, count, online }) => [value, count, online]),
    [
      ['defined', 2, 0],
      ['activated', 1, 1],
      ['associated', 0, 0],
      ['reserved', 0, 0],
    ],
  );
  t.match(overview.byProduct[0], { value: template.id, name: 'Sensor', count: 2, online: 1 });
  t.equal(overview.byProduct.length, 2);
  t.same(overview.byFirmware, [
    { value: '1.0', count: 2 },
    { value: null, count: 1 },
  ]);
  t.same(overview.attention, []);
  await client.endAsync();
  await readUntil(own, ({ online }) => online === 0);
});

t.test('messages and refusals count at once, are kept every five minutes, and go after a week', async (t) => {
  const own = await service.inNewAccount();
  const template = await own.template({ channels: ['data'] });
  const { device, secret } = await own.device({ deviceTemplateId: template.id });
  const client = await own.connect({ deviceId: device.id, secret });
  for (const value of [1, 2, 3]) await client.publishAsync(own.topic(device.id, 'data'), `,x,${value},`, { qos: 1 });
  await client.publishAsync(own.topic(device.id, 'nowhere'), 'x', { qos: 1 });
  const first = (await read(own)).messages?.perSecond ?? 0;
  t.ok(first >= 3 / 65 && first <= 3, `${first} a second: the mean of a minute, from the first message on`);
  const running = await readUntil(own, ({ online }) => online === 1);
  t.match(running, { messages: { lastDay: 3 }, refusals: { lastDay: 1 } });
  t.match(running.history?.at(-1), { connected: 1, messages: 3, refusals: 1 });
  t.equal(running.history?.length, 289);
  const [refused] = attention(running, 'refusals');
  t.match(refused, { count: 1, cause: 'noChannelOfItsOwn', sentence: /no such channel/ });
  t.equal(await listed(own, refused ?? { query: '' }), 1);
  const { refusals } = await own.ok('GET', `/api/v1/refusals?accountId=${own.accountId}&deviceId=${device.id}`);
  t.match(refusals.results, [{ deviceId: device.id, cause: 'noChannelOfItsOwn' }]);

  now += 5 * minute;
  await until(() => countStored(own, 'activity', `"accountId" = '${own.accountId}'`) > 0);
  await client.publishAsync(own.topic(device.id, 'data'), ',x,4,', { qos: 1 });
  const later = await readUntil(own, ({ history }) => history?.at(-1)?.messages === 1);
  t.match(later.history?.at(-2), { connected: 1, messages: 3, refusals: 1 });
  t.match(later.messages, { lastDay: 4, perSecondLastDay: 4 / 86_400 });

  now += 2 * day;
  t.match((await readUntil(own, ({ messages }) => messages?.lastDay === 0)).refusals, { lastDay: 0 });
  const week = await read(own, '&hours=168');
  t.equal(week.history?.length, 2017);
  t.equal(
    week.history?.reduce((sum, { messages }) => sum + messages, 0),
    4,
  );
  t.match(await own.http('GET', `/api/v1/overview?accountId=${own.accountId}&hours=169`), { status: 400 });
  await client.endAsync();
  now += 6 * day;
  await purgeNow(service);
  t.equal(countStored(own, 'activity', `"accountId" = '${own.accountId}' AND "messages" > 0`), 0);
});

t.test(
  'the event loop reads nothing of a week, and one account that asks again and again holds no other up',
  async (t) => {
    const [own, other] = [await service.inNewAccount(), await service.inNewAccount()];
    await changeStored(
      own,
      `WITH RECURSIVE "steps"("n") AS (SELECT 1 UNION ALL SELECT "n" + 1 FROM "steps" WHERE "n" < 2016)
      INSERT INTO "activity" ("accountId", "time", "connected", "messages", "refusals", "causes")
      SELECT ?, ? - 300000 * "n", "n" % 7, 3, 1, '{"notPermitted":1}' FROM "steps"`,
      [own.accountId, now - (now % (5 * minute))],
    );
    const executed = watchStatements(t, service);
    const rows = countReadRows(t, service);
    const week = await read(own, '&hours=168');
    t.ok(rows() < 100, `${rows()} rows come from the threads`);
    const asked = executed.filter(({ request }) => request === 'GET /api/v1/overview').map(({ sql }) => sql);
    t.same(
      asked.filter((sql) => !/from "?(sessions|identities)"?/i.test(sql)),
      [],
    );
    const { history = [] } = week;
    t.equal(history.length, 2017);
    t.match(history.at(-3), { time: new Date(now - (now % (5 * minute)) - 10 * minute).toISOString(), connected: 2 });
    t.same(
      history.map(({ time }) => time),
      history.map(({ time }) => time).sort(),
    );
    t.match(week, { messages: { lastDay: 3 * 288 }, refusals: { lastDay: 288 } });
    t.match(attention(week, 'refusals'), [{ cause: 'notPermitted', count: 288 }]);

    let answered = 0;
    const many = Array.from({ length: 60 }, async () => {
      await read(own, '&hours=168');
      answered += 1;
    });
    // Threads answer meanwhile: on a busy machine not all sixty wait at once.
    await until(() => readsWaiting(service) > 20);
    const before = answered;
    await read(other, '&hours=168');
    t.ok(answered - before < 20, `${answered - before} of 60 of one account were answered before one of another`);
    await Promise.all(many);
  },
);

t.test(
  'a device is silent when it says nothing for three of its usual intervals, and offline when it has gone',
  async (t) => {
    const own = await service.inNewAccount();
    const template = await own.template({ channels: ['data'] });
    const made: Awaited<ReturnType<Service['device']>>[] = [];
    for (let n = 0; n < 4; n += 1) made.push(await own.device({ deviceTemplateId: template.id }));
    const clients: MqttClient[] = [];
    for (const { device, secret } of made) clients.push(await own.connect({ deviceId: device.id, secret }));
    const say = async (n: number) => {
      const id = made[n]?.device.id ?? '';
      await clients[n]?.publishAsync(own.topic(id, 'data'), ',x,1,', { qos: 1 });
    };
    await readUntil(own, ({ online }) => online === 4);
    // The first sends every minute, the second every ten; the third only listens, and the last one leaves.
    for (let at = 0; at <= 20; at += 1) {
      await say(0);
      if (at % 10 === 0) await say(1);
      now += minute;
    }
    now += 15 * minute;
    const quiet = await readUntil(own, (overview) => attention(overview, 'devicesSilent').length > 0);
    const [silent] = attention(quiet, 'devicesSilent');
    t.match(silent, { count: 1, sentence: /^1 device is connected and has not sent/ });
    const { devices } = await own.ok('GET', `/api/v1/${silent?.query}` as `/api/v1/devices?${string}`);
    t.match(devices.results, [{ id: made[0]?.device.id, silent: true, connected: true }]);
    await say(0);
    await readUntil(own, (overview) => attention(overview, 'devicesSilent').length === 0);

    await clients[3]?.endAsync();
    const left = await readUntil(own, (overview) => attention(overview, 'devicesOffline').length > 0);
    const [offline] = attention(left, 'devicesOffline');
    t.match(offline, { count: 1, sentence: '1 device was connected in the last day and is offline now.' });
    t.equal(await listed(own, offline ?? { query: '' }), 1);
    now += day + minute;
    await readUntil(own, (overview) => attention(overview, 'devicesOffline').length === 0);

    // What is usual outlives a connection; a new one is not silent.
    await readUntil(own, (overview) => attention(overview, 'devicesSilent')[0]?.count === 2);
    const [first] = clients;
    await first?.endAsync();
    const again = await own.connect({ deviceId: made[0]?.device.id ?? '', secret: made[0]?.secret ?? '' });
    await readUntil(own, (overview) => attention(overview, 'devicesSilent')[0]?.count === 1);
    now += 16 * minute;
    await readUntil(own, (overview) => attention(overview, 'devicesSilent')[0]?.count === 2);
    await again.endAsync();
  },
);

t.test('rollouts, jobs, bridges, certificates and limits need attention', async (t) => {
  const own = await service.inNewAccount();
  const template = await own.template({ channels: [{ name: 'events', streamBridgeDelivery: 2 }] });
  const { device, secret } = await own.device({ deviceTemplateId: template.id });
  const firmware = await publish(own, template.id, '2.0.0');
  const target = { deviceIds: [device.id] };
  const { id: rolloutId } = await rollOut(own, firmware, { target });
  const started = await rolloutUntil(own, rolloutId, ({ counts }) => counts.pending === 1);
  await own.ok('POST', `/api/v1/firmware/rollouts/${rolloutId}/pause`, { headers: { etag: started.version } });

  const failing = await provision(own, [{ serialNumber: 'taken', deviceTemplateId: 'x' }, { serialNumber: 'new' }]);

  const bridge = { name: 'Lake', kind: 'webhook', url: 'http://127.0.0.1:9/' };
  await own.create('/bridges', 'bridge', bridge);
  const client = await own.connect({ deviceId: device.id, secret });
  await client.publishAsync(own.topic(device.id, 'events'), 'hello', { qos: 1 });
  await client.endAsync();

  const { cert: certificate } = await makeCertificate({ from: now - day, to: now + 20 * day });
  await own.create('/access/mqtt-certificates', 'mqttCertificate', {
    ...{ entityId: device.id, entityType: 'device', certificate },
  });
  for (const name of ['a', 'b', 'c', 'd', 'e'])
    await own.create('/devices/custom-fields', 'deviceField', {
      deviceTemplateId: template.id,
      name,
      fieldType: 'int',
    });

  const kinds = ['bridgeBehind', 'certificatesExpiring', 'jobFailed', 'limit', 'rolloutPaused'];
  const overview = await readUntil(own, (one) => kinds.every((kind) => attention(one, kind).length > 0));
  t.match(attention(overview, 'rolloutPaused'), [{ count: 1, id: rolloutId, sentence: /is paused/ }]);
  t.match(attention(overview, 'jobFailed'), [{ count: 1, id: failing.id, name: 'provision' }]);
  t.match(attention(overview, 'bridgeBehind'), [{ count: 1, name: 'Lake', sentence: /cannot deliver/ }]);
  t.match(attention(overview, 'certificatesExpiring'), [{ count: 1 }]);
  t.match(attention(overview, 'limit'), [{ count: 100, name: 'customFields', query: 'usage' }]);
  for (const kind of ['jobFailed', 'certificatesExpiring', 'rolloutPaused'])
    t.equal(await listed(own, attention(overview, kind)[0] ?? { query: '' }), 1, kind);
});

t.test('updates that failed, messages that nobody took and CAs near their end need attention', async (t) => {
  const own = await service.inNewAccount();
  const template = await own.template({ channels: [{ name: 'events', streamBridgeDelivery: 2 }] });
  const [first, second, third] = await devices(own, template.id, 3);
  if (!first || !second || !third) throw new Error('three devices are made');
  const firmware = await publish(own, template.id, '3.0.0');
  const target = { deviceIds: [first.id, second.id, third.id] };
  const { id } = await rollOut(own, firmware, { target, maxFailurePercent: 100 });
  await rolloutUntil(own, id, ({ counts }) => counts.pending === 3);
  await update(own, first, 'failed');
  await update(own, second, 'failed');

  const receiver = await startReceiver(t);
  receiver.behave = () => 400;
  const bridge = await own.create('/bridges', 'bridge', { name: 'Shop', kind: 'webhook', url: receiver.url });
  const client = await own.connect({ deviceId: third.id, secret: third.secret });
  for (const message of ['one', 'two', 'three'])
    await client.publishAsync(own.topic(third.id, 'events'), message, { qos: 1 });
  await client.endAsync();

  // The last one is further away than what is warned of.
  for (const days of [1, 29, 40]) {
    const valid = { from: now - 2 * day, to: now + days * day };
    const { cert: certificate } = await makeCertificate({ ca: true, subject: `CN=CA ${days}`, ...valid });
    await own.create('/access/certificate-authorities', 'certificateAuthority', { name: `CA ${days}`, certificate });
  }

  const overview = await readUntil(own, (one) => attention(one, 'bridgeDeadLetters')[0]?.count === 3);
  t.match(attention(overview, 'rolloutFailing'), [
    { count: 2, id, sentence: /is running, and 2 devices have failed\.$/ },
  ]);
  t.match(attention(overview, 'bridgeDeadLetters'), [
    { count: 3, id: bridge.id, name: 'Shop', sentence: 'The bridge Shop could not deliver 3 messages.' },
  ]);
  t.same(attention(overview, 'bridgeBehind'), [], 'nothing is waiting');
  t.match(attention(overview, 'authoritiesExpiring'), [
    { count: 2, sentence: '2 certificate authorities end within 30 days, or have ended.' },
  ]);
  for (const kind of ['rolloutFailing', 'bridgeDeadLetters', 'authoritiesExpiring'])
    t.equal(
      await listed(own, attention(overview, kind)[0] ?? { query: '' }),
      kind === 'bridgeDeadLetters' ? 3 : 2,
      kind,
    );
});

t.test('claims, new devices, jobs and updates happened lately, and an end-user sees its own', async (t) => {
  const own = await service.inNewAccount();
  const template = await own.template();
  const organization = await own.organization();
  const { token } = await own.endUser(organization.id);
  const { device, secret } = await own.device({ deviceTemplateId: template.id, organizationId: organization.id });
  const other = await own.device({ deviceTemplateId: template.id });
  now += minute;
  const body = { deviceId: device.id };
  const { associationCode } = await own.ok('POST', '/api/v1/association/create-association-code', { body });
  const claim = { associationCode, organizationId: organization.id };
  await own.ok('POST', '/api/v1/association/start-association-with-code', { body: claim, token });
  now += minute;
  const firmware = await publish(own, template.id, '2.0.0');
  const { id } = await rollOut(own, firmware, { target: { deviceIds: [device.id, other.device.id] } });
  await rolloutUntil(own, id, ({ counts }) => counts.pending === 2);
  await update(own, { id: device.id, secret });
  now += minute;
  const rows = [1, 2, 3, 4].map((n) => ({ serialNumber: `job ${n}` }));
  await provision(own, rows);
  const clients = [];
  for (const one of [{ device, secret }, other]) {
    const client = await own.connect({ deviceId: one.device.id, secret: one.secret });
    await client.publishAsync(own.topic(one.device.id, 'nowhere'), 'x', { qos: 1 });
    clients.push(client);
  }
  await own.ok('GET', `/api/v1/devices/${device.id}/refusals`);

  const isThere = ({ recent, attention }: Overview) => recent[0]?.kind === 'newDevices' && attention.length > 0;
  const overview = await readUntil(own, isThere);
  const { serialNumber } = device;
  t.match(overview.recent, [
    { kind: 'newDevices', count: 4, sentence: 'A job made 4 devices.' },
    { kind: 'update', serialNumber, firmwareVersion: '2.0.0' },
    { kind: 'claim', deviceId: device.id, sentence: `${serialNumber} was claimed.` },
    { kind: 'newDevice' },
    { kind: 'newDevice' },
  ]);
  t.equal(overview.recent.length, 5);

  const listener = await role(own, 'account', { device: ['subscribe'] });
  const heard = await read(own, '', (await accountUser(own, { roleId: listener.id })).token);
  t.equal(overview.byProduct.length, 2);
  const none = { length: 0 };
  t.match(heard, { devices: 6, byProduct: none, attention: none, recent: none }, 'each part needs its own permission');
  const partsOf = (one: Overview) => ['byFirmware', 'messages', 'refusals', 'history'].filter((name) => name in one);
  const withRefusals = ({ history }: Overview) => history?.filter((step) => 'refusals' in step).length;
  t.same(partsOf(heard), ['messages', 'history'], 'who hears messages sees how many there are');
  t.equal(heard.history?.length, overview.history?.length);
  t.equal(withRefusals(heard), 0);
  const who = async (rights: Rights) => {
    const { id: roleId } = await role(own, 'account', rights);
    return (await accountUser(own, { roleId })).token;
  };
  const seen = await read(own, '', await who({ device: ['subscribe', 'read'] }));
  t.match(seen.byProduct, [{}, {}]);
  t.same(partsOf(seen), ['byFirmware', 'messages', 'refusals', 'history']);
  t.same(new Set(seen.recent.map(({ kind }) => kind)), new Set(['claim', 'newDevice']), 'neither updates nor jobs');
  t.match(seen.refusals, { lastDay: 2 });
  t.equal(withRefusals(seen), seen.history?.length);
  const deaf = { token: await who({ device: ['read'] }) };
  t.match(await own.http('GET', `/api/v1/overview?accountId=${own.accountId}`, deaf), { status: 403 });

  const theirs = await read(own, '', token);
  t.match(theirs, { devices: 1, byProduct: { 0: { value: template.id, count: 1 }, length: 1 }, attention: none });
  t.same(
    theirs.recent.map(({ kind, deviceId }) => [kind, deviceId]),
    ['update', 'claim', 'newDevice'].map((kind) => [kind, device.id]),
  );
  t.same(theirs.byFirmware, [{ value: '2.0.0', count: 1 }]);
  t.match(theirs.refusals, { lastDay: 1 });
  for (const name of ['messages', 'history']) t.notOk(name in theirs, name);
  for (const client of clients) await client.endAsync();
  const needsAttention = async () => (await read(own, '', token)).attention;
  await until(async () => (await needsAttention()).length > 0);
  t.match(await needsAttention(), { 0: { kind: 'devicesOffline', count: 1 }, length: 1 });
  t.match(await own.http('GET', `/api/v1/refusals?accountId=${own.accountId}`, { token }), { status: 403 });
  t.match(await own.http('GET', `/api/v1/overview?accountId=${service.accountId}`), { status: 404 });
});

t.test('a bridge that cannot deliver, and for which nothing waits, counts no messages', async (t) => {
  const own = await service.inNewAccount();
  const template = await own.template({ channels: [{ name: 'events', streamBridgeDelivery: 1 }] });
  const { device, secret } = await own.device({ deviceTemplateId: template.id });
  await own.create('/bridges', 'bridge', { name: 'Lake', kind: 'webhook', url: 'http://127.0.0.1:9/' });
  const client = await own.connect({ deviceId: device.id, secret });
  await client.publishAsync(own.topic(device.id, 'events'), 'hello', { qos: 1 });
  await client.endAsync();
  const overview = await readUntil(own, (one) => attention(one, 'bridgeBehind').length > 0);
  t.match(attention(overview, 'bridgeBehind'), [{ count: 0, sentence: /^The bridge Lake cannot deliver\.$/ }]);
});

t.test('many updates by one rollout are one line', async (t) => {
  const own = await service.inNewAccount();
  const template = await own.template();
  const many = await devices(own, template.id, 4);
  const firmware = await publish(own, template.id, '2.0.0');
  const { id: rolloutId } = await rollOut(own, firmware, { target: { deviceIds: many.map(({ id }) => id) } });
  await rolloutUntil(own, rolloutId, ({ counts }) => counts.pending === 4);
  for (const device of many.slice(0, 3)) await update(own, device);
  const updates = ({ recent }: Overview) => recent.filter(({ kind }) => kind.startsWith('update'));
  t.same(
    updates(await read(own)).map(({ kind }) => kind),
    ['update', 'update', 'update'],
    'of a few each is named',
  );
  for (const device of many.slice(3)) await update(own, device);
  const overview = await readUntil(own, (one) => updates(one).length === 1);
  const sentence = '4 devices were updated to 2.0.0.';
  t.match(updates(overview), [{ kind: 'updates', count: 4, firmwareVersion: '2.0.0', rolloutId, sentence }]);
  t.notOk('deviceId' in (updates(overview)[0] ?? {}));
});

t.test('organizations, products and packages say what is in them', async (t) => {
  const own = await service.inNewAccount();
  const template = await own.template({ channels: ['one', 'two'] });
  const other = await own.template();
  const organization = await own.organization();
  await own.endUser(organization.id);
  const place = { deviceTemplateId: template.id, organizationId: organization.id, firmwareVersion: '2.0.0' };
  const { device, secret } = await own.device(place);
  await own.device({ ...place, firmwareVersion: '1.0.0' });
  await own.device({ deviceTemplateId: other.id, firmwareVersion: '2.0.0' });
  const client = await own.connect({ deviceId: device.id, secret });
  await readUntil(own, ({ online }) => online === 1);
  const of = `accountId=${own.accountId}`;

  const { organizations } = await own.ok('GET', `/api/v1/organizations?${of}&count=devices,online,end-users`);
  t.match(organizations.results, [{ id: organization.id, deviceCount: 2, onlineCount: 1, endUserCount: 1 }]);
  const online = await own.ok('GET', `/api/v1/organizations/${organization.id}?count=online`);
  t.match(online.organization, { onlineCount: 1, deviceCount: undefined });

  const products = `/api/v1/devices/templates?${of}&count=devices,online,channels` as const;
  const { deviceTemplates } = await own.ok('GET', products);
  const product = (id: string) => deviceTemplates.results.find((one) => one.id === id);
  t.match(product(template.id), { deviceCount: 2, onlineCount: 1, channelCount: 2 });
  t.match(product(other.id), { deviceCount: 1, onlineCount: 0, channelCount: 0 });
  t.match(await own.http('GET', `/api/v1/end-users/templates?${of}&count=online`), { status: 400 });

  const firmware = await publish(own, template.id, '2.0.0');
  const packages = async () => {
    const answer = await own.ok('GET', `/api/v1/firmware/packages?${of}&count=devices`);
    return answer.firmwarePackages.results.map(({ id, deviceCount }) => [id, deviceCount]);
  };
  t.same(await packages(), [[firmware.id, 1]]);
  const { device: now } = await own.ok('GET', `/api/v1/devices/${device.id}`);
  const renamed = { body: { firmwareVersion: '3.0.0' }, headers: { etag: now.version } };
  await own.ok('PUT', `/api/v1/devices/${device.id}`, renamed);
  t.same(await packages(), [[firmware.id, 0]]);
  const plain = await own.ok('GET', `/api/v1/firmware/packages/${firmware.id}`);
  t.notOk('deviceCount' in plain.firmwarePackage);
  await client.endAsync();
});

t.end();
