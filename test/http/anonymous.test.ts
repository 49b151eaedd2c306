/** What somebody without a valid token may cost the service. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import mqtt from 'mqtt';
import type { Test } from 'tap';
import { certificate } from '../broker/certificate.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

let service: Service;
let secure: Service;
/** What comes on connections that send nothing. They begin first: other tests take as long as they do. */
let unsaid: Array<Promise<string>>;
t.before(async () => {
  service = await sharedService(t);
  secure = await startService(t, { env: certificate(t) });
  const shaken = connectTls({ host: '127.0.0.1', port: portOf(secure) });
  await once(shaken, 'secureConnect');
  unsaid = [await open(t), await open(t, secure), shaken].map(rest);
});

const portOf = ({ server }: Service) => Number(new URL(server.url).port);

async function open(t: Test, to = service): Promise<Socket> {
  const { hostname, port } = new URL(to.server.url);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  t.teardown(() => socket.destroy());
  await once(socket, 'connect');
  return socket;
}
/** Everything that comes until the other end closes. */
async function rest(socket: Socket): Promise<string> {
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk;
  });
  // A reset is an end, too.
  socket.on('error', () => {});
  await new Promise<void>((resolve) => socket.once('close', () => resolve()));
  return text;
}
const head = (path: string, length: number, ...more: string[]) =>
  [`POST ${path} HTTP/1.1`, 'host: x', 'content-type: application/json', `content-length: ${length}`, ...more].join(
    '\r\n',
  );

t.test(
  'without a token a body has 16 KiB, for validate-jwt 64 KiB, and only a valid token makes it more',
  async (t) => {
    const padding = (length: number) => ({ padding: 'x'.repeat(length) });
    const send = (path: string, body: object, token: string | null = null, headers: Record<string, string> = {}) =>
      service.http('POST', path, { token, body, headers });
    for (const path of ['/api/v1/auth/login-user', '/api/v1/auth/login-application', '/api/v1/nowhere', '/nowhere'])
      t.equal((await send(path, padding(16_384))).status, 413, path);
    const login = { emailAddress: adminEmail, password: adminPassword, accountId: service.accountId };
    t.equal((await send('/api/v1/auth/login-user', { ...login, ...padding(15_000) })).status, 200);
    t.equal((await send('/api/v1/auth/validate-jwt', { jwt: 'x'.repeat(60_000) })).status, 200);
    t.equal((await send('/api/v1/auth/validate-jwt', { jwt: 'x'.repeat(65_536) })).status, 413);
    const { appToken } = await service.create('/applications', 'application', { name: 'App', kind: 'endUserApp' });
    const large = padding(200_000);
    t.equal((await send('/api/v1/auth/create-user', large, null, { accesstoken: 'wrong' })).status, 401);
    t.equal(
      (await send('/api/v1/auth/create-user', large, null, { accesstoken: appToken })).status,
      400,
      'it was read',
    );
    const organization = { accountId: service.accountId, name: 'Large', ...large };
    t.equal((await send('/api/v1/organizations', organization, 'wrong')).status, 401);
    t.equal((await send('/api/v1/organizations', organization, service.admin)).status, 200);
  },
);

t.test('a token is looked at before the body has come', async (t) => {
  const socket = await open(t);
  socket.write(`${head('/api/v1/organizations', 100_000, 'authorization: Bearer wrong')}\r\n\r\n{`);
  const [answer] = await once(socket, 'data');
  t.match(String(answer), /^HTTP\/1\.1 401 /);
});

t.test(
  'a body that comes too slowly is cut off after ten seconds, whatever the stranger says',
  { timeout: 30_000 },
  async (t) => {
    const requests = {
      login: head('/api/v1/auth/login-user', 500),
      nowhere: head('/api/v1/nowhere', 500),
      'a wrong token': head('/api/v1/organizations', 500, 'authorization: Bearer wrong'),
      chunked:
        'POST /api/v1/auth/login-user HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked',
    };
    // Nobody reads a body that is refused for its length; in a batch it has no connection that could be cut off.
    const refused = { method: 'POST', path: '/api/v1/nowhere', payload: { name: 'x'.repeat(20_000) } };
    const batch = { token: service.admin, body: { requests: [refused] } };
    t.match(await service.http('POST', '/api/v1/batch', batch), { body: [{ error: { code: 106 } }] });
    const since = Date.now();
    const patient = await open(t);
    const body = JSON.stringify({ accountId: service.accountId, name: 'Slow' });
    patient.write(`${head('/api/v1/organizations', body.length, `authorization: Bearer ${service.admin}`)}\r\n\r\n{`);
    const all = Object.entries(requests).map(async ([name, request]) => {
      const socket = await open(t);
      socket.write(`${request}\r\n\r\n`);
      // Each byte begins no new time.
      const drip = setInterval(() => socket.write(name === 'chunked' ? '1\r\n \r\n' : ' '), 1000);
      const text = await rest(socket);
      clearInterval(drip);
      const seconds = (Date.now() - since) / 1000;
      t.ok(seconds > 9 && seconds < 15, `${name}: ${seconds} s`);
      t.match(text, name === 'a wrong token' ? /^HTTP\/1\.1 401 / : /^HTTP\/1\.1 408 /, name);
    });
    const silent = await open(t);
    silent.write('POST /api/v1/auth/login-user HTTP/1.1\r\nhost:');
    all.push(rest(silent).then((text) => void t.match(text, /^HTTP\/1\.1 408 /, 'a head that does not end')));
    const again = await open(t);
    again.write('GET /health/live HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\nhost:');
    const both = /^HTTP\/1\.1 200 .*HTTP\/1\.1 408 /s;
    all.push(rest(again).then((text) => void t.match(text, both, 'a second head that does not end')));
    await Promise.all(all);
    const answer = once(patient, 'data');
    patient.write(body.slice(1));
    t.match(String((await answer)[0]), /^HTTP\/1\.1 200 /, 'anyone who has a valid token has more time');
  },
);

t.test('a connection that sends nothing is closed without an answer, with and without TLS', async (t) => {
  t.same(await Promise.all(unsaid), ['', '', '']);
});

t.test('HTTP without TLS on a port with TLS is answered with a sentence', async (t) => {
  const { mqttsPort: mqtts } = secure;
  for (const port of [portOf(secure), mqtts]) {
    const url = `http://127.0.0.1:${port}/mqtt`;
    for (const request of [{}, { method: 'POST', body: 'x'.repeat(100_000) }]) {
      const answer = await fetch(url, request);
      t.equal(answer.status, 400);
      t.match(await answer.text(), /^This port speaks TLS\. Use https:\/\/ .* mqtts:\/\/ for MQTT\.\n$/);
    }
    const socket = connect(Number(port), '127.0.0.1');
    socket.on('error', () => {});
    socket.write(Buffer.from([0x10, 0x0c, 0, 4, 0x4d, 0x51, 0x54, 0x54, 4, 2, 0, 60, 0, 0]));
    t.equal(await rest(socket), '', 'MQTT without TLS gets nothing');
  }
  t.equal((await fetch(`${secure.server.url}/health/live`)).status, 200);
});

t.test('a connection that sends many requests ahead of their answers is closed; a few are answered', async (t) => {
  const request = 'GET /nowhere HTTP/1.1\r\nhost: x\r\n';
  const answersTo = async (text: string) => {
    const socket = await open(t);
    const all = rest(socket);
    socket.write(text);
    return ((await all).match(/HTTP\/1\.1 404/g) ?? []).length;
  };
  const permitted = `${`${request}\r\n`.repeat(15)}${request}connection: close\r\n\r\n`;
  t.equal(await answersTo(permitted), 16);
  const excess = `${`${request}\r\n`.repeat(1000)}${request}connection: close\r\n\r\n`;
  const answered = await answersTo(excess);
  t.ok(answered <= 16, `${answered} of 1,001 requests in one packet were answered`);
});

t.test('an address has a number of connections; WebSockets and what is behind a proxy are counted apart', async (t) => {
  const env = { SLIPWAY_HTTP_MAX_CONNECTIONS_PER_ADDRESS: '4' };
  const own = await startService(t, { env });
  const { device, secret } = await own.device();
  const url = `${own.server.url.replace('http', 'ws')}/mqtt`;
  const options = { username: device.id, password: secret, reconnectPeriod: 0 };
  for (let at = 0; at < 6; at += 1) {
    const client = await mqtt.connectAsync(url, { ...options, clientId: `c${at}` }, false);
    t.teardown(() => client.end(true));
  }
  // One more is the one that the test itself asks by.
  const kept = [await open(t, own), await open(t, own), await open(t, own)];
  const over = await open(t, own);
  t.equal(await rest(over), '', 'closed at once');
  const [last] = kept;
  last?.destroy();
  let answer: string | undefined;
  while (!answer) {
    const again = await open(t, own);
    again.write('GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
    answer = await rest(again);
  }
  t.match(answer, /^HTTP\/1\.1 200 /, 'there is room again');
});

t.test('asking for a protocol that is not spoken here gives no further connections', async (t) => {
  const ask = 'GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n';
  for (const env of [{}, certificate(t)]) {
    const own = await startService(t, { env: { ...env, SLIPWAY_HTTP_MAX_CONNECTIONS_PER_ADDRESS: '4' } });
    const { hostname, protocol, port } = new URL(own.server.url);
    const options = { host: hostname, port: Number(port) };
    const begin = () =>
      protocol === 'https:' ? connectTls({ ...options, rejectUnauthorized: false }) : connect(options);
    let served = 0;
    // One more is the one that the test itself has asked by.
    for (let at = 0; at < 6; at += 1) {
      const socket = begin();
      t.teardown(() => socket.destroy());
      socket.on('error', () => {});
      const isServed = new Promise<boolean>((resolve) => {
        socket.once('data', () => resolve(true));
        socket.once('close', () => resolve(false));
      });
      socket.write(ask);
      if (await isServed) served += 1;
    }
    t.equal(served, 3, protocol);
  }
});

t.test('a connection may ask for another protocol again and again', async (t) => {
  const warnings: Error[] = [];
  // Others are those of other tests of the process.
  const warned = (warning: Error) => {
    if (warning.name === 'MaxListenersExceededWarning') warnings.push(warning);
  };
  process.on('warning', warned);
  t.teardown(() => process.off('warning', warned));
  const socket = await open(t);
  for (let at = 0; at < 20; at += 1) {
    const answer = once(socket, 'data');
    socket.write('GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n');
    t.match(String((await answer)[0]), /^HTTP\/1\.1 200 /);
  }
  await new Promise(setImmediate);
  t.same(warnings, [], 'nothing of the earlier requests is kept on the socket');
});

t.test('behind a trusted proxy the requests of an address at the same time are counted', async (t) => {
  const env = { SLIPWAY_HTTP_MAX_CONNECTIONS_PER_ADDRESS: '2', SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' };
  const own = await startService(t, { env });
  const ask = async (from: string, complete = false) => {
    const socket = await open(t, own);
    const body = complete ? '{}' : '{';
    socket.write(`${head('/api/v1/auth/login-user', 2, `x-forwarded-for: ${from}`)}\r\n\r\n${body}`);
    return socket;
  };
  const under = [await ask('192.0.2.1'), await ask('192.0.2.1')];
  const status = async (from: string) => String((await once(await ask(from, true), 'data'))[0]).slice(9, 12);
  await until(async () => (await status('192.0.2.1')) === '429');
  t.equal(await status('192.0.2.2'), '400', 'another address is not held up');
  for (const socket of under) socket.destroy();
  await until(async () => (await status('192.0.2.1')) !== '429');
  t.equal(await status('192.0.2.1'), '400', 'and there is room again');
});

t.test('what is the same for everybody is sent from one buffer, and not again to a browser that has it', async (t) => {
  const paths = ['/openapi.json', '/.well-known/jwks.json', '/claim', '/guide/', '/set-password', '/token-page.js'];
  for (const path of paths) {
    const answer = await service.http('GET', path, { token: null });
    const etag = answer.headers.get('etag') ?? '';
    t.match(etag, /^"[\w-]{22}"$/, path);
    const again = await service.http('GET', path, { token: null, headers: { 'if-none-match': etag } });
    t.match(again, { status: 304, text: '' }, path);
    t.equal((await service.http('GET', path, { token: null, headers: { 'if-none-match': '"x"' } })).text, answer.text);
  }
  for (const path of ['/docs/json', '/docs/yaml']) {
    const answer = await service.http('GET', path, { token: null });
    t.match([answer.status, answer.headers.get('location')], [302, '/openapi.json'], path);
  }
});

t.test('at every route a stranger who announces 100 KB is answered before any of it has come', async (t) => {
  interface Operation {
    requestBody?: { content: Record<string, object> };
  }
  type Document = { paths: Record<string, Record<string, Operation>> };
  const { paths } = JSON.parse((await service.http('GET', '/openapi.json', { token: null })).text) as Document;
  const methods = new Set(['get', 'post', 'put', 'patch', 'delete']);
  const wrong: string[] = [];
  let asked = 0;
  const ask = async (method: string, path: string, type: string) => {
    const socket = await open(t);
    const line = `${method.toUpperCase()} ${path.replace(/\{[^}]*\}/g, service.accountId)} HTTP/1.1`;
    socket.write(`${line}\r\nhost: x\r\ncontent-type: ${type}\r\ncontent-length: 100000\r\n\r\n`);
    const [answer] = await once(socket, 'data');
    socket.destroy();
    return Number(/^HTTP\/1\.1 (\d+) /.exec(String(answer))?.[1]);
  };
  for (const [path, operations] of Object.entries(paths))
    for (const [method, { requestBody }] of Object.entries(operations)) {
      if (!methods.has(method)) continue;
      for (const type of Object.keys(requestBody?.content ?? { 'application/json': {} })) {
        const status = await ask(method, path, type);
        asked += 1;
        // Some that are read are open to all, and read no body.
        if (status !== 401 && status !== 413 && (method !== 'get' || status >= 500))
          wrong.push(`${method} ${path} (${type}): ${status}`);
      }
    }
  t.same(wrong, []);
  t.ok(asked > 200, `${asked} requests`);
});

t.end();
