/** A channel as a reader sees it: the series of one possession of its device or of several, without what is before its window. */
import type { Range, SeriesView, StoredPoint } from '../types.ts';
import { charactersOf } from './rows.ts';

/** The part of a range that is seen; undefined when there is none. */
export function seenRange<R extends Pick<Range, 'from' | 'to'>>(
  range: R,
  { window }: Pick<SeriesView, 'window'>,
): R | undefined {
  const from = Math.max(range.from, window?.from ?? range.from);
  return from < range.to ? { ...range, from } : undefined;
}

/** The first `limit` points of two lists, both in this order. */
export function mergePoints(
  one: StoredPoint[],
  other: StoredPoint[],
  { order, limit }: Pick<Range, 'order' | 'limit'>,
): StoredPoint[] {
  if (one.length === 0 || other.length === 0) return one.length === 0 ? other : one;
  const sign = order === 'asc' ? 1 : -1;
  const merged = [...one, ...other].sort((a, b) => sign * (a.time - b.time || a.sequence - b.sequence));
  return merged.slice(0, limit);
}

/** As far as their texts fit: see Range. */
export function fitting(points: StoredPoint[], characters = Number.POSITIVE_INFINITY): StoredPoint[] {
  let left = characters;
  for (const [at, point] of points.entries()) {
    left -= charactersOf(point);
    if (left < 0 && at > 0) return points.slice(0, at + 1);
  }
  return points;
}
