/** Fleets: filters of devices under a name, what they hold, and for whom they are. */
import { newId } from '../../src/core/ids.ts';
import { storeMore } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { accountUser } from '../support/roles.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const etag = (version: string) => ({ headers: { etag: version } });
const fleetOf = (filter: string, more: object = {}, token = service.admin) =>
  service.create('/fleets', 'fleet', { name: service.unique('Fleet'), filter, ...more }, token);
const create = (body: object, token = service.admin) =>
  service.http('POST', '/api/v1/fleets', { body: { accountId: service.accountId, name: 'f', ...body }, token });
const refused = (status: number, code: number, path?: string) => ({
  status,
  body: { error: { code, ...(path && { details: [{ path }] }) } },
});
const device = (serialNumber: string, more: object = {}) =>
  service.create('/devices', 'device', { serialNumber, ...more });

/** How many devices a fleet has now. */
async function countOf(id: string, token = service.admin): Promise<number | undefined> {
  return (await service.ok('GET', `/api/v1/fleets/${id}?count=devices` as '/api/v1/fleets/{id}', { token })).fleet
    .deviceCount;
}

async function names(path: string, token = service.admin): Promise<string[]> {
  const url = `/api/v1${path}?accountId=${service.accountId}&pageSize=100` as '/api/v1/fleets';
  return (await service.ok('GET', url, { token })).fleets.results?.map(({ name }) => name) ?? [];
}

t.test('a fleet is what its filter says now, and it is changed, trashed and recovered with its version', async (t) => {
  const one = await device('alive-1', { firmwareVersion: '2.0' });
  await device('alive-2', { firmwareVersion: '1.0' });
  const filter = 'serialNumber sw "alive" and firmwareVersion lt "2.0"';
  const fleet = await fleetOf(filter, { description: 'To be updated' });
  t.match(fleet, { filter, description: 'To be updated', organizationId: null, problem: null });
  t.notOk('deviceCount' in fleet);
  t.equal(await countOf(fleet.id), 1);
  await service.ok('PUT', `/api/v1/devices/${one.id}`, { ...etag(one.version), body: { firmwareVersion: '1.9' } });
  t.equal(await countOf(fleet.id), 2, 'a device that begins to match');

  const url = `/api/v1/fleets/${fleet.id}` as '/api/v1/fleets/{id}';
  const changes = { filter: 'serialNumber eq "alive-2"', description: null };
  const { fleet: changed } = await service.ok('PUT', url, { ...etag(fleet.version), body: changes });
  t.match(changed, { ...changes, name: fleet.name });
  t.equal(await countOf(fleet.id), 1);
  t.match(await service.http('PUT', url, { ...etag(fleet.version), body: {} }), refused(412, 108));
  const { fleet: gone } = await service.ok('DELETE', url, etag(changed.version));
  t.match(await service.http('GET', url), refused(410, 107));
  t.same(await names('/trash/fleets'), [fleet.name]);
  await service.ok('POST', `/api/v1/trash/fleets/${fleet.id}/recover`, etag(gone.version));
  t.match((await service.ok('GET', url)).fleet, changes);
});

t.test('what is no filter, and a name that another fleet has, is refused', async (t) => {
  const fleet = await fleetOf('silent eq true');
  t.match(await create({ filter: 'nme pr' }), {
    ...refused(400, 106, 'filter'),
    body: { error: { details: [{ message: /^At character 1: nme is unknown. Is name meant/ }] } },
  });
  for (const filter of ['', 'silent eq "a"', 'x'.repeat(4001)])
    t.match(await create({ filter }), refused(400, 106, 'filter'), filter);
  t.match(await create({}), refused(400, 106));
  t.match(await create({ filter: 'silent eq true', name: fleet.name }), refused(400, 106, 'name'));
  t.match(
    await create({ filter: 'silent eq true', organizationId: newId(service.accountId) }),
    refused(400, 102, 'organizationId'),
  );
  const url = `/api/v1/fleets/${fleet.id}`;
  const body = { filter: 'silent' };
  t.match(await service.http('PUT', url, { ...etag(fleet.version), body }), refused(400, 106, 'filter'));
});

t.test('a fleet of an organization is for its people, and holds what is in it or below it', async (t) => {
  const upper = await service.organization();
  const middle = await service.organization({ parentId: upper.id });
  const lower = await service.organization({ parentId: middle.id });
  const other = await service.organization();
  for (const [at, { id: organizationId }] of [upper, middle, lower, other].entries())
    await device(`placed-${at}`, { organizationId });
  const [boss, manager, below, stranger] = await Promise.all(
    [upper, middle, lower, other].map(async ({ id }) => (await service.endUser(id)).token),
  );
  const filter = 'serialNumber sw "placed"';
  const ofAccount = await fleetOf(filter);
  t.match(await create({ filter }, manager), refused(403, 21));
  t.match(await create({ filter, organizationId: upper.id }, manager), refused(400, 102, 'organizationId'));
  const fleet = await fleetOf(filter, { organizationId: middle.id }, manager);
  t.equal(await countOf(fleet.id, manager), 2);
  t.equal(await countOf(fleet.id, boss), 2, 'not what is above it');
  t.equal(await countOf(fleet.id), 2, 'nor for the whole account');
  t.equal(await countOf(ofAccount.id), 4);
  t.same(await names('/fleets', manager), [fleet.name]);
  t.same(await names('/fleets', boss), [fleet.name]);
  for (const token of [below, stranger]) {
    t.same(await names('/fleets', token), []);
    t.match(await service.http('GET', `/api/v1/fleets/${fleet.id}`, { token }), refused(404, 100));
  }
  t.match(await service.http('GET', `/api/v1/fleets/${ofAccount.id}`, { token: manager }), refused(404, 100));
  const listed = `/api/v1/fleets?accountId=${service.accountId}&organizationId=${middle.id}&count=devices`;
  t.match((await service.ok('GET', listed as '/api/v1/fleets')).fleets, {
    meta: { count: 1 },
    results: [{ id: fleet.id, deviceCount: 2 }],
  });
  t.match(await service.http('GET', `${listed}&pageSize=101`), refused(400, 106, 'pageSize'));

  // An organization with a fleet stays; without one it goes, and the fleet does not come back without it.
  const alone = await service.organization();
  const last = await fleetOf(filter, { organizationId: alone.id });
  const place = `/api/v1/organizations/${alone.id}`;
  t.match(await service.http('DELETE', place, etag(alone.version)), refused(400, 104));
  const { fleet: gone } = await service.ok('DELETE', `/api/v1/fleets/${last.id}`, etag(last.version));
  await service.ok('DELETE', place as '/api/v1/organizations/{id}', etag(alone.version));
  const recovery = `/api/v1/trash/fleets/${last.id}/recover`;
  t.match(await service.http('POST', recovery, etag(gone.version)), refused(400, 102, 'organizationId'));
});

t.test('roles say who makes fleets and who reads them', async (t) => {
  const organization = await service.organization();
  const { id: organizationId } = organization;
  const fleet = await fleetOf('silent eq true', { organizationId });
  const url = `/api/v1/fleets/${fleet.id}`;
  for (const [roleId, may] of [
    ['account:operator', true],
    ['account:support', false],
    ['account:auditor', false],
    ['organization:manager', true],
    ['organization:operator', false],
    ['organization:installer', false],
    ['organization:viewer', false],
  ] as const) {
    const isOfAccount = roleId.startsWith('account');
    const { token } = await (isOfAccount
      ? accountUser(service, { roleId })
      : service.endUser(organizationId, { roleId }));
    t.equal((await service.http('GET', url, { token })).status, 200, `${roleId} reads`);
    const made = await create({ name: service.unique('Fleet'), filter: 'silent pr', organizationId }, token);
    t.match(made, may ? { status: 200 } : refused(403, 21), `${roleId} makes`);
  }
});

t.test('a field that is gone counts as without a value, and the fleet says so', async (t) => {
  const template = await service.template();
  const field = await service.create('/devices/custom-fields', 'deviceField', {
    ...{ deviceTemplateId: template.id, name: 'bay', fieldType: 'string' },
  });
  const inside = { deviceTemplateId: template.id };
  await device('bay-1', { ...inside, bay: 'north' });
  await device('bay-2', inside);
  const fleet = await fleetOf('fields.bay eq "north"');
  const others = await fleetOf('serialNumber sw "bay" and fields.bay ne "north"');
  t.same([await countOf(fleet.id), await countOf(others.id)], [1, 1]);
  await service.ok('DELETE', `/api/v1/devices/custom-fields/${field.id}`, etag(field.version));
  t.same([await countOf(fleet.id), await countOf(others.id)], [0, 2]);
  const url = `/api/v1/fleets/${fleet.id}` as '/api/v1/fleets/{id}';
  const body = { name: service.unique('Renamed'), filter: fleet.filter };
  t.match(await service.ok('PUT', url, { ...etag(fleet.version), body }), {
    fleet: { ...body, problem: 'At character 1: fields.bay is unknown.' },
  });
});

t.test('a list takes a fleet, also with a filter, and never leaves the reach of the caller', async (t) => {
  const [one, other] = [await service.organization(), await service.organization()];
  await device('listed-1', { organizationId: one.id, firmwareVersion: '1' });
  await device('listed-2', { organizationId: one.id });
  await device('listed-3', { organizationId: other.id, firmwareVersion: '1' });
  const ofAccount = await fleetOf('serialNumber sw "listed"');
  const ofOne = await fleetOf('serialNumber sw "listed"', { organizationId: one.id });
  const { token } = await service.endUser(one.id);
  const listed = async (more: Record<string, string>, token = service.admin) => {
    const query = new URLSearchParams({ accountId: service.accountId, ...more });
    const { devices } = await service.ok('GET', `/api/v1/devices?${query}` as '/api/v1/devices', { token });
    t.type(devices.meta?.scanned, 'number');
    t.equal(devices.meta?.count, devices.results?.length);
    return devices.results?.map(({ serialNumber }) => serialNumber);
  };
  t.same(await listed({ fleetId: ofAccount.id }), ['listed-1', 'listed-2', 'listed-3']);
  t.same(await listed({ fleetId: ofOne.id }), ['listed-1', 'listed-2']);
  t.same(await listed({ fleetId: ofAccount.id, filter: 'firmwareVersion pr' }), ['listed-1', 'listed-3']);
  t.same(await listed({ fleetId: ofOne.id, organizationId: other.id, below: 'true' }), []);
  t.same(await listed({ fleetId: ofAccount.id, organizationId: one.id }), ['listed-1', 'listed-2']);
  t.same(await listed({ fleetId: ofOne.id }, token), ['listed-1', 'listed-2']);
  const unknown = async (fleetId: string, token = service.admin) => {
    const url = `/api/v1/devices?accountId=${service.accountId}&fleetId=${fleetId}`;
    t.match(await service.http('GET', url, { token }), refused(400, 102, 'fleetId'));
  };
  await unknown(ofAccount.id, token);
  await unknown(newId(service.accountId));
  await unknown('');
  await service.ok('DELETE', `/api/v1/fleets/${ofOne.id}`, etag(ofOne.version));
  await unknown(ofOne.id);
});

t.test('a device says in which fleets it is, and why it is or is not in one', async (t) => {
  const own = await service.inNewAccount();
  const organization = await own.organization({ city: 'Bern' });
  const template = await own.template();
  await own.create('/devices/custom-fields', 'deviceField', {
    ...{ deviceTemplateId: template.id, name: 'Shelf no.', fieldType: 'int' },
  });
  const { id } = await own.create('/devices', 'device', {
    ...{ serialNumber: 'why-1', firmwareVersion: '1.9.3', deviceTemplateId: template.id },
    ...{ organizationId: organization.id, 'Shelf no.': 7 },
  });
  const fleet = (name: string, filter: string, more: object = {}) =>
    own.create('/fleets', 'fleet', { name, filter, ...more });
  for (let n = 0; n < 12; n += 1)
    await fleet(`z ${n}`, n % 2 ? 'firmwareVersion lt "1.10.0"' : 'firmwareVersion lt "1.9"');
  await fleet('a', 'serialNumber eq "why-1"', { organizationId: organization.id });
  await fleet('b', 'serialNumber eq "why-1"', { organizationId: (await own.organization()).id });
  const url = `/api/v1/devices/${id}/fleets` as '/api/v1/devices/{id}/fleets';
  const fleetsOf = async (query = '', token = own.admin) => {
    const answer = await own.http('GET', `${url}${query}`, { token });
    const { results, meta } = answer.body.fleets as { results: { name: string }[]; meta: { count: number } };
    return { names: results.map(({ name }) => name), count: meta.count };
  };
  const all = ['a', 'z 1', 'z 11', 'z 3', 'z 5', 'z 7', 'z 9'];
  t.same(await fleetsOf('?pageSize=100'), { names: all, count: 7 });
  t.same(await fleetsOf('?pageSize=2&page=4'), { names: ['z 9'], count: 7 });
  t.match(await own.http('GET', `${url}?page=9`), refused(416, 109));
  const { token } = await own.endUser(organization.id);
  t.same(await fleetsOf('', token), { names: ['a'], count: 1 });

  const terms = [
    ['firmwareVersion lt "1.9"', false, '1.9.3'],
    ['Serialnumber  co "WHY"', true, 'why-1'],
    ['fields."Shelf no." ge 8', false, 7],
    ['connected eq true', false, false],
    ['organization.city eq "Bern"', true, 'Bern'],
    ['firmware.state pr', false, null],
  ] as const;
  const [old, named, shelf, connected, city, state] = terms.map(([term]) => term);
  const asked = await fleet(
    'asked',
    `(${old} or ${named} ) and not(${shelf}) and not (${connected}) AND ${city}  or ${state}`,
  );
  const explained = (await own.http('GET', `${url}?explain=${asked.id}`)).body;
  t.same(explained, {
    explanation: {
      fleetId: asked.id,
      matches: true,
      terms: terms.map(([term, holds, value]) => ({ term, holds, value })),
    },
  });
  const elsewhere = (await own.ok('GET', `/api/v1/fleets?accountId=${own.accountId}&name=b` as '/api/v1/fleets'))
    .fleets;
  const outside = (await own.http('GET', `${url}?explain=${elsewhere.results?.[0]?.id}`)).body;
  t.match(outside, { explanation: { matches: false, terms: [{ holds: true }, { term: /^within/, holds: false }] } });
  t.match(await own.http('GET', `${url}?explain=${asked.id}`, { token }), refused(400, 102, 'explain'));
});

t.test('a preview counts and shows what a fleet would hold, within the reach of the caller', async (t) => {
  const organization = await service.organization();
  for (let n = 0; n < 22; n += 1) await device(`seen-${n}`, n === 7 ? { organizationId: organization.id } : {});
  const { token } = await service.endUser(organization.id);
  const preview = (filter: string, token = service.admin) =>
    service.http('POST', '/api/v1/fleets/preview', { body: { accountId: service.accountId, filter }, token });
  const { body } = await preview('serialNumber sw "seen"');
  t.equal(body.preview.count, 22);
  t.equal(body.preview.devices.length, 20);
  t.match(body.preview.devices[0], { serialNumber: 'seen-0', deviceTemplateId: String });
  t.match((await preview('serialNumber sw "seen"', token)).body, {
    preview: { count: 1, devices: [{ serialNumber: 'seen-7' }] },
  });
  t.same((await preview('serialNumber eq "unseen"')).body, { preview: { count: 0, devices: [] } });
  t.match(await preview('nothing pr'), refused(400, 106, 'filter'));
});

t.test('an account has 1,000 fleets at most', async (t) => {
  const own = await service.inNewAccount();
  const body = { accountId: own.accountId, name: 'first', filter: 'silent eq true' };
  const first = await own.create('/fleets', 'fleet', body);
  const copies = Array.from({ length: 998 }, (_, n) => ({ id: newId(own.accountId), name: `copy ${n}` }));
  await storeMore(own, 'fleets', first.id, copies);
  const last = await own.create('/fleets', 'fleet', { ...body, name: 'last' });
  const more = () => own.http('POST', '/api/v1/fleets', { body: { ...body, name: 'more' } });
  t.match(await more(), refused(400, 106, 'accountId'));
  const { fleet: gone } = await own.ok('DELETE', `/api/v1/fleets/${last.id}`, etag(last.version));
  t.equal((await more()).status, 200);
  const recovery = `/api/v1/trash/fleets/${last.id}/recover`;
  t.match(await own.http('POST', recovery, etag(gone.version)), refused(400, 106, 'accountId'));
});

t.end();
