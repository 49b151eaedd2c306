#!/usr/bin/env node
/** The `slipway` command. */
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Registry } from '../db/index.js';
import { ConfigError, loadConfig } from './config.js';
import { PlatformError } from './errors.js';
import { Passwords } from './identity/passwords.js';
import { createAccount } from './registry/accounts.js';

const usage = `slipway: device provisioning service

  slipway start                     run the server (configuration: environment variables, see the README)
  slipway account create --name N --admin-email E [--admin-password P] [--data-dir D]
                                    make an account, also beside a running server; prints one JSON line
  slipway --help, slipway --version
`;

/** What the user typed cannot be done; the sentence says why. */
class UsageError extends Error {}

async function main(args: string[]): Promise<void> {
  const [command, subcommand] = args;
  if (command === 'start') {
    await import('./main.js');
    return;
  }
  if (command === 'account' && subcommand === 'create') return accountCreate(args.slice(2));
  if (command === '--version') {
    // Two folders up from dist/src.
    const file = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
    console.log((JSON.parse(file) as { version: string }).version);
    return;
  }
  if (command === undefined || command === '--help' || command === 'help') {
    console.log(usage);
    return;
  }
  throw new UsageError(`There is no command ${args.slice(0, 2).join(' ')}.\n\n${usage}`);
}

async function accountCreate(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      name: { type: 'string' },
      'admin-email': { type: 'string' },
      'admin-password': { type: 'string' },
      'data-dir': { type: 'string' },
    },
  });
  const { name, 'admin-email': adminEmail, 'admin-password': adminPassword, 'data-dir': dataDir } = values;
  if (!name || !adminEmail) throw new UsageError('slipway account create needs --name and --admin-email.');
  const registry = await Registry.open(dataDir ?? loadConfig().dataDir);
  try {
    const services = { registry, clock: { now: () => Date.now() }, passwords: new Passwords() };
    console.log(JSON.stringify(await createAccount(services, { name, adminEmail, adminPassword })));
  } finally {
    await registry.close();
  }
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  const known = error instanceof UsageError || error instanceof ConfigError || error instanceof PlatformError;
  const parsing = error instanceof TypeError && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS');
  if (!known && !parsing) throw error;
  const details = error instanceof PlatformError ? error.details.map(({ path, message }) => `${path} ${message}`) : [];
  console.error([(error as Error).message, ...details].join(' '));
  process.exitCode = 2;
}
