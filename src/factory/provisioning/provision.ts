/** Rows to devices, each with its credential and its association code. */

import { Ajv, type ErrorObject } from 'ajv';
import { sql } from 'kysely';
import { accountKey } from '../../../db/registry/account-key.ts';
import type { Db, Registry, Tx } from '../../../db/registry/index.ts';
import { insertMany } from '../../../db/registry/many.ts';
import { insertDevices } from '../../../db/registry/presence.ts';
import type { Row } from '../../../db/registry/records.ts';
import { type Caller, isAccountWide } from '../../core/caller.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import { invalid, PlatformError, unknownReference } from '../../core/errors.ts';
import { findUnstorable, unstorable } from '../../core/formats/unstorable.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import { customNames } from '../../entity/fields.ts';
import { findLive } from '../../entity/verbs.ts';
import { newCredential } from '../../registry/credentials/credentials.ts';
import { newDevice } from '../../registry/devices/changes.ts';
import { newDeviceShape } from '../../registry/devices/device.ts';
import { askedPlace, remaining, reserve } from '../../registry/devices/station-limits.ts';
import {
  failedRow,
  type GivenRow,
  type OpenWork,
  type Outcome,
  outcome,
  type Prepared,
  type RowError,
  type Run,
  rowErrors,
} from '../jobs/work.ts';
import type { ResultSeal } from '../results/store.ts';
import type { Equipment } from './equipping.ts';
import { type DevicePlace, Places } from './places.ts';

/** Columns that say where a device stands, each by two names. */
const templateColumns = ['deviceTemplateId', 'template'] as const;
const organizationColumns = ['organizationId', 'organization'] as const;
const placeColumns: ReadonlySet<string> = new Set([...templateColumns, ...organizationColumns]);
/** Columns that have another meaning if a custom field has their name. */
const unmistakable: Readonly<Record<string, string>> = {
  template: 'deviceTemplateId',
  organization: 'organizationId',
};

const trusted = { strictTypes: false, strictSchema: false, meta: false, validateSchema: false } as const;
const checkRow = new Ajv({ ...trusted, allErrors: true }).compile(newDeviceShape);

/** The columns that rows may have in an account: a custom field of any of its templates among them. */
export async function knownColumns({ registry }: { registry: Registry }, accountId: string): Promise<Set<string>> {
  const custom = await customNames(registry.query, accountId, 'devices');
  return new Set([...placeColumns, ...Object.keys(newDeviceShape.properties), ...custom]);
}

/** A unit that is to be made. */
interface Unit extends Equipment {
  row: number;
  device: Row<'devices'>;
}

export const provision: OpenWork = (run) => {
  const places = new Places(run.ctx.registry.query, run.job.accountId);
  return async (caller, rows) => {
    const failed: Outcome[] = [];
    const good: Array<{ row: number; device: Row<'devices'> }> = [];
    const longWork = new LongWork();
    for (const given of rows) {
      const device = await readRow(run, caller, places, given);
      await longWork.giveWay();
      if ('serialNumber' in device) good.push({ row: given.row, device });
      else failed.push(failedRow(given.row, device.errors));
    }
    if (run.job.dryRun === 1) return dryRun(run, failed, good);
    const units = await equip(run, good);
    return { write: (tx, current) => makeUnits(tx, run, current, failed, units) };
  };
};

/** The device of a row, or what is wrong with it. */
async function readRow(
  { ctx, parameters }: Run,
  caller: Caller,
  places: Places,
  { values, sameAs }: GivenRow,
): Promise<Row<'devices'> | { errors: RowError[] }> {
  if (sameAs !== undefined)
    return { errors: [{ column: 'serialNumber', message: `row ${sameAs} has the same serial number` }] };
  const errors: RowError[] = [];
  const place = await readPlace(caller, places, values, parameters as DevicePlace).catch((error) => {
    errors.push(...rowErrors(error));
    return undefined;
  });
  const body = Object.fromEntries(Object.entries(values).filter(([name]) => !placeColumns.has(name)));
  const fields = place && new Set(ctx.fields.of('devices', place.deviceTemplateId).map(({ name }) => name));
  for (const name of Object.keys(body))
    if (fields && !Object.hasOwn(newDeviceShape.properties, name) && !fields.has(name))
      errors.push({ column: name, message: 'is not a field of the template' });
  for (const [name, other] of Object.entries(unmistakable))
    if (Object.hasOwn(values, name) && fields?.has(name))
      errors.push({
        column: name,
        message: `is also a field of the template: use ${other}, and set the field after the device exists`,
      });
  const bad = findUnstorable(values);
  if (bad !== undefined) errors.push({ column: bad, message: unstorable });
  if (!checkRow(body)) errors.push(...(checkRow.errors ?? []).map(shapeError));
  if (!place || errors.length > 0) return { errors };
  try {
    // One request and two make the same device: one with a secret is activated.
    const activated = { ...place, provisioningState: 'activated' };
    return newDevice(ctx, caller, activated, body as { serialNumber: string } & Record<string, unknown>);
  } catch (error) {
    return { errors: rowErrors(error) };
  }
}

function shapeError({ instancePath, params, message = 'is invalid' }: ErrorObject): RowError {
  const column = instancePath.slice(1) || String(params.missingProperty ?? '');
  return params.missingProperty === undefined ? { column, message } : { column, message: 'is required' };
}

async function readPlace(
  caller: Caller,
  places: Places,
  values: Record<string, unknown>,
  usual: DevicePlace,
): Promise<DevicePlace> {
  const template = readColumn(values, templateColumns);
  const organization = readColumn(values, organizationColumns);
  if (template && typeof template.value !== 'string') throw invalid(template.name, 'must be a string');
  const wanted = {
    ...(template && {
      deviceTemplateId: await places.find(caller, 'deviceTemplates', template.name, String(template.value)),
    }),
    ...(organization && { organizationId: await organizationOf(caller, places, organization) }),
  };
  const asked = askedPlace<Partial<DevicePlace>>(caller, wanted);
  return { ...usual, ...asked };
}

async function organizationOf(caller: Caller, places: Places, { name, value }: { name: string; value: unknown }) {
  if (value === null) return null;
  if (typeof value !== 'string') throw invalid(name, 'must be a string or null');
  return places.find(caller, 'organizations', name, value);
}

/** @throws PlatformError 400/106 when a row gives it by both names. */
function readColumn(values: Record<string, unknown>, names: readonly [string, string]) {
  const given = names.filter((name) => values[name] !== undefined);
  const [name, second] = given;
  if (second !== undefined) throw invalid(second, `must not be used together with ${name}`);
  return name === undefined ? undefined : { name, value: values[name] };
}

/** Gives each device a secret and a code. */
async function equip(
  { equipping, job }: Run,
  good: ReadonlyArray<{ row: number; device: Row<'devices'> }>,
): Promise<Unit[]> {
  const equipment = await equipping.equip(job.accountId, good.length);
  return good.map((unit, at) => Object.assign(unit, equipment[at] as Equipment));
}

/** Makes all that can be made of some units, in one transaction; each serial number of a template is made once. */
async function makeUnits(
  tx: Tx,
  { ctx, seal }: Run,
  caller: Caller,
  failed: Outcome[],
  units: Unit[],
): Promise<Outcome[]> {
  const outcomes = [...failed];
  const there = await findThere(tx, caller, units);
  const missing = await findMissing(tx, caller, units);
  let making: Unit[] = [];
  for (const unit of units) {
    const known = there.get(keyOf(unit.device));
    const gone = missing.get(unit.device.deviceTemplateId) ?? missing.get(unit.device.organizationId ?? '');
    if (gone) outcomes.push(failedRow(unit.row, [gone]));
    else if (known) outcomes.push(skippedRow(unit.row, known));
    else making.push(unit);
  }
  const refused = await reserveFor(tx, ctx, caller, making);
  outcomes.push(...refused);
  if (refused.length > 0) making = making.slice(0, making.length - refused.length);
  const now = timestamp(ctx.clock);
  await insertDevices(
    tx,
    making.map(({ device }) => device),
  );
  await insertMany(
    tx,
    'credentials',
    making.map(({ device, secretHash }) => newCredential(caller, device.id, secretHash, now)),
  );
  const { accountId, id: createdById } = caller;
  await insertMany(
    tx,
    'associationCodes',
    making.map(({ device, codeHash }) => {
      const code = { kind: 'label', keepHistory: 0, expires: null } as const;
      return { ...code, deviceId: device.id, accountId, codeHash, created: now, createdById };
    }),
  );
  const sealedResult = sealUnits(seal, making);
  for (const [at, { row, device }] of making.entries())
    outcomes.push(outcome(row, 'done', { deviceId: device.id, ...(at === 0 && { sealedResult }) }));
  return outcomes;
}

/** The results of units, to be stored with the first of them. @throws Error when the job has no key for them. */
function sealUnits(seal: ResultSeal | undefined, units: readonly Unit[]): Buffer | null {
  const [first, ...others] = units.map(({ row, device: { id, serialNumber, deviceTemplateId }, secret, code }) => {
    return { row, deviceId: id, serialNumber, deviceTemplateId, secret, code };
  });
  if (!first) return null;
  if (!seal) throw new Error('The job has no key for its results.');
  return seal.seal([first, ...others]);
}

/** A live device that has the serial number of a row. */
interface There {
  id: string;
  serialNumber: string;
  deviceTemplateId: string;
  /** Whether the caller may know its id. */
  isShown: boolean;
}

const keyOf = ({ deviceTemplateId, serialNumber }: Pick<There, 'deviceTemplateId' | 'serialNumber'>) =>
  `${deviceTemplateId}/${serialNumber}`;

/** Live devices with these serial numbers, as the transaction sees them; by template and serial number. */
async function findThere(db: Db, caller: Caller, units: ReadonlyArray<{ device: Row<'devices'> }>) {
  const serials = JSON.stringify(units.map(({ device }) => device.serialNumber));
  // The planner takes an index by template, under which there may be a million devices.
  const { rows } = await sql<Omit<There, 'isShown'> & { createdById: string }>`
    select "devices"."id", "devices"."serialNumber", "devices"."deviceTemplateId", "devices"."createdById"
    from json_each(${serials}) as "given"
    cross join "devices" indexed by "devices_by_serialNumber"
      on substr("devices"."accountId", 27) = ${accountKey(caller.accountId)} and "devices"."serialNumber" = "given"."value"
      and "devices"."deleted" is null`.execute(db);
  return new Map<string, There>(
    rows.map(({ createdById, ...device }) => {
      const isShown = isAccountWide(caller) || createdById === caller.id;
      return [keyOf(device), { ...device, isShown }];
    }),
  );
}

function skippedRow(row: number, { id, isShown }: There): Outcome {
  const errors = [{ column: 'serialNumber', message: 'Another device of the template has this serial number.' }];
  return outcome(row, 'skipped', { deviceId: isShown ? id : null, errors: JSON.stringify(errors) });
}

/** The templates and organizations of units that are not there any more, by id. */
async function findMissing(
  db: Db,
  { accountId }: Caller,
  units: ReadonlyArray<{ device: Row<'devices'> }>,
): Promise<Map<string, RowError>> {
  const missing = new Map<string, RowError>();
  const look = async (table: 'deviceTemplates' | 'organizations', column: string, ids: Set<string | null>) => {
    for (const id of ids)
      if (id !== null && !(await findLive(db, table, accountId, id)))
        missing.set(id, { column, message: unknownReference(column).message });
  };
  await look('deviceTemplates', 'deviceTemplateId', new Set(units.map(({ device }) => device.deviceTemplateId)));
  await look('organizations', 'organizationId', new Set(units.map(({ device }) => device.organizationId)));
  return missing;
}

/** Counts units of a station; the failed rows of those that are too many, which are the last. */
async function reserveFor(tx: Tx, { clock }: { clock: Clock }, caller: Caller, units: readonly Unit[]) {
  if (units.length === 0) return [];
  try {
    await reserve(tx, caller, units.length, clock);
    return [];
  } catch (error) {
    if (!(error instanceof PlatformError)) throw error;
  }
  for (const [at] of units.entries()) {
    try {
      await reserve(tx, caller, 1, clock);
    } catch (error) {
      return units.slice(at).map(({ row }) => failedRow(row, rowErrors(error)));
    }
  }
  return [];
}

/** Reports the outcome that the rows would have, and creates nothing. */
function dryRun(
  { ctx, job }: Run,
  failed: Outcome[],
  good: ReadonlyArray<{ row: number; device: Row<'devices'> }>,
): Prepared {
  return {
    write: async (tx, caller) => {
      const there = await findThere(tx, caller, good);
      const stored = tx.selectFrom('jobs').select('done').where('id', '=', job.id);
      const { done } = await stored.executeTakeFirstOrThrow();
      const { left, refusal } = await remaining(tx, caller, done, ctx.clock);
      let counted = 0;
      return [
        ...failed,
        ...good.map(({ row, device }) => {
          const known = there.get(keyOf(device));
          if (known) return skippedRow(row, known);
          counted += 1;
          return counted > left ? failedRow(row, rowErrors(refusal)) : outcome(row, 'done');
        }),
      ];
    },
  };
}
