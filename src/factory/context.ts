import type { DownlinkContext } from '../firmware/context.ts';
import type { Jobs } from './jobs/engine.ts';
import type { LabelDrawer } from './results/label-drawer.ts';

/** The services that route modules of the factory get: those below them, and their own. */
export interface FactoryContext extends DownlinkContext {
  jobs: Jobs;
  labels: LabelDrawer;
}
