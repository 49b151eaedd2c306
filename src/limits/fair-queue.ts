/** The one queue in front of everything that accounts share: accounts take turns, then the callers within an account. */
import { FairLanes, type Lane } from '../../db/sqlite/fair-lanes.ts';
import type { Slices } from '../../db/sqlite/slices.ts';
import { PlatformError } from '../errors.ts';
import { networkOf, networksOf } from './networks.ts';

export { FairLanes, type Lane };

/** Items that may wait: of one caller, and of one account. */
const maxWaiting = { ofCaller: 200, ofAccount: 1000 };

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

  /** Pieces of work of an account that wait. */
  waitingOf(accountId: string): number {
    return this.#lanes.sizeOf(accountId);
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

  /** As run, for work that ends elsewhere: the answer ends it; further calls of it do nothing. */
  async enter(lane: Lane, cost: number, place: 'last' | 'first' = 'last'): Promise<() => void> {
    const { accountId } = lane;
    if (this.#running >= this.#limit || !this.#mayRun(accountId)) await this.#wait(lane, cost, place);
    else this.#begun(accountId);
    let isIn = true;
    return () => {
      if (isIn) this.#ended(accountId);
      isIn = false;
    };
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

/** The lane of a caller that nobody knows yet. All of them share one turn, in which addresses take turns. */
export function laneOfAddress(address: string): Lane {
  return { accountId: 'strangers', callerId: networkOf(address) };
}

/** The lane of an authenticated caller. */
export function laneOf({ accountId, id }: { accountId: string; id: string }): Lane {
  return { accountId, callerId: id };
}
