#!/usr/bin/env node
/** The `slipway` command. */
import { readFileSync } from 'node:fs';
import { accountCreate, accountList } from './commands/accounts.js';
import { adminCreate, adminList, adminResetPassword } from './commands/admins.js';
import { appCreate, appList, appRevoke } from './commands/applications.js';
import { UsageError } from './commands/files.js';
import { keysRotate } from './commands/keys.js';
import { ConfigError } from './config.js';
import { PlatformError } from './errors.js';

const usage = `slipway: device provisioning service

  slipway start                     run the server (configuration: environment variables, see the README)

  These work on the data directory, also beside a running server, and print JSON; --data-dir D where the
  configuration does not name it, --account A where there are several accounts.

  slipway account create --name N --admin-email E [--admin-password P]
  slipway account list
  slipway admin list
  slipway admin create --email E [--password P]
  slipway admin reset-password --email E [--password P] [--remove-mfa]
  slipway app create --name N --kind endUserApp|backEnd [--reveal-reset-token] [--access-token-lifetime SECONDS]
  slipway app create --name N --kind station --device-template T [--organization O] --max-devices N --expires-at DATE
  slipway app list
  slipway app revoke --id I
  slipway keys rotate [--end-old]   a new signing key; --end-old: every token of an old one is void at once

  slipway --help, slipway --version
`;

const commands: Record<string, (args: string[]) => Promise<void>> = {
  'account create': accountCreate,
  'account list': accountList,
  'admin list': adminList,
  'admin create': adminCreate,
  'admin reset-password': adminResetPassword,
  'app list': appList,
  'app create': appCreate,
  'app revoke': appRevoke,
  'keys rotate': keysRotate,
};

async function main(args: string[]): Promise<void> {
  const [command] = args;
  if (command === 'start') {
    await import('./main.js');
    return;
  }
  if (command === '--version') {
    // Two folders up from dist/src.
    const file = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
    console.log((JSON.parse(file) as { version: string }).version);
    return;
  }
  if (command === undefined || command === 'help' || args.includes('--help')) {
    console.log(usage);
    return;
  }
  const name = args.slice(0, 2).join(' ');
  const run = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (!run) throw new UsageError(`There is no command ${name}.\n\n${usage}`);
  await run(args.slice(2));
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
