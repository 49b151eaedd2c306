import { X509Certificate } from 'node:crypto';
import { request } from 'node:https';
import mqtt from 'mqtt';
import type { Test } from 'tap';
import { certificate } from '../broker/certificate.ts';
import type { Ok } from '../support/answers.ts';
import {
  type Made as MadeCertificate,
  makeAuthority,
  makeCertificate,
  registerAuthority,
} from '../support/certificates.ts';
import { countEnrollmentLookups } from '../support/faults.ts';
import { joinWith, openssl, type Requested } from '../support/openssl.ts';
import { part } from '../support/part.ts';
import { type Made, nextMessage, present, type Service, startService } from '../support/service.ts';
import { ask, basic, claim, connectOnce, newGroup } from './devices.ts';

const t = await part(import.meta);

type Answer = Ok<'POST', '/api/v1/enroll'>;

let service: Service;
let issuer: Made<'certificateAuthority'>;
t.before(async () => {
  service = await startService(t, {
    env: {
      ...certificate(t),
      SLIPWAY_MQTT_FAILED_CONNECTS_PER_ADDRESS: '0',
      SLIPWAY_MQTT_FAILED_CONNECTS_PER_PRINCIPAL: '0',
    },
  });
  issuer = await service.create('/access/certificate-authorities', 'certificateAuthority', {
    name: 'Issuer',
    issuing: true,
  });
});

const refusal = (message: RegExp) => ({ status: 403, body: { error: { code: 21, message } } });
const issuing = (body: object = {}) =>
  newGroup(service, { issues: 'certificate', certificateAuthorityId: issuer.id, ...body });

/** Whether a certificate lets its device in: the return code of CONNACK. */
const join = (t: Test, { credential }: Pick<Answer, 'credential'>, { key }: Pick<Requested, 'key'>) =>
  joinWith(t, service.mqttsPort, { cert: `${credential.certificate}${credential.chain}`, key }).then(
    ({ returnCode }) => returnCode,
  );

/** One exchange over TLS with a client certificate. */
function enrollWith(
  { cert, key }: { cert: string; key: string },
  body: object,
  headers: Record<string, string> = {},
): Promise<{ status: number; body: Answer & { error: { code: number; message: string } } }> {
  const json = JSON.stringify(body);
  const sent = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(json), ...headers };
  const options = { method: 'POST', headers: sent, cert, key, rejectUnauthorized: false, agent: false } as const;
  return new Promise((resolve, reject) => {
    const asking = request(new URL('/api/v1/enroll', service.server.url), options, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (chunk) => {
        text += chunk;
      });
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, body: JSON.parse(text) }));
    });
    asking.on('error', reject);
    asking.end(json);
  });
}

t.test('a device gets a certificate for its key, and connects with it', async (t) => {
  const group = await issuing({ certificateDays: 30 });
  const asked = openssl(t).request({ subject: '/CN=another device' });
  const { status, body, text } = await claim(service, group, { serialNumber: 'C-1', csr: asked.csr });
  t.equal(status, 200, text);
  const { credential, device, broker } = body;
  t.same(Object.keys(credential).sort(), ['certificate', 'chain', 'expires', 'username']);
  const x509 = new X509Certificate(present(credential.certificate));
  t.match(x509.subject, new RegExp(device.id));
  t.equal(credential.chain, issuer.certificate);
  t.equal(Date.parse(x509.validTo), Date.parse(present(credential.expires)));
  t.ok(Math.abs(Date.parse(x509.validTo) - Date.now() - 30 * 86_400_000) < 120_000);
  t.equal(broker.ports.mqtts, service.mqttsPort);
  t.equal(await join(t, body, asked), 0);
  const { device: stored } = await service.ok('GET', `/api/v1/devices/${device.id}`);
  t.equal(stored.provisioningState, 'activated');
});

t.test('a CSR for the key of the present certificate gets that certificate, and nothing ends', async (t) => {
  const group = await issuing();
  const shell = openssl(t);
  const asked = shell.request();
  const first = await claim(service, group, { serialNumber: 'S-1', csr: asked.csr });
  t.equal(await join(t, first.body, asked), 0, 'it has connected');
  const der = Buffer.from(asked.csr.replace(/-----[^-]+-----|\s/g, ''), 'base64').toString('base64');
  for (const csr of [asked.csr, der, shell.request({ keyOf: asked, subject: '/CN=x' }).csr]) {
    const again = await claim(service, group, { serialNumber: 'S-1', csr });
    t.equal(again.body.credential?.certificate, first.body.credential.certificate, again.text);
  }
  t.equal(await join(t, first.body, asked), 0);
  const other = shell.request();
  t.match(await claim(service, group, { serialNumber: 'S-1', csr: other.csr }), refusal(/connected already/));
});

t.test('what a group has made for a serial number is looked up once, whatever is asked for', async (t) => {
  const group = await issuing({ issues: 'either' });
  const [one, two] = [openssl(t).request(), openssl(t).request()];
  const looks = countEnrollmentLookups(t, service, 'POST /api/v1/enroll');
  for (const [what, csr] of Object.entries({ made: one.csr, present: one.csr, replaced: two.csr, secret: undefined })) {
    const before = looks();
    const { status, text } = await claim(service, group, { serialNumber: 'L-1', ...(csr && { csr }) });
    t.equal(status, 200, text);
    t.equal(looks() - before, 1, what);
  }
});

t.test('a certificate that was never used is replaced; a former one ends with the next', async (t) => {
  const group = await issuing({ proof: 'derivedKey' });
  const shell = openssl(t);
  const [one, two] = [shell.request(), shell.request()];
  const first = await ask(service, group, 'R-1', { csr: one.csr });
  const second = await ask(service, group, 'R-1', { csr: two.csr });
  t.equal(second.body.device.id, first.body.device.id);
  t.not(await join(t, first.body, one), 0);
  t.equal(await join(t, second.body, two), 0);
  const again = await ask(service, group, 'R-1', { csr: one.csr });
  t.not(again.body.credential.certificate, first.body.credential.certificate);
  t.equal(await join(t, again.body, one), 0);
  t.not(await join(t, second.body, two), 0, 'the former one has ended');
});

t.test('a group that issues either gives a certificate for a CSR, and a secret without one', async (t) => {
  const group = await issuing({ issues: 'either', proof: 'derivedKey' });
  const asked = openssl(t).request();
  const secret = await ask(service, group, 'E-1');
  await connectOnce(service, secret.body);
  const both = await ask(service, group, 'E-1', { csr: asked.csr });
  t.equal(both.body.device.id, secret.body.device.id);
  t.equal(await join(t, both.body, asked), 0);
  await t.rejects(connectOnce(service, secret.body), 'the secret has ended');
  const back = await ask(service, group, 'E-1');
  await connectOnce(service, back.body);
  t.not(await join(t, both.body, asked), 0, 'the certificate has ended');
});

t.test('a bad request for a certificate is 400; a CA that cannot sign refuses', async (t) => {
  const group = await issuing();
  const shell = openssl(t);
  const { csr } = shell.request();
  const bytes = Buffer.from(csr.replace(/-----[^-]+-----|\s/g, ''), 'base64');
  bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
  const junk = Array.from({ length: 5 }, (_, seed) => Buffer.alloc(300, seed * 7 + 0x30).toString('base64'));
  for (const bad of [
    undefined,
    '',
    'no csr',
    bytes.toString('base64'),
    shell.request({ kind: 'RSA-1024' }).csr,
    ...junk,
  ])
    t.match(await claim(service, group, { serialNumber: 'B-1', csr: bad }), {
      status: 400,
      body: { error: { code: 106, details: [{ path: 'csr' }] } },
    });
  const { id } = await service.create('/access/certificate-authorities', 'certificateAuthority', {
    ...{ name: 'Short', issuing: true },
  });
  const own = await issuing({ certificateAuthorityId: id });
  const { certificateAuthority } = await service.ok('GET', `/api/v1/access/certificate-authorities/${id}`);
  const headers = { etag: certificateAuthority.version };
  await service.ok('DELETE', `/api/v1/access/certificate-authorities/${id}`, { headers });
  t.match(await claim(service, own, { serialNumber: 'B-2', csr }), refusal(/cannot issue/));
});

t.test('a manufacturer’s certificate is a proof: its serial number is what its CA says', async (t) => {
  const ca = await makeAuthority({ subject: 'CN=Maker' });
  const authority = await registerAuthority(service, ca, { serialNumberAttribute: 'OU' });
  const group = await newGroup(service, { proof: 'certificate', proofAuthorityId: authority.id });
  const made = await makeCertificate({ subject: 'CN=unit, OU=M-1', issuer: ca });
  const groupId = group.id;
  const first = await enrollWith(made, { groupId });
  t.match(first, { status: 200, body: { device: { serialNumber: 'M-1' } } });
  await connectOnce(service, first.body);
  const again = await enrollWith(made, { groupId, serialNumber: 'M-1' });
  t.match(again, { status: 200, body: { device: { id: first.body.device.id } } }, 'the same key is the device itself');
  await connectOnce(service, again.body);
  t.match(await enrollWith(made, { groupId, serialNumber: 'M-2' }), refusal(/not that of the proof/));

  const changed = await makeCertificate({ subject: 'CN=unit, OU=M-1', issuer: ca });
  t.match(await enrollWith(changed, { groupId }), refusal(/connected already/), 'a key that changed is not');
  const previousSecret = again.body.credential.secret;
  t.equal((await enrollWith(changed, { groupId, previousSecret })).status, 200);

  const stranger = await makeCertificate({
    subject: 'CN=unit, OU=M-3',
    issuer: await makeAuthority({ subject: 'CN=Maker' }),
  });
  const expired = await makeCertificate({ subject: 'CN=unit, OU=M-3', issuer: ca, from: 0, to: Date.now() - 1000 });
  const nameless = await makeCertificate({ subject: 'CN=unit', issuer: ca });
  for (const wrong of [stranger, expired, nameless])
    t.match(await enrollWith(wrong, { groupId }), { status: 401, body: { error: { code: 30 } } });
  t.match(await enrollWith(made, {}), { status: 401 }, 'without a group');
  t.match(await claim(service, group, { serialNumber: 'M-4' }), { status: 401 }, 'Basic is no such proof');
  const { refusals } = await service.ok('GET', `/api/v1/enrollment-groups/${groupId}/refusals`);
  t.ok(refusals.results?.some(({ reason }) => /no OU/.test(reason)));
});

t.test('the old certificate in the handshake proves a device besides Basic', async (t) => {
  const group = await issuing();
  const shell = openssl(t);
  const [one, two] = [shell.request(), shell.request()];
  const first = await claim(service, group, { serialNumber: 'O-1', csr: one.csr });
  t.equal(await join(t, first.body, one), 0);
  const { certificate: cert = '' } = first.body.credential;
  const old: Pick<MadeCertificate, 'cert' | 'key'> = { cert, key: one.key };
  const headers = basic(group.id, group.claimSecret);
  const body = { serialNumber: 'O-1', csr: two.csr };
  const moved = await enrollWith(old, body, headers);
  t.equal(moved.status, 200, moved.body.error?.message);
  const lost = await enrollWith(old, { ...body, csr: shell.request().csr }, headers);
  t.equal(lost.status, 200, 'until the new one has connected');
  t.match(await claim(service, group, body), refusal(/connected already/));
});

t.test('over MQTT the certificate of the handshake is the proof, without a password', async (t) => {
  const ca = await makeAuthority({ subject: 'CN=MQTT maker' });
  const authority = await registerAuthority(service, ca);
  const group = await issuing({ proof: 'certificate', proofAuthorityId: authority.id });
  const made = await makeCertificate({ subject: 'CN=Q-1', issuer: ca });
  const asked = openssl(t).request();
  const how = { username: `enroll/${group.id}`, reconnectPeriod: 0, rejectUnauthorized: false };
  const client = await mqtt.connectAsync(`mqtts://127.0.0.1:${service.mqttsPort}`, { ...how, ...made }, false);
  t.teardown(() => client.endAsync(true));
  await client.subscribeAsync(`${service.topicRoot}/enroll/+`, { qos: 1 });
  const answer = nextMessage(client);
  client.publish(`${service.topicRoot}/enroll`, JSON.stringify({ csr: asked.csr }), { qos: 1 });
  const { topic, text } = await answer;
  t.match(topic, /accepted$/, text);
  t.equal(await join(t, JSON.parse(text), asked), 0);
});

t.end();
