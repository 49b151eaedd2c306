/** Milliseconds of work on packets in one turn of the event loop, and its cost: about that of so many deliveries. */
const perTurn = { time: 5, cost: 4000 };
/** Cost that an account takes before another has its turn, while others wait. */
const quantum = 512;
/** Cost in a turn before the clock is looked at for the first time, and between two looks. */
const unclocked = 128;
const perLook = 32;

/** What waits for the turn of its account. */
export interface Work {
  /** Goes on until it has ended, or until `isOver`; true when it has ended. */
  goOn(): boolean;
}

export interface PaceParts {
  /** Told of what a piece of work has thrown. */
  failed(error: unknown): void;
  /** Calls back in the next turn of the event loop. */
  later?(work: () => void): void;
  /** Milliseconds. */
  now?(): number;
}

/**
 * How much work on packets one turn of the event loop does. Up to the maximum everybody goes on at once, which costs a
 * number and a comparison. What is beyond it waits for the next turns, in which accounts take turns: what one account sends
 * to many receivers does not make others wait for all of it.
 */
export class Pace {
  readonly #parts: Required<PaceParts>;
  /** By account, the one whose turn is next first; the work of each in the order of its turns. */
  readonly #waiting = new Map<string, Set<Work>>();
  #isOver = false;
  /** Whether the turn has used all that it has, and not an account its part of it. */
  #isUsedUp = false;
  #isBegun = false;
  #isScheduled = false;
  #isEnding = false;
  #since = 0;
  #spent = 0;
  #nextLook = unclocked;
  #endOfPart = Number.POSITIVE_INFINITY;

  constructor({ failed, later = setImmediate, now = () => performance.now() }: PaceParts) {
    this.#parts = { failed, later, now };
  }

  /** Whether work that is not finished must `wait` now. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Accounts whose work waits. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Counts what has been done; a delivery costs 1. */
  spend(cost: number): void {
    this.#spent += cost;
    if (this.#spent >= this.#nextLook) this.#look();
  }

  /** Work of an account goes on when it is its turn; once however often it is said. */
  wait(accountId: string, work: Work): void {
    const ofAccount = this.#waiting.get(accountId);
    if (ofAccount) ofAccount.add(work);
    else this.#waiting.set(accountId, new Set([work]));
    if (!this.#isBegun) this.#begin();
  }

  /** Resolves when it is the account's turn. */
  turn(accountId: string): Promise<void> {
    return new Promise((resolve) => {
      const goOn = () => {
        resolve();
        return true;
      };
      this.wait(accountId, { goOn });
    });
  }

  /** Does at once all that waits and all that comes: the process ends. */
  end(): void {
    this.#isEnding = true;
    this.#next();
  }

  #look(): void {
    if (!this.#isBegun) {
      this.#begin();
      return;
    }
    this.#nextLook = this.#spent + perLook;
    if (this.#isEnding) return;
    this.#isUsedUp ||= this.#spent >= perTurn.cost || this.#parts.now() - this.#since >= perTurn.time;
    if (this.#isUsedUp || this.#spent >= this.#endOfPart) this.#isOver = true;
  }

  /** From now on the clock counts, until the event loop has gone round. */
  #begin(): void {
    this.#isBegun = true;
    this.#since = this.#parts.now();
    this.#nextLook = this.#spent + perLook;
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#parts.later(() => {
      this.#isScheduled = false;
      this.#next();
    });
  }

  /** A new turn: first those who wait. */
  #next(): void {
    this.#spent = 0;
    this.#isOver = false;
    this.#isUsedUp = false;
    this.#isBegun = false;
    this.#nextLook = unclocked;
    if (this.#waiting.size === 0) return;
    this.#begin();
    while (!this.#isUsedUp) {
      const [next] = this.#waiting;
      if (!next) break;
      const [accountId, ofAccount] = next;
      this.#waiting.delete(accountId);
      this.#waiting.set(accountId, ofAccount);
      this.#goOn(ofAccount);
      if (ofAccount.size === 0) this.#waiting.delete(accountId);
    }
    this.#endOfPart = Number.POSITIVE_INFINITY;
    this.#isOver = this.#isUsedUp;
  }

  /** The part of one account. */
  #goOn(ofAccount: Set<Work>): void {
    this.#isOver = false;
    this.#endOfPart = this.#spent + quantum;
    while (!this.#isOver) {
      const [work] = ofAccount;
      if (!work) return;
      ofAccount.delete(work);
      this.spend(1);
      try {
        if (!work.goOn()) ofAccount.add(work);
      } catch (error) {
        this.#parts.failed(error);
      }
    }
  }
}
