/** What a data directory says while accounts are moved out of it or into it: no server starts on it until that has ended. */
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { sync } from '../files/copies.js';

const markerName = 'moving-accounts.json';

/** A move that has begun. While it is `copying`, only `from` counts; once it is `copied`, only `to` does. */
export interface Moving {
  accounts: string[];
  from: string;
  to: string;
  state: 'copying' | 'copied';
}

/** The move that a directory takes part in; undefined when there is none. */
export function movingIn(directory: string): Moving | undefined {
  try {
    return JSON.parse(readFileSync(join(directory, markerName), 'utf8')) as Moving;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** When it returns, a power cut leaves this marker or the one before. */
export function mark(directory: string, moving: Moving): void {
  const partial = join(directory, `${markerName}.partial`);
  const file = openSync(partial, 'w', 0o600);
  try {
    writeSync(file, `${JSON.stringify(moving)}\n`);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  renameSync(partial, join(directory, markerName));
  sync(directory);
}

export function unmark(directory: string): void {
  rmSync(join(directory, markerName), { force: true });
  sync(directory);
}
