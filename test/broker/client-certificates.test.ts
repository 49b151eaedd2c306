/** Devices that log in with a certificate: whose it is, what it gives, and how it ends. */
import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { type ConnectionOptions, connect as connectTls, type SecureVersion, type TLSSocket } from 'node:tls';
import mqtt from 'mqtt';
import type { Test } from 'tap';
import {
  Extension,
  KeyUsageFlags,
  type Made,
  makeAuthority,
  makeCertificate,
  makeProof,
  registerAuthority,
} from '../support/certificates.ts';
import { part } from '../support/part.ts';
import { type Anything, nextMessage, type Service, startService } from '../support/service.ts';
import { certificate } from './certificate.ts';
import { hits } from './metrics.ts';
import { connectPacket, publishPacket, type RawClient, rawClient, speak, subscribePacket } from './raw.ts';

const t = await part(import.meta);

const hour = 60 * 60_000;
const versions: SecureVersion[] = ['TLSv1.2', 'TLSv1.3'];
let ahead = 0;
const logLines: string[] = [];
let service: Service;
let port: number;
let template: Anything['deviceTemplate'];
let other: { accountId: string; token: string };
t.before(async () => {
  service = await startService(t, {
    env: { ...certificate(t), SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' },
    clock: { now: () => Date.now() + ahead },
    logLines,
  });
  port = service.mqttsPort;
  template = await service.template({ channels: ['data', { name: 'chat', persistenceType: 'simple' }] });
  const { accountId, admin: token } = await service.account();
  other = { accountId, token };
});

const newDevice = (body: object = {}) =>
  service.create('/devices', 'device', { serialNumber: 'X', deviceTemplateId: template.id, ...body });
const register = (entityId: string, { cert }: Made) =>
  service.create('/access/mqtt-certificates', 'mqttCertificate', { entityId, entityType: 'device', certificate: cert });
const authority = (made: Made, body: object = {}, token = service.admin) =>
  registerAuthority(service, made, body, token);
/** Registers a CA without proving it, as anybody can. */
const claimAuthority = (made: Made, body: object, token: string) =>
  service.create(
    '/access/certificate-authorities',
    'certificateAuthority',
    { name: made.fingerprint, certificate: made.cert, ...body },
    token,
  );
const remove = (path: string, { version, id }: Record<'version' | 'id', string>) =>
  service.http('DELETE', `/api/v1${path}/${id}`, { headers: { etag: version } });
const refusalsOf = async (deviceId: string) =>
  (await service.ok('GET', `/api/v1/devices/${deviceId}/refusals`)).refusals.results.map(({ reason }) => reason);

interface Joined extends RawClient {
  returnCode: number;
  tls: TLSSocket;
}

/** Presents certificates, sends CONNECT, and gives its CONNACK. */
async function join(
  t: Test,
  shown: Made | Made[] | undefined,
  packet: object = {},
  options: ConnectionOptions = {},
): Promise<Joined> {
  const [own, ...others] = [shown ?? []].flat();
  const identity = own && { cert: [own, ...others].map(({ cert }) => cert).join(''), key: own.key };
  const tls = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false, ...identity, ...options });
  t.teardown(() => tls.destroy());
  const client = speak(tls);
  client.send(connectPacket(packet));
  const answer = await client.next();
  return { ...client, tls, returnCode: 'returnCode' in answer ? (answer.returnCode ?? -1) : -1 };
}
/** The TLS session of a connection that goes on with a refused or an accepted CONNECT. */
async function firstSession(t: Test, shown: Made[], options: ConnectionOptions): Promise<Buffer> {
  const cert = shown.map((one) => one.cert).join('');
  const tls = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false, cert, key: shown[0]?.key, ...options });
  t.teardown(() => tls.destroy());
  const session = new Promise<Buffer>((resolve) => tls.once('session', resolve));
  const client = speak(tls);
  client.send(connectPacket({ clientId: 'first' }));
  await client.next();
  return session;
}

/** A connection whose handshake is finished. */
async function shaken(t: Test, { cert, key }: Made): Promise<RawClient> {
  const tls = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false, cert, key });
  t.teardown(() => tls.destroy());
  await new Promise((resolve) => tls.once('secureConnect', resolve));
  return speak(tls);
}

const codeOf = async (...given: Parameters<typeof join>) => (await join(...given)).returnCode;

t.test('nobody is asked for a certificate before there is one to know', async (t) => {
  t.equal(await codeOf(t, Array(7).fill(await makeCertificate()), { username: 'x' }), 4, 'too many are not even sent');
});

t.test('a registered certificate is the login of its device, and of nobody else', async (t) => {
  const [device, sibling] = [await newDevice(), await newDevice()];
  const own = await makeCertificate();
  await register(device.id, own);
  for (const version of versions) {
    const only = { minVersion: version, maxVersion: version };
    const named = await join(t, own, { username: device.id, clientId: version }, only);
    t.equal(named.returnCode, 0, version);
    t.equal(named.tls.getProtocol(), version);
    named.send(publishPacket(service.topic(device.id, 'data'), ',c,1,', { qos: 1, messageId: 1 }));
    t.match(await named.next(), { cmd: 'puback' });
  }
  t.equal(await codeOf(t, own, { clientId: 'nobody special' }), 0, 'the certificate says who it is');
  t.equal(
    await codeOf(t, own, { username: device.id, password: Buffer.alloc(0), clientId: 'e' }),
    0,
    'an empty password counts as none',
  );
  t.equal(await codeOf(t, own, { username: sibling.id }), 4);
  t.equal(await codeOf(t, own, { username: 'Auth:JWT' }), 4);
  t.equal(await codeOf(t, await makeCertificate(), { username: device.id }), 4, 'unknown');
  t.equal(await codeOf(t, undefined, { username: device.id }), 4, 'none');
  const points = await service.ok('GET', `/api/v4/data/${service.topic(device.id, 'data')}`);
  t.equal(points.result.length, 2);
  t.same(await refusalsOf(sibling.id), ['the certificate is that of another device']);
  t.match(await refusalsOf(device.id), ['unknown or wrong credentials', 'unknown certificate']);
  const plain = await rawClient(t, service.server.mqttPort);
  plain.send(connectPacket({ username: device.id, password: Buffer.alloc(0) }));
  t.match(await plain.next(), { returnCode: 4 }, 'without a secret an empty password is refused');
});

t.test('with a password it is the password that counts, and nobody needs a certificate', async (t) => {
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const fleet = await makeCertificate({ subject: 'CN=fleet' });
  const login = { username: device.id, password: Buffer.from(secret) };
  t.equal(await codeOf(t, undefined, login), 0);
  t.equal(await codeOf(t, fleet, login), 0);
  const own = await makeCertificate();
  await register(device.id, own);
  t.equal(await codeOf(t, own, { ...login, password: Buffer.from('wrong') }), 4);
  t.equal(await codeOf(t, own, { username: device.id }), 0);
});

t.test('MQTT over WebSocket on the TLS port takes it too; the HTTP port asks for none', async (t) => {
  const device = await newDevice();
  const { cert, key, ...own } = await makeCertificate();
  await register(device.id, { cert, key, ...own });
  const wsOptions = { rejectUnauthorized: false, cert, key };
  const client = await mqtt.connectAsync(`wss://127.0.0.1:${port}/mqtt`, { reconnectPeriod: 0, wsOptions });
  t.teardown(() => client.end(true));
  const topic = service.topic(device.id, 'chat');
  await client.subscribeAsync(topic);
  const heard = nextMessage(client);
  await client.publishAsync(topic, 'hello', { qos: 1 });
  t.equal((await heard).text, 'hello');
  const url = service.server.url.replace('http', 'ws');
  const refused = mqtt.connectAsync(`${url}/mqtt`, { username: device.id, reconnectPeriod: 0, wsOptions }, false);
  await t.rejects(refused, { code: 4 });
});

t.test('a CA of the account lets in the device that its certificate names', async (t) => {
  const device = await newDevice();
  const ca = await makeAuthority();
  const named = (issuer: Made, more: object = {}) => makeCertificate({ subject: `CN=${device.id}`, issuer, ...more });
  const leaf = await named(ca);
  t.equal(await codeOf(t, leaf), 4, 'not registered yet');
  await authority(ca);
  for (const version of versions)
    t.equal(
      await codeOf(t, leaf, { username: device.id, clientId: version }, { minVersion: version, maxVersion: version }),
      0,
    );
  t.equal(await codeOf(t, [leaf, ca]), 0, 'the CA may be sent along');
  const sibling = await newDevice();
  t.equal(await codeOf(t, leaf, { username: sibling.id }), 4);
  t.equal(await codeOf(t, await makeCertificate({ subject: 'CN=toaster', issuer: ca })), 4);
  t.equal(await codeOf(t, await makeCertificate({ subject: `CN=${randomUUID()}`, issuer: ca })), 4, 'it may make none');
  t.equal(await codeOf(t, await makeCertificate({ subject: `CN=${device.id}, CN=${device.id}`, issuer: ca })), 4);
  const namesake = await makeAuthority();
  t.equal(await codeOf(t, await named(namesake)), 4, 'the name of a CA is not its key');
  t.equal(await codeOf(t, await named(await makeCertificate({ subject: 'O="Acme, Inc", CN=Factory' }))), 4);
  await authority(namesake, { accountId: other.accountId }, other.token);
  t.equal(await codeOf(t, await named(namesake)), 4, 'a CA of another account');
  const uses = { keyUsage: KeyUsageFlags.digitalSignature, extendedKeyUsage: ['1.3.6.1.5.5.7.3.2'] };
  t.equal(await codeOf(t, await named(ca, uses)), 0);
  t.equal(await codeOf(t, await named(ca, { keyUsage: KeyUsageFlags.keyEncipherment })), 4);
  t.equal(await codeOf(t, await named(ca, { extendedKeyUsage: ['1.3.6.1.5.5.7.3.1'] })), 4, 'for servers');
  t.equal(await codeOf(t, await named(ca, { more: [new Extension('1.2.3.4', true, new Uint8Array([5, 0]))] })), 4);
  t.equal(await codeOf(t, await named(ca, { more: [new Extension('1.2.3.4', false, new Uint8Array([5, 0]))] })), 0);
  t.equal(await codeOf(t, await named(ca, { to: Date.now() - hour })), 4, 'expired');
  t.equal(await codeOf(t, await named(ca, { from: Date.now() + hour })), 4, 'not yet valid');
  t.match((await refusalsOf(device.id)).slice(0, 2), [/is not valid yet/, /has expired/]);
});

t.test(
  'CAs between the registered one and the device are each looked at, and seen again when a session is resumed',
  async (t) => {
    const device = await newDevice();
    const root = await makeAuthority({ subject: 'CN=Root' });
    const below = async (issuer: Made, name: string, more: object = {}) =>
      makeAuthority({ subject: `CN=${name}`, issuer, ...more });
    const named = (issuer: Made, subject = `CN=${device.id}`) => makeCertificate({ subject, issuer });
    await authority(root);
    const [one, plain] = [await below(root, 'One'), await below(root, 'Plain', { ca: false })];
    const two = await below(plain, 'Two');
    t.equal(await codeOf(t, await named(one)), 4, 'it is not known without being sent');
    t.equal(await codeOf(t, [await named(one), one]), 0);
    t.equal(await codeOf(t, await named(one)), 0, 'from now on it is known');
    t.equal(await codeOf(t, [await named(two), two, plain]), 4);
    t.equal(await codeOf(t, [await named(plain), plain]), 4, 'a device is no CA');
    const narrow = await below(root, 'Narrow', { pathLength: 0 });
    const deeper = await below(narrow, 'Deeper');
    t.equal(await codeOf(t, [await named(deeper), deeper, narrow]), 4, 'pathLenConstraint');
    const [second, third] = [await below(one, 'Second'), await below(await below(one, 'Second'), 'Third')];
    t.equal(await codeOf(t, [await named(second), second, one]), 0);
    t.equal(await codeOf(t, [await named(third), third]), 4, 'another key of the name Second');
    const broken = await join(t, [await named(third), third, second, one]).catch(() => undefined);
    t.equal(broken?.returnCode ?? 4, 4, 'where OpenSSL has not ended it');
    const three = await below(second, 'Three');
    t.equal(await codeOf(t, [await named(three), three, second, one]), 0, 'three between');
    const four = await below(three, 'Four');
    t.equal(await codeOf(t, [await named(four), four, three, second, one]), 4, 'four between');

    const late = await makeAuthority({ subject: 'CN=Late' });
    const under = await below(late, 'Under');
    const shown = [await named(under), under];
    const only = (version: SecureVersion) => ({ minVersion: version, maxVersion: version });
    const refused = await Promise.all(versions.map((version) => firstSession(t, shown, only(version))));
    await authority(late);
    for (const [at, version] of versions.entries()) {
      const first = await join(t, shown, {}, { ...only(version), session: refused[at] });
      t.equal(first.tls.isSessionReused(), false, 'a new CA asks everybody for their certificates');
      t.equal(first.returnCode, 0, version);
      const session = await firstSession(t, shown, only(version));
      const again = await join(t, shown, {}, { ...only(version), session });
      t.equal(again.tls.isSessionReused(), true, version);
      t.equal(again.returnCode, 0, 'the CA in between is not sent again');
    }
  },
);

t.test('another account does not replace the CAs in between that are remembered', async (t) => {
  const [root, foreignRoot] = [
    await makeAuthority({ subject: 'CN=Mine' }),
    await makeAuthority({ subject: 'CN=Yours' }),
  ];
  await authority(root);
  await authority(foreignRoot, { accountId: other.accountId }, other.token);
  const device = await newDevice();
  const foreign = await service.create(
    '/devices',
    'device',
    { accountId: other.accountId, serialNumber: 'Y' },
    other.token,
  );
  const between = (issuer: Made) => makeAuthority({ subject: 'CN=Between', issuer });
  const [mine, yours] = [await between(root), await between(foreignRoot)];
  const named = ({ id }: Record<'id', string>, issuer: Made) => makeCertificate({ subject: `CN=${id}`, issuer });
  t.equal(await codeOf(t, [await named(device, mine), mine]), 0);
  t.equal(await codeOf(t, [await named(foreign, yours), yours]), 0);
  t.equal(await codeOf(t, await named(device, mine)), 0, 'it is still known');
  t.equal(await codeOf(t, await named(foreign, yours)), 0);
});

t.test('a resumed session lets in nobody whose certificate has been deleted', async (t) => {
  const device = await newDevice();
  const own = await makeCertificate();
  const registered = await register(device.id, own);
  const only = (version: SecureVersion) => ({ minVersion: version, maxVersion: version });
  const sessions = await Promise.all(versions.map((version) => firstSession(t, [own], only(version))));
  for (const [at, version] of versions.entries()) {
    const again = await join(t, undefined, { clientId: version }, { ...only(version), session: sessions[at] });
    t.equal(again.tls.isSessionReused(), true);
    t.equal(again.returnCode, 0, 'it is the session that carries the certificate');
  }
  await remove('/access/mqtt-certificates', registered);
  for (const [at, version] of versions.entries()) {
    const again = await join(t, own, {}, { ...only(version), session: sessions[at] });
    t.equal(again.tls.isSessionReused(), true);
    t.equal(again.returnCode, 4);
  }
});

t.test('what let a connection in ends it: certificate, CA, device, time', async (t) => {
  const [one, two] = [await newDevice(), await newDevice()];
  const ca = await makeAuthority({ subject: 'CN=Ending' });
  const registeredCa = await authority(ca);
  const [own, spare] = [await makeCertificate(), await makeCertificate()];
  const [registered] = [await register(one.id, own), await register(one.id, spare)];
  const issued = await makeCertificate({ subject: `CN=${two.id}`, issuer: ca });
  const will = { topic: service.topic(one.id, 'chat'), payload: Buffer.from('gone'), qos: 0, retain: false };
  const watcher = await service.connect({ jwt: service.admin });
  const wills: string[] = [];
  watcher.on('message', (_, payload) => wills.push(payload.toString()));
  await watcher.subscribeAsync(service.topic('+', 'chat'));

  const byOwn = await join(t, own, { clientId: 'own', will });
  const bySpare = await join(t, spare, { clientId: 'spare' });
  const byCa = await join(t, issued, {});
  t.same(
    [byOwn, bySpare, byCa].map(({ returnCode }) => returnCode),
    [0, 0, 0],
  );
  const answer = await remove('/access/mqtt-certificates', registered);
  t.equal(answer.headers.get('platform-revocation'), 'connections=1; subscriptions=0');
  await byOwn.closed;
  t.equal(await codeOf(t, own), 4);
  const gone = await remove('/access/certificate-authorities', registeredCa);
  t.equal(gone.headers.get('platform-revocation'), 'connections=1; subscriptions=0');
  await byCa.closed;
  t.equal(await codeOf(t, issued), 4, 'what has been proven before is looked at again');
  await watcher.publishAsync(service.topic(one.id, '_log'), 'x', { qos: 1 });
  t.same(wills, [], 'without its will');

  bySpare.send({ cmd: 'pingreq' });
  t.match(await bySpare.next(), { cmd: 'pingresp' }, 'the other certificate of the device still holds');
  const { device } = await service.ok('GET', `/api/v1/devices/${one.id}`);
  await remove('/devices', device);
  await bySpare.closed;
  t.equal(await codeOf(t, spare), 5, 'in the trash it is inert');
  t.match(
    (await service.http('GET', `/api/v1/access/mqtt-certificates?accountId=${service.accountId}&entityId=${one.id}`))
      .body,
    { mqttCertificates: { meta: { count: 1 } } },
  );
  await service.ok('POST', `/api/v1/trash/devices/${one.id}/recover`, { headers: { etag: device.version } });
  t.equal(await codeOf(t, spare), 0, 'and works again afterwards');
  t.match(await refusalsOf(one.id), ['the entity may not connect now', 'unknown certificate'].slice(0, 1));
});

t.test('what a CA has issued before the hardware was replaced lets nobody in, resumed sessions included', async (t) => {
  const device = await newDevice();
  const ca = await makeAuthority({ subject: 'CN=Replacing' });
  await authority(ca);
  const issued = (from: number) => makeCertificate({ subject: `CN=${device.id}`, issuer: ca, from });
  const former = await issued(Date.now() - hour);
  const only = { maxVersion: 'TLSv1.2' } as const;
  const session = await firstSession(t, [former], only);
  const connected = await join(t, former, { clientId: 'former' });
  t.equal(connected.returnCode, 0);
  const { device: latest } = await service.ok('GET', `/api/v1/devices/${device.id}`);
  const headers = { etag: latest.version };
  await service.ok('POST', `/api/v1/devices/${device.id}/replace`, { body: { serialNumber: 'new' }, headers });
  await connected.closed;
  t.equal(await codeOf(t, former), 5);
  const resumed = await join(t, former, {}, { ...only, session });
  t.strictSame([resumed.tls.isSessionReused(), resumed.returnCode], [true, 5]);
  t.match(await refusalsOf(device.id), [/begins before the hardware was replaced: issue a new one/]);
  const replaced = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device.lastModified;
  const second = Math.floor(Date.parse(replaced) / 1000) * 1000;
  t.equal(await codeOf(t, await issued(second - 1000)), 5, 'also one that is shown for the first time');
  t.equal(await codeOf(t, await issued(second)), 0, 'that of the new hardware: certificates begin with a whole second');
  await register(device.id, former);
  t.equal(await codeOf(t, former), 0, 'anyone who registers one afterwards means it, whatever its dates');
});

t.test('a certificate and its CA end in time, connections included', { timeout: 30_000 }, async (t) => {
  const [one, two] = [await newDevice(), await newDevice()];
  const own = await makeCertificate({ to: Date.now() + hour });
  await register(one.id, own);
  const old = await makeAuthority({ subject: 'CN=Aging', to: Date.now() + hour });
  await authority(old);
  const issued = await makeCertificate({ subject: `CN=${two.id}`, issuer: old });
  // Nothing else is to end them while the test waits.
  const patient = { keepalive: 3600 };
  const clients = [await join(t, own, patient), await join(t, issued, patient)];
  t.same(
    clients.map(({ returnCode }) => returnCode),
    [0, 0],
  );
  ahead = 2 * hour;
  t.teardown(() => {
    ahead = 0;
  });
  await Promise.all(clients.map(({ closed }) => closed));
  t.equal(await codeOf(t, own), 4);
  t.equal(await codeOf(t, issued), 4);
  for (const { id } of [one, two]) t.same(await refusalsOf(id), ['the certificate, or its CA, has expired']);
  await authority(await makeAuthority({ subject: 'CN=Aging', keysOf: old }));
  t.equal(await codeOf(t, issued), 0, 'the CA with a new certificate for its key');
});

t.test('anyone who connects while a certificate is deleted is gone when the answer is there', async (t) => {
  const device = await newDevice();
  const own = await makeCertificate();
  const registered = await register(device.id, own);
  const clients = Array.from({ length: 10 }, (_, at) => join(t, own, { clientId: `c${at}` }).catch(() => undefined));
  await clients[0];
  await remove('/access/mqtt-certificates', registered);
  for (const client of await Promise.all(clients)) await client?.closed;
  t.equal(await codeOf(t, own), 4);
  const { device: latest } = await service.ok('GET', `/api/v1/devices/${device.id}`);
  const { headers } = await remove('/devices', latest);
  t.equal(headers.get('platform-revocation'), 'connections=0; subscriptions=0', 'nothing was left');
});

t.test('a CA makes the device of a first connection, once, where it says', async (t) => {
  const organization = await service.organization();
  const ca = await makeAuthority({ subject: 'CN=Maker' });
  const place = { deviceTemplateId: template.id, organizationId: organization.id };
  const made = await authority(ca, { createDevices: true, ...place });
  const [id, twin] = [randomUUID(), randomUUID()];
  const issue = (cn: string, more = '') => makeCertificate({ subject: `CN=${cn}${more}`, issuer: ca });
  const leaf = await issue(id, ', 2.5.4.5=SN-77');
  t.equal(await codeOf(t, leaf, { username: twin }), 4, 'not for another name');
  t.equal((await service.http('GET', `/api/v1/devices/${id}`)).status, 404);
  const waiting = await Promise.all(Array.from({ length: 5 }, () => shaken(t, leaf)));
  for (const [at, { send }] of waiting.entries()) send(connectPacket({ clientId: `c${at}` }));
  for (const { next } of waiting) t.match(await next(), { returnCode: 0 });
  const { device } = await service.ok('GET', `/api/v1/devices/${id}`);
  t.match(device, { id, serialNumber: 'SN-77', provisioningState: 'activated', createdById: made.id, ...place });
  const [client] = waiting;
  client?.send(publishPacket(service.topic(id, 'data'), ',c,1,', { qos: 1, messageId: 1 }));
  t.match(await client?.next(), { cmd: 'puback' });
  const audit = `/api/v1/audit?accountId=${service.accountId}&event=deviceCreatedByCertificate&targetId=${id}`;
  const { auditRecords } = await service.ok('GET', audit);
  t.match(auditRecords, {
    meta: { count: 1 },
    results: [{ address: '127.0.0.1', details: { certificateAuthorityId: made.id } }],
  });
  t.equal(await codeOf(t, await issue(twin)), 0);
  t.equal((await service.ok('GET', `/api/v1/devices/${twin}`)).device.serialNumber, twin, 'without one it is the CN');

  t.equal(await codeOf(t, await issue('00000000-0000-0000-0000-000000000000')), 4);
  const inCapitals = randomUUID();
  t.equal(await codeOf(t, await issue(inCapitals.toUpperCase())), 0);
  t.equal((await service.ok('GET', `/api/v1/devices/${inCapitals}`)).device.id, inCapitals);
  const person = await service.endUser(organization.id);
  const { userId, id: endUserId } = person.endUser;
  for (const taken of [endUserId, userId, service.accountId])
    t.equal(await codeOf(t, await issue(taken)), 5, 'nobody speaks in the name of somebody else');
  const demanding = await service.template();
  const { version } = made;
  const body = { deviceTemplateId: demanding.id, organizationId: null };
  await service.ok('PUT', `/api/v1/access/certificate-authorities/${made.id}`, { body, headers: { etag: version } });
  const fresh = await issue(randomUUID());
  await service.create('/devices/custom-fields', 'deviceField', {
    deviceTemplateId: demanding.id,
    name: 'needed',
    fieldType: 'string',
    required: true,
  });
  t.equal(await codeOf(t, fresh), 5, 'a field is required');
});

t.test('a key of another account is worth nothing, however it is registered', async (t) => {
  const ours = await makeAuthority({ subject: 'CN=Ours' });
  await authority(ours, { createDevices: true, deviceTemplateId: (await service.template()).id });
  const root = await makeAuthority({ subject: 'CN=Theirs' });
  // Anybody can have the public key of a CA signed by a CA of his own.
  const cross = await makeAuthority({ subject: 'CN=Ours', issuer: root, keysOf: ours });
  const theirTemplate = await service.create(
    '/devices/templates',
    'deviceTemplate',
    { accountId: other.accountId, name: 'T' },
    other.token,
  );
  const claimed = await claimAuthority(
    cross,
    { accountId: other.accountId, createDevices: true, deviceTemplateId: theirTemplate.id },
    other.token,
  );
  const forged = await makeCertificate({ subject: `CN=${claimed.challenge}`, issuer: root });
  t.match(await prove(claimed.id, forged, other.token), { status: 400 }, 'the root above it is another key');
  const id = randomUUID();
  const leaf = await makeCertificate({ subject: `CN=${id}`, issuer: ours });
  t.equal(await codeOf(t, leaf), 0);
  t.equal((await service.ok('GET', `/api/v1/devices/${id}`)).device.accountId, service.accountId);

  const theirs = await service.create(
    '/devices',
    'device',
    { accountId: other.accountId, serialNumber: 'T' },
    other.token,
  );
  const stolen = { accountId: other.accountId, entityId: theirs.id, entityType: 'device', certificate: leaf.cert };
  await service.create('/access/mqtt-certificates', 'mqttCertificate', stolen, other.token);
  t.equal(
    await codeOf(t, leaf, { username: id }),
    0,
    'registering the certificate of somebody else takes nothing away',
  );
  const nameless = await join(t, leaf, { clientId: 'nameless' });
  nameless.send(publishPacket(service.topic(id, 'chat'), 'x', { qos: 1, messageId: 1 }));
  t.match(await nameless.next(), { cmd: 'puback' });
  t.equal(await codeOf(t, leaf, { username: theirs.id }), 4);
});

const prove = (id: string, { cert }: Made, token = service.admin) =>
  service.http('POST', `/api/v1/access/certificate-authorities/${id}/proof`, { token, body: { certificate: cert } });

t.test(
  'who registers the public CA of somebody else first gets none of its devices, and keeps it from nobody',
  async (t) => {
    const theirTemplate = await service.create(
      '/devices/templates',
      'deviceTemplate',
      { accountId: other.accountId, name: service.unique('T') },
      other.token,
    );
    const theirs = { accountId: other.accountId, createDevices: true, deviceTemplateId: theirTemplate.id };
    const ca = await makeAuthority({ subject: 'CN=Victim' });
    const stolen = await claimAuthority(ca, theirs, other.token);
    t.match(stolen, { state: 'pending', challenge: /^[\w-]{43}$/ });
    const mine = await authority(ca, { createDevices: true, deviceTemplateId: template.id });
    t.match(mine, { state: 'active', challenge: null });

    const [known, id] = [await newDevice(), randomUUID()];
    const issue = (cn: string) => makeCertificate({ subject: `CN=${cn}`, issuer: ca });
    const [old, fresh] = [await issue(known.id), await issue(id)];
    t.equal(await codeOf(t, old), 0);
    t.equal(await codeOf(t, fresh), 0);
    t.equal((await service.ok('GET', `/api/v1/devices/${id}`)).device.accountId, service.accountId);

    // The challenge of one account proves nothing for another, nor does any other certificate.
    const wrong = { status: 400, body: { error: { code: 106, details: [{ path: 'certificate' }] } } };
    t.match(
      await prove(
        stolen.id,
        await makeProof(await makeAuthority({ subject: 'CN=Victim' }), stolen.challenge),
        other.token,
      ),
      wrong,
    );
    for (const certificate of [old, ca, await issue('x')])
      t.match(await prove(stolen.id, certificate, other.token), wrong);
    t.match(await prove(stolen.id, await makeProof(ca, stolen.challenge)), { status: 404 }, 'not of another account');
    t.equal(await codeOf(t, await issue(randomUUID()), { username: other.accountId }), 4, 'still pending');
    t.match(await prove(mine.id, ca), { status: 200, body: { certificateAuthority: mine } }, 'again has no effect');
  },
);

t.test('several accounts may have one CA, when each has proven it; CN or username say whose a device is', async (t) => {
  const theirTemplate = await service.create(
    '/devices/templates',
    'deviceTemplate',
    { accountId: other.accountId, name: service.unique('T') },
    other.token,
  );
  const ca = await makeAuthority({ subject: 'CN=Shared' });
  await authority(ca, { createDevices: true, deviceTemplateId: template.id });
  const theirs = { accountId: other.accountId, createDevices: true, deviceTemplateId: theirTemplate.id };
  await authority(ca, theirs, other.token);
  const foreign = await service.create(
    '/devices',
    'device',
    { accountId: other.accountId, serialNumber: 'F' },
    other.token,
  );
  const own = await newDevice();
  const issue = (cn: string) => makeCertificate({ subject: `CN=${cn}`, issuer: ca });
  for (const device of [own, foreign]) {
    const leaf = await issue(device.id);
    for (const username of ['', device.id, device.accountId]) t.equal(await codeOf(t, leaf, { username }), 0, username);
    const others = device === own ? other.accountId : service.accountId;
    t.equal(await codeOf(t, leaf, { username: others }), 4, 'the CN is that of a device of one account');
  }
  const fresh = [randomUUID(), randomUUID()];
  for (const [at, accountId] of [service.accountId, other.accountId].entries()) {
    const id = fresh[at] ?? '';
    const leaf = await issue(id);
    t.equal(await codeOf(t, leaf), 4, 'nobody knows whose it is');
    t.equal(await codeOf(t, leaf, { username: id }), 4);
    t.equal(await codeOf(t, leaf, { username: accountId }), 0);
    t.equal(await codeOf(t, leaf), 0, 'from now on its CN says it');
    const token = at === 0 ? service.admin : other.token;
    t.equal((await service.ok('GET', `/api/v1/devices/${id}`, { token })).device.accountId, accountId);
  }
});

t.test(
  'a certificate that another account has registered as well is its device’s that the username names',
  async (t) => {
    const foreign = await service.create(
      '/devices',
      'device',
      { accountId: other.accountId, serialNumber: 'L' },
      other.token,
    );
    const [device, leaf] = [await newDevice(), await makeCertificate()];
    const body = { accountId: other.accountId, entityId: foreign.id, entityType: 'device', certificate: leaf.cert };
    const stolen = await service.create('/access/mqtt-certificates', 'mqttCertificate', body, other.token);
    await register(device.id, leaf);
    const joined = async (username: string, deviceId: string) => {
      const client = await join(t, leaf, { username, clientId: service.unique('c') });
      if (client.returnCode !== 0) return client.returnCode;
      const accountId = deviceId === device.id ? service.accountId : other.accountId;
      client.send(subscribePacket(1, [`slipway/v1/${accountId}/d/${deviceId}/_rejected`, 0]));
      t.match(await client.next(), { cmd: 'suback', granted: [0] }, 'which is granted to the device itself alone');
      return 0;
    };
    t.equal(await joined(device.id, device.id), 0, 'the victim’s device stays the victim’s');
    t.equal(await joined(service.accountId, device.id), 0);
    t.equal(await codeOf(t, leaf), 4, 'empty: two accounts have it');
    await service.ok('DELETE', `/api/v1/access/mqtt-certificates/${stolen.id}`, {
      token: other.token,
      headers: { etag: stolen.version },
    });
    t.equal(await codeOf(t, leaf), 0, 'empty: one account has it');

    // Registered before the device has connected for the first time.
    const ca = await makeAuthority({ subject: 'CN=Early' });
    await authority(ca, { createDevices: true, deviceTemplateId: template.id });
    const id = randomUUID();
    const early = await makeCertificate({ subject: `CN=${id}`, issuer: ca });
    await service.create(
      '/access/mqtt-certificates',
      'mqttCertificate',
      { ...body, certificate: early.cert },
      other.token,
    );
    t.equal(await codeOf(t, early), 4, 'refused rather than another account’s');
    t.equal(await codeOf(t, early, { username: id }), 0);
    t.equal((await service.ok('GET', `/api/v1/devices/${id}`)).device.accountId, service.accountId);
  },
);

t.test('unknown certificates count as wrong secrets do; a registered one passes all the same', async (t) => {
  const device = await newDevice();
  const [own, unknown, ca] = [await makeCertificate(), await makeCertificate(), await makeAuthority()];
  await register(device.id, own);
  await authority(ca);
  const issue = () => makeCertificate({ subject: `CN=${device.id}`, issuer: ca });
  const proven = await issue();
  t.equal(await codeOf(t, proven, { username: device.id }), 0);
  for (let tries = 0; tries < 30; tries += 1) await join(t, unknown, { username: device.id });
  const before = await hits({ service }, 'failed_connects_per_principal');
  t.equal(await codeOf(t, unknown, { username: device.id }), 4);
  t.equal(await hits({ service }, 'failed_connects_per_principal'), Number(before) + 1);
  t.equal(await codeOf(t, own, { username: device.id }), 0);
  t.equal(await codeOf(t, proven, { username: device.id }), 0, 'its CA has been looked at before');
  t.equal(await codeOf(t, await issue(), { username: device.id }), 4, 'this one has not');
});

t.test('the log says once why a certificate was refused', async (t) => {
  const before = logLines.length;
  const unknown = await makeCertificate();
  for (let tries = 0; tries < 3; tries += 1) t.equal(await codeOf(t, unknown, { username: '' }), 4);
  const lines = logLines.slice(before).map((line) => JSON.parse(line));
  const said = lines.filter(({ level, msg }) => level === 40 && msg === 'a client certificate was refused');
  t.match(said, [{ reason: 'unknown certificate', fingerprint: /^[0-9a-f]{64}$/, address: /.+/ }]);
  t.equal(said.length, 1);
});

t.test('anyone who sends more than any device has to gets no further handshake for a while', async (t) => {
  const own = await makeCertificate();
  await register((await newDevice()).id, own);
  /** A connection that a proxy says is from `address`. */
  const through = async (address: string, ...bytes: Buffer[]) => {
    const socket = connect(port, '127.0.0.1');
    t.teardown(() => socket.destroy());
    await new Promise((resolve) => socket.write(`PROXY TCP4 ${address} 127.0.0.1 1 2\r\n`, resolve));
    for (const part of bytes) await new Promise((resolve) => socket.write(part, resolve));
    return socket;
  };
  const codeFrom = async (address: string, ...shown: Made[]) => {
    const socket = await through(address);
    return join(t, shown, {}, { socket }).then(
      ({ returnCode }) => returnCode,
      () => 'ended',
    );
  };
  t.equal(await codeFrom('10.0.0.1', ...Array(5).fill(own)), 0, 'five are looked at');
  t.equal(await codeFrom('10.0.0.2', ...Array(6).fill(own)), 'ended');
  t.equal(await codeFrom('10.0.0.2', own), 'ended', 'with one it is too late');
  t.equal(await codeFrom('10.0.0.1', own), 0, 'others are not concerned');
  // Records of a ClientHello that announces 64 KiB and does not come to its end.
  const record = Buffer.alloc(16_005);
  record.set([0x16, 3, 1, 0x3e, 0x80]);
  const first = Buffer.from(record);
  first.set([1, 1, 0, 0, 3, 3], 5);
  const unfinished = await through('10.0.0.3', first, record);
  const ended = new Promise((resolve) => unfinished.once('close', resolve).resume());
  unfinished.end();
  await ended;
  t.equal(await codeFrom('10.0.0.3', own), 'ended');
});

t.end();
