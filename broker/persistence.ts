import { Readable } from 'node:stream';
import type { Subscription } from 'aedes';
import type { BrokerClient, Incoming, Outgoing } from './aedes-types.js';
import type { Counters } from './counters.js';
import { FilterTree } from './filter-tree.js';
import { Settled } from './settled.js';
import { matches } from './topics.js';

/** Messages that a stored session keeps while they cannot be delivered or are not acknowledged. */
const longestQueue = 10_000;
/** Stored sessions of one principal; past it the one that has been away longest is dropped. */
const mostSessions = 20;

/** What the persistence asks the rest of the broker. */
export interface PersistenceRules {
  /** Whether a filter of a SUBSCRIBE packet has been granted. */
  isGranted(client: BrokerClient, filter: string): boolean;
  /** Whether the owner of a stored session may be told of a message, connected or not. */
  mayQueue(clientId: string, topic: string): boolean;
  /** Makes a new QoS 2 message durable; undefined when there is nothing to wait for. */
  storeOnce(client: BrokerClient, packet: Incoming): Promise<void> | undefined;
}

type Id = Pick<BrokerClient, 'id'>;
type Holder = { clientId: string; topic: string; qos: 0 | 1 | 2 };
/** A message for a stored session, or the PUBREL that has taken its place. */
type Queued = Omit<Outgoing, 'cmd'> & { cmd: 'publish' | 'pubrel' };
type PacketId = { messageId?: number | undefined };

/** The undelivered messages of one stored session: oldest first by the broker's counter, the sent ones by packet id. */
interface SessionQueue {
  readonly byCounter: Map<number, Queued>;
  readonly sent: Map<number, Queued>;
}

/**
 * Sessions, subscriptions, queues and retained messages, in memory: they end with the process. Implements the interface
 * of aedes-persistence, and differs from its in-memory store where that one loses or leaks: denied filters of a
 * SUBSCRIBE are not stored, sessions and queues are bounded, of a QoS 2 message only the packet id is kept, and an
 * unknown packet id is no reason to end a connection.
 */
export class SessionStore {
  readonly #rules: PersistenceRules;
  readonly #counters: Counters;
  readonly #limit: number;
  /** The stored sessions of each principal, by client id: who holds one, undefined while nobody is connected. */
  readonly #sessions = new Map<string, Map<string, BrokerClient | undefined>>();
  readonly #retained = new Map<string, Outgoing>();
  /** QoS by filter, by client id. */
  readonly #subscriptions = new Map<string, Map<string, 0 | 1 | 2>>();
  /** The filters that queue messages. */
  readonly #filters = new FilterTree();
  readonly #queues = new Map<string, SessionQueue>();
  /** Packet ids of QoS 2 messages received and not released yet, by client id. */
  readonly #incoming = new Map<string, Set<number>>();
  /** QoS 2 messages that are on their way to the disk. */
  readonly #storing = new Map<string, Promise<void>>();

  constructor(rules: PersistenceRules, counters: Counters, limit = longestQueue) {
    this.#rules = rules;
    this.#counters = counters;
    this.#limit = limit;
  }

  async setup(): Promise<void> {}

  // Stored sessions

  /** A connection has taken up a stored session, or begun one. */
  begin(client: BrokerClient): void {
    const principal = principalOf(client);
    const sessions = this.#sessions.get(principal) ?? new Map<string, BrokerClient | undefined>();
    this.#sessions.set(principal, sessions);
    sessions.set(client.id, client);
    this.#dropOldest(sessions);
  }

  /** A connection has ended; its session is now the one that was left last, unless another has taken it over. */
  leave(client: BrokerClient): void {
    const sessions = this.#sessions.get(principalOf(client));
    if (sessions?.get(client.id) !== client) return;
    sessions.delete(client.id);
    sessions.set(client.id, undefined);
    this.#dropOldest(sessions);
  }

  #dropOldest(sessions: Map<string, BrokerClient | undefined>): void {
    if (sessions.size <= mostSessions) return;
    for (const [id, holder] of sessions) {
      if (holder) continue;
      void this.cleanSubscriptions({ id });
      return;
    }
  }

  // Retained messages

  storeRetained(packet: Outgoing): Promise<void> {
    if (packet.payload.length === 0) this.#retained.delete(packet.topic);
    else this.#retained.set(packet.topic, { ...packet, payload: ownBytes(packet.payload) });
    return Settled.of();
  }

  createRetainedStreamCombi(filters: string[]): Readable {
    const found = new Set<Outgoing>();
    for (const filter of filters) for (const packet of this.#retainedFor(filter)) found.add(packet);
    return Readable.from(found);
  }

  *#retainedFor(filter: string): IterableIterator<Outgoing> {
    if (!filter.includes('+') && !filter.includes('#')) {
      const packet = this.#retained.get(filter);
      if (packet) yield packet;
      return;
    }
    const prefix = filter.slice(0, filter.search(/\/?[+#]/));
    for (const [topic, packet] of this.#retained) if (topic.startsWith(prefix) && matches(filter, topic)) yield packet;
  }

  // Subscriptions

  /** Aedes hands over the whole SUBSCRIBE packet once for each granted filter, the denied ones included. */
  addSubscriptions(client: BrokerClient, subscriptions: Subscription[]): Promise<void> {
    let stored = this.#subscriptions.get(client.id);
    for (const { topic: filter, qos } of subscriptions) {
      if (!this.#rules.isGranted(client, filter)) continue;
      if (!stored) {
        stored = new Map();
        this.#subscriptions.set(client.id, stored);
      }
      stored.set(filter, qos);
      if (qos > 0) this.#filters.set(filter, client.id, qos);
      else this.#filters.delete(filter, client.id);
    }
    return Settled.of();
  }

  removeSubscriptions({ id }: Id, filters: string[]): Promise<void> {
    const stored = this.#subscriptions.get(id);
    for (const filter of filters) {
      this.#filters.delete(filter, id);
      stored?.delete(filter);
    }
    if (stored?.size === 0) this.#subscriptions.delete(id);
    return Settled.of();
  }

  subscriptionsByClient({ id }: Id): Promise<Subscription[]> {
    const stored = this.#subscriptions.get(id) ?? [];
    return Settled.of(Array.from(stored, ([topic, qos]) => ({ topic, qos })));
  }

  subscriptionsByTopic(topic: string): Promise<Holder[]> {
    return Settled.of(Array.from(this.#filters.match(topic), ([clientId, qos]) => ({ clientId, topic, qos })));
  }

  /** Aedes says so when a clean session begins: nothing of the former one stays [MQTT-3.1.2-6]. */
  cleanSubscriptions({ id }: Id): Promise<void> {
    const principal = principalOf({ id });
    const sessions = this.#sessions.get(principal);
    sessions?.delete(id);
    if (sessions?.size === 0) this.#sessions.delete(principal);
    for (const filter of this.#subscriptions.get(id)?.keys() ?? []) this.#filters.delete(filter, id);
    this.#subscriptions.delete(id);
    this.#queues.delete(id);
    this.#incoming.delete(id);
    return Settled.of();
  }

  // Queues of stored sessions

  outgoingEnqueue({ clientId }: Pick<Holder, 'clientId'>, packet: Outgoing): Promise<void> {
    this.#enqueue(clientId, copyForQueue(packet));
    return Settled.of();
  }

  outgoingEnqueueCombi(holders: Holder[], packet: Outgoing): Promise<void> {
    if (holders.length === 0) return Settled.of();
    const copy = copyForQueue(packet);
    for (const { clientId } of holders)
      if (this.#rules.mayQueue(clientId, packet.topic)) this.#enqueue(clientId, { ...copy });
    return Settled.of();
  }

  /** A queued message is sent under a packet id, or its PUBREL takes its place. */
  outgoingUpdate({ id }: Id, packet: Queued): Promise<void> {
    const queue = this.#queues.get(id);
    if (!queue || packet.messageId === undefined) return Settled.of();
    if (packet.cmd === 'pubrel') {
      const sent = queue.sent.get(packet.messageId);
      if (sent) sent.cmd = 'pubrel';
      return Settled.of();
    }
    const queued = queue.byCounter.get(packet.brokerCounter);
    if (!queued) return Settled.of();
    queued.messageId = packet.messageId;
    queue.sent.set(packet.messageId, queued);
    return Settled.of();
  }

  /**
   * A message has been acknowledged. Aedes also asks, without a packet id, for the second copy of a message that matched
   * two filters, while the first is on its way: nothing may leave the queue then.
   */
  outgoingClearMessageId({ id }: Id, { messageId }: PacketId): Promise<Queued | undefined> {
    const queue = this.#queues.get(id);
    const queued = messageId === undefined ? undefined : queue?.sent.get(messageId);
    if (queue && queued) this.#dequeue(id, queue, queued);
    return Settled.of(queued);
  }

  /** A message that may not be delivered to a session leaves its queue. */
  forget({ id }: Id, { brokerCounter }: Pick<Outgoing, 'brokerCounter'>): void {
    const queue = this.#queues.get(id);
    const queued = queue?.byCounter.get(brokerCounter);
    if (queue && queued) this.#dequeue(id, queue, queued);
  }

  /** What is left for a session that has come back; what had been sent before is marked so [MQTT-3.3.1-1]. */
  outgoingStream({ id }: Id): Readable {
    const queued = [...(this.#queues.get(id)?.byCounter.values() ?? [])];
    return Readable.from(queued.map((packet) => ({ ...packet, dup: packet.messageId !== undefined })));
  }

  #enqueue(clientId: string, packet: Queued): void {
    let queue = this.#queues.get(clientId);
    if (!queue) {
      queue = { byCounter: new Map(), sent: new Map() };
      this.#queues.set(clientId, queue);
    }
    queue.byCounter.set(packet.brokerCounter, packet);
    if (queue.byCounter.size <= this.#limit) return;
    const [oldest] = queue.byCounter.values();
    if (oldest) this.#dequeue(clientId, queue, oldest);
    this.#counters.dropped += 1;
  }

  #dequeue(clientId: string, { byCounter, sent }: SessionQueue, packet: Queued): void {
    byCounter.delete(packet.brokerCounter);
    if (packet.messageId !== undefined && sent.get(packet.messageId) === packet) sent.delete(packet.messageId);
    if (byCounter.size === 0) this.#queues.delete(clientId);
  }

  // QoS 2 messages from a client

  /** Called once for each new packet id, before PUBREC. */
  incomingStorePacket(client: BrokerClient, packet: Incoming): Promise<void> {
    const work = this.#rules.storeOnce(client, packet);
    if (!work) {
      this.#received(client, packet);
      return Settled.of();
    }
    const key = `${client.id}/${packet.messageId}`;
    const stored = work
      .then(() => this.#received(client, packet))
      .finally(() => {
        if (this.#storing.get(key) === stored) this.#storing.delete(key);
      });
    this.#storing.set(key, stored);
    return stored;
  }

  /** Aedes asks only whether there is one: by its packet id. */
  incomingGetPacket({ id }: Id, { messageId }: PacketId): Promise<PacketId> {
    if (this.#incoming.get(id)?.has(messageId ?? -1)) return Settled.of({ messageId });
    // A duplicate on a new connection may arrive while the first is still being written.
    const storing = this.#storing.get(`${id}/${messageId}`);
    if (storing) return storing.then(() => this.incomingGetPacket({ id }, { messageId }));
    return Settled.failed(new Error('no such packet'));
  }

  incomingDelPacket({ id }: Id, { messageId }: PacketId): Promise<void> {
    const received = this.#incoming.get(id);
    received?.delete(messageId ?? -1);
    if (received?.size === 0) this.#incoming.delete(id);
    return Settled.of();
  }

  cleanIncoming({ id }: Id): Promise<void> {
    this.#incoming.delete(id);
    return Settled.of();
  }

  #received(client: BrokerClient, { messageId = -1 }: PacketId): void {
    // While the message was being written the session may have ended.
    if (client.clean ? client.closed : !this.#sessions.get(principalOf(client))?.has(client.id)) return;
    const received = this.#incoming.get(client.id);
    if (received) received.add(messageId);
    else this.#incoming.set(client.id, new Set([messageId]));
  }

  // Wills: the connection itself holds its will, and Aedes asks here only for those that another process has left.

  putWill(): Promise<void> {
    return Settled.of();
  }

  delWill(): Promise<void> {
    return Settled.of();
  }

  streamWill(): Readable {
    return Readable.from([]);
  }

  async destroy(): Promise<void> {}
}

/** Account and principal, with which every private client id begins. */
function principalOf({ id }: Id): string {
  return id.split('/', 2).join('/');
}

/** A copy for a queue: not retained, because the subscription stood when the message came [MQTT-3.3.1-9]. */
function copyForQueue({ brokerId, brokerCounter, topic, payload, qos }: Outgoing): Queued {
  const packet = { cmd: 'publish' as const, brokerId, brokerCounter, topic, payload: ownBytes(payload), qos };
  return { ...packet, retain: false, dup: false, messageId: undefined };
}

/** The bytes alone, when they are a small part of a read buffer that would stay in memory with them. */
function ownBytes(payload: string | Buffer): Buffer {
  if (typeof payload === 'string') return Buffer.from(payload);
  return payload.buffer.byteLength > 2 * payload.length ? Buffer.from(payload) : payload;
}
