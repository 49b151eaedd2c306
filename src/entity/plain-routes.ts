/** The URLs of kinds without a trash: made, read, listed, perhaps updated, and deleted for good. */

import type { Static, TObject, TSchema } from 'typebox';
import type { Registry } from '../../db/registry/index.js';
import type { EntityTable, Row } from '../../db/registry/records.js';
import type { Action, Caller, EntityKind } from '../access.js';
import type { FailureKind } from '../errors.js';
import type { App } from '../http/app.js';
import { sendList } from '../http/streamed-list.js';
import { type Listing, type ListQuery, list, listSchema } from './listing.js';
import {
  entityResponse,
  etagHeaders,
  idParams,
  listResponse,
  metaWith,
  nameIgnored,
  readEtag,
  sendEntity,
  type Verb,
  verbConfig,
  type Wire,
} from './routes.js';
import { type ListServices, showSlices } from './row-slices.js';
import { demandLive, findReached } from './verbs.js';

/** What the OpenAPI document says of one verb; `shape` where its answer has another than the kind's. */
interface Said {
  summary: string;
  description?: string;
  answer: string;
  shape?: TSchema;
  errors?: readonly FailureKind[];
  /** Whether somebody may hear less over MQTT afterwards. */
  revokes?: true;
}

/** One kind: where it lives, what it is called, its schemas and its verbs; the rights are asked for before each verb. */
interface PlainKind<T extends EntityTable, C extends TObject, U extends TObject> {
  path: string;
  tag: string;
  /** What it is called in the table of rights. */
  entity: EntityKind;
  wrapper: string;
  plural: string;
  shape: TSchema;
  listing: Listing<T>;
  show(row: Row<T>): Wire;
  create: Said & { body: C; run(caller: Caller, body: Static<C>): Promise<Wire> };
  read: Said & { show?(row: Row<T>): Wire };
  list: Pick<Said, 'summary'>;
  update?: Said & { body: U; run(caller: Caller, id: string, version: number, body: Static<U>): Promise<Wire> };
  /** Without a version it needs no etag. */
  remove: Said &
    (
      | { run(caller: Caller, id: string, version: number): Promise<Wire> }
      | { runAnyVersion(caller: Caller, id: string): Promise<Wire> }
    );
}

/** Mounts one kind below the app's prefix. */
export function plainRoutes<T extends EntityTable, C extends TObject, U extends TObject>(
  app: App,
  ctx: ListServices & { registry: Registry },
  kind: PlainKind<T, C, U>,
): void {
  const { path, entity, wrapper, plural, listing, create, read, update, remove } = kind;
  const { access } = ctx;
  const listQuery = listSchema(listing);
  const config = (verb: Verb, said: Partial<Said>) =>
    verbConfig(verb, entity, said.errors, said.revokes ? ['revocation'] : []);
  const schema = ({ summary, description, answer, shape = kind.shape }: Said) => ({
    tags: [kind.tag],
    summary,
    ...(description !== undefined && { description }),
    response: entityResponse(wrapper, shape, answer),
  });
  const demand = async (caller: Caller, action: Action, id: string): Promise<Row<T>> => {
    access.demand(caller, action, entity);
    return findReached(ctx, caller, listing.table, id);
  };

  app.post(
    path,
    { config: config('create', create), schema: { ...schema(create), body: create.body } },
    async (request, reply) => {
      const body = request.body as Static<C> & { accountId: string };
      access.demand(request.caller, 'create', entity);
      access.demandAccount(request.caller, body.accountId);
      const wire = await create.run(request.caller, body);
      nameIgnored(request, reply, create.body);
      return sendEntity(reply, wrapper, wire);
    },
  );
  app.get(
    `${path}/:id`,
    { config: config('read', read), schema: { ...schema(read), params: idParams } },
    async (request, reply) => {
      const row = demandLive(await demand(request.caller, 'read', request.params.id));
      return sendEntity(reply, wrapper, (read.show ?? kind.show)(row));
    },
  );
  app.get(
    path,
    {
      config: config('list', {}),
      schema: {
        tags: [kind.tag],
        summary: kind.list.summary,
        querystring: listQuery,
        response: listResponse(plural, kind.shape),
      },
    },
    async (request, reply) => {
      const query = request.query as ListQuery;
      access.demand(request.caller, 'read', entity);
      access.demandAccount(request.caller, query.accountId);
      const ignored = nameIgnored(request, reply, listQuery);
      const { rows, meta } = await list(ctx, request.caller, listing, query);
      const results = rows && showSlices(rows, () => kind.show);
      return sendList(reply, plural, { results, meta: metaWith(meta, ignored) });
    },
  );
  if (update)
    app.put(
      `${path}/:id`,
      {
        config: config('update', update),
        schema: { ...schema(update), params: idParams, headers: etagHeaders, body: update.body },
      },
      async (request, reply) => {
        const { caller, params } = request;
        await demand(caller, 'update', params.id);
        const wire = await update.run(caller, params.id, readEtag(request), request.body as Static<U>);
        nameIgnored(request, reply, update.body);
        return sendEntity(reply, wrapper, wire);
      },
    );
  const anyVersion = 'runAnyVersion' in remove;
  const removeConfig = config('remove', remove);
  app.delete(
    `${path}/:id`,
    {
      config: anyVersion
        ? { ...removeConfig, errors: removeConfig.errors.filter((error) => !aboutVersions.has(error)) }
        : removeConfig,
      schema: { ...schema(remove), params: idParams, ...(!anyVersion && { headers: etagHeaders }) },
    },
    async (request, reply) => {
      const { caller, params } = request;
      await demand(caller, 'delete', params.id);
      const wire = anyVersion
        ? await remove.runAnyVersion(caller, params.id)
        : await remove.run(caller, params.id, readEtag(request));
      return sendEntity(reply, wrapper, wire);
    },
  );
}

const aboutVersions: ReadonlySet<FailureKind> = new Set(['etagMissing', 'etagInvalid', 'staleVersion']);
