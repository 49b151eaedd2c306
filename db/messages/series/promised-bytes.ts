import { storeFull } from '../../sqlite/dialect.ts';

/** Bytes by account. */
type Bytes = Map<string, number>;

/** What accounts may take on the disk, as of the last look at it. */
export interface Room {
  of(accountId: string): number;
  /** Why an account gets no more. */
  reason: string;
}

/** What accounts have been given since it was looked at what they take: between two looks nobody gets more than its room either. */
export class PromisedBytes {
  #room: Room | undefined;
  /** What the last look has not seen, and what a look under way does not see. */
  #since: Bytes = new Map();
  #next: Bytes | undefined;
  /** What is on its way to the disk. */
  readonly #pending: Bytes = new Map();
  #refused = new Set<string>();

  /** Whether anything is counted: somebody has a room. */
  get isCounted(): boolean {
    return this.#room !== undefined;
  }

  /** Accounts that have got no more since the last look. */
  get refused(): ReadonlySet<string> {
    return this.#refused;
  }

  /** A look begins: what is on its way may not be in it. */
  beginLook(): void {
    this.#next = new Map(this.#pending);
  }

  endLook(room: Room | undefined): void {
    this.#room = room;
    this.#since = this.#next ?? new Map();
    this.#next = undefined;
    this.#refused = new Set();
  }

  /** Why an account gets no `bytes` more; undefined while it may. After one that is refused it gets nothing until the next look. */
  refusal(accountId: string, bytes = 0): Error | undefined {
    if (!this.#room) return undefined;
    if ((this.#since.get(accountId) ?? 0) + bytes > this.#room.of(accountId)) this.#refused.add(accountId);
    return this.#refused.has(accountId) ? storeFull(this.#room.reason) : undefined;
  }

  add(accountId: string, bytes: number): void {
    for (const sum of [this.#since, this.#next, this.#pending]) sum?.set(accountId, (sum.get(accountId) ?? 0) + bytes);
  }

  /** They are on the disk, or have failed. */
  settle(accountId: string, bytes: number): void {
    const left = (this.#pending.get(accountId) ?? 0) - bytes;
    if (left > 0) this.#pending.set(accountId, left);
    else this.#pending.delete(accountId);
  }
}
