/** Copies of both databases of one moment, also while a server is running. */
import { closeSync, existsSync, fsyncSync, openSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type Sqlite from 'better-sqlite3';
import { openSqlite } from '../sqlite/open.ts';

export const databaseNames = ['registry.db', 'messages.db'] as const;
export type DatabaseName = (typeof databaseNames)[number];

/** Pages of one step; a process with anything else to do does it between two. */
const pagesPerStep = 256;

/** The databases that a data directory has. */
export function databasesIn(directory: string): DatabaseName[] {
  return databaseNames.filter((name) => existsSync(join(directory, name)));
}

/**
 * Copies the databases of `from` into the directory `to`; everything committed before the call is in the copies, which
 * are on disk when it resolves. Writers wait for nothing, but what they write meanwhile stays in the write-ahead log.
 */
export async function copyDatabases(from: string, to: string): Promise<DatabaseName[]> {
  const names = databasesIn(from);
  const files = new Map<DatabaseName, Sqlite.Database>();
  try {
    for (const name of names) files.set(name, openSqlite(join(from, name), { readonly: true }));
    // One right after the other, messages first: no message is of a device that the registry's copy does not have yet.
    for (const file of [...files.values()].reverse()) holdSnapshot(file);
    for (const [name, file] of files) await file.backup(join(to, name), { progress: () => pagesPerStep });
    for (const name of names) sync(join(to, name));
    sync(to);
  } finally {
    for (const file of files.values()) file.close();
  }
  return names;
}

/** From its first read to its end a transaction sees one state; the copy is made inside it, and nothing makes it start again. */
function holdSnapshot(file: Sqlite.Database): void {
  file.exec('BEGIN');
  file.prepare('SELECT count(*) FROM "sqlite_schema"').get();
}

/** Writes a file that only its owner can read. When it returns, a power cut leaves this content; before, this or the former one. */
export function replaceFile(path: string, content: string): void {
  const partial = `${path}.partial`;
  writeFileSync(partial, content, { mode: 0o600, flush: true });
  renameSync(partial, path);
  sync(dirname(path));
}

/** Syncs a file, or a directory after a rename, to the disk. */
export function sync(path: string): void {
  const descriptor = openSync(path, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
