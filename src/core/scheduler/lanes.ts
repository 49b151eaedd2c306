/** Lines in which accounts take turns, then the callers within an account. */

/** A waiting caller. Callers of an account share its part; for strangers both ids are networks of their address. */
export interface Lane {
  accountId: string;
  callerId: string;
}

/** An account, or a caller within one. */
interface Node<T> {
  /** Cost that may still be taken in this turn; negative after an item that cost more, and paid back in later turns. */
  balance: number;
  /** Items that wait here or below. */
  size: number;
  readonly children: Map<string, Node<T>>;
  readonly items: Array<{ item: T; cost: number }>;
}

/**
 * Items that wait for something shared, in lanes (deficit round robin). What an account gets is measured in cost and not
 * in items; the items of one caller leave in the order in which they came.
 */
export class Lanes<T> {
  readonly #quantum: number;
  #root: Node<T> = newNode(0);

  /** `quantum` is the cost that a lane may take in one turn: about that of an ordinary item. */
  constructor(quantum = 1) {
    this.#quantum = quantum;
  }

  get size(): number {
    return this.#root.size;
  }

  /** Items that wait in the lane of one account. */
  sizeOf(accountId: string): number {
    return this.#root.children.get(accountId)?.size ?? 0;
  }

  /** Items that wait in the lane of one caller. */
  sizeOfCaller({ accountId, callerId }: Lane): number {
    return this.#root.children.get(accountId)?.children.get(callerId)?.size ?? 0;
  }

  /** Adds an item, last in its lane; `first` for one that goes on with what it has begun. */
  add(lane: Lane, cost: number, item: T, place: 'last' | 'first' = 'last'): void {
    const path = this.#path(lane);
    for (const node of path) node.size += 1;
    path[2].items[place === 'last' ? 'push' : 'unshift']({ item, cost });
  }

  /** The next item, of accounts for which `mayHave` is true; undefined when none of them has one. */
  takeNext(mayHave?: (accountId: string) => boolean): T | undefined {
    if (this.#root.size === 0) return undefined;
    if (mayHave && !hasAny(this.#root, mayHave)) return undefined;
    const { item } = this.#takeItem(this.#root, mayHave);
    // Remaining debts are of empty lanes: they matter only in comparison.
    if (this.#root.size === 0) this.#root = newNode(0);
    return item;
  }

  /** Adds to the cost of what a lane has already taken: it waits longer for its next turn. Alone it takes nothing from others. */
  chargeLane(lane: Lane, cost: number): void {
    if (cost <= 0 || this.#root.size === 0) return;
    const [root, account, caller] = this.#path(lane);
    if (root.size > account.size) account.balance -= cost;
    if (account.size > caller.size) caller.balance -= cost;
    // At the front of its line it would be given its next turn at once.
    if (account.balance <= 0) moveToEnd(root, lane.accountId, account);
    if (caller.balance <= 0) moveToEnd(account, lane.callerId, caller);
  }

  #path({ accountId, callerId }: Lane): [Node<T>, Node<T>, Node<T>] {
    const account = childOf(this.#root, accountId, this.#quantum);
    return [this.#root, account, childOf(account, callerId, this.#quantum)];
  }

  #takeItem(node: Node<T>, mayHave?: (name: string) => boolean): { item: T; cost: number } {
    node.size -= 1;
    const own = node.items.shift();
    if (own) return own;
    const [name, child] = this.#nextOf(node, mayHave);
    const taken = this.#takeItem(child);
    // Alone a lane takes nothing from others.
    if (node.children.size > 1) child.balance -= taken.cost;
    if (child.balance <= 0) moveToEnd(node, name, child);
    else if (child.size === 0) node.children.delete(name);
    return taken;
  }

  /** The child whose turn it is: something waits in it, and it has paid for what it took. */
  #nextOf({ children }: Node<T>, mayHave: (name: string) => boolean = () => true): [string, Node<T>] {
    for (;;) {
      for (const [name, child] of children) {
        if (child.balance <= 0) child.balance = Math.min(child.balance + this.#quantum, this.#quantum);
        if (child.size > 0 && child.balance > 0 && mayHave(name)) return [name, child];
        if (child.size === 0 && child.balance > 0) children.delete(name);
        else moveToEnd({ children }, name, child);
        break;
      }
    }
  }
}

function hasAny<T>({ children }: Node<T>, mayHave: (name: string) => boolean): boolean {
  for (const [name, { size }] of children) if (size > 0 && mayHave(name)) return true;
  return false;
}

function newNode<T>(balance: number): Node<T> {
  return { balance, size: 0, children: new Map(), items: [] };
}

function childOf<T>({ children }: Node<T>, name: string, balance: number): Node<T> {
  let child = children.get(name);
  if (!child) {
    child = newNode(balance);
    children.set(name, child);
  }
  return child;
}

function moveToEnd<T>({ children }: Pick<Node<T>, 'children'>, name: string, child: Node<T>): void {
  children.delete(name);
  children.set(name, child);
}
