/** A line of values as small as a word: no axes, a gap where there is a gap, the last value as a dot. */

const width = 240;
const height = 44;
const margin = 3;

export interface SparkPoint {
  /** Milliseconds since 1970. */
  time: number;
  value: number;
}

/** `from` and `to` are its ends in milliseconds; points further apart than `gap` are not connected. */
export function Spark({
  points,
  from,
  to,
  gap,
  label,
  zero,
}: {
  points: readonly SparkPoint[];
  from: number;
  to: number;
  gap: number;
  label: string;
  /** Whether the line stands on zero, and is filled down to it. */
  zero?: boolean;
}) {
  const values = points.map(({ value }) => value);
  const low = Math.min(...values, ...(zero ? [0] : []));
  const high = Math.max(...values);
  const x = (time: number) => (((time - from) / (to - from)) * (width - margin)).toFixed(1);
  // A value that never changes is a line in the middle; averages of it differ in their last digits.
  const isFlat = high - low <= 1e-9 * Math.abs(high);
  const share = (value: number) => (isFlat ? (zero ? 0 : 0.5) : (value - low) / (high - low));
  const y = (value: number) => (height - margin - share(value) * (height - 2 * margin)).toFixed(1);
  const parts = partsOf(points, gap);
  const last = points.at(-1);
  const lines = parts.map((part) =>
    part.map(({ time, value }, at) => `${at === 0 ? 'M' : 'L'}${x(time)} ${y(value)}`).join(''),
  );
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={label}>
      {zero &&
        parts.map((part, at) => (
          <path key={part[0]?.time} class="under" d={`${lines[at]}V${height}H${x(part[0]?.time ?? from)}Z`} />
        ))}
      <path class="line" d={lines.join('')} />
      {last && <path class="dot" d={`M${x(last.time)} ${y(last.value)}h0.01`} />}
    </svg>
  );
}

function partsOf(points: readonly SparkPoint[], gap: number): SparkPoint[][] {
  const parts: SparkPoint[][] = [];
  let before: SparkPoint | undefined;
  for (const point of points) {
    if (before && point.time - before.time <= gap) parts.at(-1)?.push(point);
    else parts.push([point]);
    before = point;
  }
  return parts;
}
