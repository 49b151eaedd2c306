/** Reads the points of series, committed ones only. */
import type Sqlite from 'better-sqlite3';
import { LongWork } from '../../../src/core/scheduler/long-work.ts';
import { everything, type LastsOfDevice, type Range, type SeriesView, type StoredPoint } from '../types.ts';
import { CategoryPages } from './category-pages.ts';
import { SeriesLasts } from './lasts.ts';
import { fittingPoints, prepareReads } from './rows.ts';
import { SeriesSums, type Sum, type SumsQuery } from './sums.ts';
import { fitting, mergePoints, seenRange } from './views.ts';

export class SeriesReads {
  readonly #statements: ReturnType<typeof prepareReads>;
  readonly #categoryPages: CategoryPages;
  readonly #sums: SeriesSums;
  readonly #lasts: SeriesLasts;

  constructor(reader: Sqlite.Database) {
    this.#statements = prepareReads(reader);
    this.#categoryPages = new CategoryPages(reader);
    this.#sums = new SeriesSums(reader);
    this.#lasts = new SeriesLasts(reader);
  }

  /** Points of a series in a range, committed ones only, at most `limit`: all at once, as rows one by one take twice as long. */
  read(view: SeriesView, range: Range): StoredPoint[] {
    const seen = seenRange(range, view);
    if (!seen) return [];
    const all = this.#seriesOf(view, range).map(({ id, ahead }) => marked(this.#read(id, seen), ahead));
    return fitting(
      all.reduce((one, other) => mergePoints(one, other, seen), []),
      all.length > 1 ? range.characters : undefined,
    );
  }

  /** The series of the possessions that are seen, oldest first. */
  #seriesOf(
    { accountId, deviceId, channelTemplateId, window }: SeriesView,
    { withoutAhead = false }: Pick<Range, 'withoutAhead'> = {},
  ): { id: number; ahead: 0 | 1 }[] {
    const key = { accountId, deviceId, channelTemplateId };
    return this.#statements.series.all({ ...key, first: window?.first ?? 0, mostAhead: withoutAhead ? 0 : 1 });
  }

  #read(series: number, range: Range): StoredPoint[] {
    const { from, to, order, limit, after, characters = Number.POSITIVE_INFINITY } = range;
    if (order === 'asc') {
      const { time, sequence } = after && after.time >= from ? after : { time: from, sequence: 0 };
      const rows = this.#statements.ascending.all({ series, time, sequence, bound: to, limit });
      return fittingPoints(rows, characters);
    }
    const { time, sequence } = after && after.time < to ? after : { time: to, sequence: 0 };
    const rows = this.#statements.descending.all({ series, time, sequence, bound: from, limit });
    return fittingPoints(rows, characters);
  }

  /** As `read`; of one category when it is given, which may take some turns of the event loop. */
  async page(view: SeriesView, range: Range, category?: string): Promise<StoredPoint[]> {
    const seen = seenRange(range, view);
    const id = category === undefined ? undefined : this.#statements.category.get(category);
    if (!seen || (category !== undefined && id === undefined)) return [];
    const longWork = new LongWork();
    const all = this.#seriesOf(view, range);
    let found: StoredPoint[] = [];
    for (const series of all) {
      const points =
        id === undefined ? this.#read(series.id, seen) : await this.#categoryPages.page(series.id, id, seen, longWork);
      found = mergePoints(found, marked(points, series.ahead), seen);
      if (all.length > 1) await longWork.giveWay();
    }
    return all.length > 1 ? fitting(found, range.characters) : found;
  }

  /** The last points of a series by time, newest first, at most `limit`; without those that came ahead of their time. */
  latest(key: SeriesView, limit: number): StoredPoint[] {
    return this.read(key, { ...everything, order: 'desc', limit, withoutAhead: true });
  }

  /** The last points of devices, as `latest`: for each of what is wanted of each, in this order. */
  lasts(devices: readonly LastsOfDevice[]): Promise<(StoredPoint | undefined)[][]> {
    return this.#lasts.read(devices);
  }

  /** Sums of a series by bucket and category, over some turns of the event loop; undefined past the query's limit. */
  async sums(view: SeriesView, query: SumsQuery): Promise<Sum[] | undefined> {
    const seen = seenRange(query, view);
    const category = query.category === undefined ? undefined : this.#statements.category.get(query.category);
    if (!seen || (query.category !== undefined && category === undefined)) return [];
    return this.#sums.sums(
      this.#seriesOf(view).map(({ id }) => id),
      category,
      seen,
      new LongWork(),
    );
  }
}

/** Says of the points of a series that is ahead that they are. */
function marked(points: StoredPoint[], ahead: 0 | 1): StoredPoint[] {
  return ahead === 0 ? points : points.map((point) => ({ ...point, aheadOfTime: true }));
}
