/** The ground of every payload form: text, times, and the limits of a point. */
import type { Point } from '../../../db/messages/store.ts';
import { parseDate } from '../../../db/sqlite/dates.ts';

/** The points of a payload, or why it holds none. */
export type Reading = { points: Point[] } | { reason: string };

/** Bytes of UTF-8 that a category or a text may have. */
export const textLimit = 1024;
/** Milliseconds since 1970; what lies outside no query can ask for, because dates have four digits for the year. */
const firstTime = Date.parse('0000-01-01T00:00:00.000Z');
/** Seconds since 1970 in the years 2000 and 2100: as milliseconds they would be early in 1970. */
const firstSeconds = Date.parse('2000-01-01T00:00:00.000Z') / 1000;
const lastSeconds = Date.parse('2100-01-01T00:00:00.000Z') / 1000;
const lastTime = Date.parse('9999-12-31T23:59:59.999Z');

/** A point within the limits of every form, or what is wrong with it. */
export function toPoint(time: number, category: string, number: number | null, text: string | null): Point | string {
  if (!isInYears(time)) return 'the time is not in the years 0000 to 9999.';
  if (number === null && text === null) return 'it has neither a number nor a text.';
  if (number !== null && !Number.isFinite(number)) return 'the number is not finite.';
  if (isTooLong(category) || (text !== null && isTooLong(text))) return `a text is longer than ${textLimit} bytes.`;
  if (isMalformed(category) || (text !== null && isMalformed(text))) return 'a text holds half a character.';
  // Zero has one form in the store.
  return { time, category, numericValue: number === 0 ? 0 : number, stringValue: text };
}

export function isInYears(time: number): boolean {
  return time >= firstTime && time <= lastTime;
}

/** Whether a number of milliseconds makes sense only as seconds, which a clock that runs ahead may give too. */
export function areSeconds(time: number): boolean {
  return time >= firstSeconds && time < lastSeconds;
}

export function readTime(text: string): number | undefined {
  return /^-?\d{1,16}$/.test(text) ? Number(text) : parseDate(text);
}

export function isBlank(unit: number): boolean {
  return unit === 0x20 || unit === 0x09;
}

function isTooLong(text: string): boolean {
  // A UTF-16 unit has at most three bytes in UTF-8.
  return text.length * 3 > textLimit && Buffer.byteLength(text) > textLimit;
}

/** Unpaired surrogates come from JSON escapes only, and no UTF-8 can hold them. */
function isMalformed(text: string): boolean {
  return /\p{Surrogate}/u.test(text);
}

const strictUtf8 = new TextDecoder('utf-8', { fatal: true });
const utf8 = new TextDecoder();

/** The text of a payload, as `textOf` has it; undefined for bytes that are not UTF-8. */
export function decode(payload: Buffer): string | undefined {
  try {
    return textOf(payload, strictUtf8);
  } catch {
    return undefined;
  }
}

/** The text of a payload, without a byte order mark, and without the NUL at the end that programs in C send along. */
export function textOf(payload: Buffer, decoder = utf8): string {
  let end = payload.length;
  while (end > 0 && payload[end - 1] === 0) end -= 1;
  return decoder.decode(payload.subarray(0, end));
}

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** The digits of an integer that a number cannot hold, by the object in which it is. */
export type Digits = (holder: object | undefined, name: string) => string | undefined;

/** As parseJson; `digits` has those of integers beyond 2^53 that would be rounded. */
export function parseExactly(text: string): { json: unknown; digits: Digits } {
  if (!manyDigits.test(text)) return { json: parseJson(text), digits: () => undefined };
  const found = new WeakMap<object, Map<string, string>>();
  let whole: string | undefined;
  const note = function (this: object, name: string, value: unknown, { source }: { source?: string } = {}) {
    const digits = typeof value === 'number' ? roundedDigits(source ?? '', value) : undefined;
    if (digits !== undefined) found.set(this, (found.get(this) ?? new Map<string, string>()).set(name, digits));
    if (name === '') whole = digits;
    return value;
  };
  try {
    // The third argument of a reviver is not in the types yet.
    const json = JSON.parse(text, note as (this: unknown, key: string, value: unknown) => unknown) as unknown;
    return { json, digits: (holder, name) => (holder ? found.get(holder)?.get(name) : whole) };
  } catch {
    return { json: undefined, digits: () => undefined };
  }
}

const manyDigits = /\d{16}/;
/** More digits are beyond every number that is finite. */
const mostDigits = 310;

/** The digits of an integer if its number is another one. */
export function roundedDigits(source: string, number: number): string | undefined {
  if (!manyDigits.test(source) || source.length > mostDigits || !/^[+-]?\d+$/.test(source)) return undefined;
  const digits = source.replace('+', '');
  // A sender that has rounded itself writes the digits of its number.
  const isLost = Number.isFinite(number) && String(number) !== digits && BigInt(digits) !== BigInt(number);
  return isLost ? digits : undefined;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}
