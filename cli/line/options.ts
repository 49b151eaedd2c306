/** The client that the flags of a command for the line ask for. */
import { loadClientConfig } from '../../src/core/config.ts';
import { readLogin } from '../saved-login.ts';
import { Client } from './client.ts';
import { readCaFile } from './line.ts';

/** Flags of every command that calls a server. */
export interface Connection {
  url: string | undefined;
  token: string | undefined;
  /** A PEM file. */
  ca: string | undefined;
  /** Seconds. */
  retryFor: number;
  json: boolean;
}

/** The client for the flags and the environment; `signal` ends whatever it waits for. @throws ConfigError, UsageError, Ending 3, 4. */
export function connect(
  flags: Connection,
  printLine: (sentence: string) => void,
  signal?: AbortSignal,
): Promise<Client> {
  const config = loadClientConfig({ ...flags, saved: readLogin() });
  const ca = config.url.startsWith('https:') ? readCaFile(flags.ca) : undefined;
  return Client.open({ ...config, ca, retryFor: 1000 * flags.retryFor, printLine, signal });
}

export function printError(sentence: string): void {
  process.stderr.write(`${sentence}\n`);
}
