/**
 * Random lives of an account: its admin and three people, who are end-users of it once, several times or no more, make,
 * change, move, delete and recover in a tree of organizations. A simple model next to the service knows what must come out.
 */
import { deepStrictEqual, ok } from 'node:assert';
import fc from 'fast-check';
import { part } from '../support/part.ts';
import { type Service, wrapped } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { patience } from '../support/until.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const kinds = ['organizations', 'devices', 'end-users'] as const;
type Kind = (typeof kinds)[number];
const wrappers = { organizations: 'organization', devices: 'device', 'end-users': 'endUser' } as const;
const pluralOf = { organizations: 'organizations', devices: 'devices', 'end-users': 'endUsers' } as const;

/** An entity as the model knows it. `place` is the parent of an organization, and where a device or end-user stands. */
interface Entity {
  kind: Kind;
  /** How a counterexample calls it. */
  name: string;
  id: string;
  place: Entity | null;
  deleted: boolean;
  version: string;
  /** All versions that it has had. */
  versions: Set<string>;
  /** The identity of an end-user. */
  userId?: string;
}

interface Person {
  name: string;
  token: string;
  /** The identity; undefined for the admin. */
  userId?: string;
  /** Organizations made while it was no end-user. */
  firstSteps: number;
}

/** What one step draws; numbers choose among what is there when the step comes. */
interface Step {
  verb: keyof typeof verbs;
  who: number;
  kind: Kind;
  what: number;
  to: number;
  /** Choose among what the person can do something with, if there is any; otherwise among everything. */
  apt: boolean;
  stale: boolean;
}

/** What an answer says of an entity: `userId` of an end-user, `defaultEndUser` of an organization that a newcomer founds. */
interface Shown {
  id: string;
  version: string;
  userId: string;
  defaultEndUser: Record<'id' | 'version' | 'userId', string>;
}

/** What a list says of an entity. */
interface Listed {
  id: string;
  version: string;
  deleted?: string;
  parentId?: string | null;
  organizationId?: string | null;
  deviceCount?: number;
  endUserCount?: number;
  childCount?: number;
}

/** A request, the refusals of which one must come (none: it must succeed), and what it changes in the model. */
interface Plan {
  says: string;
  method: string;
  path: string;
  body?: object;
  etag?: string;
  refusals: string[];
  done(answer: Shown): void;
}

class World {
  readonly entities: Entity[] = [];
  readonly people: Person[] = [];
  /** What has happened, for a counterexample. */
  readonly story: string[] = [];

  readonly accountId: string;
  readonly endUserTemplateId: string;

  constructor(accountId: string, endUserTemplateId: string) {
    this.accountId = accountId;
    this.endUserTemplateId = endUserTemplateId;
  }

  of(kind: Kind): Entity[] {
    return this.entities.filter((entity) => entity.kind === kind);
  }

  /** Live entities that stand directly in an organization. */
  within(organization: Entity, kind: Kind): Entity[] {
    return this.of(kind).filter(({ place, deleted }) => place === organization && !deleted);
  }

  /** The organizations that a person is attached to. */
  rootsOf({ userId }: Person): Entity[] {
    return this.of('end-users')
      .filter((endUser) => endUser.userId === userId && !endUser.deleted)
      .flatMap(({ place }) => place ?? []);
  }

  roleOf(person: Person): 'admin' | 'endUser' | 'newcomer' {
    if (person.userId === undefined) return 'admin';
    return this.rootsOf(person).length > 0 ? 'endUser' : 'newcomer';
  }

  /** Whether a place is in a person's reach: live, and at or below one of its organizations. */
  reaches(person: Person, place: Entity | null): boolean {
    if (this.roleOf(person) === 'admin') return true;
    const roots = this.rootsOf(person);
    return pathOf(place).some((organization) => roots.includes(organization));
  }

  /** Whether an entity is; in the trash an organization is where its parent is. */
  reachesEntity(person: Person, entity: Entity): boolean {
    return this.reaches(person, entity.kind === 'organizations' && !entity.deleted ? entity : entity.place);
  }

  /** How many levels of live organizations there are below one. */
  heightOf(organization: Entity): number {
    const heights = this.within(organization, 'organizations').map((child) => 1 + this.heightOf(child));
    return Math.max(0, ...heights);
  }
}

/** A live organization and those above it. */
function pathOf(place: Entity | null): Entity[] {
  return place === null || place.deleted ? [] : [place, ...pathOf(place.place)];
}

/** Names of the refusals whose condition holds. */
function those(...refusals: Array<[holds: boolean, refusal: string]>): string[] {
  return refusals.filter(([holds]) => holds).map(([, refusal]) => refusal);
}

const nameOf = (place: Entity | null) => place?.name ?? 'the top';
const pick = <T>(from: readonly T[], n: number): T | undefined => from[n % from.length];

function add(
  world: World,
  kind: Kind,
  { id, version, userId }: Record<'id' | 'version' | 'userId', string>,
  place: Entity | null,
): Entity {
  const name = `${wrappers[kind]} ${world.of(kind).length}`;
  const entity = { kind, name, id, place, deleted: false, version, versions: new Set([version]), userId };
  world.entities.push(entity);
  return entity;
}

/** The version of a modified entity is one that it has never had. */
function modified(entity: Entity, { version }: Record<'version', string>): void {
  ok(!entity.versions.has(version), `${entity.name} has had version ${version} before`);
  entity.version = version;
  entity.versions.add(version);
}

/** Why nothing may be put at `place` by a person; `null` is the top, or outside of every organization. */
function placeRefusals(world: World, person: Person, place: Entity | null): Array<[boolean, string]> {
  const admin = world.roleOf(person) === 'admin';
  return [
    [place === null && !admin, '403/21'],
    [place !== null && (place.deleted || !world.reaches(person, place)), '400/102'],
  ];
}

/** Refusals of a verb on an entity that is there: role and reach come before all others, and hide them. */
function refusalsOn(world: World, person: Person, entity: Entity, may: boolean, others: Array<[boolean, string]>) {
  if (!may || world.roleOf(person) === 'newcomer') return ['403/21'];
  return world.reachesEntity(person, entity) ? those(...others) : ['404/100'];
}

/** What a step is about: something live, or for a recovery something deleted, when it is apt. */
function target(world: World, person: Person, { verb, kind, what, apt }: Step): Entity | undefined {
  const all = world.of(kind);
  const deleted = verb === 'recover';
  const likely = all.filter((one) => one.deleted === deleted && world.reachesEntity(person, one));
  return pick(apt && likely.length > 0 ? likely : all, what);
}

/** Where something goes: an organization, live or not, or none. */
function destination(world: World, person: Person, { to, apt }: Step): Entity | null {
  const all = world.of('organizations');
  const likely = all.filter((one) => !one.deleted && world.reachesEntity(person, one));
  return pick(apt && likely.length > 0 ? likely : [null, ...all], to) ?? null;
}

/** Each verb says what it will ask for, and what the model expects; undefined when there is nothing to do it to. */
const verbs = {
  create(world: World, person: Person, step: Step): Plan {
    const { kind, what } = step;
    const place = destination(world, person, step);
    const role = world.roleOf(person);
    const { accountId } = world;
    const bodies = {
      organizations: { accountId, name: 'made', parentId: place?.id ?? null },
      devices: { accountId, serialNumber: 'made', organizationId: place?.id ?? null },
      'end-users': { accountId, organizationId: place?.id ?? 'none' },
    };
    const body: object = bodies[kind];
    let refusals: string[];
    if (role === 'newcomer' || (kind === 'devices' && role !== 'admin')) refusals = ['403/21'];
    else if (kind === 'devices') refusals = those([place?.deleted === true, '400/102']);
    else if (kind === 'organizations')
      refusals = those(...placeRefusals(world, person, place), [pathOf(place).length >= 5, '400/105']);
    else {
      const { userId } = pick(world.people.slice(1), what) ?? {};
      // Somebody new is invited, or one of the people becomes one more end-user.
      Object.assign(body, what % 2 ? { userId } : { createIdmUser: true, idmUserEmail: newEmail() });
      const visible = world.of('end-users').some((one) => {
        return one.userId === userId && !one.deleted && world.reaches(person, one.place);
      });
      const unseen = what % 2 === 1 && role !== 'admin' && !visible;
      refusals = those(
        [place === null || place.deleted || !world.reaches(person, place), '400/102'],
        [unseen, '400/102'],
      );
    }
    return {
      says: `creates ${wrappers[kind]} in ${nameOf(place)}`,
      method: 'POST',
      path: `/${kind}`,
      body,
      refusals,
      done: (made) => void add(world, kind, made, place),
    };
  },

  /** POST /organizations with endUserTemplateId: the first step of a newcomer. */
  found(world: World, person: Person, step: Step): Plan {
    const role = world.roleOf(person);
    const place = role === 'newcomer' && step.apt ? null : destination(world, person, step);
    const { accountId, endUserTemplateId } = world;
    const refused = {
      admin: () => ['400/110'],
      newcomer: () => those([place !== null || person.firstSteps >= 3, '403/21']),
      endUser: () => those(...placeRefusals(world, person, place), [pathOf(place).length >= 5, '400/105']),
    };
    return {
      says: `founds an organization in ${nameOf(place)}`,
      method: 'POST',
      path: '/organizations',
      body: { accountId, endUserTemplateId, name: 'founded', parentId: place?.id ?? null },
      refusals: refused[role](),
      done(made) {
        if (role === 'newcomer') person.firstSteps += 1;
        const organization = add(world, 'organizations', made, place);
        deepStrictEqual(made.defaultEndUser.userId, person.userId);
        add(world, 'end-users', made.defaultEndUser, organization);
      },
    };
  },

  change(world: World, person: Person, step: Step): Plan | undefined {
    const entity = target(world, person, step);
    if (!entity) return undefined;
    const bodies = {
      organizations: { name: `renamed ${step.to}` },
      devices: { serialNumber: `renumbered ${step.to}` },
      'end-users': { organizationId: entity.place?.id, city: `moved within ${step.to}` },
    };
    const lost = entity.kind === 'end-users' && entity.place?.deleted === true;
    return {
      says: `changes ${entity.name}`,
      method: 'PUT',
      path: `/${entity.kind}/${entity.id}`,
      body: bodies[entity.kind],
      ...versionOf(entity, step),
      refusals: refusalsOn(world, person, entity, true, [
        [entity.deleted, '410/107'],
        [step.stale, '412/108'],
        [lost, '400/102'],
      ]),
      done: (changed) => modified(entity, changed),
    };
  },

  move(world: World, person: Person, step: Step): Plan | undefined {
    const entity = target(world, person, step);
    if (!entity) return undefined;
    const { kind } = entity;
    const drawn = destination(world, person, step);
    // An end-user always stands somewhere.
    const to = kind === 'end-users' ? (drawn ?? entity.place) : drawn;
    const stays = to === entity.place;
    const organization = kind === 'organizations';
    const attached = organization && world.roleOf(person) === 'endUser' && world.rootsOf(person).includes(entity);
    // The right to change a device is enough to remove it.
    const isRemoved = kind === 'devices' && to === null;
    const moves: Array<[boolean, string]> = [
      ...(isRemoved ? [] : placeRefusals(world, person, to)),
      [attached, '403/21'],
      [organization && pathOf(to).includes(entity), '400/106'],
      [organization && pathOf(to).length + 1 + world.heightOf(entity) > 5, '400/105'],
    ];
    return {
      says: `moves ${entity.name} from ${nameOf(entity.place)} to ${nameOf(to)}`,
      method: 'PUT',
      path: `/${kind}/${entity.id}`,
      body: organization ? { parentId: to?.id ?? null } : { organizationId: to?.id ?? null },
      ...versionOf(entity, step),
      refusals: refusalsOn(world, person, entity, true, [
        [entity.deleted, '410/107'],
        [step.stale, '412/108'],
        // It may stay where it is; an end-user's place is looked at in any case.
        ...(stays && kind !== 'end-users' ? [] : moves),
      ]),
      done(changed) {
        entity.place = to;
        modified(entity, changed);
      },
    };
  },

  remove(world: World, person: Person, step: Step): Plan | undefined {
    const entity = target(world, person, step);
    if (!entity) return undefined;
    const { kind } = entity;
    const role = world.roleOf(person);
    const organization = kind === 'organizations' && !entity.deleted;
    return {
      says: `deletes ${entity.name}`,
      method: 'DELETE',
      path: `/${kind}/${entity.id}`,
      ...versionOf(entity, step),
      refusals: refusalsOn(world, person, entity, kind !== 'devices' || role === 'admin', [
        [entity.deleted, '410/107'],
        [step.stale, '412/108'],
        [organization && role === 'endUser' && world.rootsOf(person).includes(entity), '403/21'],
        [organization && kinds.some((inside) => world.within(entity, inside).length > 0), '400/104'],
      ]),
      done({ version }) {
        deepStrictEqual(version, entity.version, `deleting ${entity.name} keeps its version`);
        entity.deleted = true;
      },
    };
  },

  recover(world: World, person: Person, step: Step): Plan | undefined {
    const entity = target(world, person, step);
    if (!entity) return undefined;
    const { kind, place } = entity;
    const may = kind !== 'devices' || world.roleOf(person) === 'admin';
    const inTrash: Array<[boolean, string]> = [
      [step.stale, '412/108'],
      [place?.deleted === true, '400/102'],
      [kind === 'organizations' && pathOf(place).length >= 5, '400/105'],
    ];
    return {
      says: `recovers ${entity.name}`,
      method: 'POST',
      path: `/trash/${kind}/${entity.id}/recover`,
      ...versionOf(entity, step),
      refusals: refusalsOn(world, person, entity, may, entity.deleted ? inTrash : [[true, '404/100']]),
      done(recovered) {
        entity.deleted = false;
        modified(entity, recovered);
      },
    };
  },

  read(world: World, person: Person, step: Step): Plan | undefined {
    const entity = target(world, person, step);
    if (!entity) return undefined;
    return {
      says: `reads ${entity.name}`,
      method: 'GET',
      path: `/${entity.kind}/${entity.id}`,
      refusals: refusalsOn(world, person, entity, true, [[entity.deleted, '410/107']]),
      done: ({ version }) => deepStrictEqual(version, entity.version),
    };
  },
};

let emails = 0;
function newEmail(): string {
  emails += 1;
  return `somebody${emails}@example.com`;
}

/** The version that a step sends: the latest one, or one that the entity has not. */
function versionOf({ version }: Entity, { stale, to }: Step): { etag: string } {
  return { etag: stale ? `${version}${to % 9}` : version };
}

/** Takes one step in the service and in the model. @throws AssertionError when they differ. */
async function take(world: World, step: Step): Promise<void> {
  const person = pick(world.people, step.who);
  const plan = person && verbs[step.verb](world, person, step);
  if (!person || !plan) return;
  const { method, path, body, etag, refusals } = plan;
  const answer = await service.http(method, `/api/v1${path}`, {
    token: person.token,
    ...(body && { body }),
    headers: etag === undefined ? {} : { etag },
  });
  const came = answer.status === 200 ? 'done' : `${answer.status}/${answer.body?.error?.code}`;
  world.story.push(`${person.name} ${plan.says}${step.stale && etag ? ' with a stale version' : ''}: ${came}`);
  const expected = refusals.length > 0 ? refusals : ['done'];
  ok(expected.includes(came), `expected ${expected.join(' or ')}: ${answer.text}`);
  if (answer.status === 200) plan.done(wrapped<Shown>(answer.body));
}

/** Every page of a list. */
async function listAll(world: World, { token }: Person, kind: Kind, prefix: string, query: string) {
  const all: Listed[] = [];
  for (let page = 1; ; page += 1) {
    const path = `/api/v1${prefix}/${kind}?accountId=${world.accountId}&pageSize=7&page=${page}${query}`;
    const { results, meta } = (await service.ok('GET', path, { token }))[pluralOf[kind]];
    all.push(...results);
    if (all.length >= meta.count) {
      deepStrictEqual(all.length, meta.count, `the total of ${prefix}/${kind}`);
      return all;
    }
    deepStrictEqual(results.length, 7, 'a page before the last one is full');
  }
}

const byId = <T extends { id: string }>(list: T[]) => [...list].sort((a, b) => (a.id < b.id ? -1 : 1));
const counts = '&count=devices,end-users,children';

/** That every person's lists, live and trash, hold what the model says, with totals, counts, places and versions. */
async function compareLists(world: World, person: Person): Promise<void> {
  const role = world.roleOf(person);
  for (const kind of kinds)
    for (const prefix of ['', '/trash']) {
      const what = `${person.name} lists ${prefix}/${kind}`;
      if (role === 'newcomer' || (role === 'endUser' && prefix === '/trash' && kind === 'devices')) {
        const path = `/api/v1${prefix}/${kind}?accountId=${world.accountId}`;
        const answer = await service.http('GET', path, { token: person.token });
        deepStrictEqual([answer.status, answer.body.error?.code], [403, 21], what);
        continue;
      }
      const counted = kind === 'organizations' && prefix === '';
      const listed = await listAll(world, person, kind, prefix, counted ? counts : '');
      const shown = listed.map(({ id, version, deleted, ...one }) => ({
        id,
        version,
        deleted: deleted !== undefined,
        place: (kind === 'organizations' ? one.parentId : one.organizationId) ?? null,
        ...(counted && { counts: [one.deviceCount, one.endUserCount, one.childCount] }),
      }));
      const expected = world
        .of(kind)
        .filter((one) => one.deleted === (prefix !== '') && world.reachesEntity(person, one))
        .map((one) => ({
          id: one.id,
          version: one.version,
          deleted: one.deleted,
          place: one.place?.id ?? null,
          ...(counted && {
            counts: (['devices', 'end-users', 'organizations'] as const).map((of) => world.within(one, of).length),
          }),
        }));
      deepStrictEqual(byId(shown), byId(expected), what);
    }
}

/** That what the service itself says is a forest, five deep at most, with all that is live in live organizations. */
async function checkForest(world: World): Promise<void> {
  const [admin] = world.people;
  if (!admin) return;
  const parents = new Map<string, string | null | undefined>();
  for (const { id, parentId } of await listAll(world, admin, 'organizations', '', '')) parents.set(id, parentId);
  for (const start of parents.keys()) {
    let depth = 0;
    for (let id: string | null = start; id !== null; depth += 1) {
      ok(depth < 5, `${start} is deeper than 5, or in a cycle`);
      const parent = parents.get(id);
      ok(parent !== undefined, `${id} is above ${start} and not live`);
      id = parent;
    }
  }
  for (const kind of ['devices', 'end-users'] as const)
    for (const { id, organizationId } of await listAll(world, admin, kind, '', ''))
      ok(organizationId === null || parents.has(organizationId ?? ''), `${id} is in an organization that is not live`);
}

const email = 'admin@example.com';
const password = 'a password to share';

/** A new account with its admin. */
async function newWorld(): Promise<World> {
  const { accountId, admin: token } = await service.account(email, password);
  const templates = await service.ok('GET', `/api/v1/end-users/templates?accountId=${accountId}`, { token });
  const world = new World(accountId, templates.endUserTemplates.results[0].id);
  world.people.push({ name: 'the admin', token, firstSteps: 0 });
  return world;
}

/** Grows a tree, each organization as many levels above the last one as `ups` says, and puts people in it. */
async function settle(world: World, ups: number[], homes: number[]): Promise<void> {
  const { accountId } = world;
  let last: Entity | null = null;
  for (const up of ups) {
    const place: Entity | null = pathOf(last)[up] ?? null;
    const to = place === null ? 0 : 1 + world.of('organizations').indexOf(place);
    await take(world, { verb: 'create', who: 0, kind: 'organizations', what: 0, to, apt: false, stale: false });
    last = world.of('organizations').at(-1) ?? null;
  }
  for (const home of homes) {
    const place = pick(world.of('organizations'), home) ?? null;
    const idmUserEmail = newEmail();
    const body = { organizationId: place?.id, createIdmUser: true, idmUserEmail, idmUserPassword: password, accountId };
    const { endUser } = await service.ok('POST', '/api/v1/end-users', { token: world.people[0]?.token ?? '', body });
    const person = add(world, 'end-users', endUser, place);
    const { jwt } = await service.loginAs(idmUserEmail, password, accountId);
    const name = `person ${world.people.length} (${person.name}, ${nameOf(place)})`;
    world.people.push({ name, token: jwt, userId: endUser.userId, firstSteps: 0 });
  }
}

const chosen = fc.nat({ max: 5039 });
const steps = fc.array(
  fc.record<Step>(
    {
      verb: fc.oneof(
        { weight: 5, arbitrary: fc.constant<Step['verb']>('create') },
        { weight: 1, arbitrary: fc.constant<Step['verb']>('found') },
        { weight: 2, arbitrary: fc.constant<Step['verb']>('change') },
        { weight: 5, arbitrary: fc.constant<Step['verb']>('move') },
        { weight: 5, arbitrary: fc.constant<Step['verb']>('remove') },
        { weight: 3, arbitrary: fc.constant<Step['verb']>('recover') },
        { weight: 2, arbitrary: fc.constant<Step['verb']>('read') },
      ),
      who: fc.nat({ max: 5 }).map((n) => Math.max(0, n - 2)),
      kind: fc.constantFrom(...kinds),
      what: chosen,
      to: chosen,
      apt: fc.nat({ max: 4 }).map((n) => n > 0),
      stale: fc.nat({ max: 9 }).map((n) => n === 9),
    },
    { noNullPrototype: true },
  ),
  { minLength: 1, maxLength: 220, size: 'max' },
);
const tree = fc.array(
  fc.nat({ max: 5 }).map((n) => Math.max(0, n - 2)),
  { minLength: 3, maxLength: 10 },
);
const homes = fc.tuple(chosen, chosen, chosen);

t.test('whatever an account goes through, each sees and does what the rules say, and no version returns', async (t) => {
  let lived = 0;
  const deadline = performance.now() + patience * 1000;
  const life = fc.asyncProperty(tree, homes, steps, async (ups, homes, steps) => {
    // On a busy machine fewer lives are lived; fast-check itself would let one that has begun go on next to the next test.
    if (performance.now() > deadline) return;
    const world = await newWorld();
    try {
      await settle(world, ups, homes);
      for (const step of steps) await take(world, step);
      for (const person of world.people) await compareLists(world, person);
      await checkForest(world);
      lived += 1;
    } catch (error) {
      throw new Error(`${(error as Error).message}\n${world.story.join('\n')}`);
    }
  });
  await fc.assert(life, { numRuns: 8 });
  t.ok(lived > 0, `${lived} lives`);
});

t.end();
