import type { LiveClient } from '../aedes-types.ts';
import { OverLimit } from '../connections/limits.ts';
import { dropFilters, grant, laneOfClient, refreshFilters } from '../connections/live-clients.ts';
import type { Filter } from '../message-types.ts';
import type { Deliveries } from '../packets/deliveries.ts';
import { reason } from '../reasons.ts';
import type { HookParts } from './parts.ts';

/** What a retained message costs next to a delivery, and bytes that cost as much as one. */
const costOfRetained = 3;
const bytesOfCost = 1024;
/** Retained messages that one SUBSCRIBE gets before it may have to wait for its turn. */
const retainedPerTurn = 16;

type SubscribeParts = HookParts & { deliveries: Deliveries };
type Granted = 0 | 1 | 2 | undefined;

/** SUBSCRIBE and UNSUBSCRIBE. */
export class SubscribeHooks {
  readonly #parts: SubscribeParts;

  constructor(parts: SubscribeParts) {
    this.#parts = parts;
  }

  /**
   * Resolves to the QoS of each filter, or undefined where it is refused; those that are granted are in force, and on disk for
   * a stored session. Rejects when the client has been refused too often.
   */
  async subscribe(live: LiveClient, filters: readonly Filter[]): Promise<Granted[]> {
    const { authority, persistence } = this.#parts;
    const { client } = live;
    // Of the same filters the last one counts.
    const granted = new Map(filters.map((filter) => [filter.topic, filter]));
    for (const [topic, filter] of granted) {
      // It counts from now on: messages may come before its SUBACK.
      if (authority.maySubscribe(live, topic)) grant(live, filter);
      else {
        granted.delete(topic);
        this.#refuse(live, topic);
      }
    }
    if (!client.clean) await persistence.addSubscriptions(client, [...granted.values()]);
    if (!client.closed) for (const filter of granted.values()) client.subscribe(filter);
    return filters.map(({ topic, qos }) => (granted.has(topic) ? qos : undefined));
  }

  #refuse(live: LiveClient, filter: string): void {
    const { authority, counters, notes } = this.#parts;
    const isTooOften = authority.refusedTooOften(live);
    const why = isTooOften ? reason('tooManyRefusals') : authority.filterRefusal(live, filter);
    notes.note(live, 'subscribe', filter, why);
    const counted = why.code === 'tooManyFilters' ? 'too_many' : 'out_of_reach';
    counters.refusedSubscriptions[isTooOften ? 'too_often' : counted] += 1;
    if (isTooOften) throw new OverLimit('refusals_per_minute', { isNoted: true });
  }

  /** SUBACK is written: sends what is retained for the filters, and the states of devices, before the next packet. */
  async sendFirst(live: LiveClient, filters: readonly Filter[]): Promise<void> {
    const { authority, control, news, services } = this.#parts;
    refreshFilters(live);
    // A right may have been lost between SUBSCRIBE and here.
    dropFilters(live, authority.refusedFilters(live));
    if (filters.length === 0) return;
    const topics = filters.map(({ topic }) => topic);
    news.subscribed(live, topics);
    for (const topic of topics) {
      const device = live.identity && authority.controlledBy(live.identity.caller, topic);
      if (device) control.listening(device);
    }
    const { connectionId } = live;
    try {
      await this.#sendRetained(live, topics);
      for (const { topic, qos } of filters) await this.#sendState(live, topic, qos);
    } catch (error) {
      services.log.error({ err: error, connectionId }, 'what a SUBSCRIBE asks for could not be sent');
    }
  }

  async #sendRetained(live: LiveClient, filters: string[]): Promise<void> {
    const { deliveries, scheduler, persistence } = this.#parts;
    const { client } = live;
    const lane = laneOfClient(live);
    let sent = 0;
    for await (const packet of persistence.retainedFor(live, filters)) {
      scheduler.spend(costOfRetained + packet.payload.length / bytesOfCost);
      sent += 1;
      if (sent % retainedPerTurn === 0 && scheduler.isOver)
        await new Promise<void>((resolve) => scheduler.wait(lane, resolve));
      if (client.closed) return;
      await new Promise<void>((resolve) => deliveries.deliver(client, packet, resolve));
      // A client that reads its answers is alive, though its own packets have to wait.
      client.keepAlive();
    }
  }

  /** The whole state, to a connection that has subscribed to exactly a device's `_updates/fields`. */
  async #sendState({ client }: LiveClient, topic: string, qos: 0 | 1 | 2): Promise<void> {
    const state = await this.#parts.channels.stateOn(topic);
    if (state && !client.closed) this.#parts.deliveries.sendToOne(client, { topic, payload: state, qos });
  }

  /** They are out of force, and off the disk, when it resolves. */
  async unsubscribe(live: LiveClient, filters: string[]): Promise<void> {
    if (!live.client.clean) await this.#parts.persistence.removeSubscriptions(live.client, filters);
    dropFilters(live, filters);
  }
}
