/** The attributes of devices that a filter names: their own, and those of their parents, certificates and updates. */
import { type RawBuilder, sql } from 'kysely';
import { accountKey } from '../../../db/registry/account-key.ts';
import type { Db } from '../../../db/registry/index.ts';
import type { Columns, Match } from '../../../db/registry/records/columns.ts';
import { deviceColumns, presenceNames } from '../../../db/registry/records/devices.ts';
import { organizationColumns } from '../../../db/registry/records/organizations.ts';
import { templateColumns } from '../../../db/registry/records/templates.ts';
import { rowsWithText } from '../../../db/registry/text.ts';
import { fold } from '../../../db/sqlite/fold.ts';
import type { Access } from '../../core/access.ts';
import { type Caller, isAccountWide } from '../../core/caller.ts';
import type { Clock } from '../../core/clock.ts';
import { nearName } from '../../core/formats/near-names.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import type { EntityKind } from '../../core/rights.ts';
import {
  type Attribute,
  type Attributes,
  CompiledFilter,
  type FilterTree,
  type FoundRows,
  readTree,
} from '../../entity/filters/compiled.ts';
import {
  type Condition,
  dateOperand,
  degreesOperand,
  flagOperand,
  numberOperand,
  type Operand,
  textOperand,
  versionOperand,
} from '../../entity/filters/operands.ts';
import { atOrBelow, inReach } from '../../entity/list-filters.ts';
import type { SearchServices } from '../../entity/list-query.ts';
import { builtInFields, type FieldKind, fieldTypes } from '../../entity/values.ts';

export type FilterServices = SearchServices & { access: Access; clock: Clock };
type Asked = FilterServices & { caller: Caller; account: string; now: number };
type Named = readonly [name: string, attribute: Attribute];
type Where = NonNullable<Attribute['where']>;

/** Custom fields that have a name in some letter case, of all templates of a kind together. */
interface NamedField {
  kind: FieldKind;
  name: string;
  fieldType: string;
}
/** Names that a hint may come from. */
const maxHints = 1000;

/** @throws PlatformError 400/106 naming `filter`, for what is no filter of devices; 429 while too many reads wait. */
export async function compileDeviceFilter(services: FilterServices, caller: Caller, text: string) {
  const tree = readTree(text);
  const asked = { ...services, caller, account: accountKey(caller.accountId), now: services.clock.now() };
  return CompiledFilter.compile(tree, await attributesOf(asked, tree));
}

async function attributesOf(asked: Asked, { terms }: FilterTree): Promise<Attributes> {
  const owners = ownersOf(asked);
  const known = [
    ...columnsOfDevices(asked),
    ...noted(asked),
    ...owners.flatMap((owner) => attributesOfOwner(asked, owner)),
  ];
  const byName = new Map(known.map(([name, attribute]) => [name.toLowerCase(), attribute]));
  const names = [...new Set(terms.flatMap(({ path }) => path.names.slice(1).join('.') || []))];
  const fields =
    names.length === 0 ? [] : await customFields(asked, sql`fold("name") in (${sql.join(names.map(fold))})`);
  return {
    find([first = '', ...rest]) {
      const name = rest.join('.');
      const builtIn = byName.get([first, ...rest].join('.').toLowerCase());
      const owner = owners.find(({ prefix }) => prefix === first.toLowerCase());
      return (
        builtIn ??
        (owner &&
          customAttribute(
            asked,
            owner,
            fields.filter((one) => fold(one.name) === fold(name)),
          ))
      );
    },
    async hint(path) {
      const all = path.length > 1 ? await customFields(asked, sql`true`, maxHints) : [];
      const custom = owners.flatMap(({ kind, prefix }) =>
        all.flatMap((one) => (one.kind === kind ? [`${prefix}.${one.name}`] : [])),
      );
      const near = nearName(path.join('.'), [...known.map(([name]) => name), ...custom]);
      if (near !== undefined) return `Is ${near} meant?`;
      return `Known are ${known.map(([name]) => name).join(', ')}, and custom fields as fields.<name>.`;
    },
  };
}

/** Live custom fields of the account, as far as the caller reaches what has them. */
function customFields(
  { caller, readers, registry: { query } }: Asked,
  condition: Condition,
  limit = -1,
): Promise<NamedField[]> {
  const reached = isAccountWide(caller)
    ? sql`true`
    : sql`"templateId" in (select ${caller.accountId}
        union select "deviceTemplateId" from "placedDeviceCounts"
          where "accountId" = ${caller.accountId} and ${inReach(query, caller, 'organizationId')}
        union select "organizationTemplateId" from "organizations" where ${inReach(query, caller, 'id')})`;
  const found = sql<NamedField>`select distinct "kind", "name", "fieldType" from "customFields"
    where "accountId" = ${caller.accountId} and "kind" in ('devices', 'deviceTemplates', 'organizations')
      and "deleted" is null and ${condition} and ${reached} limit ${limit}`;
  return readers.read(laneOf(caller), found.compile(query));
}

/** A row that has attributes and custom fields: the device, or a parent of it. */
interface Owner {
  prefix: 'fields' | 'template' | 'organization';
  kind: FieldKind;
  table: string;
  /** What names the template of its custom fields. */
  templateId: RawBuilder<unknown>;
  columns: Columns;
  where: Where;
}

function ownersOf(asked: Asked): Owner[] {
  const { caller, access, registry } = asked;
  const parent =
    (table: string, column: string, more: Condition): Where =>
    (condition) =>
      sql`exists (select 1 from ${sql.table(table)} where ${sql.ref(`${table}.id`)} = ${sql.ref(`devices.${column}`)}
      and ${more} and ${condition})`;
  const device: Owner = {
    ...{ prefix: 'fields', kind: 'devices', table: 'devices', columns: {} },
    templateId: sql.ref('devices.deviceTemplateId'),
    where: (condition) => condition,
  };
  const template: Owner = {
    ...{ prefix: 'template', kind: 'deviceTemplates', table: 'deviceTemplates', columns: templateColumns },
    templateId: sql`${caller.accountId}`,
    where: parent('deviceTemplates', 'deviceTemplateId', sql`true`),
  };
  if (!access.may(caller, 'read', 'organization')) return [device, template];
  const reader = access.narrow(caller, 'read', 'organization');
  const reached = isAccountWide(reader) ? sql<boolean>`true` : inReach(registry.query, reader, 'organizations.id');
  const organization: Owner = {
    ...{ prefix: 'organization', kind: 'organizations', table: 'organizations', columns: organizationColumns },
    templateId: sql.ref('organizations.organizationTemplateId'),
    where: parent('organizations', 'organizationId', reached as Condition),
  };
  return [device, template, organization];
}

function attributesOfOwner({ now }: Asked, { prefix, kind, table, columns, where }: Owner): Named[] {
  const named = (name: string, operand: Operand): Named => [`${prefix}.${name}`, { operands: [operand], where }];
  const ofColumns = Object.entries(prefix === 'fields' ? {} : { ...common, ...filtersOf(columns) });
  return [
    ...ofColumns.map(([name, match]) => named(name, operandOf(name, match, sql.ref(`${table}.${name}`), now))),
    ...builtInFields[kind].map(({ name, type }) =>
      named(name, fieldOperand(name, type, sql`json_extract(${sql.ref(`${table}.fields`)}, ${`$.${name}`})`, now)),
    ),
  ];
}

/** What all kinds have. */
const common: Record<string, Match> = { id: 'exact', created: 'date', lastModified: 'date' };

function filtersOf(columns: Columns): Record<string, Match> {
  const marked = Object.entries(columns).flatMap(([name, { marks }]) => (marks.filter ? [[name, marks.filter]] : []));
  return Object.fromEntries(marked) as Record<string, Match>;
}

function operandOf(name: string, match: Match, value: RawBuilder<unknown>, now: number): Operand {
  if (name === 'firmwareVersion') return versionOperand(value);
  if (match === 'flag') return flagOperand(value);
  if (match === 'date' || match === 'since') return dateOperand(value, now);
  return match === 'latitude' || match === 'longitude' ? degreesOperand(value) : textOperand(value);
}

function fieldOperand(name: string, type: string, value: RawBuilder<unknown>, now: number): Operand {
  const form = sql<string>`fold(${value})`;
  if (name === 'deviceVersion') return versionOperand(value, form);
  if (type === 'datetime') return dateOperand(sql`instant(${value})`, now);
  if (type === 'lat' || type === 'long') return degreesOperand(value);
  if (type === 'boolean') return flagOperand(value);
  return type === 'int' || type === 'float' ? numberOperand(value) : textOperand(value, form);
}

/** How types of custom fields are stored; all others are texts. */
const stored: Record<string, readonly string[]> = {
  boolean: ['true', 'false'],
  int: ['integer'],
  float: ['integer', 'real'],
  datetime: ['text'],
  lat: ['text'],
  long: ['text'],
};

/** A custom field, which several templates may have, with different types: the one of the template of each row counts. */
function customAttribute({ now }: Asked, owner: Owner, named: readonly NamedField[]): Attribute | undefined {
  const fields = named.filter(({ kind }) => kind === owner.kind);
  if (fields.length === 0) return undefined;
  const [values, path] = [sql.ref(`${owner.table}.fields`), sql`'$."' || "customFields"."id" || '"'`];
  const types = new Set(fields.map(({ fieldType }) => (fieldType in stored ? fieldType : 'text')));
  const operands = [...types].map((type) => {
    const same = type in stored ? [type] : fieldTypes.filter((one) => !(one in stored));
    const isStored = sql`json_type(${values}, ${path}) in (${sql.join(stored[type] ?? ['text'])})`;
    const value = sql`case when "customFields"."fieldType" in (${sql.join(same)}) and ${isStored}
      then json_extract(${values}, ${path}) end`;
    return fieldOperand('', type, value, now);
  });
  const names = [...new Set(fields.map(({ name }) => name))];
  return {
    operands,
    where: (condition) =>
      owner.where(sql`exists (select 1 from "customFields" where "customFields"."templateId" = ${owner.templateId}
        and "customFields"."name" in (${sql.join(names)}) and "customFields"."deleted" is null and ${condition})`),
  };
}

/** What the filters of lists compare in the same way. */
const listed = ['deviceTemplateId', 'organizationId', 'provisioningState', 'connected', 'silent'];
const presence: readonly string[] = presenceNames;

function columnsOfDevices(asked: Asked): Named[] {
  const { now } = asked;
  const columns = Object.entries({ ...common, ...filtersOf(deviceColumns) }).map(([name, match]): Named => {
    const operandFor = (value: RawBuilder<unknown>) => operandOf(name, match, value, now);
    const rows: Attribute['rows'] = (operator, value) => {
      const condition = operandFor(sql.ref(name)).compare(operator, value);
      return condition && rowsOfColumn(asked, name, match, condition, operator, String(value));
    };
    return [
      name,
      { operands: [operandFor(columnOf(asked, name))], ...(listed.includes(name) && { listFilter: name }), rows },
    ];
  });
  const [device] = ownersOf(asked);
  const fields = device ? attributesOfOwner(asked, device) : [];
  const rows: Attribute['rows'] = (operator, value) => rowsOfText(asked, 'name', operator, String(value));
  return [
    ...columns,
    ...fields.map(([name, attribute]): Named => {
      const own = name.slice(name.indexOf('.') + 1);
      return [own, own === 'name' ? { ...attribute, rows } : attribute];
    }),
  ];
}

/** A column as the caller sees it. */
function columnOf({ caller }: Asked, name: string): RawBuilder<unknown> {
  if (!presence.includes(name)) return sql.ref(`devices.${name}`);
  const noted = (column: string) =>
    sql`(select ${sql.ref(`p.${column}`)} from "devicePresence" as p where p."row" = "devices"."row")`;
  if (name === 'connected' || name === 'silent') return sql`coalesce(${noted(name)}, 0)`;
  if (isAccountWide(caller) || !(name === 'lastConnected' || name === 'offlineSince')) return noted(name);
  // People see only when a device has connected for them.
  return sql`case when ${noted('lastConnected')} > coalesce("devices"."possessionSince", '') then ${noted(name)} end`;
}

/** The rows that an index of a column finds. */
function rowsOfColumn(
  asked: Asked,
  name: string,
  match: Match,
  condition: Condition,
  operator: string,
  text: string,
): FoundRows | undefined {
  const { account, caller } = asked;
  const live = sql<{
    row: number;
  }>`select "row" from "devices" where substr("accountId", 27) = ${account} and "deleted" is null`;
  if (name === 'serialNumber') return rowsOfText(asked, name, operator, text);
  if (name === 'id')
    return operator === 'eq' ? { rows: sql`${live} and "id" = ${fold(text)}`, isExact: true } : undefined;
  if (match === 'flag' && text === 'true') {
    const rows = sql<{ row: number }>`select "row" from "devicePresence" where "account" = ${account} and ${condition}`;
    return { rows, isExact: true };
  }
  if (name === 'firmwareVersion') {
    const versions = sql`select "firmwareVersion" from "firmwareVersionCounts"
      where "accountId" = ${caller.accountId} and ${condition}`;
    return { rows: sql`${live} and "firmwareVersion" in (${versions})`, isExact: true };
  }
  if (match !== 'date' && match !== 'since') return undefined;
  if (!presence.includes(name)) return { rows: sql`${live} and ${condition}`, isExact: true };
  const rows = sql<{ row: number }>`select "row" from "devicePresence" where "account" = ${account} and ${condition}`;
  return { rows, isExact: isAccountWide(caller) };
}

function rowsOfText(
  asked: Asked,
  name: 'serialNumber' | 'name',
  operator: string,
  text: string,
): FoundRows | undefined {
  const isPart = ['eq', 'co', 'sw', 'ew'].includes(operator) && text !== '';
  return isPart ? { rows: rowsWithText(asked.account, text, name), isExact: false } : undefined;
}

/** What is noted about devices in other tables, for callers that may read it. */
function noted({ caller, access, registry: { query: db }, account, now }: Asked): Named[] {
  const named = (name: string, kind: EntityKind, operand: Operand): Named[] => {
    if (!access.may(caller, 'read', kind)) return [];
    const reader = access.narrow(caller, 'read', kind);
    if (isAccountWide(reader)) return [[name, { operands: [operand] }]];
    const reached = inReach(db, reader, 'devices.organizationId');
    return [[name, { operands: [operand], where: (condition) => sql`(${reached} and ${condition})` }]];
  };
  const expires = sql`(select max("validTo") from "certificates"
    where "entityId" = "devices"."id" and "entityType" = 'device' and "deleted" is null)`;
  const ofOwner = isAccountWide(caller) ? sql`true` : sql`"updated" > coalesce("devices"."possessionSince", '')`;
  // Whether an update of a former owner was there at all is not told either.
  const state = sql`(select case when ${ofOwner} then "state" end from "firmwareDeliveries"
    where "deviceId" = "devices"."id" order by "rolloutId" desc limit 1)`;
  const group = sql`(select "groupId" from "enrollments" where "deviceId" = "devices"."id")`;
  return [
    ...named('certificate.expires', 'mqttCertificate', dateOperand(expires, now)),
    ...named('firmware.state', 'firmwareState', textOperand(state)),
    ...named('enrollmentGroupId', 'enrollmentGroup', textOperand(group)),
    ['within', withinOf({ caller, access, db, account })],
  ];
}

/** An organization that the caller does not reach looks like one without devices. */
function withinOf({
  caller,
  access,
  db,
  account,
}: Pick<Asked, 'caller' | 'access' | 'account'> & { db: Db }): Attribute {
  const isBelow = (value: unknown) => {
    const root = fold(String(value));
    return atOrBelow(db, access.reaches(caller, caller.accountId, root) ? [root] : [], 'devices.organizationId');
  };
  return {
    operands: [
      {
        takes: 'the id of an organization in double quotes',
        operators: ['eq'],
        compare: (_, value) => (typeof value === 'string' ? isBelow(value) : undefined),
      },
    ],
    rows: (_, value) => ({
      rows: sql`select "row" from "devices" where substr("accountId", 27) = ${account} and "deleted" is null and ${isBelow(value)}`,
      isExact: true,
    }),
  };
}
