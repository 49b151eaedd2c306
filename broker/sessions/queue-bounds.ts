/** How many messages a queue may hold, and how many bytes the queues of an account. */
import { accountIn } from '../connections/client-ids.ts';
import type { Counters } from '../connections/counters.ts';
import type { Journal } from './journal.ts';
import type { Queued } from './queued.ts';
import type { Session, StoredSessions } from './stored-sessions.ts';

/** Messages that an account loses for one that comes, and those of one queue before the longest is looked for again. */
const dropsAtOnce = 100;
const dropsBeforeLook = 1000;

export interface QueueBoundServices {
  counters: Counters;
  /** Messages in the queue of one session; 0 is no limit. */
  maxQueue: number;
  /** Bytes in all queues of an account, those of a message for each of its places; 0 is no limit. */
  maxQueueBytes: number;
  sessions: Pick<StoredSessions, 'bytesOf' | 'largestOf'>;
}

/** A session that loses messages because its account has too many, and how many more before another is looked for. */
interface Shrinking {
  session: Session;
  left: number;
}

/** Takes a message out of the queue of a session, in memory and on disk. */
export function dequeue(journal: Journal, { number, queue }: Session, queued: Queued): void {
  queue.delete(queued);
  journal.recordUnqueue(number, queued.id);
}

export class QueueBounds {
  readonly #services: QueueBoundServices;
  readonly #journal: Journal;
  /** By account. */
  readonly #shrinking = new Map<string, Shrinking>();

  constructor(services: QueueBoundServices, journal: Journal) {
    this.#services = services;
    this.#journal = journal;
  }

  /** Takes the oldest messages out of a queue that has too many. */
  shorten(session: Session): void {
    const { maxQueue, counters } = this.#services;
    while (maxQueue > 0 && session.queue.size > maxQueue) {
      const { oldest } = session.queue;
      if (!oldest) return;
      dequeue(this.#journal, session, oldest);
      counters.dropped.queue += 1;
      counters.limitHits.max_queue += 1;
    }
  }

  /** Takes the oldest messages of the longest queue while the account of a session has too many bytes in its queues. */
  shrink({ clientId }: Session): void {
    const { maxQueueBytes, counters, sessions } = this.#services;
    const accountId = accountIn(clientId);
    if (maxQueueBytes === 0 || sessions.bytesOf(accountId) <= maxQueueBytes) return;
    let dropped = 0;
    while (sessions.bytesOf(accountId) > maxQueueBytes && dropped < dropsAtOnce) {
      let shrinking = this.#shrinking.get(accountId);
      if (!shrinking || shrinking.left === 0 || shrinking.session.queue.bytes === 0) {
        const session = sessions.largestOf(accountId);
        if (!session) return;
        shrinking = { session, left: dropsBeforeLook };
        this.#shrinking.set(accountId, shrinking);
      }
      const { oldest } = shrinking.session.queue;
      if (!oldest) return;
      dequeue(this.#journal, shrinking.session, oldest);
      shrinking.left -= 1;
      dropped += 1;
      counters.dropped.queue += 1;
      counters.limitHits.max_queue_bytes_per_account += 1;
    }
  }
}
