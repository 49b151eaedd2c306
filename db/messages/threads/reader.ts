/** The thread that reads messages.db where the event loop would wait too long, seen from here. */
import { AskedThread } from '../../threads/asked-thread.ts';
import type { Reads } from './reads.ts';

type Question<N extends keyof Reads> = Parameters<Reads[N]>[0];
type AnswerOf<N extends keyof Reads> = ReturnType<Reads[N]>;

export type ReadQuestion = { [N in keyof Reads]: { name: N; question: Question<N> } }[keyof Reads];
export type ReadAnswer = AnswerOf<keyof Reads>;

export class MessageReader {
  readonly #thread: AskedThread<ReadQuestion, ReadAnswer>;

  /** Reads the files in `directory`, which exist when it is asked for the first time. */
  constructor(directory: string) {
    const file = new URL('./reader-worker.ts', import.meta.url);
    this.#thread = new AskedThread(file, 'The reader of the message store', { directory });
  }

  /** Questions that have not been answered. */
  get waiting(): number {
    return this.#thread.waiting;
  }

  /** Reads everything that is committed when the thread begins. Rejects if the read fails or the thread ends. */
  ask<N extends keyof Reads>(name: N, question: Question<N>): Promise<AnswerOf<N>> {
    return this.#thread.ask({ name, question } as ReadQuestion) as Promise<AnswerOf<N>>;
  }

  /** Ends the thread after what it has been asked. */
  close(): Promise<void> {
    return this.#thread.close();
  }
}
