/** The reading thread: one question after the other, answered in their order. What can be asked is in message-reads.ts. */
import { parentPort, workerData } from 'node:worker_threads';
import type { Answered, Asked } from './reader.ts';
import { openReads, type Reads } from './reads.ts';

const port = parentPort;
if (!port) throw new Error('message-reader-worker runs as a worker thread only.');
const reads = openReads((workerData as { directory: string }).directory);

port.on('message', (asked: Asked) => {
  if ('close' in asked) {
    reads.close();
    port.close();
    return;
  }
  port.postMessage(answerQuestion(asked.name, asked.question));
});

function answerQuestion<N extends keyof Reads>(name: N, question: Parameters<Reads[N]>[0]): Answered {
  try {
    const read = reads[name] as (question: Parameters<Reads[N]>[0]) => ReturnType<Reads[N]>;
    return { answer: read(question) };
  } catch (error) {
    return { failure: (error as Error).message };
  }
}
