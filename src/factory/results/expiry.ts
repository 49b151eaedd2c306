/** The end of results and of rows: the key first, which makes all of them unreadable at once, the rows in steps. */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { timestamp } from '../../core/clock.ts';
import { recoveryWindow } from '../../entity/verbs.ts';
import { type Job, receiving } from '../jobs/job.ts';
import type { JobServices } from '../jobs/work.ts';

/** Rows of one transaction. */
const stepSize = 250;

type Services = Pick<JobServices, 'registry' | 'clock'>;
/** Whether nothing of an account may be removed now. */
type IsStopped = (accountId: string) => boolean;

/** Destroys the results whose time is over, those that were confirmed among them; the jobs that have changed. */
export async function endResults(ctx: Services, isStopped: IsStopped): Promise<Job[]> {
  const due = ctx.registry.query.selectFrom('jobs').select(['id', 'accountId']);
  const ended: Job[] = [];
  for (const { id, accountId } of await due.where('expires', '<=', timestamp(ctx.clock)).execute()) {
    if (isStopped(accountId)) continue;
    const job = await endKey(ctx, id);
    if (job) ended.push(job);
    if (!(await clearRows(ctx, id, () => isStopped(accountId)))) continue;
    // It need not be looked for again.
    const done = ctx.registry.query.updateTable('jobs').set({ expires: null }).where('id', '=', id);
    await done.where('sealedKey', 'is', null).where('expires', '<=', timestamp(ctx.clock)).execute();
  }
  return ended;
}

/** Destroys the key of a job whose time is over; undefined when that has been done before, or it is not. */
export async function endKey({ registry, clock }: Services, id: string): Promise<Job | undefined> {
  return registry.query
    .updateTable('jobs')
    .set((eb) => ({
      sealedKey: null,
      state: eb.case().when('state', '=', 'succeeded').then('expired').else(eb.ref('state')).end(),
    }))
    .where('id', '=', id)
    .where('expires', '<=', timestamp(clock))
    .where('sealedKey', 'is not', null)
    .returningAll()
    .executeTakeFirst();
}

/** Destroys the sealed results of a job while its key is gone: a retry has a new one. False when stopped before the end. */
export async function clearRows({ registry }: Services, id: string, isStopped: () => boolean): Promise<boolean> {
  const isKeyless = registry.query.selectFrom('jobs').select('id').where('id', '=', id).where('sealedKey', 'is', null);
  for (let after = 0; ; ) {
    // A job that has been retried meanwhile seals what must stay.
    if (!(await isKeyless.executeTakeFirst())) return true;
    const rows = registry.query.selectFrom('jobRows').select('row').where('jobId', '=', id).where('row', '>', after);
    const last = (await rows.orderBy('row').limit(stepSize).execute()).at(-1);
    if (!last) return true;
    if (isStopped()) return false;
    const cleared = registry.query.updateTable('jobRows').set({ sealedResult: null }).where('jobId', '=', id);
    const batch = cleared.where('row', '>', after).where('row', '<=', last.row).where('sealedResult', 'is not', null);
    await batch.where(({ exists }) => exists(isKeyless)).execute();
    after = last.row;
    await nextTurn();
  }
}

/** Removes the rows of jobs that nobody can undo any more; the jobs themselves stay. */
export async function forgetOldRows(ctx: Services, isStopped: IsStopped): Promise<void> {
  const before = new Date(ctx.clock.now() - recoveryWindow).toISOString();
  const old = await ctx.registry.query
    .selectFrom('jobs')
    .select(['id', 'accountId'])
    .where('finished', '<', before)
    .where((eb) => eb.exists(eb.selectFrom('jobRows').select('row').whereRef('jobRows.jobId', '=', 'jobs.id')))
    .execute();
  for (const { id, accountId } of old) if (!isStopped(accountId)) await forgetRows(ctx, id, () => isStopped(accountId));
}

/** Removes the rows of a job that has ended, in steps. They are not counted any more, and the job cannot be retried. */
export async function forgetRows(ctx: Pick<Services, 'registry'>, id: string, isStopped: () => boolean): Promise<void> {
  const ended = ctx.registry.query.updateTable('jobs').set({ keptRows: 0, keptBytes: 0 }).where('id', '=', id);
  const { numUpdatedRows } = await ended.where('finished', 'is not', null).executeTakeFirst();
  // A retry may have begun meanwhile.
  if (numUpdatedRows > 0n) await deleteRows(ctx, id, isStopped);
}

/** Removes a job that has never been there for others. */
export async function dropJob(ctx: Services, id: string): Promise<void> {
  await deleteRows(ctx, id, () => false);
  await ctx.registry.query.deleteFrom('jobs').where('id', '=', id).where('state', '=', receiving).execute();
}

async function deleteRows(
  { registry }: Pick<Services, 'registry'>,
  id: string,
  isStopped: () => boolean,
): Promise<void> {
  while (!isStopped()) {
    const batch = registry.query.selectFrom('jobRows').select('row').where('jobId', '=', id).limit(stepSize);
    const gone = registry.query.deleteFrom('jobRows').where('jobId', '=', id).where('row', 'in', batch);
    if ((await gone.executeTakeFirst()).numDeletedRows === 0n) return;
    await nextTurn();
  }
}
