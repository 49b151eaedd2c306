import type { GroupName } from '../message-types.ts';

/** A message in the queue of one stored session, or the PUBREL that has taken its place. */
export interface Queued {
  /** As the disk knows it. */
  readonly id: number;
  /** As Aedes knows it. */
  readonly counter: number;
  /** Set once it has been sent, or is about to be. */
  packetId: number | undefined;
  released: boolean;
  /** Bytes of its topic, payload and properties. */
  readonly size: number;
  /** Milliseconds since 1970. */
  readonly expires: number | undefined;
  /** The group for which its session was chosen; undefined for an ordinary subscription, and after a restart. */
  readonly group: GroupName | undefined;
  /** The device of the message; undefined until it is looked up, if it comes from the disk. */
  device: string | undefined;
}

/** Packet ids are 1 to 65535 [MQTT-2.3.1-1]. */
export const lastPacketId = 65_535;

/** The undelivered messages of one stored session: oldest first by the broker's counter, the sent ones by packet id. */
export class SessionQueue {
  readonly #byCounter = new Map<number, Queued>();
  readonly #sent = new Map<number, Queued>();
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

  /** Bytes of topics, payloads and properties. */
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

  withPacketId(packetId: number): Queued | undefined {
    return this.#sent.get(packetId);
  }

  /** Counters only grow. */
  add(queued: Queued): void {
    this.#byCounter.set(queued.counter, queued);
    this.#count(queued.size);
    this.#newest = queued.counter;
    this.noteExpiry(queued);
    if (queued.packetId !== undefined) this.#sent.set(queued.packetId, queued);
  }

  delete(queued: Queued): void {
    if (this.#byCounter.delete(queued.counter)) this.#count(-queued.size);
    const { packetId } = queued;
    if (packetId !== undefined && this.#sent.get(packetId) === queued) this.#sent.delete(packetId);
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

  /** Gives a message its packet id: the wanted one, or the next that no other message in flight has. */
  send(queued: Queued, wanted: number): number {
    let packetId = wanted;
    while ((this.#sent.get(packetId) ?? queued) !== queued) packetId = nextPacketId(packetId);
    queued.packetId = packetId;
    this.#sent.set(packetId, queued);
    return packetId;
  }
}

export function nextPacketId(packetId: number): number {
  return (packetId % lastPacketId) + 1;
}
