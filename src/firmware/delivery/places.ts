/** Places for downloads: a number of them, shared by the accounts that want any. */
import { PlatformError } from '../../core/errors.ts';

/** Milliseconds for which an account that was refused counts as one that wants a place. */
const remembered = 60_000;
/** Seconds after which a device is told to try again: spread, so that not all of them come back at once. */
const retry = { least: 5, most: 30 };

export class Places {
  readonly #limit: number;
  /** The places of each account, the oldest first, each as what gives it back. */
  readonly #held = new Map<string, Set<() => void>>();
  /** When an account asked last, milliseconds of `performance`. */
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
   * Takes a place; the result gives it back. An account below its share gets the oldest place of the account that has most, whose
   * download goes on without. @throws PlatformError 429/-199 with a retry time if there is none for it.
   */
  takePlace(accountId: string): () => void {
    const share = this.#shareOf(accountId);
    const isFull = this.#taken >= this.#limit;
    if ((this.#held.get(accountId)?.size ?? 0) >= share || (isFull && !this.#takeFromRichest(share))) {
      this.refused += 1;
      const reset = retry.least + Math.floor(Math.random() * (retry.most - retry.least));
      const message = 'SLIPWAY_FIRMWARE_DOWNLOADS: too many downloads at a time.';
      throw new PlatformError('tooMany', { message, allowance: { limit: this.#limit, remaining: 0, reset } });
    }
    const own = this.#held.get(accountId) ?? new Set();
    const giveBack = () => {
      if (!own.delete(giveBack)) return;
      this.#taken -= 1;
      if (own.size === 0) this.#held.delete(accountId);
    };
    this.#held.set(accountId, own.add(giveBack));
    this.#taken += 1;
    return giveBack;
  }

  /** False when no account has more than `share`. */
  #takeFromRichest(share: number): boolean {
    let richest: ReadonlySet<() => void> = new Set();
    for (const places of this.#held.values()) if (places.size > richest.size) richest = places;
    const [oldest] = richest;
    if (!oldest || richest.size <= share) return false;
    oldest();
    return true;
  }

  #shareOf(accountId: string): number {
    const now = performance.now();
    this.#asked.set(accountId, now);
    for (const [id, at] of this.#asked) if (now - at > remembered && !this.#held.has(id)) this.#asked.delete(id);
    return Math.ceil(this.#limit / this.#asked.size);
  }
}
