/** The end of what has been in the trash for 30 days, and of what has ended, in small steps. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { forgetInterrupted } from '../../identity/federation/forgetting.ts';
import { expireMessages } from '../../messages/retention.ts';
import {
  purgeActivity,
  purgeAnswers,
  purgeCommands,
  purgeExpired,
  purgeRevoked,
  purgeRollouts,
  purgeSessions,
} from './ended.ts';
import type { PurgeContext, Step } from './step.ts';
import { fieldPurge, purgeChannels, purgeDevices, purgeEnrollments, purgeUnreferenced } from './trash.ts';

/** Milliseconds from one run to the next, and from the start to the first. */
const interval = 60 * 60_000;
const firstRun = 60_000;

/** Purges now and then until `stop`, which waits for the step under way. */
export function startPurge(ctx: PurgeContext): { stop(): Promise<void> } {
  let stopped = false;
  let running: Promise<void> | undefined;
  const run = () => {
    // An account that is being copied to another server must only grow meanwhile.
    if (ctx.gate.isUnderWay) {
      ctx.log.warn(
        { accounts: ctx.gate.away },
        'nothing is purged or expired while the move of an account is under way',
      );
      return;
    }
    running ??= ctx.gate
      .work(() => purge(ctx, () => stopped || ctx.gate.isUnderWay))
      .finally(() => {
        running = undefined;
      });
  };
  const first = setTimeout(run, firstRun);
  const timer = setInterval(run, interval);
  first.unref();
  timer.unref();
  return {
    stop: async () => {
      stopped = true;
      clearTimeout(first);
      clearInterval(timer);
      await running;
    },
  };
}

/** Purges all that is due; `isStopped` is asked between the steps. What fails is in the log and holds up nothing else. */
export async function purge(ctx: PurgeContext, isStopped: () => boolean = () => false): Promise<void> {
  const { collector, log } = ctx;
  const steps: Step[] = [
    purgeDevices,
    purgeChannels,
    fieldPurge(),
    purgeEnrollments,
    forgetInterrupted,
    purgeUnreferenced,
    purgeSessions,
    purgeExpired,
    purgeRevoked,
    purgeAnswers,
    purgeCommands,
    purgeRollouts,
    purgeActivity,
  ];
  const parts = steps.map((step) => async () => {
    while (!isStopped() && (await step(ctx))) await nextTurn();
  });
  for (const part of [...parts, () => expireMessages(ctx, isStopped), () => collector.removeUnused()])
    await part().catch((error) => log.error({ err: error }, 'a part of the purge has failed'));
}
