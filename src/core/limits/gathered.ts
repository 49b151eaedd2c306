/** Values that are written together soon after they come: one for each key, and each write takes from the accounts in turn. */
import { AsyncLocalStorage } from 'node:async_hooks';

/** A value that waits, or is being written. */
export interface Entry<V> {
  accountId: string;
  key: string;
  value: V;
}

export interface Gathering<V> {
  /** Milliseconds between the beginnings of two gatherings. Each writes what waits at its beginning, one batch after the other. */
  interval: number;
  /** How much one batch takes. A value counts 1 unless `weigh` says otherwise. */
  atOnce: number;
  /** How much may wait. Beyond, the account that has most loses the value that has waited longest. */
  most?: number;
  weigh?(value: V): number;
  /** What becomes of a value that waits when another one of its key comes; without it, the other one. */
  merge?(before: V, later: V): V;
  /** Writes values on behalf of the service, and logs its own failures: no caller is told. */
  write(entries: ReadonlyArray<Entry<V>>): Promise<void>;
}

/** The values of an account, those whose keys have waited longest first. */
interface Waiting<V> {
  weight: number;
  readonly values: Map<string, V>;
}

export class Gathered<V> {
  readonly #options: Required<Gathering<V>>;
  readonly #accounts = new Map<string, Waiting<V>>();
  #weight = 0;
  /** Takes the next write back, which has not begun. */
  #cancel: (() => void) | undefined;
  #writing: Promise<void> | undefined;
  /** When the next gathering may begin; milliseconds of `performance`. */
  #next = 0;
  /** How many values this gathering has still to write. */
  #left = 0;
  /** A value may come inside a transaction and on a caller's behalf; it is written outside of either. */
  readonly #outside = AsyncLocalStorage.snapshot();

  constructor(options: Gathering<V>) {
    this.#options = { most: Number.POSITIVE_INFINITY, weigh: () => 1, merge: (_, later) => later, ...options };
  }

  /** Keys that wait. */
  get size(): number {
    let size = 0;
    for (const { values } of this.#accounts.values()) size += values.size;
    return size;
  }

  get keys(): string[] {
    return [...this.#accounts.values()].flatMap(({ values }) => [...values.keys()]);
  }

  putValue(accountId: string, key: string, value: V): void {
    const before = this.#waits(accountId, key);
    this.#set(accountId, key, before === undefined ? value : this.#options.merge(before, value));
    this.#schedule();
  }

  /** Values that could not be written wait again, at least `wait` milliseconds; what has come meanwhile is later. */
  putBack(entries: ReadonlyArray<Entry<V>>, wait: number): void {
    for (const { accountId, key, value } of entries) {
      const later = this.#waits(accountId, key);
      this.#set(accountId, key, later === undefined ? value : this.#options.merge(value, later));
    }
    this.#left = 0;
    this.#next = performance.now() + wait;
  }

  /** What waits is not written any more. */
  forgetValue(accountId: string, key: string): void {
    this.#takeValue(accountId, key);
  }

  /** The next write begins now: somebody waits for it. */
  hurry(): void {
    this.#next = 0;
    this.#cancel?.();
    this.#cancel = undefined;
    this.#schedule();
  }

  /** Resolves when what waits now of a key has been written. */
  async written(accountId: string, key: string): Promise<void> {
    await this.#writing;
    for (let writes = this.size; writes > 0 && this.#waits(accountId, key) !== undefined; writes -= 1)
      await this.#write();
    // Another who waited may have begun the write of this one.
    await this.#writing;
  }

  /** Writes everything that waits now. */
  async flush(): Promise<void> {
    await this.#writing;
    for (let writes = this.size; writes > 0 && this.#weight > 0; writes -= 1) await this.#write();
    await this.#writing;
  }

  #schedule(): void {
    if (this.#cancel || this.#writing || this.#weight === 0) return;
    const wait = this.#left > 0 ? 0 : this.#next - performance.now();
    if (wait <= 0) {
      const turn = setImmediate(() => void this.#write());
      this.#cancel = () => clearImmediate(turn);
    } else {
      const timer = setTimeout(() => void this.#write(), wait).unref();
      this.#cancel = () => clearTimeout(timer);
    }
  }

  #write(): Promise<void> {
    this.#writing ??= this.#outside(async () => {
      this.#cancel?.();
      this.#cancel = undefined;
      if (this.#left <= 0) {
        this.#left = this.size;
        this.#next = performance.now() + this.#options.interval;
      }
      const entries = this.#nextEntries();
      this.#left = Math.min(this.#left - entries.length, this.size);
      await this.#options.write(entries).catch(() => {});
      this.#writing = undefined;
      this.#schedule();
    });
    return this.#writing;
  }

  /** The values of one batch: accounts take turns, a key each. The next batch goes on with the account whose turn it is. */
  #nextEntries(): Array<Entry<V>> {
    const { atOnce, weigh } = this.#options;
    const entries: Array<Entry<V>> = [];
    let weight = 0;
    for (const [accountId, own] of this.#accounts) {
      const [next] = own.values;
      if (!next) continue;
      const [key, value] = next;
      if (weight > 0 && weight + weigh(value) > atOnce) break;
      this.#takeValue(accountId, key);
      weight += weigh(value);
      entries.push({ accountId, key, value });
      // An account that has more goes to the end, where this loop comes to it again.
      if (this.#accounts.delete(accountId)) this.#accounts.set(accountId, own);
    }
    return entries;
  }

  /** The value of a key that waits. */
  #waits(accountId: string, key: string): V | undefined {
    return this.#accounts.get(accountId)?.values.get(key);
  }

  /** Puts a value in the place that its key has, or in the last one. */
  #set(accountId: string, key: string, value: V): void {
    const { weigh, most } = this.#options;
    const own = this.#accounts.get(accountId) ?? { weight: 0, values: new Map<string, V>() };
    this.#accounts.set(accountId, own);
    const before = own.values.get(key);
    const more = weigh(value) - (before === undefined ? 0 : weigh(before));
    own.values.set(key, value);
    own.weight += more;
    this.#weight += more;
    while (this.#weight > most) this.#forgetOne();
  }

  #takeValue(accountId: string, key: string): V | undefined {
    const own = this.#accounts.get(accountId);
    const value = own?.values.get(key);
    if (!own || value === undefined) return undefined;
    own.values.delete(key);
    own.weight -= this.#options.weigh(value);
    this.#weight -= this.#options.weigh(value);
    if (own.values.size === 0) this.#accounts.delete(accountId);
    return value;
  }

  #forgetOne(): void {
    let most: [string, Waiting<V>] | undefined;
    for (const entry of this.#accounts) if (!most || entry[1].weight > most[1].weight) most = entry;
    const [oldest] = most?.[1].values.keys() ?? [];
    if (most && oldest !== undefined) this.#takeValue(most[0], oldest);
  }
}
