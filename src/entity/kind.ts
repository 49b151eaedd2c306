/**
 * The URLs of an entity kind: create, read, list, update, delete, and the trash where the kind has one. Reading, listing and
 * showing are done here; a kind brings what is particular to it. Each verb states its right once, in `verbs`.
 */
import type { FastifyReply, FastifyRequest, preHandlerHookHandler } from 'fastify';
import type { Static, TObject, TProperties, TSchema } from 'typebox';
import { Type } from 'typebox';
import type { Registry } from '../../db/registry/index.ts';
import type { EntityTable, Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { type FailureKind, PlatformError } from '../core/errors.ts';
import type { Action, EntityKind } from '../core/rights.ts';
import { sendList } from '../http/answers/streamed-list.ts';
import type { App } from '../http/app.ts';
import { metaWith, nameIgnored, refuseUnknownProperties } from '../http/ignored-names.ts';
import type { Tag } from '../http/openapi/document.ts';
import { chooserOf, demandNames, fieldsQuery, type Nameable, readFieldNames } from './chosen.ts';
import type { CompiledFilter } from './filters/compiled.ts';
import { inWords, lists, textsOf, type Verb, verbs } from './kind-verbs.ts';
import { list, type Page } from './list.ts';
import { type Listing, type ListQuery, listSchema, trashListSchema } from './list-query.ts';
import {
  chosenListResponse,
  entityResponse,
  etagHeaders,
  idParams,
  listResponse,
  readEtag,
  type ShownEntity,
  sendEntity,
} from './routes.ts';
import { type ListServices, showSlices } from './row-slices.ts';
import type { FieldKind } from './values.ts';
import { demandLive, demandTrashed, findReached } from './verbs.ts';

/** The OpenAPI texts of one verb, if they differ from those of other kinds. */
interface VerbTexts {
  summary?: string;
  description?: string;
  answer?: string;
  /** Where its answer has another shape than the kind's. */
  shape?: TSchema;
  /** How it can fail in addition to `verbs`. */
  errors?: readonly FailureKind[];
  /** Whether somebody may hear less over MQTT afterwards. */
  revokes?: true;
}

/** Parameters of a GET that ask for more than the entity. */
interface Expand {
  expand?: string;
  count?: string;
  /** Of organizations. */
  counts?: boolean;
  /** Of devices. */
  values?: string;
}

type Show<T extends EntityTable> = (row: Row<T>) => ShownEntity;

/** One kind: where it lives, what it is called, its schemas and its verbs. A verb that a kind does not have is left out. */
export interface Kind<T extends EntityTable, C extends TObject, U extends TObject> {
  path: string;
  tag: Tag;
  /** Its name in the table of rights. */
  entity: EntityKind;
  wrapper: string;
  plural: string;
  shape: TObject;
  /** Rows whose columns differ from `within` are of another kind and look as if they did not exist. */
  listing: Listing<T>;
  /** Parameters of a GET that are no filters, such as `expand`; `check` throws for what they cannot be. */
  expand?: {
    query: TProperties;
    check(caller: Caller, query: Expand): void;
    /** The objects that it puts next to an entity, by their names there. */
    adds?: Readonly<Record<string, Nameable>>;
  };
  /** Whose custom fields are among the properties of its entities. */
  fieldKind?: FieldKind;
  /** The names of the custom fields that a body may have: of a new entity, or of `before`. */
  customFields?(caller: Caller, body: Static<TObject>, before?: Row<T>): Promise<readonly string[]>;
  /** Rows that callers see besides those that they reach in the table. */
  find?(caller: Caller, id: string): Row<T> | undefined;
  /** How rows are shown. Called once for several rows, so that it reads for all of them what they need. */
  prepare(caller: Caller, rows: Row<T>[], query: Expand): Show<T> | Promise<Show<T>>;
  /** The account of the body is the caller's. */
  create: VerbTexts & { bodyLimit?: number; body: C; run(caller: Caller, body: Static<C>): Promise<ShownEntity> };
  /** `show` where one that is read shows more than one of a list. */
  read?: VerbTexts & { show?(caller: Caller, row: Row<T>): ShownEntity | Promise<ShownEntity> };
  /** `query` and `narrow` are for a list that takes more than filters; `narrow` throws for what the caller may not ask. */
  list?: Pick<VerbTexts, 'summary' | 'description' | 'errors'> & {
    query?: TObject;
    /** Parameters that are made a filter; `filter` is the text. @throws PlatformError 400/106 for what is no filter of this kind. */
    compile?: {
      query: TProperties;
      run(caller: Caller, query: ListQuery, text: string | undefined): Promise<CompiledFilter | undefined>;
    };
    narrow?(caller: Caller, query: ListQuery): { listing: Listing<T>; query: ListQuery };
    /** The page itself, where it is not of the table alone. */
    page?(caller: Caller, query: ListQuery): Promise<Page<T>>;
  };
  /** `before` is in the caller's reach, live or in the trash. `ignores` names properties that have no effect on this one. */
  update?: VerbTexts & {
    body: U;
    ignores?(before: Row<T>): readonly string[];
    run(caller: Caller, before: Row<T>, version: number, body: Static<U>): Promise<ShownEntity>;
  };
  /** As update. Without a version it needs no etag. */
  remove?: VerbTexts &
    (
      | { run(caller: Caller, before: Row<T>, version: number): Promise<ShownEntity> }
      | { runAnyVersion(caller: Caller, before: Row<T>): Promise<ShownEntity> }
    );
  /** Absent where an entity is deleted for good. `before` is in the trash. */
  trash?: VerbTexts & {
    listing?: Listing<T>;
    recover(caller: Caller, before: Row<T>, version: number): Promise<ShownEntity>;
  };
}

type AnyKind<T extends EntityTable> = Kind<T, TObject, TObject>;

type Services = ListServices & { registry: Registry };

/** Mounts one kind below the app's prefix. */
export function entityRoutes<T extends EntityTable, C extends TObject, U extends TObject>(
  app: App,
  services: Services,
  kind: Kind<T, C, U>,
): void {
  const any = kind as unknown as AnyKind<T>;
  const parts = partsOf(services, any);
  createRoute(app, services, any, parts);
  readRoute(app, any, parts);
  if (kind.update) updateRoute(app, any, any.update as NonNullable<AnyKind<T>['update']>, parts);
  if (kind.remove) removeRoute(app, any.remove as NonNullable<AnyKind<T>['remove']>, parts);
  listRoute(app, services, any, 'list', parts);
  if (kind.trash) trashRoutes(app, services, any, any.trash as NonNullable<AnyKind<T>['trash']>, parts);
}

type Parts<T extends EntityTable> = ReturnType<typeof partsOf<T>>;

/** Shared by the routes of a kind. */
function partsOf<T extends EntityTable>(services: Services, kind: AnyKind<T>) {
  const { path, entity, wrapper, listing } = kind;
  return {
    one: `${path}/:id`,
    /** The right of a verb, its errors, the headers that it sends. */
    config(verb: Verb, { errors = [], revokes }: VerbTexts = {}) {
      const hasCustomFields = kind.customFields !== undefined;
      const { action, errors: usual } = verbs[verb];
      const own = lists.has(verb) ? (['ignored'] as const) : (['etag'] as const);
      const right: readonly [Action, EntityKind] = [action, entity];
      const ends = revokes ? (['revocation'] as const) : [];
      return { right, errors: [...usual, ...errors], sends: [...own, ...ends], hasCustomFields };
    },
    /** @throws PlatformError 400/106 naming unknown properties of a body, with `SLIPWAY_STRICT_BODIES`. */
    async demandNames(request: FastifyRequest, schema: TObject, before?: Row<T>): Promise<void> {
      if (!request.server.strictBodies || !kind.customFields) return;
      const body = request.body as Static<TObject>;
      const fields = await kind.customFields(request.caller, body, before);
      const names = [...Object.keys(kind.shape.properties), ...Object.keys(kind.expand?.adds ?? {}), ...fields];
      refuseUnknownProperties(body, schema, names);
    },
    schema: (verb: Verb, { shape = kind.shape, answer = `The ${inWords(wrapper)}.`, ...said }: VerbTexts = {}) => ({
      ...textsOf(kind, verb, said),
      response: entityResponse(wrapper, shape, answer),
    }),
    /** @throws PlatformError 404/100 for what does not exist, is out of reach or is of another kind. */
    reached(caller: Caller, id: string): Row<T> {
      const row = kind.find?.(caller, id) ?? findReached(services, caller, listing.table, id);
      const within = Object.entries<unknown>(listing.within ?? {});
      if (within.some(([column, value]) => row[column as keyof Row<T>] !== value)) throw new PlatformError('notFound');
      return row;
    },
    async show(caller: Caller, row: Row<T>, query: Expand = {}): Promise<ShownEntity> {
      return (await kind.prepare(caller, [row], query))(row);
    },
    send: (reply: FastifyReply, shown: ShownEntity) => sendEntity(reply, wrapper, shown),
    /** Clients are told of a missing etag before their right is looked at where a kind has a trash, elsewhere at last. */
    preHandler: kind.trash ? etagFirst : [],
  };
}

const etagFirst: preHandlerHookHandler = (request, _, next) => {
  readEtag(request);
  next();
};

function createRoute<T extends EntityTable>(
  app: App,
  { access }: Services,
  { path, create, shape, customFields }: AnyKind<T>,
  { config, schema, send, demandNames }: Parts<T>,
): void {
  app.post(
    path,
    {
      config: { ...config('create', create), creates: true },
      schema: { ...schema('create', create), body: create.body },
      ...(create.bodyLimit !== undefined && { bodyLimit: create.bodyLimit }),
    },
    async (request, reply) => {
      const body = request.body as Static<TObject> & { accountId: string };
      access.demandAccount(request.caller, body.accountId);
      await demandNames(request, create.body);
      const shown = await create.run(request.caller, body);
      if (customFields) nameIgnored(request, reply, create.body, customNames(create.shape ?? shape, shown));
      return send(reply, shown);
    },
  );
}

function readRoute<T extends EntityTable>(
  app: App,
  { expand, read = {} }: AnyKind<T>,
  { one, config, schema, reached, show, send }: Parts<T>,
): void {
  app.get(
    one,
    {
      config: config('read', read),
      schema: {
        ...schema('read', read),
        params: idParams,
        ...(expand && { querystring: Type.Object(expand.query) }),
      },
    },
    async (request, reply) => {
      const { caller, params } = request;
      const row = demandLive(reached(caller, params.id));
      return send(
        reply,
        await (read.show ? read.show(caller, row) : show(caller, row, expand && (request.query as Expand))),
      );
    },
  );
}

function updateRoute<T extends EntityTable>(
  app: App,
  { shape, customFields }: AnyKind<T>,
  update: NonNullable<AnyKind<T>['update']>,
  { one, config, schema, reached, send, preHandler, demandNames }: Parts<T>,
): void {
  app.put(
    one,
    {
      config: config('update', update),
      preHandler,
      schema: {
        ...schema('update', update),
        params: idParams,
        headers: etagHeaders,
        body: update.body,
      },
    },
    async (request, reply) => {
      const { caller, params } = request;
      const before = reached(caller, params.id);
      await demandNames(request, update.body, before);
      const shown = await update.run(caller, before, readEtag(request), request.body as Static<TObject>);
      if (customFields) {
        const known = omit(update.body, update.ignores?.(before) ?? []);
        nameIgnored(request, reply, known, customNames(update.shape ?? shape, shown));
      }
      return send(reply, shown);
    },
  );
}

const aboutVersions: ReadonlySet<FailureKind> = new Set(['etagMissing', 'etagInvalid', 'staleVersion']);

function removeRoute<T extends EntityTable>(
  app: App,
  remove: NonNullable<AnyKind<T>['remove']>,
  { one, config, schema, reached, send, preHandler }: Parts<T>,
): void {
  const anyVersion = 'runAnyVersion' in remove;
  const { errors, ...others } = config('remove', remove);
  app.delete(
    one,
    {
      config: { ...others, errors: anyVersion ? errors.filter((error) => !aboutVersions.has(error)) : errors },
      preHandler,
      schema: {
        ...schema('remove', remove),
        params: idParams,
        ...(!anyVersion && { headers: etagHeaders }),
      },
    },
    async (request, reply) => {
      const { caller, params } = request;
      const before = reached(caller, params.id);
      const shown = anyVersion
        ? await remove.runAnyVersion(caller, before)
        : await remove.run(caller, before, readEtag(request));
      return send(reply, shown);
    },
  );
}

function listRoute<T extends EntityTable>(
  app: App,
  services: Services,
  kind: AnyKind<T>,
  verb: 'list' | 'listTrash',
  { config }: Parts<T>,
): void {
  const { path, plural, shape, expand, prepare } = kind;
  const isLive = verb === 'list';
  const compile = isLive ? kind.list?.compile : undefined;
  const listing = (!isLive && kind.trash?.listing) || kind.listing;
  const querystring = isLive
    ? (kind.list?.query ?? listSchema(listing, { ...expand?.query, ...fieldsQuery, ...compile?.query }))
    : trashListSchema;
  app.get(
    isLive ? path : `/trash${path}`,
    {
      config: config(verb, (isLive && kind.list) || {}),
      schema: {
        ...textsOf(kind, verb, (isLive && kind.list) || {}),
        querystring,
        response: isLive && !kind.list?.query ? chosenListResponse(plural, shape) : listResponse(plural, shape),
      },
    },
    async (request, reply) => {
      const { caller } = request;
      const ignored = nameIgnored(request, reply, querystring);
      const { query, text } = knownParameters(request.query, querystring);
      services.access.demandAccount(caller, query.accountId);
      if (compile) query.filter = await compile.run(caller, query, text);
      const wanted = (isLive && kind.list?.narrow?.(caller, query)) || { listing, query };
      const page = await (isLive && kind.list?.page
        ? kind.list.page(caller, query)
        : list(services, caller, wanted.listing, wanted.query, isLive ? 'live' : 'trash'));
      expand?.check(caller, query);
      const chosen = readFieldNames(isLive ? query.fields : undefined);
      await demandNames(services.registry.query, caller.accountId, chosen, kind, expand?.adds);
      const choose = chooserOf(chosen);
      const results =
        page.rows &&
        showSlices(page.rows, async (current, rows) => {
          const show = await prepare(current, rows, query);
          return (row) => choose(show(row));
        });
      return sendList(reply, plural, { results, meta: metaWith(page.meta, ignored) });
    },
  );
}

function trashRoutes<T extends EntityTable>(
  app: App,
  services: Services,
  kind: AnyKind<T>,
  trash: NonNullable<AnyKind<T>['trash']>,
  parts: Parts<T>,
): void {
  const { config, schema, reached, show, send, preHandler } = parts;
  const path = `/trash${parts.one}`;
  app.get(
    path,
    {
      config: config('readTrash'),
      schema: { ...schema('readTrash'), params: idParams },
    },
    async ({ caller, params }, reply) => send(reply, await show(caller, demandTrashed(reached(caller, params.id)))),
  );
  listRoute(app, services, kind, 'listTrash', parts);
  app.post(
    `${path}/recover`,
    {
      config: config('recover', trash),
      preHandler,
      schema: {
        ...schema('recover'),
        params: idParams,
        headers: etagHeaders,
      },
    },
    async (request, reply) => {
      const { caller, params } = request;
      const before = demandTrashed(reached(caller, params.id));
      return send(reply, await trash.recover(caller, before, readEtag(request)));
    },
  );
}

/** The properties of a query that its schema has; others were not checked and have no effect. `text` is the filter. */
function knownParameters(
  given: FastifyRequest['query'],
  schema: TObject,
): { query: ListQuery; text: string | undefined } {
  const known = Object.entries(given as object).filter(([name]) => Object.hasOwn(schema.properties, name));
  const { filter: text, ...query } = Object.fromEntries(known) as unknown as { accountId: string; filter?: string };
  return { query, text };
}

function omit(schema: TObject, names: readonly string[]): TObject {
  if (names.length === 0) return schema;
  return Type.Object(Object.fromEntries(Object.entries(schema.properties).filter(([name]) => !names.includes(name))));
}

/** The custom fields of an entity: what its kind's schema does not know. */
function customNames(shape: TSchema, entity: ShownEntity): string[] {
  const { properties = {} } = shape as Partial<TObject>;
  return Object.keys(entity).filter((name) => !Object.hasOwn(properties, name));
}
