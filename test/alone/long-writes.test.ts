/** A write that concerns tens of thousands of rows does not hold the event loop. */
import t, { type Test } from 'tap';
import { newId } from '../../src/core/ids.ts';
import { copyStored, type StoredValues } from '../support/copies.ts';
import { changeStored } from '../support/faults.ts';
import { feel } from '../support/feel.ts';
import { accountUser, role } from '../support/roles.ts';
import { groupSchema, patchSchema, type ScimClient, scimProvider } from '../support/scim.ts';
import { present, type Service, startService } from '../support/service.ts';
import { countStored, storedRows } from '../support/stored.ts';

const etag = (version: string) => ({ headers: { etag: version } });
const many = 20_000;
/** Milliseconds of work in one turn of the event loop; collections of garbage and this program's own JSON are among it. */
const longestTurn = 60;

let service: Service;
t.before(async () => {
  service = await startService(t, { env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' } });
});

async function holdsNobody(t: Test, what: string, work: () => Promise<{ status: number }>): Promise<void> {
  const { result, held } = await feel(work);
  t.ok(result.status < 300, `${what}: ${result.status}`);
  t.ok(held < longestTurn, `${what}: ${Math.round(held)} ms in one turn of the event loop`);
}

const copies = (table: string, where: StoredValues, changes: (n: number) => StoredValues, rows = many) =>
  copyStored(service, table, where, rows, changes);

const ids = () => Array.from({ length: many }, () => newId(service.accountId));

/** A provider whose people are many, with an end-user and a link each. */
async function crowd(
  roleId: string,
  rows = many,
): Promise<{ scim: ScimClient; people: string[]; organizationId: string }> {
  const { id: organizationId } = await service.organization();
  const issuer = `https://${service.unique('id').replace(' ', '-')}.example.com`;
  const scim = await scimProvider(service, [{ group: 'All', roleId, organizationId }], { issuer });
  const { id } = await scim.person();
  await scim.group('All', id);
  const [first] = storedRows<{ userId: string }>(service, 'SELECT "userId" FROM "scimUsers" WHERE "id" = ?', [id]);
  const userId = present(first).userId;
  const [users, people, endUsers] = [ids(), ids(), ids()];
  const at = (list: string[], n: number) => present(list[n]);
  const email = (n: number) => `${n}@${organizationId}.com`;
  const copy = (table: string, where: StoredValues, changes: (n: number) => StoredValues) =>
    copies(table, where, changes, rows);
  await copy('identities', { id: userId }, (n) => ({ id: at(users, n), email: email(n), emailKey: email(n) }));
  await copy('scimUsers', { id }, (n) => ({ id: at(people, n), userId: at(users, n), userNameKey: `${n}` }));
  await copy('scimMembers', { memberId: id }, (n) => ({ memberId: at(people, n) }));
  await copy('endUsers', { userId }, (n) => ({ id: at(endUsers, n), userId: at(users, n) }));
  await changeStored(service, `INSERT INTO "federatedIdentities" SELECT ?, ?, "value", "value", ? FROM json_each(?)`, [
    service.accountId,
    issuer,
    new Date().toISOString(),
    JSON.stringify(users.slice(0, rows)),
  ]);
  return { scim, people: [id, ...people], organizationId };
}

t.test('an identity provider with 20,000 people is deleted, and nothing of it is left', async (t) => {
  const { scim } = await crowd('organization:viewer');
  const { id, version } = scim.provider;
  await holdsNobody(t, 'DELETE', () => service.http('DELETE', `/api/v1/identity-providers/${id}`, etag(version)));
  for (const table of ['scimUsers', 'scimGroups', 'accountUsers', 'endUsers'])
    t.equal(countStored(service, `"${table}"`, '"identityProviderId" = ?', [id]), 0, table);
  t.equal(countStored(service, '"scimMembers"'), 0);
  t.equal(countStored(service, '"federatedIdentities"'), 0);
});

// The roles of 20,000 follow in steps of the same size; they would take a test of minutes.
t.test(
  'the mappings of a provider with 2,000 people change, and the roles of all follow before the answer',
  async (t) => {
    const { scim, organizationId } = await crowd('organization:viewer', 2000);
    const { id, version, name, clientId, issuer } = scim.provider;
    const mappings = [{ group: 'All', roleId: 'organization:operator', organizationId }];
    const put = { ...etag(version), body: { name, clientId, issuer, mappings } };
    await holdsNobody(t, 'PUT', () => service.http('PUT', `/api/v1/identity-providers/${id}`, put));
    const having = (roleId: string) =>
      countStored(service, '"endUsers"', '"identityProviderId" = ? AND "roleId" = ?', [id, roleId]);
    t.same([having('organization:viewer'), having('organization:operator')], [0, 2001]);
  },
);

t.test('a group of SCIM with 20,000 members is made, changed and deleted', async (t) => {
  const { scim, people } = await crowd('organization:viewer');
  const members = people.slice(0, many - 1).map((value) => ({ value }));
  const group = { schemas: [groupSchema], displayName: 'Others' };
  // This program makes the text before, and is not answered with the members: its own work counts as well.
  const [all, none] = [JSON.stringify({ ...group, members }), JSON.stringify({ ...group, members: [] })];
  const without = '?excludedAttributes=members';
  let id = '';
  await holdsNobody(t, 'POST', async () => {
    const made = await scim.ask('POST', `/Groups${without}`, all);
    id = made.body.id;
    return made;
  });
  await holdsNobody(t, 'PUT', () => scim.ask('PUT', `/Groups/${id}${without}`, none));
  await scim.ok('PUT', `/Groups/${id}${without}`, all);
  const count = () => countStored(service, '"scimMembers"', '"groupId" = ?', [id]);
  for (const [op, left] of [
    ['remove', 0],
    ['add', members.length],
  ] as const) {
    const patch = JSON.stringify({ schemas: [patchSchema], Operations: [{ op, path: 'members', value: members }] });
    await holdsNobody(t, `PATCH ${op}`, () => scim.ask('PATCH', `/Groups/${id}`, patch));
    t.equal(count(), left, `PATCH ${op}`);
  }
  await holdsNobody(t, 'DELETE', () => scim.ask('DELETE', `/Groups/${id}`));
  t.equal(count(), 0);
});

t.test('a role of 2,000 people gets more rights, and voids the passwords that others have chosen', async (t) => {
  const rights = { device: ['read'] } as const;
  const { id: roleId, version } = await role(service, 'account', rights);
  const { userId } = await accountUser(service, { roleId });
  const [users, accountUsers] = [ids(), ids()];
  await copies(
    'identities',
    { id: userId },
    (n) => ({
      id: present(users[n]),
      email: `role-${n}@example.com`,
      emailKey: `role-${n}@example.com`,
      passwordChosenBy: 'other',
    }),
    2000,
  );
  await copies('accountUsers', { userId }, (n) => ({ id: present(accountUsers[n]), userId: present(users[n]) }), 2000);
  const body = { rights: { ...rights, bridge: ['read'] } };
  const open = () =>
    countStored(service, '"identities"', `"passwordChosenBy" = 'other' AND "passwordHash" IS NOT NULL`);
  t.match(await service.http('PUT', `/api/v1/roles/${roleId}`, { ...etag('9'), body }), { status: 412 });
  t.equal(open(), 2000, 'a change that is refused voids none');
  await holdsNobody(t, 'PUT', () => service.http('PUT', `/api/v1/roles/${roleId}`, { ...etag(version), body }));
  t.equal(open(), 0);
});
