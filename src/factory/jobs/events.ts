/** How a job goes on, as server-sent events. */
import type { Readable } from 'node:stream';
import type { Caller } from '../../core/caller.ts';
import { currentCaller } from '../../entity/current-caller.ts';
import { ProgressStreams } from '../../http/answers/progress-streams.ts';
import type { FactoryContext } from '../context.ts';
import { findJob, isOpen, showJob } from './job.ts';

type JobEventServices = Pick<FactoryContext, 'access' | 'jobs' | 'log' | 'registry' | 'sessions'>;

/** The open streams of a server. */
export class JobStreams {
  readonly #ctx: JobEventServices;
  readonly #streams: ProgressStreams;

  constructor(ctx: JobEventServices) {
    this.#ctx = ctx;
    this.#streams = new ProgressStreams(ctx);
  }

  /**
   * A job at once and whenever it has changed; it ends with the job, and with the caller's right to see it.
   * @throws PlatformError 404/100; 429/-199 for too many of one caller.
   */
  async open(caller: Caller, id: string): Promise<Readable> {
    const ctx = this.#ctx;
    await findJob(ctx, caller, id);
    return this.#streams.open(caller, {
      event: 'job',
      read: async () => {
        const job = await findJob(ctx, caller, id);
        return { data: showJob(job), ended: !isOpen(job) };
      },
      watch: (hear) => ctx.jobs.watchJob(id, (changed) => hear(!isOpen(changed))),
      isPermitted: () => {
        const current = currentCaller(ctx, caller);
        return current?.kind === caller.kind && ctx.access.may(current, 'read', 'job');
      },
    });
  }

  /** A server that closes waits for its answers, and these may be long. */
  endAll(): void {
    this.#streams.endAll();
  }
}
