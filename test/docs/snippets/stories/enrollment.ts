import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connectOnce, newGroup } from '../../../enrollment/devices.ts';
import { makeAuthority, makeList, registerAuthority } from '../../../support/certificates.ts';
import type { Story } from '../story.ts';

export const enrollment: Story = {
  tell: async ({ t, next, service, shell, secure }) => {
    const sh = shell();
    const answer = async () => (await sh.answers(next())).at(-1);
    const { id } = await service.template();
    await sh.set({
      API: `${service.server.url}/api/v1`,
      ACCOUNT: service.accountId,
      TOKEN: service.admin,
      TEMPLATE: id,
    });
    const { enrollmentGroup } = await answer();
    t.match(enrollmentGroup, { claimSecret: String, enrolledCount: 0 });
    await sh.set({ GROUP: enrollmentGroup.id, CLAIM_SECRET: enrollmentGroup.claimSecret });
    const enrolled = await answer();
    t.match(enrolled, { device: { serialNumber: 'SN-0001' }, credential: { secret: String } });
    const { service: shared, caFile } = await secure();
    const safe = await shared.inNewAccount();
    const { id: certificateAuthorityId } = await safe.create(
      '/access/certificate-authorities',
      'certificateAuthority',
      { name: 'EST', issuing: true },
    );
    const group = await newGroup(safe, { issues: 'certificate', certificateAuthorityId });
    const est = shell({ env: { CURL_CA_BUNDLE: caFile } });
    await est.set({ SERVER: safe.server.url, GROUP: group.id, CLAIM_SECRET: group.claimSecret ?? '' });
    t.match(await est.run(next()), /BEGIN CERTIFICATE/);
    await sh.set({ DEVICE: enrolled.device.id, SECRET: enrolled.credential.secret });
    const renewed = await answer();
    t.match(renewed, { device: { id: enrolled.device.id }, credential: { secret: String } });
    await connectOnce(service, renewed);
    const made = await makeAuthority();
    const ca = await registerAuthority(service, made);
    writeFileSync(join(sh.directory, 'ca.crl'), await makeList(made, { number: 5 }));
    await sh.set({ CA: ca.id });
    t.match(await answer(), { certificateAuthority: { id: ca.id, crlNumber: '5' } });
  },
};
