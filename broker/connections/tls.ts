import { randomBytes } from 'node:crypto';
import { createServer as createHttpServer, type Server as HttpServer } from 'node:http';
import { createServer, type Server, type ServerOpts } from 'node:net';
import { createServer as createTlsServer, type TLSSocket, type Server as TlsServer } from 'node:tls';
import { Handshakes } from '../../src/core/network/handshakes.ts';
import type { BrokerServices } from '../../src/ports/broker-ports.ts';
import type { PeerCertificates } from './peer-certificates.ts';
import type { SocketParts, Sockets } from './sockets.ts';
import type { WebSockets } from './web-sockets.ts';

/** First byte of a CONNECT packet, which no HTTP request begins with. */
const connectByte = 0x10;
/** Milliseconds. */
const handshakeTimeout = 10_000;
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

export type Certificate = Pick<NonNullable<BrokerServices['config']['tls']>, 'chain' | 'key'>;

function secured({ chain, key }: Certificate) {
  return { cert: chain, key, ciphers, minVersion: 'TLSv1.2' } as const;
}

/** Nobody is trusted here to have signed a client's certificate. */
function asked(certificate: Certificate) {
  // No session with a certificate is resumed without one; Node's own would be a digest of the command line.
  return { ...secured(certificate), ca: [], sessionIdContext: 'slipway-mqtts' };
}

/** The services of the TLS port. */
interface TlsParts extends Pick<SocketParts, 'services' | 'limits'> {
  peers: PeerCertificates;
  sockets: Sockets;
  webSockets: WebSockets;
}

/** MQTT over TLS, and over WebSocket on the same port. */
export class TlsPort {
  readonly #parts: TlsParts;
  /** Listens on the port. */
  readonly server: Server;
  readonly #http: HttpServer;
  /** Asks for certificates, and is used when an account has registered some. */
  readonly #asking: TlsServer;
  readonly #plain: TlsServer;

  constructor(parts: TlsParts, tls: Certificate, options: ServerOpts) {
    this.#parts = parts;
    const { services, limits, sockets, webSockets } = parts;
    this.#http = createHttpServer((_, response) => response.writeHead(426, { upgrade: 'websocket' }).end());
    webSockets.attach(this.#http);
    this.#plain = createTlsServer({ ...secured(tls), handshakeTimeout });
    // A certificate is welcome and never demanded; authenticate.ts judges it.
    this.#asking = createTlsServer({ ...asked(tls), handshakeTimeout, requestCert: true, rejectUnauthorized: false });
    // They never listen: what they are handed has been counted, and stripped of what a proxy has put before the handshake.
    for (const server of [this.#plain, this.#asking]) this.#serveTls(server);
    this.server = createServer(options, (socket) =>
      sockets.enter(socket, () => {
        if (limits.isShunned(limits.addressOf(socket))) socket.destroy();
        else (services.proofs.certificates.areUsed() ? this.#asking : this.#plain).emit('connection', socket);
      }),
    );
  }

  /** Shows another certificate to connections that begin from now on; those that are open go on. */
  useCertificate(tls: Certificate): void {
    this.#plain.setSecureContext(secured(tls));
    this.#asking.setSecureContext(asked(tls));
  }

  /** From now on every TLS handshake is a full one, with all certificates, until its own session is resumed. */
  forgetSessions(): void {
    this.#asking.setTicketKeys(randomBytes(ticketKeyBytes));
  }

  /** Ends its HTTP connections. */
  end(): void {
    this.#http.closeAllConnections();
  }

  /** Handles a finished or failed handshake. */
  #serveTls(server: TlsServer): void {
    const { limits, services } = this.#parts;
    const handshakes = new Handshakes(server, {
      failed: (error, below) =>
        services.log.debug({ err: error, ...(below && limits.about(below)) }, 'TLS handshake failed'),
      closed: (socket) => {
        if (socket.bytesRead > maxHandshakeBytes) limits.shun(socket);
      },
    });
    server.on('secureConnection', (socket) => {
      const below = handshakes.takeSocket(socket);
      if (below) limits.follow(socket, below);
      if (!this.#parts.peers.read(socket)) {
        limits.shun(socket);
        socket.destroy();
        return;
      }
      this.#tellApart(socket, this.#parts.sockets.deadline(socket, below));
    });
  }

  /** Over TLS, native MQTT and HTTP share the port: the first byte says which it is. */
  #tellApart(socket: TLSSocket, deadline: NodeJS.Timeout | undefined): void {
    this.#parts.sockets.track(socket);
    const failed = (error: Error) =>
      this.#parts.services.log.debug({ err: error, ...this.#parts.limits.about(socket) }, 'TLS connection failed');
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
        this.#parts.sockets.accept(socket, deadline);
        return;
      }
      this.#http.emit('connection', socket);
      socket.resume();
    });
  }
}
