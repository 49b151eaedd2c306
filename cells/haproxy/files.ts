/** Writes `haproxy.cfg` and its map files. Each file is replaced as a whole, so HAProxy never reads half of one. */
import { chmodSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { CellsConfig } from '../config.ts';
import { haproxyConfig, lookupSocket } from './cfg.ts';
import { lookupFile, lookupScript } from './lookup.ts';
import { mapsOf } from './maps.ts';

/** The files by name, as HAProxy reads them from `directory`. */
export function cellsFiles(config: CellsConfig, directory: string): Record<string, string> {
  return {
    ...mapsOf(config),
    [lookupFile]: lookupScript(config, lookupSocket(config)),
    'haproxy.cfg': haproxyConfig(config, directory),
  };
}

/** Writes the files into `directory`, the maps first. Returns their paths. @throws the error of the file system. */
export function writeCells(config: CellsConfig, directory: string): string[] {
  const target = resolve(directory);
  // The command's umask keeps files to their owner; these have no secret, and HAProxy reads them as another user.
  if (mkdirSync(target, { recursive: true }) !== undefined) chmodSync(target, 0o755);
  return Object.entries(cellsFiles(config, target)).map(([name, content]) => replaceFile(join(target, name), content));
}

/** Replaces one file, which everybody may read, and returns its path. */
export function replaceFile(path: string, content: string): string {
  const partial = `${path}.partial`;
  try {
    rmSync(partial, { force: true });
    writeFileSync(partial, content, { flush: true });
    chmodSync(partial, 0o644);
    renameSync(partial, path);
  } catch (error) {
    rmSync(partial, { force: true });
    throw error;
  }
  return path;
}
