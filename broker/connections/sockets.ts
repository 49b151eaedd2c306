import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Properties } from '../../src/core/formats/message-properties.ts';
import { peerAddress, type Trust } from '../../src/core/network/addresses.ts';
import type { Scheduler } from '../../src/core/scheduler/scheduler.ts';
import type { BrokerServices } from '../../src/ports/broker-ports.ts';
import type { BrokerClient } from '../client-types.ts';
import { beginsLevel5, type Connect, type UnsupportedConnect } from '../packets/connect.ts';
import { Connection, type Receiver } from '../packets/connection.ts';
import { refusedConnect } from '../packets/level-5.ts';
import type { PacketLimits } from '../packets/packet-limits.ts';
import { variableOf } from './counters.ts';
import type { Limits, NetworkLimit } from './limits.ts';
import { takeProxyHeader } from './proxy-protocol.ts';
import { PublishRate } from './publish-rate.ts';
import { faultOf } from './safe-error.ts';

/** Bytes of topic and packet id that a PUBLISH may hold next to its payload. */
export const publishOverhead = 4096;
/** Bytes of any packet that is neither CONNECT nor PUBLISH, at least; a SUBSCRIBE of many filters is the largest. */
const otherPackets = 65_536;
/** Bytes next to a CONNECT packet that its WebSocket frames, or packets sent along with it, may take. */
const webSocketOverhead = 65_536;

/** Sockets that may wait to be told that a limit lets them no further, and the milliseconds that they have for their CONNECT. */
const maxTurnedAway = 64;
const patience = 5000;
/** What CONNACK of MQTT 5 says of a limit that strikes before CONNECT. */
const busy = { max_connections: 0x89, max_connections_per_address: 0x97, connect_rate_per_address: 0x9f } as const;

/** A connection that has sent a CONNECT. */
export interface Connecting {
  conn: Duplex;
  connection: Connection;
  connect: Connect;
  /** The request of a WebSocket. */
  request: IncomingMessage | undefined;
  /** The client is let in: the deadline is over, and the larger limits hold. */
  accept(isSessionPresent: boolean, properties: Properties): boolean;
}

/** The services of the sockets. */
export interface SocketParts {
  services: BrokerServices;
  limits: Limits;
  /** The proxies that say on whose behalf a connection comes. */
  trusts: Trust;
  /** Is given each CONNECT: the client that it makes. */
  connected(connecting: Connecting): BrokerClient;
  /** Is given the packets after it, at the pace of all. */
  receiver: Receiver;
  scheduler: Scheduler;
  /** Is told of a CONNECT that was answered with CONNACK 1. */
  levelRefused(conn: Duplex, connect: UnsupportedConnect): void;
  /** Is told of the error by which a connection has ended that had sent no CONNECT. */
  failed(conn: Duplex, error: Error): void;
}

/**
 * Every accepted socket, and the stream that is on it. Each has one deadline, from its turn to CONNACK, whatever is between
 * (a TLS handshake, an HTTP head), and size limits for its packets.
 */
export class Sockets {
  readonly #parts: SocketParts;
  readonly #packetLimits: PacketLimits;
  /** Everything that has to be ended: accepted sockets, and the streams that are on them. */
  readonly #connections = new Set<Duplex>();
  readonly #deadlines = new WeakMap<Duplex, NodeJS.Timeout>();
  /** Those that a limit lets no further, and that have not been told so. */
  #turnedAway = 0;

  constructor(parts: SocketParts) {
    this.#parts = parts;
    const { mqtt } = parts.services.config;
    this.#packetLimits = {
      connect: unlessOff(mqtt.maxPacketBytesBeforeConnect),
      publish: unlessOff(mqtt.maxPayloadBytes) + publishOverhead,
      properties: propertiesOf(mqtt),
      // As long as CONNACK says that any may be.
      other: Math.max(otherPackets, largestPacket(mqtt) ?? 0),
    };
  }

  /** From accept to the first byte of MQTT or TLS: a place, what a proxy says of it, its turn. */
  enter(socket: Socket, go: () => void): void {
    if (!this.#parts.limits.enter(socket)) {
      this.#turnAway(socket, 'max_connections');
      return;
    }
    this.track(socket);
    this.deadline(socket);
    socket.on('error', (error) =>
      this.#parts.services.log.debug({ err: error, ...this.#parts.limits.about(socket) }, 'a socket failed'),
    );
    const peer = peerAddress(socket);
    // Nobody is above who would take an error of what has to be read then: it would end the process.
    const enter = () => {
      try {
        go();
      } catch (error) {
        this.#parts.services.log.error({ fault: faultOf(error) }, 'a socket could not be taken');
        socket.destroy();
      }
    };
    const locate = (address: string | undefined) =>
      this.locate(socket, address, enter, (limit) => this.#turnAway(socket, limit));
    if (peer === undefined || !this.#parts.trusts(peer)) {
      locate(peer);
      return;
    }
    takeProxyHeader(socket, (header) => {
      if (header.is === 'malformed') socket.destroy();
      else locate((header.is === 'present' && header.address) || peer);
    });
  }

  /** Calls one of both, `go` at its turn. Who has to wait for that has all of the time from then on. */
  locate(socket: Duplex, address: string | undefined, go: () => void, refuse: (limit: NetworkLimit) => void): void {
    let isWaiting = true;
    const goOn = () => {
      isWaiting = false;
      this.deadline(socket);
    };
    this.#parts.limits.locate(
      socket,
      address,
      () => {
        goOn();
        go();
      },
      (limit) => {
        goOn();
        refuse(limit);
      },
    );
    if (!isWaiting) return;
    clearTimeout(this.#deadlines.get(socket));
    this.#deadlines.delete(socket);
  }

  /** A limit lets it no further: a client of MQTT 5 is told so, if its CONNECT comes soon and not too many wait for theirs. */
  #turnAway(socket: Socket, limit: keyof typeof busy): void {
    if (socket.destroyed || this.#turnedAway >= maxTurnedAway) {
      socket.destroy();
      return;
    }
    this.#turnedAway += 1;
    this.track(socket);
    // What has come while the process was busy is read first.
    const timer = setTimeout(() => setImmediate(() => socket.destroy()), patience);
    socket.on('error', () => {});
    socket.once('close', () => {
      clearTimeout(timer);
      this.#turnedAway -= 1;
    });
    socket.once('data', (begin: Buffer) => {
      if (beginsLevel5(begin)) socket.end(refusedConnect(busy[limit], `${variableOf(limit)}: try again later.`));
      else socket.destroy();
    });
    socket.resume();
  }

  /** A connection speaks MQTT: its packets are limited and go to the receiver. `request` is that of a WebSocket. */
  accept(conn: Duplex, deadline: NodeJS.Timeout | undefined, request?: IncomingMessage): void {
    if (request) this.#parts.limits.follow(conn, request.socket);
    const { ages: clock, config } = this.#parts.services;
    const { publishRatePerClient, byteRatePerClient, pointRatePerClient } = config.mqtt;
    const rates = {
      packets: unlessOff(publishRatePerClient),
      bytes: unlessOff(byteRatePerClient),
      points: unlessOff(pointRatePerClient),
    };
    const rate = new PublishRate(rates, clock);
    const { limits, receiver, scheduler } = this.#parts;
    this.track(conn);
    const release = request ? this.#countBytes(request.socket) : () => {};
    new Connection(
      conn,
      this.#packetLimits,
      rate,
      receiver,
      scheduler,
      {
        clock,
        slowed: (limit) => limits.hit(limit, limits.about(conn)),
        levelRefused: (connect) => this.#parts.levelRefused(conn, connect),
        failed: (error) => this.#parts.failed(conn, error),
        connected: (connection, connect) => {
          const accept = (isSessionPresent: boolean, properties: Properties) => {
            clearTimeout(deadline);
            release();
            return connection.accept(isSessionPresent, properties);
          };
          return this.#parts.connected({ conn, connection, connect, request, accept });
        },
      },
      request?.socket,
    );
  }

  /** Ends a socket that has not got its CONNACK in time; the one it is on has begun the time already. */
  deadline(socket: Duplex, base = socket): NodeJS.Timeout | undefined {
    const { connectTimeout } = this.#parts.services.config.mqtt;
    const running = this.#deadlines.get(base);
    if (running) this.#deadlines.set(socket, running);
    if (running || connectTimeout === 0) return running;
    const timer = setTimeout(() => {
      this.#parts.limits.hit('connect_timeout_seconds', this.#parts.limits.about(socket));
      socket.destroy();
    }, connectTimeout);
    this.#deadlines.set(socket, timer);
    socket.once('close', () => clearTimeout(timer));
    return timer;
  }

  /** A WebSocket message is buffered before its packets can be seen: until CONNACK its bytes are counted on the socket. */
  #countBytes(socket: Socket): () => void {
    const most = this.#packetLimits.connect + webSocketOverhead;
    let seen = 0;
    const count = (chunk: Buffer) => {
      seen += chunk.length;
      if (seen <= most || socket.destroyed) return;
      this.#parts.limits.hit('max_packet_bytes_before_connect', this.#parts.limits.about(socket));
      socket.destroy();
    };
    socket.on('data', count);
    return () => socket.off('data', count);
  }

  /** Ends it with the others. */
  track(conn: Duplex): void {
    this.#connections.add(conn);
    conn.on('close', () => this.#connections.delete(conn));
  }

  /** Ends what is still open, connections without a CONNECT among them. */
  end(): void {
    for (const conn of this.#connections) conn.destroy();
  }
}

/** Bytes of properties that one PUBLISH may have, whatever becomes of it. */
function propertiesOf({ maxPropertyBytes }: { maxPropertyBytes: number }): number {
  return maxPropertyBytes || otherPackets;
}

/** Bytes of the largest packet that CONNACK permits; undefined where payloads have no limit. */
export function largestPacket(mqtt: { maxPayloadBytes: number; maxPropertyBytes: number }): number | undefined {
  return mqtt.maxPayloadBytes > 0 ? mqtt.maxPayloadBytes + publishOverhead + propertiesOf(mqtt) : undefined;
}

function unlessOff(limit: number): number {
  return limit === 0 ? Number.POSITIVE_INFINITY : limit;
}
