/** Rows as resources of SCIM. */
import type { Row } from '../../../db/registry/records.ts';
import type { Json } from './protocol.ts';
import { groupSchema, userSchema } from './schemas.ts';

/** A person, with its groups where they have been read. */
export function userResource(
  { id, resource, created, lastModified }: Row<'scimUsers'>,
  address: string,
  groups: readonly Json[] | undefined,
): Json {
  const { schemas = [userSchema], ...own } = JSON.parse(resource) as Json;
  const meta = { resourceType: 'User', created, lastModified, location: `${address}/Users/${id}` };
  return { schemas, id, ...own, ...(groups && { groups }), meta };
}

/** A group without its members. */
export function groupResource(
  { id, displayName, externalId, created, lastModified }: Row<'scimGroups'>,
  address: string,
): Json {
  const meta = { resourceType: 'Group', created, lastModified, location: `${address}/Groups/${id}` };
  return { schemas: [groupSchema], id, ...(externalId !== null && { externalId }), displayName, meta };
}

/** What GET /ServiceProviderConfig answers. */
export function serviceProviderConfig(address: string, maxResults: number): Json {
  const not = { supported: false };
  return {
    schemas: ['urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig'],
    patch: { supported: true },
    bulk: { ...not, maxOperations: 0, maxPayloadSize: 0 },
    filter: { supported: true, maxResults },
    changePassword: not,
    sort: not,
    etag: not,
    authenticationSchemes: [
      {
        type: 'oauthbearertoken',
        name: 'Bearer token',
        description: 'The SCIM token of the identity provider.',
        primary: true,
      },
    ],
    meta: { resourceType: 'ServiceProviderConfig', location: `${address}/ServiceProviderConfig` },
  };
}

/** What GET /ResourceTypes answers. */
export function resourceTypes(address: string, extension: string): Json[] {
  const type = (name: string, schema: string, schemaExtensions: object[]) => ({
    schemas: ['urn:ietf:params:scim:schemas:core:2.0:ResourceType'],
    ...{ id: name, name, endpoint: `/${name}s`, description: name, schema, schemaExtensions },
    meta: { resourceType: 'ResourceType', location: `${address}/ResourceTypes/${name}` },
  });
  return [type('User', userSchema, [{ schema: extension, required: false }]), type('Group', groupSchema, [])];
}
