/** SCIM 2.0 (RFC 7644) for identity providers, each with a token of its own. Each sees the people and groups that it has made. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { findEntity } from '../../../db/registry/entities.ts';
import { boundedCache } from '../../../db/sqlite/cache.ts';
import { PlatformError } from '../../core/errors.ts';
import { hashAccessToken, isWellFormedToken } from '../../core/formats/access-tokens.ts';
import { sendAllowance } from '../../core/limits/attempts.ts';
import { limitTries } from '../../core/limits/tries.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import { scimMediaType } from '../../http/answers/errors.ts';
import { JsonText, sendItems } from '../../http/answers/streamed-list.ts';
import type { App } from '../../http/app.ts';
import { takeJson } from '../../http/bodies.ts';
import { sayIgnored } from '../../http/ignored-names.ts';
import type { IdentityContext } from '../context.ts';
import { providerCaller } from '../federation/mappings.ts';
import { readBearer } from '../sessions/authentication.ts';
import { applyGroupRoles } from './following.ts';
import { changeGroup, createGroup, deleteGroup, findGroup, readGroup, readGroupPatch } from './groups.ts';
import { findGroups, findPeople, groupsOfPeople, membersOf } from './lists.ts';
import { readOperations } from './patch.ts';
import { changePerson, createPerson, deletePerson, findPerson } from './people.ts';
import {
  demandObject,
  isAsked,
  type Json,
  maxPageSize,
  type Projection,
  type Provisioner,
  project,
  readListRequest,
  readProjection,
} from './protocol.ts';
import { groupResource, resourceTypes, serviceProviderConfig, userResource } from './resources.ts';
import { describeSchemas, enterpriseSchema } from './schemas.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Who asks, on the endpoints of SCIM. */
    provisioner: Provisioner;
  }
}

export const scimPath = '/scim/v2';
const listSchema = 'urn:ietf:params:scim:api:messages:2.0:ListResponse';
/** A group of the largest size. */
const bodyBytes = 4 * 1024 * 1024;
/** Providers that have been heard of since the start. */
const providersKept = 10_000;

const usual = { config: { family: 'scim' }, schema: { hide: true } } as const;
/** A PUT may take somebody out, which needs no room. */
const replacing = { config: { family: 'scim', whenFull: true }, schema: { hide: true } } as const;
const creating = { config: { family: 'scim', creates: true }, schema: { hide: true } } as const;

export function scimRoutes(app: App, ctx: IdentityContext): void {
  app.addHook('onRoute', (route) => {
    route.bodyLimit ??= Math.min(bodyBytes, ctx.config.httpBodyBytes);
  });
  takeJson(app, ctx, 'application/scim+json');
  requireProvider(app, ctx);
  app.addHook('onSend', async (request, reply) => {
    if (request.provisioner) sayIgnored(request, reply, [...request.provisioner.ignored]);
  });
  personRoutes(app, ctx);
  groupRoutes(app, ctx);
  discoveryRoutes(app);
  app.all('/*', usual, () => {
    throw new PlatformError('notFound', { message: 'The endpoint does not exist.' });
  });
}

/** Everything below needs the token of a provider. */
function requireProvider(app: App, ctx: IdentityContext): void {
  const resumed = boundedCache<string, true>(providersKept);
  const perSecond = limitTries('requests', ctx);
  app.addHook('onRequest', async (request, reply) => {
    const text = readBearer(request);
    if (text === undefined) throw new PlatformError('tokenMissing');
    const token = isWellFormedToken(text) ? ctx.registry.accessTokenBy(hashAccessToken(text)) : undefined;
    if (!token || Date.parse(token.expires) <= ctx.clock.now()) throw new PlatformError('tokenInvalid');
    const provider = await findEntity(ctx.registry.query, 'identityProviders', token.ownerId);
    if (!provider || provider.deleted !== null) throw new PlatformError('tokenInvalid');
    const by = providerCaller(provider, request.address);
    request.caller = by;
    const address = `${ctx.config.publicUrl ?? app.listeningOrigin}${scimPath}`;
    request.provisioner = { provider, by, address, ignored: new Set() };
    sendAllowance(reply, perSecond.takeTry(provider.id));
    ctx.sessions.noteUse(token.id, token.accountId, request.address);
    ctx.audit.recordUse(by, {});
    if (resumed.get(provider.id)) return;
    resumed.set(provider.id, true);
    // What the end of the process has left undone. Somebody who cannot follow is told when its groups change.
    await applyGroupRoles(ctx, provider.id, by).catch((error) => {
      if (!(error instanceof PlatformError)) throw error;
    });
  });
}

type Id = { Params: { id: string } };

function send(reply: FastifyReply, status: number, resource: Json): FastifyReply {
  const { location } = (resource.meta ?? {}) as { location?: string };
  if (status === 201 && location !== undefined) reply.header('location', location);
  return reply.status(status).type(scimMediaType).send(JSON.stringify(resource));
}

function sendResources(
  reply: FastifyReply,
  { total, startIndex, length }: { total: number; startIndex: number; length: number },
  items: () => AsyncIterable<unknown>,
): Promise<FastifyReply> {
  const head = { schemas: [listSchema], totalResults: total, startIndex, itemsPerPage: length };
  return sendItems(reply, `${JSON.stringify(head).slice(0, -1)},"Resources":[`, items, ']}', scimMediaType);
}

function personRoutes(app: App, ctx: IdentityContext): void {
  const sendPerson = async (
    request: FastifyRequest,
    reply: FastifyReply,
    status: number,
    row: Parameters<typeof userResource>[0],
  ) => {
    const projection = readProjection(request.query);
    const groups = isAsked(projection, 'groups')
      ? ((await groupsOfPeople(ctx, [row.id])).get(row.id) ?? [])
      : undefined;
    return send(reply, status, project(userResource(row, request.provisioner.address, groups), projection));
  };
  app.get('/Users', usual, async (request, reply) => {
    const { provisioner, query } = request;
    const asked = readListRequest(query);
    const projection = readProjection(query);
    const { rows, total } = await findPeople(ctx, provisioner, asked);
    const page = { total, startIndex: asked.startIndex, length: rows.length };
    const ids = isAsked(projection, 'groups') ? rows.map(({ id }) => id) : [];
    const groups = await groupsOfPeople(ctx, ids);
    return sendResources(reply, page, async function* () {
      const work = new LongWork();
      for (const row of rows) {
        await work.giveWay();
        yield project(userResource(row, provisioner.address, groups.get(row.id) ?? []), projection);
      }
    });
  });
  app.get<Id>('/Users/:id', usual, async (request, reply) => {
    const row = await findPerson(ctx.registry.query, request.provisioner.provider.id, request.params.id);
    return sendPerson(request, reply, 200, row);
  });
  app.post('/Users', creating, async (request, reply) => {
    const row = await createPerson(ctx, request.provisioner, demandObject(request.body));
    return sendPerson(request, reply, 201, row);
  });
  app.put<Id>('/Users/:id', replacing, async (request, reply) => {
    const replacement = demandObject(request.body);
    const row = await changePerson(ctx, request.provisioner, request.params.id, { replacement });
    return sendPerson(request, reply, 200, row);
  });
  app.patch<Id>('/Users/:id', usual, async (request, reply) => {
    const operations = readOperations(demandObject(request.body));
    const row = await changePerson(ctx, request.provisioner, request.params.id, { operations });
    return sendPerson(request, reply, 200, row);
  });
  app.delete<Id>('/Users/:id', usual, async ({ provisioner, params }, reply) => {
    await deletePerson(ctx, provisioner, params.id);
    return reply.status(204).send();
  });
}

function groupRoutes(app: App, ctx: IdentityContext): void {
  /** A group as JSON, with its members a slice at a time. */
  const sendGroup = async (
    request: FastifyRequest,
    reply: FastifyReply,
    status: number,
    row: Parameters<typeof groupResource>[0],
  ) => {
    const projection = readProjection(request.query);
    const resource = project(groupResource(row, request.provisioner.address), projection);
    if (!isAsked(projection, 'members')) return send(reply, status, resource);
    if (status === 201) reply.header('location', `${request.provisioner.address}/Groups/${row.id}`);
    const before = `${JSON.stringify(resource).slice(0, -1)},"members":[`;
    return sendItems(reply.status(status), before, () => membersOf(ctx, row.id), ']}', scimMediaType);
  };
  app.get('/Groups', usual, async (request, reply) => {
    const { provisioner, query } = request;
    const asked = readListRequest(query);
    const projection = readProjection(query);
    const { rows, total } = await findGroups(ctx, provisioner, asked);
    const page = { total, startIndex: asked.startIndex, length: rows.length };
    return sendResources(reply, page, async function* () {
      for (const row of rows)
        yield await wholeGroup(ctx, project(groupResource(row, provisioner.address), projection), row.id, projection);
    });
  });
  app.get<Id>('/Groups/:id', usual, async (request, reply) => {
    const row = await findGroup(ctx.registry.query, request.provisioner.provider.id, request.params.id);
    return sendGroup(request, reply, 200, row);
  });
  app.post('/Groups', creating, async (request, reply) => {
    const row = await createGroup(
      ctx,
      request.provisioner,
      readGroup(demandObject(request.body), request.provisioner.ignored),
    );
    return sendGroup(request, reply, 201, row);
  });
  app.put<Id>('/Groups/:id', replacing, async (request, reply) => {
    const change = readGroup(demandObject(request.body), request.provisioner.ignored);
    return sendGroup(request, reply, 200, await changeGroup(ctx, request.provisioner, request.params.id, change));
  });
  app.patch<Id>('/Groups/:id', usual, async ({ provisioner, params, body }, reply) => {
    const change = readGroupPatch(readOperations(demandObject(body)), provisioner.ignored);
    await changeGroup(ctx, provisioner, params.id, change);
    return reply.status(204).send();
  });
  app.delete<Id>('/Groups/:id', usual, async ({ provisioner, params }, reply) => {
    await deleteGroup(ctx, provisioner, params.id);
    return reply.status(204).send();
  });
}

/** A group of a list, whose members have been counted. */
async function wholeGroup(ctx: IdentityContext, resource: Json, id: string, projection: Projection): Promise<unknown> {
  if (!isAsked(projection, 'members')) return resource;
  const members: Json[] = [];
  for await (const one of membersOf(ctx, id)) members.push(one);
  return new JsonText(JSON.stringify({ ...resource, members }));
}

function discoveryRoutes(app: App): void {
  const list = (resources: readonly unknown[]) => ({
    ...{ schemas: [listSchema], totalResults: resources.length, startIndex: 1, itemsPerPage: resources.length },
    Resources: resources,
  });
  const one = (all: readonly object[], id: string) => {
    const found = all.find((resource) => (resource as { id: string }).id.toLowerCase() === id.toLowerCase());
    if (!found) throw new PlatformError('notFound');
    return found as Json;
  };
  const types = ({ provisioner: { address } }: FastifyRequest) => resourceTypes(address, enterpriseSchema);
  const schemas = ({ provisioner: { address } }: FastifyRequest) => describeSchemas(`${address}/Schemas`);
  app.get('/ServiceProviderConfig', usual, (request, reply) =>
    send(reply, 200, serviceProviderConfig(request.provisioner.address, maxPageSize)),
  );
  app.get('/ResourceTypes', usual, (request, reply) => send(reply, 200, list(types(request))));
  app.get<Id>('/ResourceTypes/:id', usual, (request, reply) =>
    send(reply, 200, one(types(request), request.params.id)),
  );
  app.get('/Schemas', usual, (request, reply) => send(reply, 200, list(schemas(request))));
  app.get<Id>('/Schemas/:id', usual, (request, reply) => send(reply, 200, one(schemas(request), request.params.id)));
}
