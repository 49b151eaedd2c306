/**
 * Speaks to OpenID providers: where to send a browser, and what the returned code proves. openid-client checks
 * issuer, audience, nonce, times and signature; here is what surrounds it: time, size, addresses, and which failure is whose.
 */

import { LRUCache } from 'lru-cache';
import * as openid from 'openid-client';
import type { Logger } from 'pino';
import type { Row } from '../../../db/registry/records.ts';
import type { Clock } from '../../core/clock.ts';
import { PlatformError } from '../../core/errors.ts';
import { exchange, exchangeDeadline, NotPublic, type Targets } from '../../core/network/outbound.ts';
import { isEmail } from '../../entity/values.ts';
import type { Sealing } from '../secrets/sealing.ts';
import { isSecure } from './secure.ts';

/** How long a provider's metadata is believed, in milliseconds, and of how many providers. */
const metadataLifetime = 5 * 60_000;
const metadataKept = 500;

/** Codes of openid-client that say: what came back does not prove what was asked for. */
const unproven = new Set([
  'OAUTH_INVALID_RESPONSE',
  'OAUTH_JWT_CLAIM_COMPARISON_FAILED',
  'OAUTH_JWT_TIMESTAMP_CHECK_FAILED',
  'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED',
  'OAUTH_KEY_SELECTION_FAILED',
]);

/** OpenID Connect Core 1.0, 2: at most 255 ASCII characters. */
const subjectForm = /^[ -~]{1,255}$/;

/** Values made for one login. The callback must return them. */
export interface Challenge {
  state: string;
  nonce: string;
  verifier: string;
}

/** An email address, and whether the provider says that it is verified: undefined if it says nothing of that. */
export interface ProvenEmail {
  address: string;
  isVerified: boolean | undefined;
}

/** Whom a provider has proven. */
export interface Proof {
  issuer: string;
  subject: string;
  /** The email address that the provider names, if it is one. @throws PlatformError 502. */
  email(): Promise<ProvenEmail | undefined>;
  /** The groups that a claim names. @throws PlatformError 401 when the provider has left them out, 502. */
  groups(claim: string): Promise<string[]>;
}

type Provider = Row<'identityProviders'>;

type OpenIdServices = { clock: Clock; log: Logger; sealing: Sealing; config: { targets: Targets } };

export class OpenId {
  readonly #ctx: OpenIdServices;
  readonly #deadlines = new Set<AbortController>();
  readonly #metadata = new LRUCache<string, { found: Promise<openid.ServerMetadata>; at: number }>({
    max: metadataKept,
  });

  constructor(ctx: OpenIdServices) {
    this.#ctx = ctx;
  }

  /** Gives up on every provider that is being waited for. */
  close(): void {
    for (const deadline of this.#deadlines) deadline.abort();
  }

  /** For everything that a provider is asked in one request of ours. */
  #deadline(): AbortSignal {
    const deadline = new AbortController();
    this.#deadlines.add(deadline);
    const reached = () => {
      this.#deadlines.delete(deadline);
      deadline.abort();
    };
    setTimeout(reached, exchangeDeadline).unref();
    return deadline.signal;
  }

  /** Where the browser is sent. @throws PlatformError 502 when the provider does not answer as one. */
  async authorizationUrl(provider: Provider, callback: URL, { state, nonce, verifier }: Challenge): Promise<URL> {
    return openid.buildAuthorizationUrl(await this.#connect(provider), {
      redirect_uri: callback.href,
      scope: provider.scope,
      state,
      nonce,
      code_challenge: await openid.calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
    });
  }

  /**
   * What the provider has proven; `answered` is the callback with everything that the browser brought.
   * @throws PlatformError 401 when that is not what was asked for, 502 when the provider does not answer as one.
   */
  async exchange(provider: Provider, answered: URL, { state, nonce, verifier }: Challenge): Promise<Proof> {
    const connection = await this.#connect(provider);
    try {
      const tokens = await openid.authorizationCodeGrant(connection, answered, {
        expectedState: state,
        expectedNonce: nonce,
        pkceCodeVerifier: verifier,
        idTokenExpected: true,
      });
      const claims = tokens.claims();
      if (!claims || !subjectForm.test(claims.sub)) throw new PlatformError('badCredentials');
      let asked: Promise<Claims> | undefined;
      const more = () => {
        asked ??= this.#userInfo(provider, connection, tokens.access_token, claims);
        return asked;
      };
      return {
        issuer: claims.iss,
        subject: claims.sub,
        email: () => emailIn(claims, more),
        groups: (claim) => groupsIn(claims, more, claim),
      };
    } catch (error) {
      throw this.#refusal(provider, error);
    }
  }

  /** What the provider's userinfo says; where it has none, what the ID token does. */
  async #userInfo(
    provider: Provider,
    connection: openid.Configuration,
    accessToken: string,
    claims: openid.IDToken,
  ): Promise<Claims> {
    if (connection.serverMetadata().userinfo_endpoint === undefined) return claims;
    try {
      return await openid.fetchUserInfo(connection, accessToken, claims.sub);
    } catch (error) {
      throw this.#refusal(provider, error);
    }
  }

  /** The provider as openid-client knows it, with the secret, for one request of ours. */
  async #connect(provider: Provider): Promise<openid.Configuration> {
    const deadline = this.#deadline();
    try {
      const metadata = await this.#discover(provider, deadline);
      const skew = { [openid.clockSkew]: Math.round((this.#ctx.clock.now() - Date.now()) / 1000) };
      const authentication = this.#authentication(provider, metadata);
      const connection = new openid.Configuration(metadata, provider.clientId, skew, authentication);
      connection[openid.customFetch] = fetchUntil(deadline, this.#ctx.config.targets);
      // Without it the signature is left to TLS, which a provider on this machine may not have.
      openid.enableNonRepudiationChecks(connection);
      if (isPlain(provider)) openid.allowInsecureRequests(connection);
      return connection;
    } catch (error) {
      this.#logError(provider, error);
      throw providerFailure(error);
    }
  }

  /** The provider's metadata, cached unless the request failed. A changed provider is asked again. */
  #discover(provider: Provider, deadline: AbortSignal): Promise<openid.ServerMetadata> {
    const key = `${provider.id}/${provider.version}`;
    const now = this.#ctx.clock.now();
    const known = this.#metadata.get(key);
    if (known && Math.abs(now - known.at) < metadataLifetime) return known.found;
    const found = discover(provider, deadline, this.#ctx.config.targets);
    this.#metadata.set(key, { found, at: now });
    found.catch(() => this.#metadata.delete(key));
    return found;
  }

  /** With a secret as HTTP Basic, which OpenID Connect makes the default, unless the provider takes it otherwise only. */
  #authentication(
    { id, sealedClientSecret }: Provider,
    { token_endpoint_auth_methods_supported: methods }: openid.ServerMetadata,
  ): openid.ClientAuth {
    if (sealedClientSecret === null) return openid.None();
    const secret = this.#ctx.sealing.open(id, sealedClientSecret);
    const isPosted = methods?.includes('client_secret_basic') === false && methods.includes('client_secret_post');
    return isPosted ? openid.ClientSecretPost(secret) : openid.ClientSecretBasic(secret);
  }

  /** Why nobody is let in: the provider has refused, or proven nothing, or has not answered as one. */
  #refusal(provider: Provider, error: unknown): PlatformError {
    const reason = this.#logError(provider, error);
    if (error instanceof PlatformError) return error;
    if (error instanceof openid.AuthorizationResponseError)
      return new PlatformError('badCredentials', { message: 'The provider has not logged the person in.' });
    const algorithm = refusedAlgorithm(error);
    if (algorithm !== undefined)
      return new PlatformError('badCredentials', {
        message: `The provider signs ID tokens with ${algorithm}, which is not accepted. Choose RS256 there, or another algorithm with a key pair that its configuration lists.`,
      });
    const isSpent = error instanceof openid.ResponseBodyError && error.error === 'invalid_grant';
    if (isSpent || unproven.has(reason))
      return new PlatformError('badCredentials', { message: 'The provider has not proven who this is.' });
    return providerFailure(error);
  }

  /** Errors of openid-client contain codes, tokens and claims: only a short name of the error is logged. */
  #logError({ id, accountId }: Provider, error: unknown): string {
    const reason = reasonOf(error);
    this.#ctx.log.warn({ accountId, providerId: id, reason }, 'a federated login has failed at its provider');
    return reason;
  }
}

/** A provider that gives itself another name than the one it was asked by. */
export class AnotherIssuer extends Error {
  readonly issuer: string;

  constructor(issuer: string) {
    super('the issuer is another one');
    this.issuer = issuer;
  }
}

type Claims = Readonly<Record<string, unknown>>;

/** Both claims from one place: the ID token, or where it has not both of them, the provider's userinfo. */
async function emailIn(claims: Claims, more: () => Promise<Claims>): Promise<ProvenEmail | undefined> {
  const isWhole = claims.email !== undefined && claims.email_verified !== undefined;
  const said = isWhole ? claims : await more();
  const [from, other] = said.email === undefined ? [claims, said] : [said, claims];
  if (!isEmail(from.email)) return undefined;
  const isDenied = other.email_verified !== undefined && !isTrue(other.email_verified);
  const otherwise = isDenied ? false : undefined;
  return {
    address: from.email,
    isVerified: from.email_verified === undefined ? otherwise : isTrue(from.email_verified),
  };
}

/** Cognito, Apple and JumpCloud send a text. */
function isTrue(value: unknown): boolean {
  return value === true || (typeof value === 'string' && value.toLowerCase() === 'true');
}

/** From the ID token, or where it has none, from userinfo. Without the claim a person is in no group. */
async function groupsIn(claims: Claims, more: () => Promise<Claims>, name: string): Promise<string[]> {
  const said = claims[name] ?? (await more())[name];
  if (said !== undefined) return [said].flat().flatMap((one) => groupNames(one));
  // OpenID Connect Core 1.0, 5.6.2: Entra ID does so for somebody in more than 200. To take them for none would end rights.
  if (typeof claims._claim_names === 'object' && claims._claim_names !== null && name in claims._claim_names)
    throw new PlatformError('badCredentials', {
      details: [{ path: name, message: 'The provider has left out the groups, because they are too many.' }],
    });
  return [];
}

/** A name, or as Zitadel has it an object whose keys are names: `{"operator": {"<organization>": "<domain>"}}`. */
function groupNames(said: unknown): string[] {
  if (typeof said === 'string') return [said];
  const isNames = isObject(said) && Object.values(said).every(isObject);
  return isNames ? Object.keys(said) : [];
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** What a provider says of itself, if it is who its issuer names and its login page is secure. @throws Error */
export async function discover(
  provider: Pick<Provider, 'issuer' | 'clientId'>,
  deadline: AbortSignal,
  targets: Targets,
): Promise<openid.ServerMetadata> {
  const issuer = new URL(provider.issuer);
  const found = await openid.discovery(issuer, provider.clientId, undefined, openid.None(), {
    [openid.customFetch]: fetchUntil(deadline, targets),
    execute: isPlain(provider) ? [openid.allowInsecureRequests] : [],
  });
  const metadata = found.serverMetadata();
  // openid-client lets some issuers speak for every tenant of theirs: here each one is named.
  if (new URL(metadata.issuer).href !== issuer.href) throw new AnotherIssuer(metadata.issuer);
  if (!isSecure(new URL(metadata.authorization_endpoint ?? ''))) throw new Error('the endpoint is not secure');
  return metadata;
}

function isPlain({ issuer }: Pick<Provider, 'issuer'>): boolean {
  return issuer.startsWith('http:');
}

/** Sends to secure and permitted addresses only, until the deadline; redirects are not followed. */
function fetchUntil(deadline: AbortSignal, targets: Targets): openid.CustomFetch {
  return async (address, { method, headers, body }) => {
    const url = new URL(address);
    if (!isSecure(url)) throw new Error('the endpoint is not secure');
    const bytes = body ? Buffer.from(await new Response(body).arrayBuffer()) : undefined;
    const length = bytes && { 'content-length': String(bytes.byteLength) };
    return exchange(url, { method, headers: { ...headers, ...length }, body: bytes, signal: deadline }, targets);
  };
}

/** 502; an address that is not permitted is named as the reason, for the admin who can correct it. */
function providerFailure(error: unknown): PlatformError {
  const refused = [error, (error as Error).cause].find((one) => one instanceof NotPublic);
  return new PlatformError('providerFailed', refused && { details: [{ path: 'issuer', message: refused.message }] });
}

/** The algorithm of a signature that was refused for it; openid-client has it two causes below its error. */
function refusedAlgorithm(error: unknown): string | undefined {
  const { cause } = (error instanceof Error && error.cause instanceof Error ? error.cause : {}) as { cause?: unknown };
  const { alg, header, expected } = (cause ?? {}) as Partial<Record<'alg' | 'expected', unknown>> & {
    header?: { alg?: unknown };
  };
  const name = expected === undefined ? alg : header?.alg;
  return typeof name === 'string' && /^[\w-]{1,20}$/.test(name) ? name : undefined;
}

/** One word of an error, such as ECONNREFUSED; never its message, which may quote what the provider said. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown';
  const { code, cause } = error as Error & { code?: unknown };
  if (typeof code === 'string') return code;
  return cause instanceof Error ? reasonOf(cause) : error.name;
}
