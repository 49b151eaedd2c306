/** Flags of the commands for the line, and the client that they ask for. */
import { parseArgs } from 'node:util';
import { loadClientConfig } from '../../config.js';
import { UsageError } from '../usage.js';
import { Client } from './client.js';
import { readPem } from './line.js';

type Kinds = Readonly<Record<string, 'string' | 'boolean' | 'list'>>;

export interface Flags {
  text(name: string): string | undefined;
  list(name: string): string[];
  is(name: string): boolean;
  /** @throws UsageError when it is missing. */
  demanded(name: string): string;
  /** @throws UsageError when it is no whole number from `least` to `most`. */
  whole(name: string, usual: number, least: number, most: number): number;
}

const connection: Kinds = { url: 'string', token: 'string', ca: 'string', 'retry-for': 'string', json: 'boolean' };

/** @throws UsageError for a flag that there is not; for one without its value Node's own error, which ends alike. */
export function readFlags(args: string[], kinds: Kinds): Flags {
  const options = Object.entries({ ...connection, ...kinds }).map(([name, kind]) => [
    name,
    kind === 'list' ? { type: 'string', multiple: true } : { type: kind },
  ]);
  const { values } = parseArgs({ args: withLabels(args), options: Object.fromEntries(options) });
  const given: Record<string, unknown> = values;
  const text = (name: string) => {
    const value = given[name];
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  return {
    text,
    list: (name) => (Array.isArray(given[name]) ? given[name].map(String) : []),
    is: (name) => given[name] === true,
    demanded: (name) => {
      const value = text(name);
      if (value === undefined) throw new UsageError(`--${name} is missing.`);
      return value;
    },
    whole: (name, usual, least, most) => {
      const value = text(name) ?? `${usual}`;
      if (!/^\d{1,9}$/.test(value) || Number(value) < least || Number(value) > most)
        throw new UsageError(`--${name} must be a whole number from ${least} to ${most}.`);
      return Number(value);
    },
  };
}

/** `--labels` alone means SVG. */
function withLabels(args: string[]): string[] {
  return args.flatMap((arg, at) => {
    const next = args[at + 1];
    return arg === '--labels' && (next === undefined || next.startsWith('--')) ? [arg, 'svg'] : [arg];
  });
}

/** The client for the flags and the environment; `signal` ends whatever it waits for. @throws ConfigError, UsageError, Ending 3, 4. */
export function connect(flags: Flags, say: (sentence: string) => void, signal?: AbortSignal): Promise<Client> {
  const config = loadClientConfig({ url: flags.text('url'), token: flags.text('token') });
  const ca = config.url.startsWith('https:') ? readPem(flags.text('ca')) : undefined;
  return Client.open({ ...config, ca, retryFor: 1000 * flags.whole('retry-for', 60, 0, 86_400), say, signal });
}

export function sayOnError(sentence: string): void {
  process.stderr.write(`${sentence}\n`);
}
