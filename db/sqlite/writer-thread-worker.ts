/** The thread that executes the statements of long transactions, one after the other; answers come in their order. */
import { dirname } from 'node:path';
import { parentPort, workerData } from 'node:worker_threads';
import { commitAsHolder, Fence } from '../files/lock.ts';
import { openWriter } from './open.ts';
import { StatementCache } from './statements.ts';
import type { Answered, Asked } from './writer-thread.ts';

const port = parentPort;
if (!port) throw new Error('writer-thread-worker runs as a worker thread only.');
const { path, mark } = workerData as { path: string; mark: string | undefined };
const file = openWriter(path);
const fence = mark === undefined ? undefined : Fence.open(dirname(path), mark);
const statements = new StatementCache(file);

port.on('message', (asked: Asked) => {
  if ('close' in asked) {
    file.close();
    fence?.close();
    port.close();
    return;
  }
  port.postMessage(answerStep(asked));
});

function answerStep(asked: Exclude<Asked, { close: true }>): Answered {
  try {
    if (asked.sql !== 'COMMIT') return statements.run(asked);
    let answered: Answered | undefined;
    commitAsHolder(fence, () => {
      answered = statements.run(asked);
    });
    return answered as Answered;
  } catch (error) {
    const { message, code } = error as Error & { code?: unknown };
    return { failure: message, ...(typeof code === 'string' && { code }) };
  }
}
