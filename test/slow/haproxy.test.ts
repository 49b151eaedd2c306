/** Two cells behind the real HAProxy: each request and connection comes to the cell of its account, and no other. */

import { randomUUID } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import mqtt, { type IClientOptions } from 'mqtt';
import t, { type Test } from 'tap';
import { slotOf } from '../../src/core/ids.ts';
import { certificate } from '../broker/certificate.ts';
import { connectPacket, rawClient, speak } from '../broker/raw.ts';
import { ask, basic, claim, newGroup } from '../enrollment/devices.ts';
import { type Proxied, placeOf, startCell, startProxy, through } from '../support/cells.ts';
import { makeAuthority, makeCertificate, registerAuthority } from '../support/certificates.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { checkConfiguration, withHaproxy } from '../support/haproxy.ts';
import { openssl } from '../support/openssl.ts';
import { adminEmail, adminPassword, type Failure, type Made, nextMessage, type Service } from '../support/service.ts';

t.test('Two cells behind HAProxy', withHaproxy, async (t) => {
  const tls = certificate(t);
  const directory = temporaryDirectory(t);
  const site = join(directory, 'site.pem');
  const read = (name: string) => readFileSync(tls[name] ?? '', 'utf8');
  writeFileSync(site, read('SLIPWAY_TLS_CERT') + read('SLIPWAY_TLS_KEY'));
  // The second one has a certificate of its own, so it can read those of devices.
  const own: [Service, Service] = [await startCell(t, 0), await startCell(t, 1, { env: tls })];
  /** A device that a CA has made: its id is what its factory has chosen. */
  const foreign = `${randomUUID().slice(0, 26)}123${randomUUID().slice(29)}`;
  const cells = { cells: ['', ', tls: true'], public: `, certificate: ${site}` } as const;
  const accounts = `accounts: { ${own[1].accountId}: [${foreign}] }`;
  const proxied = await startProxy(t, [placeOf(own[0]), placeOf(own[1])], { ...cells, accounts });
  const [first, second] = [through(proxied, own[0]), through(proxied, own[1])];
  const both = [first, second] as const;
  for (const service of both) t.teardown(() => service.close());
  await routing(t, proxied, both, foreign);
});

/** Connects through the port for MQTT over TLS, with the host name that a client would have. */
const secure = (proxied: Proxied, servername: string, options: IClientOptions) =>
  mqtt.connectAsync({
    protocol: 'mqtts',
    host: '127.0.0.1',
    port: proxied.ports.mqtts,
    servername,
    rejectUnauthorized: false,
    reconnectPeriod: 0,
    ...options,
  });

async function routing(t: Test, proxied: Proxied, both: readonly [Service, Service], foreign: string) {
  const [first, second] = both;
  const topics = new Map<Service, { device: Made<'device'>; secret: string; topic: string }>();
  for (const service of both) {
    const template = await service.template({ channels: ['data'] });
    const { device, secret } = await service.device({ deviceTemplateId: template.id });
    topics.set(service, { device, secret, topic: service.topic(device.id, 'data') });
  }
  const of = (service: Service) => topics.get(service) as { device: Made<'device'>; secret: string; topic: string };

  t.test('the configuration is accepted without a warning', async (t) => {
    t.strictSame(checkConfiguration(join(proxied.directory, 'haproxy.cfg')), { status: 0, said: '' });
    t.not(slotOf(first.accountId) < '800', slotOf(second.accountId) < '800', 'SLIPWAY_SLOTS chose the accounts');
  });

  t.test('an account is reached by its token, its login, its secrets and its ids', async (t) => {
    for (const service of both) {
      const { device, secret, topic } = of(service);
      const { accountId } = service;
      t.equal((await service.loginAs(adminEmail, adminPassword)).jwt.split('.').length, 3, 'login by JSON');
      const form = new URLSearchParams({ accountId, emailAddress: adminEmail, password: adminPassword });
      const asForm = { token: null, headers: { 'content-type': 'application/x-www-form-urlencoded' }, body: `${form}` };
      const { body, status } = await service.http('POST', '/api/v1/auth/login-user', asForm);
      t.equal(status, 200, 'login by form');
      const cookie = { token: null, headers: { cookie: `platform-access-token=${body.jwt}` } };
      t.equal((await service.http('GET', `/api/v1/devices/${device.id}`, cookie)).status, 200, 'cookie');
      t.equal((await service.http('GET', `/api/v1/devices?accountId=${accountId}`)).body.devices.results.length, 1);
      const basic = { authorization: `Basic ${Buffer.from(`${device.id}:${secret}`).toString('base64')}` };
      const publish = { token: null, headers: { ...basic, 'content-type': 'text/plain' }, body: 'a,1,' };
      t.equal((await service.http('POST', `/api/v1/messaging/publish/${topic}`, publish)).status, 200, 'Basic');
      t.equal((await service.http('GET', `/api/v4/data/${encodeURIComponent(topic)}`)).body.result.length, 1, 'topic');
      const app = await service.create('/applications', 'application', { name: 'A', kind: 'backEnd' });
      const login = { token: null, body: { accountId, appId: app.id, appToken: app.appToken } };
      t.equal((await service.http('POST', '/api/v1/auth/login-application', login)).status, 200, 'application');
      const lookup = { token: null, headers: { accesstoken: app.appToken } };
      const byEmail = await service.http('GET', '/api/v1/users/by-email/nobody@example.com/user-id', lookup);
      t.equal(byEmail.status, 404, 'the appToken is known there');
      const check = { token: null, body: { jwt: service.admin } };
      t.equal(
        (await service.http('POST', '/api/v1/auth/validate-jwt', check)).body.result,
        'Valid',
        'a token in a body',
      );
      const refused = await service.http('GET', `/api/v1/devices/${device.id}`, { token: null });
      t.equal(refused.body.error.code, 30, 'an id alone is routed, and refused by the cell');
    }
    const device = of(second).device.id;
    t.equal(
      (await first.http('GET', `/api/v1/devices/${device}`)).status,
      404,
      'the token decides, not the id in the path',
    );
  });

  t.test('a device that enrolls is reached by its group, over HTTP and MQTT', async (t) => {
    for (const service of both) {
      const claimed = await newGroup(service);
      t.equal((await claim(service, claimed, { serialNumber: 'H-1' })).status, 200, 'claim secret');
      const derived = await newGroup(service, { proof: 'derivedKey' });
      t.equal((await ask(service, derived, 'AC:DE/48')).status, 200, 'derived key');
      const how = { username: `enroll/${claimed.id}`, password: claimed.claimSecret ?? '', reconnectPeriod: 0 };
      const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${proxied.ports.mqtt}`, how, false);
      await client.subscribeAsync(`${service.topicRoot}/enroll/+`);
      const answer = nextMessage(client);
      client.publish(`${service.topicRoot}/enroll`, JSON.stringify({ serialNumber: 'H-2' }));
      t.match(JSON.parse((await answer).text), { device: { accountId: service.accountId } });
      await client.endAsync(true);
    }
  });

  t.test('a device that speaks EST is reached by its group, and TLS that ends at HAProxy counts', async (t) => {
    const shell = openssl(t);
    for (const service of both) {
      const { id: certificateAuthorityId } = await service.create(
        '/access/certificate-authorities',
        'certificateAuthority',
        { name: 'EST', issuing: true },
      );
      const group = await newGroup(service, { issues: 'certificate', certificateAuthorityId });
      const place = `${proxied.url}/.well-known/est/${group.id}`;
      t.equal((await fetch(`${place}/cacerts`)).status, 200, 'the id in the path');
      const body = shell.request({ subject: '/CN=EST-1' }).csr.replace(/-----[^-]+-----/g, '');
      const headers = { ...basic(group.id, group.claimSecret), 'content-type': 'application/pkcs10' };
      const enrolled = await fetch(`${place}/simpleenroll`, { method: 'POST', headers, body });
      t.equal(enrolled.status, 200, await enrolled.text());
    }
  });

  t.test('what is for the operator, or for one cell alone, is not there', async (t) => {
    for (const path of ['/metrics', '/metrics/', '//metrics', '/%6detrics', '/health/ready'])
      t.equal((await fetch(proxied.url + path)).status, 404, path);
    t.equal((await fetch(`${proxied.url}/health/live`)).status, 200, 'HAProxy says that it lives');
    t.equal((await fetch(`${proxied.url}/api/v1/auth/default-account`)).status, 404);
    t.equal((await fetch(`${proxied.url}/api/v1/nothing`)).status, 404, 'what belongs to no account goes to any cell');
  });

  t.test('a connection over MQTT is at the cell of its device or user', async (t) => {
    for (const service of both) {
      const { device, secret, topic } = of(service);
      const admin = await service.connect({ jwt: service.admin });
      await admin.subscribeAsync(topic);
      const message = nextMessage(admin);
      const client = await service.connect({ deviceId: device.id, secret });
      await client.publishAsync(topic, 'a,2,', { qos: 1 });
      t.equal((await message).text, 'a,2,');
      await client.endAsync();
      const old = await service.connect(
        { deviceId: device.id.toUpperCase().toLowerCase(), secret },
        { protocolId: 'MQIsdp', protocolVersion: 3 },
      );
      t.ok(old.connected, 'MQTT 3.1');
      await old.endAsync();
      await admin.endAsync();
    }
    const named = await rawClient(t, proxied.ports.mqtt);
    named.send(connectPacket({ clientId: 'x', username: of(second).device.id, password: Buffer.from('wrong') }));
    t.match(await named.next(), { returnCode: 4 }, 'a wrong secret is refused by the cell');
    const { device, secret } = of(second);
    const elsewhere = `${device.id.slice(0, 26)}000${device.id.slice(29)}`;
    const misled = await rawClient(t, proxied.ports.mqtt);
    misled.send(connectPacket({ clientId: 'x', username: elsewhere, password: Buffer.from(secret) }));
    t.match(await misled.next(), { returnCode: 4 }, 'wrong digits are refused by the cell that they name');
    const nobody = await rawClient(t, proxied.ports.mqtt);
    nobody.send(connectPacket({ clientId: 'nobody' }));
    t.match(await nobody.next(), { returnCode: 4 }, 'a CONNECT that names nobody is refused by any cell');
    const garbage = connect(proxied.ports.mqtt, '127.0.0.1');
    t.teardown(() => garbage.destroy());
    garbage.end('GET / HTTP/1.1\r\n\r\n');
    garbage.resume();
    await new Promise((resolve) => garbage.once('close', resolve));
  });

  t.test('a cell sees the address of the client, not that of the proxy', async (t) => {
    const { device, secret } = of(first);
    const socket = connect({ port: proxied.ports.mqtt, host: '127.0.0.1', localAddress: '127.0.0.7' });
    t.teardown(() => socket.destroy());
    const client = speak(socket);
    client.send(connectPacket({ clientId: 'x', username: device.id, password: Buffer.from(secret) }));
    t.match(await client.next(), { returnCode: 0 });
    const seen = async () => (await first.ok('GET', `/api/v1/devices/${device.id}`)).device.externalIp;
    while ((await seen()) !== '127.0.0.7');
    t.pass('externalIp is that of the client');
  });

  t.test('MQTT over WebSocket is routed by cookie or by host name', async (t) => {
    const options = { rejectUnauthorized: false, reconnectPeriod: 0, connectTimeout: 5000 };
    for (const [service, cell] of [
      [first, 'c01'],
      [second, 'c02'],
    ] as const) {
      const { device, secret } = of(service);
      const login = { username: device.id, password: secret };
      const hosts = [`slot-${slotOf(service.accountId)}.things.example.com`, `${cell}.things.example.com`];
      for (const headers of [
        { cookie: `platform-access-token=${service.admin}` },
        ...hosts.map((host) => ({ host })),
      ]) {
        const url = `${proxied.url.replace('https', 'wss')}/mqtt`;
        const client = await mqtt.connectAsync(url, { ...options, ...login, wsOptions: { headers } });
        t.ok(client.connected, JSON.stringify(Object.keys(headers)));
        await client.endAsync();
      }
    }
  });

  t.test('MQTT over TLS ends at HAProxy, or at the cell when its host name is used', async (t) => {
    const { device, secret, topic } = of(first);
    for (const name of ['things.example.com', 'c01.things.example.com']) {
      const client = await secure(proxied, name, { username: device.id, password: secret });
      await client.publishAsync(topic, 'a,3,', { qos: 1 });
      await client.endAsync();
    }
    const mine = of(second);
    const made = await makeCertificate();
    const body = { entityId: mine.device.id, entityType: 'device', certificate: made.cert };
    await second.create('/access/mqtt-certificates', 'mqttCertificate', body);
    const shown = { cert: made.cert, key: made.key };
    for (const name of [`slot-${slotOf(second.accountId)}.things.example.com`, 'c02.things.example.com']) {
      const client = await secure(proxied, name, { ...shown, username: mine.device.id });
      await client.publishAsync(mine.topic, 'a,4,', { qos: 1 });
      await client.endAsync();
    }
    const plain = await secure(proxied, 'things.example.com', { username: mine.device.id, password: mine.secret });
    t.ok(plain.connected, 'by its id, where HAProxy reads the CONNECT');
    await plain.endAsync();
    const tls = connectTls({ host: '127.0.0.1', port: proxied.ports.mqtts, rejectUnauthorized: false, ...shown });
    t.teardown(() => tls.destroy());
    const unseen = speak(tls);
    unseen.send(connectPacket({ clientId: 'x', username: mine.device.id }));
    t.match(await unseen.next(), { returnCode: 4 }, 'a certificate that ends at HAProxy is no login');
  });

  t.test('an id without the digits of its account is found by the list of cells.yaml', async (t) => {
    const ca = await makeAuthority();
    const template = await second.template({ channels: ['data'] });
    await registerAuthority(second, ca, { createDevices: true, deviceTemplateId: template.id });
    const { cert, key } = await makeCertificate({ subject: `CN=${foreign}`, issuer: ca });
    const client = await secure(proxied, 'c02.example.com', { cert, key });
    await client.endAsync();
    const secret = await second.credential(foreign);
    const plain = await second.connect({ deviceId: foreign, secret });
    t.ok(plain.connected, 'over MQTT');
    const basic = { authorization: `Basic ${Buffer.from(`${foreign}:${secret}`).toString('base64')}` };
    const answer = await second.http('GET', '/api/v1/firmware/offer', { token: null, headers: basic });
    t.not(answer.status, 401, 'over HTTP');
  });

  t.test('a slot is switched while HAProxy runs', async (t) => {
    const { device, secret } = of(first);
    const map = join(proxied.directory, 'slots.map');
    const slot = slotOf(first.accountId);
    t.match(await proxied.proxy.ask('show map'), map);
    const open = await first.connect({ deviceId: device.id, secret });
    await proxied.proxy.ask(`set map ${map} ${slot} c02`);
    const refusal = rawClient(t, proxied.ports.mqtt).then((client) => {
      client.send(connectPacket({ clientId: 'y', username: device.id, password: Buffer.from(secret) }));
      return client.next();
    });
    t.match(await refusal, { returnCode: 4 }, 'new connections go to the other cell');
    t.equal((await first.http('GET', `/api/v1/devices/${device.id}`)).status, 401);
    t.ok(open.connected, 'open ones stay where they are');
    await proxied.proxy.ask(`set map ${map} ${slot} c01`);
    t.equal((await first.http('GET', `/api/v1/devices/${device.id}`)).status, 200);
  });

  t.test('a cell that is down takes only its own accounts with it', async (t) => {
    const { device, secret } = of(first);
    await proxied.proxy.ask('set server http-c01/c01 state maint');
    const gone = await fetch(`${proxied.url}/api/v1/devices/${device.id}`, {
      headers: { authorization: `Bearer ${first.admin}` },
    });
    const { error } = (await gone.json()) as Failure;
    t.strictSame([gone.status, gone.headers.get('retry-after'), error.code], [503, '5', -199]);
    const client = await rawClient(t, proxied.ports.mqtt);
    client.send(connectPacket({ clientId: 'x', username: device.id, password: Buffer.from(secret) }));
    await client.closed;
    t.equal((await second.http('GET', `/api/v1/devices/${of(second).device.id}`)).status, 200);
    t.ok((await second.connect({ deviceId: of(second).device.id, secret: of(second).secret })).connected);
    await proxied.proxy.ask('set server http-c01/c01 state ready');
    t.equal((await first.http('GET', `/api/v1/devices/${device.id}`)).status, 200);
  });
}
