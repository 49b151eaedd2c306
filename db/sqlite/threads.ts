/** Threads of the service: how each is started, and how its end is awaited. */
import { Worker } from 'node:worker_threads';

/** Without the loaders of the main thread (tests have some): each would start again in it. */
export function startThread(file: URL, workerData: object): Worker {
  return new Worker(file, { workerData, execArgv: [] });
}

/** Resolves when a thread has ended, also by an error; callers that wait for its answers are told. */
export function exitOf(thread: Worker): Promise<void> {
  return new Promise((resolve) => thread.once('exit', () => resolve()));
}
