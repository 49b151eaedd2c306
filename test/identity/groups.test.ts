/** Groups of an identity provider: at each login the account user or the end-users of a person follow from them. */

import { Browser, type OpenIdProvider, register, startProvider } from '../support/oidc.ts';
import { part } from '../support/part.ts';
import { role } from '../support/roles.ts';
import { ScimClient, scimToken } from '../support/scim.ts';
import { claimsOf, closed, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
let provider: OpenIdProvider;
t.before(async () => {
  service = await sharedService(t, { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true', SLIPWAY_LOGIN_FAILURES_PER_ADDRESS: '0' });
  provider = await startProvider(t, service);
});

const mapped = (group: string, roleId: string, organizationId: string | null = null) => ({
  group,
  roleId,
  organizationId,
});
const withMappings = (...mappings: object[]) => register(service, provider, { groupsClaim: 'groups', mappings });
const stranger = () => ({
  sub: service.unique('subject'),
  email: `${service.unique('someone').replace(' ', '')}@example.com`,
  email_verified: true,
});
const refused = (code: number, status = 400) => ({ status, body: { error: { code } } });
const rolesOf = async (token: string) =>
  (await service.ok('GET', '/api/v1/profile/me', { token })).roles.map(({ organizationId, id }) => [
    organizationId,
    id,
  ]);

/** Logs somebody in who is in these groups. */
async function logIn(id: string, person: ReturnType<typeof stranger>, ...groups: string[]) {
  provider.logsIn({ ...person, groups });
  return new Browser(service).logIn(id);
}

t.test('somebody comes, changes and goes with the groups', async (t) => {
  const [one, other] = [await service.organization(), await service.organization()];
  const { id } = await withMappings(
    mapped('Viewers', 'organization:viewer', one.id),
    mapped('Installers', 'organization:installer', one.id),
    mapped('Installers', 'organization:operator', other.id),
    mapped('Auditors', 'account:auditor'),
    mapped('Admins', 'account:support'),
  );
  const person = stranger();
  t.equal((await logIn(id, person, 'viewers', 'Others')).status, 401, 'a group is compared exactly');
  const first = await logIn(id, person, 'Viewers');
  t.strictSame(await rolesOf(first.body.jwt), [[one.id, 'organization:viewer']]);
  const { userId } = claimsOf(first.body.jwt);

  const second = await logIn(id, person, 'Installers', 'Viewers');
  t.strictSame(
    new Map((await rolesOf(second.body.jwt)) as Array<[string, string]>),
    new Map([
      [one.id, 'organization:viewer'],
      [other.id, 'organization:operator'],
    ]),
    'within an organization the first mapping',
  );
  const third = await logIn(id, person, 'Admins', 'Auditors', 'Viewers');
  t.strictSame(await rolesOf(third.body.jwt), [[null, 'account:auditor']], 'mappings of the account win');
  const back = await logIn(id, person, 'Installers');
  t.strictSame((await rolesOf(back.body.jwt)).length, 2);
  t.equal(claimsOf(back.body.jwt).userId, userId);
  t.equal((await logIn(id, person)).status, 401, 'in no group it is nobody');
  t.equal((await service.http('GET', '/api/v1/profile/me', { token: back.body.jwt })).status, 401);
  const events = (await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&actorId=${id}&pageSize=100`))
    .auditRecords.results;
  t.match(
    events.find(({ event }) => event === 'roleAssigned'),
    { details: { userId, roleId: null } },
  );
});

t.test('only what mappings made is changed and removed', async (t) => {
  const { id: organizationId } = await service.organization();
  const { id } = await withMappings(
    mapped('Viewers', 'organization:viewer', organizationId),
    mapped('Admins', 'account:admin'),
  );
  const email = stranger().email;
  const { id: endUserId, identityProviderId } = await service.create('/end-users', 'endUser', {
    ...{ organizationId, createIdmUser: true, idmUserEmail: email, roleId: 'organization:installer' },
  });
  t.equal(identityProviderId, null);
  const person = { ...stranger(), email };
  const both = await logIn(id, person, 'Viewers');
  t.strictSame((await rolesOf(both.body.jwt)).length, 2);
  const asAdmin = await logIn(id, person, 'Admins');
  t.strictSame(await rolesOf(asAdmin.body.jwt), [[organizationId, 'organization:installer']], 'it stays an end-user');
  const left = await logIn(id, person);
  t.strictSame(await rolesOf(left.body.jwt), [[organizationId, 'organization:installer']]);
  t.equal((await service.ok('GET', `/api/v1/end-users/${endUserId}`)).endUser.roleId, 'organization:installer');
});

t.test('a lost group ends connections before the login is answered; changed mappings wait for it', async (t) => {
  const organization = await service.organization();
  const template = await service.template({ channels: [{ name: 'chat', persistenceType: 'simple' }] });
  const { device } = await service.device({ deviceTemplateId: template.id, organizationId: organization.id });
  const topic = service.topic(device.id, 'chat');
  const made = await withMappings(mapped('Operators', 'organization:operator', organization.id));
  const person = stranger();
  const { jwt } = (await logIn(made.id, person, 'Operators')).body;
  const client = await service.connect({ jwt }, { protocolVersion: 5 });
  await client.publishAsync(topic, 'x', { qos: 1 });
  const changed = await service.ok('PUT', `/api/v1/identity-providers/${made.id}`, {
    headers: { etag: made.version },
    body: { mappings: [mapped('Operators', 'organization:viewer', organization.id)] },
  });
  await client.publishAsync(topic, 'still', { qos: 1 });
  await logIn(made.id, person, 'Operators');
  await t.rejects(client.publishAsync(topic, 'no more', { qos: 1 }));
  const ended = closed(client);
  await logIn(made.id, person, 'Others');
  await ended;
  t.match(changed.identityProvider.mappings, [{ group: 'Operators' }]);
});

t.test('too many groups for a token are not taken for none', async (t) => {
  const { id: organizationId } = await service.organization();
  const inToken = await startProvider(t, service, { claimsInToken: true });
  const other = await register(service, inToken, {
    groupsClaim: 'groups',
    mappings: [mapped('Viewers', 'organization:viewer', organizationId)],
  });
  const person = stranger();
  inToken.logsIn({ ...person, groups: 'Viewers' });
  const first = await new Browser(service).logIn(other.id);
  t.equal(first.status, 200, 'one group may be a text');
  inToken.logsIn({ ...person, groups: undefined, _claim_names: { groups: 'src1' } });
  const overage = await new Browser(service).logIn(other.id);
  t.match(overage, { status: 401, body: { message: /too many/ } });
  t.equal((await service.http('GET', '/api/v1/profile/me', { token: first.body.jwt })).status, 200);
});

t.test('where SCIM manages a person, claims are ignored; whom it has disabled cannot log in', async (t) => {
  const { id: organizationId } = await service.organization();
  const made = await withMappings(
    mapped('Viewers', 'organization:viewer', organizationId),
    mapped('Auditors', 'account:auditor'),
  );
  const scim = new ScimClient(service, made, (await scimToken(service, made.id)).token);
  const { id, email } = await scim.person();
  await scim.group('Viewers', id);
  const person = { ...stranger(), email };
  const login = await logIn(made.id, person, 'Auditors');
  t.strictSame(await rolesOf(login.body.jwt), [[organizationId, 'organization:viewer']]);
  await scim.patch(`/Users/${id}`, { op: 'replace', path: 'active', value: 'false' });
  t.equal((await logIn(made.id, person, 'Auditors')).status, 401);
  await scim.patch(`/Users/${id}`, { op: 'replace', path: 'active', value: 'true' });
  t.equal(
    (await service.http('GET', '/api/v1/profile/me', { token: login.body.jwt })).status,
    401,
    'a session is over',
  );
  t.equal((await logIn(made.id, person)).status, 200);
  await scim.ok('DELETE', `/Users/${id}`);
  t.equal((await logIn(made.id, person)).status, 401);
});

t.test('whom SCIM of the same provider has made or linked needs no claim of a verified email', async (t) => {
  const { id: organizationId } = await service.organization();
  const mappings = [mapped('Viewers', 'organization:viewer', organizationId)];
  const inToken = await startProvider(t, service, { claimsInToken: true });
  for (const at of [provider, inToken]) {
    const about = { groupsClaim: 'groups', mappings };
    const [made, other] = [await register(service, at, about), await register(service, at, about)];
    const scim = new ScimClient(service, made, (await scimToken(service, made.id)).token);
    const linked = await service.endUser(organizationId);
    const { id } = await scim.ok('POST', '/Users', { userName: linked.email });
    const person = await scim.person();
    await scim.group(service.unique('Viewers'), id);
    await scim.ok('POST', '/Groups', { displayName: 'Viewers', members: [{ value: person.id }] });
    for (const { email } of [person, linked]) {
      const claims = { sub: service.unique('subject'), email, groups: ['Viewers'] };
      const logsIn = (providerId: string, more: object = {}) => {
        at.logsIn({ ...claims, ...more });
        return new Browser(service).logIn(providerId);
      };
      t.equal((await logsIn(made.id, { email_verified: false })).status, 401, 'the provider says that it is not');
      t.match(
        await logsIn(other.id),
        { status: 401, body: { attributes: { error: /not verified/ } } },
        'SCIM of another provider',
      );
      const answer = await logsIn(made.id);
      t.equal(answer.status, 200, answer.text);
      t.equal((await logsIn(other.id)).status, 200, 'whom the issuer has proven once is known');
    }
    at.logsIn({ sub: service.unique('subject'), email: stranger().email, groups: ['Viewers'] });
    const unknown = await new Browser(service).logIn(made.id);
    t.match(unknown, { status: 401, body: { attributes: { error: /not verified/ } } }, 'nobody is told who is known');
  }
});

t.test('groups are names, or as Zitadel sends them keys', async (t) => {
  const { id: organizationId } = await service.organization();
  const mappings = [mapped('operator', 'organization:operator', organizationId)];
  const { id } = await register(service, provider, { groupsClaim: 'groups', mappings });
  for (const [groups, status] of [
    [{ operator: { '1712': 'acme.example.com' }, other: {} }, 200],
    [[{ operator: { '1712': 'acme.example.com' } }, 'more'], 200],
    [{ operator: 'yes' }, 401],
    [{ roles: ['operator'] }, 401],
    [{}, 401],
    [[1, null, true], 401],
  ] as const) {
    provider.logsIn({ ...stranger(), groups });
    t.equal((await new Browser(service).logIn(id)).status, status, JSON.stringify(groups));
  }
});

t.test('the last admin is not demoted, and a mapped role is not deleted', async (t) => {
  const account = await service.inNewAccount();
  const own = await role(account, 'account', { device: ['read'] });
  const made = await register(account, provider, {
    groupsClaim: 'groups',
    mappings: [mapped('Admins', 'account:admin'), mapped('Others', own.id)],
  });
  const path = `/api/v1/roles/${own.id}` as const;
  t.match(await account.http('DELETE', path, { headers: { etag: own.version } }), refused(104));
  const person = stranger();
  provider.logsIn({ ...person, groups: ['Admins'] });
  const { jwt: token } = (await new Browser(account).logIn(made.id)).body;
  const users = (await account.ok('GET', `/api/v1/account-users?accountId=${account.accountId}`)).accountUsers.results;
  const first = users.find(({ identityProviderId }) => identityProviderId === null);
  t.equal(users.find((one) => one !== first)?.identityProviderId, made.id);
  await account.ok('DELETE', `/api/v1/account-users/${first?.id}`, { token, headers: { etag: first?.version ?? '' } });
  for (const groups of [['Others'], []]) {
    provider.logsIn({ ...person, groups });
    const kept = await new Browser(account).logIn(made.id);
    t.match(kept, { status: 400, body: { attributes: { errorCode: 'ConstraintError' } } }, groups.join());
  }
  t.equal((await account.http('GET', '/api/v1/profile/me', { token })).status, 200);
  const unmapped = { token, headers: { etag: made.version }, body: { mappings: [mapped('Admins', 'account:admin')] } };
  await account.ok('PUT', `/api/v1/identity-providers/${made.id}`, unmapped);
  await account.ok('DELETE', path, { token, headers: { etag: own.version } });
});

t.test('mappings name roles and organizations of the account, and its scope', async (t) => {
  const foreign = await (await service.inNewAccount()).organization();
  const { id: organizationId } = await service.organization();
  for (const mapping of [
    mapped('G', 'organization:viewer'),
    mapped('G', 'account:admin', organizationId),
    mapped('G', 'organization:viewer', foreign.id),
    mapped('G', service.accountId, organizationId),
  ]) {
    const body = { accountId: service.accountId, name: 'n', issuer: 'https://id.example.com', clientId: 'c' };
    const answer = await service.http('POST', '/api/v1/identity-providers', { body: { ...body, mappings: [mapping] } });
    t.match(answer, refused(102), JSON.stringify(mapping));
  }
});

t.end();
