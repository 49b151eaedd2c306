import { Readable } from 'node:stream';
import type { StoreEnd } from '../../db/messages/threads/protocol.ts';
import { type Caller, principalOf } from '../../src/core/caller.ts';
import { endEvents } from '../../src/core/network/event-bodies.ts';
import { Scheduler, unbounded } from '../../src/core/scheduler/scheduler.ts';
import type { BrokerBase, FleetChange, Revoked, StreamRefusal, StreamRequest } from '../../src/ports/broker-ports.ts';
import type { Authority } from '../authorize.ts';
import type { Counters } from '../connections/counters.ts';
import type { Limits } from '../connections/limits.ts';
import { faultOf } from '../connections/safe-error.ts';
import type { Outgoing } from '../message-types.ts';
import type { FanOut } from '../packets/fan-out.ts';
import { AccountFilters } from '../sessions/account-filters.ts';
import { canMatch, isWellFormed } from '../topics.ts';
import { EventWriter, type Reader } from './event-writer.ts';
import { bytesOfMissed, type Missed, readMissed, TooMuchMissed } from './missed.ts';
import { type Event, type EventPosition, eventOf, formatId, missedEvent, parseId } from './stream-events.ts';
import { isBefore, type StreamPositions } from './stream-positions.ts';

/** Milliseconds between two heartbeats. */
const heartbeatInterval = 15_000;
/** Milliseconds by which the clocks of two servers may differ. */
const clockDifference = 60_000;
/** Milliseconds after which a reader shall come back. */
const retry = 3000;
/** Bytes that may wait for a reader; one that is further behind is cut off, and can come back with its last id. */
const maxWaiting = 1024 * 1024;

/** The services of the broker that streams use. */
export interface StreamParts {
  services: BrokerBase;
  authority: Authority;
  counters: Counters;
  fanOut: Pick<FanOut, 'subscribe'>;
  limits: Limits;
  marks: StreamPositions;
  scheduler: Scheduler;
}

/** One reader of server-sent events. */
interface Stream extends Reader {
  readonly id: string;
  /** The owner: the identity or the application. */
  readonly principal: string;
  readonly sessionId: string | undefined;
  /** Milliseconds since 1970; the end of the login session. */
  readonly expires: number;
  readonly filters: Set<string>;
  catchingUp: boolean;
  /** Waits until the reader has taken what was pushed. */
  wake: (() => void) | undefined;
}

/** Live messages as server-sent events: the rights of SUBSCRIBE, the gate of every delivery. */
export class Streams {
  readonly #parts: StreamParts;
  readonly #byPrincipal = new Map<string, Set<Stream>>();
  readonly #byId = new Map<string, Stream>();
  readonly #filters = new AccountFilters();
  readonly #heartbeat: NodeJS.Timeout;
  readonly #byAccount = new Map<string, Set<Stream>>();
  readonly #writer: EventWriter<Stream>;
  #count = 0;
  /** Reading what was missed is expensive: one after the other, and accounts take turns. */
  // Streams have a limit of their own.
  readonly #reading = new Scheduler({ atOnce: 1, maxWaiting: unbounded });

  constructor(parts: StreamParts) {
    this.#parts = parts;
    const { marks, scheduler, counters } = parts;
    this.#writer = new EventWriter({
      marks,
      scheduler,
      clock: parts.services.clock,
      numbers: parts.services.numbers,
      mayHear: (stream, topic) => this.#mayHear(stream, topic),
      readersOf: (accountId) => this.#byAccount.get(accountId) ?? [],
      cutOff: (stream) => {
        counters.shed += 1;
        this.#end(stream);
      },
    });
    this.#heartbeat = setInterval(() => this.#beat(), heartbeatInterval);
    this.#heartbeat.unref();
  }

  /** Open streams. */
  get size(): number {
    return this.#byId.size;
  }

  /** As `open` of the Streams interface. */
  open(given: Caller, { filters, after, expires }: StreamRequest): Readable | StreamRefusal {
    const { services, authority, limits } = this.#parts;
    const caller = authority.currentCaller(given);
    if (!caller) return { refused: 'cutOff' };
    const wanted = new Set(filters);
    const { maxSubscriptions } = services.config.mqtt;
    if (wanted.size === 0 || (maxSubscriptions > 0 && wanted.size > maxSubscriptions)) return { refused: 'number' };
    for (const [at, filter] of filters.entries())
      if (!isWellFormed(filter)) return { refused: 'malformed', place: at + 1 };
    for (const [at, filter] of filters.entries())
      if (!this.#canMatch(caller, filter)) return { refused: 'outOfReach', place: at + 1 };
    const from = after === undefined ? undefined : parseId(services.numbers, after);
    if (after !== undefined && !from) return { refused: 'id' };
    if (limits.exceeded(caller, this.#byPrincipal.get(principalOf(caller))?.size ?? 0)) {
      limits.hit('max_connections_per_principal', { address: caller.address });
      return { refused: 'tooMany' };
    }
    const stream = this.#begin(caller, wanted, expires);
    this.#catchUp(stream, from).catch((error) => {
      services.log.error({ err: error }, 'what a stream has missed could not be read');
      this.#end(stream);
    });
    return stream.body;
  }

  #begin(caller: Caller, filters: Set<string>, expires: number): Stream {
    this.#count += 1;
    const { sessionId } = caller;
    const principal = principalOf(caller);
    const body = new Readable({
      read: () => {
        stream.wake?.();
        stream.wake = undefined;
      },
    });
    const stream: Stream = {
      id: String(this.#count),
      principal,
      sessionId,
      expires,
      body,
      filters,
      caller,
      waiting: [],
      waitingBytes: 0,
      missedBytes: 0,
      catchingUp: true,
      until: undefined,
      wake: undefined,
      ended: false,
    };
    this.#byId.set(stream.id, stream);
    for (const [index, key] of this.#indexesOf(stream)) index.set(key, (index.get(key) ?? new Set()).add(stream));
    for (const filter of filters) this.#filters.add(caller.accountId, filter, stream.id);
    body.on('error', () => {});
    body.once('close', () => this.#end(stream));
    body.push(`retry: ${retry}\n\n`);
    return stream;
  }

  /** As in Streams of the ports. */
  tellEnrollment(accountId: string, enrollment: Readonly<Record<string, string>>): void {
    const { access } = this.#parts.services;
    this.#tell(accountId, 'enrollment', enrollment, (caller) => access.may(caller, 'read', 'enrollmentGroup'));
  }

  /** As in Streams of the ports. */
  tellFleet({ accountId, fleet, device, entered, time }: FleetChange): void {
    const { access } = this.#parts.services;
    const reads = (caller: Caller, kind: 'fleet' | 'device', place: string | null) =>
      access.may(caller, 'read', kind) && access.reaches(access.narrow(caller, 'read', kind), accountId, place);
    const data = { fleetId: fleet.id, deviceId: device.id, entered, time };
    this.#tell(accountId, 'fleet', data, (caller) => {
      return reads(caller, 'fleet', fleet.organizationId) && reads(caller, 'device', device.organizationId);
    });
  }

  /** Such an event has no id: it is not sent again to who has been away. */
  #tell(accountId: string, name: string, data: object, isFor: (caller: Caller) => boolean): void {
    const streams = [...(this.#byAccount.get(accountId) ?? [])];
    if (streams.length === 0) return;
    const event = Buffer.from(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
    for (const stream of streams) {
      if (stream.ended || !isFor(stream.caller)) continue;
      stream.body.push(event);
      // Who does not read is cut off as for messages.
      this.#schedule(stream);
    }
  }

  // Delivery

  /** Sends what was missed since `from`, and then what has come meanwhile, each message once. */
  async #catchUp(stream: Stream, from: EventPosition | undefined): Promise<void> {
    const { marks, fanOut } = this.#parts;
    if (!marks.active) {
      marks.activate();
      const deliver = (packet: Outgoing, done: () => void) => {
        this.#deliver(packet);
        done();
      };
      const wants = (topic: string) => this.#filters.match(this.#parts.authority.accountOf(topic), topic).length > 0;
      fanOut.subscribe('#', Object.assign(deliver, { wants }));
      // The marks do not know messages that were stored before.
      await this.#stored();
    }
    if (from) await this.#sendMissed(stream, from);
    if (stream.ended) return;
    stream.catchingUp = false;
    stream.waiting = stream.waiting.filter(({ topic }) => this.#mayHear(stream, topic));
    // The first id is known before the first message.
    const { accountId } = stream.caller;
    if (!from && stream.waiting.length === 0) stream.body.push(`id: ${this.#id(marks.mark(accountId))}\n\n`);
    this.#writer.write(stream);
  }

  async #sendMissed(stream: Stream, from: EventPosition): Promise<void> {
    const { accountId, id: callerId } = stream.caller;
    const reading = this.#reading.run({ accountId, callerId }, 1, () => this.#readMissed(stream, from));
    const { to, at, missed } = await reading;
    stream.missedBytes = (missed ?? []).reduce((sum, one) => sum + bytesOfMissed(one), 0);
    this.#writer.bound(accountId);
    if (stream.ended) return;
    const { numbers } = this.#parts.services;
    if (!missed) {
      const since = new Date(from.time).toISOString();
      stream.body.push(`id: ${formatId(numbers, to, at)}\nevent: gap\ndata: ${JSON.stringify({ since })}\n\n`);
    }
    for (const one of missed ?? []) {
      if (stream.ended) return;
      stream.missedBytes -= bytesOfMissed(one);
      // Until all has been sent, a reader that reconnects starts again from the same time.
      if (this.#mayHear(stream, one.topic) && !stream.body.push(missedEvent(numbers, one, from.time)))
        await taken(stream);
    }
    if (stream.ended) return;
    if (missed) stream.body.push(`id: ${formatId(numbers, to, at)}\n\n`);
    stream.until = to;
  }

  /** Reads the messages stored since then; `missed` is undefined if there are too many, or nobody knows from where. */
  async #readMissed(
    stream: Stream,
    from: EventPosition,
  ): Promise<{ to: Readonly<StoreEnd>; at: number; missed: Missed[] | undefined }> {
    const { services } = this.#parts;
    const at = services.clock.now();
    const to = await this.#stored();
    const mayHear = (topic: string) =>
      !stream.ended && this.#parts.authority.historyWindowOf(stream.caller, undefined, topic);
    const { accountId } = stream.caller;
    // The id of another server names a place in its store.
    const cameAt = services.gate.cameAt(accountId) ?? Number.NEGATIVE_INFINITY;
    if (!from.place || from.time <= cameAt + clockDifference) return { to, at, missed: undefined };
    const absence = { accountId, filters: [...stream.filters], mayHear, from: from.place, to };
    try {
      return { to, at, missed: stream.ended ? [] : await readMissed(services, absence) };
    } catch (error) {
      if (!(error instanceof TooMuchMissed)) throw error;
      return { to, at, missed: undefined };
    }
  }

  #mayHear({ ended, caller }: Stream, topic: string): boolean {
    return !ended && this.#parts.authority.mayHear(caller, undefined, topic);
  }

  /** Resolves when everything that was given to the store is on disk, to where that ends. */
  #stored(): Promise<Readonly<StoreEnd>> {
    const { messages } = this.#parts.services;
    return new Promise((resolve, reject) =>
      messages.record([], (error, end) => {
        if (error || !end) reject(error ?? new Error('no end'));
        else resolve({ ...end });
      }),
    );
  }

  /** One message, handed on: to every stream that has asked for it and may hear it now. */
  #deliver(packet: Outgoing): void {
    const { marks, services, authority, scheduler } = this.#parts;
    const payload = Buffer.isBuffer(packet.payload) ? packet.payload : Buffer.from(packet.payload);
    try {
      const accountId = authority.accountOf(packet.topic);
      marks.handedOn(accountId, payload, packet.qos);
      if (this.#byId.size === 0) return;
      let event: Event | undefined;
      for (const id of this.#filters.match(accountId, packet.topic)) {
        const stream = this.#byId.get(id);
        scheduler.spend(1);
        if (!stream || stream.ended || !authority.mayHearMessage(stream.caller, undefined, packet.topic, packet))
          continue;
        event ??= eventOf(services.numbers, packet.topic, payload, packet, marks.mark(accountId), services.clock.now());
        stream.waiting.push(event);
        stream.waitingBytes += event.bytes;
        this.#schedule(stream);
      }
    } catch (error) {
      services.log.error({ fault: faultOf(error) }, 'a message could not be streamed');
    }
  }

  #id(mark: Readonly<StoreEnd>): string {
    const { numbers, clock } = this.#parts.services;
    return formatId(numbers, mark, clock.now());
  }

  #schedule(stream: Stream): void {
    const { waiting, waitingBytes, body } = stream;
    const behind = waitingBytes + body.readableLength;
    // One message alone may be longer.
    if (behind > maxWaiting && waiting.length + body.readableLength > 1) {
      this.#parts.counters.shed += waiting.length;
      this.#end(stream);
      return;
    }
    if (stream.catchingUp) return;
    this.#writer.schedule(stream);
  }

  /** Keeps proxies awake, and tells the id, so that who has heard nothing for long does not begin long ago. */
  #beat(): void {
    const { services } = this.#parts;
    const beats = new Map<string, { mark: Readonly<StoreEnd>; beat: Buffer }>();
    for (const stream of this.#byId.values()) {
      const { accountId } = stream.caller;
      let known = beats.get(accountId);
      if (!known) {
        const mark = this.#parts.marks.mark(accountId);
        known = { mark, beat: Buffer.from(`: heartbeat\nid: ${this.#id(mark)}\n\n`) };
        beats.set(accountId, known);
      }
      const { sessionId, body } = stream;
      // Someone who reads uses the login session.
      if (sessionId !== undefined && body.readableLength === 0) services.proofs.logins.noteUse(sessionId, accountId);
      const { mark, beat } = known;
      if (stream.until && !isBefore(mark, stream.until)) stream.until = undefined;
      // Behind what has not been sent yet an id would be too early.
      if (stream.catchingUp || stream.until || stream.waiting.length > 0) stream.body.push(': heartbeat\n\n');
      else if (stream.body.readableLength < maxWaiting) stream.body.push(beat);
    }
  }

  // The end

  /** Ends the streams of a login session. */
  endSession(sessionId: string): Revoked {
    return this.#endAll((stream) => stream.sessionId === sessionId, this.#byId.values());
  }

  /** Ends the streams of login sessions that are not open any more. */
  endClosed(isOpen: (sessionId: string) => boolean): Revoked {
    return this.#endAll(({ sessionId }) => sessionId !== undefined && !isOpen(sessionId), this.#byId.values());
  }

  /** Ends the streams whose login session is over at `now` (milliseconds). */
  endExpired(now: number): Revoked {
    return this.#endAll(({ expires }) => expires <= now, this.#byId.values());
  }

  endPrincipal(principal: string): Revoked {
    return this.#endAll(() => true, this.#byPrincipal.get(principal) ?? []);
  }

  /** Who has streams in an account. */
  principalsOf(accountId: string): string[] {
    return [...(this.#byAccount.get(accountId) ?? [])].map(({ principal }) => principal);
  }

  /** Gives the streams of a principal what it may act as now; filters that can match nothing any more end. */
  renew(principal: string, caller: Caller): Revoked {
    const own = [...(this.#byPrincipal.get(principal) ?? [])];
    for (const stream of own) {
      const { sessionId, address } = stream.caller;
      stream.caller = { ...caller, ...(sessionId && { sessionId }), ...(address && { address }) };
    }
    return this.#reviewAll(own);
  }

  /** As renew, for those in an account that have a filter of which `concerns` is true. */
  review(accountId: string, concerns: (filter: string) => boolean): Revoked {
    return this.#reviewAll(
      [...(this.#byAccount.get(accountId) ?? [])].filter(({ filters }) => [...filters].some(concerns)),
    );
  }

  /** Ends the streams of these accounts; readers come back. */
  endAccounts(accountIds: ReadonlySet<string>): void {
    this.#endAll(({ caller }) => accountIds.has(caller.accountId), this.#byId.values());
  }

  /** Ends every stream; readers come back. */
  endAll(): void {
    for (const stream of [...this.#byId.values()]) this.#end(stream);
  }

  close(): void {
    clearInterval(this.#heartbeat);
    this.endAll();
  }

  #endAll(concerns: (stream: Stream) => boolean, streams: Iterable<Stream>): Revoked {
    const ending = [...streams].filter(concerns);
    const subscriptions = ending.reduce((sum, { filters }) => sum + filters.size, 0);
    for (const stream of ending) this.#end(stream);
    return { connections: ending.length, subscriptions };
  }

  #reviewAll(streams: readonly Stream[]): Revoked {
    const ended = { connections: 0, subscriptions: 0 };
    for (const stream of streams) {
      for (const filter of [...stream.filters]) {
        if (this.#canMatch(stream.caller, filter)) continue;
        stream.filters.delete(filter);
        this.#filters.delete(stream.caller.accountId, filter, stream.id);
        ended.subscriptions += 1;
      }
      if (stream.filters.size > 0) continue;
      this.#end(stream);
      ended.connections += 1;
    }
    return ended;
  }

  #indexesOf({ principal, caller }: Stream): Array<[Map<string, Set<Stream>>, string]> {
    return [
      [this.#byPrincipal, principal],
      [this.#byAccount, caller.accountId],
    ];
  }

  #canMatch(caller: Caller, filter: string): boolean {
    const { access, config } = this.#parts.services;
    return canMatch(config.topicRoot, access, caller, filter);
  }

  /** At once: what has not been sent yet is not sent any more. */
  #end(stream: Stream): void {
    if (stream.ended) return;
    stream.ended = true;
    stream.waiting = [];
    stream.wake?.();
    for (const filter of stream.filters) this.#filters.delete(stream.caller.accountId, filter, stream.id);
    this.#byId.delete(stream.id);
    for (const [index, key] of this.#indexesOf(stream)) {
      const streams = index.get(key);
      streams?.delete(stream);
      if (streams?.size === 0) index.delete(key);
    }
    endEvents(stream.body);
  }
}

/** Resolves when the reader has taken what was pushed, or is gone. */
function taken(stream: Stream): Promise<void> {
  if (stream.ended) return Promise.resolve();
  return new Promise((resolve) => {
    stream.wake = resolve;
  });
}
