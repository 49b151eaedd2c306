/**
 * Level 2: the outbox of one bridge on its way out, at least once, in order per device.
 *
 * Rows are taken in their order into a window, and from there into batches; no device is in two batches at once. A batch
 * that fails is tried again smaller, down to one message, so that the one to blame is found and the others pass. Its
 * device is then held back: its rows are passed over, and read again by device when its time has come.
 */
import type { Logger } from 'pino';
import { contentBytes, type OutboxChange, type OutboxRow } from '../../db/messages/outbox/rows.ts';
import type { MessageStore } from '../../db/messages/store.ts';
import type { Clock } from '../clock.ts';
import { Alarm, pauseAfter } from './alarm.ts';
import type { Reports } from './best-effort.ts';
import type { Outcome, Target } from './target.ts';

const batchSize = 500;
const batchBytes = 1_048_576;
/** Rows that are read at once, and how often before others get their turn. */
const windowSize = 500;
const windowBytes = 2 * batchBytes;
const readsAtOnce = 5;
/** Batches under way at once while all is well; one at a time after a failure. */
const maxInProgress = 4;
/** By this a batch shrinks when it fails, and grows when it passes. */
const step = 4;
/** Tries of one message, alone, while others got through: then it is the message's fault. */
const triesToBlame = 20;
/** Failures of single messages in a row that say nothing of the target yet. */
const failuresOfMessages = 3;
/** Pauses between messages that are refused one after the other grow no longer after so many. */
const slowestRefusals = 4;
/** Milliseconds of failures, one after the other, before anything is too old: a start after a long stop tries first. */
const patience = 3_600_000;
/** Milliseconds until what could not be written about a delivery is written again. */
const rewriteAfter = 1000;

type Partial = Extract<Outcome, { result: 'partial' }>;
type Failed = Extract<Outcome, { result: 'retry' | 'refused' }>;

interface Batch {
  rows: OutboxRow[];
  /** When it is of a device that is held back. */
  held: Held | undefined;
}

/** A device that is behind: what it has pending is read by device, until there is nothing left. */
interface Held {
  deviceId: string;
  width: number;
  failures: number;
  /** Failures since which the bridge has delivered something else. */
  blamed: number;
  until: number;
  /** How often the bridge had delivered at the last failure. */
  deliveriesBefore: number;
}

export interface Surroundings {
  messages: Pick<MessageStore, 'outbox' | 'recordOutbox'>;
  clock: Clock;
  log: Pick<Logger, 'error'>;
  /** Milliseconds from the acceptance of a message until a failure makes it a dead letter, and for which it stays to be replayed. */
  retryAge: number;
  deliveredAge: number;
  reports: Reports & { died(messages: number, reason: string): void };
  /** A row of this bridge as its target gets it. */
  show(row: OutboxRow): Parameters<Target['send']>[0][number];
}

export class Guaranteed {
  readonly #bridgeId: string;
  readonly #around: Surroundings;
  #target: Target;
  /** Rows up to here have been seen; those in no other place are done. */
  #cursor = 0;
  #window: OutboxRow[] = [];
  /** Nothing has been committed after the cursor, as far as is known. */
  #exhausted = false;
  /** Places under way, or done and not yet written as such. */
  readonly #taken = new Set<number>();
  readonly #busy = new Set<string>();
  readonly #held = new Map<string, Held>();
  #underWay = 0;
  #width = batchSize;
  #failures = 0;
  #deliveries = 0;
  /** When the last batch was accepted, or all this began. */
  #lastPassed: number;
  #pausedUntil = 0;
  #ageing = false;
  #stopped = false;
  readonly #alarm = new Alarm(() => this.#pump());

  constructor(bridgeId: string, target: Target, around: Surroundings) {
    this.#bridgeId = bridgeId;
    this.#target = target;
    this.#around = around;
    this.#lastPassed = around.clock.now();
    this.#alarm.soon();
  }

  /** Something has been committed for this bridge. */
  wake(): void {
    this.#exhausted = false;
    this.#alarm.soon();
  }

  /** Rows before the cursor are pending again. */
  rewind(): void {
    this.#cursor = 0;
    this.#window = [];
    this.wake();
  }

  /** The bridge leads elsewhere now: what failed there is tried here at once. */
  retarget(target: Target): void {
    this.#target = target;
    this.#failures = 0;
    this.#pausedUntil = 0;
    for (const held of this.#held.values()) Object.assign(held, trusted);
    this.wake();
  }

  stop(): void {
    this.#stopped = true;
    this.#alarm.stop();
  }

  /** Called by timers, where an error would end the process. */
  #pump(): void {
    try {
      this.#sendWhatMay();
    } catch (error) {
      this.#unread(error);
      this.#pause(1);
      this.#alarm.later();
    }
  }

  #unread(error: unknown): void {
    this.#around.log.error({ err: error, bridgeId: this.#bridgeId }, 'the outbox of a bridge could not be read');
  }

  #sendWhatMay(): void {
    const { clock } = this.#around;
    while (!this.#stopped && this.#underWay < this.#room() && clock.now() >= this.#pausedUntil) {
      // After a failure others come first, or a device that fails for ever would be all that is tried.
      const batch = this.#failures > 0 ? (this.#next() ?? this.#nextHeld()) : (this.#nextHeld() ?? this.#next());
      if (!batch) break;
      void this.#send(batch);
    }
    if (this.#held.size > 0 || clock.now() < this.#pausedUntil) this.#alarm.later();
  }

  #room(): number {
    return this.#failures > 0 || this.#width < batchSize ? 1 : maxInProgress;
  }

  // What is next

  #nextHeld(): Batch | undefined {
    const now = this.#around.clock.now();
    for (const held of this.#held.values()) {
      const { deviceId, width, until } = held;
      if (until > now || this.#busy.has(deviceId)) continue;
      const rows = this.#around.messages.outbox.pendingOf(this.#bridgeId, deviceId, width, batchBytes);
      const free = rows.filter(({ sequence }) => !this.#taken.has(sequence));
      if (free.length > 0) return { rows: free, held };
      // Nothing that was passed over is left; what comes now is after the cursor.
      if (rows.length === 0) this.#held.delete(deviceId);
    }
    return undefined;
  }

  #next(): Batch | undefined {
    this.#fill();
    const rows: OutboxRow[] = [];
    const rest: OutboxRow[] = [];
    let bytes = 0;
    for (const row of this.#window) {
      const fits = rows.length < this.#width && (rows.length === 0 || bytes + contentBytes(row) <= batchBytes);
      // Once one does not fit, none after it may: it could be of the same device.
      if (!fits) bytes = batchBytes + 1;
      if (fits && !this.#busy.has(row.deviceId)) {
        rows.push(row);
        bytes += contentBytes(row);
      } else {
        rest.push(row);
      }
    }
    this.#window = rest;
    return rows.length > 0 ? { rows, held: undefined } : undefined;
  }

  #fill(): void {
    const { outbox } = this.#around.messages;
    let bytes = this.#window.reduce((sum, row) => sum + contentBytes(row), 0);
    for (let reads = 0; !this.#exhausted && this.#window.length < batchSize && bytes < windowBytes; reads += 1) {
      if (reads === readsAtOnce) {
        this.#alarm.soon();
        return;
      }
      const rows = outbox.pending(this.#bridgeId, this.#cursor, windowSize, windowBytes);
      const last = rows.at(-1);
      if (!last) {
        this.#exhausted = true;
        return;
      }
      this.#cursor = last.sequence;
      for (const row of rows) {
        if (this.#taken.has(row.sequence) || this.#held.has(row.deviceId)) continue;
        this.#window.push(row);
        bytes += contentBytes(row);
      }
    }
  }

  // What became of it

  async #send(batch: Batch): Promise<void> {
    const devices = new Set(batch.rows.map(({ deviceId }) => deviceId));
    this.#underWay += 1;
    for (const deviceId of devices) this.#busy.add(deviceId);
    for (const { sequence } of batch.rows) this.#taken.add(sequence);
    const target = this.#target;
    const outcome = await target.send(
      batch.rows.map((row) => this.#around.show(row)),
      { guaranteed: true },
    );
    this.#underWay -= 1;
    for (const deviceId of devices) this.#busy.delete(deviceId);
    if (outcome.result === 'accepted') this.#accepted(batch);
    else if (outcome.result === 'partial') this.#settleParts(batch, outcome, target);
    else this.#settleFailed(batch, outcome, target);
    this.#pump();
  }

  /** Each message by itself: accepted, refused for good, or to be sent again. */
  #settleParts({ rows, held }: Batch, { accepted, refused, rest }: Partial, target: Target): void {
    const passed = rows.filter(({ id }) => accepted.has(id));
    if (passed.length > 0) this.#accepted({ rows: passed, held });
    for (const row of rows) {
      const reason = refused.get(row.id);
      if (reason === undefined) continue;
      this.#around.reports.failed(reason);
      this.#die({ rows: [row], held }, reason);
    }
    const others = rows.filter(({ id }) => !accepted.has(id) && !refused.has(id));
    if (others.length === 0) return;
    if (rest) this.#settleFailed({ rows: others, held }, rest, target);
    else this.#putBack({ rows: others, held });
  }

  #settleFailed(batch: Batch, outcome: Failed, target: Target): void {
    if (target !== this.#target) this.#putBack(batch);
    else if (!this.#stopped) this.#failed(batch, outcome);
  }

  #accepted({ rows, held }: Batch): void {
    const { clock, reports, deliveredAge } = this.#around;
    this.#failures = 0;
    this.#deliveries += 1;
    this.#lastPassed = clock.now();
    if (held) Object.assign(held, { ...trusted, width: grown(held.width) });
    else this.#width = grown(this.#width);
    reports.delivered(rows.length);
    const sequences = sequencesOf(rows);
    const time = clock.now();
    void this.#write(
      deliveredAge > 0
        ? { kind: 'move', from: 'pending', to: 'delivered', sequences, time, reason: null }
        : { kind: 'remove', from: 'pending', sequences },
    );
  }

  #failed(batch: Batch, outcome: Failed): void {
    const [row] = batch.rows;
    const isAlone = batch.rows.length === 1;
    const { reason } = outcome;
    this.#around.reports.failed(reason);
    if (outcome.result === 'refused' && !isAlone) {
      this.#narrow(batch);
      return;
    }
    this.#failures += 1;
    // A target that has something against every message is most likely not well, or set up wrongly.
    const inARow = this.#failures - failuresOfMessages;
    if (outcome.result === 'refused') {
      this.#die(batch, reason);
      if (inARow > 0) this.#pause(Math.min(inARow, slowestRefusals));
      return;
    }
    if (outcome.about === 'target') {
      this.#putBack(batch);
      this.#pause(this.#failures, outcome.after);
    } else if (!isAlone) {
      this.#narrow(batch);
      this.#pause(1);
    } else {
      if (inARow > 0) this.#pause(inARow);
      if (row && this.#holdDevice(batch, row) >= triesToBlame) this.#die(batch, reason);
    }
    void this.#endOld(reason);
  }

  /** `least` in milliseconds. */
  #pause(failures: number, least = 0): void {
    this.#pausedUntil = this.#around.clock.now() + Math.max(least, pauseAfter(failures));
  }

  #die(batch: Batch, reason: string): void {
    const { clock, reports } = this.#around;
    // Of a device that has just been held back it is the first.
    const held = batch.held ?? this.#held.get(batch.rows[0]?.deviceId ?? '');
    if (held) Object.assign(held, trusted);
    for (const { sequence } of batch.rows) this.#taken.add(sequence);
    reports.died(batch.rows.length, reason);
    const sequences = sequencesOf(batch.rows);
    void this.#write({ kind: 'move', from: 'pending', to: 'dead', sequences, time: clock.now(), reason });
  }

  #narrow(batch: Batch): void {
    const width = Math.max(1, Math.floor(batch.rows.length / step));
    if (batch.held) batch.held.width = width;
    else this.#width = width;
    this.#putBack(batch);
  }

  #putBack({ rows, held }: Batch): void {
    for (const { sequence } of rows) this.#taken.delete(sequence);
    if (held) return;
    // After a rewind those behind the cursor are read again.
    const passed = rows.filter(({ sequence }) => sequence <= this.#cursor);
    this.#window = [...passed, ...this.#window].sort((a, b) => a.sequence - b.sequence);
  }

  /** Holds the device of a single message back; how often the message is to blame. */
  #holdDevice({ held: known }: Batch, { deviceId, sequence }: OutboxRow): number {
    const held = known ?? this.#newHeld(deviceId);
    held.failures += 1;
    if (this.#deliveries > held.deliveriesBefore) held.blamed += 1;
    held.deliveriesBefore = this.#deliveries;
    held.width = 1;
    held.until = this.#around.clock.now() + pauseAfter(held.failures);
    this.#held.set(deviceId, held);
    this.#taken.delete(sequence);
    this.#window = this.#window.filter((row) => row.deviceId !== deviceId);
    return held.blamed;
  }

  #newHeld(deviceId: string): Held {
    return { deviceId, width: 1, ...trusted, deliveriesBefore: this.#deliveries };
  }

  /** Gives up messages that are pending for too long, if nothing was delivered for a while. Never rejects. */
  async #endOld(reason: string): Promise<void> {
    const { clock, retryAge } = this.#around;
    if (this.#ageing || clock.now() - this.#lastPassed < Math.min(patience, retryAge)) return;
    this.#ageing = true;
    try {
      await this.#buryOld(`not delivered for too long: ${reason}`);
    } catch (error) {
      this.#unread(error);
    }
    this.#ageing = false;
  }

  async #buryOld(why: string): Promise<void> {
    const { clock, messages, retryAge, reports } = this.#around;
    let after = 0;
    while (!this.#stopped) {
      const places = messages.outbox.places(this.#bridgeId, 'pending', after, windowSize);
      const limit = clock.now() - retryAge;
      const old = places.filter(({ since, sequence }) => since < limit && !this.#taken.has(sequence));
      if (old.length === 0) break;
      after = old.at(-1)?.sequence ?? after;
      const sequences = sequencesOf(old);
      const gone = new Set(sequences);
      this.#window = this.#window.filter(({ sequence }) => !gone.has(sequence));
      for (const sequence of sequences) this.#taken.add(sequence);
      reports.died(sequences.length, why);
      await this.#write({ kind: 'move', from: 'pending', to: 'dead', sequences, time: clock.now(), reason: why });
    }
  }

  /** Resolves when it is on disk; it is tried again until then, for otherwise a restart would deliver again. */
  #write(change: Extract<OutboxChange, { sequences: number[] }>): Promise<void> {
    return new Promise((resolve) => {
      const write = () =>
        this.#around.messages.recordOutbox([change], (error) => {
          if (!error) for (const sequence of change.sequences) this.#taken.delete(sequence);
          // A device that is behind waits for this: what is taken is not read again.
          if (!error && this.#held.size > 0) this.#alarm.soon();
          if (error && !this.#stopped) setTimeout(write, rewriteAfter).unref();
          else resolve();
        });
      write();
    });
  }
}

/** A device of whose next message nothing bad is known. */
const trusted = { failures: 0, blamed: 0, until: 0 };

function grown(width: number): number {
  return Math.min(width * step, batchSize);
}

function sequencesOf(rows: readonly { sequence: number }[]): number[] {
  return rows.map(({ sequence }) => sequence);
}
