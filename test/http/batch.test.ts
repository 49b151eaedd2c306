import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { audited } from '../support/audited.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await startService(t, { env: { SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' } });
});

const batch = (requests: object[], request: object = {}, query = '') =>
  service.http('POST', `/api/v1/batch${query}`, { body: { requests }, ...request });

t.test('answers come in order, each with the rights of the caller', async (t) => {
  const { device } = await service.device();
  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  const path = `/api/v1/devices/${device.id}`;
  const requests = [
    { method: 'GET', path },
    { method: 'PUT', path, payload: { name: 'batched' }, headers: { ETag: version } },
    { method: 'PUT', path, payload: { name: 'again' }, headers: { etag: version } },
    { method: 'GET', path: `https://api.example.com${path}?expand=account` },
    { method: 'GET', path: '/api/v1/nothing' },
  ];
  t.match((await batch(requests)).body, [
    { device: { id: device.id, name: null } },
    { device: { name: 'batched' } },
    { error: { code: 108 } },
    { device: { name: 'batched', account: { id: service.accountId } } },
    { error: { code: 100 } },
  ]);
  const { token } = await service.endUser((await service.organization()).id);
  const theirs = await batch(
    [{ method: 'GET', path, headers: { authorization: `Bearer ${service.admin}` } }],
    { token },
    '?status=true',
  );
  t.match(
    theirs.body,
    [{ status: 404, body: { error: { code: 100 } } }],
    'headers of a sub-request change nothing about the caller',
  );
});

t.test('limits: 50 requests, no batch in a batch, only this API', async (t) => {
  const request = { method: 'GET', path: '/api/v1/nothing' };
  t.equal((await batch(Array(50).fill(request))).body.length, 50);
  t.match(await batch(Array(51).fill(request)), { status: 400, body: { error: { code: 106 } } });
  t.match(await batch([{ method: 'PATCH', path: '/api/v1/x' }]), { status: 400 });
  t.same((await batch([])).body, []);
  const nested = { method: 'POST', path: '/api/v1/b%61tch', payload: { requests: [request] } };
  const answers = await batch(
    [
      { ...nested, path: '/api/v1/batch' },
      nested,
      { method: 'GET', path: '/docs/' },
      { method: 'GET', path: 'http://' },
    ],
    {},
    '?status=true',
  );
  for (const answer of JSON.parse(answers.text))
    t.ok(answer.status >= 400 && answer.status < 500, JSON.stringify(answer));
});

let made: Promise<object> | undefined;

/** A list whose answer has more than two megabytes: no socket swallows many of them. */
function largeList(): Promise<object> {
  made ??= makeLargeList();
  return made;
}

async function makeLargeList(): Promise<object> {
  const description = '\u{1F4E6}'.repeat(1000);
  const organizationId = (await service.organization({ description })).id;
  const template = await service.template({ description });
  const payload = { accountId: service.accountId, deviceTemplateId: template.id, organizationId };
  const requests = Array.from({ length: 50 }, (_, n) => {
    return { method: 'POST', path: '/api/v1/devices', payload: { ...payload, serialNumber: `large ${n}` } };
  });
  for (let n = 0; n < 5; n += 1) await batch(requests);
  const query = `accountId=${service.accountId}&organizationId=${organizationId}&pageSize=1000`;
  return { method: 'GET', path: `/api/v1/devices?${query}&expand=organization,device-template` };
}

/** A batch from a client that does with the answer what the test wants. */
function send(body: string): Socket {
  const { hostname, port } = new URL(service.server.url);
  const socket = connect(Number(port), hostname);
  const head = `Authorization: Bearer ${service.admin}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}`;
  socket.write(`POST /api/v1/batch HTTP/1.1\r\nHost: x\r\n${head}\r\n\r\n${body}`);
  return socket;
}

const newDevice = (serialNumber: string) => {
  return { method: 'POST', path: '/api/v1/devices', payload: { accountId: service.accountId, serialNumber } };
};

const devicesNamed = async (serialNumber: string): Promise<number> => {
  const query = `accountId=${service.accountId}&serialNumber=${serialNumber}&results=false`;
  return (await service.ok('GET', `/api/v1/devices?${query}`)).devices.meta.count;
};

t.test('every part of a batch comes from where the batch comes from, whatever it says', async (t) => {
  const { token, endUser } = await service.endUser((await service.organization()).id);
  const refused = {
    method: 'POST',
    path: '/api/v1/devices',
    payload: { accountId: service.accountId, serialNumber: 'x' },
    headers: { 'X-Forwarded-For': '203.0.113.9' },
  };
  t.match((await batch([refused], { token })).body, [{ error: { code: 21 } }]);
  const results = await audited(service, `actorId=${endUser.userId}&event=permissionRefused`);
  t.match(results, [{ address: '127.0.0.1' }]);
});

t.test('large answers are in the array exactly as they would be alone', async (t) => {
  const { device } = await service.device({ name: 'with \u2028 "quotes" \u00e9' });
  const requests = [
    { method: 'GET', path: `/api/v1/devices/${device.id}` },
    await largeList(),
    { method: 'GET', path: `/api/v1/devices/templates?accountId=${service.accountId}` },
  ] as Array<{ method: string; path: string }>;
  const alone = await Promise.all(requests.map(async ({ method, path }) => (await service.http(method, path)).text));
  t.ok(Buffer.byteLength(alone[1] ?? '') > 2_000_000);
  const answer = await batch(requests);
  t.equal(answer.text, `[${alone.join(',')}]`);
  t.equal(answer.headers.get('content-type'), 'application/json; charset=utf-8');
  t.match(answer.headers.get('x-request-id'), /./);
  const withStatus = await batch(requests, {}, '?status=true');
  t.equal(withStatus.text, `[${alone.map((text) => `{"status":200,"body":${text}}`).join(',')}]`);
});

t.test('who does not read has nothing more done', async (t) => {
  const list = await largeList();
  const body = (name: string, lists: number) =>
    JSON.stringify({
      requests: Array.from({ length: 25 }, (_, n) => [newDevice(`${name}-${n}`), ...(n < lists ? [list] : [])]).flat(),
    });
  const arrived = once(service.server.app.server, 'request');
  const socket = send(body('unread', 25)).pause();
  await arrived;
  t.equal((await batch([], { body: body('later', 5) })).body.length, 30);
  t.equal(await devicesNamed('later-'), 25, 'what came later and is read is done');
  const done = await devicesNamed('unread-');
  t.ok(done > 0 && done < 25, `${done} of 25`);
  socket.destroy();
});

t.test('who goes away has nothing more done', async (t) => {
  const body = (name: string) =>
    JSON.stringify({ requests: Array.from({ length: 50 }, (_, n) => newDevice(`${name}-${n}`)) });
  const arrived = once(service.server.app.server, 'request');
  const socket = send(body('gone'));
  const [, response] = await arrived;
  const closed = once(response, 'close');
  await once(socket, 'data');
  socket.destroy();
  await closed;
  await batch([], { body: body('stayed') });
  t.equal(await devicesNamed('stayed-'), 50);
  const done = await devicesNamed('gone-');
  t.ok(done < 50, `${done} of 50`);
});

t.test('others get their turn while a batch runs', async (t) => {
  const requests = Array(50).fill({ method: 'GET', path: `/api/v1/devices?accountId=${service.accountId}` });
  const headers = { authorization: `Bearer ${service.admin}`, 'content-type': 'application/json' };
  const url = `${service.server.url}/api/v1/batch`;
  const running = (await fetch(url, { method: 'POST', headers, body: JSON.stringify({ requests }) })).text();
  const other = service.http('GET', '/api/v1/nothing');
  t.equal(await Promise.race([running.then(() => 'the batch'), other.then(() => 'the other')]), 'the other');
  t.equal(JSON.parse(await running).length, 50);
});

t.test('a request that fails on our side is one answer among the others', async (t) => {
  const { app } = service.server;
  const { inject } = app;
  t.teardown(() => {
    app.inject = inject;
  });
  app.inject = (() => {
    app.inject = inject;
    throw new Error('secret words');
  }) as unknown as typeof inject;
  const answer = await batch([{ method: 'GET', path: '/api/v1/x' }, newDevice('after a failure')], {}, '?status=true');
  t.match(answer.body, [
    { status: 500, body: { error: { code: -199 } } },
    { status: 200, body: { device: {} } },
  ]);
  t.notMatch(answer.text, 'secret');
});

t.end();
