/** Server-sent events as an answer: what the document says of it, and how it is sent. */
import type { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { Type } from 'typebox';

export function eventsAnswer(description: string) {
  return { description, content: { 'text/event-stream': { schema: Type.Unsafe<Readable>({ type: 'string' }) } } };
}

export function sendEvents(reply: FastifyReply, body: Readable): FastifyReply {
  reply.type('text/event-stream; charset=utf-8').header('cache-control', 'no-store');
  // Some proxies keep answers back until they are long.
  return reply.header('x-accel-buffering', 'no').send(body);
}
