/** The lines that the console shows for a group: each gets the credential of a device. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { enrollLines, secretLine } from '../../../console/enrollment/lines.ts';
import { certificate } from '../../broker/certificate.ts';
import { newGroup } from '../../enrollment/devices.ts';
import { makeAuthority, makeCertificate, registerAuthority } from '../../support/certificates.ts';
import { part } from '../../support/part.ts';
import { startService } from '../../support/service.ts';
import { Shell } from './shell.ts';

const t = await part(import.meta);

t.test('the lines of a group can be pasted, with every proof and for either credential', async (t) => {
  const tls = certificate(t);
  const ca = tls.SLIPWAY_TLS_CERT ?? '';
  const service = await startService(t, { env: tls });
  const { id: certificateAuthorityId } = await service.create(
    '/access/certificate-authorities',
    'certificateAuthority',
    { name: 'Issuer', issuing: true },
  );
  const maker = await makeAuthority({ subject: 'CN=Maker' });
  const { id: proofAuthorityId } = await registerAuthority(service, maker);
  const factory = await makeCertificate({ subject: 'CN=SN-0009', issuer: maker });
  const signed = { issues: 'certificate', certificateAuthorityId };
  for (const [body, expected] of [
    [{ serialNumberPattern: 'AB-????' }, { serialNumber: 'AB-0000', secret: String }],
    [
      { proof: 'derivedKey', ...signed },
      { serialNumber: 'SN-0001', certificate: /BEGIN/ },
    ],
    [
      { proof: 'certificate', proofAuthorityId },
      { serialNumber: 'SN-0009', secret: String },
    ],
  ] as const) {
    const group = await newGroup(service, body);
    const lines = enrollLines(service.server.url, group);
    const sh = new Shell(t, { env: { CURL_CA_BUNDLE: ca, NODE_EXTRA_CA_CERTS: ca } });
    writeFileSync(join(sh.directory, 'factory.crt'), factory.cert);
    writeFileSync(join(sh.directory, 'factory.key'), factory.key);
    await sh.run(secretLine(group));
    const { serialNumber, ...credential } = expected;
    for (const way of ['curl', 'slipway'] as const) {
      const answer = JSON.parse(await sh.run(lines[way]));
      service.secrets.add(answer.credential.secret);
      t.match(answer, { device: { serialNumber }, credential }, `${group.proof}, ${way}`);
    }
  }
});

t.end();
