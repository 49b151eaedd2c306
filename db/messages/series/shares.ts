/** Which account takes more of the file than its share: every account that keeps something has the same. */
import type Sqlite from 'better-sqlite3';

/** What each account keeps in messages.db, in bytes on disk, about. */
export const heldByAccount = `SELECT "accountId", sum("bytes") AS "bytes" FROM (
  SELECT "accountId", "bytes" FROM "messageCounts" UNION ALL SELECT "accountId", "bytes" FROM "heldBytes")
  GROUP BY "accountId" HAVING sum("bytes") > 0`;

export interface AccountBytes {
  accountId: string;
  bytes: number;
}

/**
 * The accounts above their share of `room`, furthest above first, with how far. `size` is what all of it really takes: where more is
 * in use than has been counted, each account is charged in proportion, so that there is always one that is above.
 */
export function aboveShare(held: readonly AccountBytes[], size: number, room: number): AccountBytes[] {
  const counted = held.reduce((sum, { bytes }) => sum + bytes, 0);
  if (counted === 0) return [];
  const share = (room / held.length) * (counted / Math.max(size, counted));
  const above = held.map(({ accountId, bytes }) => ({ accountId, bytes: bytes - share }));
  return above.filter(({ bytes }) => bytes > 0).sort((one, other) => other.bytes - one.bytes);
}

export function prepareHeld(file: Sqlite.Database): () => AccountBytes[] {
  const held = file.prepare<[], AccountBytes>(heldByAccount);
  return () => held.all();
}
