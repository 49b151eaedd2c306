/** The thread that equips units, seen from here. It runs while there are jobs that need it. */
import type { Worker } from 'node:worker_threads';
import { exitOf, startThread } from '../../../db/sqlite/threads.ts';

/** What a unit is given, and what of it is stored. */
export interface Equipment {
  secret: string;
  code: string;
  secretHash: string;
  codeHash: string;
}

export interface Wanted {
  /** Of the question: a small one may be answered before one that was asked earlier. */
  id: number;
  accountId: string;
  count: number;
}
export type Asked = Wanted | { close: true };
export type Answered = Pick<Wanted, 'id'> & ({ equipment: Equipment[] } | { failure: string });

interface Waiting {
  resolve(equipment: Equipment[]): void;
  reject(error: Error): void;
}

export class Equipping {
  readonly #keys: string;
  #worker: Worker | undefined;
  /** Pending answers, by thread and question. */
  readonly #waiting = new WeakMap<Worker, Map<number, Waiting>>();
  #asked = 0;
  #ended = false;

  /** `keys` is the directory with the sealing key. */
  constructor(keys: string) {
    this.#keys = keys;
  }

  /** Makes a secret and a code for each of `count` units of an account. Rejects when the thread fails. */
  equip(accountId: string, count: number): Promise<Equipment[]> {
    if (count === 0) return Promise.resolve([]);
    if (this.#ended) return Promise.reject(new Error('No units are equipped any more.'));
    this.#worker ??= this.#start();
    const worker = this.#worker;
    this.#asked += 1;
    const question = this.#asked;
    return new Promise((resolve, reject) => {
      this.#waiting.get(worker)?.set(question, { resolve, reject });
      worker.postMessage({ id: question, accountId, count } satisfies Asked);
    });
  }

  /** Lets the thread end when it has answered; the next question starts another. */
  async close(): Promise<void> {
    const worker = this.#worker;
    if (!worker) return;
    this.#worker = undefined;
    const exited = exitOf(worker);
    // Terminated in the middle of a hash it would end the process.
    worker.postMessage({ close: true } satisfies Asked);
    await exited;
  }

  /** As close; later questions are refused: rows of a job that was cancelled may still be on their way to one. */
  closeForGood(): Promise<void> {
    this.#ended = true;
    return this.close();
  }

  #start(): Worker {
    const worker = startThread(new URL('./equip-worker.ts', import.meta.url), { keys: this.#keys });
    const waiting = new Map<number, Waiting>();
    this.#waiting.set(worker, waiting);
    let cause = new Error('The thread that equips units has ended.');
    worker.on('message', (answered: Answered) => {
      const asking = waiting.get(answered.id);
      waiting.delete(answered.id);
      if ('failure' in answered) asking?.reject(new Error(answered.failure));
      else asking?.resolve(answered.equipment);
    });
    worker.on('error', (error) => {
      cause = error as Error;
    });
    worker.on('exit', () => {
      if (this.#worker === worker) this.#worker = undefined;
      for (const { reject } of waiting.values()) reject(cause);
      waiting.clear();
    });
    return worker;
  }
}
