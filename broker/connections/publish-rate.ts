/** Milliseconds that reading stops at least: at every message a timer would cost more than the message. */
const slice = 100;
/** Milliseconds without being slowed that end a row. */
const pause = 1000;
/** Milliseconds that a client may be slowed in a row. */
const patience = 30_000;

/**
 * How fast the messages of one client are read: so many a second, and a second's worth at once. A client that is faster
 * is not read for a slice, so that TCP holds it back and nothing is lost.
 */
export class PublishRate {
  readonly #perSecond: number;
  readonly #clock: { now(): number };
  #left: number;
  #refilled = performance.now();
  /** The begin of the row of slices, by the clock, and the end of the last one. */
  #row = 0;
  #resumed = Number.NEGATIVE_INFINITY;

  /** `perSecond` is Infinity for no limit. */
  constructor(perSecond: number, clock: { now(): number }) {
    this.#perSecond = perSecond;
    this.#clock = clock;
    this.#left = perSecond;
  }

  /** Takes the place of one message; false when it has to wait. */
  take(): boolean {
    if (this.#left < 1) this.#refill();
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }

  /** After a `take` that was false: milliseconds to wait, whether a row begins, and whether it lasts too long. */
  slow(): { wait: number; begins: boolean; tooLong: boolean } {
    const wait = Math.max(slice, Math.ceil(((1 - this.#left) * 1000) / this.#perSecond));
    const now = this.#clock.now();
    const begins = performance.now() - this.#resumed > pause;
    if (begins) this.#row = now;
    this.#resumed = performance.now() + wait;
    return { wait, begins, tooLong: now - this.#row > patience };
  }

  #refill(): void {
    const now = performance.now();
    this.#left = Math.min(this.#perSecond, this.#left + ((now - this.#refilled) * this.#perSecond) / 1000);
    this.#refilled = now;
  }
}
