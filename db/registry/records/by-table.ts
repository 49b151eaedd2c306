/** The columns of each entity table, as values. */
import type { EntityTable } from '../records.ts';
import { bridgeColumns } from './bridges.ts';
import { certificateAuthorityColumns, certificateColumns } from './certificates.ts';
import type { Columns } from './columns.ts';
import { deviceColumns } from './devices.ts';
import { firmwarePackageColumns, firmwareRolloutColumns } from './downlink.ts';
import { accountUserColumns, applicationColumns, identityProviderColumns } from './identity.ts';
import { endUserColumns, organizationColumns } from './organizations.ts';
import { channelTemplateColumns, customFieldColumns, templateColumns } from './templates.ts';

const columnsOf: Readonly<Record<EntityTable, Columns>> = {
  accountUsers: accountUserColumns,
  applications: applicationColumns,
  identityProviders: identityProviderColumns,
  bridges: bridgeColumns,
  certificates: certificateColumns,
  certificateAuthorities: certificateAuthorityColumns,
  deviceTemplates: templateColumns,
  endUserTemplates: templateColumns,
  organizationTemplates: templateColumns,
  channelTemplates: channelTemplateColumns,
  customFields: customFieldColumns,
  firmwarePackages: firmwarePackageColumns,
  firmwareRollouts: firmwareRolloutColumns,
  organizations: organizationColumns,
  endUsers: endUserColumns,
  devices: deviceColumns,
};

/** A text of this length is short: fifty rows of such columns are still a small slice. */
const shortText = 255;

/** The columns of a table whose texts may be long: the values of fields where it has them, else texts without a small bound. */
export function longColumns(table: EntityTable): string[] {
  const columns = columnsOf[table];
  if ('fields' in columns) return ['fields'];
  return Object.entries(columns).flatMap(([name, { stored, marks }]) => {
    const { type, format } = stored as { type?: string | string[]; format?: string };
    const isText = [type].flat().includes('string') && format === undefined;
    return isText && (marks.bounds?.maxLength ?? Number.POSITIVE_INFINITY) > shortText ? [name] : [];
  });
}
