import { isUtf8 } from 'node:buffer';
import { canonicalTopic } from '../../src/core/topics.ts';
import type { RefusalReason } from '../connections/counters.ts';
import type { Incoming, Subscription } from '../message-types.ts';
import { connectReasons } from '../reasons.ts';
import { isWellFormed } from '../topics.ts';
import {
  type Answer,
  type Codec,
  type ConnectRefusal,
  type Granted,
  type Packet,
  type PublishHeader,
  types,
} from './codec.ts';
import { Fields, Malformed } from './fields.ts';
import type { Frame } from './frames.ts';
import { copied, header, headerLength, writeHeader } from './write.ts';

const firstBytes = { puback: 0x40, pubrec: 0x50, pubrel: 0x62, pubcomp: 0x70 } as const;
const refused = 0x80;
const pingResponse = Buffer.from([types.pingresp << 4, 0]);

/** MQTT 3.1.1. A bridge wants no message back that it has sent, and the retain flag as it was published. */
export class Level4 implements Codec {
  readonly level: 3 | 4 = 4;
  readonly #isBridge: boolean;
  /** A device publishes on few topics: the last one is not checked and decoded again. */
  #topicBytes: Buffer | undefined;
  #topic = '';

  constructor(isBridge = false) {
    this.#isBridge = isBridge;
  }

  read({ first, body }: Frame): Packet {
    const flags = first & 15;
    switch (first >> 4) {
      case types.publish:
        return this.#publish(flags, body);
      case types.puback:
        return answer('puback', flags === 0, body);
      case types.pubrec:
        return answer('pubrec', flags === 0, body);
      case types.pubrel:
        return answer('pubrel', this.isFlagged(flags), body);
      case types.pubcomp:
        return answer('pubcomp', flags === 0, body);
      case types.subscribe:
        return this.#subscribe(flags, body);
      case types.unsubscribe:
        return this.#unsubscribe(flags, body);
      case types.pingreq:
        demandBare('PINGREQ', flags, body);
        return { cmd: 'pingreq' };
      case types.disconnect:
        demandBare('DISCONNECT', flags, body);
        return { cmd: 'disconnect', sendsWill: false, sessionExpiry: undefined };
      case types.connect:
        throw new Malformed('a second CONNECT');
      default:
        throw new Malformed('no packet of a connected client');
    }
  }

  accepted(isSessionPresent: boolean): Buffer {
    return Buffer.from([types.connack << 4, 2, isSessionPresent ? 1 : 0, 0]);
  }

  refused({ reason }: Pick<ConnectRefusal, 'reason'>): Buffer {
    return refusalBytes(reason);
  }

  answer(cmd: Answer['cmd'], messageId: number): Buffer {
    const bytes = Buffer.allocUnsafe(4);
    bytes[0] = firstBytes[cmd];
    bytes[1] = 2;
    bytes.writeUInt16BE(messageId, 2);
    return bytes;
  }

  suback(messageId: number, granted: readonly Granted[]): Buffer {
    const codes = granted.map((one) => (typeof one === 'number' ? one : refused));
    const body = Buffer.from([messageId >> 8, messageId & 255, ...codes]);
    return Buffer.concat([header(types.suback << 4, body.length), body]);
  }

  unsuback(messageId: number): Buffer {
    return Buffer.from([types.unsuback << 4, 2, messageId >> 8, messageId & 255]);
  }

  pingresp(): Buffer {
    return pingResponse;
  }

  disconnect(): undefined {
    return undefined;
  }

  sharesBytes(): boolean {
    return true;
  }

  publish({ topic, retain, dup }: PublishHeader, payload: Buffer, qos: 0 | 1 | 2, messageId?: number): Buffer {
    const first = 0x30 | (dup && qos > 0 ? 8 : 0) | (qos << 1) | (retain ? 1 : 0);
    const topicLength = Buffer.byteLength(topic);
    const idLength = messageId === undefined ? 0 : 2;
    const length = 2 + topicLength + idLength + payload.length;
    const head = headerLength(length);
    const isCopied = payload.length <= copied;
    const bytes = Buffer.allocUnsafe(head + (isCopied ? length : length - payload.length));
    writeHeader(bytes, first, length);
    let at = bytes.writeUInt16BE(topicLength, head);
    at += bytes.write(topic, at);
    if (messageId !== undefined) at = bytes.writeUInt16BE(messageId, at);
    if (isCopied) bytes.set(payload, at);
    return bytes;
  }

  /** Whether the flags of PUBREL, SUBSCRIBE and UNSUBSCRIBE are those of QoS 1. */
  protected isFlagged(flags: number): boolean {
    return flags === 2;
  }

  /** [MQTT-3.3.1-2] */
  protected mayRepeat(qos: number): boolean {
    return qos > 0;
  }

  #publish(flags: number, body: Buffer): Incoming {
    const qos = (flags >> 1) & 3;
    const dup = (flags & 8) !== 0;
    if (qos === 3) throw new Malformed('QoS 3');
    if (dup && !this.mayRepeat(qos)) throw new Malformed('DUP with QoS 0');
    const length = body.length < 2 ? Number.POSITIVE_INFINITY : body.readUInt16BE(0);
    const end = 2 + length;
    const at = qos > 0 ? end + 2 : end;
    if (at > body.length) throw new Malformed('the packet is too short');
    const known = this.#topicBytes;
    if (length !== known?.length || body.compare(known, 0, length, 2, end) !== 0) {
      this.#topic = publishTopic(body.subarray(2, end));
      this.#topicBytes = Buffer.from(body.subarray(2, end));
    }
    const packet: Incoming = {
      cmd: 'publish',
      topic: this.#topic,
      payload: body.subarray(at),
      qos: qos as 0 | 1 | 2,
      retain: (flags & 1) !== 0,
      dup,
    };
    if (qos > 0) packet.messageId = packetId(body.readUInt16BE(end));
    return packet;
  }

  #subscribe(flags: number, body: Buffer): Packet {
    if (!this.isFlagged(flags)) throw new Malformed('reserved flags of SUBSCRIBE');
    const fields = new Fields(body);
    const messageId = packetId(fields.number());
    const subscriptions: Subscription[] = [];
    do {
      const topic = filterIn(fields);
      const qos = fields.byte();
      if (qos > 2) throw new Malformed('requested QoS');
      const more = this.#isBridge ? { rh: 0, rap: true, nl: true } : {};
      subscriptions.push({ topic, qos: qos as 0 | 1 | 2, ...more });
    } while (fields.left > 0);
    return { cmd: 'subscribe', messageId, subscriptions };
  }

  #unsubscribe(flags: number, body: Buffer): Packet {
    if (!this.isFlagged(flags)) throw new Malformed('reserved flags of UNSUBSCRIBE');
    const fields = new Fields(body);
    const messageId = packetId(fields.number());
    const unsubscriptions: string[] = [];
    do unsubscriptions.push(filterIn(fields));
    while (fields.left > 0);
    return { cmd: 'unsubscribe', messageId, unsubscriptions };
  }
}

/** In the form that clients of every level below 5 know, and of levels that are not spoken. */
export function refusalBytes(reason: RefusalReason): Buffer {
  return Buffer.from([types.connack << 4, 2, 0, connectReasons[reason].connack]);
}

function publishTopic(bytes: Buffer): string {
  const topic = bytes.toString();
  if (topic === '' || /[+#\0]/.test(topic) || !isUtf8(bytes))
    throw new Malformed('malformed topic', { about: { action: 'publish', topic } });
  return canonicalTopic(topic);
}

function filterIn(fields: Fields): string {
  const bytes = fields.bytes();
  const topic = bytes.toString();
  if (!isUtf8(bytes) || !isWellFormed(topic))
    throw new Malformed('malformed filter', { about: { action: 'subscribe', topic } });
  return canonicalTopic(topic);
}

/** [MQTT-2.3.1-1] */
export function packetId(id: number): number {
  if (id === 0) throw new Malformed('packet id 0');
  return id;
}

function answer(cmd: Answer['cmd'], areFlagsValid: boolean, body: Buffer): Answer {
  if (!areFlagsValid || body.length !== 2) throw new Malformed(`malformed ${cmd.toUpperCase()}`);
  return { cmd, messageId: packetId(body.readUInt16BE(0)), code: 0 };
}

export function demandBare(name: string, flags: number, body: Buffer): void {
  if (flags !== 0 || body.length > 0) throw new Malformed(`malformed ${name}`);
}
