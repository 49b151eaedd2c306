/** The last points of many devices at once, without those that came ahead of their time. */
import type Sqlite from 'better-sqlite3';
import { LongWork } from '../../../src/core/scheduler/long-work.ts';
import { everything, type LastsOfDevice, type SeriesView, type StoredPoint } from '../types.ts';
import { CategoryPages } from './category-pages.ts';
import { fromPointRow, type PointRow, selectPoints } from './rows.ts';
import { mergePoints, seenRange } from './views.ts';

const onlyLast = { ...everything, order: 'desc', limit: 1 } as const;
/** Points of a series among which the last one of a category is looked for first. */
const nearRows = 64;
/** Series that are looked at in one read of the file, about a millisecond. */
const seriesAtOnce = 100;

/** A series whose last point of a category is not near its end, for what was wanted `at` a place. */
interface Rare {
  at: number;
  series: number;
  category: number;
  from: number;
}

export class SeriesLasts {
  readonly #reader: Sqlite.Database;
  readonly #statements: ReturnType<typeof prepare>;
  readonly #categoryPages: CategoryPages;

  constructor(reader: Sqlite.Database) {
    this.#reader = reader;
    this.#statements = prepare(reader);
    this.#categoryPages = new CategoryPages(reader);
  }

  /** For each of what is wanted of each device, in this order; over some turns of the event loop. */
  async read(devices: readonly LastsOfDevice[]): Promise<(StoredPoint | undefined)[][]> {
    const longWork = new LongWork();
    const found = devices.map(({ wanted }): (StoredPoint | undefined)[] => wanted.map(() => undefined));
    for (let from = 0; from < devices.length; ) {
      const rare: [number, Rare][] = [];
      // One read of the file: each statement by itself would lock it again.
      from = this.#reader.transaction(() => {
        let at = from;
        for (let looked = 0; at < devices.length && looked < seriesAtOnce; at += 1) {
          const [points, missing] = [found[at] ?? [], rare];
          looked += this.#readNear(devices[at] as LastsOfDevice, points, (one) => missing.push([at, one]));
        }
        return at;
      })();
      await longWork.giveWay();
      for (const [device, one] of rare) {
        const { at, series, category } = one;
        const range = { ...onlyLast, from: one.from };
        keep(found[device] ?? [], at, await this.#categoryPages.page(series, category, range, longWork));
      }
    }
    return found;
  }

  /** Reads what is near the end of the series of a device; the number of series. */
  #readNear(
    { accountId, deviceId, window, wanted }: LastsOfDevice,
    points: (StoredPoint | undefined)[],
    isRare: (one: Rare) => void,
  ): number {
    const { series, category, last, near } = this.#statements;
    const seen = seenRange(onlyLast, { window });
    if (!seen) return 1;
    const all = series.all(accountId, deviceId, window?.first ?? 0);
    let looked = 1;
    for (const [at, { channels, category: name }] of wanted.entries()) {
      const id = name === undefined ? undefined : category.get(name);
      if (name !== undefined && id === undefined) continue;
      for (const one of all) {
        if (!channels.has(one.channelTemplateId)) continue;
        looked += 1;
        const row =
          id === undefined ? last.get(one.id, seen.from, seen.to) : near.get(name, one.id, seen.from, seen.to, id);
        if (row) keep(points, at, [fromPointRow(row)]);
        else if (id !== undefined) isRare({ at, series: one.id, category: id, from: seen.from });
      }
    }
    return looked;
  }
}

/** The later one of what was found and what is known: of several possessions or channels. */
function keep(points: (StoredPoint | undefined)[], at: number, more: StoredPoint[]): void {
  const known = points[at];
  points[at] = mergePoints(known ? [known] : [], more, onlyLast)[0];
}

type View = Pick<SeriesView, 'accountId' | 'deviceId'>;

function prepare(reader: Sqlite.Database) {
  return {
    series: reader.prepare<
      [View['accountId'], View['deviceId'], first: number],
      { id: number; channelTemplateId: string }
    >(
      `SELECT "id", "channelTemplateId" FROM "series"
       WHERE "accountId" = ? AND "deviceId" = ? AND "possession" >= ? AND "ahead" = 0`,
    ),
    category: reader.prepare<[string], number>('SELECT "id" FROM "categories" WHERE "text" = ?').pluck(),
    last: reader
      .prepare<[series: number, from: number, to: number], PointRow>(
        `${selectPoints} WHERE p."series" = ? AND p."time" >= ? AND p."time" < ?
         ORDER BY p."time" DESC, p."sequence" DESC LIMIT 1`,
      )
      .raw(),
    near: reader
      .prepare<[category: string | undefined, series: number, from: number, to: number, id: number], PointRow>(
        `SELECT "time", "sequence", ?, "number", "text" FROM (
           SELECT "time", "sequence", "category", "number", "text" FROM "points"
           WHERE "series" = ? AND "time" >= ? AND "time" < ? ORDER BY "time" DESC, "sequence" DESC LIMIT ${nearRows}
         ) WHERE "category" = ? LIMIT 1`,
      )
      .raw(),
  };
}
