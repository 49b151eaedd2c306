#!/usr/bin/env node
/** The `slipway` command. */
import { Ending, exitCodes, UsageError } from './commands/usage.js';
import type { ErrorDetail } from './errors.js';

const usage = `slipway: device provisioning service

  slipway start                     run the server (configuration: environment variables, docs/configuration.md)

  slipway health [--ready]          ends 0 when the server of this configuration answers (--ready: and can do its work), else 1

  These work on the data directory, also while a server is running, and print JSON; --data-dir D where the
  configuration does not name it, --account A where there are several accounts.

  slipway account create --name N --admin-email E [--admin-password P]
  slipway account list
  slipway usage                     what each account stores: bytes of messages, points, log entries, devices
  slipway admin list
  slipway admin create --email E [--password P]
  slipway admin reset-password --email E [--password P] [--remove-mfa]
  slipway app create --name N --kind endUserApp|backEnd [--reveal-reset-token] [--access-token-lifetime SECONDS]
  slipway app create --name N --kind station --device-template T [--organization O] --max-devices N --expires-at DATE
  slipway app list
  slipway app revoke --id I
  slipway keys rotate [--end-old]   a new signing key; --end-old: every token of an old one is void at once

  So do these (docs/operations.md). A backup is made while the server runs; for the other two it is stopped first.

  slipway backup FILE               databases and keys, of one moment, in a file that is to be kept secret
  slipway restore FILE [--force]    into a directory without data; --force: the data there is put aside
  slipway rollback                  the data as it was before the last upgrade, for the version that ran on it

  slipway doctor [--json] [--skip-integrity]
      ports, clock, certificate, disk, files, configuration, and a server that runs; run it where the server's environment
      is set. Exit codes: 0 all is well, 1 something will be trouble, 2 something is.

  These call a server (docs/factory.md): --url or SLIPWAY_URL says where it is (http://127.0.0.1:3000), --token or
  SLIPWAY_TOKEN what they may do there: a JWT, or the appToken of a station with SLIPWAY_APP_ID and SLIPWAY_ACCOUNT_ID.

  slipway provision --csv FILE --format F --out DIR [--template T] [--organization O] [--labels [svg|png|html]]
                    [--broker URL] [--ca FILE] [--certify PROGRAM] [--concurrency N] [--chunk-rows N] [--dry-run]
                    [--again SERIAL]... [--take-over]
      makes the units of a CSV file (column serialNumber, and any field) with their flash files: F is esp-nvs-csv,
      env, c-header or json. Run it again after any interruption: each unit is made once, none is lost.
  slipway provision one --serial S --format F --out DIR [--field NAME=VALUE]... [--template T] [--organization O]
                    [--labels [svg|png|html]] [--broker URL] [--ca FILE] [--certify PROGRAM] [--print] [--again]
      makes one unit and prints where its file is; --print prints the file, with its secret
      --again, for both: a unit that was made here gets a new secret and its files once more
  slipway firmware publish FILE... --template T --firmware-version V [--name N] [--signature FILE]
      uploads the files into a package and publishes it (docs/firmware.md)
  slipway firmware roll-out --package P (--where FIELD=VALUE | --device D | --organization O)... [--stages 1,10,100]
                    [--pause SECONDS] [--deadline SECONDS] [--max-failures PERCENT] [--watch]
  slipway firmware status --rollout R [--watch]
      --watch ends with the rollout, with 0 when every device has succeeded, or when it pauses
  slipway verify --serial S | --device ID [--timeout SECONDS]
      waits until the unit has connected and published
  All three: [--json] [--retry-for SECONDS] (60: how long a server that does not answer is tried).
  Exit codes: 0 all done, 1 some rows or units failed, 2 wrong usage or input, 3 server, network or disk (run it
  again), 4 refused (rights, an expired or exhausted station), 130 Ctrl-C (run it again).

  slipway --help, slipway --version
`;

type Command = (args: string[]) => Promise<void>;

/** Each is loaded when it is asked for: a unit on the line does not wait for what manages accounts. */
const commands: Record<string, () => Promise<Command>> = {
  health: async () => (await import('./commands/health.js')).health,
  'account create': async () => (await import('./commands/accounts.js')).accountCreate,
  'account list': async () => (await import('./commands/accounts.js')).accountList,
  usage: async () => (await import('./commands/account-usage.js')).accountUsage,
  'admin list': async () => (await import('./commands/admins.js')).adminList,
  'admin create': async () => (await import('./commands/admins.js')).adminCreate,
  'admin reset-password': async () => (await import('./commands/admins.js')).adminResetPassword,
  'app list': async () => (await import('./commands/applications.js')).appList,
  'app create': async () => (await import('./commands/applications.js')).appCreate,
  'app revoke': async () => (await import('./commands/applications.js')).appRevoke,
  'keys rotate': async () => (await import('./commands/data/keys.js')).keysRotate,
  backup: async () => onTheDisk((await import('./commands/data/backup.js')).backup),
  restore: async () => onTheDisk((await import('./commands/data/restore.js')).restore),
  doctor: async () => (await import('./commands/doctor/index.js')).doctor,
  rollback: async () => onTheDisk((await import('./commands/data/rollback.js')).rollback),
  'provision one': async () => forTheLine((await import('./commands/provision-one.js')).provisionOne),
  provision: async () => forTheLine((await import('./commands/provision.js')).provision),
  'firmware publish': async () => forTheLine((await import('./commands/firmware.js')).firmwarePublish),
  'firmware roll-out': async () => forTheLine((await import('./commands/firmware.js')).firmwareRollOut),
  'firmware status': async () => forTheLine((await import('./commands/firmware.js')).firmwareStatus),
  verify: async () => forTheLine((await import('./commands/verify.js')).verify),
};

/** Scripts rely on the exit code: an unexpected error must not look like failed rows. */
function forTheLine(command: Command): Command {
  return async (args) => {
    // Anyone who read the output has gone; the work goes on, and its exit code counts.
    for (const stream of [process.stdout, process.stderr])
      stream.on('error', (error: NodeJS.ErrnoException) => {
        if (error.code !== 'EPIPE') throw error;
      });
    process.once('SIGINT', () => {
      process.stderr.write('\nStopped. Run the command again to continue.\n');
      process.exit(130);
    });
    try {
      await command(args);
    } catch (error) {
      if (isKnown(error)) throw error;
      throw new Ending(exitCodes.trouble, `${(error as Error).stack}`);
    }
  };
}

/** A disk that is full or may not be written is told in a sentence, to somebody who has trouble enough. */
function onTheDisk(command: Command): Command {
  return async (args) => {
    try {
      await command(args);
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? String(error.code) : '';
      if (isKnown(error) || !/^(E[A-Z]+|SQLITE_[A-Z_]+)$/.test(code)) throw error;
      throw new Ending(exitCodes.trouble, `The command failed (${code}): ${(error as Error).message}.`);
    }
  };
}

async function main(args: string[]): Promise<void> {
  // Databases, keys, backups and the files of units are for the owner of the process alone.
  process.umask(0o077);
  const [command] = args;
  if (command === 'start') {
    await import('./main.js');
    return;
  }
  if (command === '--version') {
    console.log((await import('../db/files/version.js')).version);
    return;
  }
  // As the value of another flag it is not a flag, so a unit with this name has not passed.
  if (command === undefined || command === 'help' || args.find((one) => one.startsWith('-')) === '--help') {
    console.log(usage);
    return;
  }
  for (const words of [2, 1]) {
    const name = args.slice(0, words).join(' ');
    const load = Object.hasOwn(commands, name) ? commands[name] : undefined;
    if (load) return (await load())(args.slice(words));
  }
  throw new UsageError(`There is no command ${args.slice(0, 2).join(' ')}.\n\n${usage}`);
}

/** Whether its message is a sentence for the person who typed the command. */
function isKnown(error: unknown): error is Error {
  if (!(error instanceof Error)) return false;
  const isParsing = error instanceof TypeError && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS');
  return isParsing || error instanceof UsageError || error instanceof Ending || error.name === 'ConfigError';
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  const isRefusal = error instanceof Error && error.name === 'PlatformError' && 'details' in error;
  if (!isRefusal && !isKnown(error)) throw error;
  const details = isRefusal ? (error.details as ErrorDetail[]).map(({ path, message }) => `${path} ${message}`) : [];
  console.error([error.message, ...details].join(' '));
  process.exitCode = error instanceof Ending ? error.exitCode : 2;
}
