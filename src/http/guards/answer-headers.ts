/** The headers of every answer: which request it answers, who may keep and read it, and what a browser may do with it. */
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import cors from '@fastify/cors';
import type { FastifyReply, FastifyRequest } from 'fastify';
import helmet from 'helmet';
import type { App } from '../app.ts';

/** Answers that a browser neither renders nor runs: all they need is that it does not guess another type. */
const data = /^(?:application\/json|text\/event-stream|application\/octet-stream|text\/csv)\b/;

/**
 * Sets them on the answers of all routes. `hsts` tells browsers to insist on TLS. Returns what sets them on an answer for
 * which no hook runs.
 */
export async function answerHeaders(
  app: App,
  { hsts, prefix }: { hsts: boolean; prefix: string },
): Promise<(request: FastifyRequest, reply: FastifyReply) => void> {
  const all = helmetHeaders(hsts);
  const everywhere = all.filter(([name]) => ['x-content-type-options', 'strict-transport-security'].includes(name));
  const exposed = exposedHeaders(prefix);
  const set = (request: FastifyRequest, reply: FastifyReply) => {
    const { id, url, headers } = request;
    reply.header('x-request-id', id);
    // It often holds tokens.
    if (url.startsWith('/api/')) reply.header('cache-control', 'no-store');
    for (const [name, value] of everywhere) reply.header(name, value);
    reply.header('access-control-allow-origin', '*');
    if (headers.origin !== undefined) reply.header('access-control-expose-headers', exposed);
  };
  app.addHook('onRequest', (request, reply, done) => {
    set(request, reply);
    done();
  });
  app.addHook('onSend', (_, reply, __, done) => {
    if (!data.test(String(reply.getHeader('content-type'))))
      for (const [name, value] of all) if (!reply.hasHeader(name)) reply.header(name, value);
    done();
  });
  // In a scope of its own, its hook runs for preflights alone.
  await app.register(async (scope) => {
    await scope.register(cors, {
      origin: '*',
      strictPreflight: false,
      methods: ['GET', 'HEAD', 'POST', 'PUT', 'DELETE'],
      allowedHeaders: allowedHeaders(prefix),
      exposedHeaders: exposed,
    });
  });
  return set;
}

/** Helmet would make them again for each answer. */
function helmetHeaders(hsts: boolean): Array<readonly [name: string, value: string]> {
  const sample = new ServerResponse(new IncomingMessage(new Socket()));
  const set = helmet({ contentSecurityPolicy: { directives: { upgradeInsecureRequests: null } }, hsts });
  set(sample.req, sample, () => {});
  return Object.entries(sample.getHeaders()).map(([name, value]) => [name, String(value)]);
}

/** What programs in browsers may send; a wildcard would not cover `authorization`. */
function allowedHeaders(prefix: string): string[] {
  const ours = ['access-token', 'csrf-token', 'session', 'mfa-token'].map((name) => `${prefix}-${name}`);
  const standard = ['authorization', 'content-type', 'etag', 'if-match', 'last-event-id'];
  return [...standard, 'accesstoken', 'idempotency-key', ...ours];
}

function exposedHeaders(prefix: string): string {
  const limits = ['retry-after', 'ratelimit-limit', 'ratelimit-remaining', 'ratelimit-reset'];
  const ours = ['access-token', 'ignored-properties', 'revocation', 'idempotency'].map((name) => `${prefix}-${name}`);
  return ['etag', 'x-request-id', 'idempotent-replayed', ...limits, ...ours].join(', ');
}
