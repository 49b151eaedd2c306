/** Room for jobs: an account keeps so many, with so many rows, and finished jobs are removed first. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { sql } from 'kysely';
import type { Db } from '../../../db/registry/index.ts';
import type { Config } from '../../core/config.ts';
import { PlatformError } from '../../core/errors.ts';
import { keptOf } from '../../core/limits/kept.ts';
import { exceeded, type LimitName, type Limits } from '../../core/limits/table.ts';
import { forgetRows } from '../results/expiry.ts';
import type { Job } from './job.ts';
import type { JobServices } from './work.ts';

type Services = Pick<JobServices, 'registry'> & { config: Pick<Config, 'limits'> };

/** Jobs that are removed at most for one that comes: a limit that was lowered is reached in steps. */
const maxRemoved = 20;

/**
 * Removes what a new job needs room for, oldest first: rows of dry runs, then rows of jobs whose results are gone and that
 * cannot be undone, then jobs without rows. Jobs that are open keep everything.
 */
export async function makeRoom({ registry, config: { limits } }: Services, coming: Job): Promise<void> {
  const { accountId } = coming;
  while (await lacksRows(registry.query, limits, coming)) {
    const job = await nextToForget(registry.query, accountId);
    if (!job) break;
    await forgetRows({ registry }, job.id, () => false);
    await nextTurn();
  }
  for (let left = maxRemoved; left > 0; left -= 1) {
    if (limits.jobs === 0 || (await keptOf(registry.query, accountId, 'jobs')) < limits.jobs) return;
    const job = await oldestEnded(registry.query, accountId);
    if (!job) return;
    await forgetRows({ registry }, job.id, () => false);
    await registry.query.deleteFrom('jobs').where('id', '=', job.id).where('finished', 'is not', null).execute();
  }
}

/**
 * Checks that the rows of a job, counted already, are within the limits of its account.
 * @throws PlatformError 400/106 naming the limit.
 */
export async function demandRows(db: Db, limits: Limits, { accountId }: Job): Promise<void> {
  for (const name of ['jobRows', 'jobRowBytes'] as const)
    if (limits[name] > 0 && (await keptOf(db, accountId, name)) > limits[name]) throw tooMany(limits, name);
}

async function lacksRows(db: Db, limits: Limits, { accountId, keptRows, keptBytes }: Job): Promise<boolean> {
  const coming = { jobRows: keptRows, jobRowBytes: keptBytes };
  for (const name of ['jobRows', 'jobRowBytes'] as const) {
    if (limits[name] === 0) continue;
    // Nothing that could be forgotten would help.
    if (coming[name] > limits[name]) throw tooMany(limits, name);
    if ((await keptOf(db, accountId, name)) + coming[name] > limits[name]) return true;
  }
  return false;
}

function nextToForget(db: Db, accountId: string): Promise<{ id: string } | undefined> {
  return (
    db
      .selectFrom('jobs')
      .select('id')
      .where('accountId', '=', accountId)
      .where('finished', 'is not', null)
      // As the index has it: a parameter would not find it.
      .where(sql<boolean>`"keptRows" > 0`)
      .where((eb) =>
        eb.or([
          eb('dryRun', '=', 1),
          eb.and([
            eb('sealedKey', 'is', null),
            eb.or([eb('action', 'not in', ['delete', 'move']), eb('undone', 'is not', null)]),
          ]),
        ]),
      )
      .orderBy('dryRun', 'desc')
      .orderBy('finished')
      .limit(1)
      .executeTakeFirst()
  );
}

function oldestEnded(db: Db, accountId: string): Promise<{ id: string } | undefined> {
  return db
    .selectFrom('jobs')
    .select('id')
    .where('accountId', '=', accountId)
    .where('state', 'in', ['succeeded', 'failed', 'cancelled', 'expired'])
    .where('sealedKey', 'is', null)
    .orderBy('created')
    .orderBy('id')
    .limit(1)
    .executeTakeFirst();
}

function tooMany(limits: Limits, name: LimitName): PlatformError {
  return new PlatformError('invalid', {
    message:
      'The account keeps too many rows of jobs. Confirm the results of finished jobs, or wait until open jobs end.',
    details: [exceeded(limits, name, 'rows')],
  });
}
