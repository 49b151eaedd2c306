/**
 * Nobody gains a right that its giver does not have: random people and programs give roles, make people and programs, change
 * roles, build organizations, map groups of identity providers and ask for tokens of SCIM. After each step nobody may do anything new but what the one who made the step may do.
 */
import { ok } from 'node:assert';
import fc from 'fast-check';
import { builtInRoles, type Rights, type RoleScope } from '../../src/core/rights.ts';
import { part } from '../support/part.ts';
import { accountUser, backEnd, randomNumbers, randomRights, role } from '../support/roles.ts';
import { ScimClient, scimProvider } from '../support/scim.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t, { SLIPWAY_HTTP_REQUESTS_PER_SECOND: '0' });
});

interface Actor {
  name: string;
  token: string;
  /** Where it is changed, and by what. */
  path: string;
  scope: RoleScope;
  organizationId?: string;
  /** Of an end-user. */
  email?: string;
}

interface World {
  actors: Actor[];
  roles: Array<{ id: string; scope: RoleScope }>;
  organizations: string[];
  /** A provider of the account, whose SCIM knows one of the actors: it is in the group Known. */
  scim: ScimClient;
  random: () => number;
  /** What the one who makes the step may do. */
  own: ReadonlySet<string>;
}

interface Step {
  verb: keyof typeof verbs;
  who: number;
  what: number;
  role: number;
}

const choose = <T>(from: readonly T[], number: number): T => from[number % from.length] as T;
const roleFor = ({ roles }: World, scope: RoleScope, { role }: Step) => {
  const all = roles.filter((one) => one.scope === scope);
  // What has been made is small, and more often in reach.
  const fitting = role % 3 === 0 ? all : all.slice(-3);
  // Sometimes the default one.
  return role % 5 === 0 ? undefined : choose(fitting, role).id;
};
/** Some rights; every third time the giver lacks some of them. */
function mostlyOwn({ random, own }: World, scope: RoleScope): Rights {
  const greed = random() < 1 / 3 ? 0.2 : 0;
  const rights = Object.entries(randomRights(scope, random, 0.3)).map(([kind, actions]) => [
    kind,
    actions.filter((action) => own.has(`${action} ${kind}`) || random() < greed),
  ]);
  return Object.fromEntries(rights);
}

const person = () => ({
  createIdmUser: true,
  idmUserEmail: `${service.unique('someone').replace(' ', '')}@example.com`,
  idmUserPassword: 'a long enough secret',
});

const endUsersOf = ({ actors }: World) => actors.filter(({ email }) => email !== undefined);
const mappingFor = (world: World, group: string, step: Step) => ({
  group,
  roleId: roleFor(world, 'organization', step) ?? 'organization:manager',
  organizationId: choose(world.organizations, step.what),
});

/** SCIM with a token that the actor has got; undefined where it gets none. */
async function scimOf({ token }: Actor, provider: ScimClient['provider']): Promise<ScimClient | undefined> {
  const body = { expiresAt: new Date(Date.now() + 60_000).toISOString() };
  const path = `/api/v1/identity-providers/${provider.id}/scim-token` as const;
  const made = await service.http('POST', path, { token, body });
  return made.status === 200 ? new ScimClient(service, provider, made.body.scimToken.token) : undefined;
}

/** Puts an end-user into a group. */
async function join(scim: ScimClient, displayName: string, { email }: Actor): Promise<void> {
  const { body } = await scim.ask('POST', '/Users', { userName: email });
  const found = await scim.ok('GET', `/Users?filter=${encodeURIComponent(`userName eq "${email}"`)}`);
  const id = body.id ?? found.Resources[0]?.id;
  if (id !== undefined) await scim.ask('POST', '/Groups', { displayName, members: [{ value: id }] });
}

/** Each tries one thing as an actor; refusals are what most of them get. */
const verbs = {
  async newRole(world: World, { token }: Actor, step: Step) {
    const scope = step.what % 2 === 0 ? 'account' : 'organization';
    const body = {
      accountId: service.accountId,
      name: service.unique('R'),
      scope,
      rights: mostlyOwn(world, scope),
    };
    const made = await service.http('POST', '/api/v1/roles', { token, body });
    if (made.status === 200) world.roles.push({ id: made.body.role.id, scope });
  },
  async changeRole(world: World, { token }: Actor, step: Step) {
    // Built-in ones stay as they are.
    const own = world.roles.filter(({ id }) => !builtInRoles.has(id));
    const { id, scope } = choose(own, step.what);
    const etag = (await service.ok('GET', `/api/v1/roles/${id}`)).role.version;
    const body = { rights: mostlyOwn(world, scope) };
    await service.http('PUT', `/api/v1/roles/${id}`, { token, headers: { etag }, body });
  },
  async newAccountUser(world: World, { token }: Actor, step: Step) {
    const roleId = roleFor(world, 'account', step);
    const made = await accountUser(service, { ...(roleId && { roleId }) }, token).catch(() => undefined);
    if (made)
      world.actors.push({
        name: service.unique('user'),
        token: made.token,
        scope: 'account',
        path: `/account-users/${made.id}`,
      });
  },
  async newProgram(world: World, { token }: Actor, step: Step) {
    const roleId = roleFor(world, 'account', step);
    const made = await backEnd(service, { ...(roleId && { roleId }) }, token).catch(() => undefined);
    if (made)
      world.actors.push({
        name: service.unique('program'),
        token: made.token,
        scope: 'account',
        path: `/applications/${made.id}`,
      });
  },
  async newEndUser(world: World, { token }: Actor, step: Step) {
    const roleId = roleFor(world, 'organization', step);
    const organizationId = choose(world.organizations, step.what);
    const body = { accountId: service.accountId, organizationId, ...person(), ...(roleId && { roleId }) };
    const made = await service.http('POST', '/api/v1/end-users', { token, body });
    if (made.status !== 200) return;
    const { jwt } = await service.loginAs(body.idmUserEmail, body.idmUserPassword);
    const path = `/end-users/${made.body.endUser.id}`;
    const about = { scope: 'organization', path, organizationId, email: body.idmUserEmail } as const;
    world.actors.push({ name: service.unique('end-user'), token: jwt, ...about });
  },
  /** Maps a group that somebody is in to another role. */
  async mapGroup(world: World, { token }: Actor, step: Step) {
    const path = `/api/v1/identity-providers/${world.scim.provider.id}` as const;
    const etag = (await service.ok('GET', path)).identityProvider.version;
    const body = { mappings: [mappingFor(world, 'Known', step)] };
    await service.http('PUT', path, { token, headers: { etag }, body });
  },
  /** Gets a token of a provider, and puts somebody into a group that an admin has mapped. */
  async askForScim(world: World, actor: Actor, step: Step) {
    const scim = await scimOf(actor, world.scim.provider);
    if (scim) await join(scim, 'Managers', choose(endUsersOf(world), step.what));
  },
  /** Makes a provider, and speaks for it. */
  async newProvider(world: World, actor: Actor, step: Step) {
    const about = { name: service.unique('P'), issuer: 'https://id.example.com', clientId: 'c' };
    const body = { accountId: service.accountId, ...about, mappings: [mappingFor(world, 'Own', step)] };
    const made = await service.http('POST', '/api/v1/identity-providers', { token: actor.token, body });
    const scim = made.status === 200 ? await scimOf(actor, made.body.identityProvider) : undefined;
    if (scim) await join(scim, 'Own', choose(endUsersOf(world), step.what));
  },
  async giveRole(world: World, { token }: Actor, step: Step) {
    const { path, scope, organizationId } = choose(world.actors, step.what);
    const etag = (await service.http('GET', `/api/v1${path}`)).headers.get('etag') ?? '';
    const roleId = roleFor(world, scope, step);
    const body = { ...(roleId && { roleId }), ...(organizationId && { organizationId }) };
    await service.http('PUT', `/api/v1${path}`, { token, headers: { etag }, body });
  },
  async newOrganization(world: World, { token }: Actor, step: Step) {
    const templates = await service.ok('GET', `/api/v1/end-users/templates?accountId=${service.accountId}`);
    const parentId = choose(world.organizations, step.what);
    const endUserTemplateId = templates.endUserTemplates.results[0]?.id;
    const body = { accountId: service.accountId, name: 'o', parentId, endUserTemplateId };
    const made = await service.http('POST', '/api/v1/organizations', { token, body });
    if (made.status === 200 && world.organizations.length < 4) world.organizations.push(made.body.organization.id);
  },
};

/** What each actor may do: `<action> <kind>`, of end-users with the organization, which is the whole tree here. */
async function rightsOf(actors: readonly Actor[]): Promise<Map<Actor, Set<string>>> {
  const all = new Map<Actor, Set<string>>();
  for (const actor of actors) {
    const { status, body } = await service.http('GET', '/api/v1/profile/me', { token: actor.token });
    // Whose session has ended may do nothing.
    const roles = status === 200 ? body.roles : [];
    const rights = roles.flatMap((one) =>
      Object.entries(one.rights).flatMap(([kind, actions]) => actions.map((action) => `${action} ${kind}`)),
    );
    all.set(actor, new Set(rights));
  }
  return all;
}

/** The world of a run: people with some of the built-in and of random roles, none of whom is an admin. */
async function begin(seed: number): Promise<World> {
  const random = randomNumbers(seed);
  const root = (await service.organization()).id;
  const roles = [...builtInRoles.values()].map(({ id, scope }) => ({ id, scope }));
  const scim = await scimProvider(service, [
    { group: 'Managers', roleId: 'organization:manager', organizationId: root },
  ]);
  const world: World = { actors: [], roles, organizations: [root], scim, random, own: new Set() };
  const giving = { role: ['create', 'read', 'update'], accountUser: ['create', 'read', 'update'] } as const;
  for (let n = 0; n < 3; n += 1) {
    const rights = {
      ...randomRights('account', random, 0.9),
      ...giving,
      application: ['create', 'update'],
      endUser: ['create', 'update'],
      identityProvider: ['create', 'update'],
    } as const;
    const { id: roleId } = await role(service, 'account', rights);
    roles.push({ id: roleId, scope: 'account' });
    const { id, token } = await accountUser(service, { roleId });
    world.actors.push({ name: `account user ${n}`, token, scope: 'account', path: `/account-users/${id}` });
  }
  for (let n = 0; n < 2; n += 1) {
    const rights = {
      ...randomRights('organization', random, 0.9),
      endUser: ['create', 'read', 'update'],
      organization: ['create', 'read'],
    } as const;
    const { id: roleId } = await role(service, 'organization', rights);
    roles.push({ id: roleId, scope: 'organization' });
    const { endUser, token, email } = await service.endUser(root, { roleId });
    const path = `/end-users/${endUser.id}`;
    world.actors.push({ name: `end-user ${n}`, token, scope: 'organization', path, organizationId: root, email });
  }
  await join(scim, 'Known', choose(endUsersOf(world), 0));
  return world;
}

const aStep = fc.record({
  // Who changes what others have already is refused most often: it is tried most often.
  verb: fc.constantFrom(...(Object.keys(verbs) as Array<keyof typeof verbs>), 'changeRole', 'changeRole', 'giveRole'),
  who: fc.nat(100),
  what: fc.nat(100),
  role: fc.nat(100),
});

t.test('nobody gains a right over random sequences', async (t) => {
  let given = 0;
  const life = fc.asyncProperty(fc.nat(), fc.array(aStep, { minLength: 35, maxLength: 35 }), async (seed, steps) => {
    const world = await begin(seed);
    let before = await rightsOf(world.actors);
    for (const [n, step] of steps.entries()) {
      const actor = choose(world.actors, step.who);
      const own = before.get(actor) ?? new Set();
      world.own = own;
      await verbs[step.verb](world, actor, step);
      const after = await rightsOf(world.actors);
      for (const [one, rights] of after) {
        const had = before.get(one) ?? new Set();
        const gained = [...rights].filter((right) => !had.has(right));
        if (gained.length > 0) given += 1;
        const ungiven = gained.filter((right) => !own.has(right));
        ok(ungiven.length === 0, `step ${n}, ${step.verb} of ${actor.name}: ${one.name} gained ${ungiven.join(', ')}`);
      }
      before = after;
    }
  });
  await fc.assert(life, { numRuns: 5, ...(process.env.SEED && { seed: Number(process.env.SEED) }) });
  t.ok(given > 0, `${given} times somebody was given something`);
});

t.end();
