/** Which accounts a running server gives away or gets: a file of the data directory, so that a crash changes nothing of it. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { replaceFile } from '../../db/files/copies.ts';

const stateName = 'moves.json';

/**
 * One move as a cell knows it. `coming`: some of the accounts may be here, and count elsewhere. `away`: all of them is here,
 * and counts no more. `here`: they came with this move and count here.
 */
export interface MoveRecord {
  /** Names the attempt: what belongs to an earlier one is refused. */
  move: string;
  accounts: string[];
  state: 'coming' | 'away' | 'here';
  /** Names of cells. */
  from: string;
  to: string;
  /** When the accounts began to count here, in milliseconds since 1970. */
  since?: number;
}

export function readMoves(directory: string): MoveRecord[] {
  try {
    return JSON.parse(readFileSync(join(directory, stateName), 'utf8')) as MoveRecord[];
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

export function writeMoves(directory: string, records: readonly MoveRecord[]): void {
  replaceFile(join(directory, stateName), `${JSON.stringify(records)}\n`);
}
