/**
 * What a caller may do, as a transaction sees it. Rights are decided before a transaction, from memory. Between that and its
 * turn the caller may be logged out, deleted or given another role, and the entity may be moved.
 */
import type { Tx } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import { rowsOf } from '../../db/registry/statement.ts';
import {
  type Caller,
  endUserCaller,
  isApplication,
  type Membership,
  may,
  rootsOf,
  tokenCaller,
} from '../core/caller.ts';
import { PlatformError } from '../core/errors.ts';
import { builtInRoles, defaultRoles, type Role, type RoleScope, roleFrom } from '../core/rights.ts';

/** A role as a row names it, joined with `joinRole`. */
interface Named {
  roleId: string | null;
  name: string | null;
  description: string | null;
  rights: string | null;
}

/** `isDisabled` is 1 when a provider says that the person may do nothing. */
type OfPerson = Named & { isDisabled: 0 | 1 };
type EndUserRow = OfPerson & { organizationId: string };

const joinRole = (of: string) => `LEFT JOIN "roles" AS r ON r."id" = "${of}"."roleId" AND r."deleted" IS NULL`;
const roleColumns = (of: string) => `"${of}"."roleId", r."name", r."description", r."rights"`;

const applicationById = `SELECT "kind", ${roleColumns('applications')} FROM "applications" ${joinRole('applications')}
  WHERE "applications"."id" = ? AND "applications"."deleted" IS NULL`;
const isDisabled = (of: string) =>
  `EXISTS (SELECT 1 FROM "identities" AS i WHERE i."id" = "${of}"."userId" AND i."disabledById" IS NOT NULL) AS "isDisabled"`;
const adminOf = `SELECT ${isDisabled('accountUsers')}, ${roleColumns('accountUsers')}
  FROM "accountUsers" ${joinRole('accountUsers')}
  WHERE "accountUsers"."userId" = ? AND "accountUsers"."deleted" IS NULL LIMIT 1`;
const nobodyById =
  'SELECT 1 FROM "identities" WHERE "id" = ? AND ("disabledById" IS NOT NULL OR "identityProviderId" IS NOT NULL)';
const tokenById = 'SELECT "id", "rights", "organizationId" FROM "accessTokens" WHERE "id" = ?';
const endUsersBy = (
  column: 'userId' | 'id',
) => `SELECT "organizationId", ${isDisabled('endUsers')}, ${roleColumns('endUsers')}
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
  const { admin, memberships, isDisabled } = await personNow(tx, id);
  if (isDisabled) return undefined;
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
    const [admin] = await rowsOf<OfPerson>(tx, adminOf, [id]);
    return admin && !admin.isDisabled ? { ...caller, role: roleOf(admin, 'account') } : undefined;
  }
  const found = await endUserRows(tx, id);
  if (found.some(({ isDisabled }) => isDisabled)) return undefined;
  if (found.length > 0) return endUserCaller(id, accountId, found.map(membershipOf));
  return (await rowsOf(tx, nobodyById, [id])).length === 0 ? { kind: 'newcomer', id, accountId } : undefined;
}

/** What a person is now: somebody with a role in the account, or with memberships, or neither; and whether it may use that. */
export async function personNow(
  tx: Tx,
  userId: string,
): Promise<{ admin: Role | undefined; memberships: Membership[]; isDisabled: boolean }> {
  const [admin] = await rowsOf<OfPerson>(tx, adminOf, [userId]);
  const endUsers = await endUserRows(tx, userId);
  const isDisabled = [...(admin ? [admin] : []), ...endUsers].some((row) => row.isDisabled);
  return { admin: admin && roleOf(admin, 'account'), memberships: endUsers.map(membershipOf), isDisabled };
}

/** The live end-users of an identity, or the end-user without a person that has this id. */
async function endUserRows(tx: Tx, id: string): Promise<EndUserRow[]> {
  const own = await rowsOf<EndUserRow>(tx, endUsersOf, [id]);
  return own.length > 0 ? own : rowsOf<EndUserRow>(tx, endUserById, [id]);
}

function membershipOf(row: EndUserRow): Membership {
  return { organizationId: row.organizationId, role: roleOf(row, 'organization') };
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
