/** The worker's side of an AskedThread. */
import { parentPort } from 'node:worker_threads';

export type AskedQuestion<Q> = { id: number; question: Q } | { close: true };
export type Answered<A> = { id: number } & ({ answer: A } | { failure: Failure });

/** What can be said of an error between threads, where it loses its class. */
export interface Failure {
  message: string;
  code?: string | undefined;
}

/** What is done for the questions of one thread. */
interface Answering<Q, A> {
  answer(question: Q): A | Promise<A>;
  /** Buffers of an answer that it need not copy. */
  transferred?(answer: A): ArrayBuffer[];
  /** Nobody asks any more. */
  close?(): void;
}

/** Answers every question of the thread that started this one, each at once. */
export function answerQuestions<Q, A>({ answer, transferred = () => [], close }: Answering<Q, A>): void {
  const port = parentPort;
  if (!port) throw new Error('This file runs as a worker thread only.');
  port.on('message', async (asked: AskedQuestion<Q>) => {
    if ('close' in asked) {
      close?.();
      port.close();
      return;
    }
    const { id, question } = asked;
    try {
      const given = await answer(question);
      port.postMessage({ id, answer: given } satisfies Answered<A>, transferred(given));
    } catch (error) {
      port.postMessage({ id, failure: failureOf(error) } satisfies Answered<A>);
    }
  });
}

export function failureOf(error: unknown): Failure {
  const { message, code } = error as NodeJS.ErrnoException;
  return { message, code };
}
