/** Sums of a series by buckets of time and category, in steps of few rows, so that nothing else waits long. */
import type Sqlite from 'better-sqlite3';
import type { LongWork } from '../../../src/core/scheduler/long-work.ts';
import { boundedCache } from '../../sqlite/cache.ts';
import { CategoryRanges, type Stretch } from './category-ranges.ts';

/** Rows that one statement goes through at most. */
const stepRows = 2000;
/** Buckets that one statement sums up at most. */
const stepBuckets = 1000;
/** The first and last number of a sum are looked for among so many points of their millisecond, and else among all of the step. */
const rowsOfMillisecond = 16;
/** A step with so many categories is gone through once for each, which is faster than sorting its points by category. */
const maxCategoriesReadApart = 3;
/** Series of more categories are not asked which of them are in a step. */
const maxCategoriesAsked = 8;
const textsKept = 10_000;

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

/** Sums up the points of a series. */
export class SeriesSums {
  readonly #statements: ReturnType<typeof prepare>;
  readonly #marks: CategoryRanges;
  readonly #texts = boundedCache<number, string>(textsKept);

  constructor(reader: Sqlite.Database) {
    reader.exec('CREATE TEMP TABLE "buckets" ("id" INTEGER PRIMARY KEY, "from" INTEGER, "to" INTEGER)');
    this.#statements = prepare(reader);
    this.#marks = new CategoryRanges(reader);
  }

  /** Sums of several series by bucket and category, in no order; undefined when there are more than `limit`. */
  async sums(
    series: readonly number[],
    category: number | undefined,
    query: SumsQuery,
    longWork: LongWork,
  ): Promise<Sum[] | undefined> {
    /** By bucket and category. */
    const sums: SumsFound = { byKey: new Map(), times: series.length > 1 ? new Map() : undefined };
    for (const one of series) if (!(await this.#addSeries(one, category, query, longWork, sums))) return undefined;
    return [...sums.byKey.values()];
  }

  /** False when there are more than `limit`. */
  async #addSeries(
    series: number,
    category: number | undefined,
    { from, to, edges, wanted, limit }: SumsQuery,
    longWork: LongWork,
    sums: SumsFound,
  ): Promise<boolean> {
    const { ofCategory, ofAll } = this.#statements.summing(wanted);
    const categories = category === undefined ? this.#marks.categoriesOf(series, maxCategoriesAsked) : [category];
    const stretches =
      category === undefined ? [{ from, to }] : this.#marks.stretches(series, category, { from, to }, 'asc');
    for (const stretch of stretches) {
      for (let place = this.#nextTime(series, stretch); place !== undefined; ) {
        const { isOneMillisecond, ...step } = this.#fillBuckets(series, { from: place, to: stretch.to }, edges);
        if (isOneMillisecond) {
          for await (const row of this.#sumsOfMillisecond(
            series,
            step.from,
            bucketAt(edges, step.from),
            category,
            longWork,
          ))
            this.#merge(sums, row.category * edges.length + row.bucket, row, [step.from, step.from]);
          if (sums.byKey.size > limit) return false;
          place = this.#nextTime(series, { from: step.to, to: stretch.to });
          continue;
        }
        const present = categories?.filter((one) => this.#marks.has(series, one, step));
        const rows =
          present && present.length <= maxCategoriesReadApart
            ? present.flatMap((one) => ofCategory.all({ series, category: one }))
            : ofAll.all({ series });
        const endsOf = this.#endsFinder(series);
        for (const row of rows)
          this.#merge(sums, row[1] * edges.length + row[0], toPart(row, endsOf(row)), [row[7], row[8]]);
        if (sums.byKey.size > limit) return false;
        await longWork.giveWay();
        place = this.#nextTime(series, { from: step.to, to: stretch.to });
      }
    }
    return true;
  }

  /** Puts the buckets of the next step where the statements look for them; the step, which begins like the stretch. */
  #fillBuckets(
    series: number,
    { from, to }: Stretch,
    edges: readonly number[],
  ): Stretch & { isOneMillisecond: boolean } {
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
    return { from, to: end, isOneMillisecond: stop === from };
  }

  /** Sums of one millisecond that has more points than a step goes through: in parts, by category. */
  async *#sumsOfMillisecond(
    series: number,
    time: number,
    bucket: number,
    wanted: number | undefined,
    longWork: LongWork,
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
      await longWork.giveWay();
      if (rows.length < stepRows) return;
    }
  }

  /** Finds first and last numbers of the step that was filled in last. */
  #endsFinder(series: number): (row: SumRow) => Ends {
    let all: Map<string, Ends> | undefined;
    return ([bucket, category, , , , , , firstTime, lastTime]) => {
      const first =
        firstTime === null ? null : this.#statements.firstNumber.get(series, firstTime, rowsOfMillisecond, category);
      const last =
        lastTime === null ? null : this.#statements.lastNumber.get(series, lastTime, rowsOfMillisecond, category);
      if (first !== undefined && last !== undefined) return { first, last };
      all ??= this.#endsOfStep(series);
      const { first: begin, last: end } = all.get(`${bucket}/${category}`) ?? noPoints;
      return { first: firstTime === null ? null : begin, last: lastTime === null ? null : end };
    };
  }

  #endsOfStep(series: number): Map<string, Ends> {
    const all = new Map<string, Ends>();
    for (const [bucket, category, number] of this.#statements.numbers.iterate({ series })) {
      const ends = all.get(`${bucket}/${category}`);
      if (ends) ends.last = number;
      else all.set(`${bucket}/${category}`, { first: number, last: number });
    }
    return all;
  }

  /** The parts of one series come in the order of time; `at` is when its first and its last number are. */
  #merge({ byKey, times }: SumsFound, name: number, part: Part, at: Times): void {
    const former = byKey.get(name);
    if (!former) {
      byKey.set(name, { ...part, category: this.#text(part.category) });
      times?.set(name, at);
      return;
    }
    const { count, numbers, sum, min, max } = part;
    former.count += count;
    former.numbers += numbers;
    if (sum !== null) former.sum = (former.sum ?? 0) + sum;
    if (min !== null) former.min = Math.min(former.min ?? min, min);
    if (max !== null) former.max = Math.max(former.max ?? max, max);
    const known = times?.get(name) ?? [null, null];
    const isBefore = former.first === null || (times !== undefined && isEarlier(at[0], known[0]));
    if (isBefore) former.first = part.first;
    const isAfter = part.last !== null && !(times !== undefined && isEarlier(at[1], known[1]));
    if (isAfter) former.last = part.last;
    times?.set(name, [isBefore ? at[0] : known[0], isAfter ? at[1] : known[1]]);
  }

  #text(category: number): string {
    const known = this.#texts.get(category);
    if (known !== undefined) return known;
    const text = this.#statements.text.get(category) ?? '';
    this.#texts.set(category, text);
    return text;
  }

  /** When the next point of a stretch is. */
  #nextTime(series: number, { from, to }: Stretch): number | undefined {
    return this.#statements.skipTime.get({ series, from, bound: to, rows: 0 });
  }
}

/** When the first and the last number of a sum are; null without one. */
type Times = [first: number | null, last: number | null];

/** Sums by bucket and category; of several series with their times, which are in no order. */
interface SumsFound {
  byKey: Map<number, Sum>;
  times: Map<number, Times> | undefined;
}

function isEarlier(one: number | null, other: number | null): boolean {
  return one !== null && (other === null || one < other);
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

function prepare(reader: Sqlite.Database) {
  /** The first or last number of a category in a millisecond. */
  const endNumber = (order: 'ASC' | 'DESC') =>
    reader
      .prepare<[number, number, number, number], number>(
        `SELECT "number" FROM (
           SELECT "number", "category" FROM "points" WHERE "series" = ? AND "time" = ? ORDER BY "sequence" ${order} LIMIT ?
         ) WHERE "category" = ? AND "number" IS NOT NULL LIMIT 1`,
      )
      .pluck();
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
    firstNumber: endNumber('ASC'),
    lastNumber: endNumber('DESC'),
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
  };
}
