import { NODATA, NOTFOUND } from 'node:dns';
import { Resolver } from 'node:dns/promises';
import ipaddr from 'ipaddr.js';
import { boundedCache } from '../db/sqlite/cache.ts';
import type { BrokerServices } from '../src/ports/broker-ports.ts';

/** Milliseconds that one server may take. */
const timeout = 2000;
const atOnce = 8;
/** Addresses that wait for their turn; more are not asked for until they connect again. */
const maxWaiting = 10_000;
const answersKept = 20_000;
/** Milliseconds that an answer is good, a missing name too; a server that did not answer may be back soon. */
const lifetime = 60 * 60_000;
const failureLifetime = 60_000;
const hostName = /^(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*$/i;

type Answered = (name: string | null) => void;

/** The names of addresses, asked for next to everything else: a few at a time, and kept. */
export class ReverseDns {
  readonly #clock: BrokerServices['clock'];
  readonly #servers: readonly string[];
  readonly #resolvers = new Set<Resolver>();
  readonly #answers = boundedCache<string, { name: string | null; until: number }>(answersKept);
  /** Callbacks, by address and by asker. */
  readonly #waiting = new Map<string, Map<string, Answered>>();
  readonly #running = new Map<string, Map<string, Answered>>();
  #closed = false;

  /** `servers` as address or address:port; the system's when empty. */
  constructor(servers: readonly string[], clock: BrokerServices['clock']) {
    this.#clock = clock;
    this.#servers = servers;
  }

  /**
   * Tells `answered` the name of an address once it is known, at once when it is: null when it has none that can be
   * one, or nobody could say. It never does when too many addresses wait already. An asker is told once per address.
   */
  find(address: string, asker: string, answered: Answered): void {
    if (this.#closed) return;
    const known = this.#answers.get(address);
    if (known && known.until > this.#clock.now()) {
      answered(known.name);
      return;
    }
    const askers = this.#running.get(address) ?? this.#waiting.get(address);
    if (askers) askers.set(asker, answered);
    else if (this.#waiting.size < maxWaiting) this.#waiting.set(address, new Map([[asker, answered]]));
    this.#next();
  }

  /** Ends what is under way; nobody is told any more. */
  close(): void {
    this.#closed = true;
    this.#waiting.clear();
    for (const resolver of this.#resolvers) resolver.cancel();
  }

  #next(): void {
    for (const [address, askers] of this.#waiting) {
      if (this.#running.size >= atOnce) return;
      this.#waiting.delete(address);
      this.#running.set(address, askers);
      void this.#ask(address, askers);
    }
  }

  /** Never rejects. */
  async #ask(address: string, askers: Map<string, Answered>): Promise<void> {
    const { name, kept } = await this.#look(address);
    this.#running.delete(address);
    if (this.#closed) return;
    this.#answers.set(address, { name, until: this.#clock.now() + kept });
    for (const answered of askers.values()) answered(name);
    this.#next();
  }

  async #look(address: string): Promise<{ name: string | null; kept: number }> {
    // Its own for each question: one that has had quick answers waits for a quarter of a second.
    const resolver = new Resolver({ timeout, tries: 1 });
    this.#resolvers.add(resolver);
    try {
      if (this.#servers.length > 0) resolver.setServers(this.#servers);
      // `reverse` would ask the hosts file of this machine first.
      const names = await resolver.resolvePtr(pointerOf(address));
      return { name: names.find((name) => hostName.test(name)) ?? null, kept: lifetime };
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      return { name: null, kept: code === NOTFOUND || code === NODATA ? lifetime : failureLifetime };
    } finally {
      this.#resolvers.delete(resolver);
    }
  }
}

/** The name below which an address has its PTR record (RFC 1035, RFC 3596). @throws Error for what is no address. */
function pointerOf(address: string): string {
  const parsed = ipaddr.parse(address);
  const bytes = parsed.toByteArray();
  if (parsed.kind() === 'ipv4') return `${bytes.reverse().join('.')}.in-addr.arpa`;
  const nibbles = bytes.flatMap((byte) => [byte >> 4, byte & 15]).reverse();
  return `${nibbles.map((nibble) => nibble.toString(16)).join('.')}.ip6.arpa`;
}
