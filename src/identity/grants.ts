/**
 * What becomes of a password when its identity gets more rights (docs/identity.md). Somebody else may have chosen it: who
 * registered the address first, or an admin. They must not get the rights that are meant for the owner of the address.
 */

import type { Db, Tx } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import type { RevokedCounts } from '../http/revoked-counts.ts';
import type { Audit } from '../operations/audit/index.ts';
import type { Revocations } from '../ports/revocations.ts';
import type { Sessions } from './sessions/sessions.ts';

/** The times for which former secrets stay valid; told when a secret has no such time any more. */
export interface SecretOverlaps {
  changed(entityId: string, until: null): void;
}

/**
 * Who chose a password. `owner`: somebody with a token that was mailed to the address. `operator`: the operator of the machine,
 * at the first start or on the command line. `admin`: somebody with all rights of an admin of the account. `other`: anybody else, such as who registered the address or made the end-user.
 */
export type PasswordChooser = 'owner' | 'operator' | 'admin' | 'other';

/** What an identity gets: an account user, one more end-user, a role with more rights, or a person proven by a provider. */
export type Grant = 'accountUser' | 'endUser' | 'role' | 'provider';

/** The grants that leave a password as it is. */
const keptAt: Record<PasswordChooser, readonly Grant[]> = {
  owner: ['accountUser', 'endUser', 'role', 'provider'],
  // The operator reads and writes everything anyway, and must not lose the way in.
  operator: ['accountUser', 'endUser', 'role', 'provider'],
  // Who has all rights of an admin has every right over the end-users of the account anyway.
  admin: ['endUser', 'role'],
  other: [],
};

/** Whose passwords a grant leaves as they are. */
export function choosersKeptAt(grant: Grant): PasswordChooser[] {
  return (Object.keys(keptAt) as PasswordChooser[]).filter((chooser) => keptAt[chooser].includes(grant));
}

/** Sessions and secrets of an invalidated password, to be ended after the commit. */
export interface Ended {
  sessionIds: readonly string[];
  /** End-users of the identity whose broker secrets are gone. */
  entityIds: readonly string[];
}

const nothing: Ended = { sessionIds: [], entityIds: [] };

/**
 * Before a grant, in its transaction: voids a password that the owner of the address has not chosen, with what it opened.
 * Of `other` also what was set up with it: second factors, and secrets of end-users. @returns what has to be ended.
 */
export async function checkPassword(
  tx: Tx,
  { sessions, audit }: { sessions: Sessions; audit: Audit },
  { id, accountId, passwordHash, passwordChosenBy }: Row<'identities'>,
  grant: Grant,
): Promise<Ended> {
  if (passwordHash === null) return nothing;
  const chooser = (passwordChosenBy ?? 'other') as PasswordChooser;
  if (keptAt[chooser].includes(grant)) return nothing;
  await tx.updateTable('identities').set({ passwordHash: null, passwordChosenBy: null }).where('id', '=', id).execute();
  const factors = chooser === 'other' ? (['mfaMethods', 'recoveryCodes'] as const) : [];
  for (const table of ['mailedTokens', 'mfaLogins', ...factors] as const)
    await tx.deleteFrom(table).where('userId', '=', id).execute();
  await audit.record(tx, {
    event: 'passwordVoided',
    outcome: 'success',
    accountId,
    target: { kind: 'identity', id },
    details: { chosenBy: chooser, grant },
  });
  const sessionIds = await sessions.endAll(tx, id);
  return { sessionIds, entityIds: chooser === 'other' ? await deleteSecrets(tx, id) : [] };
}

/** The broker secrets of an identity's end-users, which were made with its password. */
async function deleteSecrets(tx: Tx, userId: string): Promise<string[]> {
  const endUsers = tx.selectFrom('endUsers').select('id').where('userId', '=', userId);
  const gone = await tx.deleteFrom('credentials').where('entityId', 'in', endUsers).returning('entityId').execute();
  return gone.map(({ entityId }) => entityId);
}

/** After the commit: ends the connections that a void password had opened. `caller` is told how many. */
export function endVoided(
  { overlaps, revocations, revoked }: { revocations: Revocations; overlaps: SecretOverlaps; revoked: RevokedCounts },
  caller: Caller,
  { sessionIds, entityIds }: Ended,
): void {
  for (const id of sessionIds) revoked.noteRevoked(caller, revocations.loginEnded(id));
  for (const id of entityIds) {
    overlaps.changed(id, null);
    revoked.noteRevoked(caller, revocations.secretReplaced(id));
  }
}

/** An identity as the transaction sees it. */
export async function readIdentity(db: Db, userId: string): Promise<Row<'identities'> | undefined> {
  return db.selectFrom('identities').selectAll().where('id', '=', userId).executeTakeFirst();
}
