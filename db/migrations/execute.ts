import { type Kysely, sql } from 'kysely';

/** Executes statements one after the other; blank ones are left out. */
export async function executeAll(db: Kysely<unknown>, statements: readonly string[]): Promise<void> {
  for (const statement of statements) if (statement.trim()) await sql.raw(statement).execute(db);
}
