/** People of a provider: made, changed and removed as it says. */
import type { Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import { timestamp } from '../../core/clock.ts';
import { PlatformError } from '../../core/errors.ts';
import { emailKey, isSameEmail } from '../../core/formats/email-key.ts';
import { newId } from '../../core/ids.ts';
import { isEmail } from '../../entity/values.ts';
import type { IdentityContext } from '../context.ts';
import { applyMappings } from '../federation/mappings.ts';
import { readIdentity } from '../grants.ts';
import { findIdentity, insertIdentity, newIdentity, noPassword } from '../identities.ts';
import { identityRemoved, removeIdentity } from '../users.ts';
import { propertyOf } from './filters.ts';
import { demandLiveProvider, endFollowed, entitiesOf, type Followed, follow, setActive } from './following.ts';
import { type Operation, patched } from './patch.ts';
import { badValue, type Ignored, isObject, type Json, type Provisioner, taken } from './protocol.ts';
import { isSame, readOnly, readUser, userSchema } from './schemas.ts';

type ScimUser = Row<'scimUsers'>;
const maxNameLength = 255;

/** What a provider says of somebody, as it is stored. */
interface Incoming {
  resource: Json;
  userNameKey: string;
  externalId: string | null;
  active: number;
  email: string;
  /** Who it may be: the addresses by which an identity is found. */
  emails: readonly string[];
  person: Pick<Row<'identities'>, 'name' | 'firstName' | 'lastName'>;
}

/** @throws PlatformError 400/invalidValue */
function readIncoming(data: Json, ignored: Ignored): Incoming {
  const resource = readUser(data, ignored);
  const { userName, externalId, active = true, name } = resource;
  if (typeof userName !== 'string' || userName.trim() === '') throw badValue('userName must not be empty.');
  if (userName.length > maxNameLength || String(externalId ?? '').length > maxNameLength)
    throw badValue(`userName and externalId have at most ${maxNameLength} characters.`);
  const said = emailOf(resource);
  const emails = [said, userName].filter((one): one is string => isEmail(one));
  const [email] = emails;
  if (email === undefined) throw badValue('A person needs an email address, in emails or as userName.');
  const text = (of: unknown, part: string) => {
    const value = isObject(of) ? propertyOf(of, part) : undefined;
    return typeof value === 'string' && value !== '' ? value.slice(0, maxNameLength) : null;
  };
  return {
    resource: { ...resource, active },
    userNameKey: userName.toLowerCase(),
    externalId: typeof externalId === 'string' ? externalId : null,
    active: active === true ? 1 : 0,
    ...{ email, emails },
    person: {
      name: text(resource, 'displayName') ?? text(name, 'formatted'),
      firstName: text(name, 'givenName'),
      lastName: text(name, 'familyName'),
    },
  };
}

/** The primary email address, else that of work, else the first. */
function emailOf({ emails }: Json): unknown {
  const all = Array.isArray(emails) ? emails.filter(isObject) : [];
  const chosen = all.find(({ primary }) => primary === true) ?? all.find(({ type }) => type === 'work') ?? all[0];
  return chosen?.value;
}

/** @throws PlatformError 400/invalidValue, 409/uniqueness, 400/104. */
export async function createPerson(ctx: IdentityContext, asked: Provisioner, data: Json) {
  const incoming = readIncoming(data, asked.ignored);
  const { row, followed } = await ctx.registry.transaction(async (tx) => {
    const provider = await demandLiveProvider(tx, asked.provider.id);
    await demandFreeName(tx, provider.id, incoming.userNameKey);
    const identity = await personFor(ctx, tx, asked, incoming);
    const { id: identityProviderId, accountId } = provider;
    const { resource, userNameKey, externalId, active } = incoming;
    const now = timestamp(ctx.clock);
    const row: ScimUser = {
      ...{ id: newId(accountId), accountId, identityProviderId, userId: identity.id, userNameKey, externalId, active },
      ...{ resource: JSON.stringify(resource), stale: 0, created: now, lastModified: now },
    };
    await tx.insertInto('scimUsers').values(row).execute();
    const done = await follow(ctx, tx, provider, row);
    await recordPerson(ctx, tx, asked, row, 'created');
    return { row, followed: done };
  });
  await endFollowed(ctx, asked.by, [followed]);
  return row;
}

/** The identity that somebody is: an end-user's is linked, where there is none one is made. @throws PlatformError 409. */
async function personFor(
  ctx: IdentityContext,
  tx: Tx,
  asked: Provisioner,
  incoming: Incoming,
): Promise<Row<'identities'>> {
  const { provider, by } = asked;
  const { accountId } = provider;
  let linked: Row<'identities'> | undefined;
  for (const email of incoming.emails) {
    const known = await findIdentity(tx, accountId, email);
    if (known) await demandLinkable(tx, provider, known, email);
    linked ??= known;
  }
  if (linked) return linked;
  const blank = newIdentity(ctx.clock, 'emails', { accountId, email: incoming.email, ...noPassword });
  const identity = { ...blank, ...incoming.person, identityProviderId: provider.id, emailConfirmed: 1 };
  await insertIdentity(tx, 'emails', identity);
  const target = { kind: 'identity', id: identity.id } as const;
  await ctx.audit.record(tx, { event: 'identityCreated', outcome: 'success', accountId, actor: by, target });
  return identity;
}

/** @throws PlatformError 409 for an account user whom this provider has not made, and for somebody whom SCIM knows already. */
async function demandLinkable(
  tx: Tx,
  { id: providerId }: Row<'identityProviders'>,
  { id: userId, email: known }: Row<'identities'>,
  email: string,
): Promise<void> {
  const admins = tx.selectFrom('accountUsers').select('identityProviderId').where('userId', '=', userId);
  const admin = await admins.where('deleted', 'is', null).executeTakeFirst();
  if (admin && admin.identityProviderId !== providerId) throw taken(`${email} is an account user already.`);
  const others = tx.selectFrom('scimUsers').select('id').where('userId', '=', userId);
  if ((await others.executeTakeFirst()) || !isSameEmail(known, email)) throw taken(`${email} is somebody already.`);
}

async function demandFreeName(tx: Tx, providerId: string, userNameKey: string, except = ''): Promise<void> {
  const named = tx.selectFrom('scimUsers').select('id').where('identityProviderId', '=', providerId);
  const other = named.where('userNameKey', '=', userNameKey).where('id', '<>', except);
  if (await other.executeTakeFirst()) throw taken('There is a user with this userName.');
}

/** @throws PlatformError 404 for one of another provider. */
export async function findPerson(tx: Pick<Tx, 'selectFrom'>, providerId: string, id: string): Promise<ScimUser> {
  const rows = tx.selectFrom('scimUsers').selectAll().where('id', '=', id);
  const row = await rows.where('identityProviderId', '=', providerId).executeTakeFirst();
  if (!row) throw new PlatformError('notFound', { message: `There is no user ${id}.` });
  return row;
}

type Change = { replacement: Json } | { operations: readonly Operation[] };

/**
 * Replaces or patches somebody. What would be refused is ignored where the person is locked out beside it.
 * @throws PlatformError 400/invalidValue, 409/uniqueness, 400/104.
 */
export async function changePerson(ctx: IdentityContext, asked: Provisioner, id: string, change: Change) {
  const { row, followed } = await ctx.registry.transaction(async (tx) => {
    const provider = await demandLiveProvider(tx, asked.provider.id);
    const before = await findPerson(tx, provider.id, id);
    const stored = JSON.parse(before.resource) as Json;
    const incoming = await takeIncoming(ctx, tx, asked, before, { stored, change }).catch((error) =>
      lockedOut(stored, change, asked.ignored, error),
    );
    const { resource, userNameKey, externalId, active } = incoming;
    const changes = { resource: JSON.stringify(resource), userNameKey, externalId, active };
    const row = { ...before, ...changes, lastModified: timestamp(ctx.clock) };
    const isSame = changes.resource === before.resource;
    if (!isSame) await tx.updateTable('scimUsers').set(row).where('id', '=', id).execute();
    const done = await follow(ctx, tx, provider, row);
    if (!isSame) await recordPerson(ctx, tx, asked, row, 'updated');
    return { row: isSame ? before : row, followed: done };
  });
  await endFollowed(ctx, asked.by, [followed]);
  return row;
}

/** What somebody becomes, which the identity follows. @throws PlatformError 400/invalidValue, 409/uniqueness. */
async function takeIncoming(
  ctx: IdentityContext,
  tx: Tx,
  asked: Provisioner,
  before: ScimUser,
  { stored, change }: { stored: Json; change: Change },
): Promise<Incoming> {
  const { ignored, provider } = asked;
  const data = 'replacement' in change ? change.replacement : patched(stored, change.operations, ignored);
  const incoming = readIncoming(data, ignored);
  await demandFreeName(tx, provider.id, incoming.userNameKey, before.id);
  await changeIdentity(ctx, tx, asked, before, incoming);
  return incoming;
}

/** The person as before, but not active, where a refused change says so. @throws what the change was refused with. */
function lockedOut(stored: Json, change: Change, ignored: Ignored, refusal: unknown): Incoming {
  const said = saidBy(change);
  const active = said.findLast(([name]) => isActive(name))?.[1];
  if (!(refusal instanceof PlatformError) || String(active).toLowerCase() !== 'false') throw refusal;
  for (const [name] of said) if (!isActive(name) && !readOnly.includes(name.toLowerCase())) ignored.add(name);
  return readIncoming({ ...stored, active: false }, ignored);
}

type AttributeValue = [name: string, value: unknown];

/** The attributes that a change names, with their values. */
function saidBy(change: Change): AttributeValue[] {
  if ('replacement' in change) return Object.entries(change.replacement);
  return change.operations
    .flatMap(({ op, path, value }): AttributeValue[] => {
      if (path !== undefined) return [[path, op === 'remove' ? undefined : value]];
      return isObject(value) ? Object.entries(value) : [];
    })
    .flatMap(([name, value]): AttributeValue[] =>
      isSame(name, userSchema) && isObject(value) ? Object.entries(value) : [[name, value]],
    );
}

const isActive = (name: string) => isSame(name, 'active') || isSame(name, `${userSchema}:active`);

/** The identity follows if the provider has made it. @throws PlatformError 409 for the address of somebody else. */
async function changeIdentity(
  ctx: IdentityContext,
  tx: Tx,
  { provider, by }: Provisioner,
  { userId }: ScimUser,
  { email, emails, person }: Incoming,
): Promise<void> {
  for (const one of emails) {
    const known = await findIdentity(tx, provider.accountId, one);
    if (known && known.id !== userId) throw taken(`${one} is somebody already.`);
  }
  const identity = await readIdentity(tx, userId);
  if (identity?.identityProviderId !== provider.id) return;
  const changes = { ...person, email, emailKey: emailKey(email) };
  await tx.updateTable('identities').set(changes).where('id', '=', userId).execute();
  if (changes.emailKey === identity.emailKey) return;
  // They were sent to the former address.
  await tx.deleteFrom('mailedTokens').where('userId', '=', userId).execute();
  const target = { kind: 'identity', id: userId } as const;
  const { accountId } = provider;
  await ctx.audit.record(tx, { event: 'emailChanged', outcome: 'success', accountId, actor: by, target });
}

/**
 * Removes somebody: what the groups gave ends, an identity that the provider has made goes, and another one is disabled.
 * @throws PlatformError 400/104 for the last admin.
 */
export async function deletePerson(ctx: IdentityContext, asked: Provisioner, id: string): Promise<void> {
  const { row, followed, removed } = await ctx.registry.transaction(async (tx) => {
    const provider = await demandLiveProvider(tx, asked.provider.id);
    const row = await findPerson(tx, provider.id, id);
    const { userId } = row;
    const identity = await readIdentity(tx, userId);
    if (!identity) throw new PlatformError('notFound');
    await tx.deleteFrom('scimUsers').where('id', '=', id).execute();
    const nothing = { accountRole: undefined, byOrganization: new Map() };
    const mapped = await applyMappings(ctx, tx, provider, identity, nothing);
    const sessionIds = await setActive(ctx, tx, provider, userId, false);
    const followed: Followed = { ...mapped, sessionIds, entityIds: await entitiesOf(tx, userId, mapped.entityIds) };
    const isOnlyOurs = followed.entityIds.every((one) => mapped.entityIds.includes(one));
    const removed = identity.identityProviderId === provider.id && isOnlyOurs;
    if (removed) await removeIdentity(tx, userId);
    await recordPerson(ctx, tx, asked, row, 'deleted');
    return { row, followed, removed };
  });
  await endFollowed(ctx, asked.by, [followed]);
  if (removed) await identityRemoved(ctx, asked.by, row.userId);
}

function recordPerson(ctx: IdentityContext, tx: Tx, { by, provider }: Provisioner, row: ScimUser, change: string) {
  const { accountId, userId, userNameKey } = row;
  const target = { kind: 'identity', id: userId } as const;
  const details = { change, userName: userNameKey, active: row.active === 1, identityProviderId: provider.id };
  return ctx.audit.record(tx, { event: 'scimChanged', outcome: 'success', accountId, actor: by, target, details });
}
