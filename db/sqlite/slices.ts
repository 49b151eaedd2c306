import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises';

/** Milliseconds after which work gives way. */
const sliceTime = 3;
/** When the turn after a slice is shorter than this, in milliseconds, hardly anybody had waited for its end. */
const idleTurn = 0.3;
/** How much of the event loop others have for each share of ours, while they use at least the second share of it. */
const othersShare = 6;
const busy = 0.5;

/** Long work on the event loop, cut into slices: everybody else goes before it. */
export class Slices {
  #since = performance.now();

  /** To be called after each step, which is to be short. Returns at once while the slice lasts. */
  async step(): Promise<void> {
    const ended = performance.now();
    const spent = ended - this.#since;
    if (spent < sliceTime) return;
    await nextTurn();
    if (performance.now() - ended > idleTurn) {
      const then = performance.eventLoopUtilization();
      do await pause(1);
      while (
        performance.now() - ended < othersShare * spent &&
        performance.eventLoopUtilization(then).utilization > busy
      );
    }
    this.#since = performance.now();
  }
}
