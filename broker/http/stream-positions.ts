import type { StoreEnd } from '../../db/messages/threads/protocol.ts';

/** Milliseconds after which a stored message is not waited for any more: its publisher has gone before it was passed on. */
const maxDelay = 10_000;

/** A stored message that has not been handed on. */
interface UnderWay {
  /** Where the one before it ended. */
  before: StoreEnd;
  since: number;
}

/**
 * How far the stored messages of each account have been handed on. A message that waits for its turn holds the mark of its account
 * back, so a reader that reconnects with the mark misses nothing.
 */
export class StreamPositions {
  readonly #store: { readonly end: Readonly<StoreEnd> };
  /** By account, in the order in which they were stored, by payload: packets are copied on their way. */
  readonly #underWay = new Map<string, Map<Buffer, UnderWay>>();
  readonly #places = new WeakMap<Buffer, number>();
  /** QoS 0 is handed on before it is stored. */
  readonly #handedOn = new WeakSet<Buffer>();
  #active = false;

  constructor(store: { readonly end: Readonly<StoreEnd> }) {
    this.#store = store;
  }

  /** From the first reader on; before it, marks would be work for nobody. */
  activate(): void {
    this.#active = true;
  }

  get active(): boolean {
    return this.#active;
  }

  /** A message is on disk: `end` is its own, `added` what it holds. */
  stored(accountId: string, payload: Buffer, end: Readonly<StoreEnd>, added: Readonly<StoreEnd>): void {
    if (!this.#active) return;
    this.#places.set(payload, orderOf(end));
    if (this.#handedOn.has(payload)) return;
    const before = { points: end.points - added.points, logs: end.logs - added.logs };
    const ofAccount = this.#underWay.get(accountId) ?? new Map<Buffer, UnderWay>();
    this.#underWay.set(accountId, ofAccount.set(payload, { before, since: performance.now() }));
  }

  /** A message is being handed on. */
  handedOn(accountId: string, payload: Buffer, qos: number): void {
    const ofAccount = this.#underWay.get(accountId);
    if (ofAccount?.delete(payload)) {
      if (ofAccount.size === 0) this.#underWay.delete(accountId);
    } else if (qos === 0) this.#handedOn.add(payload);
  }

  /** The place up to which everything of an account has been handed on. */
  mark(accountId: string): Readonly<StoreEnd> {
    const ofAccount = this.#underWay.get(accountId);
    if (!ofAccount) return this.#store.end;
    const tooLong = performance.now() - maxDelay;
    for (const [payload, { before, since }] of ofAccount) {
      if (since > tooLong) return before;
      ofAccount.delete(payload);
    }
    this.#underWay.delete(accountId);
    return this.#store.end;
  }

  /** Whether a message has been stored at `place` or before it. */
  isWithin(payload: Buffer, place: Readonly<StoreEnd>): boolean {
    const order = this.#places.get(payload);
    return order !== undefined && order <= orderOf(place);
  }
}

export function isBefore(one: Readonly<StoreEnd>, other: Readonly<StoreEnd>): boolean {
  return orderOf(one) < orderOf(other);
}

/** Points and log entries have sequences of their own, both of which grow with every commit. */
function orderOf({ points, logs }: Readonly<StoreEnd>): number {
  return points + logs;
}
