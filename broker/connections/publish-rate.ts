/** Milliseconds that reading stops at least: at every message a timer would cost more than the message. */
const slice = 100;
/** Milliseconds without being slowed that end a row. */
const pause = 1000;
/** Milliseconds that a client may be slowed in a row. */
const patience = 30_000;

/** The rate and the burst of one client; Infinity for no limit. */
export interface Rates {
  packets: number;
  /** Of payload. */
  bytes: number;
  points: number;
}
const counted = ['packets', 'bytes', 'points'] as const satisfies ReadonlyArray<keyof Rates>;

/**
 * How fast the messages of one client are read. A client that is faster is not read for a slice, so that TCP holds it back. Bytes
 * and points are known only when a message has been let in: they may fall below nothing, and the next message waits for longer.
 */
export class PublishRate {
  readonly #perSecond: Rates;
  readonly #clock: { now(): number };
  readonly #left: Rates;
  #refilled = performance.now();
  /** The begin of the row of slices, by the clock, and the end of the last one. */
  #row = 0;
  #resumed = Number.NEGATIVE_INFINITY;

  constructor(perSecond: Rates, clock: { now(): number }) {
    this.#perSecond = perSecond;
    this.#clock = clock;
    this.#left = { ...perSecond };
  }

  /** Takes the place of one message; false when it has to wait. */
  take(): boolean {
    if (!this.#hasRoom()) this.#refill();
    if (!this.#hasRoom()) return false;
    this.#left.packets -= 1;
    return true;
  }

  /** Counts what a message that was let in holds. */
  charge(what: 'bytes' | 'points', count: number): void {
    this.#left[what] -= count;
  }

  /** After a `take` that was false: milliseconds to wait, what for, whether a row begins, and whether it lasts too long. */
  slow(): { wait: number; over: keyof Rates; begins: boolean; tooLong: boolean } {
    let [wait, over]: [number, keyof Rates] = [0, 'packets'];
    for (const what of counted) {
      if (this.#left[what] >= 1) continue;
      const needed = Math.max(slice, Math.ceil(((1 - this.#left[what]) * 1000) / this.#perSecond[what]));
      if (needed > wait) [wait, over] = [needed, what];
    }
    const now = this.#clock.now();
    const begins = performance.now() - this.#resumed > pause;
    if (begins) this.#row = now;
    this.#resumed = performance.now() + wait;
    return { wait, over, begins, tooLong: now - this.#row > patience };
  }

  #hasRoom(): boolean {
    const { packets, bytes, points } = this.#left;
    return packets >= 1 && bytes >= 1 && points >= 1;
  }

  #refill(): void {
    const now = performance.now();
    const seconds = (now - this.#refilled) / 1000;
    for (const what of counted) {
      const most = this.#perSecond[what];
      if (most !== Number.POSITIVE_INFINITY) this.#left[what] = Math.min(most, this.#left[what] + seconds * most);
    }
    this.#refilled = now;
  }
}
