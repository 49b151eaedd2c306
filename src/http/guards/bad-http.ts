/** Answers of connections that do not get as far as a route. */
import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { PlatformError } from '../../core/errors.ts';

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

/** What is said of a request that cannot be served, by the code of the error; 400 for any other. */
const answers: Record<string, { status: number; kind: 'tooLarge' | 'invalid'; message: string }> = {
  HPE_HEADER_OVERFLOW: { status: 431, kind: 'tooLarge', message: 'The headers are too large.' },
  ERR_HTTP_REQUEST_TIMEOUT: { status: 408, kind: 'invalid', message: 'The request has not arrived in time.' },
};
const unreadable = { status: 400, kind: 'invalid', message: 'The request cannot be read.' } as const;

/**
 * Answers bytes that are no HTTP, too much of it or too slow, in the shape of every other error, and closes. A connection
 * that has sent nothing has asked for nothing: it is closed without an answer.
 */
export function answerBadHttp(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable || socket.bytesRead === 0) {
    socket.destroy();
    return;
  }
  const { status, kind, message: sentence } = answers[error.code ?? ''] ?? unreadable;
  const { code, message } = new PlatformError(kind, { message: sentence });
  const requestId = randomUUID();
  const body = JSON.stringify({ error: { code, message, details: [] }, requestId });
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    'Content-Type: application/json; charset=utf-8',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${requestId}`,
    'Connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
}
