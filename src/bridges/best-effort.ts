/** Level 1: sent when it can be, dropped when it cannot. Nothing waits for it. */
import type { Clock } from '../clock.ts';
import { Alarm, pauseAfter } from './alarm.ts';
import type { BridgedMessage, Outcome, Target } from './target.ts';

/** Messages, and bytes of payloads and properties, that wait; past either the oldest are dropped. */
const maxWaiting = 10_000;
const maxBytes = 16_777_216;
const batchSize = 500;
const batchBytes = 1_048_576;
/** How often a batch is tried. */
const tries = 5;

/** Events of a lane. */
export interface Reports {
  delivered(messages: number): void;
  failed(reason: string): void;
  dropped(messages: number): void;
}

/** One batch is under way at a time, so messages stay in order. */
export class BestEffort {
  readonly #clock: Clock;
  readonly #reports: Reports;
  #target: Target;
  #waiting: BridgedMessage[] = [];
  #bytes = 0;
  /** The batch under way, or what is to be tried again. */
  #batch: BridgedMessage[] = [];
  #sending = false;
  #failures = 0;
  #pausedUntil = 0;
  #stopped = false;
  readonly #alarm = new Alarm(() => this.#pump());

  constructor(target: Target, { clock, reports }: { clock: Clock; reports: Reports }) {
    this.#target = target;
    this.#clock = clock;
    this.#reports = reports;
  }

  /** Messages that are under way or wait. */
  get waiting(): number {
    return this.#waiting.length + this.#batch.length;
  }

  offer(message: BridgedMessage): void {
    if (this.#stopped) return;
    this.#waiting.push(message);
    this.#bytes += message.size;
    if (this.#waiting.length > maxWaiting || this.#bytes > maxBytes) this.#dropOldest();
    if (!this.#sending) this.#alarm.soon();
  }

  retarget(target: Target): void {
    this.#target = target;
    this.#pausedUntil = 0;
    this.#failures = 0;
    this.#alarm.soon();
  }

  stop(): void {
    this.#stopped = true;
    this.#alarm.stop();
  }

  /** A tenth at once, so that a full queue is not moved for every message. */
  #dropOldest(): void {
    const dropped = this.#waiting.splice(0, Math.max(1, Math.floor(this.#waiting.length / 10)));
    for (const { size } of dropped) this.#bytes -= size;
    this.#reports.dropped(dropped.length);
  }

  #pump(): void {
    if (this.#stopped || this.#sending) return;
    if (this.#clock.now() < this.#pausedUntil) {
      this.#alarm.later();
      return;
    }
    if (this.#batch.length === 0) this.#batch = this.#takeBatch();
    if (this.#batch.length === 0) return;
    this.#sending = true;
    const target = this.#target;
    void target.send(this.#batch, { guaranteed: false }).then((outcome) => {
      this.#sending = false;
      if (this.#stopped) return;
      if (outcome.result === 'accepted' || outcome.result === 'partial' || target === this.#target)
        this.#settleBatch(outcome);
      this.#pump();
    });
  }

  #takeBatch(): BridgedMessage[] {
    let count = 0;
    let bytes = 0;
    for (const { size } of this.#waiting) {
      if (count === batchSize || (count > 0 && bytes + size > batchBytes)) break;
      count += 1;
      bytes += size;
    }
    this.#bytes -= bytes;
    return this.#waiting.splice(0, count);
  }

  #settleBatch(outcome: Outcome, delivered = this.#batch.length): void {
    if (outcome.result === 'accepted') {
      this.#reports.delivered(delivered);
      this.#failures = 0;
      this.#batch = [];
      return;
    }
    if (outcome.result === 'partial') {
      this.#settleParts(outcome);
      return;
    }
    this.#reports.failed(outcome.reason);
    this.#failures += 1;
    const pause = outcome.result === 'retry' ? outcome.after : undefined;
    this.#pausedUntil = this.#clock.now() + (pause ?? pauseAfter(this.#failures));
    // Behind a target that is away the queue itself is the bound.
    if (outcome.result === 'retry' && (outcome.about === 'target' || this.#failures < tries)) return;
    this.#reports.dropped(this.#batch.length);
    this.#batch = [];
    this.#failures = 0;
  }

  #settleParts({ accepted, refused, rest }: Extract<Outcome, { result: 'partial' }>): void {
    const left = this.#batch.filter(({ id }) => !accepted.has(id) && !refused.has(id));
    for (const reason of refused.values()) this.#reports.failed(reason);
    if (refused.size > 0) this.#reports.dropped(refused.size);
    if (accepted.size > 0) this.#settleBatch({ result: 'accepted' }, accepted.size);
    this.#batch = left;
    if (left.length > 0 && rest) this.#settleBatch(rest);
  }
}
