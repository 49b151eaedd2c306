/**
 * The queue in front of what accounts share, but for the message store (`broker/ingest/admission.ts`): accounts take turns, then the callers
 * within an account.
 */
import { PlatformError } from '../errors.ts';
import { type Lane, Lanes } from './lanes.ts';
import { LongWork } from './long-work.ts';
import { type SliceOptions, TimeSlice } from './time-slice.ts';

/** Pieces that may wait: of one caller, and of one account. */
const maxWaiting = { ofCaller: 200, ofAccount: 1000 };
/** For work that is bounded elsewhere. */
export const unbounded = { ofCaller: Number.POSITIVE_INFINITY, ofAccount: Number.POSITIVE_INFINITY };
/** Turns that the lanes of a rank have before one of those behind it. */
const turnsOfOthers = 4;
/** A piece of work that has its turn. */
export interface Turn {
  /** Adds to the cost that was said before, when it turns out higher. */
  charge(cost: number): void;
  /** Whether anybody else waits, so that long work should end its turn soon. */
  readonly othersWait: boolean;
}

/** Gives back the place of a piece, and adds to its cost; further calls do nothing. */
export type Leave = (cost?: number) => void;

export interface SchedulerOptions {
  /** Pieces that have a place at once, of all and of one account. */
  atOnce?: number;
  perAccount?: number;
  /** The cost of an ordinary piece: what a lane may take in one turn. */
  quantum?: number;
  /** Pieces that may wait before more are refused. */
  maxWaiting?: typeof maxWaiting;
  /** Lanes of a higher rank, from 0 on, let those of lower ones go first, except for every fifth turn. */
  rankOf?: (accountId: string) => number;
  /** The highest rank. */
  lastRank?: number;
  /** How much may begin in one turn of the event loop. */
  slice?: SliceOptions;
  /** Whether it is long work on the event loop: between two pieces everybody else goes first. */
  isLong?: boolean;
  /** Told of what a piece throws as it begins. */
  failed?: (error: unknown) => void;
}

interface Piece {
  lane: Lane;
  cost: number;
  beginPiece(): void;
}

/**
 * Decides what goes on now and what waits. Work that has a place until it ends (`run`, `enter`) is bounded in number; work
 * of the event loop (`isOver`, `spend`, `wait`) by a slice of its turns. What waits goes on in turns of accounts, by cost.
 */
export class Scheduler {
  readonly #atOnce: number;
  readonly #perAccount: number;
  readonly #quantum: number;
  readonly #maxWaiting: typeof maxWaiting;
  readonly #rankOf: ((accountId: string) => number) | undefined;
  readonly #lastRank: number;
  readonly #failed: ((error: unknown) => void) | undefined;
  readonly #lanes: Lanes<Piece>;
  readonly #slice: TimeSlice | undefined;
  readonly #longWork: LongWork | undefined;
  readonly #ofAccount = new Map<string, number>();
  /** Of each rank, its turns since the last one of those behind it. */
  readonly #turnsOfOthers: number[] = [];
  #running = 0;

  constructor(options: SchedulerOptions) {
    const { atOnce = Number.POSITIVE_INFINITY, perAccount = atOnce, quantum = 1, slice } = options;
    this.#atOnce = atOnce;
    this.#perAccount = perAccount;
    this.#quantum = quantum;
    this.#maxWaiting = options.maxWaiting ?? maxWaiting;
    this.#rankOf = options.rankOf;
    this.#lastRank = options.lastRank ?? 0;
    this.#failed = options.failed;
    this.#lanes = new Lanes(quantum);
    this.#slice = slice && new TimeSlice(slice, () => this.#goOn());
    this.#longWork = options.isLong ? new LongWork() : undefined;
  }

  /** Pieces of work that wait, in all lanes. */
  get waiting(): number {
    return this.#lanes.size;
  }

  /** Pieces of work of an account that wait. */
  waitingOf(accountId: string): number {
    return this.#lanes.sizeOf(accountId);
  }

  hasWaiting(lane: Lane): boolean {
    return this.#lanes.sizeOfCaller(lane) > 0;
  }

  get running(): number {
    return this.#running;
  }

  /** Whether work of the event loop must `wait` now, or go on later. */
  get isOver(): boolean {
    return this.#slice?.isOver ?? false;
  }

  /** Counts what has been done in this turn of the event loop, in units of the slice. */
  spend(cost: number): void {
    this.#slice?.spend(cost);
  }

  /** `begin` is called when it is the lane's turn; what it spends is its cost, if that is more than `cost`. */
  wait(lane: Lane, begin: () => void, cost = 1, place: 'last' | 'first' = 'last'): void {
    this.#lanes.add(lane, cost, { lane, cost, beginPiece: begin }, place);
    this.#slice?.schedule();
  }

  /**
   * Runs `work` when it is the lane's turn. `cost` is in units of the caller's choice; work that goes on after an earlier turn takes
   * the `first` place of its lane. @throws PlatformError 429/-199 when the lane has too much waiting already.
   */
  async run<R>(
    lane: Lane,
    cost: number,
    work: (turn: Turn) => Promise<R>,
    place: 'last' | 'first' = 'last',
  ): Promise<R> {
    const leave = await this.enter(lane, cost, place);
    const lanes = this.#lanes;
    this.#longWork?.beginSlice();
    try {
      return await work({
        charge: (more) => lanes.chargeLane(lane, more),
        get othersWait() {
          return lanes.size > lanes.sizeOfCaller(lane);
        },
      });
    } finally {
      if (this.#longWork) void this.#longWork.giveWay().then(() => leave());
      else leave();
    }
  }

  /** As run, for work that ends elsewhere: the answer ends it. */
  async enter(lane: Lane, cost: number, place: 'last' | 'first' = 'last'): Promise<Leave> {
    const { accountId } = lane;
    if (this.isOver || this.#running >= this.#atOnce || !this.#mayRun(accountId)) {
      this.#demandRoom(lane);
      await new Promise<void>((resolve) => {
        const begin = () => {
          this.#begun(accountId);
          resolve();
        };
        this.wait(lane, begin, cost, place);
      });
    } else {
      this.#begun(accountId);
      this.spend(1);
    }
    let isIn = true;
    return (more = 0) => {
      if (!isIn) return;
      isIn = false;
      this.#lanes.chargeLane(lane, more);
      this.#ended(accountId);
    };
  }

  /** Does at once all that waits and all that comes: the process ends. */
  endTurns(): void {
    this.#slice?.open();
    while (this.#beginNext());
  }

  #demandRoom(lane: Lane): void {
    const { ofCaller, ofAccount } = this.#maxWaiting;
    for (const [limit, waiting] of [
      [ofCaller, this.#lanes.sizeOfCaller(lane)],
      [ofAccount, this.#lanes.sizeOf(lane.accountId)],
    ] as const)
      if (waiting >= limit) throw new PlatformError('tooMany', { allowance: { limit, remaining: 0, reset: 1 } });
  }

  #mayRun(accountId: string): boolean {
    return this.#perAccount >= this.#atOnce || (this.#ofAccount.get(accountId) ?? 0) < this.#perAccount;
  }

  #begun(accountId: string): void {
    this.#running += 1;
    if (this.#perAccount < this.#atOnce) this.#ofAccount.set(accountId, (this.#ofAccount.get(accountId) ?? 0) + 1);
  }

  /** Hands the place that has become free to the next in the queue. */
  #ended(accountId: string): void {
    this.#running -= 1;
    const left = (this.#ofAccount.get(accountId) ?? 0) - 1;
    if (left > 0) this.#ofAccount.set(accountId, left);
    else this.#ofAccount.delete(accountId);
    this.spend(0);
    this.#beginNext();
  }

  /** Whether a piece has begun: one waits that may, there is a place, and this turn of the event loop has time. */
  #beginNext(): boolean {
    const slice = this.#slice;
    if (this.#lanes.size === 0 || this.#running >= this.#atOnce || slice?.isUsedUp) return false;
    const piece = this.#takeNext();
    if (!piece) return false;
    slice?.beginPart(this.#lanes.size > 0 ? this.#quantum : Number.POSITIVE_INFINITY);
    const before = slice?.spent ?? 0;
    slice?.spend(1);
    try {
      piece.beginPiece();
    } catch (error) {
      if (!this.#failed) throw error;
      this.#failed(error);
    } finally {
      this.#lanes.chargeLane(piece.lane, Math.max(0, (slice?.spent ?? 0) - before - piece.cost));
      slice?.endPart();
    }
    return true;
  }

  /** A turn of the event loop begins: first those who wait, as many as it has time for. */
  #goOn(): void {
    const isOneByOne = this.#slice?.isOneByOne;
    while (this.#beginNext())
      if (isOneByOne) {
        queueMicrotask(() => process.nextTick(() => this.#goOn()));
        return;
      }
  }

  #takeNext(): Piece | undefined {
    if (this.#rankOf) return this.#takeFrom(0, this.#rankOf);
    return this.#lanes.takeNext(this.#perAccount >= this.#atOnce ? undefined : (id) => this.#mayRun(id));
  }

  /** The next piece of this rank, or of those behind it. */
  #takeFrom(rank: number, rankOf: (accountId: string) => number): Piece | undefined {
    const own = () => this.#lanes.takeNext((id) => rankOf(id) === rank && this.#mayRun(id));
    if (rank >= this.#lastRank) return own();
    const turns = this.#turnsOfOthers[rank] ?? 0;
    const behind = () => this.#takeFrom(rank + 1, rankOf);
    const waited = turns >= turnsOfOthers ? behind() : undefined;
    const first = waited ? undefined : own();
    this.#turnsOfOthers[rank] = first ? turns + 1 : 0;
    return waited ?? first ?? behind();
  }
}
