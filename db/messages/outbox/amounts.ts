/** How many bytes on disk, about, the outbox takes by bridge and by account, inside the writer's transactions. */

/** Of one bridge. */
interface Amounts {
  accountId: string;
  /** Must be delivered, so it stays. */
  pending: number;
  /** Delivered or dead: kept only to be replayed or read, and removed to make room. */
  kept: number;
}

export type AmountRow = Amounts & { bridgeId: string };
export type AccountBytes = [accountId: string, bytes: number];

export class OutboxAmounts {
  readonly #bridges = new Map<string, Amounts>();
  /** Pending bytes by account. */
  readonly #pending = new Map<string, number>();
  #pendingBytes = 0;
  /** Amounts of the open transaction, taken back if it fails. */
  #changes: AmountRow[] = [];

  constructor(rows: readonly AmountRow[]) {
    for (const row of rows) this.#apply(row, 1);
  }

  /** Pending bytes of all accounts. */
  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  add(bridgeId: string, bytes: { pending?: number; kept?: number }, accountId?: string): void {
    const known = this.#bridges.get(bridgeId)?.accountId;
    const change = { bridgeId, accountId: known ?? accountId ?? '', pending: 0, kept: 0, ...bytes };
    this.#apply(change, 1);
    this.#changes.push(change);
  }

  /** Nothing of a bridge was found that could be removed. */
  keepsNothing(bridgeId: string): void {
    this.add(bridgeId, { kept: -(this.#bridges.get(bridgeId)?.kept ?? 0) });
  }

  /** The bridge of an account that keeps most. */
  largestOf(account: string): string | undefined {
    let most: string | undefined;
    let bytes = 0;
    for (const [bridgeId, { accountId, kept }] of this.#bridges)
      if (accountId === account && kept > bytes) [most, bytes] = [bridgeId, kept];
    return most;
  }

  /** The pending bytes of each account that has some. */
  pending(): AccountBytes[] {
    return [...this.#pending];
  }

  /** The transaction is on disk: the accounts whose pending bytes it has changed. */
  committed(): AccountBytes[] {
    const accounts = new Set(this.#changes.flatMap(({ accountId, pending }) => (pending === 0 ? [] : [accountId])));
    for (const { bridgeId } of this.#changes) {
      const { pending = 0, kept = 0 } = this.#bridges.get(bridgeId) ?? {};
      if (pending <= 0 && kept <= 0) this.#bridges.delete(bridgeId);
    }
    this.#changes = [];
    return [...accounts].map((accountId) => [accountId, this.#pending.get(accountId) ?? 0]);
  }

  rolledBack(): void {
    for (const change of this.#changes.reverse()) this.#apply(change, -1);
    this.#changes = [];
  }

  #apply({ bridgeId, accountId, pending, kept }: AmountRow, sign: 1 | -1): void {
    const amounts = this.#bridges.get(bridgeId) ?? { accountId, pending: 0, kept: 0 };
    amounts.pending += sign * pending;
    amounts.kept += sign * kept;
    this.#bridges.set(bridgeId, amounts);
    const ofAccount = (this.#pending.get(accountId) ?? 0) + sign * pending;
    if (ofAccount > 0) this.#pending.set(accountId, ofAccount);
    else this.#pending.delete(accountId);
    this.#pendingBytes += sign * pending;
  }
}
