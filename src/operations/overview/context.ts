import type { BridgesContext } from '../../bridges/context.ts';
import type { TrustedClock } from '../../core/trusted-clock.ts';
import type { FactoryContext } from '../../factory/context.ts';

/** The services of the overview. */
export interface OverviewContext extends BridgesContext, FactoryContext {
  ages: TrustedClock;
}
