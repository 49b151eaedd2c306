/** OpenID providers of an account: where its people may log in as well. */

import { type Static, Type } from 'typebox';
import { findEntity } from '../../../db/registry/entities.ts';
import type { Tx } from '../../../db/registry/index.ts';
import { identityProviderColumns } from '../../../db/registry/records/identity.ts';
import { Nullable, type Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import { namesPrivateAddress } from '../../core/network/outbound.ts';
import { defaultRoles } from '../../core/rights.ts';
import {
  changeProperties,
  commonShape,
  createProperties,
  listingOf,
  readChanges,
  readNew,
  showCommon,
  showing,
  shownProperties,
} from '../../entity/columns.ts';
import { demandHas } from '../../entity/giving.ts';
import { noteAnswer } from '../../entity/kept-answers.ts';
import { entityRoutes } from '../../entity/kind.ts';
import { etagOf } from '../../entity/routes.ts';
import { change, insert, inThread, stamp, trash, writeAs } from '../../entity/verbs.ts';
import type { App } from '../../http/app.ts';
import type { IdentityContext } from '../context.ts';
import { applyGroupRoles, endFollowed, followFew, noteRolesPending } from '../scim/following.ts';
import { demandMaker } from '../token-making.ts';
import { forgetPeople } from './forgetting.ts';
import { issuerProblem } from './issuer-problem.ts';
import { demandMappings } from './mappings.ts';
import { isSecure } from './secure.ts';

/** The secret is stored sealed, and answers say only whether there is one. */
const clientSecret = Type.Optional(
  Nullable(
    Type.String({
      minLength: 1,
      maxLength: 1024,
      description: 'It is kept sealed and never shown; null means no secret.',
    }),
  ),
);
const createBody = Type.Object({
  accountId: Type.String(),
  ...createProperties(identityProviderColumns),
  clientSecret,
});
const updateBody = Type.Object({ ...changeProperties(identityProviderColumns), clientSecret });
const shape = Type.Object({
  ...commonShape,
  ...shownProperties(identityProviderColumns),
  clientSecretSet: Type.Boolean(),
  issuerProblem: Type.Optional(
    Nullable(
      Type.String({
        description:
          'After POST, and PUT of another issuer: what is wrong with the issuer, which has been asked for its configuration. Null if nothing is.',
      }),
    ),
  ),
});

const listing = listingOf('identityProviders', identityProviderColumns);

export function identityProviderRoutes(app: App, ctx: IdentityContext): void {
  entityRoutes(app, ctx, {
    path: '/identity-providers',
    tag: 'Identity providers',
    entity: 'identityProvider',
    wrapper: 'identityProvider',
    plural: 'identityProviders',
    shape,
    listing,
    prepare: () => show,
    create: {
      summary: 'Create an identity provider',
      description:
        'Reads the configuration of the provider at its issuer, and says in `issuerProblem` what is wrong with it. The provider is made all the same: it may be for SCIM alone, or its issuer may come later.',
      answer: 'What was made.',
      errors: ['notUnique', 'unknownReference'],
      body: createBody,
      run: (caller, body) => createProvider(ctx, caller, body),
    },
    read: { summary: 'Read an identity provider', answer: 'As it is now.' },
    list: { summary: 'List identity providers' },
    update: {
      summary: 'Update an identity provider; logins that have begun end',
      answer: 'With its new version.',
      errors: ['notUnique', 'unknownReference', 'constraint'],
      revokes: true,
      body: updateBody,
      run: (caller, before, version, body) => updateProvider(ctx, caller, before.id, version, body),
    },
    remove: {
      summary: 'Delete an identity provider, with its secret and its links to identities; logins that have begun end',
      answer: 'A provider no longer.',
      run: (caller, { id }, version) => deleteProvider(ctx, caller, id, version),
    },
  });
}

/** @throws PlatformError 400/106 for an address, a scope or a name that cannot be; as demandMaker. */
async function createProvider(ctx: IdentityContext, caller: Caller, body: Static<typeof createBody>) {
  demandMaker(caller);
  checkBody(ctx, body);
  const stamped = stamp(ctx.clock, caller);
  const demandMay = async (tx: Tx) => {
    // A caller that makes a provider can log in as anybody.
    await demandHas(tx, caller, defaultRoles.account.rights);
    await demandMappings(tx, caller, body.mappings ?? []);
  };
  // Nobody else has the service ask an address.
  await ctx.registry.transaction(demandMay);
  const problem = { issuerProblem: await issuerProblem(ctx.config, body) };
  return writeAs(ctx, caller, undefined, async (tx) => {
    await demandMay(tx);
    const made = await insert(tx, 'identityProviders', {
      ...stamped,
      ...readNew(identityProviderColumns, body),
      sealedClientSecret: body.clientSecret ? ctx.sealing.seal(stamped.id, body.clientSecret) : null,
    });
    await recordChange(ctx, tx, caller, made, 'created');
    const identityProvider = { ...show(made), ...problem };
    await noteAnswer(tx, { identityProvider }, { etag: etagOf(identityProvider) });
    return identityProvider;
  });
}

/** @throws PlatformError as change, and as createProvider. */
async function updateProvider(
  ctx: IdentityContext,
  caller: Caller,
  id: string,
  version: number,
  body: Static<typeof updateBody>,
) {
  demandMaker(caller);
  checkBody(ctx, body);
  // As many people as the provider has are unlinked or marked.
  const { row, followed, hasMoved } = await writeAs(inThread(ctx.registry), caller, undefined, async (tx) => {
    await demandHas(tx, caller, defaultRoles.account.rights);
    await demandMappings(tx, caller, body.mappings ?? []);
    const before = await findEntity(tx, 'identityProviders', id);
    const by = { caller, clock: ctx.clock };
    const changed = await change(tx, 'identityProviders', id, version, by, {
      ...readChanges(identityProviderColumns, body),
      ...(body.clientSecret !== undefined && {
        sealedClientSecret: body.clientSecret && ctx.sealing.seal(id, body.clientSecret),
      }),
    });
    // The secret cannot be read. A change of the issuer must not send it to another server.
    const moves = before?.issuer !== changed.issuer && before?.sealedClientSecret !== null;
    if (moves && body.clientSecret === undefined)
      throw invalid('clientSecret', 'must be given again, or null, with another issuer');
    if (before && before.issuer !== changed.issuer) await forgetLinks(tx, before);
    await recordChange(ctx, tx, caller, changed, 'updated');
    const hasMoved = before?.issuer !== changed.issuer;
    if (before?.mappings === changed.mappings) return { row: changed, followed: [], hasMoved };
    await noteRolesPending(tx, changed);
    return { row: changed, followed: await followFew(ctx, tx, changed), hasMoved };
  });
  await endFollowed(ctx, caller, followed);
  await applyGroupRoles(ctx, id, caller);
  return { ...show(row), ...(hasMoved && { issuerProblem: await issuerProblem(ctx.config, row) }) };
}

/** Nothing recovers a provider, so its secret goes at once. @throws PlatformError as trash. */
async function deleteProvider(ctx: IdentityContext, caller: Caller, id: string, version: number) {
  const row = await writeAs(inThread(ctx.registry), caller, undefined, async (tx) => {
    const trashed = await trash(tx, 'identityProviders', id, version, ctx.clock);
    await tx.updateTable('identityProviders').set({ sealedClientSecret: null }).where('id', '=', id).execute();
    await tx.deleteFrom('federatedLogins').where('providerId', '=', id).execute();
    await forgetLinks(tx, trashed);
    await tx.deleteFrom('accessTokens').where('ownerId', '=', id).execute();
    await recordChange(ctx, tx, caller, trashed, 'deleted');
    return { ...trashed, sealedClientSecret: null };
  });
  await forgetPeople(ctx, id);
  return show(row);
}

/** Unlinks whom an issuer stood for, unless another live provider of the account speaks for it. */
async function forgetLinks(tx: Tx, { accountId, issuer }: Provider): Promise<void> {
  const others = tx.selectFrom('identityProviders').select('id').where('accountId', '=', accountId);
  const live = others.where('issuer', '=', issuer).where('deleted', 'is', null);
  if (await live.executeTakeFirst()) return;
  await tx.deleteFrom('federatedIdentities').where('accountId', '=', accountId).where('issuer', '=', issuer).execute();
}

function recordChange(
  ctx: IdentityContext,
  tx: Tx,
  caller: Caller,
  { id, accountId, issuer }: Provider,
  change: string,
) {
  return ctx.audit.record(tx, {
    event: 'identityProviderChanged',
    outcome: 'success',
    accountId,
    actor: caller,
    target: { kind: 'identityProvider', id },
    details: { change, issuer },
  });
}

type Provider = Row<'identityProviders'>;

/** @throws PlatformError 401 unless the provider is live and as it was when `version` was read. */
export function demandUnchanged(provider: Provider | undefined, version: number): Provider {
  if (provider && provider.deleted === null && provider.version === version) return provider;
  throw new PlatformError('badCredentials', { message: 'The provider has been changed meanwhile: start again.' });
}

/** Where browsers may be sent after a login at the provider. */
export function redirectUrisOf(provider: Provider): string[] {
  return JSON.parse(provider.redirectUris) as string[];
}

/** @throws PlatformError 400/106. A name is looked up when it is connected to. */
function checkBody({ config }: IdentityContext, { issuer, scope, redirectUris = [] }: Static<typeof updateBody>): void {
  if (issuer !== undefined && !isIssuer(issuer))
    throw invalid('issuer', 'must be an address with https, or with http on this machine, without query and fragment');
  if (issuer !== undefined && !config.targets.allowPrivate && isPrivate(new URL(issuer)))
    throw invalid('issuer', 'must not be a private address; only SLIPWAY_ALLOW_PRIVATE_TARGETS=true allows it');
  if (scope !== undefined && !scope.split(' ').includes('openid')) throw invalid('scope', 'must contain openid');
  for (const uri of redirectUris)
    if (!isRedirectUri(uri))
      throw invalid(
        'redirectUris',
        'must be addresses with https, http on this machine, or a scheme like com.example.app',
      );
}

function isPrivate(url: URL): boolean {
  return url.hostname === 'localhost' || namesPrivateAddress(url);
}

/** OpenID Connect Discovery 1.0, 3: an address without query and fragment. */
function isIssuer(text: string): boolean {
  const url = readAddress(text);
  return url !== undefined && isSecure(url) && url.search === '' && !text.includes('?');
}

/** An app's scheme is a domain name in reverse (RFC 8252, 7.1): those of browsers and systems have no dot. */
function isRedirectUri(text: string): boolean {
  const url = readAddress(text);
  if (!url) return false;
  if (url.protocol === 'https:' || url.protocol === 'http:') return isSecure(url);
  return url.protocol.includes('.');
}

/** An absolute address of visible ASCII; a fragment has no place in it (RFC 6749, 3.1.2), nor has a password. */
function readAddress(text: string): URL | undefined {
  if (!/^[a-z][a-z0-9+.-]*:[!-~]+$/i.test(text) || /[#\\]|^https?:(?!\/\/)/i.test(text)) return undefined;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url && url.username === '' && url.password === '' ? url : undefined;
}

const showColumns = showing(identityProviderColumns);

function show(row: Provider) {
  return { ...showCommon(row), ...showColumns(row), clientSecretSet: row.sealedClientSecret !== null };
}
