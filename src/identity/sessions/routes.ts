/** Sessions once they are there: logout, renewal, what a token is worth, public keys. */
import { Type } from 'typebox';
import { oneOf } from '../../../db/registry/records.ts';
import { type Constant, makeConstant, sendConstant } from '../../http/answers/constants.ts';
import type { App } from '../../http/app.ts';
import { tokenBodyBytes } from '../../http/guards/anonymous.ts';
import type { IdentityContext } from '../context.ts';
import { sendSession, sessionShape } from './authentication.ts';

const tag = 'Identity';
const family = 'identity';

const validation = Type.Object(
  {
    success: Type.Boolean(),
    result: oneOf(['Valid', 'RenewalNeeded', 'Expired', 'Error']),
    resultCode: Type.Integer({ minimum: 0, maximum: 3 }),
  },
  { description: 'What the token is worth.' },
);
const done = Type.Object({ success: Type.Boolean(), message: Type.String() }, { description: 'The session is over.' });
const keySet = Type.Object(
  { keys: Type.Array(Type.Record(Type.String(), Type.Unknown()), { maxItems: 1000 }) },
  { description: 'A JSON Web Key Set.' },
);

/** The keys with which others can check our tokens. */
export function keyRoutes(app: App, ctx: IdentityContext): void {
  let made: { text: string; constant: Constant } | undefined;
  app.get(
    '/.well-known/jwks.json',
    {
      schema: {
        tags: [tag],
        operationId: 'getSigningKeys',
        summary: 'Read the public signing keys',
        description:
          'Back ends verify tokens with them. Keep them and read them again when a token names an unknown key.',
        security: [],
        response: { 200: keySet },
      },
    },
    (_, reply) => {
      const text = JSON.stringify(ctx.tokens.jwks());
      // Keys are rotated; until then it is the same answer.
      if (text !== made?.text) made = { text, constant: makeConstant(text) };
      sendConstant(reply, 'application/json; charset=utf-8', made.constant);
    },
  );
}

/** Endpoints that need no token. */
export function validationRoutes(app: App, ctx: IdentityContext): void {
  app.post(
    '/auth/validate-jwt',
    {
      bodyLimit: tokenBodyBytes,
      config: { family },
      schema: {
        tags: [tag],
        operationId: 'validateJwt',
        summary: 'Check whether a token is valid',
        description: 'A back end asks this about the token of a caller. Needs no token of its own.',
        security: [],
        body: Type.Object({ jwt: Type.String({ maxLength: 65_536 }) }),
        response: { 200: validation },
      },
    },
    async (request) => validate(ctx, request.body.jwt),
  );
  app.get(
    '/auth/validate-jwt',
    {
      config: { family },
      schema: {
        tags: [tag],
        operationId: 'validateJwtInQuery',
        summary: 'Check whether a token is valid',
        description: 'As validateJwt, with the token in the query. Prefer POST: queries appear in logs.',
        security: [],
        querystring: Type.Object({ jwt: Type.String() }),
        response: { 200: validation },
      },
    },
    async (request) => validate(ctx, request.query.jwt),
  );
}

/** Endpoints of a caller's own session. */
export function sessionRoutes(app: App, ctx: IdentityContext): void {
  app.post(
    '/sessions/logout',
    {
      config: { family, sends: ['revocation'], ofSession: true },
      schema: {
        tags: [tag],
        operationId: 'logout',
        summary: 'End the session',
        description: 'The token, its cookie and all connections that use it end.',
        response: { 200: done },
      },
    },
    async (request, reply) => {
      const { session } = request.authenticated;
      await ctx.sessions.endSession(session.id);
      const { caller } = request;
      const { accountId } = caller;
      ctx.audit.addSoon({ event: 'logout', outcome: 'success', accountId, actor: caller });
      ctx.revoked.noteRevoked(caller, ctx.revocations.loginEnded(session.id));
      reply.clearCookie(`${ctx.config.headerPrefix}-access-token`, { path: '/' });
      reply.removeHeader(`${ctx.config.headerPrefix}-access-token`);
      return { success: true, message: 'Logged out.' };
    },
  );
  app.post(
    '/sessions/renew-session',
    {
      config: { family, sends: ['token'], renewsSession: true },
      schema: {
        tags: [tag],
        operationId: 'renewSession',
        summary: 'Get a new token and a new CSRF token; the old CSRF token is void',
        description: 'It takes an expired token too, as long as the session lives.',
        response: { 200: sessionShape },
      },
    },
    async (request, reply) => sendSession(reply, ctx, await ctx.sessions.refresh(request.authenticated)),
  );
}

/** Says whether a token is valid. Answers 200 with a result code in every case, because clients rely on it. */
async function validate(ctx: IdentityContext, jwt: string) {
  const claims = await ctx.tokens.verify(jwt);
  if (!claims) return { success: false, result: 'Error', resultCode: 3 } as const;
  if (!ctx.sessions.live(claims)) return { success: false, result: 'Expired', resultCode: 2 } as const;
  if (claims.exp * 1000 <= ctx.clock.now()) return { success: false, result: 'RenewalNeeded', resultCode: 1 } as const;
  return { success: true, result: 'Valid', resultCode: 0 } as const;
}
