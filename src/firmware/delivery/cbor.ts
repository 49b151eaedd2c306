/** CBOR of control topics. What a device sends is looked through before anything is made of it. */
import { Encoder } from 'cbor-x/encode';

/** Bytes of a message, items in it, and how deep they may lie. */
const most = { bytes: 16_384, items: 1024, depth: 4 };

const codec = new Encoder({ useRecords: false, mapsAsObjects: true, tagUint8Array: false, variableMapSize: true });

export function encodeCbor(value: object): Buffer {
  return codec.encode(value);
}

/** Says only that what follows is CBOR; some encoders begin with it. */
const selfDescribed = Buffer.from([0xd9, 0xd9, 0xf7]);
/** Where a length would be: items follow until a break. */
const indefinite = 31;
const breakByte = 0xff;

/** The map that a message is; undefined for anything else, and for what is too large or too deep. Never throws. */
export function decodeCbor(message: Buffer): Record<string, unknown> | undefined {
  if (message.length > most.bytes) return undefined;
  const isTold = message.subarray(0, selfDescribed.length).equals(selfDescribed);
  const bytes = isTold ? message.subarray(selfDescribed.length) : message;
  if (!isPlain(bytes)) return undefined;
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
 * Whether it is one item without tags, with text as keys: a length that is longer than the message, or maps in maps in maps,
 * would cost memory or the stack before the decoder notices. Maps and arrays may end with a break, as small encoders write them.
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
  if (info === indefinite && (major === 4 || major === 5)) return skipUntilBreak(bytes, scan, depth, major === 5);
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
  for (let n = 0; n < length; n += 1) if (!skipEntry(bytes, scan, depth, major === 5)) return false;
  return true;
}

function skipUntilBreak(bytes: Buffer, scan: Scan, depth: number, isMap: boolean): boolean {
  while (bytes[scan.at] !== breakByte) if (!skipEntry(bytes, scan, depth, isMap)) return false;
  scan.at += 1;
  return true;
}

/** An item of an array, or a key of text and its value. */
function skipEntry(bytes: Buffer, scan: Scan, depth: number, isMap: boolean): boolean {
  const isText = (bytes[scan.at] ?? 0) >> 5 === 3;
  if (isMap && !(isText && skipItem(bytes, scan, depth + 1))) return false;
  return skipItem(bytes, scan, depth + 1);
}

function readLength(bytes: Buffer, at: number, size: number): number {
  return size === 8 ? Number(bytes.readBigUInt64BE(at)) : bytes.readUIntBE(at, size);
}
