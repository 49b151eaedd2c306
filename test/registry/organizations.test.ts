import { publish, rollOut, rolloutUntil } from '../firmware/fleet.ts';
import { part } from '../support/part.ts';
import type { Entity, List, Made, Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { countStored } from '../support/stored.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const put = (organization: Made<'organization'>, body: object, token?: string) =>
  service.http('PUT', `/api/v1/organizations/${organization.id}`, {
    body,
    headers: { etag: organization.version },
    ...(token && { token }),
  });
const remove = (organization: Made<'organization'>, token?: string) =>
  service.http('DELETE', `/api/v1/organizations/${organization.id}`, {
    headers: { etag: organization.version },
    ...(token && { token }),
  });
async function chain(length: number) {
  const made: Made<'organization'>[] = [];
  for (let n = 0; n < length; n += 1) made.push(await service.organization(n ? { parentId: made.at(-1)?.id } : {}));
  return made as List<Made<'organization'>>;
}

t.test('a new organization has every field of the spec', async (t) => {
  const organization = await service.organization({ name: 'Acme', state: 'MA', countryCode: 'US-MA', city: 'Boston' });
  t.match(organization, {
    name: 'Acme',
    parentId: null,
    organizationTemplateId: String,
    state: 'MA',
    countryCode: 'US-MA',
    city: 'Boston',
    address: null,
    description: null,
    industry: null,
    organizationSize: null,
    phoneNumber: null,
    postalCode: null,
    websiteAddress: null,
  });
  t.notOk('deviceCount' in organization);
  for (const body of [{ state: 'MAS' }, { countryCode: 'USA!' }, { name: '' }, { name: 5 }, { parentId: 5 }])
    t.match(
      await service.http('POST', '/api/v1/organizations', {
        body: { accountId: service.accountId, name: 'n', ...body },
      }),
      { status: 400, body: { error: { code: 106, details: [{ path: Object.keys(body)[0] }] } } },
    );
});

t.test('the tree is five deep at most, for a new one and for a moved subtree', async (t) => {
  const five = await chain(5);
  const body = { accountId: service.accountId, name: 'six', parentId: five[4]?.id };
  t.match(await service.http('POST', '/api/v1/organizations', { body }), {
    status: 400,
    body: { error: { code: 105 } },
  });
  const three = await chain(3);
  t.match(await put(three[0], { parentId: five[2].id }), { status: 400, body: { error: { code: 105 } } });
  t.match(await put(three[0], { parentId: five[1].id }), { status: 200 });
});

t.test('a move that would make a cycle is refused', async (t) => {
  const three = await chain(3);
  t.match(await put(three[0], { parentId: three[2].id }), { status: 400, body: { error: { code: 106 } } });
  t.match(await put(three[0], { parentId: three[0].id }), { status: 400, body: { error: { code: 106 } } });
  t.match(await put(three[0], { parentId: 'nobody' }), { status: 400, body: { error: { code: 102 } } });
  t.match(await put(three[2], { parentId: null }), { status: 200, body: { organization: { parentId: null } } });
});

t.test('an organization with something live in it stays', async (t) => {
  const [top, child] = await chain(2);
  const refused = { status: 400, body: { error: { code: 104 } } };
  t.match(await remove(top), refused);
  t.match(await remove(child), { status: 200 });
  const { device } = await service.device({ organizationId: top.id });
  t.match(await remove(top), refused);
  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: version } });
  const { endUser } = await service.endUser(top.id);
  t.match(await remove(top), refused);
  await service.ok('DELETE', `/api/v1/end-users/${endUser.id}`, { headers: { etag: endUser.version } });
  t.match(await remove(top), { status: 200 });
  t.match(await service.http('GET', `/api/v1/organizations/${top.id}`), {
    status: 410,
    body: { error: { code: 107 } },
  });
  const recovered = await service.http('POST', `/api/v1/trash/organizations/${child.id}/recover`, {
    headers: { etag: child.version },
  });
  t.match(recovered, { status: 400, body: { error: { code: 102, details: [{ path: 'parentId' }] } } });
});

t.test('a recovered organization may not break the depth that has grown meanwhile', async (t) => {
  const [a, b] = await chain(2);
  const child = await service.organization({ parentId: b.id });
  t.equal((await remove(child)).status, 200);
  const four = await chain(4);
  t.match(await put(a, { parentId: four[3].id }), { status: 400, body: { error: { code: 105 } } });
  t.match(await put(a, { parentId: four[2].id }), { status: 200 });
  const recovered = await service.http('POST', `/api/v1/trash/organizations/${child.id}/recover`, {
    headers: { etag: child.version },
  });
  t.match(recovered, { status: 400, body: { error: { code: 105 } } });
  t.match(await service.http('GET', `/api/v1/trash/organizations/${child.id}`), { status: 200 });
});

t.test('counts are of direct children and come when asked for', async (t) => {
  const [top, child] = await chain(2);
  await service.organization({ parentId: child.id });
  await service.device({ organizationId: top.id });
  await service.device({ organizationId: child.id });
  await service.endUser(top.id);
  const { organization } = await service.ok('GET', `/api/v1/organizations/${top.id}?count=devices,end-users,children`);
  t.match(organization, { deviceCount: 1, endUserCount: 1, childCount: 1 });
  const page = await service.ok(
    'GET',
    `/api/v1/organizations?accountId=${service.accountId}&parentId=${top.id}&count=children&expand=parent`,
  );
  t.match(page.organizations.results, [{ id: child.id, childCount: 1, parent: { id: top.id } }]);
  t.match(await service.http('GET', `/api/v1/organizations/${top.id}?count=friends`), {
    status: 400,
    body: { error: { code: 106 } },
  });
});

t.test('an end-user manages what is below its organization, not its own place', async (t) => {
  const [top, child, grandchild] = await chain(3);
  const stranger = await service.organization();
  const { token } = await service.endUser(child.id);
  const list = await service.ok('GET', `/api/v1/organizations?accountId=${service.accountId}`, { token });
  t.same(list.organizations.results.map((o) => o.id).sort(), [child.id, grandchild.id].sort());
  for (const out of [top, stranger])
    t.match(await service.http('GET', `/api/v1/organizations/${out.id}`, { token }), { status: 404 });
  t.match(await put(child, { name: 'renamed' }, token), { status: 200 });
  const { organization: mine } = await service.ok('GET', `/api/v1/organizations/${child.id}?expand=parent`, { token });
  t.match(mine, { parent: null }, 'a parent out of reach is not shown');
  t.match(await put(mine, { parentId: null }, token), { status: 403, body: { error: { code: 21 } } });
  t.match(await remove(mine, token), { status: 403, body: { error: { code: 21 } } });
  t.match(await put(grandchild, { parentId: stranger.id }, token), { status: 400, body: { error: { code: 102 } } });
  t.match(await put(grandchild, { parentId: null }, token), { status: 403 });
  const body = { accountId: service.accountId, name: 'new', parentId: child.id };
  const made = await service.ok('POST', '/api/v1/organizations', { body, token });
  t.match(await service.http('POST', '/api/v1/organizations', { body: { ...body, parentId: stranger.id }, token }), {
    status: 400,
  });
  t.match(await service.http('POST', '/api/v1/organizations', { body: { ...body, parentId: null }, token }), {
    status: 403,
  });
  t.match(await remove(made.organization, token), { status: 200 });
  const trash = await service.ok('GET', `/api/v1/trash/organizations?accountId=${service.accountId}`, { token });
  t.same(
    trash.organizations.results.map((o) => o.id),
    [made.organization.id],
  );
  const path = `/api/v1/trash/organizations/${made.organization.id}/recover`;
  t.match(await service.http('POST', path, { token, headers: { etag: made.organization.version } }), { status: 200 });
});

t.test('a default end-user is made with an organization, linked to the caller; never for an admin', async (t) => {
  const [top] = await chain(1);
  const { endUser, token } = await service.endUser(top.id);
  const template = await service.create('/end-users/templates', 'endUserTemplate', { name: service.unique('T') });
  const body = { accountId: service.accountId, name: 'with me', parentId: top.id, endUserTemplateId: template.id };
  t.match(await service.http('POST', '/api/v1/organizations', { body }), {
    status: 400,
    body: { error: { code: 110 } },
  });
  const { organization } = await service.ok('POST', '/api/v1/organizations', { body, token });
  t.match(organization.defaultEndUser, {
    organizationId: organization.id,
    userId: endUser.userId,
    endUserTemplateId: template.id,
  });
  t.notOk('defaultEndUser' in (await service.ok('GET', `/api/v1/organizations/${organization.id}`)).organization);
});

t.test(
  'an identity without an end-user makes its first organization, and nothing else, three times at most',
  async (t) => {
    const [home] = await chain(1);
    const { endUser, token } = await service.endUser(home.id);
    await service.ok('DELETE', `/api/v1/end-users/${endUser.id}`, { headers: { etag: endUser.version } });
    const template = await service.create('/end-users/templates', 'endUserTemplate', { name: service.unique('T') });
    const create = (more: object) =>
      service.http('POST', '/api/v1/organizations', {
        token,
        body: { accountId: service.accountId, name: 'mine', ...more },
      });
    const refused = { status: 403, body: { error: { code: 21 } } };
    t.match(await create({}), refused, 'not without endUserTemplateId');
    t.match(await create({ endUserTemplateId: template.id, parentId: home.id }), refused, 'not below others');
    t.match(await service.http('GET', `/api/v1/organizations?accountId=${service.accountId}`, { token }), refused);
    for (let n = 0; n < 3; n += 1) {
      const { organization } = (await create({ endUserTemplateId: template.id })).body;
      t.match(organization, { parentId: null, defaultEndUser: { userId: endUser.userId } });
      const path = `/api/v1/organizations/${organization.id}`;
      t.match(await service.http('GET', path, { token }), { status: 200 }, 'it is its own now');
      t.match(await create({ endUserTemplateId: template.id }), refused, 'an end-user makes no second top-level one');
      const mine = organization.defaultEndUser;
      await service.ok('DELETE', `/api/v1/end-users/${mine.id}`, { token, headers: { etag: mine.version } });
    }
    t.match(await create({ endUserTemplateId: template.id }), refused, 'not a fourth');
  },
);

const unknown = (path: string) => ({ status: 400, body: { error: { code: 102, details: [{ path }] } } });
/** Of this account alone: a job of another file may still be making devices. */
const counts = () =>
  ['devices', 'endUsers', 'organizations', 'customFields', 'channelTemplates', 'credentials'].map((table) =>
    countStored(service, table, '"accountId" = ?', [service.accountId]),
  );

t.test('an empty text refers to nothing, and never to a default', async (t) => {
  const organization = await service.organization();
  const { endUser } = await service.endUser(organization.id);
  const { device } = await service.device();
  const code = await service.ok('POST', '/api/v1/association/create-association-code', {
    body: { deviceId: device.id },
  });
  const { accountId } = service;
  const person = { createIdmUser: true, idmUserEmail: 'nobody@example.com' };
  const field = { name: 'f', fieldType: 'string' };
  const before = counts();
  for (const [path, body, property] of [
    ['/devices', { serialNumber: 'x' }, 'deviceTemplateId'],
    ['/devices', { serialNumber: 'x' }, 'organizationId'],
    ['/end-users', { ...person, organizationId: organization.id }, 'endUserTemplateId'],
    ['/end-users', person, 'organizationId'],
    ['/end-users', { organizationId: organization.id }, 'userId'],
    ['/organizations', { name: 'x' }, 'organizationTemplateId'],
    ['/organizations', { name: 'x' }, 'parentId'],
    ['/devices/custom-fields', field, 'deviceTemplateId'],
    ['/end-users/custom-fields', field, 'endUserTemplateId'],
    ['/organizations/custom-fields', field, 'organizationTemplateId'],
    ['/channels/templates', { name: 'c', entityType: 'deviceTemplate' }, 'entityId'],
    ['/access/mqtt-credentials', { entityType: 'device' }, 'entityId'],
    ['/account-users', {}, 'userId'],
    ['/association/start-association-with-code', code, 'endUserId'],
    ['/association/start-association-with-code', code, 'organizationId'],
  ] as Array<[string, object, string]>) {
    const title = `${path} ${property}`;
    const request = { accountId, ...body, [property]: '' };
    t.match(await service.http('POST', `/api/v1${path}`, { body: request }), unknown(property), title);
    const form = {
      body: new URLSearchParams(request as Record<string, string>).toString(),
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
    };
    t.match(await service.http('POST', `/api/v1${path}`, form), unknown(property), `${title}, as a form`);
  }
  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  for (const [path, entity, property] of [
    ['/devices', { ...device, version }, 'organizationId'],
    ['/end-users', endUser, 'organizationId'],
    ['/organizations', organization, 'parentId'],
  ] as Array<[string, Pick<Entity, 'id' | 'version'>, string]>) {
    const request = { headers: { etag: entity.version }, body: { [property]: '' } };
    t.match(await service.http('PUT', `/api/v1${path}/${entity.id}`, request), unknown(property), `PUT ${path}`);
  }
  t.same(counts(), before);
});

t.test('nor for the first step of a newcomer, whose refused steps do not count', async (t) => {
  const { endUser, token } = await service.endUser((await service.organization()).id);
  await service.ok('DELETE', `/api/v1/end-users/${endUser.id}`, { headers: { etag: endUser.version } });
  const before = counts();
  const post = (body: object) =>
    service.http('POST', '/api/v1/organizations', {
      body: { accountId: service.accountId, name: 'Mine', ...body },
      token,
    });
  for (let n = 0; n < 4; n += 1) t.match(await post({ endUserTemplateId: '' }), unknown('endUserTemplateId'));
  const { endUserTemplateId } = endUser;
  t.match(await post({ endUserTemplateId, organizationTemplateId: '' }), unknown('organizationTemplateId'));
  t.same(counts(), before);
  t.match(await post({ endUserTemplateId }), {
    status: 200,
    body: { organization: { defaultEndUser: { userId: endUser.userId } } },
  });
});

t.test('counts say what is in an organization and below it, of what the caller may read', async (t) => {
  const [top, middle, leaf] = await chain(3);
  const parts = [top, middle, leaf] as [Made<'organization'>, Made<'organization'>, Made<'organization'>];
  const beside = await service.organization({ parentId: parts[0].id });
  const gone = await service.organization({ parentId: parts[1].id });
  await remove(gone);
  for (const [organization, devices] of [
    [parts[0], 1],
    [parts[1], 2],
    [parts[2], 3],
    [beside, 1],
  ] as const)
    for (let n = 0; n < devices; n += 1) await service.device({ organizationId: organization.id });
  const trashed = { serialNumber: service.unique('trashed'), organizationId: parts[2].id };
  const { id, version } = await service.create('/devices', 'device', trashed);
  await service.ok('DELETE', `/api/v1/devices/${id}`, { headers: { etag: version } });
  const rights = { organization: ['read'] };
  const role = await service.create('/roles', 'role', { name: 'organizations alone', scope: 'organization', rights });
  const { token } = await service.endUser(parts[0].id, { roleId: role.id });
  const manager = await service.endUser(parts[1].id);
  const countsOf = async ({ id }: { id: string }, as = service.admin) =>
    (await service.ok('GET', `/api/v1/organizations/${id}?counts=true`, { token: as })).organization.counts;
  const ofTop = { devices: 1, devicesBelow: 7, organizations: 2, organizationsBelow: 3, people: 1 };
  const ofMiddle = { devices: 2, devicesBelow: 5, organizations: 1, organizationsBelow: 1, people: 1 };
  const ofLeaf = { devices: 3, devicesBelow: 3, organizations: 0, organizationsBelow: 0, people: 0 };
  t.strictSame(await countsOf(parts[0]), ofTop, 'nothing that is in the trash');
  t.strictSame(await countsOf(parts[1], manager.token), ofMiddle);
  t.strictSame(await countsOf(parts[0], token), { ...ofTop, devices: 0, devicesBelow: 0, people: 0 });
  const path = `/api/v1/organizations?accountId=${service.accountId}&pageSize=1000`;
  const listed = (await service.ok('GET', `${path}&counts=true`)).organizations.results;
  const found = parts.map(({ id }) => listed.find((one) => one.id === id)?.counts);
  t.strictSame(found, [ofTop, ofMiddle, ofLeaf]);
  t.notOk('counts' in ((await service.ok('GET', path)).organizations.results[0] ?? {}));
  t.match(await service.http('GET', `${path}&counts=some`), { status: 400, body: { error: { code: 106 } } });
});

t.test(
  'below=true lists the devices of an organization and of those below it, as bulk changes and rollouts do',
  async (t) => {
    const [top, middle] = (await chain(2)) as Made<'organization'>[] as [Made<'organization'>, Made<'organization'>];
    const template = await service.template();
    const of = { deviceTemplateId: template.id };
    const ids: string[] = [];
    for (const organizationId of [top.id, middle.id, middle.id])
      ids.push((await service.device({ ...of, organizationId })).device.id);
    await service.device({ ...of, organizationId: (await service.organization()).id });
    const path = `/api/v1/devices?accountId=${service.accountId}&deviceTemplateId=${template.id}`;
    const idsOf = async (query: string, token = service.admin) => {
      const { meta, results } = (await service.ok('GET', `${path}&${query}`, { token })).devices;
      t.equal(meta.count, results.length, query);
      return results.map(({ id }) => id).sort();
    };
    const below = `organizationId=${top.id}&below=true`;
    t.strictSame(await idsOf(below), ids.toSorted());
    t.strictSame(await idsOf(`organizationId=${top.id}`), ids.slice(0, 1));
    t.strictSame(await idsOf(`organizationId=${top.id}&below=false`), ids.slice(0, 1));
    t.equal((await idsOf(`${below}&connected=false&sortBy=created`)).length, 3);
    t.equal((await idsOf('organizationId=null&below=true')).length, 0);
    const serial = (await service.ok('GET', `/api/v1/devices/${ids[1]}`)).device.serialNumber;
    t.strictSame(await idsOf(`${below}&serialNumber=${encodeURIComponent(serial)}`), ids.slice(1, 2));
    const person = await service.endUser(middle.id);
    const belowMiddle = `organizationId=${middle.id}&below=true`;
    t.strictSame(await idsOf(belowMiddle, person.token), ids.slice(1).sort(), 'within the reach of the caller');
    t.strictSame(await idsOf(below, person.token), [], 'above it is nothing');
    const stranger = await service.endUser((await service.organization()).id);
    t.strictSame(await idsOf(below, stranger.token), []);
    for (const [query, wrong] of [
      [`organizationId=${top.id}&below=maybe`, 'below'],
      ['below=true', 'below'],
      ['organizationId=&below=true', 'below'],
    ] as const)
      t.match(
        await service.http('GET', `${path}&${query}`),
        { status: 400, body: { error: { code: 106, details: [{ path: wrong }] } } },
        query,
      );
    const filter = { organizationId: top.id, below: true, deviceTemplateId: template.id };
    const bulk = (body: object) =>
      service.http('POST', '/api/v1/devices/jobs', { body: { action: 'delete', dryRun: true, ...body } });
    t.match(await bulk({ filter }), { status: 202, body: { job: { total: 3 } } });
    t.match(await bulk({ filter: { below: true } }), {
      status: 400,
      body: { error: { details: [{ path: 'filter.below' }] } },
    });
    const firmware = await publish(service, template.id, '2');
    const { id: firmwarePackageId } = firmware;
    for (const target of [{ organizationId: top.id }, { filter }]) {
      const made = await rollOut(service, firmware, { target });
      t.match(made, { matched: { devices: 3 } });
      await rolloutUntil(service, made.id, ({ counts }) => counts.pending === 3);
      await service.ok('POST', `/api/v1/firmware/rollouts/${made.id}/cancel`);
    }
    const body = { accountId: service.accountId, firmwarePackageId, target: { filter: { below: true } } };
    const refused = { status: 400, body: { error: { details: [{ path: 'target.filter.below' }] } } };
    t.match(await service.http('POST', '/api/v1/firmware/rollouts', { body }), refused);
  },
);

t.end();
