import type { Subscription } from 'aedes';
import type { BrokerClient, LiveClient } from '../aedes-types.ts';
import type { FilterRefusal } from '../connections/counters.ts';
import { OverLimit } from '../connections/limits.ts';
import { grant, refreshFilters } from '../connections/live-clients.ts';
import { reason } from '../reasons.ts';
import { unsubscribe } from '../revocation.ts';
import type { HookParts } from './parts.ts';

/** What a retained message costs next to a delivery, and bytes that cost as much as one. */
const costOfRetained = 3;
const bytesOfCost = 1024;
/** Retained messages that one SUBSCRIBE gets before it may have to wait for its turn. */
const retainedPerTurn = 16;

type Answered<T> = (error: Error | null, answer: T) => void;

/** SUBSCRIBE and UNSUBSCRIBE. */
export class SubscribeHooks {
  readonly #parts: HookParts;

  constructor(parts: HookParts) {
    this.#parts = parts;
  }

  /** `null` answers 0x80 and keeps the connection. */
  subscribe({ live }: BrokerClient, subscription: Subscription, done: Answered<Subscription | null>): void {
    const { authority, counters, notes } = this.#parts;
    const { refusedSubscriptions } = counters;
    const verdict = live ? authority.decideSubscribe(live, subscription) : 'refused';
    if (verdict === 'granted') {
      if (live) grant(live, subscription);
      done(null, subscription);
      return;
    }
    if (verdict === 'malformed') {
      if (live) notes.note(live, 'subscribe', subscription.topic, reason('malformedTopic'));
      refusedSubscriptions.malformed += 1;
      done(new Error('malformed filter'), null);
      return;
    }
    const isTooOften = live !== undefined && authority.refusedTooOften(live);
    let counted: FilterRefusal = isTooOften ? 'too_often' : 'out_of_reach';
    if (live) {
      const why = isTooOften ? reason('tooManyRefusals') : authority.filterRefusal(live, subscription.topic);
      if (why.code === 'tooManyFilters') counted = 'too_many';
      notes.note(live, 'subscribe', subscription.topic, why);
    }
    refusedSubscriptions[counted] += 1;
    if (live) {
      live.refusedFilters ??= new Set();
      live.refusedFilters.add(subscription.topic);
    }
    done(isTooOften ? new OverLimit('refusals_per_minute', { isNoted: true }) : null, null);
  }

  /** A SUBSCRIBE has been answered; what is retained for it, and the states of devices, are sent before the next packet. */
  subscribed({ live }: BrokerClient, subscriptions: Subscription[]): void {
    if (!live) return;
    refreshFilters(live);
    const { authority, control, news, services } = this.#parts;
    // A right may have been lost between SUBSCRIBE and here.
    const refused = authority.refusedFilters(live);
    if (refused.length > 0) void unsubscribe(live, refused);
    const granted = subscriptions.filter(({ qos }) => (qos as number) <= 2);
    news.subscribed(
      live,
      granted.map(({ topic }) => topic),
    );
    for (const { topic } of granted) {
      const device = live.identity && authority.controlledBy(live.identity.caller, topic);
      if (device) control.listening(device);
    }
    if (granted.length === 0) {
      live.whenSubscribed?.();
      return;
    }
    const { connectionId } = live;
    this.#sendFirst(live, granted)
      .catch((error) => services.log.error({ err: error, connectionId }, 'what a SUBSCRIBE asks for could not be sent'))
      .finally(() => live.whenSubscribed?.());
  }

  async #sendFirst(live: LiveClient, granted: Subscription[]): Promise<void> {
    const { channels, scheduler, persistence } = this.#parts;
    const { client } = live;
    const filters = granted.map(({ topic }) => topic);
    const caller = live.identity?.caller;
    const lane = { accountId: caller?.accountId ?? '', callerId: caller?.id ?? '' };
    let sent = 0;
    for await (const packet of persistence.retainedFor(live, filters)) {
      scheduler.spend(costOfRetained + packet.payload.length / bytesOfCost);
      sent += 1;
      if (sent % retainedPerTurn === 0 && scheduler.isOver)
        await new Promise<void>((resolve) => scheduler.wait(lane, resolve));
      if (client.closed) return;
      await new Promise<void>((resolve) => client.deliverQoS(packet, () => resolve()));
      // A client that reads its answers is alive, though its own packets have to wait.
      if (client._keepaliveInterval > 0) client._keepaliveTimer?.refresh();
    }
    for (const { topic, qos } of granted) await channels.sendState(live, topic, qos);
  }

  unsubscribed({ live }: BrokerClient, filters: string[]): void {
    if (!live) return;
    for (const filter of filters) live.filters.delete(filter);
    refreshFilters(live);
  }
}
