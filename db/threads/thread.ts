/** Threads of the service: how each is started, and how its end is awaited. */
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';

/** Megabytes of the space of new objects of a thread: three of its halves, of which V8 would make 64 MB each. */
const maxYoungGenerationSizeMb = 24;

/** Sources name their threads' files; compiled, those end with .js like this one. */
const extension = extname(import.meta.url);

/** Without the loaders of the main thread (tests have some): each would start again in it. */
export function startThread(file: URL, workerData: object): Worker {
  const compiled = new URL(file.href.replace(/\.ts$/, extension));
  return new Worker(compiled, { workerData, execArgv: [], resourceLimits: { maxYoungGenerationSizeMb } });
}

/** Resolves when a thread has ended, also by an error; callers that wait for its answers are told. */
export function exitOf(thread: Worker): Promise<void> {
  return new Promise((resolve) => thread.once('exit', () => resolve()));
}
