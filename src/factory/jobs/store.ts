/** How a job comes to be, and what can be done to it: cancel, retry, confirm. */

import { createHash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { sql } from 'kysely';
import type { Registry } from '../../../db/registry/index.ts';
import { type Db, isUniqueViolation, type Tx } from '../../../db/registry/index.ts';
import { insertMany } from '../../../db/registry/many.ts';
import type { EndedCommand } from '../../commands/commands.ts';
import type { Caller } from '../../core/caller.ts';
import { timestamp } from '../../core/clock.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import { newId } from '../../core/ids.ts';
import { noteMade } from '../../entity/kept-answers.ts';
import { inThread, writeAs } from '../../entity/verbs.ts';
import type { FactoryContext } from '../context.ts';
import { clearRows, dropJob } from '../results/expiry.ts';
import { makeResultKey } from '../results/store.ts';
import {
  changeJob,
  endOf,
  hasResults,
  isMaker,
  isOpen,
  type Job,
  type JobAction,
  type Parameters,
  parametersOf,
  receiving,
} from './job.ts';
import { demandRows, makeRoom } from './room.ts';
import { standOf, unsentCommands } from './shares.ts';

type JobStoreServices = Pick<
  FactoryContext,
  'audit' | 'clock' | 'commands' | 'config' | 'jobs' | 'registry' | 'sealing'
>;

/** The rows of one transaction, and the number of rows from which a thread executes it. */
const storedAtOnce = { here: 250, byThread: 1000, bytes: 512 * 1024 };
const minRowsForThread = 2000;
/** Open jobs of one caller, and of one account: each end of a job looks at all that wait. */
const maxOpen = { ofCaller: 200, ofAccount: 1000 };
/** Seconds after which it is worth trying again. */
const retryAfter = 5;

/** A job that is to be made. `checksum` is of all that it is made of; without one a repeat makes another. */
export interface NewJob {
  action: JobAction;
  parameters: Parameters;
  dryRun?: boolean;
  checksum?: string;
  /** Each as the JSON of a StoredRow. */
  rows: readonly string[];
}

/** Identifies a repeated request for the same job: caller, parameters and rows. */
export function checksumOf({ kind, id, accountId }: Caller, action: JobAction, asked: object, digest: string): string {
  const parts = [accountId, kind, id, action, JSON.stringify(asked), digest];
  return createHash('sha256').update(parts.join('\0')).digest('base64');
}

export async function findByChecksum({ query }: Registry, checksum: string): Promise<Job | undefined> {
  return query.selectFrom('jobs').selectAll().where('checksum', '=', checksum).executeTakeFirst();
}

/**
 * Stores a job in steps and wakes the engine; returns the one with the same checksum when there is one. `also` runs in the last
 * step. @throws PlatformError as writeAs; 429/-199 where too many are open; 400/106 where the account keeps too many rows.
 */
export async function makeJob(
  ctx: JobStoreServices,
  caller: Caller,
  wanted: NewJob,
  also?: (tx: Tx) => Promise<void>,
): Promise<Job> {
  const { checksum } = wanted;
  const known = checksum === undefined ? undefined : await findByChecksum(ctx.registry, checksum);
  if (known) return known;
  const { registry } = ctx;
  await demandRoom(registry.query, caller);
  const job = newJob(ctx, caller, wanted);
  await makeRoom(ctx, job);
  try {
    const isLong = wanted.rows.length >= minRowsForThread;
    await registry.transaction(async (tx) => {
      // From here on its rows count, though they are stored later.
      await tx.insertInto('jobs').values(job).execute();
      await demandRows(tx, ctx.config.limits, job);
    });
    let row = 0;
    for (const inputs of portions(wanted.rows, isLong ? storedAtOnce.byThread : storedAtOnce.here)) {
      const batch = inputs.map((input) => {
        row += 1;
        return newRow(job.id, row, input);
      });
      const store = (tx: Tx) => insertMany(tx, 'jobRows', batch);
      await (isLong ? registry.longTransaction(store) : registry.transaction(store));
      await nextTurn();
    }
    const made = await writeAs(ctx, caller, undefined, async (tx) => {
      await also?.(tx);
      return openJob(tx, ctx, caller, job, wanted);
    });
    ctx.jobs.wake();
    return made;
  } catch (error) {
    await dropJob(ctx, job.id);
    // The same has been asked for at the same time.
    const other = isUniqueViolation(error) && checksum ? await findByChecksum(ctx.registry, checksum) : undefined;
    if (other) return other;
    throw error;
  }
}

/** So many rows at most, and no more than may be stored at once. */
function* portions(rows: readonly string[], most: number): Generator<readonly string[]> {
  for (let from = 0, to = 0, bytes = 0; to < rows.length; from = to, bytes = 0) {
    while (to < rows.length && to - from < most && bytes < storedAtOnce.bytes) {
      bytes += rows[to]?.length ?? 0;
      to += 1;
    }
    yield rows.slice(from, to);
  }
}

function newJob(ctx: JobStoreServices, caller: Caller, { action, parameters, dryRun = false, rows }: NewJob): Job {
  const id = newId(caller.accountId);
  const flags = { action, dryRun: dryRun ? 1 : 0 };
  return {
    id,
    accountId: caller.accountId,
    created: timestamp(ctx.clock),
    createdById: caller.id,
    createdByKind: caller.kind,
    tokenId: caller.tokenId ?? null,
    ...flags,
    parameters: JSON.stringify(parameters),
    checksum: null,
    state: receiving,
    total: rows.length,
    done: 0,
    failed: 0,
    skipped: 0,
    reason: null,
    finished: null,
    expires: null,
    confirmed: null,
    undone: null,
    sealedKey: hasResults(flags) ? makeResultKey(ctx.sealing, id) : null,
    keptRows: rows.length,
    keptBytes: rows.reduce((bytes, row) => bytes + Buffer.byteLength(row), 0),
    failures: 0,
  };
}

function newRow(jobId: string, row: number, input: string) {
  return {
    jobId,
    row,
    state: 'pending',
    input,
    deviceId: null,
    before: null,
    errors: null,
    commandId: null,
    sealedResult: null,
  };
}

/** @throws PlatformError 429/-199 when the caller, or its account, has as many open jobs as it may. */
async function demandRoom(db: Db, { id, accountId }: Caller): Promise<void> {
  const { account, own } = await db
    .selectFrom('jobs')
    .select(({ fn }) => [
      fn.countAll<number>().as('account'),
      sql<number>`count(*) filter (where "createdById" = ${id})`.as('own'),
    ])
    .where('accountId', '=', accountId)
    // As the index has it: a parameter would not find it.
    .where(sql<boolean>`"state" in ('pending', 'running')`)
    .executeTakeFirstOrThrow();
  if (own < maxOpen.ofCaller && account < maxOpen.ofAccount) return;
  const allowance = { limit: maxOpen.ofCaller, remaining: 0, reset: retryAfter };
  throw new PlatformError('tooMany', { message: 'Too many jobs are open. Wait until some have ended.', allowance });
}

async function openJob(tx: Tx, { audit }: JobStoreServices, caller: Caller, { id }: Job, { checksum }: NewJob) {
  // Others may have come in while its rows were stored.
  await demandRoom(tx, caller);
  const made = await changeJob(tx, id, [receiving], { state: 'pending', checksum: checksum ?? null });
  if (!made) throw new PlatformError('server');
  await noteMade(tx, id);
  const { accountId, action, total, dryRun } = made;
  await audit.record(tx, {
    event: 'jobStarted',
    outcome: 'success',
    accountId,
    actor: caller,
    target: { kind: 'job', id },
    details: { action, rows: total, dryRun: dryRun === 1 },
  });
  return made;
}

/**
 * Ends a job: what has been made stays, its pending rows are skipped, and so are those whose command has not gone to its device. A
 * job that has ended stays as it is.
 */
export async function cancelJob(ctx: JobStoreServices, caller: Caller, job: Job): Promise<Job> {
  let ends: EndedCommand[] = [];
  // A thousand commands may end.
  const writing = parametersOf(job).pacing ? inThread(ctx.registry) : ctx;
  const cancelled = await writeAs(writing, caller, undefined, async (tx) => {
    const changed = await changeJob(tx, job.id, ['pending', 'running'], {
      state: 'cancelled',
      ...endOf(ctx.clock, job),
    });
    if (!changed) return undefined;
    ends = await ctx.commands.cancelIn(tx, await unsentCommands(tx, job.id));
    const { accountId, action, total, done, failed } = changed;
    const skipped = total - done - failed - (await standOf(tx, job.id)).open;
    await ctx.audit.record(tx, {
      event: 'jobFinished',
      outcome: 'failure',
      accountId,
      actor: caller,
      target: { kind: 'job', id: job.id },
      details: { action, done, failed, skipped, reason: 'cancelled' },
    });
    return changeJob(tx, job.id, ['cancelled'], { skipped });
  });
  if (!cancelled) return reread(ctx, job.id);
  ctx.commands.announceEnds(ends);
  ctx.jobs.changed(cancelled);
  return cancelled;
}

/**
 * Tries failed rows again, and those that a job could not come to. @throws PlatformError 403/21 for somebody else's, 400/106 for one
 * that was undone, or cancelled (an undo goes on: there is no other way back), 429/-199 where too many are open.
 */
export async function retryJob(ctx: JobStoreServices, caller: Caller, job: Job): Promise<Job> {
  if (!isMaker(caller, job))
    throw new PlatformError('forbidden', { message: 'Only the caller that created the job can retry it.' });
  const isCancelled = job.state === 'cancelled';
  if (isCancelled && parametersOf(job).undoes === undefined) throw invalid('id', 'the job has been cancelled');
  // It could not be undone any more.
  if (job.undone !== null) throw invalid('id', 'the job has been undone');
  const { total, done } = job;
  // A cancelled job did not reach the rows that it skipped.
  const skipped = isCancelled ? 0 : job.skipped;
  if (isOpen(job) || done + skipped === total) return job;
  demandRetriable(job);
  // Values sealed with a deleted key must not be mistaken for values of the new key.
  if (job.sealedKey === null) await clearRows(ctx, job.id, () => false);
  const again = await writeAs(ctx, caller, undefined, async (tx) => {
    const stored = tx.selectFrom('jobs').select(['sealedKey', 'undone', 'keptRows']).where('id', '=', job.id);
    const current = await stored.executeTakeFirstOrThrow();
    // A key that has been destroyed meanwhile must not come back.
    if (current.sealedKey !== job.sealedKey || current.undone !== null) return undefined;
    demandRetriable(current);
    await demandRoom(tx, caller);
    const sealedKey = job.sealedKey ?? (hasResults(job) ? makeResultKey(ctx.sealing, job.id) : null);
    const parameters = JSON.stringify({ ...parametersOf(job), retrying: true } satisfies Parameters);
    const over = { finished: null, expires: null, confirmed: null, reason: null };
    return changeJob(tx, job.id, [job.state], { state: 'pending', skipped, parameters, sealedKey, ...over });
  });
  if (!again) return reread(ctx, job.id);
  ctx.jobs.changed(again);
  ctx.jobs.wake();
  return again;
}

/** @throws PlatformError 400/106 when its rows have been removed. */
function demandRetriable({ keptRows }: Pick<Job, 'keptRows'>): void {
  if (keptRows === 0) throw invalid('id', 'the rows of the job have been removed');
}

/** Destroys the results of a job: their key at once, the rows soon after. */
export async function confirmJob(ctx: JobStoreServices, caller: Caller, job: Job): Promise<Job> {
  const confirmed = await writeAs(ctx, caller, undefined, async (tx) => {
    const now = timestamp(ctx.clock);
    const changes = { sealedKey: null, confirmed: now, expires: now };
    const changed = await changeJob(tx, job.id, ['succeeded', 'failed', 'cancelled'], changes);
    if (!changed) return undefined;
    await ctx.audit.record(tx, {
      event: 'jobResultsConfirmed',
      outcome: 'success',
      accountId: job.accountId,
      actor: caller,
      target: { kind: 'job', id: job.id },
    });
    return changed;
  });
  if (!confirmed) return reread(ctx, job.id);
  ctx.jobs.changed(confirmed);
  ctx.jobs.keyDestroyed();
  return confirmed;
}

async function reread({ registry }: JobStoreServices, id: string): Promise<Job> {
  return registry.query.selectFrom('jobs').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
}
