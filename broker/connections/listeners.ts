import { randomBytes } from 'node:crypto';
import { createServer as createHttpServer, type Server as HttpServer, type IncomingMessage } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { createServer as createTlsServer, type TLSSocket, Server as TlsServer } from 'node:tls';
import { createWebSocketStream, type WebSocket, WebSocketServer } from 'ws';
import type { BrokerServices } from '../../src/broker-ports.js';
import { forwardedAddress, peerAddress, type Trust, trustOf } from '../../src/network/addresses.js';
import type { BrokerClient } from '../aedes-types.js';
import { Inbound, type PacketLimits, type Receiver } from '../packets/inbound.js';
import type { Pace } from '../packets/pace.js';
import type { Dialect } from '../packets/read.js';
import type { LimitName } from './counters.js';
import { upgradeDecliner } from './declined-upgrade.js';
import { Handshakes } from './handshakes.js';
import type { Limits } from './limits.js';
import type { PeerCertificates } from './peer-certificates.js';
import { takeProxyHeader } from './proxy-protocol.js';
import { PublishRate } from './publish-rate.js';
import { faultOf } from './safe-error.js';

/** Many clients name no path of their own. */
const webSocketPaths: readonly string[] = ['/mqtt', '/'];
const subprotocols = ['mqtt', 'mqttv3.1'];
/** First byte of a CONNECT packet, which no HTTP request begins with. */
const connectByte = 0x10;
/** Bytes of topic and packet id that a PUBLISH may hold next to its payload. */
const publishOverhead = 4096;
/** Bytes of any packet that is neither CONNECT nor PUBLISH; a SUBSCRIBE of many filters is the largest. */
const otherPackets = 65_536;
/** Bytes of one WebSocket message, which may hold several packets. */
const webSocketMessage = 1_048_576;
/** Bytes next to a CONNECT packet that its WebSocket frames, or packets sent along with it, may take. */
const webSocketOverhead = 65_536;
/** Milliseconds. */
const handshakeTimeout = 10_000;
const keepAliveDelay = 60_000;
const ticketKeyBytes = 48;
/** Bytes that no honest client sends in a handshake that then fails. */
const maxHandshakeBytes = 16_384;

/** TLS 1.2 with forward secrecy and authenticated encryption; the suites of TLS 1.3 are all of that kind. */
const ciphers = [
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'TLS_AES_128_GCM_SHA256',
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-RSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305',
  'ECDHE-RSA-CHACHA20-POLY1305',
].join(':');

type Certificate = Pick<NonNullable<BrokerServices['config']['tls']>, 'chain' | 'key'>;

function secured({ chain, key }: Certificate) {
  return { cert: chain, key, ciphers, minVersion: 'TLSv1.2' } as const;
}

/** Nobody is trusted here to have signed a client's certificate. */
function asked(certificate: Certificate) {
  // No session with a certificate is resumed without one; Node's own would be a digest of the command line.
  return { ...secured(certificate), ca: [], sessionIdContext: 'slipway-mqtts' };
}

/** The receiver of a connection that speaks MQTT. */
export type Handle = (conn: Duplex, request?: IncomingMessage) => BrokerClient;

interface Waiting {
  deadline: NodeJS.Timeout | undefined;
  /** Stops counting the bytes of a WebSocket connection. */
  release(): void;
}

/**
 * Where MQTT comes in: TCP, WebSocket, and TLS with both on one port. Each socket has one deadline, from accept to
 * CONNACK, whatever is between (a TLS handshake, an HTTP head), and each connection has size limits.
 */
export class Listeners {
  readonly #services: BrokerServices;
  readonly #handle: Handle;
  readonly #receiver: Receiver;
  readonly #pace: Pace;
  readonly #limits: Limits;
  readonly #peers: PeerCertificates;
  readonly #packetLimits: PacketLimits;
  readonly #trusts: Trust;
  readonly #webSockets: WebSocketServer;
  readonly #plain: Server;
  readonly #secure: Server | undefined;
  readonly #secureHttp: HttpServer | undefined;
  /** The TLS behind the port: one that asks for certificates, and one for as long as nobody has registered any. */
  readonly #tls: { asking: TlsServer; plain: TlsServer } | undefined;
  /** Everything that has to be ended: accepted sockets, and the streams that are on them. */
  readonly #connections = new Set<Duplex>();
  readonly #waiting = new WeakMap<Duplex, Waiting>();
  readonly #inbounds = new WeakMap<Duplex, Inbound>();
  readonly #deadlines = new WeakMap<Duplex, NodeJS.Timeout>();

  /** Connections are given to `handle`, and their packets after CONNECT to `receiver`, at the `pace` of all. */
  constructor(
    services: BrokerServices,
    limits: Limits,
    peers: PeerCertificates,
    handle: Handle,
    { receiver, pace }: { receiver: Receiver; pace: Pace },
  ) {
    this.#services = services;
    this.#limits = limits;
    this.#peers = peers;
    this.#trusts = trustOf(services.config.trustedProxies);
    this.#handle = handle;
    this.#receiver = receiver;
    this.#pace = pace;
    const { mqtt, tls } = services.config;
    this.#packetLimits = {
      connect: unlessOff(mqtt.maxPacketBytesBeforeConnect),
      publish: unlessOff(mqtt.maxPayloadBytes) + publishOverhead,
      other: otherPackets,
    };
    this.#webSockets = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      perMessageDeflate: false,
      maxPayload: Math.max(webSocketMessage, mqtt.maxPayloadBytes + publishOverhead),
      handleProtocols: (offered) => subprotocols.find((protocol) => offered.has(protocol)) ?? false,
    });
    // Without noDelay a small packet waits 40 ms for the acknowledgement of the one before it.
    const options = { noDelay: true, keepAlive: true, keepAliveInitialDelay: keepAliveDelay, pauseOnConnect: true };
    this.#plain = createServer(options, (socket) => {
      this.#enter(socket, () => this.#accept(socket, this.#deadline(socket)));
    });
    if (!tls) return;
    const secureHttp = createHttpServer((_, response) => response.writeHead(426, { upgrade: 'websocket' }).end());
    this.#secureHttp = secureHttp;
    this.attachWebSocket(secureHttp);
    this.#tls = {
      plain: createTlsServer({ ...secured(tls), handshakeTimeout }),
      // A certificate is welcome and never demanded; authenticate.ts judges it.
      asking: createTlsServer({ ...asked(tls), handshakeTimeout, requestCert: true, rejectUnauthorized: false }),
    };
    const { plain, asking } = this.#tls;
    for (const server of [plain, asking]) this.#serveTls(server, secureHttp);
    // They never listen: what they are handed has been counted, and stripped of what a proxy has put before the handshake.
    this.#secure = createServer(options, (socket) =>
      this.#enter(socket, () => {
        if (limits.isShunned(limits.addressOf(socket))) socket.destroy();
        else (services.certificates.areUsed() ? asking : plain).emit('connection', socket);
      }),
    );
  }

  /** The ports in use. */
  get addresses(): { mqtt: number; mqtts: number | undefined } {
    return { mqtt: portOf(this.#plain) ?? 0, mqtts: this.#secure && portOf(this.#secure) };
  }

  /** Shows another certificate to connections that begin from now on; those that are open go on. */
  useCertificate(tls: Certificate): void {
    this.#tls?.plain.setSecureContext(secured(tls));
    this.#tls?.asking.setSecureContext(asked(tls));
  }

  /** Whether every port is open. */
  get areOpen(): boolean {
    return this.#plain.listening && this.#secure?.listening !== false;
  }

  /** @throws Error when a port cannot be had. */
  async listen(): Promise<void> {
    const { host, mqttPort, mqttsPort } = this.#services.config;
    const failed = (error: Error) => this.#services.log.error({ err: error }, 'a listener failed');
    await listenOn(this.#plain, mqttPort, host, failed);
    if (this.#secure) await listenOn(this.#secure, mqttsPort, host, failed);
  }

  /** Serves MQTT over WebSocket at `/mqtt` and `/` of an HTTP server; closing the server ends these connections. */
  attachWebSocket(server: HttpServer): void {
    const upgraded = new Set<Duplex>();
    const decline = upgradeDecliner(server);
    let closing = false;
    server.on('upgrade', (request, socket, head) => {
      // Nothing else on this server serves upgrades, so each one is answered here.
      if (request.headers.upgrade?.toLowerCase() !== 'websocket') {
        decline(request, socket, head);
        return;
      }
      if (!webSocketPaths.includes(request.url?.split('?', 1)[0] ?? '')) {
        refuseUpgrade(socket, '404 Not Found');
        return;
      }
      if (closing) {
        refuseUpgrade(socket, '503 Service Unavailable');
        return;
      }
      const offered = request.headers['sec-websocket-protocol']?.split(',').map((protocol) => protocol.trim());
      if (offered && !offered.some((protocol) => subprotocols.includes(protocol))) {
        refuseUpgrade(socket, '400 Bad Request');
        return;
      }
      const deadline = this.#deadline(socket);
      upgraded.add(socket);
      socket.once('close', () => upgraded.delete(socket));
      this.#enterUpgrade(request, () => {
        this.#webSockets.handleUpgrade(request, socket, head, (ws) => this.#acceptWebSocket(ws, request, deadline));
      });
    });
    const handshakes = server instanceof TlsServer ? new Handshakes(server) : undefined;
    server.on('secureConnection', (socket: TLSSocket) => handshakes?.take(socket));
    // An HTTP server waits for these sockets when it closes, and none of its own methods ends them.
    const close = server.close.bind(server);
    server.close = (done) => {
      closing = true;
      for (const socket of upgraded) socket.destroy();
      handshakes?.end();
      return close(done);
    };
  }

  /** The settings of a connection's CONNECT for its packets. */
  dialectOf(conn: Duplex): Dialect | undefined {
    return this.#inbounds.get(conn)?.dialect;
  }

  /** CONNACK has been sent: the deadline is over, and the larger limits hold. */
  ready(client: BrokerClient): void {
    const { conn } = client;
    const waiting = this.#waiting.get(conn);
    if (!waiting) return;
    clearTimeout(waiting.deadline);
    waiting.release();
    this.#inbounds.get(conn)?.open(client);
    this.#waiting.delete(conn);
  }

  /** From now on every TLS handshake is a full one, with all certificates, until its own session is resumed. */
  forgetTlsSessions(): void {
    this.#tls?.asking.setTicketKeys(randomBytes(ticketKeyBytes));
  }

  /** A message that has passed on this connection holds so many points. */
  charge(conn: Duplex, points: number): void {
    this.#inbounds.get(conn)?.charge(points);
  }

  /** Stops accepting; connections go on. */
  stop(): void {
    // Only a server that listens answers to close.
    for (const server of [this.#plain, this.#secure]) if (server?.listening) server.close();
  }

  /** Ends what is still open, connections without a CONNECT among them. */
  end(): void {
    for (const conn of this.#connections) conn.destroy();
    this.#secureHttp?.closeAllConnections();
    this.#webSockets.close();
  }

  /** From accept to the first byte of MQTT or TLS: a place, what a proxy says of it, its turn. */
  #enter(socket: Socket, go: () => void): void {
    if (!this.#limits.enter(socket)) {
      socket.destroy();
      return;
    }
    this.#track(socket);
    this.#deadline(socket);
    socket.on('error', (error) =>
      this.#services.log.debug({ err: error, ...this.#limits.about(socket) }, 'a socket failed'),
    );
    const peer = peerAddress(socket);
    // Nobody is above who would take an error of what has to be read then: it would end the process.
    const enter = () => {
      try {
        go();
      } catch (error) {
        this.#services.log.error({ fault: faultOf(error) }, 'a socket could not be taken');
        socket.destroy();
      }
    };
    const locate = (address: string | undefined) =>
      this.#limits.locate(socket, address, enter, () => {
        socket.destroy();
      });
    if (peer === undefined || !this.#trusts(peer)) {
      locate(peer);
      return;
    }
    takeProxyHeader(socket, (header) => {
      if (header.is === 'malformed') socket.destroy();
      else locate((header.is === 'present' && header.address) || peer);
    });
  }

  /** The same for a request to speak MQTT over WebSocket, which may say on whose behalf it comes. */
  #enterUpgrade({ socket, headers }: IncomingMessage, go: () => void): void {
    const refuse = (limit: LimitName) => refuseUpgrade(socket, '503 Service Unavailable', `over the limit ${limit}`);
    if (!this.#limits.enter(socket)) {
      refuse('max_connections');
      return;
    }
    socket.on('error', (error) =>
      this.#services.log.debug({ err: error, ...this.#limits.about(socket) }, 'a socket failed'),
    );
    const peer = this.#limits.addressOf(socket) ?? peerAddress(socket);
    const address = forwardedAddress(peer, headers['x-forwarded-for'], this.#trusts);
    this.#limits.locate(socket, address, go, refuse);
  }

  #accept(conn: Duplex, deadline: NodeJS.Timeout | undefined, request?: IncomingMessage): void {
    if (request) this.#limits.follow(conn, request.socket);
    const { clock, config } = this.#services;
    const { publishRatePerClient, byteRatePerClient, pointRatePerClient } = config.mqtt;
    const rates = {
      packets: unlessOff(publishRatePerClient),
      bytes: unlessOff(byteRatePerClient),
      points: unlessOff(pointRatePerClient),
    };
    const rate = new PublishRate(rates, clock);
    const inbound = new Inbound(conn, this.#packetLimits, rate, this.#receiver, this.#pace, (limit) => {
      this.#limits.hit(limit, this.#limits.about(conn));
    });
    this.#inbounds.set(conn, inbound);
    this.#track(conn);
    this.#waiting.set(conn, { deadline, release: request ? this.#countBytes(request.socket) : () => {} });
    this.#handle(conn, request);
  }

  #acceptWebSocket(ws: WebSocket, request: IncomingMessage, deadline: NodeJS.Timeout | undefined): void {
    ws.on('message', (_, isBinary) => {
      // MQTT packets travel in binary frames only [MQTT-6.0.0-1].
      if (!isBinary) ws.close(1003);
    });
    this.#accept(createWebSocketStream(ws), deadline, request);
  }

  /** Handles a finished or failed handshake. */
  #serveTls(server: TlsServer, http: HttpServer): void {
    const handshakes = new Handshakes(server, (socket) => {
      if (socket.bytesRead > maxHandshakeBytes) this.#limits.shun(socket);
    });
    server.on('secureConnection', (socket) => {
      const below = handshakes.take(socket);
      if (below) this.#limits.follow(socket, below);
      if (!this.#peers.read(socket)) {
        this.#limits.shun(socket);
        socket.destroy();
        return;
      }
      this.#tellApart(socket, this.#deadline(socket, below), http);
    });
    server.on('tlsClientError', (error, socket) => {
      const below = handshakes.of(socket);
      this.#services.log.debug({ err: error, ...(below && this.#limits.about(below)) }, 'TLS handshake failed');
      socket.destroy();
    });
  }

  /** Over TLS, native MQTT and HTTP share the port: the first byte says which it is. */
  #tellApart(socket: TLSSocket, deadline: NodeJS.Timeout | undefined, http: HttpServer): void {
    this.#track(socket);
    const failed = (error: Error) =>
      this.#services.log.debug({ err: error, ...this.#limits.about(socket) }, 'TLS connection failed');
    socket.on('error', failed);
    socket.once('readable', () => {
      const first: Buffer | null = socket.read();
      if (first === null) {
        socket.destroy();
        return;
      }
      socket.unshift(first);
      if (first[0] === connectByte) {
        socket.off('error', failed);
        this.#accept(socket, deadline);
        return;
      }
      http.emit('connection', socket);
      socket.resume();
    });
  }

  /** Ends a socket that has not got its CONNACK in time; the one it is on has begun the time already. */
  #deadline(socket: Duplex, base = socket): NodeJS.Timeout | undefined {
    const { connectTimeout } = this.#services.config.mqtt;
    const running = this.#deadlines.get(base);
    if (running) this.#deadlines.set(socket, running);
    if (running || connectTimeout === 0) return running;
    const timer = setTimeout(() => {
      this.#limits.hit('connect_timeout_seconds', this.#limits.about(socket));
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
      this.#limits.hit('max_packet_bytes_before_connect', this.#limits.about(socket));
      socket.destroy();
    };
    socket.on('data', count);
    return () => socket.off('data', count);
  }

  #track(conn: Duplex): void {
    this.#connections.add(conn);
    conn.once('close', () => this.#connections.delete(conn));
  }
}

function unlessOff(limit: number): number {
  return limit === 0 ? Number.POSITIVE_INFINITY : limit;
}

function portOf(server: Server): number | undefined {
  return (server.address() as AddressInfo | null)?.port;
}

/** `failed` gets later errors, such as no file descriptors left. They must not end the process. */
function listenOn(server: Server, port: number, host: string, failed: (error: Error) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      server.on('error', failed);
      resolve();
    });
  });
}

/** An HTTP server leaves the other half of a socket open; one that nobody reads would never close. */
function refuseUpgrade(socket: Duplex, status: string, why = ''): void {
  socket.on('error', () => {});
  const head = `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: ${why.length}\r\n\r\n`;
  socket.end(head + why, () => socket.destroy());
}
