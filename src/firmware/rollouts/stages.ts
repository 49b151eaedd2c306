/** Stages of rollouts: when one begins, which devices it takes up, and what that ends for them. */

import type { Registry, Tx } from '../../../db/registry/index.ts';
import type { Access } from '../../core/access.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import { PlatformError } from '../../core/errors.ts';
import type { Readers } from '../../core/threads/readers.ts';
import { changeRollout, packageOf, settleRollout } from './deliveries.ts';
import { mayGoOn, pauseLost } from './responsible.ts';
import { nextStageAt, type Rollout, stagesOf } from './rollout.ts';
import { takeUp } from './take-up.ts';
import { type Aim, aimOf, placeOf, targetPage, thresholdOf } from './targets.ts';

type Services = { registry: Registry; readers: Readers; clock: Clock; ages: Clock; access: Access };

/** The result of one step of a rollout. */
export interface Step {
  rollouts: Rollout[];
  /** Devices that have something new before them. */
  arisen: string[];
  /** Devices whose former update has ended. */
  superseded: string[];
}

/**
 * Begins what is due of a rollout, or takes up the next devices of its stage: a few hundred at a time. One whose filter names what is gone
 * is paused: nobody can say any more which devices are meant.
 */
export async function advance(services: Services, rollout: Rollout): Promise<Step> {
  try {
    return await goOn(services, rollout);
  } catch (error) {
    if (!(error instanceof PlatformError) || error.kind !== 'invalid') throw error;
    const why = `The filter of the target no longer works. ${error.details[0]?.message ?? ''}`;
    const paused = await services.registry.transaction(async (tx) => {
      const current = await stillRunning(tx, rollout);
      return current ? [await pauseLost(tx, current, why)] : [];
    });
    return { rollouts: paused, arisen: [], superseded: [] };
  }
}

async function goOn(services: Services, rollout: Rollout): Promise<Step> {
  const { registry, clock, access } = services;
  if (!mayGoOn(access, rollout)) {
    const paused = await registry.transaction(async (tx) => {
      const current = await stillRunning(tx, rollout);
      return current && !mayGoOn(access, current) ? [await pauseLost(tx, current)] : [];
    });
    return { rollouts: paused, arisen: [], superseded: [] };
  }
  const aim = aimOf(rollout, (await packageOf(registry.query, { rolloutId: rollout.id })).deviceTemplateId);
  if (rollout.cursor === null) {
    const begun = await beginStage(services, rollout, aim);
    return { rollouts: begun ? [begun] : [], arisen: [], superseded: [] };
  }
  const { ids, last } = await targetPage(services, aim, rollout.cursor);
  const taken = ids.filter((id) => placeOf(rollout.id, id) <= (rollout.threshold ?? 0));
  return registry.transaction(async (tx) => {
    const current = await stillRunning(tx, rollout);
    if (!current || current.cursor !== rollout.cursor) return { rollouts: [], arisen: [], superseded: [] };
    const { arisen, replaced } = await takeUp(tx, clock, current, taken, deadlineOf(current));
    const rollouts: Rollout[] = [];
    const next = { cursor: null, due: nextStageAt(current) ?? null };
    const changed = await changeRollout(tx, current, last === undefined ? next : { cursor: last });
    rollouts.push(changed);
    for (const id of new Set(replaced.map(({ rolloutId }) => rolloutId)))
      rollouts.push(...((await settled(tx, clock, id)) ?? []));
    // A stage without devices has ended with its beginning.
    if (last === undefined) rollouts.push(...((await settled(tx, clock, rollout.id)) ?? []));
    return { rollouts, arisen, superseded: replaced.map(({ deviceId }) => deviceId) };
  });
}

/** Of the devices of a stage, in milliseconds. */
function deadlineOf({ stageBegun, deviceDeadlineSeconds }: Rollout): number {
  return Date.parse(stageBegun ?? '') + deviceDeadlineSeconds * 1000;
}

export async function settled(tx: Tx, clock: Clock, id: string): Promise<Rollout[] | undefined> {
  const changed = await settleRollout(tx, clock, id);
  return changed && [changed];
}

/** Decides now which devices belong to it: those up to a position in the order of hashes. */
async function beginStage(services: Services, rollout: Rollout, aim: Aim): Promise<Rollout | undefined> {
  const { registry, ages } = services;
  const stage = rollout.stage + 1;
  const percent = stagesOf(rollout)[stage]?.percent;
  if (percent === undefined) return registry.transaction((tx) => changeRollout(tx, rollout, { due: null }));
  const threshold = await thresholdOf(services, aim, percent);
  return registry.transaction(async (tx) => {
    const current = await stillRunning(tx, rollout);
    if (!current || current.stage !== rollout.stage) return undefined;
    const begun = { stage, threshold, cursor: '', stageBegun: timestamp(ages), failuresAccepted: 0, due: ages.now() };
    return changeRollout(tx, current, { ...begun, state: 'running' });
  });
}

async function stillRunning(tx: Tx, { id, state }: Rollout): Promise<Rollout | undefined> {
  const rows = tx.selectFrom('firmwareRollouts').selectAll().where('id', '=', id);
  return rows.where('state', '=', state).executeTakeFirst();
}
