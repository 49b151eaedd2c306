/** What is on disk: the files of a data directory, as another program reads them. */
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { type OutboxState, outboxStates } from '../../db/messages/outbox/rows.ts';

export type StoredRow = Record<string, string | number | null>;

/** Rows of `registry.db`, or of another database of the data directory. */
export function storedRows<Row extends object = StoredRow>(
  { directory }: { directory: string },
  statement: string,
  values: unknown[] = [],
  database = 'registry.db',
): Row[] {
  const file = new Sqlite(join(directory, database), { readonly: true });
  try {
    return file.prepare(statement).all(...values) as Row[];
  } finally {
    file.close();
  }
}

/** How many rows of a table, or of tables that are joined, meet a condition. */
export function countStored(
  at: { directory: string },
  table: string,
  condition = '1',
  values: unknown[] = [],
  database?: string,
): number {
  const statement = `SELECT count(*) AS "count" FROM ${table} WHERE ${condition}`;
  return storedRows<{ count: number }>(at, statement, values, database)[0]?.count ?? 0;
}

/** How many messages on their way to a bridge are in a state, or in any. */
export function countOutbox(at: { directory: string }, bridgeId: string, state?: OutboxState): number {
  const states = state ? [outboxStates[state]] : Object.values(outboxStates);
  return countStored(at, '"outbox"', `"bridgeId" = ? AND "state" IN (${states})`, [bridgeId], 'messages.db');
}
