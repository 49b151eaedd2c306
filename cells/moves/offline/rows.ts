/** Rows of accounts from one file to another of the same schema, by SQL alone: nothing of them is held in memory. */
import { crc32 } from 'node:zlib';
import type Sqlite from 'better-sqlite3';
import { openWriter } from '../../../db/sqlite/open.ts';
import { fillTable } from '../account-contents.ts';
import type { Offsets, TableRule } from '../tables.ts';

/** Rows and their checksum, by table. */
export type Sums = Record<string, { rows: number; checksum: number }>;
type Side = 'main' | 'source';

/** Sums stay exact in a number. */
const modulus = 2 ** 48;

/** Opens the file at `path`, with `source` attached under that name. "moving" has the accounts. */
export function openForMove(path: string, accounts: readonly string[], source?: string): Sqlite.Database {
  const file = openWriter(path);
  if (source !== undefined) file.prepare('ATTACH ? AS "source"').run(source);
  file.aggregate('checksum', {
    start: 0,
    varargs: true,
    deterministic: true,
    step: (sum: number, ...values: unknown[]) =>
      (sum +
        crc32(JSON.stringify(values.map((value) => (Buffer.isBuffer(value) ? value.toString('base64') : value))))) %
      modulus,
  });
  fillTable(file, 'moving', accounts);
  return file;
}

/** Runs `work` in one transaction; references between rows are checked at its end. */
export function inTransaction<R>(file: Sqlite.Database, work: () => R): R {
  return file.transaction(() => {
    file.pragma('defer_foreign_keys = ON');
    return work();
  })();
}

/** Copies the rows of a table from the source; `more` narrows them. */
export function copyRows(file: Sqlite.Database, rule: TableRule, offsets: Offsets, more = 'TRUE'): number {
  if (rule.left !== undefined) return 0;
  const columns = columnsOf(file, rule);
  const order = rule.omit === undefined ? '' : ` ORDER BY t."${rule.omit}"`;
  return file
    .prepare(
      `INSERT INTO "main"."${rule.table}" (${quoted(columns)})
       SELECT ${expressions(rule, columns, offsets)} FROM "source"."${rule.table}" AS t
       WHERE ${condition(rule, 'source')} AND ${more}${order}`,
    )
    .run().changes;
}

/** Removes the rows of a table; `more` narrows them. */
export function removeRows(file: Sqlite.Database, rule: TableRule, more = 'TRUE'): number {
  return file.prepare(`DELETE FROM "main"."${rule.table}" WHERE ${condition(rule, 'main')} AND ${more}`).run().changes;
}

/**
 * Counts and checksums of what was copied, as it is in the file now.
 * @throws Error naming the first table that differs from the source.
 */
export function compare(file: Sqlite.Database, rules: readonly TableRule[], offsets: Offsets): Sums {
  const sums: Sums = {};
  for (const rule of rules.filter(({ left }) => left === undefined)) {
    const columns = columnsOf(file, rule);
    const sumOf = (side: Side, values: string) =>
      file
        .prepare<[], Sums[string]>(
          `SELECT count(*) AS "rows", checksum(${values}) AS "checksum" FROM "${side}"."${rule.table}" AS t
           WHERE ${condition(rule, side)}`,
        )
        .get() as Sums[string];
    const [expected, found] = [sumOf('source', expressions(rule, columns, offsets)), sumOf('main', quoted(columns))];
    if (expected.rows !== found.rows || expected.checksum !== found.checksum)
      throw new Error(
        `The copy of ${rule.table} differs: ${found.rows} rows with checksum ${found.checksum}, expected ${expected.rows} with ${expected.checksum}.`,
      );
    sums[rule.table] = found;
  }
  return sums;
}

function columnsOf(file: Sqlite.Database, { table, omit }: TableRule): string[] {
  const columns = file.prepare<[string], string>(`SELECT "name" FROM pragma_table_info(?, 'main')`).pluck().all(table);
  return columns.filter((column) => column !== omit);
}

const quoted = (columns: string[]) => columns.map((column) => `"${column}"`).join(', ');

function expressions({ to = {} }: TableRule, columns: string[], offsets: Offsets): string {
  const numbers = Object.entries(offsets);
  return columns
    .map((column) =>
      numbers.reduce((sql, [name, offset]) => sql.replaceAll(`:${name}`, `(${offset})`), to[column] ?? `t."${column}"`),
    )
    .join(', ');
}

function condition({ where }: TableRule, side: Side): string {
  return where.replaceAll('@', `"${side}".`);
}
