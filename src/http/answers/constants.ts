/** Answers that are the same for everybody: made once, sent from one buffer, with an etag. */
import { createHash } from 'node:crypto';
import type { FastifyReply } from 'fastify';

/** An answer's bytes and its etag, quoted. */
export interface Constant {
  bytes: Buffer;
  etag: string;
}

export function makeConstant(text: string): Constant {
  const bytes = Buffer.from(text);
  return { bytes, etag: `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"` };
}

/** Sends it, or 304 to a browser that has it already; a browser asks again each time. */
export function sendConstant(reply: FastifyReply, type: string, { bytes, etag }: Constant): void {
  reply.header('etag', etag).header('cache-control', 'no-cache');
  const known = (reply.request.headers['if-none-match'] ?? '').split(',').map((one) => one.trim().replace(/^W\//, ''));
  if (known.includes(etag) || known.includes('*')) void reply.code(304).send();
  else void reply.type(type).send(bytes);
}
