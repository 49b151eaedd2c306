/** The tree of organizations and the people in it. */
import { Type } from 'typebox';
import { common, Id, OptionalId } from './columns.js';

export const OrganizationRecord = Type.Object({
  ...common,
  organizationTemplateId: Id,
  parentId: OptionalId,
  name: Type.String(),
  fields: Type.String(),
});

/** `userId` is null for one without a person: nobody can log in as it. */
export const EndUserRecord = Type.Object({
  ...common,
  endUserTemplateId: Id,
  organizationId: Id,
  userId: OptionalId,
  fields: Type.String(),
});
