/** Composition root: everything that is made once and passed on. Owners close what they open, in reverse order. */

import type { CellsContext } from '../../cells/context.ts';
import type { CellGate } from '../../cells/gate.ts';
import type { Fence } from '../../db/files/lock.ts';
import type { Config } from '../core/config.ts';
import type { TrustedClock } from '../core/trusted-clock.ts';
import { Jobs } from '../factory/jobs/engine.ts';
import { Health } from '../http/health.ts';
import type { MetricsContext } from '../operations/metrics/context.ts';
import { watchChanges } from './changes.ts';
import { Closers } from './closers.ts';
import { openDeviceServices } from './device-services.ts';
import { openAccountServices, openMessageServices } from './services.ts';
import { type Overrides, openStores } from './stores.ts';

/** All services. A route module gets them as the context of its own folder, which has those below it and its own. */
export interface Context extends MetricsContext, CellsContext {
  /** Whether this process still holds the data directory. */
  fence: Fence;
  gate: CellGate;
  ages: TrustedClock;
  /** The version that ran on the data before this one, when it was another. */
  versionBefore: string | undefined;
}

/** Everything built on one data directory, and its end. */
export interface OpenedContext {
  ctx: Context;
  close(): Promise<void>;
}

/** Opens the data directory, which `checkStart` has looked at, and builds everything. @throws ConfigError when it cannot be used. */
export async function openContext(config: Config, overrides: Overrides = {}): Promise<OpenedContext> {
  const closers = new Closers();
  try {
    const stores = await openStores(config, overrides, closers);
    const messages = await openMessageServices(stores, overrides, closers);
    const accounts = await openAccountServices({ ...stores, ...messages }, overrides, closers);
    const base = { ...stores, ...messages, ...accounts };
    const devices = await openDeviceServices(base, closers);
    const jobs = new Jobs({ ...base, ...devices });
    closers.push(() => jobs.stop());
    const health = new Health({ ...base, ...devices });
    const ctx: Context = { ...base, ...devices, jobs, health };
    const watching = watchChanges(
      config.dataDir,
      () => takeChanges(ctx),
      (error) => ctx.log.error({ err: error }, 'changes of the command line could not be taken over'),
    );
    closers.push(() => watching.stop());
    return { ctx, close: () => closers.close() };
  } catch (error) {
    await closers.close();
    throw error;
  }
}

/** Caches to clear after the command line changed something: signing keys, admins, applications, sessions. */
async function takeChanges({ tokens, access, revocations }: Context): Promise<void> {
  await tokens.reload();
  access.rolesChanged();
  revocations.loginsEnded();
}
