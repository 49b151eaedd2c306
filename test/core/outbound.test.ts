/** Addresses that an account names: the service connects to public ones only. */
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createSocketServer } from 'node:net';
import {
  connectOptions,
  exchange,
  isPublic,
  maxAnswerBytes,
  operatorTargets,
} from '../../src/core/network/outbound.ts';
import { changeStored } from '../support/faults.ts';
import { part } from '../support/part.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
/** Listens on loopback, as a service of the operator would, and counts who comes. */
let inside: { port: number; connections: number };
const path = '/api/v1/identity-providers';

t.before(async () => {
  service = await sharedService(t);
  const server = createSocketServer((socket) => {
    inside.connections += 1;
    socket.destroy();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  inside = { port: (server.address() as AddressInfo).port, connections: 0 };
});

const body = (issuer: string) => ({
  accountId: service.accountId,
  name: service.unique('Provider'),
  issuer,
  clientId: 'x',
});
const authorize = (id: string) => service.http('GET', `/api/v1/oauth2/authorize?providerId=${id}`, { token: null });

t.test('an OpenID issuer cannot be a private address', async (t) => {
  for (const host of [
    '127.0.0.1',
    'localhost',
    '10.0.0.1',
    '169.254.169.254',
    '100.64.0.1',
    '0.0.0.0',
    '[::1]',
    '[::ffff:127.0.0.1]',
    '[64:ff9b::7f00:1]',
    '[fe80::1]',
  ]) {
    const refused = await service.http('POST', path, { body: body(`https://${host}:${inside.port}`) });
    t.match(
      refused,
      { status: 400, body: { error: { details: [{ path: 'issuer', message: /SLIPWAY_ALLOW_PRIVATE_TARGETS/ }] } } },
      host,
    );
  }
});

t.test('a provider that leads to a private address is not connected to', async (t) => {
  const made = (await service.ok('POST', path, { body: body('https://id.example.com') })).identityProvider;
  const change = 'UPDATE "identityProviders" SET "issuer" = ?, "version" = ? WHERE "id" = ?';
  let version = 1;
  for (const host of ['127.0.0.1', '[::ffff:127.0.0.1]', 'localhost']) {
    // Registered before the rule, or a name that resolves to another address by now.
    version += 1;
    const issuer = `https://${host}:${inside.port}`;
    await changeStored(service, change, [issuer, version, made.id]);
    const details = [{ path: 'issuer', message: /SLIPWAY_ALLOW_PRIVATE_TARGETS/ }];
    t.match(await authorize(made.id), { status: 502, body: { attributes: { details } } }, host);
  }
  t.equal(inside.connections, 0);
});

t.test('the endpoints that a provider names are checked like the provider', async (t) => {
  for (const host of ['127.0.0.1', 'localhost']) {
    const url = new URL(`http://${host}:${inside.port}/token`);
    await t.rejects(exchange(url, { method: 'POST', headers: {} }, { allowPrivate: false }), { code: 'NOT_PUBLIC' });
  }
  t.equal(inside.connections, 0);
});

t.test('which addresses are public', async (t) => {
  for (const address of ['8.8.8.8', '1.1.1.1', '2001:4860:4860::8888', '::ffff:8.8.8.8'])
    t.ok(isPublic(address), address);
  for (const address of [
    '0.0.0.0',
    '0.1.2.3',
    '10.0.0.1',
    '100.64.0.1',
    '100.100.100.200',
    '127.0.0.1',
    '168.63.129.16',
    '169.254.169.254',
    '172.16.0.1',
    '192.0.0.192',
    '192.168.0.1',
    '198.18.0.1',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    '::127.0.0.1',
    '::ffff:10.0.0.1',
    '64:ff9b::a00:1',
    '64:ff9b:1::a00:1',
    '2001:0:1::1',
    '2001:db8::1',
    '2002:a00:1::',
    'fc00::1',
    'fd00:ec2::254',
    'fe80::1',
    'fec0::1',
    'ff02::1',
    'name',
    '',
  ])
    t.notOk(isPublic(address), address);
});

t.test('sockets of any protocol get the same check', async (t) => {
  t.throws(() => connectOptions('10.0.0.1', { allowPrivate: false }), { code: 'NOT_PUBLIC' });
  t.throws(() => connectOptions('[::1]', { allowPrivate: false }), { code: 'NOT_PUBLIC' });
  t.type(connectOptions('broker.example.com', { allowPrivate: false }).lookup, 'function');
  t.strictSame(connectOptions('10.0.0.1', operatorTargets), {});
});

t.test('an exchange ends at its byte limit and its signal, and follows no redirect', async (t) => {
  const server = createServer((request, response) => {
    if (request.url === '/large') response.end(Buffer.alloc(maxAnswerBytes + 1));
    else if (request.url === '/exact') response.end(Buffer.alloc(maxAnswerBytes));
    else if (request.url === '/redirect') response.writeHead(302, { location: '/exact' }).end();
    else response.write('begun');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const ask = (at: string, signal?: AbortSignal) => {
    const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}${at}`);
    return exchange(url, { method: 'GET', headers: {}, ...(signal && { signal }) }, operatorTargets);
  };
  t.equal((await (await ask('/exact')).arrayBuffer()).byteLength, maxAnswerBytes);
  await t.rejects(ask('/large'), /larger than/);
  t.equal((await ask('/redirect')).status, 302);
  await t.rejects(ask('/never', AbortSignal.timeout(50)));
});

t.end();
