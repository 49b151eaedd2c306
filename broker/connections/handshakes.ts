import type { Socket } from 'node:net';
import type { TLSSocket, Server as TlsServer } from 'node:tls';

/**
 * The sockets that a TLS server has accepted and that have not finished their handshake: Node counts them when it closes
 * the server, and gives nobody a way to end them.
 */
export class Handshakes {
  /** By the two ends: Node does not say which socket a TLS socket is on. */
  readonly #sockets = new Map<string, Socket>();

  /** `onFailed` is called with every socket that closes before its handshake is finished. */
  constructor(server: TlsServer, onFailed: (socket: Socket) => void = () => {}) {
    server.on('connection', (socket: Socket) => {
      const ends = endsOf(socket);
      if (ends === undefined) return;
      this.#sockets.set(ends, socket);
      socket.once('close', () => {
        if (this.#sockets.get(ends) !== socket) return;
        this.#sockets.delete(ends);
        onFailed(socket);
      });
    });
  }

  /** The handshake is finished: the socket below, which the caller looks after from now on. */
  take(socket: TLSSocket): Socket | undefined {
    const ends = endsOf(socket) ?? '';
    const below = this.#sockets.get(ends);
    this.#sockets.delete(ends);
    return below;
  }

  /** The socket below a handshake that has not ended well. */
  of(socket: TLSSocket): Socket | undefined {
    return this.#sockets.get(endsOf(socket) ?? '');
  }

  end(): void {
    for (const socket of this.#sockets.values()) socket.destroy();
  }
}

/** The two ends of a TCP connection, which no other open one has; undefined when the peer is gone already. */
function endsOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string | undefined {
  return remotePort === undefined ? undefined : [remoteAddress, remotePort, localAddress, localPort].join(' ');
}
