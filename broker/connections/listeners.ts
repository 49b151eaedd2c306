import type { Server as HttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { listenWide } from '../../src/core/network/accepting.ts';
import { trustOf } from '../../src/core/network/addresses.ts';
import type { BrokerServices, BrokerState } from '../../src/ports/broker-ports.ts';
import type { PeerCertificates } from './peer-certificates.ts';
import { type SocketParts, Sockets } from './sockets.ts';
import { type Certificate, TlsPort } from './tls.ts';
import { WebSockets } from './web-sockets.ts';

/** Milliseconds. */
const keepAliveDelay = 60_000;
/** Without noDelay a small packet waits 40 ms for the acknowledgement of the one before it. */
const socketOptions = {
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: keepAliveDelay,
  pauseOnConnect: true,
} as const;

export interface ListenerParts extends Omit<SocketParts, 'trusts'> {
  peers: PeerCertificates;
  /** Has the ports in use when they have been opened. */
  addresses: BrokerState['addresses'];
}

/** Where MQTT comes in: TCP, WebSocket, and TLS with both on one port. */
export class Listeners {
  readonly #services: BrokerServices;
  readonly #sockets: Sockets;
  readonly #webSockets: WebSockets;
  readonly #plain: Server;
  readonly #tls: TlsPort | undefined;
  readonly #addresses: ListenerParts['addresses'];

  constructor({ peers, addresses, ...others }: ListenerParts) {
    const { services } = others;
    this.#services = services;
    this.#addresses = addresses;
    const parts = { ...others, trusts: trustOf(services.config.trustedProxies) };
    const sockets = new Sockets(parts);
    const webSockets = new WebSockets(parts, sockets);
    this.#sockets = sockets;
    this.#webSockets = webSockets;
    this.#plain = createServer(socketOptions, (socket) => {
      sockets.enter(socket, () => sockets.accept(socket, sockets.deadline(socket)));
    });
    const { tls } = services.config;
    if (tls) this.#tls = new TlsPort({ ...parts, peers, sockets, webSockets }, tls, socketOptions);
  }

  /** Shows another certificate to connections that begin from now on; those that are open go on. */
  useCertificate(tls: Certificate): void {
    this.#tls?.useCertificate(tls);
  }

  /** Whether every port is open. */
  get areOpen(): boolean {
    return this.#plain.listening && this.#tls?.server.listening !== false;
  }

  /** @throws Error when a port cannot be had. */
  async listen(): Promise<void> {
    const { host, mqttPort, mqttsPort } = this.#services.config;
    const failed = (error: Error) => this.#services.log.error({ err: error }, 'a listener failed');
    for (const [server, port] of [
      [this.#plain, mqttPort],
      [this.#tls?.server, mqttsPort],
    ] as const) {
      if (!server) continue;
      await listenWide(server, { port, host }, socketOptions);
      // Such as no file descriptors left. They must not end the process.
      server.on('error', failed);
    }
    this.#addresses.mqtt = portOf(this.#plain);
    if (this.#tls) this.#addresses.mqtts = portOf(this.#tls.server);
  }

  /** Serves MQTT over WebSocket at `/mqtt` and `/` of an HTTP server; closing the server ends these connections. */
  attachWebSocket(server: HttpServer): void {
    this.#webSockets.attach(server);
  }

  /** From now on every TLS handshake is a full one, with all certificates, until its own session is resumed. */
  forgetTlsSessions(): void {
    this.#tls?.forgetSessions();
  }

  /** Stops accepting; connections go on. */
  stop(): void {
    // Only a server that listens answers to close.
    for (const server of [this.#plain, this.#tls?.server]) if (server?.listening) server.close();
  }

  /** Ends what is still open, connections without a CONNECT among them. */
  end(): void {
    this.#sockets.end();
    this.#tls?.end();
    this.#webSockets.close();
  }
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}
