/** SCIM 2.0: the published request sequences of Entra ID and Okta, and what follows for people. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { openStream } from '../support/events.ts';
import { part } from '../support/part.ts';
import { accountUser } from '../support/roles.ts';
import { groupSchema, ScimClient, scimProvider, scimToken, userSchema } from '../support/scim.ts';
import { closed, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { storedRows } from '../support/stored.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t, { SLIPWAY_HTTP_REQUESTS_PER_SECOND: '0' });
});

const enterprise = 'urn:ietf:params:scim:schemas:extension:enterprise:2.0:User';
const listSchema = 'urn:ietf:params:scim:api:messages:2.0:ListResponse';
const mapped = (group: string, roleId: string, organizationId: string | null = null) => ({
  group,
  roleId,
  organizationId,
});
const address = (what = 'person') => `${service.unique(what).replace(' ', '')}@example.com`;
const failure = (status: number, scimType?: string) => ({
  status,
  body: {
    schemas: ['urn:ietf:params:scim:api:messages:2.0:Error'],
    status: String(status),
    ...(scimType && { scimType }),
  },
});
const refused = (code: number, status = 400) => ({ status, body: { error: { code } } });
/** The end-users or the account users of somebody whom SCIM knows: places and roles. */
const rolesOf = (id: string) =>
  storedRows(
    service,
    `SELECT "organizationId", "roleId" FROM "endUsers" WHERE "deleted" IS NULL AND "userId" = (SELECT "userId" FROM "scimUsers" WHERE "id" = ?)
     UNION ALL SELECT NULL, coalesce("roleId", 'account:admin') FROM "accountUsers" WHERE "deleted" IS NULL
     AND "userId" = (SELECT "userId" FROM "scimUsers" WHERE "id" = ?)`,
    [id, id],
  ).map(({ organizationId, roleId }) => [organizationId, roleId]);
const filtered = (path: string, filter: string) => `${path}?filter=${encodeURIComponent(filter)}`;

t.test('the requests that Entra ID publishes', async (t) => {
  const scim = await scimProvider(service);
  const unknown = filtered('/Users', `userName eq "${crypto.randomUUID()}"`);
  t.match(await scim.ask('GET', unknown), {
    status: 200,
    type: /^application\/scim\+json/,
    body: { schemas: [listSchema], totalResults: 0, Resources: { length: 0 } },
  });
  const [userName, mail] = [`Test_User_${crypto.randomUUID()}`, address('Test_User')];
  const created = await scim.ask('POST', '/Users', {
    schemas: [userSchema, enterprise],
    externalId: '0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef',
    userName,
    active: true,
    addresses: null,
    emails: [{ primary: true, type: 'work', value: mail }],
    meta: { resourceType: 'User' },
    name: { formatted: 'givenName familyName', familyName: 'familyName', givenName: 'givenName' },
    roles: [],
    [enterprise]: { department: 'Engines', manager: '26118915' },
  });
  const { id } = created.body;
  t.match(created, {
    status: 201,
    location: new RegExp(`^http.*/scim/v2/Users/${id}$`),
    body: { userName, active: true, meta: { resourceType: 'User' }, [enterprise]: { manager: { value: '26118915' } } },
  });
  t.strictSame(await scim.ok('GET', `/Users/${id}`), created.body);
  t.match(await scim.ask('GET', `/Users/${crypto.randomUUID()}`), failure(404));
  for (const filter of [
    `userName eq "${userName.toUpperCase()}"`,
    'externalId eq "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef"',
    `emails[type eq "work"].value eq "${mail}"`,
    `EMAILS co "${mail.slice(0, 12).toLowerCase()}" and active eq "True"`,
    `URN:ietf:params:scim:schemas:core:2.0:user:username sw "test_user"`,
    `${enterprise}:department eq "engines"`,
  ]) {
    const found = await scim.ok('GET', filtered('/Users', filter));
    t.strictSame([found.totalResults, found.Resources[0]?.id], [1, id], filter);
  }
  t.match(await scim.ask('GET', filtered('/Users', 'userName eq')), failure(400, 'invalidFilter'));

  const updated = await scim.patch(
    `/Users/${id}`,
    { op: 'Replace', path: 'emails[type eq "work"].value', value: 'Updated.Email@example.com' },
    { op: 'Replace', path: 'name.familyName', value: 'updatedFamilyName' },
    { op: 'Add', path: 'phoneNumbers[type eq "mobile"].value', value: '+1 555' },
    { op: 'Add', path: `${enterprise}:employeeNumber`, value: 701984 },
    { op: 'Add', path: `${enterprise}:manager`, value: '7' },
    { op: 'Replace', value: { displayName: 'New', 'name.givenName': 'Given', [`${enterprise}:division`]: 'D' } },
  );
  t.match(updated, {
    status: 200,
    body: {
      displayName: 'New',
      name: { familyName: 'updatedFamilyName', givenName: 'Given' },
      emails: [{ type: 'work', value: 'Updated.Email@example.com', primary: true }],
      phoneNumbers: [{ type: 'mobile', value: '+1 555' }],
      [enterprise]: { department: 'Engines', employeeNumber: '701984', manager: { value: '7' }, division: 'D' },
    },
  });
  const renamed = address();
  t.match(await scim.patch(`/Users/${id}`, { op: 'Replace', path: 'userName', value: renamed }), {
    status: 200,
    body: { userName: renamed },
  });
  const [identity] = storedRows(
    service,
    'SELECT "email", "firstName", "passwordHash" FROM "identities" WHERE "email" = ?',
    ['Updated.Email@example.com'],
  );
  t.strictSame(identity, { email: 'Updated.Email@example.com', firstName: 'Given', passwordHash: null });
  t.match(await scim.patch(`/Users/${id}`, { op: 'Replace', path: 'active', value: 'False' }), {
    status: 200,
    body: { active: false },
  });
  t.equal((await scim.ok('GET', filtered('/Users', 'active eq false'))).totalResults, 1);

  const displayName = service.unique('Group');
  const group = await scim.ask('POST', '/Groups', {
    schemas: [groupSchema, 'http://schemas.microsoft.com/2006/11/ResourceManagement/ADSCIM/2.0/Group'],
    externalId: '8aa1a0c0-c4c3-4bc0-b4a5-2ef676900159',
    displayName,
    meta: { resourceType: 'Group' },
  });
  const path = `/Groups/${group.body.id}`;
  t.match(group, { status: 201, body: { displayName, members: { length: 0 } } });
  const short = await scim.ok('GET', `${path}?excludedAttributes=members`);
  t.match(short, { id: group.body.id, externalId: '8aa1a0c0-c4c3-4bc0-b4a5-2ef676900159' });
  t.notOk('members' in short);
  const named = filtered('/Groups', `displayName eq "${displayName}"`);
  t.match(await scim.ok('GET', `${named}&excludedAttributes=members`), { totalResults: 1 });
  t.equal((await scim.patch(path, { op: 'Replace', path: 'displayName', value: `${displayName} 2` })).status, 204);
  const value = [{ $ref: null, value: id }];
  t.equal((await scim.patch(path, { op: 'Add', path: 'members', value })).status, 204);
  t.match((await scim.ok('GET', path)).members, [{ value: id, type: 'User' }]);
  t.match((await scim.ok('GET', `/Users/${id}`)).groups, [{ value: group.body.id, display: `${displayName} 2` }]);
  const isMember = filtered('/Groups', `id eq "${group.body.id}" and members eq "${id}"`);
  t.equal((await scim.ok('GET', `${isMember}&attributes=id`)).totalResults, 1);
  t.equal((await scim.patch(path, { op: 'Remove', path: 'members', value })).status, 204);
  t.equal((await scim.ok('GET', isMember)).totalResults, 0);
  t.strictSame((await scim.ok('GET', path)).members, []);
  t.equal((await scim.ask('DELETE', path)).status, 204);
  t.equal((await scim.ask('DELETE', `/Users/${id}`)).status, 204);
  t.match(await scim.ask('GET', `/Users/${id}`), failure(404));
  const schemas = await scim.ok('GET', '/Schemas');
  t.strictSame(
    schemas.Resources.map((one) => one.id),
    [userSchema, groupSchema, enterprise],
  );
});

interface Described {
  name: string;
  type: string;
  canonicalValues?: string[] | undefined;
  subAttributes?: Described[];
}
interface Listed {
  name: string;
  meta: object;
  attributes: Described[];
}

t.test('a client of SCIM reads lists, resources, schemas and errors', async (t) => {
  const { default: client } = await import('scimmy');
  client.Schemas.User.definition.extend(client.Schemas.EnterpriseUser.definition);
  const scim = await scimProvider(service);
  const { id } = await scim.person({ [enterprise]: { department: 'D' }, phoneNumbers: [{ value: '1', type: 'home' }] });
  await scim.group('Readers', id);
  for (const [path, schema] of [
    ['/Users', client.Schemas.User],
    ['/Groups', client.Schemas.Group],
  ] as const) {
    const list = await scim.ok('GET', path);
    const { Resources, totalResults } = new client.Messages.ListResponse(list as never);
    t.equal(totalResults, 1);
    for (const resource of Resources) {
      const read = JSON.parse(JSON.stringify(new schema(resource as object, 'out')));
      t.match(read, JSON.parse(JSON.stringify(resource)), path);
    }
  }
  // Ours have shorter descriptions, no password, and say of each attribute how unique it is.
  const comparable = (all: Described[]): Described[] =>
    all
      .filter(({ name }) => name !== 'password')
      .map(({ subAttributes, ...one }) => ({
        ...{ ...(one.type !== 'boolean' && { uniqueness: 'none' }), ...one, description: '' },
        canonicalValues: one.canonicalValues?.length ? one.canonicalValues : undefined,
        ...(subAttributes && { subAttributes: comparable(subAttributes) }),
      }))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  const { Resources: described } = await scim.ok('GET', '/Schemas');
  for (const [at, schema] of [client.Schemas.User, client.Schemas.Group, client.Schemas.EnterpriseUser].entries()) {
    const { attributes, ...known } = JSON.parse(JSON.stringify(schema.definition.describe())) as Listed;
    const ours = described[at] as unknown as Listed;
    t.match(ours, { ...known, meta: { resourceType: 'Schema' } });
    t.same(comparable(ours.attributes), comparable(attributes), known.name);
  }
  const { body } = await scim.ask('POST', '/Groups', { displayName: 'readers' });
  const thrown = await (async () => new client.Messages.ErrorResponse(body as object))().catch((error) => error);
  t.match(thrown, { status: 409, scimType: 'uniqueness' });
});

t.test('the requests that Okta publishes', async (t) => {
  const scim = await scimProvider(service);
  t.match(await scim.ok('GET', '/Users?startIndex=1&count=2'), { totalResults: 0, startIndex: 1, itemsPerPage: 0 });
  t.match(await scim.ok('GET', '/ServiceProviderConfig'), { patch: { supported: true }, filter: { maxResults: 200 } });
  const userName = address('okta');
  const body = {
    schemas: [userSchema],
    userName,
    name: { givenName: 'Test', familyName: 'User' },
    emails: [{ primary: true, value: userName, type: 'work' }],
    displayName: 'Test User',
    locale: 'en-US',
    externalId: '00ujl29u0le5T6Aj10h7',
    groups: [],
    password: '1mz050nq a password of Okta',
    active: true,
  };
  const created = await scim.ask('POST', '/Users', body);
  const { id } = created.body;
  t.match(created, { status: 201, body: { userName, locale: 'en-US' } });
  t.notOk('password' in created.body);
  const login = { emailAddress: userName, password: body.password, accountId: service.accountId };
  t.equal((await service.http('POST', '/api/v1/auth/login-user', { token: null, body: login })).status, 401);
  t.match(await scim.ask('POST', '/Users', body), failure(409, 'uniqueness'));
  t.equal((await scim.ok('GET', filtered('/Users', `userName eq "${userName}"`))).Resources[0]?.id, id);
  const replaced = await scim.ask('PUT', `/Users/${id}`, { ...body, id, name: { givenName: 'Another' } });
  t.match(replaced, { status: 200, body: { id, name: { givenName: 'Another' }, active: true } });
  t.equal(replaced.body.name.familyName, undefined);
  t.match(await scim.patch(`/Users/${id}`, { op: 'replace', value: { active: false } }), {
    status: 200,
    body: { active: false, displayName: 'Test User' },
  });
  t.match(await scim.ask('PUT', `/Users/${id}`, body), { status: 200, body: { active: true } });

  const displayName = service.unique('Test SCIMv2');
  const members = [{ value: id, display: userName }];
  const group = await scim.ok('POST', '/Groups', { schemas: [groupSchema], displayName, members });
  const path = `/Groups/${group.id}`;
  t.match(await scim.ask('POST', '/Groups', { displayName }), failure(409, 'uniqueness'));
  t.match(await scim.ok('GET', '/Groups?startIndex=1&count=100'), { Resources: [{ members: [{ value: id }] }] });
  const rename = { op: 'replace', value: { id: group.id, displayName: `${displayName} v2` } };
  t.equal((await scim.patch(path, rename)).status, 204);
  t.equal((await scim.patch(path, { op: 'remove', path: `members[value eq "${id}"]` })).status, 204);
  t.strictSame((await scim.ok('GET', path)).members, []);
  t.equal((await scim.patch(path, { op: 'add', path: 'members', value: members })).status, 204);
  const put = await scim.ask('PUT', path, { schemas: [groupSchema], id: group.id, displayName, members: [] });
  t.match(put, { status: 200, body: { displayName, members: { length: 0 } } });
  t.equal((await scim.ask('DELETE', path)).status, 204);
});

t.test('groups give roles before SCIM answers, and changed mappings too', async (t) => {
  const [one, other] = [await service.organization(), await service.organization()];
  const scim = await scimProvider(service, [
    mapped('Viewers', 'organization:viewer', one.id),
    mapped('ext-1', 'organization:operator', other.id),
    mapped('Auditors', 'account:auditor'),
  ]);
  const people = [await scim.person(), await scim.person()];
  const [ada, bob] = people.map(({ id }) => id) as [string, string];
  const viewers = await scim.group('Viewers', ada, bob);
  t.strictSame(rolesOf(ada), [[one.id, 'organization:viewer']]);
  const byId = await scim.ok('POST', '/Groups', {
    displayName: 'Whatever',
    externalId: 'ext-1',
    members: [{ value: ada }],
  });
  t.strictSame(rolesOf(ada).length, 2, 'externalId names a group too');
  const auditors = await scim.group('Auditors', ada);
  t.strictSame(rolesOf(ada), [[null, 'account:auditor']]);
  await scim.ok('DELETE', `/Groups/${auditors}`);
  t.strictSame(rolesOf(ada).length, 2);
  await scim.patch(`/Groups/${byId.id}`, { op: 'replace', path: 'externalId', value: 'ext-2' });
  t.strictSame(rolesOf(ada), [[one.id, 'organization:viewer']], 'a renamed group is another one');
  const { version } = (await service.ok('GET', `/api/v1/identity-providers/${scim.provider.id}`)).identityProvider;
  const mappings = [mapped('Viewers', 'organization:installer', one.id)];
  const put = { headers: { etag: version }, body: { mappings } };
  await service.ok('PUT', `/api/v1/identity-providers/${scim.provider.id}`, put);
  t.strictSame([rolesOf(ada), rolesOf(bob)].flat(), [
    [one.id, 'organization:installer'],
    [one.id, 'organization:installer'],
  ]);
  await scim.patch(`/Groups/${viewers}`, { op: 'remove', path: 'members' });
  t.strictSame([rolesOf(ada), rolesOf(bob)], [[], []]);
  const records = await service.ok(
    'GET',
    `/api/v1/audit?accountId=${service.accountId}&event=scimChanged&pageSize=100`,
  );
  t.match(records.auditRecords.results[0], {
    actorKind: 'identityProvider',
    details: { change: 'updated', group: 'Viewers' },
  });
});

t.test('a large group follows in steps before the answer', async (t) => {
  const { id: organizationId } = await service.organization();
  const scim = await scimProvider(service, [mapped('All', 'organization:viewer', organizationId)]);
  const people = await Promise.all(Array.from({ length: 50 }, () => scim.person()));
  const group = await scim.group('All', ...people.map(({ id }) => id));
  const count = () => people.filter(({ id }) => rolesOf(id).length === 1).length;
  t.equal(count(), 50);
  await scim.ok('DELETE', `/Groups/${group}`);
  t.equal(count(), 0);
});

t.test('each provider sees its own, and a token is good for SCIM only', async (t) => {
  const [scim, other] = [await scimProvider(service), await scimProvider(service)];
  const { id } = await scim.person();
  const group = await scim.group('Own', id);
  for (const path of [`/Users/${id}`, `/Groups/${group}`]) {
    t.match(await other.ask('GET', path), failure(404));
    t.match(await other.ask('PUT', path, { userName: address(), displayName: 'x' }), failure(404));
    t.match(await other.patch(path, { op: 'replace', value: { displayName: 'x' } }), failure(404));
    t.match(await other.ask('DELETE', path), failure(404));
  }
  t.match(
    await other.ask('POST', '/Groups', { displayName: 'G', members: [{ value: id }] }),
    failure(400, 'invalidValue'),
  );
  t.equal((await other.ok('GET', '/Users')).totalResults, 0);
  t.equal((await other.ok('GET', '/Groups')).totalResults, 0);
  const { token } = scim;
  t.equal((await service.http('GET', '/api/v1/profile/me', { token })).status, 401);
  await t.rejects(service.connect({ deviceId: service.accountId, secret: token }));
  const foreign = await (await service.inNewAccount()).inNewAccount();
  for (const wrong of [service.admin, 'slp_wrong', (await scimProvider(foreign)).token.slice(0, -1)])
    t.match(await scim.ask('GET', '/Users', undefined, wrong), failure(401));
  const all = await service.ok('GET', `/api/v1/tokens?accountId=${service.accountId}&pageSize=100`);
  const own = all.tokens.results.find(({ ownerId }) => ownerId === scim.provider.id);
  t.match(own, { name: /SCIM/, lastUsed: String });
  await service.ok('DELETE', `/api/v1/tokens/${own?.id}`);
  t.match(await scim.ask('GET', '/Users'), failure(401));
  const again = new ScimClient(service, scim.provider, (await scimToken(service, scim.provider.id)).token);
  t.equal((await again.ok('GET', '/Users')).totalResults, 1);
  const { version } = (await service.ok('GET', `/api/v1/identity-providers/${scim.provider.id}`)).identityProvider;
  await service.ok('DELETE', `/api/v1/identity-providers/${scim.provider.id}`, { headers: { etag: version } });
  t.match(await again.ask('GET', '/Users'), failure(401));
});

t.test('an account user whom an admin made is not taken over, an end-user is linked', async (t) => {
  const { id: organizationId } = await service.organization();
  const scim = await scimProvider(service, [mapped('Operators', 'organization:operator', organizationId)]);
  const admin = (await service.ok('GET', '/api/v1/profile/me')).emailAddress;
  for (const body of [
    { userName: admin },
    { userName: 'x', emails: [{ value: admin.toUpperCase() }] },
    { userName: admin, emails: [{ value: address() }] },
  ])
    t.match(await scim.ask('POST', '/Users', body), failure(409, 'uniqueness'), JSON.stringify(body));
  const known = await service.endUser(organizationId, { roleId: 'organization:viewer' });
  const { id } = await scim.ok('POST', '/Users', { userName: known.email });
  await scim.group('Operators', id);
  t.same(new Set(rolesOf(id).map(([, role]) => role)), new Set(['organization:viewer', 'organization:operator']));
  t.equal((await service.http('GET', '/api/v1/profile/me', { token: known.token })).status, 200);
  t.match(await (await scimProvider(service)).ask('POST', '/Users', { userName: known.email }), failure(409), 'once');
  await scim.patch(`/Users/${id}`, { op: 'replace', path: 'active', value: false });
  t.equal((await service.http('GET', '/api/v1/profile/me', { token: known.token })).status, 401);
  const login = { emailAddress: known.email, password: known.password, accountId: service.accountId };
  const logIn = () => service.http('POST', '/api/v1/auth/login-user', { token: null, body: login });
  t.equal((await logIn()).status, 401, 'nor by its password');
  for (const principal of [
    { type: 'endUser', id: known.endUser.id },
    { type: 'user', id: known.endUser.userId },
  ]) {
    const body = { principal, action: 'read', entity: { type: 'organization', id: organizationId } };
    const explained = await service.ok('POST', '/api/v1/permissions/explain', { body });
    t.match(explained, { allowed: false, rule: 'principal disabled' });
  }
  await scim.patch(`/Users/${id}`, { op: 'replace', path: 'active', value: true });
  t.equal((await logIn()).status, 200);
  await scim.ok('DELETE', `/Users/${id}`);
  t.equal((await logIn()).status, 401, 'a person whom the provider removes is out');
  await scim.ok('POST', '/Users', { userName: known.email });
  t.equal((await logIn()).status, 200);
});

t.test('what somebody has had ends before SCIM answers: sessions, streams, connections and secrets', async (t) => {
  const organization = await service.organization();
  const template = await service.template({ channels: [{ name: 'chat', persistenceType: 'simple' }] });
  const { device } = await service.device({ deviceTemplateId: template.id, organizationId: organization.id });
  const topic = service.topic(device.id, 'chat');
  const scim = await scimProvider(service, [mapped('Operators', 'organization:operator', organization.id)]);
  for (const leave of [
    (id: string) => scim.patch(`/Users/${id}`, { op: 'Replace', path: 'active', value: 'False' }),
    (id: string) => scim.ask('DELETE', `/Users/${id}`),
  ]) {
    const person = await service.endUser(organization.id);
    const { id } = await scim.ok('POST', '/Users', { userName: person.email });
    const secret = await service.ok('POST', '/api/v1/access/mqtt-credentials', {
      token: person.token,
      body: { accountId: service.accountId, entityId: person.endUser.id, entityType: 'endUser' },
    });
    const own = { deviceId: person.endUser.id, secret: secret.mqttCredential.secret };
    const events = await openStream(t, service, topic, { token: person.token });
    const clients = [await service.connect({ jwt: person.token }), await service.connect(own)];
    const ended = clients.map(closed);
    const answer = await leave(id);
    t.ok(answer.status < 300, JSON.stringify(answer.body));
    await Promise.all([...ended, events.closed]);
    await t.rejects(service.connect({ jwt: person.token }));
    await t.rejects(service.connect(own));
  }
});

t.test('nothing that a removed person publishes passes after the answer', async (t) => {
  const { id: organizationId } = await service.organization();
  const template = await service.template({ channels: [{ name: 'chat', persistenceType: 'simple' }] });
  const { device } = await service.device({ deviceTemplateId: template.id, organizationId });
  const topic = service.topic(device.id, 'chat');
  const scim = await scimProvider(service, [mapped('Operators', 'organization:operator', organizationId)]);
  const heard: string[] = [];
  const reader = await service.connect({ jwt: service.admin });
  reader.on('message', (_, payload) => heard.push(payload.toString()));
  await reader.subscribeAsync(topic, { qos: 1 });
  const { id: elsewhere } = await service.organization();
  const group = `/Groups/${await scim.group('Operators')}`;
  const leave = [
    (id: string) => scim.patch(group, { op: 'Remove', path: 'members', value: [{ value: id }] }),
    (id: string) => scim.patch(`/Users/${id}`, { op: 'replace', path: 'active', value: false }),
    (id: string) => scim.ask('DELETE', `/Users/${id}`),
  ];
  const rounds = 21;
  const publish = `/api/v1/messaging/publish/${topic}` as const;
  const plain = { headers: { 'content-type': 'text/plain' } };
  for (let round = 0; round < rounds; round += 1) {
    const person = await service.endUser(elsewhere);
    const { id } = await scim.ok('POST', '/Users', { userName: person.email });
    await scim.ok('PATCH', group, { Operations: [{ op: 'add', path: 'members', value: [{ value: id }] }] });
    const client = await service.connect({ jwt: person.token }, { protocolVersion: 5 });
    client.on('error', () => {});
    const asked = { after: false };
    // Over MQTT and HTTP, some of them while SCIM is at work.
    const tries = Array.from({ length: 8 }, async (_, n) => {
      for (let turn = 0; turn < n; turn += 1) await nextTurn();
      client.publish(topic, `${round} ${asked.after ? 'after' : 'before'}`, { qos: n % 2 ? 1 : 0 }, () => {});
      const body = `${round} ${asked.after ? 'after' : 'before'}`;
      await service.http('POST', publish, { ...plain, token: person.token, body }).catch(() => {});
    });
    const answer = await leave[round % leave.length]?.(id);
    asked.after = true;
    t.ok(answer && answer.status < 300);
    const late = Array.from({ length: 25 }, async () => {
      client.publish(topic, `${round} after`, { qos: 1 }, () => {});
      const body = `${round} after`;
      return (await service.http('POST', publish, { ...plain, token: person.token, body })).status;
    });
    // Who has left a group is still somebody, elsewhere.
    t.strictSame(new Set(await Promise.all(late)), new Set([round % leave.length === 0 ? 404 : 401]));
    await Promise.all(tries);
    client.end(true);
  }
  await reader.publishAsync(topic, 'the end', { qos: 1 });
  while (!heard.includes('the end')) await new Promise((resolve) => reader.once('message', resolve));
  t.strictSame(
    heard.filter((text) => text.endsWith('after')),
    [],
  );
  t.ok(heard.some((text) => text.endsWith('before')));
});

t.test('the last admin stays, whatever SCIM says', async (t) => {
  const account = await service.inNewAccount();
  const scim = await scimProvider(account, [mapped('Admins', 'account:admin'), mapped('Auditors', 'account:auditor')]);
  const { id } = await scim.person();
  const admins = await scim.group('Admins', id);
  await scim.group('Auditors', id);
  const list = await account.ok('GET', `/api/v1/account-users?accountId=${account.accountId}`);
  const first = list.accountUsers.results.find(({ identityProviderId }) => identityProviderId === null);
  await account.ok('DELETE', `/api/v1/account-users/${first?.id}`, { headers: { etag: first?.version ?? '' } });
  for (const answer of [
    await scim.patch(`/Users/${id}`, { op: 'replace', path: 'active', value: false }),
    await scim.ask('DELETE', `/Users/${id}`),
    await scim.patch(`/Groups/${admins}`, { op: 'remove', path: 'members' }),
    await scim.ask('DELETE', `/Groups/${admins}`),
    await scim.ask('PUT', `/Groups/${admins}`, { displayName: 'Others', members: [{ value: id }] }),
  ])
    t.match(answer, failure(400));
  t.match((await scim.ok('GET', `/Groups/${admins}`)).members, [{ value: id }]);
});

t.test('who makes a token needs all permissions of an admin', async (t) => {
  const { provider } = await scimProvider(service);
  const support = await accountUser(service, { roleId: 'account:support' });
  const body = { expiresAt: new Date(Date.now() + 60 * 60_000).toISOString() };
  const path = `/api/v1/identity-providers/${provider.id}/scim-token` as const;
  t.match(await service.http('POST', path, { token: support.token, body }), refused(21, 403));
  const expiresAt = new Date(Date.now() + 60_000).toISOString();
  const made = await service.ok('POST', '/api/v1/tokens', { body: { name: 'short', expiresAt } });
  service.secrets.add(made.token.token);
  const byToken = await service.http('POST', path, { token: made.token.token, body });
  t.match(byToken, refused(21, 403), 'a token makes no tokens');
  t.match(await service.http('POST', path, { body: { expiresAt: '2020-01-01' } }), refused(106));
  const foreign = await service.inNewAccount();
  t.match(await foreign.http('POST', path, { body }), refused(100, 404));
});

t.test('what no schema knows is named and ignored, and locks nobody in who is locked out beside it', async (t) => {
  const scim = await scimProvider(service);
  const custom = 'urn:ietf:params:scim:schemas:extension:Custom:2.0:User';
  const locksOut = { op: 'Replace', path: 'active', value: 'False' };
  const role = [{ primary: 'True', type: 'WindowsAzureActiveDirectoryRole', value: 'ADMIN' }];
  for (const [ignored, ...operations] of [
    [undefined, { op: 'Add', path: 'roles', value: role }, locksOut],
    [undefined, { op: 'Add', path: 'emails[type eq "personal"].value', value: address() }, locksOut],
    [undefined, { op: 'Add', path: 'phoneNumbers', value: [{ type: 'office', value: '1' }] }, locksOut],
    ['nothing', { op: 'Add', path: 'nothing', value: 1 }, locksOut],
    ['constructor.prototype', { op: 'Replace', path: 'constructor.prototype', value: 1 }, locksOut],
    ['name.nick', { op: 'Replace', path: 'name.nick', value: 'A' }, locksOut],
    ['emails[type eq "work"].verified', { op: 'Add', path: 'emails[type eq "work"].verified', value: true }, locksOut],
    ['roles.color', { op: 'Add', path: 'roles', value: [{ value: 'a', color: 'red' }] }, locksOut],
    [`${custom}:CostCenter`, { op: 'Add', path: `${custom}:CostCenter`, value: '7' }, locksOut],
    [custom, { op: 'Add', path: custom, value: { CostCenter: '7' } }, locksOut],
    [`${enterprise}:badge`, { op: 'Add', path: `${enterprise}:badge`, value: '7' }, locksOut],
    ['password', { op: 'Replace', path: 'password', value: 'correct horse' }, locksOut],
    ['thumbnail', { op: 'Add', path: 'thumbnail', value: 'A'.repeat(20_000) }, locksOut],
    ['a b, nothing', { op: 'replace', value: { 'a b': 1, nothing: 2, active: 'False' } }],
    [`${custom}:CostCenter`, { op: 'replace', value: { [`${custom}:CostCenter`]: 2, active: false } }],
    [custom, { op: 'replace', value: { [custom]: { CostCenter: 2 }, [userSchema]: { active: false } } }],
    [undefined, { op: 'replace', value: { [`${userSchema}:active`]: 'false', id: 'x', meta: {}, schemas: [] } }],
  ] as const) {
    const { id } = await scim.person();
    const said = JSON.stringify(operations).slice(0, 90);
    const answer = await scim.patch(`/Users/${id}`, ...operations);
    t.match(answer, { status: 200, body: { active: false } }, said);
    t.equal(answer.ignored && decodeURIComponent(answer.ignored), ignored, said);
    t.equal((await scim.ok('GET', filtered('/Users', `id eq "${id}" and active eq false`))).totalResults, 1, said);
  }
  const { id } = await scim.person();
  const about = { userName: address(), active: 'False', costCenter: 7, name: { nick: 'A' }, [custom]: { more: 1 } };
  for (const [method, path] of [
    ['POST', '/Users'],
    ['PUT', `/Users/${id}`],
  ] as const) {
    const answer = await scim.ask(method, path, { ...about, userName: address(), roles: role, password: 'x' });
    t.match(answer.body, { active: false, roles: [{ type: 'WindowsAzureActiveDirectoryRole', primary: true }] }, path);
    const named = decodeURIComponent(answer.ignored ?? '').split(', ');
    t.strictSame(named.sort(), ['costCenter', 'name.nick', 'password', custom].sort(), path);
  }
  const [user] = (await scim.ok('GET', '/Schemas')).Resources as unknown as [{ attributes: Attribute[] }];
  type Attribute = { name: string; canonicalValues?: string[]; subAttributes?: Attribute[] };
  const emails = user.attributes.find(({ name }) => name === 'emails');
  const type = emails?.subAttributes?.find(({ name }) => name === 'type');
  t.strictSame(type?.canonicalValues, ['work', 'home', 'other'], 'the suggestions are described');
});

t.test('what is refused beside it locks nobody in who is locked out', async (t) => {
  const scim = await scimProvider(service);
  const long = 'x'.repeat(20_000);
  const { email: taken } = await scim.person();
  const locksOut = { op: 'Replace', path: 'active', value: 'False' };
  const roles = Array.from({ length: 101 }, (_, at) => ({ value: `role ${at}` }));
  for (const [ignored, ...operations] of [
    ['title', { op: 'Replace', path: 'title', value: long }, locksOut],
    ['title', locksOut, { op: 'Replace', path: 'title', value: true }],
    ['roles', locksOut, { op: 'Add', path: 'roles', value: roles }],
    ['userName', { op: 'Replace', path: 'userName', value: taken }, locksOut],
    ['emails[type eq "work"].value', { op: 'Replace', path: 'emails[type eq "work"].value', value: taken }, locksOut],
    ['title, nickName', { op: 'replace', value: { title: long, active: false, nickName: 'N' } }],
    ['title', { op: 'replace', value: { [userSchema]: { active: 'False', title: long } } }],
    ['title', { op: 'replace', value: { [`${userSchema}:active`]: false, title: long, id: 'x' } }],
  ] as const) {
    const { id } = await scim.person({ title: 'Before' });
    const said = JSON.stringify(operations).slice(0, 90);
    const answer = await scim.patch(`/Users/${id}`, ...operations);
    t.match(answer, { status: 200, body: { active: false, title: 'Before' } }, said);
    t.equal(decodeURIComponent(answer.ignored ?? ''), ignored, said);
    t.equal((await scim.ok('GET', filtered('/Users', `id eq "${id}" and active eq false`))).totalResults, 1, said);
  }
  const { id, email } = await scim.person({ title: 'Before' });
  const put = { schemas: [userSchema], userName: email, title: long };
  t.match(await scim.ask('PUT', `/Users/${id}`, put), failure(400, 'invalidValue'), 'who stays is as before');
  const back = [{ op: 'Replace', path: 'title', value: long }, locksOut, { ...locksOut, value: true }];
  t.match(await scim.patch(`/Users/${id}`, ...back), failure(400, 'invalidValue'), 'the last value counts');
  const locked = await scim.ask('PUT', `/Users/${id}`, { ...put, active: false });
  t.match(locked, { status: 200, ignored: 'userName, title', body: { active: false, title: 'Before' } });
});

t.test('one value of an attribute is primary: the first that says so', async (t) => {
  const scim = await scimProvider(service);
  const { id, email: userName } = await scim.person();
  const [one, two] = [address(), address()];
  const emails = [
    { value: one, type: 'work', primary: true },
    { value: two, type: 'home', primary: 'True' },
  ];
  const put = await scim.ask('PUT', `/Users/${id}`, { userName, emails });
  const kept = [
    { value: one, primary: true },
    { value: two, primary: false },
  ];
  t.match(put, { status: 200, body: { emails: kept } });
  const replaced = await scim.patch(`/Users/${id}`, { op: 'replace', path: 'emails', value: emails.toReversed() });
  const turned = [
    { value: two, primary: true },
    { value: one, primary: false },
  ];
  t.match(replaced, { status: 200, body: { emails: turned } });
});

t.test('of a group, too, what no schema knows is named and ignored', async (t) => {
  const { id: organizationId } = await service.organization();
  const scim = await scimProvider(service, [mapped('Readers', 'organization:viewer', organizationId)]);
  const { id } = await scim.person();
  const group = `/Groups/${await scim.group('Readers', id)}`;
  const custom = 'urn:ietf:params:scim:schemas:extension:Custom:2.0:Group';
  const out = { op: 'Remove', path: 'members', value: [{ value: id }] };
  const changed = await scim.patch(
    group,
    { op: 'Add', path: 'owners[value eq "x"].display', value: 'x' },
    { op: 'Replace', path: `${custom}:displayName`, value: 'Writers' },
    { op: 'Replace', value: { color: 'red', meta: {}, [`${groupSchema}:externalId`]: 'ext' } },
    out,
  );
  t.equal(changed.status, 204);
  const ignored = `owners[value eq "x"].display, ${custom}:displayName, color`;
  t.equal(decodeURIComponent(changed.ignored ?? ''), ignored);
  t.match(await scim.ok('GET', group), { displayName: 'Readers', externalId: 'ext', members: { length: 0 } });
  t.strictSame(rolesOf(id), []);
  const replaced = await scim.ask('PUT', group, { displayName: 'Readers', color: 'red', schemas: [groupSchema] });
  t.strictSame([replaced.status, replaced.ignored], [200, 'color']);
});

t.test('operations that would make each other expensive are refused', async (t) => {
  const scim = await scimProvider(service);
  const { id } = await scim.person();
  const values = (count: number) => Array.from({ length: count }, (_, at) => ({ value: `role ${at}` }));
  const add = { op: 'add', path: 'roles', value: values(100) };
  const look = { op: 'remove', path: 'roles[value eq "none"]' };
  const refusals = [
    ['invalidValue', [{ op: 'add', path: 'roles', value: values(101) }]],
    ['invalidValue', [add, { op: 'add', path: 'roles', value: [{ value: 'one more' }] }]],
    [
      'invalidValue',
      [
        { op: 'replace', path: 'title', value: 'x'.repeat(20_000) },
        { op: 'remove', path: 'title' },
      ],
    ],
    ['invalidPath', [{ op: 'remove', path: `roles[${'value pr or '.repeat(30)}value pr]` }]],
    ['invalidSyntax', [{ op: 'add', value: Object.fromEntries(values(1001).map((_, at) => [`name.x${at}`, ''])) }]],
    ['tooMany', [add, ...Array(51).fill(look)]],
  ] as const;
  for (const [scimType, operations] of refusals)
    t.match(await scim.patch(`/Users/${id}`, ...operations), failure(400, scimType), scimType);
  t.match(await scim.patch(`/Users/${id}`, add, ...Array(50).fill(look)), { status: 200 });
});

t.test('lists in pages of at most 200, and bodies that are none', async (t) => {
  const scim = await scimProvider(service);
  await Promise.all(Array.from({ length: 7 }, () => scim.person({ title: 'Seven' })));
  const ids: string[] = [];
  for (const startIndex of [1, 4, 7]) {
    const page = await scim.ok('GET', `/Users?startIndex=${startIndex}&count=3`);
    t.match(page, { totalResults: 7, startIndex, itemsPerPage: startIndex === 7 ? 1 : 3 });
    ids.push(...page.Resources.map((one) => one.id));
  }
  t.equal(new Set(ids).size, 7);
  const second = await scim.ok(
    'GET',
    `${filtered('/Users', 'title eq "seven"')}&startIndex=6&count=5&attributes=name,emails.value`,
  );
  t.match(second, { totalResults: 7, itemsPerPage: 2, Resources: [{ emails: [{ value: String }] }] });
  t.strictSame(Object.keys(second.Resources[0] ?? {}).sort(), ['emails', 'id', 'schemas']);
  t.match(await scim.ok('GET', '/Users?count=0'), { totalResults: 7, Resources: { length: 0 } });
  t.match(await scim.ok('GET', '/Users?count=100000'), { itemsPerPage: 7 });
  const { id } = await scim.person();
  const group = await scim.group('Group');
  for (const [method, path, body, scimType] of [
    ['POST', '/Users', [], 'invalidSyntax'],
    ['POST', '/Users', {}, 'invalidValue'],
    ['POST', '/Users', { userName: 'no address' }, 'invalidValue'],
    ['POST', '/Users', { userName: address(), active: 'perhaps' }, 'invalidValue'],
    ['POST', '/Users', { userName: address(), title: true }, 'invalidValue'],
    ['POST', '/Users', { userName: address(), title: { value: 'x' } }, 'invalidValue'],
    ['POST', '/Users', { userName: address(), name: { givenName: true } }, 'invalidValue'],
    ['POST', '/Users', { userName: address(), emails: [{ value: address(), primary: 'no' }] }, 'invalidValue'],
    ['POST', '/Users', { userName: address(), [enterprise]: { department: true } }, 'invalidValue'],
    ['POST', '/Users', { schemas: [groupSchema], userName: address() }, 'invalidValue'],
    ['POST', '/Users', { userName: address(), title: 'x'.repeat(20_000) }, 'invalidValue'],
    ['POST', '/Users', { userName: address(), unknown: 'x'.repeat(70_000) }, 'invalidValue'],
    ['GET', `/Users?attributes=${'a,'.repeat(100)}b`, undefined, 'invalidValue'],
    ['GET', `/Users/${id}?excludedAttributes=${'a,'.repeat(100)}b`, undefined, 'invalidValue'],
    ['POST', '/Groups', { members: [] }, 'invalidValue'],
    ['PATCH', `/Users/${id}`, {}, 'invalidSyntax'],
    ['PATCH', `/Users/${id}`, { Operations: [{ op: 'move' }] }, 'invalidSyntax'],
    ['PATCH', `/Users/${id}`, { Operations: [{ op: 'remove' }] }, 'noTarget'],
    ['PATCH', `/Users/${id}`, { Operations: [{ op: 'replace', path: 'emails[', value: 1 }] }, 'invalidPath'],
    ['PATCH', `/Users/${id}`, { Operations: [] }, 'invalidSyntax'],
    ['PATCH', `/Groups/${group}`, { Operations: [] }, 'invalidSyntax'],
    ['POST', '/Users', '{"userName":', 'invalidSyntax'],
    ['PATCH', `/Groups/${group}`, 'active=false', 'invalidSyntax'],
    ['PUT', `/Users/${id}`, `${'['.repeat(600)}${']'.repeat(600)}`, 'invalidSyntax'],
  ] as const)
    t.match(await scim.ask(method, path, body), failure(400, scimType), `${path} ${JSON.stringify(body)}`.slice(0, 80));
  t.match(await scim.ask('GET', '/Me'), failure(404));
  t.match(await scim.ask('POST', '/Bulk', {}), failure(404));
});

t.end();
