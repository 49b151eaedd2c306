/**
 * Federated login by OpenID Connect: authorization code flow with PKCE, state and nonce. A person
 * is known by issuer and subject, and linked the first time by an email address that the provider has verified.
 */

import { createHash } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import { findEntity } from '../../../db/registry/entities.ts';
import type { Row } from '../../../db/registry/records.ts';
import { timestamp } from '../../core/clock.ts';
import type { Config } from '../../core/config.ts';
import { identityErrorCode, invalid, PlatformError } from '../../core/errors.ts';
import { type Attempts, sendAllowance } from '../../core/limits/attempts.ts';
import { keepLastLogins } from '../../core/limits/kept.ts';
import { limitTries } from '../../core/limits/tries.ts';
import type { App } from '../../http/app.ts';
import type { IdentityContext } from '../context.ts';
import { makeSecret, makeToken } from '../secrets/secrets.ts';
import { isFromOwnPage } from '../sessions/authentication.ts';
import { loginShape, renewalType } from '../sessions/login.ts';
import { admit } from './admission.ts';
import type { Challenge, OpenId } from './openid.ts';
import { demandUnchanged, redirectUrisOf } from './providers.ts';

const tag = 'Identity';
const family = 'identity';

const minute = 60_000;
/** How long a person may take at the provider, in milliseconds. */
const loginLifetime = 10 * minute;
/** Logins of one provider that are under way: strangers begin them. */
export const maxUnderWay = 10_000;
/** How long logins under way may go on when the server closes, in milliseconds. */
const farewell = 2000;

const authorizeQuery = Type.Object({
  providerId: Type.String(),
  redirectUri: Type.Optional(
    Type.String({ description: 'One of the provider’s `redirectUris`; without it the callback answers JSON.' }),
  ),
  renewalType,
});
const callbackQuery = Type.Object({
  state: Type.String(),
  code: Type.Optional(Type.String()),
  error: Type.Optional(Type.String()),
  iss: Type.Optional(Type.String()),
});

/** The state of a login while the person is at the provider. `version` is the provider's at its start. */
interface Login extends Challenge, Pick<Static<typeof authorizeQuery>, 'redirectUri' | 'renewalType'> {
  version: number;
  /** Whether a page of this service began it: only then does the browser get the session as a cookie. */
  fromOwnPage: boolean;
}

type Provider = Row<'identityProviders'>;

/** Endpoints that need no token: a browser is sent to them. */
export function federationRoutes(app: App, ctx: IdentityContext): void {
  // Loaded when the first person comes: most services have no provider, and it takes megabytes.
  let loading: Promise<OpenId> | undefined;
  const openId = () => {
    loading ??= import('./openid.ts').then((module) => new module.OpenId(ctx));
    return loading;
  };
  app.addHook('preClose', async () => {
    const loaded = await loading;
    setTimeout(() => loaded?.close(), farewell).unref();
  });
  // A login counts until it succeeds, as a wrong password does.
  const begun = limitTries('federatedLogins', ctx);

  app.get(
    '/oauth2/authorize',
    {
      config: {
        family,
        changes: true,
        errors: ['notFound', 'tooMany', 'providerFailed', 'storeFull'],
        sends: ['limits'],
      },
      schema: {
        tags: [tag],
        operationId: 'authorizeAtProvider',
        summary: 'Send a browser to an identity provider, to log in there',
        description: 'Answers with a redirect to the provider, which redirects to finishAtProvider.',
        security: [],
        querystring: authorizeQuery,
        response: { 302: Type.Null({ description: 'To the provider, with a cookie for the way back.' }) },
      },
    },
    async (request, reply) => {
      keepToOurselves(reply);
      sendAllowance(reply, begun.takeTry({ address: request.address }));
      const { providerId, redirectUri, renewalType } = request.query;
      const provider = await findEntity(ctx.registry.query, 'identityProviders', providerId);
      if (!provider || provider.deleted !== null) throw new PlatformError('notFound');
      if (redirectUri !== undefined && !redirectUrisOf(provider).includes(redirectUri))
        throw invalid('redirectUri', 'must be one of the provider’s redirectUris');
      const login = {
        ...makeChallenge(provider),
        redirectUri,
        renewalType,
        version: provider.version,
        fromOwnPage: isFromOwnPage(request),
      };
      const callback = callbackUrl(ctx, app);
      const url = await (await openId()).authorizationUrl(provider, callback, login);
      const browser = await remember(ctx, provider, login);
      reply.setCookie(cookieName(ctx, login.state), browser, {
        path: callback.pathname,
        httpOnly: true,
        secure: callback.protocol === 'https:',
        sameSite: 'lax',
        maxAge: loginLifetime / 1000,
      });
      return reply.redirect(url.href);
    },
  );
  app.get(
    '/oauth2/callback-url',
    {
      config: { errors: [] },
      schema: {
        tags: [tag],
        operationId: 'getCallbackUrl',
        summary: 'Read the callback address that is to be registered at providers',
        description: 'It is the same for all providers.',
        security: [],
        response: { 200: Type.Object({ callbackUrl: Type.String() }, { description: 'Where browsers come back to.' }) },
      },
    },
    () => ({ callbackUrl: callbackUrl(ctx, app).href }),
  );
  callbackRoute(app, ctx, openId, begun);
}

function callbackRoute(app: App, ctx: IdentityContext, openId: () => Promise<OpenId>, begun: Attempts): void {
  app.get(
    '/oauth2/callback',
    {
      config: {
        family,
        changes: true,
        errors: ['badToken', 'badCredentials', 'providerFailed', 'constraint', 'invalid', 'storeFull'],
        sends: ['token'],
      },
      schema: {
        tags: [tag],
        operationId: 'finishAtProvider',
        summary: 'Finish the login at an identity provider',
        description: 'The provider redirects the browser to it. It returns the session, or redirects to redirectUri.',
        security: [],
        querystring: callbackQuery,
        response: {
          200: loginShape,
          302: Type.Null({ description: 'To the `redirectUri`, with the answer, or `error`, in its fragment.' }),
        },
      },
    },
    async (request, reply) => {
      keepToOurselves(reply);
      const { state } = request.query;
      const callback = callbackUrl(ctx, app);
      const name = cookieName(ctx, state);
      const { providerId, ...login } = await takeOut(ctx, state, request.cookies[name]);
      reply.clearCookie(name, { path: callback.pathname });
      const provider = await findEntity(ctx.registry.query, 'identityProviders', providerId);
      // Where a changed provider once sent browsers, it may not send them now.
      const unchanged = demandUnchanged(provider, login.version);
      return finishLogin(ctx, unchanged, login.redirectUri, request, reply, async () => {
        callback.search = new URL(request.url, callback).search;
        const proof = await (await openId()).exchange(unchanged, callback, login);
        const answer = await admit(ctx, unchanged, proof, { ...login, address: request.address }, reply);
        begun.giveBack({ address: request.address });
        return answer;
      });
    },
  );
}

function makeChallenge({ accountId }: Provider): Challenge {
  return { state: makeToken(accountId), nonce: makeSecret(), verifier: makeSecret() };
}

/** Answers of these endpoints are for one browser, and what is in their addresses is for nobody else. */
function keepToOurselves(reply: FastifyReply): void {
  reply.headers({ 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' });
}

/** Where providers send browsers back to, which is to be registered there. */
function callbackUrl({ config }: { config: Config }, app: App): URL {
  return new URL(`${config.publicUrl ?? app.listeningOrigin}/api/v1/oauth2/callback`);
}

/** One cookie for each login, so that two in one browser do not disturb each other. */
function cookieName({ config }: { config: Config }, state: string): string {
  return `${config.headerPrefix}-login-${digest(state).slice(0, 16)}`;
}

/** Stores a login under way; the secret of the browser that comes back from it. */
async function remember(ctx: IdentityContext, { id }: Provider, login: Login): Promise<string> {
  const browser = makeSecret();
  const stateHash = digest(login.state);
  const { state: _, ...rest } = login;
  await ctx.registry.query
    .insertInto('federatedLogins')
    .values({
      stateHash,
      providerId: id,
      browserHash: digest(browser),
      sealed: ctx.sealing.seal(stateHash, JSON.stringify(rest)),
      expires: new Date(ctx.clock.now() + loginLifetime).toISOString(),
    })
    .execute();
  await keepLastLogins(ctx.registry.query, 'federatedLogins', { providerId: id }, maxUnderWay);
  return browser;
}

/**
 * Takes the login of a state out, in one statement: nobody has it a second time.
 * @throws PlatformError 400/106 when there is none, its time is over, or it was begun in another browser.
 */
async function takeOut(ctx: IdentityContext, state: string, browser = ''): Promise<Login & { providerId: string }> {
  const stateHash = digest(state);
  const row = await ctx.registry.query
    .deleteFrom('federatedLogins')
    .where('stateHash', '=', stateHash)
    .where('browserHash', '=', digest(browser))
    .where('expires', '>', timestamp(ctx.clock))
    .returningAll()
    .executeTakeFirst();
  if (!row)
    throw new PlatformError('badToken', {
      message: 'This login is over, or was begun in another browser: start again.',
    });
  const login = JSON.parse(ctx.sealing.open(stateHash, row.sealed)) as Omit<Login, 'state'>;
  return { ...login, state, providerId: row.providerId };
}

/** Answers what `work` gives, or how it failed: in the body, or in the fragment of where the browser is to go. */
async function finishLogin(
  ctx: IdentityContext,
  { id, accountId }: Provider,
  redirectUri: string | undefined,
  request: FastifyRequest,
  reply: FastifyReply,
  work: () => Promise<object>,
): Promise<FastifyReply> {
  try {
    const answer = await work();
    return redirectUri === undefined ? reply.send(answer) : reply.redirect(withFragment(redirectUri, answer));
  } catch (error) {
    if (!(error instanceof PlatformError)) throw error;
    const { kind, message } = error;
    ctx.audit.addSoon({
      event: 'federatedLogin',
      outcome: 'failure',
      accountId,
      target: { kind: 'identityProvider', id },
      address: request.address,
      details: { reason: message },
    });
    if (redirectUri === undefined) throw error;
    return reply.redirect(withFragment(redirectUri, { error: identityErrorCode(kind), message }));
  }
}

/** In the fragment, which no server is sent and no log holds. */
function withFragment(uri: string, values: object): string {
  const fragment = new URLSearchParams(
    Object.entries(values).map(([name, value]): [string, string] => [name, String(value)]),
  );
  return `${uri}#${fragment}`;
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64url');
}
