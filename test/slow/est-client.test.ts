/** EST as a client of others speaks it: strongSwan's `pki --estca` and `pki --est`. */
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:https';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { certificate } from '../broker/certificate.ts';
import { newGroup } from '../enrollment/devices.ts';
import { joinWith, openssl } from '../support/openssl.ts';
import { present, type Service, startService } from '../support/service.ts';
import { pki, withStrongswan } from '../support/strongswan.ts';

/**
 * This version of the client knows no label in the path: what stands between puts the group there. `identity` is the client
 * certificate that it shows on.
 */
async function withLabel(
  t: Test,
  service: Service,
  tls: Record<string, string>,
  groupId: string,
  identity: { cert?: string; key?: string },
): Promise<string> {
  const [cert, key] = ['SLIPWAY_TLS_CERT', 'SLIPWAY_TLS_KEY'].map((name) => readFileSync(tls[name] ?? ''));
  const server = createServer({ cert, key, requestCert: true, rejectUnauthorized: false }, (asked, answer) => {
    const path = present(asked.url).replace('/.well-known/est/', `/.well-known/est/${groupId}/`);
    const { method, headers } = asked;
    const isKnown = (asked.socket as unknown as { getPeerCertificate(): object }).getPeerCertificate();
    const shown = Object.keys(isKnown).length > 0 ? identity : {};
    const options = { method, headers, rejectUnauthorized: false, agent: false, ...shown };
    const onward = request(new URL(path, service.server.url), options, (answered) => {
      answer.writeHead(answered.statusCode ?? 500, answered.headers);
      answered.pipe(answer);
    });
    asked.pipe(onward);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  return `https://localhost:${(server.address() as AddressInfo).port}`;
}

t.test(
  'strongSwan reads the CA, enrolls with a password and renews with its certificate',
  withStrongswan,
  async (t) => {
    const tls = certificate(t);
    const service = await startService(t, { env: tls });
    const issuer = await service.create('/access/certificate-authorities', 'certificateAuthority', {
      ...{ name: 'Issuer', issuing: true },
    });
    const group = await newGroup(service, { issues: 'certificate', certificateAuthorityId: issuer.id });
    const shell = openssl(t);
    const identity: { cert?: string; key?: string } = {};
    const url = await withLabel(t, service, tls, group.id, identity);
    const trusted = ['--cacert', tls.SLIPWAY_TLS_CERT ?? ''];
    await pki(shell.directory, '--estca', '--url', url, ...trusted, '--caout', 'ca.pem', '--outform', 'pem');
    t.equal(
      new X509Certificate(shell.read('ca.pem')).fingerprint256,
      new X509Certificate(issuer.certificate).fingerprint256,
    );
    const first = shell.request({ subject: '/CN=STRONG-1' });
    const der = (csr: string, name: string) =>
      shell.write(name, Buffer.from(csr.replace(/-----[^-]+-----/g, ''), 'base64'));
    const password = ['--userpass', `${group.id}:${group.claimSecret}`];
    const ask = [...['--est', '--url', url, ...trusted, '--cacert', 'ca.pem', '--outform', 'pem']];
    const cert = await pki(shell.directory, ...ask, '--in', der(first.csr, '1.der'), ...password);
    const join = (cert: string, key: string) =>
      joinWith(t, service.mqttsPort, { cert, key }).then(({ returnCode }) => returnCode);
    t.equal(await join(cert, first.key), 0);

    const second = shell.request({ subject: '/CN=STRONG-1' });
    Object.assign(identity, { cert, key: first.key });
    const old = ['--cert', shell.write('old.pem', cert), '--key', shell.write('old.key', first.key)];
    const renewed = await pki(shell.directory, ...ask, '--in', der(second.csr, '2.der'), ...old);
    t.equal(new X509Certificate(renewed).subject, new X509Certificate(cert).subject);
    t.equal(await join(renewed, second.key), 0);
    t.not(await join(cert, first.key), 0, 'the former one has ended');
  },
);
