/**
 * Accounts on their way to or from another server. While one is, nothing of it is handled here: HTTP answers 503, and MQTT
 * waits. What is decided is in a file of the data directory, so that no crash makes two servers act for an account.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { slotOf } from '../src/ids.ts';
import { type MoveRecord, readMoves, writeMoves } from './moves/records.ts';

export type { MoveRecord };

/** Milliseconds between two looks at what is still being handled. */
const lookEvery = 5;

export class Moves {
  readonly #directory: string;
  #records: MoveRecord[];
  /** Accounts that are held, for a moment or by their record. */
  #closed: ReadonlySet<string> = new Set();
  #closedSlots: ReadonlySet<string> = new Set();
  readonly #held = new Set<string>();
  /** Those who wait until it is decided where an account is. */
  readonly #waiting = new Map<string, Set<() => void>>();
  /** Requests that change something, by slot. */
  readonly #inFlight = new Map<string, number>();
  /** Accounts that are being copied from here. */
  #leaving: ReadonlySet<string> = new Set();
  /** What the server does by itself, without a request or a message. */
  readonly #works = new Set<Promise<unknown>>();

  private constructor(directory: string, records: MoveRecord[]) {
    this.#directory = directory;
    this.#records = records;
    this.#close();
  }

  static open(directory: string): Moves {
    return new Moves(directory, readMoves(directory));
  }

  get records(): readonly MoveRecord[] {
    return this.#records;
  }

  /** The record that names an account. */
  recordOf(accountId: string): MoveRecord | undefined {
    return this.#records.find(({ accounts }) => accounts.includes(accountId));
  }

  /** When an account came from another server, in milliseconds since 1970; undefined if it never did. */
  cameAt(accountId: string): number | undefined {
    return this.recordOf(accountId)?.since;
  }

  /** Replaces what is recorded of these accounts; undefined forgets it. On disk when it returns. */
  record(accounts: readonly string[], record: MoveRecord | undefined): void {
    const others = this.#records.filter((one) => !one.accounts.some((id) => accounts.includes(id)));
    const records = record ? [...others, record] : others;
    writeMoves(this.#directory, records);
    this.#records = records;
    this.#close();
  }

  /** Whether nothing of an account may be handled here now. */
  isAway(accountId: string): boolean {
    return this.#closed.size > 0 && this.#closed.has(accountId);
  }

  /** The same by the three digits of an id or a token. */
  isSlotAway(slot: string): boolean {
    return this.#closedSlots.size > 0 && this.#closedSlots.has(slot);
  }

  /** Resolves when an account is handled here again, or is known to be elsewhere, or when who asks has `gone`. */
  whenBack(accountId: string, gone: AbortSignal): Promise<void> {
    if (gone.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const waiting = this.#waiting.get(accountId) ?? new Set();
      const go = () => {
        gone.removeEventListener('abort', go);
        waiting.delete(go);
        if (waiting.size === 0) this.#waiting.delete(accountId);
        resolve();
      };
      gone.addEventListener('abort', go);
      this.#waiting.set(accountId, waiting.add(go));
    });
  }

  /** Lets those go who wait for an account: their clients are to come back. */
  letGo(accounts: Iterable<string>): void {
    for (const accountId of accounts) for (const go of this.#waiting.get(accountId) ?? []) go();
  }

  /** Holds accounts from now on, until `release`; a crash forgets it. */
  hold(accounts: Iterable<string>): void {
    for (const accountId of accounts) this.#held.add(accountId);
    this.#close();
  }

  release(accounts: Iterable<string>): void {
    for (const accountId of accounts) this.#held.delete(accountId);
    this.#close();
  }

  /** Accounts of which nothing may be handled here now. */
  get away(): readonly string[] {
    return [...this.#closed];
  }

  /** Whether accounts are being copied from here: meanwhile nothing old is removed. */
  get isCopying(): boolean {
    return this.#leaving.size > 0;
  }

  /** Whether accounts are on their way, or their move has been broken off. */
  get isUnderWay(): boolean {
    return this.isCopying || this.#closed.size > 0;
  }

  /** Whether accounts are being copied to here. */
  get isReceiving(): boolean {
    return this.#records.some(({ state }) => state === 'coming');
  }

  /**
   * Does work that belongs to no request and no message. It is to look at `isAway` or `away` after it has begun, and to leave
   * such accounts alone: an account that is held later waits for it.
   */
  async work<R>(work: () => Promise<R>): Promise<R> {
    const working = work();
    this.#works.add(working);
    try {
      return await working;
    } finally {
      this.#works.delete(working);
    }
  }

  /** Waits for the end of all such work that has begun, at most `patience` milliseconds; whether it has ended. */
  async rested(patience: number): Promise<boolean> {
    const ended = Promise.allSettled([...this.#works]).then(() => true);
    return Promise.race([ended, pause(patience, false, { ref: false })]);
  }

  get leaving(): ReadonlySet<string> {
    return this.#leaving;
  }

  set leaving(accounts: ReadonlySet<string>) {
    this.#leaving = accounts;
  }

  /** A request that may change something begins; call what it returns when it has been answered. */
  begin(slot: string): () => void {
    this.#inFlight.set(slot, (this.#inFlight.get(slot) ?? 0) + 1);
    let ended = false;
    return () => {
      if (ended) return;
      ended = true;
      const left = (this.#inFlight.get(slot) ?? 1) - 1;
      if (left > 0) this.#inFlight.set(slot, left);
      else this.#inFlight.delete(slot);
    };
  }

  /** Waits for the end of such requests, at most `patience` milliseconds; whether they have ended. */
  async answered(accounts: Iterable<string>, patience: number): Promise<boolean> {
    const slots = [...accounts].map(slotOf);
    const until = performance.now() + patience;
    while (slots.some((slot) => this.#inFlight.has(slot))) {
      if (performance.now() > until) return false;
      await pause(lookEvery);
    }
    return true;
  }

  #close(): void {
    const recorded = this.#records.filter(({ state }) => state !== 'here').flatMap(({ accounts }) => accounts);
    this.#closed = new Set([...recorded, ...this.#held]);
    this.#closedSlots = new Set([...this.#closed].map(slotOf));
  }
}
