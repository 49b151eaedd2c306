/** Who answers for a rollout: who made it, or changed it last. It goes on as long as they may do that. */
import type { Tx } from '../../../db/registry/index.ts';
import type { Access } from '../../core/access.ts';
import { changeRollout } from './deliveries.ts';
import type { Rollout } from './rollout.ts';

const reason = 'The one who made or last resumed the rollout may no longer roll out firmware. Resume it to continue.';

/** Whether those who answer for it still may. */
export function mayGoOn(
  access: Access,
  { accountId, createdById, lastModifiedById }: Pick<Rollout, 'accountId' | 'createdById' | 'lastModifiedById'>,
): boolean {
  const caller = access.callerOf(lastModifiedById) ?? access.callerOfApplication(lastModifiedById);
  const action = lastModifiedById === createdById ? 'create' : 'update';
  return caller?.accountId === accountId && access.may(caller, action, 'firmwareRollout');
}

/** Nothing new is offered until somebody who may resumes it. */
export function pauseLost(tx: Tx, rollout: Rollout, why = reason): Promise<Rollout> {
  return changeRollout(tx, rollout, { state: 'paused', due: null, reason: why });
}
