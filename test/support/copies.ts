/** Many rows like one that the API has made. */
import { join } from 'node:path';
import type Sqlite from 'better-sqlite3';
import { openSqlite } from '../../db/sqlite/open.ts';
import { until } from './until.ts';

export type StoredValues = Record<string, string | number | null | Uint8Array>;

/** Rows like the one of `table` that `where` finds, in one transaction; `changes` says what each has of its own. */
export function copyRows(
  file: Sqlite.Database,
  table: string,
  where: StoredValues,
  rows: number,
  changes: (n: number) => StoredValues,
): void {
  const conditions = Object.keys(where).map((name) => `"${name}" = @${name}`);
  const first = file.prepare(`SELECT * FROM "${table}" WHERE ${conditions.join(' AND ')}`).get(where) as StoredValues;
  const { row, sequence, ...rest } = first;
  const base: StoredValues = table === 'jobRows' ? { ...rest, row: row ?? 0 } : rest;
  const names = Object.keys(base);
  const insert = file.prepare(
    `INSERT INTO "${table}" (${names.map((name) => `"${name}"`)}) VALUES (${names.map((name) => `@${name}`)})`,
  );
  file.transaction(() => {
    for (let n = 0; n < rows; n += 1) insert.run({ ...base, ...changes(n) });
  })();
}

/** The same in a database of a service that runs, without a look at foreign keys. */
export async function copyStored(
  { directory }: { directory: string },
  table: string,
  where: StoredValues,
  rows: number,
  changes: (n: number) => StoredValues,
  database = 'registry.db',
): Promise<void> {
  const file = openSqlite(join(directory, database));
  file.pragma('foreign_keys = OFF');
  file.pragma('busy_timeout = 0');
  // A transaction of the service ends only when this thread goes on.
  await until(() => {
    try {
      copyRows(file, table, where, rows, changes);
      return true;
    } catch (error) {
      if ((error as { code?: string }).code !== 'SQLITE_BUSY') throw error;
      return false;
    }
  }).finally(() => file.close());
}
