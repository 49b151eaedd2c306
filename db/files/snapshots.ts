/** Both databases as they were before an upgrade: made by the start that migrates, put back by `slipway rollback`. */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { copyDatabases, databasesIn, sync } from './copies.ts';
import { nameOf } from './incoming.ts';
import { version } from './version.ts';

/** Names in the data directory: of the snapshots, and of the file that says which version opened the data last. */
export const snapshotsName = 'snapshots';
export const versionName = 'version';
/** In a snapshot, as long as the upgrade that it was made for has not come to its end. */
const unfinished = 'unfinished';
/** In a snapshot: the how many-th of its directory it is. A clock may have been wrong when it was called. */
const numberName = 'number';
const kept = 2;

/** The version that opened the data of a directory last; empty when that was none that says so. */
export function dataVersion(directory: string): string {
  const path = join(directory, versionName);
  return existsSync(path) ? readFileSync(path, 'utf8').trim() : '';
}

/** Notes that this version has opened the data. */
export function stampVersion(directory: string): void {
  if (dataVersion(directory) === version) return;
  writeFileSync(join(directory, versionName), version, { mode: 0o600, flush: true });
}

/** A snapshot: where it is, the version that ran on it (empty: not known), when it was made, ISO 8601, and its place in their order. */
export interface Snapshot {
  path: string;
  version: string;
  time: string;
  number: number;
}

/** The snapshots of a data directory, newest first. */
export function snapshotsOf(directory: string): Snapshot[] {
  const parent = join(directory, snapshotsName);
  if (!existsSync(parent)) return [];
  return readdirSync(parent)
    .flatMap((name) => {
      const [, day, hour, minute, second] = /-(\d{8})T(\d\d)(\d\d)(\d\d)\d{3}Z$/.exec(name) ?? [];
      if (!day) return [];
      const time = `${day.slice(0, 4)}-${day.slice(4, 6)}-${day.slice(6)}T${hour}:${minute}:${second}Z`;
      return [
        {
          path: join(parent, name),
          version: dataVersion(join(parent, name)),
          time,
          number: numberOf(join(parent, name)),
        },
      ];
    })
    .sort((a, b) => b.number - a.number || (a.time < b.time ? 1 : -1));
}

/** 0 of one that was made before they were counted. */
function numberOf(path: string): number {
  const file = join(path, numberName);
  return existsSync(file) ? Number(readFileSync(file, 'utf8')) : 0;
}

/**
 * Copies both databases into `snapshots/<version>-<time>`; `now` in milliseconds. Not again while an upgrade fails and is
 * tried again: then the first copy is the one before it. The newest two are kept.
 */
export async function snapshotBeforeMigration(directory: string, now: number): Promise<void> {
  const [newest] = snapshotsOf(directory);
  if (newest && existsSync(join(newest.path, unfinished))) return;
  const before = dataVersion(directory);
  const parent = join(directory, snapshotsName);
  const path = join(parent, `${before || 'unknown'}-${nameOf(now)}`);
  const partial = join(parent, 'partial');
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(partial, { recursive: true, mode: 0o700 });
  try {
    await copyDatabases(directory, partial);
  } catch (error) {
    // A disk without room for it needs none of its parts.
    rmSync(newest ? partial : parent, { recursive: true, force: true });
    throw error;
  }
  writeFileSync(join(partial, versionName), before, { mode: 0o600, flush: true });
  writeFileSync(join(partial, numberName), `${(newest?.number ?? 0) + 1}`, { mode: 0o600, flush: true });
  writeFileSync(join(partial, unfinished), '', { mode: 0o600, flush: true });
  sync(partial);
  renameSync(partial, path);
  sync(parent);
  for (const old of snapshotsOf(directory).slice(kept)) rmSync(old.path, { recursive: true });
}

/** The upgrade is done: the next one makes a snapshot of its own. */
export function finishSnapshot(directory: string): void {
  const [newest] = snapshotsOf(directory);
  if (newest) rmSync(join(newest.path, unfinished), { force: true });
}

/** The files of a snapshot that take the place of the data directory's. */
export function filesOf({ path }: Snapshot): string[] {
  return [...databasesIn(path), versionName];
}
