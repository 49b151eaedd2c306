/** Control packets of a client, checked to the letter: nothing that is malformed reaches the broker [MQTT-4.8.0-1]. */
import { isUtf8 } from 'node:buffer';
import type { Subscription } from 'aedes';
import type { Incoming } from '../aedes-types.ts';
import { isWellFormed } from '../topics.ts';
import type { Frame } from './frames.ts';

export const types = {
  connect: 1,
  publish: 3,
  puback: 4,
  pubrec: 5,
  pubrel: 6,
  pubcomp: 7,
  subscribe: 8,
  unsubscribe: 10,
  pingreq: 12,
  disconnect: 14,
} as const;

export type Answer = { cmd: 'puback' | 'pubrec' | 'pubrel' | 'pubcomp'; messageId: number };
export type Packet =
  | Incoming
  | Answer
  | { cmd: 'subscribe'; messageId: number; subscriptions: Subscription[] }
  | { cmd: 'unsubscribe'; messageId: number; unsubscriptions: string[] }
  | { cmd: 'pingreq' }
  | { cmd: 'disconnect' };

/** A packet that ends the connection. */
export class Malformed extends Error {
  override name = 'Malformed';

  readonly about?: { action: 'publish' | 'subscribe'; topic: string };

  /** `about` is the topic or filter that is malformed, when it is one. */
  constructor(message: string, about?: { action: 'publish' | 'subscribe'; topic: string }) {
    super(message);
    this.about = about;
  }
}

/** Settings of a valid CONNECT for the packets that follow. */
export interface Dialect {
  /** 3 for MQTT 3.1, 4 for MQTT 3.1.1. */
  level: 3 | 4;
  /** A bridge wants no message back that it has sent, and the retain flag as it was published. */
  isBridge: boolean;
}

/** A CONNECT of a protocol level that the broker does not speak. Its names are empty if they cannot be read. */
export interface UnsupportedConnect {
  unsupportedLevel: number;
  clientId: string;
  username: string;
}

const bridgeBit = 0x80;
const levels: Record<string, 3 | 4> = { MQTT: 4, MQIsdp: 3 };
/** From this level on a CONNECT has properties. */
const levelWithProperties = 5;

/**
 * Checks the body of a CONNECT. The answer to an unsupported level is CONNACK 1 [MQTT-3.1.2-2].
 * @throws Malformed
 */
export function checkConnect(body: Buffer): Dialect | UnsupportedConnect {
  const fields = new Fields(body);
  const level = levels[fields.text('protocol name')];
  if (level === undefined) throw new Malformed('unknown protocol name');
  const given = fields.byte();
  if ((given & ~bridgeBit) !== level) return { unsupportedLevel: given, ...namesIn(fields, given) };
  const flags = fields.byte();
  const hasWill = (flags & 0x04) !== 0;
  const willQos = (flags >> 3) & 3;
  if (flags & 0x01) throw new Malformed('reserved CONNECT flag');
  if (willQos === 3 || (!hasWill && flags & 0x38)) throw new Malformed('will flags');
  // [MQTT-3.1.2-22]
  if ((flags & 0xc0) === 0x40) throw new Malformed('a password without a username');
  fields.number();
  fields.text('client id');
  if (hasWill) {
    fields.text('will topic');
    fields.bytes();
  }
  if (flags & 0x80) fields.text('username');
  if (flags & 0x40) fields.bytes();
  fields.end();
  return { level, isBridge: (given & bridgeBit) !== 0 };
}

/** Never throws: no more is known of such a packet than that somebody sent it. */
function namesIn(fields: Fields, level: number): Pick<UnsupportedConnect, 'clientId' | 'username'> {
  const hasProperties = (level & ~bridgeBit) >= levelWithProperties;
  const names = { clientId: '', username: '' };
  try {
    const flags = fields.byte();
    fields.number();
    if (hasProperties) fields.properties();
    names.clientId = fields.text('client id');
    if (flags & 0x04) {
      if (hasProperties) fields.properties();
      fields.bytes();
      fields.bytes();
    }
    if (flags & 0x80) names.username = fields.text('username');
  } catch {
    // What has been read so far is enough.
  }
  return names;
}

/** Reads the packets of one connection after its CONNECT. */
export class PacketParser {
  readonly #level: 3 | 4;
  readonly #isBridge: boolean;
  /** A device publishes on few topics: the last one is not checked and decoded again. */
  #topicBytes: Buffer | undefined;
  #topic = '';

  constructor({ level, isBridge }: Dialect) {
    this.#level = level;
    this.#isBridge = isBridge;
  }

  /** @throws Malformed */
  parse({ first, body }: Frame): Packet {
    const flags = first & 15;
    switch (first >> 4) {
      case types.publish:
        return this.#publish(flags, body);
      case types.puback:
        return answer('puback', flags === 0, body);
      case types.pubrec:
        return answer('pubrec', flags === 0, body);
      case types.pubrel:
        return answer('pubrel', this.#isFlagged(flags), body);
      case types.pubcomp:
        return answer('pubcomp', flags === 0, body);
      case types.subscribe:
        return this.#subscribe(flags, body);
      case types.unsubscribe:
        return this.#unsubscribe(flags, body);
      case types.pingreq:
        return bare('pingreq', flags, body);
      case types.disconnect:
        return bare('disconnect', flags, body);
      case types.connect:
        throw new Malformed('a second CONNECT');
      default:
        throw new Malformed('no packet of a connected client');
    }
  }

  /** The flags of PUBREL, SUBSCRIBE and UNSUBSCRIBE are those of QoS 1; MQTT 3.1 sets DUP when it sends one again. */
  #isFlagged(flags: number): boolean {
    return this.#level === 3 ? (flags & 6) === 2 : flags === 2;
  }

  #publish(flags: number, body: Buffer): Incoming {
    const qos = (flags >> 1) & 3;
    const dup = (flags & 8) !== 0;
    if (qos === 3) throw new Malformed('QoS 3');
    if (dup && qos === 0 && this.#level > 3) throw new Malformed('DUP with QoS 0');
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
    if (!this.#isFlagged(flags)) throw new Malformed('reserved flags of SUBSCRIBE');
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
    if (!this.#isFlagged(flags)) throw new Malformed('reserved flags of UNSUBSCRIBE');
    const fields = new Fields(body);
    const messageId = packetId(fields.number());
    const unsubscriptions: string[] = [];
    do unsubscriptions.push(filterIn(fields));
    while (fields.left > 0);
    return { cmd: 'unsubscribe', messageId, unsubscriptions };
  }
}

function publishTopic(bytes: Buffer): string {
  const topic = bytes.toString();
  if (topic === '' || /[+#\0]/.test(topic) || !isUtf8(bytes))
    throw new Malformed('malformed topic', { action: 'publish', topic });
  return topic;
}

function filterIn(fields: Fields): string {
  const bytes = fields.bytes();
  const topic = bytes.toString();
  if (!isUtf8(bytes) || !isWellFormed(topic)) throw new Malformed('malformed filter', { action: 'subscribe', topic });
  return topic;
}

/** [MQTT-2.3.1-1] */
function packetId(id: number): number {
  if (id === 0) throw new Malformed('packet id 0');
  return id;
}

function answer(cmd: Answer['cmd'], areFlagsValid: boolean, body: Buffer): Answer {
  if (!areFlagsValid || body.length !== 2) throw new Malformed(`malformed ${cmd.toUpperCase()}`);
  return { cmd, messageId: packetId(body.readUInt16BE(0)) };
}

function bare<C extends string>(cmd: C, flags: number, body: Buffer): { cmd: C } {
  if (flags !== 0 || body.length > 0) throw new Malformed(`malformed ${cmd.toUpperCase()}`);
  return { cmd };
}

/** The fields of a body, in order. Each throws Malformed past the end. */
class Fields {
  readonly #body: Buffer;
  #at = 0;

  constructor(body: Buffer) {
    this.#body = body;
  }

  get left(): number {
    return this.#body.length - this.#at;
  }

  byte(): number {
    return this.#take(1)[0] as number;
  }

  number(): number {
    return this.#take(2).readUInt16BE(0);
  }

  bytes(): Buffer {
    return this.#take(this.number());
  }

  /** UTF-8 without U+0000 [MQTT-1.5.3-1, MQTT-1.5.3-2]. */
  text(name: string): string {
    const bytes = this.bytes();
    const text = bytes.toString();
    if (!isUtf8(bytes) || text.includes('\0')) throw new Malformed(`malformed ${name}`);
    return text;
  }

  /** Skips the properties of MQTT 5: their length takes one to four bytes. */
  properties(): void {
    let length = 0;
    for (let place = 0; place < 4; place += 1) {
      const byte = this.byte();
      length += (byte & 127) << (7 * place);
      if (byte < 128) break;
    }
    this.#take(length);
  }

  end(): void {
    if (this.left > 0) throw new Malformed('surplus bytes');
  }

  #take(length: number): Buffer {
    if (length > this.left) throw new Malformed('the packet is too short');
    const bytes = this.#body.subarray(this.#at, this.#at + length);
    this.#at += length;
    return bytes;
  }
}
