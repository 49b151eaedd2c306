import type { Scheduler } from '../../src/core/scheduler/scheduler.ts';
import type { BrokerClient, LiveClient } from '../client-types.ts';
import type { Counters } from '../connections/counters.ts';
import { isFull, laneOfClient } from '../connections/live-clients.ts';
import type { MessageNumbers } from '../message-numbers.ts';
import { forOneClient, isForNow, isOrdered, type Outgoing } from '../message-types.ts';
import type { SessionStore } from '../sessions/persistence.ts';
import type { Kept } from '../sessions/queues.ts';
import type { SharedGroups } from '../sessions/shared-groups.ts';
import type { PublishHeader } from './codec.ts';
import { UnacknowledgedMessages, type UnacknowledgedServices } from './unacknowledged.ts';
import { copied, write, writePayload } from './write.ts';

type GoOn = () => void;

export interface DeliveryParts extends UnacknowledgedServices {
  /** The packet as it may be delivered to this connection; undefined when it may not. */
  forward(client: BrokerClient, packet: Outgoing): Outgoing | undefined;
  persistence: Pick<SessionStore, 'queues'>;
  groups: Pick<SharedGroups, 'passOn'>;
  messageNumbers: Pick<MessageNumbers, 'next'>;
  /** By which a message has expired. */
  ages: { now(): number };
  counters: Counters;
  scheduler: Scheduler;
}

/** Bytes on their way to a client, above which what is held for it waits until they have left. */
export const maxWritten = 1_048_576;
/** A payload of which the buffer around it is more times as long is copied. */
const bufferFactor = 2;
/** Cost of the first write to a socket in a turn of the event loop: a system call. */
const costOfWrite = 3;
/** What a message that has been kept costs next to a delivery: it is read from the disk. */
const costOfKept = 4;

/**
 * Messages on their way out: each client is sent them in the order of their publication. While it has as many unacknowledged as it
 * takes, or reads slowly, it is sent those of QoS 0 alone; the others wait in the queue of its session, or are held for it.
 */
export class Deliveries {
  readonly #parts: DeliveryParts;
  readonly #held: UnacknowledgedMessages;
  /** By payload: its bytes alone, the same for all who get it. */
  readonly #own = new WeakMap<Buffer, Buffer>();
  /** Many subscribers get the same bytes at QoS 0. */
  #last: (Pick<PublishHeader, 'topic' | 'retain' | 'properties'> & Bytes) | undefined;

  constructor(parts: DeliveryParts) {
    this.#parts = parts;
    this.#held = new UnacknowledgedMessages(parts);
  }

  /** A message that is live, or retained. `done` is called when its publisher may go on. */
  deliver(client: BrokerClient, packet: Outgoing, done: GoOn): void {
    const { live } = client;
    // A message that matches two filters of a client is delivered once.
    const isKnown = isOrdered(packet) && packet.brokerCounter <= live.lastHeard;
    if (client.closed || isKnown) done();
    else this.#deliver(live, packet, done);
  }

  /** A message for this client alone. */
  sendToOne(client: BrokerClient, about: Pick<Outgoing, 'topic' | 'payload' | 'qos'>): void {
    const packet = this.#newPacket(about);
    const identifiers = client.matchOf(about.topic)?.identifiers;
    if (identifiers) packet.identifiers = identifiers;
    if (about.qos > 0 && !client.clean) this.#parts.persistence.queues.enqueueFor(client, packet);
    this.deliver(client, packet, () => {});
  }

  #newPacket(about: Pick<Outgoing, 'topic' | 'payload' | 'qos'>): Outgoing {
    const at = { brokerId: forOneClient, brokerCounter: this.#parts.messageNumbers.next() } as const;
    return { cmd: 'publish', ...about, retain: false, dup: false, ...at };
  }

  /** Sends what a stored session has kept, before anything that comes now. Resolves when nothing is left; never rejects. */
  async catchUp(live: LiveClient): Promise<void> {
    const { persistence, scheduler } = this.#parts;
    const { client } = live;
    if (client.clean || live.isCatchingUp) return;
    live.isCatchingUp = true;
    try {
      for await (const kept of persistence.queues.keptFor(client)) {
        scheduler.spend(costOfKept);
        if (scheduler.isOver) await new Promise<void>((resolve) => scheduler.wait(laneOfClient(live), resolve));
        while (kept.cmd === 'publish' && !client.closed && isFull(live, kept.messageId !== undefined))
          await nextRoom(live);
        await drained(client);
        if (client.closed) return;
        if (persistence.queues.isDue(client, kept)) await this.#sendKept(live, kept);
        if (client.closed) return;
      }
    } catch (error) {
      // The queue stays.
      client.fail(error as Error);
    } finally {
      live.isCatchingUp = false;
    }
    if (!client.closed && persistence.queues.hasFallenBehind(client)) await this.catchUp(live);
  }

  /** Resolves when a message of QoS 1 or 2 would leave at once, or the connection has ended; calls `waits` when that is not so now. */
  async roomFor(live: LiveClient, waits: () => void): Promise<void> {
    const { client } = live;
    while (!client.closed && (isFull(live) || client.isSlow || this.#held.has(live))) {
      waits();
      await nextRoom(live);
    }
  }

  /** The client has this message: nobody else of its group gets it, and it is not due any more. */
  received(live: LiveClient, messageId: number): void {
    if (live.shared) this.#held.untrack(live, messageId);
    live.newFilters?.acknowledged(messageId);
  }

  /**
   * The client has a message of QoS 2, and PUBREL follows when this resolves; undefined when that waits for nothing. A stored
   * session remembers the PUBREL of one that was in no queue, such as a retained one, too [MQTT-4.4.0-1].
   */
  noteReceived(live: LiveClient, messageId: number, isAwaited: boolean): Promise<void> | undefined {
    const { persistence } = this.#parts;
    const { client } = live;
    if (client.clean) return undefined;
    if (isAwaited && !persistence.queues.isSent(client, messageId)) {
      const packet: Outgoing = { ...this.#newPacket({ topic: '', payload: Buffer.alloc(0), qos: 2 }), messageId };
      persistence.queues.enqueueFor(client, packet);
      void persistence.queues.noteSent(client, packet);
    }
    return persistence.queues.noteReceived(client, messageId);
  }

  /** Gives what a member of groups has not acknowledged to others; it has left, or `hasEnded` with its session. */
  passOnShared(live: LiveClient, hasSessionEnded: boolean): void {
    const { groups, persistence } = this.#parts;
    const { client } = live;
    if (!client.clean) persistence.queues.passOnShared(client, hasSessionEnded);
    else
      for (const packet of this.#held.sharedOf(live))
        if (packet.group) groups.passOn(packet.group, packet, client.id, false);
  }

  /** The client has acknowledged a message, has read, or is gone: sends what has waited for that. */
  sendWaiting(live: LiveClient): void {
    const { client } = live;
    if (client.closed) this.#held.dropAll(live);
    while (!client.closed && !client.isSlow && client.conn.writableLength <= maxWritten && !isFull(live)) {
      const packet = this.#held.take(live);
      if (!packet) break;
      this.#deliver(live, packet, () => {}, true);
    }
    // They look again themselves.
    const { waitingForRoom = [] } = live;
    live.waitingForRoom = undefined;
    for (const goOn of waitingForRoom) goOn();
  }

  /** A message, or a PUBREL, that a stored session has kept: it leaves as those that are live. */
  #sendKept(live: LiveClient, kept: Kept): Promise<void> {
    return new Promise((resolve) => {
      if (kept.cmd === 'pubrel') this.#sendRelease(live, kept.messageId, resolve);
      else {
        kept.messageId ??= live.ids.take();
        live.lastKept = Math.max(live.lastKept, kept.brokerCounter);
        const { retainAsPublished = false, identifiers } = live.client.matchOfKept(kept) ?? {};
        if (identifiers) kept.identifiers = identifiers;
        // The subscription stood when the message came [MQTT-3.3.1-12].
        kept.retain &&= retainAsPublished;
        this.#deliver(live, kept, resolve);
      }
    });
  }

  #sendRelease({ client, leaving }: LiveClient, messageId: number, done: GoOn): void {
    leaving.complete(
      leaving.reserve(() => {
        if (client.closed) {
          done();
          return;
        }
        client.live.ids.expect(messageId, 'pubcomp');
        write(client.conn, client.codec.answer('pubrel', messageId));
        client.whenWritable(done);
      }),
    );
  }

  /** `hasWaited` is said of a message that has been held. */
  #deliver(live: LiveClient, packet: Outgoing, done: GoOn, hasWaited = false): void {
    const { client } = live;
    const allowed = this.#isExpired(client, packet) ? undefined : this.#parts.forward(client, packet);
    if (allowed && client.conn.writableCorked === 0) this.#parts.scheduler.spend(costOfWrite);
    if (!allowed) done();
    else if (allowed.qos === 0) this.#sendUnacknowledged(live, allowed, done);
    else if (!hasWaited && packet.messageId === undefined && this.#mustWait(live, packet))
      this.#keep(live, allowed, done);
    else this.#send(live, allowed, done);
  }

  #mustWait(live: LiveClient, packet: Outgoing): boolean {
    const { client } = live;
    if (isFull(live) || client.isSlow || this.#held.has(live)) return true;
    return isForNow(packet) && this.#parts.persistence.queues.hasFallenBehind(client);
  }

  /** What has been sent before is sent again: its receiver may have it. */
  #isExpired(client: BrokerClient, packet: Outgoing): boolean {
    const { ages, counters, persistence } = this.#parts;
    const { messageExpiry, dup } = packet;
    if (messageExpiry === undefined || isForNow(packet) || dup || messageExpiry > ages.now()) return false;
    counters.expired += 1;
    if (!client.clean) persistence.queues.forget(client, packet);
    return true;
  }

  /** It is in the queue of a stored session, or is held; one for now is too late. */
  #keep(live: LiveClient, packet: Outgoing, done: GoOn): void {
    if (isForNow(packet)) {
      this.#parts.counters.expired += 1;
      done();
      return;
    }
    if (!live.client.clean && this.#parts.persistence.queues.fallBehind(live.client, packet)) void this.catchUp(live);
    else this.#held.add(live, { ...packet, payload: this.#bytesOf(packet) });
    done();
  }

  #sendUnacknowledged({ client, leaving }: LiveClient, packet: Outgoing, done: GoOn): void {
    if (leaving.idle) this.#write0(client, packet, done);
    else leaving.complete(leaving.reserve(() => this.#write0(client, packet, done)));
  }

  #send(live: LiveClient, packet: Outgoing, done: GoOn): void {
    const { client, leaving } = live;
    packet.messageId ??= live.ids.take();
    const writing = client.clean ? undefined : this.#parts.persistence.queues.noteSent(client, packet);
    const messageId = packet.messageId;
    live.ids.expect(messageId, packet.qos === 1 ? 'puback' : 'pubrec');
    if (packet.isFirst) live.newFilters?.sent(messageId);
    if (packet.group && client.clean && !isForNow(packet))
      this.#held.track(live, messageId, { ...packet, payload: this.#bytesOf(packet) });
    const pass = () => {
      if (client.closed) {
        done();
        return;
      }
      const payload = this.#bytesOf(packet);
      const bytes = client.codec.publish(packet, payload, packet.qos, messageId);
      if (!bytes) {
        this.#dropTooLong(live, messageId, done);
        return;
      }
      this.#parts.counters.sent += 1;
      write(client.conn, bytes);
      writePayload(client.conn, payload);
      client.whenWritable(done);
    };
    if (!writing && leaving.idle) {
      pass();
      return;
    }
    const turn = leaving.reserve(pass);
    if (!writing) leaving.complete(turn);
    else
      writing.then(
        () => leaving.complete(turn),
        (error) => {
          client.fail(error);
          leaving.complete(turn);
        },
      );
  }

  /** A small part of what was read from a socket would keep all of it in memory while it waits for another socket. */
  #bytesOf({ payload }: Outgoing): Buffer {
    if (payload.length <= copied || payload.buffer.byteLength <= bufferFactor * payload.length) return payload;
    let own = this.#own.get(payload);
    if (!own) {
      own = Buffer.allocUnsafeSlow(payload.length);
      own.set(payload);
      this.#own.set(payload, own);
    }
    return own;
  }

  /** As if it had been sent [MQTT-3.1.2-25]. */
  #dropTooLong(live: LiveClient, messageId: number, done: GoOn): void {
    this.#parts.counters.dropped.size += 1;
    live.ids.end(messageId);
    this.received(live, messageId);
    this.#parts.persistence.queues.acknowledge(live.client, messageId);
    done();
    this.sendWaiting(live);
  }

  #write0(client: BrokerClient, packet: Outgoing, done: GoOn): void {
    const { counters } = this.#parts;
    const payload = this.#bytesOf(packet);
    const bytes = client.codec.sharesBytes(packet)
      ? this.#sharedBytes(client, packet, payload)
      : client.codec.publish(packet, payload, 0);
    if (!bytes) counters.dropped.size += 1;
    else {
      counters.sent += 1;
      write(client.conn, bytes);
      writePayload(client.conn, payload);
      // Its publisher need not wait: more of them are shed until the socket has drained, or is closed because it does not.
      client.whenWritable(() => {});
    }
    done();
  }

  #sharedBytes({ codec }: BrokerClient, packet: Outgoing, payload: Buffer): Buffer | undefined {
    const { topic, retain, properties } = packet;
    const { level } = codec;
    const last = this.#last;
    const isSame = last?.payload === payload && last.topic === topic && last.retain === retain;
    if (isSame && last.level === level && last.properties === properties) return last.bytes;
    const bytes = codec.publish(packet, payload, 0);
    if (bytes) this.#last = { topic, payload, retain, properties, level, bytes };
    return bytes;
  }
}

/** Resolves when a client has room again, however slowly it reads: what is on the disk can wait longer than publishers. */
export async function drained(client: BrokerClient): Promise<void> {
  while (!client.closed && client.conn.writableNeedDrain)
    await new Promise<void>((resolve) => client.whenWritable(resolve));
}

/** Resolves when the client has acknowledged a message, has read, or is gone. */
function nextRoom(live: LiveClient): Promise<void> {
  return new Promise((resolve) => {
    live.waitingForRoom ??= [];
    live.waitingForRoom.push(resolve);
  });
}

/** What all clients of one level are sent. */
interface Bytes {
  payload: Buffer;
  level: number;
  bytes: Buffer;
}
