import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises';
import { slices, TimeSlice } from './time-slice.ts';

/** When the turn after a slice is shorter than this, in milliseconds, hardly anybody had waited for its end. */
const idleTurn = 0.3;
/** How much of the event loop others have for each share of ours, while they use at least the second share of it. */
const othersShare = 6;
const busy = 0.5;

/** Work that has used its slice, in the order in which it goes on: one in each turn of the event loop. */
const waiting: Array<() => void> = [];
/** Milliseconds of slices since others had their share. */
let spent = 0;
let isPassing = false;

/**
 * Long work on the event loop, cut into slices: everybody else goes before it. All work that is cut this way shares one
 * place: much of it at once does not hold the event loop longer, and does not take a larger part of it.
 */
export class LongWork {
  /** Of the turns of the event loop in which something is done; what is waited for in others does not count. */
  readonly #slice = new TimeSlice(slices.longWork);

  /** To be called before the first step, when that can be long. */
  beginSlice(): void {
    this.#slice.startClock();
  }

  /** To be called after each step, which is to be short. Returns at once while the slice lasts. */
  async giveWay(): Promise<void> {
    this.#slice.startClock();
    this.#slice.spend(0);
    if (!this.#slice.isOver) return;
    spent += this.#slice.elapsed;
    const turn = new Promise<void>((resolve) => waiting.push(resolve));
    if (!isPassing) void passOn();
    await turn;
    this.#slice.startClock();
  }
}

/** Lets those who wait go on, one after the other, when everybody else has had a share. */
async function passOn(): Promise<void> {
  isPassing = true;
  while (waiting.length > 0) {
    const ended = performance.now();
    const taken = spent;
    spent = 0;
    await nextTurn();
    if (performance.now() - ended > idleTurn) {
      const then = performance.eventLoopUtilization();
      do await pause(1);
      while (
        performance.now() - ended < othersShare * taken &&
        performance.eventLoopUtilization(then).utilization > busy
      );
    }
    waiting.shift()?.();
    // It works until it gives way again, or ends: that is not the others' share.
    await nextTurn();
  }
  isPassing = false;
}
