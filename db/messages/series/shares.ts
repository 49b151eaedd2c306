/** Who must make room in messages.db: as many bytes are for each account that needs them, and who takes more is above its share. */
import type Sqlite from 'better-sqlite3';

/** What each account keeps in messages.db, in bytes on disk, about. */
const heldByAccount = `SELECT "accountId", sum("bytes") AS "bytes" FROM (
  SELECT "accountId", "bytes" FROM "messageCounts" UNION ALL SELECT "accountId", "bytes" FROM "heldBytes")
  GROUP BY "accountId" HAVING sum("bytes") > 0`;

export interface AccountBytes {
  accountId: string;
  bytes: number;
}

/** `size` bytes are in use, and `room` may be. */
export interface Shortage {
  size: number;
  room: number;
}

/**
 * The accounts above their share of the room, furthest above first, with how far. Where more is in use than has been counted, each
 * account is charged in proportion, so that one is above whenever there is too little room.
 */
export function aboveShare(held: readonly AccountBytes[], { size, room }: Shortage): AccountBytes[] {
  const counted = held.reduce((sum, { bytes }) => sum + bytes, 0);
  const share = shareOf(held, room * (counted / Math.max(size, counted)));
  const above = held.map(({ accountId, bytes }) => ({ accountId, bytes: bytes - share }));
  return above.filter(({ bytes }) => bytes > 0).sort((one, other) => other.bytes - one.bytes);
}

/** The most that an account may have so that all fit: what some do not need is for the others. */
function shareOf(held: readonly AccountBytes[], room: number): number {
  let [above, left] = [held, room];
  while (above.length > 0) {
    const share = left / above.length;
    const more = above.filter(({ bytes }) => bytes > share);
    if (more.length === above.length) return share;
    for (const { bytes } of above) if (bytes <= share) left -= bytes;
    above = more;
  }
  return Number.POSITIVE_INFINITY;
}

/** Reads who is above its share; `rows` says how many rows that looks at. */
export function prepareShares(file: Sqlite.Database): {
  rows(): number;
  accountsAbove(shortage: Shortage): AccountBytes[];
  storedAbove(bytes: number): string[];
} {
  const held = file.prepare<[], AccountBytes>(heldByAccount);
  const rows = file
    .prepare<[], number>('SELECT (SELECT count(*) FROM "messageCounts") + (SELECT count(*) FROM "heldBytes")')
    .pluck();
  const stored = file.prepare<[number], string>('SELECT "accountId" FROM "messageCounts" WHERE "bytes" > ?').pluck();
  return {
    rows: () => rows.get() ?? 0,
    accountsAbove: (shortage) => aboveShare(held.all(), shortage),
    storedAbove: (bytes) => stored.all(bytes),
  };
}
