/**
 * Makes room by account: from the account that has stored most, its oldest arrivals first. Times that senders give decide
 * nothing. A sweep goes over the series of one account and removes what came before a boundary, a step at a time.
 */
import type Sqlite from 'better-sqlite3';
import type { Arrivals } from './arrivals.ts';
import { pointBytes, textSizeSql } from './sizes.ts';

/** Points that one step looks at in a series, and log entries. */
const pointsAtOnce = 5000;
const logsAtOnce = 500;
/** The least that a sweep removes of an account, because each sweep looks at all of its series. */
const minShare = 1 / 64;

/** A sweep under way, and where it has come to. */
interface Sweep {
  accountId: string;
  /** Everything before this sequence is removed. */
  before: number;
  series: number;
  /** Whether it has removed something. */
  removed: boolean;
  /** The next point of the series is after this one. */
  after: { time: number; sequence: number };
}

interface Swept {
  id: number;
  accountId: string;
  deviceId: string;
  channelTemplateId: string;
  possession: number;
  ahead: 0 | 1;
  /** 1 when points have come with times before those of earlier ones. */
  disordered: number;
}

interface Removed {
  points: number;
  bytes: number;
}

/** The interface of eviction to the owners of the rows. */
interface Owners {
  arrivals: Arrivals;
  /** The last sequence given out. */
  sequence(): number;
  removed(accountId: string, removed: Removed): void;
  /** Told of a series that has been swept. */
  swept(series: Swept): void;
  removeLogs(accountId: string, before: number, limit: number): number;
}

const start = { time: Number.MIN_SAFE_INTEGER, sequence: 0 };

export class Eviction {
  readonly #statements: ReturnType<typeof prepare>;
  readonly #owners: Owners;
  #sweep: Sweep | undefined;

  constructor(file: Sqlite.Database, owners: Owners) {
    this.#statements = prepare(file);
    this.#owners = owners;
  }

  /** A transaction has failed: the sweep starts again, and finds what is left. */
  clear(): void {
    this.#sweep = undefined;
  }

  /** The account whose sweep is under way. */
  get sweeping(): string | undefined {
    return this.#sweep?.accountId;
  }

  /** One small step towards `bytes` less of an account; false when the account has nothing left. */
  step(accountId: string, bytes: number, stored: number): boolean {
    if (this.#sweep?.accountId !== accountId) {
      const { arrivals, sequence } = this.#owners;
      const boundary = arrivals.boundary(accountId, Math.max(bytes, stored * minShare));
      const before = Math.min(boundary, sequence() + 1);
      this.#sweep = { accountId, before, series: 0, removed: false, after: start };
    }
    const sweep = this.#sweep;
    const series = this.#statements.series.get(accountId, sweep.series);
    if (series) {
      this.#sweepSeries(sweep, series);
      return true;
    }
    if (this.#owners.removeLogs(accountId, sweep.before, logsAtOnce) > 0) {
      sweep.removed = true;
      return true;
    }
    this.#owners.arrivals.forgetBefore(accountId, sweep.before);
    this.#sweep = undefined;
    return sweep.removed || sweep.before <= this.#owners.sequence();
  }

  #sweepSeries(sweep: Sweep, series: Swept): void {
    const { pointAt, found, remove } = this.#statements;
    const { time, sequence } = sweep.after;
    const range = { series: series.id, time, sequence, before: sweep.before };
    const end = pointAt.get(series.id, time, sequence, pointsAtOnce);
    const to = end ?? { time: Number.MAX_SAFE_INTEGER, sequence: Number.MAX_SAFE_INTEGER };
    const place = { ...range, toTime: to.time, toSequence: to.sequence };
    const removed = found.get(place);
    if (removed && removed.points > 0) {
      remove.run(place);
      this.#owners.removed(sweep.accountId, removed);
      sweep.removed = true;
    }
    // In a series whose times are in order of arrival, nothing after a younger point is older.
    const isOver = !end || (series.disordered === 0 && (removed?.points ?? 0) < pointsAtOnce);
    if (!isOver) {
      sweep.after = to;
      return;
    }
    if (series.ahead === 1) this.#statements.removeAhead.run(series.id, sweep.before);
    this.#owners.swept(series);
    sweep.series = series.id;
    sweep.after = start;
  }
}

function prepare(file: Sqlite.Database) {
  const stretch = `"series" = @series AND ("time", "sequence") > (@time, @sequence)
     AND ("time", "sequence") <= (@toTime, @toSequence) AND "points"."sequence" < @before`;
  type EvictedStretch = {
    series: number;
    time: number;
    sequence: number;
    toTime: number;
    toSequence: number;
    before: number;
  };
  return {
    series: file.prepare<[string, number], Swept>(
      `SELECT "id", "accountId", "deviceId", "channelTemplateId", "possession", "ahead", "lateAfter" > 0
         OR EXISTS (SELECT 1 FROM "latePoints" WHERE "latePoints"."series" = "series"."id") AS "disordered"
       FROM "series" INDEXED BY "series_order" WHERE "accountId" = ? AND "id" > ? AND "oldest" IS NOT NULL
       ORDER BY "id" LIMIT 1`,
    ),
    pointAt: file.prepare<[number, number, number, number], { time: number; sequence: number }>(
      `SELECT "time", "sequence" FROM "points" WHERE "series" = ? AND ("time", "sequence") > (?, ?)
       ORDER BY "time", "sequence" LIMIT 1 OFFSET ? - 1`,
    ),
    found: file.prepare<[EvictedStretch], Removed>(
      `SELECT count(*) AS "points", coalesce(sum(${pointBytes} + coalesce(${textSizeSql('"text"')}, 0)), 0) AS "bytes"
       FROM "points" WHERE ${stretch}`,
    ),
    remove: file.prepare<[EvictedStretch]>(`DELETE FROM "points" WHERE ${stretch}`),
    removeAhead: file.prepare<[number, number]>('DELETE FROM "aheadPoints" WHERE "series" = ? AND "sequence" < ?'),
  };
}
