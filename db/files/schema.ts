/** The migrations that the databases of a data directory have had, and those still to come. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type Migration, migrate, registryMigrations } from '../migrations/index.ts';
import { messageMigrations } from '../migrations/messages.ts';
import { openSqlite } from '../sqlite/open.ts';
import { type DatabaseName, databaseNames } from './copies.ts';
import { finishSnapshot, snapshotBeforeMigration, stampVersion } from './snapshots.ts';

/** The steps of each database, in order. */
export type Steps = Readonly<Record<DatabaseName, readonly Migration[]>>;

const stepsOf: Steps = { 'registry.db': registryMigrations, 'messages.db': messageMigrations };

/** The steps that the file at `path` has had, in the order of their names. */
export function stepsHad(path: string): string[] {
  const file = openSqlite(path, { readonly: true });
  try {
    const isEmpty = file.prepare(`SELECT 1 FROM "sqlite_schema" WHERE "name" = 'migrations'`).get() === undefined;
    return isEmpty ? [] : file.prepare<[], string>('SELECT "name" FROM "migrations" ORDER BY "name"').pluck().all();
  } finally {
    file.close();
  }
}

/** Steps that a database of `directory` has had, and this version does not know. */
export function unknownSteps(directory: string, name: DatabaseName): string[] {
  const known = new Set(stepsOf[name].map((step) => step.name));
  return stepsHad(join(directory, name)).filter((step) => !known.has(step));
}

/** Databases of `directory` that hold data and have not had every step. */
export function behind(directory: string, steps: Steps = stepsOf): DatabaseName[] {
  return databaseNames.filter((name) => {
    if (!existsSync(join(directory, name))) return false;
    const had = new Set(stepsHad(join(directory, name)));
    return had.size > 0 && steps[name].some((step) => !had.has(step.name));
  });
}

/**
 * Makes the database `name` when it is not there, and brings both up to date; before a step on one that holds data, both
 * are copied into `snapshots/`, so that they go back together.
 */
export async function bringUpToDate(directory: string, name: DatabaseName, steps: Steps = stepsOf): Promise<void> {
  const old = behind(directory, steps);
  if (old.length > 0) await snapshotBeforeMigration(directory, Date.now());
  for (const one of new Set([...old, name])) await migrate(join(directory, one), steps[one]);
  finishSnapshot(directory);
  stampVersion(directory);
}
