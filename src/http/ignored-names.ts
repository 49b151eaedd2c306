/** Names in queries and bodies that have no effect: callers are told of them, or refused. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { TObject } from 'typebox';
import { PlatformError } from '../core/errors.ts';
import { type NamedSchema, namesOf, unknownNames } from './schema-names.ts';

/** Names of one request that had no effect, of which it is told. */
export const maxNamed = 50;

/**
 * Says in a header which properties of a body, or parameters of a GET, had no effect. `more` are names that the schema does not hold
 * and that had one. @throws PlatformError 400/106 naming unknown parameters of a GET, with `SLIPWAY_STRICT_QUERIES` or
 * `SLIPWAY_STRICT_BODIES`.
 */
export function nameIgnored(
  request: FastifyRequest,
  reply: FastifyReply,
  schema: TObject,
  more: string[] = [],
): string[] {
  const isQuery = request.method === 'GET' || request.method === 'HEAD';
  // A payload as it is has no properties: what can be mistyped there is the query.
  const given = isQuery || Buffer.isBuffer(request.body) ? request.query : request.body;
  const ignored = namesBesides(given, schema, more);
  if (isQuery && (request.server.strictQueries || request.server.strictBodies)) refuseUnknown(ignored, schema);
  sayIgnored(request, reply, ignored);
  return ignored.slice(0, maxNamed);
}

/** The names in `given` that the schema does not hold. */
function namesBesides(given: unknown, { properties }: TObject, more: readonly string[] = []): string[] {
  const known = new Set([...Object.keys(properties), ...more]);
  return Object.keys((given ?? {}) as object).filter((name) => !known.has(name));
}

/** @throws PlatformError 400/106 naming each of these parameters, and those that the schema has. */
export function refuseUnknown(names: readonly string[], { properties }: TObject, path = ''): void {
  if (names.length === 0) return;
  const supported = Object.keys(properties).join(', ');
  const details = names.slice(0, maxNamed).map((name) => ({
    path: path + shortened(name),
    message: `is not a parameter of this endpoint; supported: ${supported}`,
  }));
  throw new PlatformError('invalid', { details });
}

/**
 * `known` are names at the top that have no effect and are no errors.
 * @throws PlatformError 400/106 naming each property of the body that its schema does not know.
 */
export function refuseUnknownProperties(body: unknown, schema: NamedSchema, known: readonly string[]): void {
  const paths = unknownNames(body, schema, known, maxNamed);
  if (paths.length === 0) return;
  const supported = `; supported: ${namesOf(schema)?.join(', ')}`;
  const details = paths.map((path) => ({
    path: shortened(path),
    message: `is not a property of this endpoint${path.includes('.') ? '' : supported}`,
  }));
  throw new PlatformError('invalid', { details });
}

/** The meta information of a list with the names of parameters that had no effect, if there are any. */
export function metaWith<M extends object | undefined>(meta: M, ignored: readonly string[]): M {
  return meta && ignored.length > 0 ? { ...meta, ignored: ignored.map(shortened) } : meta;
}

function shortened(name: string): string {
  return name.slice(0, 100);
}

/** As nameIgnored, for a handler that knows the names. */
export function sayIgnored(request: FastifyRequest, reply: FastifyReply, ignored: readonly string[]): void {
  if (ignored.length === 0) return;
  const names = ignored.slice(0, maxNamed).map((name) => encodeURIComponent(name.toWellFormed()).slice(0, 100));
  reply.header(`${request.server.headerPrefix}-ignored-properties`, names.join(', '));
}
