/** Statements as text, for what every request needs: to build and compile a query takes longer than to execute it. */
import { CompiledQuery, type Kysely } from 'kysely';
import type { Tables } from './records.ts';

/** The rows of a statement with `?` for each of the values, by a handle or in a transaction. */
export async function rowsOf<R>(db: Kysely<Tables>, statement: string, values: readonly unknown[]): Promise<R[]> {
  const { rows } = await db.executeQuery<R>(CompiledQuery.raw(statement, [...values]));
  return rows;
}
