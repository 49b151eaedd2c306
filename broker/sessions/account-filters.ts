import { FilterTree } from './filter-tree.ts';

/** Holders that are known by topic, and topics; beyond it all are looked up again. */
const maxKnown = 20_000;

interface Account<H> {
  readonly tree: FilterTree<H>;
  /** Holders by topic, as long as no filter of the account changes. */
  readonly known: Map<string, readonly H[]>;
  knownSize: number;
}

const none: readonly never[] = [];

/**
 * The filters of each account in a tree of its own: a wildcard at the account's level stands for the holder's account alone, so
 * a message costs nothing for the filters of others.
 */
export class AccountFilters<H = string> {
  readonly #accounts = new Map<string, Account<H>>();
  #size = 0;
  #knownSize = 0;

  /** How many filters are held; one is counted once for each holder. */
  get size(): number {
    return this.#size;
  }

  add(accountId: string, filter: string, holder: H): void {
    let account = this.#accounts.get(accountId);
    if (!account) {
      account = { tree: new FilterTree(), known: new Map(), knownSize: 0 };
      this.#accounts.set(accountId, account);
    }
    const before = account.tree.size;
    account.tree.add(filter, holder);
    this.#size += account.tree.size - before;
    this.#forget(account);
  }

  delete(accountId: string, filter: string, holder: H): void {
    const account = this.#accounts.get(accountId);
    if (!account) return;
    const before = account.tree.size;
    account.tree.delete(filter, holder);
    this.#size += account.tree.size - before;
    this.#forget(account);
    if (account.tree.size === 0) this.#accounts.delete(accountId);
  }

  /** Holders of filters of the account that match `topic`, each once. */
  match(accountId: string, topic: string): readonly H[] {
    const account = this.#accounts.get(accountId);
    if (!account) return none;
    const known = account.known.get(topic);
    if (known) return known;
    const holders = [...account.tree.match(topic)];
    if (this.#knownSize > maxKnown) for (const one of this.#accounts.values()) this.#forget(one);
    account.known.set(topic, holders);
    account.knownSize += 1 + holders.length;
    this.#knownSize += 1 + holders.length;
    return holders;
  }

  #forget(account: Account<H>): void {
    if (account.knownSize === 0) return;
    this.#knownSize -= account.knownSize;
    account.known.clear();
    account.knownSize = 0;
  }
}
