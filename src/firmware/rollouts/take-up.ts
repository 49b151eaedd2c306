/** Which devices a rollout takes, and what that ends for them. */
import type { Tx } from '../../../db/registry/index.ts';
import { insertMany } from '../../../db/registry/many.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import { packageOf, ranAlready, skippedVersion, supersede, versionsOf } from './deliveries.ts';
import { formerPackages } from './returning.ts';
import { type Delivery, isOpen, type Rollout, type StoredTarget } from './rollout.ts';

/**
 * Gives devices their place in the stage, or after all stages if they come `later`. A device that a newer rollout has is left to that one;
 * for those that come later, the newer one must not have ended. One that has left the fleet of a continuous rollout begins anew.
 */
export async function takeUp(
  tx: Tx,
  clock: Clock,
  rollout: Rollout,
  ids: readonly string[],
  deadline: number,
  later = false,
): Promise<{ arisen: string[]; replaced: Delivery[] }> {
  if (ids.length === 0) return { arisen: [], replaced: [] };
  const known = await tx.selectFrom('firmwareDeliveries').selectAll().where('deviceId', 'in', ids).execute();
  const ofRollout = known.filter(({ rolloutId }) => rolloutId === rollout.id);
  const own = new Set(ofRollout.flatMap(({ deviceId, left }) => (left === 0 ? [deviceId] : [])));
  const offers = new Map(ofRollout.map(({ deviceId, offer }) => [deviceId, offer]));
  const ended = later ? await endedRollouts(tx, known) : new Set<string>();
  const isNewer = ({ rolloutId, state }: Delivery) =>
    rolloutId > rollout.id && (isOpen({ state }) || (state === 'succeeded' && !ended.has(rolloutId)));
  const left = new Set(known.filter(isNewer).map(({ deviceId }) => deviceId));
  const packages = await ownPackages(tx, rollout, ids);
  const fresh = ids.filter((id) => !own.has(id) && (!packages || packages.has(id)));
  const taken = fresh.filter((id) => !left.has(id));
  const versions = await versionsOf(tx, fresh);
  // Who goes back runs another version: only such devices have a package of their own.
  const skipped = packages ? null : await skippedVersion(tx, await packageOf(tx, { rolloutId: rollout.id }));
  const running = new Set(taken.filter((id) => skipped !== null && versions.get(id) === skipped));
  const replaced = await supersede(tx, clock, taken);
  const hadAnother = new Set(replaced.map(({ deviceId }) => deviceId));
  const arisen = taken.filter((id) => !running.has(id) || hadAnother.has(id));
  const beginningOf = (id: string) => {
    if (left.has(id)) return { state: 'superseded', message: 'A newer rollout has the device.' };
    return running.has(id) ? ranAlready : { state: 'pending', message: null };
  };
  if (fresh.length > 0)
    await tx
      .deleteFrom('firmwareDeliveries')
      .where('rolloutId', '=', rollout.id)
      .where('deviceId', 'in', fresh)
      .execute();
  await insertMany(
    tx,
    'firmwareDeliveries',
    fresh.map((deviceId) => ({
      rolloutId: rollout.id,
      deviceId,
      accountId: rollout.accountId,
      // Those that come later are counted apart from the devices of the last stage.
      stage: later ? rollout.stage + 1 : rollout.stage,
      ...beginningOf(deviceId),
      bytes: null,
      code: null,
      files: null,
      offer: (offers.get(deviceId) ?? 0) + 1,
      consented: 0,
      updated: timestamp(clock),
      deadline,
      firmwarePackageId: packages?.get(deviceId) ?? null,
      formerVersion: versions.get(deviceId) ?? null,
      later: later ? 1 : 0,
      left: 0,
    })),
  );
  return { arisen, replaced };
}

/** The packages of the devices of a rollout that goes back, by device. */
async function ownPackages(tx: Tx, { target }: Rollout, ids: readonly string[]) {
  const { revertOf } = JSON.parse(target) as StoredTarget;
  return revertOf === undefined ? undefined : formerPackages(tx, revertOf, ids);
}

/** Those of some deliveries' rollouts that have ended. */
async function endedRollouts(tx: Tx, deliveries: readonly Delivery[]): Promise<Set<string>> {
  const ids = [...new Set(deliveries.map(({ rolloutId }) => rolloutId))];
  if (ids.length === 0) return new Set();
  const ended = tx.selectFrom('firmwareRollouts').select('id').where('id', 'in', ids).where('finished', 'is not', null);
  return new Set((await ended.execute()).map(({ id }) => id));
}
