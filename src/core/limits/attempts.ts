/** How often somebody may try something, on the injected clock: a window begins with the first try and ends on its own. */
import { createHash } from 'node:crypto';
import type { FastifyReply } from 'fastify';
import { boundedCache } from '../../../db/sqlite/cache.ts';
import { type Clock, monotonic } from '../clock.ts';
import { type Allowance, PlatformError } from '../errors.ts';
import { networksOf } from './networks.ts';

export type { Allowance } from '../errors.ts';

/** Keys that are remembered; past it the least recently used go. */
const keysKept = 100_000;

/**
 * By what tries are counted: a text, or an address with what is tried from there. An address counts in each of its networks,
 * of which a wide one may try more often.
 */
export type Tried = string | { address: string; subject?: string };

interface Window {
  since: number;
  count: number;
}

/** A window, and the tries that it has room for. */
interface Bound {
  window: Window;
  limit: number;
}

export class Attempts {
  readonly #clock: Clock;
  readonly #limit: number;
  readonly #length: number;
  readonly #message: string | undefined;
  readonly #windows = boundedCache<string, Window>(keysKept);

  /** `limit` tries in `length` milliseconds; 0 switches it off. `message` is what the 429 says. */
  constructor(clock: Clock, limit: number, length: number, message?: string) {
    this.#clock = clock;
    this.#limit = limit;
    this.#length = length;
    this.#message = message;
  }

  /**
   * Counts a try before it is known to fail, so that many at once do not get past the limit; one that costs more than is
   * left is the last. @throws PlatformError 429 when there is none left.
   */
  takeTry(tried: Tried, cost = 1): Allowance {
    if (this.#limit === 0) return { limit: 0, remaining: 0, reset: 0 };
    const bounds = this.#boundsOf(tried);
    const full = bounds.find(({ window, limit }) => window.count >= limit);
    if (full) {
      const said = this.#message === undefined ? {} : { message: this.#message };
      throw new PlatformError('tooMany', { ...said, allowance: this.#allowance(full) });
    }
    for (const { window } of bounds) window.count += cost;
    return this.#tightest(bounds);
  }

  /** Adds to the cost of what was taken. */
  chargeTry(tried: Tried, cost: number): void {
    if (this.#limit > 0) for (const { window } of this.#boundsOf(tried)) window.count += cost;
  }

  /** Takes a try back: it did not fail. */
  giveBack(tried: Tried): void {
    for (const { key } of keysOf(tried)) this.#takeOff(key, 1);
  }

  /** Forgets what has been tried; of a wide network only what was tried in this narrow one. */
  clearTries(tried: Tried): void {
    const [narrow, ...wide] = keysOf(tried);
    const window = narrow && this.#windows.get(narrow.key);
    if (!window) return;
    this.#windows.delete(narrow.key);
    for (const { key } of wide) this.#takeOff(key, window.count);
  }

  /** The number of tries left, without counting one. */
  left(tried: Tried): Allowance {
    return this.#tightest(this.#boundsOf(tried));
  }

  #boundsOf(tried: Tried): Bound[] {
    return keysOf(tried).map(({ key, times }) => ({ window: this.#windowOf(key), limit: this.#limit * times }));
  }

  #windowOf(key: string): Window {
    const now = monotonic(this.#clock);
    const known = this.#windows.get(key);
    if (known && now - known.since < this.#length) return known;
    const window = { since: now, count: 0 };
    this.#windows.set(key, window);
    return window;
  }

  #takeOff(key: string, count: number): void {
    const window = this.#windows.get(key);
    if (window) window.count = Math.max(0, window.count - count);
  }

  #tightest(bounds: Bound[]): Allowance {
    return bounds.map((bound) => this.#allowance(bound)).reduce((a, b) => (b.remaining < a.remaining ? b : a));
  }

  #allowance({ window: { since, count }, limit }: Bound): Allowance {
    const reset = Math.max(1, Math.ceil((since + this.#length - monotonic(this.#clock)) / 1000));
    return { limit, remaining: Math.max(0, limit - count), reset };
  }
}

function keysOf(tried: Tried): Array<{ key: string; times: number }> {
  if (typeof tried === 'string') return [{ key: shortened(tried), times: 1 }];
  const { address, subject } = tried;
  const networks = networksOf(address);
  if (subject === undefined) return networks;
  return networks.map(({ key, times }) => ({ key: shortened(`${key} ${subject}`), times }));
}

/** Keys are kept, and callers choose what is in them: a long one is kept as its digest. */
function shortened(key: string): string {
  return key.length <= 100 ? key : createHash('sha256').update(key).digest('base64');
}

/** Says in the headers of an answer what is left; nothing where the limit is switched off. */
export function sendAllowance(reply: FastifyReply, { limit, remaining, reset }: Allowance): void {
  if (limit === 0) return;
  reply.headers({ 'ratelimit-limit': limit, 'ratelimit-remaining': remaining, 'ratelimit-reset': reset });
}
