/** Login of people by email and password, and of applications by their appToken. */
import type { FastifyReply } from 'fastify';
import { type Static, Type } from 'typebox';
import type { Tx } from '../../../db/registry/index.ts';
import { oneOf, type Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { PlatformError } from '../../core/errors.ts';
import { emailKey } from '../../core/formats/email-key.ts';
import { sendAllowance } from '../../core/limits/attempts.ts';
import type { App } from '../../http/app.ts';
import { findApplication } from '../applications.ts';
import type { IdentityContext } from '../context.ts';
import { findIdentity, maxEmailLength } from '../identities.ts';
import { confirmedMethods } from '../mfa/factors.ts';
import { mfaRequiredShape, requireSecondFactor } from '../mfa/login.ts';
import { maxPasswordLength } from '../secrets/passwords.ts';
import { isFromBrowser, type SendSession, sendSession, sendTokens, sessionShape } from './authentication.ts';
import { openSession } from './opening.ts';
import type { RenewalType } from './sessions.ts';

/** Longer ids cannot exist; work and memory must not grow with the size of the input. */
const maxIdLength = 255;

const tag = 'Identity';
const family = 'identity';

/** `renewalType` of a body. */
export const renewalType = Type.Optional(
  oneOf(['short', 'remembered', 'extended'], { description: '30 minutes, 7 days, 100 days; 14 days when absent.' }),
);
const userBody = Type.Object({
  emailAddress: Type.String({ maxLength: maxEmailLength }),
  password: Type.String({ maxLength: maxPasswordLength }),
  accountId: Type.String({ maxLength: maxIdLength }),
  renewalType,
});
export const loginShape = Type.Union([sessionShape, mfaRequiredShape], {
  description: 'A session has begun, or, for an identity with a second factor, its code is waited for.',
});
const applicationBody = Type.Object({
  appId: Type.String({ maxLength: maxIdLength }),
  appToken: Type.String({ maxLength: maxIdLength }),
  accountId: Type.String({ maxLength: maxIdLength }),
});

const applicationSession = Type.Object(
  { jwt: Type.String(), csrfToken: Type.String({ description: 'For a page that has the token as a cookie.' }) },
  { description: 'A session has begun.' },
);

/** Endpoints that need no token. */
export function loginRoutes(app: App, ctx: IdentityContext): void {
  app.post(
    '/auth/login-user',
    {
      config: { family, errors: ['badCredentials', 'tooMany', 'storeFull'], sends: ['token', 'limits'] },
      schema: {
        tags: [tag],
        operationId: 'loginUser',
        summary: 'Log in with email and password',
        description: 'Sets the token as a cookie too. With a second factor, continue with mfaLoginUser.',
        security: [],
        body: userBody,
        response: { 200: loginShape },
      },
    },
    async (request, reply) => loginUser(ctx, request.body, request.address, reply),
  );
  app.post(
    '/auth/login-application',
    {
      config: { family, errors: ['badCredentials', 'tooMany', 'storeFull'], sends: ['token', 'limits'] },
      schema: {
        tags: [tag],
        operationId: 'loginApplication',
        summary: 'Log an application in',
        description:
          'Takes the appToken that createApplication has returned. A page of this service gets the token as a cookie too.',
        security: [],
        body: applicationBody,
        response: { 200: applicationSession },
      },
    },
    async (request, reply) => loginApplication(ctx, request.body, request.address, reply),
  );
}

/**
 * Opens a session for an email and its password, or begins the second step of one. Unknown email, wrong password and
 * wrong account look the same and take the same time. @throws PlatformError 401, 429 after too many wrong tries.
 */
async function loginUser(ctx: IdentityContext, body: Static<typeof userBody>, address: string, reply: FastifyReply) {
  const { emailAddress, password, accountId } = body;
  const identity = await findIdentity(ctx.registry.query, accountId, emailAddress);
  const attempt = { subject: `${accountId}\0${emailKey(emailAddress)}`, userId: identity?.id, address };
  sendAllowance(reply, await ctx.loginLimits.takeTry(attempt));
  const proven = await ctx.loginLimits.unlessItFails(attempt, async () => {
    const lane = await ctx.loginLimits.laneOf(accountId, attempt);
    return ctx.passwords.verify(identity?.passwordHash, password, lane);
  });
  const caller = identity && proven ? ctx.access.callerOf(identity.id) : undefined;
  if (!identity || !caller) {
    await noteFailure(ctx, accountId, identity?.id, address);
    throw new PlatformError('badCredentials', { message: 'The email address or the password is wrong.' });
  }
  ctx.loginLimits.succeeded(attempt);
  return admitPerson(ctx, reply, { ...caller, address }, body.renewalType, (tx) => demandPassword(tx, identity));
}

/** The password may have been changed, or the identity deleted, while its hash was computed. @throws PlatformError 401. */
export async function demandPassword(
  tx: Tx,
  { id, passwordHash }: Pick<Row<'identities'>, 'id' | 'passwordHash'>,
): Promise<void> {
  const now = await tx.selectFrom('identities').select('passwordHash').where('id', '=', id).executeTakeFirst();
  if (now?.passwordHash !== passwordHash) throw new PlatformError('badCredentials');
}

/**
 * Opens the session of a person who has proven who they are, or begins its second step when they have a second factor
 *. `check` runs first in the transaction of either; what it throws leaves nothing. `send` gives the session.
 */
export async function admitPerson(
  ctx: IdentityContext,
  reply: FastifyReply,
  who: Caller,
  renewalType: RenewalType | undefined,
  check: (tx: Tx) => Promise<void>,
  send: SendSession = sendSession,
) {
  const methods = await confirmedMethods(ctx.registry.query, who.id);
  if (methods.length > 0) return requireSecondFactor(ctx, who, renewalType, methods, check);
  const session = await openSession(ctx, reply, who, renewalType, async (tx) => {
    await check(tx);
    // A second factor may have been confirmed in between: then the login starts again.
    if ((await confirmedMethods(tx, who.id)).length > 0) throw new PlatformError('badCredentials');
    await ctx.audit.record(tx, { event: 'login', outcome: 'success', accountId: who.accountId, actor: who });
  });
  return send(reply, ctx, session);
}

async function noteFailure(ctx: IdentityContext, accountId: string, userId: string | undefined, address: string) {
  const account = ctx.registry.query.selectFrom('accounts').select('id').where('id', '=', accountId);
  // Somebody who guesses accounts leaves no trace in any.
  if (!(await account.executeTakeFirst())) return;
  const target = userId === undefined ? undefined : ({ kind: 'identity', id: userId } as const);
  // Not waited for: the answer takes the same time whether or not there is something to write.
  ctx.audit.addSoon({ event: 'login', outcome: 'failure', accountId, target, address });
}

/** @throws PlatformError 401 for an appToken that is not this application's or has expired, 429 after too many. */
async function loginApplication(
  ctx: IdentityContext,
  { appId, appToken, accountId }: Static<typeof applicationBody>,
  address: string,
  reply: FastifyReply,
) {
  const attempt = { subject: `${accountId}\0${appId}`, userId: undefined, address };
  sendAllowance(reply, await ctx.loginLimits.takeTry(attempt));
  const application = await findApplication(ctx.registry.query, appToken);
  const caller = application && ctx.access.callerOfApplication(application.id);
  if (!caller || caller.id !== appId || caller.accountId !== accountId)
    throw new PlatformError('badCredentials', { message: 'The application or its token is wrong.' });
  ctx.loginLimits.succeeded(attempt);
  const who = { ...caller, address };
  if (application.expiresAt !== null && Date.parse(application.expiresAt) <= ctx.clock.now()) {
    const details = { reason: 'expired' };
    ctx.audit.addSoon({ event: 'applicationLogin', outcome: 'failure', accountId, actor: who, details });
    throw new PlatformError('badCredentials', {
      details: [{ path: 'expiresAt', message: 'The station has expired.' }],
    });
  }
  const opened = await openSession(ctx, reply, who, undefined, async (tx) => {
    await ctx.audit.record(tx, { event: 'applicationLogin', outcome: 'success', accountId, actor: who });
  });
  // A station signs in at the console; programs have no use for a cookie.
  return (isFromBrowser(reply.request) ? sendSession : sendTokens)(reply, ctx, opened);
}
