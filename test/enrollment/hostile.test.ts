/** What nobody but an attacker sends: the service answers each, makes nothing of it, and goes on. */
import { Encoder } from 'cbor-x';
import mqtt from 'mqtt';
import { certificate } from '../broker/certificate.ts';
import { joinWith, openssl } from '../support/openssl.ts';
import { part } from '../support/part.ts';
import { nextMessage, present, type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';
import { basic, claim, connectOnce, derived, newGroup, path } from './devices.ts';

const t = await part(import.meta);

const seeds = [1, 2, 3, 4, 5];
let service: Service;
t.before(async () => {
  service = await startService(t, {
    env: { ...certificate(t), SLIPWAY_MQTT_FAILED_CONNECTS_PER_PRINCIPAL: '20' },
  });
});

/** Numbers that are the same for a seed. */
function random(seed: number): (below: number) => number {
  let value = seed;
  return (below) => {
    value = (value * 1_103_515_245 + 12_345) & 0x7fffffff;
    return (value >> 8) % below;
  };
}

/** Bytes with some of them changed, cut or put twice. */
function mutate(bytes: Buffer, next: (below: number) => number): Buffer {
  const copy = Buffer.from(bytes);
  for (let n = 0; n < 1 + next(4); n += 1) copy[next(copy.length)] = next(256);
  const how = next(3);
  if (how === 0) return copy.subarray(0, 1 + next(copy.length));
  return how === 1 ? Buffer.concat([copy, copy.subarray(next(copy.length))]) : copy;
}

/** Where the content of a DER element begins, and how long it is. */
const headerOf = (der: Buffer, at: number) => at + 2 + ((der[at + 1] ?? 0) < 0x80 ? 0 : (der[at + 1] ?? 0) & 0x7f);
const lengthOf = (der: Buffer, at: number) =>
  headerOf(der, at) === at + 2 ? (der[at + 1] ?? 0) : der.readUIntBE(at + 2, headerOf(der, at) - at - 2);

const newIssuer = () =>
  service.create('/access/certificate-authorities', 'certificateAuthority', {
    name: service.unique('CA'),
    issuing: true,
  });

t.test('junk and broken requests for certificates in five seeds are 400, and make nothing', async (t) => {
  const group = await newGroup(service, { issues: 'certificate', certificateAuthorityId: (await newIssuer()).id });
  const real = Buffer.from(
    openssl(t)
      .request()
      .csr.replace(/-----[^-]+-----|\s/g, ''),
    'base64',
  );
  const begin = headerOf(real, 0);
  const signed = real.subarray(begin, headerOf(real, begin) + lengthOf(real, begin));
  for (const seed of seeds) {
    const next = random(seed);
    const noise = Array.from({ length: 5 }, () => Buffer.from(Array.from({ length: 300 }, () => next(256))));
    // Lengths that lead out of the bytes, and boxes in boxes.
    const nested = Buffer.from(Array.from({ length: 400 }, (_, at) => (at % 2 ? 0x80 : 0x30)));
    const huge = Buffer.from([0x30, 0x84, 0x7f, 0xff, 0xff, 0xff, ...(noise[0]?.subarray(0, 50) ?? [])]);
    // What is not signed, such as the length around it, may be read as it was meant.
    const broken = Array.from({ length: 20 }, () => mutate(real, next)).filter((bytes) => !bytes.includes(signed));
    for (const bytes of [...noise, nested, huge, ...broken]) {
      const { status, body } = await claim(service, group, {
        serialNumber: `D-${seed}`,
        csr: bytes.toString('base64'),
      });
      t.match({ status, body }, { status: 400, body: { error: { code: 106, details: [{ path: 'csr' }] } } });
    }
  }
  t.equal(countStored(service, 'devices', `"serialNumber" LIKE 'D-%'`), 0);
});

t.test('broken CBOR in five seeds is answered on the topic of refusals, or with a device of its own', async (t) => {
  const group = await newGroup(service);
  const codec = new Encoder({ useRecords: false, mapsAsObjects: true });
  const root = `${service.topicRoot}/enroll`;
  const how = { username: `enroll/${group.id}`, password: group.claimSecret ?? '', reconnectPeriod: 0 };
  for (const seed of seeds) {
    const next = random(seed);
    const request = codec.encode({ serialNumber: `C-${seed}`, fields: { a: [1, 'two', { three: null }] } });
    for (let n = 0; n < 6; n += 1) {
      const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${service.server.mqttPort}`, how, false);
      await client.subscribeAsync(`${root}/+`, { qos: 1 });
      const answer = nextMessage(client);
      client.publish(root, mutate(request, next), { qos: 1 });
      const { topic } = await answer;
      t.match(topic, /\/(rejected|accepted)$/);
      await client.endAsync(true);
    }
  }
});

t.test('keys that are guessed for one serial number after the other are limited as for one', async (t) => {
  const group = await newGroup(service, { proof: 'derivedKey' });
  const other = await newGroup(service, { proof: 'derivedKey' });
  const statuses: number[] = [];
  for (let n = 0; n < 30; n += 1) {
    // The key of another group, of another serial number, and none at all.
    const key = [derived(other.groupKey ?? '', `K-${n}`), derived(group.groupKey ?? '', `K-${n + 1}`), ''][n % 3];
    const headers = basic(`${group.id}/K-${n}`, key);
    statuses.push((await service.http('POST', path, { token: null, headers, body: {} })).status);
  }
  t.strictSame(new Set(statuses.slice(0, 20)), new Set([401]));
  t.strictSame(new Set(statuses.slice(21)), new Set([429]));
  t.equal(countStored(service, 'devices', `"serialNumber" LIKE 'K-%'`), 0);
  t.equal((await claim(service, await newGroup(service), { serialNumber: 'K-0' })).status, 200, 'other groups go on');
});

t.test('the CN of another device in a request, and a certificate that has ended, are worth nothing', async (t) => {
  const group = await newGroup(service, { issues: 'either', certificateAuthorityId: (await newIssuer()).id });
  const victim = await claim(service, group, { serialNumber: 'V-1' });
  const asked = openssl(t).request({ subject: `/CN=${victim.body.device.id}` });
  const thief = await claim(service, group, { serialNumber: 'V-2', csr: asked.csr });
  const { certificate: cert = '', username } = thief.body.credential;
  t.not(username, victim.body.device.id);
  const join = (as: string) => joinWith(t, service.mqttsPort, { cert, key: asked.key }, { username: as });
  t.not((await join(victim.body.device.id)).returnCode, 0, 'it is not the other device');
  t.equal((await join(username)).returnCode, 0);
  await connectOnce(service, victim.body);
  const list = `/api/v1/access/mqtt-certificates?accountId=${service.accountId}&entityId=${username}`;
  const { id, version } = present((await service.ok('GET', list)).mqttCertificates.results?.[0]);
  await service.ok('DELETE', `/api/v1/access/mqtt-certificates/${id}`, { headers: { etag: version } });
  t.not((await join(username)).returnCode, 0, 'its serial number is revoked');
});

t.test('of a thousand groups that are made at once a hundred are there', async (t) => {
  const own = await service.inNewAccount();
  t.teardown(() => own.close());
  const { id: deviceTemplateId } = await own.template();
  const statuses = new Map<number, number>();
  const names = Array.from({ length: 1000 }, (_, n) => `${n}`).values();
  const make = async () => {
    for (const name of names) {
      const body = { accountId: own.accountId, name, deviceTemplateId, proof: 'derivedKey' };
      const { status } = await own.http('POST', '/api/v1/enrollment-groups', { body });
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: 20 }, make));
  t.strictSame(Object.fromEntries(statuses), { 200: 100, 400: 900 });
});

t.end();
