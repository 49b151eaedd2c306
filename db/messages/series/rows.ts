/** Points and log entries between the API and the rows of messages.db: what is collected, checked and read. */
import type Sqlite from 'better-sqlite3';
import type { OutboxChange } from '../outbox/rows.ts';
import type { MqttChange } from '../sessions/changes.ts';
import { type Batch, type BatchKey, type LogRow, pointWidth, type StoreEnd } from '../threads/protocol.ts';
import {
  type LogEntry,
  type NewLogEntry,
  type Point,
  type SeriesKey,
  type SeriesView,
  type StoredPoint,
  severities,
  timeLimit,
} from '../types.ts';

/** Rows collected for the next transaction. */
export class OpenBatch {
  /** In the order in which they came, for points and logs alike. */
  readonly calls: Array<(failure?: Error, end?: StoreEnd) => void> = [];
  readonly logs: LogRow[] = [];
  readonly changes: MqttChange[] = [];
  readonly outbox: OutboxChange[] = [];
  readonly #keys: BatchKey[] = [];
  readonly #keyIndex = new Map<string, number>();
  readonly #categoryIndex = new Map<string, number>();
  readonly #points: number[] = [];
  readonly #texts = new Map<number, string>();
  readonly #arrived = new Map<number, number>();
  readonly #prepared = new Set<number>();

  get pointCount(): number {
    return this.#points.length / pointWidth;
  }

  get size(): number {
    return Math.max(this.calls.length, this.#points.length / pointWidth, this.changes.length, this.outbox.length);
  }

  /** `prepared` says that the categories and marks of these points have been written before. */
  add(key: SeriesKey, points: readonly Point[], prepared = false): void {
    const series = this.#indexOfKey(key, prepared);
    if (prepared) this.#prepared.add(series);
    for (const { time, category, numericValue, stringValue, arrived } of points) {
      if (stringValue !== null) this.#texts.set(this.#points.length / pointWidth, stringValue);
      if (arrived !== undefined) this.#arrived.set(this.#points.length / pointWidth, arrived);
      this.#points.push(series, time, this.#indexOfCategory(category), numericValue ?? Number.NaN);
    }
  }

  toBatch(): Batch {
    return {
      keys: this.#keys,
      categories: [...this.#categoryIndex.keys()],
      points: new Float64Array(this.#points),
      texts: this.#texts,
      arrived: this.#arrived,
      prepared: this.#prepared,
      logs: this.logs,
      changes: this.changes,
      outbox: this.outbox,
    };
  }

  #indexOfKey(key: SeriesKey, prepared: boolean): number {
    const { accountId, deviceId, channelTemplateId, possession = 0, ahead = false } = key;
    const name = `${deviceId}/${channelTemplateId}/${accountId}/${possession}/${ahead}/${prepared}`;
    let index = this.#keyIndex.get(name);
    if (index === undefined) {
      index = this.#keyIndex.size;
      this.#keyIndex.set(name, index);
      this.#keys.push([accountId, deviceId, channelTemplateId, possession, ahead ? 1 : 0]);
    }
    return index;
  }

  #indexOfCategory(category: string): number {
    let index = this.#categoryIndex.get(category);
    if (index === undefined) {
      index = this.#categoryIndex.size;
      this.#categoryIndex.set(category, index);
    }
    return index;
  }
}

/**
 * Places of points (flat, as in Batch) by series and time, in the order in which they came where both are equal. Undefined
 * when no series has a time before an earlier one: out of order a point would cost the writer a mark of its own.
 */
export function orderByTime(points: Float64Array, series: number): Uint32Array | undefined {
  const newest = new Float64Array(series).fill(Number.NEGATIVE_INFINITY);
  let isInOrder = true;
  for (let at = 0; isInOrder && at < points.length; at += pointWidth) {
    const [index, time] = [points[at] as number, points[at + 1] as number];
    isInOrder = time >= (newest[index] as number);
    newest[index] = time;
  }
  if (isInOrder) return undefined;
  const value = (point: number, field: number) => points[point * pointWidth + field] as number;
  return Uint32Array.from({ length: points.length / pointWidth }, (_, point) => point).sort(
    (a, b) => value(a, 0) - value(b, 0) || value(a, 1) - value(b, 1) || a - b,
  );
}

/** A point as SQL has it: without names, because reading many with them takes twice as long. */
export type PointRow = [
  time: number,
  sequence: number,
  category: string,
  numericValue: number | null,
  stringValue: string | null,
];

/** How a query for rows of points begins; `p` are the points. */
export const selectPoints = `SELECT p."time", p."sequence", c."text", p."number", p."text"
  FROM "points" p CROSS JOIN "categories" c ON c."id" = p."category"`;

export function fromPointRow([time, sequence, category, numericValue, stringValue]: PointRow): StoredPoint {
  return { time, sequence, category, numericValue, stringValue };
}

interface PointQuery {
  series: number;
  time: number;
  sequence: number;
  bound: number;
  limit: number;
}

export function prepareReads(reader: Sqlite.Database) {
  const points = (beyond: '>' | '<', bound: '<' | '>=', order: 'ASC' | 'DESC') =>
    reader
      .prepare<[PointQuery], PointRow>(
        `${selectPoints}
         WHERE p."series" = @series AND (p."time", p."sequence") ${beyond} (@time, @sequence) AND p."time" ${bound} @bound
         ORDER BY p."time" ${order}, p."sequence" ${order} LIMIT @limit`,
      )
      .raw();
  return {
    series: reader.prepare<
      [Omit<SeriesView, 'window'> & { first: number; mostAhead: 0 | 1 }],
      { id: number; ahead: 0 | 1 }
    >(
      `SELECT "id", "ahead" FROM "series"
         WHERE "accountId" = @accountId AND "deviceId" = @deviceId AND "channelTemplateId" = @channelTemplateId
           AND "possession" >= @first AND "ahead" <= @mostAhead ORDER BY "possession", "ahead"`,
    ),
    category: reader.prepare<[string], number>('SELECT "id" FROM "categories" WHERE "text" = ?').pluck(),
    ascending: points('>', '<', 'ASC'),
    descending: points('<', '>=', 'DESC'),
  };
}

/** Characters of a point's texts. */
export function charactersOf({ category, stringValue }: Point): number {
  return category.length + (stringValue?.length ?? 0);
}

/** The points of rows, as far as their texts fit: see Range. */
export function fittingPoints(rows: Iterable<PointRow>, characters: number): StoredPoint[] {
  const found: StoredPoint[] = [];
  let left = characters;
  for (const row of rows) {
    const point = fromPointRow(row);
    found.push(point);
    left -= charactersOf(point);
    if (left < 0 && found.length > 1) break;
  }
  return found;
}

/** One point that SQLite would refuse must not take its whole transaction with it. */
export function refusalOf(points: readonly Point[]): Error | undefined {
  for (const { time, numericValue } of points) {
    if (!isTime(time)) return new RangeError('The time of a point is out of range.');
    if (numericValue !== null && !Number.isFinite(numericValue)) return new RangeError('A point is not finite.');
  }
  return undefined;
}

function isTime(time: number): boolean {
  return Number.isInteger(time) && Math.abs(time) <= timeLimit;
}

export function toLogRow(entry: NewLogEntry): LogRow | Error {
  const { id, accountId, deviceId, time, received, message, code, details, tags, custom } = entry;
  const severity = severities.indexOf(entry.severity);
  if (!isTime(time) || !isTime(received) || severity === -1) return new RangeError('A log entry is out of range.');
  try {
    const json = { tags: JSON.stringify(tags), custom: custom && JSON.stringify(custom) };
    const byService = entry.byService ? 1 : 0;
    const codeIsNumber = entry.codeIsNumber ? 1 : 0;
    return {
      id,
      accountId,
      deviceId,
      time,
      received,
      severity,
      message,
      code,
      codeIsNumber,
      details,
      ...json,
      byService,
    };
  } catch (error) {
    return error as Error;
  }
}

export function fromLogRow(row: LogRow): LogEntry {
  const { id, accountId, deviceId, time, received, message, code, details } = row;
  const severity = severities[row.severity] ?? 'info';
  const tags = JSON.parse(row.tags) as string[];
  const custom = row.custom === null ? null : (JSON.parse(row.custom) as Record<string, unknown>);
  const byService = row.byService === 1;
  const entry = { id, accountId, deviceId, time, received, severity, message, code, details, tags, custom, byService };
  return row.codeIsNumber === 1 ? { ...entry, codeIsNumber: true } : entry;
}
