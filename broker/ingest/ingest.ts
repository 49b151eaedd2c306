import type { Stored, StoreEnd } from '../../db/messages/threads/protocol.ts';
import { Scheduler, unbounded } from '../../src/core/scheduler/scheduler.ts';
import type { BrokerServices } from '../../src/ports/broker-ports.ts';
import type { Route } from '../authorize.ts';
import type { Counters } from '../connections/counters.ts';
import type { StreamPositions } from '../http/stream-positions.ts';
import { type Incoming, isForNow, storedProperties } from '../message-types.ts';
import type { Turns } from '../packets/turns.ts';
import { reason } from '../reasons.ts';
import type { SessionStore } from '../sessions/persistence.ts';
import { Admission } from './admission.ts';
import { LongMessages } from './long-messages.ts';
import { changesRegistry, handlerOf, isStoredChannel, kindOf, laneOf, type Message, seriesOf } from './message.ts';
import { after, type Outcome, settle } from './outcomes.ts';
import type { Rejections } from './rejections.ts';
import type { Reports } from './reports.ts';
import { ServiceHandlers } from './service-handlers.ts';

type Persistence = Pick<SessionStore, 'keep' | 'lacksRoomFor'>;

/** Bytes of a message that take as long to store as a point. */
const bytesOfPoint = 256;
/** A row of the outbox, with its places in indexes, takes as long as so many points. */
const pointsOfOutboxRow = 4;
/** Bytes above which a payload waits for its turn before its points are read: they take many times its memory. */
const largePayload = 8192;
/** Large payloads that have been read, or are, and are not stored: of all, and of one account. */
const largeAtOnce = { ofAll: 8, ofAccount: 4 };

/** The services of the ingestion. */
export interface IngestParts {
  services: BrokerServices;
  rejections: Rejections;
  persistence: Persistence;
  marks: StreamPositions;
  counters: Pick<Counters, 'messages' | 'limitHits'>;
  reports: Reports;
}

/** Stores accepted messages: in series, for stored sessions, for bridges. */
export class Ingest {
  readonly #services: BrokerServices;
  readonly #persistence: Persistence;
  readonly #rejections: Rejections;
  readonly #handlers: ServiceHandlers;
  readonly #marks: StreamPositions;
  readonly #long: LongMessages;
  readonly #counters: IngestParts['counters'];
  readonly #admission = new Admission();
  readonly #large = new Scheduler({
    atOnce: largeAtOnce.ofAll,
    perAccount: largeAtOnce.ofAccount,
    quantum: largePayload,
    // Connections have limits of their own.
    maxWaiting: unbounded,
  });
  /** By the order that they keep: the last message that is being read by a thread, or waits for one that is. */
  readonly #reading = new WeakMap<Turns, Promise<unknown>>();
  #pending = 0;
  #whenIdle: (() => void) | undefined;

  constructor({ services, rejections, persistence, marks, counters, reports }: IngestParts) {
    this.#services = services;
    this.#persistence = persistence;
    this.#long = new LongMessages(services);
    this.#rejections = rejections;
    this.#handlers = new ServiceHandlers({
      ...{ services, reports, rejections },
      keeping: {
        keep: (message) => this.#keep(message),
        keepForSessions: (message) => this.#keepForSessions(message),
        keepWith: (message, added, append) => this.#keepWith(message, added, append),
      },
    });
    this.#marks = marks;
    this.#counters = counters;
  }

  /** Messages that wait for the store. */
  get pending(): number {
    return this.#pending;
  }

  /**
   * Takes a message for which nothing is to be stored, which is of QoS 0 then, and counts it; false for any other. Without
   * room it is not retained, and `_rejected` says so.
   */
  takeWithoutStore(message: Message): boolean {
    const { packet, route } = message;
    if (packet.qos > 0) return false;
    if (this.#noRoomFor(packet, route) || isStoredChannel(route) || this.#services.bridges.takes(route)) return false;
    this.#limitRetained(message);
    this.#count(message, undefined);
    return true;
  }

  /** Resolves when nothing that was handed to the store is waiting for it. */
  idle(): Promise<void> {
    if (this.#pending === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenIdle = resolve;
    });
  }

  /**
   * Reads a message and stores it when it is its turn. Never throws. `next` is called once: when the message is on disk, or with
   * the error for which it is not. A message which promises nothing waits only for its place before the store.
   */
  store(message: Message, next: (failure?: Error) => void): void {
    this.#pending += 1;
    message.next = next;
    const { origin } = message;
    const order = origin.turns ?? origin.live?.turns;
    const before = order && this.#reading.get(order);
    const read = settle(
      () => this.#read(message),
      (failure) => failure,
    );
    if (!before && !(read instanceof Promise)) {
      this.#enter(message, read);
      return;
    }
    const ready = Promise.all([read, before]);
    if (order) this.#reading.set(order, ready);
    void ready.then(([failure]) => {
      if (order && this.#reading.get(order) === ready) this.#reading.delete(order);
      this.#enter(message, failure);
    });
  }

  /** The points of a message for a channel that stores them, and what storing it costs. */
  #read(message: Message): Outcome {
    const { packet, route } = message;
    if (packet.qos === 0) message.full = this.#noRoomFor(packet, route);
    // It is delivered all the same.
    if (message.full) packet.retain = false;
    const { channel } = route;
    // An empty retained one clears the retained one only.
    const isClearing = packet.retain && packet.payload.length === 0;
    if (channel.service || !isStoredChannel(route) || isClearing) return this.#noteRead(message, undefined);
    const now = this.#services.clock.now();
    const lane = laneOf(message);
    const read = () => this.#services.contents.readPoints(lane, packet.payload, now, formOf(channel.payload, packet));
    if (packet.payload.length > largePayload)
      return this.#large.enter(lane, packet.payload.length).then(async (leave) => {
        message.leaveReading = leave;
        return this.#noteRead(message, await this.#long.ready(lane, route, await read()));
      });
    const points = after(read(), (some) => this.#long.ready(lane, route, some));
    return after(points, (some) => this.#noteRead(message, some));
  }

  #noteRead(message: Message, read: Message['read']): undefined {
    const { packet, route, origin } = message;
    message.read = read;
    const points = read && 'kept' in read ? read : undefined;
    if (points && points.count > 1) origin.live?.client.charge(points.count - 1);
    const rows = this.#services.bridges.outboxRowsOf(route);
    message.cost =
      Math.max(1, points?.cost ?? 0) + rows * pointsOfOutboxRow + ((1 + rows) * packet.payload.length) / bytesOfPoint;
  }

  /** Into the store, at once when it keeps up. */
  #enter(message: Message, failure: Error | undefined): void {
    const { cost, route } = message;
    if (failure) this.#end(message, failure);
    // What waits for the registry takes no room of the store meanwhile.
    else if (changesRegistry(route)) this.#write(message);
    else {
      message.held = cost;
      if (this.#admission.enter(cost)) this.#write(message);
      else this.#admission.wait(laneOf(message), cost, () => this.#write(message));
    }
  }

  #write(message: Message): void {
    settle(
      () => this.#giveOut(message),
      (fault) => (fault ? this.#end(message, fault) : this.#written(message)),
    );
    if (!message.isPromised) message.proceed();
  }

  /** Gives out the writes of a message, each with `#begin`. Its outcome is what has failed before them, or a handler's promise. */
  #giveOut(message: Message): Outcome {
    const { route } = message;
    // Before anything is stored: what is not acknowledged comes again, and would be stored twice.
    const refusal = this.#services.bridges.refusal(route);
    if (refusal) return refusal;
    const handler = handlerOf(route);
    if (handler) return this.#handlers.handle(handler, message);
    return isStoredChannel(route) ? this.#storePoints(message) : this.#keep(message);
  }

  /** Another write. What it returns is called by the store itself, and without a pause: readers' marks and the order rest on it. */
  #begin(message: Message): (failure?: Error) => void {
    message.writes += 1;
    return (failure) => this.#written(message, failure);
  }

  /** A write of a message is over, or the stage that gives them out. */
  #written(message: Message, failure?: Error): void {
    message.failure ??= failure;
    message.writes -= 1;
    if (message.writes === 0) this.#end(message, message.failure);
  }

  /** A message is on disk, or not. */
  #end(message: Message, failure: Error | undefined): void {
    this.#count(message, failure);
    const explained = failure && this.#rejections.failed(message, failure);
    void after(message.isPromised ? explained : undefined, (refusal) => message.proceed(refusal));
    message.leaveReading?.();
    this.#pending -= 1;
    if (this.#pending === 0) this.#whenIdle?.();
    this.#admission.leave(message.held);
  }

  #count({ route, reason }: Message, error: Error | undefined): void {
    const counts = this.#counters.messages[kindOf(route)];
    if (error) counts.failed += 1;
    else if (reason) counts.rejected += 1;
    else if (isStoredChannel(route)) counts.stored += 1;
    else counts.delivered += 1;
  }

  /** Writes for stored sessions and bridges. */
  #keep(message: Message): Outcome {
    const { packet, route } = message;
    const { bridges } = this.#services;
    if (isForNow(packet) || !bridges.takes(route)) return this.#keepForSessions(message);
    message.isStored = true;
    const { qos, payload } = packet;
    bridges.takeMessage({ ...route, qos, payload, ...storedProperties(packet) }, this.#begin(message));
    return this.#keepForSessions(message);
  }

  /** A QoS 0 message promises nothing, but takes the room of a retained one. */
  #keepForSessions(message: Message): Outcome {
    const { packet, origin } = message;
    this.#limitRetained(message);
    if (packet.retain && !isForNow(packet)) message.isStored = true;
    if (packet.qos === 0) return message.full;
    const written = this.#begin(message);
    this.#persistence.keep(origin.live?.client, packet, written, (sessions) => this.#charge(message, sessions));
    return undefined;
  }

  /** A place in the queue of a stored session takes about as long to write as a point. */
  #charge(message: Message, sessions: number): void {
    message.isStored = true;
    message.sessions += sessions;
    message.held += sessions;
    this.#admission.charge(laneOf(message), sessions);
  }

  #limitRetained(message: Message): void {
    const { packet } = message;
    const lacks = packet.retain ? this.#persistence.lacksRoomFor(packet) : undefined;
    if (!lacks) return;
    packet.retain = false;
    this.#counters.limitHits[lacks === 'count' ? 'max_retained_per_account' : 'max_retained_bytes_per_account'] += 1;
    this.#rejections.notRetained(message, lacks === 'count' ? 'mqttRetained' : 'mqttRetainedBytes');
  }

  /** Why a message cannot be retained; an empty one makes room. */
  #noRoomFor({ retain, payload }: Incoming, { accountId }: Route): Error | undefined {
    return retain && payload.length > 0 ? this.#services.messages.fullFor(accountId) : undefined;
  }

  #storePoints(message: Message): Outcome {
    const { route, read } = message;
    // An empty retained message clears the retained one and says nothing else.
    if (!read) return this.#keep(message);
    if ('reason' in read) {
      this.#rejections.explain(message, reason('notReadable', [{ message: read.reason }]));
      return this.#keep(message);
    }
    const { kept, why, isPrepared } = read;
    if (why !== undefined)
      this.#rejections.explain(message, reason(kept.length > 0 ? 'storedInPart' : 'notReadable', [{ message: why }]));
    if (kept.length === 0) return this.#keep(message);
    const added = { points: kept.length, logs: 0 };
    return this.#keepWith(message, added, (done) =>
      this.#services.messages.append(seriesOf(route), kept, done, isPrepared),
    );
  }

  /** A place for the message store, and one for the sessions right after it: both go into one transaction. */
  #keepWith(message: Message, added: Readonly<StoreEnd>, append: (done: Stored) => void): Outcome {
    const written = this.#begin(message);
    append((error, end) => settle(() => error ?? this.#noteStored(message, added, end), written));
    return this.#keep(message);
  }

  #noteStored(message: Message, added: Readonly<StoreEnd>, end: Readonly<StoreEnd> | undefined): undefined {
    message.isStored = true;
    message.points = added.points;
    // Before the next message of the transaction: readers go on behind those that have been handed on.
    if (end) this.#marks.stored(message.route.accountId, message.packet.payload, end, added);
  }
}

/** Media types of the forms of points. */
const forms: Record<string, string> = {
  'application/json': 'json',
  'text/csv': 'csv',
  'application/senml+json': 'senml',
  'application/octet-stream': 'float32',
};

/** How a payload is read: as its channel fixes it, else as its Content Type says, without parameters and case. */
function formOf(fixed: string, { clientProperties }: Incoming): string {
  if (fixed !== 'auto' || clientProperties?.contentType === undefined) return fixed;
  const type = clientProperties.contentType.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  return (Object.hasOwn(forms, type) && forms[type]) || fixed;
}
