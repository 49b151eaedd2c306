import { Readable } from 'node:stream';
import type { Subscription } from 'aedes';
import type { Logger } from 'pino';
import type { MqttChange, MqttState, StoredWill } from '../../db/messages/sessions/changes.ts';
import type { MessageStore } from '../../db/messages/store.ts';
import type { BrokerKept } from '../../src/broker-ports.ts';
import type { BrokerClient, BrokerCore, Incoming, LiveClient, Outgoing, Will } from '../aedes-types.ts';
import { accountIn } from '../connections/client-ids.ts';
import { expect } from '../connections/live-clients.ts';
import { faultOf } from '../connections/safe-error.ts';
import { Journal } from './journal.ts';
import type { PersistenceRules } from './persistence-rules.ts';
import { type QueueServices, Queues, type Sending } from './queues.ts';
import { ReceivedIds } from './received-ids.ts';
import { type Reach, Retained, type RetainedRoom } from './retained.ts';
import { SessionRevocation } from './revocation.ts';
import { Settled } from './settled.ts';
import { type Session, type SessionServices, StoredSessions } from './stored-sessions.ts';
import { Unreleased } from './unreleased.ts';
import { Wills } from './wills.ts';

export interface PersistenceServices extends SessionServices, Omit<QueueServices, 'rows' | 'deviceOf' | 'sessions'> {
  messages: Pick<MessageStore, 'mqtt' | 'record' | 'fullFor'>;
  log: Pick<Logger, 'error'>;
  /** The limits of retained messages of an account. */
  retainedRoom: RetainedRoom;
  /** QoS 2 messages without PUBREL of one account; 0 is no limit. */
  maxUnreleased: number;
}

type Id = Pick<BrokerClient, 'id'>;
type Holder = { clientId: string; topic: string; qos: 0 | 1 | 2 };
type PacketId = { messageId?: number | undefined };
type Done = (error?: Error) => void;

/**
 * Sessions, subscriptions, queues, retained messages and wills, as Aedes asks for them: the interface of
 * aedes-persistence. Memory is the truth and answers at once (see Settled); the disk follows through the journal, and
 * what an acknowledgement promises is there before it. It differs from the in-memory store where that one loses or
 * leaks: denied filters of a SUBSCRIBE are not stored, sessions and queues are bounded, of a received QoS 2 message only
 * the packet id is kept, and an unknown packet id is no reason to end a connection.
 */
export class SessionStore {
  readonly #services: PersistenceServices;
  readonly #rules: PersistenceRules;
  readonly #journal: Journal;
  readonly #sessions: StoredSessions;
  readonly #queues: Queues;
  readonly #retained: Retained;
  readonly #wills: Wills;
  readonly #unreleased = new Unreleased();
  /** Packet ids of received QoS 2 messages. */
  readonly received: ReceivedIds;
  /** What stored sessions lose with a permission. */
  readonly revocation: SessionRevocation;
  #brokerId: string | undefined;
  /** Searches for retained messages that have not ended. */
  #searches = 0;

  constructor(services: PersistenceServices, rules: PersistenceRules) {
    this.#services = services;
    this.#rules = rules;
    const rows = services.messages.mqtt;
    this.#journal = new Journal(services.messages);
    this.#sessions = new StoredSessions(services, this.#journal, this.#unreleased);
    this.#queues = new Queues(
      { ...services, rows, sessions: this.#sessions, deviceOf: (topic) => rules.deviceOf(topic) },
      this.#journal,
    );
    this.received = new ReceivedIds(this.#sessions, this.#journal, this.#unreleased, services.maxUnreleased);
    this.revocation = new SessionRevocation(this.#sessions, this.#queues, rules);
    const { retainedRoom: room } = services;
    const accountOf = (topic: string) => rules.accountOf(topic);
    this.#retained = new Retained({ rows, journal: this.#journal, room, accountOf });
    this.#wills = new Wills(this.#journal);
  }

  /** Reads what the last process has left; the counters of messages go on where the stored ones end. */
  async setup(broker: Pick<BrokerCore, 'id' | 'counter'>): Promise<void> {
    const { messages, clock } = this.#services;
    this.#brokerId = broker.id;
    broker.counter = this.#queues.load(this.#sessions.load(messages.mqtt));
    this.#retained.load();
    this.#wills.load(messages.mqtt.wills(), clock.now());
  }

  /** Everything recorded is on its way when this returns, and on disk when the message store has closed. */
  async destroy(): Promise<void> {
    this.#journal.close();
  }

  // Stored sessions

  /** The amounts that the broker keeps for an account. */
  kept(accountId: string): BrokerKept {
    const { count: retained, bytes: retainedBytes } = this.#retained.useOf(accountId);
    const storedSessions = this.#sessions.sizeOf(accountId);
    const queueBytes = this.#sessions.bytesOf(accountId);
    return { storedSessions, queueBytes, retained, retainedBytes, unreleased: this.#unreleased.of(accountId) };
  }

  /** Whether a CONNECT may take up a stored session or begin one; `leave` gives its place back. */
  mayBegin(clientId: string): boolean {
    return this.#sessions.mayBegin(clientId);
  }

  /** A connection has taken up a stored session, or begun one; whether there was one. */
  begin(client: BrokerClient): boolean {
    const wasPresent = this.#sessions.get(client.id) !== undefined;
    this.#sessions.begin(client);
    return wasPresent;
  }

  /** A connection has ended. */
  leave(client: BrokerClient): void {
    // Aedes asks for the wills of others to be deleted, once they have been published.
    if (client.live?.kicked) this.#wills.deleteOf(client);
    this.#sessions.giveUp(client.id);
    this.#sessions.leave(client);
  }

  /** Stored sessions, and the filters in them that queue messages. */
  get size(): { sessions: number; filters: number } {
    return this.#sessions.size;
  }

  /** Queue lengths: changes for the disk, wills, searches for retained messages, messages for readers. */
  get waiting(): Record<'sessions' | 'wills' | 'retained' | 'delivery', number> {
    return {
      sessions: this.#journal.pending,
      wills: this.#wills.left,
      retained: this.#searches,
      delivery: this.#sessions.queued,
    };
  }

  // Accounts that move between servers

  /** Takes what another server has held; on disk when it resolves. */
  async arrive(state: MqttState, broker: Pick<BrokerCore, 'counter'>): Promise<void> {
    const { clock } = this.#services;
    const sessions = this.#sessions.arrive(state);
    broker.counter = this.#queues.arrive(state, sessions, broker.counter);
    for (const { topic, qos, payload } of state.retained)
      this.#retained.store({ topic, qos: qos as 0 | 1 | 2, payload });
    this.#wills.arrive(state.wills, clock.now());
    await this.#journal.durable();
  }

  /** Clients that have left a will have their time to come back from now on. */
  postponeWills(): void {
    this.#wills.postpone(this.#services.clock.now());
  }

  /** Forgets all that an account has here, on disk too when it resolves. */
  async depart(accountId: string): Promise<void> {
    for (const session of [...this.#sessions.all()])
      if (session.clientId.startsWith(accountId)) this.#sessions.end(session);
    for (const topic of this.#services.messages.mqtt.retainedOf(accountId))
      this.#retained.store({ topic, qos: 0, payload: Buffer.alloc(0) });
    this.#wills.depart(accountId);
    await this.#journal.durable();
  }

  /** Resolves when everything recorded until now is on disk. */
  durable(): Promise<void> {
    return this.#journal.durable();
  }

  /** One small step of ending what is over and clearing what belongs to nobody; called often. */
  sweep(): void {
    this.#sessions.sweep((clientId) => this.#rules.hasOwner(clientId));
    this.#retained.sweep((topic) => this.#rules.mayBeRetained(topic));
  }

  // Messages on their way in

  /**
   * Makes durable what the acknowledgement of a QoS 1 or 2 message promises: that it reaches the stored sessions which
   * have subscribed to it, that it is retained, and that its packet id is known. In one transaction with what was given
   * to the message store right before. `done` is called at once when there is nothing to keep. Ask `lacksRoomFor` before.
   * `onPlaces` is told before that how many sessions it is written for.
   */
  keep(
    client: Pick<BrokerClient, 'id' | 'clean'> | undefined,
    packet: Incoming,
    done: Done,
    onPlaces: (sessions: number) => void = () => {},
  ): void {
    const changes: MqttChange[] = [];
    if (packet.retain) changes.push(this.#retained.change(packet));
    const sessions = this.#sessionsFor(packet.topic);
    const grows = sessions.length > 0 || (packet.retain && packet.payload.length > 0);
    const full = grows ? this.#services.messages.fullFor(this.#rules.accountOf(packet.topic)) : undefined;
    if (full) {
      done(full);
      return;
    }
    if (sessions.length > 0) {
      onPlaces(sessions.length);
      changes.push(this.#queues.keep(sessions, packet));
    }
    const own = client && !client.clean && packet.qos === 2 ? this.#sessions.get(client.id) : undefined;
    if (own && packet.messageId !== undefined)
      changes.push({ kind: 'incoming', session: own.number, packetId: packet.messageId });
    if (changes.length === 0) {
      done();
      return;
    }
    const settled = packet.retain ? this.#retained.admit(packet) : () => {};
    this.#journal.promise(changes, (error) => {
      settled(error);
      done(error);
    });
  }

  /** The limit that a message would exceed if it were retained. */
  lacksRoomFor(packet: Pick<Incoming, 'topic' | 'qos' | 'payload'>): keyof RetainedRoom | undefined {
    return this.#retained.lacksRoomFor(packet);
  }

  #sessionsFor(topic: string): Session[] {
    return this.#sessions.size.filters === 0 ? [] : this.#allowed(this.#sessions.holdersOf(topic).keys(), topic);
  }

  #allowed(clientIds: Iterable<string>, topic: string): Session[] {
    const sessions: Session[] = [];
    for (const clientId of clientIds) {
      const session = this.#sessions.get(clientId);
      if (session && this.#rules.mayQueue(clientId, topic)) sessions.push(session);
    }
    return sessions;
  }

  // Packet ids of received QoS 2 messages

  incomingStorePacket(client: BrokerClient, packet: Incoming): Promise<void> {
    this.received.add(client, packet);
    return Settled.of();
  }

  /** Aedes asks only whether there is one: by its packet id. */
  incomingGetPacket(client: Id, packet: PacketId): Promise<PacketId> {
    return this.received.find(client, packet);
  }

  incomingDelPacket(client: Id, packet: PacketId): Promise<void> {
    return this.received.release(client, packet);
  }

  cleanIncoming(client: Id): Promise<void> {
    return this.received.clear(client);
  }

  // Retained messages

  /** Without room it is not stored: what was promised has taken its room before. */
  storeRetained(packet: Outgoing): Promise<void> {
    this.#retained.store(packet);
    return Settled.of();
  }

  createRetainedStreamCombi(filters: string[]): Readable {
    return Readable.from(this.#rules.sendsRetained ? [] : this.#retainedPackets(filters));
  }

  /** The retained messages for a SUBSCRIBE of this connection. An error ends the search early. */
  retainedFor(live: LiveClient, filters: string[]): AsyncIterableIterator<Outgoing> {
    return this.#retainedPackets(filters, this.#rules.reachOf(live)) as AsyncIterableIterator<Outgoing>;
  }

  /** Ends early instead of failing: Aedes does not look at errors of its stream, and one would end the process. */
  async *#retainedPackets(filters: string[], reach?: Reach): AsyncIterableIterator<object> {
    this.#searches += 1;
    try {
      for await (const { topic, qos, payload } of this.#retained.matching(filters, reach))
        yield { cmd: 'publish', topic, qos, payload: Buffer.from(payload), retain: true };
    } catch (error) {
      this.#services.log.error({ fault: faultOf(error) }, 'retained messages could not be read');
    } finally {
      this.#searches -= 1;
    }
  }

  // Subscriptions

  /**
   * Aedes hands over the whole SUBSCRIBE packet once for each granted filter, the denied ones included. SUBACK and
   * UNSUBACK wait for the disk.
   */
  addSubscriptions(client: BrokerClient, subscriptions: Subscription[]): Promise<void> {
    const session = this.#sessions.get(client.id);
    if (!session) return Settled.of();
    for (const subscription of subscriptions)
      if (this.#rules.isGranted(client, subscription.topic)) this.#sessions.subscribe(session, subscription);
    return this.#journal.durable();
  }

  removeSubscriptions({ id }: Id, filters: string[]): Promise<void> {
    const session = this.#sessions.get(id);
    if (!session) return Settled.of();
    for (const filter of filters) this.#sessions.unsubscribe(session, filter);
    return this.#journal.durable();
  }

  /** For a session that is taken up again: a filter whose right has gone meanwhile goes, too. */
  subscriptionsByClient({ id }: Id): Promise<Subscription[]> {
    const session = this.#sessions.get(id);
    if (!session) return Settled.of([]);
    for (const filter of [...session.filters.keys()])
      if (!this.#rules.mayStand(id, filter)) this.#sessions.unsubscribe(session, filter);
    return Settled.of(Array.from(session.filters.values(), (subscription) => ({ ...subscription })));
  }

  subscriptionsByTopic(topic: string): Promise<Holder[]> {
    return Settled.of(Array.from(this.#sessions.holdersOf(topic), ([clientId, qos]) => ({ clientId, topic, qos })));
  }

  /** Aedes says so when a clean session begins: nothing of the former one stays [MQTT-3.1.2-6]. */
  cleanSubscriptions({ id }: Id): Promise<void> {
    const session = this.#sessions.get(id);
    if (session) this.#sessions.end(session);
    return Settled.of();
  }

  // Queues of stored sessions

  outgoingEnqueue({ clientId }: Pick<Holder, 'clientId'>, packet: Outgoing): Promise<void> {
    const session = this.#sessions.get(clientId);
    if (session) this.#queues.enqueue([session], packet);
    return Settled.of();
  }

  outgoingEnqueueCombi(holders: Holder[], packet: Outgoing): Promise<void> {
    const clientIds = holders.map(({ clientId }) => clientId);
    this.#queues.enqueue(this.#allowed(clientIds, packet.topic), packet);
    return Settled.of();
  }

  outgoingUpdate({ id, live }: Id & Pick<BrokerClient, 'live'>, packet: Sending): Promise<void> {
    if (live && packet.cmd === 'pubrel' && packet.messageId !== undefined) expect(live, packet.messageId, 'pubcomp');
    const session = this.#sessions.get(id);
    return session ? this.#queues.update(session, packet) : Settled.of();
  }

  /**
   * A message has been acknowledged. Aedes also asks, without a packet id, for the second copy of a message that matched
   * two filters, while the first is on its way: nothing may leave the queue then.
   */
  outgoingClearMessageId({ id }: Id, { messageId }: PacketId): Promise<PacketId | undefined> {
    const session = this.#sessions.get(id);
    if (!session || messageId === undefined) return Settled.of(undefined);
    return Settled.of(this.#queues.acknowledge(session, messageId) ? { messageId } : undefined);
  }

  /** A message that may not be delivered to a session leaves its queue. */
  forget({ id }: Id, { brokerCounter }: Pick<Outgoing, 'brokerCounter'>): void {
    const session = this.#sessions.get(id);
    if (session) this.#queues.forget(session, brokerCounter);
  }

  /** Whether a live message has to wait in the queue, because older ones have not been sent on this connection yet. */
  isBehind(client: BrokerClient, { messageId, brokerCounter }: Pick<Outgoing, 'messageId' | 'brokerCounter'>): boolean {
    if (messageId !== undefined) return false;
    const session = this.#sessions.get(client.id);
    return !!session && session.caughtUp !== client && session.queue.withCounter(brokerCounter) !== undefined;
  }

  /** An error of it ends the connection, and the queue stays. */
  outgoingStream(client: BrokerClient): Readable {
    const session = this.#sessions.get(client.id);
    return Readable.from(session ? this.#leftPackets(session, client) : []);
  }

  async *#leftPackets(session: Session, client: BrokerClient): AsyncIterableIterator<object> {
    for await (const packet of this.#queues.left(session, client))
      yield packet.cmd === 'publish' ? { ...packet, brokerId: this.#brokerId } : packet;
  }

  // Wills: the connection itself holds its will; on disk it is for the next process.

  putWill(client: BrokerClient, will: Will): Promise<void> {
    this.#wills.put(client, will);
    return Settled.of();
  }

  /** The connection has ended, and its will cannot be published now. */
  keepWill(client: BrokerClient, will: Will): void {
    this.#wills.keep(client, will, this.#services.clock.now());
  }

  /** Aedes gives the connection itself when it begins, and only its client id when its will has been published. */
  delWill(client: Id | BrokerClient): Promise<void> {
    if ('conn' in client) this.#wills.delete(client.id);
    else this.#wills.deleteOfClosed(client.id);
    return Settled.of();
  }

  /** Aedes would publish the wills of dead processes after four minutes, without asking whose they are. */
  streamWill(): Readable {
    return Readable.from([]);
  }

  /** Wills of a crashed process whose clients have had their time to come back, each once. */
  takeDueWills(): StoredWill[] {
    return this.#wills.takeDue(this.#services.clock.now(), (clientId) => this.#rules.isAway(accountIn(clientId)));
  }
}
