/** Ids without the digits of their account, which no list has: HAProxy asks the cells where they are. */
import { randomUUID } from 'node:crypto';
import { cpSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { connect as connectMqtt } from 'mqtt';
import t, { type Test } from 'tap';
import { newId } from '../../src/core/ids.ts';
import { certificate } from '../broker/certificate.ts';
import { connectPacket, rawClient, speak } from '../broker/raw.ts';
import { halves, type Proxied, placeOf, startCell, startProxy, through } from '../support/cells.ts';
import { type Made, makeAuthority, makeCertificate, registerAuthority } from '../support/certificates.ts';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { withHaproxy } from '../support/haproxy.ts';
import { startProcess } from '../support/process.ts';
import type { Service } from '../support/service.ts';
import { until } from '../support/until.ts';

const token = 'of-the-operator';
const env = { SLIPWAY_METRICS_TOKEN: token, SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' };

t.test('an id that no map knows is asked of the cells', withHaproxy, async (t) => {
  // The first one has no account that is used here, and can be stopped for a moment.
  const first = await startProcess(t, temporaryDirectory(t), { ...env, SLIPWAY_SLOTS: halves[0] });
  const own = await startCell(t, 1, { env: { ...env, ...certificate(t) } });
  const places = [first, placeOf(own)] as const;
  const tls = ['', ', tls: true'] as const;
  const proxied = await startProxy(t, places, { cells: tls, token });
  const service = through(proxied, own);
  t.teardown(() => service.close());
  const ca = await makeAuthority();
  const template = await service.template({ channels: ['data'] });
  await registerAuthority(service, ca, { createDevices: true, deviceTemplateId: template.id });

  t.test('a device of a CA is reached by its id, over MQTT and HTTP', async (t) => {
    const { id, secret } = await madeByCa(service, proxied, ca, randomUUID());
    const client = await service.connect({ deviceId: id, secret });
    await client.publishAsync(service.topic(id, 'data'), 'a,1,', { qos: 1 });
    await client.endAsync();
    t.equal((await offered(proxied, id, secret)).status, 200, 'over HTTP');
    t.equal((await offered(proxied, id.toUpperCase(), 'wrong')).status, 401);
    const asked = await askedOf(proxied);
    await (await service.connect({ deviceId: id, secret })).endAsync();
    t.equal(await askedOf(proxied), asked, 'the answer is kept');
  });

  t.test('a stranger cannot tell whether an id is anywhere', async (t) => {
    const { id } = await madeByCa(service, proxied, ca, randomUUID());
    const [there, nowhere] = [await refusals(t, proxied, id), await refusals(t, proxied, inFirst(randomUUID()))];
    t.strictSame(there, nowhere);
    t.match(
      there.http.map(({ status }) => status),
      [401, 401],
    );
    for (const authorization of ['', `Bearer ${token}`]) {
      const answer = await fetch(`${proxied.url}/cell/lookup?id=${id}`, { headers: { authorization } });
      t.equal(answer.status, 404, 'HAProxy does not pass on what others ask');
    }
    // The router of a cell takes any first character for a slash.
    for (const port of [proxied.ports.http, Number(new URL(first.url).port)])
      t.match(await asked(port, `*cell/lookup?id=${id}`), /^HTTP\/1.1 404 /);
    t.notMatch(await asked(proxied.ports.http, '*metrics'), 'requestId', 'HAProxy answers itself');
    t.equal((await fetch(`${first.url}/cell/lookup?id=${id}`)).status, 401, 'nor does a cell answer without the token');
  });

  t.test('a busy cell is waited for, and what it does not say is not guessed', async (t) => {
    const { id, secret } = await madeByCa(service, proxied, ca, randomUUID());
    first.child.kill('SIGSTOP');
    const connecting = service.connect({ deviceId: id, secret });
    await until(async () => (await sessionsOf(proxied, 'http-c01', 'BACKEND')) > 0);
    first.child.kill('SIGCONT');
    t.ok((await connecting).connected);
    await proxied.proxy.ask('set server http-c01/c01 state maint');
    const other = inFirst(randomUUID());
    const answer = await offered(proxied, other, 'wrong');
    t.strictSame([answer.status, answer.headers.get('retry-after')], [503, '5']);
    t.match(await answer.json(), { error: { code: -199 } });
    const client = await rawClient(t, proxied.ports.mqtt);
    client.send(connectPacket({ clientId: 'x', username: other, password: Buffer.from('wrong') }));
    await client.closed;
    t.equal((await offered(proxied, id, secret)).status, 200, 'what another cell knows is reached');
    await proxied.proxy.ask('set server http-c01/c01 state ready');
  });

  t.test('clients that go before their answer comes take nothing from others', async (t) => {
    const { id, secret } = await madeByCa(service, proxied, ca, randomUUID());
    first.child.kill('SIGSTOP');
    const strangers = Array.from({ length: 64 }, () => {
      const socket = connect({ port: proxied.ports.mqtt, host: '127.0.0.1', localAddress: '127.0.0.9' });
      speak(socket).send(connectPacket({ clientId: 'x', username: inFirst(randomUUID()), password: Buffer.from('x') }));
      return socket;
    });
    await until(async () => (await sessionsOf(proxied, 'lookup', 'FRONTEND')) >= 16);
    for (const socket of strangers) socket.resetAndDestroy();
    first.child.kill('SIGCONT');
    t.ok((await service.connect({ deviceId: id, secret })).connected);
  });

  t.test('an id with a line feed is not looked up', async (t) => {
    const { id } = await madeByCa(service, proxied, ca, randomUUID());
    const before = await askedOf(proxied);
    t.equal((await offered(proxied, `${id}\n`, 'wrong')).status, 401);
    t.equal((await fetch(`${proxied.url}/api/v1/devices/${id}%0A`)).status, 401);
    const client = await rawClient(t, proxied.ports.mqtt);
    client.send(connectPacket({ clientId: 'x', username: `${id}\n`, password: Buffer.from('wrong') }));
    t.match(await client.next(), { returnCode: 4 });
    t.equal(await askedOf(proxied), before, 'no cell is asked');
  });

  t.test('many who wait for a cell that hangs do not keep HAProxy busy', async (t) => {
    first.child.kill('SIGSTOP');
    const strangers = Array.from({ length: 600 }, () => {
      const socket = connect({ port: proxied.ports.mqtt, host: '127.0.0.1', localAddress: '127.0.0.8' });
      const client = speak(socket);
      client.send(connectPacket({ clientId: 'x', username: inFirst(randomUUID()), password: Buffer.from('x') }));
      return { socket, client };
    });
    // More than may wait are sent away at once.
    await Promise.race(strangers.map(({ client }) => client.closed));
    await until(async () => (await sessionsOf(proxied, 'lookup', 'FRONTEND')) >= 16);
    t.pass('they are sent away while the first ones are still asked for');
    // Some may still be connecting. Reset then, Node now and then spins at the end of the process.
    for (const { socket } of strangers) socket.destroy();
    first.child.kill('SIGCONT');
  });

  t.test('an address that asks for many ids is not asked for, whether a cell knows them or not', async (t) => {
    const { id } = await madeByCa(service, proxied, ca, randomUUID());
    const answered = async (one: string) => (await fetch(`${proxied.url}/api/v1/devices/${one}`)).status;
    t.equal(await answered(id), 401);
    const many = () => Promise.all(Array.from({ length: 250 }, () => answered(inFirst(randomUUID()))));
    // The limit begins again every five seconds, which may be in the middle.
    for (let tries = 0; tries < 10; tries += 1) {
      const answers = await many();
      t.strictSame(
        answers.filter((status) => status !== 401 && status !== 503),
        [],
      );
      if (answers.includes(503) && (await answered(id)) === 503) return;
    }
    t.fail('it is asked for all, or the limit tells which ids are known');
  });

  t.test('ids as the product makes them are asked for with lookup: all', async (t) => {
    const asking = await startProxy(t, places, { cells: tls, token, public: ', lookup: all' });
    const { id, secret } = await madeByCa(service, proxied, ca, newId(service.accountId));
    t.equal((await offered(proxied, id, secret)).status, 401, 'their digits are believed');
    t.equal((await offered(asking, id, secret)).status, 200);
    const usual = await service.device({ deviceTemplateId: template.id });
    t.equal((await offered(asking, usual.device.id, usual.secret)).status, 200);
    t.match(await refusals(t, asking, inFirst(newId(service.accountId))), { mqtt: 4 });
  });
});

t.test('ids without digits move with their account', withHaproxy, async (t) => {
  const moveToken = 'a-token-that-moves-whole-accounts';
  const moving = { env: { ...env, SLIPWAY_MOVE_TOKEN: moveToken, ...certificate(t) } };
  const own = await startCell(t, 1, moving);
  const directory = temporaryDirectory(t);
  cpSync(join(own.directory, 'keys'), join(directory, 'keys'), { recursive: true });
  const other = await startCell(t, 0, { ...moving, directory });
  const places = [placeOf(other), placeOf(own)] as const;
  const listed = inFirst(newId(own.accountId));
  const lines = {
    cells: [', tls: true', ', tls: true'],
    token,
    accounts: `accounts: { ${own.accountId}: [${listed}] }`,
  } as const;
  const proxied = await startProxy(t, places, lines);
  const service = through(proxied, own);
  t.teardown(() => service.close());
  const ca = await makeAuthority();
  const template = await service.template({ channels: ['data'] });
  await registerAuthority(service, ca, { createDevices: true, deviceTemplateId: template.id });
  const devices = [await madeByCa(service, proxied, ca, listed), await madeByCa(service, proxied, ca, randomUUID())];
  const reached = () => Promise.all(devices.map(async ({ id, secret }) => (await offered(proxied, id, secret)).status));
  t.strictSame(await reached(), [200, 200]);
  const config = join(proxied.directory, '..', 'cells.yaml');
  const move = (...args: string[]) =>
    runCommand(['account', 'move', own.accountId, '--to', 'c01', '--config', config, ...args], {
      SLIPWAY_MOVE_TOKEN: moveToken,
    });
  const { code, stderr } = await move();
  t.equal(code, 0, stderr);
  t.strictSame(await reached(), [200, 200], 'in the running HAProxy');
  const [device] = devices;
  t.equal((await other.http('GET', `/api/v1/devices/${device?.id}`, { token: own.admin })).status, 200);
  const client = await service.connect({ deviceId: listed, secret: device?.secret ?? '' });
  await client.endAsync();
  await proxied.restart();
  t.strictSame(await reached(), [200, 200], 'and in one that has read the files');
  t.equal((await move('--undo')).code, 0);
  t.strictSame(await reached(), [200, 200], 'and after undo');
  t.equal((await own.http('GET', `/api/v1/devices/${device?.id}`)).status, 200);
});

/** An id with the digits of another account, in the first cell. */
const inFirst = (id: string) => `${id.slice(0, 26)}123${id.slice(29)}`;

/** A device that connects with its certificate, by the host name of its cell. Its id has digits of the other one. */
async function madeByCa(service: Service, { ports }: Proxied, ca: Made, text: string) {
  const id = inFirst(text);
  const { cert, key } = await makeCertificate({ subject: `CN=${id}`, issuer: ca });
  const client = connectMqtt({
    protocol: 'mqtts',
    host: '127.0.0.1',
    port: ports.mqtts,
    servername: 'c02.example.com',
    rejectUnauthorized: false,
    reconnectPeriod: 0,
    cert,
    key,
  });
  await new Promise<void>((resolve, reject) => client.once('connect', () => resolve()).once('error', reject));
  await client.endAsync();
  return { id, secret: await service.credential(id) };
}

/** What a device asks over HTTP with its secret. */
function offered({ url }: Proxied, id: string, secret: string) {
  const authorization = `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`;
  return fetch(`${url}/api/v1/firmware/offer`, { headers: { authorization } });
}

/** The answer to a GET with a target that no client writes. */
async function asked(port: number, target: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  socket.write(`GET ${target} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${token}\r\nconnection: close\r\n\r\n`);
  let answer = '';
  for await (const chunk of socket) answer += chunk;
  return answer;
}

/** What somebody without a secret is answered. */
async function refusals(t: Test, proxied: Proxied, id: string) {
  const without = await fetch(`${proxied.url}/api/v1/devices/${id}`);
  const http = [await offered(proxied, id, 'wrong'), without].map(async (answer) => ({
    status: answer.status,
    names: [...answer.headers.keys()].sort(),
    body: (await answer.text()).replace(/"requestId":"[^"]+"/, ''),
  }));
  const client = await rawClient(t, proxied.ports.mqtt);
  client.send(connectPacket({ clientId: 'x', username: id, password: Buffer.from('wrong') }));
  const { returnCode } = (await client.next()) as { returnCode: number };
  return { http: await Promise.all(http), mqtt: returnCode };
}

/** Questions so far. */
const askedOf = (proxied: Proxied) => statOf(proxied, 'lookup', 'FRONTEND', 'stot');
const sessionsOf = (proxied: Proxied, name: string, side: string) => statOf(proxied, name, side, 'scur');

async function statOf({ proxy }: Proxied, name: string, side: string, column: string): Promise<number> {
  const [head = '', ...lines] = (await proxy.ask('show stat')).split('\n');
  const place = head.replace('# ', '').split(',').indexOf(column);
  const line = lines.find((one) => one.startsWith(`${name},${side},`));
  return Number(line?.split(',')[place]);
}
