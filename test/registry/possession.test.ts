/** A device that goes from one customer to another tells the second nothing of what it did for the first. */
import type { Test } from 'tap';
import { subscribed, taken, texts } from '../broker/conversation.ts';
import { connectPacket, rawClient } from '../broker/raw.ts';
import { asDevice, publish, rollOut } from '../firmware/fleet.ts';
import { openStream } from '../support/events.ts';
import { holdUnasked } from '../support/faults.ts';
import { follow } from '../support/jobs.ts';
import { documentOf } from '../support/openapi.ts';
import { part } from '../support/part.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { storedRows } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const hour = 3_600_000;
const channels = ['readings', { name: 'chat', persistenceType: 'simple' }];
const plain = { 'content-type': 'text/plain' };

interface Unit {
  device: { id: string; serialNumber: string };
  secret: string;
}

/** Two customers, a person of each, and a device of the first one. */
async function customers(t: Test) {
  const service = await sharedService(t);
  const template = await service.template({ channels });
  const [first, second] = [await service.organization(), await service.organization()];
  const [former, next] = [await service.endUser(first.id), await service.endUser(second.id)];
  const unit: Unit = await service.device({ organizationId: first.id, deviceTemplateId: template.id });
  return { service, template, first, second, former, next, unit };
}

async function versionOf(service: Service, id: string): Promise<string> {
  return (await service.ok('GET', `/api/v1/devices/${id}`)).device.version;
}

async function put(service: Service, id: string, body: object, token = service.admin) {
  const headers = { etag: await versionOf(service, id) };
  return service.http('PUT', `/api/v1/devices/${id}`, { body, headers, token });
}

async function job(service: Service, body: object): Promise<void> {
  const made = await service.http('POST', '/api/v1/devices/jobs', { body: { action: 'move', ...body } });
  if (made.status !== 202) throw new Error(made.text);
  await follow(service, made.body.job.id);
}

async function claim(service: Service, id: string, organizationId: string, token: string, keepHistory?: boolean) {
  const body = { deviceId: id, ...(keepHistory !== undefined && { keepHistory }) };
  const { associationCode } = await service.ok('POST', '/api/v1/association/create-association-code', { body });
  await service.ok('POST', '/api/v1/association/start-association-with-code', {
    body: { associationCode, organizationId },
    token,
  });
}

const line = (time: number, number: number, text: string) => `${time},${text},${number},${text}`;

/** The device does all that leaves a trace, under one word; the number of its point of now is another. */
async function live(service: Service, { device, secret }: Unit, word: string, number: number, maker: string) {
  const topic = (channel: string) => service.topic(device.id, channel);
  const client = await service.connect({ deviceId: device.id, secret }, { clientId: word });
  await client.subscribeAsync(topic('_commands'), { qos: 1 });
  client.on('message', (_, payload) => {
    const { id } = JSON.parse(payload.toString());
    client.publish(topic('_commands/replies'), JSON.stringify({ id, status: 'succeeded', result: word }), { qos: 1 });
  });
  const now = Date.now();
  // Clocks of devices are wrong: what was measured tomorrow was measured for this owner all the same.
  const times = [now, now + 12 * hour];
  const points = times.map((time) => line(time, number, word));
  await client.publishAsync(topic('readings'), points.join('\n'), { qos: 1 });
  await client.publishAsync(topic('chat'), word, { qos: 1, retain: true });
  await client.publishAsync(topic('_log'), JSON.stringify({ message: word, sourceTimestamp: now }), { qos: 1 });
  await client.publishAsync(topic('_log'), JSON.stringify({ message: word, sourceTimestamp: now + hour }), { qos: 1 });
  await client.publishAsync(topic(word), word, { qos: 1 });
  const { command } = await service.ok('POST', `/api/v1/devices/${device.id}/commands?wait=1`, {
    body: { name: 'do', payload: word },
    token: maker,
  });
  await fail(service, { device, secret }, word);
  await client.endAsync();
  // One that waits, and a CONNECT that is refused.
  const waiting = { name: `${word}-waiting`, payload: word };
  await service.ok('POST', `/api/v1/devices/${device.id}/commands`, { body: waiting, token: maker });
  const stranger = await rawClient(t, service.server.mqttPort);
  stranger.send(connectPacket({ username: device.id, password: Buffer.from('wrong'), clientId: word }));
  await stranger.closed;
  return command.id;
}

/** An update that ends with what the device says of it. */
async function fail(service: Service, unit: Unit, word: string): Promise<void> {
  const { deviceTemplateId } = (await service.ok('GET', `/api/v1/devices/${unit.device.id}`)).device;
  const firmware = await publish(service, deviceTemplateId, word);
  await rollOut(service, firmware, { target: { deviceIds: [unit.device.id] } });
  const device = { id: unit.device.id, secret: unit.secret };
  // Without an offer it is 200 as well, with no files.
  await until(async () => 'packageId' in (await asDevice(service, device, 'GET', '/firmware/offer')).body);
  const status = { state: 'failed', firmwareVersion: word, code: 7, message: word };
  const answer = await asDevice(service, device, 'POST', '/firmware/status', status);
  if (answer.status >= 300) throw new Error(answer.text);
}

const readings = (service: Service, id: string, query: string, latest = '') =>
  `/api/v4/data/${service.topic(id, 'readings')}${latest}?${query}`;

/** Every way of reading what the device has done, over HTTP; the texts of the answers. */
async function readAll(
  service: Service,
  id: string,
  commandIds: readonly string[],
  token: string,
  further: 'and the rest' | 'only' = 'only',
) {
  const range = `startDateTime=2020-01-01T00:00:00Z&endDateTime=2090-01-01T00:00:00Z`;
  const accountId = `accountId=${service.accountId}`;
  const own = [
    readings(service, id, range),
    readings(service, id, `${range}&order=desc&pageSize=2`),
    readings(service, id, '', '/latest'),
    ...['csv', 'ndjson'].map((format) => readings(service, id, `${range}&format=${format}`)),
    ...['csv', 'ndjson'].map((format) => readings(service, id, `${range}&rollup=1M&aggregate=sum&format=${format}`)),
    readings(service, id, `${range}&rollup=1M&aggregate=avg,min,max,sum,count,first,last`),
    ...commandIds.map((commandId) => `/api/v1/devices/${id}/commands/${commandId}`),
    ...['commands', 'refusals', 'logs'].map((what) => `/api/v1/devices/${id}/${what}?pageSize=100`),
    `/api/v1/devices/${id}/firmware?pageSize=100`,
    `/api/v1/devices/${id}/logs?pageSize=100&text=of`,
    `/api/v1/devices/${id}/logs?pageSize=100&from=2020-01-01T00:00:00Z`,
  ];
  // Whatever there will be: each GET of the document, of this device.
  const paths = Object.entries(documentOf(service).paths).flatMap(([path, operations]) => {
    if (further === 'only' || !('get' in operations) || /\/(stream|events)$/.test(path)) return [];
    const filled = path.replace('{id}', id).replace('{commandId}', commandIds[0] ?? '');
    return filled.includes('{') ? [] : [`${filled}?${accountId}&pageSize=1000&q=of`];
  });
  const answers = [];
  for (const path of [...own, ...paths]) answers.push([path, (await service.http('GET', path, { token })).text]);
  const searches: Array<[string, object]> = [
    ['all', {}],
    ['words', { query: { bool: { must: [{ match: { message: 'of-first of-second' } }] } } }],
    ['device', { query: { bool: { must: [{ term: { deviceId: id } }] } }, sort: [{ received: 'desc' }] }],
  ];
  for (const [name, body] of searches)
    answers.push([`search ${name}`, (await service.http('POST', '/api/v1/logs/search', { body, token })).text]);
  return answers as [string, string][];
}

/** Of a person, or of a program with a token. */
function login(service: Service, token: string) {
  return { username: token.startsWith('slp_') ? service.accountId : 'Auth:JWT', password: Buffer.from(token) };
}

/**
 * What an MQTT client gets that subscribes to everything: what is retained, and the state of the device. `word` is in what must come:
 * it comes some time after the SUBACK.
 */
async function retained(t: Test, service: Service, id: string, token: string, word = ''): Promise<string[]> {
  const client = await rawClient(t, service.server.mqttPort);
  client.send(connectPacket(login(service, token)));
  await client.next();
  await subscribed(client, ['#', 1], [service.topic(id, 'chat'), 1]);
  return texts(await taken(client, told(word)));
}

/** Whether a word is among what has come; no word always is. */
const told = (word: string) => (messages: Parameters<typeof texts>[0]) =>
  word === '' || texts(messages).some(has(word));

/** A stored session that hears everything, and what it has got when it comes back; `word` is in what must come. */
async function session(t: Test, service: Service, token: string, clientId: string, word = ''): Promise<string[]> {
  const client = await rawClient(t, service.server.mqttPort);
  client.send(connectPacket({ ...login(service, token), clientId, clean: false }));
  await client.next();
  const kept = texts(await taken(client, told(word)));
  await subscribed(client, ['#', 1]);
  await taken(client, () => true);
  client.send({ cmd: 'disconnect' });
  await client.closed;
  return kept;
}

/** The id of an event of now, from which a stream may go on later. */
async function streamFrom(t: Test, service: Service): Promise<string> {
  const events = await openStream(t, service, '#');
  await events.line(/^id: /);
  events.close();
  return events.lastId;
}

/** What a stream sends again to somebody who comes back. It comes in pieces and ends with an id without a message. */
async function missed(t: Test, service: Service, after: string, token: string): Promise<string> {
  const events = await openStream(t, service, '#', { token, after });
  const sent = await until(
    () => events.lines.join('\n'),
    (all) => /^id: .*\n$/m.test(all),
  );
  events.close();
  return sent;
}

const has = (word: string) => (text: string) => text.includes(word);

/** Where a word is told; every way that must tell it is among them. */
function tells(t: Test, answers: readonly [string, string][], word: string, who: string): string[] {
  const telling = answers.filter(([, text]) => text.includes(word)).map(([path]) => path);
  const ways = ['&order=desc', '/latest', 'format=csv', 'format=ndjson', 'rollup=1M&aggregate=sum&format=csv'];
  const others = ['aggregate=avg,min', '/commands/', '/commands?', '/refusals?', '/logs?', '&text=of', 'search words'];
  // A device has one update: the account sees that of now.
  if (who !== 'the account') others.push('/firmware?');
  for (const way of [...ways, ...others]) t.ok(telling.some(has(way)), `${who}: ${way} tells of ${word}`);
  return telling;
}

t.test('an address that is written after the device has gone to another owner is not told to that one', async (t) => {
  const { service, unit, second, next } = await customers(t);
  const { id } = unit.device;
  const release = holdUnasked(t, service);
  await service.connect({ deviceId: id, secret: unit.secret });
  await put(service, id, { organizationId: second.id });
  release();
  const stored = () =>
    storedRows<{ lastConnected: string | null; externalIp: string | null }>(
      service,
      'SELECT "lastConnected", "externalIp" FROM "wholeDevices" WHERE "id" = ?',
      [id],
    )[0];
  await until(() => stored()?.lastConnected != null);
  t.equal(stored()?.externalIp, null);
  t.equal((await service.ok('GET', `/api/v1/devices/${id}`, { token: next.token })).device.externalIp, null);
});

for (const [how, move] of [
  ['a PUT', async ({ service, unit, second }) => put(service, unit.device.id, { organizationId: second.id })],
  ['a job', async ({ service, unit, second }) => job(service, { ids: [unit.device.id], organizationId: second.id })],
  [
    'a claim by code',
    async ({ service, unit, second, next }) => {
      await put(service, unit.device.id, { organizationId: null });
      await claim(service, unit.device.id, second.id, next.token);
    },
  ],
  [
    'a claim by the code of its owner',
    async ({ service, unit, second, former, next }) => {
      const body = { deviceId: unit.device.id };
      const { associationCode } = await service.ok('POST', '/api/v1/association/give-away', {
        body,
        token: former.token,
      });
      await service.ok('POST', '/api/v1/association/start-association-with-code', {
        body: { associationCode, organizationId: second.id },
        token: next.token,
      });
    },
  ],
] as Array<[string, (all: Awaited<ReturnType<typeof customers>>) => Promise<unknown>]>)
  t.test(`after ${how}, the next owner sees nothing of before, and the account everything`, async (t) => {
    const all = await customers(t);
    const { service, unit, second, former, next } = all;
    const { id } = unit.device;
    const narrowed = await service.ok('POST', '/api/v1/tokens', {
      body: {
        name: service.unique('token'),
        expiresAt: new Date(Date.now() + hour).toISOString(),
        organizationId: second.id,
      },
    });
    const token = narrowed.token.token as string;
    await session(t, service, next.token, 'away');
    const after = await streamFrom(t, service);
    const old = await live(service, unit, 'of-first', 111.125, former.token);
    t.match(await service.ok('GET', `/api/v1/devices/${id}`), { device: { possessionSince: null } });
    tells(t, await readAll(service, id, [old], former.token), 'of-first', 'the first owner');

    const { version } = (await service.ok('GET', `/api/v1/devices/${id}`)).device;
    const known = { headers: { etag: version }, body: { firmwareVersion: '1.0' } };
    t.ok((await service.ok('PUT', `/api/v1/devices/${id}`, known)).device.firmwareVersionTime);
    await move(all);
    const { commands } = await service.ok('GET', `/api/v1/devices/${id}/commands?pageSize=100`);
    const waited = commands.results.find(({ name }) => name === 'of-first-waiting');
    t.equal(waited?.state, 'cancelled', 'a command of the first owner does not reach the device of the second');
    const { device } = await service.ok('GET', `/api/v1/devices/${id}`, { token: next.token });
    t.match(device, { firmwareVersion: '1.0', firmwareVersionTime: null }, 'not when it was said');
    t.ok(Date.parse(device.possessionSince ?? '') > Date.now() - hour, 'it says since when');
    t.equal(device.lastConnected, null);
    t.equal(device.externalIp, null);
    const buffered = line(Date.parse(String(device.possessionSince)) - 1000, 111.125, 'buffered');
    await service.ok('POST', `/api/v1/messaging/publish/${service.topic(id, 'readings')}`, {
      body: buffered,
      headers: plain,
    });
    for (const reader of [next.token, token]) {
      for (const [path, text] of await readAll(service, id, [old], reader, 'and the rest')) {
        t.notOk(has('of-first')(text), `${path} tells of before`);
        t.notOk(has('111.125')(text) || has('buffered')(text), `${path} counts what was before`);
      }
      t.notOk((await retained(t, service, id, reader)).some(has('of-first')), 'retained');
      t.notOk(has('of-first')(await missed(t, service, after, reader)), 'a stream that goes on from before');
    }
    t.notOk((await session(t, service, next.token, 'away')).some(has('of-first')), 'a stored session');
    t.ok(
      (await retained(t, service, id, service.admin, 'of-first')).some(has('of-first')),
      'the account gets what is retained',
    );
    t.ok(has('of-first')(await missed(t, service, after, service.admin)), 'and what it has missed');

    const made = await live(service, unit, 'of-second', 222.125, next.token);
    for (const reader of [next.token, token]) {
      const seen = await readAll(service, id, [old, made], reader);
      t.notOk(seen.some(([, text]) => has('of-first')(text) || has('111.125')(text)));
      tells(t, seen, 'of-second', 'the next owner');
      const sums = seen.find(([path]) => path.includes('aggregate=avg,min'))?.[1] ?? '';
      t.match(JSON.parse(sums).result[0], {
        category: 'of-second',
        min: 222.125,
        max: 222.125,
        first: 222.125,
        last: 222.125,
      });
      t.ok((await retained(t, service, id, reader, 'of-second')).some(has('of-second')));
      t.ok(has('of-second')(await missed(t, service, after, reader)));
    }
    const whole = await readAll(service, id, [old, made], service.admin);
    for (const word of ['of-first', 'of-second']) tells(t, whole, word, 'the account');
    const points = whole.find(
      ([path]) => path === readings(service, id, 'startDateTime=2020-01-01T00:00:00Z&endDateTime=2090-01-01T00:00:00Z'),
    );
    t.equal(JSON.parse(points?.[1] ?? '').result.length, 5, 'points of both, in the order of time');
    const gone = await service.http('GET', `/api/v1/devices/${id}/logs`, { token: former.token });
    t.equal(gone.status, 404);
  });

t.test('moves within a tree change nothing', async (t) => {
  const { service, unit, first, former } = await customers(t);
  const { id } = unit.device;
  const command = await live(service, unit, 'of-first', 111.125, former.token);
  const below = await service.organization({ parentId: first.id });
  await put(service, id, { organizationId: below.id }, former.token);
  await job(service, { ids: [id], organizationId: first.id });
  await claim(service, id, below.id, former.token);
  t.equal((await service.ok('GET', `/api/v1/devices/${id}`)).device.possessionSince, null);
  tells(t, await readAll(service, id, [command], former.token), 'of-first', 'the owner');
});

t.test('its first owner sees what a device has done before', async (t) => {
  const { service, template, first, former } = await customers(t);
  const fresh: Unit = await service.device({ deviceTemplateId: template.id });
  const command = await live(service, fresh, 'of-first', 111.125, service.admin);
  const read = () => service.ok('GET', `/api/v1/devices/${fresh.device.id}`);
  await until(async () => (await read()).device.lastConnected !== null);
  await claim(service, fresh.device.id, first.id, former.token);
  const { device } = await service.ok('GET', `/api/v1/devices/${fresh.device.id}`, { token: former.token });
  t.equal(device.possessionSince, null);
  t.type(device.lastConnected, 'string');
  tells(t, await readAll(service, fresh.device.id, [command], former.token), 'of-first', 'the first owner');
});

t.test('who gets a device back sees again what it saw; nobody else does', async (t) => {
  const { service, unit, first, second, former, next } = await customers(t);
  const { id } = unit.device;
  const command = await live(service, unit, 'of-first', 111.125, former.token);
  await put(service, id, { organizationId: null });
  await put(service, id, { organizationId: first.id });
  tells(t, await readAll(service, id, [command], former.token), 'of-first', 'the owner');
  await put(service, id, { organizationId: null });
  await put(service, id, { organizationId: second.id });
  await put(service, id, { organizationId: null });
  await put(service, id, { organizationId: first.id });
  for (const { token } of [former, next])
    t.notOk((await readAll(service, id, [command], token)).some(([, text]) => has('of-first')(text)));
});

t.test('a person of both customers loses what waits of the first', async (t) => {
  const { service, unit, second, former } = await customers(t);
  const { id } = unit.device;
  const identity = { organizationId: second.id, userId: former.endUser.userId };
  await service.create('/end-users', 'endUser', identity);
  await session(t, service, former.token, 'away');
  const say = (text: string) =>
    service.ok('POST', `/api/v1/messaging/publish/${service.topic(id, 'chat')}`, { body: text, headers: plain });
  await say('of-first');
  await put(service, id, { organizationId: second.id });
  await say('of-second');
  const kept = await session(t, service, former.token, 'away', 'of-second');
  t.same(
    kept.filter((text) => text.startsWith('of-')),
    ['of-second'],
  );
});

t.test('what a group had for somebody else before goes to no member of the next owner', async (t) => {
  const { service, unit, second, next } = await customers(t);
  const { id } = unit.device;
  const shared = `$share/team/${service.topic('+', 'chat')}`;
  const open = async (token: string, more: object) => {
    const client = await rawClient(t, service.server.mqttPort);
    client.send(connectPacket({ ...login(service, token), ...more }));
    await client.next();
    return client;
  };
  const say = (text: string) =>
    service.ok('POST', `/api/v1/messaging/publish/${service.topic(id, 'chat')}`, { body: text, headers: plain });
  const admin = await open(service.admin, { clientId: 'keeper', clean: false });
  await subscribed(admin, [shared, 1]);
  admin.send({ cmd: 'disconnect' });
  await admin.closed;
  const member = await open(next.token, { clientId: 'member' });
  await subscribed(member, [shared, 1]);
  await say('of-first');
  await put(service, id, { organizationId: second.id });
  // The session of the account ends: what it has kept for the group goes to other members.
  await open(service.admin, { clientId: 'keeper', clean: true });
  await say('of-second');
  const heard = texts(await taken(member, ({ length }) => length > 0));
  t.same(heard, ['of-second']);
});

t.test('keepHistory hands the history over, of callers of the whole account alone', async (t) => {
  for (const how of ['put', 'job', 'code', 'code after a stay outside'] as const) {
    const { service, unit, second, former, next } = await customers(t);
    const { id } = unit.device;
    const command = await live(service, unit, 'of-first', 111.125, former.token);
    const move = { organizationId: second.id, keepHistory: true };
    if (how === 'put') t.match(await put(service, id, move), { status: 200 });
    if (how === 'job') await job(service, { ids: [id], ...move });
    if (how === 'code') await claim(service, id, second.id, service.admin, true);
    if (how === 'code after a stay outside') {
      await put(service, id, { organizationId: null });
      await claim(service, id, second.id, next.token, true);
    }
    tells(t, await readAll(service, id, [command], next.token), 'of-first', how);
    t.ok((await retained(t, service, id, next.token, 'of-first')).some(has('of-first')), how);
  }
  const { service, unit, first, former } = await customers(t);
  const below = await service.organization({ parentId: first.id });
  const body = { organizationId: below.id, keepHistory: true };
  t.match(await put(service, unit.device.id, body, former.token), { status: 403, body: { error: { code: 21 } } });
  const wrong = { action: 'delete', ids: [unit.device.id], keepHistory: true };
  t.match(await service.http('POST', '/api/v1/devices/jobs', { body: wrong }), { status: 400 });
});

t.test('an organization that comes below another top-level one takes no history along', async (t) => {
  const { service, template, first, second, next } = await customers(t);
  const below = await service.organization({ parentId: first.id });
  const person = await service.endUser(below.id);
  const unit = await service.device({ organizationId: below.id, deviceTemplateId: template.id });
  const { id } = unit.device;
  const command = await live(service, unit, 'of-first', 111.125, person.token);
  const { organization } = await service.ok('GET', `/api/v1/organizations/${below.id}`);
  const headers = { etag: organization.version };
  await service.ok('PUT', `/api/v1/organizations/${below.id}`, { body: { parentId: second.id }, headers });
  for (const { token } of [next, person])
    for (const [path, text] of await readAll(service, id, [command], token))
      t.notOk(has('of-first')(text) || has('111.125')(text), path);
});

t.end();
