/**
 * What people of a provider may do follows from their groups, and from whether they are active. A few are done in the
 * transaction that changes their groups; the rest is marked in it, and done in steps before the answer.
 */
import { findEntity } from '../../../db/registry/entities.ts';
import type { Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { PlatformError } from '../../core/errors.ts';
import type { IdentityContext } from '../context.ts';
import { applyMappings, endMapped, type Mapped, mappingsOf, wantedOf } from '../federation/mappings.ts';
import { readIdentity } from '../grants.ts';
import { demandAdmin, isAccountUser } from '../identities.ts';

type Provider = Row<'identityProviders'>;

/** People whose roles follow in one transaction. */
const stepSize = 20;

/** What has happened to somebody, to be told after the commit. */
export interface Followed extends Mapped {
  /** Login sessions that are over. */
  sessionIds: readonly string[];
}

/** Marks the members of a group, or all people of a provider: their roles have to follow. */
export async function noteRolesPending(tx: Tx, provider: Pick<Provider, 'id'>, groupId?: string): Promise<void> {
  const people = tx.updateTable('scimUsers').set({ stale: 1 }).where('identityProviderId', '=', provider.id);
  const members = (id: string) => tx.selectFrom('scimMembers').select('memberId').where('groupId', '=', id);
  await (groupId === undefined ? people : people.where('id', 'in', members(groupId))).execute();
}

/** @throws PlatformError 401/31 for a provider that has been deleted meanwhile. */
export async function demandLiveProvider(tx: Tx, id: string): Promise<Provider> {
  const provider = await findEntity(tx, 'identityProviders', id);
  if (!provider || provider.deleted !== null) throw new PlatformError('tokenInvalid');
  return provider;
}

/** Whether the mappings of a provider name a group. */
export function isMapped(provider: Provider, group: Pick<Row<'scimGroups'>, 'displayName' | 'externalId'>): boolean {
  return mappingsOf(provider).some((one) => one.group === group.displayName || one.group === group.externalId);
}

/**
 * In the transaction that has marked people: makes them follow if they are few. @returns whom it has changed.
 * @throws PlatformError 400/104 when the last admin would go; nothing of the transaction stays.
 */
export async function followFew(ctx: IdentityContext, tx: Tx, provider: Provider): Promise<Followed[]> {
  const people = await rolesPendingOf(tx, provider)
    .limit(stepSize + 1)
    .execute();
  if (people.length > stepSize) return [];
  const followed: Followed[] = [];
  for (const row of people) followed.push(await follow(ctx, tx, provider, row));
  return followed;
}

/** Makes everybody follow who is marked. @throws PlatformError of the first one who could not, when all others have. */
export async function applyGroupRoles(ctx: IdentityContext, providerId: string, by: Caller): Promise<void> {
  let failed: PlatformError | undefined;
  for (let more = true; more; ) {
    const { followed, error } = await step(ctx, providerId);
    await endFollowed(ctx, by, followed);
    failed ??= error;
    more = followed.length > 0 || error !== undefined;
  }
  if (failed) throw failed;
}

/** In no order: one by id would read everybody of the provider. */
function rolesPendingOf(tx: Tx, { id }: Pick<Provider, 'id'>) {
  return tx.selectFrom('scimUsers').selectAll().where('identityProviderId', '=', id).where('stale', '=', 1);
}

/** A few people at once; where that fails, one alone. */
async function step(
  ctx: IdentityContext,
  providerId: string,
  most = stepSize,
): Promise<{ followed: Followed[]; error?: PlatformError }> {
  let current: string | undefined;
  try {
    const followed = await ctx.registry.transaction(async (tx) => {
      const provider = await findEntity(tx, 'identityProviders', providerId);
      if (!provider || provider.deleted !== null) return [];
      const done: Followed[] = [];
      for (const row of await rolesPendingOf(tx, provider).limit(most).execute()) {
        current = row.id;
        done.push(await follow(ctx, tx, provider, row));
      }
      return done;
    });
    return { followed };
  } catch (error) {
    if (!(error instanceof PlatformError) || current === undefined) throw error;
    if (most > 1) return step(ctx, providerId, 1);
    // It stays as it is until its groups change again.
    await ctx.registry.query.updateTable('scimUsers').set({ stale: 0 }).where('id', '=', current).execute();
    return { followed: [], error };
  }
}

/** Makes one person what its groups say. @throws PlatformError 400/104. */
export async function follow(
  ctx: IdentityContext,
  tx: Tx,
  provider: Provider,
  { id, userId, active }: Pick<Row<'scimUsers'>, 'id' | 'userId' | 'active'>,
): Promise<Followed> {
  await tx.updateTable('scimUsers').set({ stale: 0 }).where('id', '=', id).where('stale', '=', 1).execute();
  const identity = await readIdentity(tx, userId);
  if (!identity) throw new PlatformError('notFound');
  const wanted = await wantedOf(tx, provider, await groupsOf(tx, id));
  const mapped = await applyMappings(ctx, tx, provider, identity, wanted);
  const isActive = identity.disabledById === null;
  if (isActive === (active === 1)) return { ...mapped, sessionIds: [] };
  const sessionIds = await setActive(ctx, tx, provider, userId, active === 1);
  return { ...mapped, sessionIds, entityIds: await entitiesOf(tx, userId, mapped.entityIds) };
}

/**
 * Lets a person do what its roles say, or nothing. @returns the login sessions that have ended.
 * @throws PlatformError 400/104 for the last admin.
 */
export async function setActive(
  { sessions }: IdentityContext,
  tx: Tx,
  { id }: Pick<Provider, 'id'>,
  userId: string,
  isActive: boolean,
): Promise<string[]> {
  const disabledById = isActive ? null : id;
  await tx.updateTable('identities').set({ disabledById }).where('id', '=', userId).execute();
  if (isActive) return [];
  const { accountId } = await tx
    .selectFrom('identities')
    .select('accountId')
    .where('id', '=', userId)
    .executeTakeFirstOrThrow();
  if (await isAccountUser(tx, userId)) await demandAdmin(tx, accountId);
  return sessions.endAll(tx, userId);
}

/** The names and the external ids of the groups that somebody is in. */
async function groupsOf(tx: Tx, memberId: string): Promise<string[]> {
  const groups = tx.selectFrom('scimMembers').innerJoin('scimGroups', 'scimGroups.id', 'scimMembers.groupId');
  const found = await groups.select(['displayName', 'externalId']).where('memberId', '=', memberId).execute();
  return found.flatMap(({ displayName, externalId }) => [displayName, ...(externalId === null ? [] : [externalId])]);
}

/** All that somebody is now, with what it has been. */
export async function entitiesOf(tx: Tx, userId: string, more: readonly string[]): Promise<string[]> {
  const ids = new Set(more);
  for (const table of ['endUsers', 'accountUsers'] as const) {
    const live = tx.selectFrom(table).select('id').where('userId', '=', userId).where('deleted', 'is', null);
    for (const { id } of await live.execute()) ids.add(id);
  }
  return [...ids];
}

/** After the commit: what people have lost has ended when it resolves. */
export async function endFollowed(ctx: IdentityContext, by: Caller, followed: readonly Followed[]): Promise<void> {
  await Promise.all(
    followed.map(async (one) => {
      ctx.access.identityChanged(one.userId);
      for (const id of one.sessionIds) ctx.revocations.loginEnded(id);
      await endMapped(ctx, by, one);
    }),
  );
}
