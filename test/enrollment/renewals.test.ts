/** Devices that renew their credential: over HTTP and MQTT, secrets and certificates, and when the former one ends. */
import { X509Certificate } from 'node:crypto';
import { request } from 'node:https';
import type { Test } from 'tap';
import { certificate } from '../broker/certificate.ts';
import { taken } from '../broker/conversation.ts';
import { connectPacket, publishPacket, type RawClient, rawClient, subscribePacket } from '../broker/raw.ts';
import { download, joinWith, openssl } from '../support/openssl.ts';
import { part } from '../support/part.ts';
import { type Anything, type Service, startService } from '../support/service.ts';
import { basic, newGroup } from './devices.ts';

const t = await part(import.meta);

const day = 24 * 60 * 60_000;
const path = '/api/v1/enroll/renew';
let ahead = 0;
let service: Service;
t.before(async () => {
  service = await startService(t, {
    env: { ...certificate(t), SLIPWAY_MQTT_FAILED_CONNECTS_PER_ADDRESS: '0' },
    clock: { now: () => Date.now() + ahead },
  });
});
t.beforeEach(() => {
  ahead = 0;
});

interface Device {
  id: string;
  secret: string;
}

const newIssuer = () =>
  service.create('/access/certificate-authorities', 'certificateAuthority', {
    name: service.unique('CA'),
    issuing: true,
  });
/** A device of a group, enrolled with a secret. */
async function enrolled(group: object = {}): Promise<Device> {
  const made = await newGroup(service, group);
  const headers = basic(made.id, made.claimSecret ?? '');
  const body = { serialNumber: service.unique('SN') };
  const answer = await service.ok('POST', '/api/v1/enroll', { body, headers, token: null });
  return { id: answer.device.id, secret: String(answer.credential.secret) };
}
const renew = ({ id, secret }: Device, body: object = {}) =>
  service.http('POST', path, { body, headers: basic(id, secret), token: null });
const renewed = async (device: Device, body: object = {}) => {
  const answer = await renew(device, body);
  if (answer.status !== 200) throw new Error(answer.text);
  return answer.body.credential;
};
/** POST /enroll/renew with a client certificate. */
function renewWith(identity: { cert: string; key: string }, body: object): Promise<{ status: number; body: Anything }> {
  const headers = { 'content-type': 'application/json' };
  const options = { method: 'POST', headers, rejectUnauthorized: false, agent: false, ...identity } as const;
  return new Promise((resolve, reject) => {
    const asked = request(service.server.url + path, options, (answer) => {
      let text = '';
      answer.on('data', (chunk) => {
        text += chunk;
      });
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, body: JSON.parse(text) }));
    });
    asked.on('error', reject);
    asked.end(JSON.stringify(body));
  });
}
/** A connection with a secret, and the return code of its CONNACK. */
async function join(t: Test, id: string, secret: string, clientId = 'c'): Promise<RawClient & { returnCode: number }> {
  const client = await rawClient(t, service.server.mqttPort);
  client.send(connectPacket({ username: id, password: Buffer.from(secret), clientId }));
  const answer = await client.next();
  return Object.assign(client, { returnCode: 'returnCode' in answer ? Number(answer.returnCode) : -1 });
}
const codeOf = async (t: Test, id: string, secret: string) =>
  (await join(t, id, secret, `p${Math.random()}`)).returnCode;
const joinCodeOf = async (t: Test, identity: { cert: string; key: string }) =>
  (await joinWith(t, service.mqttsPort, identity, { clientId: `p${Math.random()}` })).returnCode;
const certificateOf = async (id: string) => {
  const list = `/api/v1/access/mqtt-certificates?accountId=${service.accountId}&entityId=${id}`;
  return (await service.ok('GET', list)).mqttCertificates.results;
};

t.test('a secret is renewed by itself; the former one ends when the new one has connected', async (t) => {
  const device = await enrolled();
  const live = await join(t, device.id, device.secret);
  const answer = await renew(device);
  t.equal(answer.status, 200, answer.text);
  t.equal(answer.headers.get('cache-control'), 'no-store');
  t.match(answer.body, { device: { id: device.id, accountId: service.accountId }, broker: { topicRoot: /slipway/ } });
  const { secret = '', username } = answer.body.credential;
  t.equal(username, device.id);
  t.equal(await codeOf(t, device.id, device.secret), 0, 'the former one goes on');
  t.equal(await codeOf(t, device.id, secret), 0);
  await live.closed;
  t.equal(await codeOf(t, device.id, device.secret), 4);
  t.equal((await renew(device)).status, 401);
});

t.test('asked again, the answer that was lost ends and the present one stays; in time it ends, too', async (t) => {
  const device = await enrolled({ overlapDays: 2 });
  t.equal(await codeOf(t, device.id, device.secret), 0);
  const lost = await renewed(device);
  const next = await renewed(device);
  t.equal(await codeOf(t, device.id, String(lost.secret)), 4);
  t.equal(await codeOf(t, device.id, device.secret), 0);
  ahead = 2 * day + 1000;
  t.equal(await codeOf(t, device.id, device.secret), 4, 'after overlapDays');
  t.equal(await codeOf(t, device.id, String(next.secret)), 0);
});

t.test('a device goes from its secret to certificates, and from one certificate to the next', async (t) => {
  const [ca, shell] = [await newIssuer(), openssl(t)];
  const device = await enrolled({ issues: 'either', certificateAuthorityId: ca.id, certificateDays: 30 });
  t.equal(await codeOf(t, device.id, device.secret), 0);
  const asked = shell.request();
  const lost = await renewed(device, { csr: asked.csr });
  const first = await renewed(device, { csr: asked.csr });
  t.not(lost.certificate, first.certificate, 'always a new one');
  t.equal(first.chain, ca.certificate);
  const identity = { cert: String(first.certificate), key: asked.key };
  t.equal(Date.parse(String(first.expires)), Date.parse(new X509Certificate(identity.cert).validTo));
  t.equal(await joinCodeOf(t, { cert: String(lost.certificate), key: asked.key }), 4, 'the lost one has ended');
  t.equal(await codeOf(t, device.id, device.secret), 0, 'nothing has connected with the new one');
  const live = await join(t, device.id, device.secret);
  t.equal(await joinCodeOf(t, identity), 0);
  await live.closed;
  t.equal(await codeOf(t, device.id, device.secret), 4);
  const second = await renewWith(identity, { csr: asked.csr });
  t.equal(second.status, 200, JSON.stringify(second.body));
  const next = { cert: String(second.body.credential.certificate), key: asked.key };
  const before = await joinWith(t, service.mqttsPort, identity, { clientId: 'before' });
  t.equal(before.returnCode, 0);
  t.equal((await certificateOf(device.id)).length, 2);
  t.equal(await joinCodeOf(t, next), 0);
  await before.closed;
  t.equal(await joinCodeOf(t, identity), 4);
  t.equal((await certificateOf(device.id)).length, 1);
  const { bytes } = await download(`${service.server.url}/api/v1/crl/${ca.id}`);
  const text = shell.run('crl', '-inform', 'DER', '-in', shell.write('list.crl', bytes), '-noout', '-text');
  for (const pem of [lost.certificate, identity.cert])
    t.match(text, new X509Certificate(String(pem)).serialNumber, 'what was replaced is on the list');
  t.notMatch(text, new X509Certificate(next.cert).serialNumber);
  const third = await renewWith(next, {});
  t.equal(third.status, 200);
  t.equal(await codeOf(t, device.id, String(third.body.credential.secret)), 0, 'and back to a secret');
  t.equal(await joinCodeOf(t, next), 4);
});

t.test('the former certificate ends in time; without a CA, or without a request, it is 400', async (t) => {
  const [ca, shell] = [await newIssuer(), openssl(t)];
  const { device } = await service.device();
  const asked = shell.request();
  const issue = `/api/v1/access/certificate-authorities/${ca.id}/issue` as const;
  const made = await service.ok('POST', issue, { body: { deviceId: device.id, csr: asked.csr } });
  const identity = { cert: made.certificate, key: asked.key };
  t.match(await renewWith(identity, {}), { status: 400, body: { error: { details: [{ path: 'csr' }] } } });
  t.match(await renewWith(identity, { csr: 'junk' }), { status: 400, body: { error: { details: [{ path: 'csr' }] } } });
  const next = await renewWith(identity, { csr: asked.csr });
  t.equal(next.status, 200, 'by the CA that has issued the present one');
  t.equal(await joinCodeOf(t, identity), 0);
  ahead = 7 * day + 5000;
  await service.server.ctx.renewals.endDue();
  t.equal(await joinCodeOf(t, identity), 4);
  t.equal(await joinCodeOf(t, { cert: next.body.credential.certificate, key: asked.key }), 0);
  const other = await enrolled();
  t.equal((await renew(other, { csr: asked.csr })).status, 200, 'a group that issues secrets ignores the request');
  const plain = await service.device();
  const bare = { id: plain.device.id, secret: plain.secret };
  t.match(await renew(bare, { csr: asked.csr }), {
    status: 400,
    body: { error: { details: [{ path: 'csr', message: /no CA/ }] } },
  });
  t.equal((await renew(bare)).status, 200);
  t.match(await service.http('POST', path, { body: {} }), { status: 403 }, 'an admin has nothing to renew');
  t.equal((await service.http('POST', path, { body: {}, token: null })).status, 401);
});

t.test('over MQTT the answer comes on _credentials, to this connection alone', async (t) => {
  const [ca, shell] = [await newIssuer(), openssl(t)];
  const device = await enrolled({ issues: 'either', certificateAuthorityId: ca.id });
  const topic = service.topic(device.id, '_credentials');
  const watcher = await service.connect({ jwt: service.admin });
  const heard: string[] = [];
  watcher.on('message', (on) => heard.push(on));
  await watcher.subscribeAsync(`${service.topicRoot}/${service.accountId}/d/+/#`);
  await t.rejects(watcher.subscribeAsync(topic));
  const twin = await join(t, device.id, device.secret, 'twin');
  twin.send(subscribePacket(1, [service.topic(device.id, '#'), 1]));
  t.match(await twin.next(), { cmd: 'suback' });
  const live = await join(t, device.id, device.secret);
  live.send(subscribePacket(1, [topic, 1]));
  t.match(await live.next(), { cmd: 'suback', granted: [1] });
  const ask = async (payload: string, messageId: number): Promise<Anything> => {
    live.send(publishPacket(topic, payload, { qos: 1, messageId, retain: true }));
    t.match(await live.next(), { cmd: 'puback', messageId });
    const answer = await live.next();
    t.match(answer, { cmd: 'publish', topic, retain: false });
    return JSON.parse('payload' in answer ? String(answer.payload) : '');
  };
  t.match(await ask('{"csr":"junk"}', 1), { error: { code: 106, details: [{ path: 'csr' }] } });
  t.match(await ask('junk', 2), { error: { code: 106, details: [{ path: 'body' }] } });
  const asked = shell.request();
  const { credential } = await ask(JSON.stringify({ csr: asked.csr }), 3);
  t.match(credential, { username: device.id, chain: ca.certificate });
  t.match((await ask('', 4)).credential.secret, /^[\w-]{43}$/);
  const last = service.topic(device.id, 'readings');
  twin.send(publishPacket(last, ',a,1,', { qos: 1, messageId: 9 }));
  // It may also hear on `_updates/fields` that the device is connected.
  const heardBefore = (await taken(twin, (packets) => packets.some((one) => one.topic === last))).map(
    (one) => one.topic,
  );
  t.ok(heardBefore.includes(last));
  t.notOk(heardBefore.includes(topic), 'another connection of the device has heard nothing of it');
  await watcher.publishAsync(topic, '{}', { qos: 1 }).catch(() => {});
  t.notOk(heard.includes(topic));
  const stream = await service.http('GET', `/api/v1/messaging/publish/${topic}`);
  t.equal(stream.status, 405);
  const posted = {
    headers: { ...basic(device.id, device.secret), 'content-type': 'text/plain' },
    body: '{}',
    token: null,
  };
  t.match(await service.http('POST', `/api/v1/messaging/publish/${topic}`, posted), { status: 403 });
});

t.test('a device renews twenty times an hour at most', async (t) => {
  const device = await enrolled();
  for (let at = 0; at < 20; at += 1) t.equal((await renew(device)).status, 200);
  t.equal((await renew(device)).status, 429);
});
t.end();
