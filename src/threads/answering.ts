/** The worker's side of an AskedThread. */
import { parentPort } from 'node:worker_threads';
import type { Answered, Asked } from './asked-thread.ts';

/** Answers every question of the thread that started this one; `transferred` are buffers that it need not copy. */
export function answerQuestions<Q, A>(
  answer: (question: Q) => A | Promise<A>,
  transferred: (answer: A) => ArrayBuffer[] = () => [],
): void {
  const port = parentPort;
  if (!port) throw new Error('This file runs as a worker thread only.');
  let underWay = Promise.resolve();
  const say = async (question: Q) => {
    try {
      const given = await answer(question);
      port.postMessage({ answer: given } satisfies Answered<A>, transferred(given));
    } catch (error) {
      port.postMessage({ failure: (error as Error).message } satisfies Answered<A>);
    }
  };
  port.on('message', (asked: Asked<Q>) => {
    underWay = underWay.then(() => ('close' in asked ? port.close() : say(asked.question)));
  });
}
