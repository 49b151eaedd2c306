import type { Readable } from 'node:stream';
import type { StoreEnd } from '../../db/messages/threads/protocol.ts';
import type { Caller } from '../../src/core/caller.ts';
import type { HiddenNumbers } from '../../src/core/formats/hidden-numbers.ts';
import type { Scheduler } from '../../src/core/scheduler/scheduler.ts';
import { type Event, formatId } from './stream-events.ts';
import { isBefore, type StreamPositions } from './stream-positions.ts';

/** What writing to a reader costs next to a delivery over MQTT. */
const costOfWrite = 8;
/** Bytes that may wait for all readers of an account; beyond it the one that is furthest behind is cut off. */
const maxWaitingOfAccount = 32 * 1024 * 1024;

/** A reader of events, and what waits for it. */
export interface Reader {
  readonly body: Readable;
  caller: Caller;
  /** Until the end of the turn; while what was missed is sent, all that comes. */
  waiting: Event[];
  waitingBytes: number;
  /** Of what it missed, and has not taken yet. */
  missedBytes: number;
  /** Up to where it has been sent what it missed; until everything before it has been handed on to others, too. */
  until: Readonly<StoreEnd> | undefined;
  ended: boolean;
}

export interface EventWriterParts<R extends Reader> {
  marks: Pick<StreamPositions, 'isWithin'>;
  scheduler: Scheduler;
  clock: { now(): number };
  numbers: HiddenNumbers;
  mayHear(reader: R, topic: string): boolean;
  /** All readers of an account. */
  readersOf(accountId: string): Iterable<R>;
  /** A reader is too far behind. */
  cutOff(reader: R): void;
}

/**
 * Writes what waits for readers: the events of one turn of the event loop together, and more than a turn has time for when
 * it is the turn of the account.
 */
export class EventWriter<R extends Reader> {
  readonly #parts: EventWriterParts<R>;
  /** Those for whom something waits, by account. */
  #dirty = new Map<string, Set<R>>();
  /** Accounts with a piece of work that waits for its turn, and whom it writes to. */
  readonly #late = new Map<string, Set<R>>();
  /** Many readers get the same events: their bytes are made once. */
  #last: { events: readonly Event[]; bytes: Buffer } | undefined;

  constructor(parts: EventWriterParts<R>) {
    this.#parts = parts;
  }

  /** Something waits for this reader. */
  schedule(reader: R): void {
    const { accountId } = reader.caller;
    const late = this.#late.get(accountId);
    if (late) {
      late.add(reader);
      return;
    }
    if (this.#dirty.size === 0) setImmediate(() => this.#writeAll());
    const readers = this.#dirty.get(accountId);
    if (readers) readers.add(reader);
    else this.#dirty.set(accountId, new Set([reader]));
  }

  /** Writes all that waits for a reader now. */
  write(reader: R): void {
    const { waiting: events, body } = reader;
    reader.waiting = [];
    reader.waitingBytes = 0;
    if (reader.ended || events.length === 0) return;
    if (!reader.until) {
      body.push(this.#bytesOf(events));
      return;
    }
    const pieces = events.flatMap((event) => this.#pieces(reader, event));
    if (pieces.length > 0) body.push(Buffer.concat(pieces));
  }

  #writeAll(): void {
    const dirty = this.#dirty;
    this.#dirty = new Map();
    for (const [accountId, readers] of dirty) {
      if (this.#writeTo(accountId, readers)) continue;
      this.#late.set(accountId, readers);
      this.#waitForTurn(accountId, readers);
    }
    this.#last = undefined;
  }

  #waitForTurn(accountId: string, readers: Set<R>): void {
    this.#parts.scheduler.wait({ accountId, callerId: '' }, () => {
      // Rights may have changed since the messages came.
      if (this.#writeTo(accountId, readers, (one, topic) => this.#parts.mayHear(one, topic)))
        this.#late.delete(accountId);
      else this.#waitForTurn(accountId, readers);
    });
  }

  /** Whether something has been written to all; those that are left stay in `readers`. */
  #writeTo(accountId: string, readers: Set<R>, mayHear?: (reader: R, topic: string) => boolean): boolean {
    const { scheduler } = this.#parts;
    for (const reader of readers) {
      if (scheduler.isOver) return false;
      readers.delete(reader);
      scheduler.spend(costOfWrite);
      if (mayHear) reader.waiting = reader.waiting.filter(({ topic }) => mayHear(reader, topic));
      this.write(reader);
    }
    this.bound(accountId);
    return true;
  }

  /** Cuts off those who are furthest behind while more waits for the readers of an account than may. */
  bound(accountId: string): void {
    const readers = [...this.#parts.readersOf(accountId)].map((reader) => ({ reader, bytes: bytesBehind(reader) }));
    let behind = readers.reduce((sum, { bytes }) => sum + bytes, 0);
    if (behind <= maxWaitingOfAccount) return;
    readers.sort((one, other) => other.bytes - one.bytes);
    for (const { reader, bytes } of readers) {
      if (behind <= maxWaitingOfAccount) return;
      behind -= bytes;
      this.#parts.cutOff(reader);
    }
  }

  #bytesOf(events: readonly Event[]): Buffer {
    const last = this.#last;
    if (last?.events.length === events.length && events.every((event, at) => event === last.events[at]))
      return last.bytes;
    const bytes = Buffer.concat(events.flatMap(({ id, rest }) => [id, rest]));
    this.#last = { events, bytes };
    return bytes;
  }

  /** An event for one reader: not at all when it has been sent as missed, and never under an id that is behind. */
  #pieces(reader: R, { id, rest, mark, payload }: Event): Buffer[] {
    const { until } = reader;
    if (!until) return [id, rest];
    const { marks, clock, numbers } = this.#parts;
    if (marks.isWithin(payload, until)) return [];
    if (isBefore(mark, until)) return [Buffer.from(`id: ${formatId(numbers, until, clock.now())}\n`), rest];
    reader.until = undefined;
    return [id, rest];
  }
}

function bytesBehind({ body, missedBytes }: Reader): number {
  return body.readableLength + missedBytes;
}
