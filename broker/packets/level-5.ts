import { isUtf8 } from 'node:buffer';
import { lineOf } from '../../src/core/errors.ts';
import {
  clientPropertiesOf,
  type Properties,
  propertyBytes,
  secondsLeft,
  variableBytes,
} from '../../src/core/formats/message-properties.ts';
import { canonicalTopic } from '../../src/core/topics.ts';
import type { Incoming, Subscription } from '../message-types.ts';
import { isFailure, type Reason, rowOf } from '../reasons.ts';
import { isShared } from '../topics.ts';
import {
  type Answer,
  type Codec,
  type ConnectRefusal,
  type Disconnect,
  type Granted,
  type Packet,
  type PublishHeader,
  types,
} from './codec.ts';
import { Fields, faults, Malformed } from './fields.ts';
import type { Frame } from './frames.ts';
import { demandBare, packetId } from './level-4.ts';
import { TopicAliases } from './topic-aliases.ts';
import { copied, header, headerLength, writeHeader } from './write.ts';

/** Aliases that a client may use, and those that are used for one. */
export const topicAliasMaximum = 32;
/** Characters of a topic that an alias is kept for. No channel has a longer one: it is refused. */
const maxAliasedTopic = 2048;
/** Bytes of a Reason String. */
const maxReasonBytes = 256;
const firstBytes = { puback: 0x40, pubrec: 0x50, pubrel: 0x62, pubcomp: 0x70 } as const;
const pingResponse = Buffer.from([types.pingresp << 4, 0]);
type Bytes = Uint8Array;

const nothing = Buffer.alloc(0);

/** What a client says in its CONNECT of what it can take. */
export interface Abilities {
  /** Bytes of a packet; Infinity for any. */
  maximumPacketSize: number;
  topicAliasMaximum: number;
  /** Whether acknowledgements may say more than their reason code. */
  wantsProblemInformation: boolean;
  /** Whether its session is kept when it leaves: otherwise DISCONNECT may not ask for that [MQTT-3.1.2.11.2]. */
  keepsSession: boolean;
}

/** MQTT 5. */
export class Level5 implements Codec {
  readonly level = 5;
  readonly #clock: { now(): number };
  readonly #abilities: Abilities;
  /** Topics by alias, as the client has set them. */
  readonly #aliased = new Map<number, string>();
  readonly #aliases: TopicAliases;
  /** A device publishes on few topics: the last one is not checked and decoded again. */
  #topicBytes: Buffer | undefined;
  #topic = '';

  constructor(clock: { now(): number }, abilities: Abilities) {
    this.#clock = clock;
    this.#abilities = abilities;
    this.#aliases = new TopicAliases(Math.min(abilities.topicAliasMaximum, topicAliasMaximum));
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
        return answer('pubrel', flags === 2, body);
      case types.pubcomp:
        return answer('pubcomp', flags === 0, body);
      case types.subscribe:
        return subscribe(flags, body);
      case types.unsubscribe:
        return unsubscribe(flags, body);
      case types.pingreq:
        demandBare('PINGREQ', flags, body);
        return { cmd: 'pingreq' };
      case types.disconnect:
        return this.#disconnected(flags, body);
      case types.connect:
        throw protocolError('a second CONNECT');
      case types.auth:
        throw protocolError('AUTH without an authentication method');
      default:
        throw protocolError('no packet of a connected client');
    }
  }

  /** Without what the client can do without where it has no room [MQTT-3.2.2-19 and so on]. */
  accepted(isSessionPresent: boolean, properties: Properties): Buffer | undefined {
    const { responseInformation: _, ...needed } = properties;
    const { topicAliasMaximum: __, ...least } = needed;
    return [properties, needed, least]
      .map((some) => withProperties(types.connack << 4, Buffer.from([isSessionPresent ? 1 : 0, 0]), some))
      .find((bytes) => this.#fits(bytes.length));
  }

  refused({ code, sentence }: ConnectRefusal): Buffer {
    const bytes = refusedConnect(code, sentence);
    return this.#fits(bytes.length) ? bytes : refusedConnect(code);
  }

  answer(cmd: Answer['cmd'], messageId: number, code = 0, sentence?: string): Buffer {
    if (code === 0) return Buffer.from([firstBytes[cmd], 2, messageId >> 8, messageId & 255]);
    const about = Buffer.from([messageId >> 8, messageId & 255, code]);
    return this.#explained(firstBytes[cmd], about, sentence, nothing);
  }

  suback(messageId: number, granted: readonly Granted[]): Buffer {
    const codes = granted.map((one) => (typeof one === 'number' ? one : rowOf(one).mqtt5));
    const refusal = granted.find((one) => typeof one !== 'number');
    const about = Buffer.from([messageId >> 8, messageId & 255]);
    return this.#explained(types.suback << 4, about, refusal && lineOf(refusal), Buffer.from(codes));
  }

  unsuback(messageId: number, ended: ReadonlyArray<Reason | undefined>): Buffer {
    const codes = ended.map((why) => (why ? rowOf(why).mqtt5 : 0));
    const refusal = ended.find((why) => why && isFailure(rowOf(why).mqtt5));
    const about = Buffer.from([messageId >> 8, messageId & 255]);
    return this.#explained(types.unsuback << 4, about, refusal && lineOf(refusal), Buffer.from(codes));
  }

  pingresp(): Buffer {
    return pingResponse;
  }

  disconnect(code: number, sentence?: string): Buffer {
    const about = Buffer.from([code]);
    const bytes = withProperties(types.disconnect << 4, about, reasonString(sentence));
    return this.#fits(bytes.length) ? bytes : withProperties(types.disconnect << 4, about, {});
  }

  sharesBytes({ messageExpiry, identifiers }: PublishHeader): boolean {
    const { maximumPacketSize } = this.#abilities;
    return !this.#aliases.areUsed && maximumPacketSize === Infinity && messageExpiry === undefined && !identifiers;
  }

  publish(packet: PublishHeader, payload: Buffer, qos: 0 | 1 | 2, messageId?: number): Buffer | undefined {
    const { topic, retain, dup, properties: travelling = nothing } = packet;
    const own = this.#ownProperties(packet);
    const { alias, isKnown } = this.#aliases.choose(topic);
    const aliasBytes = alias === undefined ? nothing : propertyBytes({ topicAlias: alias });
    const propertiesLength = own.length + aliasBytes.length + travelling.length;
    const lengthBytes = variableBytes(propertiesLength);
    const topicLength = isKnown ? 0 : Buffer.byteLength(topic);
    const idLength = messageId === undefined ? 0 : 2;
    const length = 2 + topicLength + idLength + lengthBytes.length + propertiesLength + payload.length;
    const head = headerLength(length);
    if (!this.#fits(head + length)) return undefined;
    if (alias !== undefined) this.#aliases.use(topic, alias);
    const isCopied = payload.length <= copied;
    const bytes = Buffer.allocUnsafe(head + (isCopied ? length : length - payload.length));
    writeHeader(bytes, 0x30 | (dup && qos > 0 ? 8 : 0) | (qos << 1) | (retain ? 1 : 0), length);
    let at = bytes.writeUInt16BE(topicLength, head);
    if (!isKnown) at += bytes.write(topic, at);
    if (messageId !== undefined) at = bytes.writeUInt16BE(messageId, at);
    for (const part of [lengthBytes, own, aliasBytes, travelling]) {
      bytes.set(part, at);
      at += part.length;
    }
    if (isCopied) bytes.set(payload, at);
    return bytes;
  }

  /** Those that are of this delivery, next to what the publisher has sent along. */
  #ownProperties({ messageExpiry, identifiers }: PublishHeader): Buffer {
    if (messageExpiry === undefined && identifiers === undefined) return nothing;
    return propertyBytes({
      ...(messageExpiry !== undefined && { messageExpiry: secondsLeft(messageExpiry, this.#clock.now()) }),
      ...(identifiers && { subscriptionIdentifier: identifiers }),
    });
  }

  #fits(length: number): boolean {
    return length <= this.#abilities.maximumPacketSize;
  }

  /** With a Reason String where the client wants one and has room for it [MQTT-3.4.2-2]. */
  #explained(first: number, about: Bytes, sentence: string | undefined, rest: Bytes): Buffer {
    const { wantsProblemInformation } = this.#abilities;
    const bytes = withProperties(first, about, wantsProblemInformation ? reasonString(sentence) : {}, rest);
    return this.#fits(bytes.length) ? bytes : withProperties(first, about, {}, rest);
  }

  #publish(flags: number, body: Buffer): Incoming {
    const qos = (flags >> 1) & 3;
    const dup = (flags & 8) !== 0;
    if (qos === 3) throw new Malformed('QoS 3');
    if (dup && qos === 0) throw new Malformed('DUP with QoS 0');
    const length = body.length < 2 ? Number.POSITIVE_INFINITY : body.readUInt16BE(0);
    const end = 2 + length;
    const at = qos > 0 ? end + 2 : end;
    if (at >= body.length) throw new Malformed('the packet is too short');
    const packet: Incoming = {
      cmd: 'publish',
      topic: this.#topicOf(body, length, end),
      payload: body,
      qos: qos as 0 | 1 | 2,
      retain: (flags & 1) !== 0,
      dup,
    };
    if (qos > 0) packet.messageId = packetId(body.readUInt16BE(end));
    let alias: number | undefined;
    if (body[at] === 0) packet.payload = body.subarray(at + 1);
    else {
      const fields = new Fields(body.subarray(at));
      const { properties, travelling } = fields.properties('publish');
      packet.payload = fields.rest();
      // A server gives identifiers, and is given none [MQTT-3.3.4-6].
      if (properties.subscriptionIdentifier) throw protocolError('a subscription identifier of a client');
      // It may be a part of what was read, which would be kept with it.
      demandResponseTopic(properties);
      packet.clientProperties = clientPropertiesOf(properties, Buffer.from(travelling));
      alias = properties.topicAlias;
    }
    packet.topic = this.#resolve(packet.topic, alias);
    return packet;
  }

  /** Empty where an alias stands for it. */
  #topicOf(body: Buffer, length: number, end: number): string {
    if (length === 0) return '';
    const known = this.#topicBytes;
    if (length !== known?.length || body.compare(known, 0, length, 2, end) !== 0) {
      const bytes = body.subarray(2, end);
      this.#topic = bytes.toString();
      if (/[+#\0]/.test(this.#topic) || !isUtf8(bytes))
        throw new Malformed('malformed topic', { about: { action: 'publish', topic: this.#topic } });
      this.#topic = canonicalTopic(this.#topic);
      this.#topicBytes = Buffer.from(bytes);
    }
    return this.#topic;
  }

  #resolve(topic: string, alias: number | undefined): string {
    if (alias === undefined) {
      if (topic === '') throw protocolError('neither a topic nor an alias');
      return topic;
    }
    if (alias === 0 || alias > topicAliasMaximum)
      throw new Malformed('no such topic alias', { code: faults.topicAlias });
    if (topic.length > maxAliasedTopic) {
      this.#aliased.delete(alias);
      return topic;
    }
    if (topic !== '') this.#aliased.set(alias, topic);
    const known = this.#aliased.get(alias);
    if (known === undefined) throw new Malformed('an unknown topic alias', { code: faults.topicAlias });
    return known;
  }

  #disconnected(flags: number, body: Buffer): Disconnect {
    if (flags !== 0) throw new Malformed('malformed DISCONNECT');
    const fields = new Fields(body);
    const code = fields.left > 0 ? codeIn(fields, 'disconnect') : 0;
    const { sessionExpiry } = fields.left > 0 ? fields.properties('disconnect').properties : {};
    fields.end();
    if (sessionExpiry !== undefined && sessionExpiry > 0 && !this.#abilities.keepsSession)
      throw protocolError('a session expiry where CONNECT had none');
    return { cmd: 'disconnect', sendsWill: code !== 0, sessionExpiry: sessionExpiry && secondsOf(sessionExpiry) };
  }
}

/** CONNACK for a client that is not let in; its CONNECT may be malformed. */
export function refusedConnect(code: number, sentence?: string): Buffer {
  return withProperties(types.connack << 4, Buffer.from([0, code]), reasonString(sentence));
}

/** A topic, no filter [MQTT-3.3.2-14]. @throws Malformed */
export function demandResponseTopic({ responseTopic }: Properties): void {
  if (responseTopic !== undefined && /[+#]/.test(responseTopic)) throw protocolError('a wildcard in a Response Topic');
}

/** Seconds of a session; all bits set for one that does not expire [MQTT-3.1.2.11.2]. */
export function secondsOf(sessionExpiry: number): number {
  return sessionExpiry === 0xffff_ffff ? Number.POSITIVE_INFINITY : sessionExpiry;
}

function protocolError(message: string): Malformed {
  return new Malformed(message, { code: faults.protocol });
}

function withProperties(first: number, about: Bytes, properties: Properties, rest: Bytes = nothing): Buffer {
  const bytes = propertyBytes(properties);
  const length = variableBytes(bytes.length);
  const body = [about, length, bytes, rest];
  return Buffer.concat([header(first, about.length + length.length + bytes.length + rest.length), ...body]);
}

function reasonString(sentence: string | undefined): Properties {
  return sentence === undefined ? {} : { reasonString: cut(sentence) };
}

/** As many whole characters as there is room for. */
function cut(text: string): string {
  if (Buffer.byteLength(text) <= maxReasonBytes) return text;
  return new TextDecoder().decode(Buffer.from(text).subarray(0, maxReasonBytes), { stream: true });
}

/** Reason codes of the packets of a client [MQTT-3.4.2-1 and so on]. */
const codesOf = {
  puback: [0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99],
  pubrec: [0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99],
  pubrel: [0, 0x92],
  pubcomp: [0, 0x92],
  disconnect: [0, 4, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99],
} as const satisfies Record<string, readonly number[]>;

function codeIn(fields: Fields, packet: keyof typeof codesOf): number {
  const code = fields.byte();
  if (!codesOf[packet].some((one) => one === code)) throw new Malformed('an unknown reason code');
  return code;
}

function answer(cmd: Answer['cmd'], areFlagsValid: boolean, body: Buffer): Answer {
  if (!areFlagsValid) throw new Malformed(`malformed ${cmd.toUpperCase()}`);
  if (body.length === 2) return { cmd, messageId: packetId(body.readUInt16BE(0)), code: 0 };
  const fields = new Fields(body);
  const messageId = packetId(fields.number());
  const code = codeIn(fields, cmd);
  if (fields.left > 0) fields.properties(cmd);
  fields.end();
  return { cmd, messageId, code };
}

function subscribe(flags: number, body: Buffer): Packet {
  if (flags !== 2) throw new Malformed('reserved flags of SUBSCRIBE');
  const fields = new Fields(body);
  const messageId = packetId(fields.number());
  const { subscriptionIdentifier } = fields.properties('subscribe').properties;
  const [identifier] = subscriptionIdentifier ?? [];
  const subscriptions: Subscription[] = [];
  if (fields.left === 0) throw protocolError('a SUBSCRIBE without filters');
  while (fields.left > 0) {
    const topic = filterIn(fields);
    const options = fields.byte();
    const qos = options & 3;
    const rh = (options >> 4) & 3;
    if (options & 0xc0) throw new Malformed('reserved subscription options');
    if (qos === 3 || rh === 3) throw protocolError('subscription options');
    if (isShared(topic) && options & 4) throw protocolError('No Local of a shared subscription');
    subscriptions.push({
      ...{ topic, qos: qos as 0 | 1 | 2, rh, rap: (options & 8) !== 0, nl: (options & 4) !== 0 },
      ...(identifier !== undefined && { identifier }),
    });
  }
  return { cmd: 'subscribe', messageId, subscriptions };
}

/** One that cannot match anything is answered; one of no characters is none [MQTT-4.7.3-1]. */
function filterIn(fields: Fields): string {
  const filter = fields.text('filter');
  if (filter === '') throw new Malformed('an empty filter');
  return canonicalTopic(filter);
}

function unsubscribe(flags: number, body: Buffer): Packet {
  if (flags !== 2) throw new Malformed('reserved flags of UNSUBSCRIBE');
  const fields = new Fields(body);
  const messageId = packetId(fields.number());
  fields.properties('unsubscribe');
  const unsubscriptions: string[] = [];
  if (fields.left === 0) throw protocolError('an UNSUBSCRIBE without filters');
  while (fields.left > 0) unsubscriptions.push(filterIn(fields));
  return { cmd: 'unsubscribe', messageId, unsubscriptions };
}
