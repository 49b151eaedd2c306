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
  return opened(join(directory, database))
    .prepare(statement)
    .all(...values) as Row[];
}

const open = new Map<string, Sqlite.Database>();

/** A database for what is read in this turn of the event loop: most of a read is that a new connection reads the schema. */
function opened(path: string): Sqlite.Database {
  const file = open.get(path) ?? new Sqlite(path, { readonly: true });
  if (!open.has(path))
    setImmediate(() => {
      open.delete(path);
      file.close();
    });
  open.set(path, file);
  return file;
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
