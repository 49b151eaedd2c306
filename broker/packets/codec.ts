/** What a protocol level says: how its packets are read and written. A connection has one codec, from its CONNECT on. */
import type { PublishPacket } from 'aedes';
import type { RefusalReason } from '../connections/counters.ts';
import type { Incoming } from '../message-types.ts';
import type { Frame } from './frames.ts';

/** Control packets by their number. */
export const types = {
  connect: 1,
  connack: 2,
  publish: 3,
  puback: 4,
  pubrec: 5,
  pubrel: 6,
  pubcomp: 7,
  subscribe: 8,
  suback: 9,
  unsubscribe: 10,
  unsuback: 11,
  pingreq: 12,
  pingresp: 13,
  disconnect: 14,
} as const;

export type Answer = { cmd: 'puback' | 'pubrec' | 'pubrel' | 'pubcomp'; messageId: number };
/** As `Filter` of aedes-types.ts. */
type RequestedFilter = { topic: string; qos: 0 | 1 | 2; rh?: number; rap?: boolean; nl?: boolean };
/** A packet of a connected client. */
export type Packet =
  | Incoming
  | Answer
  | { cmd: 'subscribe'; messageId: number; subscriptions: RequestedFilter[] }
  | { cmd: 'unsubscribe'; messageId: number; unsubscriptions: string[] }
  | { cmd: 'pingreq' }
  | { cmd: 'disconnect' };

export interface Codec {
  readonly level: 3 | 4;
  /** @throws Malformed, which ends the connection: nothing that is malformed is handled [MQTT-4.8.0-1]. */
  read(frame: Frame): Packet;
  /** `refusal` is undefined when the client is let in. */
  connack(refusal: RefusalReason | undefined, isSessionPresent: boolean): Buffer;
  answer(cmd: Answer['cmd'], messageId: number): Buffer;
  /** For each filter its QoS, or undefined when it was refused. */
  suback(messageId: number, granted: ReadonlyArray<0 | 1 | 2 | undefined>): Buffer;
  unsuback(messageId: number): Buffer;
  pingresp(): Buffer;
  /** A PUBLISH up to its payload, and a short payload too; `writePayload` writes a long one. `messageId` is for QoS 1 and 2. */
  publish(
    packet: Pick<PublishPacket, 'topic' | 'retain' | 'dup'>,
    payload: Buffer,
    qos: 0 | 1 | 2,
    messageId?: number,
  ): Buffer;
}
