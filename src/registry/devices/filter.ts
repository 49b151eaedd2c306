/** The attributes of devices that a filter names: their own, and those of their parents, certificates and updates. */
import { type RawBuilder, sql } from 'kysely';
import { accountKey } from '../../../db/registry/account-key.ts';
import type { Db } from '../../../db/registry/index.ts';
import type { Match } from '../../../db/registry/records/columns.ts';
import { deviceColumns, presenceNames } from '../../../db/registry/records/devices.ts';
import { organizationColumns } from '../../../db/registry/records/organizations.ts';
import { templateColumns } from '../../../db/registry/records/templates.ts';
import { rowsWithText } from '../../../db/registry/text.ts';
import { fold } from '../../../db/sqlite/fold.ts';
import { type Caller, isAccountWide } from '../../core/caller.ts';
import type { EntityKind } from '../../core/rights.ts';
import type { Attribute, FoundRows, KeptFilter } from '../../entity/filters/compiled.ts';
import { type Condition, dateOperand, jsonOf, type Operand, textOperand } from '../../entity/filters/operands.ts';
import { atOrBelow, inReach } from '../../entity/list-filters.ts';
import {
  compileFilter,
  compileKept,
  type FilterRequest,
  type FilterServices,
  filterable,
  type Known,
  type Named,
  type Owner,
  operandOf,
  ownFields,
  type Where,
} from '../filters.ts';

type DeviceFilterRequest = FilterRequest & { account: string };

/** @throws PlatformError 400/106 naming `filter`, for what is no filter of devices; 429 while too many reads wait. */
export function compileDeviceFilter(services: FilterServices, caller: Caller, text: string) {
  return compileFilter(services, caller, text, knownOfDevices);
}

/** Filters of devices that are stored, as the caller sees devices now: some hundred terms together. */
export function compileKeptFilters(
  services: FilterServices,
  caller: Caller,
  texts: readonly string[],
): Promise<KeptFilter[]> {
  return compileKept(services, caller, texts, knownOfDevices);
}

function knownOfDevices(given: FilterRequest): Known {
  const asked = { ...given, account: accountKey(given.caller.accountId) };
  const owners = ownersOf(asked);
  return { own: [...columnsOfDevices(asked, owners[0]), ...noted(asked)], owners };
}

/** The device, and its parents that the caller may read. */
function ownersOf(asked: DeviceFilterRequest): readonly [device: Owner, ...parents: Owner[]] {
  const { caller, access, registry } = asked;
  const parent =
    (table: string, column: string, more: Condition): Where =>
    (expression) =>
      sql`(select ${expression} from ${sql.table(table)} where ${sql.ref(`${table}.id`)} = ${sql.ref(`devices.${column}`)}
      and ${more})`;
  const device: Owner = {
    ...{ prefix: 'fields', kind: 'devices', table: 'devices', columns: {} },
    templateId: sql.ref('devices.deviceTemplateId'),
    where: (expression) => sql`${expression}`,
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

/** What the filters of lists compare in the same way. */
const listed = ['deviceTemplateId', 'organizationId', 'provisioningState', 'connected', 'silent'];
const presence: readonly string[] = presenceNames;

function columnsOfDevices(asked: DeviceFilterRequest, device: Owner): Named[] {
  const { now } = asked;
  const columns = Object.entries(filterable(deviceColumns)).map(([name, match]): Named => {
    const operandFor = (value: RawBuilder<unknown>) => operandOf(name, match, value, now);
    const rows: Attribute['rows'] = (operator, value) => {
      const condition = operandFor(sql.ref(name)).compare(operator, value);
      return condition && rowsOfColumn(asked, name, match, condition, operator, String(value));
    };
    const operand = operandFor(columnOf(asked, name));
    const operands = [name === 'firmwareVersion' ? byVersions(asked, operand, operandFor(sql.ref(name))) : operand];
    return [name, { operands, ...(listed.includes(name) && { listFilter: name }), rows }];
  });
  const rows: Attribute['rows'] = (operator, value) => rowsOfText(asked, 'name', operator, String(value));
  const fields = ownFields(asked, device);
  return [...columns, ...fields.map(([name, field]): Named => [name, name === 'name' ? { ...field, rows } : field])];
}

/** Many devices have one of few versions: the versions are compared, and not those of one device after another. */
function byVersions(asked: DeviceFilterRequest, operand: Operand, ofVersion: Operand): Operand {
  const compare: Operand['compare'] = (operator, value) => {
    const condition = ofVersion.compare(operator, value);
    return (
      condition && sql`"devices"."firmwareVersion" in (select "firmwareVersion" ${versionsWith(asked, condition)})`
    );
  };
  return { ...operand, compare };
}

/** The versions that devices of the account have, and how many have each. */
function versionsWith({ caller }: DeviceFilterRequest, condition: Condition): RawBuilder<unknown> {
  return sql`from "firmwareVersionCounts" where "accountId" = ${caller.accountId} and ${condition}`;
}

/** A column as the caller sees it. */
function columnOf({ caller }: DeviceFilterRequest, name: string): RawBuilder<unknown> {
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
  asked: DeviceFilterRequest,
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
    const versions = versionsWith(asked, condition);
    const rows = sql<{ row: number }>`${live} and "firmwareVersion" in (select "firmwareVersion" ${versions})`;
    return { rows, isExact: true, count: sql`select coalesce(sum("count"), 0) as "count" ${versions}` };
  }
  if (match !== 'date' && match !== 'since') return undefined;
  if (!presence.includes(name)) return { rows: sql`${live} and ${condition}`, isExact: true };
  const rows = sql<{ row: number }>`select "row" from "devicePresence" where "account" = ${account} and ${condition}`;
  return { rows, isExact: isAccountWide(caller) };
}

function rowsOfText(
  asked: DeviceFilterRequest,
  name: 'serialNumber' | 'name',
  operator: string,
  text: string,
): FoundRows | undefined {
  const isPart = ['eq', 'co', 'sw', 'ew'].includes(operator) && text !== '';
  return isPart ? { rows: rowsWithText(asked.account, text, name), isExact: false } : undefined;
}

/** What is noted about devices in other tables, for callers that may read it. */
function noted({ caller, access, registry: { query: db }, account, now }: DeviceFilterRequest): Named[] {
  const named = (name: string, kind: EntityKind, operand: Operand): Named[] => {
    if (!access.may(caller, 'read', kind)) return [];
    const reader = access.narrow(caller, 'read', kind);
    if (isAccountWide(reader)) return [[name, { operands: [operand] }]];
    const reached = inReach(db, reader, 'devices.organizationId');
    return [[name, { operands: [operand], where: (expression) => sql`case when ${reached} then ${expression} end` }]];
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
}: Pick<DeviceFilterRequest, 'caller' | 'access' | 'account'> & { db: Db }): Named[1] {
  const isBelow = (value: unknown) => {
    const root = fold(String(value));
    return atOrBelow(db, access.reaches(caller, caller.accountId, root) ? [root] : [], 'devices.organizationId');
  };
  return {
    operands: [
      {
        type: 'organization',
        takes: 'the id of an organization in double quotes',
        operators: ['eq'],
        compare: (_, value) => (typeof value === 'string' ? isBelow(value) : undefined),
        test: (_, root) =>
          typeof root === 'string' ? ({ value: place }) => access.isWithin(String(place), [fold(root)]) : undefined,
        shown: jsonOf(sql.ref('devices.organizationId')),
      },
    ],
    rows: (_, value) => ({
      rows: sql`select "row" from "devices" where substr("accountId", 27) = ${account} and "deleted" is null and ${isBelow(value)}`,
      isExact: true,
    }),
  };
}
