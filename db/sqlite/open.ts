/** How a file is opened. Apart from dialect.ts, because threads that write no Kysely queries do not load it. */
import Sqlite from 'better-sqlite3';
import { instantOf, parseDate } from './dates.ts';
import { fold } from './fold.ts';
import { gramsOf } from './grams.ts';
import { versionKey } from './versions.ts';

/**
 * Kibibytes of pages that a connection keeps in memory: of the connections that are always busy, and of others. The
 * system has the file in its own cache too, so that a page costs little more than a call.
 */
export const pageCache = { busy: 8192, usual: 2048 } as const;

/** Bytes that a write-ahead log keeps of the disk once no reader needs what is in it. */
export const logBytes = 16 * 1024 * 1024;

/** Opens a file with the settings that make an acknowledged write durable. */
export function openSqlite(
  path: string,
  { readonly = false, cache = 'usual' }: { readonly?: boolean; cache?: keyof typeof pageCache } = {},
): Sqlite.Database {
  const file = new Sqlite(path, { readonly, timeout: 5000 });
  if (!readonly) {
    file.pragma('journal_mode = WAL');
    file.pragma('synchronous = FULL');
    file.pragma('foreign_keys = ON');
    file.pragma(`journal_size_limit = ${logBytes}`);
  }
  file.pragma(`cache_size = -${pageCache[cache]}`);
  file.pragma('temp_store = MEMORY');
  // Triggers of registry.db call them, so that no connection writes devices without them.
  file.function('fold', { deterministic: true }, (text) => (typeof text === 'string' ? fold(text) : null));
  file.function('grams', { deterministic: true }, (key, text) => gramsOf(String(key), fold(String(text))));
  // Filters of devices compare by these.
  file.function('instant', { deterministic: true }, (text) => instantOf(parseDate(text)));
  file.function('version', { deterministic: true }, (text) => (typeof text === 'string' ? versionKey(text) : null));
  return file;
}

/** As openSqlite, for who writes the registry: what is destroyed, such as the key of a job's results, is overwritten. */
export function openWriter(path: string): Sqlite.Database {
  const file = openSqlite(path, { cache: 'busy' });
  file.pragma('secure_delete = FAST');
  return file;
}
