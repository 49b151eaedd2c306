/** The filters in the stored session of a client: what it subscribes to, on disk before SUBACK and UNSUBACK. */
import type { BrokerClient } from '../client-types.ts';
import type { Subscription } from '../message-types.ts';
import type { Journal } from './journal.ts';
import type { PersistenceRules } from './persistence-rules.ts';
import type { StoredSessions } from './stored-sessions.ts';

type Id = Pick<BrokerClient, 'id'>;

export class ClientFilters {
  readonly #sessions: StoredSessions;
  readonly #journal: Journal;
  readonly #rules: PersistenceRules;

  constructor(sessions: StoredSessions, journal: Journal, rules: PersistenceRules) {
    this.#sessions = sessions;
    this.#journal = journal;
    this.#rules = rules;
  }

  /** Bytes that a new filter takes in the stored session of a client; 0 if it is not new, or the session is not stored. */
  bytesOfFilter({ id }: Id, filter: string): number {
    return this.#sessions.bytesOfFilter(id, filter);
  }

  /** Whether the account of a client has room for so many bytes of filters. */
  hasRoomForFilters({ id }: Id, bytes: number): boolean {
    return this.#sessions.hasRoomForFilters(id, bytes);
  }

  /** SUBACK and UNSUBACK wait for the disk. `first` get what is retained. */
  async addSubscriptions(
    { id }: Id,
    filters: readonly Subscription[],
    first: ReadonlySet<Subscription> = new Set(),
  ): Promise<void> {
    const session = this.#sessions.get(id);
    if (!session) return;
    // What an earlier SUBSCRIBE has asked for is due still, whatever this one asks for.
    const wasDue = ({ topic }: Subscription) => session.filters.get(topic)?.isRetainedDue === true;
    for (const filter of filters) {
      const isRetainedDue = filter.qos > 0 && (first.has(filter) || wasDue(filter));
      this.#sessions.subscribe(session, { ...filter, isRetainedDue });
    }
    await this.#journal.durable();
  }

  /** What is retained for these filters has been received: it is not due when the client comes back. */
  retainedReceived({ id }: Id, filters: Iterable<string>): void {
    const session = this.#sessions.get(id);
    if (session) this.#sessions.setRetainedDue(session, filters, false);
  }

  async removeSubscriptions({ id }: Id, filters: readonly string[]): Promise<void> {
    const session = this.#sessions.get(id);
    if (!session) return;
    for (const filter of filters) this.#sessions.unsubscribe(session, filter);
    await this.#journal.durable();
  }

  /** The filters of a session that is taken up again; one whose right has gone meanwhile goes, too. */
  filtersOf({ id }: Id): Subscription[] {
    const session = this.#sessions.get(id);
    if (!session) return [];
    for (const filter of [...session.filters.keys()])
      if (!this.#rules.mayStand(id, filter)) this.#sessions.unsubscribe(session, filter);
    return [...session.filters.values()];
  }
}
