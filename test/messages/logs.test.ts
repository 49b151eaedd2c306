import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import mqtt from 'mqtt';
import { part } from '../support/part.ts';
import { nextMessage, present, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const start = Date.parse('2026-03-01T12:00:00.000Z');
const clock = { now: () => start };
const iso = (offset: number) => new Date(start + offset).toISOString();

let shared: Service;
t.before(async () => {
  shared = await startService(t, { clock });
});

t.test('what a device logs is read back, newest first, by level, time and text', async (t) => {
  const service = await shared.inNewAccount();
  const { device, secret } = await service.device();
  const client = await service.connect({ deviceId: device.id, secret });
  const log = (entry: object | string) =>
    client.publishAsync(service.topic(device.id, '_log'), typeof entry === 'string' ? entry : JSON.stringify(entry), {
      qos: 1,
    });
  await log({
    severity: 'error',
    message: 'Pumpe heiß',
    code: 7,
    tags: ['pump'],
    sourceTimestamp: iso(1000),
    rpm: 900,
  });
  await log({ severity: 'warning', message: 'low', sourceTimestamp: iso(3000) });
  await log({ severity: 'debug', message: 'tick', sourceTimestamp: iso(2000) });

  const path = `/api/v1/devices/${device.id}/logs`;
  // The connection has an entry of its own.
  const read = async (query = '') =>
    (await service.ok('GET', `${path}?${query}`)).logs.results.filter((entry) => entry.severity !== 'lifecycle');
  const messages = async (query: string) => (await read(query)).map((entry) => entry.message);

  t.strictSame(await messages(''), ['low', 'tick', 'Pumpe heiß']);
  const { id, ...entry } = present((await read('severity=error'))[0]);
  t.type(id, 'string');
  t.strictSame(entry, {
    accountId: service.accountId,
    deviceId: device.id,
    severity: 'error',
    message: 'Pumpe heiß',
    code: '7',
    details: null,
    tags: ['pump'],
    custom: { rpm: 900 },
    sourceTimestamp: iso(1000),
    received: iso(0),
    byService: false,
  });
  t.strictSame(await messages('severity=error'), ['Pumpe heiß']);
  t.strictSame(await messages('severity=warn'), ['low', 'Pumpe heiß']);
  t.strictSame(await messages('severity=debug'), ['low', 'tick', 'Pumpe heiß']);
  t.strictSame(await messages(`from=${iso(1000)}&to=${iso(3000)}`), ['tick', 'Pumpe heiß']);
  t.strictSame(await messages(`text=${encodeURIComponent('PUMPE')}`), ['Pumpe heiß']);
  t.match(await service.ok('GET', `${path}?severity=debug&pageSize=2`), {
    logs: { results: [{ message: 'low' }, {}], meta: { count: 3, page: 1, pageSize: 2, sortOrder: 'desc' } },
  });
  t.match(await service.ok('GET', `${path}?severity=debug&pageSize=2&page=2`), {
    logs: { results: [{ message: 'Pumpe heiß' }] },
  });
  const past = await service.http('GET', `${path}?severity=debug&pageSize=2&page=3`);
  t.match(past, { status: 416, body: { error: { code: 109 } } });
  t.match(await service.ok('GET', `${path}?text=nowhere`), { logs: { results: { length: 0 }, meta: { count: 0 } } });
  for (const query of ['severity=fatal', 'from=today', 'to=1', 'page=0', 'pageSize=1001']) {
    const answer = await service.http('GET', `${path}?${query}`);
    t.match(answer, { status: 400, body: { error: { code: 106, details: [{ path: query.split('=')[0] }] } } }, query);
  }
});

t.test('the log of a device is for those who may read it', async (t) => {
  const service = await shared.inNewAccount();
  const inside = await service.create('/organizations', 'organization', { name: 'inside' });
  const { token } = await service.endUser(inside.id);
  const mine = (await service.device({ organizationId: inside.id })).device;
  const other = (await service.device()).device;
  const read = (id: string, as?: string | null) =>
    service.http('GET', `/api/v1/devices/${id}/logs`, as === undefined ? {} : { token: as });

  t.match(await read(mine.id, token), {
    status: 200,
    body: { logs: { results: { length: 0 }, meta: { count: 0, page: 1 } } },
  });
  t.match(await read(other.id, token), { status: 404, body: { error: { code: 100 } } });
  t.match(await read(other.id), { status: 200 });
  t.match(await read('no-device'), { status: 404, body: { error: { code: 100 } } });
  t.match(await read(mine.id, null), { status: 401 });
  const write = (id: string, as?: string) =>
    service.http('POST', `/api/v1/devices/${id}/logs`, { body: { message: 'mine' }, ...(as && { token: as }) });
  t.match(
    await write(mine.id, token),
    { status: 403, body: { error: { code: 21 } } },
    'a caller without permission to publish there',
  );
  t.match(await write(other.id, token), { status: 403, body: { error: { code: 21 } } }, 'whichever device it is');
  t.match(await write('no-device'), { status: 404, body: { error: { code: 100 } } });

  const { version } = (await service.ok('GET', `/api/v1/devices/${mine.id}`)).device;
  await service.ok('DELETE', `/api/v1/devices/${mine.id}`, { headers: { etag: version } });
  t.match(await read(mine.id, token), { status: 410, body: { error: { code: 107 } } });
  t.match(await write(mine.id), { status: 410, body: { error: { code: 107 } } });
});

t.test('what is posted is stored like what the device says, and heard like that', async (t) => {
  const service = await shared.inNewAccount();
  const { device } = await service.device();
  const path = `/api/v1/devices/${device.id}/logs`;
  const topic = service.topic(device.id, '_log');
  const post = (body: unknown) => service.http('POST', path, { body });
  const audience = { clientId: 'away', clean: false };
  const away = await service.connect({ jwt: service.admin }, audience);
  await away.subscribeAsync(topic, { qos: 1 });
  await away.endAsync();
  const listener = await service.connect({ jwt: service.admin });
  await listener.subscribeAsync(topic, { qos: 1 });

  const first = { severity: 'informational', message: 'fitted', sourceTimestamp: iso(2000), by: 'Ana' };
  const heard = nextMessage(listener);
  const { logs } = (await post([first, { severity: 'WARNING', message: { raw: 1 }, code: 7 }])).body;
  const common = { accountId: service.accountId, deviceId: device.id, received: iso(0), details: null, tags: [] };
  t.match(logs, [
    {
      ...common,
      id: String,
      severity: 'info',
      message: 'fitted',
      code: null,
      sourceTimestamp: iso(2000),
      custom: { by: 'Ana' },
    },
    { ...common, id: String, severity: 'warn', message: '{"raw":1}', code: '7', sourceTimestamp: iso(0), custom: null },
  ]);
  const file = new Sqlite(join(service.directory, 'messages.db'), { readonly: true });
  t.equal(file.prepare('SELECT count(*) FROM "mqttQueue"').pluck().get(), 2, 'for the stored session too, on disk');
  file.close();
  t.match(await heard, { topic, text: JSON.stringify(first) });
  t.strictSame((await service.ok('GET', path)).logs.results, logs);

  // What a stored session missed comes with its connection, before anybody could listen.
  const missed: string[] = [];
  const seen = new Promise<void>((resolve) => {
    const who = { username: 'Auth:JWT', password: service.admin, reconnectPeriod: 0 };
    const back = mqtt.connect(`mqtt://127.0.0.1:${service.server.mqttPort}`, { ...who, ...audience });
    t.teardown(() => back.end(true));
    back.on('message', (_, payload) => {
      if (missed.push(payload.toString()) === 2) resolve();
    });
  });
  await seen;
  t.equal(missed[0], JSON.stringify(first));

  const one = await post({ message: 'alone', deviceId: 'another', id: 'chosen' });
  t.match(one.body.logs, [{ ...common, message: 'alone', custom: null }], 'who it is of is no matter of the body');
  t.not(one.body.logs[0]?.id, 'chosen');
  const before = (await service.ok('GET', path)).logs.meta.count;
  const bad = [
    [],
    'text',
    7,
    ['text'],
    [[]],
    [{}, { message: 'x'.repeat(16_384) }],
    Array.from({ length: 1001 }, () => ({})),
  ];
  const never = [
    '{"__proto__":1}',
    '{"constructor":{"prototype":1}}',
    '{"message":"\\u0000"}',
    '{"message":"\\ud800"}',
  ];
  for (const body of never) t.match(await post(body), { status: 400, body: { error: { code: 106 } } }, body);
  for (const body of bad) t.match(await post(JSON.stringify(body)), { status: 400, body: { error: { code: 106 } } });
  t.equal((await service.ok('GET', path)).logs.meta.count, before, 'a bad one among good ones spoils them all');
  t.match(await post({ message: 'x'.repeat(16_000) }), { status: 200 });

  const wrong: Array<[unknown, string]> = [
    [{ severity: 'fatal' }, 'severity'],
    [{ severity: 3 }, 'severity'],
    [[{}, { severity: '' }], '1.severity'],
    [{ sourceTimestamp: 'yesterday' }, 'sourceTimestamp'],
  ];
  for (const [body, where] of wrong) {
    const refused = (await post(body)).body.error;
    t.match(refused, { code: 106, details: [{ path: where }] }, where);
    if (where.includes('severity')) t.match(refused.details[0].message, /emergency.*debug.*lifecycle/);
  }
  t.match((await post({ severity: null, sourceTimestamp: null })).body.logs, [{ severity: 'info' }]);
  const ignored = one.headers.get('platform-ignored-properties');
  t.same(ignored?.split(', ').sort(), ['deviceId', 'id'], 'it is named');
  const wrapped = await post({ entries: [{ message: 'inside' }] });
  t.match(wrapped.body.logs, [{ message: null, custom: { entries: [{ message: 'inside' }] } }]);
  t.equal(wrapped.headers.get('platform-ignored-properties'), null, 'what is kept is not ignored');
});

t.end();
