/** Enrollment of the fleet: groups with what they made and refused, a CA, and certificates that end soon. */
import { createHmac } from 'node:crypto';
import { makeAuthority, makeKey, makeRequest } from '../src/certificates/pki/making.ts';
import type { FleetOptions, MadeEntity, Make } from './answers.ts';

interface Group extends MadeEntity {
  claimSecret?: string;
  groupKey?: string;
}

interface Fleet extends FleetOptions {
  make: Make;
  templates: Map<string, string>;
  organizations: Map<string, string>;
}

/** How many devices come by enrollment. */
export const enrolledCount = 12;
const withSecret = 8;
/** Days of their certificates: within those after which Home warns. */
const certificateDays = 20;
const year = 365 * 86_400_000;

export async function makeEnrollment({ url, make, templates, organizations }: Fleet): Promise<void> {
  const newGroup = (body: object) => make('/enrollment-groups', body) as Promise<Group>;
  const enroll = ({ id }: Group, secret: string, body: { serialNumber: string; csr?: string }, isDerived = false) =>
    fetch(`${url}/api/v1/enroll`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        authorization: `Basic ${Buffer.from(`${id}${isDerived ? `/${body.serialNumber}` : ''}:${secret}`).toString('base64')}`,
      },
      body: JSON.stringify(body),
    });
  const authority = await make('/access/certificate-authorities', { name: 'Fleet CA', issuing: true });
  const maker = { commonName: 'Secure chips', serialNumber: '01', from: Date.now(), to: Date.now() + 10 * year };
  const certificate = makeAuthority(makeKey(), maker);
  await make('/access/certificate-authorities', { name: 'Secure chips', certificate });

  const sensors = await newGroup({
    ...{ name: 'Room sensors 2027', proof: 'claimSecret', deviceTemplateId: templates.get('Room sensor') },
    ...{ organizationId: organizations.get('Hill depot'), serialNumberPattern: 'RS-2*', maxDevices: withSecret },
  });
  const pumps = await newGroup({
    ...{ name: 'Pump controllers, line 2', proof: 'derivedKey', deviceTemplateId: templates.get('Pump controller') },
    ...{ issues: 'certificate', certificateAuthorityId: authority.id, certificateDays },
  });
  await newGroup({
    ...{ name: 'Pilot series', proof: 'claimSecret', deviceTemplateId: templates.get('Room sensor') },
    ...{ disabled: true, reprovision: 'refuse' },
  });

  const { claimSecret = '' } = sensors;
  const serialNumbers = Array.from({ length: withSecret }, (_, n) => `RS-20${String(n + 1).padStart(2, '0')}`);
  // The last two are refused: one is another product, and the group is full by then.
  for (const serialNumber of [...serialNumbers, 'PC-2001', 'RS-2099'])
    await enroll(sensors, claimSecret, { serialNumber });
  await enroll(sensors, 'of last year', { serialNumber: 'RS-2001' });
  for (let n = 1; n <= enrolledCount - withSecret; n += 1) {
    const serialNumber = `PC-200${n}`;
    const key = createHmac('sha256', pumps.groupKey ?? '')
      .update(serialNumber)
      .digest('base64url');
    await enroll(pumps, key, { serialNumber, csr: makeRequest(makeKey(), serialNumber) }, true);
  }
}
