/**
 * Many rows by one statement: it reads them from a JSON text, so that thousands of values come to SQLite, or to the thread that
 * writes, as one. What all rows have in common is bound once.
 */

import { CompiledQuery } from 'kysely';
import type { Tx } from './index.ts';
import type { Tables } from './records.ts';

interface How<T extends keyof Tables> {
  /** Properties of the rows that are no columns of the table. */
  except?: ReadonlySet<string>;
  /** The columns that are overwritten if the row already exists. */
  overwrite?: { key: ReadonlyArray<keyof Tables[T] & string>; columns: ReadonlyArray<keyof Tables[T] & string> };
}

/**
 * Inserts rows, all of which have the same properties. A row that is there already is an error, or overwritten. Values that
 * differ between the rows must not be buffers.
 */
export async function insertMany<T extends keyof Tables & string>(
  tx: Tx,
  table: T,
  rows: ReadonlyArray<Tables[T]>,
  { except, overwrite }: How<T> = {},
): Promise<void> {
  const [first] = rows;
  if (!first) return;
  const columns = Object.keys(first).filter((name) => !except?.has(name)) as Array<keyof Tables[T] & string>;
  if (rows.length === 1 && !overwrite) {
    const values = columns.map((column) => first[column]);
    await tx.executeQuery(CompiledQuery.raw(insertOne(table, columns), values));
    return;
  }
  const differing = columns.filter((column) => rows.some((row) => row[column] !== first[column]));
  const same = columns.filter((column) => !differing.includes(column));
  const json = JSON.stringify(rows.map((row) => differing.map((column) => row[column])));
  const values = columns.map((column) => (same.includes(column) ? '?' : `"value" ->> ${differing.indexOf(column)}`));
  const into = `${insertInto(table, columns)} SELECT ${values.join(', ')} FROM json_each(?) WHERE true`;
  const bound = [...same.map((column) => first[column]), json];
  await tx.executeQuery(CompiledQuery.raw(into + (overwrite ? overwriting(overwrite) : ''), bound));
}

/** Statements of single rows, by table and columns: every POST executes one. */
const single = new Map<string, string>();

function insertOne(table: string, columns: readonly string[]): string {
  const key = `${table} ${columns}`;
  let statement = single.get(key);
  if (statement === undefined) {
    statement = `${insertInto(table, columns)} VALUES (${columns.map(() => '?').join(', ')})`;
    single.set(key, statement);
  }
  return statement;
}

function insertInto(table: string, columns: readonly string[]): string {
  return `INSERT INTO ${quoted(table)} (${columns.map(quoted).join(', ')})`;
}

function overwriting({ key, columns }: { key: readonly string[]; columns: readonly string[] }): string {
  const set = columns.map((column) => `${quoted(column)} = excluded.${quoted(column)}`);
  return ` ON CONFLICT (${key.map(quoted).join(', ')}) DO UPDATE SET ${set.join(', ')}`;
}

function quoted(name: string): string {
  return `"${name}"`;
}
