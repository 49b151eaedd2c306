import type { StoredWill } from '../../db/messages/sessions/changes.ts';
import type { BrokerClient } from '../aedes-types.ts';
import type { Will } from '../message-types.ts';
import type { Journal } from './journal.ts';
import { ownBytes } from './retained.ts';

/** Milliseconds from the start that the client of a crashed process has to come back, where its will says nothing of it. */
const patience = 60_000;
/** Wills that are published in one turn of the event loop. */
const duesAtOnce = 100;

/** `due` in milliseconds since 1970. */
type LeftWill = StoredWill & { due: number };

/**
 * Wills, on disk while their clients are connected, and while they wait for them: a connection holds its own, and one that is
 * left by a crash, or is to be delayed, waits until it is due. They are kept by private client id.
 */
export class Wills {
  readonly #journal: Journal;
  readonly #held = new Map<string, BrokerClient>();
  /** Those that wait for their clients. */
  readonly #left = new Map<string, LeftWill>();
  /** None is due before. */
  #due = Number.POSITIVE_INFINITY;

  constructor(journal: Journal) {
    this.#journal = journal;
  }

  /** `now` in milliseconds. The connections of a crashed process have ended with it. */
  load(left: readonly StoredWill[], now: number): void {
    for (const will of left) this.#leave(will, now);
  }

  /** Those that wait for their clients. */
  get left(): number {
    return this.#left.size;
  }

  /** Those of another server, whose clients have their time to come back. */
  arrive(wills: readonly StoredWill[], now: number): void {
    for (const will of wills) {
      this.#journal.record({ kind: 'will', will });
      this.#leave(will, now);
    }
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

  /** The connection has ended: its will waits for its client for as long as it says, or as if this process had crashed. */
  keep(client: BrokerClient, will: Will, now: number): void {
    if (this.#held.get(client.id) !== client) return;
    this.#held.delete(client.id);
    this.#leave(storedWill(client, will), now);
  }

  /** The clients have their time to come back from now on. */
  postpone(now: number): void {
    for (const will of this.#left.values()) if (will.delay === 0) will.due = now + patience;
  }

  /** The client has come back: its will is void, or is returned to be published when its session has ended [MQTT-3.1.3-9]. */
  takeBack(clientId: string, hasSessionEnded: boolean): StoredWill | undefined {
    const left = this.#left.get(clientId);
    this.delete(clientId);
    return left && hasSessionEnded && left.delay > 0 ? left : undefined;
  }

  /** A session has ended before its will was due: it waits no longer [MQTT-3.1.3-9]. */
  endDelay(clientId: string, now: number): void {
    const left = this.#left.get(clientId);
    if (!left || left.delay === 0 || left.due <= now) return;
    left.due = now;
    this.#due = Math.min(this.#due, now);
    this.#journal.record({ kind: 'will', will: left });
  }

  /** The will of a client has been published or dropped. */
  delete(clientId: string): void {
    const known = this.#held.delete(clientId);
    if (this.#left.delete(clientId) || known) this.#journal.record({ kind: 'unwill', clientId });
  }

  /** As delete, for the will of this connection only. */
  deleteOf(client: BrokerClient): void {
    if (this.#held.get(client.id) === client) this.delete(client.id);
  }

  /** Some wills whose clients have not come back in time, each handed out once. Those that are `isAway` wait. */
  takeDue(now: number, isAway: (clientId: string) => boolean): StoredWill[] {
    if (now < this.#due) return [];
    this.#due = Number.POSITIVE_INFINITY;
    const due: StoredWill[] = [];
    for (const will of this.#left.values()) {
      if (will.due <= now && due.length < duesAtOnce && !isAway(will.clientId)) due.push(will);
      else this.#due = Math.min(this.#due, due.length < duesAtOnce ? Math.max(will.due, now + 1) : now);
    }
    for (const { clientId } of due) this.delete(clientId);
    return due;
  }

  #leave(will: StoredWill, now: number): void {
    const { clientId, delay } = will;
    const due = delay > 0 ? (will.due ?? now + delay * 1000) : now + patience;
    const left = { ...will, due };
    this.#left.set(clientId, left);
    this.#due = Math.min(this.#due, due);
    // The others have a minute again after each start.
    if (delay > 0 && will.due === null) this.#journal.record({ kind: 'will', will: left });
  }
}

function storedWill(client: BrokerClient, will: Will): StoredWill {
  const { topic, qos, retain, payload, said } = will;
  const delay = delayOf(client, will);
  const { travelling, messageExpiry = null } = said ?? {};
  const properties = travelling && travelling.length > 0 ? ownBytes(travelling) : null;
  const { generation = null, certificateId = null, sessionId = certificateId } = client.live?.identity ?? {};
  const about = { topic, qos, retain: retain ? 1 : 0, payload: ownBytes(payload), properties };
  return { clientId: client.id, ...about, generation, sessionId, messageExpiry, delay, due: null };
}

/** Since when a will has waited for its client, in milliseconds since 1970; undefined while the client is connected. */
export function waitsSince({ due, delay }: StoredWill): number | undefined {
  return due === null ? undefined : due - (delay > 0 ? delay * 1000 : patience);
}

/** Seconds that a will waits after its connection: not longer than the session is kept [MQTT-3.1.3.2.2]. */
export function delayOf({ clean, sessionExpiry }: BrokerClient, { delay = 0 }: Will): number {
  return Math.min(delay, clean ? 0 : sessionExpiry);
}
