import type { LiveClient } from '../aedes-types.ts';
import type { Counters, LimitName } from '../connections/counters.ts';
import { type Outgoing, sizeOf } from '../message-types.ts';
import type { SessionStore } from '../sessions/persistence.ts';

export interface HeldServices {
  counters: Pick<Counters, 'dropped' | 'limitHits'>;
  /** Counts bytes for the queues of an account. */
  persistence: Pick<SessionStore, 'countQueued' | 'hasQueueRoom'>;
  /** Messages for one client; 0 is no limit. */
  maxQueue: number;
}

/**
 * Messages in memory for clients without a stored session, until these have acknowledged others, and messages of groups until
 * they are acknowledged themselves. The oldest go first.
 */
export class Held {
  readonly #services: HeldServices;

  constructor(services: HeldServices) {
    this.#services = services;
  }

  has({ held }: LiveClient): boolean {
    return held !== undefined && held.length > 0;
  }

  add(live: LiveClient, packet: Outgoing): void {
    const { maxQueue, persistence } = this.#services;
    live.held ??= [];
    live.held.push(packet);
    persistence.countQueued(live.client, sizeOf(packet));
    while (maxQueue > 0 && live.held.length > maxQueue) this.#drop(live, 'max_queue');
    while (live.held.length > 0 && !persistence.hasQueueRoom(live.client))
      this.#drop(live, 'max_queue_bytes_per_account');
  }

  /** The next one, which is sent now. */
  take(live: LiveClient): Outgoing | undefined {
    const packet = live.held?.shift();
    if (packet) this.#services.persistence.countQueued(live.client, -sizeOf(packet));
    return packet;
  }

  /** One of a group has been sent: another member gets it if this one goes. Beyond the limits the oldest ones are nobody else's. */
  track(live: LiveClient, messageId: number, packet: Outgoing): void {
    const { maxQueue, persistence } = this.#services;
    live.shared ??= new Map();
    live.shared.set(messageId, packet);
    persistence.countQueued(live.client, sizeOf(packet));
    for (const oldest of live.shared.keys()) {
      const isOver = maxQueue > 0 && live.shared.size > maxQueue;
      if (!isOver && persistence.hasQueueRoom(live.client)) return;
      this.untrack(live, oldest);
    }
  }

  untrack(live: LiveClient, messageId: number): void {
    const packet = live.shared?.get(messageId);
    if (packet && live.shared?.delete(messageId)) this.#services.persistence.countQueued(live.client, -sizeOf(packet));
  }

  /** What of groups a client that goes has not acknowledged, the oldest first. */
  sharedOf({ shared, held = [] }: LiveClient): Outgoing[] {
    return [...(shared?.values() ?? []), ...held.filter(({ group }) => group !== undefined)];
  }

  /** All of a connection that has ended. */
  dropAll(live: LiveClient): void {
    while (this.take(live));
    for (const messageId of [...(live.shared?.keys() ?? [])]) this.untrack(live, messageId);
  }

  #drop(live: LiveClient, limit: LimitName): void {
    const { counters } = this.#services;
    this.take(live);
    counters.dropped.queue += 1;
    counters.limitHits[limit] += 1;
  }
}
