/** Lets in whom a provider has proven: finds the identity, or makes it where a group is mapped, and gives what the groups give. */
import type { FastifyReply } from 'fastify';
import { findEntity } from '../../../db/registry/entities.ts';
import type { Db, Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import { timestamp } from '../../core/clock.ts';
import { PlatformError } from '../../core/errors.ts';
import { isSameEmail } from '../../core/formats/email-key.ts';
import type { IdentityContext } from '../context.ts';
import { checkPassword, type Ended, endVoided, readIdentity } from '../grants.ts';
import { findIdentity, insertIdentity, newIdentity, noPassword } from '../identities.ts';
import { sendCookieSession, sendTokens } from '../sessions/authentication.ts';
import { admitPerson } from '../sessions/login.ts';
import type { RenewalType } from '../sessions/sessions.ts';
import { applyMappings, endMapped, isNothing, type Mapped, providerCaller, wantedOf } from './mappings.ts';
import type { Proof, ProvenEmail } from './openid.ts';
import { demandUnchanged } from './providers.ts';

type Provider = Row<'identityProviders'>;

/** The login that ends here. `version` is the provider's at its start. */
interface Login {
  version: number;
  renewalType?: RenewalType | undefined;
  /** Whether a page of this service began it: only then does the browser get the session as a cookie. */
  fromOwnPage: boolean;
  address: string;
}

/**
 * Lets in whom a provider has proven, as after a password: a session, or the way to a second factor.
 * @throws PlatformError 401 when that is nobody of the provider's account, 400/104 when the last admin has left its group.
 */
export async function admit(
  ctx: IdentityContext,
  provider: Provider,
  proof: Proof,
  { renewalType, version, fromOwnPage, address }: Login,
  reply: FastifyReply,
): Promise<object> {
  const linked = await findLinked(ctx.registry.query, provider, proof);
  const email = linked === undefined ? await proof.email() : undefined;
  const groups = provider.groupsClaim === null ? undefined : await proof.groups(provider.groupsClaim);
  const { userId, ended, mapped } = await ctx.registry.transaction(async (tx) => {
    demandUnchanged(await findEntity(tx, 'identityProviders', provider.id), version);
    return recognize(ctx, tx, provider, { linked, email, groups });
  });
  if (mapped) await endMapped(ctx, providerCaller(provider, address), mapped);
  const caller = ctx.access.callerOf(userId);
  if (ended && caller) endVoided(ctx, caller, ended);
  if (caller?.accountId !== provider.accountId) throw new PlatformError('badCredentials');
  const who = { ...caller, address };
  const check = async (tx: Tx) => {
    demandUnchanged(await findEntity(tx, 'identityProviders', provider.id), version);
    // All of it may be otherwise by now: the provider has taken its time.
    if (linked === undefined) await link(ctx, tx, provider, proof, (await findByEmail(tx, provider, email)).id);
    if ((await findLinked(tx, provider, proof)) !== userId) throw new PlatformError('badCredentials');
    await ctx.audit.record(tx, {
      event: 'federatedLogin',
      outcome: 'success',
      accountId: provider.accountId,
      actor: who,
      target: { kind: 'identityProvider', id: provider.id },
      details: { issuer: proof.issuer, linked: linked === undefined },
    });
  };
  // Somebody else's link or page must not leave a browser logged in, perhaps as another person.
  return admitPerson(ctx, reply, who, renewalType, check, fromOwnPage ? sendCookieSession : sendTokens);
}

/** The identity of somebody, with what its groups give. @throws PlatformError 401 for nobody. */
async function recognize(
  ctx: IdentityContext,
  tx: Tx,
  provider: Provider,
  {
    linked,
    email,
    groups,
  }: { linked: string | undefined; email: ProvenEmail | undefined; groups: string[] | undefined },
): Promise<{ userId: string; ended: Ended | undefined; mapped: Mapped | undefined }> {
  const said = groups && (await wantedOf(tx, provider, groups));
  const isMapped = said !== undefined && !isNothing(said);
  const known = linked === undefined ? undefined : await readIdentity(tx, linked);
  const identity =
    known ??
    (await findByEmail(tx, provider, email, isMapped ? () => make(ctx, tx, provider, email?.address) : undefined));
  const ended = linked === undefined ? await checkPassword(tx, ctx, identity, 'provider') : undefined;
  const current = ended ? ((await readIdentity(tx, identity.id)) ?? identity) : identity;
  // Where SCIM manages a person, its groups alone count.
  const wanted = said && (await isManaged(tx, identity.id)) ? undefined : said;
  const mapped = wanted && (await applyMappings(ctx, tx, provider, current, wanted));
  return { userId: identity.id, ended, mapped };
}

/** Whether SCIM manages a person: that of any provider, or of this one. */
async function isManaged(db: Db, userId: string, providerId?: string): Promise<boolean> {
  const managed = db.selectFrom('scimUsers').select('id').where('userId', '=', userId);
  const rows = providerId === undefined ? managed : managed.where('identityProviderId', '=', providerId);
  return (await rows.executeTakeFirst()) !== undefined;
}

/** Somebody whom only the groups bring in. */
async function make(ctx: IdentityContext, tx: Tx, provider: Provider, email = ''): Promise<Row<'identities'>> {
  const { id: identityProviderId, accountId } = provider;
  const blank = newIdentity(ctx.clock, 'email', { accountId, email, ...noPassword });
  const identity = { ...blank, identityProviderId, emailConfirmed: 1 };
  await insertIdentity(tx, 'email', identity);
  const target = { kind: 'identity', id: identity.id } as const;
  const actor = providerCaller(provider);
  await ctx.audit.record(tx, { event: 'identityCreated', outcome: 'success', accountId, actor, target });
  return identity;
}

/** Finds the identity that belongs to a subject of an issuer, in the provider's account. */
async function findLinked(db: Db, { accountId }: Provider, { issuer, subject }: Proof): Promise<string | undefined> {
  const row = await db
    .selectFrom('federatedIdentities')
    .select('userId')
    .where('accountId', '=', accountId)
    .where('issuer', '=', issuer)
    .where('subject', '=', subject)
    .executeTakeFirst();
  return row?.userId;
}

/**
 * The identity of a proven email address, or what `make` gives where there is none. For people of its SCIM the provider need not say
 * that the address is verified. @throws PlatformError 401, which reports an email address only what its owner may know.
 */
async function findByEmail(
  db: Db,
  { id: providerId, accountId }: Provider,
  email: ProvenEmail | undefined,
  make?: () => Promise<Row<'identities'>>,
): Promise<Row<'identities'>> {
  const unverified = new PlatformError('badCredentials', {
    message: 'The provider has not verified your email address.',
  });
  if (email === undefined || email.isVerified === false) throw unverified;
  const { address, isVerified = false } = email;
  const known = await findIdentity(db, accountId, address);
  if (!isVerified && !(known && (await isManaged(db, known.id, providerId)))) throw unverified;
  const identity = known ?? (await make?.());
  // Look-alikes that are one address to us are two mailboxes to the provider.
  if (!identity || !isSameEmail(identity.email, address))
    throw new PlatformError('badCredentials', { message: 'There is no user with your email address.' });
  return identity;
}

/** Remembers whom a subject stands for. */
async function link(ctx: IdentityContext, tx: Tx, { accountId }: Provider, { issuer, subject }: Proof, userId: string) {
  await tx
    .insertInto('federatedIdentities')
    .values({ accountId, issuer, subject, userId, created: timestamp(ctx.clock) })
    .onConflict((conflict) => conflict.doNothing())
    .execute();
  await tx.updateTable('identities').set({ emailConfirmed: 1 }).where('id', '=', userId).execute();
}
