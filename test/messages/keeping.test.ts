/** What is kept, and for how long: retention, the cap on bytes, the reserve on the disk, and what they say. */
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import type { MqttClient } from 'mqtt';
import type { Test } from 'tap';
import { startReceiver } from '../bridges/receiver.ts';
import { metric } from '../broker/metrics.ts';
import { purgeNow } from '../support/clockwork.ts';
import { stopEviction } from '../support/faults.ts';
import { part } from '../support/part.ts';
import {
  adminEmail,
  adminPassword,
  closed,
  type Failure,
  nextMessage,
  type Point,
  present,
  type Service,
  startService,
} from '../support/service.ts';
import { countOutbox } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const day = 24 * 60 * 60_000;
const start = Date.parse('2026-03-01T12:00:00.000Z');

/** A device that has subscribed to its `_rejected`, with a template of its own. */
async function startDevice(t: Test, service: Service, channels: Array<string | object> = ['data']) {
  const template = await service.template({ channels });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const client = await service.connect({ deviceId: device.id, secret });
  t.teardown(() => client.end(true));
  await client.subscribeAsync(service.topic(device.id, '_rejected'), { qos: 1 });
  const publish = (payload: string, channel = 'data') =>
    client.publishAsync(service.topic(device.id, channel), payload, { qos: 1 });
  const read = async (channel = 'data') => {
    const range = `startDateTime=${new Date(0).toISOString()}&pageSize=1000`;
    return (await service.ok('GET', `/api/v4/data/${service.topic(device.id, channel)}?${range}`)).result;
  };
  const channelOf = (name: string) => present(template.channelTemplates.find((channel) => channel.name === name));
  return { device, client, publish, read, channelOf };
}

const rejection = async (client: MqttClient) => {
  const { text } = await nextMessage(client, (topic) => topic.endsWith('/_rejected'));
  return JSON.parse(text);
};

/** What becomes of a message: acknowledged, or the connection is closed without. */
function outcome(client: MqttClient, published: Promise<unknown>): Promise<'acknowledged' | 'closed'> {
  published.catch(() => {});
  return Promise.race([published.then(() => 'acknowledged' as const), closed(client).then(() => 'closed' as const)]);
}

const bytesIn = async (service: Service) => Number(await metric({ service }, 'slipway_messages_bytes'));
/** Bytes free on a disk that is not full. */
const roomy = 1e12;
/** Waits until messages are refused, or no longer: the service looks at its disk once a second. */
const refusing = (service: Service, is: boolean) =>
  until(async () => (await metric({ service }, 'slipway_messages_refused')) === Number(is));

t.test('retention', async (t) => {
  let now = start;
  const service = await startService(t, { clock: { now: () => now }, env: { SLIPWAY_RETENTION_DAYS: '30' } });
  const usage = async () => (await service.ok('GET', '/api/v1/usage')).usage;
  const row = (ago: number, value: number) => `${now - ago * day},c,${value},`;
  const values = (points: Point[]) => points.map((point) => point.numericValue);
  const channels = [
    'data',
    { name: 'brief', persistenceType: 'timeSeries', retentionDays: 1 },
    { name: 'ever', persistenceType: 'timeSeries', retentionDays: 0 },
  ];
  const setAccount = (retentionDays: number | null) =>
    service.ok('PUT', '/api/v1/retention', { body: { retentionDays } });

  await t.test(
    'points and log entries go when they have had their time: the channel says it, else the account, else the service',
    async (t) => {
      const { device, publish, read, channelOf } = await startDevice(t, service, channels);
      for (const channel of ['data', 'brief', 'ever']) await publish(`${row(0.5, 1)}\n${row(0, 2)}`, channel);
      await publish('{"message":"hot"}', '_log');
      t.match(await usage(), {
        points: 6,

        outbox: 0,
        oldest: new Date(start - day / 2).toISOString(),
      });

      const pass = async (days: number) => {
        now += days * day;
        await service.login();
        await purgeNow(service);
        return [values(await read()), values(await read('brief')), values(await read('ever'))];
      };
      t.strictSame(await pass(0.75), [[1, 2], [2], [1, 2]]);
      t.strictSame(await pass(29), [[2], [], [1, 2]]);
      const logs = async () => (await service.ok('GET', `/api/v1/devices/${device.id}/logs`)).logs.meta.count;
      // That of the connection is written a moment after it.
      t.equal(await until(logs, (count) => count === 2), 2, 'the connection and the message');
      t.equal((await usage()).logs, 2);
      t.strictSame(await pass(1), [[], [], [1, 2]]);
      t.equal(await logs(), 0);
      t.match(await usage(), { points: 2, logs: 0, oldest: new Date(start - day / 2).toISOString() });

      const { id } = channelOf('ever');
      const { channelTemplate } = await service.ok('GET', `/api/v1/channels/templates/${id}`);
      t.equal(channelTemplate.retentionDays, 0);
      const changed = await service.ok('PUT', `/api/v1/channels/templates/${id}`, {
        headers: { etag: channelTemplate.version },
        body: { retentionDays: 100 },
      });
      t.equal(changed.channelTemplate.retentionDays, 100);
      t.strictSame(await pass(60), [[], [], [1, 2]]);
      await setAccount(200);
      await service.ok('PUT', `/api/v1/channels/templates/${id}`, {
        headers: { etag: changed.channelTemplate.version },
        body: { retentionDays: null },
      });
      t.strictSame(await pass(0), [[], [], [1, 2]], 'as the account says now');
      await setAccount(50);
      t.strictSame(await pass(0), [[], [], []], 'and at once');
      t.match(await usage(), { points: 0, oldest: null });
    },
  );

  await t.test(
    'what is too old when it comes is delivered, not stored, and explained; the rest is stored',
    async (t) => {
      await setAccount(null);
      const { device, client, publish, read } = await startDevice(t, service, channels);
      const listener = await service.connect({ jwt: service.admin });
      await listener.subscribeAsync(service.topic(device.id, '+'));
      const delivered = () => nextMessage(listener, (topic) => /\/(data|brief|ever)$/.test(topic));

      const [heard, said] = [delivered(), rejection(client)];
      await publish(`${row(31, 1)}\n${row(29, 2)}\n${row(40, 3)}`);
      t.equal((await heard).text.split('\n').length, 3);
      t.match(await said, {
        error: {
          code: 106,
          message: 'The payload was delivered, and stored in part.',
          details: [{ message: '2 of 3 points are older than the 30 days that are kept.' }],
        },
      });
      t.strictSame(values(await read()), [2]);

      const [heardAgain, saidAgain] = [delivered(), rejection(client)];
      await publish(row(2, 1), 'brief');
      await heardAgain;
      t.match(await saidAgain, {
        error: {
          message: 'The payload was delivered but not stored.',
          details: [{ message: '1 of 1 points are older than the 1 days that are kept.' }],
        },
      });
      t.strictSame(await read('brief'), []);
      await publish(row(20_000, 1), 'ever');
      t.strictSame(values(await read('ever')), [1]);

      const post = (channel: string, body: string) =>
        service.ok('POST', `/api/v4/data/${service.topic(device.id, channel)}`, {
          body,
          headers: { 'content-type': 'text/csv' },
        });
      t.match(await post('data', `${row(31, 4)}\n${row(28, 5)}`), {
        count: 1,
        rejection: { message: /stored in part/ },
      });
      t.match(
        await post('brief', row(2, 6)),
        { count: 0, rejection: { message: /not stored/ } },
        'only what is stored counts',
      );
    },
  );

  await t.test('the account says how long, and only those who run it', async (t) => {
    t.strictSame(await setAccount(7), { retention: { retentionDays: 7, default: 30 } });
    t.strictSame(await service.ok('GET', '/api/v1/retention'), { retention: { retentionDays: 7, default: 30 } });
    for (const retentionDays of [-1, 36_501, 1.5, '7', undefined])
      t.match(
        await service.http('PUT', '/api/v1/retention', { body: { retentionDays } }),
        { status: 400, body: { error: { code: 106 } } },
        `${retentionDays}`,
      );
    const organization = await service.organization();
    const { token } = await service.endUser(organization.id);
    for (const [method, path] of [
      ['GET', 'retention'],
      ['PUT', 'retention'],
      ['GET', 'usage'],
    ] as const) {
      const request = method === 'PUT' ? { body: { retentionDays: 1 } } : {};
      t.match(await service.http(method, `/api/v1/${path}`, { ...request, token }), { status: 403 });
    }
    t.strictSame(await setAccount(null), { retention: { retentionDays: null, default: 30 } });
    const query = `accountId=${service.accountId}&event=retentionChanged&pageSize=2`;
    const { auditRecords } = await service.ok('GET', `/api/v1/audit?${query}`);
    const record = { outcome: 'success', actorKind: 'admin', targetKind: 'account', targetId: service.accountId };
    t.match(auditRecords.results, [
      { ...record, details: { retentionDays: null } },
      { ...record, details: { retentionDays: 7 } },
    ]);

    const { channelOf } = await startDevice(t, service, [{ name: 'live', persistenceType: 'simple' }]);
    const refused = { status: 400, body: { error: { code: 106, details: [{ path: 'retentionDays' }] } } };
    for (const name of ['live', '_log']) {
      const { channelTemplate } = await service.ok('GET', `/api/v1/channels/templates/${channelOf(name).id}`);
      t.equal(channelTemplate.retentionDays, null);
      const answer = await service.http('PUT', `/api/v1/channels/templates/${channelTemplate.id}`, {
        headers: { etag: channelTemplate.version },
        body: { retentionDays: 1 },
      });
      t.match(answer, refused, 'it stores no points');
    }
  });
});

t.test('past the cap the oldest go, the newest stay, and acknowledgements go on', async (t) => {
  const cap = 1.5 * 1024 * 1024;
  const logLines: string[] = [];
  const service = await startService(t, { env: { SLIPWAY_MESSAGES_MAX_BYTES: String(cap) }, logLines });
  const devices = [await startDevice(t, service), await startDevice(t, service), await startDevice(t, service)];
  const [rounds, rows] = [50, 1000];
  const begin = Date.now() - rounds * rows * 10;
  let largest = 0;
  await devices[0]?.publish('{"message":"first"}', '_log');
  for (let round = 0; round < rounds; round += 1) {
    await Promise.all(
      devices.map(({ publish }) =>
        publish(Array.from({ length: rows }, (_, n) => `${begin + (round * rows + n) * 10},c,${n},`).join('\n')),
      ),
    );
    largest = Math.max(largest, await bytesIn(service));
  }
  t.ok(largest < cap * 1.25, `${largest} bytes at most`);

  await stopEviction(service);
  const { usage } = await service.ok('GET', '/api/v1/usage');
  const size = await bytesIn(service);
  t.ok(size < cap * 1.125, `${size} bytes`);
  const file = new Sqlite(join(service.directory, 'messages.db'), { readonly: true });
  t.teardown(() => file.close());
  const kept = file
    .prepare<[], { first: number; last: number; count: number }>(
      'SELECT min("time") AS "first", max("time") AS "last", count(*) AS "count" FROM "points" GROUP BY "series"',
    )
    .all();
  const total = kept.reduce((sum, { count }) => sum + count, 0);
  t.equal(usage.points, total);
  t.ok(total < (rounds * rows * devices.length) / 2, `${total} points are left`);
  t.equal(kept.length, devices.length);
  const end = begin + (rounds * rows - 1) * 10;
  for (const { first, last, count } of kept) {
    t.equal(last, end, 'the newest is there');
    t.equal(count, (last - first) / 10 + 1, 'and everything from the first that is');
  }
  const firsts = kept.map(({ first }) => first);
  t.ok(Math.max(...firsts) - Math.min(...firsts) < (end - begin) / 10, 'no series has lost more than another');
  t.equal(usage.oldest, new Date(Math.min(...firsts)).toISOString());
  t.notMatch(logLines.join(''), /messages are refused|could not be/);
});

t.test(
  'one account that floods the store with points of any date removes its own, and nobody else suffers',
  async (t) => {
    const cap = 1.5 * 1024 * 1024;
    const service = await startService(t, { env: { SLIPWAY_MESSAGES_MAX_BYTES: String(cap) } });
    const attacker = await startDevice(t, service);
    const other = await service.account();
    const asVictim = { token: other.admin };
    const make = <const P extends string, const W extends string>(path: P, wrapper: W, body: object) =>
      service.create(path, wrapper, { accountId: other.accountId, ...body }, other.admin);
    const template = await make('/devices/templates', 'deviceTemplate', { name: 'Victim' });
    await make('/channels/templates', 'channelTemplate', {
      entityId: template.id,
      entityType: 'deviceTemplate',
      name: 'data',
      persistenceType: 'timeSeries',
    });
    const device = await make('/devices', 'device', { deviceTemplateId: template.id, serialNumber: 'victim' });
    const topic = `${service.topicRoot}/${other.accountId}/d/${device.id}/data`;
    const rows = (count: number, date: (n: number) => number) =>
      Array.from({ length: count }, (_, n) => `${date(n)},c,${n},`).join('\n');
    const write = (body: string) =>
      service.ok('POST', `/api/v4/data/${topic}`, { ...asVictim, body, headers: { 'content-type': 'text/csv' } });
    await write(rows(1000, (n) => start + n));

    const endOfTime = Date.parse('9999-12-31T00:00:00.000Z');
    for (const date of [(n: number) => endOfTime + n, (n: number) => n])
      for (let round = 0; round < 50; round += 1) await attacker.publish(rows(1000, (n) => date(round * 1000 + n)));
    await stopEviction(service);
    const usage = async (request = {}) => (await service.ok('GET', '/api/v1/usage', request)).usage;
    const [theirs, mine] = [await usage(), await usage(asVictim)];
    t.ok(theirs.points < 70_000, `${theirs.points} of 100,000 points of the attacker are left`);
    t.equal(mine.points, 1000, 'the victim has lost nothing');
    t.equal(mine.oldest, new Date(start).toISOString());
    t.ok(mine.messagesBytes > 0 && mine.messagesBytes < 100_000, 'and sees its own bytes only');
    await write(rows(1, () => start));
    const left = await attacker.read();
    t.ok(
      left.every(({ time }) => time < '1971'),
      'of the attacker, those that came last are left, whatever their dates are',
    );
  },
);

/** A device of another account, which stores points over HTTP. */
async function otherAccount(service: Service) {
  const { accountId, admin: token } = await service.account();
  const make = <const P extends string, const W extends string>(path: P, wrapper: W, body: object) =>
    service.create(path, wrapper, { accountId, ...body }, token);
  const template = await make('/devices/templates', 'deviceTemplate', { name: 'Victim' });
  const channel = { entityId: template.id, entityType: 'deviceTemplate', name: 'data', persistenceType: 'timeSeries' };
  await make('/channels/templates', 'channelTemplate', channel);
  const device = await make('/devices', 'device', { deviceTemplateId: template.id, serialNumber: 'victim' });
  const topic = `${service.topicRoot}/${accountId}/d/${device.id}/data`;
  const write = (rows: number, from = Date.now()) =>
    service.http('POST', `/api/v4/data/${topic}`, {
      token,
      body: Array.from({ length: rows }, (_, n) => `${from + n},c,${n},`).join('\n'),
      headers: { 'content-type': 'text/csv' },
    });
  const usage = async () => (await service.ok('GET', '/api/v1/usage', { token })).usage;
  return { accountId, token, make, device, write, usage };
}

t.test('what an account retains and queues makes room of its own points, and never of those of others', async (t) => {
  const cap = 8 * 1024 * 1024;
  const service = await startService(t, { env: { SLIPWAY_MESSAGES_MAX_BYTES: String(cap) } });
  const victim = await otherAccount(service);
  t.equal((await victim.write(3000, start)).status, 200);
  const names = Array.from({ length: 99 }, (_, n) => ({ name: `c${n}`, persistenceType: 'simple' }));
  const attacker = await startDevice(t, service, ['data', ...names]);
  await attacker.publish(Array.from({ length: 3000 }, (_, n) => `${start + n},c,${n},`).join('\n'));

  // 2.6 MB for a session that is away, and 12 MB to be retained: the cap holds a little more than half of that.
  const { id } = attacker.device;
  const away = { deviceId: id, secret: await service.credential(id) };
  const listener = await service.connect(away, { clientId: 'away', clean: false });
  await listener.subscribeAsync(service.topic(id, 'c0'), { qos: 1 });
  await listener.endAsync();
  attacker.client.end(true);
  const client = await service.connect(away);
  await client.subscribeAsync(service.topic(id, '_rejected'), { qos: 1 });
  for (let n = 0; n < 20; n += 1) await client.publishAsync(service.topic(id, 'c0'), 'x'.repeat(130_000), { qos: 1 });
  let refusal: string | undefined;
  let kept = 20;
  const said: string[] = [];
  client.on('message', (topic, payload) => topic.endsWith('/_rejected') && said.push(payload.toString()));
  const gone = new Promise<'closed'>((resolve) => client.once('close', () => resolve('closed')));
  for (let n = 1; n < 99 && !refusal; n += 1) {
    const topic = service.topic(id, `c${n}`);
    const published = client.publishAsync(topic, 'x'.repeat(130_000), { qos: 1, retain: true });
    published.catch(() => {});
    const end = await Promise.race([published.then(() => 'acknowledged' as const), gone]);
    if (end === 'closed') refusal = JSON.parse((await until(() => said[0])) ?? '').error.details[0].message;
    else kept += 1;
    t.equal((await victim.write(1)).status, 200, 'meanwhile the other account stores');
  }
  t.match(refusal, /more than its share.*SLIPWAY_MESSAGES_MAX_BYTES/, 'and the device hears why it is refused');
  t.ok(kept * 130_000 > cap / 2 && kept * 130_000 < cap * 1.25, `${kept} messages are kept`);
  t.equal((await service.ok('GET', '/api/v1/usage')).usage.points, 0, 'its own points went first');

  const before = (await victim.usage()).points;
  t.equal((await victim.write(1)).status, 200);
  await stopEviction(service);
  const { points, oldest } = await victim.usage();
  t.equal(points, before + 1, 'what was acknowledged to the other account is there');
  t.equal(oldest, new Date(start).toISOString());
  t.equal(points, 3000 + (kept - 20) + 2);
});

t.test('an account above its own maximum loses its own oldest arrivals, without a cap on the whole', async (t) => {
  const most = 1024 * 1024;
  const service = await startService(t, { env: { SLIPWAY_ACCOUNT_MAX_BYTES: String(most) } });
  const { publish, read } = await startDevice(t, service);
  const row = (n: number) => `${start + n},c,${n},`;
  for (let round = 0; round < 45; round += 1)
    await publish(Array.from({ length: 1000 }, (_, n) => row(round * 1000 + n)).join('\n'));
  await stopEviction(service);
  const { usage } = await service.ok('GET', '/api/v1/usage');
  t.ok(usage.messagesBytes <= most * 1.125, `${usage.messagesBytes} bytes`);
  t.ok(usage.messagesBytes > most / 2, 'and not less than it may have');
  const [limit] = usage.limits.filter(({ name }) => name === 'accountMessagesBytes');
  t.match(limit, { limit: most, used: usage.messagesBytes });
  const [first] = await read();
  t.ok(first.numericValue > 10_000, 'the oldest are gone');
});

t.test('with too little free on the disk nothing is acknowledged that cannot be kept, and it says why', async (t) => {
  const logLines: string[] = [];
  let free = roomy;
  const service = await startService(t, { logLines, freeOnDisk: async () => free });
  const devices: Array<Awaited<ReturnType<typeof startDevice>>> = [];
  for (let n = 0; n < 6; n += 1)
    devices.push(await startDevice(t, service, ['data', { name: 'live', persistenceType: 'simple' }]));
  const device = async () => {
    const next = devices.shift();
    if (!next) throw new Error('no device is left');
    return next;
  };
  free = 0;
  await refusing(service, true);
  const explained = {
    code: -199,
    details: [{ message: 'The disk has no more free than SLIPWAY_DISK_RESERVE_BYTES.' }],
  };
  const refuse = async (payload: string, channel: string) => {
    const { client, publish } = await device();
    const said = rejection(client);
    t.equal(await outcome(client, publish(payload, channel)), 'closed', `no acknowledgement on ${channel}`);
    t.match(await said, { error: explained });
  };
  await refuse(',c,1,', 'data');
  await refuse('{"message":"hot"}', '_log');
  const one = await device();
  const said = rejection(one.client);
  one.client.publish(service.topic(one.device.id, 'data'), ',c,1,', { qos: 0 });
  t.match(await said, { error: explained }, 'with QoS 0 too');

  const text = { 'content-type': 'text/csv' };
  const write = (path: string, body: unknown, headers = {}) => service.http('POST', path, { body, headers });
  const topic = service.topic(one.device.id, 'data');
  const answers = [
    await write(`/api/v4/data/${topic}`, ',c,1,', text),
    await write(`/api/v1/devices/${one.device.id}/logs`, { message: 'hot' }),
    await write(`/messaging/publish/${topic}`, ',c,1,', text),
    await write(`/messaging/publish/${service.topic(one.device.id, '_log')}`, 'hot', text),
    await write(`/messaging/publish/${service.topic(one.device.id, 'live')}?retain=true&qos=0`, 'on', text),
    await write(`/messaging/publish/${service.topic(one.device.id, 'live')}?retain=true`, 'on', text),
    await write('/api/v1/devices', { accountId: service.accountId, serialNumber: 'none' }),
  ];
  for (const answer of answers) t.match(answer, { status: 507, body: { error: explained } }, 'over HTTP too');
  const loud = logLines.filter((line) => JSON.parse(line).level > 30 && line.includes('DISK_RESERVE'));
  const lines = loud.map((line) => JSON.parse(line).msg);
  t.strictSame(
    // The service asks itself now and then whether it is ready.
    lines.filter((msg) => msg !== 'not ready'),
    [`messages are refused: ${explained.details[0]?.message}`],
    'the log says it once, however many are refused',
  );

  const two = await device();
  await two.publish('on', 'live');
  t.pass('what need not be kept passes');
  for (const channel of ['live', 'data']) {
    const retained = rejection(two.client);
    two.client.publish(service.topic(two.device.id, channel), ',c,1,', { qos: 0, retain: true });
    t.match(await retained, { error: explained }, `nothing is retained on ${channel}`);
  }
  const fresh = await service.connect({ jwt: service.admin });
  const heard: string[] = [];
  fresh.on('message', (topic, payload) => heard.push(`${topic.split('/').at(-1)} ${payload}`));
  for (const { id } of [one.device, two.device])
    await fresh.subscribeAsync(['live', 'data'].map((channel) => service.topic(id, channel)));
  await two.publish('last', 'live');
  await until(() => heard.includes('live last'));
  t.same(heard, ['live last'], 'who subscribes afterwards hears none of it');
  const listener = await service.connect({ jwt: service.admin }, { clientId: 'stored', clean: false });
  await listener.subscribeAsync(service.topic(two.device.id, 'live'), { qos: 1 });
  const saidTwo = rejection(two.client);
  t.equal(await outcome(two.client, two.publish('on', 'live')), 'closed', 'a stored session is to hear it');
  t.match(await saidTwo, { error: explained });
  await refuse('{"state":{"name":"new"}}', '_set/fields');
  const { usage } = await service.ok('GET', '/api/v1/usage');
  t.match(usage, { points: 0 });
  t.equal(logLines.filter((line) => line.includes('messages are refused')).length, 1, 'the log has it once');

  free = roomy;
  await refusing(service, false);
  const three = await device();
  await three.publish(',c,3,');
  t.match(await three.read(), [{ numericValue: 3 }]);
});

t.test('bridges take half of the cap and no more: what they keep makes room first, points stay', async (t) => {
  const cap = 4 * 1024 * 1024;
  const env = { SLIPWAY_MESSAGES_MAX_BYTES: String(cap), SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' };
  const service = await startService(t, { env });
  const receiver = await startReceiver(t);
  const channels = ['data', { name: 'sure', persistenceType: 'simple', streamBridgeDelivery: 2 }];
  const one = await startDevice(t, service, channels);
  const other = await startDevice(t, service);
  const rows = Array.from({ length: 3000 }, (_, n) => `${Date.now() - n},c,${n},`).join('\n');
  await other.publish(rows);
  const bridge = await service.create('/bridges', 'bridge', { name: 'B', kind: 'webhook', url: receiver.url });

  const payload = 'x'.repeat(100_000);
  const sent = 60;
  for (let n = 0; n < sent; n += 1) {
    await one.publish(payload, 'sure');
    await receiver.received(n + 1);
  }
  t.ok(countOutbox(service, bridge.id, 'delivered') < sent, 'what was delivered has made room');
  t.equal((await service.ok('GET', '/api/v1/usage')).usage.points, 3000, 'and not the points');

  receiver.behave = () => 503;
  let taken = 0;
  const said: string[] = [];
  one.client.on('message', (topic, payload) => topic.endsWith('/_rejected') && said.push(payload.toString()));
  const gone = new Promise<'closed'>((resolve) => one.client.once('close', () => resolve('closed')));
  for (; taken < sent; taken += 1) {
    const published = one.publish(payload, 'sure');
    published.catch(() => {});
    if ((await Promise.race([published, gone])) === 'closed') break;
  }
  t.match(JSON.parse((await until(() => said[0])) ?? ''), {
    error: {
      code: -199,
      details: [{ message: /more than its share of half of SLIPWAY_MESSAGES_MAX_BYTES/ }],
    },
  });
  t.ok(taken * payload.length < cap * 0.6, `${taken} messages were guaranteed`);
  await other.publish(',c,1,');
  t.equal((await service.ok('GET', '/api/v1/usage')).usage.points, 3001, 'others go on');

  receiver.behave = () => 200;
  await receiver.received(sent + taken);
});

t.test(
  'an account whose bridges do not deliver loses its own messages and is refused, and no other account',
  async (t) => {
    const cap = 4 * 1024 * 1024;
    const env = { SLIPWAY_MESSAGES_MAX_BYTES: String(cap), SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' };
    const service = await startService(t, { env });
    const payload = 'x'.repeat(100_000);
    /** A device of an account whose messages go to a receiver of its own. */
    const party = async (accountId: string, token: string) => {
      const receiver = await startReceiver(t);
      const make = <const P extends string, const W extends string>(path: P, wrapper: W, body: object) =>
        service.create(path, wrapper, { accountId, ...body }, token);
      const bridge = await make('/bridges', 'bridge', { name: 'B', kind: 'webhook', url: receiver.url });
      const template = await make('/devices/templates', 'deviceTemplate', { name: 'T' });
      const channel = { name: 'sure', persistenceType: 'simple', streamBridgeDelivery: 2 };
      await make('/channels/templates', 'channelTemplate', {
        entityId: template.id,
        entityType: 'deviceTemplate',
        ...channel,
      });
      const device = await make('/devices', 'device', { serialNumber: 'S', deviceTemplateId: template.id });
      const topic = `slipway/v1/${accountId}/d/${device.id}/sure`;
      const headers = { 'content-type': 'text/csv' };
      const publish = () => service.http('POST', `/messaging/publish/${topic}`, { token, headers, body: payload });
      return { receiver, bridge, publish };
    };
    const attacker = await party(service.accountId, service.admin);
    const other = await service.account();
    const victim = await party(other.accountId, other.admin);

    for (let n = 1; n <= 5; n += 1) {
      t.match(await victim.publish(), { status: 200 });
      await victim.receiver.received(n);
    }
    const sent = 60;
    for (let n = 1; n <= sent; n += 1) {
      t.equal((await attacker.publish()).status, 200);
      await attacker.receiver.received(n);
    }
    t.ok(countOutbox(service, attacker.bridge.id, 'delivered') < sent, 'room was made');
    t.equal(countOutbox(service, victim.bridge.id, 'delivered'), 5, 'the victim can replay all of its messages');

    attacker.receiver.behave = () => 503;
    let refusal: { status: number; body: Failure } | undefined;
    for (let n = 0; n < sent && !refusal; n += 1) {
      const answer = await attacker.publish();
      if (answer.status !== 200) refusal = answer;
    }
    t.match(refusal, { status: 507, body: { error: { details: [{ message: /its share of half/ }] } } });
    t.match(await victim.publish(), { status: 200 }, 'the victim is not refused');
    await victim.receiver.received(6);
    t.match(await attacker.publish(), { status: 507 });
    // It is noted as delivered a moment after the receiver has answered.
    await until(() => countOutbox(service, victim.bridge.id, 'delivered') === 6);
    t.equal(countOutbox(service, victim.bridge.id, 'pending'), 0);
  },
);

t.test('below the reserve the registry does not grow either; what shrinks and revokes still works', async (t) => {
  let free = roomy;
  const service = await startService(t, { freeOnDisk: async () => free });
  const { device } = await service.device();
  const { id, accountId } = device;
  const made = { body: { accountId, serialNumber: 'repeated' }, headers: { 'idempotency-key': 'repeated' } };
  const first = await service.http('POST', '/api/v1/devices', made);
  free = 0;
  await refusing(service, true);
  const rows = { rows: [{ serialNumber: 'new' }] };
  const etag = async () => (await service.ok('GET', `/api/v1/devices/${id}`)).device.version;
  const refused: Array<[string, string, object]> = [
    ['POST', '/api/v1/devices', { accountId, serialNumber: 'new' }],
    ['POST', '/api/v1/organizations', { accountId, name: 'new' }],
    ['POST', '/api/v1/provisioning/jobs', rows],
    ['POST', '/api/v1/provisioning/jobs?dryRun=true', rows],
    ['POST', '/api/v1/devices/jobs', { action: 'delete', ids: [id], dryRun: true }],
    ['POST', '/api/v1/applications', { accountId, name: 'new', kind: 'backEnd' }],
    ['PUT', `/api/v1/devices/${id}`, { name: 'x'.repeat(100) }],
  ];
  for (const [method, path, body] of refused) {
    const answer = await service.http(method, path, { body, headers: { etag: await etag() } });
    t.match(answer, { status: 507, body: { error: { code: -199 } } }, `${method} ${path}`);
    t.match(answer.text, /SLIPWAY_DISK_RESERVE_BYTES/);
  }
  t.same((await service.http('POST', '/api/v1/devices', made)).body, first.body, 'a repeat is answered');
  t.ok((await service.loginAs(adminEmail, adminPassword)).jwt, 'logging in works');
  t.ok(await service.credential(id), 'a secret can be replaced');
  const job = await service.http('POST', '/api/v1/devices/jobs', {
    body: { action: 'delete', ids: [first.body.device.id] },
  });
  t.equal(job.status, 202);
  await service.ok('DELETE', `/api/v1/devices/${id}`, { headers: { etag: await etag() } });
  await service.ok('POST', '/api/v1/sessions/logout');
});

t.end();
