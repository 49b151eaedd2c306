/** What a data directory says while accounts are moved out of it or into it: no server starts on it until that has ended. */
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { replaceFile, sync } from '../../../db/files/copies.ts';

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

export function mark(directory: string, moving: Moving): void {
  replaceFile(join(directory, markerName), `${JSON.stringify(moving)}\n`);
}

export function unmark(directory: string): void {
  rmSync(join(directory, markerName), { force: true });
  sync(directory);
}
