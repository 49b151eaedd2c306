/**
 * Forgotten passwords. An application asks for a token, which goes by mail to the person, or in
 * the answer to a back-end that mails by itself; anyone who has the token sets a password with it.
 */

import { type Static, Type } from 'typebox';
import { Id, type Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { PlatformError } from '../../core/errors.ts';
import { type Attempts, sendAllowance } from '../../core/limits/attempts.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import { limitTries } from '../../core/limits/tries.ts';
import { demandRightsOf } from '../../entity/giving.ts';
import { writeAs } from '../../entity/verbs.ts';
import type { App } from '../../http/app.ts';
import type { EmailLimits } from '../../operations/emails/limits.ts';
import { headingFor, resetEmail, sendEmail } from '../../operations/emails/texts.ts';
import type { IdentityContext } from '../context.ts';
import { findIdentity, isAccountUser, setPassword } from '../identities.ts';
import { findMailedToken, makeMailedToken, spendMailedToken } from './mailed-tokens.ts';
import { maxPasswordLength } from './passwords.ts';

const tag = 'Identity';
const family = 'identity';
const appToken = [{ appToken: [] }];

const userParams = Type.Object({ userId: Type.String() });
const emailParams = Type.Object({ email: Type.String() });
const lookupQuery = Type.Object({
  accountId: Type.Optional(Type.String({ description: "The application's account; a foreign one answers 404." })),
});
const changeBody = Type.Object({
  newPassword: Type.String({ maxLength: maxPasswordLength }),
  passwordResetToken: Type.String({ maxLength: 255 }),
});
const reset = Type.Object(
  { success: Type.Boolean(), userId: Id, resetToken: Type.Optional(Type.String()) },
  { description: 'The token is on its way by mail; in the answer for an application made with revealResetToken.' },
);
const found = Type.Object({ success: Type.Boolean(), userId: Id }, { description: 'Whose email address it is.' });
const changed = Type.Object(
  { success: Type.Boolean() },
  { description: 'The password is set; every session of the person has ended, and none has begun.' },
);

/** Endpoints for applications, with their appToken. */
export function passwordResetRoutes(app: App, ctx: IdentityContext): void {
  const { access } = ctx;
  const requests = limitTries('passwordResets', ctx);
  const mails = limitTries('resetEmails', ctx);

  app.get(
    '/users/:userId/password-reset-token',
    {
      config: {
        family,
        changes: true,
        right: ['update', 'identity'],
        errors: ['notFound', 'forbidden', 'storeFull'],
        sends: ['limits'],
      },
      schema: {
        tags: [tag],
        operationId: 'requestPasswordReset',
        summary: 'Send a person a token that sets a password',
        description: 'An application calls it for a person who has forgotten the password.',
        security: appToken,
        params: userParams,
        response: { 200: reset },
      },
    },
    async (request, reply) => {
      const { application, caller, params } = request;
      sendAllowance(reply, requests.takeTry(application.id));
      reply.header('cache-control', 'no-store');
      return giveResetToken(ctx, mails, application, caller, params.userId);
    },
  );
  app.get(
    '/users/by-email/:email/user-id',
    {
      config: { family, right: ['read', 'identity'], errors: ['notFound', 'forbidden'], sends: ['limits'] },
      schema: {
        tags: [tag],
        operationId: 'findUserByEmail',
        summary: 'Find the userId of an email address; addresses of admins are not found',
        description: 'An application calls it before requestPasswordReset.',
        security: appToken,
        params: emailParams,
        querystring: lookupQuery,
        response: { 200: found },
      },
    },
    async (request, reply) => {
      const { application, caller } = request;
      sendAllowance(reply, requests.takeTry(application.id));
      access.demandAccount(caller, request.query.accountId ?? caller.accountId);
      const { query } = ctx.registry;
      const identity = await findIdentity(query, caller.accountId, request.params.email);
      if (!identity || (await isAccountUser(query, identity.id))) throw new PlatformError('notFound');
      return { success: true, userId: identity.id };
    },
  );
}

/** Endpoints without a login: the token from the email is enough. */
export function passwordChangeRoutes(app: App, ctx: IdentityContext): void {
  app.post(
    '/users/:userId/change-password-with-token',
    {
      config: { family, errors: ['badToken', 'tooMany', 'storeFull'] },
      schema: {
        tags: [tag],
        operationId: 'changePasswordWithToken',
        summary: 'Set a password with a token that was sent by email',
        description: 'The token comes from requestPasswordReset or an invitation and can be used once.',
        security: [],
        params: userParams,
        body: changeBody,
        response: { 200: changed },
      },
    },
    async (request) => {
      await changeWithToken(ctx, request.params.userId, request.body, request.address);
      return { success: true };
    },
  );
}

/**
 * Makes a token and mails it, or answers it where the application is trusted with it.
 * @throws PlatformError 404/100 for nobody of the caller's account, 429 after too many mails, 500 when it cannot be sent.
 */
async function giveResetToken(
  ctx: IdentityContext,
  mails: Attempts,
  application: Row<'applications'>,
  caller: Caller,
  userId: string,
): Promise<Static<typeof reset>> {
  const { identity, isRevealed, resetToken, uncount } = await writeAs(ctx, caller, undefined, async (tx) => {
    const identity = await tx.selectFrom('identities').selectAll().where('id', '=', userId).executeTakeFirst();
    if (identity?.accountId !== caller.accountId) throw new PlatformError('notFound');
    // An admin's is never shown: anyone who steals the application's token must not become one.
    const isRevealed = application.revealResetToken === 1 && !(await isAccountUser(tx, userId));
    // Its role may have shrunk since it was trusted with it.
    if (isRevealed && caller.kind === 'backEnd') await demandRightsOf(tx, caller, userId);
    const uncount = isRevealed ? undefined : countEmail(ctx, mails, application, identity);
    await ctx.audit.record(tx, {
      event: 'passwordReset',
      outcome: 'success',
      accountId: identity.accountId,
      actor: caller,
      target: { kind: 'identity', id: userId },
      details: { isRevealed },
    });
    const resetToken = await makeMailedToken(tx, ctx.clock, { accountId: caller.accountId, userId, kind: 'reset' });
    return { identity, isRevealed, uncount, resetToken };
  });
  if (isRevealed) return { success: true, userId, resetToken };
  const heading = await headingFor(ctx, identity.accountId, identity.email);
  if (await sendEmail(ctx, userId, resetEmail(heading, userId, resetToken))) return { success: true, userId };
  uncount?.();
  throw new PlatformError('server', { message: 'The mail could not be sent.' });
}

/** Counts an email to a person; the answer takes that back. @throws PlatformError 429, and counts nothing then. */
function countEmail(
  { emailLimits }: { emailLimits: EmailLimits },
  mails: Attempts,
  { id: by }: Row<'applications'>,
  { id, accountId, email: to }: Row<'identities'>,
): () => void {
  const uncount = emailLimits.countEmail({ accountId, to, by });
  try {
    mails.takeTry(id);
  } catch (error) {
    uncount();
    throw error;
  }
  return () => {
    uncount();
    mails.giveBack(id);
  };
}

/**
 * Sets a password for anyone who has read the email; second factors stay. @throws PlatformError 400 (badToken) for a token that is
 * not this person's, used or too old; 400/106 by the policy, which leaves the token as it was.
 */
async function changeWithToken(
  ctx: IdentityContext,
  userId: string,
  { newPassword, passwordResetToken }: Static<typeof changeBody>,
  address: string,
): Promise<void> {
  const { registry, clock } = ctx;
  const token = await findMailedToken(registry.query, clock, 'password', passwordResetToken);
  const identities = registry.query.selectFrom('identities').selectAll().where('id', '=', userId);
  const identity = await identities.executeTakeFirst();
  // Sampled, for anybody may send any; under the account that it was aimed at, or whose token it is.
  const refuse = () => {
    const accountId = identity?.accountId ?? (token && ctx.access.callerOf(token.userId)?.accountId);
    const target = identity && ({ kind: 'identity', id: userId } as const);
    const details = { with: 'token' };
    if (accountId !== undefined)
      ctx.audit.sample({ event: 'passwordChanged', outcome: 'failure', accountId, target, address, details });
    return new PlatformError('badToken');
  };
  if (!identity || token?.userId !== userId) throw refuse();
  const passwordHash = await ctx.passwords.hashNew('newPassword', newPassword, identity.email, laneOf(identity));
  const ended = await registry.transaction(async (tx) => {
    if (!(await spendMailedToken(tx, token))) throw refuse();
    await ctx.audit.record(tx, {
      event: 'passwordChanged',
      outcome: 'success',
      accountId: identity.accountId,
      target: { kind: 'identity', id: userId },
      address,
      details: { with: 'token' },
    });
    // Anyone who has the token has the mailbox.
    await tx.updateTable('identities').set({ emailConfirmed: 1 }).where('id', '=', userId).execute();
    return setPassword(tx, ctx, userId, { passwordHash, passwordChosenBy: 'owner' });
  });
  for (const sessionId of ended) ctx.revocations.loginEnded(sessionId);
}
