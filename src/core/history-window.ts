/**
 * What a reader may see of a device's past. Each read of it takes such a window: `Access.historyWindowOf` makes that of a reader, and
 * `wholeHistory` is for the device itself and for what no reader sees. A read without one does not compile.
 */

/** Milliseconds since 1970. */
const ever = Number.NEGATIVE_INFINITY;

export class HistoryWindow {
  readonly #since: number;
  /** The first possession whose points are seen. */
  readonly first: number;

  constructor(since: number, first: number) {
    this.#since = since;
    this.first = first;
  }

  /** What happened at a time: milliseconds since 1970, or as it is stored. */
  sees(time: number | string): boolean {
    return this.from <= (typeof time === 'number' ? time : Date.parse(time));
  }

  /** The first millisecond since 1970 that is seen. */
  get from(): number {
    return this.#since + 1;
  }

  /** What has happened at this time or before is not seen; as it is stored, for SQL. */
  get after(): string {
    return this.isWhole ? '' : new Date(this.#since).toISOString();
  }

  get isWhole(): boolean {
    return this.#since === ever && this.first === 0;
  }
}

/** What may be told of a topic: of its device what a window shows, or all or nothing. */
export type Heard = HistoryWindow | boolean;

export function isHeard(heard: Heard, time: number): boolean {
  return typeof heard === 'boolean' ? heard : heard.sees(time);
}

/** All of it. */
export const wholeHistory = new HistoryWindow(ever, 0);
