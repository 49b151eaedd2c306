/** The thread that reads messages.db where the event loop would wait too long, seen from here. It starts when it is asked. */
import type { Worker } from 'node:worker_threads';
import { exitOf, startThread } from '../../sqlite/threads.ts';
import type { Reads } from './reads.ts';

type Question<N extends keyof Reads> = Parameters<Reads[N]>[0];
type AnswerOf<N extends keyof Reads> = ReturnType<Reads[N]>;

export type Asked = { [N in keyof Reads]: { name: N; question: Question<N> } }[keyof Reads] | { close: true };
export type Answered = { answer: AnswerOf<keyof Reads> } | { failure: string };

interface Waiting {
  resolve(answer: AnswerOf<keyof Reads>): void;
  reject(error: Error): void;
}

export class MessageReader {
  readonly #directory: string;
  #worker: Worker | undefined;
  /** Pending answers, in the order of the questions. */
  #waiting: Waiting[] = [];
  #closed = false;

  /** Reads the files in `directory`, which exist when it is asked for the first time. */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Questions that have not been answered. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Reads everything that is committed when the thread begins. Rejects if the read fails or the thread ends. */
  ask<N extends keyof Reads>(name: N, question: Question<N>): Promise<AnswerOf<N>> {
    if (this.#closed) return Promise.reject(new Error('The message store is closed.'));
    this.#worker ??= this.#start();
    const worker = this.#worker;
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve: resolve as Waiting['resolve'], reject });
      worker.postMessage({ name, question });
    });
  }

  /** Ends the thread after what it has been asked. */
  async close(): Promise<void> {
    this.#closed = true;
    const worker = this.#worker;
    if (!worker) return;
    const exited = exitOf(worker);
    worker.postMessage({ close: true } satisfies Asked);
    await exited;
  }

  #start(): Worker {
    const worker = startThread(new URL('./reader-worker.ts', import.meta.url), { directory: this.#directory });
    let cause = new Error('The reader of the message store has ended.');
    worker.on('message', (answered: Answered) => {
      const waiting = this.#waiting.shift();
      if ('failure' in answered) waiting?.reject(new Error(answered.failure));
      else waiting?.resolve(answered.answer);
    });
    worker.on('error', (error) => {
      cause = error;
    });
    worker.on('exit', () => {
      // The next question starts another.
      this.#worker = undefined;
      for (const { reject } of this.#waiting.splice(0)) reject(cause);
    });
    return worker;
  }
}
