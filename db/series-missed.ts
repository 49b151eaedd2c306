/** What has been stored after a place, for those who were away: read in small shares, so that nobody waits for long. */
import type Sqlite from 'better-sqlite3';
import type { LogEntry, StoredPoint } from './series.js';
import type { LogRow } from './series-protocol.js';
import { fromLogRow, fromPointRow, type PointRow, selectPoints } from './series-rows.js';

/** A series by its number in the file. */
export interface SeriesRow {
  id: number;
  deviceId: string;
  channelTemplateId: string;
}

export class MissedRows {
  readonly #statements: ReturnType<typeof prepare>;

  constructor(reader: Sqlite.Database) {
    this.#statements = prepare(reader);
  }

  seriesOf(accountId: string, deviceId: string): SeriesRow[] {
    return this.#statements.ofDevice.all({ accountId, deviceId });
  }

  /** Series of an account among the next `limit` of the file after `id`; `last` is where to go on, undefined at its end. */
  seriesAfter(accountId: string, id: number, limit: number): { rows: SeriesRow[]; last: number | undefined } {
    const rows = this.#statements.after.all({ id, limit });
    const own = rows.filter((row) => row.accountId === accountId);
    return { rows: own, last: rows.length < limit ? undefined : rows.at(-1)?.id };
  }

  /** Points of a series by time, after a point, whenever they came; at most `limit`. */
  points(series: number, after: Pick<StoredPoint, 'time' | 'sequence'>, limit: number): StoredPoint[] {
    return this.#statements.points.all({ series, time: after.time, sequence: after.sequence, limit }).map(fromPointRow);
  }

  /** Log entries in the order in which they came; at most `limit`. */
  logs(after: number, limit: number): Array<LogEntry & { sequence: number }> {
    return this.#statements.logs.all({ after, limit }).map((row) => ({ ...fromLogRow(row), sequence: row.sequence }));
  }
}

function prepare(reader: Sqlite.Database) {
  return {
    ofDevice: reader.prepare<[{ accountId: string; deviceId: string }], SeriesRow>(
      'SELECT "id", "deviceId", "channelTemplateId" FROM "series" WHERE "deviceId" = @deviceId AND "accountId" = @accountId',
    ),
    after: reader.prepare<[{ id: number; limit: number }], SeriesRow & { accountId: string }>(
      'SELECT "id", "accountId", "deviceId", "channelTemplateId" FROM "series" WHERE "id" > @id ORDER BY "id" LIMIT @limit',
    ),
    points: reader
      .prepare<[{ series: number; time: number; sequence: number; limit: number }], PointRow>(
        `${selectPoints}
         WHERE p."series" = @series AND (p."time", p."sequence") > (@time, @sequence)
         ORDER BY p."time", p."sequence" LIMIT @limit`,
      )
      .raw(),
    logs: reader.prepare<[{ after: number; limit: number }], LogRow & { sequence: number }>(
      'SELECT * FROM "logs" WHERE "sequence" > @after ORDER BY "sequence" LIMIT @limit',
    ),
  };
}
