/** How the engine begins a job and ends it. */
import type { Registry, Tx } from '../../../db/registry/index.ts';
import type { EndedCommand } from '../../commands/commands.ts';
import { changeJob, endOf, type Job, parametersOf } from './job.ts';
import { unsentCommands } from './shares.ts';
import type { JobServices } from './work.ts';

/** Rows that are made pending again in one transaction. */
const retriedAtOnce = 250;

/** A job that runs; undefined when it is not open any more. One share of its failed rows is pending again, if asked for. */
export async function startJob(registry: Registry, id: string): Promise<Job | undefined> {
  const running = registry.query.selectFrom('jobs').selectAll().where('id', '=', id).where('state', '=', 'running');
  const job = await running.executeTakeFirst();
  // One that waits for its devices goes on again and again.
  if (job && !parametersOf(job).retrying) return job;
  return registry.transaction((tx) => begin(tx, id));
}

async function begin(tx: Tx, id: string): Promise<Job | undefined> {
  const started = await changeJob(tx, id, ['pending', 'running'], { state: 'running' });
  if (!started) return undefined;
  const { retrying, ...parameters } = parametersOf(started);
  if (!retrying) return started;
  const failed = tx.selectFrom('jobRows').select('row').where('jobId', '=', id).where('state', '=', 'failed');
  const pending = { state: 'pending', errors: null, commandId: null };
  const again = tx.updateTable('jobRows').set(pending).where('jobId', '=', id);
  const { numUpdatedRows } = await again.where('row', 'in', failed.limit(retriedAtOnce)).executeTakeFirst();
  const left = numUpdatedRows === 0n ? { parameters: JSON.stringify(parameters), failures: 0 } : {};
  return changeJob(tx, id, ['running'], { ...left, failed: started.failed - Number(numUpdatedRows) });
}

/** Ends an open job; undefined when it has ended before. One that has failed sends nothing any more. */
export async function endJob(
  { registry, clock, audit, commands }: JobServices,
  id: string,
  state: 'succeeded' | 'failed',
  reason: string | null,
): Promise<Job | undefined> {
  let ends: EndedCommand[] = [];
  const end = async (tx: Tx) => {
    const job = await tx.selectFrom('jobs').selectAll().where('id', '=', id).executeTakeFirst();
    if (!job) return undefined;
    const changed = await changeJob(tx, id, ['pending', 'running'], { state, reason, ...endOf(clock, job) });
    if (!changed) return undefined;
    if (state === 'failed') ends = await commands.cancelIn(tx, await takeBack(tx, id));
    const { accountId, action, done, failed, skipped } = changed;
    await audit.record(tx, {
      event: 'jobFinished',
      outcome: state === 'succeeded' ? 'success' : 'failure',
      accountId,
      target: { kind: 'job', id },
      details: { action, done, failed, skipped, reason },
    });
    return changed;
  };
  // A thousand commands may end with it.
  const ended = await (state === 'failed' ? registry.longTransaction(end) : registry.transaction(end));
  commands.announceEnds(ends);
  return ended;
}

/** The commands of open rows that have not gone to their devices: the rows are pending again. */
async function takeBack(tx: Tx, jobId: string): Promise<string[]> {
  const unsent = await unsentCommands(tx, jobId);
  const rows = tx.updateTable('jobRows').set({ state: 'pending', commandId: null }).where('jobId', '=', jobId);
  if (unsent.length > 0) await rows.where('state', '=', 'open').where('commandId', 'in', unsent).execute();
  return unsent;
}
