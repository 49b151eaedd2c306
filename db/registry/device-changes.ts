/**
 * What a commit changes of devices, as filters see them: triggers of the connections that write note it (db/sqlite/noted-changes.ts), so
 * that no caller tells of a change, and none can forget it.
 */
import type { Column } from './records/columns.ts';
import { deviceColumns, presenceNames } from './records/devices.ts';

const isPresence: ReadonlySet<string> = new Set(presenceNames);
const columns = [
  ...Object.entries<Column>(deviceColumns).flatMap(([name, { marks }]) => (marks.filter ? [name] : [])),
  'lastModified',
  'fields',
];

/** What a change is of: columns of a device, what is noted of it in other tables, and what concerns many devices of an account. */
const kinds = [
  ...columns,
  'certificate',
  'delivery',
  'enrollment',
  'organizations',
  'deviceTemplates',
  'customFields',
  'fleets',
];

/** The bit of each kind of change. */
export const changeBits: ReadonlyMap<string, number> = new Map(kinds.map((kind, at) => [kind, 1 << at]));
/** A device has come, gone, or been recovered. */
export const wholeDevice = (1 << kinds.indexOf('organizations')) - 1;
/** Those whose key is an account, or a fleet, and not a device. */
export const accountChanges = (1 << kinds.length) - 1 - wholeDevice;

/** The bits of these columns that differ. */
function changed(names: readonly string[]): string {
  return names.map((name) => `(old."${name}" IS NOT new."${name}") * ${changeBits.get(name)}`).join(' + ');
}

function sum(names: readonly string[]): number {
  return names.reduce((bits, name) => bits | (changeBits.get(name) ?? 0), 0);
}

const own = columns.filter((name) => !isPresence.has(name));
const noted = columns.filter((name) => isPresence.has(name));
const deviceOf = (row: 'new' | 'old') => `(SELECT "id" FROM "devices" WHERE "row" = ${row}."row")`;

function trigger(table: string, event: string, key: string, bits: string | number, when = 'true'): string {
  const name = `changed_${table}_${event}_${key}`.replace(/\W/g, '');
  return `CREATE TEMP TRIGGER "${name}" AFTER ${event} ON main."${table}" WHEN ${when}
    BEGIN SELECT note_change(${key}, ${bits}); END`;
}

/** Of a table whose rows are each of a device, or of the account. */
function rowsOf(table: string, key: string, kind: string, ofColumns: readonly string[], when = (_: string) => 'true') {
  const bit = changeBits.get(kind) ?? 0;
  const update = ofColumns.length === 0 ? 'UPDATE' : `UPDATE OF ${ofColumns.map((name) => `"${name}"`).join(', ')}`;
  return [
    trigger(table, 'INSERT', `new."${key}"`, bit, when('new')),
    trigger(table, update, `old."${key}"`, bit, when('old')),
    ...(ofColumns.includes(key) ? [trigger(table, update, `new."${key}"`, bit, when('new'))] : []),
    trigger(table, 'DELETE', `old."${key}"`, bit, when('old')),
  ];
}

const ofDevice = (row: string) => `${row}."entityType" = 'device'`;

export const changeTriggers: readonly string[] = [
  trigger('devices', 'INSERT', 'new."id"', wholeDevice),
  trigger('devices', 'UPDATE', 'old."id"', `iif(old."deleted" IS NOT new."deleted", ${wholeDevice}, ${changed(own)})`),
  trigger('devices', 'DELETE', 'old."id"', wholeDevice),
  trigger('devicePresence', 'INSERT', deviceOf('new'), sum(noted)),
  trigger('devicePresence', 'UPDATE', deviceOf('old'), changed(noted)),
  trigger('devicePresence', 'DELETE', deviceOf('old'), sum(noted)),
  ...rowsOf('certificates', 'entityId', 'certificate', ['entityId', 'validTo', 'deleted'], ofDevice),
  ...rowsOf('firmwareDeliveries', 'deviceId', 'delivery', ['deviceId', 'state']),
  ...rowsOf('enrollments', 'deviceId', 'enrollment', ['deviceId', 'groupId']),
  ...['organizations', 'deviceTemplates', 'customFields'].flatMap((table) => rowsOf(table, 'accountId', table, [])),
  ...rowsOf('fleets', 'id', 'fleets', []),
];
