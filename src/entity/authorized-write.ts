/**
 * Writing as a caller. What a caller may do is decided before a transaction, from memory; between that and its turn the
 * caller may be logged out, deleted or moved, and the entity too. So it is looked at again inside, in the file itself.
 */
import type { Registry, Tx } from '../../db/registry/index.js';
import type { EntityTable } from '../../db/registry/records.js';
import { rowsOf } from '../../db/registry/statement.js';
import type { Access } from '../access.js';
import { type Caller, isApplication } from '../access.js';
import { PlatformError, unknownReference } from '../errors.js';
import type { Sessions } from '../identity/sessions/sessions.js';
import { find, findLive, placeOf } from './verbs.js';

/**
 * Runs `work` in one transaction, durable when the promise resolves, if the caller still stands as it did; `entity` is
 * what is written to, when it is there already.
 * @throws PlatformError 401/31 after a logout, 403/21 without the role, 404/100 for an entity out of reach now.
 */
export function writeAs<R>(
  { registry }: { registry: Pick<Registry, 'transaction'> },
  caller: Caller,
  entity: [table: EntityTable, id: string] | undefined,
  work: (tx: Tx) => Promise<R>,
): Promise<R> {
  return registry.transaction(async (tx) => {
    await demandStanding(tx, caller);
    if (entity && caller.kind === 'endUser') {
      const row = await find(tx, ...entity);
      if (!row || !(await reaches(tx, caller, placeOf(entity[0], row)))) throw new PlatformError('notFound');
    }
    return work(tx);
  });
}

/**
 * That the caller may put something into an organization; null is outside of every one.
 * @throws PlatformError 400/102 naming `path` when it is out of the caller's reach now.
 */
export async function demandInto(tx: Tx, caller: Caller, path: string, organizationId: string | null): Promise<void> {
  if (caller.kind === 'endUser' && !(await reaches(tx, caller, organizationId))) throw unknownReference(path);
}

const asAdmin = 'SELECT 1 FROM "accountUsers" WHERE "userId" = ? AND "deleted" IS NULL LIMIT 1';

async function demandStanding(tx: Tx, caller: Caller): Promise<void> {
  if (caller.kind === 'device') return;
  if (caller.sessionId !== undefined) {
    const open = await rowsOf(tx, 'SELECT 1 FROM "sessions" WHERE "id" = ? AND "ended" IS NULL', [caller.sessionId]);
    if (open.length === 0) throw new PlatformError('tokenInvalid');
  }
  if (isApplication(caller)) {
    const application = await findLive(tx, 'applications', caller.accountId, caller.id);
    if (application?.kind !== caller.kind) throw new PlatformError('forbidden');
    return;
  }
  const role = caller.kind === 'admin' ? await rowsOf(tx, asAdmin, [caller.id]) : await organizationsOf(tx, caller.id);
  // The rights of an identity without an end-user end when it has one.
  if ((role.length === 0) !== (caller.kind === 'newcomer')) throw new PlatformError('forbidden');
}

/** The organizations of the live end-users of an identity, or of the end-user without a person that has this id. */
async function organizationsOf(tx: Tx, id: string): Promise<string[]> {
  const live = tx.selectFrom('endUsers').select('organizationId').where('deleted', 'is', null);
  const ofIdentity = await live.where('userId', '=', id).execute();
  const found =
    ofIdentity.length > 0 ? ofIdentity : await live.where('id', '=', id).where('userId', 'is', null).execute();
  return found.map(({ organizationId }) => organizationId);
}

/** Whether a live organization is one of the end-user's or below one, as the transaction sees it. */
async function reaches(tx: Tx, caller: Caller, organizationId: string | null): Promise<boolean> {
  const roots = await organizationsOf(tx, caller.id);
  for (let id = organizationId; id !== null; ) {
    const row: { parentId: string | null } | undefined = await tx
      .selectFrom('organizations')
      .select('parentId')
      .where('id', '=', id)
      .where('deleted', 'is', null)
      .executeTakeFirst();
    if (!row) return false;
    if (roots.includes(id)) return true;
    id = row.parentId;
  }
  return false;
}

/** As what somebody may act now who has begun to read or to listen; undefined after a logout, and when it is gone. */
export function currentCaller(
  { access, sessions }: { access: Access; sessions: Sessions },
  { id, sessionId }: Caller,
): Caller | undefined {
  if (sessionId !== undefined && !sessions.isOpen(sessionId)) return undefined;
  return access.callerOf(id) ?? access.callerOfApplication(id);
}
