/** What payloads hold, and what is kept of it. */
import type { LogInput, Point } from '../../db/messages/store.ts';
import type { Lane } from '../core/scheduler/lanes.ts';

/** The points of a payload, or why it holds none. */
export type PointsRead = { points: Point[] } | { reason: string };

export interface ContentService {
  /**
   * Points of a payload on a stored channel, whose template says the form, or the reason why it holds none; a promise
   * where a thread reads it, in which lanes take turns. `now` in milliseconds.
   */
  readPoints(lane: Lane, payload: Buffer, now: number, form: string): PointsRead | Promise<PointsRead>;
  /** The points that are young enough to be kept, and why the others are not; `retentionDays` is the channel's own. */
  splitPoints(accountId: string, retentionDays: number | null, points: Point[]): { kept: Point[]; reason?: string };
  /** A log entry of a payload on `_log`; any payload makes one. */
  readLogEntry(payload: Buffer, now: number): LogInput;
}
