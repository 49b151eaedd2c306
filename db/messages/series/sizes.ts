/**
 * What points and log entries take on disk, about, with their places in indexes. The functions and the SQL say the same: what is
 * counted when something comes is counted off when it goes.
 */

import type { Point } from '../types.ts';

/** A point without a text. */
export const pointBytes = 32;
/** A log entry without its texts: half of it are indexes. */
export const logBytes = 600;
/**
 * SQLite puts at least four rows of a table that is sorted by its key into a page of 4,096 bytes. A longer text has a page of its own for
 * what does not fit, so that 1,000 bytes take 4,650.
 */
const longText = { from: 971, takes: 4650 };

/** What a text adds to a point. */
export function textSize(bytes: number): number {
  return bytes < longText.from ? Math.floor((bytes * 9) / 8) : longText.takes;
}

/** The same of a column; null for a point without a text. */
export const textSizeSql = (column: string) =>
  `CASE WHEN octet_length(${column}) < ${longText.from} THEN octet_length(${column}) * 9 / 8
   WHEN ${column} IS NOT NULL THEN ${longText.takes} END`;

export function sizeOfPoints(points: readonly Pick<Point, 'stringValue'>[]): number {
  let bytes = points.length * pointBytes;
  for (const { stringValue } of points) if (stringValue !== null) bytes += textSize(Buffer.byteLength(stringValue));
  return bytes;
}

type LogTexts = Record<'tags' | 'message' | 'code' | 'details' | 'custom', string | null>;

export function sizeOfLog({ tags, message, code, details, custom }: LogTexts): number {
  let texts = 0;
  for (const text of [tags, message, code, details, custom]) if (text !== null) texts += Buffer.byteLength(text);
  return logSize(texts);
}

/** A log entry with so many bytes of texts. Every three characters of them that stand together are in an index too. */
function logSize(texts: number): number {
  return logBytes + Math.floor((texts * 7) / 4);
}

export const logSizeSql = `${logBytes} + (octet_length("tags") + coalesce(octet_length("message"), 0)
  + coalesce(octet_length("code"), 0) + coalesce(octet_length("details"), 0)
  + coalesce(octet_length("custom"), 0)) * 7 / 4`;
