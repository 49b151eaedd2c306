/** Control packets for a client. */
import type { Duplex } from 'node:stream';
import type { BrokerClient, Outgoing } from '../aedes-types.ts';

/** Bytes of a payload above which it is written by itself instead of being copied behind its header. */
export const copied = 2048;

export const pingResponse = Buffer.from([0xd0, 0]);
/** CONNACK 1: the protocol level is not spoken here. */
export const unacceptableLevel = Buffer.from([0x20, 2, 0, 1]);

const firstBytes = { puback: 0x40, pubrec: 0x50, pubrel: 0x62, pubcomp: 0x70 } as const;

/** PUBACK, PUBREC, PUBREL or PUBCOMP. */
export function answerBytes(cmd: keyof typeof firstBytes, id: number): Buffer {
  const bytes = Buffer.allocUnsafe(4);
  bytes[0] = firstBytes[cmd];
  bytes[1] = 2;
  bytes.writeUInt16BE(id, 2);
  return bytes;
}

/** A return code for each filter: the QoS, or 128 for a refused one. */
export function subackBytes(id: number, codes: readonly number[]): Buffer {
  return Buffer.concat([header(0x90, 2 + codes.length), Buffer.from([id >> 8, id & 255, ...codes])]);
}

/** Writes to the socket; what is written in one turn leaves together. False when the socket's buffer is full. */
export function write(conn: Duplex, bytes: Buffer): boolean {
  if (conn.destroyed || conn.writableEnded) return true;
  if (conn.writableCorked === 0) {
    conn.cork();
    process.nextTick(uncork, conn);
  }
  return conn.write(bytes);
}

function uncork(conn: Duplex): void {
  conn.uncork();
}

/** Calls back once the socket has room again, at once when it has. The broker ends a connection that never has. */
export function whenWritable(client: BrokerClient, done: () => void): void {
  if (client.closed || client.conn.destroyed || !client.conn.writableNeedDrain) done();
  else client.waitForDrain(() => done());
}

/** A PUBLISH up to its payload, and a short payload too; `writePayload` writes a long one. `messageId` is for QoS 1 and 2. */
export function publishBytes(
  { topic, retain, dup }: Pick<Outgoing, 'topic' | 'retain' | 'dup'>,
  payload: Buffer,
  qos: 0 | 1 | 2,
  messageId?: number,
): Buffer {
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

/** Writes what `publishBytes` has left out. */
export function writePayload(conn: Duplex, payload: Buffer): void {
  if (payload.length > copied) write(conn, payload);
}

function header(first: number, length: number): Buffer {
  const bytes = Buffer.allocUnsafe(headerLength(length));
  writeHeader(bytes, first, length);
  return bytes;
}

function headerLength(length: number): number {
  if (length < 128) return 2;
  if (length < 16_384) return 3;
  return length < 2_097_152 ? 4 : 5;
}

function writeHeader(bytes: Buffer, first: number, length: number): void {
  bytes[0] = first;
  let left = length;
  let at = 1;
  do {
    bytes[at] = (left & 127) | (left > 127 ? 128 : 0);
    left >>= 7;
    at += 1;
  } while (left > 0);
}

/**
 * Sets Session Present in the CONNACK, the first packet that Aedes writes: Aedes knows of a stored session only when it has
 * subscriptions, and MQTT 3.1 does not know the flag at all.
 */
export function tellSession(conn: Duplex, isPresent: () => boolean): void {
  const original = conn.write.bind(conn);
  let connack = Buffer.alloc(0);
  conn.write = (chunk: Buffer, ...rest: never[]) => {
    connack = Buffer.concat([connack, chunk]);
    if (connack.length < 4) return true;
    conn.write = original;
    if (connack[3] === 0) connack[2] = isPresent() ? 1 : 0;
    return original(connack, ...rest);
  };
}
