import { type Kysely, sql } from 'kysely';
import { executeAll } from './execute.ts';

const texts = ['serialNumber', 'firmwareVersion'];
const kinds = ['deviceTemplateId', 'organizationId', 'provisioningState'];

const table = `CREATE TABLE "deviceListCounts" (
  "accountId" TEXT NOT NULL,
  "question" TEXT NOT NULL,
  ${[...texts, ...kinds].map((name) => `"${name}" TEXT,`).join(' ')}
  "connected" INTEGER,
  "through" TEXT NOT NULL,
  "count" INTEGER NOT NULL,
  PRIMARY KEY ("accountId", "question")
) STRICT, WITHOUT ROWID`;

/** As `contains` of db/registry/text.ts folds it. */
const folded = (value: string) =>
  `CASE WHEN octet_length(${value}) > length(${value}) THEN fold(${value}) ELSE lower(${value}) END`;
const connectedOf = (row: string) =>
  `coalesce((SELECT p."connected" FROM "devicePresence" AS p WHERE p."row" = ${row}."row"), 0)`;

/** A column of the table: devices have columns of the same names. */
const asked = (name: string) => `"deviceListCounts"."${name}"`;
const isOr = (name: string, condition: string) => `(${asked(name)} IS NULL OR ${condition})`;

/** Whether a live device is counted by a row of the table, whatever its connection is: null is not asked for. */
const matches = (row: string) =>
  [
    `${asked('accountId')} = ${row}."accountId" AND ${row}."deleted" IS NULL AND ${row}."created" <= ${asked('through')}`,
    ...kinds.map((name) => isOr(name, `${asked(name)} = coalesce(${row}."${name}", '')`)),
    ...texts.map((name) => isOr(name, `instr(${folded(`${row}."${name}"`)}, ${asked(name)}) > 0`)),
  ].join(' AND ');
const count = (row: string, step: '+ 1' | '- 1') =>
  `UPDATE "deviceListCounts" SET "count" = "count" ${step}
   WHERE ${matches(row)} AND ${isOr('connected', `${asked('connected')} = ${connectedOf(row)}`)};`;

/** A device becomes connected, or is not any more. */
const recount = (row: string, connected: string) =>
  `UPDATE "deviceListCounts" SET "count" = "count" + iif(${asked('connected')} = ${connected}, 1, -1) FROM "devices" AS d
   WHERE d."row" = ${row}."row" AND ${asked('connected')} IS NOT NULL AND ${matches('d')};`;

const changing = [...texts, ...kinds, 'deleted'];
const triggers = [
  `CREATE TRIGGER "deviceListCounts_added" AFTER INSERT ON "devices" BEGIN ${count('new', '+ 1')} END`,
  `CREATE TRIGGER "deviceListCounts_removed" AFTER DELETE ON "devices" BEGIN ${count('old', '- 1')} END`,
  `CREATE TRIGGER "deviceListCounts_changed" AFTER UPDATE OF ${changing.map((name) => `"${name}"`)} ON "devices"
   WHEN ${changing.map((name) => `new."${name}" IS NOT old."${name}"`).join(' OR ')}
   BEGIN ${count('old', '- 1')} ${count('new', '+ 1')} END`,
  `CREATE TRIGGER "deviceListCounts_connected" AFTER INSERT ON "devicePresence" WHEN new."connected" = 1
   BEGIN ${recount('new', '1')} END`,
  `CREATE TRIGGER "deviceListCounts_reconnected" AFTER UPDATE OF "connected" ON "devicePresence"
   WHEN new."connected" <> old."connected" BEGIN ${recount('new', 'new."connected"')} END`,
  `CREATE TRIGGER "deviceListCounts_forgotten" AFTER DELETE ON "devicePresence" WHEN old."connected" = 1
   BEGIN ${recount('old', '0')} END`,
];

/**
 * One table keeps the counts of expensive lists, whatever they ask of text, place, template, state and connection. The
 * former one kept those of one text. Its part in the triggers of devices goes.
 */
export const name = '0025-list-counts';

/** Counted again when a list is asked for. */
export const mayLose = ['deviceTextCounts'];

export async function up(db: Kysely<unknown>): Promise<void> {
  const { rows } = await sql<{ name: string; sql: string }>`
    SELECT "name", "sql" FROM "sqlite_schema" WHERE "type" = 'trigger' AND "sql" LIKE '%deviceTextCounts%'`.execute(db);
  const former = rows.flatMap((trigger) => [
    `DROP TRIGGER "${trigger.name}"`,
    trigger.sql.replaceAll(/UPDATE "deviceTextCounts"[^;]*;/g, ''),
  ]);
  await executeAll(db, [...former, 'DROP TABLE "deviceTextCounts"', table, ...triggers]);
}
