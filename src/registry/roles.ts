/** Roles: the built-in ones, and those that an account has made. */

import { type SqlBool, sql } from 'kysely';
import { type Static, Type } from 'typebox';
import type { Db, Tx } from '../../db/registry/index.ts';
import { keepersOf } from '../../db/registry/records/by-table.ts';
import { roleColumns } from '../../db/registry/records/identity.ts';
import type { Row } from '../../db/registry/records.ts';
import { type Caller, isAccountWide } from '../core/caller.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import { laneOf } from '../core/limits/lanes.ts';
import { demandWithin } from '../core/limits/table.ts';
import { builtInRoles, largestRights, type Rights, type Role, type RoleScope } from '../core/rights.ts';
import {
  changeProperties,
  commonShape,
  createProperties,
  listingOf,
  readChanges,
  readNew,
  showCommon,
  showing,
  shownProperties,
} from '../entity/columns.ts';
import { hasChildren } from '../entity/expand.ts';
import { demandHas, missingIn } from '../entity/giving.ts';
import { entityRoutes } from '../entity/kind.ts';
import { inWords } from '../entity/kind-verbs.ts';
import { demandPage, type Page } from '../entity/list.ts';
import { type ListQuery, listSchema } from '../entity/list-query.ts';
import { oneSlice } from '../entity/row-slices.ts';
import { change, demandLive, findLive, insert, inThread, recover, stamp, trash, writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import { checkPassword, choosersKeptAt, type Ended, endVoided } from '../identity/grants.ts';
import type { RegistryContext } from './context.ts';

const createBody = Type.Object({ accountId: Type.String(), ...createProperties(roleColumns) });
const updateBody = Type.Object(changeProperties(roleColumns));
const shape = Type.Object({
  ...commonShape,
  id: Type.String({ description: 'Of a built-in role `<scope>:<name>`.' }),
  ...shownProperties(roleColumns),
  builtIn: Type.Boolean({ description: 'Built-in roles cannot be changed.' }),
});

/** People whose passwords are voided in one transaction. */
const peopleAtOnce = 20;

const listing = { ...listingOf('roles', roleColumns), defaultSort: 'name' as const };
const listQuery = listSchema(listing, { builtIn: Type.Optional(Type.Boolean({ description: 'Equal to this.' })) });

const showColumns = showing(roleColumns);
const show = (row: Row<'roles'>) => ({ ...showCommon(row), ...showColumns(row), builtIn: builtInRoles.has(row.id) });

/** A built-in role as a row of every account. */
function builtInRow({ id, name, description, scope, rights }: Role, accountId: string): Row<'roles'> {
  const ever = new Date(0).toISOString();
  const made = { created: ever, createdById: '', lastModified: ever, lastModifiedById: '', version: 1, deleted: null };
  return { id, accountId, ...made, name, description, scope, rights: JSON.stringify(rights) };
}

export function roleRoutes(app: App, ctx: RegistryContext): void {
  entityRoutes(app, ctx, {
    path: '/roles',
    tag: 'Roles',
    entity: 'role',
    wrapper: 'role',
    plural: 'roles',
    shape,
    listing,
    prepare: () => show,
    find: (caller, id) => findVisible(ctx, caller, id),
    create: {
      body: createBody,
      description: 'You can give only rights that you have.',
      errors: ['notUnique'],
      run: (caller, body) => create(ctx, caller, body),
    },
    list: {
      description: 'Built-in roles too. Callers of an organization see the roles of organizations.',
      query: listQuery,
      page: (caller, query) => page(ctx, caller, query),
    },
    update: {
      body: updateBody,
      description: 'Everyone who has the role has its new rights before the answer.',
      errors: ['notUnique'],
      revokes: true,
      run: (caller, found, version, body) => update(ctx, caller, found, version, body),
    },
    remove: { errors: ['constraint'], run: (caller, found, version) => remove(ctx, caller, found, version) },
    trash: { errors: ['notUnique'], recover: (caller, found, version) => recoverOne(ctx, caller, found, version) },
  });
}

/** Whether a caller may see a role: who is of an organization sees those of organizations. */
function isVisible(caller: Caller, { scope }: Pick<Row<'roles'>, 'scope'>): boolean {
  return isAccountWide(caller) || (scope === 'organization' && caller.kind === 'endUser');
}

/** A role that is not only for callers of the whole account, or built in. */
function findVisible({ registry }: RegistryContext, caller: Caller, id: string): Row<'roles'> | undefined {
  const role = builtInRoles.get(id);
  const row = role ? builtInRow(role, caller.accountId) : registry.entity('roles', id);
  return row && row.deleted === null && row.accountId === caller.accountId && isVisible(caller, row) ? row : undefined;
}

/** Rows of the account are few (the limit `roles`), and the built-in ones are in no table: the page is made here. */
async function page({ registry }: RegistryContext, caller: Caller, query: ListQuery): Promise<Page<'roles'>> {
  const { page = 1, pageSize = 10, sortOrder = 'asc', meta = true, results = true, builtIn, name, scope } = query;
  const own = registry.query.selectFrom('roles').selectAll().where('accountId', '=', caller.accountId);
  const all = [
    ...[...builtInRoles.values()].map((role) => builtInRow(role, caller.accountId)),
    ...(await own.where('deleted', 'is', null).execute()),
  ];
  const sortBy = (query.sortBy ?? listing.defaultSort) as 'name' | 'created';
  const key = (row: Row<'roles'>) => `${row[sortBy]}\0${row.id}`;
  const matching = all
    .filter((row) => isVisible(caller, row))
    .filter((row) => builtIn === undefined || builtInRoles.has(row.id) === builtIn)
    .filter((row) => (name === undefined || row.name === name) && (scope === undefined || row.scope === scope))
    .sort((one, other) => (key(one) < key(other) ? -1 : 1) * (sortOrder === 'asc' ? 1 : -1));
  const count = matching.length;
  demandPage(page, pageSize, count);
  const rows = matching.slice((page - 1) * pageSize, page * pageSize);
  return {
    rows: results ? oneSlice(caller, rows) : undefined,
    meta: meta ? { count, page, pageSize, sortOrder } : undefined,
  };
}

/** @throws PlatformError 400/106 naming a kind of entity, or an action, that a role of this scope cannot have. */
function checkRights(scope: RoleScope, rights: Record<string, string[]>): Rights {
  for (const [kind, actions] of Object.entries(rights)) {
    const most = Object.hasOwn(largestRights[scope], kind) ? largestRights[scope][kind as keyof Rights] : undefined;
    if (!most) throw invalid(`rights.${kind}`, `cannot be in a role of the scope ${scope}`);
    const other = actions.find((action) => !(most as readonly string[]).includes(action));
    if (other !== undefined) throw invalid(`rights.${kind}`, `has at most ${most.join(', ')} in the scope ${scope}`);
    if (new Set(actions).size < actions.length) throw invalid(`rights.${kind}`, 'has an action twice');
  }
  return rights as Rights;
}

function recordChange(ctx: RegistryContext, tx: Tx, actor: Caller, row: Row<'roles'>, change: string) {
  const { id, accountId, name } = row;
  const target = { kind: 'role', id } as const;
  const details = { change, name };
  return ctx.audit.record(tx, { event: 'roleChanged', outcome: 'success', accountId, actor, target, details });
}

async function demandRoom(ctx: RegistryContext, tx: Tx, accountId: string): Promise<void> {
  const own = tx.selectFrom('roles').where('accountId', '=', accountId).where('deleted', 'is', null);
  const { count } = await own.select(sql<number>`count(*)`.as('count')).executeTakeFirstOrThrow();
  demandWithin(ctx.config.limits, 'roles', count, 'accountId');
}

async function create(ctx: RegistryContext, caller: Caller, body: Static<typeof createBody>) {
  const rights = checkRights(body.scope, body.rights);
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandHas(tx, caller, rights);
    const made = await insert(tx, 'roles', { ...stamp(ctx.clock, caller), ...readNew(roleColumns, body) });
    await demandRoom(ctx, tx, caller.accountId);
    await recordChange(ctx, tx, caller, made, 'created');
    return made;
  });
  return show(row);
}

/** @throws PlatformError 403/21: built-in roles stay as they are. */
function demandOwn({ id }: Row<'roles'>): void {
  if (builtInRoles.has(id)) throw new PlatformError('forbidden', { message: 'Built-in roles cannot be changed.' });
}

async function update(
  ctx: RegistryContext,
  caller: Caller,
  found: Row<'roles'>,
  version: number,
  body: Static<typeof updateBody>,
) {
  demandOwn(found);
  const before = demandLive(found);
  const rights = body.rights && checkRights(before.scope as RoleScope, body.rights);
  const isRaised = rights && missingIn(rights, [JSON.parse(before.rights) as Rights]) !== undefined;
  if (isRaised) await voidInSteps(ctx, caller, before, version, rights);
  const { row, ended } = await writeAs(inThread(ctx.registry), caller, undefined, async (tx) => {
    if (rights) await demandHas(tx, caller, rights);
    const by = { caller, clock: ctx.clock };
    const changed = await change(tx, 'roles', before.id, version, by, readChanges(roleColumns, body));
    await recordChange(ctx, tx, caller, changed, 'updated');
    // Of those who have come meanwhile.
    const people = isRaised ? await withForeignPassword(tx, before.id).execute() : [];
    return { row: changed, ended: await voidPasswords(ctx, tx, people) };
  });
  ctx.access.rolesChanged();
  for (const one of ended) endVoided(ctx, caller, one);
  if (row.rights !== before.rights) ctx.revoked.noteRevoked(caller, await ctx.revocations.roleChanged(row.accountId));
  return show(row);
}

/**
 * Before a role gets more rights: voids the passwords of its people that others have chosen, some at a time. A request that is
 * going to be refused voids none. @throws PlatformError 403/21.
 */
async function voidInSteps(ctx: RegistryContext, caller: Caller, role: Row<'roles'>, version: number, rights: Rights) {
  const people = await ctx.readers.read(laneOf(caller), withForeignPassword(ctx.registry.query, role.id).compile());
  for (let from = 0; from < people.length; from += peopleAtOnce) {
    const some = people.slice(from, from + peopleAtOnce).map(({ id }) => id);
    const ended = await writeAs(ctx, caller, undefined, async (tx) => {
      await demandHas(tx, caller, rights);
      const now = await findLive(tx, 'roles', role.accountId, role.id);
      if (now?.version !== version) return [];
      return voidPasswords(ctx, tx, await withForeignPassword(tx, role.id, some).execute());
    });
    for (const one of ended) endVoided(ctx, caller, one);
  }
}

/** A password that others have chosen must not open what a role gives now; its owner asks for another one. */
async function voidPasswords(ctx: RegistryContext, tx: Tx, people: ReadonlyArray<Row<'identities'>>): Promise<Ended[]> {
  const ended: Ended[] = [];
  for (const person of people) ended.push(await checkPassword(tx, ctx, person, 'role'));
  return ended;
}

/** Those who have a role and a password that others have chosen; `among` says who is asked about. */
function withForeignPassword(db: Db, roleId: string, among?: readonly string[]) {
  const holders = sql<string>`(select "userId" from "accountUsers" where "roleId" = ${roleId} and "deleted" is null
    union select "userId" from "endUsers" where "roleId" = ${roleId} and "deleted" is null)`;
  // A role may be that of a whole fleet's people, nearly all of whom have chosen their own.
  const chosen = sql<SqlBool>`coalesce("passwordChosenBy", 'other') not in (${sql.join(choosersKeptAt('role'))})`;
  const people = db.selectFrom('identities').selectAll().where('passwordHash', 'is not', null).where(chosen);
  if (!among) return people.where(sql<SqlBool>`"id" in ${holders}`);
  const isHolder = (table: string) => sql`exists (select 1 from ${sql.table(table)} as h
    where h."userId" = "identities"."id" and h."roleId" = ${roleId} and h."deleted" is null)`;
  return people.where('id', 'in', among).where(sql<SqlBool>`(${isHolder('accountUsers')} or ${isHolder('endUsers')})`);
}

async function remove(ctx: RegistryContext, caller: Caller, found: Row<'roles'>, version: number) {
  demandOwn(found);
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const trashed = await trash(tx, 'roles', found.id, version, ctx.clock);
    for (const { table, column } of keepersOf('roles'))
      if (await hasChildren(tx, table, column, found.id))
        throw new PlatformError('constraint', { message: `Live ${inWords(table)} have the role.` });
    if (await isMapped(tx, trashed))
      throw new PlatformError('constraint', { message: 'Groups are mapped to the role.' });
    await recordChange(ctx, tx, caller, trashed, 'deleted');
    return trashed;
  });
  ctx.access.rolesChanged();
  return show(row);
}

/** Whether a mapping of a live identity provider names the role. */
async function isMapped(tx: Tx, { id, accountId }: Row<'roles'>): Promise<boolean> {
  const providers = tx.selectFrom('identityProviders').select('id').where('accountId', '=', accountId);
  const named = sql<SqlBool>`exists (select 1 from json_each("mappings") where "value" ->> 'roleId' = ${id})`;
  return (await providers.where('deleted', 'is', null).where(named).limit(1).executeTakeFirst()) !== undefined;
}

async function recoverOne(ctx: RegistryContext, caller: Caller, { id }: Row<'roles'>, version: number) {
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const recovered = await recover(tx, 'roles', id, version, { caller, clock: ctx.clock });
    await demandRoom(ctx, tx, caller.accountId);
    await recordChange(ctx, tx, caller, recovered, 'recovered');
    return recovered;
  });
  ctx.access.rolesChanged();
  return show(row);
}
