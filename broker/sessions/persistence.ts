import type { Logger } from 'pino';
import type { MqttChange, MqttState, RetainedMessage, StoredWill } from '../../db/messages/sessions/changes.ts';
import type { MessageStore } from '../../db/messages/store.ts';
import type { BrokerKept } from '../../src/ports/broker-ports.ts';
import type { BrokerClient, LiveClient } from '../client-types.ts';
import { accountIn } from '../connections/client-ids.ts';
import { matchFilters } from '../connections/filters.ts';
import type { Dated } from '../former-messages.ts';
import type { MessageNumbers } from '../message-numbers.ts';
import { type Carried, carriedOf, type Incoming, isForNow, type Outgoing, type Will } from '../message-types.ts';
import { ClientFilters } from './client-filters.ts';
import { ClientQueues } from './client-queues.ts';
import { Journal } from './journal.ts';
import type { PersistenceRules } from './persistence-rules.ts';
import { type QueueServices, Queues } from './queues.ts';
import { ReceivedIds } from './received-ids.ts';
import { Retained, type RetainedRoom } from './retained.ts';
import type { RetainedSearch, Sending } from './retained-search.ts';
import { SessionRevocation } from './revocation.ts';
import { type GroupServices, SharedGroups } from './shared-groups.ts';
import { type Session, type SessionServices, StoredSessions } from './stored-sessions.ts';
import { Unreleased } from './unreleased.ts';
import { delayOf, Wills } from './wills.ts';

export interface PersistenceServices
  extends SessionServices,
    Omit<QueueServices, 'rows' | 'deviceOf' | 'sessions'>,
    GroupServices {
  messages: Pick<MessageStore, 'mqtt' | 'record' | 'fullFor'>;
  log: Pick<Logger, 'error'>;
  /** The limits of retained messages of an account. */
  retainedRoom: RetainedRoom;
  /** QoS 2 messages without PUBREL of one account; 0 is no limit. */
  maxUnreleased: number;
  /** Bytes of the wills of one account; 0 is no limit. */
  maxWillBytes: number;
  messageNumbers: MessageNumbers;
}

/** What a client finds that is let in. */
interface Begun {
  isSessionPresent: boolean;
  /** Seconds that its session is kept when it leaves. */
  sessionExpiry: number;
  /** A will that waited for the end of its former session. */
  leftWill: StoredWill | undefined;
}

type Written = (error?: Error) => void;

/**
 * Sessions, subscriptions, queues, retained messages and wills. Memory is the truth and answers at once; the disk follows through
 * the journal, and what an acknowledgement promises is there before it.
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
  readonly groups: SharedGroups;
  /** Filters and queues of stored sessions, by client. */
  readonly filters: ClientFilters;
  readonly queues: ClientQueues;
  /** What stored sessions lose with a permission. */
  readonly revocation: SessionRevocation;
  /** Searches for retained messages that have not ended. */
  #searches = 0;
  /** The account whose sessions end because it goes to another server. */
  #departing: string | undefined;

  /** Reads what the last process has left; messages are numbered where the stored ones end. */
  constructor(services: PersistenceServices, rules: PersistenceRules) {
    this.#services = services;
    this.#rules = rules;
    const rows = services.messages.mqtt;
    this.#journal = new Journal(services.messages);
    this.groups = new SharedGroups(services, rules, {
      enqueue: (id, packet) => this.queues.enqueueFor({ id }, packet),
      takeBack: (id, packet) => this.queues.takeBack({ id }, packet),
    });
    this.#sessions = new StoredSessions({
      ...services,
      journal: this.#journal,
      unreleased: this.#unreleased,
      groups: this.groups,
      ending: (session) => this.#ending(session),
    });
    this.#queues = new Queues(
      { ...services, rows, sessions: this.#sessions, deviceOf: (topic) => rules.deviceOf(topic) },
      this.#journal,
    );
    this.filters = new ClientFilters(this.#sessions, this.#journal, rules);
    this.queues = new ClientQueues(this.#sessions, this.#queues, this.groups, services.log);
    this.received = new ReceivedIds(this.#sessions, this.#journal, this.#unreleased, services.maxUnreleased);
    this.revocation = new SessionRevocation(this.#sessions, this.#queues, rules, this.groups);
    const { retainedRoom: room } = services;
    const accountOf = (topic: string) => rules.accountOf(topic);
    const { clock, ages, counters } = services;
    this.#retained = new Retained({ clock, ages, counters, rows, journal: this.#journal, room, accountOf });
    this.#wills = new Wills(this.#journal, rows, services.maxWillBytes);
    services.messageNumbers.last = this.#queues.load(this.#sessions.load(rows));
    this.#retained.load();
    this.#wills.load(ages.now());
  }

  #ending(session: Session): Promise<void> | undefined {
    this.#wills.endDelay(session.clientId, this.#services.ages.now());
    // The other members go with the account.
    return accountIn(session.clientId) === this.#departing ? undefined : this.queues.passOnSharedOf(session, false);
  }

  /** Everything recorded is on its way when this returns, and on disk when the message store has closed. */
  close(): void {
    this.queues.close();
    this.#journal.close();
  }

  // Stored sessions

  /** The amounts that the broker keeps for an account. */
  kept(accountId: string): BrokerKept {
    const { count: retained, bytes: retainedBytes } = this.#retained.useOf(accountId);
    const storedSessions = this.#sessions.sizeOf(accountId);
    const queueBytes = this.#sessions.bytesOf(accountId);
    const filterBytes = this.#sessions.filterBytesOf(accountId);
    const willBytes = this.#wills.bytesOf(accountId);
    const unreleased = this.#unreleased.of(accountId);
    return { storedSessions, filterBytes, queueBytes, willBytes, retained, retainedBytes, unreleased };
  }

  /** Whether a CONNECT may take up a stored session or begin one; `leave` gives its place back. */
  mayBegin(clientId: string): boolean {
    return this.#sessions.mayBegin(clientId);
  }

  /** Whether the account of a client has room for its will. */
  hasRoomForWill(clientId: string, will: Will): boolean {
    return this.#wills.hasRoomFor(clientId, will);
  }

  /**
   * A client is let in: its session is taken up or begun, and its will is on its way to the disk. Of a clean session nothing
   * stays [MQTT-3.1.2-6].
   */
  begin(client: BrokerClient): Begun {
    const session = this.#sessions.lasting(client.id);
    const leftWill = this.#wills.takeBack(client.id, client.cleanStart || !session);
    if (client.will) this.#wills.put(client, client.will);
    if (client.cleanStart) {
      if (session) this.#sessions.end(session);
      this.received.clear(client);
    }
    const sessionExpiry = client.clean ? 0 : this.#sessions.begin(client);
    return { isSessionPresent: session !== undefined && !client.cleanStart, sessionExpiry, leftWill };
  }

  /** A connection has ended. */
  leave(client: BrokerClient): void {
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
  async arrive(state: MqttState): Promise<void> {
    const { ages, messageNumbers } = this.#services;
    const sessions = this.#sessions.arrive(state);
    messageNumbers.last = this.#queues.arrive(state, sessions, messageNumbers.last);
    for (const retained of state.retained) {
      const { topic, qos, payload, stored = 0 } = retained;
      this.#retained.store({ topic, qos: qos as 0 | 1 | 2, payload, stored, ...carriedOf(retained) });
    }
    this.#wills.arrive(state.wills, ages.now());
    await this.#journal.durable();
  }

  /** Clients that have left a will have their time to come back from now on. */
  postponeWills(): void {
    this.#wills.postpone(this.#services.ages.now());
  }

  /** Forgets all that an account has here, on disk too when it resolves. */
  async depart(accountId: string): Promise<void> {
    this.#departing = accountId;
    for (const session of [...this.#sessions.all()])
      if (session.clientId.startsWith(accountId)) this.#sessions.end(session);
    this.#departing = undefined;
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
    this.#sessions.sweep(
      (clientId) => this.#rules.hasOwner(clientId),
      (session) => this.#queues.dropExpired(session),
    );
    this.#retained.sweep((topic) => this.#rules.mayBeRetained(topic));
  }

  // Messages on their way in

  /**
   * Makes durable what the acknowledgement of a QoS 1 or 2 message promises, in one transaction with what the store was given right
   * before. `done` comes at once if there is nothing to keep; `onPlaces` is told before for how many sessions. Ask `lacksRoomFor` first.
   */
  keep(
    client: Pick<BrokerClient, 'id' | 'clean'> | undefined,
    packet: Incoming,
    done: Written,
    onPlaces: (sessions: number) => void = () => {},
  ): void {
    const changes: MqttChange[] = [];
    if (packet.retain) changes.push(this.#retained.change(packet));
    const sessions = this.#sessionsFor(packet, client?.id);
    const shared = this.#sharedFor(packet);
    const grows = sessions.length > 0 || shared.length > 0 || (packet.retain && packet.payload.length > 0);
    const full = grows ? this.#services.messages.fullFor(this.#rules.accountOf(packet.topic)) : undefined;
    if (full) {
      done(full);
      return;
    }
    if (sessions.length > 0) changes.push(this.#queues.keep(sessions, packet));
    for (const [own, copy] of shared) changes.push(this.#queues.keep(own, copy));
    const places = shared.reduce((sum, [own]) => sum + own.length, sessions.length);
    if (places > 0) onPlaces(places);
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

  /** A message on its way to the receivers of all: into the queues of stored sessions that want it. */
  enqueue(packet: Outgoing): void {
    this.groups.takeBack(packet);
    this.#queues.enqueue(this.#sessionsFor(packet, packet.clientId, packet), packet);
  }

  /** The limit that a message would exceed if it were retained. */
  lacksRoomFor(packet: Pick<Incoming, 'topic' | 'qos' | 'payload' | 'properties'>): keyof RetainedRoom | undefined {
    return this.#retained.lacksRoomFor(packet);
  }

  /** Stored sessions for whose queues a message is. */
  #sessionsFor(packet: Pick<Incoming, 'topic'> & Carried, publisher: string | undefined, message?: Dated): Session[] {
    const { topic } = packet;
    const sessions: Session[] = [];
    if (this.#sessions.size.filters === 0 || isForNow(packet)) return sessions;
    for (const clientId of this.#sessions.holdersOf(this.#rules.receivingAccountOf(topic), topic)) {
      const session = this.#sessions.get(clientId);
      if (!session || !this.#rules.mayQueue(clientId, topic, message)) continue;
      const isOwn = clientId === publisher;
      if (!isOwn || matchFilters(session.filters.values(), topic, true)) sessions.push(session);
    }
    return sessions;
  }

  /** Stored sessions that are chosen for their groups, with the message as they get it. */
  #sharedFor(packet: Incoming): Array<[Session[], Incoming]> {
    const written = this.groups.choose(packet);
    if (written.length === 0) return [];
    return written.flatMap(({ clientIds, packet: copy }) => {
      const sessions = [...clientIds].flatMap((clientId) => this.#sessions.get(clientId) ?? []);
      return sessions.length > 0 ? [[sessions, copy] as [Session[], Incoming]] : [];
    });
  }

  // Retained messages

  /** Without room it is not stored: what was promised has taken its room before. */
  storeRetained(packet: Outgoing): void {
    this.#retained.store(packet);
  }

  /** A message that is to be retained is on its way to the disk; call what it returns when it has been passed on, or not. */
  retaining(topic: string): () => void {
    return this.#retained.retaining(topic);
  }

  isRetaining(topic: string): boolean {
    return this.#retained.isRetaining(topic);
  }

  /** Calls back when those of this topic that are on their way to the disk now have been passed on. */
  afterRetaining(topic: string, work: () => void): void {
    this.#retained.afterRetaining(topic, work);
  }

  /** Begins to look for what is retained for a SUBSCRIBE of this connection, as it is now. Close it. */
  searchRetained(live: LiveClient, filters: string[], send: (packet: Outgoing) => Sending): RetainedSearch {
    this.#searches += 1;
    const ended = () => {
      this.#searches -= 1;
    };
    return this.#retained.search(filters, this.#rules.reachOf(live), (message) => send(packetOf(message)), ended);
  }

  /** Sends what a search finds. */
  sendRetained(search: RetainedSearch): AsyncIterableIterator<Sending> {
    return this.#retained.sending(search);
  }

  // Wills: the connection itself holds its will; on disk it is for the next process.

  /** The connection has ended, and its will cannot be published now. */
  keepWill(client: BrokerClient, will: Will): void {
    this.#wills.keep(client, will, this.#services.ages.now());
  }

  /** Keeps the will of a connection that has ended for as long as it is to wait; false when it is not to wait at all. */
  delayWill(client: BrokerClient, will: Will): boolean {
    if (delayOf(client, will) === 0) return false;
    this.keepWill(client, will);
    return true;
  }

  /** The will of a connection has been published, or is void. */
  deleteWill(client: BrokerClient): void {
    this.#wills.deleteOf(client);
  }

  /** Some wills whose clients have not come back in time, each once; empty when there are no more. */
  takeDueWills(): StoredWill[] {
    return this.#wills.takeDue(this.#services.ages.now(), (clientId) => this.#rules.isAway(accountIn(clientId)));
  }
}

function packetOf(retained: RetainedMessage): Outgoing {
  const { topic, qos, payload } = retained;
  const about = { topic, qos, payload: Buffer.from(payload), retain: true, ...carriedOf(retained) };
  return { cmd: 'publish', ...about } as Outgoing;
}
