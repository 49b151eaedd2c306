/**
 * Runs jobs: some rows at a time, each share in one transaction with what it says of its rows, so that a
 * job goes on after any end of the process where it was, and nothing is made twice.
 */
import { AsyncResource } from 'node:async_hooks';
import { join } from 'node:path';
import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises';
import { sql } from 'kysely';
import { isStoreBusy } from '../../../db/registry/index.ts';
import { PlatformError } from '../../core/errors.ts';
import { areTooMany, minEnded } from '../../core/failure-limit.ts';
import { onBehalfOf } from '../../core/log.ts';
import type { Lane } from '../../core/scheduler/lanes.ts';
import { joinRun } from '../../core/scheduler/runs.ts';
import { Scheduler, type Turn, unbounded } from '../../core/scheduler/scheduler.ts';
import { inThread, writeAs } from '../../entity/verbs.ts';
import { Equipping } from '../provisioning/equipping.ts';
import { provision } from '../provisioning/provision.ts';
import { dropJob, endResults, forgetOldRows } from '../results/expiry.ts';
import { ResultSeal } from '../results/store.ts';
import { Bell } from './bell.ts';
import { command, move, regenerate, remove, undoDelete, undoMove } from './bulk.ts';
import { isOpen, type Job, type JobAction, type Pacing, parametersOf, receiving, workerOf } from './job.ts';
import { isLong, nextSize, paceOf, pendingRows, standOf, storeOutcomes } from './shares.ts';
import { endJob, startJob } from './transitions.ts';
import { givenRow, type JobServices, type OpenWork, type Prepared, type Run, type Work } from './work.ts';

/** Jobs that run at once. Accounts take turns, then callers: a job gives its place away after some rows while others wait. */
const maxRunning = 2;
const rowsOfTurn = 500;
/** Shares that are looked at and hashed before they can be written. */
const sharesAhead = 2;
/** Milliseconds between two looks for results whose time is over. */
const lookEvery = 60_000;
/** Milliseconds until a job is begun again that could neither go on nor be ended, or not write now. */
const retryAfter = 1000;

const works: Readonly<Record<JobAction, OpenWork>> = {
  provision,
  delete: remove,
  move,
  regenerate,
  command,
  undoDelete,
  undoMove,
};

/** What makes the registry grow. */
const growing: ReadonlySet<string> = new Set<JobAction>(['provision', 'command']);

/** Rows of a job, looked at. */
interface Share {
  count: number;
  prepared: Prepared;
}

/** A job that cannot go on. */
class Stopped extends Error {}

/**
 * How a turn of a job has ended: the job is over, others take their turns, it waits for the end of what is open, or it is tried again
 * after a pause.
 */
type TurnEnd = 'over' | 'yields' | 'waits' | 'fails';

export class Jobs {
  readonly #ctx: JobServices;
  readonly #equipping: Equipping;
  // Open jobs have a limit of their own.
  readonly #queue = new Scheduler({ atOnce: maxRunning, quantum: rowsOfTurn, maxWaiting: unbounded });
  /** Jobs that run or wait for their turn, by id. */
  readonly #open = new Map<string, Promise<void>>();
  /** What wakes those of them that wait for the end of what is open. */
  readonly #bells = new Map<string, Bell>();
  /** Jobs that wait for that. */
  #resting = 0;
  readonly #watchers = new Map<string, Set<(job: Job) => void>>();
  /** In the context of the start: a job belongs to no request. */
  readonly #fill: () => void;
  #timer: NodeJS.Timeout | undefined;
  #looking = Promise.resolve();
  #filling = Promise.resolve();
  #stopped = false;
  /** Whether the log of the database may hold keys that were destroyed. */
  #hasRemains = true;

  constructor(ctx: JobServices) {
    this.#ctx = ctx;
    this.#equipping = new Equipping(join(ctx.config.dataDir, 'keys'));
    this.#fill = AsyncResource.bind(() => {
      this.#filling = this.#filling
        .then(() => this.#queueOpenJobs())
        .catch((error) => this.#log(error, 'jobs cannot begin'));
    });
  }

  /** Goes on with what an end of the process has broken off. To be called before there are requests. */
  async start(): Promise<void> {
    const { gate, registry } = this.#ctx;
    const halves = registry.query.selectFrom('jobs').select('id').where('state', '=', receiving);
    this.#dropJobs(await halves.where('accountId', 'not in', gate.away).execute());
    this.#timer = setInterval(() => this.destroyDueResults(), lookEvery);
    this.#timer.unref();
    this.destroyDueResults();
    this.wake();
  }

  /** Accounts will be handled here: jobs that were being sent are dropped. Their requests come later, and `wake` too. */
  async actFor(accounts: readonly string[]): Promise<void> {
    const halves = this.#ctx.registry.query.selectFrom('jobs').select('id').where('state', '=', receiving);
    this.#dropJobs(await halves.where('accountId', 'in', accounts).execute());
    // Elsewhere, commands of jobs that wait here may have ended.
    this.#ringAll();
  }

  #ringAll(): void {
    for (const bell of this.#bells.values()) bell.ring();
  }

  /** Resolves when no job is at work; those that are open go on at the next start. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#timer);
    this.#ringAll();
    await this.#filling;
    await Promise.all(this.#open.values());
    await this.#equipping.close();
    await this.#looking;
  }

  /** Jobs at work. */
  get running(): number {
    return this.#queue.running;
  }

  /** Jobs that wait until others have ended. */
  async waiting(): Promise<number> {
    const { query } = this.#ctx.registry;
    const { open } = await query
      .selectFrom('jobs')
      .select((eb) => eb.fn.countAll<number>().as('open'))
      .where(sql<boolean>`"state" in ('pending', 'running')`)
      .executeTakeFirstOrThrow();
    return Math.max(0, open - this.running - this.#resting);
  }

  /** There may be a job to begin. */
  wake(): void {
    if (!this.#stopped) this.#fill();
  }

  /** Calls `hear` at every change of a job, until the returned function is called. */
  watchJob(jobId: string, hear: (job: Job) => void): () => void {
    const watchers = this.#watchers.get(jobId) ?? new Set();
    this.#watchers.set(jobId, watchers.add(hear));
    return () => {
      watchers.delete(hear);
      if (watchers.size === 0 && this.#watchers.get(jobId) === watchers) this.#watchers.delete(jobId);
    };
  }

  /** To be told after the commit that has changed a job. */
  changed(job: Job): void {
    for (const hear of [...(this.#watchers.get(job.id) ?? [])]) hear(job);
    if (!isOpen(job)) this.#bells.get(job.id)?.ring();
  }

  /** Jobs whose rows have not all come, and never will. */
  #dropJobs(jobs: ReadonlyArray<{ id: string }>): void {
    this.#looking = this.#looking
      .then(async () => {
        for (const { id } of jobs) if (!this.#stopped) await dropJob(this.#ctx, id);
      })
      .catch((error) => this.#log(error, 'a job could not be removed'));
  }

  /** Queues every open job, oldest first. */
  async #queueOpenJobs(): Promise<void> {
    const { query } = this.#ctx.registry;
    const open = await query
      .selectFrom('jobs')
      .select(['id', 'accountId', 'createdById'])
      // As the index has it: a parameter would not find it.
      .where(sql<boolean>`"state" in ('pending', 'running')`)
      .orderBy('created')
      .execute();
    for (const { id, accountId, createdById } of open) {
      if (this.#stopped || this.#open.has(id) || this.#ctx.gate.isAway(accountId)) continue;
      const lane = { accountId, callerId: createdById };
      const ended = joinRun(this.#open, id, () =>
        onBehalfOf({ cause: { jobId: id }, lane }, () => this.#goThrough(id, lane)),
      );
      void ended.then(() => this.wake());
    }
  }

  /** Runs a job in as many turns as it needs. Never rejects. */
  async #goThrough(id: string, lane: Lane): Promise<void> {
    const bell = new Bell();
    this.#bells.set(id, bell);
    const unwatch = this.#ctx.commands.endsOfJobs.addWatcher(id, () => bell.ring());
    const run = (turn: Turn): Promise<TurnEnd> => {
      bell.silence();
      return this.#run(id, lane, turn);
    };
    for (let place: 'last' | 'first' = 'last'; ; ) {
      const end: TurnEnd = await this.#queue.run(lane, 0, run, place);
      // One of an account that is away is begun again when the account is back.
      if (end === 'over' || this.#stopped || this.#ctx.gate.isAway(lane.accountId)) break;
      // It is still open: it is begun again, but not over and over.
      if (end === 'fails') await pause(retryAfter);
      if (end === 'waits') await this.#rest(bell);
      place = end === 'waits' ? 'last' : 'first';
    }
    unwatch();
    this.#bells.delete(id);
  }

  async #rest(bell: Bell): Promise<void> {
    this.#resting += 1;
    await bell.heard();
    this.#resting -= 1;
  }

  /** A step that writes: not while the account is away. */
  #step<R>({ accountId }: Pick<Lane, 'accountId'>, step: () => Promise<R>): Promise<R> {
    const { gate } = this.#ctx;
    return gate.work(async () => {
      if (gate.isAway(accountId)) throw new Stopped();
      return step();
    });
  }

  async #run(id: string, lane: Lane, turn: Turn): Promise<TurnEnd> {
    try {
      return await this.#work(await this.#starting(id, lane), turn);
    } catch (error) {
      if (error instanceof Stopped) return 'over';
      if (isStoreBusy(error)) {
        this.#log(error, 'a job waits: another program holds the database');
        return 'fails';
      }
      const isRefused = error instanceof PlatformError;
      if (!isRefused) this.#log(error, 'a job could not go on');
      const reason = isRefused ? error.message : 'An unexpected error occurred.';
      try {
        await this.#step(lane, () => this.#endJob(id, 'failed', reason));
        return 'over';
      } catch (again) {
        if (again instanceof Stopped) return 'over';
        this.#log(again, 'a job could not be ended');
        return 'fails';
      }
    }
  }

  /** The job as it begins or goes on; failed rows that are to be tried again are pending from now on. */
  async #starting(id: string, lane: Lane): Promise<Job> {
    const { registry } = this.#ctx;
    for (;;) {
      if (this.#stopped) throw new Stopped();
      const started = await this.#step(lane, () => startJob(registry, id));
      if (!started) throw new Stopped();
      this.changed(started);
      if (!parametersOf(started).retrying) return started;
      await nextTurn();
    }
  }

  /**
   * Goes through the rows until they are done, or others are to have their turn: while one share is written, the next ones
   * are looked at and hashed.
   */
  async #work(job: Job, turn: Turn): Promise<TurnEnd> {
    const ctx = this.#ctx;
    const seal = ResultSeal.of(ctx, job);
    const run: Run = { ctx, job, parameters: parametersOf(job), equipping: this.#equipping, seal };
    const work = works[job.action as JobAction](run);
    if (run.parameters.pacing) return this.#workPaced(job, work, run.parameters.pacing, turn);
    const pace = paceOf(job);
    let size = pace.first;
    let after = 0;
    let reading: Promise<void> = Promise.resolve();
    const look = (): Promise<Share | undefined> => {
      const read = reading.then(() => pendingRows(ctx.registry.query, job.id, after, size));
      reading = read.then((rows) => {
        after = rows.at(-1)?.row ?? after;
      });
      const share = read.then(async (rows) =>
        rows.length > 0
          ? { count: rows.length, prepared: await work(workerOf(ctx, job), rows.map(givenRow)) }
          : undefined,
      );
      // Should another share end the job, nobody waits for this one.
      for (const promise of [reading, share]) promise.catch(() => {});
      return share;
    };
    const ahead = Array.from({ length: sharesAhead }, look);
    for (let rows = 0; ahead.length > 0; ) {
      const share = await ahead.shift();
      if (!share) {
        await this.#step(job, () => this.#endJob(job.id, 'succeeded', null));
        return 'over';
      }
      if (this.#stopped) throw new Stopped();
      rows += share.count;
      turn.charge(share.count);
      // Prepared rows are written before other jobs have their turn.
      if (rows < rowsOfTurn || !turn.othersWait) ahead.push(look());
      const held = await this.#step(job, () => this.#write(job, share.prepared));
      // Other writers wait for one share of each running job.
      size = nextSize(pace, share.count, held * this.running);
      await nextTurn();
    }
    return 'yields';
  }

  /** The same where rows stay open when they are written: so many at once, and no more of them once too many have failed. */
  async #workPaced(job: Job, work: Work, { atOnce, maxFailurePercent }: Pacing, turn: Turn): Promise<TurnEnd> {
    const ctx = this.#ctx;
    const { query } = ctx.registry;
    const pace = paceOf(job);
    for (let size = pace.first; ; ) {
      if (this.#stopped) throw new Stopped();
      const { open, done, failures } = await standOf(query, job.id);
      const ended = done + failures;
      if (ended >= minEnded && areTooMany({ failures, ended }, maxFailurePercent)) {
        const reason = `${failures} of ${ended} commands that have ended have failed.`;
        await this.#step(job, () => this.#endJob(job.id, 'failed', reason));
        return 'over';
      }
      const room = Math.min(size, atOnce - open);
      const rows = room > 0 ? await pendingRows(query, job.id, 0, room) : [];
      if (rows.length === 0) {
        if (open > 0) return 'waits';
        await this.#step(job, () => this.#endJob(job.id, 'succeeded', null));
        return 'over';
      }
      const prepared = await work(workerOf(ctx, job), rows.map(givenRow));
      turn.charge(rows.length);
      const held = await this.#step(job, () => this.#write(job, prepared));
      size = nextSize(pace, rows.length, held * this.running);
      await nextTurn();
      if (turn.othersWait) return 'yields';
    }
  }

  /** Writes one share; how long that has held the event loop, in milliseconds. */
  async #write(job: Job, prepared: Prepared): Promise<number> {
    const caller = workerOf(this.#ctx, job);
    // What moves or removes devices makes nothing grow.
    if (growing.has(job.action)) this.#ctx.keeping.demandRoom(job.accountId);
    let held = 0;
    const changed = await writeAs(this.#writing(job), caller, undefined, async (tx) => {
      const from = performance.now();
      const { state } = await tx.selectFrom('jobs').select('state').where('id', '=', job.id).executeTakeFirstOrThrow();
      if (state !== 'running') throw new Stopped();
      const outcomes = await prepared.write(tx, caller);
      const counted = await storeOutcomes(tx, job.id, outcomes);
      held = performance.now() - from;
      return counted;
    });
    await prepared.after?.(caller);
    this.changed(changed);
    return held;
  }

  /** How the shares of a job are written. */
  #writing(job: Job): Parameters<typeof writeAs>[0] {
    return isLong(job) ? inThread(this.#ctx.registry) : this.#ctx;
  }

  async #endJob(id: string, state: 'succeeded' | 'failed', reason: string | null): Promise<void> {
    const ended = await endJob(this.#ctx, id, state, reason);
    if (ended) this.changed(ended);
  }

  /** The key of a job has been destroyed: what it has sealed goes as well. */
  keyDestroyed(): void {
    this.#hasRemains = true;
    this.destroyDueResults();
  }

  /** There may be results to destroy. */
  destroyDueResults(): void {
    this.#looking = this.#looking
      .then(async () => {
        const { gate } = this.#ctx;
        const ended = await gate.work(() => endResults(this.#ctx, (account) => this.#stopped || gate.isAway(account)));
        for (const job of ended) this.changed(job);
        this.#hasRemains ||= ended.length > 0;
        // Keys that were destroyed are still in there.
        if (this.#hasRemains) this.#hasRemains = !this.#ctx.registry.emptyLog();
        await gate.work(() => forgetOldRows(this.#ctx, (account) => this.#stopped || gate.isAway(account)));
      })
      .catch((error) => this.#log(error, 'results could not be destroyed'));
  }

  #log(error: unknown, what: string): void {
    this.#ctx.log.error({ err: error }, what);
  }
}
