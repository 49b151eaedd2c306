/** CAs that issue: their key and certificate, what they issue, how it ends, and their revocation list. */
import { createPublicKey, X509Certificate } from 'node:crypto';
import { CertificationRequest } from '@peculiar/asn1-csr';
import { AsnConvert } from '@peculiar/asn1-schema';
import * as asn1 from '@peculiar/asn1-x509';
import type { Test } from 'tap';
import { pemBlocks, pemOf } from '../../src/core/formats/pem.ts';
import { certificate } from '../broker/certificate.ts';
import { makeAuthority, makeCertificate, registerAuthority } from '../support/certificates.ts';
import { download, joinWith, openssl, type Requested } from '../support/openssl.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const day = 24 * 60 * 60_000;
const authorities = '/api/v1/access/certificate-authorities';
const certificates = '/api/v1/access/mqtt-certificates';
const publicUrl = 'https://devices.example.com';

let ahead = 0;
let service: Service;
t.before(async () => {
  service = await startService(t, {
    env: { ...certificate(t), SLIPWAY_PUBLIC_URL: publicUrl },
    clock: { now: () => Date.now() + ahead },
  });
});

const newDevice = () => service.create('/devices', 'device', { serialNumber: 'X' });
const newIssuer = (body: object = {}, token = service.admin) =>
  service.create(
    '/access/certificate-authorities',
    'certificateAuthority',
    { name: service.unique('CA'), issuing: true, ...body },
    token,
  );
const issueTo = (caId: string, body: object, token = service.admin) =>
  service.http('POST', `${authorities}/${caId}/issue`, { body, token });
const issued = async (caId: string, deviceId: string, { csr }: Requested, more: object = {}) => {
  const answer = await issueTo(caId, { deviceId, csr, ...more });
  if (answer.status !== 200) throw new Error(answer.text);
  return answer.body;
};
const refusal = (path: string, message: RegExp) => ({
  status: 400,
  body: { error: { code: 106, details: [{ path, message }] } },
});
const derOf = (pem: string) => pemBlocks(pem)[0]?.der ?? Buffer.alloc(0);
/** A public RSA key (SPKI) that nobody has the other half of. */
const rsaKeyOf = (bits: number) => {
  const modulus = (1n << BigInt(bits - 1)) | 1n;
  const n = Buffer.from(modulus.toString(16).padStart(2 * Math.ceil(bits / 8), '0'), 'hex').toString('base64url');
  return createPublicKey({ key: { kty: 'RSA', n, e: 'AQAB' }, format: 'jwk' }).export({ type: 'spki', format: 'der' });
};
const remove = (path: string, { id, version }: { id: string; version: string }) =>
  service.http('DELETE', `${path}/${id}`, { headers: { etag: version } });
/** OpenSSL's word on certificates of a CA, with the list that is there now. */
async function verdicts(t: Test, ca: { id: string; certificate: string }, leaves: string[]): Promise<string[]> {
  const shell = openssl(t);
  const { status, type, bytes } = await download(`${service.server.url}/api/v1/crl/${ca.id}`);
  t.equal(status, 200);
  t.equal(type, 'application/pkix-crl');
  shell.write('ca.pem', ca.certificate);
  shell.write('list.crl', bytes);
  shell.run('crl', '-inform', 'DER', '-in', 'list.crl', '-CAfile', 'ca.pem', '-noout');
  shell.run('crl', '-inform', 'DER', '-in', 'list.crl', '-out', 'list.pem');
  return leaves.map((leaf, at) => {
    try {
      const name = shell.write(`${at}.pem`, leaf);
      return shell.run('verify', '-crl_check', '-CAfile', 'ca.pem', '-CRLfile', 'list.pem', name).trim();
    } catch (error) {
      return String((error as { stderr: string }).stderr);
    }
  });
}

t.test('a CA that issues is made here: its key is sealed, its certificate is its own for ten years', async (t) => {
  const ca = await newIssuer({ name: 'Acme devices' });
  t.match(ca, {
    state: 'active',
    issuing: true,
    subject: 'CN=Acme devices',
    challenge: null,
    certificateRequest: null,
  });
  t.equal(ca.expires, ca.validTo);
  const x509 = new X509Certificate(ca.certificate);
  t.ok(x509.ca && x509.verify(x509.publicKey));
  t.match(x509.publicKey.asymmetricKeyDetails, { namedCurve: 'prime256v1' });
  t.equal(Math.round((Date.parse(ca.validTo) - Date.parse(ca.validFrom)) / day), 3650);
  const { sealedKey } = await service.server.ctx.registry.query
    .selectFrom('certificateAuthorities')
    .select('sealedKey')
    .where('id', '=', ca.id)
    .executeTakeFirstOrThrow();
  const kept = Buffer.from(sealedKey ?? '', 'base64');
  t.ok(kept.length > 100, 'there is a key');
  // Two bytes, as those that a DER key begins with, may be in any ciphertext by chance; the name of the curve is not.
  t.notOk(kept.includes('PRIVATE') || kept.includes(Buffer.from('06082a8648ce3d030107', 'hex')), 'but not in clear');
  t.notMatch(JSON.stringify(ca), /sealedKey|PRIVATE/);
  const given = await makeAuthority();
  const make = (body: object) =>
    service.http('POST', authorities, { body: { accountId: service.accountId, name: service.unique('CA'), ...body } });
  t.match(await make({ issuing: true, certificate: given.cert }), refusal('certificate', /not for a CA that issues/));
  t.match(await make({ issuing: true, createDevices: true }), refusal('createDevices', /not for a CA that issues/));
  t.match(await make({ request: true, certificate: given.cert }), refusal('request', /issuing/));
  t.match(await make({}), refusal('certificate', /required/));
});

t.test('a certificate is issued for a request, and lets the device in at once', async (t) => {
  const [ca, device, shell] = [await newIssuer(), await newDevice(), openssl(t)];
  const more = ['-addext', 'subjectAltName=DNS:evil.example.com', '-addext', 'basicConstraints=CA:TRUE'];
  const asked = shell.request({ subject: '/CN=somebody else', more });
  const { mqttCertificate, certificate: pem, chain } = await issued(ca.id, device.id, asked);
  t.match(mqttCertificate, { entityId: device.id, certificateAuthorityId: ca.id, certificate: pem });
  t.equal(mqttCertificate.expires, mqttCertificate.validTo);
  t.equal(chain, ca.certificate);
  shell.write('leaf.pem', pem);
  const text = shell.run('x509', '-in', 'leaf.pem', '-noout', '-text');
  t.match(text, new RegExp(`Subject: CN ?= ?${device.id}`), 'the subject of the request is ignored');
  for (const line of [
    /Basic Constraints: critical\s+CA:FALSE/,
    /Key Usage: critical\s+Digital Signature\s/,
    /Extended Key Usage:\s+TLS Web Client Authentication\s/,
    /Subject Key Identifier/,
    /Authority Key Identifier/,
    new RegExp(`URI:${publicUrl}/api/v1/crl/${ca.id}`),
  ])
    t.match(text, line);
  t.notMatch(text, /evil|CA:TRUE/, 'extensions of the request are ignored');
  const { serialNumber } = new X509Certificate(pem);
  t.ok(serialNumber.length > 26 && serialNumber.length <= 32, serialNumber);
  t.equal(mqttCertificate.serialNumber, serialNumber.toLowerCase().replace(/^0+/, ''));
  t.same(await verdicts(t, ca, [pem]), ['0.pem: OK']);
  const joined = await joinWith(t, service.mqttsPort, { cert: pem, key: asked.key });
  t.equal(joined.returnCode, 0);
  t.equal((await service.ok('GET', `/api/v1/devices/${device.id}`)).device.provisioningState, 'activated');
  const again = await issued(ca.id, device.id, asked);
  t.not(again.certificate, pem, 'nothing ends by another one');
  t.equal((await joinWith(t, service.mqttsPort, { cert: pem, key: asked.key }, { clientId: 'b' })).returnCode, 0);
  const list = `${certificates}?accountId=${service.accountId}&certificateAuthorityId=${ca.id}`;
  t.equal((await service.ok('GET', list)).mqttCertificates.results.length, 2);
  const soon = new Date(Date.now() + ahead + 400 * day).toISOString();
  t.equal((await service.ok('GET', `${list}&expiresBefore=${soon}`)).mqttCertificates.results.length, 2);
  t.equal((await service.ok('GET', `${list}&expiresBefore=${ca.created}`)).mqttCertificates.results.length, 0);
});

t.test('keys of five kinds are taken; weak ones, false signatures and junk are refused', async (t) => {
  const [ca, device, shell] = [await newIssuer(), await newDevice(), openssl(t)];
  for (const kind of ['P-256', 'P-384', 'P-521', 'Ed25519', 'RSA-2048'] as const) {
    const asked = shell.request({ kind });
    const { certificate: cert } = await issued(ca.id, device.id, asked);
    const { returnCode } = await joinWith(t, service.mqttsPort, { cert, key: asked.key }, { clientId: kind });
    t.equal(returnCode, 0, kind);
  }
  const refused = async (csr: string, message: RegExp) =>
    t.match(await issueTo(ca.id, { deviceId: device.id, csr }), refusal('csr', message));
  await refused(shell.request({ kind: 'RSA-1024' }).csr, /has an RSA key of fewer than 2048 bits/);
  const asked = shell.request();
  const der = Buffer.from(asked.csr.replace(/-----.*-----/g, ''), 'base64');
  t.equal((await issueTo(ca.id, { deviceId: device.id, csr: der.toString('base64') })).status, 200, 'base64 of DER');
  const changed = Buffer.from(der);
  changed[changed.length - 1] = (changed.at(-1) ?? 0) ^ 1;
  await refused(changed.toString('base64'), /not signed by its own key/);
  // The frame is not signed: another tag, another length.
  for (const [at, bits] of [
    [0, 0x80],
    [2, 1],
  ] as const) {
    const frame = Buffer.from(der);
    frame[at] = (frame[at] ?? 0) ^ bits;
    await refused(frame.toString('base64'), /must be a certificate request/);
  }
  await refused(shell.request({ more: ['-sha1'] }).csr, /not signed/);
  for (const seed of [1, 2, 3, 4, 5])
    for (let round = 0; round < 10; round += 1) {
      const junk = Buffer.from(der);
      // A byte by the seed, or the end cut off.
      const at = (seed * 7919 + round * 104_729) % junk.length;
      junk[at] = (junk[at] ?? 0) ^ (1 + ((seed * 31 + round) % 255));
      const csr = (round % 3 === 0 ? junk.subarray(0, at) : junk).toString('base64') || '=';
      const answer = await issueTo(ca.id, { deviceId: device.id, csr });
      t.equal(answer.status, 400, `seed ${seed}, round ${round}`);
    }
  await refused(`${asked.csr}${'x'.repeat(16_384)}`, /16384/);
});

t.test('the bounds of an RSA key are the same in a request and in a certificate', async (t) => {
  const [ca, device, shell] = [await newIssuer(), await newDevice(), openssl(t)];
  shell.run(...'req -x509 -newkey rsa:2048 -nodes -subj /CN=x -keyout rsa.key -out rsa.pem'.split(' '));
  const request = AsnConvert.parse(derOf(shell.request({ kind: 'RSA-2048' }).csr), CertificationRequest);
  const own = AsnConvert.parse(derOf(shell.read('rsa.pem').toString()), asn1.Certificate);
  for (const [bits, inRequest, status] of [
    [2047, /fewer than 2048/, 400],
    // The key is not the one that has signed: only a request has to show that it has.
    [8192, /not signed by its own key/, 200],
    [8193, /more than 8192/, 400],
  ] as const) {
    const key = AsnConvert.parse(rsaKeyOf(bits), asn1.SubjectPublicKeyInfo);
    request.certificationRequestInfo.subjectPKInfo = key;
    own.tbsCertificate.subjectPublicKeyInfo = key;
    const csr = Buffer.from(AsnConvert.serialize(request)).toString('base64');
    t.match(await issueTo(ca.id, { deviceId: device.id, csr }), refusal('csr', inRequest), `${bits} in a request`);
    const certificate = pemOf('CERTIFICATE', new Uint8Array(AsnConvert.serialize(own)));
    const body = { accountId: service.accountId, entityId: device.id, entityType: 'device', certificate };
    const answer = await service.http('POST', certificates, { body });
    t.equal(answer.status, status, `${bits} in a certificate`);
    if (status === 400) t.match(answer, refusal('certificate', inRequest));
  }
});

t.test('blocks before a request are skipped; explicit parameters of a curve are refused everywhere', async (t) => {
  const [ca, device, shell] = [await newIssuer(), await newDevice(), openssl(t)];
  shell.run('ecparam', '-name', 'prime256v1', '-genkey', '-out', 'with-parameters.key');
  shell.run('req', '-new', '-key', 'with-parameters.key', '-subj', '/CN=x', '-out', 'plain.csr');
  const [parameters = ''] = shell.read('with-parameters.key').toString().split('-----BEGIN EC PRIVATE');
  t.match(parameters, /EC PARAMETERS/);
  const csr = `${parameters}\n${shell.read('plain.csr')}`;
  t.equal((await issueTo(ca.id, { deviceId: device.id, csr })).status, 200);
  shell.run('ecparam', '-name', 'prime256v1', '-param_enc', 'explicit', '-genkey', '-noout', '-out', 'explicit.key');
  shell.run('req', '-new', '-key', 'explicit.key', '-subj', '/CN=x', '-out', 'explicit.csr');
  const explicit = { deviceId: device.id, csr: shell.read('explicit.csr').toString() };
  t.match(await issueTo(ca.id, explicit), refusal('csr', /explicit/));
  shell.run('req', '-x509', '-key', 'explicit.key', '-subj', '/CN=x', '-out', 'explicit.pem');
  const pem = shell.read('explicit.pem').toString();
  const own = { accountId: service.accountId, entityId: device.id, entityType: 'device', certificate: pem };
  t.match(await service.http('POST', certificates, { body: own }), refusal('certificate', /explicit/));
  const authority = { accountId: service.accountId, name: service.unique('CA'), certificate: pem };
  t.match(await service.http('POST', authorities, { body: authority }), refusal('certificate', /explicit/));

  // Nor does it connect with one that a registered CA has signed.
  const made = await makeAuthority({ subject: 'CN=Outside' });
  await registerAuthority(service, made);
  shell.write('outside.pem', made.cert);
  shell.write('outside.key', made.key);
  for (const [key, code] of [
    ['with-parameters.key', 0],
    ['explicit.key', 4],
  ] as const) {
    shell.run('req', '-new', '-key', key, '-subj', `/CN=${device.id}`, '-out', 'leaf.csr');
    shell.run('x509', '-req', '-in', 'leaf.csr', '-CA', 'outside.pem', '-CAkey', 'outside.key', '-out', 'leaf.pem');
    const identity = { cert: shell.read('leaf.pem').toString(), key: shell.read(key).toString() };
    t.equal((await joinWith(t, service.mqttsPort, identity, { clientId: key })).returnCode, code, key);
  }
});

t.test(
  'stations issue for their own devices, other callers not at all, and each account with its own CAs',
  async (t) => {
    const [ca, device, shell] = [await newIssuer(), await newDevice(), openssl(t)];
    const template = await service.template();
    const station = await service.create('/applications', 'application', {
      name: service.unique('Station'),
      kind: 'station',
      deviceTemplateId: template.id,
      maxDevices: 1,
      expiresAt: '2999-01-01',
    });
    const login = { appId: station.id, appToken: station.appToken, accountId: service.accountId };
    const { jwt: token } = await service.ok('POST', '/api/v1/auth/login-application', { token: null, body: login });
    const { csr } = shell.request();
    const body = { accountId: service.accountId, serialNumber: 'S', deviceTemplateId: template.id };
    const own = (await service.ok('POST', '/api/v1/devices', { body, token })).device;
    t.equal((await issueTo(ca.id, { deviceId: own.id, csr }, token)).status, 200);
    t.match(await issueTo(ca.id, { deviceId: device.id, csr }, token), { status: 400, body: { error: { code: 102 } } });
    t.match(await issueTo(ca.id, { deviceId: station.id, csr }), { status: 400, body: { error: { code: 102 } } });
    const { accountId, admin } = await service.account();
    t.match(await issueTo(ca.id, { deviceId: device.id, csr }, admin), { status: 404 });
    const theirs = await newIssuer({ accountId }, admin);
    t.match(await issueTo(theirs.id, { deviceId: device.id, csr }, admin), {
      status: 400,
      body: { error: { code: 102 } },
    });
    for (let at = 0; at < 10; at += 1) await issued(ca.id, device.id, shell.request());
    t.match(await issueTo(ca.id, { deviceId: device.id, csr }), refusal('deviceId', /10 certificates/));
  },
);

t.test('a deleted certificate ends its connections before the answer, and is on the list at once', async (t) => {
  const [ca, device, shell] = [await newIssuer(), await newDevice(), openssl(t)];
  const [lost, kept] = [shell.request(), shell.request()];
  const first = await issued(ca.id, device.id, lost);
  const second = await issued(ca.id, device.id, kept);
  const leaves = [first.certificate, second.certificate];
  t.same(await verdicts(t, ca, leaves), ['0.pem: OK', '1.pem: OK']);
  const joined = await joinWith(t, service.mqttsPort, { cert: first.certificate, key: lost.key });
  const other = await joinWith(t, service.mqttsPort, { cert: second.certificate, key: kept.key }, { clientId: 'b' });
  t.same([joined.returnCode, other.returnCode], [0, 0]);
  const { headers } = await remove(certificates, first.mqttCertificate);
  t.equal(headers.get('platform-revocation'), 'connections=1; subscriptions=0');
  await joined.closed;
  t.match(await verdicts(t, ca, leaves), [/certificate revoked/, '1.pem: OK']);
  t.equal((await joinWith(t, service.mqttsPort, { cert: first.certificate, key: lost.key })).returnCode, 4);
  t.equal((await joinWith(t, service.mqttsPort, { cert: second.certificate, key: kept.key })).returnCode, 0);
  ahead += 366 * day;
  t.teardown(() => {
    ahead = 0;
  });
  const { bytes } = await download(`${service.server.url}/api/v1/crl/${ca.id}`);
  t.match(shell.run('crl', '-inform', 'DER', '-in', shell.write('old.crl', bytes), '-noout', '-text'), /No Revoked/);
});

t.test('what hardware had that was replaced is on the list, too; so is what a deleted device had', async (t) => {
  const [ca, device, shell] = [await newIssuer(), await newDevice(), openssl(t)];
  const { certificate: leaf } = await issued(ca.id, device.id, shell.request());
  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  const replacement = { headers: { etag: version }, body: { serialNumber: 'Y' } };
  await service.ok('POST', `/api/v1/devices/${device.id}/replace`, replacement);
  t.match(await verdicts(t, ca, [leaf]), [/certificate revoked/]);
});

t.test('what a CA has issued ends with it', async (t) => {
  const [ca, device, shell] = [await newIssuer(), await newDevice(), openssl(t)];
  const asked = shell.request();
  const { certificate: cert } = await issued(ca.id, device.id, asked);
  const joined = await joinWith(t, service.mqttsPort, { cert, key: asked.key });
  const { headers } = await remove(authorities, ca);
  t.equal(headers.get('platform-revocation'), 'connections=1; subscriptions=0');
  await joined.closed;
  t.equal((await joinWith(t, service.mqttsPort, { cert, key: asked.key })).returnCode, 4);
  t.match(await issueTo(ca.id, { deviceId: device.id, csr: asked.csr }), { status: 410 });
});

t.test("a company's CA signs the request; until then nothing is issued, and nothing outlives the CA", async (t) => {
  const [device, shell] = [await newDevice(), openssl(t)];
  const ca = await newIssuer({ name: 'Below', request: true });
  t.equal(ca.state, 'pending');
  const asked = shell.request();
  t.match(await issueTo(ca.id, { deviceId: device.id, csr: asked.csr }), refusal('id', /PUT/));
  t.equal((await download(`${service.server.url}/api/v1/crl/${ca.id}`)).status, 404);
  shell.run(
    'req',
    '-x509',
    '-newkey',
    'ed25519',
    '-nodes',
    '-subj',
    '/CN=Root',
    '-keyout',
    'root.key',
    '-out',
    'root.pem',
  );
  shell.write('ca.csr', ca.certificateRequest ?? '');
  shell.write('ca.ext', 'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n');
  const signing = ['-req', '-in', 'ca.csr', '-CA', 'root.pem', '-CAkey', 'root.key'];
  shell.run('x509', ...signing, '-days', '3', '-extfile', 'ca.ext', '-out', 'ca.pem');
  shell.run('x509', ...signing, '-days', '3', '-out', 'no-ca.pem');
  const put = (text: string, etag = ca.version) =>
    service.http('PUT', `${authorities}/${ca.id}/certificate`, { headers: { etag }, body: { certificate: text } });
  t.match(await put(shell.read('no-ca.pem').toString()), refusal('certificate', /CA/));
  t.match(await put((await makeAuthority()).cert), refusal('certificate', /another key/));
  const answer = await put(shell.read('ca.pem').toString());
  t.equal(answer.status, 200);
  t.match(answer.body.certificateAuthority, { state: 'active', certificateRequest: null });
  t.match(await put(shell.read('ca.pem').toString()), { status: 412 });
  const { certificate: cert, mqttCertificate } = await issued(ca.id, device.id, asked, { certificateDays: 30 });
  t.equal(mqttCertificate.expires, answer.body.certificateAuthority.expires, 'the end of the CA is nearer');
  shell.write('leaf.pem', cert);
  t.equal(shell.run('verify', '-CAfile', 'root.pem', '-untrusted', 'ca.pem', 'leaf.pem').trim(), 'leaf.pem: OK');
  t.equal((await joinWith(t, service.mqttsPort, { cert, key: asked.key })).returnCode, 0);
  const registered = await service.create('/access/certificate-authorities', 'certificateAuthority', {
    name: service.unique('CA'),
    certificate: (await makeAuthority()).cert,
  });
  t.match(await issueTo(registered.id, { deviceId: device.id, csr: asked.csr }), refusal('id', /not a CA that issues/));
});

t.test('nobody gets in by a certificate that names an issuing CA, and was not issued by it', async (t) => {
  const [ca, device] = [await newIssuer({ name: 'Named' }), await newDevice()];
  const forged = await makeCertificate({
    subject: `CN=${device.id}`,
    issuer: await makeAuthority({ subject: 'CN=Named' }),
  });
  t.equal((await joinWith(t, service.mqttsPort, forged)).returnCode, 4);
  await remove(authorities, ca);
});
t.end();
