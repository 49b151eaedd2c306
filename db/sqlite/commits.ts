import { Latency } from './latency.ts';

/** What the codes of SQLite say that come from the disk; a caller can cause none of them. */
const reasons = [
  ['SQLITE_FULL', 'the disk is full'],
  ['SQLITE_READONLY', 'the file or the disk is read-only'],
  ['SQLITE_IOERR', 'the disk has failed'],
  ['SQLITE_CANTOPEN', 'the file cannot be opened'],
] as const;

/** Why the disk did not take what was written; undefined for an error of another kind. */
export function diskFault(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | undefined)?.code;
  if (typeof code !== 'string') return undefined;
  const [, reason] = reasons.find(([begin]) => code.startsWith(begin)) ?? [];
  return reason && `The database cannot be written: ${reason}.`;
}

/** Whether an error says that another connection has held the file for longer than is waited: it may go the next time. */
export function isStoreBusy(error: unknown): boolean {
  return String((error as { code?: unknown } | undefined)?.code).startsWith('SQLITE_BUSY');
}

/** The commits of a store. Times are in milliseconds of `performance`. */
export class Commits extends Latency {
  /** When the last one succeeded. */
  succeededAt = Number.NEGATIVE_INFINITY;
  /** When the disk refused something last, and why. */
  failure: { at: number; reason: string } | undefined;

  /** One has ended that took so many milliseconds. */
  succeeded(milliseconds: number): void {
    this.succeededAt = performance.now();
    this.observe(milliseconds);
  }

  /** Something was not written. Only faults of the disk are kept. */
  failed(error: unknown): void {
    const reason = diskFault(error);
    if (reason !== undefined) this.failure = { at: performance.now(), reason };
  }
}
