/** Places for downloads: so many at a time, shared by the accounts that want any. */
import { PlatformError } from '../../errors.js';

/** Milliseconds for which an account that was refused counts as one that wants a place. */
const remembered = 60_000;
/** Seconds after which a device is told to try again: spread, so that not all of them come back at once. */
const retry = { least: 5, most: 30 };

export class Places {
  readonly #limit: number;
  readonly #held = new Map<string, number>();
  /** When an account has asked last, milliseconds of `performance`. */
  readonly #asked = new Map<string, number>();
  #taken = 0;
  refused = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get taken(): number {
    return this.#taken;
  }

  /**
   * Takes a place; call the answer once to give it back. @throws PlatformError 429/-199 with a retry time when there is none,
   * or the account has its share while others want theirs.
   */
  take(accountId: string): () => void {
    const held = this.#held.get(accountId) ?? 0;
    if (this.#taken >= this.#limit || held >= this.#shareOf(accountId)) {
      this.refused += 1;
      const reset = retry.least + Math.floor(Math.random() * (retry.most - retry.least));
      const message = 'SLIPWAY_FIRMWARE_DOWNLOADS: too many downloads at a time.';
      throw new PlatformError('tooMany', { message, allowance: { limit: this.#limit, remaining: 0, reset } });
    }
    this.#held.set(accountId, held + 1);
    this.#taken += 1;
    let isBack = false;
    return () => {
      if (isBack) return;
      isBack = true;
      this.#taken -= 1;
      const left = (this.#held.get(accountId) ?? 1) - 1;
      if (left === 0) this.#held.delete(accountId);
      else this.#held.set(accountId, left);
    };
  }

  #shareOf(accountId: string): number {
    const now = performance.now();
    this.#asked.set(accountId, now);
    for (const [id, at] of this.#asked) if (now - at > remembered && !this.#held.has(id)) this.#asked.delete(id);
    return Math.ceil(this.#limit / this.#asked.size);
  }
}
