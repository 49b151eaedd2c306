/**
 * Nobody gives a right that it does not have. Whatever hands rights on asks here, in its transaction: roles and who has them,
 * programs, secrets, providers.
 */
import type { Tx } from '../../db/registry/index.ts';
import { type Caller, isAccountWide, isSelf } from '../core/caller.ts';
import { PlatformError, unknownReference } from '../core/errors.ts';
import {
  type Action,
  builtInRoles,
  defaultRoles,
  type Rights,
  type Role,
  type RoleScope,
  roleFrom,
} from '../core/rights.ts';
import { demandStanding, livePath, personNow } from './standing.ts';
import { findLive } from './verbs.ts';

/** Whether a role of the whole account gives everything. */
export function isFullAdmin(caller: Caller): boolean {
  return isAccountWide(caller) && missingIn(defaultRoles.account.rights, [caller.role.rights]) === undefined;
}

/** The first right that none of `held` has, in words. */
export function missingIn(wanted: Rights, held: readonly Rights[]): string | undefined {
  for (const [kind, actions] of Object.entries(wanted) as Array<[keyof Rights, readonly Action[]]>)
    for (const action of actions)
      if (!held.some((rights) => rights[kind]?.includes(action))) return `${action} of ${kind}`;
  return undefined;
}

/**
 * That the caller has all of `rights`: in the account, or an end-user in this organization.
 * @throws PlatformError 403/21 naming the first that it lacks.
 */
export async function demandHas(
  tx: Tx,
  caller: Caller,
  rights: Rights,
  organizationId: string | null = null,
): Promise<void> {
  const now = await demandStanding(tx, caller);
  let held: Rights[] = [];
  if (isAccountWide(now)) held = [now.role.rights];
  else if (now.kind === 'endUser') {
    const path = await livePath(tx, organizationId);
    const counts = now.within === undefined || path.includes(now.within);
    held = now.memberships.filter((one) => counts && path.includes(one.organizationId)).map(({ role }) => role.rights);
  }
  const missing = missingIn(rights, held);
  if (missing !== undefined)
    throw new PlatformError('forbidden', { message: `You cannot give a permission that you do not have: ${missing}.` });
}

/** That the caller has all rights of another person, whose login it is about to get or to change. @throws as demandHas. */
export async function demandRightsOf(tx: Tx, caller: Caller, userId: string): Promise<void> {
  if (isSelf(caller, userId)) return;
  const person = await personNow(tx, userId);
  if (person.admin) await demandHas(tx, caller, person.admin.rights);
  for (const { organizationId, role } of person.memberships) await demandHas(tx, caller, role.rights, organizationId);
}

/** A role of the account, or a built-in one. @throws PlatformError 400/102 for one of another scope, or none. */
export async function demandRole(tx: Tx, accountId: string, scope: RoleScope, roleId: string): Promise<Role> {
  const builtIn = builtInRoles.get(roleId);
  const own = builtIn ? undefined : await findLive(tx, 'roles', accountId, roleId);
  const role = builtIn ?? (own && roleFrom(own.id, own.scope as RoleScope, own));
  if (role?.scope !== scope) throw unknownReference('roleId');
  return role;
}

/**
 * The role that somebody gets, as it is stored: null is the default one.
 * @throws PlatformError 400/102 as demandRole; 403/21 when the caller lacks a right of it there.
 */
export async function giveRole(
  tx: Tx,
  caller: Caller,
  scope: RoleScope,
  roleId: string | null | undefined,
  organizationId: string | null = null,
): Promise<string | null> {
  const standard = defaultRoles[scope];
  const role = roleId ? await demandRole(tx, caller.accountId, scope, roleId) : standard;
  await demandHas(tx, caller, role.rights, organizationId);
  return role === standard ? null : role.id;
}

/** Whether a role gives something that another one does not; null is the default one. */
export async function isMore(
  tx: Tx,
  accountId: string,
  scope: RoleScope,
  after: string | null,
  before: string | null,
): Promise<boolean> {
  const rightsOf = async (id: string | null) =>
    (id === null ? defaultRoles[scope] : await demandRole(tx, accountId, scope, id)).rights;
  return missingIn(await rightsOf(after), [await rightsOf(before)]) !== undefined;
}

/** The id of a role on the wire. */
export function shownRoleId(roleId: string | null, scope: RoleScope): string {
  return roleId ?? defaultRoles[scope].id;
}
