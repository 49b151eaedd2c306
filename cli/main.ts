#!/usr/bin/env node
import { lineOf, type PlatformError } from '../src/core/errors.ts';
/** The `slipway` command. */
import { Ending, isKnown } from './usage.ts';

/** What each call needs is loaded when it is called: a unit on the line has 200 ms, and a server wants its memory. */
async function main(args: string[]): Promise<void> {
  // Databases, keys, backups and the files of units are for the owner of the process alone.
  process.umask(0o077);
  const [first, ...more] = args;
  if (first === 'start' && more.length === 0) await import('../src/main.ts');
  else if (first === '--version' || first === '-V') console.log((await import('../db/files/version.ts')).version);
  else await (await import('./program.ts')).runCommand(args);
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  const isRefusal = error instanceof Error && error.name === 'PlatformError' && 'details' in error;
  if (!isRefusal && !isKnown(error)) throw error;
  console.error(isRefusal ? lineOf(error as PlatformError) : error.message);
  process.exitCode = error instanceof Ending ? error.exitCode : 2;
}
