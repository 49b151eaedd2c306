/** Commands for the operator of the machine. */
import type { applicationKinds } from '../../db/registry/records/identity.ts';
import { command } from '../command.ts';
import { onTheDisk } from '../guards.ts';

/** The data directory of a command that works on its files. */
export const dataDir = {
  value: 'DIR',
  about: 'the data directory',
  otherwise: 'SLIPWAY_DATA_DIR',
  completes: 'directories',
} as const;
/** The account of a command that works on one. */
export const account = { value: 'ID', about: 'the account', otherwise: 'the only account' } as const;

const email = { value: 'EMAIL', about: 'email address of the admin', required: true } as const;
const password = { value: 'PASSWORD', about: 'its password', otherwise: 'a new one, which is printed' } as const;
const kinds = ['endUserApp', 'backEnd', 'station'] as const satisfies typeof applicationKinds;

const ofBackups = { 0: 'done', 2: 'wrong usage, or it cannot be done', 3: 'the disk failed' };

const onData = 'Works on the data directory, also while a server is running. Prints one JSON object per line.';

export const operatorCommands = [
  command({
    words: 'start',
    group: 'Server',
    summary: 'runs the server',
    about: 'Environment variables configure it: see docs/configuration.md.',
    flags: {},
    examples: ['slipway start'],
    run: async () => void (await import('../../src/main.ts')),
  }),
  command({
    words: 'health',
    group: 'Server',
    summary: 'checks whether the server of this configuration answers',
    flags: { ready: { about: 'also checks whether the server can work' } },
    exitCodes: { 0: 'the server answers', 1: 'it does not answer', 2: 'wrong usage or configuration' },
    examples: ['slipway health --ready'],
    run: async (given) => (await import('../health.ts')).health(given),
  }),
  command({
    words: 'doctor',
    group: 'Server',
    summary: 'checks ports, clock, certificate, disk, files, configuration and the running server',
    about: "Run it where the server's environment is set. It changes nothing.",
    flags: {
      dataDir,
      json: { about: 'prints JSON' },
      skipIntegrity: { about: 'does not read the databases and firmware files as a whole' },
    },
    exitCodes: { 0: 'no problem', 1: 'warnings', 2: 'errors, or wrong usage' },
    examples: ['slipway doctor', 'slipway doctor --json --skip-integrity'],
    run: async (given) => (await import('../doctor/index.ts')).doctor(given),
  }),
  command({
    words: 'clock confirm',
    group: 'Server',
    summary: 'says that the clock is right, after it has jumped ahead',
    about: 'Until then nothing is deleted for its age, for a day at most. The server may run.',
    flags: { dataDir },
    examples: ['slipway clock confirm'],
    run: (given) => onTheDisk(async () => (await import('../data/clock.ts')).confirmClock(given)),
  }),
  command({
    words: 'account create',
    group: 'Accounts and keys',
    summary: 'creates an account and its first admin',
    about: onData,
    flags: {
      name: { value: 'NAME', about: 'name of the account', required: true },
      adminEmail: { value: 'EMAIL', about: 'email address of its first admin', required: true },
      adminPassword: { value: 'PASSWORD', about: 'password of its first admin', otherwise: password.otherwise },
      adminPasswordFile: { value: 'FILE', about: 'file with that password; - is standard input', completes: 'files' },
      dataDir,
    },
    examples: ['slipway account create --name "My company" --admin-email admin@example.com'],
    run: async (given) => (await import('../accounts.ts')).accountCreate(given),
  }),
  command({
    words: 'account list',
    group: 'Accounts and keys',
    summary: 'lists the accounts',
    about: onData,
    flags: { dataDir },
    examples: ['slipway account list'],
    run: async (given) => (await import('../accounts.ts')).accountList(given),
  }),
  command({
    words: 'account move',
    group: 'Accounts and keys',
    summary: 'moves an account, and all others of its slot, to another cell or data directory',
    about:
      'With --config both cells run, and the account is silent for a moment (docs/scaling.md). Otherwise stop the servers of both directories first (docs/operations.md). Broken off, it is called again.',
    operands: [{ name: 'ACCOUNT', about: 'id of the account' }],
    flags: {
      dataDir,
      to: {
        value: 'CELL',
        about: 'the other cell, or without --config the other data directory',
        required: true,
        completes: 'directories',
      },
      config: { value: 'FILE', about: 'cells.yaml: both cells run', completes: 'files' },
      undo: { about: 'moves the account back to where it was before' },
    },
    exitCodes: {
      0: 'done',
      2: 'wrong usage, or it cannot be moved',
      3: 'a cell or the disk failed: call it again, or with --undo',
    },
    examples: [
      'slipway account move 0190… --to c02 --config cells.yaml',
      'slipway account move 0190… --to /mnt/c02/data',
      'slipway account move 0190… --to /mnt/c02/data --undo',
    ],
    run: ({ config, ...given }, [id = '']) =>
      onTheDisk(async () =>
        config === undefined
          ? (await import('../cells/account-move.ts')).accountMove(given, id)
          : (await import('../cells/account-move.ts')).accountMoveLive({ ...given, config }, id),
      ),
  }),
  command({
    words: 'usage',
    group: 'Accounts and keys',
    summary: 'prints what each account stores: bytes of messages, points, log entries, devices',
    about: onData,
    flags: { dataDir },
    examples: ['slipway usage'],
    run: async (given) => (await import('../account-usage.ts')).accountUsage(given),
  }),
  command({
    words: 'admin create',
    group: 'Accounts and keys',
    summary: 'creates an admin',
    about: onData,
    flags: { email, password, account, dataDir },
    examples: ['slipway admin create --email deputy@example.com'],
    run: async (given) => (await import('../admins.ts')).adminCreate(given),
  }),
  command({
    words: 'admin list',
    group: 'Accounts and keys',
    summary: 'lists the admins of an account',
    about: onData,
    flags: { account, dataDir },
    examples: ['slipway admin list'],
    run: async (given) => (await import('../admins.ts')).adminList(given),
  }),
  command({
    words: 'admin reset-password',
    group: 'Accounts and keys',
    summary: 'sets a new password for an admin and ends its sessions',
    about: onData,
    flags: { email, password, removeMfa: { about: 'removes the second factors too' }, account, dataDir },
    examples: ['slipway admin reset-password --email admin@example.com --remove-mfa'],
    run: async (given) => (await import('../admins.ts')).adminResetPassword(given),
  }),
  command({
    words: 'app create',
    group: 'Accounts and keys',
    summary: 'creates an application and prints its appToken',
    about: onData,
    flags: {
      name: { value: 'NAME', about: 'name of the application', required: true },
      kind: { value: 'KIND', about: 'kind of application', choices: kinds, required: true },
      accessTokenLifetime: { value: 'SECONDS', about: 'lifetime of its access tokens' },
      revealResetToken: { about: 'password resets return their token to it' },
      deviceTemplate: { value: 'ID', about: 'station: device template of its units' },
      organization: { value: 'ID', about: 'station: organization of its units' },
      maxDevices: { value: 'N', about: 'station: how many devices it may create' },
      expiresAt: { value: 'DATE', about: 'station: when it ends, such as 2027-01-31T00:00:00.000Z' },
      account,
      dataDir,
    },
    examples: [
      'slipway app create --name Back --kind backEnd',
      'slipway app create --name "Line 1" --kind station --device-template ID --max-devices 5000 --expires-at 2027-01-31T00:00:00.000Z',
    ],
    run: async (given) => (await import('../applications.ts')).appCreate(given),
  }),
  command({
    words: 'app list',
    group: 'Accounts and keys',
    summary: 'lists the applications of an account',
    about: onData,
    flags: { account, dataDir },
    examples: ['slipway app list'],
    run: async (given) => (await import('../applications.ts')).appList(given),
  }),
  command({
    words: 'app revoke',
    group: 'Accounts and keys',
    summary: 'revokes an application and ends its connections',
    about: onData,
    flags: { id: { value: 'ID', about: 'the application', required: true }, dataDir },
    examples: ['slipway app revoke --id ID'],
    run: async (given) => (await import('../applications.ts')).appRevoke(given),
  }),
  command({
    words: 'keys rotate',
    group: 'Accounts and keys',
    summary: 'creates a new signing key',
    about: onData,
    flags: { endOld: { about: 'makes every token of an older key invalid at once' }, dataDir },
    examples: ['slipway keys rotate'],
    run: async (given) => (await import('../data/keys.ts')).keysRotate(given),
  }),
  command({
    words: 'backup',
    group: 'Backup',
    summary: 'writes databases, keys and firmware of one moment into one file, while the server runs',
    about: 'Keep the file secret: it contains the keys.',
    operands: [{ name: 'FILE', about: 'the file to write; it must not exist' }],
    flags: { dataDir },
    exitCodes: ofBackups,
    examples: ['slipway backup /mnt/safe/slipway.zip'],
    run: (given, [file = '']) => onTheDisk(async () => (await import('../data/backup.ts')).backup(given, file)),
  }),
  command({
    words: 'restore',
    group: 'Backup',
    summary: 'restores a backup into the data directory',
    about: 'Stop the server first. The data directory must hold no data.',
    operands: [{ name: 'FILE', about: 'the backup' }],
    flags: { force: { about: 'replaces data that is there, and keeps it next to the directory' }, dataDir },
    exitCodes: ofBackups,
    examples: ['slipway restore /mnt/safe/slipway.zip'],
    run: (given, [file = '']) => onTheDisk(async () => (await import('../data/restore.ts')).restore(given, file)),
  }),
  command({
    words: 'rollback',
    group: 'Backup',
    summary: 'puts the data back as it was before the last upgrade',
    about: 'Stop the server first. The data then needs the version that ran before the upgrade.',
    flags: { dataDir },
    exitCodes: ofBackups,
    examples: ['slipway rollback'],
    run: (given) => onTheDisk(async () => (await import('../data/rollback.ts')).rollback(given)),
  }),
  command({
    words: 'data give-up',
    group: 'Backup',
    summary: 'goes on without a file of the data directory that is lost',
    about: 'Stop the server first. Only for a file that a start names as missing; says what is lost with it.',
    operands: [{ name: 'FILE', about: 'registry.db, messages.db or keys/sealing.key' }],
    flags: { dataDir },
    exitCodes: ofBackups,
    examples: ['slipway data give-up messages.db'],
    run: (given, [file = '']) => onTheDisk(async () => (await import('../data/give-up.ts')).giveUp(given, file)),
  }),
];
