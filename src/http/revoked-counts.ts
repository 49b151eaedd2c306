import type { Caller } from '../core/caller.ts';
import type { Revoked } from '../ports/revocations.ts';

/** Counts what each request ended over MQTT, for the header of its answer. */
export class RevokedCounts {
  /** By the caller, an object that lives as long as its request. */
  readonly #byCaller = new WeakMap<Caller, Revoked>();

  /** Adds to what the request of this caller has ended. */
  noteRevoked(caller: Caller, { connections, subscriptions }: Revoked): void {
    const before = this.#byCaller.get(caller) ?? { connections: 0, subscriptions: 0 };
    this.#byCaller.set(caller, {
      connections: before.connections + connections,
      subscriptions: before.subscriptions + subscriptions,
    });
  }

  /** The header's value; undefined for a request that takes no right away. */
  header(caller: Caller): string | undefined {
    const revoked = this.#byCaller.get(caller);
    return revoked && `connections=${revoked.connections}; subscriptions=${revoked.subscriptions}`;
  }
}
