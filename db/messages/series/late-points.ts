/**
 * Points that came after one of a later time. Every other point is the last of its series by time when it comes, so that
 * who asks what came since finds it at the end of the series; these are listed for that. Inside the writer's transactions.
 */
import type Sqlite from 'better-sqlite3';
import { boundedCache } from '../../sqlite/cache.ts';
import { maxMissed } from './missed.ts';

/** Points by which the list of a series may be longer than anybody is sent. */
const slack = 2000;
const seriesKept = 50_000;

interface Course {
  /** Time of the last point by time, in milliseconds. */
  newest: number;
  /** Points listed since it was last looked at how many there are. */
  added: number;
}

export class LatePoints {
  readonly #statements: ReturnType<typeof prepare>;
  readonly #courses = boundedCache<number, Course>(seriesKept);

  constructor(file: Sqlite.Database) {
    this.#statements = prepare(file);
  }

  /** Before a point is written; `time` in milliseconds. */
  add(series: number, time: number, sequence: number): void {
    const course = this.#courses.get(series) ?? this.#beginCourse(series);
    if (time >= course.newest) {
      course.newest = time;
      return;
    }
    this.#statements.add.run(series, sequence, time);
    course.added += 1;
    if (course.added >= slack) this.#trim(series, course);
  }

  /** When the points of a series before a time (milliseconds) have been removed. */
  forgetBefore(series: number, before: number): void {
    this.#statements.removeBefore.run(series, before);
    this.#courses.delete(series);
  }

  /** Forgets the changes of this transaction. */
  clear(): void {
    this.#courses.clear();
  }

  #beginCourse(series: number): Course {
    const course = { newest: this.#statements.newest.get(series) ?? Number.NEGATIVE_INFINITY, added: slack - 1 };
    this.#courses.set(series, course);
    return course;
  }

  #trim(series: number, course: Course): void {
    const { beyond, removeUpTo, keepAfter } = this.#statements;
    course.added = 0;
    const last = beyond.get(series);
    if (last === undefined) return;
    removeUpTo.run(series, last);
    keepAfter.run(last, series);
  }
}

function prepare(file: Sqlite.Database) {
  return {
    newest: file
      .prepare<[number], number>('SELECT "time" FROM "points" WHERE "series" = ? ORDER BY "time" DESC LIMIT 1')
      .pluck(),
    add: file.prepare<[number, number, number]>('INSERT INTO "latePoints" VALUES (?, ?, ?)'),
    beyond: file
      .prepare<[number], number>(
        `SELECT "sequence" FROM "latePoints" WHERE "series" = ? ORDER BY "sequence" DESC LIMIT 1 OFFSET ${maxMissed}`,
      )
      .pluck(),
    removeUpTo: file.prepare<[number, number]>('DELETE FROM "latePoints" WHERE "series" = ? AND "sequence" <= ?'),
    removeBefore: file.prepare<[number, number]>('DELETE FROM "latePoints" WHERE "series" = ? AND "time" < ?'),
    keepAfter: file.prepare<[number, number]>('UPDATE "series" SET "lateAfter" = ? WHERE "id" = ?'),
  };
}
