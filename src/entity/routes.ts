/** The eight URLs of an entity kind (spec 4.3 to 4.8): etag header, envelope and schemas around the resource's functions. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Static, type TObject, type TSchema, Type } from 'typebox';
import type { Caller } from '../access.js';
import { errorResponses, PlatformError } from '../errors.js';
import type { App } from '../http.js';
import { type ListQuery, type Meta, oneOf, trashListSchema } from './listing.js';
import { parseVersion } from './verbs.js';

/** An entity as the wire shows it. */
export interface Wire {
  id: string;
  version: string;
}

export interface WirePage {
  results: Wire[] | undefined;
  meta: Meta | undefined;
}

/** One kind: where it lives, what it is called, its schemas and its verbs. A verb that a kind has not is left out. */
export interface Kind<C extends TObject, U extends TObject, Q extends TObject, L extends TObject> {
  path: string;
  tag: string;
  wrapper: string;
  plural: string;
  shape: TObject;
  create: { body: C; run(caller: Caller, body: Static<C>): Promise<Wire> };
  read: { query: Q; run(caller: Caller, id: string, query: Static<Q>): Promise<Wire> };
  update: { body: U; run(caller: Caller, id: string, version: number, body: Static<U>): Promise<Wire> };
  remove(caller: Caller, id: string, version: number): Promise<Wire>;
  list: { query: L; run(caller: Caller, query: Static<L>): Promise<WirePage> };
  readTrash(caller: Caller, id: string): Promise<Wire>;
  listTrash(caller: Caller, query: ListQuery): Promise<WirePage>;
  recover(caller: Caller, id: string, version: number): Promise<Wire>;
}

/** The id in a path; any text, because one that is none is not found. */
export const idParams = Type.Object({ id: Type.String() });
export const etagHeaders = Type.Object({
  etag: Type.Optional(
    Type.String({ description: 'The current version of the entity; required. If-Match is a synonym.' }),
  ),
});
export const metaShape = Type.Object({
  count: Type.Integer({ description: 'Matching entities in all.' }),
  page: Type.Integer(),
  pageSize: Type.Integer(),
  sortOrder: oneOf(['asc', 'desc']),
  sortBy: Type.Optional(Type.String()),
});

/** The responses of a list. */
export function listResponse(plural: string, shape: TSchema) {
  const page = Type.Object({ results: Type.Optional(Type.Array(shape)), meta: Type.Optional(metaShape) });
  return { 200: Type.Object({ [plural]: page }), ...errorResponses };
}

/** Sends one entity in its envelope, with its version in the ETag header (decisions 2). */
export function sendEntity(reply: FastifyReply, wrapper: string, entity: Wire): FastifyReply {
  return reply.header('etag', `"${entity.version}"`).send({ [wrapper]: entity });
}

/** Mounts one kind below the app's prefix. */
export function entityRoutes<C extends TObject, U extends TObject, Q extends TObject, L extends TObject>(
  app: App,
  kind: Kind<C, U, Q, L>,
): void {
  const { path, tag, wrapper, plural } = kind;
  const shape: TSchema = kind.shape;
  const one = { 200: Type.Object({ [wrapper]: shape }), ...errorResponses };
  const many = listResponse(plural, shape);
  const send = (reply: FastifyReply, entity: Wire) => sendEntity(reply, wrapper, entity);

  app.post(
    path,
    { schema: { tags: [tag], summary: `Create ${wrapper}`, body: kind.create.body, response: one } },
    async (request, reply) => {
      const entity = await kind.create.run(request.caller, request.body as Static<C>);
      nameIgnored(request, reply, kind.create.body, customNames(kind.shape, entity));
      return send(reply, entity);
    },
  );
  app.get(
    `${path}/:id`,
    {
      schema: {
        tags: [tag],
        summary: `Read ${wrapper}`,
        params: idParams,
        querystring: kind.read.query,
        response: one,
      },
    },
    async (request, reply) =>
      send(reply, await kind.read.run(request.caller, request.params.id, request.query as Static<Q>)),
  );
  app.put(
    `${path}/:id`,
    {
      schema: {
        tags: [tag],
        summary: `Update ${wrapper}`,
        params: idParams,
        headers: etagHeaders,
        body: kind.update.body,
        response: one,
      },
    },
    async (request, reply) => {
      const { caller, params, body } = request;
      const entity = await kind.update.run(caller, params.id, readEtag(request), body as Static<U>);
      nameIgnored(request, reply, kind.update.body, customNames(kind.shape, entity));
      return send(reply, entity);
    },
  );
  app.delete(
    `${path}/:id`,
    {
      schema: {
        tags: [tag],
        summary: `Move ${wrapper} to the trash`,
        params: idParams,
        headers: etagHeaders,
        response: one,
      },
    },
    async (request, reply) => send(reply, await kind.remove(request.caller, request.params.id, readEtag(request))),
  );
  app.get(
    path,
    { schema: { tags: [tag], summary: `List ${plural}`, querystring: kind.list.query, response: many } },
    async (request, reply) => {
      nameIgnored(request, reply, kind.list.query);
      return { [plural]: await kind.list.run(request.caller, heeded(request.query, kind.list.query) as Static<L>) };
    },
  );
  app.get(
    `/trash${path}/:id`,
    { schema: { tags: [tag], summary: `Read deleted ${wrapper}`, params: idParams, response: one } },
    async (request, reply) => send(reply, await kind.readTrash(request.caller, request.params.id)),
  );
  app.get(
    `/trash${path}`,
    { schema: { tags: [tag], summary: `List deleted ${plural}`, querystring: trashListSchema, response: many } },
    async (request, reply) => {
      nameIgnored(request, reply, trashListSchema);
      return { [plural]: await kind.listTrash(request.caller, heeded(request.query, trashListSchema) as ListQuery) };
    },
  );
  app.post(
    `/trash${path}/:id/recover`,
    { schema: { tags: [tag], summary: `Recover ${wrapper}`, params: idParams, headers: etagHeaders, response: one } },
    async (request, reply) => send(reply, await kind.recover(request.caller, request.params.id, readEtag(request))),
  );
}

/**
 * The version in the etag header, quoted or bare, or in its synonym If-Match (decisions 2).
 * @throws PlatformError 400/103 when there is none, 412/103 when it could never be a version.
 */
export function readEtag(request: FastifyRequest): number {
  const header = request.headers.etag ?? request.headers['if-match'];
  const text = Array.isArray(header) ? header[0] : header;
  if (text === undefined || text.trim() === '')
    throw new PlatformError('etagMissing', { details: [{ path: 'etag', message: 'The header is required.' }] });
  const version = parseVersion(text.trim().replace(/^(?:W\/)?"(.*)"$/, '$1'));
  if (version === undefined)
    throw new PlatformError('etagInvalid', { details: [{ path: 'etag', message: 'It could never be a version.' }] });
  return version;
}

/** What the schema knows of a query: the rest has not been checked and has no effect. */
function heeded(query: unknown, schema: TObject): object {
  return Object.fromEntries(Object.entries(query as object).filter(([name]) => Object.hasOwn(schema.properties, name)));
}

/** The custom fields of an entity: what its kind's schema does not know. */
function customNames(shape: TObject, entity: Wire): string[] {
  return Object.keys(entity).filter((name) => !Object.hasOwn(shape.properties, name));
}

/**
 * Says in a header which properties had no effect, so that a typing error can be seen (decisions 2). `more` are names
 * that the schema does not hold and that were heeded.
 */
export function nameIgnored(request: FastifyRequest, reply: FastifyReply, schema: TObject, more: string[] = []): void {
  const given = request.method === 'GET' ? request.query : request.body;
  const heeded = new Set([...Object.keys(schema.properties), ...more]);
  const ignored = Object.keys((given ?? {}) as object).filter((name) => !heeded.has(name));
  if (ignored.length === 0) return;
  const names = ignored.slice(0, 50).map((name) => encodeURIComponent(name.toWellFormed()).slice(0, 100));
  reply.header(`${request.server.headerPrefix}-ignored-properties`, names.join(', '));
}
