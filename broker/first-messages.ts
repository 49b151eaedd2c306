import type { LiveClient } from './client-types.ts';
import { laneOfClient } from './connections/live-clients.ts';
import type { HookParts } from './hook-parts.ts';
import type { Subscription } from './message-types.ts';
import { type Deliveries, drained } from './packets/deliveries.ts';
import { NewFilters } from './packets/new-filters.ts';
import type { RetainedSearch } from './sessions/retained-search.ts';

/** What a retained message costs next to a delivery, and bytes that cost as much as one. */
const costOfRetained = 3;
const bytesOfCost = 1024;
/** Retained messages that one SUBSCRIBE gets before it may have to wait for its turn. */
const retainedPerTurn = 16;

type FirstParts = Pick<HookParts, 'channels' | 'persistence' | 'scheduler' | 'services'> & {
  deliveries: Pick<Deliveries, 'deliver' | 'roomFor' | 'sendToOne'>;
};

/**
 * What a connection is sent because it has subscribed: what is retained, and the states of devices; no faster than it
 * acknowledges. A stored session that leaves before it has all of that gets it when it comes back.
 */
export class FirstMessages {
  readonly #parts: FirstParts;

  constructor(parts: FirstParts) {
    this.#parts = parts;
  }

  /** Looks for what is retained now: what comes from now on is live, and comes after it. Undefined while others are searched for. */
  search(live: LiveClient, filters: readonly Subscription[]): RetainedSearch | undefined {
    if (filters.length === 0) return undefined;
    const newFilters = this.#newFiltersOf(live);
    newFilters.expect(filters);
    return newFilters.isSending ? undefined : this.#search(live, filters);
  }

  #search(live: LiveClient, filters: readonly Subscription[]): RetainedSearch {
    const { deliveries, persistence } = this.#parts;
    const identifier = filters[0]?.identifier;
    const topics = filters.map(({ topic }) => topic);
    return persistence.searchRetained(live, topics, (packet) => {
      packet.isFirst = true;
      if (identifier !== undefined) packet.identifiers = [identifier];
      const delivered = new Promise<void>((resolve) => deliveries.deliver(live.client, packet, resolve));
      return { length: packet.payload.length, qos: packet.qos, delivered };
    });
  }

  /**
   * SUBACK is written. Resolves when all has been sent, or as soon as the rest waits for acknowledgements: what the client
   * sends must be read then. Never rejects.
   */
  async send(live: LiveClient, filters: readonly Subscription[], search?: RetainedSearch): Promise<void> {
    if (filters.length === 0) return;
    const newFilters = this.#newFiltersOf(live);
    newFilters.add(filters);
    if (newFilters.isSending) {
      // What its session had not received has begun meanwhile: these are searched for after it.
      search?.close();
      return;
    }
    newFilters.begin();
    await new Promise<void>((goOn) => void this.#sendAll(live, newFilters, search, goOn).finally(goOn));
  }

  /** A stored session is back: the same for the filters of which it has not received all. Never rejects. */
  async sendDue(live: LiveClient): Promise<void> {
    try {
      const filters = this.#parts.persistence.filters.filtersOf(live.client);
      const due = filters.filter(({ topic, isRetainedDue }) => isRetainedDue && !live.newFilters?.topics.has(topic));
      await this.send(live, due);
    } catch (error) {
      this.#failed(live, error);
    }
  }

  #failed({ connectionId }: LiveClient, error: unknown): void {
    this.#parts.services.log.error({ err: error, connectionId }, 'what a SUBSCRIBE asks for could not be sent');
  }

  #newFiltersOf(live: LiveClient): NewFilters {
    live.newFilters ??= new NewFilters((topics) => {
      // What a connection that has ended had not received is due when it comes back.
      if (live.client.closed) return;
      live.newFilters = undefined;
      if (!live.client.clean) this.#parts.persistence.filters.retainedReceived(live.client, topics);
    });
    return live.newFilters;
  }

  /** Never rejects. */
  async #sendAll(live: LiveClient, newFilters: NewFilters, first: RetainedSearch | undefined, waits: () => void) {
    const { client } = live;
    let search = first;
    for (let next = newFilters.takeNext(); next.length > 0 && !client.closed; next = newFilters.takeNext()) {
      try {
        search ??= this.#search(live, next);
        newFilters.search = search;
        await this.#sendRetained(live, search, waits);
        for (const { topic, qos } of next) await this.#sendState(live, topic, qos);
      } catch (error) {
        newFilters.fail();
        this.#failed(live, error);
      }
      search?.close();
      search = undefined;
    }
    search?.close();
    newFilters.end();
  }

  async #sendRetained(live: LiveClient, search: RetainedSearch, waits: () => void): Promise<void> {
    const { deliveries, scheduler, persistence } = this.#parts;
    const { client } = live;
    const lane = laneOfClient(live);
    let sent = 0;
    for await (const { length, qos, delivered } of persistence.sendRetained(search)) {
      scheduler.spend(costOfRetained + length / bytesOfCost);
      sent += 1;
      await delivered;
      await drained(client);
      if (qos > 0) await deliveries.roomFor(live, waits);
      if (client.closed) return;
      // A client that reads its answers is alive, though its own packets have to wait.
      client.keepAlive();
      if (sent % retainedPerTurn === 0 && scheduler.isOver)
        await new Promise<void>((resolve) => scheduler.wait(lane, resolve));
    }
  }

  /** The whole state, to a connection that has subscribed to exactly a device's `_updates/fields`. */
  async #sendState({ client, identity }: LiveClient, topic: string, qos: 0 | 1 | 2): Promise<void> {
    const state = identity && (await this.#parts.channels.stateOn(identity.caller, topic));
    if (state && !client.closed) this.#parts.deliveries.sendToOne(client, { topic, payload: state, qos });
  }
}
