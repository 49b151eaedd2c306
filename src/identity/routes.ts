/** Login, logout and token checks (spec 4.2). */
import { Type } from 'typebox';
import type { Context } from '../context.js';
import { oneOf } from '../entity/listing.js';
import { PlatformError } from '../errors.js';
import type { App } from '../http.js';
import { setTokenCookie } from './authentication.js';
import { findIdentity } from './identities.js';

const tag = 'Identity';
const family = 'identity';

const loginBody = Type.Object({
  emailAddress: Type.String(),
  password: Type.String(),
  accountId: Type.String(),
  renewalType: Type.Optional(
    oneOf(['short', 'remembered', 'extended'], { description: '30 minutes, 7 days, 100 days; 14 days when absent.' }),
  ),
});
const tokens = Type.Object(
  { jwt: Type.String(), csrfToken: Type.String() },
  { description: 'A session has begun; the token comes as a cookie and in the header too.' },
);
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
  { keys: Type.Array(Type.Record(Type.String(), Type.Unknown())) },
  { description: 'A JSON Web Key Set.' },
);

/** The keys with which others can check our tokens. */
export function keyRoutes(app: App, ctx: Context): void {
  app.get(
    '/.well-known/jwks.json',
    { schema: { tags: [tag], summary: 'Read the public signing keys', security: [], response: { 200: keySet } } },
    async () => ctx.tokens.jwks(),
  );
}

/** Endpoints that need no token. */
export function authRoutes(app: App, ctx: Context): void {
  app.post(
    '/auth/login-user',
    {
      config: { family, errors: ['badCredentials', 'storeFull'], sends: ['token'] },
      schema: {
        tags: [tag],
        summary: 'Log in with e-mail and password',
        security: [],
        body: loginBody,
        response: { 200: tokens },
      },
    },
    async (request, reply) => {
      const { emailAddress, password, accountId, renewalType } = request.body;
      const identity = await findIdentity(ctx.registry.query, accountId, emailAddress);
      const proven = await ctx.passwords.verify(identity?.passwordHash, password);
      const caller = identity && proven ? ctx.access.callerOf(identity.id) : undefined;
      if (!caller)
        throw new PlatformError('badCredentials', { message: 'The e-mail address or the password is wrong.' });
      const { jwt, csrfToken, expires } = await ctx.sessions.open(caller, renewalType);
      setTokenCookie(reply, ctx, jwt, expires);
      reply.header(`${ctx.config.headerPrefix}-access-token`, jwt);
      return { jwt, csrfToken };
    },
  );
  app.post(
    '/auth/validate-jwt',
    {
      config: { family },
      schema: {
        tags: [tag],
        summary: 'Say whether a token is valid',
        security: [],
        body: Type.Object({ jwt: Type.String() }),
        response: { 200: validation },
      },
    },
    async (request) => validate(ctx, request.body.jwt),
  );
}

/** Endpoints of a caller's own session. */
export function sessionRoutes(app: App, ctx: Context): void {
  app.post(
    '/sessions/logout',
    {
      config: { family },
      schema: {
        tags: [tag],
        summary: 'End the session',
        response: { 200: done },
      },
    },
    async (request, reply) => {
      const { session } = request.authenticated;
      await ctx.sessions.end(session.id);
      ctx.broker.disconnectSession(session.id);
      reply.clearCookie(`${ctx.config.headerPrefix}-access-token`, { path: '/' });
      reply.removeHeader(`${ctx.config.headerPrefix}-access-token`);
      return { success: true, message: 'Logged out.' };
    },
  );
}

/** Spec 3.3. */
async function validate(ctx: Context, jwt: string) {
  const claims = await ctx.tokens.verify(jwt);
  if (!claims) return { success: false, result: 'Error', resultCode: 3 } as const;
  if (!ctx.sessions.live(claims)) return { success: false, result: 'Expired', resultCode: 2 } as const;
  if (claims.exp * 1000 <= ctx.clock.now()) return { success: false, result: 'RenewalNeeded', resultCode: 1 } as const;
  return { success: true, result: 'Valid', resultCode: 0 } as const;
}
