import type { Scheduler } from '../../src/scheduler/scheduler.ts';
import { type BrokerClient, isOrdered, type LiveClient, type Outgoing } from '../aedes-types.ts';
import { expect } from '../connections/live-clients.ts';
import type { SessionStore } from '../sessions/persistence.ts';
import type { Turn } from './turns.ts';
import { copied, publishBytes, whenWritable, write, writePayload } from './write.ts';

type Done = (error?: Error) => void;

export interface DeliveryParts {
  /** The packet as it may be delivered to this connection; undefined when it may not. */
  forward(client: BrokerClient, packet: Outgoing): Outgoing | undefined;
  persistence: Pick<SessionStore, 'outgoingUpdate'>;
  scheduler: Scheduler;
}

/** A payload of which the buffer around it is more times as long is copied. */
const bufferFactor = 2;
/** Cost of the first write to a socket in a turn of the event loop: a system call. */
const costOfWrite = 3;

/** Packet ids are 1 to 65535 [MQTT-2.3.1-1]. */
const lastPacketId = 65_535;

/**
 * Messages on their way out: each client is sent them in the order in which they were published, whatever their QoS is and
 * whatever a stored session has to write before.
 */
export class Deliveries {
  readonly #parts: DeliveryParts;
  /** By payload: its bytes alone, the same for all who get it. */
  readonly #own = new WeakMap<Buffer, Buffer>();
  /** Many subscribers get the same bytes at QoS 0. */
  #last: { topic: string; payload: Buffer; retain: boolean; bytes: Buffer } | undefined;

  constructor(parts: DeliveryParts) {
    this.#parts = parts;
  }

  /** Takes the place of what Aedes does with a message for this client. */
  attach(client: BrokerClient): void {
    const deliver = (packet: Outgoing, done: Done) => this.#deliver(client, packet, done);
    client.deliver0 = deliver;
    client.deliverQoS = deliver;
  }

  #deliver(client: BrokerClient, packet: Outgoing, done: Done): void {
    const { live } = client;
    if (!live || client.closed || this.#isKnown(live, packet)) {
      done();
      return;
    }
    const allowed = this.#parts.forward(client, packet);
    if (allowed && client.conn.writableCorked === 0) this.#parts.scheduler.spend(costOfWrite);
    if (!allowed) done();
    else if (allowed.qos === 0) this.#sendUnacknowledged(live, allowed, done);
    else this.#send(live, allowed, done);
  }

  /** A message that matches two filters of a client is delivered once, and a bridge is not sent its own. */
  #isKnown(live: LiveClient, packet: Outgoing): boolean {
    if (packet.nl && packet.clientId === live.client.id) return true;
    // Retained messages and those for one client have no place in the order of all.
    return isOrdered(packet) && packet.brokerCounter <= live.lastHeard;
  }

  #sendUnacknowledged({ client, leaving }: LiveClient, packet: Outgoing, done: Done): void {
    if (leaving.idle) this.#write0(client, packet, done);
    else leaving.finish(leaving.take(() => this.#write0(client, packet, done)));
  }

  #send(live: LiveClient, packet: Outgoing, done: Done): void {
    const { client, leaving } = live;
    packet.messageId = nextPacketId(live);
    let turn: Turn | undefined;
    let isReady = false;
    const pass = () => {
      const messageId = packet.messageId as number;
      expect(live, messageId, packet.qos === 1 ? 'puback' : 'pubrec');
      const payload = this.#bytesOf(packet);
      write(client.conn, publishBytes(packet, payload, packet.qos, messageId));
      writePayload(client.conn, payload);
      whenWritable(client, done);
    };
    const ready = () => {
      isReady = true;
      if (turn) leaving.finish(turn);
    };
    const failed = (error: Error) => {
      client.emit('error', error);
      ready();
    };
    // Retained messages are in no queue.
    if (client.clean || packet.retain) ready();
    else this.#parts.persistence.outgoingUpdate(client, packet).then(ready, failed);
    if (isReady && leaving.idle) pass();
    else {
      turn = leaving.take(pass);
      if (isReady) leaving.finish(turn);
    }
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
    const payload = this.#bytesOf(packet);
    if (this.#last?.payload !== payload || this.#last.topic !== topic || this.#last.retain !== retain)
      this.#last = { topic, payload, retain, bytes: publishBytes(packet, payload, 0) };
    write(client.conn, this.#last.bytes);
    writePayload(client.conn, payload);
    // Its publisher need not wait: more of them are shed until the socket has drained, or is closed because it does not.
    whenWritable(client, () => {});
    done();
  }
}

/** The next packet id that no message in flight has; the next one when all have been used. */
function nextPacketId({ client, sent }: LiveClient): number {
  let id = client._nextId;
  for (let tried = 0; sent?.has(id) && tried < lastPacketId; tried += 1) id = (id % lastPacketId) + 1;
  client._nextId = (id % lastPacketId) + 1;
  return id;
}
