import type { Scheduler } from '../../src/scheduler/scheduler.ts';
import type { BrokerClient, BrokerCore, LiveClient } from '../aedes-types.ts';
import { expect } from '../connections/live-clients.ts';
import { forOneClient, isOrdered, type Outgoing } from '../message-types.ts';
import type { SessionStore } from '../sessions/persistence.ts';
import type { Kept } from '../sessions/queues.ts';
import { lastPacketId, nextPacketId } from '../sessions/session-queue.ts';
import { copied, write, writePayload } from './write.ts';

type Done = () => void;

export interface DeliveryParts {
  /** The packet as it may be delivered to this connection; undefined when it may not. */
  forward(client: BrokerClient, packet: Outgoing): Outgoing | undefined;
  persistence: Pick<SessionStore, 'noteSent' | 'enqueueFor'>;
  /** Counts messages. */
  aedes: Pick<BrokerCore, 'counter'>;
  scheduler: Scheduler;
}

/** A payload of which the buffer around it is more times as long is copied. */
const bufferFactor = 2;
/** Cost of the first write to a socket in a turn of the event loop: a system call. */
const costOfWrite = 3;

/**
 * Messages on their way out: each client is sent them in the order in which they were published, whatever their QoS is and
 * whatever a stored session has to write before.
 */
export class Deliveries {
  readonly #parts: DeliveryParts;
  /** By payload: its bytes alone, the same for all who get it. */
  readonly #own = new WeakMap<Buffer, Buffer>();
  /** Many subscribers get the same bytes at QoS 0. */
  #last: { topic: string; payload: Buffer; retain: boolean; level: number; bytes: Buffer } | undefined;

  constructor(parts: DeliveryParts) {
    this.#parts = parts;
  }

  /** A message that is live, or retained. `done` is called when its publisher may go on. */
  deliver(client: BrokerClient, packet: Outgoing, done: Done): void {
    const { live } = client;
    // A message that matches two filters of a client is delivered once.
    const isKnown = isOrdered(packet) && packet.brokerCounter <= live.lastHeard;
    if (client.closed || isKnown) done();
    else this.#deliver(live, packet, done);
  }

  /** A message for this client alone. */
  sendToOne(client: BrokerClient, { topic, payload, qos }: Pick<Outgoing, 'topic' | 'payload' | 'qos'>): void {
    this.#parts.aedes.counter += 1;
    const at = { brokerId: forOneClient, brokerCounter: this.#parts.aedes.counter };
    const packet: Outgoing = { cmd: 'publish', topic, payload, qos, retain: false, dup: false, ...at };
    if (qos > 0 && !client.clean) this.#parts.persistence.enqueueFor(client, packet);
    this.deliver(client, packet, () => {});
  }

  /** A message, or a PUBREL, that a stored session has kept: it leaves as those that are live. */
  sendKept(live: LiveClient, kept: Kept): Promise<void> {
    return new Promise((resolve) => {
      if (kept.cmd === 'pubrel') this.#sendRelease(live, kept.messageId, resolve);
      else {
        kept.messageId ??= takePacketId(live);
        this.#deliver(live, kept, resolve);
      }
    });
  }

  #sendRelease({ client, leaving }: LiveClient, messageId: number, done: Done): void {
    leaving.finish(
      leaving.take(() => {
        if (client.closed) {
          done();
          return;
        }
        expect(client.live, messageId, 'pubcomp');
        write(client.conn, client.codec.answer('pubrel', messageId));
        client.whenWritable(done);
      }),
    );
  }

  #deliver(live: LiveClient, packet: Outgoing, done: Done): void {
    const { client } = live;
    const allowed = this.#parts.forward(client, packet);
    if (allowed && client.conn.writableCorked === 0) this.#parts.scheduler.spend(costOfWrite);
    if (!allowed) done();
    else if (allowed.qos === 0) this.#sendUnacknowledged(live, allowed, done);
    else this.#send(live, allowed, done);
  }

  #sendUnacknowledged({ client, leaving }: LiveClient, packet: Outgoing, done: Done): void {
    if (leaving.idle) this.#write0(client, packet, done);
    else leaving.finish(leaving.take(() => this.#write0(client, packet, done)));
  }

  #send(live: LiveClient, packet: Outgoing, done: Done): void {
    const { client, leaving } = live;
    packet.messageId ??= takePacketId(live);
    const pass = () => {
      const messageId = packet.messageId as number;
      expect(live, messageId, packet.qos === 1 ? 'puback' : 'pubrec');
      const payload = this.#bytesOf(packet);
      write(client.conn, client.codec.publish(packet, payload, packet.qos, messageId));
      writePayload(client.conn, payload);
      client.whenWritable(done);
    };
    // Retained messages are in no queue.
    const writing = client.clean || packet.retain ? undefined : this.#parts.persistence.noteSent(client, packet);
    if (!writing && leaving.idle) {
      pass();
      return;
    }
    const turn = leaving.take(pass);
    if (!writing) leaving.finish(turn);
    else
      writing.then(
        () => leaving.finish(turn),
        (error) => {
          client.fail(error);
          leaving.finish(turn);
        },
      );
  }

  /** A small part of what was read from a socket would keep all of it in memory while it waits for another socket. */
  #bytesOf({ payload }: Outgoing): Buffer {
    if (typeof payload === 'string') return Buffer.from(payload);
    if (payload.length <= copied || payload.buffer.byteLength <= bufferFactor * payload.length) return payload;
    let own = this.#own.get(payload);
    if (!own) {
      own = Buffer.allocUnsafeSlow(payload.length);
      own.set(payload);
      this.#own.set(payload, own);
    }
    return own;
  }

  #write0(client: BrokerClient, packet: Outgoing, done: Done): void {
    const { topic, retain } = packet;
    const { level } = client.codec;
    const payload = this.#bytesOf(packet);
    const last = this.#last;
    if (last?.payload !== payload || last.topic !== topic || last.retain !== retain || last.level !== level)
      this.#last = { topic, payload, retain, level, bytes: client.codec.publish(packet, payload, 0) };
    write(client.conn, (this.#last as NonNullable<typeof last>).bytes);
    writePayload(client.conn, payload);
    // Its publisher need not wait: more of them are shed until the socket has drained, or is closed because it does not.
    client.whenWritable(() => {});
    done();
  }
}

/** The next packet id that no message in flight has; the next one when all have been used. */
function takePacketId({ client, sent }: LiveClient): number {
  let id = client.nextId;
  for (let tried = 0; sent?.has(id) && tried < lastPacketId; tried += 1) id = nextPacketId(id);
  client.nextId = nextPacketId(id);
  return id;
}
