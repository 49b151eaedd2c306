/** Begins to act for accounts: those that have come from another server, and those that stay after all. */
import type { CellsContext } from '../../context.ts';

type TriggerServices = Pick<CellsContext, 'bridges' | 'broker' | 'commands' | 'firmwareEngine' | 'jobs' | 'gate'>;

/** Goes on with all that accounts have begun, and releases them: they must be held. */
export async function runTriggers(ctx: TriggerServices, accounts: readonly string[]): Promise<void> {
  const { bridges, broker, commands, firmwareEngine, jobs, gate } = ctx;
  try {
    for (const accountId of accounts) await bridges.beginOf(accountId);
    await commands.actFor(accounts);
    await jobs.actFor(accounts);
  } finally {
    gate.releaseAccounts(accounts);
  }
  broker.handover.actFor(new Set(accounts));
  jobs.wake();
  firmwareEngine.wake();
}
