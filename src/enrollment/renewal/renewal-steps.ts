/** The steps of a renewal within its transaction: what is in force, and what ends. */
import type { Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { PlatformError } from '../../core/errors.ts';
import { hashOfNothing } from '../../identity/secrets/secrets.ts';
import type { CredentialInForce } from '../../ports/proofs.ts';
import { noPrevious } from '../../registry/credentials/overlaps.ts';

/** Certificates that have ended; the connections that they have let in end after the commit. */
export interface Ended {
  certificateIds: string[];
}
export const nothingEnded: Ended = { certificateIds: [] };

/** @throws PlatformError 401/30 when the credential has ended since it was proven. */
export async function demandInForce(tx: Tx, deviceId: string, present: CredentialInForce, now: string): Promise<void> {
  if ('generation' in present) {
    const credential = await credentialOf(tx, deviceId);
    const { generation, previousGeneration, previousUntil } = credential ?? {};
    const isPrevious = previousGeneration === present.generation && (previousUntil ?? '') > now;
    if (generation !== present.generation && !isPrevious) throw new PlatformError('badCredentials');
    return;
  }
  for (const table of ['certificates', 'certificateAuthorities'] as const) {
    const live = tx.selectFrom(table).select('id').where('id', '=', present.certificateId).where('deleted', 'is', null);
    if (await live.executeTakeFirst()) return;
  }
  throw new PlatformError('badCredentials');
}

/**
 * Where the present secret is the previous one already, the newest one was lost: it ends, and the present one stays. False
 * where that is not so.
 */
export async function replaceNewest(
  tx: Tx,
  caller: Caller,
  present: CredentialInForce,
  secretHash: string,
  now: string,
  previousUntil: string,
): Promise<boolean> {
  if (!('generation' in present)) return false;
  const { numUpdatedRows } = await tx
    .updateTable('credentials')
    .set((eb) => ({
      ...{ secretHash, previousUntil, lastModified: now, lastModifiedById: caller.id },
      generation: eb('generation', '+', 1),
      version: eb('version', '+', 1),
    }))
    .where('entityId', '=', caller.id)
    .where('previousGeneration', '=', present.generation)
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

/** Ends the credential that another one has replaced. */
export async function endFormer(tx: Tx, row: Row<'renewals'>, now: string): Promise<Ended> {
  const { formerGeneration, formerCertificateId } = row;
  await forget(tx, row);
  if (formerGeneration !== null) await endSecret(tx, row, formerGeneration, now);
  return endCertificate(tx, formerCertificateId, now);
}

/** Ends the credential that a device has got, and never used. */
export async function endNew(tx: Tx, row: Row<'renewals'>, now: string): Promise<Ended> {
  const { generation, certificateId } = row;
  await forget(tx, row);
  if (generation !== null) await endSecret(tx, row, generation, now);
  return endCertificate(tx, certificateId, now);
}

async function forget(tx: Tx, { deviceId }: Row<'renewals'>): Promise<void> {
  await tx.deleteFrom('renewals').where('deviceId', '=', deviceId).execute();
}

async function endCertificate(tx: Tx, id: string | null, now: string): Promise<Ended> {
  if (id === null) return nothingEnded;
  // The certificate of a registered CA has no row: its CA ends it.
  const live = tx.updateTable('certificates').set({ deleted: now }).where('id', '=', id).where('deleted', 'is', null);
  const { numUpdatedRows } = await live.executeTakeFirst();
  return { certificateIds: numUpdatedRows > 0n ? [id] : [] };
}

/** A secret that has ended has the hash of one that nobody knows: the generations go on, which connections bear. */
async function endSecret(tx: Tx, row: Row<'renewals'>, ending: number, now: string): Promise<void> {
  const { deviceId } = row;
  const credential = await credentialOf(tx, deviceId);
  if (credential?.previousGeneration === ending)
    await tx.updateTable('credentials').set(noPrevious).where('entityId', '=', deviceId).execute();
  if (credential?.generation !== ending) return;
  await tx
    .updateTable('credentials')
    .set((eb) => ({ secretHash: hashOfNothing(), lastModified: now, generation: eb('generation', '+', 1) }))
    .where('entityId', '=', deviceId)
    .execute();
}

function credentialOf(tx: Tx, deviceId: string): Promise<Row<'credentials'> | undefined> {
  return tx.selectFrom('credentials').selectAll().where('entityId', '=', deviceId).executeTakeFirst();
}
