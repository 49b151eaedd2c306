/** Certificates and CAs over HTTP: what is taken, what is shown, when it ends. */
import { metric } from '../broker/metrics.ts';
import {
  curve,
  KeyUsageFlags,
  type Made,
  makeAuthority,
  makeCertificate,
  makeProof,
  rsa,
  type Wanted,
} from '../support/certificates.ts';
import { purgeNow, warnNow } from '../support/clockwork.ts';
import { changeStored } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { type Entity, nextMessage, type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';

const t = await part(import.meta);

const day = 24 * 60 * 60_000;
const certificates = '/api/v1/access/mqtt-certificates';
const authorities = '/api/v1/access/certificate-authorities';
/** A curve of 224 bits, which no Web Crypto makes. */
const weakCurve = `-----BEGIN CERTIFICATE-----
MIIBYjCCARCgAwIBAgIUH137tiw1CkCShryYsP28/fvzy2UwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEd2VhazAgFw0yNjExMjEyMDAyNDlaGA8yMTI2MTAyODIwMDI0
OVowDzENMAsGA1UEAwwEd2VhazBOMBAGByqGSM49AgEGBSuBBAAhAzoABNJ3MHs3
s+X7dNVB8jgD0clWqzdQ27vpJ4L1EdH4DRe2zZcD6WoFe5cWK3+4V7zXXYgtFaBa
18Xeo1MwUTAdBgNVHQ4EFgQUJbTvV9fia2XS+GIBj2/RDj97UWowHwYDVR0jBBgw
FoAUJbTvV9fia2XS+GIBj2/RDj97UWowDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjO
PQQDAgNAADA9Ah0Au61NuyttMxTB31uoS979tT8gpNw1ZADdQNo9IwIcPvYyNojE
xOmaFLT01VOO/90XPuCj4acm3H6zEw==
-----END CERTIFICATE-----
`;
let now = Date.now();
const logLines: string[] = [];
let service: Service;
let other: { accountId: string; token: string };
t.before(async () => {
  service = await startService(t, { clock: { now: () => now }, logLines });
  const { accountId, admin: token } = await service.account();
  other = { accountId, token };
});

const newDevice = () => service.create('/devices', 'device', { serialNumber: 'X' });
const send = (path: string, body: object, token = service.admin) =>
  service.http('POST', path, { body: { accountId: service.accountId, ...body }, token });
const register = (entityId: string, certificate: string) =>
  send(certificates, { entityId, entityType: 'device', certificate });
const registered = async (entityId: string, { cert }: Made) => (await register(entityId, cert)).body.mqttCertificate;
const refusal = (path: string, message: RegExp) => ({
  status: 400,
  body: { error: { code: 106, details: [{ path, message }] } },
});
const listed = async (path: string, query: object): Promise<string[]> => {
  const search = new URLSearchParams({ accountId: service.accountId, ...query });
  const [page] = Object.values(await service.ok('GET', `${path}?${search}`)) as [{ results: Entity[] }];
  return page.results.map(({ id }) => id);
};
const events = async (targetId: string) =>
  (
    await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&targetId=${targetId}&sortOrder=asc`)
  ).auditRecords.results.map(({ event }) => event);

const published = 'INSERT INTO "publications" ("deviceId", "time") VALUES (?, ?)';

t.test('the first certificate activates a defined device, which says so; it is shown as it is', async (t) => {
  const device = await newDevice();
  const to = Math.floor(now / 1000) * 1000 + 90 * day;
  const made = await makeCertificate({ subject: 'CN=a device, O=Acme', to });
  await changeStored(service, published, [device.id, device.created]);
  const watcher = await service.connect({ jwt: service.admin });
  await watcher.subscribeAsync(service.topic('+', '_updates/fields'));
  const told = nextMessage(watcher);
  const answer = await register(device.id, `a line before\n${made.cert}`);
  t.equal(answer.status, 200);
  const { entityVersion, ...mqttCertificate } = answer.body.mqttCertificate;
  t.equal(answer.headers.get('etag'), `"${entityVersion}"`, 'that of the device');
  t.match(mqttCertificate, {
    accountId: service.accountId,
    entityId: device.id,
    entityType: 'device',
    fingerprint: made.fingerprint,
    subject: 'CN=a device, O=Acme',
    issuer: 'CN=a device, O=Acme',
    validTo: new Date(to).toISOString(),
    certificate: made.cert,
    version: '1',
  });
  t.same(JSON.parse((await told).text), { state: { provisioningState: 'activated' } });
  t.equal((await service.ok('GET', `/api/v1/devices/${device.id}`)).device.provisioningState, 'activated');
  t.equal(countStored(service, 'publications', '"deviceId" = ?', [device.id]), 0);
  t.match(await service.ok('GET', `${certificates}/${mqttCertificate.id}`), { mqttCertificate });
  const again = await service.ok('GET', `/api/v1/devices/${device.id}`);
  await registered(device.id, await makeCertificate());
  t.equal((await service.ok('GET', `/api/v1/devices/${device.id}`)).device.version, again.device.version);
  t.same(await events(device.id), ['certificateRegistered', 'certificateRegistered']);
});

t.test('a certificate belongs to one device of its account, until it is deleted', async (t) => {
  const [one, two] = [await newDevice(), await newDevice()];
  const made = await makeCertificate();
  const first = await registered(one.id, made);
  for (const { id } of [one, two])
    t.match(await register(id, made.cert), refusal('certificate', /Another entity already has this/));
  const theirs = await service.create(
    '/devices',
    'device',
    { accountId: other.accountId, serialNumber: 'T' },
    other.token,
  );
  const body = { accountId: other.accountId, entityId: theirs.id, entityType: 'device', certificate: made.cert };
  t.equal((await send(certificates, body, other.token)).status, 200, 'another account may have it, too');
  t.match(await send(certificates, { ...body, accountId: service.accountId }), {
    status: 400,
    body: { error: { code: 102 } },
  });
  t.match(await service.http('DELETE', `${certificates}/${first.id}`, { headers: { etag: '9' } }), { status: 412 });
  await service.ok('DELETE', `${certificates}/${first.id}`, { headers: { etag: first.version } });
  t.match(await service.http('GET', `${certificates}/${first.id}`), { status: 410, body: { error: { code: 107 } } });
  t.equal((await register(two.id, made.cert)).status, 200);
  t.match(await events(one.id), ['certificateRegistered', 'certificateDeleted']);
  for (let at = 1; at < 10; at += 1) await registered(two.id, await makeCertificate());
  t.match(await register(two.id, (await makeCertificate()).cert), refusal('entityId', /10 certificates/));
});

t.test('what is weak, over, early or more than a certificate is refused', async (t) => {
  const { id } = await newDevice();
  const refused = async (certificate: string, message: RegExp) =>
    t.match(await register(id, certificate), refusal('certificate', message), String(message));
  const made = await makeCertificate();
  await refused('no certificate', /PEM/);
  await refused(made.cert.replace(/[A-Z]{3}/, '@@@'), /PEM/);
  await refused(made.cert + made.cert, /exactly one/);
  await refused(made.cert + made.key, /private key/);
  await refused((await makeCertificate({ to: now - 1000 })).cert, /expired/);
  await refused((await makeCertificate({ from: now + day })).cert, /not valid yet/);
  const kinds: Array<[Wanted['kind'], RegExp | undefined]> = [
    [rsa(1024), /2048/],
    [rsa(2048, 'SHA-1'), /weak/],
    [rsa(2048, 'SHA-1', 'RSA-PSS'), /weak/],
    [rsa(2048), undefined],
    [rsa(2048, 'SHA-384', 'RSA-PSS'), undefined],
    [curve('P-256', 'SHA-1'), /weak/],
    [curve('P-384', 'SHA-384'), undefined],
    [{ name: 'Ed25519' } as Wanted['kind'], undefined],
  ];
  for (const [kind, message] of kinds) {
    const { cert } = await makeCertificate(kind ? { kind } : {});
    if (message) await refused(cert, message);
    else t.equal((await register(id, cert)).status, 200, JSON.stringify(kind));
  }
  await refused(weakCurve, /256/);
});

t.test('lists filter by device, fingerprint and date; a cursor on what expires', async (t) => {
  const [one, two] = [await newDevice(), await newDevice()];
  const [soon, late] = [await makeCertificate({ to: now + 10 * day }), await makeCertificate({ to: now + 60 * day })];
  const [first, second] = [await registered(one.id, soon), await registered(two.id, late)];
  t.same(await listed(certificates, { entityId: one.id }), [first.id]);
  t.same(await listed(certificates, { fingerprint: late.fingerprint }), [second.id]);
  const until = (days: number) => ({ expiresBefore: new Date(now + days * day).toISOString() });
  t.same(await listed(certificates, until(11)), [first.id]);
  t.same(await listed(certificates, { entityId: two.id, ...until(59) }), []);
  t.match(
    await service.http('GET', `${certificates}?accountId=${service.accountId}&expiresBefore=soon`),
    refusal('expiresBefore', /ISO/),
  );

  const gauge = (kind: string) => metric({ service }, `slipway_certificates_expiring{kind="${kind}",within="30d"}`);
  t.equal(await gauge('device'), 1);
  t.equal(await gauge('authority'), 0);
  const ca = await makeAuthority({ to: now + 20 * day });
  const made = await service.create('/access/certificate-authorities', 'certificateAuthority', {
    name: 'soon',
    certificate: ca.cert,
  });
  t.equal(await gauge('authority'), 1);
  t.same(await listed(authorities, until(21)), [made.id]);
  const warnings = () =>
    logLines.filter((line) => line.includes('expire within 30 days')).map((line) => JSON.parse(line));
  warnNow(service);
  t.match(warnings(), [{ level: 40, certificates: { count: 1, first: first.validTo }, authorities: { count: 1 } }]);
  for (const [path, entity] of [
    [certificates, first],
    [authorities, made],
  ] as const)
    await service.ok('DELETE', `${path}/${entity.id}`, { headers: { etag: entity.version } });
  warnNow(service);
  t.equal(warnings().length, 1, 'there is nothing to warn of');
  t.equal(await gauge('device'), 0);
});

t.test('a CA is one, once in an account, and makes only what is there', async (t) => {
  const root = await makeAuthority();
  const post = (certificate: string, body: object = {}, token = service.admin) =>
    send(authorities, { name: service.unique('CA'), certificate, ...body }, token);
  const answer = await post(root.cert, { name: 'factory' });
  t.match(answer.body.certificateAuthority, {
    name: 'factory',
    fingerprint: root.fingerprint,
    subject: 'O=Acme\\, Inc, CN=Factory',
    createDevices: false,
    deviceTemplateId: null,
    organizationId: null,
  });
  t.match(await post(root.cert), refusal('certificate', /Another entity already has this/));
  const theirs = (await post(root.cert, { accountId: other.accountId }, other.token)).body.certificateAuthority;
  t.match(theirs, { state: 'pending', challenge: /^[\w-]{43}$/ });
  t.not(theirs.challenge, answer.body.certificateAuthority.challenge);
  t.same(await listed(authorities, { state: 'pending', name: 'factory' }), [answer.body.certificateAuthority.id]);
  const { id: rootId, challenge } = answer.body.certificateAuthority;
  const proof = { certificate: (await makeProof(root, challenge)).cert };
  const proven = await service.http('POST', `${authorities}/${rootId}/proof`, { body: proof });
  t.match(proven.body.certificateAuthority, { state: 'active', challenge: null, version: '2' });
  t.equal(proven.headers.get('etag'), '"2"');
  t.same(await events(rootId), ['certificateAuthorityRegistered', 'certificateAuthorityProven']);
  const second = await makeAuthority({ issuer: root, subject: 'CN=below', keyUsage: KeyUsageFlags.keyCertSign });
  t.match(await post(second.cert, { name: 'factory' }), refusal('name', /Another entity already has this/));
  t.match(await post((await makeCertificate()).cert), refusal('certificate', /CA:TRUE/));
  t.match(
    await post((await makeAuthority({ keyUsage: KeyUsageFlags.cRLSign })).cert),
    refusal('certificate', /keyUsage/),
  );
  t.match(await post((await makeAuthority({ to: now - 1000 })).cert), refusal('certificate', /expired/));
  t.match(await post((await makeAuthority({ kind: rsa(1024) })).cert), refusal('certificate', /2048/));
  t.match(await post(second.cert, { createDevices: true }), refusal('deviceTemplateId', /required/));

  const template = await service.template();
  const foreign = await service.create(
    '/devices/templates',
    'deviceTemplate',
    { accountId: other.accountId, name: 'T' },
    other.token,
  );
  const unknown = (path: string) => ({ status: 400, body: { error: { code: 102, details: [{ path }] } } });
  t.match(await post(second.cert, { deviceTemplateId: foreign.id }), unknown('deviceTemplateId'));
  t.match(await post(second.cert, { organizationId: template.id }), unknown('organizationId'));
  const made = (await post(second.cert, { createDevices: true, deviceTemplateId: template.id })).body
    .certificateAuthority;
  const put = (body: object, version: string) =>
    service.http('PUT', `${authorities}/${made.id}`, { body, headers: { etag: version } });
  t.match(await put({ deviceTemplateId: null }, made.version), refusal('deviceTemplateId', /required/));
  t.match(await put({ deviceTemplateId: foreign.id }, made.version), unknown('deviceTemplateId'));
  for (const path of ['deviceTemplateId', 'organizationId'])
    t.match(await put({ [path]: '' }, made.version), unknown(path), `an empty ${path} is no id`);
  t.match(await put({ name: 'factory' }, made.version), { status: 400, body: { error: { code: 106 } } });
  const changed = await put({ name: 'line 2', createDevices: false }, made.version);
  t.match(changed.body.certificateAuthority, { name: 'line 2', createDevices: false, deviceTemplateId: template.id });
  t.match(await put({ name: 'x' }, made.version), { status: 412 });
  const { id, version } = changed.body.certificateAuthority;
  await service.ok('DELETE', `${authorities}/${id}`, { headers: { etag: version } });
  t.match(await service.http('GET', `${authorities}/${id}`), { status: 410 });
  t.same(await events(id), [
    'certificateAuthorityRegistered',
    'certificateAuthorityChanged',
    'certificateAuthorityDeleted',
  ]);
});

t.test('a deleted device keeps its certificates for as long as it can be recovered', async (t) => {
  const count = (entityId: string) => countStored(service, 'certificates', '"entityId" = ?', [entityId]);
  const [gone, kept] = [await newDevice(), await newDevice()];
  for (const { id } of [gone, kept]) await registered(id, await makeCertificate({ to: now + 365 * day }));
  const deleted = await registered(kept.id, await makeCertificate());
  await service.ok('DELETE', `${certificates}/${deleted.id}`, { headers: { etag: deleted.version } });
  const { device } = await service.ok('GET', `/api/v1/devices/${gone.id}`);
  await service.ok('DELETE', `/api/v1/devices/${gone.id}`, { headers: { etag: device.version } });
  now += 30 * day;
  await purgeNow(service);
  t.same([count(gone.id), count(kept.id)], [1, 2]);
  now += 1;
  await purgeNow(service);
  t.same([count(gone.id), count(kept.id)], [0, 1]);
});

t.end();
