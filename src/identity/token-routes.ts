/** POST, GET and DELETE /tokens. A person or a back-end makes them for itself; admins list and delete all of the account. */

import { type Static, Type } from 'typebox';
import { DateText, Id, Nullable, type Row } from '../../db/registry/records.ts';
import { type Caller, isAccountWide, may } from '../core/caller.ts';
import { invalid, PlatformError, unknownReference } from '../core/errors.ts';
import { largestRights, type Rights } from '../core/rights.ts';
import { missingIn } from '../entity/giving.ts';
import { noteAnswer } from '../entity/kept-answers.ts';
import { pageOfTable } from '../entity/list.ts';
import { idParams, listResponse } from '../entity/routes.ts';
import { showSlices } from '../entity/row-slices.ts';
import { demandStanding } from '../entity/standing.ts';
import { findLive, writeAs } from '../entity/verbs.ts';
import { sendList } from '../http/answers/streamed-list.ts';
import type { App } from '../http/app.ts';
import { nameIgnored } from '../http/ignored-names.ts';
import type { IdentityContext } from './context.ts';
import { demandMaker, makeToken, readExpiry, recordToken } from './token-making.ts';

const tags = ['Tokens'];
type TokenRow = Row<'accessTokens'>;

const rights = Type.Record(
  Type.String({ maxLength: 50 }),
  Type.Array(Type.String({ maxLength: 20 }), { maxItems: 6 }),
  {
    maxProperties: 100,
  },
);
const createBody = Type.Object({
  name: Type.String({ minLength: 1, maxLength: 255 }),
  expiresAt: Type.String({ description: 'ISO 8601, at most one year from now.' }),
  rights: Type.Optional(
    Type.Unsafe<Static<typeof rights>>({
      ...rights,
      description: 'As in a role, at most your own. Without it the token has all that you have, at each moment.',
    }),
  ),
  organizationId: Type.Optional(Type.String({ description: 'It counts in this organization and below only.' })),
});
const shape = Type.Object({
  id: Id,
  accountId: Id,
  ownerId: Type.String({
    description: 'The person or the back-end that made it; of a SCIM token the identity provider.',
  }),
  name: Type.String(),
  created: DateText,
  expiresAt: DateText,
  rights: Nullable(Type.Unsafe<Rights>({ type: 'object', description: 'Null: all that its owner has.' })),
  organizationId: Nullable(Id),
  lastUsed: Nullable(Type.Unsafe<string>({ ...DateText, description: 'After a crash up to half a minute too early.' })),
  lastAddress: Nullable(Type.String({ description: 'The network from which it was used last.' })),
});
const createdShape = Type.Object({
  ...shape.properties,
  token: Type.String({
    description: 'For `Authorization: Bearer`, or the password of MQTT with the account id as username.',
  }),
});
const listQuery = Type.Object({
  accountId: Type.Optional(
    Type.String({ description: 'With it all tokens of the account, for callers that may read them.' }),
  ),
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
});

function show(row: TokenRow): Static<typeof shape> {
  const { id, accountId, ownerId, name, created, expires, organizationId, lastUsed, lastAddress } = row;
  const rights = row.rights === null ? null : (JSON.parse(row.rights) as Rights);
  return { id, accountId, ownerId, name, created, expiresAt: expires, rights, organizationId, lastUsed, lastAddress };
}

export function tokenRoutes(app: App, ctx: IdentityContext): void {
  app.post(
    '/tokens',
    {
      config: { creates: true, errors: ['unknownReference', 'forbidden'] },
      schema: {
        tags,
        operationId: 'createToken',
        summary: 'Make a token for a program of yours',
        description:
          'The response is the only one with its text, which is stored as a hash. A token makes no tokens, programs, identity providers or passwords.',
        body: createBody,
        response: { 200: Type.Object({ token: createdShape }, { description: 'The only answer with its text.' }) },
      },
    },
    async ({ caller, body }) => ({ token: await createToken(ctx, caller, body) }),
  );
  app.get(
    '/tokens',
    {
      config: { errors: ['notFound', 'pageOutside', 'forbidden'], sends: ['ignored'] },
      schema: {
        tags,
        operationId: 'listTokens',
        summary: 'List your tokens, or all of the account',
        description:
          'Newest first, without their texts. A token sees itself alone, unless it may read all of the account.',
        querystring: listQuery,
        response: listResponse('tokens', shape),
      },
    },
    async (request, reply) => {
      const { caller, query } = request;
      nameIgnored(request, reply, listQuery);
      const { rows, meta } = await listTokens(ctx, caller, query);
      return sendList(reply, 'tokens', {
        results: showSlices(rows, () => (row) => ({ ...show(row), ...ctx.sessions.useOf(row) })),
        meta,
      });
    },
  );
  app.delete(
    '/tokens/:id',
    {
      config: { errors: ['notFound', 'forbidden'], sends: ['revocation'] },
      schema: {
        tags,
        operationId: 'deleteToken',
        summary: 'End a token',
        description: 'Its connections and streams have ended when the response is sent.',
        params: idParams,
        response: { 200: Type.Object({ token: shape }, { description: 'A token no longer.' }) },
      },
    },
    async ({ caller, params }) => ({ token: await deleteToken(ctx, caller, params.id) }),
  );
}

/** @throws PlatformError 400/106 for rights that are none, or that no organization has; 403/21 for more than one's own. */
function demandOwnRights(rights: Record<string, string[]>, inOrganization: boolean, own: readonly Rights[]): Rights {
  const most = inOrganization ? largestRights.organization : largestRights.account;
  for (const [kind, actions] of Object.entries(rights)) {
    const known = Object.hasOwn(most, kind) ? (most[kind as keyof Rights] as readonly string[]) : undefined;
    if (!known || actions.some((action) => !known.includes(action)))
      throw invalid(`rights.${kind}`, 'is no right, or none in an organization');
  }
  const missing = missingIn(rights as Rights, own);
  if (missing) throw new PlatformError('forbidden', { message: `You do not have this permission: ${missing}.` });
  return rights as Rights;
}

async function createToken(ctx: IdentityContext, caller: Caller, body: Static<typeof createBody>) {
  const { clock, access } = ctx;
  demandMaker(caller);
  const expires = readExpiry(clock, body.expiresAt);
  const { organizationId = null } = body;
  return writeAs(ctx, caller, undefined, async (tx) => {
    const now = await demandStanding(tx, caller);
    const held = isAccountWide(now)
      ? [now.role.rights]
      : now.kind === 'endUser'
        ? now.memberships.map(({ role }) => role.rights)
        : [];
    const given = body.rights && demandOwnRights(body.rights, organizationId !== null, held);
    if (organizationId !== null) {
      const roots = now.kind === 'endUser' ? now.memberships.map((one) => one.organizationId) : undefined;
      const isThere = await findLive(tx, 'organizations', caller.accountId, organizationId);
      if (!isThere || (roots && !access.isWithin(organizationId, roots))) throw unknownReference('organizationId');
    }
    const { row, text } = await makeToken(ctx, tx, caller, {
      ...{ ownerId: caller.id, name: body.name, expires, organizationId },
      rights: given ? JSON.stringify(given) : null,
    });
    const shown = { ...show(row), token: text };
    await noteAnswer(tx, { token: shown });
    return shown;
  });
}

async function listTokens(
  ctx: IdentityContext,
  caller: Caller,
  { accountId, page, pageSize }: Static<typeof listQuery>,
) {
  if (accountId !== undefined) {
    ctx.access.demandAccount(caller, accountId);
    ctx.access.demand(caller, 'read', 'token');
  }
  const all = ctx.registry.query.selectFrom('accessTokens').where('accountId', '=', caller.accountId);
  // What else its owner has, and uses from where, is not for a token to know.
  const own =
    caller.tokenId === undefined ? all.where('ownerId', '=', caller.id) : all.where('id', '=', caller.tokenId);
  const matching = accountId === undefined ? own : all;
  return pageOfTable(
    ctx,
    caller,
    { ...(page && { page }), ...(pageSize && { pageSize }) },
    {
      matching,
      key: 'id',
      order: ['created', 'id'],
      long: ['rights'],
      read: async (current, ids: string[]) => {
        if (accountId !== undefined) ctx.access.demand(current, 'read', 'token');
        return ctx.registry.query.selectFrom('accessTokens').selectAll().where('id', 'in', ids).execute();
      },
      idOf: ({ id }) => id,
    },
  );
}

/** @throws PlatformError 404/100 for one of another account, or of somebody else where the caller may not end it. */
async function deleteToken(ctx: IdentityContext, caller: Caller, id: string) {
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const found = await tx.selectFrom('accessTokens').selectAll().where('id', '=', id).executeTakeFirst();
    const isOwn = found?.ownerId === caller.id && (caller.tokenId ?? id) === id;
    const now = await demandStanding(tx, caller);
    if (found?.accountId !== caller.accountId || !(isOwn || may(now, 'delete', 'token')))
      throw new PlatformError('notFound');
    await tx.deleteFrom('accessTokens').where('id', '=', id).execute();
    await recordToken(ctx, tx, 'tokenDeleted', caller, found);
    return found;
  });
  ctx.revoked.noteRevoked(caller, await ctx.revocations.principalDeleted(row.accountId, id));
  return show(row);
}
