/** Schemas that callers declare, and values that must fit them. A thread compiles and checks; accounts take turns. */
import { AskedThread } from '../../../db/threads/asked-thread.ts';
import { PlatformError } from '../../core/errors.ts';
import type { Lane } from '../../core/scheduler/lanes.ts';
import { Scheduler, unbounded } from '../../core/scheduler/scheduler.ts';
import type { SchemaAnswer, SchemaQuestion } from './compiled.ts';

/** Questions on their way to the thread and back; and characters of an ordinary one. */
const askedAtOnce = 2;
const ordinary = 4096;

export class Schemas {
  readonly #thread = new AskedThread<SchemaQuestion, SchemaAnswer>(
    new URL('./worker.ts', import.meta.url),
    'The checker of schemas',
  );
  // Requests wait here, one question each, and have limits of their own.
  readonly #queue = new Scheduler({ atOnce: askedAtOnce, maxWaiting: unbounded, quantum: ordinary });

  /** Questions that wait for the thread. */
  get waiting(): number {
    return this.#queue.waiting;
  }

  /**
   * The schema, as JSON, is one of an object and can be checked quickly; or `value`, as JSON, fits it.
   * @throws PlatformError 400/106 with the path of what is wrong, which begins with `place`; Error when the thread fails.
   */
  async demand(lane: Lane, question: SchemaQuestion): Promise<void> {
    const cost = question.schema.length + (question.value?.length ?? 0);
    const details = await this.#queue.run(lane, cost, () => this.#thread.ask(question));
    if (details.length > 0) throw new PlatformError('invalid', { details });
  }

  close(): Promise<void> {
    return this.#thread.close();
  }
}
