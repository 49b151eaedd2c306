/** Takes points and log entries away, in steps short enough that what arrives can wait for them. */
import type Sqlite from 'better-sqlite3';
import type { OutboxWriter } from '../outbox/writer.js';
import type { Eviction, Expired, Purged } from '../threads/protocol.js';
import { everything } from '../types.js';
import type { SeriesCounts } from './counts.js';

/** How long a step goes on, in milliseconds, and what it takes from one place at once. */
const stepTime = 10;
const pointsAtOnce = 5000;
const logsAtOnce = 500;
/** Later than every point and every entry. */
const end = everything.to;
/**
 * Eviction takes from one series after the other what is older than this share of the whole span. It grows while a
 * visit yields few points: with very many small series the oldest is then taken less exactly, but as fast.
 */
const share = { least: 1 / 256, most: 1 / 8, fewPoints: 16 };

export interface Series {
  id: number;
  accountId: string;
  deviceId: string;
  channelTemplateId: string;
  /** Time of its first point, in milliseconds; null when it has none. */
  oldest: number | null;
}

interface LogPlace {
  sequence: number;
  accountId: string;
}

export class SeriesRemoval {
  readonly #statements: ReturnType<typeof prepare>;
  readonly #counts: SeriesCounts;
  readonly #outbox: OutboxWriter;
  readonly #size: () => number;
  /** Told of each series from which points have been removed, as it is now. */
  readonly #changed: (series: Series) => void;
  #share = share.least;

  constructor(
    file: Sqlite.Database,
    parts: { counts: SeriesCounts; outbox: OutboxWriter; size(): number; changed(series: Series): void },
  ) {
    const { counts, outbox, size, changed } = parts;
    this.#statements = prepare(file);
    this.#counts = counts;
    this.#outbox = outbox;
    this.#size = size;
    this.#changed = changed;
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
   * One step of making room, until `bytes` are in use; false when there is nothing to remove. What bridges have delivered
   * goes first, for it is kept only to be replayed; then the oldest of everything. What is pending stays.
   */
  evictSome({ now, bytes }: Eviction): boolean {
    const { oldestSeries, oldestLog } = this.#statements;
    const over = performance.now() + stepTime;
    do {
      if (this.#outbox.evictDelivered() > 0) continue;
      const oldestDead = this.#outbox.oldestDead() ?? end;
      const oldest = Math.min(oldestSeries.get(end)?.oldest ?? end, oldestLog.get() ?? end, oldestDead);
      if (oldest === end) return false;
      this.#evictBefore(Math.floor(oldest + Math.max(1, Math.abs(now - oldest) * this.#share)), over);
    } while (this.#size() > bytes && performance.now() < over);
    return true;
  }

  #evictBefore(time: number, over: number): void {
    const { oldestSeries, oldestLogs } = this.#statements;
    let visits = 0;
    let points = 0;
    for (let series = oldestSeries.get(time); series; series = oldestSeries.get(time)) {
      points += this.#removePoints(series, time);
      visits += 1;
      if (performance.now() > over) break;
    }
    this.#removeLogs(oldestLogs.all(logsAtOnce, time));
    this.#outbox.evictDead(time);
    if (visits > 0) this.#adapt(points / visits);
  }

  #adapt(pointsPerVisit: number): void {
    if (pointsPerVisit < share.fewPoints) this.#share = Math.min(share.most, this.#share * 2);
    else if (pointsPerVisit > 4 * share.fewPoints) this.#share = Math.max(share.least, this.#share / 2);
  }

  /** The points of a series before a time, oldest first, as many as go at once; how many. */
  #removePoints(series: Series, before: number): number {
    const { id, accountId } = series;
    const { pointAt, deletePoints, firstTime, keepOldest } = this.#statements;
    const next = pointAt.get(id, before, pointsAtOnce) ?? { time: before, sequence: 0 };
    const removed = deletePoints.run(id, next.time, next.sequence).changes;
    const oldest = firstTime.get(id) ?? null;
    keepOldest.run(oldest, id);
    this.#counts.add(accountId, -removed, 0);
    this.#changed({ ...series, oldest });
    return removed;
  }

  #removeLogs(logs: readonly LogPlace[]): number {
    const removed = new Map<string, number>();
    for (const { sequence, accountId } of logs) {
      this.#statements.deleteLog.run(sequence);
      removed.set(accountId, (removed.get(accountId) ?? 0) + 1);
    }
    for (const [accountId, count] of removed) this.#counts.add(accountId, 0, -count);
    return logs.length;
  }
}

const columns = '"id", "accountId", "deviceId", "channelTemplateId", "oldest"';

function prepare(file: Sqlite.Database) {
  return {
    seriesOfDevice: file.prepare<[string], Series>(`SELECT ${columns} FROM "series" WHERE "deviceId" = ? LIMIT 1`),
    seriesOfChannel: file.prepare<[string], Series>(
      `SELECT ${columns} FROM "series" WHERE "channelTemplateId" = ? LIMIT 1`,
    ),
    expiredSeries: file.prepare<[string, number], Series>(
      `SELECT ${columns} FROM "series" WHERE "channelTemplateId" = ? AND "oldest" < ? ORDER BY "oldest" LIMIT 1`,
    ),
    oldestSeries: file.prepare<[number], Series>(
      `SELECT ${columns} FROM "series" WHERE "oldest" < ? ORDER BY "oldest" LIMIT 1`,
    ),
    pointAt: file.prepare<[number, number, number], { time: number; sequence: number }>(
      `SELECT "time", "sequence" FROM "points" WHERE "series" = ? AND "time" < ?
       ORDER BY "time", "sequence" LIMIT 1 OFFSET ?`,
    ),
    deletePoints: file.prepare<[number, number, number]>(
      'DELETE FROM "points" WHERE "series" = ? AND ("time", "sequence") < (?, ?)',
    ),
    firstTime: file
      .prepare<[number], number>('SELECT "time" FROM "points" WHERE "series" = ? ORDER BY "time" LIMIT 1')
      .pluck(),
    keepOldest: file.prepare<[number | null, number]>('UPDATE "series" SET "oldest" = ? WHERE "id" = ?'),
    deleteSeries: file.prepare<[number]>('DELETE FROM "series" WHERE "id" = ?'),
    logsOfDevice: file.prepare<[string, number], LogPlace>(
      'SELECT "sequence", "accountId" FROM "logs" WHERE "deviceId" = ? LIMIT ?',
    ),
    expiredLogs: file.prepare<[string, number, number], LogPlace>(
      `SELECT "sequence", "accountId" FROM "logs" WHERE "accountId" = ? AND "received" < ? ORDER BY "received" LIMIT ?`,
    ),
    // Entries stand in the order in which they came.
    oldestLog: file.prepare<[], number>('SELECT "received" FROM "logs" ORDER BY "sequence" LIMIT 1').pluck(),
    oldestLogs: file.prepare<[number, number], LogPlace>(
      `SELECT "sequence", "accountId" FROM (SELECT * FROM "logs" ORDER BY "sequence" LIMIT ?) WHERE "received" < ?`,
    ),
    deleteLog: file.prepare<[number]>('DELETE FROM "logs" WHERE "sequence" = ?'),
  };
}
