/**
 * Names and password of a person. An identity changes its own; admins and back-ends those of the account; an end-user may read
 * those of people whom it sees as end-users.
 */

import { type Static, Type } from 'typebox';
import type { Registry } from '../../db/registry/index.ts';
import { DateText, Id, Nullable, type Row } from '../../db/registry/records.ts';
import type { Access } from '../core/access.ts';
import { type Caller, isAccountWide, isSelf, usesForOthers } from '../core/caller.ts';
import { PlatformError } from '../core/errors.ts';
import { laneOf } from '../core/limits/lanes.ts';
import { demandRightsOf, isFullAdmin } from '../entity/giving.ts';
import { writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import type { IdentityContext } from './context.ts';
import type { PasswordChooser } from './grants.ts';
import { setPassword } from './identities.ts';
import { type Address, personProperties, readPerson } from './person.ts';
import { maxPasswordLength } from './secrets/passwords.ts';

const tag = 'Identity';
const family = 'identity';

const text = Nullable(Type.String());
/** A profile on the wire. */
export const profileShape = Type.Object(
  {
    userId: Id,
    accountId: Id,
    emailAddress: Type.String(),
    emailConfirmed: Type.Boolean({ description: 'Whether somebody has shown that the address is theirs.' }),
    createdAt: DateText,
    name: text,
    firstName: text,
    lastName: text,
    company: text,
    department: text,
    phoneNumber: text,
    address: Type.Unsafe<Address | null>({ type: ['string', 'object', 'null'] }),
  },
  { description: 'The person as it is known now.' },
);
const updateBody = Type.Object({ userId: Type.String(), ...personProperties });
const passwordBody = Type.Object({
  userId: Type.String(),
  oldPassword: Type.String({ maxLength: maxPasswordLength }),
  newPassword: Type.String({ maxLength: maxPasswordLength }),
});
/** The part of an answer that existing clients read after a change of a person. */
const done = { success: Type.Literal(true), user: Type.Object({ userId: Id }) };
const changed = Type.Object(done, {
  description: 'The password is set; every session of the person but this one has ended.',
});

/** Shows an identity; nothing of its password. */
export function showProfile(identity: Row<'identities'>): Static<typeof profileShape> {
  const { id, accountId, email, created, name, firstName, lastName, company, department } = identity;
  const { phoneNumber, address, addressObject } = identity;
  return {
    userId: id,
    accountId,
    emailAddress: email,
    emailConfirmed: identity.emailConfirmed === 1,
    createdAt: created,
    name,
    firstName,
    lastName,
    company,
    department,
    phoneNumber,
    address: addressObject === null ? address : (JSON.parse(addressObject) as Address),
  };
}

export function profileRoutes(app: App, ctx: IdentityContext): void {
  const tags = [tag];

  app.get(
    '/profile/:userId',
    {
      config: { family, right: ['read', 'profile'], errors: ['notFound', 'forbidden'] },
      schema: {
        tags,
        operationId: 'getProfile',
        summary: 'Read a profile',
        description: 'Callers read their own profile; admins and back ends also those of end-users in reach.',
        params: Type.Object({ userId: Type.String() }),
        response: { 200: profileShape },
      },
    },
    async (request) => {
      return showProfile(await findSeen(ctx, request.caller, request.params.userId));
    },
  );
  app.post(
    '/profile/update',
    {
      config: { family, right: ['update', 'profile'], errors: ['notFound', 'forbidden'] },
      schema: {
        tags,
        operationId: 'updateProfile',
        summary: 'Change a profile',
        description: 'Changes what the body names of the caller, or of an end-user in reach.',
        body: updateBody,
        response: {
          200: Type.Object({ ...profileShape.properties, ...done }, { description: 'The person as it is known now.' }),
        },
      },
    },
    async (request) => {
      const updated = await updateProfile(ctx, request.caller, request.body);
      const { id: userId } = updated;
      return { ...showProfile(updated), success: true as const, user: { userId } };
    },
  );
  app.post(
    '/profile/change-password',
    {
      config: {
        family,
        right: ['update', 'profile'],
        errors: ['notFound', 'badCredentials', 'tooMany', 'forbidden'],
        sends: ['revocation'],
      },
      schema: {
        tags,
        operationId: 'changePassword',
        summary: 'Change a password with the old one',
        description: 'Needs the present password. All other sessions of the person end.',
        body: passwordBody,
        response: { 200: changed },
      },
    },
    async (request) => {
      await changePassword(ctx, request.caller, request.body);
      return { success: true as const, user: { userId: request.body.userId } };
    },
  );
}

/** The people among these whom the caller sees as end-users in its reach; one of the whole account also as those in the trash. */
export async function seenAsEndUsers(
  { registry, access }: { registry: Registry; access: Access },
  caller: Caller,
  userIds: readonly string[],
): Promise<Set<string>> {
  if (userIds.length === 0) return new Set();
  // An account-wide caller reaches everyone, whatever its role.
  if (isAccountWide(caller) && !usesForOthers(caller)) return new Set();
  const endUsers = registry.query.selectFrom('endUsers').select(['userId', 'accountId', 'organizationId']);
  const ofPeople = endUsers.where('userId', 'in', userIds);
  const rows = await (isAccountWide(caller) ? ofPeople : ofPeople.where('deleted', 'is', null)).execute();
  const seen = rows.filter(({ accountId, organizationId }) => access.reaches(caller, accountId, organizationId));
  return new Set(seen.flatMap(({ userId }) => userId ?? []));
}

/**
 * An identity whose profile the caller may read.
 * @throws PlatformError 404/100 for any other; 403/21 for others where a role of the account does not permit it.
 */
async function findSeen(ctx: IdentityContext, caller: Caller, userId: string): Promise<Row<'identities'>> {
  if (!isSelf(caller, userId) && isAccountWide(caller) && !usesForOthers(caller)) throw new PlatformError('forbidden');
  const identities = ctx.registry.query.selectFrom('identities').selectAll().where('id', '=', userId);
  const identity = await identities.executeTakeFirst();
  if (identity?.accountId !== caller.accountId) throw new PlatformError('notFound');
  const isSeen =
    caller.id === userId ||
    isAccountWide(caller) ||
    (await seenAsEndUsers(ctx, ctx.access.narrow(caller, 'read', 'profile'), [userId])).size > 0;
  if (!isSeen) throw new PlatformError('notFound');
  return identity;
}

/** An identity that the caller may change. @throws PlatformError 404/100 out of reach, 403/21 when it may only be read. */
export async function findOwn(ctx: IdentityContext, caller: Caller, userId: string): Promise<Row<'identities'>> {
  const identity = await findSeen(ctx, caller, userId);
  if (!isSelf(caller, userId) && !isAccountWide(caller)) throw new PlatformError('forbidden');
  return identity;
}

async function updateProfile(ctx: IdentityContext, caller: Caller, body: Static<typeof updateBody>) {
  const { userId } = body;
  const before = await findOwn(ctx, caller, userId);
  const changes = readPerson(body);
  if (Object.keys(changes).length === 0) return before;
  return writeAs(ctx, caller, undefined, async (tx) => {
    const rows = tx.updateTable('identities').set(changes).where('id', '=', userId).returningAll();
    const row = await rows.executeTakeFirst();
    if (!row) throw new PlatformError('notFound');
    return row;
  });
}

/**
 * Admins need the old password of others too: a stolen session is no way into somebody's account.
 * @throws PlatformError 401 for a wrong old password, 429 after too many, 400/106 by the policy.
 */
async function changePassword(ctx: IdentityContext, caller: Caller, body: Static<typeof passwordBody>): Promise<void> {
  const { userId, oldPassword, newPassword } = body;
  const { passwords, loginLimits } = ctx;
  const identity = await findOwn(ctx, caller, userId);
  const subject = `${identity.accountId}\0${identity.emailKey}`;
  const attempt = { subject, userId, address: caller.address ?? '' };
  const about = {
    event: 'passwordChanged',
    accountId: identity.accountId,
    actor: caller,
    target: { kind: 'identity', id: userId },
    details: { with: 'oldPassword' },
  } as const;
  const wrong = () => new PlatformError('badCredentials', { message: 'The old password is wrong.' });
  await loginLimits.takeTry(attempt);
  const isRight = await loginLimits.unlessItFails(attempt, () =>
    passwords.verify(identity.passwordHash, oldPassword, laneOf(caller)),
  );
  if (!isRight) {
    ctx.audit.addSoon({ ...about, outcome: 'failure' });
    throw wrong();
  }
  loginLimits.succeeded(attempt);
  const passwordHash = await passwords.hashNew('newPassword', newPassword, identity.email, laneOf(caller));
  const ended = await writeAs(ctx, caller, undefined, async (tx) => {
    const now = tx.selectFrom('identities').select('passwordHash').where('id', '=', userId);
    await demandRightsOf(tx, caller, userId);
    // Somebody else has changed it while the hash was computed.
    if ((await now.executeTakeFirst())?.passwordHash !== identity.passwordHash) throw wrong();
    await ctx.audit.record(tx, { ...about, outcome: 'success' });
    // Anyone who knew the old one has chosen the new one: that proves no more than the old one did.
    const chooser = isFullAdmin(caller) ? 'admin' : 'other';
    const passwordChosenBy = isSelf(caller, userId) ? (identity.passwordChosenBy as PasswordChooser) : chooser;
    return setPassword(tx, ctx, userId, { passwordHash, passwordChosenBy }, caller.sessionId);
  });
  for (const sessionId of ended) ctx.revoked.noteRevoked(caller, ctx.revocations.loginEnded(sessionId));
}
