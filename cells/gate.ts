/**
 * The gate of a server that is one of several. What is decided about an account is in a file of the data directory, so that
 * no crash makes two servers act for it.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { AccountGate } from '../src/core/account-gate.ts';
import { slotOf } from '../src/core/ids.ts';
import { type MoveRecord, readMoves, writeMoves } from './moves/records.ts';

/** Milliseconds between two looks at what is still being handled. */
const lookEvery = 5;

export class CellGate implements AccountGate {
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
  #copied: ReadonlySet<string> = new Set();
  /** What the server does by itself, without a request or a message. */
  readonly #works = new Set<Promise<unknown>>();

  private constructor(directory: string, records: MoveRecord[]) {
    this.#directory = directory;
    this.#records = records;
    this.#close();
  }

  static open(directory: string): CellGate {
    return new CellGate(directory, readMoves(directory));
  }

  get records(): readonly MoveRecord[] {
    return this.#records;
  }

  /** The record that names an account. */
  recordOf(accountId: string): MoveRecord | undefined {
    return this.#records.find(({ accounts }) => accounts.includes(accountId));
  }

  cameAt(accountId: string): number | undefined {
    return this.recordOf(accountId)?.since;
  }

  /** Replaces what is recorded of these accounts; undefined forgets it. On disk when it returns. */
  recordMove(accounts: readonly string[], record: MoveRecord | undefined): void {
    const others = this.#records.filter((one) => !one.accounts.some((id) => accounts.includes(id)));
    const records = record ? [...others, record] : others;
    writeMoves(this.#directory, records);
    this.#records = records;
    this.#close();
  }

  isAway(accountId: string): boolean {
    return this.#closed.size > 0 && this.#closed.has(accountId);
  }

  isSlotAway(slot: string): boolean {
    return this.#closedSlots.size > 0 && this.#closedSlots.has(slot);
  }

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
  dismissWaiting(accounts: Iterable<string>): void {
    for (const accountId of accounts) for (const go of this.#waiting.get(accountId) ?? []) go();
  }

  /** Holds accounts from now on, until `release`; a crash forgets it. */
  holdAccounts(accounts: Iterable<string>): void {
    for (const accountId of accounts) this.#held.add(accountId);
    this.#close();
  }

  releaseAccounts(accounts: Iterable<string>): void {
    for (const accountId of accounts) this.#held.delete(accountId);
    this.#close();
  }

  get away(): readonly string[] {
    return [...this.#closed];
  }

  get isUnderWay(): boolean {
    return this.#copied.size > 0 || this.#closed.size > 0;
  }

  get isReceiving(): boolean {
    return this.#records.some(({ state }) => state === 'coming');
  }

  async work<R>(work: (away: readonly string[]) => Promise<R>): Promise<R> {
    const working = work(this.away);
    this.#works.add(working);
    try {
      return await working;
    } finally {
      this.#works.delete(working);
    }
  }

  async workFor<R>(accountId: string, work: () => Promise<R>): Promise<R | undefined> {
    return this.isAway(accountId) ? undefined : this.work(work);
  }

  /** Waits for the end of all such work that has begun, at most `patience` milliseconds; whether it has ended. */
  async whenRested(patience: number): Promise<boolean> {
    const ended = Promise.allSettled([...this.#works]).then(() => true);
    return Promise.race([ended, pause(patience, false, { ref: false })]);
  }

  /** These accounts, and no others, are being copied from here from now on. */
  copying(accounts: Iterable<string>): void {
    this.#copied = new Set(accounts);
  }

  beginRequest(slot: string): () => void {
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
  async whenAnswered(accounts: Iterable<string>, patience: number): Promise<boolean> {
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
