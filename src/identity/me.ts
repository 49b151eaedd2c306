/** The caller and its permissions, so that a page or an app knows what to offer. */

import { Type } from 'typebox';
import type { Registry } from '../../db/registry/index.ts';
import { DateText, Id, Nullable, oneOf } from '../../db/registry/records.ts';
import { type Caller, isAccountWide, type Station } from '../core/caller.ts';
import { largest } from '../core/limits/table.ts';
import { actions, unionOf } from '../core/rights.ts';
import type { App } from '../http/app.ts';
import type { IdentityContext } from './context.ts';

const kinds = ['admin', 'endUser', 'newcomer', 'backEnd', 'endUserApp', 'station', 'device'] as const;

const rights = Type.Record(Type.String(), Type.Array(oneOf(actions), { maxItems: actions.length }), {
  description: 'What the caller may do at all, by kind of entity. Its reach still decides about each entity.',
});

const meShape = Type.Object(
  {
    id: Id,
    kind: oneOf(kinds),
    accountId: Id,
    accountName: Type.String(),
    emailAddress: Nullable(Type.String({ description: 'Null for a program.' })),
    name: Nullable(Type.String()),
    organizationIds: Type.Array(Id, {
      maxItems: largest('endUsersPerPerson'),
      description: 'Of an end-user: where its reach begins. Empty for all others.',
    }),
    station: Type.Optional(
      Type.Object(
        {
          name: Type.String(),
          deviceTemplateId: Id,
          productName: Type.String(),
          organizationId: Nullable(Id),
          madeDevices: Type.Integer(),
          maxDevices: Type.Integer(),
          expiresAt: DateText,
        },
        { description: 'Of a station: what it makes, and how much of it.' },
      ),
    ),
    sessionId: Type.String({
      ...Id,
      description: 'The session of the token, or the token itself where it is one of `/tokens`.',
    }),
    sessionExpires: Type.String({ description: 'ISO 8601: when the session ends, whatever is renewed.' }),
    rights,
    roles: Type.Array(
      Type.Object({
        organizationId: Nullable(Type.String({ ...Id, description: 'Null: in the whole account.' })),
        id: Type.String(),
        name: Type.String(),
        rights,
      }),
      { maxItems: largest('endUsersPerPerson'), description: 'Without a role: none.' },
    ),
  },
  { description: 'The caller, and its rights.' },
);

/** GET /profile/me. */
export function meRoutes(app: App, { access, registry }: IdentityContext): void {
  app.get(
    '/profile/me',
    {
      config: { family: 'identity' },
      schema: {
        tags: ['Identity'],
        operationId: 'getOwnProfile',
        summary: 'Read who you are and what you may do',
        description: 'Describes the caller that the token stands for: a person, an end-user or an application.',
        response: { 200: meShape },
      },
    },
    async ({ caller, authenticated }) => {
      const { id, kind, accountId } = caller;
      const account = await registry.query
        .selectFrom('accounts')
        .select('name')
        .where('id', '=', accountId)
        .executeTakeFirstOrThrow();
      const person = await registry.query
        .selectFrom('identities')
        .select(['email', 'name', 'firstName', 'lastName'])
        .where('id', '=', id)
        .executeTakeFirst();
      const fullName = [person?.firstName, person?.lastName].filter(Boolean).join(' ');
      return {
        id,
        // A provider asks for people only.
        kind: kind as (typeof kinds)[number],
        accountId,
        accountName: account.name,
        emailAddress: person?.email ?? null,
        name: person?.name ?? (fullName || null),
        organizationIds:
          caller.kind === 'endUser' ? caller.memberships.map(({ organizationId }) => organizationId) : [],
        ...(caller.kind === 'station' && { station: await stationOf(registry, caller) }),
        sessionId: authenticated.session.id,
        sessionExpires: authenticated.session.expires,
        rights: access.rightsOf(caller),
        roles: rolesOf(caller),
      };
    },
  );
}

async function stationOf({ query }: Registry, { id, deviceTemplateId, organizationId }: Station) {
  const station = await query
    .selectFrom('applications')
    .innerJoin('deviceTemplates', 'deviceTemplates.id', 'applications.deviceTemplateId')
    .select(['applications.name', 'deviceTemplates.name as productName'])
    .select(['applications.madeDevices', 'applications.maxDevices', 'applications.expiresAt'])
    .where('applications.id', '=', id)
    .executeTakeFirstOrThrow();
  const { madeDevices, maxDevices, expiresAt, ...names } = station;
  const limits = { madeDevices: madeDevices ?? 0, maxDevices: maxDevices ?? 0, expiresAt: expiresAt ?? '' };
  return { ...names, ...limits, deviceTemplateId, organizationId };
}

/** The roles of a caller, and where it has them. */
function rolesOf(caller: Caller) {
  const memberships = isAccountWide(caller) ? [{ organizationId: null, role: caller.role }] : [];
  return [...memberships, ...(caller.kind === 'endUser' ? caller.memberships : [])].map(({ organizationId, role }) => {
    const { id, name, rights } = role;
    return { organizationId, id, name, rights: unionOf([rights]) };
  });
}
