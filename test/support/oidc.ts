/** A real OpenID provider on this machine, and a browser that goes there and comes back. */
import { generateKeyPairSync } from 'node:crypto';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import Provider, { type JWK } from 'oidc-provider';
import type { Test } from 'tap';
import type { Answer, Service } from './service.ts';
import { countStored, storedRows } from './stored.ts';

/** What a provider says of somebody; `sub` is who it is. */
export interface Person {
  sub: string;
  email?: string;
  email_verified?: unknown;
  groups?: unknown;
  /** OpenID Connect Core 1.0, 5.6.2: claims that are elsewhere. */
  _claim_names?: object;
}

export interface OpenIdProvider {
  issuer: string;
  clientSecret: string;
  /** Who logs in next, and what is said of each. */
  logsIn(person: Person): void;
  /** Answers instead of the provider's own, by path. */
  instead: Map<string, RequestListener>;
  /** The paths that it has been asked for. */
  asked: string[];
}

/** A public key as a JWK with its private part, under a name. */
export function makeKey(kid: string): JWK {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { ...privateKey.export({ format: 'jwk' }), kid, use: 'sig', alg: 'RS256' } as JWK;
}

/** Clients that the provider knows, all with the same secret. */
export const clientIds = ['slipway', 'slipway-too'];

/**
 * A provider that knows the service. It logs in the person that the test names, without asking anything. Claims of people
 * are in userinfo alone, as OpenID Connect has it, unless `claimsInToken`. It signs with a key pair, unless `signsWith` says otherwise.
 */
export async function startProvider(
  t: Test,
  service: Service,
  { claimsInToken = false, signsWith }: { claimsInToken?: boolean; signsWith?: 'HS256' } = {},
): Promise<OpenIdProvider> {
  const people = new Map<string, Person>();
  const instead = new Map<string, RequestListener>();
  const asked: string[] = [];
  let next = '';
  const server = createServer((request, response) => {
    const path = (request.url ?? '').split('?')[0] ?? '';
    asked.push(path);
    const other = instead.get(path);
    if (other) return other(request, response);
    if (path.startsWith('/interaction/')) {
      const result = next === '' ? { error: 'access_denied' } : { login: { accountId: next } };
      return void provider.interactionFinished(request, response, result);
    }
    void handle(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const clientSecret = `secret of ${issuer} 3f9a`;
  const provider: Provider = new Provider(issuer, {
    clients: clientIds.map((client_id) => ({
      client_id,
      client_secret: clientSecret,
      redirect_uris: [`${service.server.url}/api/v1/oauth2/callback`],
      ...(signsWith && { id_token_signed_response_alg: signsWith }),
    })),
    ...(signsWith && { enabledJWA: { idTokenSigningAlgValues: ['RS256' as const, signsWith] } }),
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name', 'groups', '_claim_names'] },
    conformIdTokenClaims: !claimsInToken,
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_, { uid }) => `/interaction/${uid}` },
    cookies: { keys: ['of the test'] },
    jwks: { keys: [makeKey('one')] },
    pkce: { required: () => true },
    ttl: { IdToken: 60, AccessToken: 60, AuthorizationCode: 60, Grant: 60, Interaction: 60, Session: 60 },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ ...people.get(sub), sub }) }),
    // Nobody is asked whether they consent.
    loadExistingGrant: async ({ oidc }) => {
      const { client, session, params } = oidc;
      const grant = new provider.Grant({ clientId: client?.clientId ?? '', accountId: session?.accountId ?? '' });
      grant.addOIDCScope(String(params?.scope));
      await grant.save();
      return grant;
    },
  });
  const handle = provider.callback();
  return {
    issuer,
    clientSecret,
    logsIn: (person) => {
      next = person.sub;
      people.set(person.sub, person);
    },
    instead,
    asked,
  };
}

/** Makes a provider known to the service, with the admin's token unless told otherwise. */
export function register(
  service: Service,
  { issuer, clientSecret }: Pick<OpenIdProvider, 'issuer' | 'clientSecret'>,
  body: object = {},
  token = service.admin,
) {
  const name = service.unique('Provider');
  const all = { name, issuer, clientId: clientIds[0], clientSecret, ...body };
  return service.create('/identity-providers', 'identityProvider', all, token);
}

/** An invited end-user, and somebody at the provider with the same verified email, who is the next to log in there. */
export async function invitedPerson(service: Service, at: Pick<OpenIdProvider, 'logsIn'>) {
  const email = `${service.unique('person').replace(' ', '')}@example.com`;
  const { id: organizationId } = await service.organization();
  const invitation = { organizationId, createIdmUser: true, idmUserEmail: email };
  const { userId } = await service.create('/end-users', 'endUser', invitation);
  const person = { sub: service.unique('subject'), email, email_verified: true };
  at.logsIn(person);
  return { userId, email, person };
}

/** Which subjects of providers stand for an identity. */
export const linksOf = (service: Service, userId: string) =>
  storedRows(service, 'SELECT * FROM "federatedIdentities" WHERE "userId" = ?', [userId]);

/** How many login sessions an identity has. */
export const sessionsOf = (service: Service, userId: string) =>
  countStored(service, 'sessions', '"userId" = ?', [userId]);

/** Cookies by origin, and redirects followed one at a time. */
export class Browser {
  readonly cookies = new Map<string, Map<string, string>>();

  readonly service: Service;
  readonly headers: Record<string, string>;

  /** `headers` go with every request to the service. */
  constructor(service: Service, headers: Record<string, string> = {}) {
    this.service = service;
    this.headers = headers;
  }

  /** One request, no redirect followed; answers of the service are checked against its document. */
  async visit(url: string, sent: Record<string, string> = {}): Promise<Answer> {
    const { origin } = new URL(url);
    const kept = this.cookies.get(origin) ?? new Map<string, string>();
    this.cookies.set(origin, kept);
    const headers = { cookie: [...kept].map(([name, value]) => `${name}=${value}`).join('; ') };
    const answer =
      origin === this.service.server.url
        ? await this.service.http('GET', url.slice(origin.length), {
            token: null,
            headers: { ...headers, ...this.headers, ...sent },
          })
        : await plainly(url, headers);
    for (const line of answer.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      if (/expires=Thu, 01 Jan 1970/i.test(line)) kept.delete(name);
      else kept.set(name, value);
    }
    return answer;
  }

  /** Begins a login, on a page of the service unless `site` says otherwise: where the service sends the browser. */
  async begin(providerId: string, query: Record<string, string> = {}, site = 'same-origin'): Promise<string> {
    const parameters = new URLSearchParams({ providerId, ...query });
    const url = `${this.service.server.url}/api/v1/oauth2/authorize?${parameters}`;
    const answer = await this.visit(url, { 'sec-fetch-site': site });
    if (answer.status !== 302) throw new Error(`authorize answered ${answer.status}: ${answer.text}`);
    return answer.headers.get('location') ?? '';
  }

  /** Logs in at the provider: where it sends the browser, which is the callback of the service. */
  async through(url: string): Promise<string> {
    const { origin } = new URL(url);
    for (let at = url, hops = 0; hops < 10; hops += 1) {
      const answer = await this.visit(at);
      const location = answer.headers.get('location');
      if (!location) throw new Error(`the provider answered ${answer.status}: ${answer.text}`);
      at = new URL(location, at).href;
      if (new URL(at).origin !== origin) return at;
    }
    throw new Error('the provider sends in circles');
  }

  /** The whole way, and what the callback answers. */
  async logIn(providerId: string, query: Record<string, string> = {}): Promise<Answer> {
    return this.visit(await this.through(await this.begin(providerId, query)));
  }
}

async function plainly(url: string, headers: Record<string, string>): Promise<Answer> {
  const response = await fetch(url, { headers, redirect: 'manual' });
  // Nobody reads the body of another site: the texts of its pages are enough.
  const body = {} as Answer['body'];
  return { status: response.status, headers: response.headers, body, text: await response.text() };
}

/** An address with a parameter set to something else, or taken out. */
export function altered(url: string, name: string, value: string | null): string {
  const changed = new URL(url);
  if (value === null) changed.searchParams.delete(name);
  else changed.searchParams.set(name, value);
  return changed.href;
}
