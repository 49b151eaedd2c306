/** Work that takes turns by lane, so that whoever asks for much waits for it alone. */
import { PlatformError } from './errors.js';

/** Pieces of work that one lane may have waiting. */
const longestLane = 200;

export class FairQueue {
  readonly #limit: number;
  #running = 0;
  /** The lanes that have work waiting; the next to be served comes first. */
  readonly #lanes = new Map<string, Array<() => void>>();

  /** At most `limit` pieces of work run at once. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Pieces of work that wait, in all lanes. */
  get waiting(): number {
    let waiting = 0;
    for (const lane of this.#lanes.values()) waiting += lane.length;
    return waiting;
  }

  /** Runs `work` when it is the lane's turn. @throws PlatformError 429 when the lane has too much waiting already. */
  async run<R>(lane: string, work: () => Promise<R>): Promise<R> {
    if (this.#running >= this.#limit) await this.#wait(lane);
    else this.#running += 1;
    try {
      return await work();
    } finally {
      this.#next();
    }
  }

  #wait(lane: string): Promise<void> {
    const waiting = this.#lanes.get(lane) ?? [];
    if (waiting.length >= longestLane)
      throw new PlatformError('tooMany', { allowance: { limit: longestLane, remaining: 0, reset: 1 } });
    this.#lanes.set(lane, waiting);
    return new Promise((resolve) => waiting.push(resolve));
  }

  /** Hands the place that has become free to the first of the next lane, which then stands last. */
  #next(): void {
    const [turn] = this.#lanes;
    if (!turn) {
      this.#running -= 1;
      return;
    }
    const [lane, waiting] = turn;
    this.#lanes.delete(lane);
    const first = waiting.shift();
    if (waiting.length > 0) this.#lanes.set(lane, waiting);
    first?.();
  }
}
