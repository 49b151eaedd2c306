/** What must hold before a start creates anything: each fault is one sentence that names the variable. */
import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { movingIn } from '../../cells/moves/offline/marker.ts';
import { databasesIn } from '../../db/files/copies.ts';
import { DamagedFile } from '../../db/files/damaged.ts';
import { isUnfinished } from '../../db/files/incoming.ts';
import { isLocked, lockDirectory } from '../../db/files/lock.ts';
import { openSecret, openToOthers } from '../../db/files/modes.ts';
import { unknownSteps } from '../../db/files/schema.ts';
import { type Config, ConfigError } from '../core/config.ts';
import { demandPort } from '../core/network/accepting.ts';
import { describeMissing } from './used-directory.ts';

/** @throws ConfigError for the first thing that is wrong; nothing has been created then. */
export async function checkStart(config: Config): Promise<void> {
  const { host, httpPort, mqttPort, mqttsPort, tls, dataDir } = config;
  if (tls) checkKey(tls.keyFile);
  checkDirectory(dataDir);
  checkPrivate(dataDir);
  checkMove(dataDir);
  // A server on the same data has the same ports: that it runs says more.
  if (isLocked(dataDir)) holdDirectory(dataDir).release();
  checkUse(dataDir);
  for (const [variable, port] of [
    ['SLIPWAY_HTTP_PORT', httpPort],
    ['SLIPWAY_MQTT_PORT', mqttPort],
    ...(tls ? ([['SLIPWAY_MQTTS_PORT', mqttsPort]] as const) : []),
  ] as const)
    await demandPort({ host, port }).catch(nameTheVariable(variable));
}

/** What the system or a database refuses below the data directory is said in one sentence; any other error is a fault of the program. */
export function nameTheFault(error: unknown): never {
  const isOfSystem = error instanceof Error && 'syscall' in error;
  if (isOfSystem || error instanceof Sqlite.SqliteError || error instanceof DamagedFile)
    throw new ConfigError(`SLIPWAY_DATA_DIR cannot be used: ${error.message}`);
  throw error;
}

/** A port or an address that cannot be had is a wrong setting. */
export function nameTheVariable(port: string): (error: NodeJS.ErrnoException) => never {
  return (error) => {
    const variable = error.code === 'EADDRINUSE' || error.code === 'EACCES' ? port : 'SLIPWAY_HOST';
    const advice = error.code === 'EADDRINUSE' ? '. Stop the program that listens there, or set another port.' : '';
    throw new ConfigError(`${variable} cannot be used: ${error.message}${advice}`);
  };
}

/** @throws ConfigError in one sentence: the system's own does not say which directory, nor who has chosen it. */
export function holdDirectory(directory: string): { release(): void } {
  try {
    return lockDirectory(directory);
  } catch (error) {
    throw new ConfigError(`SLIPWAY_DATA_DIR cannot be used: ${directory}: ${(error as Error).message}`);
  }
}

/** @throws ConfigError when other users of the machine may read the key of the certificate. */
function checkKey(path: string): void {
  const open = openSecret(path);
  if (!open) return;
  throw new ConfigError(
    `SLIPWAY_TLS_KEY cannot be used: other users can read ${path} (mode ${open.mode}). Run: chmod 600 ${path}`,
  );
}

/** @throws ConfigError for a directory that cannot be written, or made. */
export function checkDirectory(directory: string): void {
  const refuse = (path: string, reason: string): never => {
    throw new ConfigError(`SLIPWAY_DATA_DIR cannot be used: ${path}: ${reason}`);
  };
  const demand = (path: string, mode: number): void => {
    try {
      accessSync(path, mode);
    } catch (error) {
      const { code = '', message } = error as NodeJS.ErrnoException;
      refuse(path, faults[code] ?? message);
    }
  };
  const { R_OK, W_OK, X_OK } = constants;
  let existing = directory;
  while (!existsSync(existing) && dirname(existing) !== existing) existing = dirname(existing);
  if (!statSync(existing).isDirectory()) refuse(existing, 'it is not a directory.');
  demand(existing, R_OK | W_OK | X_OK);
  if (existing !== directory) return;
  for (const name of databasesIn(directory)) demand(join(directory, name), R_OK | W_OK);
}

const faults: Record<string, string> = {
  EACCES: 'this user may not write there.',
  EROFS: 'the file system is read-only.',
};

/** @throws ConfigError when other users of the machine may read the data or the keys. */
function checkPrivate(directory: string): void {
  const [open] = openToOthers(directory);
  if (!open) return;
  throw new ConfigError(
    `SLIPWAY_DATA_DIR cannot be used: other users can open ${open.path} (mode ${open.mode}). Run: chmod -R go-rwx ${directory}`,
  );
}

/** @throws ConfigError while accounts are moved out of the directory or into it: some of them may be here in part. */
function checkMove(directory: string): void {
  const moving = movingIn(directory);
  if (!moving) return;
  throw new ConfigError(
    `SLIPWAY_DATA_DIR cannot be used: ${directory} takes part in a move of ${moving.accounts.join(', ')} from ${moving.from} to ${moving.to}. ` +
      'Run slipway account move again, which finishes it, or with --undo.',
  );
}

/**
 * @throws ConfigError when a directory that was in use has lost a part, or has one that cannot be read or is of a newer version.
 * What a restore has decided on comes whole.
 */
function checkUse(directory: string): void {
  if (isUnfinished(directory)) return;
  const refuse = (reason: string): never => {
    throw new ConfigError(`SLIPWAY_DATA_DIR cannot be used: ${reason}`);
  };
  let missing: string | undefined;
  try {
    missing = describeMissing(directory);
  } catch (error) {
    refuse(`${join(directory, 'registry.db')} cannot be read: ${(error as Error).message}. Restore a backup.`);
  }
  if (missing) refuse(missing);
  for (const name of databasesIn(directory)) {
    let newer: string[] = [];
    try {
      newer = unknownSteps(directory, name);
    } catch (error) {
      refuse(`${join(directory, name)} cannot be read: ${(error as Error).message}. Restore a backup.`);
    }
    if (newer.length > 0)
      refuse(
        `${join(directory, name)} was made by a newer version: it has had the step ${newer[0]}. Start that version, or go back with slipway rollback.`,
      );
  }
}
