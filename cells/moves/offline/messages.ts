/** messages.db of accounts that move: points, logs, MQTT sessions, retained messages, the outbox. */
import type Sqlite from 'better-sqlite3';
import { fillTable } from '../account-contents.ts';
import { messageRules, type Offsets, pointRules, type TableRule } from '../tables.ts';
import { compare, copyRows, inTransaction, openForMove, removeRows, type Sums } from './rows.ts';

/** Points of one transaction, about. */
const pointsAtOnce = 100_000;

/**
 * Copies the rows of the accounts, with numbers that are free in the file at `path`, and compares them. `onPoints` is told
 * when the points are there and the rest is not.
 */
export function copyMessages(
  path: string,
  source: string,
  { accounts, bridges, onPoints }: { accounts: readonly string[]; bridges: readonly string[]; onPoints(): void },
): Sums {
  const file = openForMove(path, accounts, source);
  try {
    fillTable(file, 'movingBridges', bridges);
    const offsets = reserve(file);
    mapCategories(file);
    // Before their points, which would belong to nobody if the copy ended between: they are found by their series.
    const isSeries = ({ table }: TableRule) => table === 'series';
    const copyAll = (rules: TableRule[]) =>
      inTransaction(file, () => {
        for (const rule of rules) copyRows(file, rule, offsets);
      });
    copyAll(messageRules.filter(isSeries));
    eachSeries(file, 'source', (series) => {
      let copied = 0;
      for (const rule of pointRules) copied += copyRows(file, rule, offsets, `t."series" = ${series}`);
      return copied;
    });
    onPoints();
    // Parents first: triggers find the account of a subscription by its session.
    copyAll(messageRules.filter((rule) => !isSeries(rule)).toReversed());
    return compare(file, [...pointRules, ...messageRules], offsets);
  } finally {
    file.close();
  }
}

/** Removes all rows of the accounts; broken off, it can be called again. */
export function removeMessages(path: string, accounts: readonly string[], bridges: readonly string[]): void {
  const file = openForMove(path, accounts);
  try {
    fillTable(file, 'movingBridges', bridges);
    eachSeries(file, 'main', (series) => {
      let removed = 0;
      for (const rule of pointRules) removed += removeRows(file, rule, `"series" = ${series}`);
      return removed;
    });
    inTransaction(file, () => {
      for (const rule of messageRules) removeRows(file, rule);
    });
  } finally {
    file.close();
  }
}

/** Works on the points of one series after the other, many in one transaction; `work` returns how many rows it was. */
function eachSeries(file: Sqlite.Database, side: 'main' | 'source', work: (series: number) => number): void {
  const all = file
    .prepare<[], number>(`SELECT "id" FROM "${side}"."series" WHERE "accountId" IN "moving" ORDER BY "id"`)
    .pluck()
    .all()
    .values();
  let isOver = false;
  while (!isOver)
    inTransaction(file, () => {
      let rows = 0;
      while (rows < pointsAtOnce) {
        const { value: series, done } = all.next();
        isOver = done === true;
        if (isOver) return;
        rows += work(series as number);
      }
    });
}

/** Finds numbers that are free, and keeps the counter of arrivals above them. */
function reserve(file: Sqlite.Database): Offsets {
  const number = (sql: string) => file.prepare<[], number | null>(sql).pluck().get() ?? undefined;
  const series = '"series" IN (SELECT "id" FROM "source"."series" WHERE "accountId" IN "moving")';
  const sessions =
    '"session" IN (SELECT "id" FROM "source"."mqttSessions" WHERE substr("clientId", 1, 36) IN "moving")';
  /** From the lowest number that comes to the first free one. */
  const shift = (first: number | undefined, last: number | undefined) => (last ?? 0) + 1 - (first ?? 1);
  const arrived = ['min', 'max'].map((which) =>
    number(`SELECT ${which}("n") FROM (
      SELECT ${which}("sequence") AS "n" FROM "source"."points" WHERE ${series}
      UNION ALL SELECT ${which}("sequence") FROM "source"."latePoints" WHERE ${series}
      UNION ALL SELECT ${which}("sequence") FROM "source"."logs" WHERE "accountId" IN "moving"
      UNION ALL SELECT ${which}("first") FROM "source"."arrivals" WHERE "accountId" IN "moving"
      UNION ALL SELECT ${which}("sequence") FROM "source"."outbox" WHERE "accountId" IN "moving"
        OR ("accountId" = '' AND "bridgeId" IN "movingBridges"))`),
  );
  const counter = number(`SELECT max("n") FROM (
    SELECT "value" AS "n" FROM "main"."counters" WHERE "name" = 'sequence'
    UNION ALL SELECT max("sequence") FROM "main"."logs" UNION ALL SELECT max("sequence") FROM "main"."outbox")`);
  const sequence = shift(arrived[0], counter);
  file
    .prepare(`UPDATE "main"."counters" SET "value" = max("value", ?) WHERE "name" = 'sequence'`)
    .run((arrived[1] ?? 0) + sequence);
  return {
    sequence,
    series: shift(
      number('SELECT min("id") FROM "source"."series" WHERE "accountId" IN "moving"'),
      number('SELECT max("id") FROM "main"."series"'),
    ),
    session: shift(
      number('SELECT min("id") FROM "source"."mqttSessions" WHERE substr("clientId", 1, 36) IN "moving"'),
      number('SELECT max("id") FROM "main"."mqttSessions"'),
    ),
    message: shift(
      number(`SELECT min("message") FROM "source"."mqttQueue" WHERE ${sessions}`),
      number(
        'SELECT max("n") FROM (SELECT max("id") AS "n" FROM "main"."mqttMessages" UNION ALL SELECT max("message") FROM "main"."mqttQueue")',
      ),
    ),
  };
}

/** Categories are texts that all series share: those that come are added, and every number has its own here. */
function mapCategories(file: Sqlite.Database): void {
  const used = `SELECT "text", CASE WHEN "accountId" IN "moving" THEN "accountId" ELSE '' END FROM "source"."categories" WHERE "id" IN (SELECT "category" FROM "source"."categoryMarks"
    WHERE "series" IN (SELECT "id" FROM "source"."series" WHERE "accountId" IN "moving"))`;
  file.exec(`
    INSERT OR IGNORE INTO "main"."categories" ("text", "accountId") ${used};
    CREATE TEMP TABLE "movedCategories" ("source" INTEGER NOT NULL PRIMARY KEY, "target" INTEGER NOT NULL);
    INSERT INTO "temp"."movedCategories" SELECT s."id", m."id"
      FROM "source"."categories" AS s JOIN "main"."categories" AS m ON m."text" = s."text"`);
}
