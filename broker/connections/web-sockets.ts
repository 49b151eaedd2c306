import type { Server as HttpServer, IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { createWebSocketStream, type WebSocket, WebSocketServer } from 'ws';
import { forwardedAddress, peerAddress } from '../../src/core/network/addresses.ts';
import type { LimitName } from './counters.ts';
import { upgradeDecliner } from './declined-upgrade.ts';
import { publishOverhead, type SocketParts, type Sockets } from './sockets.ts';

/** Many clients name no path of their own. */
const webSocketPaths: readonly string[] = ['/mqtt', '/'];
const subprotocols = ['mqtt', 'mqttv3.1'];
/** Bytes of one WebSocket message, which may hold several packets. */
const webSocketMessage = 1_048_576;

/** MQTT over WebSocket, on HTTP servers that others have opened. */
export class WebSockets {
  readonly #parts: Pick<SocketParts, 'services' | 'limits' | 'trusts'>;
  readonly #sockets: Sockets;
  readonly #server: WebSocketServer;

  constructor(parts: Pick<SocketParts, 'services' | 'limits' | 'trusts'>, sockets: Sockets) {
    this.#parts = parts;
    this.#sockets = sockets;
    this.#server = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      perMessageDeflate: false,
      maxPayload: Math.max(webSocketMessage, parts.services.config.mqtt.maxPayloadBytes + publishOverhead),
      handleProtocols: (offered) => subprotocols.find((protocol) => offered.has(protocol)) ?? false,
    });
  }

  /** Serves MQTT over WebSocket at `/mqtt` and `/` of an HTTP server; closing the server ends these connections. */
  attach(server: HttpServer): void {
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
      this.#sockets.deadline(socket);
      upgraded.add(socket);
      socket.once('close', () => upgraded.delete(socket));
      this.#enterUpgrade(request, () => {
        const deadline = this.#sockets.deadline(socket);
        this.#server.handleUpgrade(request, socket, head, (ws) => this.#acceptWebSocket(ws, request, deadline));
      });
    });
    // An HTTP server waits for these sockets when it closes, and none of its own methods ends them.
    const close = server.close.bind(server);
    server.close = (done) => {
      closing = true;
      for (const socket of upgraded) socket.destroy();
      return close(done);
    };
  }

  /** Takes no more upgrades. */
  close(): void {
    this.#server.close();
  }

  /** A place for a request to speak MQTT over WebSocket, which may say on whose behalf it comes. */
  #enterUpgrade({ socket, headers }: IncomingMessage, go: () => void): void {
    const refuse = (limit: LimitName) => refuseUpgrade(socket, '503 Service Unavailable', `over the limit ${limit}`);
    if (!this.#parts.limits.enter(socket)) {
      refuse('max_connections');
      return;
    }
    socket.on('error', (error) =>
      this.#parts.services.log.debug({ err: error, ...this.#parts.limits.about(socket) }, 'a socket failed'),
    );
    const peer = this.#parts.limits.addressOf(socket) ?? peerAddress(socket);
    const address = forwardedAddress(peer, headers['x-forwarded-for'], this.#parts.trusts);
    this.#sockets.locate(socket, address, go, refuse);
  }

  #acceptWebSocket(ws: WebSocket, request: IncomingMessage, deadline: NodeJS.Timeout | undefined): void {
    let isOver = false;
    ws.on('message', (_, isBinary) => {
      // MQTT packets travel in binary frames only [MQTT-6.0.0-1].
      if (isBinary || isOver) return;
      isOver = true;
      ws.close(1003);
    });
    const stream = createWebSocketStream(ws);
    const push = stream.push.bind(stream);
    // Nothing of a text frame, and of what comes after it, is a packet.
    stream.push = (chunk, encoding) => (isOver && chunk !== null) || push(chunk, encoding);
    this.#sockets.accept(stream, deadline, request);
  }
}

/** An HTTP server leaves the other half of a socket open; one that nobody reads would never close. */
function refuseUpgrade(socket: Duplex, status: string, why = ''): void {
  socket.on('error', () => {});
  const head = `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: ${why.length}\r\n\r\n`;
  socket.end(head + why, () => socket.destroy());
}
