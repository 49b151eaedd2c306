import type { Caller } from '../../src/access.ts';
import { type BrokerServices, FairQueue, type PointsRead } from '../../src/broker-ports.ts';
import type { BrokerClient, Incoming, LiveClient } from '../aedes-types.ts';
import type { Route } from '../authorize.ts';
import type { Counters } from '../connections/counters.ts';
import { faultOf } from '../connections/safe-error.ts';
import type { Marks } from '../http/marks.ts';
import { type Turn, Turns } from '../packets/turns.ts';
import type { Refusals } from '../refusals.ts';
import type { ServiceChannels } from '../service-channels.ts';
import type { SessionStore } from '../sessions/persistence.ts';
import { Admission } from './admission.ts';
import { afterBoth, type Done, once } from './callbacks.ts';
import { handlerOf, isStoredChannel, kindOf, laneOf, type Message, type Outcome } from './message.ts';
import { notReadable, notRetained, Rejections, storedInPart } from './rejections.ts';
import type { Reports } from './reports.ts';
import { ServiceHandlers } from './service-handlers.ts';

type Persistence = Pick<SessionStore, 'keep' | 'received' | 'lacksRoomFor'>;

/** Bytes of a message that take as long to store as a point. */
const bytesOfPoint = 256;
/** A row of the outbox, with its places in indexes, takes as long as so many points. */
const pointsOfOutboxRow = 4;
/** Bytes above which a payload waits for its turn before its points are read: they take many times its memory. */
const largePayload = 8192;
/** Large payloads that have been read, or are, and are not stored: of all, and of one account. */
const largeAtOnce = { ofAll: 8, ofAccount: 4 };
/** Connections have limits of their own. */
const unbounded = { ofCaller: Number.POSITIVE_INFINITY, ofAccount: Number.POSITIVE_INFINITY };

/** The services of the ingestion. */
export interface IngestParts {
  services: BrokerServices;
  channels: ServiceChannels;
  persistence: Persistence;
  refusals: Refusals;
  marks: Marks;
  counters: Pick<Counters, 'messages' | 'acknowledgement' | 'limitHits'>;
  reports: Reports;
}

/**
 * What must be on disk before a message is acknowledged. Aedes acknowledges QoS 1 as soon as
 * `authorizePublish` calls back, before it stores or routes anything, so the durable write happens in there.
 */
export class Ingest {
  readonly #services: BrokerServices;
  readonly #persistence: Persistence;
  readonly #rejections: Rejections;
  readonly #handlers: ServiceHandlers;
  readonly #marks: Marks;
  readonly #counters: IngestParts['counters'];
  readonly #admission = new Admission();
  readonly #large = new FairQueue(largeAtOnce.ofAll, {
    perAccount: largeAtOnce.ofAccount,
    quantum: largePayload,
    most: unbounded,
  });
  /** Messages of a client that wait for an earlier one, which a thread is reading. */
  readonly #reading = new WeakMap<BrokerClient, Turns>();
  #pending = 0;
  #whenIdle: (() => void) | undefined;

  constructor({ services, channels, persistence, refusals, marks, counters, reports }: IngestParts) {
    this.#services = services;
    this.#persistence = persistence;
    this.#rejections = new Rejections(services, channels, refusals);
    this.#handlers = new ServiceHandlers({
      ...{ services, channels, marks, reports, rejections: this.#rejections },
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

  /** Stores what the route and the sessions want stored; calls back in the client's order, for QoS 1 once it is on disk. */
  accept(live: LiveClient, packet: Incoming, route: Route, done: Done): void {
    const { turns, client } = live;
    const isStored = isStoredChannel(route) || this.#services.bridges.takes(route);
    const noRoom = packet.qos === 0 && this.#noRoomFor(packet, route);
    const message: Message = { packet, route, caller: live.identity?.caller, client, explanations: [] };
    if (packet.qos === 0 && !isStored && !noRoom) {
      this.#limitRetained(message);
      this.#count(message, undefined);
      this.inTurn(live, (error) => {
        explain(message);
        done(error);
      });
      return;
    }
    const pass = (error?: Error) => {
      explain(message);
      done(error);
    };
    if (packet.qos === 0 && !isFieldsOrReport(handlerOf(route))) {
      let turn: Turn | undefined;
      const isTaken = this.#take(
        message,
        () => {},
        () => turn && turns.finish(turn),
      );
      // Aedes would retain it; it is delivered all the same.
      if (noRoom) packet.retain = false;
      // While the store is busy it is what holds back a client that sends nothing to be acknowledged.
      if (isTaken) this.inTurn(live, pass);
      else turn = turns.take(() => this.#guarded(pass));
      return;
    }
    const wasOpen = !client.closed;
    const from = performance.now();
    let failure: Error | undefined;
    const turn = turns.take(() => {
      this.#guarded(() => pass(failure));
      if (packet.qos === 1 && wasOpen && !failure) this.#counters.acknowledgement.observe(performance.now() - from);
    });
    const stored = (error?: Error) => {
      failure = error;
      turns.finish(turn);
    };
    // A will has no packet id, and no duplicates.
    if (packet.qos === 2 && packet.messageId !== undefined) {
      const known = this.#persistence.received.storing(client, packet);
      this.#take(message, (error) => {
        known(error);
        stored(error);
      });
    } else this.#take(message, stored);
  }

  /** Stores a will that a crashed process has left; `caller` is its owner. */
  acceptLeft(caller: Caller, packet: Incoming, route: Route, done: Done): void {
    this.#take({ packet, route, caller, client: undefined }, done);
  }

  /**
   * Stores a message that has come without a connection. `done` is called as soon as it is stored, in the order of the
   * store, with what the store says when it did not take it. The rejection explains why it was not stored, or why a
   * `_set/fields` message was refused, which has become its explanation.
   */
  acceptDirect(
    caller: Caller,
    packet: Incoming,
    route: Route,
    done: (failure: unknown, outcome: Outcome) => void,
  ): void {
    const outcome: Outcome = { rejection: undefined, points: 0 };
    const cause = this.#services.causeNow();
    this.#take({ packet, route, caller, client: undefined, outcome, cause }, (error) =>
      done(error?.cause ?? error, outcome),
    );
  }

  /** Calls back once every earlier message of the client has passed. */
  inTurn({ turns }: LiveClient, done: Done): void {
    if (turns.idle) done();
    else turns.finish(turns.take(() => this.#guarded(done)));
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
  #take(message: Message, settled: Done, begun = () => {}): boolean {
    this.#pending += 1;
    const { client } = message;
    try {
      const read = this.#read(message);
      const line = client && this.#reading.get(client);
      if (!(read instanceof Promise)) {
        if (read) message.read = read;
        if (!line || line.idle) return this.#enter(message, settled, begun);
        line.finish(line.take(() => this.#enter(message, settled, begun)));
        return false;
      }
      const own = line ?? new Turns();
      if (client && !line) this.#reading.set(client, own);
      let failure: Error | undefined;
      const turn = own.take(() =>
        failure ? this.#settle(message, failure, settled, begun) : this.#enter(message, settled, begun),
      );
      read.then(
        (points) => {
          message.read = points;
          own.finish(turn);
        },
        (error: Error) => {
          failure = error;
          own.finish(turn);
        },
      );
    } catch (error) {
      this.#settle(message, error as Error, settled, begun);
    }
    return false;
  }

  /** The points of a message for a channel that stores them; an empty retained one clears the retained one only. */
  #read(message: Message): PointsRead | Promise<PointsRead> | undefined {
    const { packet, route } = message;
    const { channel } = route;
    if (channel.service || !isStoredChannel(route)) return undefined;
    if (packet.retain && packet.payload.length === 0) return undefined;
    const { clock } = this.#services;
    const now = clock.now();
    const lane = laneOf(message);
    const read = () => this.#services.payloads.read(lane, packet.payload, now, channel.payload);
    if (packet.payload.length <= largePayload) return read();
    return this.#large.enter(lane, packet.payload.length).then((leave) => {
      message.leaveReading = leave;
      return read();
    });
  }

  /** Into the store, at once when it keeps up. */
  #enter(message: Message, settled: Done, begun: () => void): boolean {
    const { packet, read, client } = message;
    const points = read && 'points' in read ? read.points.length : 0;
    if (client && points > 1) client.connection?.charge(points - 1);
    // What waits for the registry takes no room of the store meanwhile.
    if (isFieldsOrReport(handlerOf(message.route))) {
      this.#store(message, 0, settled);
      return true;
    }
    const rows = this.#services.bridges.outboxRowsOf(message.route);
    const cost = Math.max(1, points) + rows * pointsOfOutboxRow + ((1 + rows) * packet.payload.length) / bytesOfPoint;
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

  #settle(message: Message, error: Error | undefined, settled: Done, begun = () => {}): void {
    this.#count(message, error);
    this.#guarded(() => (error ? this.#rejections.failed(message, error, settled) : settled()));
    this.#guarded(begun);
    message.leaveReading?.();
    this.#pending -= 1;
    if (this.#pending === 0) this.#whenIdle?.();
  }

  #store(message: Message, cost: number, settled: Done): void {
    const { route } = message;
    message.held = cost;
    const done = once((error) => {
      this.#settle(message, error, settled);
      this.#admission.leave(message.held ?? cost);
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

  #count({ route, isRejected }: Message, error: Error | undefined): void {
    const counts = this.#counters.messages[kindOf(route)];
    if (error) counts.failed += 1;
    else if (isRejected) counts.rejected += 1;
    else if (isStoredChannel(route)) counts.stored += 1;
    else counts.delivered += 1;
  }

  /** Writes for stored sessions and bridges. */
  #keep(message: Message, done: Done): void {
    const { packet, route } = message;
    if (!this.#services.bridges.takes(route)) {
      this.#keepForSessions(message, done);
      return;
    }
    const both = afterBoth(done);
    this.#services.bridges.take({ ...route, qos: packet.qos, payload: packet.payload }, both);
    this.#keepForSessions(message, both);
  }

  /** A QoS 0 message promises nothing, but takes the room of a retained one. */
  #keepForSessions(message: Message, done: Done): void {
    const { packet, client } = message;
    this.#limitRetained(message);
    if (packet.qos === 0) done(this.#noRoomFor(packet, message.route));
    else this.#persistence.keep(client, packet, done, (sessions) => this.#charge(message, sessions));
  }

  /** A place in the queue of a stored session takes about as long to write as a point. */
  #charge(message: Message, sessions: number): void {
    const { held = 0 } = message;
    message.held = held + sessions;
    this.#admission.charge(laneOf(message), sessions);
  }

  /** Beyond the limits of its account a message is delivered and not retained, and the device hears why. */
  #limitRetained(message: Message): void {
    const { packet } = message;
    const lacks = packet.retain ? this.#persistence.lacksRoomFor(packet) : undefined;
    if (!lacks) return;
    packet.retain = false;
    this.#counters.limitHits[lacks === 'count' ? 'max_retained_per_account' : 'max_retained_bytes_per_account'] += 1;
    const limit = lacks === 'count' ? 'mqttRetained' : 'mqttRetainedBytes';
    this.#rejections.reject(message, notRetained(this.#services, limit));
  }

  /** Why a message cannot be retained; an empty one makes room. */
  #noRoomFor({ retain, payload }: Incoming, { accountId }: Route): Error | undefined {
    return retain && payload.length > 0 ? this.#services.messages.fullFor(accountId) : undefined;
  }

  /** A place for the message store, and one for the sessions right after it: both go into one transaction. */
  #storeAndKeep(message: Message, done: Done, store: (stored: Done) => void): void {
    const both = afterBoth(done);
    store(both);
    this.#keep(message, both);
  }

  #storePoints(message: Message, done: Done): void {
    const { packet, route, read } = message;
    const { accountId, deviceId, channel } = route;
    // An empty retained message clears the retained one and says nothing else.
    if (!read) {
      this.#keep(message, done);
      return;
    }
    if ('reason' in read) {
      this.#rejections.reject(message, notReadable(read.reason));
      this.#keep(message, done);
      return;
    }
    const { kept, reason } = this.#services.retention.split(accountId, channel.retentionDays, read.points);
    if (reason !== undefined)
      this.#rejections.reject(message, kept.length > 0 ? storedInPart(reason) : notReadable(reason));
    if (kept.length === 0) {
      this.#keep(message, done);
      return;
    }
    const key = { accountId, deviceId, channelTemplateId: channel.id };
    this.#storeAndKeep(message, done, (stored) =>
      this.#services.messages.append(key, kept, (error, end) => {
        if (end && !error) this.#marks.stored(accountId, packet.payload, end, { points: kept.length, logs: 0 });
        if (message.outcome && !error) message.outcome.points = kept.length;
        stored(error);
      }),
    );
  }

  #guarded(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#services.log.error({ fault: faultOf(error) }, 'a message could not be passed on');
    }
  }
}

/** It is the turn of a message. */
function explain(message: Message): void {
  const { explanations = [] } = message;
  message.explanations = undefined;
  for (const say of explanations) say();
}

/** Both change more than a store: they are worked off in turn, whatever their QoS. */
function isFieldsOrReport(handler: ReturnType<typeof handlerOf>): boolean {
  return handler === 'fields' || handler === 'report';
}
