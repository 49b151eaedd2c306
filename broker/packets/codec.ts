/** What a protocol level says: how its packets are read and written. A connection has one codec, from its CONNECT on. */
import type { Properties } from '../../src/core/formats/message-properties.ts';
import type { RefusalReason } from '../connections/counters.ts';
import type { Incoming, Outgoing, Subscription } from '../message-types.ts';
import type { Reason } from '../reasons.ts';
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
  auth: 15,
} as const;

/** `code` is the reason code of MQTT 5; 0 for success, and at lower levels. */
export type Answer = { cmd: 'puback' | 'pubrec' | 'pubrel' | 'pubcomp'; messageId: number; code: number };
/** `sessionExpiry` in seconds, Infinity for ever; undefined where it stays as it was. */
export type Disconnect = { cmd: 'disconnect'; sendsWill: boolean; sessionExpiry: number | undefined };
/** A packet of a connected client. */
export type Packet =
  | Incoming
  | Answer
  | { cmd: 'subscribe'; messageId: number; subscriptions: Subscription[] }
  | { cmd: 'unsubscribe'; messageId: number; unsubscriptions: string[] }
  | { cmd: 'pingreq' }
  | Disconnect;

/** Why CONNACK lets nobody in; `code` and `sentence` are for MQTT 5. */
export interface ConnectRefusal {
  reason: RefusalReason;
  code: number;
  sentence: string;
}

/** What SUBACK says of one filter: the QoS that is granted, or why it is refused. */
export type Granted = 0 | 1 | 2 | Reason;

/** What of a message is in the header of its PUBLISH. */
export type PublishHeader = Pick<Outgoing, 'topic' | 'retain' | 'dup' | 'properties' | 'messageExpiry' | 'identifiers'>;

export interface Codec {
  readonly level: 3 | 4 | 5;
  /** @throws Malformed, which ends the connection: nothing that is malformed is handled [MQTT-4.8.0-1]. */
  read(frame: Frame): Packet;
  /** `properties` are those of MQTT 5. Undefined when it is longer than the client takes. */
  accepted(isSessionPresent: boolean, properties: Properties): Buffer | undefined;
  refused(refusal: ConnectRefusal): Buffer;
  /** `code` and `sentence` are the reason code and Reason String of MQTT 5. */
  answer(cmd: Answer['cmd'], messageId: number, code?: number, sentence?: string): Buffer;
  suback(messageId: number, granted: readonly Granted[]): Buffer;
  /** For each filter why it has not ended, if it has not. */
  unsuback(messageId: number, ended: ReadonlyArray<Reason | undefined>): Buffer;
  pingresp(): Buffer;
  /** Undefined where the level has no such packet of a server. */
  disconnect(code: number, sentence?: string): Buffer | undefined;
  /** Whether every client of this level is sent the same bytes of this message. */
  sharesBytes(packet: PublishHeader): boolean;
  /**
   * A PUBLISH up to its payload, and a short payload too; `writePayload` writes a long one. `messageId` is for QoS 1 and 2.
   * Undefined for a packet that is longer than the client takes. What is returned must be sent.
   */
  publish(packet: PublishHeader, payload: Buffer, qos: 0 | 1 | 2, messageId?: number): Buffer | undefined;
}
