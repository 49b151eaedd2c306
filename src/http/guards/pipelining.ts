/** How many requests one connection may send ahead of their answers. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Requests of one connection without an answer. Programs that pipeline send a handful; each takes memory and a turn. */
const maxUnanswered = 16;

/**
 * Closes a connection that sends more requests ahead than that: a single packet can hold two thousand of them. Call it
 * when the server has the listener that serves requests and no other one: that one does not hear of requests beyond.
 */
export function limitPipelining(server: Server): void {
  const unanswered = new WeakMap<Socket, number>();
  const serve = server.listeners('request') as Array<(request: IncomingMessage, response: ServerResponse) => void>;
  server.removeAllListeners('request');
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    const count = (unanswered.get(socket) ?? 0) + 1;
    if (count > maxUnanswered) socket.destroy();
    // The rest of the packet is parsed all the same. Nothing holds its requests.
    if (socket.destroyed) return;
    unanswered.set(socket, count);
    response.once('close', () => unanswered.set(socket, (unanswered.get(socket) ?? 1) - 1));
    for (const one of serve) one.call(server, request, response);
  });
}
