/** The eight URLs of an entity kind: etag header, envelope and schemas around the resource's functions. */
import type { FastifyReply, FastifyRequest, preHandlerHookHandler } from 'fastify';
import { type Static, type TObject, type TSchema, Type } from 'typebox';
import type { Action, Caller, EntityKind } from '../access.js';
import { type FailureKind, PlatformError } from '../errors.js';
import type { App } from '../http/app.js';
import { sendList } from '../http/streamed-list.js';
import { type ListQuery, type Meta, oneOf, trashListSchema } from './listing.js';
import { parseVersion } from './verbs.js';

/** An entity as the wire shows it. */
export interface Wire {
  id: string;
  version: string;
  /** Of a credential: the version of the entity that it belongs to, where making it may have changed that. */
  entityVersion?: string;
}

interface WirePage {
  /** Made as they are sent. */
  results: AsyncIterable<Wire> | undefined;
  meta: Meta | undefined;
}

/** One kind: where it lives, what it is called, its schemas and its verbs. A verb that a kind has not is left out. */
export interface Kind<C extends TObject, U extends TObject, Q extends TObject, L extends TObject> {
  path: string;
  tag: string;
  /** What it is called in the table of rights. */
  entity: EntityKind;
  wrapper: string;
  plural: string;
  shape: TObject;
  /** How its verbs can fail besides `verbs`. */
  errors?: Partial<Record<Verb, readonly FailureKind[]>>;
  create: { body: C; run(caller: Caller, body: Static<C>): Promise<Wire> };
  read: { query: Q; run(caller: Caller, id: string, query: Static<Q>): Promise<Wire> };
  update: { body: U; run(caller: Caller, id: string, version: number, body: Static<U>): Promise<Wire> };
  remove(caller: Caller, id: string, version: number): Promise<Wire>;
  /** Verbs after which somebody may hear less over MQTT. */
  revokes?: readonly Verb[];
  list: { query: L; run(caller: Caller, query: Static<L>): Promise<WirePage> };
  readTrash(caller: Caller, id: string): Promise<Wire>;
  listTrash(caller: Caller, query: ListQuery): Promise<WirePage>;
  recover(caller: Caller, id: string, version: number): Promise<Wire>;
}

const versioned = ['etagMissing', 'etagInvalid', 'deleted', 'staleVersion'] as const;

/** What the eight URLs of every kind need and how they can fail; the trash is for those who may delete. */
const verbs = {
  create: { action: 'create', errors: ['notFound', 'forbidden'] },
  read: { action: 'read', errors: ['notFound', 'deleted', 'forbidden'] },
  update: { action: 'update', errors: ['notFound', ...versioned, 'forbidden'] },
  remove: { action: 'delete', errors: ['notFound', ...versioned, 'forbidden'] },
  list: { action: 'read', errors: ['notFound', 'pageOutside', 'forbidden'] },
  readTrash: { action: 'delete', errors: ['notFound', 'forbidden'] },
  listTrash: { action: 'delete', errors: ['notFound', 'pageOutside', 'forbidden'] },
  recover: { action: 'delete', errors: ['notFound', ...versioned, 'forbidden'] },
} as const satisfies Record<string, { action: Action; errors: readonly FailureKind[] }>;
export type Verb = keyof typeof verbs;

/** What the OpenAPI document says of a verb: its right, its errors with `more`, the headers it sends. */
export function verbConfig(
  verb: Verb,
  entity: EntityKind,
  more: readonly FailureKind[] = [],
  alsoSends: readonly 'revocation'[] = [],
) {
  const { action, errors } = verbs[verb];
  const version = verb === 'list' || verb === 'listTrash' ? [] : (['etag'] as const);
  const ignored = ['create', 'update', 'list', 'listTrash'].includes(verb) ? (['ignored'] as const) : [];
  const right: readonly [Action, EntityKind] = [action, entity];
  return { right, errors: [...errors, ...more], sends: [...version, ...ignored, ...alsoSends] };
}

/** The id in a path; any text, because one that is none is not found. */
export const idParams = Type.Object({ id: Type.String() });
export const etagHeaders = Type.Object({
  etag: Type.Optional(
    Type.String({ description: 'The current version of the entity, quoted or bare. If-Match is a synonym.' }),
  ),
});
export const metaShape = Type.Object({
  count: Type.Integer({ description: 'Matching entities in all.' }),
  page: Type.Integer(),
  pageSize: Type.Integer(),
  sortOrder: oneOf(['asc', 'desc']),
  sortBy: Type.Optional(Type.String()),
  ignored: Type.Optional(
    Type.Array(Type.String(), { description: 'Parameters of the request that are unknown here and had no effect.' }),
  ),
});

/** The response that carries one entity. */
export function entityResponse(wrapper: string, shape: TSchema, description: string) {
  return { 200: Type.Object({ [wrapper]: shape }, { description }) };
}

/** The response of a list. */
export function listResponse(plural: string, shape: TSchema) {
  const page = Type.Object({ results: Type.Optional(Type.Array(shape)), meta: Type.Optional(metaShape) });
  return { 200: Type.Object({ [plural]: page }, { description: 'One page, and how many there are in all.' }) };
}

/** The version of a device, end-user or account user after its credentials have changed: its next PUT needs no GET. */
export const entityVersion = Type.String({
  description: 'The version of the entity as it now is, also in the ETag header.',
});

/** The ETag header of an answer that carries this: its version, or that of the entity that it belongs to. */
export function etagOf({ version, entityVersion = version }: Omit<Wire, 'id'>): string {
  return `"${entityVersion}"`;
}

/** Sends one entity in its envelope, with its version in the ETag header. */
export function sendEntity(reply: FastifyReply, wrapper: string, entity: Wire): FastifyReply {
  return reply.header('etag', etagOf(entity)).send({ [wrapper]: entity });
}

/** Mounts one kind below the app's prefix. */
export function entityRoutes<C extends TObject, U extends TObject, Q extends TObject, L extends TObject>(
  app: App,
  kind: Kind<C, U, Q, L>,
): void {
  const { path, tag, entity, wrapper, plural, create, read, update, list } = kind;
  const shape: TSchema = kind.shape;
  const [what, some] = [inWords(wrapper), inWords(plural)];
  const many = listResponse(plural, shape);
  const one = entityResponse(wrapper, shape, `The ${what}.`);
  const config = (verb: Verb) =>
    verbConfig(verb, entity, kind.errors?.[verb], kind.revokes?.includes(verb) ? ['revocation'] : []);
  const tags = [tag];
  const send = (reply: FastifyReply, wire: Wire) => sendEntity(reply, wrapper, wire);

  app.post(
    path,
    {
      config: config('create'),
      schema: { tags, summary: `Create ${withArticle(what)}`, body: create.body, response: one },
    },
    async (request, reply) => {
      const wire = await create.run(request.caller, request.body as Static<C>);
      nameIgnored(request, reply, create.body, customNames(kind.shape, wire));
      return send(reply, wire);
    },
  );
  app.get(
    `${path}/:id`,
    {
      config: config('read'),
      schema: {
        tags,
        summary: `Read ${withArticle(what)}`,
        params: idParams,
        querystring: read.query,
        response: one,
      },
    },
    async (request, reply) =>
      send(reply, await read.run(request.caller, request.params.id, request.query as Static<Q>)),
  );
  app.put(
    `${path}/:id`,
    {
      config: config('update'),
      preHandler: etagFirst,
      schema: {
        tags,
        summary: `Update ${withArticle(what)}`,
        params: idParams,
        headers: etagHeaders,
        body: update.body,
        response: one,
      },
    },
    async (request, reply) => {
      const { caller, params, body } = request;
      const wire = await update.run(caller, params.id, readEtag(request), body as Static<U>);
      nameIgnored(request, reply, update.body, customNames(kind.shape, wire));
      return send(reply, wire);
    },
  );
  app.delete(
    `${path}/:id`,
    {
      config: config('remove'),
      preHandler: etagFirst,
      schema: {
        tags,
        summary: `Move ${withArticle(what)} to the trash`,
        params: idParams,
        headers: etagHeaders,
        response: one,
      },
    },
    async (request, reply) => send(reply, await kind.remove(request.caller, request.params.id, readEtag(request))),
  );
  app.get(
    path,
    { config: config('list'), schema: { tags, summary: `List ${some}`, querystring: list.query, response: many } },
    async (request, reply) => {
      const ignored = nameIgnored(request, reply, list.query);
      const { results, meta } = await list.run(request.caller, heeded(request.query, list.query) as Static<L>);
      return sendList(reply, plural, { results, meta: metaWith(meta, ignored) });
    },
  );
  app.get(
    `/trash${path}/:id`,
    {
      config: config('readTrash'),
      schema: {
        tags,
        summary: `Read a deleted ${what}`,
        params: idParams,
        response: one,
      },
    },
    async (request, reply) => send(reply, await kind.readTrash(request.caller, request.params.id)),
  );
  app.get(
    `/trash${path}`,
    {
      config: config('listTrash'),
      schema: { tags, summary: `List deleted ${some}`, querystring: trashListSchema, response: many },
    },
    async (request, reply) => {
      const ignored = nameIgnored(request, reply, trashListSchema);
      const query = heeded(request.query, trashListSchema) as ListQuery;
      const { results, meta } = await kind.listTrash(request.caller, query);
      return sendList(reply, plural, { results, meta: metaWith(meta, ignored) });
    },
  );
  app.post(
    `/trash${path}/:id/recover`,
    {
      config: config('recover'),
      preHandler: etagFirst,
      schema: {
        tags,
        summary: `Recover a deleted ${what}`,
        params: idParams,
        headers: etagHeaders,
        response: one,
      },
    },
    async (request, reply) => send(reply, await kind.recover(request.caller, request.params.id, readEtag(request))),
  );
}

/** `endUserTemplate` is end-user template, `deviceField` device custom field. */
function inWords(name: string): string {
  const words = name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  return words.replace('end user', 'end-user').replace(' field', ' custom field');
}

function withArticle(words: string): string {
  return `${/^[aeiou]/.test(words) ? 'an' : 'a'} ${words}`;
}

/**
 * The version in the etag header, quoted or bare, or in its synonym If-Match.
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

/** Clients are told of a missing etag before their right is looked at. Elsewhere the etag is read in the handler. */
const etagFirst: preHandlerHookHandler = (request, _, next) => {
  readEtag(request);
  next();
};

/** What the schema knows of a query: the rest has not been checked and has no effect. */
function heeded(query: unknown, schema: TObject): object {
  return Object.fromEntries(Object.entries(query as object).filter(([name]) => Object.hasOwn(schema.properties, name)));
}

/** The custom fields of an entity: what its kind's schema does not know. */
function customNames(shape: TObject, entity: Wire): string[] {
  return Object.keys(entity).filter((name) => !Object.hasOwn(shape.properties, name));
}

/**
 * Says in a header which properties had no effect, so that a typing error can be seen. `more` are names that the schema
 * does not hold and that were heeded. Of a GET these are parameters: the names, which a list shows in its `meta` too.
 * @throws PlatformError 400/106 naming each unknown parameter of a GET, with `SLIPWAY_STRICT_QUERIES`.
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
  const ignored = unknownNames(given, schema, more);
  if (isQuery && request.server.strictQueries) refuseUnknown(ignored, schema);
  sayIgnored(request, reply, ignored);
  return ignored.slice(0, maxNamed);
}

/** The names in `given` that the schema does not hold. */
function unknownNames(given: unknown, { properties }: TObject, more: readonly string[] = []): string[] {
  const heeded = new Set([...Object.keys(properties), ...more]);
  return Object.keys((given ?? {}) as object).filter((name) => !heeded.has(name));
}

/** @throws PlatformError 400/106 naming each of these parameters, and those that the schema has. */
export function refuseUnknown(names: readonly string[], { properties }: TObject, path = ''): void {
  if (names.length === 0) return;
  const supported = Object.keys(properties).join(', ');
  const details = names.slice(0, maxNamed).map((name) => ({
    path: path + shortened(name),
    message: `is not a parameter here; supported: ${supported}`,
  }));
  throw new PlatformError('invalid', { details });
}

/** The meta information of a list with the names of parameters that had no effect, if there are any. */
export function metaWith<M extends object | undefined>(meta: M, ignored: readonly string[]): M {
  return meta && ignored.length > 0 ? { ...meta, ignored: ignored.map(shortened) } : meta;
}

/** Names of one request that had no effect, of which it is told. */
const maxNamed = 50;

function shortened(name: string): string {
  return name.slice(0, 100);
}

/** As nameIgnored, for a handler that knows the names. */
export function sayIgnored(request: FastifyRequest, reply: FastifyReply, ignored: readonly string[]): void {
  if (ignored.length === 0) return;
  const names = ignored.slice(0, maxNamed).map((name) => encodeURIComponent(name.toWellFormed()).slice(0, 100));
  reply.header(`${request.server.headerPrefix}-ignored-properties`, names.join(', '));
}
