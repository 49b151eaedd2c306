import { setImmediate as nextTurn } from 'node:timers/promises';
import type { MqttChange, MqttState, StoredMessage } from '../../db/messages/sessions/changes.ts';
import type { MqttRows } from '../../db/messages/sessions/rows.ts';
import type { BrokerClient } from '../client-types.ts';
import { accountIn } from '../connections/client-ids.ts';
import { keptQos } from '../connections/live-clients.ts';
import {
  type Carried,
  carriedOf,
  forOneClient,
  type GroupName,
  type Incoming,
  type Outgoing,
  sizeOf,
  storedProperties,
} from '../message-types.ts';
import type { Journal } from './journal.ts';
import { dequeue, type QueueBoundServices, QueueBounds } from './queue-bounds.ts';
import type { Queued } from './queued.ts';
import { ownBytes } from './retained.ts';
import type { Session } from './stored-sessions.ts';

/** Queued messages that are looked at in one go, and those of them whose topic is read from the disk. */
const stepSize = 5000;
const readsPerStep = 300;
/** Messages of groups that are given to others in one go. */
const passedPerStep = 100;
/** Queued messages whose QoS is looked at ahead when a session comes back. */
const pageSize = 64;
/** Bytes of messages that nobody was promised and that wait for the disk; past it they are not queued. */
const maxUnwritten = 64 * 1024 * 1024;

/** What a session has kept for its client: a message, with its packet id if it had been sent, or the PUBREL that followed. */
export type Kept = Outgoing | { cmd: 'pubrel'; messageId: number };

/** Gives a message of a group to another member; false when there is none. */
type PassOn = (group: GroupName, packet: Outgoing) => boolean;

/** Of which devices a session is told no more, and which of their messages it still is. */
interface Refusing {
  device(id: string): boolean;
  mayHear(topic: string, counter: number): boolean;
  passOn: PassOn;
}

/** A message that was written for these sessions before its publisher got its acknowledgement. */
interface Promised {
  readonly id: number;
  readonly sessions: readonly Session[];
}

export interface QueueServices extends QueueBoundServices {
  ages: { now(): number };
  /** The device that a topic names, always the same string for one device. */
  deviceOf(topic: string): string | undefined;
  rows: MqttRows;
}

/** The messages of stored sessions: places in queues in memory, topics and payloads on disk. */
export class Queues {
  readonly #services: QueueServices;
  readonly #journal: Journal;
  #lastMessage = 0;
  /** By payload: packets are copied on their way, and their payloads are not. */
  readonly #kept = new WeakMap<Buffer, Promised>();
  /** Messages on their way to the disk, and their bytes. */
  readonly #unwritten = new Map<number, StoredMessage>();
  #unwrittenBytes = 0;
  readonly #bounds: QueueBounds;

  constructor(services: QueueServices, journal: Journal) {
    this.#services = services;
    this.#journal = journal;
    this.#bounds = new QueueBounds(services, journal);
  }

  /** Reads the places that the last process has left; the highest of their counters. */
  load(sessions: ReadonlyMap<number, Session>): number {
    for (const [id, number, packetId, released, size, expires] of this.#services.rows.queue()) {
      this.#lastMessage = id;
      const of = { id, counter: id, size, expires: expires ?? undefined };
      sessions.get(number)?.queue.add(ofDisk(of, packetId, released));
    }
    for (const session of sessions.values()) this.#bounds.shorten(session);
    return this.#lastMessage;
  }

  /** As load, of sessions that come from another server. Their messages are numbered after `counter`; the highest number. */
  arrive(
    { messages, queue }: Pick<MqttState, 'messages' | 'queue'>,
    sessions: ReadonlyMap<number, Session>,
    counter: number,
  ) {
    const ids = new Map<number, Pick<Queued, 'id' | 'counter' | 'size' | 'expires'>>();
    let last = counter;
    const accounts = new Map(queue.map(([id, number]) => [id, accountIn(sessions.get(number)?.clientId ?? '')]));
    for (const message of messages) {
      const stored = this.#newMessage({
        ...{
          topic: message.topic,
          payload: message.payload,
          qos: message.qos as 0 | 1 | 2,
          retain: message.retain === 1,
        },
        ...carriedOf(message),
      });
      last += 1;
      const expires = stored.expires ?? undefined;
      ids.set(message.id, { id: stored.id, counter: last, size: sizeOf(stored), expires });
      const accountId = accounts.get(message.id) ?? '';
      this.#journal.record({ kind: 'message', accountId, message: stored, sessions: [] });
    }
    for (const [old, number, packetId, released] of queue) {
      const [session, message] = [sessions.get(number), ids.get(old)];
      if (!session || !message) continue;
      const queued = ofDisk(message, packetId, released);
      session.queue.add(queued);
      this.#journal.record(sentChange(session, queued));
    }
    return last;
  }

  /** The write that makes a message durable for these sessions, before `enqueue` gets its payload. */
  keep(sessions: readonly Session[], packet: Incoming): MqttChange {
    const message = this.#newMessage(packet);
    this.#kept.set(packet.payload, { id: message.id, sessions });
    return { kind: 'message', accountId: accountOf(sessions), message, sessions: sessions.map(({ number }) => number) };
  }

  enqueue(sessions: readonly Session[], packet: Outgoing): void {
    const { payload } = packet;
    const kept = this.#kept.get(payload);
    if (kept) this.#kept.delete(payload);
    const id = kept ? this.#placed(kept, sessions) : this.#written(sessions, packet);
    this.#add(sessions, id, packet);
  }

  /** A message for one session. What was written for a session of this client that is not the same one is taken back. */
  enqueueFor({ clientId, session }: { clientId: string; session: Session | undefined }, packet: Outgoing): void {
    const { payload } = packet;
    const kept = this.#kept.get(payload);
    const place = kept?.sessions.find((one) => one.clientId === clientId);
    if (kept && place && place !== session) this.#journal.recordUnqueue(place.number, kept.id);
    if (!session) return;
    this.#add([session], kept && place === session ? kept.id : this.#written([session], packet), packet);
  }

  #add(sessions: readonly Session[], id: number | undefined, packet: Outgoing): void {
    if (id === undefined) return;
    const { brokerCounter: counter } = packet;
    const device = this.#services.deviceOf(packet.topic);
    const size = sizeOf(packet);
    const { messageExpiry: expires, group } = packet;
    // For one client it has the QoS of that client's filter already.
    const qos = packet.brokerId === forOneClient && packet.qos > 0 ? (packet.qos as 1 | 2) : undefined;
    for (const session of sessions) {
      session.queue.add({ id, counter, packetId: undefined, released: false, qos, size, expires, device, group });
      this.#bounds.shorten(session);
      this.#bounds.shrink(session);
    }
  }

  /** Adds sessions that subscribed since the write, and removes sessions that ended. */
  #placed({ id, sessions: kept }: Promised, sessions: readonly Session[]): number {
    const place = { kind: 'queue', id, packetId: null, released: 0 } as const;
    if (sessions.length === kept.length && sessions.every((session, at) => session === kept[at])) return id;
    const [now, then] = [new Set(sessions), new Set(kept)];
    for (const session of now) if (!then.has(session)) this.#journal.record({ ...place, session: session.number });
    for (const session of then) if (!now.has(session)) this.#journal.recordUnqueue(session.number, id);
    return id;
  }

  /** The id under which a message without a promise is written; undefined when it is not. */
  #written(sessions: readonly Session[], packet: Outgoing): number | undefined {
    if (sessions.length === 0) return undefined;
    const bytes = packet.payload.length + (packet.properties?.length ?? 0);
    if (this.#unwrittenBytes + bytes > maxUnwritten) {
      this.#services.counters.dropped.queue += sessions.length;
      return undefined;
    }
    const message = this.#newMessage(packet);
    const { id } = message;
    this.#unwritten.set(id, message);
    this.#unwrittenBytes += bytes;
    const accountId = accountOf(sessions);
    this.#journal.record({ kind: 'message', accountId, message, sessions: sessions.map(({ number }) => number) });
    this.#journal.afterwards(() => {
      this.#unwritten.delete(id);
      this.#unwrittenBytes -= bytes;
    });
    return id;
  }

  #newMessage(packet: Pick<Outgoing, 'topic' | 'qos' | 'payload' | 'retain'> & Carried): StoredMessage {
    this.#lastMessage += 1;
    const { topic, qos, payload } = packet;
    const retain = packet.retain ? 1 : 0;
    return { id: this.#lastMessage, topic, qos, payload: ownBytes(payload), retain, ...storedProperties(packet) };
  }

  // Sending

  /**
   * A queued message is sent under a packet id. For QoS 2 that waits for the disk: sent again after a crash it must carry the
   * same packet id, or it would be a second message. Undefined when there is nothing to wait for.
   */
  noteSent(session: Session, packet: Outgoing): Promise<void> | undefined {
    const { messageId } = packet;
    const queued = session.queue.withCounter(packet.brokerCounter);
    if (messageId === undefined || !queued || queued.packetId === messageId) return undefined;
    session.queue.ids.keep(messageId, queued);
    return packet.qos === 2 ? this.#recordSent(session, queued) : undefined;
  }

  /** PUBREL takes the place of a message of QoS 2; undefined when it has already. */
  noteReceived(session: Session, packetId: number): Promise<void> | undefined {
    const sent = session.queue.ids.kept(packetId);
    if (!sent || sent.released) return undefined;
    sent.released = true;
    return this.#recordSent(session, sent);
  }

  #recordSent(session: Session, queued: Queued): Promise<void> {
    this.#journal.record(sentChange(session, queued));
    return this.#journal.durable();
  }

  /** Removes the message sent under a packet id from the queue. Returns whether there was one. */
  acknowledge(session: Session, packetId: number): void {
    const queued = session.queue.ids.kept(packetId);
    if (queued) dequeue(this.#journal, session, queued);
  }

  forget(session: Session, counter: number): void {
    const queued = session.queue.withCounter(counter);
    if (queued) dequeue(this.#journal, session, queued);
  }

  /**
   * Takes the messages of some devices that a session may not be told of any more out of its queue, in steps in which
   * others get their turn; those of groups go to others. A PUBREL stays: its message has been delivered.
   */
  async dropRefused(session: Session, { device, mayHear, passOn }: Refusing): Promise<void> {
    if (session.queue.size === 0) return;
    await this.#journal.durable();
    let looked = 0;
    let read = 0;
    for (const queued of session.queue.values()) {
      looked += 1;
      if (looked % stepSize === 0 || read >= readsPerStep) {
        read = 0;
        await nextTurn();
      }
      if (queued.released || (queued.device !== undefined && !device(queued.device))) continue;
      read += 1;
      const topic = this.#unwritten.get(queued.id)?.topic ?? this.#services.rows.topicOf(queued.id);
      if (topic === undefined) continue;
      queued.device ??= this.#services.deviceOf(topic);
      if (mayHear(topic, queued.counter)) continue;
      this.#passOn(session, queued, passOn);
      dequeue(this.#journal, session, queued);
    }
  }

  /**
   * What is left for a session that has come back, what is added meanwhile included, so that nothing overtakes it; what
   * had been sent before is marked so [MQTT-3.3.1-1]. Take the next when the last one has been sent.
   */
  async *left(session: Session, client: BrokerClient): AsyncIterableIterator<Kept> {
    const { queue } = session;
    let queued = queue.values();
    let last = 0;
    while (!client.closed) {
      const page: Queued[] = [];
      while (page.length < pageSize && last < queue.newest) {
        const { value } = queued.next();
        // The iterator had come to an end before; the rest has been added since, or has left.
        if (!value) {
          queued = queue.values();
          if (![...queue.values()].some(({ counter }) => counter > last)) break;
          continue;
        }
        if (value.counter <= last) continue;
        last = value.counter;
        // It is under way on this connection already.
        if (value.packetId !== undefined && queue.ids.awaited(value.packetId)) continue;
        page.push(value);
      }
      if (page.length === 0) {
        session.caughtUp = client;
        return;
      }
      const wereSent = new Set(page.filter(({ packetId }) => packetId !== undefined));
      await this.#number(session, client, page);
      for (const next of page) {
        const packet = queue.withCounter(next.counter) && this.#packetOf(session, next, wereSent.has(next));
        if (packet) yield packet;
      }
    }
  }

  /** Whether what was read of a queue is still to be sent: meanwhile the client may have answered it, or it was dropped. */
  isDue({ queue }: Session, kept: Kept): boolean {
    if (kept.cmd === 'pubrel') return queue.ids.kept(kept.messageId)?.released === true;
    const queued = queue.withCounter(kept.brokerCounter);
    return queued !== undefined && !queued.released;
  }

  /** Gives the QoS 2 messages of a page their packet ids, on disk before any is sent. */
  async #number(session: Session, client: BrokerClient, page: Queued[]): Promise<void> {
    const { ids } = session.queue;
    let isNew = false;
    for (const queued of page) {
      if (queued.packetId !== undefined || ids.areShort || this.#qosOf(queued, client) !== 2) continue;
      ids.keep(ids.take(), queued);
      this.#journal.record(sentChange(session, queued));
      isNew = true;
    }
    if (isNew) await this.#journal.durable();
  }

  #packetOf(session: Session, queued: Queued, wasSent: boolean): Kept | undefined {
    const { counter: brokerCounter, packetId: messageId, released, group } = queued;
    if (released) return { cmd: 'pubrel', messageId: messageId as number };
    // One that has been sent before is sent again: its receiver may have it [MQTT-4.4.0-1].
    const message = !wasSent && this.#hasExpired(queued) ? undefined : this.#read(queued.id);
    if (!message) {
      if (this.#hasExpired(queued)) this.#services.counters.expired += 1;
      dequeue(this.#journal, session, queued);
      return undefined;
    }
    const { topic, qos, payload, retain } = message;
    const about = { topic, payload: Buffer.from(payload), retain: retain === 1, ...carriedOf(message) };
    const kept = { cmd: 'publish', ...about, qos: queued.qos ?? qos, brokerCounter, messageId, dup: wasSent };
    return { ...kept, ...(group && { group }) } as Kept;
  }

  /**
   * Hands what a session has for groups, and has not received, to `passOn`; what that takes leaves the queue. Undefined when that
   * is done; for many it is done in steps in which others get their turn, until it `isOver`.
   */
  passOnShared(session: Session, passOn: PassOn, isOver: () => boolean): Promise<void> | undefined {
    const queue = session.queue.values();
    const isDone = () => {
      for (let passed = 0; passed < passedPerStep; ) {
        const { value: queued } = queue.next();
        if (!queued) return true;
        if (!queued.group || queued.released) continue;
        if (this.#passOn(session, queued, passOn)) dequeue(this.#journal, session, queued);
        passed += 1;
      }
      return false;
    };
    const goOn = async () => {
      // What has been passed on to stored sessions is on disk before there is more.
      do {
        await this.#journal.durable();
        await nextTurn();
      } while (!isOver() && !isDone());
    };
    return isDone() ? undefined : goOn();
  }

  #passOn(session: Session, queued: Queued, passOn: PassOn): boolean {
    const packet = queued.group && this.#packetOf(session, queued, false);
    return packet?.cmd === 'publish' && passOn(queued.group as GroupName, { ...packet, messageId: undefined });
  }

  /** Takes what has expired out of a queue; a PUBREL stays. */
  dropExpired(session: Session): void {
    if (session.queue.firstExpiry > this.#services.ages.now()) return;
    session.queue.forgetFirstExpiry();
    for (const queued of session.queue.values()) {
      if (queued.packetId !== undefined || !this.#hasExpired(queued)) {
        session.queue.noteExpiry(queued);
        continue;
      }
      dequeue(this.#journal, session, queued);
      this.#services.counters.expired += 1;
    }
  }

  #hasExpired({ expires }: Queued): boolean {
    return expires !== undefined && expires <= this.#services.ages.now();
  }

  #read(id: number): StoredMessage | undefined {
    return this.#unwritten.get(id) ?? this.#services.rows.message(id);
  }

  /** With which a message goes to this client; of QoS 1 it may be undecided. */
  #qosOf(queued: Queued, { live }: BrokerClient): number | undefined {
    const { id } = queued;
    const { rows } = this.#services;
    if (queued.qos === undefined && (this.#unwritten.get(id)?.qos ?? rows.qosOf(id)) === 2) {
      const topic = this.#unwritten.get(id)?.topic ?? rows.topicOf(id);
      if (topic !== undefined) queued.qos = keptQos(live, { topic, qos: 2 });
    }
    return queued.qos;
  }
}

/** A place that comes from the disk: what has been sent from there is of QoS 2. */
function ofDisk(
  of: Pick<Queued, 'id' | 'counter' | 'size' | 'expires'>,
  packetId: number | null,
  released: number,
): Queued {
  const sent = {
    packetId: packetId ?? undefined,
    released: released === 1,
    qos: packetId === null ? undefined : 2,
  } as const;
  return { ...of, ...sent, device: undefined, group: undefined };
}

/** All sessions that get a message are of one account. */
function accountOf([session]: readonly Session[]): string {
  return session ? accountIn(session.clientId) : '';
}

function sentChange({ number }: Session, { id, packetId, released }: Queued): MqttChange {
  return { kind: 'queue', session: number, id, packetId: packetId ?? null, released: released ? 1 : 0 };
}
