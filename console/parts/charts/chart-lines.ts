/** Points of devices as lines of one chart: on one row of times, with gaps, and texts as levels. */
import { spreadsheetCell } from '../../../src/core/formats/spreadsheets.ts';

/** `time` is in seconds since 1970. */
export interface Reading {
  time: number;
  value: number | string;
}

export interface Line {
  /** Whose points these are. */
  name: string;
  readings: readonly Reading[];
}

export interface Plotted {
  times: number[];
  /** Of each line, by time: null ends the line, undefined is passed over. */
  values: (number | null | undefined)[][];
  /** What the levels of a chart of texts mean, from the lowest. */
  levels: string[] | undefined;
}

/** Points further apart than so many usual distances have a gap between them. */
const gapFrom = 3;

/** `bucket` is how far points are apart at least, in seconds. States last until the next point, and have no gaps. */
export function plot(lines: readonly Line[], bucket: number, isState: boolean): Plotted {
  const texts = new Set(lines.flatMap(({ readings }) => readings.map(({ value }) => value)));
  const isText = [...texts].some((value) => typeof value === 'string');
  const levels = isText ? [...texts].map(String).sort() : undefined;
  const drawn = lines.map(({ readings }) => {
    const points = new Map<number, number | null>();
    const least = isState ? Number.POSITIVE_INFINITY : gapFrom * Math.max(bucket, usualDistance(readings));
    for (const [at, { time, value }] of readings.entries()) {
      const before = readings[at - 1];
      if (before && time - before.time > least) points.set(before.time + bucket / 2, null);
      points.set(time, levels ? levels.indexOf(String(value)) : Number(value));
    }
    return points;
  });
  const times = [...new Set(drawn.flatMap((points) => [...points.keys()]))].sort((a, b) => a - b);
  return { times, levels, values: drawn.map((points) => times.map((time) => points.get(time))) };
}

/** The median. */
function usualDistance(readings: readonly Reading[]): number {
  const distances = readings.slice(1).map(({ time }, at) => time - (readings[at]?.time ?? time));
  return distances.sort((a, b) => a - b)[Math.floor(distances.length / 2)] ?? 0;
}

/** The place of the value that a line shows at a place: the one before it of a state, else the nearest one. */
export function shownAt(values: readonly (number | null | undefined)[], at: number, isState: boolean): number | null {
  for (let away = 0; away < values.length; away += 1) {
    if (values[at - away] !== undefined) return values[at - away] === null ? null : at - away;
    if (!isState && values[at + away] !== undefined) return values[at + away] === null ? null : at + away;
  }
  return null;
}

/** Where a pointer is: the place of the nearest time, its own time, and how far away a point may be of which it tells; in seconds. */
export interface Pointer {
  at: number;
  time: number;
  near: number;
}

/** The place of the point that a line shows under a pointer; null where the line is not drawn and no point is near. */
export function pointedAt(
  { times, values }: Plotted,
  line: number,
  { at, time, near }: Pointer,
  isState: boolean,
): number | null {
  const of = values[line] ?? [];
  const timeAt = (place: number) => times[place] ?? Number.NaN;
  // A gap begins there.
  if (of[at] === null) return null;
  // A state lasts from its point on: the next one is not yet.
  if (isState) return shownAt(of, timeAt(at) > time + near / 4 ? at - 1 : at, true);
  const known = (from: number, step: number) => {
    let place = from;
    while (place in of && of[place] === undefined) place += step;
    return typeof of[place] === 'number' ? place : null;
  };
  const next = timeAt(at) < time ? at + 1 : at;
  const [before, after] = [known(next - 1, -1), known(next, 1)];
  const isDrawn = before !== null && after !== null;
  const [nearest = null] = [before, after]
    .filter((place) => place !== null)
    .filter((place) => isDrawn || Math.abs(timeAt(place) - time) <= near)
    .sort((a, b) => Math.abs(timeAt(a) - time) - Math.abs(timeAt(b) - time));
  return nearest;
}

/** All lines as a file: a row for each point. */
export function csvOf(category: string, lines: readonly Line[]): string {
  const rows = lines.flatMap(({ name, readings }) => {
    const [device, of] = [spreadsheetCell(name), spreadsheetCell(category)];
    const cell = (value: number | string) => (typeof value === 'number' ? String(value) : spreadsheetCell(value));
    return readings.map(({ time, value }) => [new Date(time * 1000).toISOString(), device, of, cell(value)]);
  });
  return [['time', 'device', 'category', 'value'], ...rows].map((row) => `${row.join(',')}\r\n`).join('');
}
