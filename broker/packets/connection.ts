import type { Duplex } from 'node:stream';
import type { Properties } from '../../src/core/formats/message-properties.ts';
import type { Scheduler } from '../../src/core/scheduler/scheduler.ts';
import type { BrokerClient } from '../client-types.ts';
import type { LimitName } from '../connections/counters.ts';
import { OverLimit } from '../connections/limits.ts';
import { laneOfClient } from '../connections/live-clients.ts';
import type { PublishRate } from '../connections/publish-rate.ts';
import type { Codec, ConnectRefusal, Packet } from './codec.ts';
import { beginsLevel5, type Connect, mayTellLevel, readConnect, type UnsupportedConnect } from './connect.ts';
import { codeOfMalformedConnect, disconnected, endOf, rateLimits } from './ends.ts';
import { faults, type Malformed } from './fields.ts';
import { Frames } from './frames.ts';
import { costOf, InFlight, isRated, lengthOf, mustBeAlone } from './in-flight.ts';
import { refusalBytes } from './level-4.ts';
import { refusedConnect } from './level-5.ts';
import { checkConnect, checkLength, type PacketLimits } from './packet-limits.ts';
import { write } from './write.ts';

/** The receiver of packets: one call for each. */
export interface Receiver {
  /**
   * `done` is called once, with an error when the connection must end. `answered` is called before it where more than the
   * answer is sent: a client that leaves then needs no more of it.
   */
  receive(client: BrokerClient, packet: Packet, done: (error?: Error | null) => void, answered: () => void): void;
  /** Whether the message of this packet id is still on its way to the disk, for a former connection. */
  isBeingStored(client: BrokerClient, messageId: number): boolean;
  /** Whether nothing of this client is handled, because its account is on its way to another server. */
  isHeld(client: BrokerClient): boolean;
  /** Whether the next packet waits until one of those under way is done. */
  isFull(client: BrokerClient): boolean;
}

/** Is told what becomes of a connection. */
export interface ConnectionEvents {
  readonly clock: { now(): number };
  /** Its CONNECT has come: the client that it makes, whose credential is being proven from now on. */
  connected(connection: Connection, connect: Connect): BrokerClient;
  /** The CONNECT has been answered with CONNACK 1. */
  levelRefused(connect: UnsupportedConnect): void;
  /** The client begins to be slowed. */
  slowed(limit: LimitName): void;
  /** It has ended by an error before there was a client. */
  failed(error: Error): void;
}

const nothing = Buffer.alloc(0);
/** Bytes a second at which a packet arrives at least, if it is a sign of life before it is complete. */
const slowestPacket = 100;
/** Milliseconds that the last answers may take to leave before the socket is destroyed. */
const farewell = 5000;

/**
 * The states of a connection, in order: its CONNECT is awaited; its credential is being proven; packets are handled; nothing
 * more is read, and the last answers are leaving; the client has been told why it ends, and closes; it has ended.
 */
type State = 'awaiting CONNECT' | 'proving' | 'open' | 'draining' | 'leaving' | 'ended';

/**
 * What an open connection waits for before the next packet is handled: a packet that is handled alone, and that may have been
 * answered already; its rate; the turn of its account.
 */
type Wait = 'packet' | 'answered packet' | 'rate' | 'turn';

/**
 * Cuts the bytes of a connection into packets and hands these on in order. Messages and acknowledgements are on their way many at
 * once; every other packet waits for all before it, and all after it wait for it.
 */
export class Connection {
  #state: State = 'awaiting CONNECT';
  #wait: Wait | undefined;
  #isHanding = false;
  readonly #inFlight = new InFlight();
  readonly #frames = new Frames();
  /** Bytes of a CONNECT that is not told by them. */
  #begin: Buffer = nothing;
  #codec: Codec | undefined;
  /** When the packet that is arriving began, and its bytes. */
  readonly #arriving = { since: 0, bytes: 0 };
  /** The next packet, when it has to wait, and whether it has taken its part of the rate; or why the connection ends there. */
  #next: Packet | undefined;
  #hasPaid = false;
  #ending: Error | undefined;
  #client: BrokerClient | undefined;

  readonly #conn: Duplex;
  readonly #read: Duplex['read'];
  readonly #limits: PacketLimits;
  readonly #rate: PublishRate;
  readonly #receiver: Receiver;
  readonly #scheduler: Scheduler;
  readonly #events: ConnectionEvents;
  readonly #below: Duplex | undefined;

  /** `below` is the socket of a WebSocket, whose messages come here when they are complete. */
  constructor(
    conn: Duplex,
    limits: PacketLimits,
    rate: PublishRate,
    receiver: Receiver,
    scheduler: Scheduler,
    events: ConnectionEvents,
    below?: Duplex,
  ) {
    this.#conn = conn;
    this.#limits = limits;
    this.#rate = rate;
    this.#receiver = receiver;
    this.#scheduler = scheduler;
    this.#events = events;
    this.#below = below;
    below?.on('data', (chunk: Buffer) => this.#noteArriving(chunk.length));
    this.#read = conn.read.bind(conn);
    // Node reads 0 bytes to refill the buffer, and to notice the end: then nothing more could be written.
    conn.read = (size?: number) => (size === 0 && this.#hasWork() ? null : this.#read(size));
    conn.on('readable', () => {
      if (this.#state === 'awaiting CONNECT') this.#readConnect();
      else if (this.#state === 'open') this.#handOn();
      else if (this.#state === 'leaving') this.#discard();
    });
    conn.on('error', (error) => this.#lost(error));
    conn.on('end', () => this.#lost());
    conn.on('close', () => this.#lost());
  }

  /** Packets that were handed on and are not done. */
  get inFlight(): number {
    return this.#inFlight.size;
  }

  /** A message that has passed holds so many points. */
  charge(points: number): void {
    this.#rate.charge('points', points);
  }

  /** The client is let in: CONNACK with these properties, and packets are handed on from the next turn on. False if it is too long. */
  accept(isSessionPresent: boolean, properties: Properties): boolean {
    if (this.#state !== 'proving' || !this.#codec) return false;
    const bytes = this.#codec.accepted(isSessionPresent, properties);
    if (!bytes) {
      this.#endWith(refusedConnect(faults.tooLarge), () => this.#client?.close());
      return false;
    }
    write(this.#conn, bytes);
    this.#state = 'open';
    setImmediate(() => this.#handOn());
    return true;
  }

  /** CONNACK says why the client is not let in [MQTT-3.2.2-5]. */
  refuse(refusal: ConnectRefusal): void {
    if (this.#state !== 'proving' || !this.#codec) return;
    this.#endWith(this.#codec.refused(refusal), () => this.#client?.close());
  }

  /** As refuse, for a CONNECT that is malformed in a way that is found late; below level 5 it is not answered. */
  refuseMalformed({ code, message }: Malformed, end: () => void): void {
    if (this.#state === 'proving' && this.#codec?.level === 5) this.#endWith(refusedConnect(code, message), end);
    else end();
  }

  /**
   * The last bytes leave, and the client has a bounded time to close: one that writes on would lose what it has not read. What
   * it sends is thrown away. False when it has ended already.
   */
  leave(bytes: Buffer): boolean {
    const conn = this.#conn;
    if (this.#state === 'draining' || this.#state === 'ended' || conn.destroyed) return false;
    this.#state = 'leaving';
    write(conn, bytes);
    const timer = setTimeout(() => conn.destroy(), farewell);
    conn.once('close', () => clearTimeout(timer));
    conn.end();
    this.#discard();
    return true;
  }

  #discard(): void {
    while (this.#read() !== null);
  }

  #readConnect(): void {
    let isLevel5 = false;
    try {
      for (let chunk = this.#read(); chunk !== null; chunk = this.#read()) {
        const begin = this.#beginWith(chunk);
        if (!begin) continue;
        isLevel5 ||= this.#frames.isEmpty && beginsLevel5(begin);
        this.#frames.push(begin);
        const frame = this.#frames.next((first, length) => checkConnect(this.#limits, first, length));
        if (!frame) continue;
        const connect = readConnect(frame.body, this.#events.clock);
        if ('unsupportedLevel' in connect) {
          this.#endWith(refusalBytes('level'), () => this.#conn.destroy());
          this.#events.levelRefused(connect);
          return;
        }
        this.#codec = connect.codec;
        this.#state = 'proving';
        this.#client = this.#events.connected(this, connect);
        return;
      }
    } catch (error) {
      const code = codeOfMalformedConnect(error, isLevel5);
      if (code === undefined) {
        this.#state = 'ended';
        this.#conn.destroy(error as Error);
      } else this.#endWith(refusedConnect(code, (error as Error).message), () => this.#conn.destroy());
      this.#events.failed(error as Error);
    }
  }

  /** At first as many bytes as tell the level: a CONNECT that is too long is answered as its level is. */
  #beginWith(chunk: Buffer): Buffer | undefined {
    if (!this.#frames.isEmpty) return chunk;
    const begin = Buffer.concat([this.#begin, chunk]);
    this.#begin = mayTellLevel(begin) ? begin : nothing;
    return this.#begin === nothing ? begin : undefined;
  }

  readonly #checkLength = (first: number, length: number, isShortest: boolean): void => {
    checkLength(this.#limits, this.#codec?.level, first, length, isShortest);
  };

  /** While there is work, nobody must notice that the client has sent its last byte. */
  #hasWork(): boolean {
    if (this.#state === 'proving') return !this.#frames.isEmpty;
    if (this.#state === 'draining') return true;
    if (this.#state !== 'open') return false;
    if (this.#wait === 'answered packet') return !this.#frames.isEmpty;
    return this.#inFlight.size > 0 || this.#wait !== undefined || this.#next !== undefined;
  }

  #handOn(): void {
    const client = this.#client;
    if (this.#isHanding || !client) return;
    this.#isHanding = true;
    let handed = 0;
    while (this.#mayHandOn(client) && !this.#receiver.isHeld(client) && !this.#receiver.isFull(client)) {
      if (this.#scheduler.isOver) {
        this.#waitForTurn(client);
        break;
      }
      const packet = this.#take();
      if (!packet) break;
      handed += 1;
      this.#scheduler.spend(costOf(packet));
      this.#hand(client, packet);
    }
    this.#isHanding = false;
    if (handed > 0) client.keepAlive();
    if (this.#ending && this.#inFlight.size === 0 && this.#state === 'open') this.#end(client, this.#ending);
  }

  #mayHandOn({ closed }: BrokerClient): boolean {
    if (this.#state !== 'open' || closed || this.#wait || this.#ending) return false;
    return this.#inFlight.hasRoom;
  }

  #waitForTurn(client: BrokerClient): void {
    this.#wait = 'turn';
    // In its turn the account goes on as far as there is time, and then waits again.
    this.#scheduler.wait(laneOfClient(client.live), () => {
      this.#wait = undefined;
      this.#handOn();
    });
    // It has sent something, which has to wait.
    client.keepAlive();
  }

  /** The next packet, when it may be handed on now. */
  #take(): Packet | undefined {
    this.#next ??= this.#parse();
    const packet = this.#next;
    if (!packet) return undefined;
    if (!this.#hasPaid && isRated(packet) && !this.#rate.take()) {
      this.#slow();
      return undefined;
    }
    if (!this.#hasPaid && packet.cmd === 'publish') this.#rate.charge('bytes', lengthOf(packet));
    this.#hasPaid = true;
    if (this.#inFlight.size > 0 && mustBeAlone(packet, this)) return undefined;
    this.#next = undefined;
    this.#hasPaid = false;
    return packet;
  }

  #parse(): Packet | undefined {
    try {
      for (;;) {
        const frame = this.#frames.next(this.#checkLength);
        if (frame) {
          this.#arriving.bytes = 0;
          return this.#codec?.read(frame);
        }
        // With a size, the end of the stream is not noticed; without one, it is.
        const { readableLength } = this.#conn;
        const chunk: Buffer | null =
          readableLength > 0 ? this.#read(readableLength) : this.#inFlight.size > 0 ? null : this.#read();
        if (chunk === null) return undefined;
        if (!this.#below) this.#noteArriving(chunk.length);
        this.#frames.push(chunk);
      }
    } catch (error) {
      this.#ending = error as Error;
      return undefined;
    }
  }

  /** A long packet over a slow network is a sign of life; a byte now and then is none. */
  #noteArriving(length: number): void {
    const arriving = this.#arriving;
    const now = this.#events.clock.now();
    if (arriving.bytes === 0) arriving.since = now;
    arriving.bytes += length;
    if (arriving.bytes * 1000 >= (now - arriving.since) * slowestPacket) this.#client?.keepAlive();
  }

  /** Whether what is known of this packet id may be about to change. */
  isUnsettled(messageId: number): boolean {
    return this.#inFlight.has(messageId) || (!!this.#client && this.#receiver.isBeingStored(this.#client, messageId));
  }

  #hand(client: BrokerClient, packet: Packet): void {
    if (packet.cmd === 'disconnect') {
      disconnected(client, packet);
      this.#drain(() => client.close());
      return;
    }
    const isAlone = mustBeAlone(packet, this);
    if (isAlone) this.#wait = 'packet';
    const taken = this.#inFlight.take(packet);
    const done = (error?: Error | null) => {
      this.#inFlight.giveBack(taken);
      if (isAlone) this.#wait = undefined;
      if (error) this.#failed(client, error);
      else if (!this.#isHanding) this.#handOn();
    };
    this.#receiver.receive(client, packet, done, () => {
      if (this.#wait === 'packet') this.#wait = 'answered packet';
      // The end of the client may be waiting to be noticed.
      this.#conn.read(0);
    });
  }

  /** An error that was known at once ends the connection in its turn; one that has waited for its turn, now. */
  #failed(client: BrokerClient, error: Error): void {
    this.#ending ??= error;
    if (!this.#isHanding && this.#state === 'open') this.#end(client, this.#ending);
  }

  #end(client: BrokerClient, error: Error): void {
    const { code, sentence } = endOf(error);
    const bytes = client.codec.disconnect(code, sentence);
    if (bytes) client.leaveWith(bytes, error);
    else this.#drain(() => client.fail(error));
  }

  #endWith(bytes: Buffer, last: () => void): void {
    write(this.#conn, bytes);
    this.#drain(last);
  }

  /** Nothing more is read; `last` is called when what has been written is gone, within a bounded time. */
  #drain(last: () => void): void {
    const conn = this.#conn;
    this.#state = 'ended';
    // A socket that is closed with unread bytes is reset, and the client may lose what it has not read yet.
    while (conn.readableLength > 0) this.#read(conn.readableLength);
    if (conn.destroyed || conn.writableLength === 0) {
      last();
      return;
    }
    this.#state = 'draining';
    const leave = () => {
      if (this.#state !== 'draining') return;
      this.#state = 'ended';
      clearTimeout(timer);
      last();
    };
    const timer = setTimeout(leave, farewell);
    conn.once('close', leave);
    conn.end(leave);
  }

  /** The socket is gone, or the client has sent its last byte. A DISCONNECT that has arrived counts, whatever was waiting. */
  #lost(error?: Error): void {
    const client = this.#client;
    if (this.#state === 'draining') return;
    if (this.#state === 'leaving') {
      this.#conn.destroy();
      return;
    }
    if (!client) {
      if (error && this.#state !== 'ended') this.#events.failed(error);
      this.#state = 'ended';
      this.#conn.destroy();
      return;
    }
    if (this.#state === 'open') {
      try {
        for (let packet = this.#next ?? this.#readLeft(); packet; packet = this.#readLeft())
          if (packet.cmd === 'disconnect') disconnected(client, packet);
      } catch {
        // The rest of a malformed packet is not read.
      }
    }
    this.#state = 'ended';
    if (error) client.fail(error);
    else client.close();
  }

  #readLeft(): Packet | undefined {
    const frame = this.#frames.next(this.#checkLength);
    return frame && this.#codec?.read(frame);
  }

  /** Nothing is handed on until the next slice. */
  #slow(): void {
    const conn = this.#conn;
    const { wait, over, begins, tooLong } = this.#rate.slow();
    if (tooLong) {
      const error = new OverLimit(rateLimits[over]);
      if (this.#client && this.#client.codec.level === 5) this.#end(this.#client, error);
      else conn.destroy(error);
      return;
    }
    if (begins) this.#events.slowed(rateLimits[over]);
    this.#wait = 'rate';
    const goOn = setTimeout(() => {
      conn.off('close', forget);
      this.#wait = undefined;
      this.#handOn();
    }, wait);
    const forget = () => clearTimeout(goOn);
    conn.once('close', forget);
  }
}
