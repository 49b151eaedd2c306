/** Limits for callers without a valid token: small bodies that arrive soon, and a number of connections. */
import { type Server, Socket } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { PlatformError } from '../../core/errors.ts';
import { OpenPerNetwork } from '../../core/limits/networks.ts';
import { peerAddress, type Trust, trustsNobody } from '../../core/network/addresses.ts';
import type { App } from '../app.ts';

/** Bytes of a body on the endpoints that take no token, and on those that do not exist. */
export const anonymousBodyBytes = 16_384;
/** Bytes of the body of validate-jwt, which is a token. */
export const tokenBodyBytes = 65_536;
/** Milliseconds until the whole request has come, unless its token is valid. */
const patience = 10_000;

/**
 * Cuts off a body that comes too slowly. Tokens are looked at before bodies are read, so anyone who has a valid one is a
 * caller by then and has the time of every request. `refuse` answers what is not answered yet.
 */
export function throttleAnonymous(app: App, refuse: (request: FastifyRequest, reply: FastifyReply) => void): void {
  app.addHook('onRequest', (request, reply, done) => {
    const { headers, raw } = request;
    const hasBody = headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
    // A request of a batch has no connection of its own; its body is there.
    if (hasBody && !raw.complete && raw.socket instanceof Socket) {
      const timer = setTimeout(() => {
        if (request.caller || raw.complete) return;
        if (reply.raw.headersSent) raw.socket.destroy();
        else refuse(request, reply);
      }, patience);
      // A request that is cut off never ends: its timer must not keep a process alive that is stopping.
      timer.unref();
      for (const event of ['end', 'close'] as const) raw.once(event, () => clearTimeout(timer));
    }
    done();
  });
}

/**
 * At most `limit` connections of an address (0: any number), WebSockets excepted; more are closed. A trusted proxy has any number:
 * behind it the requests under way are counted by the address that it names, and more are answered 429.
 */
export function limitConnections(app: App, limit: number, trusts: Trust): void {
  const connections = new OpenPerNetwork(limit);
  /** By the port it comes from: under TLS an upgrade is told of another socket than the one that was accepted. */
  const open = new Map<string, string>();
  const counted = new WeakSet<Socket>();
  const leave = (place: string) => {
    const address = open.get(place);
    if (address === undefined || !open.delete(place)) return;
    connections.countClosed(address);
  };
  (app.server as Server).prependListener('connection', (socket) => {
    const address = peerAddress(socket);
    if (address === undefined || trusts(address)) return;
    // After a request for a protocol that is not spoken here, the connection is read as if it were new.
    if (counted.has(socket)) return;
    if (!connections.countOpened(address)) {
      socket.destroy();
      return;
    }
    const place = `${socket.remoteAddress} ${socket.remotePort}`;
    counted.add(socket);
    open.set(place, address);
    socket.once('close', () => leave(place));
  });
  app.server.on('upgrade', ({ socket, headers }) => {
    if (headers.upgrade?.toLowerCase() === 'websocket') leave(`${socket.remoteAddress} ${socket.remotePort}`);
  });

  if (trusts === trustsNobody) return;
  const underWay = new OpenPerNetwork(limit);
  app.addHook('onRequest', (request, reply, done) => {
    const peer = peerAddress(request.raw.socket);
    if (peer === undefined || !trusts(peer) || request.address === peer) return done();
    const { address } = request;
    if (!underWay.countOpened(address)) {
      const message = 'SLIPWAY_HTTP_MAX_CONNECTIONS_PER_ADDRESS: too many requests of one address at the same time.';
      return done(new PlatformError('tooMany', { message, allowance: { limit, remaining: 0, reset: 1 } }));
    }
    reply.raw.once('close', () => underWay.countClosed(address));
    done();
  });
}
