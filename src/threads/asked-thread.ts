/** A thread that answers questions one after the other, seen from here. It starts when it is asked, and rests when it is not. */
import type { Worker } from 'node:worker_threads';
import { exitOf, startThread } from '../../db/sqlite/threads.ts';

export type Asked<Q> = { question: Q } | { close: true };
export type Answered<A> = { answer: A } | { failure: string };

/** Milliseconds without a question after which the thread ends. */
const restsAfter = 60_000;

interface Waiting<A> {
  resolve(answer: A): void;
  reject(error: Error): void;
}

export class AskedThread<Q, A> {
  readonly #file: URL;
  readonly #name: string;
  #worker: Worker | undefined;
  #waiting: Array<Waiting<A>> = [];
  #rest: NodeJS.Timeout | undefined;
  #closing: Promise<void> = Promise.resolve();
  #closed = false;

  /** `file` is a worker that calls `answerQuestions`; errors name it as `name`. */
  constructor(file: URL, name: string) {
    this.#file = file;
    this.#name = name;
  }

  /** Answers come in the order of the questions. Rejects when the thread fails, or has been closed. */
  ask(question: Q): Promise<A> {
    if (this.#closed) return Promise.reject(new Error(`${this.#name} is closed.`));
    clearTimeout(this.#rest);
    this.#worker ??= this.#start();
    const worker = this.#worker;
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      worker.postMessage({ question } satisfies Asked<Q>);
    });
  }

  /** Ends the thread after what it has been asked. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#endThread();
    await this.#closing;
  }

  #endThread(): void {
    clearTimeout(this.#rest);
    const worker = this.#worker;
    if (!worker) return;
    this.#closing = Promise.all([this.#closing, exitOf(worker)]).then(() => {});
    worker.postMessage({ close: true } satisfies Asked<Q>);
  }

  #start(): Worker {
    const worker = startThread(this.#file, {});
    const waiting: Array<Waiting<A>> = [];
    this.#waiting = waiting;
    let cause = new Error(`${this.#name} has ended.`);
    worker.on('message', (answered: Answered<A>) => {
      const asking = waiting.shift();
      if ('failure' in answered) asking?.reject(new Error(answered.failure));
      else asking?.resolve(answered.answer);
      if (waiting.length > 0 || this.#closed) return;
      this.#rest = setTimeout(() => {
        this.#endThread();
        // Anyone who asks while it ends starts another.
        if (this.#worker === worker) this.#worker = undefined;
      }, restsAfter);
      this.#rest.unref();
    });
    worker.on('error', (error) => {
      cause = error as Error;
    });
    worker.on('exit', () => {
      if (this.#worker === worker) this.#worker = undefined;
      for (const { reject } of waiting.splice(0)) reject(cause);
    });
    return worker;
  }
}
