/** Checks the token of a request, finds its caller, and renews it. */

import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import type { Row } from '../../../db/registry/records.ts';
import type { Config } from '../../core/config.ts';
import { PlatformError } from '../../core/errors.ts';
import { isAccessToken } from '../../core/formats/access-tokens.ts';
import { sendAllowance } from '../../core/limits/attempts.ts';
import { limitTries } from '../../core/limits/tries.ts';
import type { App } from '../../http/app.ts';
import { proveAccessToken } from '../access-tokens.ts';
import { findApplication } from '../applications.ts';
import type { IdentityContext } from '../context.ts';
import type { Authenticated, OpenedSession } from './sessions.ts';

declare module 'fastify' {
  interface FastifyRequest {
    authenticated: Authenticated;
    /** The application of the appToken, on endpoints that take one. */
    application: Row<'applications'>;
  }
}

/** Everything below needs a live token, as Bearer header or as cookie; a cookie needs the CSRF header to change things. */
export function requireCaller(app: App, ctx: IdentityContext): void {
  const tokenName = `${ctx.config.headerPrefix}-access-token`;
  const csrfName = `${ctx.config.headerPrefix}-csrf-token`;
  const sessionName = `${ctx.config.headerPrefix}-session`;

  takeWholeBodies(app, ctx);
  tellRevocation(app, ctx);
  const perSecond = limitTries('requests', ctx);

  app.addHook('onRequest', async (request, reply) => {
    // A password has proven it (messages/publish.ts).
    if (request.caller) return;
    const bearer = readBearer(request);
    const fromCookie = bearer === undefined ? request.cookies[tokenName] : undefined;
    const jwt = bearer ?? fromCookie;
    if (!jwt) throw await withoutToken(ctx, request);
    const { renewsSession, ofSession } = request.routeOptions.config;
    const isToken = isAccessToken(jwt);
    if (isToken && (renewsSession || ofSession)) throw new PlatformError('wrongToken');
    const byJwt = () => (renewsSession ? ctx.sessions.authenticateToRenew(jwt) : ctx.sessions.authenticate(jwt));
    const checked = isToken ? byToken(ctx, bearer) : byJwt();
    const authenticated = checked instanceof Promise ? await checked : checked;
    if (!authenticated) {
      // An appToken opens other doors than these.
      const application = await findApplication(ctx.registry.query, jwt);
      if (application) throw refusedToken(ctx, application, request);
      throw new PlatformError('tokenInvalid');
    }
    const meant = request.headers[sessionName];
    if (meant !== undefined && meant !== authenticated.session.id) throw otherSession(sessionName);
    // From here on it is known whom a refusal is about.
    request.caller = { ...authenticated.caller, address: request.address };
    if (fromCookie !== undefined && !['GET', 'HEAD', 'OPTIONS'].includes(request.method)) {
      const proof = request.headers[csrfName];
      if (typeof proof !== 'string' || !ctx.sessions.provesCsrf(authenticated.session, proof))
        throw new PlatformError('forbidden', { message: `The header ${csrfName} is missing or wrong.` });
    }
    sendAllowance(reply, perSecond.takeTry(authenticated.caller.id));
    ctx.sessions.noteUse(
      authenticated.session.id,
      authenticated.session.accountId,
      isToken ? request.address : undefined,
    );
    request.authenticated = authenticated;
    // Of others the endpoint is not looked at: they are sampled whatever they call.
    const isStation = request.caller.kind === 'station';
    ctx.audit.recordUse(request.caller, isStation ? { endpoint: endpointOf(request) } : {});

    const renewed = isToken ? undefined : ctx.sessions.renewSession(authenticated);
    if (renewed === undefined) return;
    const fresh = await renewed;
    reply.header(tokenName, fresh);
    if (fromCookie !== undefined) setTokenCookie(reply, ctx, fresh, Date.parse(authenticated.session.expires));
  });
}

/** A page shows one person, and the browser has the cookie of another, who has signed in since. */
function otherSession(path: string): PlatformError {
  const details = [{ path, message: 'is not the session of the token' }];
  return new PlatformError('wrongToken', {
    message: 'The token is of another session than the request says.',
    details,
  });
}

/** Whom a token stands for, as a session that nothing renews; undefined for one that is not in force. */
function byToken(ctx: IdentityContext, text: string | undefined): Authenticated | undefined {
  const proven = text === undefined ? undefined : proveAccessToken(ctx, text);
  if (!proven) return undefined;
  const { caller, token } = proven;
  const { id, accountId, ownerId, expires, lastUsed } = token;
  const session = { id, accountId, userId: ownerId, applicationId: null, expires, ended: null, csrfHash: '', lastUsed };
  const claims = {
    id,
    accountId,
    userId: ownerId,
    roles: [caller.kind],
    iat: 0,
    exp: Math.floor(Date.parse(expires) / 1000),
  };
  return { caller, claims, session };
}

/** The account of a request whose token was verified before; nothing is read or verified for it. */
export function knownAccount({ tokens, config }: Pick<IdentityContext, 'tokens' | 'config'>) {
  const cookie = new RegExp(`(?:^|;\\s*)${config.headerPrefix}-access-token=([^;\\s]+)`);
  return (request: FastifyRequest): string | undefined => {
    const { headers } = request;
    const jwt = readBearer(request) ?? cookie.exec(headers.cookie ?? '')?.[1];
    return jwt === undefined ? undefined : tokens.knownAccount(jwt);
  };
}

/** Behind a token bodies may be as large as the configuration says; it is checked before they are read. */
function takeWholeBodies(app: App, { config }: { config: Config }): void {
  app.addHook('onRoute', (route) => {
    route.bodyLimit ??= config.httpBodyBytes;
  });
}

/** Says in a header what the request has ended over MQTT. */
function tellRevocation(app: App, { revoked, config }: IdentityContext): void {
  const name = `${config.headerPrefix}-revocation`;
  app.addHook('onSend', (request, reply, _, done) => {
    const ended = request.caller && revoked.header(request.caller);
    if (ended !== undefined) reply.header(name, ended);
    done();
  });
}

/** 401 with 30; 403 with 20 for a token in the header that is another's. */
async function withoutToken(ctx: IdentityContext, request: FastifyRequest): Promise<PlatformError> {
  const elsewhere = request.headers.accesstoken;
  if (typeof elsewhere === 'string' && elsewhere !== '') {
    const application = await findApplication(ctx.registry.query, elsewhere);
    if (application) return refusedToken(ctx, application, request);
    if (await ctx.sessions.authenticate(elsewhere)) return new PlatformError('wrongToken', { message: wrongHeader });
  }
  return new PlatformError('tokenMissing', { message: sayMissing(request) });
}

const wrongHeader =
  'The endpoint takes its token in the header Authorization, as Bearer; AccessToken is for appTokens.';

/** Why a request has no token, in a sentence. */
function sayMissing({ headers }: FastifyRequest): string {
  const { authorization } = headers;
  if (authorization === undefined) return 'There is no token: the header Authorization is missing.';
  return /^basic\b/i.test(authorization)
    ? 'There is no token: Basic is not accepted here, only by POST /messaging/publish; send Bearer and a token.'
    : 'There is no token: the header Authorization must be Bearer and a token.';
}

/** The token of an Authorization: Bearer header. */
export function readBearer(request: FastifyRequest): string | undefined {
  const [scheme = '', token] = (request.headers.authorization ?? '').split(' ', 2);
  return scheme.toLowerCase() === 'bearer' && token ? token : undefined;
}

/** Everything below needs the appToken of an application in the header `AccessToken`. */
export function requireAppToken(app: App, ctx: IdentityContext): void {
  takeWholeBodies(app, ctx);
  tellRevocation(app, ctx);
  app.addHook('onRequest', async (request) => {
    const application = await requireApplication(ctx, request);
    const caller = ctx.access.callerOfApplication(application.id);
    if (!caller) throw new PlatformError('tokenInvalid');
    request.application = application;
    request.caller = { ...caller, address: request.address };
    const endpoint = endpointOf(request);
    ctx.audit.recordUse(request.caller, { endpoint }, endpoint);
  });
}

function endpointOf({ method, routeOptions }: FastifyRequest): string {
  return `${method} ${routeOptions.url}`;
}

/** An appToken where a session is wanted: 403 with 20, and a line in the audit record. */
function refusedToken(
  { audit }: IdentityContext,
  { id, accountId }: Row<'applications'>,
  request: FastifyRequest,
): PlatformError {
  const endpoint = endpointOf(request);
  const target = { kind: 'application', id } as const;
  const refused = {
    event: 'permissionRefused',
    outcome: 'failure',
    accountId,
    target,
    address: request.address,
  } as const;
  audit.sample({ ...refused, details: { endpoint } }, endpoint);
  return new PlatformError('wrongToken');
}

/**
 * The application whose appToken is in the header `AccessToken`.
 * @throws PlatformError 401/30 without the header, 403/20 for a token of another kind, 401/31 for an invalid token.
 */
async function requireApplication(ctx: IdentityContext, request: FastifyRequest): Promise<Row<'applications'>> {
  const token = request.headers.accesstoken;
  if (typeof token !== 'string' || token === '')
    throw new PlatformError('tokenMissing', { message: 'There is no appToken: the header AccessToken is missing.' });
  const application = await findApplication(ctx.registry.query, token);
  if (application) return application;
  if (await ctx.sessions.authenticate(token)) throw new PlatformError('wrongToken');
  throw new PlatformError('tokenInvalid');
}

export const sessionShape = Type.Object(
  { jwt: Type.String(), csrfToken: Type.String() },
  { description: 'A session has begun; the token comes as a cookie and in the header too.' },
);

/** How a session that has begun reaches its owner: the answer's body; headers are set on the reply. */
export type SendSession = (
  reply: FastifyReply,
  ctx: IdentityContext,
  opened: OpenedSession,
) => Static<typeof sessionShape>;

/** The token in the header, both tokens in the body. */
export const sendTokens: SendSession = (reply, ctx, { jwt, csrfToken }) => {
  reply.header(`${ctx.config.headerPrefix}-access-token`, jwt);
  return { jwt, csrfToken };
};

/** As `sendTokens`, and the token as a cookie too. */
export const sendCookieSession: SendSession = (reply, ctx, opened) => {
  setTokenCookie(reply, ctx, opened.jwt, opened.expires);
  return sendTokens(reply, ctx, opened);
};

/** As `sendTokens`, with the cookie unless a page of another site has sent the request: it must not log a browser in. */
export const sendSession: SendSession = (reply, ctx, opened) =>
  (isFromElsewhere(reply.request) ? sendTokens : sendCookieSession)(reply, ctx, opened);

/** Whether a browser says that a page of another origin has sent the request. Programs say nothing of the kind. */
function isFromElsewhere({ headers, host }: FastifyRequest): boolean {
  const site = headers['sec-fetch-site'];
  if (site !== undefined) return site !== 'same-origin' && site !== 'none';
  // Over plain HTTP browsers leave that header out, but not this one.
  const { origin } = headers;
  return origin !== undefined && !(URL.canParse(origin) && new URL(origin).host === host);
}

/** Browsers name the page that has sent a POST, in one header or the other. */
export function isFromBrowser({ headers }: FastifyRequest): boolean {
  return headers.origin !== undefined || headers['sec-fetch-site'] !== undefined;
}

/** Whether a page of this service has sent the browser here. Browsers say so over https and on loopback only. */
export function isFromOwnPage({ headers }: FastifyRequest): boolean {
  return headers['sec-fetch-site'] === 'same-origin';
}

/** Sets the token cookie. `expires` is in milliseconds since 1970. */
function setTokenCookie(reply: FastifyReply, ctx: IdentityContext, jwt: string, expires: number): void {
  reply.setCookie(`${ctx.config.headerPrefix}-access-token`, jwt, {
    path: '/',
    httpOnly: true,
    // Behind a proxy that ends TLS, the public address says so.
    secure: ctx.config.tls !== undefined || ctx.config.publicUrl?.startsWith('https:') === true,
    sameSite: 'lax',
    expires: new Date(expires),
  });
}
