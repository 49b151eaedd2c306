import type { Broker } from '../../../broker/index.ts';
import type { BridgesContext } from '../../bridges/context.ts';
import type { EnrollmentContext } from '../../enrollment/context.ts';
import type { FactoryContext } from '../../factory/context.ts';
import type { Health } from '../../http/health.ts';

/** The services that are measured. */
export interface MetricsContext extends BridgesContext, EnrollmentContext, FactoryContext {
  broker: Broker;
  health: Health;
}
