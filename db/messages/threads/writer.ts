/** The thread that writes messages.db, seen from here: what is on its way to it, and its next life when it dies. */
import type { Worker } from 'node:worker_threads';
import { Commits } from '../../sqlite/commits.ts';
import { errorOf } from '../../threads/asked-thread.ts';
import { exitOf, startThread } from '../../threads/thread.ts';
import type { Answer, HeldBytes, Order, StoreEnd, WorkerSettings } from './protocol.ts';

export interface StoreLog {
  error(details: object, message: string): void;
}

/** A request to the worker, and the callback for its answer. */
export interface Job {
  order: Order;
  settle(failure: Error | undefined, more: boolean, end?: StoreEnd): void;
}

/** One transaction is written while the next is on its way; more would only wait there. */
const ordersInFlight = 2;
/** Milliseconds from the death of a worker to the start of the next. */
const restartDelay = 1000;

/** It is no AskedThread: the worker is given what has gathered as soon as it has room, and when it has died another one goes on. */
export class SeriesWriter {
  readonly commits = new Commits();
  readonly #path: string;
  readonly #mark: string | undefined;
  readonly #log: StoreLog;
  /** Asked for the next job when there is room for one. */
  readonly #next: () => Job | undefined;
  /** Undefined until it has opened the file, and after its death. */
  #worker: Worker | undefined;
  #starting: Promise<void> | undefined;
  #restart: NodeJS.Timeout | undefined;
  readonly #inFlight: Job[] = [];
  #closing = false;
  #held: HeldBytes = { size: 0, unused: 0, outboxPending: 0, largest: 0 };
  readonly #outboxPending = new Map<string, number>();
  /** Told after each answer. */
  readonly #sized: () => void;
  #drained: (() => void) | undefined;

  constructor(
    path: string,
    options: { log: StoreLog; mark?: string | undefined; next(): Job | undefined; sized(): void },
  ) {
    this.#path = path;
    this.#mark = options.mark;
    this.#log = options.log;
    this.#next = options.next;
    this.#sized = options.sized;
  }

  get available(): boolean {
    return this.#worker !== undefined;
  }

  /** As of the last answer. */
  get held(): HeldBytes {
    return this.#held;
  }

  /** Bytes that bridges have still to deliver, by account, as of the last answer. */
  get outboxPending(): ReadonlyMap<string, number> {
    return this.#outboxPending;
  }

  /** Hands over what there is room for; without a worker everything fails. */
  send(): void {
    const worker = this.#worker;
    if (!worker) {
      this.#failAll(unavailable());
      return;
    }
    while (this.#inFlight.length < ordersInFlight) {
      const job = this.#next();
      if (!job) break;
      this.#inFlight.push(job);
      worker.postMessage(job.order, 'write' in job.order ? [job.order.write.points.buffer as ArrayBuffer] : []);
    }
    if (this.#inFlight.length === 0) this.#drained?.();
  }

  /** Resolves when the thread has opened the file. */
  start(): Promise<void> {
    this.#starting = new Promise((resolve, reject) => {
      const settings: WorkerSettings = { path: this.#path, mark: this.#mark };
      const worker = startThread(new URL('./writer-worker.ts', import.meta.url), settings);
      let cause = new Error('The writer of the message store has ended.');
      worker.on('message', (answer: Answer) => {
        if (!('failure' in answer)) this.#holdAnswer(answer);
        if (!('ready' in answer)) return this.#answered(answer);
        this.#worker = worker;
        resolve();
      });
      worker.on('error', (error) => {
        cause = error;
      });
      worker.on('exit', () => {
        reject(cause);
        if (this.#worker === worker) this.#died(cause);
      });
    });
    return this.#starting;
  }

  #holdAnswer(answer: Exclude<Answer, { failure: unknown }>): void {
    this.#held = answer;
    if ('ready' in answer) this.#outboxPending.clear();
    for (const [accountId, bytes] of answer.outbox)
      if (bytes > 0) this.#outboxPending.set(accountId, bytes);
      else this.#outboxPending.delete(accountId);
  }

  /** Resolves when every job has been answered; no worker is started again. */
  async drain(): Promise<void> {
    this.#closing = true;
    clearTimeout(this.#restart);
    await this.#starting?.catch(() => {});
    if (!this.#worker && this.#inFlight.length === 0) return;
    await new Promise<void>((resolve) => {
      this.#drained = resolve;
      this.send();
    });
  }

  /** Ends the thread; what has not been answered fails. */
  async endThread(cause: Error): Promise<void> {
    const worker = this.#worker;
    if (worker) {
      this.#worker = undefined;
      const exited = exitOf(worker);
      worker.postMessage({ close: true } satisfies Order);
      await exited;
    }
    this.#failAll(cause);
  }

  #answered(answer: Exclude<Answer, { ready: true }>): void {
    const job = this.#inFlight.shift();
    if ('failure' in answer) {
      const failure = errorOf(answer.failure);
      this.commits.failed(failure);
      this.#log.error({ err: failure }, 'A transaction of the message store has failed.');
      job?.settle(failure, false);
    } else {
      this.commits.succeeded(answer.commitTime);
      job?.settle(undefined, answer.more, answer.end);
    }
    this.#sized();
    this.send();
  }

  #died(cause: Error): void {
    this.#worker = undefined;
    this.#log.error({ err: cause }, 'The writer of the message store has ended; it is started again.');
    this.#failAll(cause);
    this.#drained?.();
    this.#restartLater();
  }

  #restartLater(): void {
    if (this.#closing) return;
    this.#restart = setTimeout(() => {
      this.start().catch((error) => {
        this.#log.error({ err: error }, 'The writer of the message store does not start.');
        this.#restartLater();
      });
    }, restartDelay);
  }

  #failAll(error: Error): void {
    const jobs = this.#inFlight.splice(0);
    for (let job = this.#next(); job; job = this.#next()) jobs.push(job);
    for (const job of jobs) job.settle(error, false);
  }
}

export function unavailable(): Error {
  return new Error('The message store is not available: its writer has ended.');
}
