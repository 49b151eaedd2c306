import type { StoredWill } from '../../db/messages/sessions/changes.ts';
import type { BrokerClient } from '../aedes-types.ts';
import type { Will } from '../message-types.ts';
import type { Journal } from './journal.ts';
import { ownBytes } from './retained.ts';

/** Milliseconds from the start that the client of a crashed process has to come back. */
const patience = 60_000;

/**
 * Wills, on disk while their clients are connected: a connection holds its own, and only a crash leaves one behind. They
 * are kept by private client id.
 */
export class Wills {
  readonly #journal: Journal;
  readonly #held = new Map<string, BrokerClient>();
  /** Left by a crashed process. */
  readonly #left = new Map<string, StoredWill>();
  #due = Number.POSITIVE_INFINITY;

  constructor(journal: Journal) {
    this.#journal = journal;
  }

  /** `now` in milliseconds. */
  load(left: readonly StoredWill[], now: number): void {
    for (const will of left) this.#left.set(will.clientId, will);
    this.#due = now + patience;
  }

  /** Those of a dead process that wait for their clients. */
  get left(): number {
    return this.#left.size;
  }

  /** Those of another server, whose clients have their time to come back. */
  arrive(wills: readonly StoredWill[], now: number): void {
    if (wills.length === 0) return;
    for (const will of wills) {
      this.#left.set(will.clientId, will);
      this.#journal.record({ kind: 'will', will });
    }
    this.#due = now + patience;
  }

  /** Those of an account go without being published. */
  depart(accountId: string): void {
    for (const clientId of [...this.#held.keys(), ...this.#left.keys()])
      if (clientId.startsWith(accountId)) this.delete(clientId);
  }

  put(client: BrokerClient, will: Will): void {
    this.#held.set(client.id, client);
    this.#journal.record({ kind: 'will', will: storedWill(client, will) });
  }

  /** As if this process had crashed: the will of a connection that has ended waits for its client. */
  keep(client: BrokerClient, will: Will, now: number): void {
    if (this.#held.get(client.id) !== client) return;
    this.#held.delete(client.id);
    this.#left.set(client.id, storedWill(client, will));
    this.#due = Math.min(this.#due, now + patience);
  }

  /** The clients have their time to come back from now on. */
  postpone(now: number): void {
    if (this.#left.size > 0) this.#due = now + patience;
  }

  /** The client has come back, or its will has been published or dropped. */
  delete(clientId: string): void {
    const known = this.#held.delete(clientId);
    if (this.#left.delete(clientId) || known) this.#journal.record({ kind: 'unwill', clientId });
  }

  /** As delete, for the will of this connection only. */
  deleteOf(client: BrokerClient): void {
    if (this.#held.get(client.id) === client) this.delete(client.id);
  }

  /** Wills whose clients have not come back in time, each handed out once. Those that are `isAway` wait. */
  takeDue(now: number, isAway: (clientId: string) => boolean): StoredWill[] {
    if (now < this.#due) return [];
    const due = [...this.#left.values()].filter(({ clientId }) => !isAway(clientId));
    this.#due = due.length < this.#left.size ? now + patience : Number.POSITIVE_INFINITY;
    for (const { clientId } of due) this.delete(clientId);
    return due;
  }
}

function storedWill(client: BrokerClient, will: Will, due: number | null = null): StoredWill {
  const { topic, qos, retain, payload, said, delay = 0 } = will;
  const { travelling, messageExpiry = null } = said ?? {};
  const properties = travelling && travelling.length > 0 ? ownBytes(travelling) : null;
  const { generation = null, certificateId = null, sessionId = certificateId } = client.live?.identity ?? {};
  const about = { topic, qos, retain: retain ? 1 : 0, payload: ownBytes(payload), properties };
  return { clientId: client.id, ...about, generation, sessionId, messageExpiry, delay, due };
}
