/** The one queue in front of everything that accounts share: accounts take turns, then the callers within an account. */
import type { Slices } from '../../db/sqlite/slices.js';
import { PlatformError } from '../errors.js';
import { networksOf } from './networks.js';

/** A waiting caller. Callers of an account share its part; for strangers both ids are networks of their address. */
export interface Lane {
  accountId: string;
  callerId: string;
}

/** Items that may wait: of one caller, and of one account. */
const maxWaiting = { ofCaller: 200, ofAccount: 1000 };

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
export class FairLanes<T> {
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
  push(lane: Lane, cost: number, item: T, place: 'last' | 'first' = 'last'): void {
    const path = this.#path(lane);
    for (const node of path) node.size += 1;
    path[2].items[place === 'last' ? 'push' : 'unshift']({ item, cost });
  }

  /** The next item, of accounts for which `mayHave` is true; undefined when none of them has one. */
  shift(mayHave?: (accountId: string) => boolean): T | undefined {
    if (this.#root.size === 0) return undefined;
    if (mayHave && !hasAny(this.#root, mayHave)) return undefined;
    const { item } = this.#take(this.#root, mayHave);
    // Remaining debts are of empty lanes: they matter only in comparison.
    if (this.#root.size === 0) this.#root = newNode(0);
    return item;
  }

  /** Adds to the cost of what a lane has already taken: it waits longer for its next turn while others wait. */
  charge(lane: Lane, cost: number): void {
    if (this.#root.size === 0) return;
    const [root, account, caller] = this.#path(lane);
    account.balance -= cost;
    caller.balance -= cost;
    // At the front of its line it would be given its next turn at once.
    if (account.balance <= 0) moveToEnd(root, lane.accountId, account);
    if (caller.balance <= 0) moveToEnd(account, lane.callerId, caller);
  }

  #path({ accountId, callerId }: Lane): [Node<T>, Node<T>, Node<T>] {
    const account = childOf(this.#root, accountId, this.#quantum);
    return [this.#root, account, childOf(account, callerId, this.#quantum)];
  }

  #take(node: Node<T>, mayHave?: (name: string) => boolean): { item: T; cost: number } {
    node.size -= 1;
    const own = node.items.shift();
    if (own) return own;
    const [name, child] = this.#nextOf(node, mayHave);
    const taken = this.#take(child);
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

/** A piece of work that has its turn. */
export interface Turn {
  /** Adds to the cost that was said before, when it turns out higher. */
  charge(cost: number): void;
  /** Whether anybody else waits, so that long work should end its turn soon. */
  readonly othersWait: boolean;
}

export interface QueueOptions {
  quantum?: number;
  /** Lanes that let all others go first, except for every fifth turn. */
  isLast?: (accountId: string) => boolean;
  most?: { ofCaller: number; ofAccount: number };
  perAccount?: number;
  slices?: Slices;
}

/** Turns that others have before one of the lanes that go last. */
const turnsOfOthers = 4;

/** Runs work of which only a part may run at once; the rest waits in fair lanes. */
export class FairQueue {
  readonly #limit: number;
  readonly #lanes: FairLanes<() => void>;
  readonly #most: typeof maxWaiting;
  readonly #perAccount: number;
  readonly #ofAccount = new Map<string, number>();
  readonly #slices: Slices | undefined;
  readonly #isLast: ((accountId: string) => boolean) | undefined;
  /** Turns since the last one of the lanes that go last. */
  #turnsOfOthers = 0;
  #running = 0;

  /**
   * At most `limit` pieces of work run at once, `perAccount` of one account. `most` may wait before more are refused.
   * `quantum` is the cost of an ordinary piece. `slices` is for work on the event loop: between two pieces others go first.
   */
  constructor(
    limit: number,
    { quantum = 1, most = maxWaiting, perAccount = limit, slices, isLast }: QueueOptions = {},
  ) {
    this.#limit = limit;
    this.#isLast = isLast;
    this.#slices = slices;
    this.#perAccount = perAccount;
    this.#lanes = new FairLanes(quantum);
    this.#most = most;
  }

  /** Pieces of work that wait, in all lanes. */
  get waiting(): number {
    return this.#lanes.size;
  }

  get running(): number {
    return this.#running;
  }

  /**
   * Runs `work` when it is the lane's turn. `cost` is in units of the caller's choice, the same for all work of a queue.
   * Work that goes on after an earlier turn takes the `first` place of its lane.
   * @throws PlatformError 429/-199 when the lane has too much waiting already.
   */
  async run<R>(
    lane: Lane,
    cost: number,
    work: (turn: Turn) => Promise<R>,
    place: 'last' | 'first' = 'last',
  ): Promise<R> {
    const leave = await this.enter(lane, cost, place);
    const lanes = this.#lanes;
    this.#slices?.begin();
    try {
      return await work({
        charge: (more) => lanes.charge(lane, more),
        get othersWait() {
          return lanes.size > lanes.sizeOfCaller(lane);
        },
      });
    } finally {
      if (this.#slices) void this.#slices.step().then(leave);
      else leave();
    }
  }

  /** As run, for work that ends elsewhere: the answer, to be called once, ends it. */
  async enter(lane: Lane, cost: number, place: 'last' | 'first' = 'last'): Promise<() => void> {
    const { accountId } = lane;
    if (this.#running >= this.#limit || !this.#mayRun(accountId)) await this.#wait(lane, cost, place);
    else this.#begun(accountId);
    return () => this.#ended(accountId);
  }

  #wait(lane: Lane, cost: number, place: 'last' | 'first'): Promise<void> {
    const { ofCaller, ofAccount } = this.#most;
    for (const [limit, waiting] of [
      [ofCaller, this.#lanes.sizeOfCaller(lane)],
      [ofAccount, this.#lanes.sizeOf(lane.accountId)],
    ] as const)
      if (waiting >= limit) throw new PlatformError('tooMany', { allowance: { limit, remaining: 0, reset: 1 } });
    return new Promise((resolve) => {
      const begin = () => {
        this.#begun(lane.accountId);
        resolve();
      };
      this.#lanes.push(lane, cost, begin, place);
    });
  }

  #mayRun(accountId: string): boolean {
    return this.#perAccount >= this.#limit || (this.#ofAccount.get(accountId) ?? 0) < this.#perAccount;
  }

  #begun(accountId: string): void {
    this.#running += 1;
    this.#ofAccount.set(accountId, (this.#ofAccount.get(accountId) ?? 0) + 1);
  }

  /** Hands the place that has become free to the next in the queue. */
  #ended(accountId: string): void {
    this.#running -= 1;
    const left = (this.#ofAccount.get(accountId) ?? 0) - 1;
    if (left > 0) this.#ofAccount.set(accountId, left);
    else this.#ofAccount.delete(accountId);
    this.#next()?.();
  }

  #next(): (() => void) | undefined {
    const isLast = this.#isLast;
    const mayHave = this.#perAccount >= this.#limit ? undefined : (id: string) => this.#mayRun(id);
    if (!isLast) return this.#lanes.shift(mayHave);
    const last = () => this.#lanes.shift((id) => isLast(id) && this.#mayRun(id));
    const others = () => this.#lanes.shift((id) => !isLast(id) && this.#mayRun(id));
    const waited = this.#turnsOfOthers >= turnsOfOthers ? last() : undefined;
    const first = waited ? undefined : others();
    this.#turnsOfOthers = first ? this.#turnsOfOthers + 1 : 0;
    return waited ?? first ?? last();
  }
}

const strangers = 'network ';

/** The lane of somebody whose account is not known yet: in the wide network of its address, by the narrow one. */
export function strangerLane(address: string): Lane {
  const networks = networksOf(address).map(({ key }) => key);
  return { accountId: strangers + networks.at(-1), callerId: String(networks[0]) };
}

/** Whether the account of a lane stands for strangers. */
export function areStrangers(accountId: string): boolean {
  return accountId.startsWith(strangers);
}

/** The lane of an authenticated caller. */
export function laneOf({ accountId, id }: { accountId: string; id: string }): Lane {
  return { accountId, callerId: id };
}
