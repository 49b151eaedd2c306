import type Sqlite from 'better-sqlite3';

/** `oldest` in milliseconds since 1970: of the first point, or when the first log entry came. */
export interface MessageUsage {
  points: number;
  logs: number;
  /** About: points and log entries with their texts. */
  bytes: number;
  oldest: number | null;
}

export type AccountUsage = Pick<MessageUsage, 'points' | 'logs' | 'bytes'>;

/** The stored amounts of each account, by account id. */
export function readAccountUsage(file: Sqlite.Database): Map<string, AccountUsage> {
  const rows = file.prepare<[], AccountUsage & { accountId: string }>(
    'SELECT "accountId", "points", "logs", "bytes" FROM "messageCounts"',
  );
  return new Map(rows.all().map(({ accountId, ...usage }) => [accountId, usage]));
}

/** The stored amounts of one account or of all. It reads a few rows, however much is stored. */
export function prepareUsage(reader: Sqlite.Database): (accountId?: string) => MessageUsage {
  const counts = reader.prepare<[], { accountId: string; points: number; logs: number; bytes: number }>(
    'SELECT "accountId", "points", "logs", "bytes" FROM "messageCounts"',
  );
  const oldestPoint = reader
    .prepare<[string], number | null>('SELECT min("oldest") FROM "series" WHERE "accountId" = ?')
    .pluck();
  const oldestLog = reader
    .prepare<[string], number | null>('SELECT min("received") FROM "logs" WHERE "accountId" = ?')
    .pluck();
  return (accountId) => {
    const usage: MessageUsage = { points: 0, logs: 0, bytes: 0, oldest: null };
    for (const count of counts.all()) {
      if (accountId !== undefined && count.accountId !== accountId) continue;
      usage.points += count.points;
      usage.logs += count.logs;
      usage.bytes += count.bytes;
      for (const time of [oldestPoint.get(count.accountId), oldestLog.get(count.accountId)])
        if (typeof time === 'number' && time < (usage.oldest ?? Number.POSITIVE_INFINITY)) usage.oldest = time;
    }
    return usage;
  };
}
