/** The rows that a level has read ahead, without those of devices that are held. */
import { contentBytes, type OutboxPlace, type OutboxRow } from '../../db/messages/outbox/rows.ts';
import { batchBytes, batchSize, type HeldDevices } from './held.ts';

/** Rows that are read at once, and how often before others get their turn. */
export const windowSize = 500;
const windowBytes = 2 * batchBytes;
const readsAtOnce = 5;

/** What became of rows: `expired` ones were not sent, because their publisher wanted nobody to hear them any more. */
export type Ending = 'delivered' | 'expired' | { reason: string };

/** What is pending, on disk or in memory. Sequences grow in the order of acceptance. */
export interface PendingRows {
  /** Rows after a position, in order: at most `limit`, and `bytes` of payload and properties, but one at least. */
  pending(after: number, limit: number, bytes: number): OutboxRow[];
  /** As pending, from the first of one device. */
  pendingOf(deviceId: string, limit: number, bytes: number): OutboxRow[];
  /** Rows after a position, without what they hold. */
  places(after: number, limit: number): Array<Pick<OutboxPlace, 'sequence' | 'since'>>;
  /** Rows are delivered, have expired, or are given up for a reason. Resolves when that is kept; never rejects. */
  end(sequences: number[], ending: Ending): Promise<void>;
}

export class PendingWindow {
  readonly #rows: PendingRows;
  readonly #held: Pick<HeldDevices, 'get'>;
  readonly #goOnSoon: () => void;
  /** Rows up to here have been seen; those in no other place are done, or of a device that is held. */
  #cursor = 0;
  #window: OutboxRow[] = [];
  /** Nothing has been committed after the cursor, as far as is known. */
  #exhausted = false;
  /** Places under way, or done and not yet written as such. */
  readonly #taken = new Set<number>();

  constructor(rows: PendingRows, held: Pick<HeldDevices, 'get'>, goOnSoon: () => void) {
    this.#rows = rows;
    this.#held = held;
    this.#goOnSoon = goOnSoon;
  }

  hasMore(): void {
    this.#exhausted = false;
  }

  rewind(): void {
    this.#cursor = 0;
    this.#window = [];
    this.#exhausted = false;
  }

  isTaken(sequence: number): boolean {
    return this.#taken.has(sequence);
  }

  mark(rows: readonly { sequence: number }[]): void {
    for (const { sequence } of rows) this.#taken.add(sequence);
  }

  release(rows: readonly { sequence: number }[]): void {
    for (const { sequence } of rows) this.#taken.delete(sequence);
  }

  /** Rows that are sent again. Those of a device that is held are read again by device. */
  putBack(rows: readonly OutboxRow[]): void {
    if (rows.length === 0) return;
    this.release(rows);
    // After a rewind those behind the cursor are read again.
    const seen = rows.filter(({ sequence, deviceId }) => sequence <= this.#cursor && !this.#held.get(deviceId));
    if (seen.length > 0) this.#window = [...seen, ...this.#window].sort((a, b) => a.sequence - b.sequence);
  }

  /** The device is held. */
  drop(deviceId: string): void {
    this.#window = this.#window.filter((row) => row.deviceId !== deviceId);
  }

  forget(sequences: ReadonlySet<number>): void {
    this.#window = this.#window.filter(({ sequence }) => !sequences.has(sequence));
  }

  /** The next rows, at most `width`, without those of busy devices. */
  take(width: number, busy: ReadonlySet<string>): OutboxRow[] | undefined {
    this.#fill();
    const rows: OutboxRow[] = [];
    const rest: OutboxRow[] = [];
    let bytes = 0;
    for (const row of this.#window) {
      const fits = rows.length < width && (rows.length === 0 || bytes + contentBytes(row) <= batchBytes);
      // Once one does not fit, none after it may: it could be of the same device.
      if (!fits) bytes = batchBytes + 1;
      if (fits && !busy.has(row.deviceId)) {
        rows.push(row);
        bytes += contentBytes(row);
      } else {
        rest.push(row);
      }
    }
    this.#window = rest;
    return rows.length > 0 ? rows : undefined;
  }

  #fill(): void {
    let bytes = this.#window.reduce((sum, row) => sum + contentBytes(row), 0);
    for (let reads = 0; !this.#exhausted && this.#window.length < batchSize && bytes < windowBytes; reads += 1) {
      if (reads === readsAtOnce) {
        this.#goOnSoon();
        return;
      }
      const rows = this.#rows.pending(this.#cursor, windowSize, windowBytes);
      const last = rows.at(-1);
      if (!last) {
        this.#exhausted = true;
        return;
      }
      this.#cursor = last.sequence;
      for (const row of rows) {
        if (this.#taken.has(row.sequence) || this.#held.get(row.deviceId)) continue;
        this.#window.push(row);
        bytes += contentBytes(row);
      }
    }
  }
}
