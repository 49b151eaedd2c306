/** Shared by commands that work on the files of a data directory, also while a server runs. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { movingIn } from '../../cells/moves/offline/marker.ts';
import { isUnfinished } from '../../db/files/incoming.ts';
import { lockDirectory } from '../../db/files/lock.ts';
import { behind } from '../../db/files/schema.ts';
import { Registry } from '../../db/registry/index.ts';
import type { Clock } from '../../src/core/clock.ts';
import { loadConfig } from '../../src/core/config.ts';
import { readLimits } from '../../src/core/limits/table.ts';
import { Audit } from '../../src/operations/audit/index.ts';
import { announceChange } from '../../src/process/changes.ts';
import { describeMissing } from '../../src/process/used-directory.ts';
import { UsageError } from '../usage.ts';

/** Flags of a command that works on a data directory. */
export interface OnDirectory {
  dataDir: string | undefined;
}

/** Flags of a command that works on one account. */
export interface OnAccount extends OnDirectory {
  account: string | undefined;
}

/** The tools of a command: the registry of its data directory, the clock and the audit record. */
export interface Files {
  dataDir: string;
  registry: Registry;
  clock: Clock;
  audit: Audit;
}

/**
 * Runs `work` on the data directory that the options or the configuration name, and tells a running server.
 * @throws UsageError when there is no registry in it: a mistyped directory must not look like an empty one.
 */
export async function withRegistry(given: OnDirectory, work: (files: Files) => Promise<void>): Promise<void> {
  demandRegistry(directoryOf(given));
  await withNewRegistry(given, work);
}

/** The data directory that a flag or the configuration names. */
export function directoryOf({ dataDir }: OnDirectory): string {
  return dataDir ?? loadConfig().dataDir;
}

/** @throws UsageError when there is no registry in the directory. */
export function demandRegistry(dataDir: string): void {
  if (existsSync(join(dataDir, 'registry.db'))) return;
  throw new UsageError(`There is no registry in ${dataDir}. Name its directory with --data-dir or SLIPWAY_DATA_DIR.`);
}

/** @throws UsageError while some of its files are gone or those of before a restore, or while accounts are moved. */
export function demandWhole(dataDir: string): void {
  if (movingIn(dataDir))
    throw new UsageError(`${dataDir} takes part in a move: run slipway account move again, or with --undo.`);
  if (isUnfinished(dataDir))
    throw new UsageError('A restore or rollback was broken off: start the server, which ends it.');
  const missing = describeMissing(dataDir);
  if (missing) throw new UsageError(missing);
}

/**
 * Locks the directory for a command that must not run while a server does.
 * @throws UsageError when one does.
 */
export function holdForCommand(dataDir: string): { release(): void } {
  try {
    return lockDirectory(dataDir);
  } catch (error) {
    throw new UsageError(`${dataDir} cannot be used: ${(error as Error).message}. Stop it first.`);
  }
}

/** As withRegistry, and makes what is not there. */
export async function withNewRegistry(given: OnDirectory, work: (files: Files) => Promise<void>): Promise<void> {
  const dataDir = directoryOf(given);
  const registry = await openRegistry(dataDir);
  const clock = { now: () => Date.now() };
  // The server removes records beyond its limit; a command does not know the server's settings.
  const limits = readLimits(() => 0);
  const audit = new Audit({ registry, clock, log: silent, config: { limits } });
  try {
    await work({ dataDir, registry, clock, audit });
  } finally {
    await audit.close();
    await registry.close();
    announceChange(dataDir);
  }
}

/** As the next start of the server would: not under one that runs and knows nothing of the steps that are to come. */
async function openRegistry(dataDir: string): Promise<Registry> {
  demandWhole(dataDir);
  if (behind(dataDir).length === 0) return Registry.open(dataDir);
  const lock = holdForCommand(dataDir);
  try {
    return await Registry.open(dataDir);
  } finally {
    lock.release();
  }
}

/** Nothing of a command is noted in the background, so nothing can fail there. */
const silent = { error: () => {} } as unknown as Logger;

/** The account that `--account` names, or the only one. @throws UsageError when that is not one. */
export async function accountOf(registry: Registry, { account: named }: OnAccount): Promise<string> {
  const accounts = await registry.query.selectFrom('accounts').select('id').limit(1000).execute();
  if (accounts.length === 0) throw new UsageError('There is no account yet.');
  if (named === undefined && accounts.length === 1) return accounts[0]?.id ?? '';
  if (named === undefined) throw new UsageError('--account is missing: there are several accounts.');
  if (!accounts.some(({ id }) => id === named))
    throw new UsageError(`There is no account ${named}. List the accounts with slipway account list.`);
  return named;
}

/** One JSON object on one line of standard output. */
export function print(value: object): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}
