/** The login that `slipway login` keeps in a file of its owner, for commands that are given no token. */
import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { loginFile, type SavedLogin } from '../src/core/config.ts';
import type { Client } from './line/client.ts';
import { UsageError } from './usage.ts';

/** @throws UsageError for a file that cannot be read. */
export function readLogin(): SavedLogin | undefined {
  const file = loginFile();
  try {
    const { url, token } = JSON.parse(readFileSync(file, 'utf8')) as Partial<SavedLogin>;
    return typeof url === 'string' && typeof token === 'string' ? { url, token } : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new UsageError(`${file} cannot be read: ${(error as Error).message}. Remove it, and log in again.`);
  }
}

/** Returns the path of the file. */
export function saveLogin(login: SavedLogin): string {
  const file = loginFile();
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  // Another command may read it now.
  const next = `${file}.${process.pid}`;
  writeFileSync(next, `${JSON.stringify(login)}\n`, { mode: 0o600 });
  chmodSync(next, 0o600);
  renameSync(next, file);
  return file;
}

export function forgetLogin(): void {
  rmSync(loginFile(), { force: true });
}

/** A session is renewed as it is used: the login that is kept takes its newest token. */
export function keepToken({ token, options }: Pick<Client, 'token' | 'options'>): void {
  if (token === undefined || token === options.token) return;
  const saved = readLogin();
  if (saved?.url === options.url && saved.token === options.token) saveLogin({ url: options.url, token });
}
