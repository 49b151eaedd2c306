/** The thread that equips units, seen from here. It runs while there are jobs that need it. */
import type { Worker } from 'node:worker_threads';
import { exitOf, startThread } from '../../../db/sqlite/threads.js';
import type { Job } from '../jobs/job.js';

/** A unit before it has a secret. */
export interface Bare {
  row: number;
  serialNumber: string;
  deviceTemplateId: string;
}

/** The stored forms of its secret and its code: hashed, and sealed. */
export interface Equipped {
  secretHash: string;
  codeHash: string;
  sealedResult: Uint8Array;
}

export interface Wanted {
  /** Of the question: a small one may be answered before one that was asked earlier. */
  id: number;
  job: Pick<Job, 'id' | 'accountId' | 'sealedKey'>;
  units: readonly Bare[];
}
export type Asked = Wanted | { close: true };
export type Answered = Pick<Wanted, 'id'> & ({ equipped: Equipped[] } | { failure: string });

interface Waiting {
  resolve(equipped: Equipped[]): void;
  reject(error: Error): void;
}

export class Equipping {
  readonly #keys: string;
  #worker: Worker | undefined;
  /** Pending answers, by thread and question. */
  readonly #waiting = new WeakMap<Worker, Map<number, Waiting>>();
  #asked = 0;

  /** `keys` is the directory with the sealing key. */
  constructor(keys: string) {
    this.#keys = keys;
  }

  /** Makes a secret and a code for each unit, in their order. Rejects when the thread fails. */
  equip({ id, accountId, sealedKey }: Wanted['job'], units: readonly Bare[]): Promise<Equipped[]> {
    if (units.length === 0) return Promise.resolve([]);
    this.#worker ??= this.#start();
    const worker = this.#worker;
    this.#asked += 1;
    const question = this.#asked;
    return new Promise((resolve, reject) => {
      this.#waiting.get(worker)?.set(question, { resolve, reject });
      worker.postMessage({ id: question, job: { id, accountId, sealedKey }, units } satisfies Asked);
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

  #start(): Worker {
    const worker = startThread(new URL('./equip-worker.js', import.meta.url), { keys: this.#keys });
    const waiting = new Map<number, Waiting>();
    this.#waiting.set(worker, waiting);
    let cause = new Error('The thread that equips units has ended.');
    worker.on('message', (answered: Answered) => {
      const asking = waiting.get(answered.id);
      waiting.delete(answered.id);
      if ('failure' in answered) asking?.reject(new Error(answered.failure));
      else asking?.resolve(answered.equipped);
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
