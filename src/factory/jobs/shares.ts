/** The shares of a job: the rows that are read, worked on and written together, how many they are, and what became of them. */
import { sql } from 'kysely';
import type { Db, Tx } from '../../../db/registry/index.ts';
import { insertMany } from '../../../db/registry/many.ts';
import { rowsOf } from '../../../db/registry/statement.ts';
import type { Job } from './job.ts';
import type { Outcome } from './work.ts';

/** Bytes of the rows of one share, unless it is a single row. */
export const maxShareBytes = 512 * 1024;
/** How large the shares of a job are. */
interface Pace {
  /** Rows of one transaction: at first, at least and at most. */
  first: number;
  least: number;
  most: number;
  /** Milliseconds that others wait for a transaction. */
  holdTime: number;
}
/** Others wait with everything, because the transaction holds the event loop. */
const inProcess: Pace = { first: 20, least: 5, most: 500, holdTime: 6 };
/** Others wait only to write, because a thread executes the transaction. */
const inThread: Pace = { first: 200, least: 100, most: 1000, holdTime: 60 };
/** Rows from which on the shares of a job are worth a thread of their own. */
const minRowsForThread = 100;

/** The next pending rows after row number `after`: at most `limit`, and at most `maxShareBytes` or a single row. */
export async function pendingRows(db: Db, jobId: string, after: number, limit: number) {
  const next = db
    .selectFrom('jobRows')
    .where('jobId', '=', jobId)
    .where('state', '=', 'pending')
    .where('row', '>', after);
  const size = sql<number>`octet_length("input")`.as('size');
  const sizes = await next.select(['row', size]).orderBy('row').limit(limit).execute();
  let bytes = 0;
  const end = sizes.findIndex((one) => {
    bytes += one.size;
    return bytes > maxShareBytes;
  });
  const fitting = end === -1 ? sizes.length : Math.max(end, 1);
  return next.select(['row', 'input']).orderBy('row').limit(fitting).execute();
}

const storeResult = 'UPDATE "jobRows" SET "sealedResult" = ? WHERE "jobId" = ? AND "row" = ?';

/** Stores what became of rows; returns the job with its new counts. */
export async function storeOutcomes(tx: Tx, jobId: string, outcomes: readonly Outcome[]): Promise<Job> {
  await insertMany(
    tx,
    'jobRows',
    // The row is there: what stands for its input is not kept.
    outcomes.map(({ sealedResult, ...one }) => ({ jobId, input: '', sealedResult: null, ...one })),
    { overwrite: { key: ['jobId', 'row'], columns: ['state', 'deviceId', 'before', 'errors', 'commandId'] } },
  );
  for (const { row, sealedResult } of outcomes)
    if (sealedResult) await rowsOf(tx, storeResult, [sealedResult, jobId, row]);
  const count = (state: Outcome['state']) => outcomes.filter((one) => one.state === state).length;
  return tx
    .updateTable('jobs')
    .set((eb) => ({
      done: eb('done', '+', count('done')),
      failed: eb('failed', '+', count('failed')),
      skipped: eb('skipped', '+', count('skipped')),
    }))
    .where('id', '=', jobId)
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** How far a job with open rows has come: in one statement, as ends of its commands come at any time. */
export async function standOf(db: Db, jobId: string): Promise<{ open: number; done: number; failures: number }> {
  return db
    .selectFrom('jobs')
    .select(['done', 'failures', openRows(db, jobId).as('open')])
    .where('id', '=', jobId)
    .executeTakeFirstOrThrow();
}

function openRows(db: Db, jobId: string) {
  const open = db.selectFrom('jobRows').where('jobId', '=', jobId).where('state', '=', 'open');
  return open.select((eb) => eb.fn.countAll<number>().as('open')).$asScalar();
}

/** The commands of open rows that have not gone to their devices. */
export async function unsentCommands(tx: Tx, jobId: string): Promise<string[]> {
  const open = tx.selectFrom('jobRows').innerJoin('commands', 'commands.id', 'jobRows.commandId');
  const unsent = open.where('jobRows.jobId', '=', jobId).where('jobRows.state', '=', 'open');
  const rows = await unsent.where('commands.state', '=', 'queued').select('commands.id').execute();
  return rows.map(({ id }) => id);
}

/** Whether a thread writes the shares of a job. */
export function isLong({ action, total }: Job): boolean {
  return action === 'provision' && total >= minRowsForThread;
}

/** How large the shares of a job are: larger where a thread writes them. */
export function paceOf(job: Job): Pace {
  return isLong(job) ? inThread : inProcess;
}

/** As many rows as would have taken the time that a transaction may take; `held` is what they took, in milliseconds. */
export function nextSize({ least, most, holdTime }: Pace, count: number, held: number): number {
  const wanted = Math.round((count * holdTime) / Math.max(held, 0.1) / least) * least;
  return Math.max(least, Math.min(most, wanted, 2 * Math.max(count, least)));
}
