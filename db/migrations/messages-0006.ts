import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

/**
 * Where in a series a category is (series-marks.ts): every point lies in a mark of its series and category, and the marks
 * of one pair do not overlap. A series that is removed takes what is left of its marks along.
 */
const statements = [
  `CREATE TABLE "categoryMarks" (
    "series" INTEGER NOT NULL,
    "category" INTEGER NOT NULL,
    "from" INTEGER NOT NULL,
    "to" INTEGER NOT NULL,
    PRIMARY KEY ("series", "category", "from")
  ) WITHOUT ROWID, STRICT`,
  `INSERT INTO "categoryMarks" SELECT "series", "category", min("time"), max("time") + 1 FROM "points"
   GROUP BY "series", "category", "time" / 600000, "time" < 0`,
  `CREATE TRIGGER "series_marks" AFTER DELETE ON "series" BEGIN
     DELETE FROM "categoryMarks" WHERE "series" = OLD."id";
   END`,
];

export const name = 'messages-0006';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
