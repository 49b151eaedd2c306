import { randomUUID } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { boundedCache } from '../../db/sqlite/cache.ts';
import type { Caller } from '../../src/core/caller.ts';
import type { Allowance, Attempts, Tried } from '../../src/core/limits/attempts.ts';
import { networkOf, networksOf, OpenPerNetwork } from '../../src/core/limits/networks.ts';
import { limitTries } from '../../src/core/limits/tries.ts';
import type { BrokerBase } from '../../src/ports/broker-ports.ts';
import type { Counters, LimitName, RefusalReason } from './counters.ts';

const minute = 60_000;
/** Milliseconds by which a failed CONNECT is answered late. */
const lateness = 3000;
/** Answers that may be late at once; one more is given at once, and its socket with it. */
const maxLate = 1000;
/** Sockets of one address that may wait for their turn; who would wait longer than the deadline is closed as well. */
const maxWaiting = 1000;
const networksKept = 100_000;
/** How long nobody of a network gets a TLS handshake after one that was outsized, in milliseconds. */
const shunned = 10 * minute;

/** Ends a connection that is past a limit. */
export class OverLimit extends Error {
  override name = 'OverLimit';

  readonly limit: LimitName;
  /** Whether it is in the list of refusals already. */
  readonly isNoted: boolean;

  constructor(limit: LimitName, { isNoted = false } = {}) {
    super(`over the limit ${limit}`);
    this.limit = limit;
    this.isNoted = isNoted;
  }
}

/** An open socket, and whatever is on it. */
interface OpenSocket {
  /** Of the connection, in the log. */
  id: string;
  address: string | undefined;
  /** The address under which it is counted. */
  counted: string | undefined;
}

/** The log fields of a connection; requests over HTTP have their own. */
export interface About {
  address: string | undefined;
  connectionId?: string | undefined;
}

/** A refused CONNECT as far as limits go. */
interface Refusal {
  reason: RefusalReason;
  limit?: LimitName;
}

type LimitsServices = Pick<BrokerBase, 'config' | 'clock' | 'log'>;

/** A limit of the network that a socket comes from. */
export type NetworkLimit = 'max_connections_per_address' | 'connect_rate_per_address';

/** The limits on connections: how many, how fast, and how often one may fail to prove who it is. */
export class Limits {
  readonly #settings: BrokerBase['config']['mqtt'];
  readonly #log: BrokerBase['log'];
  readonly #counters: Counters;
  #open = 0;
  readonly #perNetwork: OpenPerNetwork;
  readonly #places = new WeakMap<Duplex, OpenSocket>();
  /** When the next turn of a network would be, if it had no second's worth in hand; milliseconds of `performance`. */
  readonly #turns = boundedCache<string, number>(networksKept);
  /** Until when a network is shunned; milliseconds of `performance`. */
  readonly #shunned = boundedCache<string, number>(networksKept);
  readonly #failures: Attempts;
  readonly #guesses: Attempts;
  /** Tries whose outcome is not known yet, and who waits for it. */
  readonly #guessing = new Map<string, { running: number; waiting: Array<() => void> }>();
  #late = 0;

  constructor({ config, clock, log }: LimitsServices, counters: Counters) {
    this.#settings = config.mqtt;
    this.#log = log;
    this.#counters = counters;
    this.#perNetwork = new OpenPerNetwork(config.mqtt.maxConnectionsPerAddress);
    this.#failures = limitTries('failedConnects', { clock, config });
    this.#guesses = limitTries('guessedSecrets', { clock, config });
  }

  /** Sockets that are counted now. */
  get open(): number {
    return this.#open;
  }

  /** Counts and logs that a limit has been reached. */
  hit(limit: LimitName, about: object = {}): void {
    this.#counters.limitHits[limit] += 1;
    this.#log.debug({ limit, ...about }, 'a limit was reached');
  }

  /** Called for each connection that ends in an error; counts those that a limit ended. */
  ended(error: Error, conn: Duplex): void {
    if (error instanceof OverLimit) this.hit(error.limit, this.about(conn));
  }

  // Sockets

  /** Counts a socket until it closes; false when it has to be closed at once. */
  enter(socket: Duplex): boolean {
    if (socket.destroyed) return false;
    // An HTTP connection on the TLS port is counted already when it is upgraded.
    if (this.#places.has(socket)) return true;
    const { maxConnections } = this.#settings;
    const id = newConnectionId();
    if (maxConnections > 0 && this.#open >= maxConnections) {
      this.hit('max_connections', { connectionId: id });
      return false;
    }
    const place = { id, address: undefined, counted: undefined };
    this.#places.set(socket, place);
    this.#open += 1;
    socket.on('close', () => {
      this.#open -= 1;
      this.#leave(place);
    });
    return true;
  }

  /** Says where a counted socket comes from, and calls `go` at its turn, at once most of the time, or `refuse`. */
  locate(socket: Duplex, address: string | undefined, go: () => void, refuse: (limit: NetworkLimit) => void): void {
    const place = this.#places.get(socket);
    if (!place || socket.destroyed) return;
    const counted = address ?? '';
    if (place.counted === counted) {
      go();
      return;
    }
    this.#leave(place);
    place.address = address;
    if (!this.#perNetwork.countOpened(counted)) {
      this.hit('max_connections_per_address', this.about(socket));
      refuse('max_connections_per_address');
      return;
    }
    place.counted = counted;
    this.#takeTurn(socket, networkOf(counted), go, refuse);
  }

  /** Somebody at this address has sent far more in a TLS handshake than any device has to: each costs everybody time. */
  shun(conn: Duplex): void {
    const { address } = this.about(conn);
    this.#log.warn(this.about(conn), 'a TLS handshake was outsized: no more from this address for ten minutes');
    this.#shunned.set(networkOf(address ?? ''), performance.now() + shunned);
  }

  isShunned(address: string | undefined): boolean {
    return (this.#shunned.get(networkOf(address ?? '')) ?? 0) > performance.now();
  }

  /** A connection over TLS or WebSocket has the address of its socket. */
  follow(above: Duplex, socket: Duplex): void {
    const place = this.#places.get(socket);
    if (place) this.#places.set(above, place);
  }

  /** Where a connection comes from, behind the proxies that are trusted. */
  addressOf(conn: Duplex): string | undefined {
    return this.#places.get(conn)?.address;
  }

  /** The log fields of a connection. */
  about(conn: Duplex): About {
    const place = this.#places.get(conn);
    return { address: place?.address, connectionId: place?.id };
  }

  #leave(place: OpenSocket): void {
    if (place.counted === undefined) return;
    this.#perNetwork.countClosed(place.counted);
    place.counted = undefined;
  }

  #takeTurn(socket: Duplex, network: string, go: () => void, refuse: (limit: NetworkLimit) => void): void {
    const { connectRatePerAddress: rate, connectTimeout } = this.#settings;
    if (rate === 0) {
      go();
      return;
    }
    const now = performance.now();
    const interval = 1000 / rate;
    const turn = Math.max(this.#turns.get(network) ?? 0, now);
    const wait = turn - now - (1000 - interval);
    if (wait > 0) this.hit('connect_rate_per_address', this.about(socket));
    if (wait > Math.min(maxWaiting * interval, connectTimeout || Number.POSITIVE_INFINITY)) {
      refuse('connect_rate_per_address');
      return;
    }
    this.#turns.set(network, turn + interval);
    if (wait <= 0) {
      go();
      return;
    }
    const forget = () => clearTimeout(timer);
    const timer = setTimeout(() => {
      socket.off('close', forget);
      go();
    }, wait);
    socket.once('close', forget);
  }

  // CONNECT

  /** The limit that one more connection of a principal would exceed, given the number of its others. */
  exceeded({ kind }: Pick<Caller, 'kind'>, others: number): LimitName | undefined {
    const { maxConnectionsPerDevice, maxConnectionsPerPrincipal } = this.#settings;
    const limit = kind === 'device' ? maxConnectionsPerDevice : maxConnectionsPerPrincipal;
    if (limit === 0 || others < limit) return undefined;
    return kind === 'device' ? 'max_connections_per_device' : 'max_connections_per_principal';
  }

  /**
   * Resolves to whether a secret may be tried: false once too many from this address were wrong. No more are tried at once than
   * may be wrong; the others wait for the outcome. Call `guessed` after each that was true.
   */
  async mayGuess(principal: string, address: string | undefined): Promise<boolean> {
    if (this.#settings.failedConnectsPerPrincipal === 0) return true;
    const tried = guessOf(principal, address);
    const key = guessKey(principal, address);
    for (;;) {
      const { remaining } = this.#guesses.left(tried);
      if (remaining === 0) return false;
      const guessing = this.#guessing.get(key) ?? { running: 0, waiting: [] };
      this.#guessing.set(key, guessing);
      if (guessing.running < remaining) {
        guessing.running += 1;
        return true;
      }
      await new Promise<void>((resolve) => guessing.waiting.push(resolve));
    }
  }

  /** How many guesses are left, and when they start again. */
  guessesLeft(principal: string, address: string | undefined): Allowance {
    return this.#guesses.left(guessOf(principal, address));
  }

  /** Says how a try has ended. */
  guessed(principal: string, address: string | undefined, outcome: 'right' | 'wrong'): void {
    const tried = guessOf(principal, address);
    const key = guessKey(principal, address);
    const guessing = this.#guessing.get(key);
    if (!guessing) return;
    guessing.running -= 1;
    if (outcome === 'wrong' && this.#guesses.left(tried).remaining > 0) this.#guesses.takeTry(tried);
    if (guessing.running === 0) this.#guessing.delete(key);
    // A right one makes room for one more; with the last wrong one all hear that nothing is left.
    const isLast = guessing.running === 0 || this.#guesses.left(tried).remaining === 0;
    for (const goOn of guessing.waiting.splice(0, isLast ? guessing.waiting.length : 1)) goOn();
  }

  /** Counts a refused CONNECT; resolves when it may be answered, which is late where too many have failed. */
  refused(refusal: Refusal, about: About): Promise<void> {
    this.#counters.refusedConnects[refusal.reason] += 1;
    return this.failed(refusal, about);
  }

  /** As refused, for a username and password that came without a CONNECT. */
  async failed({ reason, limit }: Refusal, about: About): Promise<void> {
    if (limit) this.hit(limit, about);
    const { failedConnectsPerAddress, connectTimeout } = this.#settings;
    if (reason !== 'bad_credentials' || failedConnectsPerAddress === 0) return;
    const from = { address: about.address ?? '' };
    if (this.#failures.left(from).remaining > 0) {
      this.#failures.takeTry(from);
      return;
    }
    this.hit('failed_connects_per_address', about);
    if (this.#late >= maxLate) return;
    this.#late += 1;
    // In time for the deadline, however short that is.
    await sleep(Math.min(lateness, connectTimeout / 2 || lateness), undefined, { ref: false });
    this.#late -= 1;
  }
}

/** In one piece: the text that `randomUUID` returns is made of twenty, each an object for as long as it is kept. */
function newConnectionId(): string {
  return Buffer.from(randomUUID(), 'latin1').toString('latin1');
}

function guessOf(principal: string, address = ''): Tried {
  return { address, subject: principal };
}

/** Tries under way count in the wide network: as many as may still be wrong in the narrow one. */
function guessKey(principal: string, address = ''): string {
  return `${networksOf(address).at(-1)?.key} ${principal}`;
}
