import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';
import { numbered, outboxSizeWithoutProperties, sorted, texts } from './row-sizes.ts';

/** How a row of a table counts; `row` is `NEW.`, `OLD.` or nothing. */
export interface Counted {
  account: (row: string) => string;
  size: (row: string) => string;
  /** A column that is written whenever the size of a row changes. */
  changed?: string;
}

const tables: Record<string, Counted> = {
  mqttSessions: {
    account: (row) => `substr(${row}"clientId", 1, 36)`,
    size: (row) => `20 + ${texts(row, 'clientId')}`,
  },
  mqttSubscriptions: {
    account: (row) => `(SELECT substr("clientId", 1, 36) FROM "mqttSessions" WHERE "id" = ${row}"session")`,
    size: (row) => sorted(`(15 + ${texts(row, 'filter')})`),
  },
  mqttMessages: {
    account: (row) => `${row}"accountId"`,
    // A place in a queue has a row of its own.
    size: (row) => `25 * ${row}"places" + ${numbered(`(60 + ${texts(row, 'topic', 'payload')})`)}`,
  },
  mqttRetained: {
    account: (row) => `${row}"accountId"`,
    size: (row) => sorted(`(45 + ${texts(row, 'topic', 'payload')})`),
    changed: 'payload',
  },
  mqttWills: {
    account: (row) => `substr(${row}"clientId", 1, 36)`,
    size: (row) => sorted(`(60 + ${texts(row, 'clientId', 'topic', 'payload')})`),
    changed: 'payload',
  },
  outbox: {
    account: (row) => `${row}"accountId"`,
    size: outboxSizeWithoutProperties,
  },
  series: { account: (row) => `${row}"accountId"`, size: () => '400' },
  categories: {
    account: (row) => `${row}"accountId"`,
    // Its text is in an index, too.
    size: (row) => `${numbered(`(45 + ${texts(row, 'text')})`)} + ${sorted(`(10 + ${texts(row, 'text')})`)}`,
  },
};

const more = (row: string, { account, size }: Counted) =>
  `INSERT INTO "heldBytes" SELECT ${account(row)}, ${size(row)} WHERE ${account(row)} <> ''
   ON CONFLICT DO UPDATE SET "bytes" = "bytes" + excluded."bytes";`;
const less = (row: string, { account, size }: Counted) =>
  `UPDATE "heldBytes" SET "bytes" = max(0, "bytes" - (${size(row)})) WHERE "accountId" = ${account(row)};`;

/** The triggers that count the rows of a table. */
export function counting([table, rule]: [string, Counted]): string[] {
  const { changed } = rule;
  return [
    `CREATE TRIGGER "${table}_held" AFTER INSERT ON "${table}" BEGIN ${more('NEW.', rule)} END`,
    `CREATE TRIGGER "${table}_dropped" AFTER DELETE ON "${table}" BEGIN ${less('OLD.', rule)} END`,
    ...(changed === undefined
      ? []
      : [
          `CREATE TRIGGER "${table}_resized" AFTER UPDATE OF "${changed}" ON "${table}"
           BEGIN ${less('OLD.', rule)} ${more('NEW.', rule)} END`,
        ]),
  ];
}

const rows = Object.entries(tables).map(
  ([table, { account, size }]) => `SELECT ${account('')} AS "accountId", ${size('')} AS "bytes" FROM "${table}"`,
);

const statements = [
  `ALTER TABLE "mqttMessages" ADD COLUMN "accountId" TEXT NOT NULL DEFAULT ''`,
  'ALTER TABLE "mqttMessages" ADD COLUMN "places" INTEGER NOT NULL DEFAULT 0',
  `UPDATE "mqttMessages" SET
     "places" = (SELECT count(*) FROM "mqttQueue" WHERE "message" = "id"),
     "accountId" = coalesce((SELECT substr(s."clientId", 1, 36) FROM "mqttQueue" q
       JOIN "mqttSessions" s ON s."id" = q."session" WHERE q."message" = "mqttMessages"."id" LIMIT 1), '')`,
  // Who brought a category first, and how many marks it has: one without marks has no points.
  `ALTER TABLE "categories" ADD COLUMN "accountId" TEXT NOT NULL DEFAULT ''`,
  'ALTER TABLE "categories" ADD COLUMN "marks" INTEGER NOT NULL DEFAULT 0',
  `UPDATE "categories" SET "marks" = m."marks"
     FROM (SELECT "category", count(*) AS "marks" FROM "categoryMarks" GROUP BY "category") AS m
     WHERE m."category" = "categories"."id"`,
  'CREATE INDEX "categories_unused" ON "categories" ("id") WHERE "marks" = 0',
  `CREATE TRIGGER "categoryMarks_added" AFTER INSERT ON "categoryMarks"
   BEGIN UPDATE "categories" SET "marks" = "marks" + 1 WHERE "id" = NEW."category"; END`,
  `CREATE TRIGGER "categoryMarks_removed" AFTER DELETE ON "categoryMarks"
   BEGIN UPDATE "categories" SET "marks" = "marks" - 1 WHERE "id" = OLD."category"; END`,
  `CREATE TABLE "heldBytes" (
     "accountId" TEXT NOT NULL PRIMARY KEY,
     "bytes" INTEGER NOT NULL
   ) WITHOUT ROWID, STRICT`,
  `INSERT INTO "heldBytes" SELECT "accountId", sum("bytes") FROM (${rows.join('\nUNION ALL ')})
   WHERE "accountId" <> '' GROUP BY "accountId"`,
  ...Object.entries(tables).flatMap(counting),
  // Log entries take more than was counted: 600 bytes instead of 240, with what their indexes take.
  'UPDATE "messageCounts" SET "bytes" = "bytes" + 360 * "logs"',
];

/**
 * How many bytes on disk, about, an account keeps besides its points and log entries; kept by triggers. Categories are removed when
 * nothing has them any more.
 */
export const name = 'messages-0015';

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
