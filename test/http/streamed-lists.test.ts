/** Lists at the product of the limits: made in slices, sent as they are read, and ended with the caller's rights. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import { newId } from '../../src/core/ids.ts';
import { storeMore, takeLongAnswers } from '../support/faults.ts';
import { request } from '../support/http.ts';
import { part } from '../support/part.ts';
import { type Entity, type Made, type Person, type Service, startService } from '../support/service.ts';
import { storedRows } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const devices = 160;
const fieldCount = 62;
const longValue = 'v'.repeat(990);
let service: Service;
let template: Made<'deviceTemplate'>;
let organization: Made<'organization'>;
let endUser: Person;

/** How many of them an account is sent at the same time. */
const longAnswers = 8;
t.before(async () => {
  service = await startService(t, { env: { SLIPWAY_LONG_ANSWERS_PER_ACCOUNT: String(longAnswers) } });
  const { accountId } = service;
  template = await service.template({ channels: Array.from({ length: 100 }, (_, n) => ({ name: `channel ${n}` })) });
  for (let n = 0; n < fieldCount; n += 1)
    await service.create('/devices/custom-fields', 'deviceField', {
      deviceTemplateId: template.id,
      name: `field ${n}`,
      fieldType: 'text',
    });
  organization = await service.organization({ description: 'o'.repeat(1000) });
  endUser = await service.endUser(organization.id);
  const values = Object.fromEntries(Array.from({ length: fieldCount }, (_, n) => [`field ${n}`, longValue]));
  const one = { accountId, deviceTemplateId: template.id, organizationId: organization.id, ...values };
  const { device } = await service.ok('POST', '/api/v1/devices', { body: { ...one, serialNumber: 'first' } });
  // The others are copies of the first: making them one by one would take a minute.
  const [row = {}] = storedRows(service, 'SELECT "fields" FROM "devices" WHERE "id" = ?', [device.id]);
  t.ok(String(row.fields).length > 60_000, 'a row has many values');
  const others = Array.from({ length: devices - 1 }, (_, n) => ({
    id: newId(accountId),
    serialNumber: `serial ${n + 1}`,
  }));
  await storeMore(service, 'devices', device.id, others);
});

const path = (pageSize: number, page = 1) =>
  `/api/v1/devices?accountId=${service.accountId}&pageSize=${pageSize}&page=${page}&expand=organization,device-template`;

/** A reader that reads nothing until it is told to, and the server's side of its connection. */
async function open(url: string, token: string): Promise<{ reader: Socket; sender: Socket }> {
  const { hostname, port } = new URL(service.server.url);
  const accepted = once(service.server.app.server, 'connection') as Promise<[Socket]>;
  const reader = connect(Number(port), hostname);
  reader.pause();
  reader.write(`GET ${url} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nConnection: close\r\n\r\n`);
  const [sender] = await accepted;
  return { reader, sender };
}

/** Some requests of another caller: each takes some turns of the event loop. */
async function othersAreServed(count: number): Promise<void> {
  for (let n = 0; n < count; n += 1) await service.ok('GET', `/api/v1/organizations/${organization.id}`);
}

/** Resolves when an answer has begun, and no more of it is sent because nobody reads; not because a thread that reads is late. */
async function standsStill(sender: Socket): Promise<void> {
  await until(async () => {
    const { bytesWritten } = sender;
    await othersAreServed(20);
    return sender.writableNeedDrain && sender.bytesWritten === bytesWritten;
  });
}

async function readAll(reader: Socket): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of reader) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

t.test('a long page is what its short pages are together', async (t) => {
  const long = (await service.ok('GET', path(50))).devices;
  const short: Entity[] = [];
  for (let page = 1; page <= 5; page += 1) short.push(...(await service.ok('GET', path(10, page))).devices.results);
  t.equal(long.results.length, 50);
  // It says what is different, and takes its time for that: these are three megabytes.
  t.ok(isDeepStrictEqual(long.results, short), 'the same devices, and each as it is in its short page');
  t.match(long.meta, { count: devices, page: 1, pageSize: 50, sortOrder: 'asc' });
  t.equal(long.results[1].channels.length, 104);
  const { deviceTemplate } = long.results[1] as { deviceTemplate?: Made<'deviceTemplate'> };
  t.equal(deviceTemplate?.channelTemplates.length, 104);
  const { headers } = await service.http('GET', `/api/v1/devices?accountId=${service.accountId}&results=false`);
  t.match(headers.get('content-length'), /^\d+$/, 'a short answer says its length');
});

for (const kind of ['admin', 'end-user'] as const)
  t.test(`a reader that does not read stops the making, and takes little memory: ${kind}`, async (t) => {
    const token = kind === 'admin' ? service.admin : endUser.token;
    const { reader, sender } = await open(path(1000), token);
    t.teardown(() => reader.destroy());
    await standsStill(sender);
    t.ok(sender.bytesWritten > 64 * 1024, 'it has begun');
    t.ok(sender.bytesWritten < devices * 60_000 * 0.75, `${sender.bytesWritten} bytes of ${devices * 100_000} made`);
    t.ok(sender.writableLength < 4 * 1024 * 1024, `${sender.writableLength} bytes are held`);
    const text = await readAll(reader);
    t.match(text.slice(0, 300), /^HTTP\/1.1 200 OK\r\n/);
    t.ok(text.endsWith('\r\n0\r\n\r\n'), 'and all of it comes when it is read');
    t.equal(text.match(/"serialNumber":/g)?.length, devices);
  });

t.test('a long page that waits for its turn finds its rows when the turn comes', async (t) => {
  const others = await takeLongAnswers(service);
  const answer = service.ok('GET', path(1000));
  while (others.waiting() === 0) await othersAreServed(1);
  const late = await service.create('/devices', 'device', { serialNumber: 'late' });
  others.leave();
  const { results } = (await answer).devices;
  t.equal(results.length, devices + 1);
  t.ok(
    results.some(({ id }) => id === late.id),
    'one that was created while it waited is in it',
  );
  await service.ok('DELETE', `/api/v1/devices/${late.id}`, { headers: { etag: late.version } });
});

t.test('an answer that nobody reads gives its place back: HEAD, and a connection that breaks', async (t) => {
  for (let n = 0; n <= longAnswers; n += 1) {
    const headers = { authorization: `Bearer ${service.admin}` };
    t.equal((await request(service.server.url + path(1000), { method: 'HEAD', headers })).status, 200);
  }
  for (let n = 0; n <= longAnswers; n += 1) {
    const { reader, sender } = await open(path(1000), endUser.token);
    while (sender.bytesWritten === 0) await othersAreServed(1);
    const closed = new Promise((resolve) => sender.once('close', resolve));
    reader.destroy();
    await closed;
  }
  t.equal((await service.ok('GET', path(1000))).devices.results.length, devices);
});

t.test('others are served while a long page is made', async (t) => {
  const { reader } = await open(path(1000), endUser.token);
  t.teardown(() => reader.destroy());
  let isOver = false;
  const whole = readAll(reader).then(() => {
    isOver = true;
  });
  let served = 0;
  for (; !isOver; served += 1) await othersAreServed(1);
  await whole;
  t.ok(served >= 10, `${served} requests were served meanwhile`);
});

t.test('a caller that is logged out in the middle of a page gets no more of it', async (t) => {
  const { jwt } = await service.loginAs(endUser.email, endUser.password);
  const { reader, sender } = await open(path(1000), jwt);
  t.teardown(() => reader.destroy());
  await standsStill(sender);
  const sent = sender.bytesWritten;
  await service.ok('POST', '/api/v1/sessions/logout', { token: jwt });
  const text = await readAll(reader).catch(() => '');
  t.notOk(text.endsWith('\r\n0\r\n\r\n'), 'the connection is cut');
  t.ok(text.length < sent + 2 * 1024 * 1024, 'at most what was on its way');
});

t.test('what is taken out of reach in the middle of a page is not in the rest of it', async (t) => {
  const { reader } = await open(path(1000), endUser.token);
  t.teardown(() => reader.destroy());
  await othersAreServed(20);
  const last = (await service.ok('GET', path(1, devices))).devices.results[0];
  const elsewhere = await service.organization();
  await service.ok('PUT', `/api/v1/devices/${last.id}`, {
    headers: { etag: last.version },
    body: { organizationId: elsewhere.id },
  });
  const text = await readAll(reader);
  t.ok(text.endsWith('\r\n0\r\n\r\n'));
  t.equal(text.match(/"serialNumber":/g)?.length, devices - 1);
  t.notOk(text.includes(last.id));
});

t.test(
  'products with many long commands are read a few at a time, in their list and as what expand adds',
  async (t) => {
    const parameters = { type: 'object', description: 'x'.repeat(16_000) };
    const commands = Array.from({ length: 50 }, (_, n) => ({ name: `c${n}`, title: 'Long', parameters }));
    const long = await service.create('/devices/templates', 'deviceTemplate', { name: 'long 00', commands });
    const { device } = await service.device({ serialNumber: 'long 00', deviceTemplateId: long.id });
    const numbers = Array.from({ length: 49 }, (_, n) => String(n + 1).padStart(2, '0'));
    const { accountId } = service;
    const templates = numbers.map((n) => ({ id: newId(accountId), name: `long ${n}` }));
    await storeMore(service, 'deviceTemplates', long.id, templates);
    const others = templates.map(({ id, name }) => ({
      id: newId(accountId),
      serialNumber: name,
      deviceTemplateId: id,
    }));
    await storeMore(service, 'devices', device.id, others);
    const { parse } = JSON;
    t.teardown(() => Object.assign(JSON, { parse }));
    let read = 0;
    JSON.parse = (text, ...more) => {
      if (String(text).length > 700_000) read += 1;
      return parse(text, ...more);
    };
    for (const url of [
      `/api/v1/devices?accountId=${accountId}&serialNumber=long&pageSize=50&expand=device-template`,
      `/api/v1/devices/templates?accountId=${accountId}&sortBy=name&sortOrder=desc&pageSize=50`,
    ]) {
      read = 0;
      const { reader, sender } = await open(url, service.admin);
      await standsStill(sender);
      const made = (sender.bytesWritten + sender.writableLength) / 800_000;
      t.ok(read < made + 3, `${read} are read, of which ${made} are sent: ${url}`);
      reader.destroy();
    }
  },
);

t.test('a batch of long pages holds one piece of one of them at a time', async (t) => {
  const { hostname, port } = new URL(service.server.url);
  const body = JSON.stringify({ requests: Array(50).fill({ method: 'GET', path: path(1000) }) });
  const accepted = once(service.server.app.server, 'connection') as Promise<[Socket]>;
  const reader = connect(Number(port), hostname);
  t.teardown(() => reader.destroy());
  reader.pause();
  const head = `Authorization: Bearer ${endUser.token}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}`;
  reader.write(`POST /api/v1/batch HTTP/1.1\r\nHost: x\r\n${head}\r\n\r\n${body}`);
  const [sender] = await accepted;
  await standsStill(sender);
  t.ok(sender.bytesWritten > 0 && sender.bytesWritten < devices * 60_000, `${sender.bytesWritten} bytes made`);
  t.ok(sender.writableLength < 4 * 1024 * 1024, `${sender.writableLength} bytes are held`);
});

t.end();
