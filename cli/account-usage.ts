/** `slipway usage`: what each account keeps, for the operator. An account sees its own figures at GET /usage. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type AccountUsage, readAccountUsage } from '../db/messages/series/usage.ts';
import { openSqlite } from '../db/sqlite/open.ts';
import { loadConfig } from '../src/core/config.ts';
import { type OnDirectory, print, withRegistry } from './data/files.ts';

/** Prints one account per line, the one with the most bytes first. */
export async function accountUsage(given: OnDirectory): Promise<void> {
  await withRegistry(given, async ({ registry, dataDir }) => {
    const { messages, limits } = loadConfig();
    const stored = readStored(join(dataDir, 'messages.db'));
    const storing = [...stored.values()].filter(({ bytes }) => bytes > 0).length;
    const total = [...stored.values()].reduce((sum, { bytes }) => sum + bytes, 0);
    const ofCap = messages.maxBytes > 0 ? Math.floor(messages.maxBytes / Math.max(1, storing)) : null;
    const shares = [ofCap, limits.accountMessagesBytes || null].filter((share) => share !== null);
    const shareBytes = shares.length > 0 ? Math.min(...shares) : null;

    const accounts = await registry.query.selectFrom('accounts').select(['id', 'name']).execute();
    const counted = registry.query
      .selectFrom('devices')
      .select((eb) => ['accountId', eb.fn.countAll<number>().as('count')] as const)
      .where('deleted', 'is', null);
    const devices = new Map(
      (await counted.groupBy('accountId').execute()).map(({ accountId, count }) => [accountId, Number(count)]),
    );
    const lines = accounts.map(({ id, name }) => {
      const { points, logs, bytes } = stored.get(id) ?? { points: 0, logs: 0, bytes: 0 };
      const share = total > 0 ? Number((bytes / total).toFixed(4)) : 0;
      return {
        accountId: id,
        name,
        messagesBytes: bytes,
        share,
        shareBytes,
        points,
        logs,
        devices: devices.get(id) ?? 0,
      };
    });
    for (const line of lines.sort((a, b) => b.messagesBytes - a.messagesBytes)) print(line);
  });
}

/** By account id. Empty when nothing has been stored in this directory yet. */
function readStored(path: string): Map<string, AccountUsage> {
  if (!existsSync(path)) return new Map();
  // Not read-only: without a running server there is no shared memory of the log, and SQLite has to make it.
  const file = openSqlite(path);
  try {
    return readAccountUsage(file);
  } finally {
    file.close();
  }
}
