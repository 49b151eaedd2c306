import type { LiveClient } from './client-types.ts';
import type { FilterRefusal } from './connections/counters.ts';
import { OverLimit } from './connections/limits.ts';
import { dropFilters, grant, refreshFilters } from './connections/live-clients.ts';
import type { FirstMessages } from './first-messages.ts';
import type { HookParts } from './hook-parts.ts';
import { levelsOf } from './message-checks.ts';
import type { Subscription } from './message-types.ts';
import type { Granted } from './packets/codec.ts';
import { type Reason, reason } from './reasons.ts';
import type { RetainedSearch } from './sessions/retained-search.ts';
import { isShared, isWellFormed } from './topics.ts';

type SubscribeParts = HookParts & { firstMessages: FirstMessages; maxTopicLevels: number };

/** What has become of the filters of a SUBSCRIBE. */
interface Subscribed {
  /** One for each that was asked for. */
  answers: Granted[];
  granted: string[];
  /** Those that get what is retained. */
  first: Subscription[];
  /** What is retained for them. */
  search: RetainedSearch | undefined;
}

/** SUBSCRIBE and UNSUBSCRIBE. */
export class SubscribeHooks {
  readonly #parts: SubscribeParts;

  constructor(parts: SubscribeParts) {
    this.#parts = parts;
  }

  /**
   * Resolves when the filters that are granted are in force, and on disk for a stored session. Rejects when the client has
   * been refused too often.
   */
  async subscribe(live: LiveClient, filters: readonly Subscription[]): Promise<Subscribed> {
    const { firstMessages, groups, persistence } = this.#parts;
    const { client } = live;
    // Of the same filters the last one counts.
    const asked = new Map(filters.map((filter) => [filter.topic, filter]));
    let search: RetainedSearch | undefined;
    try {
      const { refused, first } = this.#grant(live, asked);
      const granted = [...asked.values()].filter(({ topic }) => !refused.has(topic));
      // All in one turn: what comes then is kept for the session, is live, and comes after what is retained now.
      search = firstMessages.search(live, first);
      const durable = client.clean ? undefined : persistence.filters.addSubscriptions(client, granted, new Set(first));
      if (!client.closed) for (const filter of granted) client.subscribe(filter);
      await durable;
      const answers = filters.map(({ topic, qos }) => refused.get(topic) ?? qos);
      return { answers, granted: granted.map(({ topic }) => topic), first, search };
    } catch (error) {
      search?.close();
      throw error;
    } finally {
      for (const topic of asked.keys()) if (isShared(topic)) groups.settle(client.id, topic);
    }
  }

  /** Decides about filters; those that it does not refuse count from now on: messages may come before the SUBACK. */
  #grant(
    live: LiveClient,
    asked: ReadonlyMap<string, Subscription>,
  ): { refused: Map<string, Reason>; first: Subscription[] } {
    const refused = new Map<string, Reason>();
    const first: Subscription[] = [];
    let bytes = 0;
    for (const [topic, filter] of asked) {
      const more = bytes + this.#parts.persistence.filters.bytesOfFilter(live.client, topic);
      const why = this.#refusalOf(live, topic) ?? this.#lackOf(live, more);
      if (why) {
        refused.set(topic, why);
        this.#refuse(live, topic, why);
        continue;
      }
      bytes = more;
      if (getsRetained(filter, live.filters.has(topic))) first.push(filter);
      grant(live, filter);
    }
    return { refused, first };
  }

  #refusalOf(live: LiveClient, topic: string): Reason | undefined {
    const { authority, groups, maxTopicLevels } = this.#parts;
    if (levelsOf(topic) > maxTopicLevels) return reason('malformedFilter');
    if (!isWellFormed(topic) || !authority.maySubscribe(live, topic)) return authority.filterRefusal(live, topic);
    return isShared(topic) && !groups.open(live.client.id, topic) ? reason('tooManyGroups') : undefined;
  }

  /** Why so many bytes more of filters cannot be stored. */
  #lackOf({ client }: LiveClient, bytes: number): Reason | undefined {
    const { counters, persistence } = this.#parts;
    if (persistence.filters.hasRoomForFilters(client, bytes)) return undefined;
    counters.limitHits.max_filter_bytes_per_account += 1;
    return reason('tooManyFilterBytes');
  }

  /** @throws OverLimit when it has been refused too often */
  #refuse(live: LiveClient, filter: string, refusal: Reason): void {
    const { authority, counters, notes } = this.#parts;
    const isTooOften = authority.refusedTooOften(live);
    const why = isTooOften ? reason('tooManyRefusals') : refusal;
    notes.note(live, 'subscribe', filter, why);
    counters.refusedSubscriptions[isTooOften ? 'too_often' : countedAs(why)] += 1;
    if (isTooOften) throw new OverLimit('refusals_per_minute', { isNoted: true });
  }

  /** SUBACK is written: sends what is retained for the filters, and the states of devices, before the next packet if it can. */
  async sendFirst(live: LiveClient, subscribed: Subscribed): Promise<void> {
    const { first, search } = subscribed;
    if (this.#begin(live, subscribed)) await this.#parts.firstMessages.send(live, first, search);
    else search?.close();
  }

  /** Whether any filter is in force. */
  #begin(live: LiveClient, { granted }: Pick<Subscribed, 'granted'>): boolean {
    const { authority, control, news } = this.#parts;
    refreshFilters(live);
    // A right may have been lost between SUBSCRIBE and here.
    dropFilters(live, authority.refusedFilters(live));
    if (granted.length === 0) return false;
    news.subscribed(live, granted);
    for (const topic of granted) {
      const device = live.identity && authority.controlledBy(live.identity.caller, topic);
      if (device) control.listening(device);
    }
    return true;
  }

  /** Resolves, for each, to why it has not ended, if it has not; the others are out of force, and off the disk, then. */
  async unsubscribe(live: LiveClient, filters: string[]): Promise<Array<Reason | undefined>> {
    const held = new Set(live.filters);
    const ended = filters.map((filter) => {
      if (held.delete(filter)) return undefined;
      return reason(isWellFormed(filter) ? 'noSuchSubscription' : 'malformedFilter');
    });
    const { persistence } = this.#parts;
    const durable = live.client.clean ? undefined : persistence.filters.removeSubscriptions(live.client, filters);
    // In the same turn: what comes then is kept for nobody, and would overtake what is kept.
    dropFilters(live, filters);
    await durable;
    return ended;
  }
}

/** Whether a filter gets what is retained, as it asks itself [MQTT-3.3.1-9 to 3.3.1-11]. */
function getsRetained({ topic, rh = 0 }: Subscription, wasThere: boolean): boolean {
  if (isShared(topic)) return false;
  return rh === 0 || (rh === 1 && !wasThere);
}

const tooMany: ReadonlySet<Reason['code']> = new Set(['tooManyFilters', 'tooManyFilterBytes', 'tooManyGroups']);

function countedAs({ code }: Reason): FilterRefusal {
  if (code === 'malformedFilter') return 'malformed';
  return tooMany.has(code) ? 'too_many' : 'out_of_reach';
}
