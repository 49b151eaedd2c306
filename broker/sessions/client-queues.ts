/** The queue in the stored session of a client: what waits in it, is sent from it, and has been acknowledged. */
import type { Logger } from 'pino';
import type { BrokerClient } from '../client-types.ts';
import { faultOf } from '../connections/safe-error.ts';
import type { Outgoing } from '../message-types.ts';
import type { Queued } from './queued.ts';
import type { Kept, Queues } from './queues.ts';
import type { SharedGroups } from './shared-groups.ts';
import type { Session, StoredSessions } from './stored-sessions.ts';

type Id = Pick<BrokerClient, 'id'>;

export class ClientQueues {
  readonly #sessions: StoredSessions;
  readonly #queues: Queues;
  readonly #groups: SharedGroups;
  readonly #log: Pick<Logger, 'error'>;
  #isClosed = false;

  constructor(sessions: StoredSessions, queues: Queues, groups: SharedGroups, log: Pick<Logger, 'error'>) {
    this.#sessions = sessions;
    this.#queues = queues;
    this.#groups = groups;
    this.#log = log;
  }

  /** Passes on nothing more. */
  close(): void {
    this.#isClosed = true;
  }

  /** A message for one client. */
  enqueueFor({ id }: Id, packet: Outgoing): void {
    this.#queues.enqueueFor({ clientId: id, session: this.#sessions.get(id) }, packet);
  }

  /** A message that was written for a client is for another one. */
  takeBack({ id }: Id, packet: Outgoing): void {
    this.#queues.enqueueFor({ clientId: id, session: undefined }, packet);
  }

  /** What a client that has left has for groups goes to connected members, or to any when its session ends with it. */
  passOnShared({ id }: Id, hasSessionEnded: boolean): void {
    const session = this.#sessions.get(id);
    if (session) void this.passOnSharedOf(session, !hasSessionEnded);
  }

  /** As passOnShared, of a session that ends too. A promise, which never rejects, when it takes longer. */
  passOnSharedOf(session: Session, isConnected: boolean): Promise<void> | undefined {
    const { clientId, holder } = session;
    const isBack = () => session.holder !== undefined && session.holder !== holder;
    return this.#queues
      .passOnShared(
        session,
        (group, packet) => this.#groups.passOn(group, packet, clientId, isConnected),
        () => this.#isClosed || isBack(),
      )
      ?.catch((error) => this.#log.error({ fault: faultOf(error) }, 'messages of a group could not be passed on'));
  }

  /** A message is about to be sent under its packet id; undefined when it has not to wait for the disk. */
  noteSent({ id }: Id, packet: Outgoing): Promise<void> | undefined {
    const session = this.#sessions.get(id);
    return session && this.#queues.noteSent(session, packet);
  }

  /** The client has a message of QoS 2; undefined when PUBREL has not to wait for the disk. */
  noteReceived({ id }: Id, messageId: number): Promise<void> | undefined {
    const session = this.#sessions.get(id);
    return session && this.#queues.noteReceived(session, messageId);
  }

  /** A message has been acknowledged. */
  acknowledge({ id }: Id, messageId: number): void {
    const session = this.#sessions.get(id);
    if (session) this.#queues.acknowledge(session, messageId);
  }

  /** A message that may not be delivered to a session leaves its queue. */
  forget({ id }: Id, { brokerCounter }: Pick<Outgoing, 'brokerCounter'>): void {
    const session = this.#sessions.get(id);
    if (session) this.#queues.forget(session, brokerCounter);
  }

  /** The place of a message in the queue of a stored session. */
  placeOf({ id }: Id, { brokerCounter }: Pick<Outgoing, 'brokerCounter'>): Queued | undefined {
    return this.#sessions.get(id)?.queue.withCounter(brokerCounter);
  }

  /** Whether a live message has to wait in the queue, because older ones have not been sent on this connection yet. */
  isBehind(client: BrokerClient, { messageId, brokerCounter }: Pick<Outgoing, 'messageId' | 'brokerCounter'>): boolean {
    if (messageId !== undefined) return false;
    const session = this.#sessions.get(client.id);
    return !!session && session.caughtUp !== client && session.queue.withCounter(brokerCounter) !== undefined;
  }

  /** Whether a message of a client that has to wait is in the queue of its session: what comes then waits behind it. */
  fallBehind({ id }: Id, { brokerCounter }: Pick<Outgoing, 'brokerCounter'>): boolean {
    const session = this.#sessions.get(id);
    if (!session?.queue.withCounter(brokerCounter)) return false;
    session.caughtUp = undefined;
    return true;
  }

  hasFallenBehind(client: BrokerClient): boolean {
    const session = this.#sessions.get(client.id);
    return session !== undefined && session.caughtUp !== client;
  }

  /** Whether a message has been sent under a packet id, by this connection or one before, and is not acknowledged. */
  isSent({ id }: Id, messageId: number): boolean {
    return this.#sessions.get(id)?.queue.ids.kept(messageId) !== undefined;
  }

  /** What a session has kept for its client, oldest first. An error of it ends the connection, and the queue stays. */
  async *keptFor(client: BrokerClient): AsyncIterableIterator<Kept> {
    const session = this.#sessions.get(client.id);
    if (session) yield* this.#queues.left(session, client);
  }

  /** Whether what was read of a queue is still to be sent. */
  isDue({ id }: Id, kept: Kept): boolean {
    const session = this.#sessions.get(id);
    return session !== undefined && this.#queues.isDue(session, kept);
  }
}
