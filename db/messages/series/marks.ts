/**
 * Where in a series a category is, so that a rare one is found without reading the others. A mark is a stretch of time, about as
 * long as a hundred points take; every point lies in one of its series and category, and those of one pair do not overlap.
 */
import type Sqlite from 'better-sqlite3';
import { boundedCache } from '../../sqlite/cache.ts';

/** About how many points of a series a mark is long. */
const markPoints = 128;
/** Points over which the pace of a series is taken: 8 at first, so that a new one soon has marks of some length. */
const window = { first: 8, last: 64 };
/** Points of one moment that count for the pace: a message of thousands is still worth a mark of several messages. */
const countedOfMoment = 16;
/** Milliseconds; 35 years. */
const maxMark = 2 ** 40;
const seriesKept = 20_000;
/** Open marks that are remembered: of a series more than the categories of the longest message, and of all series. */
const openOfSeries = 8192;
const openOfAll = 200_000;
/** Open marks that are ended at once when points come faster; where there are more, each covers few points of its own. */
const endedAtOnce = 256;

interface Mark {
  from: number;
  to: number;
}

/** A mark that points have gone into; `last` is the latest of them when all of them are known. */
interface OpenMark extends Mark {
  last: number | undefined;
}

/** The state of a series: the distance of its marks, the rate of its points, their storage. */
interface Course {
  length: number;
  former: number;
  since: number;
  last: number;
  /** Points of the time `last`. */
  ofMoment: number;
  count: number;
  window: number;
  /** No category above this one has a mark. */
  highest: number;
  open: Map<number, OpenMark>;
}

/** The marks as points are written, inside the writer's transactions. */
export class SeriesMarks {
  readonly #statements: ReturnType<typeof prepare>;
  readonly #courses = boundedCache<number, Course>(seriesKept);
  /** Open marks of all courses. */
  #opened = 0;

  constructor(file: Sqlite.Database) {
    this.#statements = prepare(file);
  }

  /** Before or after a point is written; `time` in milliseconds. One that is added again does not count for the pace. */
  add(series: number, category: number, time: number, isAgain = false): void {
    const course = this.#courses.get(series) ?? this.#beginCourse(series);
    if (!isAgain) this.#pace(series, course, time);
    const mark = course.open.get(category);
    if (!mark || time < mark.from || time >= mark.to) this.#open(series, category, course, time);
    else if (mark.last !== undefined && time > mark.last) mark.last = time;
  }

  /** Removes the marks in which no point can be left, when those before a time (milliseconds) have been removed. */
  forgetBefore(series: number, before: number): void {
    const { nextCategory, removeBefore } = this.#statements;
    let category = nextCategory.get(series, 0);
    for (; category !== undefined; category = nextCategory.get(series, category))
      removeBefore.run(series, category, before, before);
    this.#opened -= this.#courses.get(series)?.open.size ?? 0;
    this.#courses.delete(series);
  }

  /** Forgets the changes of this transaction. */
  clear(): void {
    this.#courses.clear();
    this.#opened = 0;
  }

  #beginCourse(series: number): Course {
    const known = this.#statements.last.get(series);
    const length = powerBelow(known?.length ?? 1);
    const former = known ? length : maxMark;
    const pace = { since: 0, last: 0, ofMoment: 0, count: 0, window: window.first };
    const course = { length, former, ...pace, highest: known?.category ?? 0, open: new Map() };
    if (this.#courses.size >= seriesKept) this.#leaveOne();
    this.#courses.set(series, course);
    return course;
  }

  /** Forgets the series that has had no points for longest. */
  #leaveOne(): void {
    this.#opened -= this.#courses.pop()?.open.size ?? 0;
  }

  /** The shorter of two stretches counts: a pause says nothing, and neither does a point that comes late. */
  #pace(series: number, course: Course, time: number): void {
    course.ofMoment = time === course.last ? course.ofMoment + 1 : 1;
    if (course.ofMoment > countedOfMoment) return;
    if (time < course.last) course.count = 0;
    if (course.count === 0) course.since = time;
    course.count += 1;
    course.last = time;
    if (course.count < course.window) return;
    const taken = powerBelow(((time - course.since) * markPoints) / course.window);
    course.count = 0;
    course.window = Math.min(window.last, 2 * course.window);
    const length = Math.min(taken, course.former);
    course.former = taken;
    if (length > 2 * course.length) course.length = length;
    else if (length < course.length / 2) this.#shorten(series, course, length);
  }

  /** Open marks end where they are: what follows would lie too close in them. */
  #shorten(series: number, course: Course, length: number): void {
    course.length = length;
    if (course.open.size > endedAtOnce) return;
    for (const [category, { from, to, last }] of course.open)
      if (last !== undefined && last + 1 < to) this.#statements.end.run(last + 1, series, category, from);
    this.#forgetOpen(course);
  }

  #forgetOpen({ open }: Course): void {
    this.#opened -= open.size;
    open.clear();
  }

  #open(series: number, category: number, course: Course, time: number): void {
    const { length, open } = course;
    if (!open.has(category)) {
      if (open.size >= openOfSeries) this.#forgetOpen(course);
      while (this.#opened >= openOfAll && this.#courses.size > 1) this.#leaveOne();
      this.#opened += 1;
    }
    const { before, after, add } = this.#statements;
    const isNew = category > course.highest;
    if (isNew) course.highest = category;
    const former = isNew ? undefined : before.get(series, category, time);
    if (former && time < former.to) {
      open.set(category, { ...former, last: undefined });
      return;
    }
    const start = startOf(category, length, time);
    const from = Math.max(start, former?.to ?? start);
    const next = isNew ? undefined : after.get(series, category, time);
    const to = Math.min(start + length, next ?? Number.POSITIVE_INFINITY);
    add.run(series, category, from, to);
    open.set(category, { from, to, last: time });
  }
}

/** Where a mark begins. Each category has its own offset, so that thousands that come together do not all need a mark at once. */
function startOf(category: number, length: number, time: number): number {
  const offset = Math.floor(((Math.imul(category, 0x9e3779b1) >>> 0) / 2 ** 32) * length);
  return Math.floor((time - offset) / length) * length + offset;
}

function powerBelow(length: number): number {
  return Math.min(maxMark, 2 ** Math.floor(Math.log2(Math.max(1, length))));
}

function prepare(file: Sqlite.Database) {
  return {
    last: file.prepare<[number], { category: number; length: number }>(
      `SELECT "category", "to" - "from" AS "length" FROM "categoryMarks" WHERE "series" = ?
       ORDER BY "category" DESC, "from" DESC LIMIT 1`,
    ),
    before: file.prepare<[number, number, number], Mark>(
      `SELECT "from", "to" FROM "categoryMarks" WHERE "series" = ? AND "category" = ? AND "from" <= ?
       ORDER BY "from" DESC LIMIT 1`,
    ),
    after: file
      .prepare<[number, number, number], number>(
        `SELECT "from" FROM "categoryMarks" WHERE "series" = ? AND "category" = ? AND "from" > ? ORDER BY "from" LIMIT 1`,
      )
      .pluck(),
    add: file.prepare<[number, number, number, number]>('INSERT INTO "categoryMarks" VALUES (?, ?, ?, ?)'),
    end: file.prepare<[number, number, number, number]>(
      'UPDATE "categoryMarks" SET "to" = ? WHERE "series" = ? AND "category" = ? AND "from" = ?',
    ),
    nextCategory: file
      .prepare<[number, number], number>(
        `SELECT "category" FROM "categoryMarks" WHERE "series" = ? AND "category" > ? ORDER BY "category" LIMIT 1`,
      )
      .pluck(),
    removeBefore: file.prepare<[number, number, number, number]>(
      `DELETE FROM "categoryMarks" WHERE "series" = ? AND "category" = ? AND "from" < ? AND "to" <= ?`,
    ),
  };
}
