/** The tree of organizations and the people in it. */
import { Type } from 'typebox';
import { column, hidden, Id, Nullable, OptionalId, OptionalText } from './columns.ts';
import { mappedByColumn, roleIdColumn } from './identity.ts';

export const organizationColumns = {
  organizationTemplateId: column(Id, {
    create: 'optional',
    body: Type.String(),
    filter: 'exact',
    sort: true,
    keeps: 'organizationTemplates',
  }),
  parentId: column(OptionalId, {
    create: 'optional',
    change: true,
    body: OptionalText,
    filter: 'reference',
    sort: true,
    keeps: 'organizations',
  }),
  name: column(Type.String(), {
    create: 'required',
    change: true,
    bounds: { minLength: 1, maxLength: 255 },
    filter: 'partial',
    sort: 'default',
  }),
  fields: hidden(Type.String()),
};

/** `userId` is null for one without a person: nobody can log in as it. */
export const endUserColumns = {
  endUserTemplateId: column(Id, {
    create: 'optional',
    body: Type.String(),
    filter: 'exact',
    sort: true,
    keeps: 'endUserTemplates',
  }),
  organizationId: column(Id, {
    create: 'required',
    body: Type.String(),
    filter: 'exact',
    sort: true,
    keeps: 'organizations',
  }),
  userId: column(OptionalId, {
    create: 'optional',
    change: true,
    body: Nullable(Type.String({ description: 'An existing end-user identity of the account.' })),
    shown: Nullable(Type.String({ ...Id, description: 'The identity that logs in; null without a person.' })),
    filter: 'reference',
  }),
  roleId: roleIdColumn,
  identityProviderId: mappedByColumn,
  fields: hidden(Type.String()),
};
