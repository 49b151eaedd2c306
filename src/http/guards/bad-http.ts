/** Answers of connections that do not get as far as a route. */
import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { PlatformError } from '../../errors.js';

/** Answers a request whose body does not come, past Fastify, which waits for it, and closes its connection. */
export function answerTooSlow(request: FastifyRequest, reply: FastifyReply): void {
  reply.hijack();
  const message = 'The request has not arrived in 10 seconds.';
  const isIdentity = request.routeOptions?.config?.family === 'identity';
  const { code } = new PlatformError('invalid');
  const body = JSON.stringify(
    isIdentity
      ? { statusCode: 408, error: STATUS_CODES[408], message, attributes: {}, requestId: request.id }
      : { error: { code, message, details: [] }, requestId: request.id },
  );
  const headers = {
    'content-type': 'application/json; charset=utf-8',
    'x-request-id': request.id,
    connection: 'close',
  };
  reply.raw.writeHead(408, headers).end(body, () => request.raw.socket.destroy());
}

/** Answers bytes that are no HTTP, or too much of it, in the shape of every other error, and closes. */
export function answerBadHttp(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const tooLarge = error.code === 'HPE_HEADER_OVERFLOW';
  const { code, message } = new PlatformError(tooLarge ? 'tooLarge' : 'invalid', {
    message: tooLarge ? 'The headers are too large.' : 'The request cannot be read.',
  });
  const requestId = randomUUID();
  const body = JSON.stringify({ error: { code, message, details: [] }, requestId });
  const head = [
    tooLarge ? 'HTTP/1.1 431 Request Header Fields Too Large' : 'HTTP/1.1 400 Bad Request',
    'Content-Type: application/json; charset=utf-8',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${requestId}`,
    'Connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
}
