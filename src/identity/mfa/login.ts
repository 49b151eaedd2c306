/** The second step of a login: a code of a second factor. */

import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import type { Tx } from '../../../db/registry/index.ts';
import { oneOf, type Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { timestamp } from '../../core/clock.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import { newTokenId } from '../../core/ids.ts';
import { sendAllowance } from '../../core/limits/attempts.ts';
import { keepLastLogins } from '../../core/limits/kept.ts';
import type { App } from '../../http/app.ts';
import type { IdentityContext } from '../context.ts';
import type { Sealing } from '../secrets/sealing.ts';
import { sendSession, sessionShape } from '../sessions/authentication.ts';
import { factorTry } from '../sessions/login-limits.ts';
import { openSession } from '../sessions/opening.ts';
import type { RenewalType } from '../sessions/sessions.ts';
import {
  confirmedMethods,
  findMethod,
  type MfaMethod,
  mfaMethods,
  purposeOf,
  takeRecoveryCode,
  takeTotp,
} from './factors.ts';

const tag = 'Identity';
const family = 'identity';

/** How long a login waits for its second step, in milliseconds; the codes tried and texts sent in that time. */
const patience = 10 * 60_000;
/** Logins of one person that wait for their second factor. */
export const maxUnderWay = 1000;
const maxAttempts = 5;
const maxTextMessages = 3;

export const mfaRequiredShape = Type.Object(
  {
    mfaRequired: Type.Literal(true),
    mfaToken: Type.String({ format: 'uuid', description: 'For the second step; 10 minutes, 5 tries, one login.' }),
    mfaMethods: Type.Array(oneOf(mfaMethods), { maxItems: mfaMethods.length }),
  },
  { description: 'The password is right, and a second factor is needed. There is no session yet.' },
);
const triggerBody = Type.Object({ mfaMethod: oneOf(['sms']) });
const loginBody = Type.Object({
  mfaMethod: oneOf([...mfaMethods, 'recovery'], {
    description: 'totp: of the authenticator app; sms: texted; recovery: one of those shown at enrolment.',
  }),
  code: Type.String({ maxLength: 100 }),
});

/** Endpoints that need no token but the mfaToken of login-user, which is in a header. */
export function mfaLoginRoutes(app: App, ctx: IdentityContext): void {
  const tokenName = `${ctx.config.headerPrefix}-mfa-token`;
  // A missing one is left to our code, which answers 401.
  const headers = Type.Object({ [tokenName]: Type.Optional(Type.String({ description: 'The mfaToken.' })) });
  app.post(
    '/auth/mfa-trigger-auth',
    {
      config: { family, errors: ['tokenMissing', 'badCredentials', 'tooMany', 'storeFull'], sends: ['limits'] },
      schema: {
        tags: [tag],
        operationId: 'sendMfaCode',
        summary: 'Send a text message code for the second step of a login',
        description: 'Takes the mfaToken of the login in a header. The code is valid for a few minutes.',
        security: [],
        headers,
        body: triggerBody,
        response: { 200: Type.Object({ status: oneOf(['poll']) }, { description: 'The code is on its way.' }) },
      },
    },
    async (request, reply) => {
      await textCode(ctx, readToken(request, tokenName), reply);
      return { status: 'poll' } as const;
    },
  );
  app.post(
    '/auth/mfa-login-user',
    {
      config: {
        family,
        errors: ['tokenMissing', 'badCredentials', 'tooMany', 'storeFull'],
        sends: ['token', 'limits'],
      },
      schema: {
        tags: [tag],
        operationId: 'loginWithMfa',
        summary: 'Log in with a second factor, after login-user',
        description:
          'Takes the mfaToken of the login in a header, and a code of the app, of a text message, or a recovery code.',
        security: [],
        headers,
        body: loginBody,
        response: { 200: sessionShape },
      },
    },
    async (request, reply) => loginWithCode(ctx, readToken(request, tokenName), request.body, request.address, reply),
  );
}

function readToken({ headers }: FastifyRequest, name: string): string {
  const token = headers[name];
  if (typeof token !== 'string' || token === '') throw new PlatformError('tokenMissing');
  return token;
}

/**
 * Begins the second step of a person who has proven the first factor. `check` runs first in its transaction; what it
 * throws leaves no mfaToken.
 */
export async function requireSecondFactor(
  ctx: IdentityContext,
  who: Caller,
  renewalType: RenewalType | undefined,
  methods: MfaMethod[],
  check: (tx: Tx) => Promise<void>,
): Promise<Static<typeof mfaRequiredShape>> {
  const mfaToken = newTokenId(who.accountId);
  const login = {
    tokenHash: hashToken(ctx, mfaToken),
    userId: who.id,
    renewalType: renewalType ?? null,
    expires: new Date(ctx.clock.now() + patience).toISOString(),
    tries: 0,
    codesSent: 0,
    codeHash: null,
    codeExpires: null,
  };
  await ctx.registry.transaction(async (tx) => {
    await check(tx);
    await tx.insertInto('mfaLogins').values(login).execute();
    await keepLastLogins(tx, 'mfaLogins', { userId: who.id }, maxUnderWay);
    await ctx.audit.record(tx, { event: 'mfaRequired', outcome: 'success', accountId: who.accountId, actor: who });
  });
  return { mfaRequired: true, mfaToken, mfaMethods: methods };
}

/**
 * Texts a code for a login that waits; the one before it is void.
 * @throws PlatformError 401 for an invalid or expired token, 400/106 without a phone, 429 after too many texts.
 */
async function textCode(ctx: IdentityContext, token: string, reply: FastifyReply): Promise<void> {
  const { registry, textedCodes } = ctx;
  const login = await findWaiting(ctx, token);
  const { tokenHash, userId, codesSent, expires } = login;
  const phone = await findMethod(registry.query, userId, 'sms');
  if (!phone?.phoneNumber || phone.confirmed === null) throw invalid('mfaMethod', 'is not set up');
  const reset = Math.ceil((Date.parse(expires) - ctx.clock.now()) / 1000);
  const tooMany = new PlatformError('tooMany', { allowance: { limit: maxTextMessages, remaining: 0, reset } });
  if (codesSent >= maxTextMessages) throw tooMany;
  const caller = ctx.access.callerOf(userId);
  if (!caller) throw tokenOver();
  sendAllowance(reply, textedCodes.countText(caller));
  const { code, stored } = textedCodes.makeCode(userId);
  const { numUpdatedRows } = await registry.query
    .updateTable('mfaLogins')
    .set((eb) => ({ ...stored, codesSent: eb('codesSent', '+', 1) }))
    .where('tokenHash', '=', tokenHash)
    .where('codesSent', '<', maxTextMessages)
    .executeTakeFirst();
  if (numUpdatedRows === 0n) {
    textedCodes.discount(caller);
    throw tooMany;
  }
  const { accountName } = await purposeOf(registry.query, userId);
  await textedCodes.send(phone.phoneNumber, code, accountName);
}

/**
 * Opens the session that login-user was asked for. The mfaToken and the code end in the same transaction.
 * @throws PlatformError 401 for a wrong code, and for an invalid or expired token; 429 after too many wrong codes.
 */
async function loginWithCode(
  ctx: IdentityContext,
  token: string,
  { mfaMethod, code }: Static<typeof loginBody>,
  address: string,
  reply: FastifyReply,
) {
  const { loginLimits, audit } = ctx;
  const login = await findWaiting(ctx, token);
  const caller = ctx.access.callerOf(login.userId);
  if (!caller) throw tokenOver();
  const who = { ...caller, address };
  const attempt = factorTry(who.id, address);
  const isShort = mfaMethod !== 'recovery';
  sendAllowance(reply, await (isShort ? loginLimits.takeShortCode(attempt) : loginLimits.takeTry(attempt)));
  await countTry(ctx, login);
  const { accountId } = who;
  const details = { mfaMethod };
  try {
    const renewalType = (login.renewalType ?? undefined) as RenewalType | undefined;
    const session = await openSession(ctx, reply, who, renewalType, async (tx) => {
      const [waiting] = await tx
        .deleteFrom('mfaLogins')
        .where('tokenHash', '=', login.tokenHash)
        .returningAll()
        .execute();
      if (!waiting) throw tokenOver();
      if (!(await takeCode(ctx, tx, waiting, mfaMethod, code))) throw wrongCode();
      await audit.record(tx, { event: 'login', outcome: 'success', accountId, actor: who, details });
    });
    loginLimits.succeeded(attempt);
    return sendSession(reply, ctx, session);
  } catch (error) {
    const target = { kind: 'identity', id: who.id } as const;
    if (error instanceof PlatformError && error.kind === 'badCredentials')
      audit.addSoon({ event: 'login', outcome: 'failure', accountId, target, address, details });
    throw error;
  }
}

async function takeCode(
  ctx: IdentityContext,
  tx: Tx,
  waiting: Row<'mfaLogins'>,
  mfaMethod: Static<typeof loginBody>['mfaMethod'],
  code: string,
): Promise<boolean> {
  const { userId } = waiting;
  if (mfaMethod === 'recovery') return takeRecoveryCode(ctx, tx, userId, code);
  // Removing a method makes the logins that wait void, so this one's text went to the phone that is confirmed now.
  if (!(await confirmedMethods(tx, userId)).includes(mfaMethod)) return false;
  if (mfaMethod === 'sms') return ctx.textedCodes.isRight(userId, waiting, code);
  const method = await findMethod(tx, userId, 'totp');
  return method !== undefined && takeTotp(ctx, tx, method, code);
}

/** A login that waits for its second step. @throws PlatformError 401 when there is none, or it is over. */
async function findWaiting(ctx: IdentityContext, token: string): Promise<Row<'mfaLogins'>> {
  const login = await ctx.registry.query
    .selectFrom('mfaLogins')
    .selectAll()
    .where('tokenHash', '=', hashToken(ctx, token))
    .where('expires', '>', timestamp(ctx.clock))
    .where('tries', '<', maxAttempts)
    .executeTakeFirst();
  if (!login) throw tokenOver();
  return login;
}

/** Counts a try, on disk before the code is looked at: a refused login rolls back its own transaction only. */
async function countTry({ registry }: IdentityContext, { tokenHash }: Row<'mfaLogins'>): Promise<void> {
  const { numUpdatedRows } = await registry.query
    .updateTable('mfaLogins')
    .set((eb) => ({ tries: eb('tries', '+', 1) }))
    .where('tokenHash', '=', tokenHash)
    .where('tries', '<', maxAttempts)
    .executeTakeFirst();
  if (numUpdatedRows === 0n) throw tokenOver();
}

function tokenOver(): PlatformError {
  return new PlatformError('badCredentials', { message: 'The mfaToken is wrong, used or too old.' });
}

function wrongCode(): PlatformError {
  return new PlatformError('badCredentials', { message: 'The code is wrong, used or too old.' });
}

function hashToken({ sealing }: { sealing: Sealing }, token: string): string {
  return sealing.digest('mfaToken', token.toLowerCase());
}
