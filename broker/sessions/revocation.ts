import { setImmediate as nextTurn } from 'node:timers/promises';
import type { PersistenceRules } from './persistence-rules.ts';
import type { Queues } from './queues.ts';
import type { SharedGroups } from './shared-groups.ts';
import type { Session, StoredSessions } from './stored-sessions.ts';

/** Stored sessions that are looked at in one go. */
const stepSize = 1000;

/** What stored sessions lose when their owner loses a permission; `owner` is the ownerId of a principal. */
export class SessionRevocation {
  readonly #sessions: StoredSessions;
  readonly #queues: Queues;
  readonly #rules: Pick<PersistenceRules, 'mayStand' | 'mayQueue'>;
  readonly #groups: Pick<SharedGroups, 'passOn'>;

  constructor(
    sessions: StoredSessions,
    queues: Queues,
    rules: Pick<PersistenceRules, 'mayStand' | 'mayQueue'>,
    groups: Pick<SharedGroups, 'passOn'>,
  ) {
    this.#groups = groups;
    this.#sessions = sessions;
    this.#queues = queues;
    this.#rules = rules;
  }

  /** Looks at every stored session of an account, in steps in which others get their turn. */
  async eachSession(accountId: string, look: (session: Session) => void): Promise<void> {
    let looked = 0;
    for (const session of this.#sessions.all()) {
      looked += 1;
      if (looked % stepSize === 0) await nextTurn();
      if (session.clientId.startsWith(accountId)) look(session);
    }
  }

  /**
   * Takes from the stored sessions of a principal what it may not hear any more: filters at once, queued messages in
   * steps, those of devices that `device` is true of. `removed` is told of each filter.
   */
  async forgetRefused(
    owner: string,
    device: (deviceId: string) => boolean,
    removed: (clientId: string, filter: string) => void,
  ): Promise<void> {
    const sessions = this.#sessions.of(owner);
    for (const session of sessions) {
      const { clientId, filters } = session;
      for (const filter of [...filters.keys()]) {
        if (this.#rules.mayStand(clientId, filter)) continue;
        this.#sessions.unsubscribe(session, filter);
        removed(clientId, filter);
      }
    }
    for (const session of sessions) {
      const { clientId } = session;
      await this.#queues.dropRefused(session, {
        device,
        mayHear: (topic, brokerCounter) => this.#rules.mayQueue(clientId, topic, { brokerCounter }),
        passOn: (group, packet) => this.#groups.passOn(group, packet, clientId, false),
      });
    }
  }

  /** Ends the stored sessions of a principal, queued messages included. `removed` is told of each filter. */
  endSessionsOf(owner: string, removed: (clientId: string, filter: string) => void): void {
    for (const session of this.#sessions.of(owner)) {
      for (const filter of session.filters.keys()) removed(session.clientId, filter);
      this.#sessions.end(session);
    }
  }
}
