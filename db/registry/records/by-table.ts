/** The kinds of entities: the columns of each table. All that knows every kind follows from this. */
import { bridgeColumns } from './bridges.ts';
import { certificateAuthorityColumns, certificateColumns } from './certificates.ts';
import type { Column, Columns, Marks } from './columns.ts';
import { deviceColumns } from './devices.ts';
import { firmwarePackageColumns, firmwareRolloutColumns } from './downlink.ts';
import { enrollmentGroupColumns } from './enrollment.ts';
import { fleetColumns } from './fleets.ts';
import { accountUserColumns, applicationColumns, identityProviderColumns, roleColumns } from './identity.ts';
import { endUserColumns, organizationColumns } from './organizations.ts';
import { channelTemplateColumns, customFieldColumns, deviceTemplateColumns, templateColumns } from './templates.ts';

/** Entities have the common columns, a version and a place in the trash. */
export const entityColumns = {
  accountUsers: accountUserColumns,
  applications: applicationColumns,
  identityProviders: identityProviderColumns,
  roles: roleColumns,
  bridges: bridgeColumns,
  certificates: certificateColumns,
  certificateAuthorities: certificateAuthorityColumns,
  enrollmentGroups: enrollmentGroupColumns,
  deviceTemplates: deviceTemplateColumns,
  endUserTemplates: templateColumns,
  organizationTemplates: templateColumns,
  channelTemplates: channelTemplateColumns,
  customFields: customFieldColumns,
  firmwarePackages: firmwarePackageColumns,
  firmwareRollouts: firmwareRolloutColumns,
  fleets: fleetColumns,
  organizations: organizationColumns,
  endUsers: endUserColumns,
  devices: deviceColumns,
} as const satisfies Record<string, Columns>;

/** Tables of entities. */
export type EntityTable = keyof typeof entityColumns;

/** An entity in the singular: `device` of `devices`. */
export type EntityName = {
  [T in EntityTable]: T extends `${infer Name}ies` ? `${Name}y` : T extends `${infer Name}s` ? Name : never;
}[EntityTable];

export const entityTables = Object.keys(entityColumns) as EntityTable[];

/** A column that names a row of another table. */
interface Reference {
  table: EntityTable;
  column: string;
}

function referencesWith(isWanted: (marks: Marks) => boolean): Reference[] {
  return entityTables.flatMap((table) =>
    Object.entries<Column>(entityColumns[table]).flatMap(([column, { marks }]) =>
      isWanted(marks) ? [{ table, column }] : [],
    ),
  );
}

/** Those of rows that must be purged before one of this table. */
export function keepersOf(kept: EntityTable): Reference[] {
  return referencesWith(({ keeps }) => keeps === kept);
}

/** Those of rows that are purged with the row that they name. */
export const dependents = referencesWith(({ goesWith }) => goesWith === true);

/** A text of this length is short: fifty rows of such columns are still a small slice. */
const shortText = 255;

/** The columns of a table whose texts may be long: JSON and the values of fields where it has them, else texts without a small bound. */
export function longColumns(table: EntityTable): string[] {
  const columns: Columns = entityColumns[table];
  return Object.entries(columns).flatMap(([name, { stored, marks }]) => {
    if ('fields' in columns) return name === 'fields' || marks.form === 'json' ? [name] : [];
    const { type, format } = stored as { type?: string | string[]; format?: string };
    const isText = [type].flat().includes('string') && format === undefined;
    return isText && (marks.bounds?.maxLength ?? Number.POSITIVE_INFINITY) > shortText ? [name] : [];
  });
}
