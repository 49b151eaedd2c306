import { setImmediate as nextTurn } from 'node:timers/promises';

/** Milliseconds after which work gives way. */
const sliceTime = 3;
/** A turn of the event loop in which nobody else had anything to do is shorter than this, in milliseconds. */
const idleTurn = 0.3;
/** How much of the event loop others may have for each share of ours, while they want it. */
const othersShare = 6;

/** Long work on the event loop, cut into slices: between two of them everybody else has a turn. */
export class Slices {
  #since = performance.now();

  /** To be called after each step, which is to be short. Returns at once while the slice lasts. */
  async step(): Promise<void> {
    const spent = performance.now() - this.#since;
    if (spent < sliceTime) return;
    let others = 0;
    do {
      const asked = performance.now();
      await nextTurn();
      const turn = performance.now() - asked;
      if (turn < idleTurn) break;
      others += turn;
    } while (others < othersShare * spent);
    this.#since = performance.now();
  }
}
