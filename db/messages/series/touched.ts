import type { Point, SeriesKey } from '../types.ts';

/** A series that has got points, none of them earlier than `since` (milliseconds). */
export interface TouchedSeries extends SeriesKey {
  since: number;
}

/** Notes which series get points while their accounts are copied to another server. */
export class TouchedNotes {
  #watched: ReadonlySet<string> = new Set();
  #touched = new Map<string, TouchedSeries>();

  /** Whether accounts are watched now: nothing is removed to make room then. */
  get isWatching(): boolean {
    return this.#watched.size > 0;
  }

  /** Notes from now on which series of these accounts get points. An empty set ends that. */
  watchAccounts(accountIds: ReadonlySet<string>): void {
    this.#watched = accountIds;
    this.#touched = new Map();
  }

  /** The series that have got points since the last call. Wait for `proveWritable` of the store until all of these are committed. */
  takeSeries(): TouchedSeries[] {
    const touched = [...this.#touched.values()];
    this.#touched = new Map();
    return touched;
  }

  /** Points are about to be stored. */
  noteSeries(key: SeriesKey, points: readonly Point[]): void {
    if (this.#watched.size === 0 || !this.#watched.has(key.accountId)) return;
    const name = `${key.deviceId}/${key.channelTemplateId}/${key.possession ?? 0}/${key.ahead ?? false}`;
    const known = this.#touched.get(name);
    const since = points.reduce((least, { time }) => Math.min(least, time), known?.since ?? Number.POSITIVE_INFINITY);
    if (known) known.since = since;
    else this.#touched.set(name, { ...key, since });
  }
}
