/** What a station may make (decisions 6): devices of its own template in its own organization, so many, until it expires. */
import type { Tx } from '../../db/index.js';
import type { Caller } from '../access.js';
import type { Clock } from '../context.js';
import { timestamp } from '../entity/verbs.js';
import { PlatformError, unknownReference } from '../errors.js';

/**
 * Takes `count` devices off what a station may still make, in the transaction that makes them, so that many at once do
 * not get past it; of any other caller there is no count.
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
  const station = await tx
    .selectFrom('applications')
    .select(['maxDevices', 'madeDevices', 'expiresAt'])
    .where('id', '=', caller.id)
    .where('deleted', 'is', null)
    .executeTakeFirst();
  if (!station) throw new PlatformError('forbidden');
  if ((station.expiresAt ?? '') <= now) throw new PlatformError('forbidden', { message: 'The station has expired.' });
  const { maxDevices, madeDevices } = station;
  const message = `The station has made ${madeDevices} of its ${maxDevices} devices, and cannot make ${count} more.`;
  throw new PlatformError('forbidden', { message });
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
