/** Since when a target refuses whatever it is sent: its login, its address, or that it is there at all. */

const hour = 3_600_000;
/** Milliseconds of refusals, one after the other, after which messages of that age are given up. */
export const refusalAge = hour;
/** Milliseconds of 410 Gone after which nothing more is sent. */
const goneAge = 24 * hour;

/** How final a refusal is: `refused` may be a wrong setting, `gone` is meant for good. */
export type Refusal = 'refused' | 'gone';

/** Both levels of a bridge share it. Times are milliseconds since 1970. */
export class Refusing {
  #since: number | undefined;
  #goneSince: number | undefined;
  #pausedSince: number | undefined;
  #reason = '';

  /** Since when nothing is sent, because the target has been gone for a day; undefined while it is tried. */
  get pausedSince(): number | undefined {
    return this.#pausedSince;
  }

  /** What the target said last. */
  get reason(): string {
    return this.#reason;
  }

  /** Something was accepted, or the bridge leads elsewhere. */
  end(): void {
    this.#since = undefined;
    this.#goneSince = undefined;
    this.#pausedSince = undefined;
  }

  /** Something failed. Returns whether the bridge pauses from now on. */
  failed({ refusal, reason }: { refusal?: Refusal | undefined; reason: string }, now: number): boolean {
    this.#reason = reason;
    this.#since = refusal && (this.#since ?? now);
    this.#goneSince = refusal === 'gone' ? (this.#goneSince ?? now) : undefined;
    if (this.#pausedSince !== undefined || this.#goneSince === undefined) return false;
    if (now - this.#goneSince < goneAge) return false;
    this.#pausedSince = now;
    return true;
  }

  /** Whether it has refused everything for so long that messages of this age are given up. */
  isLong(now: number): boolean {
    return this.#since !== undefined && now - this.#since >= refusalAge;
  }
}
