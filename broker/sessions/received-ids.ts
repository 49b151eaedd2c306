import type { BrokerClient } from '../client-types.ts';
import { accountIn } from '../connections/client-ids.ts';
import type { Journal } from './journal.ts';
import type { StoredSessions } from './stored-sessions.ts';
import type { Unreleased } from './unreleased.ts';

type Id = Pick<BrokerClient, 'id'>;

/**
 * Packet ids of QoS 2 messages that have been received and not released. Until its PUBREL a packet id names no new
 * message, also on another connection of the session and after a restart.
 */
export class ReceivedIds {
  readonly #sessions: StoredSessions;
  readonly #journal: Journal;
  readonly #unreleased: Unreleased;
  readonly #maxUnreleased: number;
  /** Of clean sessions, by client id. */
  readonly #receivedClean = new Map<string, Set<number>>();
  /** QoS 2 messages that are on their way to the disk, by client id and packet id. */
  readonly #storing = new Map<string, Map<number, Promise<void>>>();

  /** `maxUnreleased` is for one account; 0 is no limit. */
  constructor(sessions: StoredSessions, journal: Journal, unreleased: Unreleased, maxUnreleased: number) {
    this.#sessions = sessions;
    this.#journal = journal;
    this.#unreleased = unreleased;
    this.#maxUnreleased = maxUnreleased;
  }

  /** Whether the QoS 2 message of this packet id is on its way to the disk. */
  isBeingStored({ id }: Id, messageId: number): boolean {
    return this.#storing.get(id)?.has(messageId) === true;
  }

  /** Whether the account of a connection has as many QoS 2 messages without PUBREL as it may. */
  isFull({ id }: Id): boolean {
    const max = this.#maxUnreleased;
    return max > 0 && this.#unreleased.of(accountIn(id)) >= max;
  }

  /** The packet id of a QoS 2 message names no new message until its PUBREL. */
  add(client: BrokerClient, messageId: number): void {
    // While the message was being written the session may have ended.
    if (!client.clean) {
      const session = this.#sessions.get(client.id);
      if (session) this.#unreleased.add(session.received, client.id, messageId);
      return;
    }
    if (client.closed) return;
    const received = this.#receivedClean.get(client.id) ?? new Set();
    this.#receivedClean.set(client.id, received);
    this.#unreleased.add(received, client.id, messageId);
  }

  /** A new QoS 2 message is on its way to the disk. Call what it returns when that has ended, before PUBREC. */
  storing(client: BrokerClient, messageId: number): (error?: Error) => void {
    const { id } = client;
    let ended = () => {};
    const underWay = new Promise<void>((resolve) => {
      ended = resolve;
    });
    const storing = this.#storing.get(id) ?? new Map<number, Promise<void>>();
    this.#storing.set(id, storing.set(messageId, underWay));
    return (error) => {
      if (!error) this.add(client, messageId);
      if (storing.get(messageId) === underWay) storing.delete(messageId);
      if (storing.size === 0 && this.#storing.get(id) === storing) this.#storing.delete(id);
      ended();
    };
  }

  /** Whether a packet id is that of a message without PUBREL; a promise while that message is being written. */
  isKnown({ id }: Id, messageId: number): boolean | Promise<boolean> {
    if (this.#receivedBy(id)?.has(messageId)) return true;
    // A duplicate on a new connection may arrive while the first is still being written.
    const storing = this.#storing.get(id)?.get(messageId);
    return storing?.then(() => this.isKnown({ id }, messageId)) ?? false;
  }

  /** PUBCOMP waits for the disk: after it the packet id may name a new message. */
  async release({ id }: Id, messageId: number): Promise<void> {
    const session = this.#sessions.get(id);
    if (session) {
      this.#journal.record({ kind: 'unincoming', session: session.number, packetId: messageId });
      await this.#journal.durable();
      this.#unreleased.delete(session.received, id, messageId);
      return;
    }
    const received = this.#receivedClean.get(id);
    if (received) this.#unreleased.delete(received, id, messageId);
    if (received?.size === 0) this.#receivedClean.delete(id);
  }

  /** A message that has been written has been answered with a failure: its packet id names a new message at once. */
  forget({ id }: Id, messageId: number): void {
    const session = this.#sessions.get(id);
    if (session) this.#journal.record({ kind: 'unincoming', session: session.number, packetId: messageId });
  }

  /** A clean session has ended. */
  clear({ id }: Id): void {
    const received = this.#receivedClean.get(id);
    if (received) this.#unreleased.clear(received, id);
    this.#receivedClean.delete(id);
  }

  #receivedBy(clientId: string): Set<number> | undefined {
    return this.#sessions.get(clientId)?.received ?? this.#receivedClean.get(clientId);
  }
}
