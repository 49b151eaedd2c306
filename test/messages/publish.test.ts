import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import mqtt from 'mqtt';
import { type Fixture, fixture, sibling, stored } from '../broker/fixture.ts';
import { hits, metric } from '../broker/metrics.ts';
import { part } from '../support/part.ts';
import { type Answer, nextMessage, type Request } from '../support/service.ts';
import { countStored, storedRows } from '../support/stored.ts';

const t = await part(import.meta);

let f: Fixture;
t.before(async () => {
  f = await fixture(t, { SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' });
});

const path = (topic: string, root = '/api/v1') => `${root}/messaging/publish/${topic}`;
const basic = (username: string, password: string) => ({
  authorization: `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`,
});
const asDevice = (body: string, { device, secret } = f): Request => ({
  token: null,
  body,
  headers: { ...basic(device.id, secret), 'content-type': 'text/plain' },
});

/** A request with bytes, or a media type, that the support's own would not send. */
function raw(topic: string, body: Uint8Array | string, headers: Record<string, string>): Promise<Response> {
  return fetch(f.service.server.url + path(topic), { method: 'POST', body, headers });
}

const refused = async (answer: Promise<Answer>, status: number, code: number) => {
  const { body, status: got, text } = await answer;
  t.match({ status: got, code: body?.error?.code }, { status, code }, text.replace(/"requestId.*/, ''));
};

t.test('a device publishes with its secret, at both addresses, and the point is stored', async (t) => {
  for (const [root, value] of [
    ['/api/v1', 1],
    ['', 2],
  ] as const) {
    const request = asDevice(`,t,${value},`);
    t.same(await f.service.ok('POST', path(f.topic('temperature'), root), request), { success: true });
    t.equal((await stored(f))[0], value, 'stored when the answer is there');
  }
  const encoded = encodeURIComponent(f.topic('temperature'));
  await f.service.ok('POST', path(encoded), asDevice(',t,3,'));
  t.equal((await stored(f))[0], 3);
});

t.test('bytes of any media type, or of none, arrive as they are', async (t) => {
  const listener = await f.service.connect({ jwt: f.service.admin });
  await listener.subscribeAsync(f.topic('chat'), { qos: 2 });
  const bytes = Uint8Array.from({ length: 256 }, (_, at) => at);
  for (const type of ['application/json', 'application/octet-stream', 'image/png', '']) {
    const next = nextMessage(listener);
    const headers = { authorization: `Bearer ${f.service.admin}`, ...(type && { 'content-type': type }) };
    t.equal((await raw(f.topic('chat'), bytes, headers)).status, 200, type);
    t.same(new Uint8Array((await next).payload), bytes);
  }
});

t.test(
  'users with a token, by Bearer, Basic or cookie, and entities with a secret, publish in their reach',
  async (t) => {
    const organization = await f.service.organization();
    const { endUser, token } = await f.service.endUser(organization.id);
    const inside = await f.service.device({
      deviceTemplateId: f.device.deviceTemplateId,
      organizationId: organization.id,
    });
    const topic = f.service.topic(inside.device.id, 'chat');
    const secret = await f.service.create('/access/mqtt-credentials', 'mqttCredential', {
      entityId: endUser.id,
      entityType: 'endUser',
    });
    const headers = { 'content-type': 'text/plain' };
    const ways: Record<string, Request> = {
      Bearer: { token, headers },
      'Basic with a token': { token: null, headers: { ...headers, ...basic('Auth:JWT', token) } },
      'Basic with a secret': { token: null, headers: { ...headers, ...basic(endUser.id, secret.secret) } },
    };
    for (const [way, request] of Object.entries(ways)) {
      t.match(await f.service.http('POST', path(topic), { ...request, body: 'x' }), { status: 200 }, way);
      await refused(f.service.http('POST', path(f.topic('chat')), { ...request, body: 'x' }), 404, 100);
    }
    const cookie = { cookie: `platform-access-token=${token}` };
    await refused(f.service.http('POST', path(topic), { token: null, body: 'x', headers: cookie }), 403, 21);
  },
);

t.test('what PUBACK promises is promised by the answer: stored sessions and retained messages', async (t) => {
  const topic = f.topic('chat');
  const keeper = { clientId: 'keeper', clean: false };
  const first = await f.service.connect({ jwt: f.service.admin }, keeper);
  await first.subscribeAsync(topic, { qos: 1 });
  await first.endAsync();
  for (const text of ['one', 'two']) await f.service.ok('POST', `${path(topic)}?qos=2`, asDevice(text));
  const places = `"mqttQueue" JOIN "mqttMessages" ON "id" = "message"`;
  t.equal(countStored(f.service, places, '"topic" = ?', [topic], 'messages.db'), 2, 'their places are on disk');
  const retained = () =>
    storedRows<{ text: string }>(
      f.service,
      'SELECT CAST("payload" AS TEXT) AS "text" FROM "mqttRetained" WHERE "topic" = ?',
      [topic],
      'messages.db',
    ).map(({ text }) => text);
  for (const qos of [0, 1]) {
    await f.service.ok('POST', `${path(topic)}?qos=${qos}&retain=true`, asDevice(`retained ${qos}`));
    t.same(retained(), [`retained ${qos}`], 'on disk');
  }
  const heard: string[] = [];
  const again = mqtt.connect(`mqtt://127.0.0.1:${f.service.server.mqttPort}`, {
    ...keeper,
    username: 'Auth:JWT',
    password: f.service.admin,
  });
  t.teardown(() => again.end(true));
  await new Promise<void>((resolve) => {
    again.on('message', (_, payload) => {
      heard.push(payload.toString());
      if (heard.at(-1) === 'retained 1') resolve();
    });
  });
  t.same(heard, ['one', 'two', 'retained 1'], 'in their order; QoS 0 is not queued');
  await f.service.ok('POST', `${path(topic)}?retain=true`, asDevice(''));
  t.same(retained(), [], 'an empty body clears');
});

t.test('refusals answer, and are on `_rejected` and in the list, as those of MQTT do', async (t) => {
  const other = await sibling(f);
  const listener = await f.service.connect(f.who);
  await listener.subscribeAsync(f.topic('_rejected'), { qos: 1 });
  const cases: Array<[topic: string, status: number, code: number]> = [
    [f.topic('_rejected'), 403, 21],
    [f.topic('_updates/fields'), 403, 21],
    [f.topic('nothing'), 404, 100],
    [other.topic('chat'), 404, 100],
  ];
  for (const [topic, status, code] of cases) {
    const explained = nextMessage(listener);
    await refused(f.service.http('POST', path(topic), asDevice('x')), status, code);
    const { error, ...about } = JSON.parse((await explained).text);
    t.match({ error, about }, { error: { code }, about: { topic } });
    const said = topic === f.topic('nothing') ? 'no such channel on the template of the device' : /use .*<channel>$/;
    const details = status === 404 ? [{ path: 'topic', message: said }] : [];
    t.match(error.details, details, 'of its own topic alone whether it exists');
  }
  const malformed = [f.topic('a/+'), f.topic('%23'), f.topic('%00'), `${'a/'.repeat(20)}a`];
  await refused(f.service.http('POST', path(''), asDevice('x')), 404, 100);
  for (const topic of malformed) await refused(f.service.http('POST', path(topic), asDevice('x')), 400, 106);
  const { refusals } = await f.service.ok('GET', `/api/v1/devices/${f.device.id}/refusals?pageSize=50`);
  for (const [topic, , code] of cases)
    t.ok(
      refusals.results.some((one) => one.topic === topic && one.code === code && one.address === '127.0.0.1'),
      topic,
    );
  await refused(f.service.http('POST', path('some/where'), { body: 'x' }), 404, 100);
  await refused(f.service.http('POST', `${path(f.topic('chat'))}?qos=3`, asDevice('x')), 400, 106);
});

t.test('a payload in no form is delivered, not stored, and the answer says why', async (t) => {
  const listener = await f.service.connect(f.who);
  await listener.subscribeAsync([f.topic('temperature'), f.topic('_rejected')]);
  const arrived = nextMessage(listener, (topic) => topic === f.topic('temperature'));
  const explained = nextMessage(listener, (topic) => topic === f.topic('_rejected'));
  const answer = await f.service.ok('POST', path(f.topic('temperature')), asDevice('no form'));
  t.match(answer, { success: true, rejection: { code: 106 } });
  t.equal((await arrived).text, 'no form');
  t.match(JSON.parse((await explained).text), { error: { code: 106 } });
});

t.test('`_set/fields` works, and what it refuses is refused here', async (t) => {
  const set = (state: object) =>
    f.service.http('POST', path(f.topic('_set/fields')), asDevice(JSON.stringify({ state })));
  t.match(await set({ firmwareVersion: '7.1' }), { status: 200 });
  t.equal((await f.service.ok('GET', `/api/v1/devices/${f.device.id}`)).device.firmwareVersion, '7.1');
  await refused(set({ firmwareVersion: '7.2', organizationId: null }), 400, 106);
  t.equal((await f.service.ok('GET', `/api/v1/devices/${f.device.id}`)).device.firmwareVersion, '7.1');
});

t.test('payloads over the limit of MQTT are refused with 413, and explained', async (t) => {
  const listener = await f.service.connect(f.who);
  await listener.subscribeAsync(f.topic('_rejected'), { qos: 1 });
  const most = 131_072;
  const explained = nextMessage(listener);
  t.match(await f.service.http('POST', path(f.topic('chat')), asDevice('x'.repeat(most))), { status: 200 });
  await refused(f.service.http('POST', path(f.topic('chat')), asDevice('x'.repeat(most + 1))), 413, 106);
  t.match((await explained).text, /SLIPWAY_MQTT_MAX_PAYLOAD_BYTES/);
  for (const bytes of [most + 1, 2_000_000]) {
    const { status, body } = await f.service.http('POST', path(f.topic('chat')), asDevice('x'.repeat(bytes)));
    t.match({ status, body }, { status: 413, body: { error: { message: /^SLIPWAY_MQTT_MAX_PAYLOAD_BYTES: / } } });
  }
  const logs = await f.service.http('POST', `/api/v1/devices/${f.device.id}/logs`, {
    body: { message: 'x'.repeat(2_000_000) },
  });
  t.match(logs, { status: 413, body: { error: { code: 106, message: /^SLIPWAY_HTTP_BODY_BYTES: / } } });
});

t.test('wrong credentials are 401, the right ones of an entity in the trash 403', async (t) => {
  const { device, secret } = await sibling(f);
  const send = (username: string, password: string) =>
    f.service.http('POST', path(f.topic('chat')), { token: null, body: 'x', headers: basic(username, password) });
  await refused(send(device.id, 'wrong'), 401, 30);
  await refused(send('nobody', 'wrong'), 401, 30);
  await refused(send('Auth:JWT', 'wrong'), 401, 30);
  await refused(send('', ''), 401, 30);
  await refused(f.service.http('POST', path(f.topic('chat')), { token: null, body: 'x' }), 401, 30);
  for (const [authorization, message] of [
    [basic(device.id, secret).authorization, /Basic is not accepted here/],
    ['Digest x', /must be Bearer/],
    ['Bearer', /must be Bearer/],
  ] as const)
    t.match(await f.service.http('GET', '/api/v1/devices/x', { token: null, headers: { authorization } }), {
      status: 401,
      body: { error: { code: 30, message } },
    });
  const { refusals } = await f.service.ok('GET', `/api/v1/devices/${device.id}/refusals`);
  t.match(refusals.results, [{ action: 'connect', topic: null, reason: /wrong credentials/ }]);
  for (let n = 0; n < 5; n += 1) await refused(send(device.id, `wrong ${n}`), 401, 30);
  const after = await f.service.ok('GET', `/api/v1/devices/${device.id}/refusals`);
  t.equal(after.refusals.meta.count, refusals.meta.count, 'who has proven nothing fills one line, over HTTP too');
  const version = (await f.service.ok('GET', `/api/v1/devices/${device.id}`)).device.version;
  await f.service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: version } });
  await refused(send(device.id, secret), 403, 20);
});

t.test('guessing a secret over HTTP and over MQTT is one limit', async (t) => {
  const { device, secret } = await sibling(f);
  const send = (password: string) =>
    f.service.http('POST', path(f.topic('chat')), {
      token: null,
      body: 'x',
      headers: basic(device.id, password),
    });
  const mqttTry = (password: string) => f.service.connect({ deviceId: device.id, secret: password });
  const connects = 'slipway_mqtt_refused_connects_total{reason="bad_credentials"}';
  const basics = 'slipway_http_basic_failures_total';
  const before = [await metric(f, connects), await metric(f, basics)] as [number, number];
  for (let guess = 0; guess < 15; guess += 1) await refused(send(`wrong ${guess}`), 401, 30);
  for (let guess = 0; guess < 15; guess += 1) await t.rejects(mqttTry(`wrong as well ${guess}`));
  const answer = await send(secret);
  t.match(answer, {
    status: 429,
    body: { error: { code: -199, message: /^SLIPWAY_MQTT_FAILED_CONNECTS_PER_PRINCIPAL: / } },
  });
  const wait = Number(answer.headers.get('retry-after'));
  t.ok(wait >= 1 && wait <= 60, `${wait} seconds`);
  t.equal(answer.headers.get('ratelimit-limit'), '30');
  await t.rejects(mqttTry(secret), 'not looked at any more');
  t.strictSame([await metric(f, connects), await metric(f, basics)], [before[0] + 16, before[1] + 16]);
  const elsewhere = { ...basic(device.id, secret), 'x-forwarded-for': '203.0.113.9' };
  const own = await f.service.http('POST', path(f.service.topic(device.id, 'chat')), {
    token: null,
    body: 'x',
    headers: elsewhere,
  });
  t.equal(own.status, 200, 'the device itself, from where it is, is not locked out');
});

t.test('a right that is lost while the body arrives is lost', async (t) => {
  const { device, secret } = await sibling(f);
  const { jwt } = await f.service.loginAs('admin@example.com', 'correct horse battery');
  const cutOffs: Array<[headers: Record<string, string>, cut: () => Promise<unknown>]> = [
    [basic(device.id, secret), () => f.service.credential(device.id)],
    [{ authorization: `Bearer ${jwt}` }, () => f.service.ok('POST', '/api/v1/sessions/logout', { token: jwt })],
  ];
  for (const [headers, cut] of cutOffs) {
    const url = new URL(f.service.server.url + path(f.service.topic(device.id, 'chat')));
    const request = httpRequest(url, { method: 'POST', headers: { ...headers, 'content-length': 2 } });
    const answered = once(request, 'response');
    request.write('x');
    // Known by now: the scope's first hook runs when the head has come.
    await f.service.ok('POST', path(f.topic('chat')), asDevice('between'));
    await cut();
    request.end('x');
    const [response] = (await answered) as [IncomingMessage];
    response.resume();
    t.equal(response.statusCode, 401);
  }
});

t.test('the same Idempotency-Key publishes once', async (t) => {
  const heard: string[] = [];
  const listener = await f.service.connect(f.who);
  const last = nextMessage(listener, (_, payload) => heard.push(payload.toString()) > 0 && heard.at(-1) === 'last');
  await listener.subscribeAsync(f.topic('chat'));
  const keyed = asDevice('keyed');
  for (let time = 0; time < 3; time += 1)
    await f.service.ok('POST', path(f.topic('chat')), {
      ...keyed,
      headers: { ...keyed.headers, 'idempotency-key': 'k' },
    });
  await f.service.ok('POST', path(f.topic('chat')), asDevice('last'));
  await last;
  t.same(heard, ['keyed', 'last']);
});

t.test('a batch publishes JSON, and other endpoints take no other bodies than before', async (t) => {
  const body = { requests: [{ method: 'POST', path: path(f.topic('temperature')), payload: { t: 42 } }] };
  t.same(await f.service.ok('POST', '/api/v1/batch', { body }), [{ success: true }]);
  t.equal((await stored(f))[0], 42);
  const headers = { 'content-type': 'text/plain' };
  for (const other of ['/api/v1/devices', '/api/v1/batch'])
    await refused(f.service.http('POST', other, { body: 'x', headers }), 415, 106);
});

t.test('past the rate of one client it is 429, past its refusals too', async (t) => {
  const clock = { now: () => Date.now() };
  const limited = await fixture(
    t,
    { SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '3', SLIPWAY_MQTT_REFUSALS_PER_MINUTE: '2' },
    { clock },
  );
  let now = Date.now();
  clock.now = () => now;
  const messages = new Set<string>();
  const send = async (channel: string, who = limited) => {
    const { status, body } = await limited.service.http('POST', path(limited.topic(channel)), asDevice('x', who));
    if (status === 429) messages.add(body.error.message.replace(/:.*/s, ''));
    return status;
  };
  const many = await Promise.all(Array.from({ length: 5 }, () => send('chat')));
  t.same(many.sort(), [200, 200, 200, 429, 429]);
  now += 1000;
  t.same([await send('nothing'), await send('nothing'), await send('nothing')], [404, 404, 429]);
  now += 1000;
  t.same([await send('chat')], [200], 'what is permitted still is');
  t.strictSame([...messages], ['SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT', 'SLIPWAY_MQTT_REFUSALS_PER_MINUTE']);
  t.equal(await hits(limited, 'publish_rate_per_client'), 2);
  t.equal(await hits(limited, 'refusals_per_minute'), 1);
});

t.test('what of the query had no effect is named, and nothing of the payload', async (t) => {
  const ignored = async (query: string) => {
    const answer = await f.service.http('POST', path(f.topic('chat')) + query, asDevice('hello'));
    t.equal(answer.status, 200);
    return answer.headers.get('platform-ignored-properties');
  };
  t.equal(await ignored(''), null);
  t.equal(await ignored('?qos=1&qoss=2'), 'qoss');
});

t.test('a compressed payload is decoded, within the limit of what is decoded; other bodies are not', async (t) => {
  const template = await f.service.template({ channels: ['data'] });
  const { device } = await f.service.device({ deviceTemplateId: template.id });
  const topic = f.service.topic(device.id, 'data');
  const data = `/api/v4/data/${topic}`;
  const send = (url: string, coding: string, body: Buffer) =>
    f.service.http('POST', url, { body, headers: { 'content-type': 'text/csv', 'content-encoding': coding } });
  const codings = { gzip: gzipSync, 'x-gzip': gzipSync, GZIP: gzipSync, deflate: deflateSync, br: brotliCompressSync };
  for (const [coding, compress] of Object.entries(codings)) {
    t.match(await send(data, coding, compress(Buffer.from(`,${coding},1,`))), { status: 200 }, coding);
    t.match(await send(path(topic), coding, compress(Buffer.from(`,${coding},2,`))), { status: 200 }, coding);
  }
  const { result } = await f.service.ok('GET', `${data}/latest`);
  t.same(
    result.map(({ category, numericValue }) => `${category} ${numericValue}`).sort(),
    Object.keys(codings)
      .flatMap((coding) => [`${coding} 1`, `${coding} 2`])
      .sort(),
  );
  const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024, 0x20));
  await refused(send(data, 'gzip', bomb), 413, 106);
  await refused(send(data, 'gzip', Buffer.from(',x,1,')), 400, 106);
  await refused(send(data, 'gzip', gzipSync(Buffer.from(',x,1,')).subarray(0, 12)), 400, 106);
  const naming = (message: RegExp) => ({
    status: 415,
    body: { error: { code: 106, details: [{ path: 'content-encoding', message }] } },
  });
  for (const coding of ['zstd', 'gzip, br', 'nonsense'])
    t.match(await send(data, coding, Buffer.from(',x,1,')), naming(/one of identity,.* gzip,.* br$/), coding);
  const json = { 'content-type': 'application/json', 'content-encoding': 'gzip' };
  const devices: string = '/api/v1/devices';
  t.match(await f.service.http('POST', devices, { body: gzipSync('{}'), headers: json }), naming(/not supported here/));
  t.match(await send(data, 'identity', Buffer.from(',x,1,')), { status: 200 });
});

t.test('a body whose digest is another is refused, and nothing of it is kept', async (t) => {
  const template = await f.service.template({ channels: ['data'] });
  const { device } = await f.service.device({ deviceTemplateId: template.id });
  const data = `/api/v4/data/${f.service.topic(device.id, 'data')}`;
  const body = Buffer.from(',x,1,');
  const digestOf = (name: string, of: Buffer) => createHash(name).update(of).digest('base64');
  const send = (header: string, value: string, more: Record<string, string> = {}, sent = body) =>
    f.service.http('POST', data, { body: sent, headers: { 'content-type': 'text/csv', [header]: value, ...more } });
  const [right, wrong] = [digestOf('sha256', body), digestOf('sha256', Buffer.from(',x,2,'))];
  for (const [header, value] of [
    ['content-digest', `sha-256=:${wrong}:`],
    ['repr-digest', `sha-512=:${digestOf('sha512', body)}:, sha-256=:${wrong}:`],
    ['content-md5', digestOf('md5', Buffer.from(',x,2,'))],
    ['content-digest', right],
  ] as const)
    t.match(await send(header, value), { status: 400, body: { error: { code: 106, details: [{ path: header }] } } });
  t.same((await f.service.ok('GET', data)).result, []);
  const zipped = gzipSync(body);
  for (const answer of [
    await send('content-digest', `sha-256=:${right}:, crc32c=:AAAAAA==:`),
    await send('content-md5', digestOf('md5', body)),
    await send('repr-digest', `sha-256=:${digestOf('sha256', zipped)}:`, { 'content-encoding': 'gzip' }, zipped),
  ])
    t.match(answer, { status: 200 });
});

t.end();
