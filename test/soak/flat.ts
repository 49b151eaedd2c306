/** Whether a figure stays where it is, however it goes up and down. */

/** One figure at a time, in seconds. */
export interface Point {
  at: number;
  value: number;
}

export interface Verdict {
  median: number;
  /** By how much it has risen from the first point to the last, by the median of the slopes between all pairs (Theil and Sen). */
  rise: number;
  isFlat: boolean;
}

/** What a figure may rise by, of its median, over the whole time that is looked at. */
const share = 0.1;

/** `floor` is what it may rise by in any case: pages, caches and pools fill in steps. */
export function judge(points: readonly Point[], floor: number): Verdict {
  const slopes = points.flatMap((one, n) =>
    points.slice(n + 1).map((other) => (other.value - one.value) / (other.at - one.at)),
  );
  const span = (points.at(-1)?.at ?? 0) - (points[0]?.at ?? 0);
  const median = middle(points.map(({ value }) => value));
  const rise = middle(slopes) * span;
  return { median, rise, isFlat: rise <= Math.max(floor, share * median) };
}

function middle(values: number[]): number {
  const sorted = values.sort((a, b) => a - b);
  const [low = 0, high = 0] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]];
  return (low + high) / 2;
}
