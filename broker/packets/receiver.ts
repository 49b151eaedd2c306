import { lineOf } from '../../src/core/errors.ts';
import type { Authority } from '../authorize.ts';
import type { BrokerClient, LiveClient, PacketDone } from '../client-types.ts';
import { OverLimit } from '../connections/limits.ts';
import { faultOf } from '../connections/safe-error.ts';
import type { EnrollHooks } from '../enroll.ts';
import type { Origin, Verdict } from '../ingest/message.ts';
import type { Reports } from '../ingest/reports.ts';
import { levelsOf } from '../message-checks.ts';
import type { Incoming } from '../message-types.ts';
import type { Publishing } from '../publish.ts';
import {
  endsConnection,
  isFailure,
  noMatchingSubscribers,
  packetIdInUse,
  packetIdNotFound,
  type Reason,
  reason,
  rowOf,
} from '../reasons.ts';
import type { SessionStore } from '../sessions/persistence.ts';
import type { SubscribeHooks } from '../subscribe.ts';
import type { Answer, Packet } from './codec.ts';
import type { Deliveries } from './deliveries.ts';
import { faults, Malformed } from './fields.ts';
import { write } from './write.ts';

export interface ReceiverParts {
  authority: Pick<Authority, 'refusedTooOften'>;
  publishing: Pick<Publishing, 'publish'>;
  persistence: SessionStore;
  deliveries: Pick<Deliveries, 'noteReceived' | 'received' | 'sendWaiting'>;
  subscribes: Pick<SubscribeHooks, 'subscribe' | 'sendFirst' | 'unsubscribe'>;
  /** Levels that a topic may have. */
  maxTopicLevels: number;
  log: { error(details: object, message: string): void };
  /** Whether an account is on its way to another server. */
  isAway(accountId: string): boolean;
  reports: Pick<Reports, 'isFull'>;
  enrolls: Pick<EnrollHooks, 'has' | 'receive'>;
  /** The client of a login session has sent a packet. */
  sessionUsed(sessionId: string, accountId: string): void;
}

/** QoS 2 messages that may wait for their PUBREL on one connection; the Receive Maximum of MQTT 5. */
export const receiveMaximum = 1000;

/**
 * What the broker does with each packet after CONNECT. Answers leave in the order of the packets, and messages are handed on
 * in that order too, whatever they wait for.
 */
export class PacketReceiver {
  readonly #parts: ReceiverParts;

  constructor(parts: ReceiverParts) {
    this.#parts = parts;
  }

  isBeingStored(client: BrokerClient, messageId: number): boolean {
    return this.#parts.persistence.received.isBeingStored(client, messageId);
  }

  isHeld({ live }: BrokerClient): boolean {
    return live.identity !== undefined && this.#parts.isAway(live.identity.caller.accountId);
  }

  isFull({ live }: BrokerClient): boolean {
    return this.#parts.reports.isFull(live);
  }

  receive(client: BrokerClient, packet: Packet, done: PacketDone, answered: () => void): void {
    const { live } = client;
    try {
      // It has no identity yet, and nothing else to say.
      if (!live.identity && this.#parts.enrolls.has(client)) {
        this.#parts.enrolls.receive(client, packet, done);
        return;
      }
      const { sessionId, caller } = live.identity ?? {};
      if (sessionId !== undefined && caller) this.#parts.sessionUsed(sessionId, caller.accountId);
      this.#receive(live, packet, done, answered);
    } catch (error) {
      this.#parts.log.error({ fault: faultOf(error), connectionId: live.connectionId }, 'a packet was not handled');
      done(error as Error);
    }
  }

  #receive(live: LiveClient, packet: Packet, done: PacketDone, answered: () => void): void {
    const { client } = live;
    switch (packet.cmd) {
      case 'publish':
        this.#publish(live, packet, done);
        break;
      case 'puback':
      case 'pubcomp':
        this.#delivered(live, packet, done);
        break;
      case 'pubrec':
        this.#received(live, packet, done);
        break;
      case 'pubrel':
        this.#released(live, packet, done);
        break;
      case 'subscribe':
        this.#subscribe(live, packet, done, answered);
        break;
      case 'unsubscribe':
        this.#unsubscribe(live, packet, done);
        break;
      case 'pingreq':
        this.#answerInTurn(live, client.codec.pingresp(), done);
        break;
      case 'disconnect':
        done();
    }
  }

  // PUBLISH

  #publish(live: LiveClient, packet: Incoming, done: PacketDone): void {
    const { persistence, publishing } = this.#parts;
    const { client, identity } = live;
    if (!identity) {
      done(new Error('not proven'));
      return;
    }
    const id = packet.messageId as number;
    if (packet.qos < 2) {
      if (packet.qos === 1 && this.#isIdInUse(live, id))
        this.#answerInTurn(live, client.codec.answer('puback', id, packetIdInUse), done);
      else publishing.publish(identity, packet, new PacketOrigin(this.#parts, live, packet, done));
      return;
    }
    const { received } = persistence;
    const known = received.isKnown(client, id);
    if (known instanceof Promise)
      known.then((isKnown) => this.#publishOnce(live, packet, isKnown, done)).catch((error) => done(error));
    else this.#publishOnce(live, packet, known, done);
  }

  /** QoS 2: a message whose packet id is known has come before. */
  #publishOnce(live: LiveClient, packet: Incoming, isKnown: boolean, done: PacketDone): void {
    const { persistence, publishing } = this.#parts;
    const { client, identity } = live;
    const { received } = persistence;
    const id = packet.messageId as number;
    if (!identity) {
      done(new Error('not proven'));
      return;
    }
    live.unreleased ??= new Set();
    const { unreleased } = live;
    if (isKnown) {
      // The client that is told of it forgets the id: it names a new message then.
      if (client.codec.level === 5 && unreleased.has(id) && !packet.dup)
        this.#release(live, id, client.codec.answer('pubrec', id, packetIdInUse), done);
      else {
        // The client of level 5 counts what it sends again on a new connection.
        if (client.codec.level === 5) unreleased.add(id);
        this.#answerInTurn(live, client.codec.answer('pubrec', id), done);
      }
      return;
    }
    if (!unreleased.has(id)) {
      if (received.isFull(client)) {
        done(new OverLimit('max_unreleased_per_account'));
        return;
      }
      if (unreleased.size >= receiveMaximum) {
        done(new Malformed('too many QoS 2 messages wait for their PUBREL', { code: faults.window }));
        return;
      }
    }
    unreleased.add(id);
    const stored = received.storing(client, id);
    const settled = (failure?: Error) => {
      if (failure) unreleased.delete(id);
      stored(failure);
    };
    publishing.publish(identity, packet, new PacketOrigin(this.#parts, live, packet, done, settled));
  }

  /** PUBREL: the packet id may name a new message after PUBCOMP. */
  #released(live: LiveClient, { messageId }: Answer, done: PacketDone): void {
    const { codec } = live.client;
    const isKnown = this.#parts.persistence.received.isKnown(live.client, messageId);
    const code = isKnown || !isFaultyId(live) ? 0 : packetIdNotFound;
    this.#release(live, messageId, codec.answer('pubcomp', messageId, code), done);
  }

  /** The packet id names a new message when the answer leaves. */
  #release(live: LiveClient, messageId: number, answer: Buffer, done: PacketDone): void {
    const { client, turns } = live;
    let failure: Error | undefined;
    const turn = turns.reserve(() => {
      if (failure) done(failure);
      else this.#answer(client, answer, done);
    });
    this.#parts.persistence.received
      .release(client, messageId)
      .then(() => {
        live.unreleased?.delete(messageId);
      })
      .catch((error) => {
        failure = error;
      })
      .finally(() => turns.complete(turn));
  }

  // Acknowledgements of deliveries

  /** PUBACK or PUBCOMP. */
  #delivered(live: LiveClient, { cmd, messageId }: Answer, done: PacketDone): void {
    const awaited = live.ids.awaited(messageId);
    if (awaited !== undefined && awaited !== cmd) {
      done(new Malformed(`${cmd.toUpperCase()} instead of ${awaited.toUpperCase()}`, { code: faults.protocol }));
      return;
    }
    this.#endDelivery(live, messageId);
    done();
  }

  #endDelivery(live: LiveClient, messageId: number): void {
    live.ids.end(messageId);
    this.#parts.deliveries.received(live, messageId);
    this.#parts.persistence.queues.acknowledge(live.client, messageId);
    this.#parts.deliveries.sendWaiting(live);
  }

  /** PUBREC: PUBREL follows when a stored session knows of it on disk. */
  #received(live: LiveClient, { messageId, code }: Answer, done: PacketDone): void {
    const { persistence } = this.#parts;
    const { client, turns } = live;
    const awaited = live.ids.awaited(messageId);
    if (awaited === 'puback') {
      done(new Malformed('PUBREC instead of PUBACK', { code: faults.protocol }));
      return;
    }
    // The client will not have it: that is the end of it [MQTT-4.3.3-4].
    if (isFailure(code)) {
      this.#endDelivery(live, messageId);
      done();
      return;
    }
    const isUnknown = awaited === undefined && !persistence.queues.isSent(client, messageId);
    if (isUnknown && isFaultyId(live)) {
      this.#answerInTurn(live, client.codec.answer('pubrel', messageId, packetIdNotFound), done);
      return;
    }
    let failure: Error | undefined;
    const turn = turns.reserve(() => {
      if (failure) done(failure);
      else this.#answer(client, client.codec.answer('pubrel', messageId), done);
    });
    if (awaited !== undefined || !client.clean) live.ids.expect(messageId, 'pubcomp');
    this.#parts.deliveries.received(live, messageId);
    const writing = this.#parts.deliveries.noteReceived(live, messageId, awaited === 'pubrec');
    if (!writing) {
      turns.complete(turn);
      return;
    }
    writing
      .catch((error) => {
        failure = error;
      })
      .finally(() => turns.complete(turn));
  }

  // SUBSCRIBE

  /** Done when what is retained has been sent too: what comes later finds the same as if it came an hour later. */
  #subscribe(
    live: LiveClient,
    packet: Extract<Packet, { cmd: 'subscribe' }>,
    done: PacketDone,
    answered: () => void,
  ): void {
    const { client, leaving } = live;
    const { messageId, subscriptions } = packet;
    const filters = subscriptions.map(({ topic }) => topic);
    if (this.#areTooDeep(client, filters, done)) return;
    if (this.#isIdInUse(live, messageId)) {
      const inUse = filters.map(() => reason('packetIdInUse'));
      this.#answerInTurn(live, client.codec.suback(messageId, inUse), done);
      return;
    }
    // Messages that match already leave after the SUBACK. A connection that closes before holds up no publisher.
    const turn = leaving.reserve(() => {});
    const release = () => leaving.complete(turn);
    client.conn.once('close', release);
    this.#parts.subscribes
      .subscribe(live, subscriptions)
      .then((granted) => {
        write(client.conn, client.codec.suback(messageId, granted.answers));
        release();
        answered();
        return this.#parts.subscribes.sendFirst(live, granted);
      })
      .finally(() => {
        client.conn.off('close', release);
        release();
      })
      .then(() => done(), done)
      .catch((error) => client.fail(error));
  }

  #unsubscribe(live: LiveClient, packet: Extract<Packet, { cmd: 'unsubscribe' }>, done: PacketDone): void {
    const { messageId, unsubscriptions } = packet;
    const { client } = live;
    if (this.#areTooDeep(client, unsubscriptions, done)) return;
    if (this.#isIdInUse(live, messageId)) {
      const inUse = unsubscriptions.map(() => reason('packetIdInUse'));
      this.#answerInTurn(live, client.codec.unsuback(messageId, inUse), done);
      return;
    }
    this.#parts.subscribes.unsubscribe(live, unsubscriptions).then((ended) => {
      this.#answer(client, client.codec.unsuback(messageId, ended), done);
    }, done);
  }

  /** Whether a packet id is that of a message of QoS 2 that has not been released [MQTT-2.2.1-3]; asked at level 5 alone. */
  #isIdInUse({ client, unreleased }: LiveClient, id: number): boolean {
    return client.codec.level === 5 && unreleased !== undefined && unreleased.has(id);
  }

  /** Ends a connection below level 5; there SUBACK says so of each. */
  #areTooDeep({ codec }: BrokerClient, filters: readonly string[], done: PacketDone): boolean {
    if (codec.level === 5) return false;
    const areTooDeep = filters.some((filter) => levelsOf(filter) > this.#parts.maxTopicLevels);
    if (areTooDeep) done(new OverLimit('max_topic_levels', { isNoted: true }));
    return areTooDeep;
  }

  #answerInTurn({ client, turns }: LiveClient, bytes: Buffer, done: PacketDone): void {
    if (turns.idle) this.#answer(client, bytes, done);
    else turns.complete(turns.reserve(() => this.#answer(client, bytes, done)));
  }

  #answer(client: BrokerClient, bytes: Buffer, done: PacketDone): void {
    write(client.conn, bytes);
    client.whenWritable(done);
  }
}

/** A PUBLISH: PUBACK or PUBREC, and then the next packet. */
class PacketOrigin implements Origin {
  readonly live: LiveClient;
  readonly #parts: Pick<ReceiverParts, 'authority' | 'persistence'>;
  readonly #qos: 0 | 1 | 2;
  readonly #id: number | undefined;
  readonly #done: PacketDone;
  readonly #settled: ((failure?: Error) => void) | undefined;

  /** `settled` is of QoS 2: from now on the packet id names no new message, unless it has failed. */
  constructor(
    parts: Pick<ReceiverParts, 'authority' | 'persistence'>,
    live: LiveClient,
    { qos, messageId }: Incoming,
    done: PacketDone,
    settled?: (failure?: Error) => void,
  ) {
    this.#parts = parts;
    this.live = live;
    this.#qos = qos;
    this.#id = messageId;
    this.#done = done;
    this.#settled = settled;
  }

  isRefusedTooOften(): boolean {
    return this.#parts.authority.refusedTooOften(this.live);
  }

  acknowledge(verdict: Verdict): void {
    if (this.#qos === 0) return;
    const { conn, codec } = this.live.client;
    const id = this.#id as number;
    if (codec.level < 5) {
      this.#settled?.();
      write(conn, codec.answer(this.#qos === 1 ? 'puback' : 'pubrec', id));
      return;
    }
    const { code, sentence } = answerOf(verdict);
    // A PUBREC that says no ends the exchange: no PUBREL follows [MQTT-4.3.3-4].
    const isOver = this.#qos === 2 && isFailure(code);
    this.#settled?.(isOver ? new Error('no PUBREL follows') : undefined);
    if (isOver) this.#parts.persistence.received.forget(this.live.client, id);
    write(conn, codec.answer(this.#qos === 1 ? 'puback' : 'pubrec', id, code, sentence));
  }

  end(verdict: Verdict, failure?: Error | null): void {
    const { reason } = verdict;
    const { client } = this.live;
    // Below level 5 no acknowledgement can say so: the client is to send it again.
    if (failure && reason?.code === 'storeFull' && client.codec.level === 5) {
      this.acknowledge(verdict);
      client.whenWritable(this.#done);
      return;
    }
    const error = failure ?? (reason && endsConnection(reason, client.codec.level) ? endOf(reason) : undefined);
    if (error) {
      this.#settled?.(error);
      this.#done(error);
    } else client.whenWritable(this.#done);
  }
}

/** What PUBACK and PUBREC say of a message. */
function answerOf({ reason, isStored, receivers }: Verdict): { code: number; sentence: string | undefined } {
  if (reason) return { code: rowOf(reason).mqtt5, sentence: lineOf(reason) };
  return { code: isStored || receivers > 0 ? 0 : noMatchingSubscribers, sentence: undefined };
}

/**
 * Whether an id that is not known here is a fault of the client: in a session that was taken up it may be that of an exchange
 * whose last answer was lost with a former connection. Below level 5 nothing says so.
 */
function isFaultyId({ client, sessionPresent }: LiveClient): boolean {
  return client.codec.level === 5 && !sessionPresent;
}

/** The error by which a connection ends, after its reason has been noted. */
function endOf(why: Reason): Error {
  const { limit } = rowOf(why);
  return limit ? new OverLimit(limit, { isNoted: true }) : new Error('malformed topic');
}
