/** Many rows at once: a few statements of fixed sizes, each prepared once, instead of one for each row. */

import { CompiledQuery } from 'kysely';
import type { Tx } from './index.js';
import type { Tables } from './records.js';

/** Rows of one statement, the largest first. */
const sizes = [500, 100, 25, 5, 1];

/** The columns that are overwritten if the row already exists. */
interface Overwrite<T extends keyof Tables> {
  key: ReadonlyArray<keyof Tables[T] & string>;
  columns: ReadonlyArray<keyof Tables[T] & string>;
}

/** Inserts rows, all of which have the same properties. A row that is there already is an error, or overwritten. */
export async function insertMany<T extends keyof Tables & string>(
  tx: Tx,
  table: T,
  rows: ReadonlyArray<Tables[T]>,
  overwrite?: Overwrite<T>,
): Promise<void> {
  const [first] = rows;
  if (!first) return;
  const columns = Object.keys(first) as Array<keyof Tables[T] & string>;
  for (let from = 0; from < rows.length; ) {
    const size = sizes.find((one) => from + one <= rows.length) ?? 1;
    const values: unknown[] = [];
    for (const row of rows.slice(from, from + size)) for (const column of columns) values.push(row[column]);
    await tx.executeQuery(CompiledQuery.raw(statementFor(table, columns, size, overwrite), values));
    from += size;
  }
}

/** Statements of single rows, by table and columns. */
const single = new Map<string, string>();

function statementFor<T extends keyof Tables & string>(
  table: T,
  columns: readonly string[],
  size: number,
  overwrite: Overwrite<T> | undefined,
): string {
  if (size > 1 || overwrite) return statement(table, columns, size, overwrite);
  const key = `${table} ${columns}`;
  const known = single.get(key);
  if (known !== undefined) return known;
  const made = statement(table, columns, size, overwrite);
  single.set(key, made);
  return made;
}

function statement<T extends keyof Tables & string>(
  table: T,
  columns: readonly string[],
  size: number,
  overwrite: Overwrite<T> | undefined,
): string {
  const row = `(${columns.map(() => '?').join(', ')})`;
  const into = `INSERT INTO ${quoted(table)} (${columns.map(quoted).join(', ')}) VALUES ${Array(size).fill(row).join(', ')}`;
  if (!overwrite) return into;
  const set = overwrite.columns.map((column) => `${quoted(column)} = excluded.${quoted(column)}`);
  return `${into} ON CONFLICT (${overwrite.key.map(quoted).join(', ')}) DO UPDATE SET ${set.join(', ')}`;
}

function quoted(name: string): string {
  return `"${name}"`;
}
