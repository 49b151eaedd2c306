/**
 * The 10,000 most common passwords (decisions 4). A thread that ends reads the list, which would stay in memory with all
 * that the package holds (14 MB) and keep the event loop for a tenth of a second.
 */
import { Worker } from 'node:worker_threads';

/** The shortest password, in characters (spec 8): the list need not hold what is shorter. */
export const leastCharacters = 8;

/** Those of them that are long enough to be set, in small letters. */
export function readCommonPasswords(): Promise<ReadonlySet<string>> {
  return new Promise((resolve, reject) => {
    // Without the loaders of the main thread (tests have some): each would start again in it.
    const worker = new Worker(new URL('./common-passwords-worker.js', import.meta.url), { execArgv: [] });
    worker.once('message', (passwords: string[]) => resolve(new Set(passwords)));
    worker.once('error', reject);
    worker.once('exit', () => reject(new Error('The list of common passwords could not be read.')));
  });
}
