import type { Kysely } from 'kysely';
import { executeAll } from './execute.ts';

const columns = ['serialNumber', 'firmwareVersion'];
type Row = 'new' | 'old';

/** As `contains` of db/registry/text.ts folds it; `fold` is a function of ours on every connection. */
const folded = (value: string) =>
  `CASE WHEN octet_length(${value}) > length(${value}) THEN fold(${value}) ELSE lower(${value}) END`;

/** What devices are counted by: what they are, and what they are in each place ('' is outside of every organization). */
const kinds = ['deviceTemplateId', 'provisioningState', 'connected'];
const counts = [
  { table: 'deviceCounts', names: ['accountId', ...kinds] },
  { table: 'placedDeviceCounts', names: ['accountId', 'organizationId', ...kinds] },
];
const keyOf = (name: string, row: '' | 'new.' | 'old.') =>
  name === 'organizationId' ? `coalesce(${row}"organizationId", '')` : `${row}"${name}"`;

const add = counts
  .map(
    ({ table, names }) =>
      `INSERT INTO "${table}" SELECT ${names.map((name) => keyOf(name, 'new.'))}, 1 WHERE new."deleted" IS NULL
       ON CONFLICT DO UPDATE SET "count" = "count" + 1;`,
  )
  .join('\n');
const subtract = counts
  .map(({ table, names }) => {
    const same = names.map((name) => `"${name}" = ${keyOf(name, 'old.')}`).join(' AND ');
    return `UPDATE "${table}" SET "count" = "count" - 1 WHERE ${same} AND old."deleted" IS NULL;
      DELETE FROM "${table}" WHERE ${same} AND "count" = 0;`;
  })
  .join('\n');

/** Changes the kept counts of texts that a row contains in a column. */
const countText = (row: Row, column: string, step: '+ 1' | '- 1') =>
  `UPDATE "deviceTextCounts" SET "count" = "count" ${step}
   WHERE "accountId" = ${row}."accountId" AND "column" = '${column}' AND ${row}."deleted" IS NULL
     AND instr(${folded(`${row}."${column}"`)}, "pattern") > 0;`;
const padded = (value: string) => `${folded(value)} || char(1, 1)`;
const index = (column: string) =>
  `${countText('new', column, '+ 1')}
   INSERT INTO "devices_${column}_text" (rowid, "text") SELECT new."row", ${padded(`new."${column}"`)}
   WHERE new."deleted" IS NULL AND new."${column}" IS NOT NULL;`;
const forget = (column: string) =>
  `${countText('old', column, '- 1')} DELETE FROM "devices_${column}_text" WHERE rowid = old."row";`;
const indexAll = columns.map(index).join('\n');
const forgetAll = columns.map(forget).join('\n');

const counted = [...kinds, 'organizationId'];
const differs = counted.map((name) => `new."${name}" IS NOT old."${name}"`).join(' OR ');
const stays = 'new."deleted" IS NULL AND old."deleted" IS NULL';

const former = ['added', 'removed', 'trashed', ...counted, 'text'];
const statements = [
  ...former.map((trigger) => `DROP TRIGGER "devices_${trigger}"`),
  'DROP TABLE "deviceCounts"',
  'DROP TABLE "devicesText"',
  ...counts.flatMap(({ table, names }) => [
    `CREATE TABLE "${table}" (
      ${names.map((name) => `"${name}" ${name === 'connected' ? 'INTEGER' : 'TEXT'} NOT NULL`)},
      "count" INTEGER NOT NULL,
      PRIMARY KEY (${names.map((name) => `"${name}"`)})
    ) STRICT, WITHOUT ROWID`,
    `INSERT INTO "${table}" SELECT ${names.map((name) => keyOf(name, ''))}, count(*) FROM "devices"
     WHERE "deleted" IS NULL GROUP BY ${names.map((_, n) => n + 1)}`,
  ]),
  `CREATE TABLE "deviceTextCounts" (
    "accountId" TEXT NOT NULL,
    "column" TEXT NOT NULL,
    "pattern" TEXT NOT NULL,
    "count" INTEGER NOT NULL,
    PRIMARY KEY ("accountId", "column", "pattern")
  ) STRICT, WITHOUT ROWID`,
  ...columns.flatMap((column) => [
    `CREATE VIRTUAL TABLE "devices_${column}_text"
     USING fts5("text", tokenize = 'trigram case_sensitive 1', content = '', contentless_delete = 1)`,
    `CREATE VIRTUAL TABLE "devices_${column}_terms" USING fts5vocab("devices_${column}_text", 'instance')`,
    `INSERT INTO "devices_${column}_text" (rowid, "text") SELECT "row", ${padded(`"${column}"`)} FROM "devices"
     WHERE "deleted" IS NULL AND "${column}" IS NOT NULL`,
    `CREATE TRIGGER "devices_${column}" AFTER UPDATE OF "${column}" ON "devices"
     WHEN new."${column}" IS NOT old."${column}" AND ${stays} BEGIN ${forget(column)} ${index(column)} END`,
  ]),
  `CREATE TRIGGER "devices_added" AFTER INSERT ON "devices" BEGIN ${add} ${indexAll} END`,
  `CREATE TRIGGER "devices_removed" AFTER DELETE ON "devices" BEGIN ${subtract} ${forgetAll} END`,
  `CREATE TRIGGER "devices_trashed" AFTER UPDATE OF "deleted" ON "devices"
   WHEN new."deleted" IS NOT old."deleted" BEGIN ${subtract} ${forgetAll} ${add} ${indexAll} END`,
  `CREATE TRIGGER "devices_counted" AFTER UPDATE OF ${counted.map((name) => `"${name}"`)} ON "devices"
   WHEN (${differs}) AND ${stays} BEGIN ${subtract} ${add} END`,
];

/**
 * Lists of devices by a part of a text, ignoring case for all letters (an index for each column, which knows a text of one
 * letter too; counts of texts that are found often), and counts for every combination of the columns with few values.
 */
export const name = '0004-text';

/** Made anew from the devices. */
export const mayLose = ['deviceCounts'];

export async function up(db: Kysely<unknown>): Promise<void> {
  await executeAll(db, statements);
}
