import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** A file, or the directory itself, that other users than its owner may open; `mode` in octal, such as 644. */
export interface OpenToOthers {
  path: string;
  mode: string;
}

/**
 * What of a data directory the group or all may open: the directory, what lies in it, and the keys. Other folders in it
 * are closed by their own modes. Empty where the system has no such modes.
 */
export function openToOthers(directory: string): OpenToOthers[] {
  if (process.platform === 'win32' || !existsSync(directory)) return [];
  const folders = [directory, join(directory, 'keys')].filter((folder) => existsSync(folder));
  const paths = [directory, ...folders.flatMap((folder) => readdirSync(folder).map((name) => join(folder, name)))];
  return paths.flatMap((path) => {
    // SQLite removes its files next to the databases while others look.
    const mode = (statSync(path, { throwIfNoEntry: false })?.mode ?? 0) & 0o777;
    return mode & 0o077 ? [{ path, mode: mode.toString(8) }] : [];
  });
}

/**
 * A secret file that others than its owner may open. The group may read a file of root: so containers mount their secrets.
 * Undefined if it is not there, and where the system has no such modes.
 */
export function openSecret(path: string): OpenToOthers | undefined {
  const file = process.platform === 'win32' ? undefined : statSync(path, { throwIfNoEntry: false });
  if (!file) return undefined;
  const mode = file.mode & 0o777;
  const others = file.uid === 0 && process.getuid?.() !== 0 ? 0o037 : 0o077;
  return mode & others ? { path, mode: mode.toString(8) } : undefined;
}
