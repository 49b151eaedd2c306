import type { Broker } from '../../broker/index.ts';
import type { Fence } from '../../db/files/lock.ts';
import type { BridgesContext } from '../bridges/context.ts';
import type { FactoryContext } from '../factory/context.ts';
import type { Health } from './health.ts';

/** All services. A route module gets them as the context of its own folder, which has those below it and its own. */
export interface Context extends BridgesContext, FactoryContext {
  /** Whether this process still holds the data directory. */
  fence: Fence;
  broker: Broker;
  health: Health;
}
