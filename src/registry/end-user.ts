/** An end-user on the wire. */
import { Type } from 'typebox';
import { endUserColumns } from '../../db/registry/records/organizations.ts';
import type { Row } from '../../db/registry/records.ts';
import { commonShape, showCommon, showing, shownProperties, without } from '../entity/columns.ts';
import { type Fields, fieldShapes } from '../entity/fields.ts';
import { shownRoleId } from '../entity/giving.ts';
import { showFields } from '../entity/values.ts';
import { invitationSent } from '../identity/invitations.ts';

/** The columns that a body sets, without the place, the person and the role, which have their own rules. */
export const endUserSettable = without(endUserColumns, ['endUserTemplateId', 'organizationId', 'userId', 'roleId']);

export const endUserShape = Type.Object({
  ...commonShape,
  ...shownProperties(endUserColumns),
  invitationSent,
  ...fieldShapes('endUsers'),
});

const show = showing(endUserColumns);

export function showEndUser({ fields }: { fields: Fields }, row: Row<'endUsers'>) {
  const custom = showFields(fields.of('endUsers', row.endUserTemplateId), row.fields);
  return Object.assign(showCommon(row), show(row), { roleId: shownRoleId(row.roleId, 'organization') }, custom);
}
