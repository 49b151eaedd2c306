/** The threads of certificates, seen from here: one for single certificates, one for lists. Accounts take turns at each. */

import { AskedThread } from '../../../db/threads/asked-thread.ts';
import type { Lane } from '../../core/scheduler/lanes.ts';
import { Scheduler } from '../../core/scheduler/scheduler.ts';
import type { tasks } from './tasks.ts';

type Tasks = typeof tasks;
type Task = keyof Tasks;

export interface PkiQuestion {
  task: Task;
  given: unknown[];
}

/**
 * Questions on their way to a thread and back; it answers one after the other. Single certificates go on while the event
 * loop waits for a commit, and what is answered meanwhile shares the next one.
 */
const askedAtOnce = { single: 4, lists: 2 };
/** Those that may wait: a fleet that renews at once has an account of its own. */
const maxWaiting = { ofCaller: 1000, ofAccount: 4000 };

export class PkiThreads {
  readonly #single = new PkiThread('The thread of certificates', askedAtOnce.single);
  readonly #lists = new PkiThread('The thread of revocation lists', askedAtOnce.lists);

  /** Questions that wait for their turn. */
  get waiting(): number {
    return this.#single.waiting + this.#lists.waiting;
  }

  /** @throws PlatformError 429/-199 when the lane has too much waiting; Error when the thread fails. */
  ask<T extends Task>(lane: Lane, task: T, ...given: Parameters<Tasks[T]>): Promise<ReturnType<Tasks[T]>> {
    const thread = task === 'makeRevocationList' || task === 'readGivenList' ? this.#lists : this.#single;
    return thread.ask(lane, { task, given }) as Promise<ReturnType<Tasks[T]>>;
  }

  async close(): Promise<void> {
    await Promise.all([this.#single.close(), this.#lists.close()]);
  }
}

class PkiThread {
  readonly #thread: AskedThread<PkiQuestion, unknown>;
  readonly #queue: Scheduler;

  constructor(name: string, atOnce: number) {
    this.#queue = new Scheduler({ atOnce, maxWaiting });
    this.#thread = new AskedThread(new URL('./worker.ts', import.meta.url), name);
  }

  get waiting(): number {
    return this.#queue.waiting;
  }

  ask(lane: Lane, question: PkiQuestion): Promise<unknown> {
    return this.#queue.run(lane, 1, () => this.#thread.ask(question));
  }

  close(): Promise<void> {
    return this.#thread.close();
  }
}
