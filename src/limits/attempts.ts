/** How often somebody may try something, on the injected clock: a window begins with the first try and ends on its own. */
import { createHash } from 'node:crypto';
import type { FastifyReply } from 'fastify';
import ipaddr from 'ipaddr.js';
import { boundedCache } from '../../db/sqlite/cache.js';
import type { Clock } from '../clock.js';
import { type Allowance, PlatformError } from '../errors.js';

export type { Allowance } from '../errors.js';

/** Keys that are remembered; past it the least recently used go. */
const keysKept = 100_000;

interface Window {
  since: number;
  count: number;
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
  take(key: string, cost = 1): Allowance {
    if (this.#limit === 0) return { limit: 0, remaining: 0, reset: 0 };
    const window = this.#windowOf(key);
    if (window.count >= this.#limit) {
      const said = this.#message === undefined ? {} : { message: this.#message };
      throw new PlatformError('tooMany', { ...said, allowance: this.#allowance(window) });
    }
    window.count += cost;
    return this.#allowance(window);
  }

  /** Adds to the cost of what was taken. */
  charge(key: string, cost: number): void {
    if (this.#limit > 0) this.#windowOf(key).count += cost;
  }

  /** Takes a try back: it did not fail. */
  giveBack(key: string): void {
    const window = this.#windows.get(shortened(key));
    if (window && window.count > 0) window.count -= 1;
  }

  /** Forgets what has been tried. */
  clear(key: string): void {
    this.#windows.delete(shortened(key));
  }

  /** The number of tries left, without counting one. */
  left(key: string): Allowance {
    return this.#allowance(this.#windowOf(key));
  }

  #windowOf(given: string): Window {
    const now = this.#clock.now();
    const key = shortened(given);
    const known = this.#windows.get(key);
    if (known && now - known.since < this.#length) return known;
    const window = { since: now, count: 0 };
    this.#windows.set(key, window);
    return window;
  }

  #allowance({ since, count }: Window): Allowance {
    const reset = Math.max(1, Math.ceil((since + this.#length - this.#clock.now()) / 1000));
    return { limit: this.#limit, remaining: Math.max(0, this.#limit - count), reset };
  }
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

/** By what an address is counted: of IPv6 the network of 64 bits, all of which one customer of a provider has. */
export function networkOf(address: string): string {
  if (!ipaddr.IPv6.isValid(address)) return address;
  const parsed = ipaddr.IPv6.parse(address);
  if (parsed.isIPv4MappedAddress()) return parsed.toIPv4Address().toString();
  return parsed.parts.slice(0, 4).join(':');
}
