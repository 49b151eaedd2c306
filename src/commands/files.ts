/** What the commands share that work on the files of a data directory, also beside a running server. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Registry } from '../../db/index.js';
import { Audit } from '../audit.js';
import { announceChange } from '../changes.js';
import { loadConfig } from '../config.js';
import type { Clock, Context } from '../context.js';
import { UsageError } from './usage.js';

export { UsageError };

export type Values = Record<string, string | undefined>;

/** What a command works with: its options, and the registry of its data directory. */
export interface Files {
  dataDir: string;
  registry: Registry;
  clock: Clock;
  audit: Audit;
  values: Values;
  /** Switches that were given. */
  switches: ReadonlySet<string>;
}

type Options = Record<string, 'string' | 'boolean'>;

/**
 * Runs `work` on the data directory that the options or the configuration name, and tells a running server.
 * @throws UsageError when there is no registry in it: a mistyped directory must not look like an empty one.
 */
export async function withRegistry(
  args: string[],
  options: Options,
  work: (files: Files) => Promise<void>,
): Promise<void> {
  const { dataDir } = readOptions(args, options);
  if (!existsSync(join(dataDir, 'registry.db')))
    throw new UsageError(`There is no registry in ${dataDir}. Name its directory with --data-dir or SLIPWAY_DATA_DIR.`);
  await withNewRegistry(args, options, work);
}

/** As withRegistry, and makes what is not there. */
export async function withNewRegistry(
  args: string[],
  options: Options,
  work: (files: Files) => Promise<void>,
): Promise<void> {
  const { dataDir, values, switches } = readOptions(args, options);
  const registry = await Registry.open(dataDir);
  const clock = { now: () => Date.now() };
  const audit = new Audit({ registry, clock, log: silent });
  try {
    await work({ dataDir, registry, clock, audit, values, switches });
  } finally {
    await audit.close();
    await registry.close();
    announceChange(dataDir);
  }
}

function readOptions(args: string[], options: Options) {
  const types = Object.entries({ ...options, 'data-dir': 'string' as const });
  const parsed = parseArgs({ args, options: Object.fromEntries(types.map(([name, type]) => [name, { type }])) });
  const given = Object.entries<unknown>(parsed.values);
  const values = Object.fromEntries(
    given.flatMap(([name, value]) => (typeof value === 'string' ? [[name, value]] : [])),
  );
  const switches = new Set(given.flatMap(([name, value]) => (value === true ? [name] : [])));
  const dataDir = values['data-dir'] ?? loadConfig().dataDir;
  return { dataDir, values, switches };
}

/** Nothing of a command is noted in the background, so nothing can fail there. */
const silent = { error: () => {} } as unknown as Context['log'];

/** @throws UsageError when the option is missing. */
export function demanded(values: Values, name: string): string {
  const value = values[name];
  if (!value) throw new UsageError(`--${name} is missing.`);
  return value;
}

/** The account that `--account` names, or the only one. @throws UsageError when that is not one. */
export async function accountOf({ registry, values }: Files): Promise<string> {
  const accounts = await registry.query.selectFrom('accounts').select('id').limit(1000).execute();
  const named = values.account;
  if (accounts.length === 0) throw new UsageError('There is no account yet.');
  if (named === undefined && accounts.length === 1) return accounts[0]?.id ?? '';
  if (named === undefined) throw new UsageError('--account is missing: there are several accounts.');
  if (!accounts.some(({ id }) => id === named))
    throw new UsageError(`There is no account ${named}: slipway account list names them.`);
  return named;
}

/** One JSON object on one line of standard output. */
export function print(value: object): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}
