/** The token with which an identity provider speaks SCIM. It is good for nothing else; GET and DELETE /tokens know it too. */
import { type Static, Type } from 'typebox';
import { DateText, Id } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { PlatformError } from '../../core/errors.ts';
import { defaultRoles } from '../../core/rights.ts';
import { demandHas } from '../../entity/giving.ts';
import { noteAnswer } from '../../entity/kept-answers.ts';
import { idParams } from '../../entity/routes.ts';
import { demandReference, writeAs } from '../../entity/verbs.ts';
import type { App } from '../../http/app.ts';
import type { IdentityContext } from '../context.ts';
import { demandMaker, makeToken, readExpiry } from '../token-making.ts';
import { scimPath } from './routes.ts';

const body = Type.Object({ expiresAt: Type.String({ description: 'ISO 8601, at most one year from now.' }) });
const shape = Type.Object({
  id: Id,
  accountId: Id,
  identityProviderId: Id,
  created: DateText,
  expiresAt: DateText,
  address: Type.String({ description: 'The address of SCIM, for the settings of the provider.' }),
  token: Type.String({ description: 'For `Authorization: Bearer`; it cannot be read again.' }),
});

export function scimTokenRoutes(app: App, ctx: IdentityContext): void {
  app.post(
    '/identity-providers/:id/scim-token',
    {
      config: { creates: true, right: ['update', 'identityProvider'], errors: ['notFound', 'deleted', 'forbidden'] },
      schema: {
        tags: ['Identity providers'],
        operationId: 'createScimToken',
        summary: 'Make a token with which the provider manages people and groups by SCIM',
        description:
          'The response is the only one with its text. Former tokens stay valid: list and end them at /tokens. You need all permissions of an admin, and a token cannot make one.',
        params: idParams,
        body,
        response: { 200: Type.Object({ scimToken: shape }, { description: 'The only answer with its text.' }) },
      },
    },
    async ({ caller, params, body }) => ({
      scimToken: await createToken(ctx, caller, params.id, body, ctx.config.publicUrl ?? app.listeningOrigin),
    }),
  );
}

async function createToken(
  ctx: IdentityContext,
  caller: Caller,
  id: string,
  { expiresAt }: Static<typeof body>,
  origin: string,
): Promise<Static<typeof shape>> {
  demandMaker(caller);
  const found = ctx.registry.entity('identityProviders', id);
  if (found?.accountId !== caller.accountId) throw new PlatformError('notFound');
  if (found.deleted !== null) throw new PlatformError('deleted');
  const expires = readExpiry(ctx.clock, expiresAt);
  return writeAs(ctx, caller, undefined, async (tx) => {
    // With it a program decides who is in the groups that roles are mapped to.
    await demandHas(tx, caller, defaultRoles.account.rights);
    const { accountId, name } = await demandReference(tx, 'identityProviders', caller.accountId, id, 'id');
    const wanted = { ownerId: id, name: `SCIM of ${name}`, expires, rights: null, organizationId: null };
    const { row, text } = await makeToken(ctx, tx, caller, wanted, 'id');
    const { created } = row;
    const shown = { id: row.id, accountId, identityProviderId: id, created, expiresAt: expires };
    const scimToken = { ...shown, address: origin + scimPath, token: text };
    await noteAnswer(tx, { scimToken });
    return scimToken;
  });
}
