import type { LiveClient } from '../client-types.ts';
import { accountIn } from '../connections/client-ids.ts';
import type { Counters } from '../connections/counters.ts';
import { type Outgoing, sizeOf } from '../message-types.ts';
import { ownBytes } from '../sessions/retained.ts';
import { copied } from './write.ts';

export interface UnacknowledgedServices {
  counters: Pick<Counters, 'dropped' | 'limitHits'>;
  /** Messages for one client; 0 is no limit. */
  maxQueue: number;
}

/** Bytes for one client, and for all clients of an account. */
const maxBytes = { ofClient: 4 * 1024 * 1024, ofAccount: 32 * 1024 * 1024 };

/**
 * Messages in memory for clients without a stored session, until these have acknowledged others, and messages of groups until
 * they are acknowledged themselves. The oldest go first, those of the client that has most.
 */
export class UnacknowledgedMessages {
  readonly #services: UnacknowledgedServices;
  readonly #accounts = new Map<string, { bytes: number; of: Map<LiveClient, number> }>();

  constructor(services: UnacknowledgedServices) {
    this.#services = services;
  }

  has({ held }: LiveClient): boolean {
    return held !== undefined && held.length > 0;
  }

  add(live: LiveClient, packet: Outgoing): void {
    const { counters, maxQueue } = this.#services;
    live.held ??= [];
    live.held.push(ownCopy(packet));
    this.#count(live, sizeOf(packet));
    if (maxQueue > 0 && live.held.length > maxQueue) {
      this.take(live);
      counters.dropped.queue += 1;
      counters.limitHits.max_queue += 1;
    }
    this.#shrink(live);
  }

  /** The next one, which is sent now. */
  take(live: LiveClient): Outgoing | undefined {
    const packet = live.held?.shift();
    if (packet) this.#count(live, -sizeOf(packet));
    return packet;
  }

  /** One of a group has been sent: another member gets it if this one goes. Beyond the limits the oldest ones are nobody else's. */
  track(live: LiveClient, messageId: number, packet: Outgoing): void {
    const { maxQueue } = this.#services;
    live.shared ??= new Map();
    this.untrack(live, messageId);
    live.shared.set(messageId, ownCopy(packet));
    this.#count(live, sizeOf(packet));
    if (maxQueue > 0 && live.shared.size > maxQueue) this.#untrackOldest(live);
    this.#shrink(live);
  }

  untrack(live: LiveClient, messageId: number): void {
    const packet = live.shared?.get(messageId);
    if (packet && live.shared?.delete(messageId)) this.#count(live, -sizeOf(packet));
  }

  /** What of groups a client that goes has not acknowledged, the oldest first. */
  sharedOf({ shared, held = [] }: LiveClient): Outgoing[] {
    return [...(shared?.values() ?? []), ...held.filter(({ group }) => group !== undefined)];
  }

  /** All of a connection that has ended. */
  dropAll(live: LiveClient): void {
    live.held = undefined;
    live.shared = undefined;
    this.#count(live, -this.#bytesOf(live));
  }

  #count(live: LiveClient, change: number): void {
    if (change === 0) return;
    const accountId = accountIn(live.client.id);
    const account = this.#accounts.get(accountId) ?? { bytes: 0, of: new Map() };
    this.#accounts.set(accountId, account);
    account.bytes += change;
    const bytes = (account.of.get(live) ?? 0) + change;
    if (bytes > 0) account.of.set(live, bytes);
    else account.of.delete(live);
    if (account.of.size === 0) this.#accounts.delete(accountId);
  }

  #bytesOf(live: LiveClient): number {
    return this.#accounts.get(accountIn(live.client.id))?.of.get(live) ?? 0;
  }

  /** Makes room where more waits than may. */
  #shrink(live: LiveClient): void {
    while (this.#bytesOf(live) > maxBytes.ofClient && this.#dropOldest(live));
    const account = this.#accounts.get(accountIn(live.client.id));
    while (account && account.bytes > maxBytes.ofAccount) {
      const [largest, bytes] = [...account.of].reduce((one, other) => (other[1] > one[1] ? other : one));
      // Half of it, so that the next is not looked for at once.
      while (this.#bytesOf(largest) > bytes / 2) if (!this.#dropOldest(largest)) return;
    }
  }

  /** What has been sent goes first: it is there for others only. The last message of a client stays. */
  #dropOldest(live: LiveClient): boolean {
    const { counters } = this.#services;
    if (this.#untrackOldest(live)) return true;
    if ((live.held?.length ?? 0) < 2) return false;
    this.take(live);
    counters.dropped.queue += 1;
    return true;
  }

  #untrackOldest(live: LiveClient): boolean {
    const [oldest] = live.shared?.keys() ?? [];
    if (oldest !== undefined) this.untrack(live, oldest);
    return oldest !== undefined;
  }
}

/** A small part of what was read from a socket would keep all of it in memory. */
function ownCopy(packet: Outgoing): Outgoing {
  const { payload, properties } = packet;
  const isSmall = payload.length <= copied;
  return {
    ...packet,
    payload: isSmall ? Buffer.from(ownBytes(payload).buffer) : payload,
    ...(properties && { properties: new Uint8Array(properties) }),
  };
}
