/** An even rate, so that a peer is measured at the load that the service had. */
import { setTimeout as sleep } from 'node:timers/promises';

export class Pacer {
  readonly #interval: number;
  #next = performance.now();

  constructor(perSecond: number) {
    this.#interval = 1000 / perSecond;
  }

  /** Resolves when the next thing is due: at once when it is late, or when there is no limit. */
  async nextTurn(): Promise<void> {
    if (this.#interval === 0) return;
    const due = this.#next;
    this.#next += this.#interval;
    const wait = due - performance.now();
    if (wait > 0) await sleep(wait);
  }
}
