import { part } from '../support/part.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

async function find(q: string, { token = service.admin, accountId = service.accountId } = {}) {
  const query = new URLSearchParams({ accountId, q });
  return (await service.ok('GET', `/api/v1/search?${query}`, { token })).hits;
}
const namesOf = (hits: { type: string; name: string }[]) => hits.map(({ type, name }) => `${type} ${name}`);

t.test('finds everything that has a name, whatever part of it is given', async (t) => {
  const organization = await service.organization({ name: 'Gletscher Nord' });
  const product = await service.template({ name: 'Gletscherpumpe' });
  const { endUser, email } = await service.endUser(organization.id, { name: 'Ada Gletschermann' });
  const firmware = await service.create('/firmware/packages', 'firmwarePackage', {
    deviceTemplateId: product.id,
    name: 'gletscher-os',
    firmwareVersion: '4.2',
  });
  const program = await service.create('/applications', 'application', { name: 'Gletscher back-end', kind: 'backEnd' });
  const device = await service.create('/devices', 'device', {
    serialNumber: 'GP-0001',
    name: 'Pumpe am Gletscher',
    organizationId: organization.id,
    deviceTemplateId: product.id,
  });
  t.strictSame(await find(' GLETSCHER '), [
    { type: 'device', id: device.id, name: 'GP-0001', detail: 'Pumpe am Gletscher', organizationId: organization.id },
    { type: 'organization', id: organization.id, name: 'Gletscher Nord', detail: null, organizationId: null },
    {
      type: 'endUser',
      id: endUser.id,
      name: 'Ada Gletschermann',
      detail: email,
      organizationId: organization.id,
    },
    { type: 'deviceTemplate', id: product.id, name: 'Gletscherpumpe', detail: null, organizationId: null },
    { type: 'firmwarePackage', id: firmware.id, name: 'gletscher-os', detail: '4.2', organizationId: null },
    { type: 'application', id: program.id, name: 'Gletscher back-end', detail: 'backEnd', organizationId: null },
  ]);
  t.match(await find(email.slice(0, -4)), [{ type: 'endUser', id: endUser.id }], 'a person by the email address');
  t.match(await find('admin@exam'), [{ type: 'accountUser', name: 'admin@example.com' }]);
  t.match(await find('p-00'), [{ id: device.id }], 'a part of a serial number');
  for (const { id } of [device, organization, endUser, product, firmware, program]) {
    t.match(await find(id.toUpperCase()), [{ id }], 'an id');
    t.ok(
      (await find(id.slice(0, 30))).some((hit) => hit.id === id),
      'its beginning',
    );
  }
  t.same(await find('gp'), await find('GP'));
  t.same(await find('nothing-like-it'), []);
  t.same(await find('   '), []);
});

t.test('what is exactly meant is first, and there are at most twenty hits', async (t) => {
  const template = await service.template({ name: 'XR-77 sensor' });
  for (let n = 0; n < 24; n += 1)
    await service.create('/devices', 'device', { serialNumber: `A-XR-77${String(n).padStart(2, '0')}` });
  await service.create('/devices', 'device', { serialNumber: 'XR-778' });
  const exact = await service.create('/devices', 'device', { serialNumber: 'XR-77' });
  const hits = await find('xr-77');
  t.equal(hits.length, 20);
  t.equal(hits[0]?.id, exact.id);
  t.equal(hits[1]?.name, 'XR-778', 'then what begins with it');
  t.ok(
    hits.some(({ id }) => id === template.id),
    'many devices leave room for other kinds',
  );
});

t.test('names of devices are found as they are now', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'N-1', name: 'Weathervane' });
  const path = `/api/v1/devices/${device.id}`;
  const change = async (body: object) => {
    const { version } = (await service.ok('GET', path)).device;
    return service.ok('PUT', path, { headers: { etag: version }, body });
  };
  t.match(await find('thervan'), [{ id: device.id, detail: 'Weathervane' }]);
  await change({ name: 'Windsock' });
  t.same(await find('thervan'), []);
  t.match(await find('IND'), [{ id: device.id }]);
  await change({ name: null });
  t.same(await find('ndso'), []);
  await change({ name: 'Windsock' });
  await service.ok('DELETE', path, { headers: { etag: (await service.ok('GET', path)).device.version } });
  t.same(await find('ndso'), [], 'not in the trash');
  const { version } = (await service.ok('GET', `/api/v1/trash/devices/${device.id}`)).device;
  await service.ok('POST', `/api/v1/trash/devices/${device.id}/recover`, { headers: { etag: version } });
  t.match(await find('ndso'), [{ id: device.id }]);
});

t.test('a device is found by another field, a package by its version', async (t) => {
  const { id: deviceTemplateId } = await service.template({ name: 'Field product' });
  const field = await service.create('/devices/custom-fields', 'deviceField', {
    deviceTemplateId,
    name: 'room',
    fieldType: 'string',
  });
  await service.create('/devices/custom-fields', 'deviceField', { deviceTemplateId, name: 'floor', fieldType: 'int' });
  const make = (serialNumber: string, fields: object) =>
    service.create('/devices', 'device', { serialNumber, deviceTemplateId, ...fields });
  const device = await make('FT-1', { room: 'Kältekammer 7', floor: 4711, location: 'behind the door', name: 'FT' });
  await make('FT-2', { room: 'elsewhere' });
  const hit = { type: 'device', id: device.id, name: 'FT-1', detail: 'FT', organizationId: null };
  t.strictSame(await find('KÄLTEKAMMER'), [{ ...hit, match: 'room: Kältekammer 7' }], 'by a part, ignoring case');
  t.strictSame(await find('4711'), [{ ...hit, match: 'floor: 4711' }], 'by a number');
  t.strictSame(await find('behind the'), [{ ...hit, match: 'location: behind the door' }], 'by a built-in field');
  t.same(await find('7elsewhere'), [], 'not across fields');
  t.strictSame(await find('FT-1'), [hit], 'what is found by more says nothing of fields');

  const path = `/api/v1/devices/${device.id}`;
  const change = async (body: object) =>
    service.ok('PUT', path, { headers: { etag: (await service.ok('GET', path)).device.version }, body });
  await change({ room: 'Salzlager' });
  t.same(await find('kältekammer'), []);
  t.match(await find('salzlager'), [{ id: device.id }]);
  const home = await service.organization({ name: 'Far from the field' });
  const { token } = await service.endUser(home.id);
  t.same(await find('salzlager', { token }), [], 'not out of reach');
  await change({ organizationId: home.id });
  t.match(await find('salzlager', { token }), [{ id: device.id, match: 'room: Salzlager' }]);
  const custom = `/api/v1/devices/custom-fields/${field.id}`;
  await service.ok('DELETE', custom, { headers: { etag: (await service.ok('GET', custom)).deviceField.version } });
  t.same(await find('salzlager'), [], 'not by a field in the trash');

  const firmware = { deviceTemplateId, name: 'field-os', firmwareVersion: '77.13.5-rc' };
  const { id } = await service.create('/firmware/packages', 'firmwarePackage', firmware);
  t.match(await find('77.13'), [{ type: 'firmwarePackage', id, detail: '77.13.5-rc' }]);
});

t.test('a claim code finds its device, for who may make codes and reaches the device', async (t) => {
  const home = await service.organization({ name: 'Coded home' });
  const device = await service.create('/devices', 'device', { serialNumber: 'CODED-1', organizationId: home.id });
  const makeCode = () =>
    service.ok('POST', '/api/v1/association/create-association-code', { body: { deviceId: device.id } });
  const { associationCode } = await makeCode();
  t.match(await find(associationCode), [{ type: 'device', id: device.id, name: 'CODED-1' }]);
  t.match(await find(associationCode.toLowerCase().replaceAll('-', ' ')), [{ id: device.id }], 'however it is typed');
  t.same(await find(associationCode.slice(0, -1)), [], 'not by a part');
  const viewer = await service.endUser(home.id, { roleId: 'organization:viewer' });
  t.same(await find(associationCode, viewer), [], 'not for who may not make codes');
  const other = await service.organization({ name: 'Coded elsewhere' });
  t.same(await find(associationCode, await service.endUser(other.id)), [], 'not out of reach');
  const { accountId, admin: token } = await service.account();
  t.same(await find(associationCode, { accountId, token }), [], 'not in another account');
  await makeCode();
  t.same(await find(associationCode), [], 'not when another has replaced it');
});

t.test('an end-user finds its own only', async (t) => {
  const own = await service.organization({ name: 'Reach own' });
  const below = await service.organization({ name: 'Reach below', parentId: own.id });
  const other = await service.organization({ name: 'Reach other' });
  const template = await service.template({ name: 'Reach product' });
  const place = (name: string, organizationId?: string) =>
    service.create('/devices', 'device', {
      serialNumber: `REACH-${name}`,
      name: `reach of ${name}`,
      ...(organizationId && { organizationId }),
    });
  const [mine, lower, foreign] = [await place('1', own.id), await place('2', below.id), await place('3', other.id)];
  await place('4');
  const { token, endUser } = await service.endUser(own.id, { name: 'Reach me' });
  const stranger = (await service.endUser(other.id, { name: 'Reach them' })).endUser;
  t.strictSame(namesOf(await find('reach', { token })), [
    'device REACH-1',
    'device REACH-2',
    'organization Reach below',
    'organization Reach own',
    'endUser Reach me',
  ]);
  t.match(await find('reach of', { token }), [{ id: mine.id }, { id: lower.id }]);
  for (const { id } of [foreign, other, stranger, template]) t.same(await find(id, { token }), [], 'by no id');
  t.same(await find('REACH-3', { token }), [], 'by no serial number');
  t.match(await find(endUser.id, { token }), [{ id: endUser.id }]);
});

t.test('another account is never found', async (t) => {
  const { accountId, admin: token } = await service.account();
  const device = await service.create('/devices', 'device', { serialNumber: 'FOREIGN-1', name: 'foreign' });
  const there = { accountId, token };
  for (const q of ['FOREIGN-1', 'foreign', device.id, 'admin@example.com', 'Default'])
    for (const hit of await find(q, there)) t.not(hit.type, 'device', q);
  t.same(await find(device.id, there), []);
  t.same(await find('admin@example.com', there), []);
  const query = `accountId=${service.accountId}&q=FOREIGN`;
  t.match(await service.http('GET', `/api/v1/search?${query}`, { token }), {
    status: 404,
    body: { error: { code: 100 } },
  });
});

t.test('the question is bounded, and only people and back-ends ask it', async (t) => {
  const ask = (q: string, token = service.admin) =>
    service.http('GET', `/api/v1/search?accountId=${service.accountId}${q}`, { token });
  const refused = { status: 400, body: { error: { code: 106, details: [{ path: 'q' }] } } };
  for (const q of ['', '&q=', `&q=${'x'.repeat(256)}`, '&q=%00']) t.match(await ask(q), refused, q.slice(0, 10));
  t.equal((await ask(`&q=${'%F0%9F%92%A7'.repeat(100)}`)).status, 200);
  t.same((await ask(`&q=${encodeURIComponent(`"' OR *% _`)}`)).status, 200);
});

t.end();
