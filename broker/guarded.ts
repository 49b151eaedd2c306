import type { Logger } from 'pino';
import { faultOf } from './connections/safe-error.ts';

/** Does `work`; what it throws is in the log. */
export type Guarded = <R>(name: string, work: () => R) => R | undefined;

/** Nothing thrown in a hook or a listener may end the process. */
export function guardedBy(log: Logger): Guarded {
  return (name, work) => {
    try {
      return work();
    } catch (error) {
      log.error({ fault: faultOf(error), stack: (error as Error).stack }, `broker: ${name} failed`);
      return undefined;
    }
  };
}
