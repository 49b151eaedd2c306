/** Requests of one serial number that overlap in time: all of them are answered with one credential. */
import { setTimeout as sleep } from 'node:timers/promises';
import { refused } from './refused.ts';

/** Milliseconds that a request waits until the answers of others have been sent. */
const patience = 10_000;

/** The requests of a serial number that are under way, and what the first of them has made. */
export class Flight<M> {
  #making: Promise<M> | undefined;
  #wanted = '';
  /** Whether something has been made. */
  isMade = false;
  /** How many have not been answered. */
  open = 0;
  /** Resolves when the last answer has been sent. */
  readonly over: Promise<void>;
  readonly endFlight: () => void;

  constructor() {
    let end = () => {};
    this.over = new Promise((resolve) => {
      end = resolve;
    });
    this.endFlight = end;
  }

  /**
   * What the first has made who could make it; one that fails leaves it to the next. `wanted` is the key of a certificate: one
   * for another key is worth nothing to who asks. @throws PlatformError 403/21 where the first wants something else.
   */
  async make(wanted: string, work: () => Promise<M>): Promise<M> {
    if (this.#making) {
      const making = this.#wanted;
      const made = await this.#making.catch(() => undefined);
      if (made === undefined) return this.make(wanted, work);
      if (making !== wanted)
        throw refused('Another request of this serial number, with another key, has just been answered. Ask again.');
      return made;
    }
    this.#wanted = wanted;
    this.#making = work();
    try {
      const made = await this.#making;
      this.isMade = true;
      return made;
    } catch (error) {
      this.#making = undefined;
      throw error;
    }
  }
}

/** The flights of this process, by serial number: one at a time makes a credential. */
export class SingleFlight<M> {
  readonly #flights = new Map<string, Flight<M>>();

  /**
   * A request begins. When the device `isUsed` already, what was made before is not for this request: it waits until all
   * have been answered who may have it. `leave` is to be called when its answer has been sent or it has failed.
   */
  async join(key: string, isUsed: () => boolean): Promise<{ flight: Flight<M>; leave: () => void }> {
    const isLate = (flight: Flight<M> | undefined) => flight?.isMade === true && isUsed();
    const until = performance.now() + patience;
    for (let last = this.#flights.get(key); last && isLate(last); last = this.#flights.get(key)) {
      const left = until - performance.now();
      if (left <= 0) {
        this.#flights.delete(key);
        break;
      }
      const given = new AbortController();
      await Promise.race([last.over, sleep(left, undefined, { signal: given.signal }).catch(() => {})]);
      given.abort();
    }
    const flight = this.#flights.get(key) ?? new Flight<M>();
    this.#flights.set(key, flight);
    flight.open += 1;
    let isIn = true;
    const leave = () => {
      if (!isIn) return;
      isIn = false;
      flight.open -= 1;
      if (flight.open > 0) return;
      if (this.#flights.get(key) === flight) this.#flights.delete(key);
      flight.endFlight();
    };
    return { flight, leave };
  }
}
