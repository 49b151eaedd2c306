/** How a job goes on, as server-sent events (decisions 6). */
import { Readable } from 'node:stream';
import type { Caller } from '../../access.js';
import type { Context } from '../../context.js';
import { currentCaller } from '../../entity/authorized-write.js';
import { PlatformError } from '../../errors.js';
import { findJob, isOpen, type Job, showJob } from './job.js';

/** Milliseconds between two events, between two heartbeats, and between two looks at the reader's rights. */
const eventInterval = 250;
const heartbeatInterval = 15_000;
const lookInterval = 1000;
/** Streams of one caller. */
const mostStreams = 20;
/** Bytes that may wait for a reader. */
const mostWaiting = 65_536;

/** The open streams of a server. */
export class JobStreams {
  readonly #ctx: Context;
  readonly #open = new Map<Readable, string>();

  constructor(ctx: Context) {
    this.#ctx = ctx;
  }

  /**
   * A job at once and whenever it has changed; it ends with the job, and with the caller's right to see it.
   * @throws PlatformError 404/100; 429/-199 for too many of one caller.
   */
  async open(caller: Caller, id: string): Promise<Readable> {
    const own = [...this.#open.values()].filter((one) => one === caller.id).length;
    if (own >= mostStreams) {
      const allowance = { limit: mostStreams, remaining: 0, reset: heartbeatInterval / 1000 };
      throw new PlatformError('tooMany', { message: 'Too many streams of one caller.', allowance });
    }
    const body = new Readable({ read() {} });
    const stream = new JobStream(body, () => this.#isPermitted(caller));
    // Watched before it is read, so that no change falls in between.
    const unwatch = this.#ctx.jobs.watch(id, (changed) => stream.hear(changed));
    this.#open.set(body, caller.id);
    body.once('close', () => {
      unwatch();
      stream.close();
      this.#open.delete(body);
    });
    try {
      stream.hear(await findJob(this.#ctx, caller, id));
    } catch (error) {
      body.destroy();
      throw error;
    }
    return body;
  }

  /** A server that closes waits for its answers, and these may be long. */
  endAll(): void {
    for (const body of [...this.#open.keys()]) body.destroy();
  }

  /** Asked by timers, where an error would end the process: when nobody can say, no. */
  #isPermitted(caller: Caller): boolean {
    const { access, log } = this.#ctx;
    try {
      const current = currentCaller(this.#ctx, caller);
      return current?.kind === caller.kind && access.may(current, 'read', 'job');
    } catch (error) {
      log.error({ err: error }, 'the reader of a job could not be looked at');
      return false;
    }
  }
}

class JobStream {
  readonly #body: Readable;
  readonly #isPermitted: () => boolean;
  readonly #timers: NodeJS.Timeout[];
  #latest: Job | undefined;
  #ended = false;
  #pending: NodeJS.Timeout | undefined;
  #sent = Number.NEGATIVE_INFINITY;

  constructor(body: Readable, isPermitted: () => boolean) {
    this.#body = body;
    this.#isPermitted = isPermitted;
    const beat = setInterval(() => body.push(': heartbeat\n\n'), heartbeatInterval);
    const look = setInterval(() => isPermitted() || body.destroy(), lookInterval);
    this.#timers = [beat, look];
    for (const timer of this.#timers) timer.unref();
  }

  hear(job: Job): void {
    if (this.#ended) return;
    this.#latest = job;
    const wait = this.#sent + eventInterval - performance.now();
    if (!isOpen(job) || wait <= 0) this.#send();
    else this.#pending ??= setTimeout(() => this.#send(), wait);
  }

  #send(): void {
    clearTimeout(this.#pending);
    this.#pending = undefined;
    if (this.#ended || !this.#latest) return;
    if (!this.#isPermitted() || this.#body.readableLength > mostWaiting) {
      this.#body.destroy();
      return;
    }
    this.#sent = performance.now();
    this.#body.push(`event: job\ndata: ${JSON.stringify(showJob(this.#latest))}\n\n`);
    if (isOpen(this.#latest)) return;
    this.close();
    this.#body.push(null);
  }

  close(): void {
    this.#ended = true;
    clearTimeout(this.#pending);
    for (const timer of this.#timers) clearInterval(timer);
  }
}
