/** The part of time that charts show, in seconds since 1970, and how it is made smaller, larger, earlier or later. */

export interface Span {
  from: number;
  to: number;
}

/** Seconds. */
const shortest = 10;
const longest = 5 * 366 * 86_400;

/** Of a possible length; it does not end later than now. */
function bounded({ from, to }: Span): Span {
  const length = Math.min(longest, Math.max(shortest, to - from));
  const end = Math.min((from + to + length) / 2, Date.now() / 1000);
  return { from: end - length, to: end };
}

/** As long as `factor` times before; what is at `around` stays where it is. */
export function zoomed({ from, to }: Span, factor: number, around = (from + to) / 2): Span {
  return bounded({ from: around - (around - from) * factor, to: around + (to - around) * factor });
}

/** Later by so many of its own lengths. */
export function moved({ from, to }: Span, lengths: number): Span {
  const by = Math.min(lengths * (to - from), Math.max(0, Date.now() / 1000 - to));
  return { from: from + by, to: to + by };
}

/** Two fingers have gone from two places to two others: the times under them are under them again. */
export function pinched({ from, to }: Span, width: number, before: [number, number], now: [number, number]): Span {
  const perPixel = (to - from) / width;
  const [left, right] = before.map((x) => from + x * perPixel) as [number, number];
  // Fingers one above the other only move it.
  const apart = Math.abs(now[1] - now[0]) < leastApart || Math.abs(before[1] - before[0]) < leastApart;
  const scale = apart ? perPixel : Math.abs((right - left) / (now[1] - now[0]));
  const length = Math.min(longest, Math.max(shortest, scale * width));
  const start = (left + right) / 2 - ((now[0] + now[1]) / 2 / width) * length;
  return { from: start, to: start + length };
}

/** Pixels. */
const leastApart = 20;
