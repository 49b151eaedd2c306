/** Revocation lists of registered CAs: how they come, what they refuse and end, and what happens when they expire. */
import { X509Certificate } from 'node:crypto';
import { createServer, type ServerResponse } from 'node:http';
import { get, request } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';
import { makeRevocationList } from '../../src/certificates/pki/making.ts';
import { certificate, certificateFiles } from '../broker/certificate.ts';
import {
  Extension,
  type Made,
  makeAuthority,
  makeCertificate,
  makeList,
  registerAuthority,
  type WantedList,
} from '../support/certificates.ts';
import { fetchListsNow, warnNow } from '../support/clockwork.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { joinWith, openssl } from '../support/openssl.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const hour = 60 * 60_000;
const authorities = '/api/v1/access/certificate-authorities';
const revokedReason = 'the certificate, or a CA above it, has been revoked';
const expiredReason = 'the revocation list of the CA has expired';

let ahead = 0;
const logLines: string[] = [];
let service: Service;
t.before(async () => {
  service = await startService(t, {
    env: {
      ...certificate(t),
      SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true',
      SLIPWAY_MQTT_FAILED_CONNECTS_PER_ADDRESS: '0',
      SLIPWAY_MQTT_FAILED_CONNECTS_PER_PRINCIPAL: '0',
    },
    clock: { now: () => Date.now() + ahead },
    logLines,
  });
});
t.afterEach(() => {
  ahead = 0;
});

const newDevice = () => service.create('/devices', 'device', { serialNumber: 'X' });
const read = async (id: string) => (await service.ok('GET', `${authorities}/${id}`)).certificateAuthority;
const put = (id: string, list: Buffer | string, type = 'application/pkix-crl', token = service.admin) =>
  service.http('PUT', `${authorities}/${id}/crl`, {
    ...{ body: list, headers: { 'content-type': type }, token },
  });
const refusal = (message: RegExp) => ({
  status: 400,
  body: { error: { code: 106, details: [{ path: 'crl', message }] } },
});
const refusalsOf = async (deviceId: string) =>
  (await service.ok('GET', `/api/v1/devices/${deviceId}/refusals`)).refusals.results.map(({ reason }) => reason);
const update = async (id: string, body: object) => {
  const { version } = await read(id);
  return service.http('PUT', `${authorities}/${id}`, { headers: { etag: version }, body });
};

/** A CA of the account with two devices, which have certificates of it. */
async function withFleet(more: object = {}) {
  const made = await makeAuthority();
  const ca = await registerAuthority(service, made, more);
  const [one, two] = [await newDevice(), await newDevice()];
  const issue = (id: string) => makeCertificate({ subject: `CN=${id}`, issuer: made });
  return { made, ca, one, two, lost: await issue(one.id), kept: await issue(two.id) };
}
const codeOf = async (t: Test, shown: Made) => {
  const { returnCode } = await joinWith(t, service.mqttsPort, shown, { clientId: service.unique('client') });
  return returnCode;
};

t.test('a certificate on a list is refused, and its connections end before the answer; others go on', async (t) => {
  const { made, ca, one, lost, kept } = await withFleet();
  t.match(ca, { crlUrl: null, crlPolicy: 'warn', crlNumber: null, crlNextUpdate: null, crlCount: null });
  const [ending, staying] = [
    await joinWith(t, service.mqttsPort, lost),
    await joinWith(t, service.mqttsPort, kept, { clientId: 'b' }),
  ];
  t.same([ending.returnCode, staying.returnCode], [0, 0]);
  let isOver = false;
  void ending.closed.then(() => {
    isOver = true;
  });
  const to = Date.now() + 24 * hour;
  const answer = await put(ca.id, await makeList(made, { number: 7, revoked: [lost], to }));
  t.equal(answer.status, 200, answer.text);
  t.equal(answer.headers.get('platform-revocation'), 'connections=1; subscriptions=0');
  t.match(answer.body.certificateAuthority, { id: ca.id, crlNumber: '7', crlCount: 1, crlError: null });
  t.equal(answer.body.certificateAuthority.version, ca.version, 'it is no change of the CA');
  t.equal(Date.parse(String(answer.body.certificateAuthority.crlNextUpdate)), Math.floor(to / 1000) * 1000);
  await ending.closed;
  t.ok(isOver);
  t.equal(await codeOf(t, lost), 4);
  t.equal(await codeOf(t, kept), 0);
  t.same(await refusalsOf(one.id), [revokedReason]);
  staying.send({ cmd: 'pingreq' } as never);
  t.match(await staying.next(), { cmd: 'pingresp' });
  const status = await new Promise((resolve, reject) => {
    const options = { cert: lost.cert, key: lost.key, rejectUnauthorized: false, agent: false };
    get(`${service.server.url}/api/v1/firmware/offer`, options, (got) => resolve(got.resume().statusCode)).on(
      'error',
      reject,
    );
  });
  t.equal(status, 401, 'over HTTP, too');
  const { auditRecords } = await service.ok(
    'GET',
    `/api/v1/audit?accountId=${service.accountId}&event=certificateAuthorityChanged`,
  );
  t.match(auditRecords.results[0], { targetId: ca.id, details: { crlNumber: '7', crlCount: 1 } });
  await put(ca.id, await makeList(made, { number: 8 }));
  t.equal(await codeOf(t, lost), 0, 'a list that names it no more lets it in');
});

t.test('a connection of MQTT 5 hears what has become of its certificate', async (t) => {
  const { made, ca, lost, kept } = await withFleet();
  const joined = async (shown: Made, clientId: string) => {
    const client = await joinWith(t, service.mqttsPort, shown, { clientId, protocolVersion: 5 });
    t.equal(client.returnCode, 0, clientId);
    return client;
  };
  const disconnect = (reasonString: string) => ({ cmd: 'disconnect', reasonCode: 0x87, properties: { reasonString } });
  const [revoked, ofCa] = [await joined(lost, 'revoked'), await joined(kept, 'of the CA')];
  await put(ca.id, await makeList(made, { revoked: [lost] }));
  t.match(await revoked.next(), disconnect('The certificate has been revoked.'));
  const remove = async (path: string) => {
    const { headers } = await service.http('GET', path);
    await service.http('DELETE', path, { headers: { etag: headers.get('etag') ?? '' } });
  };
  await remove(`${authorities}/${ca.id}`);
  t.match(await ofCa.next(), disconnect('The certificate is in force no more.'));
  const own = await makeCertificate();
  const about = { entityId: (await newDevice()).id, entityType: 'device', certificate: own.cert };
  const { id } = await service.create('/access/mqtt-certificates', 'mqttCertificate', about);
  const registered = await joined(own, 'registered');
  await remove(`/api/v1/access/mqtt-certificates/${id}`);
  t.match(await registered.next(), disconnect('The certificate is in force no more.'));
});

t.test('a list comes as DER, PEM or JSON; a company makes it with OpenSSL', async (t) => {
  const shell = openssl(t);
  shell.run(
    'req',
    '-x509',
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-subj',
    '/O=Acme/CN=Plant',
    '-keyout',
    'ca.key',
    '-out',
    'ca.pem',
  );
  shell.write(
    'ca.cnf',
    '[ca]\ndefault_ca=a\n[a]\ndatabase=index.txt\ncrlnumber=number\ndefault_md=sha256\ndefault_crl_days=1\n',
  );
  const device = await newDevice();
  const { csr, key } = shell.request({ subject: `/CN=${device.id}` });
  shell.write('device.csr', csr);
  const sign = ['x509', '-req', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-days', '1', '-out'];
  shell.run(...sign, 'device.pem', '-in', 'device.csr');
  const cert = shell.read('device.pem').toString();
  const { id, challenge } = await service.create('/access/certificate-authorities', 'certificateAuthority', {
    name: 'Plant',
    certificate: shell.read('ca.pem').toString(),
  });
  shell.write('proof.csr', shell.request({ subject: `/CN=${challenge}` }).csr);
  shell.run(...sign, 'proof.pem', '-in', 'proof.csr');
  await service.ok('POST', `${authorities}/${id}/proof`, { body: { certificate: shell.read('proof.pem').toString() } });
  shell.write('index.txt', '');
  shell.write('number', '0A\n');
  const list = (name: string) => {
    shell.run('ca', '-config', 'ca.cnf', '-gencrl', '-keyfile', 'ca.key', '-cert', 'ca.pem', '-out', name);
    return shell.read(name).toString();
  };
  t.match(await put(id, list('one.crl'), 'application/x-pem-file'), {
    body: { certificateAuthority: { crlNumber: '10', crlCount: 0 } },
  });
  const joined = await joinWith(t, service.mqttsPort, { cert, key });
  t.equal(joined.returnCode, 0);
  shell.run('ca', '-config', 'ca.cnf', '-revoke', 'device.pem', '-keyfile', 'ca.key', '-cert', 'ca.pem');
  t.match(await put(id, JSON.stringify({ crl: list('two.crl') }), 'application/json'), {
    body: { certificateAuthority: { crlNumber: '11', crlCount: 1 } },
  });
  await joined.closed;
  t.equal((await joinWith(t, service.mqttsPort, { cert, key })).returnCode, 4);
});

/** A registered CA of OpenSSL with a device, and what makes its lists. */
async function company(
  t: Test,
  { key = ['-newkey', 'rsa:2048'], subject = '/CN=Plant', signing = [] as string[], md = 'default' },
) {
  const shell = openssl(t);
  shell.write(
    'req.cnf',
    '[req]\ndistinguished_name=d\nx509_extensions=x\n[d]\n[x]\nbasicConstraints=critical,CA:TRUE\n',
  );
  shell.write('printable.cnf', `${shell.read('req.cnf')}[req]\nstring_mask=default\n`);
  const ca = `database=index.txt\ncrlnumber=number\ndefault_md=${md}\ndefault_crl_days=1\n`;
  shell.write('ca.cnf', `[ca]\ndefault_ca=a\n[a]\n${ca}`);
  shell.write('index.txt', '');
  shell.write('number', '0A\n');
  const options = ['-nodes', '-keyout', 'ca.key', '-out', 'ca.pem', ...signing];
  shell.run('req', '-x509', '-utf8', '-config', 'req.cnf', '-subj', subject, ...key, ...options);
  const { id, challenge } = await service.create('/access/certificate-authorities', 'certificateAuthority', {
    ...{ name: service.unique('CA'), certificate: shell.read('ca.pem').toString() },
  });
  const issue = (commonName: string) => {
    const asked = shell.request({ subject: `/CN=${commonName}` });
    shell.write('asked.csr', asked.csr);
    shell.run(
      'x509',
      '-req',
      '-in',
      'asked.csr',
      '-CA',
      'ca.pem',
      '-CAkey',
      'ca.key',
      ...signing,
      '-out',
      'issued.pem',
    );
    return { cert: shell.read('issued.pem').toString(), key: asked.key };
  };
  await service.ok('POST', `${authorities}/${id}/proof`, { body: { certificate: issue(challenge ?? '').cert } });
  const { id: deviceId } = await newDevice();
  const device = issue(deviceId);
  /** A list that names the device, in the name of a certificate of the CA. */
  const list = (by = 'ca.pem') => {
    shell.write('device.pem', device.cert);
    const common = ['ca', '-config', 'ca.cnf', '-keyfile', 'ca.key', '-cert', by];
    if (!shell.read('index.txt').toString().includes('R')) shell.run(...common, '-revoke', 'device.pem');
    shell.run(...common, '-gencrl', '-out', 'list.crl', ...signing);
    return shell.read('list.crl');
  };
  /** An account has 20 CAs at most. */
  const remove = async () =>
    service.ok('DELETE', `${authorities}/${id}`, { headers: { etag: (await read(id)).version } });
  return { shell, id, device, list, remove };
}

t.test('a CA whose certificate is taken can send its lists, whatever it signs with', async (t) => {
  const pss = (...more: string[]) => ['rsa_padding_mode:pss', ...more].flatMap((one) => ['-sigopt', one]);
  for (const [title, wanted] of Object.entries({
    'RSA-PSS by an RSA key': { signing: pss('rsa_pss_saltlen:32') },
    'RSA-PSS, SHA-384': { md: 'sha384', signing: pss('rsa_pss_saltlen:48') },
    'RSA-PSS by a key of its own': { key: ['-newkey', 'rsa-pss', '-pkeyopt', 'rsa_keygen_bits:2048'], signing: pss() },
    Ed448: { key: ['-newkey', 'ed448'] },
    Ed25519: { key: ['-newkey', 'ed25519'] },
    'P-521': { key: ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-521'] },
  })) {
    const made = await company(t, wanted);
    t.equal((await joinWith(t, service.mqttsPort, made.device)).returnCode, 0, title);
    const list = made.list();
    const answer = await put(made.id, list, 'application/x-pem-file');
    t.match(answer, { status: 200, body: { certificateAuthority: { crlNumber: '10', crlCount: 1 } } }, title);
    t.equal((await joinWith(t, service.mqttsPort, made.device)).returnCode, 4, title);
    const der = Buffer.from(
      made
        .list()
        .toString()
        .replace(/-----[^-]+-----/g, ''),
      'base64',
    );
    der[der.length - 1] = 1 ^ (der.at(-1) ?? 0);
    t.match(await put(made.id, der), refusal(/not signed/), `${title}: changed`);
    await made.remove();
  }
});

t.test('the name of a CA is the same in another kind of string, letter case and spacing', async (t) => {
  const made = await company(t, { subject: '/C=DE/O=Acme Gmbh/CN=Plant Süd' });
  const { shell } = made;
  const name = (subject: string, config = 'req.cnf') =>
    shell.run('req', '-x509', '-utf8', '-config', config, '-key', 'ca.key', '-subj', subject, '-out', 'name.pem');
  const same = [
    '/C=DE/O=Acme Gmbh/CN=Plant Süd',
    '/C=de/O=ACME GMBH/CN=plant SÜD',
    '/C=DE/O=  Acme   Gmbh /CN=Plant  Süd',
  ];
  for (const [at, subject] of same.entries()) {
    name(subject, at === 0 ? 'printable.cnf' : 'req.cnf');
    const answer = await put(made.id, made.list('name.pem'), 'application/x-pem-file');
    t.match(answer, { status: 200 }, subject);
  }
  for (const subject of [
    '/C=DE/O=AcmeGmbh/CN=Plant Süd',
    '/O=Acme Gmbh/C=DE/CN=Plant Süd',
    '/C=DE/O=Acme Gmbh/CN=Plant Süd/OU=1',
    '/C=DE/O=Acme Gmbh',
    '/C=DE/O=Acme Gmbh/OU=Plant Süd',
    '/C=DE/O=Acme Gmbh+CN=Plant Süd',
  ]) {
    shell.run('req', '-x509', '-utf8', '-config', 'req.cnf', '-key', 'ca.key', '-subj', subject, '-out', 'name.pem');
    t.match(await put(made.id, made.list('name.pem')), refusal(/that of another CA/), subject);
  }
  await made.remove();
});

t.test('a list of another CA, an older one, an expired one, one without a number and junk are refused', async (t) => {
  const { made, ca, lost } = await withFleet();
  const list = (wanted: WantedList = {}, by = made) => makeList(by, wanted);
  const impostor = await makeAuthority();
  t.match(await put(ca.id, await list({}, impostor)), refusal(/not signed by this CA/));
  const other = await makeAuthority({ subject: 'CN=Other' });
  t.match(await put(ca.id, await list({}, other)), refusal(/that of another CA/));
  t.equal((await put(ca.id, await list({ number: 5, revoked: [lost] }))).status, 200);
  for (const number of [5, 4]) t.match(await put(ca.id, await list({ number })), refusal(/not higher than 5/));
  t.match(await put(ca.id, await list({ number: null })), refusal(/no number/));
  t.match(await put(ca.id, await list({ number: 6, to: Date.now() - 1000 })), refusal(/expired/));
  t.match(await put(ca.id, await list({ number: 6, from: Date.now() + hour })), refusal(/not valid yet/));
  t.match(await put(ca.id, await list({ number: 2n ** 200n })), refusal(/revocation list/), 'a number of 26 bytes');
  const delta = new Extension('2.5.29.27', true, Buffer.from([2, 1, 1]));
  t.match(await put(ca.id, await list({ number: 6, more: [delta] })), refusal(/delta/));
  const unreadable = new Extension('2.5.29.28', true, Buffer.from([0x30, 5]));
  t.match(await put(ca.id, await list({ number: 6, more: [unreadable] })), refusal(/cannot be read/));
  const good = await list({ number: 6 });
  for (const junk of [Buffer.alloc(0), Buffer.from('junk'), good.subarray(0, -1), Buffer.concat([good, good])])
    t.match(await put(ca.id, junk), refusal(/revocation list/));
  const changed = Buffer.from(good);
  changed[changed.length - 1] = 1 ^ (changed.at(-1) ?? 0);
  t.match(await put(ca.id, changed), refusal(/not signed/));
  const nested = `{"crl":${'['.repeat(1_000_000)}`;
  for (const body of ['{', '[]', '{"crl":5}', 'null', '{"crl":"\\"}', '{"crl":""} x', nested])
    t.match(await put(ca.id, body, 'application/json'), refusal(/must be a text/));
  t.match(await put(ca.id, Buffer.alloc(15 * 1024 * 1024)), { status: 413 });
  t.match(await read(ca.id), { crlNumber: '5', crlCount: 1 }, 'the former one stays');
  t.equal(await codeOf(t, lost), 4);
  const issuer = await service.create('/access/certificate-authorities', 'certificateAuthority', {
    name: 'I',
    issuing: true,
  });
  t.match(await put(issuer.id, good), { status: 400 });
  const { admin } = await service.account();
  t.match(await put(ca.id, good, undefined, admin), { status: 404 });
});

t.test('an expired list goes on with `warn`; with `refuse` it lets nobody in, and ends connections', async (t) => {
  const { made, ca, two, lost, kept } = await withFleet();
  t.equal((await update(ca.id, { crlPolicy: 'refuse' })).status, 200);
  t.equal(await codeOf(t, kept), 0, 'without a list it does nothing');
  await put(ca.id, await makeList(made, { number: 1, revoked: [lost], to: Date.now() + hour }));
  const joined = await joinWith(t, service.mqttsPort, kept);
  t.equal(joined.returnCode, 0);
  ahead = 2 * hour;
  await joined.closed;
  t.equal(await codeOf(t, kept), 4);
  t.same(await refusalsOf(two.id), [expiredReason]);
  t.equal((await update(ca.id, { crlPolicy: 'warn' })).status, 200);
  t.same([await codeOf(t, kept), await codeOf(t, lost)], [0, 4]);
  warnNow(service);
  t.ok(logLines.some((line) => line.includes('revocation lists of CAs have expired')));
  const again = await joinWith(t, service.mqttsPort, kept);
  const changed = await update(ca.id, { crlPolicy: 'refuse' });
  t.match(changed.headers.get('platform-revocation'), /^connections=[12];/);
  await again.closed;
  await put(ca.id, await makeList(made, { number: 2, from: Date.now() + hour, to: Date.now() + 3 * hour }));
  t.equal(await codeOf(t, kept), 0, 'the next list lets it in');
});

t.test(
  'the list of a CA names a CA below it, and what is registered by itself; no list of another account counts',
  async (t) => {
    const root = await makeAuthority({ subject: 'CN=Root' });
    const between = await makeAuthority({ subject: 'CN=Between', issuer: root });
    const rootCa = await registerAuthority(service, root);
    const [one, two] = [await newDevice(), await newDevice()];
    const below = await makeCertificate({ subject: `CN=${one.id}`, issuer: between });
    const chain = { ...below, cert: below.cert + between.cert };
    const own = await makeCertificate({ subject: 'CN=anything', issuer: root });
    await service.create('/access/mqtt-certificates', 'mqttCertificate', {
      ...{ entityId: two.id, entityType: 'device', certificate: own.cert },
    });
    const joined = [await joinWith(t, service.mqttsPort, chain), await joinWith(t, service.mqttsPort, own)];
    t.same(
      joined.map(({ returnCode }) => returnCode),
      [0, 0],
    );
    const { accountId, admin } = await service.account();
    const theirs = await registerAuthority(service, root, { accountId }, admin);
    const list = await makeList(root, { number: 1, revoked: [between, own] });
    t.equal(
      (await put(theirs.id, list, undefined, admin)).headers.get('platform-revocation'),
      'connections=0; subscriptions=0',
    );
    t.same([await codeOf(t, chain), await codeOf(t, own)], [0, 0]);
    const answer = await put(rootCa.id, list);
    t.match(answer.headers.get('platform-revocation'), /^connections=[34]/);
    await Promise.all(joined.map(({ closed }) => closed));
    t.same([await codeOf(t, chain), await codeOf(t, own)], [4, 4]);
    // A CA that is registered later counts for what others have let in before.
    const three = await newDevice();
    const late = await makeCertificate({
      subject: `CN=${three.id}`,
      issuer: await makeAuthority({ subject: 'CN=Late', issuer: root }),
    });
    t.equal(await codeOf(t, late), 4);
  },
);

t.test('a CA that is registered is on the list of the one above it; so is one that issues here', async (t) => {
  const root = await makeAuthority({ subject: 'CN=Above' });
  const between = await makeAuthority({ subject: 'CN=Below', issuer: root });
  const [rootCa] = [await registerAuthority(service, root), await registerAuthority(service, between)];
  const device = await newDevice();
  const alone = await makeCertificate({ subject: `CN=${device.id}`, issuer: between });
  const joined = await joinWith(t, service.mqttsPort, alone);
  t.equal(joined.returnCode, 0, 'the device need not send the CA');
  const ca = await service.create('/access/certificate-authorities', 'certificateAuthority', {
    ...{ name: 'Company', issuing: true, request: true },
  });
  const shell = openssl(t);
  shell.write('root.pem', root.cert);
  shell.write('root.key', root.key);
  shell.write('ca.csr', ca.certificateRequest ?? '');
  shell.write('ca.ext', 'basicConstraints=critical,CA:TRUE\n');
  const sign = ['x509', '-req', '-in', 'ca.csr', '-CA', 'root.pem', '-CAkey', 'root.key', '-days', '1'];
  shell.run(...sign, '-extfile', 'ca.ext', '-out', 'ca.pem');
  const cert = shell.read('ca.pem').toString();
  const put2 = { headers: { etag: ca.version }, body: { certificate: cert } };
  await service.ok('PUT', `${authorities}/${ca.id}/certificate`, put2);
  const asked = shell.request();
  const issue = { body: { deviceId: device.id, csr: asked.csr } };
  const { certificate: leaf } = await service.ok('POST', `${authorities}/${ca.id}/issue`, issue);
  const other = await joinWith(t, service.mqttsPort, { cert: leaf, key: asked.key }, { clientId: 'issued' });
  t.equal(other.returnCode, 0);
  await put(rootCa.id, await makeList(root, { number: 1, revoked: [between, { ...between, cert }] }));
  await Promise.all([joined.closed, other.closed]);
  t.equal(await codeOf(t, alone), 4);
  t.equal((await joinWith(t, service.mqttsPort, { cert: leaf, key: asked.key })).returnCode, 4);
});

t.test('a long list is written by a thread; junk of it is refused, whatever is changed', async (t) => {
  const { made, ca, lost, kept } = await withFleet();
  const { serialNumber } = new X509Certificate(lost.cert);
  const revoked = Array.from({ length: 5000 }, (_, at) => ({
    serialNumber: at.toString(16).padStart(4, '1'),
    time: Date.now(),
  }));
  revoked[2500] = { serialNumber, time: Date.now() };
  const signer = { key: made.key, certificate: made.cert };
  const from = Date.now() - 60_000;
  const der = Buffer.from(makeRevocationList(signer, { from, to: from + hour, revoked }));
  for (const seed of [1, 2, 3, 4, 5])
    for (let round = 0; round < 4; round += 1) {
      const junk = Buffer.from(der);
      const at = (seed * 7919 + round * 104_729) % junk.length;
      junk[at] = (junk[at] ?? 0) ^ (1 + ((seed * 31 + round) % 255));
      t.match(
        await put(ca.id, round === 3 ? junk.subarray(0, at) : junk),
        refusal(/./),
        `seed ${seed}, round ${round}`,
      );
    }
  t.match(await put(ca.id, der), { status: 200, body: { certificateAuthority: { crlCount: 5000 } } });
  t.same([await codeOf(t, lost), await codeOf(t, kept)], [4, 0]);
});

t.test('a CA that is registered later revokes what another one lets in', async (t) => {
  const root = await makeAuthority({ subject: 'CN=Early' });
  const between = await makeAuthority({ subject: 'CN=Later', issuer: root });
  await registerAuthority(service, root);
  const device = await newDevice();
  const below = await makeCertificate({ subject: `CN=${device.id}`, issuer: between });
  const chain = { ...below, cert: below.cert + between.cert };
  t.equal(await codeOf(t, chain), 0);
  const later = await registerAuthority(service, between);
  await put(later.id, await makeList(between, { number: 1, revoked: [below] }));
  t.equal(await codeOf(t, chain), 4);
});

t.test('a manufacturer revokes a certificate with which a device would enroll', async (t) => {
  const { made, ca, lost, kept } = await withFleet();
  const { deviceTemplate } = { deviceTemplate: await service.template() };
  const group = await service.create('/enrollment-groups', 'enrollmentGroup', {
    ...{ name: 'Made elsewhere', deviceTemplateId: deviceTemplate.id, proof: 'certificate', proofAuthorityId: ca.id },
  });
  await put(ca.id, await makeList(made, { number: 1, revoked: [lost] }));
  const username = `enroll/${group.id}`;
  t.equal((await joinWith(t, service.mqttsPort, lost, { username })).returnCode, 4);
  const { refusals } = await service.ok('GET', `/api/v1/enrollment-groups/${group.id}/refusals`);
  t.match(refusals.results, [{ reason: revokedReason }]);
  // The hook is slow, and the list comes meanwhile.
  const hook = await listServer(t);
  hook.says((response) => {
    void makeList(made, { number: 2, revoked: [lost, kept] })
      .then((list) => put(ca.id, list))
      .then(() => response.end('{"allow":true}'));
  });
  const path = `/api/v1/enrollment-groups/${group.id}` as const;
  await service.ok('PUT', path, { headers: { etag: group.version }, body: { hookUrl: hook.url } });
  const status = await new Promise((resolve, reject) => {
    const sent = {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      rejectUnauthorized: false,
      agent: false,
    };
    request(`${service.server.url}/api/v1/enroll`, { ...sent, cert: kept.cert, key: kept.key }, (answer) =>
      resolve(answer.resume().statusCode),
    )
      .on('error', reject)
      .end(JSON.stringify({ groupId: group.id }));
  });
  t.equal(status, 401);
  t.equal(hook.asked(), 1);
});

/** A server from which lists are fetched. */
async function listServer(t: Test) {
  let answer = (response: ServerResponse): void => void response.writeHead(404).end();
  let asked = 0;
  const server = createServer((_, response) => {
    asked += 1;
    answer(response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/ca.crl`,
    asked: () => asked,
    says: (next: typeof answer) => {
      answer = next;
    },
    gives: (list: Buffer) => {
      answer = (response) => void response.end(list);
    },
  };
}

t.test(
  'a list is fetched when its URL is set, and then hourly; a failure keeps the last one, and is shown',
  async (t) => {
    const lists = await listServer(t);
    const { made, ca, lost, kept } = await withFleet();
    lists.gives(await makeList(made, { number: 3, revoked: [lost] }));
    const joined = await joinWith(t, service.mqttsPort, lost);
    t.equal((await update(ca.id, { crlUrl: lists.url })).status, 200);
    await fetchListsNow(service);
    t.match(await read(ca.id), { crlUrl: lists.url, crlNumber: '3', crlCount: 1, crlError: null, crlChecked: /Z$/ });
    await joined.closed;
    t.equal(await codeOf(t, lost), 4);
    await fetchListsNow(service);
    t.equal(lists.asked(), 1, 'not before an hour');
    const fails = async (says: RegExp) => {
      ahead += hour + 1000;
      await fetchListsNow(service);
      const now = await read(ca.id);
      t.match(now.crlError, says);
      t.equal(now.crlNumber, '3');
    };
    lists.says((response) => void response.writeHead(302, { location: lists.url }).end());
    await fails(/answered 302/);
    t.equal(lists.asked(), 2, 'redirects are not followed');
    lists.says((response) => void response.end(Buffer.alloc(10 * 1024 * 1024 + 1)));
    await fails(/larger than 10485760/);
    lists.gives(await makeList(made, { number: 2, to: Date.now() + 24 * hour }));
    await fails(/number 2, which is not higher/);
    lists.gives(await makeList(await makeAuthority(), { number: 9, to: Date.now() + 24 * hour }));
    await fails(/not signed by this CA/);
    lists.says((response) => void response.destroy());
    await fails(/ECONNRESET|hang up/);
    t.same([await codeOf(t, lost), await codeOf(t, kept)], [4, 0]);
    lists.gives(await makeList(made, { number: 4, to: Date.now() + 24 * hour }));
    ahead += hour + 1000;
    await fetchListsNow(service);
    t.match(await read(ca.id), { crlNumber: '4', crlCount: 0, crlError: null });
    ahead += hour + 1000;
    await fetchListsNow(service);
    t.match(await read(ca.id), { crlNumber: '4', crlError: null }, 'the same list again is no failure');
    t.equal((await update(ca.id, { crlUrl: null })).status, 200);
    t.match(await read(ca.id), { crlUrl: null, crlChecked: null, crlNumber: '4' });
  },
);

t.test('a server that hangs holds up nobody; URLs that lead elsewhere are refused', async (t) => {
  const [hanging, good] = [await listServer(t), await listServer(t)];
  hanging.says(() => {});
  const [one, two] = [await withFleet({ crlUrl: hanging.url }), await withFleet()];
  const { accountId, admin } = await service.account();
  const theirs = await registerAuthority(service, two.made, { accountId }, admin);
  good.gives(await makeList(two.made, { number: 1 }));
  const { version } = theirs;
  const path = `${authorities}/${theirs.id}` as const;
  await service.ok('PUT', path, { headers: { etag: version }, body: { crlUrl: good.url }, token: admin });
  await service.server.ctx.listFetcher.fetchList(theirs);
  t.match((await service.ok('GET', path, { token: admin })).certificateAuthority, { crlNumber: '1' });
  t.match(await read(one.ca.id), { crlChecked: null }, 'it still hangs');
  for (const crlUrl of ['ftp://example.com/x', 'http://', 'x', 'http://u:p@example.com/', 'http://example.com/#a'])
    t.match(await update(one.ca.id, { crlUrl }), { status: 400, body: { error: { details: [{ path: 'crlUrl' }] } } });
  await service.server.ctx.listFetcher.fetchList(one.ca);
  t.match(await read(one.ca.id), { crlError: /in time/, crlNumber: null });
});

t.test('a list outlives the service; addresses of its own network are not fetched from', async (t) => {
  const directory = temporaryDirectory(t);
  const env = certificateFiles(t);
  const first = await startService(t, { directory, env });
  const made = await makeAuthority();
  const ca = await registerAuthority(first, made);
  const device = await first.create('/devices', 'device', { serialNumber: 'X' });
  const lost = await makeCertificate({ subject: `CN=${device.id}`, issuer: made });
  const others = await Promise.all(Array.from({ length: 20 }, () => makeCertificate()));
  const list = await makeList(made, { number: 1, revoked: [...others, lost] });
  const path = `${authorities}/${ca.id}/crl` as const;
  const headers = { 'content-type': 'application/pkix-crl' };
  t.equal((await first.http('PUT', path, { body: list, headers })).status, 200);
  t.match(
    await first.http('PUT', `${authorities}/${ca.id}`, {
      headers: { etag: ca.version },
      body: { crlUrl: 'http://127.0.0.1/x' },
    }),
    { status: 400, body: { error: { details: [{ path: 'crlUrl', message: /private address/ }] } } },
  );
  const named = { headers: { etag: ca.version }, body: { crlUrl: 'http://localhost:1/x' } };
  await first.ok('PUT', `${authorities}/${ca.id}`, named);
  await fetchListsNow(first);
  t.match((await first.ok('GET', `${authorities}/${ca.id}`)).certificateAuthority, {
    crlError: /not a public address/,
  });
  await first.close();
  const second = await startService(t, { directory, env });
  t.equal((await joinWith(t, second.mqttsPort, lost)).returnCode, 4);
});

t.test('a CA takes its list with it', async (t) => {
  const { made, ca, lost } = await withFleet();
  await put(ca.id, await makeList(made, { number: 1, revoked: [lost] }));
  const parts = () =>
    service.server.ctx.registry.query
      .selectFrom('revocationListParts')
      .select('first')
      .where('certificateAuthorityId', '=', ca.id)
      .execute();
  t.equal((await parts()).length, 1);
  await service.ok('DELETE', `${authorities}/${ca.id}`, { headers: { etag: ca.version } });
  t.equal((await parts()).length, 0);
  t.match(await put(ca.id, await makeList(made, { number: 2 })), { status: 410 });
});
t.end();
