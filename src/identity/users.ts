/** Identities as others see them: self-registration through an application, looking up several, deletion. */

import { type Static, Type } from 'typebox';
import type { Tx } from '../../db/registry/index.ts';
import { DateText, Id } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { PlatformError } from '../core/errors.ts';
import { sendAllowance } from '../core/limits/attempts.ts';
import { laneOf } from '../core/limits/lanes.ts';
import { limitTries } from '../core/limits/tries.ts';
import { noteAnswer } from '../entity/kept-answers.ts';
import { writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import type { IdentityContext } from './context.ts';
import { insertIdentity, maxEmailLength, newIdentity, noPassword } from './identities.ts';
import { names } from './person.ts';
import { profileShape, seenAsEndUsers, showProfile } from './profile.ts';
import { maxPasswordLength } from './secrets/passwords.ts';

const tag = 'Identity';
const family = 'identity';

const maxUsers = 100;

const createBody = Type.Object({
  accountId: Type.String(),
  emailAddress: Type.String({ maxLength: maxEmailLength }),
  password: Type.String({ maxLength: maxPasswordLength }),
  ...names,
});
const created = Type.Object(
  { userId: Id, emailAddress: Type.String(), accountId: Id, createdAt: DateText },
  { description: 'Who may log in, and make a first organization.' },
);
const batchBody = Type.Object({ userIds: Type.Array(Type.String(), { maxItems: maxUsers }) });
const batch = Type.Object(
  { success: Type.Boolean(), users: Type.Array(profileShape, { maxItems: maxUsers }) },
  {
    description:
      'The profiles in the order asked for; anyone who is not the caller and no end-user in reach is left out. Callers of the whole account also see those in the trash.',
  },
);
const deleted = Type.Object(
  { success: Type.Boolean() },
  { description: 'The identity is gone, and its email is free.' },
);

/** Endpoints for applications, with their appToken. */
export function registrationRoutes(app: App, ctx: IdentityContext): void {
  const registrations = limitTries('registrations', ctx);

  app.post(
    '/auth/create-user',
    {
      config: {
        family,
        creates: true,
        right: ['create', 'identity'],
        errors: ['notFound', 'notUnique', 'userExists', 'forbidden'],
        sends: ['limits'],
      },
      schema: {
        tags: [tag],
        operationId: 'createUser',
        summary: 'Register a person who signs up',
        description:
          'An application calls it. The person confirms the email address, logs in and creates an organization.',
        security: [{ appToken: [] }],
        body: createBody,
        response: { 200: created },
      },
    },
    async (request, reply) => {
      const { application, caller } = request;
      sendAllowance(reply, registrations.takeTry(application.id));
      ctx.access.demandAccount(caller, request.body.accountId);
      const answer = await register(ctx, caller, request.body);
      return answer;
    },
  );
}

/** Endpoints for persons, admins and back-ends. */
export function userRoutes(app: App, ctx: IdentityContext): void {
  app.post(
    '/users/batch',
    {
      config: { family, right: ['read', 'profile'], errors: ['forbidden'] },
      schema: {
        tags: [tag],
        operationId: 'getUsers',
        summary: `Read up to ${maxUsers} profiles`,
        description: 'People out of reach are left out of the response.',
        body: batchBody,
        response: { 200: batch },
      },
    },
    async (request) => {
      return { success: true, users: await readProfiles(ctx, request.caller, request.body.userIds) };
    },
  );
  app.delete(
    '/internal/users/:userId',
    {
      config: {
        family,
        right: ['delete', 'identity'],
        errors: ['notFound', 'constraint', 'forbidden'],
        sends: ['revocation'],
      },
      schema: {
        tags: [tag],
        operationId: 'deleteUser',
        summary: 'Delete the identity of a person who is no longer an end-user, with its end-users in the trash',
        description: 'Its email address can be used again afterwards. This cannot be undone.',
        params: Type.Object({ userId: Type.String() }),
        response: { 200: deleted },
      },
    },
    async (request) => {
      await deleteIdentity(ctx, request.caller, request.params.userId);
      return { success: true };
    },
  );
}

/** @throws PlatformError 400/106 for a password against the policy or a taken email, 400/110 for an account user's. */
async function register(ctx: IdentityContext, caller: Caller, body: Static<typeof createBody>) {
  const { accountId, emailAddress: email, password, name = null, firstName = null, lastName = null } = body;
  const blank = newIdentity(ctx.clock, 'emailAddress', { accountId, email, ...noPassword });
  const passwordHash = await ctx.passwords.hashNew('password', password, email, laneOf(caller));
  const given = { name, firstName, lastName, phoneNumber: body.phoneNumber ?? null };
  // Anyone who sends it may have made up the address.
  const identity = { ...blank, ...given, passwordHash, passwordChosenBy: 'other' };
  const answer = { userId: identity.id, emailAddress: email, accountId, createdAt: identity.created };
  await writeAs(ctx, caller, undefined, async (tx) => {
    await insertIdentity(tx, 'emailAddress', identity);
    await ctx.audit.record(tx, {
      event: 'identityCreated',
      outcome: 'success',
      accountId,
      actor: caller,
      target: { kind: 'identity', id: identity.id },
    });
    await noteAnswer(tx, answer);
  });
  return answer;
}

async function readProfiles(ctx: IdentityContext, caller: Caller, userIds: readonly string[]) {
  const asked = [...new Set(userIds)];
  const seen = await seenAsEndUsers(ctx, caller, asked);
  const shown = asked.filter((userId) => userId === caller.id || seen.has(userId));
  if (shown.length === 0) return [];
  const rows = await ctx.registry.query.selectFrom('identities').selectAll().where('id', 'in', shown).execute();
  const byId = new Map(rows.map((row) => [row.id, showProfile(row)]));
  return shown.flatMap((userId) => byId.get(userId) ?? []);
}

/**
 * Ends an identity with its sessions, connections, factors, links to providers, and end-users in the trash, which would belong to
 * nobody. @throws PlatformError 404/100, 400/104 while it is an account user or has live end-users.
 */
async function deleteIdentity(ctx: IdentityContext, caller: Caller, userId: string): Promise<void> {
  await writeAs(ctx, caller, undefined, async (tx) => {
    const identities = tx.selectFrom('identities').select('accountId').where('id', '=', userId);
    if ((await identities.executeTakeFirst())?.accountId !== caller.accountId) throw new PlatformError('notFound');
    await demandUnused(tx, userId);
    await removeIdentity(tx, userId);
    await ctx.audit.record(tx, {
      event: 'identityDeleted',
      outcome: 'success',
      accountId: caller.accountId,
      actor: caller,
      target: { kind: 'identity', id: userId },
    });
  });
  await identityRemoved(ctx, caller, userId);
}

/** Removes an identity that is nobody any more, with what of it lies in the trash. */
export async function removeIdentity(tx: Tx, userId: string): Promise<void> {
  const entityIds: string[] = [];
  for (const table of ['endUsers', 'accountUsers'] as const) {
    const gone = await tx.deleteFrom(table).where('userId', '=', userId).returning('id').execute();
    entityIds.push(...gone.map(({ id }) => id));
  }
  // The purge, which looks for what is in the trash, would not find them any more.
  for (const id of entityIds) await tx.deleteFrom('credentials').where('entityId', '=', id).execute();
  await tx.deleteFrom('identities').where('id', '=', userId).execute();
}

/** After the commit: ends all that an identity had open. */
export async function identityRemoved(
  ctx: Pick<IdentityContext, 'registry' | 'access' | 'revoked' | 'revocations'>,
  by: Caller,
  userId: string,
): Promise<void> {
  ctx.access.identityChanged(userId);
  ctx.revoked.noteRevoked(by, await ctx.revocations.principalDeleted(by.accountId, userId));
  await ctx.registry.query.deleteFrom('accessTokens').where('ownerId', '=', userId).execute();
}

async function demandUnused(tx: Tx, userId: string): Promise<void> {
  for (const table of ['endUsers', 'accountUsers'] as const) {
    const live = tx.selectFrom(table).select('id').where('userId', '=', userId).where('deleted', 'is', null);
    if (await live.executeTakeFirst())
      throw new PlatformError('constraint', { message: 'The identity is an account user or has live end-users.' });
  }
}
