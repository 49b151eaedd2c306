/** Devices that speak EST (RFC 7030): OpenSSL makes the requests and reads the answers, curl sends them. */
import { execFile } from 'node:child_process';
import { generateKeyPairSync, sign, X509Certificate } from 'node:crypto';
import { promisify } from 'node:util';
import type { Test } from 'tap';
import { certificate } from '../broker/certificate.ts';
import { makeAuthority, makeCertificate, registerAuthority } from '../support/certificates.ts';
import { joinWith, type Openssl, openssl, type Requested } from '../support/openssl.ts';
import { part } from '../support/part.ts';
import { type Made, present, type Service, startService } from '../support/service.ts';
import { derived, newGroup } from './devices.ts';

const t = await part(import.meta);

const run = promisify(execFile);
/** A body of the standard: DER in base64, with lines. */
const bodyOf = ({ csr }: Pick<Requested, 'csr'>) => csr.replace(/-----[^-]+-----\n/g, '');

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
    ...{ name: 'Issuer', issuing: true },
  });
});

const issuing = (body: object = {}) =>
  newGroup(service, { issues: 'certificate', certificateAuthorityId: issuer.id, ...body });

interface Asking {
  user?: string;
  body?: string;
  type?: string;
  identity?: { cert: string; key: string };
  more?: string[];
}

/** What curl gets from an operation of a group. */
async function curl(shell: Openssl, groupId: string, operation: string, asking: Asking = {}) {
  const { user, body, type = 'application/pkcs10', identity, more = [] } = asking;
  const url = `${service.server.url}/.well-known/est/${groupId}/${operation}`;
  const { stdout } = await run(
    'curl',
    [
      ...['-sS', '-k', '-i', url, ...more],
      ...(user === undefined ? [] : ['-u', user]),
      ...(body === undefined ? [] : ['-H', `Content-Type: ${type}`, '--data-binary', body]),
      ...(identity
        ? ['--cert', shell.write('own.pem', identity.cert), '--key', shell.write('own.key', identity.key)]
        : []),
    ],
    { cwd: shell.directory },
  );
  const [head = '', text = ''] = stdout.split('\r\n\r\n');
  return { status: Number(head.split(' ')[1]), head: head.toLowerCase(), text };
}

/** The certificates of an answer, as OpenSSL reads them: base64, then PKCS#7. */
function certificatesIn(
  shell: Openssl,
  { status, head, text }: { status: number; head: string; text: string },
): string[] {
  if (status !== 200) throw new Error(`${status} ${text}`);
  if (!/content-type: application\/pkcs7-mime; smime-type=certs-only/.test(head)) throw new Error(head);
  shell.write('answer.b64', text);
  shell.run('base64', '-d', '-A', '-in', 'answer.b64', '-out', 'answer.der');
  const printed = shell.run('pkcs7', '-inform', 'DER', '-in', 'answer.der', '-print_certs');
  return printed.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\n/g) ?? [];
}

/** A request, DER, whose subject has one attribute, with a value of this tag. */
function requestOf(type: string, tag: number, content: Buffer): Buffer {
  const element = (number: number, ...parts: Buffer[]) => {
    const body = Buffer.concat(parts);
    const length = body.length < 128 ? [body.length] : [0x82, body.length >> 8, body.length & 0xff];
    return Buffer.concat([Buffer.from([number, ...length]), body]);
  };
  const [set, sequence] = [0x31, 0x30];
  const oid = (dotted: string) => {
    const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number);
    return element(6, Buffer.from([40 * first + second, ...rest]));
  };
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const name = element(sequence, element(set, element(sequence, oid(type), element(tag, content))));
  const spki = publicKey.export({ type: 'spki', format: 'der' });
  const info = element(sequence, Buffer.from([2, 1, 0]), name, spki, Buffer.from([0xa0, 0]));
  const signature = Buffer.concat([Buffer.alloc(1), sign(null, info, privateKey)]);
  return element(sequence, info, element(sequence, element(6, Buffer.from([0x2b, 0x65, 0x70]))), element(3, signature));
}

const join = (t: Test, cert: string, { key }: Pick<Requested, 'key'>) =>
  joinWith(t, service.mqttsPort, { cert, key }).then(({ returnCode }) => returnCode);

t.test('a device reads the CA, enrolls with the claim secret, connects and renews', async (t) => {
  const shell = openssl(t);
  const group = await issuing({ certificateDays: 30 });
  const user = `${group.id}:${group.claimSecret}`;

  const authorities = await curl(shell, group.id, 'cacerts');
  const [authority = ''] = certificatesIn(shell, authorities);
  t.equal(new X509Certificate(authority).fingerprint256, new X509Certificate(issuer.certificate).fingerprint256);
  t.match(await curl(shell, group.id, 'csrattrs'), { status: 204, text: '' });

  const asked = shell.request({ subject: '/CN=SN-1/O=somebody' });
  const challenged = await curl(shell, group.id, 'simpleenroll', { body: bodyOf(asked) });
  t.match(challenged, { status: 401, head: /www-authenticate: basic realm=/ });
  const answer = await curl(shell, group.id, 'simpleenroll', { user, body: bodyOf(asked) });
  t.match(answer.head, /cache-control: no-store/);
  const all = certificatesIn(shell, answer);
  t.equal(all.length, 1, 'the certificate alone');
  const [cert = ''] = all;
  const x509 = new X509Certificate(cert);
  t.ok(x509.verify(new X509Certificate(authority).publicKey));
  const { devices } = await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&serialNumber=SN-1`);
  const device = present(devices.results?.[0]);
  t.equal(x509.subject, `CN=${device.id}`);
  t.equal(await join(t, cert, asked), 0);
  const again = await curl(shell, group.id, 'simpleenroll', { user, body: bodyOf(asked).replaceAll('\n', '') });
  t.equal(certificatesIn(shell, again)[0], cert, 'the same key gets the same certificate');

  const next = shell.request({ subject: '/CN=whatever it says' });
  const identity = { cert, key: asked.key };
  t.equal((await curl(shell, group.id, 'simplereenroll', { body: bodyOf(next) })).status, 401);
  const renewed = await curl(shell, group.id, 'simplereenroll', { identity, body: bodyOf(next) });
  const [second = ''] = certificatesIn(shell, renewed);
  t.equal(new X509Certificate(second).subject, `CN=${device.id}`, 'the subject does not matter');
  t.equal(await join(t, cert, asked), 0, 'the former one goes on until the new one has connected');
  t.equal(await join(t, second, next), 0);
  t.not(await join(t, cert, asked), 0);
});

t.test(
  'the serial number is the serialNumber of the subject before its CN, and has to agree with the proof',
  async (t) => {
    const shell = openssl(t);
    const group = await issuing({ proof: 'derivedKey' });
    const user = `${group.id}/AC:DE:48:1:${derived(group.groupKey ?? '', 'AC:DE:48:1')}`;
    const enroll = (subject: string) =>
      curl(shell, group.id, 'simpleenroll', { user, body: bodyOf(shell.request({ subject })) });
    certificatesIn(shell, await enroll('/CN=other/serialNumber=AC:DE:48:1'));
    t.match(await enroll('/CN=AC:DE:48:1/serialNumber=AC:DE:48:2'), { status: 403, text: /not that of the proof/ });
    certificatesIn(shell, await enroll('/CN=AC:DE:48:1'));
    const claimed = await issuing();
    const nameless = {
      user: `${claimed.id}:${claimed.claimSecret}`,
      body: bodyOf(shell.request({ subject: '/O=nobody' })),
    };
    t.match(await curl(shell, claimed.id, 'simpleenroll', nameless), { status: 400, text: /serialNumber/ });
    const { refusals } = await service.ok('GET', `/api/v1/enrollment-groups/${group.id}/refusals`);
    t.match(refusals.results, [{ serialNumber: 'AC:DE:48:2', proven: true }]);
  },
);

t.test('a serial number is the text of its attribute, whatever kind of string it is', async (t) => {
  const shell = openssl(t);
  const group = await issuing();
  const user = `${group.id}:${group.claimSecret}`;
  const enroll = (type: string, tag: number, content: Buffer) =>
    curl(shell, group.id, 'simpleenroll', { user, body: requestOf(type, tag, content).toString('base64') });
  const serialNumber = '2.5.4.5';
  const utf16 = (text: string) => Buffer.from(text, 'utf16le').swap16();
  const utf32 = (text: string) => Buffer.concat([...text].map((one) => Buffer.concat([Buffer.alloc(2), utf16(one)])));
  for (const [name, type, tag, content] of [
    ['1712000', serialNumber, 18, Buffer.from('1712000')],
    ['1712001', '2.5.4.3', 18, Buffer.from('1712001')],
    ['VISIBLE-1', serialNumber, 26, Buffer.from('VISIBLE-1')],
    ['Gerät-1', serialNumber, 30, utf16('Gerät-1')],
    ['Gerät-2', serialNumber, 28, utf32('Gerät-2')],
    ['Gerät-3', serialNumber, 12, Buffer.from('Gerät-3')],
    ['IA5-1', serialNumber, 22, Buffer.from('IA5-1')],
    ['BLANK-1', serialNumber, 12, Buffer.from('\ufeff BLANK-1\u00a0\r')],
    ['BLANK-2', '2.5.4.3', 19, Buffer.from(' BLANK-2 ')],
  ] as const) {
    certificatesIn(shell, await enroll(type, tag, content));
    const path = `/api/v1/devices?accountId=${service.accountId}&serialNumber=${encodeURIComponent(name)}` as const;
    t.match((await service.ok('GET', path)).devices.results, [{ serialNumber: name }], `tag ${tag}`);
  }
  for (const [tag, content] of [
    [4, Buffer.from('octets')],
    [2, Buffer.from([1])],
    [12, Buffer.from([0xff])],
    [30, Buffer.from('odd')],
  ] as const)
    t.match(
      await enroll(serialNumber, tag, content),
      { status: 400, text: /not a text|must be a certificate request/ },
      `tag ${tag}`,
    );
});

t.test('the CAs of a group whose CA a company has signed end with the root', async (t) => {
  const shell = openssl(t);
  const ca = await service.create('/access/certificate-authorities', 'certificateAuthority', {
    ...{ name: 'Below', issuing: true, request: true },
  });
  shell.write('ca.csr', ca.certificateRequest ?? '');
  shell.write('ca.ext', 'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n');
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout'];
  shell.run('req', '-x509', ...newKey, 'root.key', '-subj', '/CN=Root', '-out', 'root.pem');
  shell.run('req', '-x509', ...newKey, 'other.key', '-subj', '/CN=Other', '-out', 'other.pem');
  shell.run('req', '-new', ...newKey, 'between.key', '-subj', '/CN=Between', '-out', 'between.csr');
  const sign = (name: string, by: string) =>
    shell.run(
      ...['x509', '-req', '-in', `${name}.csr`, '-CA', `${by}.pem`, '-CAkey', `${by}.key`, '-days', '3'],
      ...['-extfile', 'ca.ext', '-out', `${name}.pem`],
    );
  sign('between', 'root');
  sign('ca', 'between');
  const [own, between, root, other] = ['ca', 'between', 'root', 'other'].map((name) =>
    shell.read(`${name}.pem`).toString(),
  ) as [string, string, string, string];
  let { version } = ca;
  const put = async (...pems: string[]) => {
    const path = `/api/v1/access/certificate-authorities/${ca.id}/certificate` as const;
    const answer = await service.http('PUT', path, {
      headers: { etag: version },
      body: { certificate: pems.join('') },
    });
    if (answer.status === 200) version = answer.body.certificateAuthority.version;
    return answer;
  };
  const refusal = (message: RegExp) => ({
    status: 400,
    body: { error: { details: [{ path: 'certificate', message }] } },
  });
  t.match(await put(own, between, other, root), refusal(/CN=Other is not above this CA/));
  t.match(await put(own, between), refusal(/end with the root/));
  t.match(await put(between, root), refusal(/another key/));
  t.match(await put(own, between, root, shell.read('root.key').toString()), refusal(/private key/));
  const fingerprints = (pems: readonly string[]) => pems.map((pem) => new X509Certificate(pem).fingerprint256);
  const expected = fingerprints([own, between, root]);
  const group = await issuing({ certificateAuthorityId: (await put(own)).body.certificateAuthority.id });
  const shown = async () => fingerprints(certificatesIn(shell, await curl(shell, group.id, 'cacerts')));
  t.same(await shown(), expected.slice(0, 1), 'what was given');
  for (const order of [
    [own, between, root],
    [root, own, between],
  ]) {
    const answer = await put(...order);
    t.match(
      answer,
      { status: 200, body: { certificateAuthority: { subject: 'CN=Below', chain: String } } },
      answer.text,
    );
    t.same((await shown()).sort(), [...expected].sort());
  }
  const asked = shell.request({ subject: '/CN=CH-1' });
  const user = `${group.id}:${group.claimSecret}`;
  const answer = await curl(shell, group.id, 'simpleenroll', { user, body: bodyOf(asked) });
  shell.write('leaf.pem', present(certificatesIn(shell, answer)[0]));
  const above = certificatesIn(shell, await curl(shell, group.id, 'cacerts')).join('');
  shell.write('cacerts.pem', above);
  t.match(shell.run('verify', '-CAfile', 'root.pem', '-untrusted', 'cacerts.pem', 'leaf.pem'), /leaf.pem: OK/);
});

t.test('a manufacturer’s certificate in the handshake is a proof', async (t) => {
  const shell = openssl(t);
  const ca = await makeAuthority({ subject: 'CN=Maker' });
  const maker = await registerAuthority(service, ca);
  const group = await issuing({ proof: 'certificate', proofAuthorityId: maker.id });
  const identity = await makeCertificate({ subject: 'CN=M-1', issuer: ca });
  const asked = shell.request({ subject: '/CN=M-1' });
  const answer = await curl(shell, group.id, 'simpleenroll', { identity, body: bodyOf(asked) });
  t.equal(await join(t, present(certificatesIn(shell, answer)[0]), asked), 0);
  const other = bodyOf(shell.request({ subject: '/CN=M-2' }));
  t.match(await curl(shell, group.id, 'simpleenroll', { identity, body: other }), { status: 403 });
});

t.test('what is refused', async (t) => {
  const shell = openssl(t);
  const group = await issuing();
  const asked = shell.request({ subject: '/CN=R-1' });
  const body = bodyOf(asked);
  const user = `${group.id}:${group.claimSecret}`;
  const enroll = (asking: Asking, id = group.id) => curl(shell, id, 'simpleenroll', { body, ...asking });

  t.match(await enroll({ user: `${group.id}:wrong` }), { status: 401 });
  const other = await issuing();
  t.match(await enroll({ user }, other.id), { status: 401 }, 'the proof of another group');
  t.match(await enroll({ user: `${asked.csr.length}:x` }, 'nothing'), { status: 401 }, 'no such group');
  t.match(await curl(shell, 'nothing', 'cacerts'), { status: 404 });

  const secret = await newGroup(service, {});
  const ofSecret = `${secret.id}:${secret.claimSecret}`;
  for (const operation of ['cacerts', 'csrattrs'])
    t.match(await curl(shell, secret.id, operation), { status: 404, text: /issues secrets/ }, operation);
  t.match(await enroll({ user: ofSecret }, secret.id), { status: 404, text: /issues secrets, and EST is for/ });
  t.match(await enroll({}, secret.id), { status: 404 });

  const der = Buffer.from(body, 'base64');
  der[der.length - 1] = (der.at(-1) ?? 0) ^ 1;
  for (const bad of ['AAAA', 'no base64 !', der.toString('base64')])
    t.match(await enroll({ user, body: bad }), { status: 400, text: /csr/ }, bad.slice(0, 10));
  t.match(await enroll({ user, body: 'A'.repeat(17_000) }), { status: 413 });
  t.match(await enroll({ user, type: 'application/json' }), { status: 415, text: /application\/pkcs10/ });

  const { version } = (await service.ok('GET', `/api/v1/enrollment-groups/${group.id}`)).enrollmentGroup;
  const headers = { etag: version };
  await service.ok('PUT', `/api/v1/enrollment-groups/${group.id}`, { headers, body: { disabled: true } });
  t.match(await enroll({ user }), { status: 403, text: /disabled/ });
});

t.test('a device renews in its own group alone, and with a secret, too', async (t) => {
  const shell = openssl(t);
  const group = await issuing({ issues: 'either' });
  const enrolled = await service.ok('POST', '/api/v1/enroll', {
    ...{ token: null, body: { serialNumber: 'W-1' } },
    headers: { authorization: `Basic ${Buffer.from(`${group.id}:${group.claimSecret}`).toString('base64')}` },
  });
  const { username, secret } = enrolled.credential;
  const asked = shell.request();
  const asking = { user: `${username}:${secret}`, body: bodyOf(asked) };
  t.match(await curl(shell, (await issuing()).id, 'simplereenroll', asking), { status: 403, text: /not made by this/ });
  const [cert] = certificatesIn(shell, await curl(shell, group.id, 'simplereenroll', asking));
  t.equal(await join(t, present(cert), asked), 0);
});

t.test('EST is served over TLS only, or where a trusted proxy ends it', async (t) => {
  const plain = await startService(t, { env: { SLIPWAY_TRUSTED_PROXIES: '127.0.0.1,::1' } });
  const ca = await plain.create('/access/certificate-authorities', 'certificateAuthority', {
    ...{ name: 'Issuer', issuing: true },
  });
  const group = await newGroup(plain, { issues: 'certificate', certificateAuthorityId: ca.id });
  const get = (headers: Record<string, string>) =>
    fetch(`${plain.server.url}/.well-known/est/${group.id}/cacerts`, { headers }).then(({ status }) => status);
  t.equal(await get({}), 403);
  t.equal(await get({ 'x-forwarded-proto': 'http' }), 403);
  t.equal(await get({ 'x-forwarded-proto': 'https' }), 200);
  const doubted = await startService(t, {});
  const url = `${doubted.server.url}/.well-known/est/${group.id}/cacerts`;
  t.equal((await fetch(url, { headers: { 'x-forwarded-proto': 'https' } })).status, 403, 'anybody may send the header');
});

t.end();
