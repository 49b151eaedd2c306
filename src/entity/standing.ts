/**
 * What a caller may do, as a transaction sees it. Rights are decided before a transaction, from memory. Between that and its
 * turn the caller may be logged out, deleted or given another role, and the entity may be moved.
 */
import type { Tx } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import { rowsOf } from '../../db/registry/statement.ts';
import { type Caller, endUserCaller, isApplication, type Membership, may, rootsOf, tokenCaller } from '../caller.ts';
import { PlatformError } from '../errors.ts';
import { builtInRoles, defaultRoles, type Role, type RoleScope, roleFrom } from '../rights.ts';

/** A role as a row names it, joined with `joinRole`. */
interface Named {
  roleId: string | null;
  name: string | null;
  description: string | null;
  rights: string | null;
}

const joinRole = (of: string) => `LEFT JOIN "roles" AS r ON r."id" = "${of}"."roleId" AND r."deleted" IS NULL`;
const roleColumns = (of: string) => `"${of}"."roleId", r."name", r."description", r."rights"`;

const applicationById = `SELECT "kind", ${roleColumns('applications')} FROM "applications" ${joinRole('applications')}
  WHERE "applications"."id" = ? AND "applications"."deleted" IS NULL`;
const adminOf = `SELECT ${roleColumns('accountUsers')} FROM "accountUsers" ${joinRole('accountUsers')}
  WHERE "accountUsers"."userId" = ? AND "accountUsers"."deleted" IS NULL LIMIT 1`;
const tokenById = 'SELECT "id", "rights", "organizationId" FROM "accessTokens" WHERE "id" = ?';
const endUsersBy = (column: 'userId' | 'id') => `SELECT "organizationId", ${roleColumns('endUsers')}
  FROM "endUsers" ${joinRole('endUsers')} WHERE "endUsers"."${column}" = ? AND "endUsers"."deleted" IS NULL`;
const endUsersOf = endUsersBy('userId');
const endUserById = `${endUsersBy('id')} AND "endUsers"."userId" IS NULL`;

function roleOf({ roleId, name, description, rights }: Named, scope: RoleScope): Role {
  if (roleId === null) return defaultRoles[scope];
  const stored = name === null || rights === null ? undefined : { name, description, rights };
  return builtInRoles.get(roleId) ?? roleFrom(roleId, scope, stored);
}

/**
 * The caller as it is now, with its rights of now.
 * @throws PlatformError 401/31 after a logout; 403/21 when it is not what it was, or has lost a right that it uses.
 */
export async function demandStanding(tx: Tx, caller: Caller): Promise<Caller> {
  if (caller.kind === 'device') return caller;
  if (caller.tokenId === undefined && caller.sessionId !== undefined) {
    const open = await rowsOf(tx, 'SELECT 1 FROM "sessions" WHERE "id" = ? AND "ended" IS NULL', [caller.sessionId]);
    if (open.length === 0) throw new PlatformError('tokenInvalid');
  }
  const now = await callerNow(tx, caller);
  if (now?.kind !== caller.kind) throw new PlatformError('forbidden');
  for (const right of caller.uses ?? []) if (!may(now, ...right)) throw new PlatformError('forbidden');
  return now;
}

/** A token as its owner is now. @throws PlatformError 401/31 when it is gone. */
async function tokenNow(tx: Tx, caller: Caller, tokenId: string): Promise<Caller | undefined> {
  type Found = Pick<Row<'accessTokens'>, 'id' | 'rights' | 'organizationId'>;
  const [token] = await rowsOf<Found>(tx, tokenById, [tokenId]);
  if (!token) throw new PlatformError('tokenInvalid');
  const { id, accountId } = caller;
  const { admin, memberships } = await personNow(tx, id);
  if (admin) return tokenCaller({ kind: 'admin', id, accountId, role: admin }, token);
  if (memberships.length > 0) return tokenCaller(endUserCaller(id, accountId, memberships), token);
  const [application] = await rowsOf<Named & { kind: string }>(tx, applicationById, [id]);
  if (application?.kind !== 'backEnd') return undefined;
  return tokenCaller({ kind: 'backEnd', id, accountId, role: roleOf(application, 'account') }, token);
}

async function callerNow(tx: Tx, caller: Caller): Promise<Caller | undefined> {
  const { id, accountId, tokenId } = caller;
  if (tokenId !== undefined) return tokenNow(tx, caller, tokenId);
  if (isApplication(caller)) {
    const [application] = await rowsOf<Named & { kind: string }>(tx, applicationById, [id]);
    if (application?.kind !== caller.kind) return undefined;
    return caller.kind === 'backEnd' ? { ...caller, role: roleOf(application, 'account') } : caller;
  }
  if (caller.kind === 'admin') {
    const role = await adminRole(tx, id);
    return role && { ...caller, role };
  }
  const found = await membershipsOf(tx, id);
  return found.length > 0 ? endUserCaller(id, accountId, found) : { kind: 'newcomer', id, accountId };
}

/** What a person is now: somebody with a role in the account, or with memberships, or neither. */
export async function personNow(
  tx: Tx,
  userId: string,
): Promise<{ admin: Role | undefined; memberships: Membership[] }> {
  return { admin: await adminRole(tx, userId), memberships: await membershipsOf(tx, userId) };
}

async function adminRole(tx: Tx, userId: string): Promise<Role | undefined> {
  const [admin] = await rowsOf<Named>(tx, adminOf, [userId]);
  return admin && roleOf(admin, 'account');
}

/** The live end-users of an identity, or the end-user without a person that has this id. */
async function membershipsOf(tx: Tx, id: string): Promise<Membership[]> {
  type Found = Named & { organizationId: string };
  const own = await rowsOf<Found>(tx, endUsersOf, [id]);
  const rows = own.length > 0 ? own : await rowsOf<Found>(tx, endUserById, [id]);
  return rows.map((row) => ({ organizationId: row.organizationId, role: roleOf(row, 'organization') }));
}

/** Whether a live organization is below one in which the caller has all the rights that it uses. */
export async function reachesNow(
  tx: Tx,
  caller: Caller,
  organizationId: string | null,
  standing?: Caller,
): Promise<boolean> {
  const now = standing ?? (await demandStanding(tx, caller));
  if (now.kind !== 'endUser') return true;
  const roots = (caller.uses ?? []).map(([action, kind]) => rootsOf(now, action, kind));
  const path = await livePath(tx, organizationId);
  if (now.within !== undefined && !path.includes(now.within)) return false;
  return roots.length > 0 && roots.every((some) => some.some((root) => path.includes(root)));
}

/** The live organization and its parents, upwards. */
export async function livePath(tx: Tx, organizationId: string | null): Promise<string[]> {
  const path: string[] = [];
  for (let id = organizationId; id !== null; ) {
    const row: { parentId: string | null } | undefined = await tx
      .selectFrom('organizations')
      .select('parentId')
      .where('id', '=', id)
      .where('deleted', 'is', null)
      .executeTakeFirst();
    if (!row) break;
    path.push(id);
    id = row.parentId;
  }
  return path;
}
