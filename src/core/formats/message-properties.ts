/** Properties of MQTT 5 packets: read to the letter, written, and shown as JSON. */
import { isUtf8 } from 'node:buffer';
import { type Static, Type } from 'typebox';
import type { StoredProperties } from '../../../db/messages/sessions/changes.ts';

/** What a property holds: bytes of a number, a variable byte integer, text, bytes, or two texts. */
type Form = 1 | 2 | 4 | 'variable' | 'text' | 'bytes' | 'pair';

/** Every property, its identifier, its form, and the packets that may have it [MQTT-2.2.2.2]. `will` stands for that of CONNECT. */
const table = {
  payloadFormat: [0x01, 1, 'publish will'],
  messageExpiry: [0x02, 4, 'publish will'],
  contentType: [0x03, 'text', 'publish will'],
  responseTopic: [0x08, 'text', 'publish will'],
  correlationData: [0x09, 'bytes', 'publish will'],
  subscriptionIdentifier: [0x0b, 'variable', 'publish subscribe'],
  sessionExpiry: [0x11, 4, 'connect connack disconnect'],
  assignedClientId: [0x12, 'text', 'connack'],
  serverKeepAlive: [0x13, 2, 'connack'],
  authenticationMethod: [0x15, 'text', 'connect connack auth'],
  authenticationData: [0x16, 'bytes', 'connect connack auth'],
  requestProblemInformation: [0x17, 1, 'connect'],
  willDelay: [0x18, 4, 'will'],
  requestResponseInformation: [0x19, 1, 'connect'],
  responseInformation: [0x1a, 'text', 'connack'],
  serverReference: [0x1c, 'text', 'connack disconnect'],
  reasonString: [0x1f, 'text', 'connack puback pubrec pubrel pubcomp suback unsuback disconnect auth'],
  receiveMaximum: [0x21, 2, 'connect connack'],
  topicAliasMaximum: [0x22, 2, 'connect connack'],
  topicAlias: [0x23, 2, 'publish'],
  userProperties: [
    0x26,
    'pair',
    'connect connack publish will puback pubrec pubrel pubcomp subscribe suback unsubscribe unsuback disconnect auth',
  ],
  maximumPacketSize: [0x27, 4, 'connect connack'],
} as const satisfies Record<string, readonly [number, Form, string]>;

export type PropertyName = keyof typeof table;
export type PacketWithProperties =
  | 'connect'
  | 'connack'
  | 'publish'
  | 'will'
  | 'puback'
  | 'pubrec'
  | 'pubrel'
  | 'pubcomp'
  | 'subscribe'
  | 'suback'
  | 'unsubscribe'
  | 'unsuback'
  | 'disconnect'
  | 'auth';
type Pair = [string, string];

/** User properties of one message. */
export const maxUserProperties = 32;
type ValueOf<F> = F extends 'text' ? string : F extends 'bytes' ? Buffer : number;

/** Properties by name. Those that a packet may have more than once are lists. */
export type Properties = {
  -readonly [Name in Exclude<PropertyName, 'userProperties' | 'subscriptionIdentifier'>]?: ValueOf<
    (typeof table)[Name][1]
  >;
} & { userProperties?: Pair[]; subscriptionIdentifier?: number[] };

interface Definition {
  name: PropertyName;
  form: Form;
  packets: ReadonlySet<string>;
}

const definitions = new Map<number, Definition>(
  Object.entries(table).map(([name, [id, form, packets]]) => [
    id,
    { name: name as PropertyName, form, packets: new Set(packets.split(' ')) },
  ]),
);

/** What a message takes along to its subscribers. */
const travelling: ReadonlySet<PropertyName> = new Set<PropertyName>([
  'payloadFormat',
  'contentType',
  'responseTopic',
  'correlationData',
  'userProperties',
]);
const flags: ReadonlySet<PropertyName> = new Set<PropertyName>([
  'payloadFormat',
  'requestProblemInformation',
  'requestResponseInformation',
]);
const positive: ReadonlySet<PropertyName> = new Set<PropertyName>([
  'receiveMaximum',
  'maximumPacketSize',
  'subscriptionIdentifier',
]);

/** The bytes behind `at` are not those of properties: `code` is the reason that DISCONNECT or CONNACK gives. */
export class InvalidProperties extends Error {
  override name = 'InvalidProperties';

  readonly code: 0x81 | 0x82;

  constructor(code: 0x81 | 0x82, message: string) {
    super(message);
    this.code = code;
  }
}

export interface PropertiesRead {
  properties: Properties;
  /** Bytes of those that travel with a message, in their order; empty where there are none. */
  travelling: Buffer;
  /** Where the packet goes on. */
  end: number;
}

const nothing = Buffer.alloc(0);

/** Reads the length at `at` of a body, and the properties behind it. @throws InvalidProperties */
export function readProperties(body: Buffer, at: number, packet: PacketWithProperties): PropertiesRead {
  const reader = new Reader(body, at);
  const length = reader.variable();
  const end = reader.at + length;
  if (end > body.length) throw new InvalidProperties(0x81, 'the packet is shorter than its properties');
  if (length === 0) return { properties: {}, travelling: nothing, end };
  const inside = new Reader(body.subarray(0, end), reader.at);
  const properties: Properties = {};
  const parts: Array<{ from: number; to: number }> = [];
  let users = 0;
  while (inside.at < end) {
    const from = inside.at;
    const id = inside.variable();
    const definition = definitions.get(id);
    if (!definition?.packets.has(packet))
      throw new InvalidProperties(0x81, `property ${id} does not belong to ${packet.toUpperCase()}`);
    const { name, form } = definition;
    if (name === 'userProperties') users += 1;
    // One too many is enough to refuse a message, and those of other packets are not read.
    if (users > maxUserProperties + 1 && name === 'userProperties') inside.skipPair();
    else set(properties, name, inside.value(form), packet);
    if (!travelling.has(name)) continue;
    const last = parts.at(-1);
    if (last?.to === from) last.to = inside.at;
    else parts.push({ from, to: inside.at });
  }
  const bytes = parts.map(({ from, to }) => body.subarray(from, to));
  return { properties, travelling: bytes.length === 1 ? (bytes[0] as Buffer) : Buffer.concat(bytes), end };
}

/** Takes a value into `properties`: twice is allowed for user properties alone, and for the identifiers of a delivery. */
function set(properties: Properties, name: PropertyName, value: unknown, packet: PacketWithProperties): void {
  if (flags.has(name) && (value as number) > 1) throw new InvalidProperties(0x82, `${name} is neither 0 nor 1`);
  if (positive.has(name) && value === 0) throw new InvalidProperties(0x82, `${name} is 0`);
  if (name === 'userProperties') {
    properties.userProperties ??= [];
    properties.userProperties.push(value as Pair);
    return;
  }
  if (name in properties && !(name === 'subscriptionIdentifier' && packet === 'publish'))
    throw new InvalidProperties(0x82, `${name} stands twice`);
  if (name === 'subscriptionIdentifier') {
    properties.subscriptionIdentifier ??= [];
    properties.subscriptionIdentifier.push(value as number);
  } else Object.assign(properties, { [name]: value });
}

class Reader {
  readonly #body: Buffer;
  at: number;

  constructor(body: Buffer, at: number) {
    this.#body = body;
    this.at = at;
  }

  /** One to four bytes, as few as will do [MQTT-1.5.5-1]. */
  variable(): number {
    let value = 0;
    for (let place = 0; place < 4; place += 1) {
      const byte = this.#number(1);
      value += (byte & 127) * 128 ** place;
      if (byte < 128) {
        if (place > 0 && byte === 0) break;
        return value;
      }
    }
    throw new InvalidProperties(0x81, 'a malformed variable byte integer');
  }

  value(form: Form): number | string | Buffer | Pair {
    if (form === 'variable') return this.variable();
    if (form === 'bytes') return this.#takeBytes(this.#number(2));
    if (form === 'text') return this.#text();
    if (form === 'pair') return [this.#text(), this.#text()];
    return this.#number(form);
  }

  /** Two texts that nobody wants to know. */
  skipPair(): void {
    this.#passText();
    this.#passText();
  }

  #number(bytes: 1 | 2 | 4): number {
    const from = this.#pass(bytes);
    let value = 0;
    for (let at = from; at < this.at; at += 1) value = value * 256 + (this.#body[at] as number);
    return value;
  }

  #text(): string {
    const from = this.#passText();
    return this.#body.toString('utf8', from, this.at);
  }

  /** UTF-8 without U+0000 [MQTT-1.5.4-1, MQTT-1.5.4-2]; where it begins. */
  #passText(): number {
    const from = this.#pass(this.#number(2));
    let isAscii = true;
    for (let at = from; at < this.at; at += 1) {
      const byte = this.#body[at] as number;
      if (byte === 0) throw noUtf8();
      if (byte > 127) isAscii = false;
    }
    if (!isAscii && !isUtf8(this.#body.subarray(from, this.at))) throw noUtf8();
    return from;
  }

  #takeBytes(length: number): Buffer {
    const from = this.#pass(length);
    return this.#body.subarray(from, this.at);
  }

  /** Where these bytes begin. */
  #pass(length: number): number {
    const from = this.at;
    if (from + length > this.#body.length) throw new InvalidProperties(0x81, 'a property is longer than its packet');
    this.at += length;
    return from;
  }
}

function noUtf8(): InvalidProperties {
  return new InvalidProperties(0x81, 'a property that is no UTF-8');
}

/** Bytes of properties without their length, in the order of `properties`. */
export function propertyBytes(properties: Properties): Buffer {
  const parts: Buffer[] = [];
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined) continue;
    const [id, form] = table[name as PropertyName];
    const values = name === 'userProperties' || name === 'subscriptionIdentifier' ? (value as unknown[]) : [value];
    for (const one of values) parts.push(Buffer.from([id]), valueBytes(form, one));
  }
  return Buffer.concat(parts);
}

function valueBytes(form: Form, value: unknown): Buffer {
  if (form === 'variable') return variableBytes(value as number);
  if (form === 'text') return lengthBytes(Buffer.from(value as string));
  if (form === 'bytes') return lengthBytes(value as Buffer);
  if (form === 'pair') return Buffer.concat((value as Pair).map((text) => lengthBytes(Buffer.from(text))));
  const bytes = Buffer.allocUnsafe(form);
  bytes.writeUIntBE(value as number, 0, form);
  return bytes;
}

function lengthBytes(bytes: Buffer): Buffer {
  return Buffer.concat([Buffer.from([bytes.length >> 8, bytes.length & 255]), bytes]);
}

/** A variable byte integer: 7 bits in each byte, the lowest first. */
export function variableBytes(value: number): Buffer {
  const bytes: number[] = [];
  let left = value;
  do {
    bytes.push((left & 127) | (left > 127 ? 128 : 0));
    left = Math.floor(left / 128);
  } while (left > 0);
  return Buffer.from(bytes);
}

/** Properties of a message as JSON shows them. */
export const messageProperties = Type.Object(
  {
    contentType: Type.Optional(Type.String()),
    responseTopic: Type.Optional(Type.String()),
    correlationData: Type.Optional(Type.String({ description: 'In base64.' })),
    userProperties: Type.Optional(
      Type.Array(Type.Array(Type.String(), { minItems: 2, maxItems: 2 }), {
        maxItems: maxUserProperties,
        description: 'Pairs of a name and a value, in their order.',
      }),
    ),
    messageExpiry: Type.Optional(Type.Integer({ description: 'Seconds that are left.' })),
  },
  { description: 'What an MQTT 5 client sent along. It is left out where there was nothing.' },
);
export type ShownProperties = Omit<Static<typeof messageProperties>, 'userProperties'> & { userProperties?: Pair[] };

/** Undefined for a message without any; `now` in milliseconds since 1970. */
export function showProperties({ properties, expires }: StoredProperties, now: number): ShownProperties | undefined {
  if (properties === null && expires === null) return undefined;
  const { contentType, responseTopic, correlationData, userProperties } = travellingProperties(properties);
  return {
    ...(contentType !== undefined && { contentType }),
    ...(responseTopic !== undefined && { responseTopic }),
    ...(correlationData !== undefined && { correlationData: correlationData.toString('base64') }),
    ...(userProperties !== undefined && { userProperties }),
    ...(expires !== null && { messageExpiry: secondsLeft(expires, now) }),
  };
}

/** Seconds until `expires`, rounded up: what has a millisecond left has not expired. */
export function secondsLeft(expires: number, now: number): number {
  return Math.max(0, Math.ceil((expires - now) / 1000));
}

/** What an MQTT 5 client says of a message, as far as the service looks at it. */
export interface ClientProperties {
  /** Bytes of the properties that travel with it, in their order; empty without any. */
  travelling: Buffer;
  /** Seconds. */
  messageExpiry: number | undefined;
  /** Whether its payload is said to be text. */
  isText: boolean;
  contentType: string | undefined;
  responseTopic: string | undefined;
  /** How many user properties it has. */
  userProperties: number;
}

/** The part of properties that concerns a message; undefined when there is none. */
export function clientPropertiesOf(properties: Properties, travelling: Buffer): ClientProperties | undefined {
  const { messageExpiry, payloadFormat, contentType, responseTopic, userProperties = [] } = properties;
  if (travelling.length === 0 && messageExpiry === undefined) return undefined;
  const isText = payloadFormat === 1;
  return { travelling, messageExpiry, isText, contentType, responseTopic, userProperties: userProperties.length };
}

/** The same of what has been stored of a message. */
export function storedClientProperties(
  properties: Uint8Array | null,
  messageExpiry: number | null,
): ClientProperties | undefined {
  const travelling = Buffer.from(properties ?? []);
  const about = { ...travellingProperties(travelling), ...(messageExpiry !== null && { messageExpiry }) };
  return clientPropertiesOf(about, travelling);
}

/** Decodes what `travelling` of a packet has given, or `propertyBytes`. */
export function travellingProperties(bytes: Uint8Array | null): Properties {
  if (bytes === null || bytes.length === 0) return {};
  const body = Buffer.concat([variableBytes(bytes.length), bytes]);
  return readProperties(body, 0, 'publish').properties;
}
