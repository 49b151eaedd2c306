/** TLS handshakes that have begun: how they end with their server, and what plain HTTP is told. */
import type { Socket } from 'node:net';
import type { TLSSocket, Server as TlsServer } from 'node:tls';

/** Milliseconds that a client has to read the answer: a socket that is closed with unread bytes is reset. */
const farewell = 1000;

/** Told of handshakes that do not finish. */
interface HandshakeEvents {
  /** A handshake has failed; `below` is its TCP socket. */
  failed(error: Error, below: Socket | undefined): void;
  /** A TCP socket has closed before its handshake was finished. */
  closed(below: Socket): void;
}

/**
 * The sockets that a TLS server has accepted and that have not finished their handshake: Node counts them when it closes
 * the server, and gives nobody a way to end them.
 */
export class Handshakes {
  /** By the two ends: Node does not say which socket a TLS socket is on. */
  readonly #sockets = new Map<string, Socket>();

  constructor(server: TlsServer, { failed, closed }: Partial<HandshakeEvents> = {}) {
    server.on('connection', (socket: Socket) => {
      const ends = endsOf(socket);
      if (ends === undefined) return;
      this.#sockets.set(ends, socket);
      socket.once('close', () => {
        if (this.#sockets.get(ends) !== socket) return;
        this.#sockets.delete(ends);
        closed?.(socket);
      });
    });
    // An HTTPS server has a listener of its own, which would have the error answered through TLS.
    server.removeAllListeners('tlsClientError');
    server.on('tlsClientError', (error, socket) => {
      const below = this.#sockets.get(endsOf(socket) ?? '');
      failed?.(error, below);
      if (below && isPlainHttp(error)) answerPlainHttp(below, socket);
      else socket.destroy();
    });
  }

  /** The handshake is finished: the socket below, which the caller looks after from now on. */
  takeSocket(socket: TLSSocket): Socket | undefined {
    const ends = endsOf(socket) ?? '';
    const below = this.#sockets.get(ends);
    this.#sockets.delete(ends);
    return below;
  }

  destroySockets(): void {
    for (const socket of this.#sockets.values()) socket.destroy();
  }
}

/** Ends the handshakes of a server that listens itself when it closes: it would wait for them. */
export function endHandshakesWith(server: TlsServer): void {
  const handshakes = new Handshakes(server);
  server.on('secureConnection', (socket) => handshakes.takeSocket(socket));
  const close = server.close.bind(server);
  server.close = (done) => {
    handshakes.destroySockets();
    return close(done);
  };
}

/** Whether a handshake has failed because an HTTP request came instead. */
function isPlainHttp({ code }: NodeJS.ErrnoException): boolean {
  return code === 'ERR_SSL_HTTP_REQUEST' || code === 'ERR_SSL_HTTPS_PROXY_REQUEST';
}

/** OpenSSL has read the request. The answer goes past it. */
function answerPlainHttp(below: Socket, socket: TLSSocket): void {
  const body = 'This port speaks TLS. Use https:// for HTTP, wss:// for MQTT over WebSocket and mqtts:// for MQTT.\n';
  const head = [
    'HTTP/1.1 400 Bad Request',
    'Content-Type: text/plain; charset=utf-8',
    `Content-Length: ${body.length}`,
    'Connection: close',
  ];
  below.end(`${head.join('\r\n')}\r\n\r\n${body}`);
  const timer = setTimeout(() => socket.destroy(), farewell);
  timer.unref();
  below.once('close', () => clearTimeout(timer));
}

/** The two ends of a TCP connection, which no other open one has; undefined when the peer is gone already. */
function endsOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string | undefined {
  return remotePort === undefined ? undefined : [remoteAddress, remotePort, localAddress, localPort].join(' ');
}
