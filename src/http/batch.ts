/** Several requests in one: each runs with the caller's own rights, in order. */
import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import { oneOf } from '../../db/registry/records.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import type { App } from './app.ts';

const maxRequests = 50;
/** Headers of the outer request by which the caller is known. */
const callerHeaders = ['authorization', 'cookie'];
/** Headers that a sub-request cannot have: they say how it came, and it came with the batch. */
const wayHeaders = ['content-length', 'transfer-encoding', 'host', 'connection', 'x-forwarded-for'];
/** Marks a sub-request. A caller that sends it itself is refused a batch, and nothing else. */
const insideBatch = 'slipway-inside-batch';

const subRequest = Type.Object({
  method: oneOf(['GET', 'POST', 'PUT', 'DELETE']),
  path: Type.String({ minLength: 1, maxLength: 8192, description: 'From /api/, or a full URL.' }),
  payload: Type.Optional(Type.Unknown()),
  headers: Type.Optional(Type.Record(Type.String(), Type.String())),
});
const body = Type.Object({ requests: Type.Array(subRequest, { maxItems: maxRequests }) });
const query = Type.Object({
  status: Type.Optional(Type.Boolean({ description: 'Each answer as {status, body} instead of the body alone.' })),
});

/** A batch as it was asked for, and a sub-request's answer: its body is JSON in pieces, made as they are sent. */
type Batch = FastifyRequest<{ Body: Static<typeof body>; Querystring: Static<typeof query> }>;
type Answer = { status: number; json: AsyncIterable<string | Buffer> | Iterable<string> };

/** Whether a request is one of a batch, where an answer has to end. */
export function isInsideBatch({ headers }: Pick<FastifyRequest, 'headers'>): boolean {
  return headers[insideBatch] !== undefined;
}

export function batchRoutes(app: App): void {
  app.post(
    '/batch',
    {
      schema: {
        tags: ['Batch'],
        operationId: 'runBatch',
        summary: `Send up to ${maxRequests} requests in one`,
        description:
          'Each request is authorized on its own and runs after the one before. Nothing is rolled back if one fails.',
        body,
        querystring: query,
        response: {
          200: Type.Unsafe<Readable>({
            type: 'array',
            items: {},
            maxItems: maxRequests,
            description:
              'The bodies of the answers, in order. They are sent as they are made: a request runs when the answers before it have been taken, and those after a broken connection do not run.',
          }),
        },
      },
    },
    async (request, reply) => {
      // Batches in batches would multiply the limit.
      if (isInsideBatch(request)) throw invalid('path', 'must not be a batch');
      const pieces = Readable.from(answers(app, request), { objectMode: true, highWaterMark: 1 });
      return reply.type('application/json; charset=utf-8').send(pieces);
    },
  );
}

/**
 * The array as JSON, in pieces. Its reader asks for one piece ahead: that is always a separator, never an answer, so
 * that one answer is held at a time and a caller who does not read has nothing more done.
 */
async function* answers(app: App, request: Batch): AsyncGenerator<string | Buffer> {
  const { requests } = request.body;
  yield '[';
  for (const [place, one] of requests.entries()) {
    if (place > 0) yield ',';
    const { status, json } = await answerTo(app, request, one);
    if (request.query.status) yield `{"status":${status},"body":`;
    yield* json;
    if (request.query.status) yield '}';
    // Requests that wait for nothing would keep everybody else waiting for the whole batch.
    await nextTurn();
  }
  yield ']';
}

/** Serves one request of a batch. It never throws: what has been sent of the array could not be taken back. */
async function answerTo(app: App, request: Batch, one: Static<typeof subRequest>): Promise<Answer> {
  const url = localPath(one.path);
  if (!url) return refusal(request.id, invalid('path', 'must be a path below /api/'));
  const csrf = `${app.headerPrefix}-csrf-token`;
  const own = Object.fromEntries(
    [...callerHeaders, csrf].flatMap((name) => (request.headers[name] ? [[name, request.headers[name]]] : [])),
  );
  try {
    const { statusCode, headers, stream, raw } = await app.inject({
      method: one.method,
      url,
      // Headers of one request must not change the caller.
      headers: { ...lowerCased(one.headers), ...own, [insideBatch]: '1', 'content-type': 'application/json' },
      remoteAddress: request.address,
      payloadAsStream: true,
      ...(one.payload === undefined ? {} : { payload: JSON.stringify(one.payload) }),
    });
    const isJson = String(headers['content-type']).includes('json');
    return { status: statusCode, json: piecesOf(stream(), raw.res, isJson) };
  } catch (error) {
    request.log.error({ requestId: request.id, err: error }, 'a request of a batch failed');
    return refusal(request.id, new PlatformError('server'));
  }
}

/** The body of an answer as JSON; other text becomes a JSON string. Anyone who stops reading ends the answer. */
async function* piecesOf(body: Readable, response: ServerResponse, isJson: boolean): AsyncGenerator<string | Buffer> {
  const decoder = new StringDecoder('utf8');
  const quoted = (text: string) => JSON.stringify(text).slice(1, -1);
  let isEmpty = true;
  try {
    for await (const piece of body as AsyncIterable<Buffer>) {
      if (isEmpty && !isJson) yield '"';
      isEmpty = false;
      yield isJson ? piece : quoted(decoder.write(piece));
    }
  } finally {
    // The request behind it would wait for a reader for ever.
    response.destroy();
  }
  if (isEmpty) yield 'null';
  else if (!isJson) yield `${quoted(decoder.end())}"`;
}

function refusal(requestId: string, { status, code, message, details }: PlatformError): Answer {
  return { status, json: [JSON.stringify({ error: { code, message, details }, requestId })] };
}

/** The path and query of a sub-request; undefined for one that is not served here. */
function localPath(path: string): string | undefined {
  const base = 'http://slipway.invalid';
  const parsed = URL.canParse(path, base) ? new URL(path, base) : undefined;
  return parsed?.pathname.startsWith('/api/') ? parsed.pathname + parsed.search : undefined;
}

function lowerCased(headers: Record<string, string> = {}): Record<string, string> {
  const refused = new Set([...callerHeaders, ...wayHeaders]);
  return Object.fromEntries(
    Object.entries(headers)
      .map(([name, value]) => [name.toLowerCase(), value] as const)
      .filter(([name]) => !refused.has(name)),
  );
}
