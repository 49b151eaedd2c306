/** Every limit, in one table: the configuration, docs/limits.md, GET /usage and /metrics take their rows from it. */
import { type ErrorDetail, PlatformError } from '../errors.ts';
import { accountLimits } from './account-limits.ts';
import { httpLimits } from './http-limits.ts';
import { mqttLimits } from './mqtt-limits.ts';
import type { Limit } from './row.ts';

export const limits = [...accountLimits, ...httpLimits, ...mqttLimits] as const;

type AnyLimit = (typeof limits)[number];
export type LimitName = AnyLimit['name'];
/** The limits whose use by an account is counted. */
export type CountedLimit = Extract<AnyLimit, { counted: true }>['name'];
/** The configured limits by name; 0 means no limit. */
export type Limits = Readonly<Record<LimitName, number>>;

/** The limits as `read` gives them. */
export function readLimits(read: (limit: Limit) => number): Limits {
  return Object.fromEntries(limits.map((limit) => [limit.name, read(limit)])) as Limits;
}

/** The largest value that a limit can be set to: the bound of an array whose items it counts. */
export function largest(name: LimitName): number {
  return (limits.find((limit) => limit.name === name) as AnyLimit).max;
}

/**
 * Checks that `count`, as it would be afterwards, is within the limit. `path` names the property that exceeds it.
 * @throws PlatformError 400 with 106 naming the limit.
 */
export function demandWithin(configured: Limits, name: LimitName, count: number, path: string): void {
  const maximum = configured[name];
  if (maximum === 0 || count <= maximum) return;
  throw new PlatformError('invalid', { details: [exceeded(configured, name, path)] });
}

/** The error detail of a limit that is reached. */
export function exceeded(configured: Limits, name: LimitName, path: string): ErrorDetail {
  const { variable, per, unit } = limits.find((limit) => limit.name === name) as AnyLimit;
  const maximum = configured[name];
  const message = `exceeds the limit ${name} (${variable}): at most ${maximum} ${unit} per ${per.split(';')[0]}`;
  return { path, message, limit: name, maximum };
}
