/** Reading much of a series: pages of one category, sums by buckets of time. All of it in steps of few rows. */
import type Sqlite from 'better-sqlite3';
import { boundedCache } from '../../sqlite/cache.js';
import type { Slices } from '../../sqlite/slices.js';
import type { Cursor, Range, StoredPoint } from '../types.js';
import { charactersOf, fromPointRow, type PointRow, selectPoints } from './rows.js';

/** Rows that one statement goes through at most. */
const stepRows = 2000;
/** The first and last number of a sum are looked for among so many points of their millisecond, and else among all of the step. */
const rowsOfMillisecond = 16;
/** Buckets that one statement sums up at most. */
const stepBuckets = 1000;
const marksAtOnce = 64;
/** Points of so many categories are gone through once for each, which is faster than sorting them by category. */
const fewCategories = 3;
/** Series of more categories are not asked which of them are in a step. */
const maxRanges = 8;
const categoriesKept = 10_000;

/** A stretch of time: `from` inclusive and `to` exclusive, in milliseconds. */
interface Stretch {
  from: number;
  to: number;
}

/** The aggregates of a bucket. */
export const aggregates = ['avg', 'min', 'max', 'sum', 'count', 'first', 'last'] as const;
export type Aggregate = (typeof aggregates)[number];

/** What is summed up: the buckets lie between `edges`, which ascend and hold the whole stretch. */
export interface SumsQuery extends Stretch {
  edges: readonly number[];
  /** What is not asked for is null, but counts and sums. */
  wanted: readonly Aggregate[];
  category?: string;
  /** The most sums there may be. */
  limit: number;
}

/** The points of a category in a bucket, and what their numbers are; null without a number. */
export interface Sum {
  /** Index of the edge at which it begins. */
  bucket: number;
  category: string;
  /** Points, with and without a number. */
  count: number;
  numbers: number;
  sum: number | null;
  min: number | null;
  max: number | null;
  first: number | null;
  last: number | null;
}

/** A Sum as SQL has it; without names, because there are many. */
type SumRow = [
  bucket: number,
  category: number,
  count: number,
  numbers: number,
  sum: number | null,
  min: number | null,
  max: number | null,
  firstTime: number | null,
  lastTime: number | null,
];

/** The first and the last number of a sum, when they are asked for. */
interface Ends {
  first: number | null;
  last: number | null;
}

export class SeriesRanges {
  readonly #statements: ReturnType<typeof prepare>;
  readonly #texts = boundedCache<number, string>(categoriesKept);

  constructor(reader: Sqlite.Database) {
    reader.exec('CREATE TEMP TABLE "buckets" ("id" INTEGER PRIMARY KEY, "from" INTEGER, "to" INTEGER)');
    this.#statements = prepare(reader);
  }

  /** The points of one category in a range: from mark to mark, in the order that is asked for. */
  async page(series: number, category: number, range: Range, slices: Slices): Promise<StoredPoint[]> {
    const { order, limit, after } = range;
    let characters = range.characters ?? Number.POSITIVE_INFINITY;
    const { skip, points } = this.#statements[order];
    const found: StoredPoint[] = [];
    for (const { from, to } of this.#stretches(series, category, restOf(range), order)) {
      const end = { time: order === 'asc' ? to : from, sequence: 0 };
      const begin = { time: order === 'asc' ? from : to, sequence: 0 };
      let place = begin;
      if (after && after.time >= from && after.time < to) place = { time: after.time, sequence: after.sequence };
      while (place !== end) {
        const stop = skip.get({ series, ...place, bound: end.time, rows: stepRows }) ?? end;
        const bound = { stopTime: stop.time, stopSequence: stop.sequence, limit: limit - found.length };
        for (const row of points.iterate({ series, category, ...place, ...bound })) {
          const point = fromPointRow(row);
          found.push(point);
          characters -= charactersOf(point);
          if (characters < 0 && found.length > 1) return found;
        }
        if (found.length === limit) return found;
        place = stop;
        await slices.step();
      }
    }
    return found;
  }

  /** Sums by bucket and category, in no order; undefined when there are more than `limit`. */
  async sums(
    series: number,
    category: number | undefined,
    { from, to, edges, wanted, limit }: SumsQuery,
    slices: Slices,
  ): Promise<Sum[] | undefined> {
    /** By bucket and category. */
    const sums = new Map<number, Sum>();
    const { ofCategory, ofAll } = this.#statements.summing(wanted);
    const categories = category === undefined ? this.#categories(series) : [category];
    const stretches = category === undefined ? [{ from, to }] : this.#stretches(series, category, { from, to }, 'asc');
    for (const stretch of stretches) {
      for (let place = this.#next(series, stretch); place !== undefined; ) {
        const { isCrowded, ...step } = this.#fill(series, { from: place, to: stretch.to }, edges);
        if (isCrowded) {
          for await (const row of this.#moment(series, step.from, bucketAt(edges, step.from), category, slices))
            this.#merge(sums, row.category * edges.length + row.bucket, row);
          if (sums.size > limit) return undefined;
          place = this.#next(series, { from: step.to, to: stretch.to });
          continue;
        }
        const present = this.#presentCategories(series, categories, step);
        const rows = present
          ? present.flatMap((one) => ofCategory.all({ series, category: one }))
          : ofAll.all({ series });
        const endsOf = this.#endsOf(series);
        for (const row of rows) this.#merge(sums, row[1] * edges.length + row[0], toPart(row, endsOf(row)));
        if (sums.size > limit) return undefined;
        await slices.step();
        place = this.#next(series, { from: step.to, to: stretch.to });
      }
    }
    return [...sums.values()];
  }

  /** Puts the buckets of the next step where the statements look for them; the step, which begins like the stretch. */
  #fill(series: number, { from, to }: Stretch, edges: readonly number[]): Stretch & { isCrowded: boolean } {
    const { skipTime, clearBuckets, addBucket } = this.#statements;
    const first = bucketAt(edges, from);
    const bound = Math.min(to, edges[first + stepBuckets] ?? to);
    const stop = skipTime.get({ series, from, bound, rows: stepRows }) ?? bound;
    const edge = edges[bucketAt(edges, stop)] ?? stop;
    // A bucket that fits into a step is summed up at once: what it sums up to does not hang on where steps begin.
    const end = stop < to && edge > from ? edge : Math.max(stop, from + 1);
    clearBuckets.run();
    for (let bucket = first, begin = from; begin < end; bucket += 1) {
      const next = Math.min(edges[bucket + 1] ?? end, end);
      addBucket.run(bucket, begin, next);
      begin = next;
    }
    return { from, to: end, isCrowded: stop === from };
  }

  /** Sums of one millisecond that has more points than a step goes through: in parts, by category. */
  async *#moment(
    series: number,
    time: number,
    bucket: number,
    wanted: number | undefined,
    slices: Slices,
  ): AsyncGenerator<Part> {
    const { pointsAt } = this.#statements;
    for (let after = 0; ; ) {
      const rows = pointsAt.all(series, time, after, stepRows);
      const parts = new Map<number, Part>();
      for (const [sequence, category, number] of rows) {
        after = sequence;
        if (wanted !== undefined && category !== wanted) continue;
        const part = parts.get(category) ?? { bucket, category, ...noPoints };
        parts.set(category, part);
        addTo(part, number);
      }
      yield* parts.values();
      await slices.step();
      if (rows.length < stepRows) return;
    }
  }

  /** Finds first and last numbers of the step that was filled in last. */
  #endsOf(series: number): (row: SumRow) => Ends {
    let all: Map<string, Ends> | undefined;
    return ([bucket, category, , , , , , firstTime, lastTime]) => {
      const first =
        firstTime === null ? null : this.#statements.asc.number.get(series, firstTime, rowsOfMillisecond, category);
      const last =
        lastTime === null ? null : this.#statements.desc.number.get(series, lastTime, rowsOfMillisecond, category);
      if (first !== undefined && last !== undefined) return { first, last };
      all ??= this.#allEnds(series);
      const { first: begin, last: end } = all.get(`${bucket}/${category}`) ?? noPoints;
      return { first: firstTime === null ? null : begin, last: lastTime === null ? null : end };
    };
  }

  #allEnds(series: number): Map<string, Ends> {
    const all = new Map<string, Ends>();
    for (const [bucket, category, number] of this.#statements.numbers.iterate({ series })) {
      const ends = all.get(`${bucket}/${category}`);
      if (ends) ends.last = number;
      else all.set(`${bucket}/${category}`, { first: number, last: number });
    }
    return all;
  }

  #merge(sums: Map<number, Sum>, name: number, part: Part): void {
    const former = sums.get(name);
    if (!former) {
      sums.set(name, { ...part, category: this.#text(part.category) });
      return;
    }
    const { count, numbers, sum, min, max, first, last } = part;
    former.count += count;
    former.numbers += numbers;
    if (sum !== null) former.sum = (former.sum ?? 0) + sum;
    if (min !== null) former.min = Math.min(former.min ?? min, min);
    if (max !== null) former.max = Math.max(former.max ?? max, max);
    former.first ??= first;
    former.last = last ?? former.last;
  }

  #text(category: number): string {
    const known = this.#texts.get(category);
    if (known !== undefined) return known;
    const text = this.#statements.text.get(category) ?? '';
    this.#texts.set(category, text);
    return text;
  }

  /** When the next point of a stretch is. */
  #next(series: number, { from, to }: Stretch): number | undefined {
    return this.#statements.skipTime.get({ series, from, bound: to, rows: 0 });
  }

  /** The categories of a series, when they are not too many to be asked for one by one. */
  #categories(series: number): number[] | undefined {
    const { nextCategory } = this.#statements;
    const found: number[] = [];
    for (let one = nextCategory.get(series, 0); one !== undefined; one = nextCategory.get(series, one)) {
      found.push(one);
      if (found.length > maxRanges) return undefined;
    }
    return found;
  }

  /** Those of some categories that have a mark in a stretch, when they are few. */
  #presentCategories(series: number, categories: number[] | undefined, { from, to }: Stretch): number[] | undefined {
    const found = categories?.filter((category) => {
      const last = this.#statements.marksBelow.get({ series, category, bound: to, limit: 1 });
      return last && last.to > from;
    });
    return found && found.length <= fewCategories ? found : undefined;
  }

  /** Marks that follow each other closely are one, except very many of them. */
  *#stretches(series: number, category: number, stretch: Stretch, order: Range['order']): Generator<Stretch> {
    let open: Stretch | undefined;
    let marks = 0;
    for (const { from, to } of this.#marks(series, category, stretch, order)) {
      marks += 1;
      if (open && marks < marksAtOnce && (open.to === from || to === open.from)) {
        open = { from: Math.min(open.from, from), to: Math.max(open.to, to) };
        continue;
      }
      if (open) yield open;
      open = { from, to };
      marks = 1;
    }
    if (open) yield open;
  }

  /** Where in a stretch a category is, in an order; nothing of it is elsewhere. */
  *#marks(series: number, category: number, { from, to }: Stretch, order: Range['order']): Generator<Stretch> {
    const { marksBelow, marksAbove } = this.#statements;
    const clip = (mark: Stretch) => ({ from: Math.max(mark.from, from), to: Math.min(mark.to, to) });
    if (order === 'desc') {
      for (let bound = to; ; ) {
        const marks = marksBelow.all({ series, category, bound, limit: marksAtOnce });
        for (const mark of marks) {
          if (mark.to <= from) return;
          yield clip(mark);
          bound = mark.from;
        }
        if (marks.length < marksAtOnce) return;
      }
    }
    const [begun] = marksBelow.all({ series, category, bound: from + 1, limit: 1 });
    if (begun && begun.to > from && from < to) yield clip(begun);
    for (let bound = from; ; ) {
      const marks = marksAbove.all({ series, category, bound, limit: marksAtOnce });
      for (const mark of marks) {
        if (mark.from >= to) return;
        yield clip(mark);
        bound = mark.from;
      }
      if (marks.length < marksAtOnce) return;
    }
  }
}

/** A sum, or a part of one; its category is still a number. */
type Part = Omit<Sum, 'category'> & { category: number };

const noPoints = { count: 0, numbers: 0, sum: null, min: null, max: null, first: null, last: null };

function toPart([bucket, category, count, numbers, sum, min, max]: SumRow, ends: Ends): Part {
  return { bucket, category, count, numbers, sum, min, max, ...ends };
}

function addTo(part: Part, number: number | null): void {
  part.count += 1;
  if (number === null) return;
  part.numbers += 1;
  part.sum = (part.sum ?? 0) + number;
  part.min = Math.min(part.min ?? number, number);
  part.max = Math.max(part.max ?? number, number);
  part.first ??= number;
  part.last = number;
}

/** What of a range is left behind its cursor. */
function restOf({ from, to, order, after }: Range): Stretch {
  if (!after) return { from, to };
  return order === 'asc' ? { from: Math.max(from, after.time), to } : { from, to: Math.min(to, after.time + 1) };
}

/** The bucket in which a time lies. */
function bucketAt(edges: readonly number[], time: number): number {
  let low = 0;
  let high = edges.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((edges[middle] ?? Number.POSITIVE_INFINITY) <= time) low = middle;
    else high = middle;
  }
  return low;
}

/** The columns of a SumRow behind bucket and category. */
function sumColumns(wanted: readonly Aggregate[]): string {
  const timeOfNumber = 'CASE WHEN p."number" IS NOT NULL THEN p."time" END';
  const one = (name: Aggregate, column: string) => (wanted.includes(name) ? column : 'NULL');
  return `count(*) AS "count", count(p."number") AS "numbers", sum(p."number") AS "sum",
    ${one('min', 'min(p."number")')} AS "min", ${one('max', 'max(p."number")')} AS "max",
    ${one('first', `min(${timeOfNumber})`)} AS "firstTime", ${one('last', `max(${timeOfNumber})`)} AS "lastTime"`;
}

interface MarksQuery {
  series: number;
  category: number;
  bound: number;
  limit: number;
}
interface Place extends Cursor {
  series: number;
}
type SkipQuery = Place & { bound: number; rows: number };
type PointsQuery = Place & { category: number; stopTime: number; stopSequence: number; limit: number };

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
    number: reader
      .prepare<[number, number, number, number], number>(
        `SELECT "number" FROM (
           SELECT "number", "category" FROM "points" WHERE "series" = ? AND "time" = ? ORDER BY "sequence" ${order} LIMIT ?
         ) WHERE "category" = ? AND "number" IS NOT NULL LIMIT 1`,
      )
      .pluck(),
  });
  // The buckets are the outer loop, so that what is grouped by them comes in their order and nothing is sorted.
  const sums = (category: string, columns: string, more: string) =>
    reader
      .prepare<[{ series: number; category?: number }], SumRow>(
        `SELECT b."id" AS "bucket", ${category} AS "category", ${columns} FROM temp."buckets" b CROSS JOIN "points" p
       ON p."series" = @series AND p."time" >= b."from" AND p."time" < b."to" ${more}`,
      )
      .raw();
  const prepareSums = (columns: string) => ({
    ofCategory: sums('@category', columns, 'WHERE p."category" = @category GROUP BY b."id"'),
    ofAll: sums('p."category"', columns, 'GROUP BY b."id", p."category"'),
  });
  const summing = new Map<string, ReturnType<typeof prepareSums>>();
  return {
    asc: inOrder('>', '<=', '<', 'ASC'),
    desc: inOrder('<', '>=', '>=', 'DESC'),
    skipTime: reader
      .prepare<[{ series: number; from: number; bound: number; rows: number }], number>(
        `SELECT "time" FROM "points" WHERE "series" = @series AND "time" >= @from AND "time" < @bound
         ORDER BY "time" LIMIT 1 OFFSET @rows`,
      )
      .pluck(),
    pointsAt: reader
      .prepare<[number, number, number, number], [sequence: number, category: number, number: number | null]>(
        `SELECT "sequence", "category", "number" FROM "points" WHERE "series" = ? AND "time" = ? AND "sequence" > ?
         ORDER BY "sequence" LIMIT ?`,
      )
      .raw(),
    numbers: reader
      .prepare<[{ series: number }], [bucket: number, category: number, number: number]>(
        `SELECT b."id", p."category", p."number" FROM temp."buckets" b CROSS JOIN "points" p
         ON p."series" = @series AND p."time" >= b."from" AND p."time" < b."to" WHERE p."number" IS NOT NULL
         ORDER BY b."id", p."time", p."sequence"`,
      )
      .raw(),
    clearBuckets: reader.prepare('DELETE FROM temp."buckets"'),
    addBucket: reader.prepare<[number, number, number]>('INSERT INTO temp."buckets" VALUES (?, ?, ?)'),
    /** The statements for some aggregates, which look at nothing that is not asked for. */
    summing: (wanted: readonly Aggregate[]) => {
      const columns = sumColumns(wanted);
      const known = summing.get(columns) ?? prepareSums(columns);
      summing.set(columns, known);
      return known;
    },
    text: reader.prepare<[number], string>('SELECT "text" FROM "categories" WHERE "id" = ?').pluck(),
    nextCategory: reader
      .prepare<[number, number], number>(
        `SELECT "category" FROM "categoryMarks" WHERE "series" = ? AND "category" > ? ORDER BY "category" LIMIT 1`,
      )
      .pluck(),
    marksBelow: reader.prepare<[MarksQuery], Stretch>(
      `SELECT "from", "to" FROM "categoryMarks" WHERE "series" = @series AND "category" = @category AND "from" < @bound
       ORDER BY "from" DESC LIMIT @limit`,
    ),
    marksAbove: reader.prepare<[MarksQuery], Stretch>(
      `SELECT "from", "to" FROM "categoryMarks" WHERE "series" = @series AND "category" = @category AND "from" > @bound
       ORDER BY "from" LIMIT @limit`,
    ),
  };
}
