import type { Queued } from './queued.ts';

/** Packet ids are 1 to 65535 [MQTT-2.3.1-1]. */
export const lastPacketId = 65_535;
/** With more ids in use nothing new is numbered, so that the next free one is always near. */
const mostInUse = lastPacketId >> 1;

/** The packet that a client is to answer with. */
export type Awaited = 'puback' | 'pubrec' | 'pubcomp';

/**
 * The packet ids of the messages to one client: whatever is sent to it takes its id here. One is in use until its message is
 * acknowledged or, of what a stored session does not keep, until the connection has ended.
 */
export class PacketIds {
  #last = Math.ceil(Math.random() * lastPacketId);
  /** On the present connection; undefined before the first. */
  #awaited: Map<number, Awaited> | undefined;
  /** Messages of a stored session that have been numbered, on this connection or a former one. */
  #kept: Map<number, Queued> | undefined;

  /** Messages that the present connection has been sent and that are not acknowledged. */
  get underWay(): number {
    return this.#awaited?.size ?? 0;
  }

  /** Whether new messages wait for acknowledgements of older ones before they are numbered. */
  get areShort(): boolean {
    return this.underWay + (this.#kept?.size ?? 0) >= mostInUse;
  }

  /** An id that is not in use; ask `areShort` before. Those that have been used come back as late as possible. */
  take(): number {
    do this.#last = (this.#last % lastPacketId) + 1;
    while (this.#awaited?.has(this.#last) || this.#kept?.has(this.#last));
    return this.#last;
  }

  /** The connection has ended, or the next one begins. */
  forgetConnection(): void {
    this.#awaited = undefined;
  }

  /** The client has been sent a packet and is to answer with this one. */
  expect(id: number, answer: Awaited): void {
    this.#awaited ??= new Map();
    this.#awaited.set(id, answer);
  }

  /** What the present connection is to answer; undefined for an id that it has not been sent. */
  awaited(id: number): Awaited | undefined {
    return this.#awaited?.get(id);
  }

  /** The exchange has ended on the present connection. */
  end(id: number): void {
    this.#awaited?.delete(id);
  }

  /** The message of a stored session that has this id. */
  kept(id: number): Queued | undefined {
    return this.#kept?.get(id);
  }

  /** A message of a stored session has this id until it leaves its queue. */
  keep(id: number, queued: Queued): void {
    this.forget(queued);
    queued.packetId = id;
    this.#kept ??= new Map();
    this.#kept.set(id, queued);
  }

  forget({ packetId }: Queued): void {
    if (packetId !== undefined) this.#kept?.delete(packetId);
  }
}
