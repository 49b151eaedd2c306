import type { Logger } from 'pino';
import type { BrokerClient } from './client-types.ts';
import type { Limits } from './connections/limits.ts';
import { faultOf } from './connections/safe-error.ts';

/** Does `work`; what it throws is in the log, and `failed` is told. */
export type Guarded = <R>(
  name: string,
  work: () => R,
  failed?: (error: Error) => void,
  client?: BrokerClient | null,
) => R | undefined;

/** Nothing thrown in a hook or a listener may end the process. */
export function guardedBy(log: Logger, limits: Pick<Limits, 'about'>): Guarded {
  return (name, work, failed, client) => {
    try {
      return work();
    } catch (error) {
      const about = client && limits.about(client.conn);
      log.error({ fault: faultOf(error), stack: (error as Error).stack, ...about }, `broker: ${name} failed`);
      failed?.(new Error(`${name} failed`));
      return undefined;
    }
  };
}
