/** Statements as text, for what every request needs: to build and compile a query takes longer than to execute it. */
import { type Compilable, CompiledQuery, type Kysely, type RawBuilder } from 'kysely';
import type { Tables } from './records.ts';

/** The rows of a statement with `?` for each of the values, by a handle or in a transaction. */
export async function rowsOf<R>(db: Kysely<Tables>, statement: string, values: readonly unknown[]): Promise<R[]> {
  const { rows } = await db.executeQuery<R>(CompiledQuery.raw(statement, [...values]));
  return rows;
}

/** Reads the rows of a query, in this thread or in another one. */
export type Read = <R>(query: RawBuilder<unknown> | Compilable<R>) => Promise<R[]>;

/** Reads at once, by a handle or in a transaction. */
export function readOn(db: Kysely<Tables>): Read {
  return async <R>(query: RawBuilder<unknown> | Compilable<R>) => {
    const { rows } = await db.executeQuery<R>(compileQuery(db, query));
    return rows;
  };
}

export function compileQuery<R>(db: Kysely<Tables>, query: RawBuilder<unknown> | Compilable<R>): CompiledQuery<R> {
  return 'isRawBuilder' in query ? (query.compile(db) as CompiledQuery<R>) : query.compile();
}
