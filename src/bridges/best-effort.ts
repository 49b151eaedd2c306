/** Level 1: sent when it can be, dropped when it cannot. Nothing waits for it. */
import { contentBytes, type OutboxMessage, type OutboxRow } from '../../db/messages/outbox/rows.ts';
import { Delivery, type DeliveryServices } from './delivery.ts';
import type { Target } from './target.ts';
import type { PendingRows } from './window.ts';

/** Messages, and bytes of payloads and properties, that wait; past either the oldest are dropped. */
const maxWaiting = 10_000;
const maxBytes = 16_777_216;
/** How often a message is tried that fails alone. */
const tries = 5;

/** One batch is under way at a time, and one of devices that are held. */
export class BestEffort extends Delivery {
  readonly #rows: MemoryRows;
  readonly #around: DeliveryServices;
  #sequence = 0;

  constructor(bridgeId: string, target: Target, around: DeliveryServices) {
    const rows = new MemoryRows();
    const isToBlame = ({ failures }: { failures: number }) => failures >= tries;
    const level = { bridgeId, guaranteed: false, maxInProgress: 1, retryAge: Number.POSITIVE_INFINITY, isToBlame };
    const died = (messages: number) => around.reports.dropped(messages);
    super(rows, target, level, { ...around, reports: { ...around.reports, died } });
    this.#rows = rows;
    this.#around = around;
  }

  /** Messages that are under way or wait. */
  get waiting(): number {
    return this.#rows.size;
  }

  offer(message: OutboxMessage): void {
    this.#sequence += 1;
    this.#rows.add({ ...message, sequence: this.#sequence, since: this.#around.clock.now() });
    if (this.#rows.size > maxWaiting || this.#rows.bytes > maxBytes) this.#dropOldest();
    this.wake();
  }

  /** A tenth at once, so that a full queue is not moved for every message. */
  #dropOldest(): void {
    const most = Math.max(1, Math.floor(this.#rows.size / 10));
    const dropped = this.#rows.oldest(most, (sequence) => !this.isUnderWay(sequence));
    this.forget(dropped);
    this.#rows.remove(dropped);
    this.#around.reports.dropped(dropped.length);
  }
}

/** Rows in memory, in their order and by device. */
class MemoryRows implements PendingRows {
  readonly #rows = new Map<number, OutboxRow>();
  readonly #byDevice = new Map<string, Set<number>>();
  /** Sequences in order; those of rows that are gone are skipped, and taken out when they are many. */
  #order: number[] = [];
  bytes = 0;

  get size(): number {
    return this.#rows.size;
  }

  add(row: OutboxRow): void {
    this.#rows.set(row.sequence, row);
    this.#order.push(row.sequence);
    this.bytes += contentBytes(row);
    const own = this.#byDevice.get(row.deviceId) ?? new Set();
    this.#byDevice.set(row.deviceId, own.add(row.sequence));
  }

  remove(sequences: readonly number[]): void {
    for (const sequence of sequences) {
      const row = this.#rows.get(sequence);
      if (!row) continue;
      this.#rows.delete(sequence);
      this.bytes -= contentBytes(row);
      const own = this.#byDevice.get(row.deviceId);
      own?.delete(sequence);
      if (own?.size === 0) this.#byDevice.delete(row.deviceId);
    }
    if (this.#order.length > 2 * this.#rows.size + maxWaiting) this.#order = [...this.#rows.keys()];
  }

  oldest(most: number, isFree: (sequence: number) => boolean): number[] {
    const found: number[] = [];
    for (const sequence of this.#rows.keys()) {
      if (found.length === most) break;
      if (isFree(sequence)) found.push(sequence);
    }
    return found;
  }

  pending(after: number, limit: number, bytes: number): OutboxRow[] {
    let [low, high] = [0, this.#order.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#order[middle] ?? 0) > after) high = middle;
      else low = middle + 1;
    }
    const order = this.#order;
    return this.#read(
      limit,
      bytes,
      (function* () {
        for (let at = low; at < order.length; at += 1) yield order[at] ?? 0;
      })(),
    );
  }

  pendingOf(deviceId: string, limit: number, bytes: number): OutboxRow[] {
    return this.#read(limit, bytes, this.#byDevice.get(deviceId) ?? []);
  }

  places(after: number, limit: number): OutboxRow[] {
    return this.pending(after, limit, Number.POSITIVE_INFINITY);
  }

  async end(sequences: number[]): Promise<void> {
    this.remove(sequences);
  }

  #read(limit: number, bytes: number, sequences: Iterable<number>): OutboxRow[] {
    const rows: OutboxRow[] = [];
    let left = bytes;
    for (const sequence of sequences) {
      const row = this.#rows.get(sequence);
      if (!row) continue;
      left -= contentBytes(row);
      if (rows.length === limit || (left < 0 && rows.length > 0)) break;
      rows.push(row);
    }
    return rows;
  }
}
