/** How the login of a person is protected, and the end of its sessions: of one's own, and for admins of all of the account. */

import { type Static, Type } from 'typebox';
import { DateText, Id, Nullable, oneOf } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { timestamp } from '../core/clock.ts';
import { writeAs } from '../entity/verbs.ts';
import type { App } from '../http/app.ts';
import type { IdentityContext } from './context.ts';
import { confirmedMethods, mfaMethods } from './mfa/factors.ts';
import { findOwn } from './profile.ts';

const tags = ['Identity'];
const family = 'identity';
const maxSessions = 50;

const params = Type.Object({ userId: Type.String() });
const securityShape = Type.Object(
  {
    security: Type.Object({
      userId: Id,
      mfaMethods: Type.Array(oneOf(mfaMethods), {
        maxItems: mfaMethods.length,
        description: 'The confirmed second factors.',
      }),
      sessions: Type.Array(
        Type.Object({
          id: Id,
          created: DateText,
          expires: DateText,
          network: Nullable(Type.String({ description: 'From which the person has logged in.' })),
          browser: Nullable(
            Type.String({
              description: 'With which, such as `Firefox on Windows`; null if it did not say, and of older sessions.',
            }),
          ),
          current: Type.Boolean({ description: 'Whether it is the session of this request.' }),
        }),
        { maxItems: maxSessions, description: `The open sessions, newest first, at most ${maxSessions}.` },
      ),
    }),
  },
  { description: 'Second factors and sessions of a login.' },
);
const endedShape = Type.Object(
  { success: Type.Literal(true), ended: Type.Integer({ description: 'How many sessions have ended.' }) },
  { description: 'Their tokens are void, and connections made with them are closed.' },
);

/** GET /users/{userId}/security and POST /users/{userId}/end-sessions. */
export function securityRoutes(app: App, ctx: IdentityContext): void {
  app.get(
    '/users/:userId/security',
    {
      config: { family, right: ['read', 'profile'], errors: ['notFound', 'forbidden'] },
      schema: {
        tags,
        operationId: 'getUserSecurity',
        summary: 'Read the second factors and the sessions of a person',
        description: 'The person itself and admins of the account may read them.',
        params,
        response: { 200: securityShape },
      },
    },
    async ({ caller, params }) => {
      return { security: await readSecurity(ctx, caller, params.userId) };
    },
  );
  app.post(
    '/users/:userId/end-sessions',
    {
      config: { family, right: ['delete', 'session'], errors: ['notFound', 'forbidden'], sends: ['revocation'] },
      schema: {
        tags,
        operationId: 'endUserSessions',
        summary: 'End all sessions of a person except the one of this request',
        description: 'Tokens of the ended sessions stop working at once. The session of this request goes on.',
        params,
        response: { 200: endedShape },
      },
    },
    async ({ caller, params }) => {
      return { success: true as const, ended: await endOthers(ctx, caller, params.userId) };
    },
  );
}

async function readSecurity(
  ctx: IdentityContext,
  caller: Caller,
  userId: string,
): Promise<Static<typeof securityShape>['security']> {
  await findOwn(ctx, caller, userId);
  const { query } = ctx.registry;
  const sessions = await query
    .selectFrom('sessions')
    .select(['id', 'created', 'expires', 'address', 'browser'])
    .where('userId', '=', userId)
    .where('ended', 'is', null)
    .where('expires', '>', timestamp(ctx.clock))
    .orderBy('created', 'desc')
    .limit(maxSessions)
    .execute();
  return {
    userId,
    mfaMethods: await confirmedMethods(query, userId),
    sessions: sessions.map(({ id, created, expires, address, browser }) => ({
      id,
      created,
      expires,
      network: address,
      browser,
      current: id === caller.sessionId,
    })),
  };
}

async function endOthers(ctx: IdentityContext, caller: Caller, userId: string): Promise<number> {
  const { audit, revocations, revoked, sessions } = ctx;
  const { accountId } = await findOwn(ctx, caller, userId);
  const ended = await writeAs(ctx, caller, undefined, async (tx) => {
    const ids = await sessions.endAll(tx, userId, caller.sessionId);
    const target = { kind: 'identity', id: userId } as const;
    const details = { sessions: ids.length };
    await audit.record(tx, { event: 'logout', outcome: 'success', accountId, actor: caller, target, details });
    return ids;
  });
  for (const sessionId of ended) revoked.noteRevoked(caller, revocations.loginEnded(sessionId));
  return ended.length;
}
