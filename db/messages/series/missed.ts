/** Reads what was stored after a position, for readers that were away, in small parts. */
import type Sqlite from 'better-sqlite3';
import type { LogRow } from '../threads/protocol.ts';
import type { Cursor, LogEntry, StoredPoint } from '../types.ts';
import { fromLogRow, fromPointRow, type PointRow, selectPoints } from './rows.ts';

/** Messages that are sent again at most. */
export const maxMissed = 10_000;

/** A series by its number in the file. */
export interface SeriesRow {
  id: number;
  deviceId: string;
  channelTemplateId: string;
  /** Of its device. */
  possession: number;
  /** Late points up to this sequence are not known any more. */
  lateAfter: number;
}

/** Points by time, newest first; `known` is the time at which the reading came to one of before, undefined while it has not. */
export interface NewestPoints {
  points: StoredPoint[];
  known: number | undefined;
}

export class MissedRows {
  readonly #statements: ReturnType<typeof prepare>;

  constructor(reader: Sqlite.Database) {
    this.#statements = prepare(reader);
  }

  seriesOf(accountId: string, deviceId: string): SeriesRow[] {
    return this.#statements.ofDevice.all({ accountId, deviceId });
  }

  /** Series of an account after `id`, at most `limit`. */
  seriesAfter(accountId: string, id: number, limit: number): SeriesRow[] {
    return this.#statements.after.all({ accountId, id, limit });
  }

  /** Points of a series from `before` back to the first that had come when `sequence` was the last, at most `limit`. */
  newest(series: number, sequence: number, before: Cursor, limit: number): NewestPoints {
    const points: StoredPoint[] = [];
    for (const row of this.#statements.newest.iterate({ series, ...before, limit })) {
      const point = fromPointRow(row);
      if (point.sequence <= sequence) return { points, known: point.time };
      points.push(point);
    }
    return { points, known: undefined };
  }

  /** Points of a series that came after one of a later time, in the order in which they came; at most `limit`. */
  late(series: number, after: number, limit: number): StoredPoint[] {
    return this.#statements.late.all({ series, after, limit }).map(fromPointRow);
  }

  /** Log entries of an account in the order in which they came; at most `limit`. */
  logs(accountId: string, after: number, limit: number): Array<LogEntry & { sequence: number }> {
    const rows = this.#statements.logs.all({ accountId, after, limit });
    return rows.map((row) => ({ ...fromLogRow(row), sequence: row.sequence }));
  }
}

function prepare(reader: Sqlite.Database) {
  const series = '"id", "deviceId", "channelTemplateId", "possession", "lateAfter"';
  return {
    ofDevice: reader.prepare<[{ accountId: string; deviceId: string }], SeriesRow>(
      `SELECT ${series} FROM "series" WHERE "deviceId" = @deviceId AND "accountId" = @accountId`,
    ),
    after: reader.prepare<[{ accountId: string; id: number; limit: number }], SeriesRow>(
      `SELECT ${series} FROM "series" INDEXED BY "series_order" WHERE "accountId" = @accountId AND "id" > @id
       ORDER BY "id" LIMIT @limit`,
    ),
    newest: reader
      .prepare<[{ series: number; time: number; sequence: number; limit: number }], PointRow>(
        `${selectPoints}
         WHERE p."series" = @series AND (p."time", p."sequence") < (@time, @sequence)
         ORDER BY p."time" DESC, p."sequence" DESC LIMIT @limit`,
      )
      .raw(),
    late: reader
      .prepare<[{ series: number; after: number; limit: number }], PointRow>(
        `SELECT p."time", p."sequence", c."text", p."number", p."text" FROM "latePoints" l
         CROSS JOIN "points" p ON p."series" = l."series" AND p."time" = l."time" AND p."sequence" = l."sequence"
         CROSS JOIN "categories" c ON c."id" = p."category"
         WHERE l."series" = @series AND l."sequence" > @after ORDER BY l."sequence" LIMIT @limit`,
      )
      .raw(),
    logs: reader.prepare<[{ accountId: string; after: number; limit: number }], LogRow & { sequence: number }>(
      `SELECT * FROM "logs" INDEXED BY "logs_order" WHERE "accountId" = @accountId AND "sequence" > @after
       ORDER BY "sequence" LIMIT @limit`,
    ),
  };
}
