import { type Lane, Lanes } from '../../src/core/scheduler/lanes.ts';

/**
 * Cost that is in the store at once: what a message can find before it. In points, and what takes about as long; the store
 * writes some hundred of them in a millisecond.
 */
const maxHeld = 4000;
/** Cost that an account may take in one turn, while others wait. */
const quantum = 250;

interface Waiting {
  cost: number;
  begin(): void;
}

/**
 * Lets messages into the store: at once while it keeps up, else accounts take turns, then the connections of each. So the
 * writer has only so much before it, and what waits can still be put into a fair order. Messages of one connection keep theirs.
 * It is no Scheduler: that bounds how many pieces run at once, and this their cost.
 */
export class Admission {
  readonly #lanes = new Lanes<Waiting>(quantum);
  #held = 0;
  #admitting = false;

  /** Messages that wait. */
  get waiting(): number {
    return this.#lanes.size;
  }

  /** Takes room in the store; false when the message has to wait. */
  enter(cost: number): boolean {
    if (this.#held >= maxHeld || this.#lanes.size > 0) return false;
    this.#held += cost;
    return true;
  }

  /** After an `enter` that was false: `begin` is called when room has been taken. */
  wait(lane: Lane, cost: number, begin: () => void): void {
    this.#lanes.add(lane, cost, { cost, begin });
  }

  /** A message took more room than expected: the lane's next turns come later. Give it to `leave` too. */
  charge(lane: Lane, cost: number): void {
    this.#held += cost;
    this.#lanes.chargeLane(lane, cost);
  }

  /** The store has done what took this room. */
  leave(cost: number): void {
    this.#held -= cost;
    // A turn may end at once and call this again.
    if (this.#admitting || this.#lanes.size === 0) return;
    this.#admitting = true;
    try {
      while (this.#held < maxHeld) {
        const next = this.#lanes.takeNext();
        if (!next) return;
        this.#held += next.cost;
        next.begin();
      }
    } finally {
      this.#admitting = false;
    }
  }
}
