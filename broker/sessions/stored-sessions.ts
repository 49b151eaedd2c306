import type { MqttState } from '../../db/messages/sessions/changes.ts';
import type { MqttRows } from '../../db/messages/sessions/rows.ts';
import type { BrokerClient } from '../client-types.ts';
import { accountIn, ownerIn } from '../connections/client-ids.ts';
import type { Counters } from '../connections/counters.ts';
import type { Subscription } from '../message-types.ts';
import { isShared } from '../topics.ts';
import { AccountBytes } from './account-bytes.ts';
import { AccountFilters } from './account-filters.ts';
import type { Journal } from './journal.ts';
import { SessionQueue } from './session-queue.ts';
import type { SharedGroups } from './shared-groups.ts';
import type { Unreleased } from './unreleased.ts';

/** Stored sessions of one principal; past it the one that has been away longest is dropped. */
const maxSessions = 20;
/** Bytes that a filter takes beside its text. */
export const bytesOfFilter = 400;
/** Sessions that one sweep looks at. */
const sweepSize = 500;

/** A session that outlives its connections. */
export interface Session {
  /** As the disk knows it; never used again. */
  readonly number: number;
  readonly clientId: string;
  /** Undefined while nobody is connected; then it was left at `left`, in milliseconds since 1970. */
  holder: BrokerClient | undefined;
  left: number;
  /** Milliseconds that it is kept after that; Infinity for ever. */
  expiry: number;
  readonly filters: Map<string, Subscription>;
  /** Whether it is a device's; undefined until somebody has asked. */
  isDevice: boolean | undefined;
  readonly queue: SessionQueue;
  /** Packet ids of QoS 2 messages received and not released yet. */
  readonly received: Set<number>;
  /** The connection that has been sent everything that was queued before it; live messages wait for that. */
  caughtUp: BrokerClient | undefined;
}

export interface SessionServices {
  clock: { now(): number };
  /** By which a session is over. */
  ages: { now(): number };
  counters: Counters;
  /** Milliseconds that a session is kept at most while nobody is connected; 0 is for ever. */
  sessionExpiry: number;
  /** Stored sessions of one account; 0 is no limit. */
  maxSessions: number;
  /** Bytes of the filters of stored sessions of one account; 0 is no limit. */
  maxFilterBytes: number;
}

/** What stored sessions are made of. */
interface SessionParts extends SessionServices {
  journal: Journal;
  unreleased: Unreleased;
  groups: Pick<SharedGroups, 'store' | 'forget'>;
  /** Called before a session ends: what it has for groups goes to others. On disk it stays until that has resolved. */
  ending(session: Session): Promise<void> | undefined;
}

/** The stored sessions with their subscriptions: in memory, and through the journal on disk. */
export class StoredSessions {
  readonly #services: SessionParts;
  readonly #journal: Journal;
  readonly #byClientId = new Map<string, Session>();
  /** Those of each principal, the longest left first. */
  readonly #byOwner = new Map<string, Set<Session>>();
  /** The filters that queue messages. */
  readonly #filters = new AccountFilters();
  readonly #perAccount = new Map<string, number>();
  /** Bytes in queues, by account. */
  readonly #bytes = new AccountBytes();
  readonly #filterBytes = new AccountBytes();
  /** Client ids of CONNECTs that may begin a session, by account. */
  readonly #expected = new Map<string, Set<string>>();
  readonly #unreleased: Unreleased;
  #lastNumber = 0;
  #sweeping: IterableIterator<Session> | undefined;

  constructor(parts: SessionParts) {
    this.#services = parts;
    this.#journal = parts.journal;
    this.#unreleased = parts.unreleased;
  }

  /** Reads what the last process has left; the sessions by their numbers. */
  load(rows: MqttRows): Map<number, Session> {
    const byNumber = new Map<number, Session>();
    for (const { id, clientId, left, expiry } of rows.sessions()) {
      const session = this.#add(id, clientId, expiry);
      session.left = left ?? this.#services.clock.now();
      // Clients that were connected when the process ended have left.
      if (left === null) this.#record(session);
      byNumber.set(id, session);
      this.#lastNumber = Math.max(this.#lastNumber, id);
    }
    for (const [number, filter, options, identifier] of rows.subscriptions()) {
      const session = byNumber.get(number);
      if (session) this.#put(session, fromOptions(filter, options, identifier));
    }
    for (const [number, packetId] of rows.incoming()) {
      const session = byNumber.get(number);
      if (session) this.#unreleased.add(session.received, session.clientId, packetId);
    }
    return byNumber;
  }

  /** Sessions that come from another server, in their order; by the numbers that they had there. */
  arrive({ sessions, subscriptions, incoming }: Pick<MqttState, 'sessions' | 'subscriptions' | 'incoming'>) {
    const byNumber = new Map<number, Session>();
    for (const { id, clientId, left, expiry } of sessions) {
      this.#lastNumber += 1;
      const session = this.#add(this.#lastNumber, clientId, expiry);
      session.left = left ?? this.#services.clock.now();
      this.#record(session);
      byNumber.set(id, session);
    }
    for (const [number, filter, options, identifier] of subscriptions) {
      const session = byNumber.get(number);
      if (session) this.subscribe(session, fromOptions(filter, options, identifier));
    }
    for (const [number, packetId] of incoming) {
      const session = byNumber.get(number);
      if (!session) continue;
      this.#unreleased.add(session.received, session.clientId, packetId);
      this.#journal.record({ kind: 'incoming', session: session.number, packetId });
    }
    return byNumber;
  }

  get(clientId: string): Session | undefined {
    return this.#byClientId.get(clientId);
  }

  /** The session that a client comes back to; one whose time is over has ended, though it has not been cleared away. */
  lasting(clientId: string): Session | undefined {
    const session = this.#byClientId.get(clientId);
    if (!session || !this.#isOver(session)) return session;
    this.end(session);
    return undefined;
  }

  #isOver({ holder, left, expiry }: Session): boolean {
    return !holder && left + expiry <= this.#services.ages.now();
  }

  /** Messages in all queues. */
  get queued(): number {
    let queued = 0;
    for (const { queue } of this.#byClientId.values()) queued += queue.size;
    return queued;
  }

  /** Sessions, and the filters in them that queue messages. */
  get size(): { sessions: number; filters: number } {
    return { sessions: this.#byClientId.size, filters: this.#filters.size };
  }

  /** Stored sessions of an account. */
  sizeOf(accountId: string): number {
    return this.#perAccount.get(accountId) ?? 0;
  }

  /** Bytes in the queues of an account, those of a message for each of its places. */
  bytesOf(accountId: string): number {
    return this.#bytes.of(accountId);
  }

  /** Bytes of the filters of an account. */
  filterBytesOf(accountId: string): number {
    return this.#filterBytes.of(accountId);
  }

  /** Bytes that one more filter of a client takes; 0 for one that its session has, or if nothing of it is stored. */
  bytesOfFilter(clientId: string, filter: string): number {
    const session = this.#byClientId.get(clientId);
    return session && !session.filters.has(filter) ? sizeOf(filter) : 0;
  }

  /** Whether the account of a client has room for so many bytes of filters. */
  hasRoomForFilters(clientId: string, bytes: number): boolean {
    const { maxFilterBytes } = this.#services;
    return bytes === 0 || maxFilterBytes === 0 || this.filterBytesOf(accountIn(clientId)) + bytes <= maxFilterBytes;
  }

  /** The session of an account whose queue has most bytes. It looks at all sessions. */
  largestOf(accountId: string): Session | undefined {
    let largest: Session | undefined;
    for (const session of this.#byClientId.values())
      if (session.queue.bytes > (largest?.queue.bytes ?? 0) && accountIn(session.clientId) === accountId)
        largest = session;
    return largest;
  }

  /** Whether a CONNECT may take up a stored session or begin one; its place is kept until `begin` or `giveUp`. */
  mayBegin(clientId: string): boolean {
    if (this.#byClientId.has(clientId)) return true;
    const accountId = accountIn(clientId);
    const expected = this.#expected.get(accountId) ?? new Set();
    const { maxSessions } = this.#services;
    if (maxSessions > 0 && !expected.has(clientId) && this.sizeOf(accountId) + expected.size >= maxSessions)
      return false;
    this.#expected.set(accountId, expected.add(clientId));
    return true;
  }

  /** A CONNECT begins no session after all. */
  giveUp(clientId: string): void {
    const accountId = accountIn(clientId);
    const expected = this.#expected.get(accountId);
    if (expected?.delete(clientId) && expected.size === 0) this.#expected.delete(accountId);
  }

  /** A connection has taken up a stored session, or begun one. The seconds that it is kept when the client leaves. */
  begin(client: BrokerClient): number {
    this.giveUp(client.id);
    let session = this.#byClientId.get(client.id);
    if (!session) {
      this.#lastNumber += 1;
      session = this.#add(this.#lastNumber, client.id, null);
    }
    session.expiry = this.#expiryOf(client.sessionExpiry);
    // Its predecessor has not left yet.
    if (session.holder) this.#noteUnreceived(session, session.holder);
    session.holder = client;
    session.caughtUp = undefined;
    session.queue.ids.forgetConnection();
    client.live.ids = session.queue.ids;
    this.#record(session);
    this.#dropOldest(session);
    return session.expiry / 1000;
  }

  /**
   * A connection has ended; its session is now the one that was left last, unless another has taken it over. One that does not
   * outlive its connection ends.
   */
  leave(client: BrokerClient): void {
    const session = this.#byClientId.get(client.id);
    if (session?.holder !== client) return;
    session.expiry = this.#expiryOf(client.sessionExpiry);
    if (session.expiry === 0) {
      this.end(session);
      return;
    }
    this.#noteUnreceived(session, client);
    session.holder = undefined;
    session.caughtUp = undefined;
    session.queue.ids.forgetConnection();
    session.left = this.#services.clock.now();
    this.#record(session);
    const siblings = this.#siblingsOf(session);
    siblings.delete(session);
    siblings.add(session);
    this.#dropOldest(session);
  }

  /** Nothing of it stays. */
  end(session: Session): void {
    const { number, clientId, filters, queue, received } = session;
    if (!this.#byClientId.delete(clientId)) return;
    for (const filter of filters.keys()) {
      this.#drop(clientId, filter);
      this.#filterBytes.count(clientId, -sizeOf(filter));
    }
    const ending = this.#services.ending(session);
    this.#countSession(clientId, -1);
    this.#unreleased.clear(received, clientId);
    queue.end();
    const siblings = this.#siblingsOf(session);
    siblings.delete(session);
    if (siblings.size === 0) this.#byOwner.delete(ownerIn(clientId));
    const record = () => {
      const messages = Array.from(queue.values(), ({ id }) => id);
      this.#journal.record({ kind: 'endSession', session: number, messages });
    };
    if (ending) void ending.then(record);
    else record();
  }

  /** Ends some of the sessions that nobody has come back to in time, or that belong to nobody; `look` is called with each of them. */
  sweep(hasOwner: (clientId: string) => boolean, look: (session: Session) => void): void {
    const { counters } = this.#services;
    this.#sweeping ??= this.#byClientId.values();
    for (let looked = 0; looked < sweepSize; looked += 1) {
      const { value: session } = this.#sweeping.next();
      if (!session) {
        this.#sweeping = undefined;
        return;
      }
      look(session);
      if (session.holder) continue;
      const isOver = this.#isOver(session);
      if (isOver) counters.limitHits.session_expiry_hours += 1;
      if (isOver || !hasOwner(session.clientId)) this.end(session);
    }
  }

  // Filters

  subscribe(session: Session, subscription: Subscription): void {
    const { topic: filter } = subscription;
    const options = toOptions(subscription);
    const { identifier = null } = subscription;
    const known = session.filters.get(filter);
    // Who subscribes to the same at each return costs no write: that it is due anew is noted when it leaves.
    const isSame = known && (toOptions(known) | retainedDue) === (options | retainedDue);
    if (isSame && (known.identifier ?? null) === identifier) return;
    this.#put(session, fromOptions(filter, options, identifier));
    this.#journal.record({ kind: 'subscribe', session: session.number, filter, options, identifier });
  }

  /** Whether what is retained for filters has not been received, on disk too. */
  setRetainedDue(session: Session, filters: Iterable<string>, isDue: boolean): void {
    for (const filter of filters) {
      const known = session.filters.get(filter);
      if (!known || known.qos === 0 || (known.isRetainedDue ?? false) === isDue) continue;
      const subscription = { ...known, isRetainedDue: isDue };
      session.filters.set(filter, subscription);
      const { identifier = null } = subscription;
      const options = toOptions(subscription);
      this.#journal.record({ kind: 'subscribe', session: session.number, filter, options, identifier });
    }
  }

  #noteUnreceived(session: Session, { live }: BrokerClient): void {
    if (live.newFilters) this.setRetainedDue(session, live.newFilters.topics, true);
  }

  unsubscribe({ number, clientId, filters }: Session, filter: string): void {
    this.#drop(clientId, filter);
    if (!filters.delete(filter)) return;
    this.#filterBytes.count(clientId, -sizeOf(filter));
    this.#journal.record({ kind: 'unsubscribe', session: number, filter });
  }

  /** Client ids of the sessions of an account in whose queues a message on `topic` belongs. */
  holdersOf(accountId: string, topic: string): readonly string[] {
    return this.#filters.match(accountId, topic);
  }

  /** The sessions of a principal, by its ownerId. */
  of(owner: string): Session[] {
    return [...(this.#byOwner.get(owner) ?? [])];
  }

  /** All of them. */
  all(): IterableIterator<Session> {
    return this.#byClientId.values();
  }

  #put({ clientId, filters }: Session, subscription: Subscription): void {
    const { topic: filter, qos } = subscription;
    if (!filters.has(filter)) this.#filterBytes.count(clientId, sizeOf(filter));
    filters.set(filter, subscription);
    if (isShared(filter)) this.#services.groups.store(clientId, subscription);
    else if (qos > 0) this.#filters.add(accountIn(clientId), filter, clientId);
    else this.#filters.delete(accountIn(clientId), filter, clientId);
  }

  #drop(clientId: string, filter: string): void {
    if (isShared(filter)) this.#services.groups.forget(clientId, filter);
    else this.#filters.delete(accountIn(clientId), filter, clientId);
  }

  #add(number: number, clientId: string, expirySeconds: number | null): Session {
    const session: Session = {
      expiry: this.#expiryOf(expirySeconds ?? undefined),
      number,
      clientId,
      holder: undefined,
      left: 0,
      filters: new Map(),
      isDevice: undefined,
      queue: new SessionQueue((change) => this.#bytes.count(clientId, change)),
      received: new Set(),
      caughtUp: undefined,
    };
    this.#byClientId.set(clientId, session);
    this.#countSession(clientId, 1);
    this.#siblingsOf(session).add(session);
    return session;
  }

  #countSession(clientId: string, change: number): void {
    const accountId = accountIn(clientId);
    const count = this.sizeOf(accountId) + change;
    if (count > 0) this.#perAccount.set(accountId, count);
    else this.#perAccount.delete(accountId);
  }

  #siblingsOf({ clientId }: Session): Set<Session> {
    const owner = ownerIn(clientId);
    let siblings = this.#byOwner.get(owner);
    if (!siblings) {
      siblings = new Set();
      this.#byOwner.set(owner, siblings);
    }
    return siblings;
  }

  /** Milliseconds; no longer than the server keeps any. `seconds` is undefined for a client that says nothing of it. */
  #expiryOf(seconds = Number.POSITIVE_INFINITY): number {
    return Math.min(seconds * 1000, this.#services.sessionExpiry || Number.POSITIVE_INFINITY);
  }

  #record({ number, clientId, holder, left, expiry }: Session): void {
    const isServers = expiry === this.#expiryOf();
    const seconds = isServers ? null : Math.ceil(expiry / 1000);
    this.#journal.record({ kind: 'session', session: number, clientId, left: holder ? null : left, expiry: seconds });
  }

  #dropOldest(than: Session): void {
    const siblings = this.#siblingsOf(than);
    if (siblings.size <= maxSessions) return;
    for (const session of siblings) {
      if (session.holder) continue;
      this.end(session);
      return;
    }
  }
}

/** What a filter of a stored session takes in bytes. */
function sizeOf(filter: string): number {
  return Buffer.byteLength(filter) + bytesOfFilter;
}

const retainedDue = 128;

/** QoS, retain handling, retain as published, no local, and whether what is retained is due, in one number; a bridge says the middle three. */
function toOptions({ qos, rh, rap, nl, isRetainedDue }: Subscription): number {
  const said = rh === undefined && rap === undefined && nl === undefined ? 0 : 4;
  return qos + said + (rh ?? 0) * 8 + (rap ? 32 : 0) + (nl ? 64 : 0) + (isRetainedDue ? retainedDue : 0);
}

function fromOptions(topic: string, options: number, identifier: number | null): Subscription {
  const qos = (options & 3) as 0 | 1 | 2;
  const isDue = (options & retainedDue) !== 0;
  const own = { ...(identifier !== null && { identifier }), ...(isDue && { isRetainedDue: true }) };
  if (!(options & 4)) return { topic, qos, ...own };
  const said = { rh: (options >> 3) & 3, rap: (options & 32) !== 0, nl: (options & 64) !== 0 };
  return { topic, qos, ...said, ...own } as Subscription;
}
