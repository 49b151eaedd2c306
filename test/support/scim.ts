/** A provider that speaks SCIM to the service, as Entra ID and Okta do. */
import { request } from './http.ts';
import type { Made, Service } from './service.ts';

/** What answers have, as far as tests look at it. */
export interface ScimBody {
  id: string;
  userName: string;
  name: { familyName?: string };
  totalResults: number;
  Resources: ScimBody[];
  members: Array<{ value: string }>;
  groups: Array<{ value: string }>;
}
export interface ScimAnswer {
  status: number;
  body: ScimBody;
  location: string | undefined;
  type: string | undefined;
  /** Attributes that had no effect. */
  ignored: string | undefined;
}

export const userSchema = 'urn:ietf:params:scim:schemas:core:2.0:User';
export const groupSchema = 'urn:ietf:params:scim:schemas:core:2.0:Group';
export const patchSchema = 'urn:ietf:params:scim:api:messages:2.0:PatchOp';

export class ScimClient {
  readonly service: Service;
  readonly provider: Made<'identityProvider'>;
  readonly token: string;

  constructor(service: Service, provider: Made<'identityProvider'>, token: string) {
    this.service = service;
    this.provider = provider;
    this.token = token;
  }

  async ask(method: string, path: string, body?: unknown, token = this.token): Promise<ScimAnswer> {
    const headers = {
      authorization: `Bearer ${token}`,
      ...(body === undefined ? {} : { 'content-type': 'application/scim+json; charset=utf-8' }),
    };
    const url = `${this.service.server.url}/scim/v2${path}`;
    const text = body === undefined || typeof body === 'string' ? body : JSON.stringify(body);
    const got = await request(url, { method, headers, body: text });
    const { location, 'content-type': type, 'platform-ignored-properties': named } = got.named;
    const ignored = named === undefined ? undefined : String(named);
    return { status: got.status, body: JSON.parse(got.text || '{}') as ScimBody, location, type, ignored };
  }

  /** As ask, and it must succeed. */
  async ok(method: string, path: string, body?: unknown): Promise<ScimBody> {
    const answer = await this.ask(method, path, body);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  patch(path: string, ...Operations: object[]) {
    return this.ask('PATCH', path, { schemas: [patchSchema], Operations });
  }

  /** A new person, with an email address of its own. */
  async person(more: object = {}): Promise<{ id: string; email: string }> {
    const email = `${this.service.unique('scim').replace(' ', '')}@example.com`;
    const emails = [{ type: 'work', value: email, primary: true }];
    const { id } = await this.ok('POST', '/Users', {
      schemas: [userSchema],
      userName: email,
      active: true,
      emails,
      ...more,
    });
    return { id, email };
  }

  async group(displayName: string, ...ids: string[]): Promise<string> {
    const members = ids.map((value) => ({ value }));
    const { id } = await this.ok('POST', '/Groups', { schemas: [groupSchema], displayName, members });
    return id;
  }
}

/** A provider with mappings and a token for SCIM. */
export async function scimProvider(service: Service, mappings: object[] = [], more: object = {}): Promise<ScimClient> {
  const about = { name: service.unique('Provider'), issuer: 'https://id.example.com', clientId: 'slipway' };
  const provider = await service.create('/identity-providers', 'identityProvider', { ...about, mappings, ...more });
  return new ScimClient(service, provider, (await scimToken(service, provider.id)).token);
}

export async function scimToken(service: Service, id: string) {
  const expiresAt = new Date(Date.now() + 86_400_000).toISOString();
  const path = `/api/v1/identity-providers/${id}/scim-token` as const;
  const { scimToken } = await service.ok('POST', path, { body: { expiresAt } });
  service.secrets.add(scimToken.token);
  return scimToken;
}
