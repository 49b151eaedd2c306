import { PacketIds } from './packet-ids.ts';
import type { Queued } from './queued.ts';

/** Bytes that a place in a queue takes beside its message, in memory and on disk. */
export const bytesOfPlace = 800;

/** The undelivered messages of one stored session: oldest first by the broker's counter, the sent ones by packet id too. */
export class SessionQueue {
  readonly #byCounter = new Map<number, Queued>();
  readonly ids = new PacketIds();
  #onBytes: ((change: number) => void) | undefined;
  #newest = 0;
  #bytes = 0;
  #firstExpiry = Number.POSITIVE_INFINITY;

  /** `onBytes` is called with each change of `bytes`. */
  constructor(onBytes: (change: number) => void = () => {}) {
    this.#onBytes = onBytes;
  }

  /** Nothing has expired before, in milliseconds since 1970; Infinity when nothing expires. */
  get firstExpiry(): number {
    return this.#firstExpiry;
  }

  forgetFirstExpiry(): void {
    this.#firstExpiry = Number.POSITIVE_INFINITY;
  }

  noteExpiry({ expires = Number.POSITIVE_INFINITY }: Pick<Queued, 'expires'>): void {
    if (expires < this.#firstExpiry) this.#firstExpiry = expires;
  }

  /** Bytes of topics, payloads and properties, and of the places. */
  get bytes(): number {
    return this.#bytes;
  }

  get size(): number {
    return this.#byCounter.size;
  }

  get oldest(): Queued | undefined {
    const [first] = this.#byCounter.values();
    return first;
  }

  /** The counter of the message that came last; it may have left since. */
  get newest(): number {
    return this.#newest;
  }

  /** Oldest first; what is added meanwhile comes too. */
  values(): IterableIterator<Queued> {
    return this.#byCounter.values();
  }

  withCounter(counter: number): Queued | undefined {
    return this.#byCounter.get(counter);
  }

  /** Counters only grow. */
  add(queued: Queued): void {
    this.#byCounter.set(queued.counter, queued);
    this.#count(queued.size + bytesOfPlace);
    this.#newest = queued.counter;
    this.noteExpiry(queued);
    if (queued.packetId !== undefined) this.ids.keep(queued.packetId, queued);
  }

  delete(queued: Queued): void {
    if (!this.#byCounter.delete(queued.counter)) return;
    this.#count(-queued.size - bytesOfPlace);
    this.ids.forget(queued);
  }

  /** Its session has ended: it counts no more. */
  end(): void {
    this.#count(-this.#bytes);
    this.#onBytes = undefined;
  }

  #count(change: number): void {
    if (!this.#onBytes) return;
    this.#bytes += change;
    this.#onBytes(change);
  }
}
