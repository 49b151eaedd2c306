/**
 * MQTT 5 packets as tests write and read them. mqtt-packet refuses to write bad packets, loses the order of user properties, and
 * reads past the end of a packet; here each byte is accounted for.
 */
import { packetBytes } from '../bytes.ts';

type Form = 'byte' | 'two' | 'four' | 'variable' | 'text' | 'bytes' | 'pair';

const table = {
  payloadFormat: [0x01, 'byte'],
  messageExpiry: [0x02, 'four'],
  contentType: [0x03, 'text'],
  responseTopic: [0x08, 'text'],
  correlationData: [0x09, 'bytes'],
  subscriptionIdentifier: [0x0b, 'variable'],
  sessionExpiry: [0x11, 'four'],
  assignedClientId: [0x12, 'text'],
  serverKeepAlive: [0x13, 'two'],
  authenticationMethod: [0x15, 'text'],
  authenticationData: [0x16, 'bytes'],
  requestProblemInformation: [0x17, 'byte'],
  willDelay: [0x18, 'four'],
  requestResponseInformation: [0x19, 'byte'],
  responseInformation: [0x1a, 'text'],
  serverReference: [0x1c, 'text'],
  reasonString: [0x1f, 'text'],
  receiveMaximum: [0x21, 'two'],
  topicAliasMaximum: [0x22, 'two'],
  topicAlias: [0x23, 'two'],
  maximumQos: [0x24, 'byte'],
  retainAvailable: [0x25, 'byte'],
  userProperties: [0x26, 'pair'],
  maximumPacketSize: [0x27, 'four'],
  wildcardAvailable: [0x28, 'byte'],
  identifiersAvailable: [0x29, 'byte'],
  sharedAvailable: [0x2a, 'byte'],
} as const satisfies Record<string, readonly [number, Form]>;

export type Name = keyof typeof table;
export type Pair = [name: string, value: string];
type Value = number | string | Buffer | Pair;

/** Properties by name. `correlationData` and `authenticationData` are in Latin-1, so that tests can compare text. */
export interface Properties {
  payloadFormat?: number;
  messageExpiry?: number;
  contentType?: string;
  responseTopic?: string;
  correlationData?: string;
  /** Several on a delivery that several filters match. */
  subscriptionIdentifier?: number | number[];
  sessionExpiry?: number;
  assignedClientId?: string;
  serverKeepAlive?: number;
  authenticationMethod?: string;
  authenticationData?: string;
  requestProblemInformation?: number;
  willDelay?: number;
  requestResponseInformation?: number;
  responseInformation?: string;
  serverReference?: string;
  reasonString?: string;
  receiveMaximum?: number;
  topicAliasMaximum?: number;
  topicAlias?: number;
  maximumQos?: number;
  retainAvailable?: number;
  userProperties?: Pair[];
  maximumPacketSize?: number;
  wildcardAvailable?: number;
  identifiersAvailable?: number;
  sharedAvailable?: number;
}

/** Properties to write: by name, one after another with repetitions, or as bytes without their length. */
export type Written = Properties | ReadonlyArray<readonly [Name, Value]> | Buffer;

// Writing

const two = (value: number) => Buffer.from([value >> 8, value & 255]);

export function field(text: string | Buffer): Buffer {
  const bytes = typeof text === 'string' ? Buffer.from(text) : text;
  return Buffer.concat([two(bytes.length), bytes]);
}

export function variable(value: number): Buffer {
  const bytes: number[] = [];
  let left = value;
  do {
    bytes.push((left & 127) | (left > 127 ? 128 : 0));
    left = Math.floor(left / 128);
  } while (left > 0);
  return Buffer.from(bytes);
}

export function property(name: Name, value: Value): Buffer {
  const [id, form] = table[name];
  return Buffer.concat([Buffer.from([id]), valueBytes(form, value)]);
}

function valueBytes(form: Form, value: Value): Buffer {
  if (form === 'text') return field(value as string | Buffer);
  if (form === 'bytes') return field(typeof value === 'string' ? Buffer.from(value, 'latin1') : (value as Buffer));
  if (form === 'pair') return Buffer.concat((value as Pair).map(field));
  if (form === 'variable') return variable(value as number);
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value as number);
  return bytes.subarray(4 - { byte: 1, two: 2, four: 4 }[form]);
}

function propertiesOf(written: Written): Buffer {
  if (Buffer.isBuffer(written)) return written;
  const pairs = Array.isArray(written) ? (written as Array<[Name, Value]>) : Object.entries(written).flatMap(repeated);
  return Buffer.concat(pairs.map(([name, value]) => property(name, value)));
}

function repeated([name, value]: [string, Value | Value[]]): Array<[Name, Value]> {
  const isList = name === 'userProperties' || (name === 'subscriptionIdentifier' && Array.isArray(value));
  return (isList ? (value as Value[]) : [value as Value]).map((one) => [name as Name, one]);
}

/** With their length in front. */
export function block(written: Written = {}): Buffer {
  const bytes = propertiesOf(written);
  return Buffer.concat([variable(bytes.length), bytes]);
}

export interface WillOptions {
  topic: string;
  payload?: string | Buffer;
  qos?: 0 | 1 | 2;
  retain?: boolean;
  properties?: Written;
}

export interface ConnectOptions {
  clientId?: string | Buffer;
  username?: string;
  password?: string | Buffer;
  clean?: boolean;
  keepAlive?: number;
  properties?: Written;
  will?: WillOptions;
  /** Connect flags besides those of the fields. */
  flags?: number;
  protocol?: string;
  level?: number;
  /** After the last field. */
  surplus?: Buffer;
}

export function connect({ clientId = 'five', username, password, will, properties, ...more }: ConnectOptions): Buffer {
  const { clean = true, keepAlive = 20, flags = 0, protocol = 'MQTT', level = 5, surplus = Buffer.alloc(0) } = more;
  const said =
    (clean ? 0x02 : 0) |
    (will ? 0x04 | ((will.qos ?? 0) << 3) | (will.retain ? 0x20 : 0) : 0) |
    (username === undefined ? 0 : 0x80) |
    (password === undefined ? 0 : 0x40);
  const head = [field(protocol), Buffer.from([level, said | flags]), two(keepAlive), block(properties)];
  const last = will ? [block(will.properties), field(will.topic), field(will.payload ?? '')] : [];
  const login = [username, password].filter((text) => text !== undefined).map(field);
  return packetBytes(0x10, ...head, field(clientId), ...last, ...login, surplus);
}

export interface PublishOptions {
  qos?: 0 | 1 | 2 | 3;
  id?: number;
  retain?: boolean;
  dup?: boolean;
  properties?: Written;
}

export function publish(topic: string | Buffer, payload: string | Buffer, options: PublishOptions = {}): Buffer {
  const { qos = 0, id = 1, retain = false, dup = false, properties } = options;
  const first = 0x30 | (dup ? 8 : 0) | (qos << 1) | (retain ? 1 : 0);
  return packetBytes(
    first,
    field(topic),
    ...(qos > 0 ? [two(id)] : []),
    block(properties),
    Buffer.from(payload as string),
  );
}

/** Options of one filter; `byte` is all of them at once. */
export interface FilterOptions {
  qos?: 0 | 1 | 2;
  noLocal?: boolean;
  retainAsPublished?: boolean;
  retainHandling?: 0 | 1 | 2;
  byte?: number;
}
export type Asked = string | Buffer | [filter: string | Buffer, options: FilterOptions];

export function subscribe(id: number, asked: Asked[], properties?: Written, first = 0x82): Buffer {
  const filters = asked.map((one) => {
    const [filter, options] = Array.isArray(one) ? one : [one, {}];
    const { qos = 1, noLocal = false, retainAsPublished = false, retainHandling = 0 } = options;
    const { byte = qos | (noLocal ? 4 : 0) | (retainAsPublished ? 8 : 0) | (retainHandling << 4) } = options;
    return Buffer.concat([field(filter), Buffer.from([byte])]);
  });
  return packetBytes(first, two(id), block(properties), ...filters);
}

export function unsubscribe(id: number, filters: Array<string | Buffer>, properties?: Written, first = 0xa2): Buffer {
  return packetBytes(first, two(id), block(properties), ...filters.map(field));
}

const firstBytes = { puback: 0x40, pubrec: 0x50, pubrel: 0x62, pubcomp: 0x70 } as const;

/** Without `code` in two bytes, which is success. */
export function answer(cmd: keyof typeof firstBytes, id: number, code?: number, properties?: Written): Buffer {
  const said =
    code === undefined ? [] : [Buffer.from([code]), ...(properties === undefined ? [] : [block(properties)])];
  return packetBytes(firstBytes[cmd], two(id), ...said);
}

/** Without `code` it has no body. */
export function disconnect(code?: number, properties?: Written): Buffer {
  const said =
    code === undefined ? [] : [Buffer.from([code]), ...(properties === undefined ? [] : [block(properties)])];
  return packetBytes(0xe0, ...said);
}

export const pingreq = packetBytes(0xc0);

// Reading

/** A packet of the server. What its kind does not have is left out. */
export interface Heard {
  cmd:
    | 'connack'
    | 'publish'
    | 'puback'
    | 'pubrec'
    | 'pubrel'
    | 'pubcomp'
    | 'suback'
    | 'unsuback'
    | 'pingresp'
    | 'disconnect';
  /** The reason code. */
  code?: number;
  /** Of SUBACK and UNSUBACK. */
  codes?: number[];
  id?: number;
  sessionPresent?: boolean;
  topic?: string;
  /** Latin-1. */
  payload?: string;
  qos?: number;
  retain?: boolean;
  dup?: boolean;
  properties: Properties;
  /** Of the whole packet. */
  size: number;
}

const commands: Record<number, Heard['cmd']> = {
  2: 'connack',
  3: 'publish',
  4: 'puback',
  5: 'pubrec',
  6: 'pubrel',
  7: 'pubcomp',
  9: 'suback',
  11: 'unsuback',
  13: 'pingresp',
  14: 'disconnect',
};

const names = new Map(Object.entries(table).map(([name, [id, form]]) => [id as number, [name as Name, form] as const]));

/** What a server may say with each kind of packet [MQTT-2.2.2.2]. */
const allowed: Record<Heard['cmd'], readonly Name[]> = {
  connack: [
    ...([
      'sessionExpiry',
      'assignedClientId',
      'serverKeepAlive',
      'authenticationMethod',
      'authenticationData',
    ] as const),
    ...(['responseInformation', 'serverReference', 'reasonString', 'receiveMaximum', 'topicAliasMaximum'] as const),
    ...(['maximumQos', 'retainAvailable', 'userProperties', 'maximumPacketSize', 'wildcardAvailable'] as const),
    ...(['identifiersAvailable', 'sharedAvailable'] as const),
  ],
  publish: [
    ...(['payloadFormat', 'messageExpiry', 'contentType', 'responseTopic', 'correlationData'] as const),
    ...(['subscriptionIdentifier', 'topicAlias', 'userProperties'] as const),
  ],
  puback: ['reasonString', 'userProperties'],
  pubrec: ['reasonString', 'userProperties'],
  pubrel: ['reasonString', 'userProperties'],
  pubcomp: ['reasonString', 'userProperties'],
  suback: ['reasonString', 'userProperties'],
  unsuback: ['reasonString', 'userProperties'],
  pingresp: [],
  // Session Expiry is the client's alone [MQTT-3.14.2-2].
  disconnect: ['reasonString', 'serverReference', 'userProperties'],
};

class Reader {
  readonly bytes: Buffer;
  at = 0;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  get left(): number {
    return this.bytes.length - this.at;
  }

  take(length: number): Buffer {
    if (length > this.left) throw new Error(`${length} bytes are asked for, and ${this.left} are left`);
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  number(length: number): number {
    return this.take(length).readUIntBE(0, length);
  }

  text(): string {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(this.take(this.number(2)));
  }

  variable(): number {
    let [value, byte, place] = [0, 128, 0];
    for (; byte & 128; place += 1) {
      if (place === 4) throw new Error('a variable byte integer of more than four bytes');
      byte = this.number(1);
      value += (byte & 127) * 128 ** place;
    }
    if (place > 1 && byte === 0) throw new Error('a variable byte integer that is longer than it must be');
    return value;
  }

  value(form: Form): number | string | Pair {
    if (form === 'text') return this.text();
    if (form === 'bytes') return this.take(this.number(2)).toString('latin1');
    if (form === 'pair') return [this.text(), this.text()];
    if (form === 'variable') return this.variable();
    return this.number({ byte: 1, two: 2, four: 4 }[form]);
  }

  properties(cmd: Heard['cmd']): Properties {
    const inside = new Reader(this.take(this.variable()));
    const read: Record<string, unknown> = {};
    while (inside.left > 0) {
      const id = inside.variable();
      const known = names.get(id);
      if (!known || !allowed[cmd].includes(known[0])) throw new Error(`property ${id} in ${cmd}`);
      const [name, form] = known;
      const value = inside.value(form);
      if (name === 'userProperties' || (name === 'subscriptionIdentifier' && name in read))
        read[name] = [...([read[name] ?? []].flat(name === 'userProperties' ? 1 : 2) as unknown[]), value];
      else if (name in read) throw new Error(`${name} stands twice in ${cmd}`);
      else read[name] = value;
    }
    return read;
  }
}

/** The first packet of bytes that have arrived, once all of it has. */
export function frameIn(bytes: Buffer): { first: number; body: Buffer; size: number } | undefined {
  let length = 0;
  for (let at = 1; at < bytes.length; at += 1) {
    const byte = bytes[at] as number;
    length += (byte & 127) * 128 ** (at - 1);
    if (byte & 128) continue;
    const size = at + 1 + length;
    return bytes.length < size ? undefined : { first: bytes[0] as number, body: bytes.subarray(at + 1, size), size };
  }
  return undefined;
}

/** Reads one packet. @throws Error when it is not a packet of a server to the letter */
export function read(first: number, body: Buffer, size: number): Heard {
  const cmd = commands[first >> 4];
  if (!cmd) throw new Error(`a server does not send packets of type ${first >> 4}`);
  const flags = first & 15;
  if (cmd !== 'publish' && flags !== (cmd === 'pubrel' ? 2 : 0)) throw new Error(`flags ${flags} of ${cmd}`);
  const reader = new Reader(body);
  const packet = { cmd, size, ...bodyOf(cmd, flags, reader) };
  if (reader.left > 0) throw new Error(`${reader.left} bytes too many in ${cmd}`);
  return packet;
}

function bodyOf(cmd: Heard['cmd'], flags: number, reader: Reader): Omit<Heard, 'cmd' | 'size'> {
  const rest = () => [...reader.take(reader.left)];
  const coded = () => {
    const code = reader.left > 0 ? reader.number(1) : 0;
    return { code, properties: reader.left > 0 ? reader.properties(cmd) : {} };
  };
  if (cmd === 'publish') {
    const qos = (flags >> 1) & 3;
    const topic = reader.text();
    const id = qos > 0 ? { id: reader.number(2) } : {};
    const properties = reader.properties(cmd);
    const payload = Buffer.from(rest()).toString('latin1');
    return { topic, qos, retain: (flags & 1) === 1, dup: (flags & 8) === 8, ...id, properties, payload };
  }
  if (cmd === 'pingresp') return { properties: {} };
  if (cmd === 'disconnect') return coded();
  if (cmd === 'connack') {
    const present = reader.number(1);
    if (present > 1) throw new Error(`acknowledge flags ${present}`);
    return { sessionPresent: present === 1, code: reader.number(1), properties: reader.properties(cmd) };
  }
  const id = reader.number(2);
  if (cmd === 'suback' || cmd === 'unsuback') return { id, properties: reader.properties(cmd), codes: rest() };
  return { id, ...coded() };
}
