import type { StoreEnd } from '../../db/messages/threads/protocol.ts';
import { Scheduler, unbounded } from '../../src/core/scheduler/scheduler.ts';
import type { BrokerServices, PointsRead } from '../../src/ports/broker-ports.ts';
import type { Route } from '../authorize.ts';
import type { Counters } from '../connections/counters.ts';
import { faultOf } from '../connections/safe-error.ts';
import type { StreamPositions } from '../http/stream-positions.ts';
import { type Incoming, isForNow, storedProperties } from '../message-types.ts';
import { Turns } from '../packets/turns.ts';
import { reason } from '../reasons.ts';
import type { SessionStore } from '../sessions/persistence.ts';
import { Admission } from './admission.ts';
import { afterBoth, once, type Settled } from './callbacks.ts';
import { LongMessages } from './long-messages.ts';
import { changesRegistry, handlerOf, isStoredChannel, kindOf, laneOf, type Message, seriesOf } from './message.ts';
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
  /** By the order that they keep: messages that wait for an earlier one, which a thread is reading. */
  readonly #reading = new WeakMap<Turns, Turns>();
  #pending = 0;
  #whenIdle: (() => void) | undefined;

  constructor({ services, rejections, persistence, marks, counters, reports }: IngestParts) {
    this.#services = services;
    this.#persistence = persistence;
    this.#long = new LongMessages(services);
    this.#rejections = rejections;
    this.#handlers = new ServiceHandlers({
      ...{ services, marks, reports, rejections },
      keeping: {
        keep: (message, done) => this.#keep(message, done),
        keepForSessions: (message, done) => this.#keepForSessions(message, done),
        storeAndKeep: (message, done, store) => this.#storeAndKeep(message, done, store),
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
   * Takes a message of QoS 0 for which nothing is to be stored; false when there is. Without room a
   * message is not retained, and `_rejected` says so.
   */
  passBy(message: Message): boolean {
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
   * Reads a message and stores it when it is its turn. `settled` is called once, whatever throws: an acknowledgement and the
   * end of the process wait for it. False when it has to wait; `begun` is called then when it does no longer.
   */
  store(message: Message, settled: Settled, begun = () => {}): boolean {
    this.#pending += 1;
    const { packet, route, origin } = message;
    const order = origin.turns ?? origin.live?.turns;
    if (packet.qos === 0) message.full = this.#noRoomFor(packet, route);
    // It is delivered all the same.
    if (message.full) packet.retain = false;
    try {
      const read = this.#read(message);
      const line = order && this.#reading.get(order);
      if (!(read instanceof Promise)) {
        if (read) message.read = read;
        if (!line || line.idle) return this.#enter(message, settled, begun);
        line.complete(line.reserve(() => this.#enter(message, settled, begun)));
        return false;
      }
      const own = line ?? new Turns();
      if (order && !line) this.#reading.set(order, own);
      let failure: Error | undefined;
      const turn = own.reserve(() =>
        failure ? this.#settle(message, failure, settled, begun) : this.#enter(message, settled, begun),
      );
      read.then(
        (points) => {
          message.read = points;
          own.complete(turn);
        },
        (error: Error) => {
          failure = error;
          own.complete(turn);
        },
      );
    } catch (error) {
      this.#settle(message, error as Error, settled, begun);
    }
    return false;
  }

  /** The points of a message for a channel that stores them; an empty retained one clears the retained one only. */
  #read(message: Message): Message['read'] | Promise<Message['read']> {
    const { packet, route } = message;
    const { channel } = route;
    if (channel.service || !isStoredChannel(route)) return undefined;
    if (packet.retain && packet.payload.length === 0) return undefined;
    const { clock } = this.#services;
    const now = clock.now();
    const lane = laneOf(message);
    const read = () => this.#services.contents.readPoints(lane, packet.payload, now, formOf(channel.payload, packet));
    const ready = (points: PointsRead) => this.#long.ready(lane, route, points);
    if (packet.payload.length <= largePayload) {
      const points = read();
      return points instanceof Promise ? points.then(ready) : ready(points);
    }
    return this.#large.enter(lane, packet.payload.length).then((leave) => {
      message.leaveReading = leave;
      return Promise.resolve(read()).then(ready);
    });
  }

  /** Into the store, at once when it keeps up. */
  #enter(message: Message, settled: Settled, begun: () => void): boolean {
    const { packet, read, origin } = message;
    const points = read && 'kept' in read ? read : undefined;
    if (points && points.count > 1) origin.live?.client.charge(points.count - 1);
    // What waits for the registry takes no room of the store meanwhile.
    if (changesRegistry(message.route)) {
      this.#store(message, 0, settled);
      return true;
    }
    const rows = this.#services.bridges.outboxRowsOf(message.route);
    const cost =
      Math.max(1, points?.cost ?? 0) + rows * pointsOfOutboxRow + ((1 + rows) * packet.payload.length) / bytesOfPoint;
    if (this.#admission.enter(cost)) {
      this.#store(message, cost, settled);
      return true;
    }
    this.#admission.wait(laneOf(message), cost, () => {
      this.#store(message, cost, settled);
      this.#guarded(begun);
    });
    return false;
  }

  #settle(message: Message, error: Error | undefined, settled: Settled, begun = () => {}): void {
    this.#count(message, error);
    this.#guarded(() => (error ? this.#rejections.failed(message, error, settled) : settled()));
    this.#guarded(begun);
    message.leaveReading?.();
    this.#pending -= 1;
    if (this.#pending === 0) this.#whenIdle?.();
  }

  #store(message: Message, cost: number, settled: Settled): void {
    const { route } = message;
    message.held = cost;
    const done = once((error) => {
      this.#settle(message, error, settled);
      this.#admission.leave(message.held);
    });
    try {
      // Before anything is stored: what is not acknowledged comes again, and would be stored twice.
      const refusal = this.#services.bridges.refusal(route);
      if (refusal) throw refusal;
      const handler = handlerOf(route);
      if (handler) this.#handlers.handle(handler, message, done);
      else if (isStoredChannel(route)) this.#storePoints(message, done);
      else this.#keep(message, done);
    } catch (error) {
      done(error as Error);
    }
  }

  #count({ route, reason }: Message, error: Error | undefined): void {
    const counts = this.#counters.messages[kindOf(route)];
    if (error) counts.failed += 1;
    else if (reason) counts.rejected += 1;
    else if (isStoredChannel(route)) counts.stored += 1;
    else counts.delivered += 1;
  }

  /** Writes for stored sessions and bridges. */
  #keep(message: Message, done: Settled): void {
    const { packet, route } = message;
    if (isForNow(packet) || !this.#services.bridges.takes(route)) {
      this.#keepForSessions(message, done);
      return;
    }
    message.isStored = true;
    const both = afterBoth(done);
    const { qos, payload } = packet;
    this.#services.bridges.takeMessage({ ...route, qos, payload, ...storedProperties(packet) }, both);
    this.#keepForSessions(message, both);
  }

  /** A QoS 0 message promises nothing, but takes the room of a retained one. */
  #keepForSessions(message: Message, done: Settled): void {
    const { packet, origin } = message;
    this.#limitRetained(message);
    if (packet.retain && !isForNow(packet)) message.isStored = true;
    if (packet.qos === 0) done(message.full);
    else this.#persistence.keep(origin.live?.client, packet, done, (sessions) => this.#charge(message, sessions));
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

  /** A place for the message store, and one for the sessions right after it: both go into one transaction. */
  #storeAndKeep(message: Message, done: Settled, store: (stored: Settled) => void): void {
    const both = afterBoth(done);
    store(both);
    this.#keep(message, both);
  }

  #storePoints(message: Message, done: Settled): void {
    const { packet, route, read } = message;
    // An empty retained message clears the retained one and says nothing else.
    if (!read) {
      this.#keep(message, done);
      return;
    }
    if ('reason' in read) {
      this.#rejections.explain(message, reason('notReadable', [{ message: read.reason }]));
      this.#keep(message, done);
      return;
    }
    const { kept, why, isPrepared } = read;
    if (why !== undefined)
      this.#rejections.explain(message, reason(kept.length > 0 ? 'storedInPart' : 'notReadable', [{ message: why }]));
    if (kept.length === 0) {
      this.#keep(message, done);
      return;
    }
    this.#storeAndKeep(message, done, (stored) => {
      const settled = (error?: Error, end?: Readonly<StoreEnd>) => {
        if (end && !error) this.#marks.stored(route.accountId, packet.payload, end, { points: kept.length, logs: 0 });
        if (!error) {
          message.isStored = true;
          message.points = kept.length;
        }
        stored(error);
      };
      this.#services.messages.append(seriesOf(route), kept, settled, isPrepared);
    });
  }

  #guarded(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#services.log.error({ fault: faultOf(error) }, 'a message could not be passed on');
    }
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
