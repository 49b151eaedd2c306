/** Buckets of time: `5m`, `1h`, `1d`; those of days and longer begin at midnight where the reader is. */
import { timeLimit } from '../../../db/messages/types.ts';
import type { LongWork } from '../../core/scheduler/long-work.ts';

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;

/** Milliseconds of the units; a month has no length of its own, and this is its least. */
const units = { s: 1000, m: minute, h: hour, d: day, w: 7 * day, M: 28 * day } as const;

export interface BucketSize {
  count: number;
  unit: keyof typeof units;
}

/** A size such as `15m`; undefined if it is invalid: seconds, minutes and hours must divide a day. */
export function parseBucketSize(text: string): BucketSize | undefined {
  const [, digits, unit] = /^(\d{1,5})([smhdwM])$/.exec(text) ?? [];
  const size = { count: Number(digits), unit: unit as BucketSize['unit'] };
  if (!digits || size.count < 1) return undefined;
  return isShort(size) && day % lengthOf(size) !== 0 ? undefined : size;
}

/** How many buckets there may be in a stretch of so many milliseconds. */
export function bucketsIn(span: number, size: BucketSize): number {
  return Math.ceil(span / lengthOf(size)) + 1;
}

/** Whether buckets of the size start again each day. */
function isShort({ unit }: BucketSize): boolean {
  return units[unit] < day;
}

function lengthOf({ count, unit }: BucketSize): number {
  return count * units[unit];
}

/**
 * The edges of the buckets of `from` (inclusive) to `to` (exclusive), ascending, in milliseconds. Up to hours they are counted from
 * each local midnight; weeks begin on Monday, several days or weeks on 1970-01-05, months in January of the year 0.
 */
export async function bucketEdges(
  { from, to }: { from: number; to: number },
  size: BucketSize,
  zone: TimeZone,
  longWork: LongWork,
): Promise<number[]> {
  const edges: number[] = [];
  const put = (edge: number) => {
    if (edges.length > 0 && edge <= from) edges.pop();
    // A day that was left out begins with the next one.
    if (edge !== edges.at(-1)) edges.push(edge);
  };
  let first = startOf(size, zone, from);
  // The day of a wall clock that was set back may have begun twice.
  while (zone.midnight(first) > from) first = moved(size, first, -1);
  for (let start = first; ; start = moved(size, start, 1)) {
    const edge = zone.midnight(start);
    put(edge);
    if (edge >= to) return edges;
    if (isShort(size)) {
      const end = Math.min(zone.midnight(start + day), to);
      const length = lengthOf(size);
      const skipped = Math.floor((Math.min(from, end - 1) - edge) / length);
      for (let next = edge + Math.max(1, skipped) * length; next < end; next += length) put(next);
    }
    await longWork.giveWay();
  }
}

/** The day on which the bucket of a time begins, as the wall clock's midnight in UTC. */
function startOf(size: BucketSize, zone: TimeZone, time: number): number {
  const today = Math.floor((time + zone.offset(time)) / day) * day;
  if (isShort(size)) return today;
  if (size.unit === 'M') {
    const date = new Date(today);
    return monthStart(Math.floor((date.getUTCFullYear() * 12 + date.getUTCMonth()) / size.count) * size.count);
  }
  const anchor = 4 * day;
  return Math.floor((today - anchor) / lengthOf(size)) * lengthOf(size) + anchor;
}

function moved(size: BucketSize, start: number, by: 1 | -1): number {
  if (isShort(size)) return start + by * day;
  if (size.unit !== 'M') return start + by * lengthOf(size);
  const date = new Date(start);
  return monthStart(date.getUTCFullYear() * 12 + date.getUTCMonth() + by * size.count);
}

function monthStart(months: number): number {
  const date = new Date(0);
  date.setUTCFullYear(Math.floor(months / 12), months - Math.floor(months / 12) * 12, 1);
  return date.getTime();
}

/** Local time in a time zone. */
export class TimeZone {
  readonly #format: Intl.DateTimeFormat | undefined;
  /** By time: neighbouring days ask for the same ones. */
  readonly #offsets = new Map<number, number>();

  private constructor(format: Intl.DateTimeFormat | undefined) {
    this.#format = format;
  }

  /** By its IANA name; undefined when there is none of that name. */
  static named(name: string): TimeZone | undefined {
    if (name === 'UTC') return new TimeZone(undefined);
    // Some versions of Node take offsets, which know nothing of summer time.
    if (!/^[A-Za-z]/.test(name)) return undefined;
    try {
      return new TimeZone(new Intl.DateTimeFormat('en-US', { timeZone: name, timeZoneName: 'longOffset' }));
    } catch {
      return undefined;
    }
  }

  /** Milliseconds by which the wall clock is ahead of UTC at a time. */
  offset(time: number): number {
    if (!this.#format) return 0;
    const known = this.#offsets.get(time);
    if (known !== undefined) return known;
    // Past the end of dates nobody has a clock.
    const bounded = Math.min(timeLimit, Math.max(-timeLimit, time));
    const [, sign, hours = '0', minutes = '0', seconds = '0'] =
      /GMT([+-])(\d{2}):(\d{2})(?::(\d{2}))?$/.exec(this.#format.format(bounded)) ?? [];
    const ahead = ((Number(hours) * 60 + Number(minutes)) * 60 + Number(seconds)) * 1000;
    const offset = sign === '-' ? -ahead : ahead;
    this.#offsets.set(time, offset);
    return offset;
  }

  /** When a day begins: at midnight, or when the clock is set past it. `date` is that midnight as if it were in UTC. */
  midnight(date: number): number {
    const earlier = this.offset(date - day);
    const later = this.offset(date + day);
    for (const offset of new Set([earlier, later])) if (this.offset(date - offset) === offset) return date - offset;
    // The clock is set forward over midnight, at the moment at which the offset changes.
    let before = date - Math.max(earlier, later);
    let from = date - Math.min(earlier, later);
    while (from - before > 1) {
      const middle = Math.floor((before + from) / 2);
      if (this.offset(middle) === earlier) before = middle;
      else from = middle;
    }
    return from;
  }
}
