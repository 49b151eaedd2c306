/** The organization that a person has who signs up with the code of a device. */
import type { Tx } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import type { Clock } from '../core/clock.ts';
import { readNew } from '../entity/columns.ts';
import { defaultsOf, type Fields } from '../entity/fields.ts';
import { insert, stamp } from '../entity/verbs.ts';
import { endUserSettable } from './end-user.ts';
import { organizationSettable } from './organizations.ts';
import { templateFor } from './templates.ts';

/** Inserts an organization at the top, and the caller as its end-user, both of the account's default templates. */
export async function insertOwnOrganization(
  { clock, fields }: { clock: Clock; fields: Fields },
  tx: Tx,
  caller: Caller,
  name: string,
): Promise<Row<'organizations'>> {
  const { accountId } = caller;
  const templateOf = (table: 'organizationTemplates' | 'endUserTemplates', path: string) =>
    templateFor(tx, table, accountId, undefined, path);
  const organizationTemplate = await templateOf('organizationTemplates', 'organizationTemplateId');
  const organization = await insert(tx, 'organizations', {
    ...stamp(clock, caller),
    ...readNew(organizationSettable, { name }),
    organizationTemplateId: organizationTemplate.id,
    parentId: null,
    fields: defaultsOf(fields, 'organizations', organizationTemplate.id),
  });
  const endUserTemplate = await templateOf('endUserTemplates', 'endUserTemplateId');
  await insert(tx, 'endUsers', {
    ...stamp(clock, caller),
    ...readNew(endUserSettable, {}),
    endUserTemplateId: endUserTemplate.id,
    organizationId: organization.id,
    userId: caller.id,
    roleId: null,
    identityProviderId: null,
    fields: defaultsOf(fields, 'endUsers', endUserTemplate.id),
  });
  return organization;
}
