/** Bytes on their way to a client. */
import type { Duplex } from 'node:stream';

/** Bytes of a payload above which it is written by itself instead of being copied behind its header. */
export const copied = 2048;

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

/** Writes what a codec has left out of a PUBLISH. */
export function writePayload(conn: Duplex, payload: Buffer): void {
  if (payload.length > copied) write(conn, payload);
}

export function header(first: number, length: number): Buffer {
  const bytes = Buffer.allocUnsafe(headerLength(length));
  writeHeader(bytes, first, length);
  return bytes;
}

export function headerLength(length: number): number {
  if (length < 128) return 2;
  if (length < 16_384) return 3;
  return length < 2_097_152 ? 4 : 5;
}

export function writeHeader(bytes: Buffer, first: number, length: number): void {
  bytes[0] = first;
  let left = length;
  let at = 1;
  do {
    bytes[at] = (left & 127) | (left > 127 ? 128 : 0);
    left >>= 7;
    at += 1;
  } while (left > 0);
}
