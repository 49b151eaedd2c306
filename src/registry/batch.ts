/** Several requests in one (decisions 2): each runs with the caller's own rights, in order. */
import { Type } from 'typebox';
import { oneOf } from '../entity/listing.js';
import { invalid } from '../errors.js';
import type { App } from '../http.js';

const mostRequests = 50;
/** Headers of the outer request by which the caller is known. */
const callerHeaders = ['authorization', 'cookie'];
/** Marks a sub-request. A caller that sends it itself is refused a batch, and nothing else. */
const insideBatch = 'slipway-inside-batch';

const body = Type.Object({
  requests: Type.Array(
    Type.Object({
      method: oneOf(['GET', 'POST', 'PUT', 'DELETE']),
      path: Type.String({ minLength: 1, maxLength: 8192, description: 'From /api/, or a full URL.' }),
      payload: Type.Optional(Type.Unknown()),
      headers: Type.Optional(Type.Record(Type.String(), Type.String())),
    }),
    { maxItems: mostRequests },
  ),
});

export function batchRoutes(app: App): void {
  app.post(
    '/batch',
    {
      schema: {
        tags: ['Batch'],
        summary: `Up to ${mostRequests} requests in one`,
        body,
        querystring: Type.Object({
          status: Type.Optional(
            Type.Boolean({ description: 'Each answer as {status, body} instead of the body alone.' }),
          ),
        }),
        response: { 200: Type.Array(Type.Unknown(), { description: 'The bodies of the answers, in order.' }) },
      },
    },
    async (request, reply) => {
      // Batches in batches would multiply the limit.
      if (request.headers[insideBatch] !== undefined) throw invalid('path', 'must not be a batch');
      const csrf = `${app.headerPrefix}-csrf-token`;
      const own = Object.fromEntries(
        [...callerHeaders, csrf].flatMap((name) => (request.headers[name] ? [[name, request.headers[name]]] : [])),
      );
      const answers: unknown[] = [];
      for (const { method, path, payload, headers } of request.body.requests) {
        const url = localPath(path);
        const answer = url
          ? await app.inject({
              method,
              url,
              // What the caller sends for one request must not change who the caller is.
              headers: { ...lowerCased(headers), ...own, [insideBatch]: '1', 'content-type': 'application/json' },
              remoteAddress: request.ip,
              ...(payload === undefined ? {} : { payload: JSON.stringify(payload) }),
            })
          : undefined;
        const status = answer?.statusCode ?? 400;
        const answered = answer ? (JSON.parse(answer.payload || 'null') as unknown) : refusal(request.id);
        answers.push(request.query.status ? { status, body: answered } : answered);
      }
      return reply.send(answers);
    },
  );
}

/** The path and query of a sub-request; undefined for one that is not served here. */
function localPath(path: string): string | undefined {
  const base = 'http://slipway.invalid';
  const parsed = URL.canParse(path, base) ? new URL(path, base) : undefined;
  return parsed?.pathname.startsWith('/api/') ? parsed.pathname + parsed.search : undefined;
}

function lowerCased(headers: Record<string, string> = {}): Record<string, string> {
  const identity = new Set([...callerHeaders, 'content-length', 'transfer-encoding', 'host', 'connection']);
  return Object.fromEntries(
    Object.entries(headers)
      .map(([name, value]) => [name.toLowerCase(), value] as const)
      .filter(([name]) => !identity.has(name)),
  );
}

function refusal(requestId: string) {
  const details = [{ path: 'path', message: 'must be a path below /api/' }];
  return { error: { code: 106, message: 'A parameter value is invalid.', details }, requestId };
}
