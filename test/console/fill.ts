/** An account that has something in every place of the console. */
import type { Test } from 'tap';
import { claim, newGroup } from '../enrollment/devices.ts';
import { makeCertificate } from '../support/certificates.ts';
import { openssl } from '../support/openssl.ts';
import type { Service } from '../support/service.ts';

/** Something for every place to show, and the addresses of all places. `named` makes names longer, or foreign. */
export async function fill(t: Test, service: Service, named = (name: string) => name): Promise<string[]> {
  const organization = await service.organization({ name: named('North') });
  await service.organization({ name: named('North-east'), parentId: organization.id });
  await service.endUser(organization.id);
  const parameters = { type: 'object', properties: { seconds: { type: 'integer', minimum: 1 } } };
  const { id: deviceTemplateId } = await service.template({
    name: named('Pump'),
    channels: ['readings'],
    commands: [
      { name: 'pump', title: named('Pump for a while').slice(0, 100), parameters, forCustomers: true },
      { name: 'reboot', title: 'Restart', confirm: true },
    ],
  });
  const fleet = await service.create('/fleets', 'fleet', {
    name: named('Pumps in the north'),
    filter: `within eq "${organization.id}" and deviceTemplateId eq "${deviceTemplateId}"`,
    organizationId: organization.id,
  });
  const filter = `${fleet.filter} and not (name eq "${named('x')}")`;
  const { device, secret } = await service.device({
    serialNumber: named('SN-0001'),
    deviceTemplateId,
    organizationId: organization.id,
    latitude: 53.54,
    longitude: 9.99,
  });
  const client = await service.connect({ deviceId: device.id, secret });
  await client.publishAsync(service.topic(device.id, 'readings'), ',temperature,21.5,', { qos: 1 });
  await client.publishAsync(service.topic(device.id, 'reading'), ',temperature,21.5,', { qos: 1 });
  // Two of what has buttons in its rows.
  for (const n of [1, 2]) {
    await service.create('/applications', 'application', { name: named(`Back office ${n}`), kind: 'backEnd' });
    const field = { deviceTemplateId, name: `room ${n}`, fieldType: 'string' };
    await service.create('/devices/custom-fields', 'deviceField', field);
    await service.create('/bridges', 'bridge', {
      name: named(`Lake ${n}`),
      kind: 'webhook',
      url: 'https://lake.example.com/',
    });
    const { issuer, clientId } = { issuer: `https://id${n}.example.com`, clientId: 'console' };
    await service.create('/identity-providers', 'identityProvider', { name: named(`Company ${n}`), issuer, clientId });
    const { cert: certificate } = await makeCertificate({ ca: true, subject: `CN=CA ${n}` });
    await service.create('/access/certificate-authorities', 'certificateAuthority', {
      name: named(`CA ${n}`),
      certificate,
    });
    await service.ok('POST', `/api/v1/devices/${device.id}/commands`, { body: { name: `reboot ${n}` } });
    await service.ok('POST', `/api/v1/devices/${device.id}/support`, {
      body: { message: named(`It stays cold ${n}`) },
    });
    const { device: made } = await service.device({ serialNumber: named(`SN-GONE-${n}`) });
    const { device: gone } = await service.ok('GET', `/api/v1/devices/${made.id}`);
    await service.ok('DELETE', `/api/v1/devices/${gone.id}`, { headers: { etag: gone.version } });
  }
  await service.create('/firmware/packages', 'firmwarePackage', {
    name: named('Pump firmware'),
    firmwareVersion: '2.0',
    deviceTemplateId,
  });
  const { id: certificateAuthorityId } = await service.create(
    '/access/certificate-authorities',
    'certificateAuthority',
    { name: named('Issuer'), issuing: true },
  );
  const group = await newGroup(service, {
    name: named('Line 1'),
    issues: 'either',
    certificateAuthorityId,
    certificateDays: 20,
  });
  for (const csr of [undefined, openssl(t).request().csr, 'none'])
    await claim(service, group, { serialNumber: named(service.unique('EN')), csr });
  const parts = [
    '',
    '/live',
    '/series',
    '/commands',
    '/log',
    '/refusals',
    '/fields',
    '/access',
    '/firmware',
    '/history',
  ];
  return [
    ...[
      'home',
      'home/refusals',
      'home/certificates',
      'nowhere',
      'first-device',
      'devices',
      `devices?${new URLSearchParams({ filter })}`,
      'fleets',
      `fleets/${fleet.id}`,
      'organizations',
      'people',
      'people/account-users',
      'people/roles',
      'products',
    ],
    ...[`products/${deviceTemplateId}`, `organizations/${organization.id}`, 'factory', 'factory/stations'],
    ...[
      'factory/verifications',
      'firmware',
      'firmware/rollouts',
      'account/tokens',
      'account/usage',
      'account/branding',
      'account/audit',
      'account/health',
    ],
    ...['programs', 'programs/identity-providers', 'programs/bridges', 'trash', 'account'],
    ...['enrollment', `enrollment/groups/${group.id}`, 'enrollment/certificates', 'enrollment/authorities'],
    ...parts.map((part) => `devices/${device.id}${part}`),
  ];
}
