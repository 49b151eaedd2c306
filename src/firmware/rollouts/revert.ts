/** Going back: a rollout of the packages that devices had before another one. */
import { sql } from 'kysely';
import { findEntity } from '../../../db/registry/entities.ts';
import type { Caller } from '../../core/caller.ts';
import { PlatformError } from '../../core/errors.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import type { Readers } from '../../core/threads/readers.ts';
import { writeAs } from '../../entity/verbs.ts';
import { returning } from './returning.ts';
import { hasEnded, type Rollout } from './rollout.ts';
import { cancelRollout, demandRoom, insertRollout, type RolloutServices, recordRollout } from './rollouts.ts';

type Services = RolloutServices & {
  readers: Readers;
  access: { may(caller: Caller, action: 'update', kind: 'firmwareRollout'): boolean };
};

/**
 * Rolls out to each device that runs what a rollout has brought it the package of the version that it ran before. The rollout itself
 * is cancelled unless it has ended. @throws PlatformError 403/21 for a caller that may not cancel it, 400/106 for one rollout too many.
 */
export async function revertRollout(ctx: Services, caller: Caller, before: Rollout): Promise<Rollout> {
  const { access, ages, config, registry } = ctx;
  if (!hasEnded(before)) {
    if (!access.may(caller, 'update', 'firmwareRollout')) throw new PlatformError('forbidden');
    await demandRoom(config, registry.query, caller.accountId, 1);
    await cancelRollout(ctx, caller, before.id);
  }
  const { back, refused } = await countReturning(ctx, caller, before.id);
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandRoom(config, tx, caller.accountId);
    const { deviceDeadlineSeconds, maxFailurePercent, consent } = before;
    const made = await insertRollout(ctx, tx, caller, {
      ...{ deviceDeadlineSeconds, maxFailurePercent, consent, continuous: 0 },
      firmwarePackageId: back[0]?.firmwarePackageId ?? before.firmwarePackageId,
      target: JSON.stringify({ revertOf: before.id }),
      stages: JSON.stringify([{ percent: 100, pauseSeconds: 0 }]),
      startAt: new Date(ages.now()).toISOString(),
      refused: JSON.stringify(refused),
    });
    await recordRollout(ctx, tx, caller, made, 'created');
    return made;
  });
  ctx.firmwareEngine.changed(row);
  return (await findEntity(registry.query, 'firmwareRollouts', row.id)) ?? row;
}

interface Counted {
  firmwarePackageId: string | null;
  isKnown: number;
  count: number;
}

/** Which packages devices go back to, most devices first, and which devices have none. */
async function countReturning({ registry, readers }: Services, caller: Caller, rolloutId: string) {
  const counts = sql<Counted>`select "firmwarePackageId", "formerVersion" is not null as "isKnown", count(*) as "count"
    from ${returning(rolloutId)} group by 1, 2 order by 3 desc, 2 desc`.compile(registry.query);
  const rows = await readers.read(laneOf(caller), counts);
  const refusals = rows.filter(({ firmwarePackageId }) => firmwarePackageId === null);
  return {
    back: rows.filter(({ firmwarePackageId }) => firmwarePackageId !== null),
    refused: refusals.map(({ isKnown, count }) => ({ reason: isKnown ? gone : unknown, count })),
  };
}

const gone = 'The package of the version that these devices ran before is gone, or retired.';
const unknown = 'Nothing is known of what these devices ran before.';
