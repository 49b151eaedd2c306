/** What the command says of addresses where no server is that it can work with, and of a station that has come to its end. */
import { spawn } from 'node:child_process';
import dns from 'node:dns';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { join } from 'node:path';
import { Client } from '../../cli/line/client.ts';
import { certificate } from '../broker/certificate.ts';
import { part } from '../support/part.ts';
import { cliFile, plainNode } from '../support/process.ts';
import { type Service, startService } from '../support/service.ts';
import { Station, serials } from './command.ts';

const t = await part(import.meta);

let service: Service;
let ahead = 0;
t.before(async () => {
  service = await startService(t, { env: certificate(t), clock: { now: () => Date.now() + ahead } });
});

t.test('an address where no Slipway server is, is wrong input and nothing to wait for', async (t) => {
  const other = createServer(({ url }, response) => {
    if (url?.startsWith('/upgrade')) response.writeHead(426).end('Upgrade Required');
    else if (url?.startsWith('/page')) response.setHeader('content-type', 'text/html').end('<html>');
    else if (url?.startsWith('/moved')) response.writeHead(301, { location: '/' }).end();
    else if (url?.startsWith('/silent')) response.destroy();
    else response.writeHead(404).end('<html>');
  });
  other.listen(0, '127.0.0.1');
  await once(other, 'listening');
  t.teardown(() => other.close());
  const plain = `127.0.0.1:${(other.address() as AddressInfo).port}`;
  const secure = service.server.url;
  const station = new Station(t, service);
  const csv = station.csv(serials(1, 'URL'));
  const none = (found: string) => ({ code: 2, stderr: new RegExp(`no Slipway server at .*${found}`) });
  const cases: Array<[string, object, string[]?]> = [
    [`http://${plain}`, none('answer 404')],
    [`http://${plain}/upgrade`, none('answer 426')],
    [`http://${plain}/page`, none('answer 200')],
    [`http://${plain}/moved`, none('answer 301')],
    [`https://${plain}`, none('no TLS; perhaps it speaks http,')],
    [`${secure}/below`, none('answer 404')],
    [secure.replace('https:', 'http:'), { stderr: /perhaps it speaks https/ }, ['--retry-for', '0']],
    [`http://${plain}/silent`, { code: 3, stderr: /ECONNRESET/ }, ['--retry-for', '0']],
    ['http://a..b', { code: 3, stderr: /ENOTFOUND; trying again\n.*ENOTFOUND\. Run/ }],
  ];
  const trusting = { NODE_TLS_REJECT_UNAUTHORIZED: '0' };
  for (const [url, expected, more = []] of cases) {
    const own = new Station(t, service, trusting);
    t.match(await own.provision(csv, '--url', url, ...more), expected, url);
  }
});

t.test('a name that is gone for a while, after its server has answered, is tried again', async (t) => {
  const server = createServer((_, response) => response.setHeader('connection', 'close').end('{}'));
  t.teardown(() => server.close());
  const said: string[] = [];
  const client = await clientOf(server, (sentence) => said.push(sentence), 'localhost');
  t.teardown(() => client.close());
  t.match(await client.call('GET', '/'), { status: 200 });
  const { lookup } = dns;
  let failures = 3;
  t.intercept(dns, 'lookup', {
    value: (...args: [string, object, (error: Error) => void]) => {
      failures -= 1;
      if (failures < 0) return Reflect.apply(lookup, dns, args);
      return process.nextTick(args[2], Object.assign(new Error('gone'), { code: 'ENOTFOUND' }));
    },
  });
  t.match(await client.call('GET', '/'), { status: 200 });
  t.match(said, [/ENOTFOUND; trying again/]);
});

/** A client of a server that is not Slipway; `printLine` gets its sentences. */
async function clientOf(server: Server, printLine: (sentence: string) => void, host = '127.0.0.1'): Promise<Client> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return Client.open({
    url: `http://${host}:${(server.address() as AddressInfo).port}`,
    token: `eyJ.${Buffer.from('{"accountId":"a","userId":"u"}').toString('base64url')}.x`,
    ...{ appId: undefined, accountId: undefined, ca: undefined, signal: undefined },
    retryFor: 10_000,
    printLine,
  });
}

t.test('a connection that the server has ended while it rested is opened again without a word', async (t) => {
  const answered = new WeakSet<Socket>();
  const server = createServer(({ socket }, response) => {
    if (answered.has(socket)) return socket.resetAndDestroy();
    answered.add(socket);
    return response.end('{}');
  });
  t.teardown(() => server.close());
  const said: string[] = [];
  const client = await clientOf(server, (sentence) => said.push(sentence));
  t.teardown(() => client.close());
  for (let n = 0; n < 3; n += 1) t.match(await client.call('GET', '/'), { status: 200 });
  t.strictSame(said, []);
});

t.test('calls that nobody waits for any more end without a word', async (t) => {
  const server = createServer(() => {});
  t.teardown(() => server.close());
  const said: string[] = [];
  const client = await clientOf(server, (sentence) => said.push(sentence));
  const call = client.call('GET', '/');
  await once(server, 'request');
  client.close();
  await t.rejects(call, { name: 'AbortError' });
  t.strictSame(said, []);
});

t.test('rows that a station may not make any more are refused, in batch as for one', async (t) => {
  const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
  const body = { accountId: service.accountId, name: 'Line', kind: 'station', deviceTemplateId, maxDevices: 2 };
  const hour = 60 * 60_000;
  const { application } = await service.ok('POST', '/api/v1/applications', {
    body: { ...body, expiresAt: new Date(Date.now() + hour).toISOString() },
  });
  const station = new Station(t, service, {
    SLIPWAY_TOKEN: application.appToken,
    SLIPWAY_APP_ID: application.id,
    SLIPWAY_ACCOUNT_ID: service.accountId,
    NODE_TLS_REJECT_UNAUTHORIZED: '0',
  });
  const ended = await station.provision(station.csv(serials(3, 'MANY')));
  t.match(ended, {
    code: 4,
    stdout: /3 rows: 2 done/,
    stderr: /1 row failed: see .* The station has made 2 of its 2/,
  });
  ahead = 2 * hour;
  t.match(
    await station.provision(station.csv(serials(4, 'MANY'))),
    { code: 4, stderr: /cannot log in: 401/ },
    'expired',
  );
  const one = ['provision', 'one', '--serial', 'MANY-0005', '--format', 'esp-nvs-csv', '--out', station.out];
  t.match(await station.run(...one), { code: 4, stderr: /cannot log in: 401/ });
  ahead = 0;
});

t.test('Ctrl-C ends a run with 130, and says what to do', async (t) => {
  const station = new Station(t, service);
  const silent = createServer(() => {});
  silent.listen(0, '127.0.0.1');
  await once(silent, 'listening');
  t.teardown(() => {
    silent.closeAllConnections();
    silent.close();
  });
  const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
  const csv = station.csv(serials(1, 'STOP'));
  const args = ['provision', '--csv', csv, '--url', url, '--format', 'env', '--out', join(station.directory, 'stop')];
  const env = { PATH: process.env.PATH, ...station.environment };
  const child = spawn('env', [...plainNode, cliFile, ...args], { env, stdio: ['ignore', 'ignore', 'pipe'] });
  let said = '';
  child.stderr.on('data', (part) => {
    said += part;
  });
  await once(silent, 'request');
  child.kill('SIGINT');
  const [code] = await once(child, 'close');
  t.equal(code, 130);
  t.match(said, /Run the command again/);
});

t.end();
