/** Takes points and log entries away, in steps short enough that what arrives can wait for them. */
import type Sqlite from 'better-sqlite3';
import type { OutboxWriter } from '../outbox/writer.ts';
import type { Expired, Purged, Room } from '../threads/protocol.ts';
import { everything } from '../types.ts';
import type { Arrivals } from './arrivals.ts';
import type { SeriesCounts } from './counts.ts';
import { Eviction } from './eviction.ts';
import { type AccountBytes, prepareShares } from './shares.ts';
import { logSizeSql, pointBytes, textSizeSql } from './sizes.ts';

/** How long a step goes on, in milliseconds, and what it takes from one place at once. */
const stepTime = 10;
const pointsAtOnce = 5000;
const logsAtOnce = 500;
/** Later than every point and every entry. */
const end = everything.to;
export interface Series {
  id: number;
  accountId: string;
  deviceId: string;
  channelTemplateId: string;
  possession: number;
  /** 1 for points that came ahead of their time: `oldest` is when the first of them came. */
  ahead: 0 | 1;
  /** Time of its first point, in milliseconds; null when it has none. */
  oldest: number | null;
}

interface LogPlace {
  sequence: number;
  accountId: string;
  bytes: number;
}

export class SeriesRemoval {
  readonly #statements: ReturnType<typeof prepare>;
  readonly #arrivals: Arrivals;
  readonly #counts: SeriesCounts;
  readonly #eviction: Eviction;
  readonly #outbox: OutboxWriter;
  readonly #size: () => number;
  readonly #shares: ReturnType<typeof prepareShares>;
  /** The account that makes room, and how far it is above its share. */
  #heaviest: AccountBytes | undefined;
  /** Told of each series from which points have been removed, as it is now. */
  readonly #changed: (series: Series) => void;

  constructor(
    file: Sqlite.Database,
    parts: {
      arrivals: Arrivals;
      counts: SeriesCounts;
      outbox: OutboxWriter;
      size(): number;
      sequence(): number;
      changed(series: Series): void;
    },
  ) {
    const { arrivals, counts, outbox, size, sequence, changed } = parts;
    this.#arrivals = arrivals;
    this.#statements = prepare(file);
    this.#shares = prepareShares(file);
    this.#counts = counts;
    this.#outbox = outbox;
    this.#size = size;
    this.#changed = changed;
    this.#eviction = new Eviction(file, {
      arrivals,
      sequence,
      removed: (accountId, { points, bytes }) => counts.remove(accountId, { points, logs: 0, bytes }),
      swept: (series) => this.#swept(series),
      removeLogs: (accountId, before, limit) =>
        this.#removeLogs(this.#statements.logsBefore.all(accountId, before, limit)),
    });
  }

  /** One step of removing what belonged to a purged device or channel; false when nothing is left. */
  purgeSome(purged: Purged): boolean {
    const { seriesOfDevice, seriesOfChannel, deleteSeries, logsOfDevice } = this.#statements;
    const series =
      'deviceId' in purged ? seriesOfDevice.get(purged.deviceId) : seriesOfChannel.get(purged.channelTemplateId);
    if (!series) return 'deviceId' in purged && this.#removeLogs(logsOfDevice.all(purged.deviceId, logsAtOnce)) > 0;
    const removed = this.#removePoints(series, end);
    if (removed < pointsAtOnce) deleteSeries.run(series.id);
    return true;
  }

  /** One step of removing what is older than its retention; false when nothing is left. */
  expireSome(expired: Expired): boolean {
    const { expiredSeries, expiredLogs } = this.#statements;
    const { before } = expired;
    const over = performance.now() + stepTime;
    for (let found = true; found; ) {
      if (performance.now() > over) return true;
      if ('channelTemplateId' in expired) {
        const series = expiredSeries.get(expired.channelTemplateId, before);
        if (series) this.#removePoints(series, before);
        found = series !== undefined;
      } else {
        found = this.#removeLogs(expiredLogs.all(expired.logsOf, before, logsAtOnce)) > 0;
      }
    }
    return false;
  }

  /**
   * One step of making room while more than `bytes` are in use, or an account has more than `accountBytes` (0: no maximum). False when
   * nothing can be removed of an account above its share: what it keeps for MQTT, and what is pending, stays.
   */
  evictSome({ bytes, accountBytes }: Room): boolean {
    const over = performance.now() + stepTime;
    for (let isFirst = true; isFirst || performance.now() < over; isFirst = false) {
      const excess = this.#size() - bytes;
      const most = this.#arrivals.largest();
      const own = accountBytes > 0 && most ? most.bytes - accountBytes : 0;
      if (excess <= 0) this.#heaviest = undefined;
      if (excess <= 0 && own <= 0) return !isFirst;
      if (own > 0 && most) {
        this.#evict(most.accountId, own);
        continue;
      }
      this.#heaviest ??= this.#findHeaviest(bytes);
      if (!this.#heaviest) return !isFirst;
      if (!this.#lighten(this.#heaviest, excess)) this.#heaviest = undefined;
    }
    return true;
  }

  /** The account furthest above its share of which something can be removed. All accounts are summed, so it is kept for a while. */
  #findHeaviest(room: number): AccountBytes | undefined {
    return this.#shares
      .accountsAbove({ size: this.#size(), room })
      .find(({ accountId }) => this.#arrivals.of(accountId) > 0 || this.#outbox.keeps(accountId));
  }

  /** Removes a little of an account; false when another one may be the heaviest now. */
  #lighten(heaviest: AccountBytes, excess: number): boolean {
    const { accountId } = heaviest;
    const freed = this.#outbox.evictSome(accountId);
    heaviest.bytes -= freed;
    if (freed > 0) return heaviest.bytes > 0;
    this.#evict(accountId, Math.min(excess, heaviest.bytes));
    return this.#eviction.sweeping === accountId;
  }

  #evict(accountId: string, bytes: number): void {
    if (!this.#eviction.step(accountId, bytes, this.#arrivals.of(accountId))) this.#counts.recount(accountId);
  }

  /** A transaction has failed. */
  clear(): void {
    this.#eviction.clear();
    this.#heaviest = undefined;
  }

  /** The points of a series before a time, oldest first, as many as go at once; how many. */
  #removePoints(series: Series, before: number): number {
    if (series.ahead === 1) return this.#removeAhead(series, before);
    const { id, accountId } = series;
    const { pointAt, textBytes, deletePoints } = this.#statements;
    const next = pointAt.get(id, before, pointsAtOnce) ?? { time: before, sequence: 0 };
    const bytes = textBytes.get(id, next.time, next.sequence) ?? 0;
    const removed = deletePoints.run(id, next.time, next.sequence).changes;
    this.#counts.remove(accountId, { points: removed, logs: 0, bytes: bytes + removed * pointBytes });
    this.#swept(series);
    return removed;
  }

  /** As removePoints, by when they came. */
  #removeAhead(series: Series, before: number): number {
    const { id, accountId } = series;
    const { aheadBefore, deletePoint, deleteAhead } = this.#statements;
    const points = aheadBefore.all(id, before, pointsAtOnce);
    let bytes = points.length * pointBytes;
    for (const { received, time, sequence } of points) {
      bytes += deletePoint.get(id, time, sequence) ?? 0;
      deleteAhead.run(id, received, sequence);
    }
    this.#counts.remove(accountId, { points: points.length, logs: 0, bytes });
    this.#swept(series);
    return points.length;
  }

  /** Notes what the first point of a series is now. */
  #swept(series: Omit<Series, 'oldest'>): void {
    const { firstTime, firstAhead, keepOldest } = this.#statements;
    const oldest = (series.ahead === 1 ? firstAhead : firstTime).get(series.id) ?? null;
    keepOldest.run(oldest, series.id);
    this.#changed({ ...series, oldest });
  }

  #removeLogs(logs: readonly LogPlace[]): number {
    const removed = new Map<string, { logs: number; bytes: number }>();
    for (const { sequence, accountId, bytes } of logs) {
      this.#statements.deleteLog.run(sequence);
      const sum = removed.get(accountId) ?? { logs: 0, bytes: 0 };
      removed.set(accountId, { logs: sum.logs + 1, bytes: sum.bytes + bytes });
    }
    for (const [accountId, sum] of removed) this.#counts.remove(accountId, { points: 0, ...sum });
    return logs.length;
  }
}

/** What Arrivals counts of an entry. */
const logColumns = `"sequence", "accountId", ${logSizeSql} AS "bytes"`;
const columns = '"id", "accountId", "deviceId", "channelTemplateId", "possession", "ahead", "oldest"';

function prepare(file: Sqlite.Database) {
  return {
    seriesOfDevice: file.prepare<[string], Series>(`SELECT ${columns} FROM "series" WHERE "deviceId" = ? LIMIT 1`),
    seriesOfChannel: file.prepare<[string], Series>(
      `SELECT ${columns} FROM "series" WHERE "channelTemplateId" = ? LIMIT 1`,
    ),
    expiredSeries: file.prepare<[string, number], Series>(
      `SELECT ${columns} FROM "series" WHERE "channelTemplateId" = ? AND "oldest" < ? ORDER BY "oldest" LIMIT 1`,
    ),
    pointAt: file.prepare<[number, number, number], { time: number; sequence: number }>(
      `SELECT "time", "sequence" FROM "points" WHERE "series" = ? AND "time" < ?
       ORDER BY "time", "sequence" LIMIT 1 OFFSET ?`,
    ),
    deletePoints: file.prepare<[number, number, number]>(
      'DELETE FROM "points" WHERE "series" = ? AND ("time", "sequence") < (?, ?)',
    ),
    textBytes: file
      .prepare<[number, number, number], number>(
        `SELECT coalesce(sum(${textSizeSql('"text"')}), 0) FROM "points"
         WHERE "series" = ? AND ("time", "sequence") < (?, ?) AND "text" IS NOT NULL`,
      )
      .pluck(),
    firstTime: file
      .prepare<[number], number>('SELECT "time" FROM "points" WHERE "series" = ? ORDER BY "time" LIMIT 1')
      .pluck(),
    firstAhead: file
      .prepare<[number], number>('SELECT "received" FROM "aheadPoints" WHERE "series" = ? ORDER BY "received" LIMIT 1')
      .pluck(),
    aheadBefore: file.prepare<[number, number, number], { received: number; time: number; sequence: number }>(
      `SELECT "received", "time", "sequence" FROM "aheadPoints" WHERE "series" = ? AND "received" < ?
       ORDER BY "received" LIMIT ?`,
    ),
    deletePoint: file
      .prepare<[number, number, number], number | null>(
        `DELETE FROM "points" WHERE "series" = ? AND "time" = ? AND "sequence" = ? RETURNING ${textSizeSql('"text"')}`,
      )
      .pluck(),
    deleteAhead: file.prepare<[number, number, number]>(
      'DELETE FROM "aheadPoints" WHERE "series" = ? AND "received" = ? AND "sequence" = ?',
    ),
    keepOldest: file.prepare<[number | null, number]>('UPDATE "series" SET "oldest" = ? WHERE "id" = ?'),
    deleteSeries: file.prepare<[number]>('DELETE FROM "series" WHERE "id" = ?'),
    logsOfDevice: file.prepare<[string, number], LogPlace>(
      `SELECT ${logColumns} FROM "logs" WHERE "deviceId" = ? LIMIT ?`,
    ),
    expiredLogs: file.prepare<[string, number, number], LogPlace>(
      `SELECT ${logColumns} FROM "logs" WHERE "accountId" = ? AND "received" < ? ORDER BY "received" LIMIT ?`,
    ),
    logsBefore: file.prepare<[string, number, number], LogPlace>(
      `SELECT ${logColumns} FROM "logs" INDEXED BY "logs_order" WHERE "accountId" = ? AND "sequence" < ?
       ORDER BY "sequence" LIMIT ?`,
    ),
    deleteLog: file.prepare<[number]>('DELETE FROM "logs" WHERE "sequence" = ?'),
  };
}
