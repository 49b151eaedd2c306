/** Certificates of registered CAs that name their device by its serial number, and attributes that become fields. */
import { randomUUID } from 'node:crypto';
import type { Test } from 'tap';
import { certificate } from '../broker/certificate.ts';
import { publishPacket } from '../broker/raw.ts';
import { type Made, makeAuthority, makeCertificate, registerAuthority } from '../support/certificates.ts';
import { joinWith } from '../support/openssl.ts';
import { part } from '../support/part.ts';
import { type Anything, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const authorities = '/api/v1/access/certificate-authorities';

let service: Service;
let template: Anything['deviceTemplate'];
t.before(async () => {
  service = await startService(t, {
    env: {
      ...certificate(t),
      SLIPWAY_MQTT_FAILED_CONNECTS_PER_ADDRESS: '0',
      SLIPWAY_MQTT_FAILED_CONNECTS_PER_PRINCIPAL: '0',
    },
  });
  template = await service.template({ channels: ['data'] });
  const field = { deviceTemplateId: template.id, fieldType: 'string' };
  for (const name of ['customer', 'plant'])
    await service.create('/devices/custom-fields', 'customField', { ...field, name });
});

const newDevice = (serialNumber: string) =>
  service.create('/devices', 'device', { serialNumber, deviceTemplateId: template.id });
const join = (t: Test, shown: Made, username = '') =>
  joinWith(t, service.mqttsPort, shown, { username, clientId: service.unique('client') });
const codeOf = async (...given: Parameters<typeof join>) => (await join(...given)).returnCode;
const refusalsOf = async (deviceId: string) =>
  (await service.ok('GET', `/api/v1/devices/${deviceId}/refusals`)).refusals.results.map(({ reason }) => reason);
const update = async (id: string, body: object) => {
  const { version } = (await service.ok('GET', `${authorities}/${id}`)).certificateAuthority;
  return service.http('PUT', `${authorities}/${id}`, { headers: { etag: version }, body });
};
const bySerialNumber = async (more: object = {}) => {
  const made = await makeAuthority();
  return { made, ca: await registerAuthority(service, made, { identity: 'serialNumber', ...more }) };
};

t.test('blanks at the ends of the attribute are no part of the serial number', async (t) => {
  const { made } = await bySerialNumber({ serialNumberAttribute: 'serialNumber' });
  await newDevice('SN-BLANK');
  for (const text of ['SN-BLANK\u00a0', '\ufeffSN-BLANK', 'SN-BLANK\r']) {
    const subject = [{ '2.5.4.5': [{ utf8String: text }] }] as never;
    t.equal(await codeOf(t, await makeCertificate({ subject, issuer: made })), 0, encodeURIComponent(text));
  }
});

t.test('a serial number may be any kind of string that TLS takes, of digits too', async (t) => {
  const { made } = await bySerialNumber({ serialNumberAttribute: 'serialNumber' });
  await newDevice('1712002');
  // NumericString, PrintableString and IA5String.
  for (const tag of [18, 19, 22]) {
    const value = Buffer.concat([Buffer.from([tag, 7]), Buffer.from('1712002')]).toString('hex');
    const subject = [{ '2.5.4.5': [`#${value}`] }] as never;
    t.equal(await codeOf(t, await makeCertificate({ subject, issuer: made })), 0, `tag ${tag}`);
  }
});

t.test('a certificate names its device however the letters of the serial number are composed', async (t) => {
  const { made } = await bySerialNumber();
  await newDevice('SN-COMPOSED-\u00e9');
  for (const text of ['SN-COMPOSED-\u00e9', 'SN-COMPOSED-e\u0301']) {
    const subject = [{ '2.5.4.3': [{ utf8String: text }] }] as never;
    t.equal(await codeOf(t, await makeCertificate({ subject, issuer: made })), 0, encodeURIComponent(text));
  }
});

t.test(
  'the issuer of a certificate is its CA in another letter case, spacing and kind of string, and no other',
  async (t) => {
    const subject = 'O="Acme, Inc", OU=Plant Süd, CN=Factory 7';
    const made = await makeAuthority({ subject });
    await registerAuthority(service, made, { identity: 'serialNumber' });
    await newDevice('SN-ISSUER');
    const signedAs = (name: string, by = made): Made => ({ ...by, signer: { ...by.signer, subject: name } });
    const below = await makeAuthority({ subject: 'O="Acme, Inc", CN=Line', issuer: signedAs(subject.toUpperCase()) });
    const codeFor = async (issuer: Made, more = '') => {
      const own = await makeCertificate({ subject: 'CN=SN-ISSUER', issuer });
      return codeOf(t, { ...own, cert: `${own.cert}${more}` });
    };
    for (const name of [
      subject,
      'O="acme, INC", OU=plant süd, CN=FACTORY 7',
      'O="\\ Acme,   Inc", OU="Plant  Süd\\ ", CN=Factory   7',
    ])
      t.equal(await codeFor(signedAs(name)), 0, name);
    t.equal(await codeFor(below, below.cert), 0, 'by a CA in between');
    t.equal(await codeFor(signedAs('O="ACME, Inc", CN=line', below)), 0, 'that is remembered');
    for (const name of ['O="Acme,Inc", OU=Plant Süd, CN=Factory 7', 'CN=Factory 7, OU=Plant Süd, O="Acme, Inc"'])
      t.equal(await codeFor(signedAs(name)), 4, name);
  },
);

t.test('a certificate names its device by the serial number, which exactly one device must have', async (t) => {
  const { made, ca } = await bySerialNumber();
  t.equal(ca.identity, 'serialNumber');
  const device = await newDevice('SN-1');
  const own = await makeCertificate({ subject: 'CN=SN-1', issuer: made });
  t.equal(await codeOf(t, own, ''), 0);
  t.equal(await codeOf(t, own, service.accountId), 0);
  t.equal(await codeOf(t, own, device.id), 4, 'the username is the account, or empty');
  t.equal(await codeOf(t, await makeCertificate({ subject: 'CN=SN-2', issuer: made })), 4, 'no device has it');
  t.equal(await codeOf(t, await makeCertificate({ subject: `CN=${device.id}`, issuer: made })), 4, 'ids do not count');
  t.equal(await codeOf(t, await makeCertificate({ subject: 'CN=SN-1', issuer: await makeAuthority() })), 4);
  const twin = await newDevice('SN-1');
  t.equal(await codeOf(t, own), 5);
  t.match(await refusalsOf(device.id), [
    'several devices have the serial number of the certificate',
    /id of the account as username/,
  ]);
  await service.ok('DELETE', `/api/v1/devices/${twin.id}`, { headers: { etag: twin.version } });
  const joined = await join(t, own);
  t.equal(joined.returnCode, 0, 'one in the trash does not count');
  const changed = await update(ca.id, { identity: 'id' });
  t.match(changed.headers.get('platform-revocation'), /^connections=[1-9]/);
  await joined.closed;
  t.equal(await codeOf(t, own), 4, 'from then on the CN is an id');
  t.equal(await codeOf(t, await makeCertificate({ subject: `CN=${device.id}`, issuer: made })), 0);
});

t.test('another attribute has the serial number; a CA of several accounts needs the account as username', async (t) => {
  const { made } = await bySerialNumber({ serialNumberAttribute: 'serialNumber' });
  const device = await newDevice('SN-3');
  const own = await makeCertificate({ subject: 'CN=pump, 2.5.4.5=SN-3', issuer: made });
  t.equal(await codeOf(t, own), 0);
  const { accountId, admin } = await service.account();
  await registerAuthority(
    service,
    made,
    { accountId, identity: 'serialNumber', serialNumberAttribute: 'serialNumber' },
    admin,
  );
  await service.create('/devices', 'device', { accountId, serialNumber: 'SN-3' }, admin);
  t.equal(await codeOf(t, own), 4);
  t.equal(await codeOf(t, own, service.accountId), 0);
  t.equal(await codeOf(t, own, accountId), 0);
  const joined = await join(t, own, service.accountId);
  joined.send(publishPacket(service.topic(device.id, 'data'), ',c,1,', { qos: 1, messageId: 1 }));
  t.match(await joined.next(), { cmd: 'puback' });
  const { result } = await service.ok('GET', `/api/v4/data/${service.topic(device.id, 'data')}`);
  t.equal(result.length, 1);
});

t.test('nobody takes a device over by registering its certificate in another account', async (t) => {
  const { made } = await bySerialNumber();
  await newDevice('SN-4');
  const own = await makeCertificate({ subject: 'CN=SN-4', issuer: made });
  const { accountId, admin } = await service.account();
  const { id } = await service.create('/devices', 'device', { accountId, serialNumber: 'thief' }, admin);
  const body = { accountId, entityId: id, entityType: 'device', certificate: own.cert };
  await service.create('/access/mqtt-certificates', 'mqttCertificate', body, admin);
  t.equal(await codeOf(t, own), 4, 'ambiguous');
  t.equal(await codeOf(t, own, service.accountId), 0);
});

t.test('attributes of the subject become fields of a device that the CA makes', async (t) => {
  const made = await makeAuthority();
  const ca = await registerAuthority(service, made, {
    ...{ createDevices: true, deviceTemplateId: template.id },
    subjectFields: { O: 'customer', OU: 'plant', L: 'location' },
  });
  t.same(ca.subjectFields, { O: 'customer', OU: 'plant', L: 'location' });
  const id = randomUUID();
  const first = await makeCertificate({ subject: `CN=${id}, O="Acme, Ltd", L=Köln`, issuer: made });
  t.equal(await codeOf(t, first), 0);
  t.match((await service.ok('GET', `/api/v1/devices/${id}`)).device, {
    ...{ customer: 'Acme, Ltd', plant: null, location: 'Köln', serialNumber: id },
  });
  const next = randomUUID();
  const several = await makeCertificate({ subject: `CN=${next}, OU=A, OU=B`, issuer: made });
  t.equal(await codeOf(t, several), 0);
  t.match(
    (await service.ok('GET', `/api/v1/devices/${next}`)).device,
    { customer: null, plant: null },
    'of several none',
  );
  const long = await makeCertificate({
    subject: `CN=${randomUUID()}, O=${'x'.repeat(64)}, L=${'y'.repeat(64)}`,
    issuer: made,
  });
  t.equal(await codeOf(t, long), 0);
});

t.test('what does not go together, or is not there, is refused', async (t) => {
  const { certificate: pem } = { certificate: (await makeAuthority()).cert };
  const make = (body: object) =>
    service.http('POST', authorities, {
      body: { accountId: service.accountId, name: service.unique('CA'), certificate: pem, ...body },
    });
  const refusal = (path: string, code = 106) => ({ status: 400, body: { error: { code, details: [{ path }] } } });
  const makes = { createDevices: true, deviceTemplateId: template.id };
  t.match(await make({ ...makes, identity: 'serialNumber' }), refusal('createDevices'));
  t.match(await make({ subjectFields: { O: 'customer' } }), refusal('subjectFields'));
  t.match(await make({ ...makes, subjectFields: { O: 'nothing' } }), refusal('subjectFields.O', 102));
  t.match(await make({ ...makes, subjectFields: { 'O O': 'customer' } }), { status: 400 });
  const many = Object.fromEntries(Array.from({ length: 21 }, (_, at) => [`A${at}`, 'customer']));
  t.match(await make({ ...makes, subjectFields: many }), { status: 400 });
  t.match(await make({ identity: 'name' }), { status: 400 });
  const issuer = await service.create('/access/certificate-authorities', 'certificateAuthority', {
    name: service.unique('CA'),
    issuing: true,
  });
  t.match(await update(issuer.id, { identity: 'serialNumber' }), refusal('identity'));
  const { crlPolicy, crlUrl, identity, subjectFields, createDevices } = issuer;
  const same = { name: 'Renamed', crlPolicy, crlUrl, identity, subjectFields, createDevices };
  t.equal((await update(issuer.id, same)).status, 200, 'what was read may be sent back');
});
t.end();
