/** MQTT packets byte by byte, for what a packet library refuses to write. */

/** Text as it is in a packet, or bytes that are no text. */
export type Text = string | Buffer;

const short = (value: number) => Buffer.from([(value >> 8) & 255, value & 255]);

function field(text: Text): Buffer {
  const bytes = Buffer.from(text as string);
  return Buffer.concat([short(bytes.length), bytes]);
}

/** A packet with this first byte, its type and flags. */
export function packetBytes(first: number, ...body: Buffer[]): Buffer {
  const bytes = Buffer.concat(body);
  const head = [first];
  let left = bytes.length;
  do {
    head.push((left & 127) | (left > 127 ? 128 : 0));
    left >>= 7;
  } while (left > 0);
  return Buffer.concat([Buffer.from(head), bytes]);
}

export function subscribeBytes(id: number, filters: Text[], qos = 1, first = 0x82): Buffer {
  const wanted = filters.map((filter) => Buffer.concat([field(filter), Buffer.from([qos])]));
  return packetBytes(first, short(id), ...wanted);
}

export function unsubscribeBytes(id: number, filters: Text[], first = 0xa2): Buffer {
  return packetBytes(first, short(id), ...filters.map(field));
}

/** `flags` are the lower four bits: DUP 8, QoS 2 or 4, RETAIN 1. */
export function publishBytes(topic: Text, payload: Text, flags = 0, id = 1): Buffer {
  const packetId = flags & 6 ? [short(id)] : [];
  return packetBytes(0x30 | flags, field(topic), ...packetId, Buffer.from(payload as string));
}

/** PUBACK (0x40), PUBREC (0x50), PUBREL (0x62), PUBCOMP (0x70). */
export function answerBytes(first: number, id: number): Buffer {
  return packetBytes(first, short(id));
}

export interface ConnectFields {
  clientId: Text;
  username?: Text;
  password?: Text;
  will?: { topic: Text; payload: Text };
  /** The connect flags that the fields do not say: clean session 2, the will's QoS and retain, the reserved bit. */
  flags?: number;
  protocol?: string;
  level?: number;
  /** Seconds. */
  keepAlive?: number;
}

export function connectBytes({ clientId, username, password, will, ...about }: ConnectFields): Buffer {
  const { flags = 2, protocol = 'MQTT', level = 4, keepAlive = 60 } = about;
  const said = (username === undefined ? 0 : 128) | (password === undefined ? 0 : 64) | (will ? 4 : 0);
  const texts = [clientId, will?.topic, will?.payload, username, password].filter((text) => text !== undefined);
  return packetBytes(0x10, field(protocol), Buffer.from([level, flags | said, 0, keepAlive]), ...texts.map(field));
}
