/** The packets of a connection that are being handled: how many at once, which one alone, and what each costs. */
import type { Incoming } from '../message-types.ts';
import type { Packet } from './codec.ts';

/** Messages of one client on their way at once, and their bytes. One alone may be longer. */
const maxInFlight = 1000;
const maxBytesInFlight = 65_536;
/** What a packet costs next to a delivery, and bytes that cost as much as one. */
const costOfPacket = 2;
const bytesOfCost = 1024;

/** What a message has taken of `InFlight`. */
export interface Taken {
  bytes: number;
  /** The packet id of a QoS 2 message or of its PUBREL. */
  id: number | undefined;
}

/** Packets that were handed on and are not done. */
export class InFlight {
  #packets = 0;
  #bytes = 0;
  #ids: Set<number> | undefined;

  get size(): number {
    return this.#packets;
  }

  get hasRoom(): boolean {
    return this.#packets === 0 || (this.#packets < maxInFlight && this.#bytes < maxBytesInFlight);
  }

  has(id: number): boolean {
    return this.#ids?.has(id) === true;
  }

  take(packet: Packet): Taken {
    const bytes = packet.cmd === 'publish' ? lengthOf(packet) : 0;
    const id = packet.cmd === 'pubrel' || (packet.cmd === 'publish' && packet.qos === 2) ? packet.messageId : undefined;
    this.#packets += 1;
    this.#bytes += bytes;
    if (id !== undefined) {
      this.#ids ??= new Set();
      this.#ids.add(id);
    }
    return { bytes, id };
  }

  giveBack({ bytes, id }: Taken): void {
    this.#packets -= 1;
    this.#bytes -= bytes;
    if (id !== undefined) this.#ids?.delete(id);
  }
}

/** Whether a packet waits for all before it, and all after it for it. */
export function mustBeAlone(packet: Packet, connection: { isUnsettled(messageId: number): boolean }): boolean {
  switch (packet.cmd) {
    case 'subscribe':
    case 'unsubscribe':
    case 'disconnect':
      return true;
    case 'publish':
      return packet.qos === 2 && connection.isUnsettled(packet.messageId as number);
    case 'pubrel':
      return connection.isUnsettled(packet.messageId);
    default:
      return false;
  }
}

/** Whether a packet counts for the rate of its client. */
export function isRated({ cmd }: Packet): boolean {
  return cmd === 'publish' || cmd === 'subscribe' || cmd === 'unsubscribe';
}

/** What a sender makes long. */
export function lengthOf({ payload, topic, clientProperties }: Incoming): number {
  return payload.length + topic.length + (clientProperties?.travelling.length ?? 0);
}

export function costOf(packet: Packet): number {
  if (packet.cmd === 'publish') {
    const { payload, clientProperties } = packet;
    return costOfPacket + Math.floor((payload.length + (clientProperties?.travelling.length ?? 0)) / bytesOfCost);
  }
  if (packet.cmd === 'subscribe') return costOfPacket * (1 + packet.subscriptions.length);
  return packet.cmd === 'unsubscribe' ? costOfPacket * (1 + packet.unsubscriptions.length) : costOfPacket;
}
