/** CBOR of control topics. What a device sends is looked through before anything is made of it. */
import { Encoder } from 'cbor-x';

/** Bytes of a message, items in it, and how deep they may lie. */
const most = { bytes: 16_384, items: 1024, depth: 4 };

const codec = new Encoder({ useRecords: false, mapsAsObjects: true, tagUint8Array: false, variableMapSize: true });

export function encodeCbor(value: object): Buffer {
  return codec.encode(value);
}

/** The map that a message is; undefined for anything else, and for what is too large or too deep. Never throws. */
export function decodeCbor(bytes: Buffer): Record<string, unknown> | undefined {
  if (bytes.length === 0 || bytes.length > most.bytes || !isPlain(bytes)) return undefined;
  try {
    const value: unknown = codec.decode(bytes);
    return typeof value === 'object' && value !== null && !Array.isArray(value) && !Buffer.isBuffer(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Whether it is one item of definite length, without tags, with text as keys: a length that is longer than the message, or
 * maps in maps in maps, would cost memory or the stack before the decoder notices.
 */
function isPlain(bytes: Buffer): boolean {
  const scan: Scan = { at: 0, items: 0 };
  return skipItem(bytes, scan, 0) && scan.at === bytes.length;
}

interface Scan {
  at: number;
  items: number;
}

function skipItem(bytes: Buffer, scan: Scan, depth: number): boolean {
  scan.items += 1;
  if (depth > most.depth || scan.items > most.items) return false;
  const first = bytes[scan.at];
  if (first === undefined) return false;
  const [major, info] = [first >> 5, first & 31];
  scan.at += 1;
  if (info > 27) return false;
  const extra = info < 24 ? 0 : 1 << (info - 24);
  if (scan.at + extra > bytes.length) return false;
  const length = info < 24 ? info : readLength(bytes, scan.at, extra);
  scan.at += extra;
  // Numbers, and true, false, null and floats.
  if (major === 0 || major === 1 || major === 7) return true;
  if (major === 2 || major === 3) {
    scan.at += length;
    return scan.at <= bytes.length;
  }
  if (major === 6 || length > bytes.length) return false;
  for (let n = 0; n < length; n += 1) {
    const isText = bytes[scan.at] !== undefined && (bytes[scan.at] as number) >> 5 === 3;
    if (major === 5 && !(isText && skipItem(bytes, scan, depth + 1))) return false;
    if (!skipItem(bytes, scan, depth + 1)) return false;
  }
  return true;
}

function readLength(bytes: Buffer, at: number, size: number): number {
  return size === 8 ? Number(bytes.readBigUInt64BE(at)) : bytes.readUIntBE(at, size);
}
