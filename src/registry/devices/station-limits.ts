/** Limits of a station: devices of its own template in its own organization, their number, its expiry. */

import { accountKey } from '../../../db/registry/account-key.ts';
import type { Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import { PlatformError, unknownReference } from '../../core/errors.ts';

/**
 * Takes `count` devices off what a station may still make, in the transaction that makes them; for any other caller nothing.
 * @throws PlatformError 403/21 when there are not so many left, or the station has expired or is deleted.
 */
export async function reserve(tx: Tx, caller: Caller, count: number, clock: Clock): Promise<void> {
  if (caller.kind !== 'station') return;
  const now = timestamp(clock);
  const { numUpdatedRows } = await tx
    .updateTable('applications')
    .set((eb) => ({ madeDevices: eb('madeDevices', '+', count) }))
    .where('id', '=', caller.id)
    .where('deleted', 'is', null)
    .where('expiresAt', '>', now)
    .where((eb) => eb(eb('madeDevices', '+', count), '<=', eb.ref('maxDevices')))
    .executeTakeFirst();
  if (numUpdatedRows > 0n) return;
  const station = await findStation(tx, caller);
  if (!station) throw new PlatformError('forbidden');
  if ((station.expiresAt ?? '') <= now) throw new PlatformError('forbidden', { message: 'The station has expired.' });
  throw tooMany(station.madeDevices, station.maxDevices, count);
}

/**
 * A station makes a serial number of its template once, no matter who has made it before: it sees too little to know. Others may
 * mean it. @throws PlatformError 400/106 naming serialNumber.
 */
export async function demandNew(
  tx: Tx,
  { kind, accountId }: Caller,
  { deviceTemplateId, serialNumber }: Pick<Row<'devices'>, 'deviceTemplateId' | 'serialNumber'>,
): Promise<void> {
  if (kind !== 'station') return;
  const same = tx.selectFrom('wholeDevices').select('deviceTemplateId').where('account', '=', accountKey(accountId));
  // The planner may take an index by template, under which there may be a million devices: asked this way it does not.
  const there = await same.where('serialNumber', '=', serialNumber).where('deleted', 'is', null).execute();
  if (!there.some((device) => device.deviceTemplateId === deviceTemplateId)) return;
  const details = [{ path: 'serialNumber', message: 'Another device of the template has this serial number.' }];
  throw new PlatformError('notUnique', { details });
}

/**
 * How many more devices a caller may make, and what `reserve` would say of the next one; any but a station has no end.
 * `tried` is what a dry run has counted already.
 */
export async function remaining(
  tx: Tx,
  caller: Caller,
  tried: number,
  clock: Clock,
): Promise<{ left: number; refusal: PlatformError }> {
  if (caller.kind !== 'station') return { left: Number.POSITIVE_INFINITY, refusal: new PlatformError('forbidden') };
  const station = await findStation(tx, caller);
  if (!station) return { left: 0, refusal: new PlatformError('forbidden') };
  if ((station.expiresAt ?? '') <= timestamp(clock))
    return { left: 0, refusal: new PlatformError('forbidden', { message: 'The station has expired.' }) };
  const maxDevices = station.maxDevices ?? 0;
  const left = Math.max(0, maxDevices - (station.madeDevices ?? 0) - tried);
  return { left, refusal: tooMany(maxDevices, maxDevices, 1) };
}

function findStation(tx: Tx, { id }: Caller) {
  const found = tx.selectFrom('applications').select(['maxDevices', 'madeDevices', 'expiresAt']);
  return found.where('id', '=', id).where('deleted', 'is', null).executeTakeFirst();
}

function tooMany(made: number | null, most: number | null, count: number): PlatformError {
  const message = `The station has made ${made} of its ${most} devices, and cannot make ${count} more.`;
  return new PlatformError('forbidden', { message });
}

/**
 * The template and the organization that a caller asks for a new device; a station's own where it asks for none.
 * @throws PlatformError 400/102 for a station that asks for others, which to it look like none.
 */
export function askedPlace<P extends { deviceTemplateId?: string; organizationId?: string | null }>(
  caller: Caller,
  asked: P,
): Pick<P, 'deviceTemplateId' | 'organizationId'> {
  if (caller.kind !== 'station') return asked;
  const { deviceTemplateId, organizationId } = caller;
  if (asked.deviceTemplateId !== undefined && asked.deviceTemplateId !== deviceTemplateId)
    throw unknownReference('deviceTemplateId');
  if (asked.organizationId !== undefined && asked.organizationId !== organizationId)
    throw unknownReference('organizationId');
  return { deviceTemplateId, organizationId };
}
