/**
 * What one bridge has pending at one level, on its way out, in order per device: no device is in two batches at once. A batch that
 * fails as one is tried again smaller, down to one message, so that the one to blame is found and the others pass.
 */
import type { Logger } from 'pino';
import type { OutboxRow } from '../../db/messages/outbox/rows.ts';
import { type Clock, monotonic } from '../core/clock.ts';
import { Alarm, pauseAfter } from './alarm.ts';
import { batchBytes, batchSize, type HeldDevice, HeldDevices, hold, trust } from './held.ts';
import { type Refusing, refusalAge } from './refusing.ts';
import type { Part, Target } from './target.ts';
import { type Ending, type PendingRows, PendingWindow, windowSize } from './window.ts';

/** By this a batch shrinks when it fails, and grows when it passes. */
const step = 4;
/** Failures in a row, with nothing accepted, that say nothing of the target yet. */
const failuresOfMessages = 3;
/** Pauses between messages that are refused one after the other grow no longer after so many. */
const slowestRefusals = 4;
/** Devices that are held at once; beyond that it is the target that fails. */
const maxHeld = 10_000;
/** The pause between two looks at what is too old, while nothing is sent. */
const slowest = 30;
/** Milliseconds of failures, one after the other, before anything is too old: a start after a long stop tries first. */
const patience = 3_600_000;

type Failed = Exclude<Part, { result: 'accepted' }> & { rows: OutboxRow[] };

interface Batch {
  rows: OutboxRow[];
  /** Of devices of which something failed last; it says nothing new of the target when it fails again. */
  isProbe: boolean;
}

/** Events of a level. */
export interface Reports {
  delivered(messages: number): void;
  failed(reason: string): void;
  dropped(messages: number): void;
  expired(messages: number): void;
  /** The target has been gone for so long that nothing more is sent. */
  paused(): void;
}

export interface DeliveryServices {
  clock: Clock;
  /** By which a message is too old. */
  ages: Clock;
  log: Pick<Logger, 'error'>;
  reports: Reports & { died(messages: number, reason: string): void };
  refusing: Refusing;
  /** A row of this bridge as its target gets it. */
  show(row: OutboxRow): Parameters<Target['send']>[0][number];
}

/** How a level treats what fails. */
export interface Level {
  bridgeId: string;
  guaranteed: boolean;
  /** Batches under way at once while all is well; one at a time after a failure. */
  maxInProgress: number;
  /** Milliseconds from the acceptance of a message until a failure may give it up. */
  retryAge: number;
  /** Whether a message that failed alone, and of which the target says nothing, is to blame. */
  isToBlame(held: HeldDevice): boolean;
}

export class Delivery {
  readonly #rows: PendingRows;
  readonly #level: Level;
  readonly #around: DeliveryServices;
  readonly #window: PendingWindow;
  readonly #held = new HeldDevices();
  readonly #busy = new Set<string>();
  #target: Target;
  #underWay = 0;
  #isProbing = false;
  #heldFirst = false;
  #width = batchSize;
  #failures = 0;
  #deliveries = 0;
  /** When the last batch was accepted, or all this began. */
  #lastPassed: number;
  #pausedUntil = 0;
  #ageing = false;
  #stopped = false;
  readonly #alarm = new Alarm(() => this.#pump());

  constructor(rows: PendingRows, target: Target, level: Level, around: DeliveryServices) {
    this.#rows = rows;
    this.#target = target;
    this.#level = level;
    this.#around = around;
    this.#window = new PendingWindow(rows, this.#held, () => this.#alarm.soon());
    this.#lastPassed = monotonic(around.clock);
    this.#alarm.soon();
  }

  /** Something has been committed for this bridge. */
  wake(): void {
    this.#window.hasMore();
    this.#alarm.soon();
  }

  /** Rows before those that have been seen are pending again. */
  rewind(): void {
    this.#window.rewind();
    this.#alarm.soon();
  }

  /** The bridge leads elsewhere now: what failed there is tried here at once. */
  retarget(target: Target): void {
    this.#target = target;
    this.resume();
  }

  /** What failed before is tried at once. */
  resume(): void {
    this.#around.refusing.end();
    this.#failures = 0;
    this.#pausedUntil = 0;
    this.#held.trustAll();
    this.wake();
  }

  stop(): void {
    this.#stopped = true;
    this.#alarm.stop();
  }

  /** Whether a row is under way, so that it cannot be dropped. */
  isUnderWay(sequence: number): boolean {
    return this.#window.isTaken(sequence);
  }

  /** These rows are gone. */
  forget(sequences: readonly number[]): void {
    this.#window.forget(new Set(sequences));
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
    this.#around.log.error({ err: error, bridgeId: this.#level.bridgeId }, 'the outbox of a bridge could not be read');
  }

  #sendWhatMay(): void {
    const { clock, refusing } = this.#around;
    while (!this.#stopped && monotonic(clock) >= this.#pausedUntil) {
      if (refusing.pausedSince !== undefined) {
        void this.#endOld(refusing.reason);
        this.#pause(slowest);
        break;
      }
      const batch = this.#next() ?? this.#probe();
      if (!batch) break;
      const rows = this.#endExpired(batch.rows);
      if (rows.length > 0) void this.#send({ ...batch, rows });
    }
    if (this.#held.size > 0 || monotonic(clock) < this.#pausedUntil) this.#alarm.later();
  }

  /** Takes out what has expired: it is sent to nobody. */
  #endExpired(rows: OutboxRow[]): OutboxRow[] {
    const now = this.#around.ages.now();
    const isExpired = ({ expires }: OutboxRow) => expires !== null && expires <= now;
    const expired = rows.filter(isExpired);
    if (expired.length === 0) return rows;
    this.#around.reports.expired(expired.length);
    void this.#end(expired, 'expired');
    return rows.filter((row) => !isExpired(row));
  }

  /** New rows and those of devices that were held take turns. */
  #next(): Batch | undefined {
    if (this.#underWay >= this.#room()) return undefined;
    this.#heldFirst = !this.#heldFirst;
    const behind = () => this.#held.takeTrusted((held) => this.#pendingOf(held));
    const fresh = () => this.#window.take(this.#width, this.#busy);
    const rows = this.#heldFirst ? (behind() ?? fresh()) : (fresh() ?? behind());
    return rows && { rows, isProbe: false };
  }

  /** What failed last has a place of its own: however long its answers take, others go on. */
  #probe(): Batch | undefined {
    if (this.#isProbing) return undefined;
    const now = monotonic(this.#around.clock);
    const rows = this.#held.takeDoubtful(now, (held) => this.#pendingOf(held));
    return rows && { rows, isProbe: true };
  }

  #room(): number {
    if (this.#failures > 0 || this.#width < batchSize) return 1;
    return Math.max(1, this.#level.maxInProgress - (this.#held.size > 0 ? 1 : 0));
  }

  /** The next rows of a device that is held, none while it is under way; undefined if none is left. */
  #pendingOf({ deviceId, width }: HeldDevice): OutboxRow[] | undefined {
    if (this.#busy.has(deviceId)) return [];
    const rows = this.#rows.pendingOf(deviceId, width, batchBytes);
    return rows.length === 0 ? undefined : rows.filter(({ sequence }) => !this.#window.isTaken(sequence));
  }

  async #send(batch: Batch): Promise<void> {
    const devices = new Set(batch.rows.map(({ deviceId }) => deviceId));
    if (batch.isProbe) this.#isProbing = true;
    else this.#underWay += 1;
    for (const deviceId of devices) this.#busy.add(deviceId);
    this.#window.mark(batch.rows);
    const target = this.#target;
    const outcome = await target.send(
      batch.rows.map((row) => this.#around.show(row)),
      { guaranteed: this.#level.guaranteed },
    );
    if (batch.isProbe) this.#isProbing = false;
    else this.#underWay -= 1;
    for (const deviceId of devices) this.#busy.delete(deviceId);
    this.#settle(batch, outcome, target);
    this.#pump();
  }

  #settle(batch: Batch, outcome: readonly Part[], target: Target): void {
    const left = new Map(batch.rows.map((row) => [row.id, row]));
    const passed: OutboxRow[] = [];
    const failed: Failed[] = [];
    for (const part of outcome) {
      const rows = part.ids.flatMap((id) => left.get(id) ?? []);
      if (part.result === 'accepted') passed.push(...rows);
      else if (rows.length > 0 && target === this.#target && !this.#stopped) failed.push({ ...part, rows });
      else continue;
      for (const id of part.ids) left.delete(id);
    }
    if (passed.length > 0) this.#accepted(passed);
    for (const part of failed) this.#failed(part, batch, passed.length > 0);
    this.#window.putBack([...left.values()]);
  }

  #accepted(rows: OutboxRow[]): void {
    const { clock, reports, refusing } = this.#around;
    refusing.end();
    this.#failures = 0;
    this.#deliveries += 1;
    this.#lastPassed = monotonic(clock);
    this.#width = grown(this.#width);
    for (const deviceId of new Set(rows.map((row) => row.deviceId))) {
      const held = this.#held.get(deviceId);
      if (held) this.#held.set(trust(held, grown(held.width)));
    }
    reports.delivered(rows.length);
    void this.#end(rows, 'delivered');
  }

  #failed(part: Failed, batch: Batch, hasPassed: boolean): void {
    const { rows, reason } = part;
    const { ages, refusing, reports } = this.#around;
    reports.failed(reason);
    if (refusing.failed({ refusal: wordOf(part).refusal, reason }, ages.now())) reports.paused();
    if (part.result === 'retry' && part.about === 'target') {
      this.#failures += 1;
      this.#window.putBack(rows);
      this.#pause(this.#failures, part.after);
    } else if (rows.length > 1 && !(part.result === 'retry' && part.about === 'messages')) {
      this.#divide(rows);
    } else {
      const isNews = !batch.isProbe && !hasPassed;
      if (isNews) this.#failures += 1;
      const inARow = isNews ? this.#failures - failuresOfMessages : 0;
      // A target that has something against every message is most likely not well, or set up wrongly.
      const isRefusal = part.result === 'refused';
      if (inARow > 0) this.#pause(isRefusal ? Math.min(inARow, slowestRefusals) : inARow);
      if (isRefusal) this.#refused(part, batch);
      else this.#holdAll(part);
    }
    void this.#endOld(reason);
  }

  /** One of several is to blame: they are sent again, fewer at a time. */
  #divide(rows: OutboxRow[]): void {
    const width = Math.max(1, Math.floor(rows.length / step));
    const devices = new Set(rows.map(({ deviceId }) => deviceId));
    for (const deviceId of devices) {
      const held = this.#held.get(deviceId);
      if (!held && devices.size > 1) continue;
      const doubted = held ?? hold(deviceId, this.#deliveries);
      const narrow = devices.size > 1 ? 1 : width;
      this.#held.set(Object.assign(doubted, { width: narrow, isDoubtful: true, isTold: false }));
      this.#window.drop(deviceId);
    }
    if (devices.size > 1) this.#width = width;
    this.#window.putBack(rows);
  }

  /** A message that was alone may be one of many that its device sends so: they are refused with pauses. */
  #refused({ rows, reason }: Failed, batch: Batch): void {
    this.#die(rows, reason);
    const [row] = rows;
    if (!row) return;
    const held = this.#held.get(row.deviceId) ?? hold(row.deviceId, this.#deliveries);
    if (batch.rows.length > 1 && !this.#held.get(row.deviceId)) return;
    const refusals = held.refusals + 1;
    const inARow = Math.min(refusals - failuresOfMessages, slowestRefusals);
    const until = inARow > 0 && batch.rows.length === 1 ? monotonic(this.#around.clock) + pauseAfter(inARow) : 0;
    this.#held.set(Object.assign(trust(held, held.width), { refusals, until, isDoubtful: true }));
    this.#window.drop(row.deviceId);
  }

  /** Holds the devices of messages that the target does not take now, each by its first. */
  #holdAll({ rows, ...part }: Failed): void {
    const { ages, clock } = this.#around;
    const { after = 0, refusal, isTold } = wordOf(part);
    const seen = new Set<string>();
    for (const row of rows) {
      if (seen.has(row.deviceId)) continue;
      seen.add(row.deviceId);
      if (!this.#held.get(row.deviceId) && this.#held.size >= maxHeld) {
        this.#pause(Math.max(1, this.#failures));
        continue;
      }
      const held = this.#held.get(row.deviceId) ?? hold(row.deviceId, this.#deliveries);
      held.failures += 1;
      if (this.#deliveries > held.deliveriesBefore) held.blamed += 1;
      held.since ??= monotonic(clock);
      held.refusedSince = refusal && (held.refusedSince ?? ages.now());
      const until = monotonic(clock) + Math.max(after, pauseAfter(held.failures));
      const deliveriesBefore = this.#deliveries;
      this.#held.set(Object.assign(held, { until, deliveriesBefore, width: 1, isTold, isDoubtful: true }));
      this.#window.drop(row.deviceId);
      if (refusal) this.#endRefused(row, held, part.reason);
      else if (isTold ? this.#isTooOld(row, held.since) : this.#level.isToBlame(held)) {
        this.#die([row], isTold ? `not delivered for too long: ${part.reason}` : part.reason);
        this.#held.set(trust(held, 1));
      }
    }
    this.#window.putBack(rows);
  }

  /** Gives up a message that was refused for an hour; the next of its device may be as old, and is tried soon. */
  #endRefused(row: OutboxRow, held: HeldDevice, reason: string): void {
    const { ages, clock } = this.#around;
    const now = ages.now();
    const { refusedSince = now } = held;
    if (Math.max(row.since, refusedSince) > now - refusalAge) return;
    this.#die([row], reason);
    this.#held.set(
      Object.assign(trust(held, 1), { refusedSince, until: monotonic(clock) + pauseAfter(1), isDoubtful: true }),
    );
  }

  #isTooOld({ since }: OutboxRow, heldSince: number): boolean {
    const { ages, clock } = this.#around;
    const isOld = since < ages.now() - this.#level.retryAge;
    return isOld && monotonic(clock) - heldSince >= Math.min(patience, this.#level.retryAge);
  }

  /** `least` in milliseconds. */
  #pause(failures: number, least = 0): void {
    const until = monotonic(this.#around.clock) + Math.max(least, pauseAfter(failures));
    this.#pausedUntil = Math.max(this.#pausedUntil, until);
  }

  #die(rows: OutboxRow[], reason: string): void {
    this.#around.reports.died(rows.length, reason);
    void this.#end(rows, { reason });
  }

  /** What has ended is not read again until that is kept. */
  async #end(rows: readonly { sequence: number }[], ending: Ending): Promise<void> {
    this.#window.mark(rows);
    await this.#rows.end(
      rows.map(({ sequence }) => sequence),
      ending,
    );
    this.#window.release(rows);
    // A device that is behind waits for this.
    if (this.#held.size > 0) this.#alarm.soon();
  }

  /** Gives up messages that are pending for too long, if nothing was delivered for a while. Never rejects. */
  async #endOld(reason: string): Promise<void> {
    const { ages, clock, refusing } = this.#around;
    const { retryAge } = this.#level;
    if (this.#ageing || monotonic(clock) - this.#lastPassed < Math.min(patience, retryAge)) return;
    this.#ageing = true;
    try {
      const age = refusing.isLong(ages.now()) ? Math.min(refusalAge, retryAge) : retryAge;
      await this.#endOlderThan(age, `not delivered for too long: ${reason}`);
    } catch (error) {
      this.#unread(error);
    }
    this.#ageing = false;
  }

  async #endOlderThan(age: number, why: string): Promise<void> {
    let after = 0;
    while (!this.#stopped) {
      const limit = this.#around.ages.now() - age;
      const places = this.#rows.places(after, windowSize);
      const old = places.filter(({ since, sequence }) => since < limit && !this.#window.isTaken(sequence));
      if (old.length === 0) break;
      after = old.at(-1)?.sequence ?? after;
      this.#window.forget(new Set(old.map(({ sequence }) => sequence)));
      this.#around.reports.died(old.length, why);
      await this.#end(old, { reason: why });
    }
  }
}

/** What a failure says of when to try again. */
function wordOf(part: Exclude<Part, { result: 'accepted' }>) {
  const { after, refusal, about } = part.result === 'retry' ? part : {};
  return { after, refusal, isTold: about === 'messages' };
}

function grown(width: number): number {
  return Math.min(width * step, batchSize);
}
