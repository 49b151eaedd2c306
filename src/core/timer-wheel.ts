/**
 * Many timers by the clock of the service, with one timer of Node: what is due, by its key. In memory 100 bytes each, with a key of 36
 * characters; none is lost when the clock is set, and none is more than a second late.
 */
import type { Clock } from './clock.ts';
import { LongWork } from './scheduler/long-work.ts';

/** Milliseconds until the next look at the latest: the clock may be set. */
const maxWait = 1000;
const firstCapacity = 1024;
const none = -1;

/** The timers of one user, whose keys are its own. A key has one timer at most. */
export interface Timers {
  /** Calls `due` of this user when the clock shows `time` (milliseconds since 1970) or more; a former timer of the key is gone. */
  set(key: string, time: number): void;
  cancel(key: string): void;
  /** Cancels all, of whom no more comes. */
  end(): void;
}

/** A binary heap by time, and chains by the hash of the key. */
export class TimerWheel {
  readonly #clock: Clock;
  readonly #users = new Map<number, (key: string) => void>();
  #lastUser = 0;
  #size = 0;
  #capacity = 0;
  /** By slot: when, the key, whose, where it is in the heap, and the next slot of the chain, or of those that are free. */
  #times = new Float64Array();
  #keys: string[] = [];
  #owners = new Uint16Array();
  #places = new Int32Array();
  #next = new Int32Array();
  /** Slots, the earliest first; and the first slot of each chain. */
  #heap = new Int32Array();
  #chains = new Int32Array();
  #free = none;
  #timer: NodeJS.Timeout | undefined;
  /** By the monotonic clock. */
  #wakesAt = Number.POSITIVE_INFINITY;
  #isRunning = false;

  constructor({ clock }: { clock: Clock }) {
    this.#clock = clock;
    this.#grow(firstCapacity);
  }

  /** How many are set. */
  get size(): number {
    return this.#size;
  }

  /** `due` is called once for each timer, in turns with other work of the event loop. It may set the next one, and must not throw. */
  timersOf(due: (key: string) => void): Timers {
    this.#lastUser += 1;
    const user = this.#lastUser;
    this.#users.set(user, due);
    return {
      set: (key, time) => this.#set(user, key, time),
      cancel: (key) => this.#remove(this.#find(user, key)),
      end: () => {
        this.#users.delete(user);
        for (let slot = 0; slot < this.#capacity; slot += 1) if (this.#owners[slot] === user) this.#remove(slot);
      },
    };
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#users.clear();
  }

  #set(user: number, key: string, time: number): void {
    if (!this.#users.has(user)) return;
    let slot = this.#find(user, key);
    if (slot === none) {
      if (this.#free === none) this.#grow(2 * this.#capacity);
      slot = this.#free;
      this.#free = at(this.#next, slot);
      const chain = this.#chainOf(user, key);
      this.#keys[slot] = key;
      this.#owners[slot] = user;
      this.#next[slot] = at(this.#chains, chain);
      this.#chains[chain] = slot;
      this.#put(slot, this.#size);
      this.#size += 1;
    }
    this.#times[slot] = time;
    this.#settle(slot);
    this.#wakeAt(time);
  }

  #remove(slot: number): void {
    if (slot === none) return;
    const chain = this.#chainOf(at(this.#owners, slot), this.#keys[slot] as string);
    let before = none;
    for (let one = at(this.#chains, chain); one !== slot; one = at(this.#next, one)) before = one;
    (before === none ? this.#chains : this.#next)[before === none ? chain : before] = at(this.#next, slot);
    const place = at(this.#places, slot);
    this.#size -= 1;
    const last = at(this.#heap, this.#size);
    if (last !== slot) {
      this.#put(last, place);
      this.#settle(last);
    }
    this.#keys[slot] = '';
    this.#owners[slot] = 0;
    this.#next[slot] = this.#free;
    this.#free = slot;
    if (this.#size === 0 && this.#capacity > firstCapacity) this.#grow(firstCapacity);
  }

  #find(user: number, key: string): number {
    let slot = at(this.#chains, this.#chainOf(user, key));
    while (slot !== none && !(this.#owners[slot] === user && this.#keys[slot] === key)) slot = at(this.#next, slot);
    return slot;
  }

  #chainOf(user: number, key: string): number {
    let hash = user;
    for (let n = 0; n < key.length; n += 1) hash = Math.imul(hash ^ key.charCodeAt(n), 0x01000193);
    return (hash ^ (hash >>> 15)) & (this.#capacity - 1);
  }

  /** Makes room for so many, a power of two; those that are set keep their slots. */
  #grow(capacity: number): void {
    const kept = this.#size;
    const from = kept === 0 ? 0 : this.#capacity;
    if (from === 0) this.#keys = [];
    const copied = <A extends Float64Array | Int32Array | Uint16Array>(to: A, old: A) => {
      if (from > 0) to.set(old);
      return to;
    };
    this.#times = copied(new Float64Array(capacity), this.#times);
    this.#owners = copied(new Uint16Array(capacity), this.#owners);
    this.#places = copied(new Int32Array(capacity), this.#places);
    this.#heap = copied(new Int32Array(capacity), this.#heap);
    this.#next = new Int32Array(capacity);
    this.#chains = new Int32Array(capacity).fill(none);
    this.#capacity = capacity;
    for (let n = 0; n < kept; n += 1) {
      const slot = at(this.#heap, n);
      const chain = this.#chainOf(at(this.#owners, slot), this.#keys[slot] as string);
      this.#next[slot] = at(this.#chains, chain);
      this.#chains[chain] = slot;
    }
    this.#free = none;
    for (let slot = capacity - 1; slot >= from; slot -= 1) {
      this.#next[slot] = this.#free;
      this.#free = slot;
    }
  }

  #put(slot: number, place: number): void {
    this.#heap[place] = slot;
    this.#places[slot] = place;
  }

  /** Moves a slot to its place among the others. */
  #settle(slot: number): void {
    const time = at(this.#times, slot);
    let place = at(this.#places, slot);
    for (; place > 0; ) {
      const parent = at(this.#heap, (place - 1) >> 1);
      if (at(this.#times, parent) <= time) break;
      this.#put(parent, place);
      place = (place - 1) >> 1;
    }
    for (;;) {
      let child = 2 * place + 1;
      if (child >= this.#size) break;
      const timeOf = (one: number) => at(this.#times, at(this.#heap, one));
      if (child + 1 < this.#size && timeOf(child + 1) < timeOf(child)) child += 1;
      if (timeOf(child) >= time) break;
      this.#put(at(this.#heap, child), place);
      place = child;
    }
    this.#put(slot, place);
  }

  #wakeAt(time: number): void {
    const wait = Math.min(Math.max(time - this.#clock.now(), 0), maxWait);
    const wakesAt = performance.now() + wait;
    if (this.#isRunning || wakesAt >= this.#wakesAt) return;
    this.#wakesAt = wakesAt;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#run(), wait);
    this.#timer.unref();
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    const longWork = new LongWork();
    while (this.#size > 0 && at(this.#times, at(this.#heap, 0)) <= this.#clock.now()) {
      const slot = at(this.#heap, 0);
      const [key, due] = [this.#keys[slot] as string, this.#users.get(at(this.#owners, slot))];
      this.#remove(slot);
      due?.(key);
      await longWork.giveWay();
    }
    this.#isRunning = false;
    this.#wakesAt = Number.POSITIVE_INFINITY;
    if (this.#size > 0) this.#wakeAt(at(this.#times, at(this.#heap, 0)));
  }
}

function at(numbers: Float64Array | Int32Array | Uint16Array, place: number): number {
  return numbers[place] as number;
}
