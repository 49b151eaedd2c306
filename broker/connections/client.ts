import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { BrokerClient, LiveClient } from '../client-types.ts';
import type { Outgoing, Subscription, Will } from '../message-types.ts';
import type { Codec } from '../packets/codec.ts';
import type { Connect } from '../packets/connect.ts';
import type { FanOut, Receive } from '../packets/fan-out.ts';
import { type End, ends } from '../reasons.ts';
import type { SharedGroups } from '../sessions/shared-groups.ts';
import { isShared, matchedFilter } from '../topics.ts';
import { Backlog, type BacklogParts } from './backlog.ts';
import { accountIn } from './client-ids.ts';
import { copyFor, hasOptions, isSameFilter, type Match, matchFilters } from './filters.ts';
import type { About } from './limits.ts';
import { newLiveClient } from './live-clients.ts';

/** Keep Alive and a half, in milliseconds [MQTT-3.1.2-24]. */
const patienceOfSecond = 1500;

const anyMatch: Match = { qos: 2, retainAsPublished: false, identifiers: undefined };

export interface ClientParts extends Pick<BacklogParts, 'clock' | 'maxUnsent'> {
  fanOut: Pick<FanOut, 'subscribe' | 'unsubscribe'>;
  /** Takes it among the members of shared subscriptions. */
  groups: Pick<SharedGroups, 'join' | 'leave'>;
  /** Sends it a message; `done` when the next may follow. */
  deliver(client: BrokerClient, packet: Outgoing, done: () => void): void;
  /** Its socket has room again. */
  drained(client: BrokerClient): void;
  /** Is told of the error that ends it. */
  failed(client: BrokerClient, error: Error): void;
  /** Is told once when it has been closed. */
  closed(client: BrokerClient): void;
  /** As `left` of the client. */
  left(client: BrokerClient): void;
}

/** What a client is made of when its CONNECT has come. */
export interface Connected {
  conn: Duplex;
  request: IncomingMessage | undefined;
  connection: { readonly inFlight: number; charge(points: number): void; leave(bytes: Buffer): boolean };
  connect: Connect;
  about: About;
}

/** A client, which the fan-out finds by its filters. */
export class Client implements BrokerClient {
  id = '';
  readonly clean: boolean;
  readonly cleanStart: boolean;
  sessionExpiry: number;
  readonly receiveMaximum: number;
  readonly conn: Duplex;
  readonly request: IncomingMessage | undefined;
  readonly live: LiveClient;
  readonly codec: Codec;
  closed = false;
  will: Will | undefined;
  readonly #parts: ClientParts;
  readonly #connection: Connected['connection'];
  readonly #subscriptions = new Map<string, Subscription & { receive: Receive | undefined }>();
  /** Filters that ask for more than a QoS. */
  #withOptions = 0;
  /** The counter of the message that its filters have been looked at for. */
  #lastReceived: number | undefined;
  #keepAlive: NodeJS.Timeout | undefined;
  readonly #backlog: Backlog;
  #hasFailed = false;
  /** Whether its last bytes are on their way. */
  #isLeaving = false;

  constructor(parts: ClientParts, { conn, request, connection, connect, about }: Connected) {
    this.#parts = parts;
    this.conn = conn;
    this.request = request;
    this.#connection = connection;
    this.codec = connect.codec;
    this.cleanStart = connect.cleanStart;
    this.sessionExpiry = connect.sessionExpiry;
    this.clean = connect.cleanStart && connect.sessionExpiry === 0;
    this.receiveMaximum = connect.receiveMaximum;
    this.will = connect.will;
    this.live = newLiveClient(this, connect.clientId, about);
    const { clock, maxUnsent, drained } = parts;
    this.#backlog = new Backlog(conn, request?.socket ?? conn, {
      ...{ clock, maxUnsent },
      drained: () => drained(this),
      failed: (error) => this.fail(error),
    });
  }

  get subscriptions(): ReadonlyMap<string, Subscription> {
    return this.#subscriptions;
  }

  get inFlight(): number {
    return this.#connection.inFlight;
  }

  charge(points: number): void {
    this.#connection.charge(points);
  }

  /** From now on it has to send something in time; 0 seconds for never. */
  expectPackets(seconds: number): void {
    if (seconds === 0 || this.closed) return;
    const silent = () => this.endConnection(ends.keepAlive, new Error('keep alive timeout'));
    this.#keepAlive = setTimeout(silent, seconds * patienceOfSecond + 1);
  }

  keepAlive(): void {
    this.#keepAlive?.refresh();
  }

  get isSlow(): boolean {
    return this.#backlog.isSlow;
  }

  whenWritable(done: () => void): void {
    const { conn } = this;
    if (this.closed || conn.destroyed || !conn.writableNeedDrain) done();
    else this.#backlog.wait(done);
  }

  /** Takes the place of a subscription to the same filter. */
  subscribe(filter: Subscription): void {
    const { topic } = filter;
    const known = this.#subscriptions.get(topic);
    if (known && isSameFilter(known, filter)) return;
    // A member that left its group for a moment would end it, and lose what waits for it.
    if (known && isShared(topic)) this.#withOptions -= hasOptions(known) ? 1 : 0;
    else if (known) this.unsubscribe([topic]);
    const receive = isShared(topic) ? undefined : this.#receiverOf(filter);
    this.#subscriptions.set(topic, { ...filter, receive });
    if (hasOptions(filter)) this.#withOptions += 1;
    if (receive) this.#parts.fanOut.subscribe(topic, receive);
    else this.#parts.groups.join(this, filter);
  }

  #receiverOf({ nl }: Subscription): Receive {
    const receive: Receive = (packet, received) => this.#receive(packet, received);
    receive.accountId = accountIn(this.id);
    if (nl) receive.wants = (_, publisher) => publisher !== this.id;
    return receive;
  }

  matchOf(topic: string, isOwn = false): Match | undefined {
    // Without options the QoS alone matters, and that is capped where the message is forwarded.
    return this.#withOptions === 0 ? anyMatch : matchFilters(this.#subscriptions.values(), topic, isOwn);
  }

  matchOfKept({ topic, group }: Pick<Outgoing, 'topic' | 'group'>): Match | undefined {
    const ordinary = group ? undefined : this.matchOf(topic);
    if (ordinary) return ordinary;
    // After a restart nobody knows for which of its filters it was kept.
    const shared = [...this.#subscriptions.values()]
      .filter((filter) => isShared(filter.topic) && (!group || group.shared === filter.topic))
      .map((filter) => ({ ...filter, topic: matchedFilter(filter.topic) }));
    return matchFilters(shared, topic, false);
  }

  #receive(packet: Outgoing, received: () => void): void {
    // It comes once for each of its filters that match.
    if (packet.brokerCounter === this.#lastReceived) {
      received();
      return;
    }
    this.#lastReceived = packet.brokerCounter;
    const match = this.matchOf(packet.topic, packet.clientId === this.id);
    if (match) this.deliver(copyFor(packet, match), received);
    else received();
  }

  deliver(packet: Outgoing, done: () => void): void {
    this.#parts.deliver(this, packet, done);
  }

  unsubscribe(filters: Iterable<string>): void {
    for (const filter of filters) {
      const known = this.#subscriptions.get(filter);
      if (!known) continue;
      if (known.receive) this.#parts.fanOut.unsubscribe(filter, known.receive);
      else this.#parts.groups.leave(this, filter);
      this.#subscriptions.delete(filter);
      if (hasOptions(known)) this.#withOptions -= 1;
    }
  }

  endConnection({ code, sentence }: End, error?: Error): void {
    const bytes = this.closed || !this.live.ready ? undefined : this.codec.disconnect(code, sentence);
    if (bytes) this.leaveWith(bytes, error);
    else if (error) this.fail(error);
    else this.close();
  }

  leaveWith(bytes: Buffer, error?: Error): void {
    this.#isLeaving = this.#connection.leave(bytes);
    if (error) this.fail(error);
    else this.close();
  }

  fail(error: Error): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    if (!this.conn.destroyed && !this.#isLeaving) this.conn.destroy(error);
    this.#parts.failed(this, error);
    this.close();
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    clearTimeout(this.#keepAlive);
    this.#keepAlive = undefined;
    this.unsubscribe([...this.#subscriptions.keys()]);
    this.#parts.closed(this);
    if (!this.#isLeaving) this.conn.destroy();
  }

  left(): void {
    this.#parts.left(this);
  }
}
