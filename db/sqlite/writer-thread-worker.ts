/** The thread that executes the statements of long transactions, one after the other; answers come in their order. */
import { parentPort, workerData } from 'node:worker_threads';
import Sqlite from 'better-sqlite3';
import { openWriter } from './dialect.js';
import { StatementCache } from './statements.js';
import type { Answered, Asked } from './writer-thread.js';

const port = parentPort;
if (!port) throw new Error('writer-thread-worker runs as a worker thread only.');
const file = openWriter((workerData as { path: string }).path);
const statements = new StatementCache(file);

port.on('message', (asked: Asked) => {
  if ('close' in asked) {
    file.close();
    port.close();
    return;
  }
  port.postMessage(answer(asked));
});

function answer(asked: Exclude<Asked, { close: true }>): Answered {
  try {
    return statements.run(asked);
  } catch (error) {
    const { message } = error as Error;
    return { failure: message, ...(error instanceof Sqlite.SqliteError && { code: error.code }) };
  }
}
