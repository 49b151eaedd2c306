/** Server-sent events as an answer: what the document says of it, and how it is sent. */
import type { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { Type } from 'typebox';

export function eventsAnswer(description: string) {
  return { description, content: { 'text/event-stream': { schema: Type.Unsafe<Readable>({ type: 'string' }) } } };
}

/** Milliseconds that a reader has to take the end. */
const farewell = 5000;

/** The connection ends with the events: a server that closes would wait for it. */
export function sendEvents(reply: FastifyReply, body: Readable): FastifyReply {
  const { raw } = reply;
  body.once('end', () => {
    const timer = setTimeout(() => raw.destroy(), farewell);
    timer.unref();
    raw.once('close', () => clearTimeout(timer));
  });
  reply.header('connection', 'close');
  reply.type('text/event-stream; charset=utf-8').header('cache-control', 'no-store');
  // Some proxies keep answers back until they are long.
  return reply.header('x-accel-buffering', 'no').send(body);
}
