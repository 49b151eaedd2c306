/** Pages of one category of a series, which may be rare among the others. */
import type Sqlite from 'better-sqlite3';
import type { LongWork } from '../../../src/core/scheduler/long-work.ts';
import type { Cursor, Range, StoredPoint } from '../types.ts';
import { CategoryRanges, type Stretch } from './category-ranges.ts';
import { charactersOf, fromPointRow, type PointRow, selectPoints } from './rows.ts';

/** Rows that one statement goes through: few at first, because the last point of a category is mostly near. */
const stepRows = { first: 64, most: 2000 };

/** Reads a category from mark to mark, in steps of few rows, so that nothing else waits long. */
export class CategoryPages {
  readonly #statements: ReturnType<typeof prepare>;
  readonly #marks: CategoryRanges;

  constructor(reader: Sqlite.Database) {
    this.#statements = prepare(reader);
    this.#marks = new CategoryRanges(reader);
  }

  /** The points of one category in a range: from mark to mark, in the order that is asked for. */
  async page(series: number, category: number, range: Range, longWork: LongWork): Promise<StoredPoint[]> {
    const { order, limit, after } = range;
    let characters = range.characters ?? Number.POSITIVE_INFINITY;
    const { skip, points } = this.#statements[order];
    const found: StoredPoint[] = [];
    let rows = stepRows.first;
    for (const { from, to } of this.#marks.stretches(series, category, restOf(range), order)) {
      const end = { time: order === 'asc' ? to : from, sequence: 0 };
      const begin = { time: order === 'asc' ? from : to, sequence: 0 };
      let place = begin;
      if (after && after.time >= from && after.time < to) place = { time: after.time, sequence: after.sequence };
      while (place !== end) {
        const stop = skip.get({ series, ...place, bound: end.time, rows }) ?? end;
        const bound = { stopTime: stop.time, stopSequence: stop.sequence, limit: limit - found.length };
        for (const row of points.iterate({ series, category, ...place, ...bound })) {
          const point = fromPointRow(row);
          found.push(point);
          characters -= charactersOf(point);
          if (characters < 0 && found.length > 1) return found;
        }
        if (found.length === limit) return found;
        place = stop;
        rows = Math.min(4 * rows, stepRows.most);
        await longWork.giveWay();
      }
    }
    return found;
  }
}

/** What of a range is left behind its cursor. */
function restOf({ from, to, order, after }: Range): Stretch {
  if (!after) return { from, to };
  return order === 'asc' ? { from: Math.max(from, after.time), to } : { from, to: Math.min(to, after.time + 1) };
}

interface PagePlace extends Cursor {
  series: number;
}
type SkipQuery = PagePlace & { bound: number; rows: number };
type PointsQuery = PagePlace & { category: number; stopTime: number; stopSequence: number; limit: number };

function prepare(reader: Sqlite.Database) {
  const inOrder = (beyond: '>' | '<', until: '<=' | '>=', bound: '<' | '>=', order: 'ASC' | 'DESC') => ({
    skip: reader.prepare<[SkipQuery], Cursor>(
      `SELECT "time", "sequence" FROM "points"
       WHERE "series" = @series AND ("time", "sequence") ${beyond} (@time, @sequence) AND "time" ${bound} @bound
       ORDER BY "time" ${order}, "sequence" ${order} LIMIT 1 OFFSET @rows`,
    ),
    points: reader
      .prepare<[PointsQuery], PointRow>(
        `${selectPoints}
         WHERE p."series" = @series AND (p."time", p."sequence") ${beyond} (@time, @sequence)
         AND (p."time", p."sequence") ${until} (@stopTime, @stopSequence) AND p."category" = @category
         ORDER BY p."time" ${order}, p."sequence" ${order} LIMIT @limit`,
      )
      .raw(),
  });
  return { asc: inOrder('>', '<=', '<', 'ASC'), desc: inOrder('<', '>=', '>=', 'DESC') };
}
