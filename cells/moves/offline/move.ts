/**
 * Moves accounts from one data directory into another, while no server runs on either. Broken off at any moment, it goes on
 * or is taken back when it is called again. Each directory says that it takes part (marker.ts) until all is done.
 */
import { copyFileSync, cpSync, existsSync, readdirSync, readFileSync, renameSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { databaseNames, sync } from '../../../db/files/copies.ts';
import { FirmwareFiles } from '../../../db/files/firmware.ts';
import { lockDirectory, takeOver } from '../../../db/files/lock.ts';
import { behind, bringUpToDate, unknownSteps } from '../../../db/files/schema.ts';
import { UsageError } from '../../../src/core/usage-error.ts';
import { partialOf } from '../account-contents.ts';
import { type Moving, mark, movingIn, unmark } from './marker.ts';
import { copyMessages, removeMessages } from './messages.ts';
import { accountIdsIn, copyRegistry, readOwn, removeRegistry } from './registry.ts';
import type { Sums } from './rows.ts';

const registryIn = (directory: string) => join(directory, 'registry.db');
const messagesIn = (directory: string) => join(directory, 'messages.db');

export interface Move {
  /** The accounts that move together. */
  accounts: string[];
  from: string;
  to: string;
  /** Told before each step, for those who watch; what it throws ends the move as a kill would. */
  onStep?(step: Step): void;
}

export type Step =
  | 'marking'
  | 'copying messages'
  | 'copied points'
  | 'copying registry'
  | 'copied'
  | 'removing'
  | 'unmarking'
  | 'done';

/** Moves the accounts. @returns rows and checksums of what was copied; undefined when the move had been made before. */
export async function moveAccounts(move: Move): Promise<Sums | undefined> {
  return holding(move, async () => {
    const sums = isCopied(move) ? undefined : await copy(move);
    finishMove(move);
    return sums;
  });
}

/** Takes a move back that has not been copied. @returns false when it has been, and is to be made in the other direction. */
export async function abandonMove(move: Move): Promise<boolean> {
  return holding(move, async () => {
    const { from, to, accounts } = move;
    if (isCopied(move)) {
      finishMove(move);
      return false;
    }
    if (movingIn(to)) removeAll(to, accounts, bridgesOf(from, accounts));
    unmark(to);
    unmark(from);
    return true;
  });
}

/** Runs `work` with both directories locked; a server that is still somewhere on the bytes can commit nothing more. */
async function holding<R>({ from, to, accounts }: Move, work: () => Promise<R>): Promise<R> {
  const locks: Array<{ release(): void }> = [];
  try {
    for (const directory of [from, to]) {
      locks.push(lock(directory));
      const moving = movingIn(directory);
      const isThis = moving?.from === from && moving.to === to && moving.accounts.join() === accounts.join();
      if (moving && !isThis)
        throw new UsageError(
          `${directory} takes part in another move: ${moving.accounts.join(', ')} from ${moving.from} to ${moving.to}. Finish it first.`,
        );
      demandCurrent(directory);
    }
    for (const directory of [from, to]) takeOver(directory).close();
    return await work();
  } finally {
    for (const held of locks) held.release();
  }
}

function lock(directory: string): { release(): void } {
  try {
    return lockDirectory(directory);
  } catch (error) {
    throw new UsageError(`${directory} cannot be used: ${(error as Error).message}. Stop it first.`);
  }
}

function demandCurrent(directory: string): void {
  const unknown = databaseNames.filter(
    (name) => existsSync(join(directory, name)) && unknownSteps(directory, name).length > 0,
  );
  if (behind(directory).length > 0 || unknown.length > 0)
    throw new UsageError(`${directory} has the tables of another version. Start this version on it once, and stop it.`);
}

/** Ids of all accounts of a directory; none when there is no registry. */
export function accountsIn(directory: string): string[] {
  return existsSync(registryIn(directory)) ? accountIdsIn(registryIn(directory)) : [];
}

/** Whether the target has everything; from then on the source is only cleared. */
function isCopied({ from, to, accounts }: Move): boolean {
  if (movingIn(from)?.state === 'copied') return true;
  const [isHere, isThere] = [from, to].map((directory) => accountsIn(directory).some((id) => accounts.includes(id)));
  if (movingIn(from) && isHere) return false;
  if (isHere && isThere) throw new UsageError(`${accounts.join(', ')} is in both directories, and no move has begun.`);
  if (!isHere && !isThere) throw new UsageError(`${accounts.join(', ')} is in neither directory.`);
  return isThere === true;
}

async function copy({ from, to, accounts, onStep = () => {} }: Move): Promise<Sums> {
  const moving: Moving = { accounts, from, to, state: 'copying' };
  onStep('marking');
  shareKeys(from, to);
  // First the source: a target with a marker and a source without one would be a move of which nobody knows.
  mark(from, moving);
  mark(to, moving);
  for (const name of databaseNames) await bringUpToDate(to, name);
  const { bridges, contents, uploads } = readOwn(registryIn(from), accounts);
  removeAll(to, accounts, bridges);
  onStep('copying messages');
  const onPoints = () => onStep('copied points');
  const messages = copyMessages(messagesIn(to), messagesIn(from), { accounts, bridges, onPoints });
  await copyFirmware(from, to, { contents, uploads });
  onStep('copying registry');
  const registry = copyRegistry(registryIn(to), registryIn(from), accounts);
  onStep('copied');
  mark(from, { ...moving, state: 'copied' });
  return { ...registry, ...messages };
}

/** Clears the source, after the target has everything. */
function finishMove({ from, to, accounts, onStep = () => {} }: Move): void {
  if (movingIn(from)) {
    onStep('removing');
    removeAll(from, accounts, bridgesOf(from, accounts).concat(bridgesOf(to, accounts)));
  }
  onStep('unmarking');
  unmark(to);
  unmark(from);
  onStep('done');
}

/** Removes all rows of accounts from a directory that no server runs on. */
export function removeAccounts(directory: string, accounts: string[]): void {
  removeAll(directory, accounts, bridgesOf(directory, accounts));
}

/** Messages first: what of them does not name its account is known by the bridges of the registry. */
function removeAll(directory: string, accounts: string[], bridges: string[]): void {
  if (existsSync(messagesIn(directory))) removeMessages(messagesIn(directory), accounts, bridges);
  if (existsSync(registryIn(directory))) removeRegistry(registryIn(directory), accounts);
}

function bridgesOf(directory: string, accounts: string[]): string[] {
  return existsSync(registryIn(directory)) ? readOwn(registryIn(directory), accounts).bridges : [];
}

/**
 * Codes on labels, recovery codes and sealed secrets are worth nothing under another key, so both directories must have the
 * same one. An empty directory gets all keys.
 */
function shareKeys(from: string, to: string): void {
  const keyOf = (directory: string) => {
    const path = join(directory, 'keys', 'sealing.key');
    return existsSync(path) ? readFileSync(path, 'utf8') : undefined;
  };
  if (!existsSync(registryIn(to)) && keyOf(to) === undefined) {
    const partial = join(to, 'keys.partial');
    cpSync(join(from, 'keys'), partial, { recursive: true });
    for (const name of readdirSync(partial)) sync(join(partial, name));
    sync(partial);
    renameSync(partial, join(to, 'keys'));
    sync(to);
  }
  if (keyOf(from) !== keyOf(to))
    throw new UsageError(
      `${join(to, 'keys')} has another sealing.key than ${join(from, 'keys')}: codes and sealed secrets could not be read there. Make new cells with a copy of the folder keys.`,
    );
}

/** Contents and uploads; each content has the hash that is its name. */
async function copyFirmware(
  from: string,
  to: string,
  { contents, uploads }: { contents: string[]; uploads: string[] },
): Promise<void> {
  const [source, target] = [new FirmwareFiles(from), new FirmwareFiles(to)];
  for (const sha256 of contents) {
    if (existsSync(target.pathOf(sha256))) continue;
    const partial = partialOf(sha256);
    copySynced(source.pathOf(sha256), target.partialPath(partial));
    if ((await target.hashOfPartial(partial)) !== sha256)
      throw new Error(`The firmware content ${sha256} of ${from} is damaged.`);
    await target.keepContent(partial, sha256);
  }
  for (const name of uploads) {
    const path = source.partialPath(name);
    if (existsSync(path)) copySynced(path, target.partialPath(name));
  }
}

function copySynced(from: string, to: string): void {
  copyFileSync(from, to);
  sync(to);
  sync(dirname(to));
}
