/** Threads of the service: how each is started, and how its end is awaited. */
import { Worker } from 'node:worker_threads';

/** Megabytes of the space of new objects of a thread: three of its halves, of which V8 would make 64 MB each. */
const maxYoungGenerationSizeMb = 24;

/** Without the loaders of the main thread (tests have some): each would start again in it. */
export function startThread(file: URL, workerData: object): Worker {
  return new Worker(file, { workerData, execArgv: [], resourceLimits: { maxYoungGenerationSizeMb } });
}

/** Resolves when a thread has ended, also by an error; callers that wait for its answers are told. */
export function exitOf(thread: Worker): Promise<void> {
  return new Promise((resolve) => thread.once('exit', () => resolve()));
}
