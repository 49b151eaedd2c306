/** Devices (spec 2.2, 4.3). */

import type { Tx } from '../../db/index.js';
import type { Row } from '../../db/records.js';
import { type Static, Type } from '../../db/typebox.js';
import { type Caller, isAccountWide } from '../access.js';
import type { Context } from '../context.js';
import { type Listing, type ListQuery, list, listSchema, parentsOf, readNames } from '../entity/listing.js';
import { entityRoutes } from '../entity/routes.js';
import { demandInto, writeAs } from '../entity/standing.js';
import { degreesText, mergeFields, readFields, readNewFields } from '../entity/values.js';
import {
  type Changes,
  change,
  demandLive,
  demandReference,
  demandTrashed,
  type Expected,
  find,
  findReached,
  insert,
  recover,
  stamp,
  trash,
} from '../entity/verbs.js';
import { invalid, PlatformError, unknownReference } from '../errors.js';
import { askedPlace, demandNew, reserve } from '../factory/station-limits.js';
import type { App } from '../http.js';
import { accountOf } from './organizations.js';
import {
  deviceShape,
  fieldBody,
  type ShowContext,
  showDevice,
  showDeviceState,
  showDeviceTemplate,
  showOrganization,
} from './shapes.js';
import { templateFor } from './templates.js';

const optionalText = Type.Optional(Type.Unsafe<string | null>({ type: ['string', 'null'], maxLength: 255 }));
const degrees = Type.Optional(
  Type.Unsafe<string | number | null>({
    type: ['number', 'string', 'null'],
    description: 'A number, or a text that is one.',
  }),
);
export const serialNumber = Type.String({ minLength: 1, maxLength: 255 });
/** What a caller may set on a device besides its place; `_set/fields` takes the same (decisions 5). */
const settable = {
  firmwareVersion: optionalText,
  latitude: degrees,
  longitude: degrees,
  externalIp: optionalText,
  reverseDns: optionalText,
  ...fieldBody('devices'),
};
const organizationId = Type.Optional(Type.Unsafe<string | null>({ type: ['string', 'null'] }));
/** What a new device is told besides its place; rows of provisioning jobs are checked against the same. */
export const newDeviceShape = Type.Object({ serialNumber, ...settable });
const createBody = Type.Object({
  accountId: Type.String(),
  deviceTemplateId: Type.Optional(Type.String()),
  organizationId,
  ...newDeviceShape.properties,
});
const updateBody = Type.Object({ serialNumber: Type.Optional(serialNumber), organizationId, ...settable });
/** The body of `state` on `_set/fields`: what PUT may set, but not the place. */
export const stateShape = Type.Object({ serialNumber: Type.Optional(serialNumber), ...settable });

const expandable = ['account', 'device-template', 'organization'] as const;
const beside = { expand: Type.Optional(Type.String({ description: `Comma-separated: ${expandable.join(', ')}` })) };
const readQuery = Type.Object(beside);

export const deviceListing: Listing<'devices'> = {
  table: 'devices',
  filters: {
    deviceTemplateId: 'exact',
    organizationId: 'reference',
    serialNumber: 'partial',
    provisioningState: 'exact',
    firmwareVersion: 'partial',
    latitude: 'latitude',
    longitude: 'longitude',
    connected: 'flag',
    lastConnected: 'date',
    externalIp: 'exact',
    geoIpLatitude: 'latitude',
    geoIpLongitude: 'longitude',
    reverseDns: 'exact',
  },
  sorts: [
    'created',
    'lastModified',
    'id',
    'deviceTemplateId',
    'organizationId',
    'provisioningState',
    'firmwareVersion',
  ],
  defaultSort: 'serialNumber',
  reach: 'organizationId',
  counted: {
    columns: ['deviceTemplateId', 'organizationId', 'provisioningState', 'connected'],
    everywhere: 'deviceCounts',
    placed: 'placedDeviceCounts',
  },
  text: ['serialNumber', 'firmwareVersion'],
};

type Settable = Static<typeof stateShape> & Record<string, unknown>;

/** The columns that a body sets besides custom fields, checked. @throws PlatformError 400 with 106 naming the property. */
function readSettable(body: Settable): Changes<'devices'> {
  const changes: Changes<'devices'> = {};
  if (body.serialNumber !== undefined) changes.serialNumber = body.serialNumber;
  for (const name of ['firmwareVersion', 'externalIp', 'reverseDns'] as const)
    if (body[name] !== undefined) changes[name] = body[name];
  for (const [name, limit] of [
    ['latitude', 90],
    ['longitude', 180],
  ] as const) {
    const value = body[name];
    if (value === undefined) continue;
    const text = value === null ? null : degreesText(value, limit);
    if (text === undefined) throw invalid(name, `must be a number between -${limit} and ${limit}`);
    changes[name] = text;
  }
  return changes;
}

/** Where a new device stands, and what of spec 3.1 it has behind it. */
type NewPlace = Pick<Row<'devices'>, 'deviceTemplateId' | 'organizationId' | 'provisioningState'>;

/**
 * A new device of the caller's account; the template and the organization have been looked at. @throws PlatformError 400
 * with 106 naming the property.
 */
export function newDevice(
  { clock, fields }: Pick<Context, 'clock' | 'fields'>,
  caller: Pick<Caller, 'id' | 'accountId'>,
  { deviceTemplateId, organizationId, provisioningState }: NewPlace,
  body: Static<typeof newDeviceShape> & Record<string, unknown>,
): Row<'devices'> {
  const { id, accountId, created, createdById, lastModified, lastModifiedById, version, deleted } = stamp(
    clock,
    caller,
  );
  const set = readSettable(body);
  // Written out, because spreading into so many properties takes twenty times as long, and jobs make devices by the thousand.
  return {
    id,
    accountId,
    created,
    createdById,
    lastModified,
    lastModifiedById,
    version,
    deleted,
    deviceTemplateId,
    organizationId,
    serialNumber: body.serialNumber,
    provisioningState,
    firmwareVersion: set.firmwareVersion ?? null,
    latitude: set.latitude ?? null,
    longitude: set.longitude ?? null,
    connected: 0,
    lastConnected: null,
    externalIp: set.externalIp ?? null,
    geoIpLatitude: null,
    geoIpLongitude: null,
    reverseDns: set.reverseDns ?? null,
    replaced: null,
    fields: readNewFields(fields.of('devices', deviceTemplateId), body),
  };
}

/** What a change of a device needs of the rest. */
type ChangeContext = Pick<Context, 'registry' | 'clock' | 'broker' | 'revocations'> & ShowContext;
interface Changed {
  before: Row<'devices'>;
  after: Row<'devices'>;
}

/**
 * Changes a device and tells everybody whom it concerns, before it returns: the access rules, and the subscribers of
 * `_updates/fields`. `organizationId` undefined leaves the place. @throws as change, and 400/102, 400/106.
 */
export async function updateDevice(
  ctx: ChangeContext,
  caller: Caller,
  id: string,
  version: Expected,
  body: Settable & { organizationId?: string | null },
): Promise<Row<'devices'>> {
  const { clock } = ctx;
  const changed = await writeAs(ctx, caller, ['devices', id], async (tx) => {
    const stored = await find(tx, 'devices', id);
    if (!stored) throw new PlatformError('notFound');
    const changes = readSettable(body);
    const values = readFields(ctx.fields.of('devices', stored.deviceTemplateId), body);
    if (Object.keys(values).length > 0) changes.fields = mergeFields(stored.fields, values);
    if (body.organizationId !== undefined && body.organizationId !== stored.organizationId) {
      await demandPlace(tx, caller, body.organizationId);
      changes.organizationId = body.organizationId;
    }
    return { before: stored, after: await change(tx, 'devices', id, version, { caller, clock }, changes) };
  });
  await deviceChanged(ctx, caller, changed);
  return changed.after;
}

/** That a device may be put there. @throws PlatformError 400/102. */
async function demandPlace(tx: Tx, caller: Caller, organizationId: string | null): Promise<void> {
  if (organizationId !== null)
    await demandReference(tx, 'organizations', caller.accountId, organizationId, 'organizationId');
  await demandInto(tx, caller, 'organizationId', organizationId);
}

/** Tells everybody whom a change concerns, after its commit. */
export async function deviceChanged(ctx: ChangeContext, caller: Caller, { before, after }: Changed): Promise<void> {
  ctx.access.deviceChanged(after.id);
  if (after.organizationId !== before.organizationId)
    ctx.revocations.note(caller, await ctx.broker.deviceMoved(after, before.organizationId));
  ctx.broker.deviceUpdated(after, changedState(ctx, before, after));
}

/** As updateDevice of the place alone, in a transaction of the caller's; `deviceChanged` is to follow. @throws the same. */
export async function moveDevice(
  tx: Tx,
  clock: Context['clock'],
  caller: Caller,
  id: string,
  organizationId: string | null,
): Promise<Changed> {
  const before = demandLive(await demandFound(tx, caller, id));
  if (before.organizationId === organizationId) return { before, after: before };
  await demandPlace(tx, caller, organizationId);
  return { before, after: await change(tx, 'devices', id, 'latest', { caller, clock }, { organizationId }) };
}

/** A device of the caller's account, in a transaction. @throws PlatformError 404/100. */
async function demandFound(tx: Tx, caller: Caller, id: string): Promise<Row<'devices'>> {
  const row = await find(tx, 'devices', id);
  if (row?.accountId !== caller.accountId) throw new PlatformError('notFound');
  return row;
}

/** Moves a device to the trash, whatever its version; `deviceTrashed` is to follow. @throws PlatformError 404/100, 410/107. */
export async function trashDevice(
  tx: Tx,
  clock: Context['clock'],
  caller: Caller,
  id: string,
): Promise<Row<'devices'>> {
  const { version } = demandLive(await demandFound(tx, caller, id));
  return trash(tx, 'devices', id, version, clock);
}

/** Ends what a device in the trash, and others by it, may not have any more; after its commit. */
export async function deviceTrashed(
  { access, broker, revocations }: Pick<Context, 'access' | 'broker' | 'revocations'>,
  caller: Caller,
  row: Row<'devices'>,
): Promise<void> {
  access.deviceChanged(row.id);
  revocations.note(caller, await broker.deviceDeleted(row));
}

/** Brings a device back from the trash when it is still what `expected` says; `access.deviceChanged` is to follow. */
export async function recoverDevice(
  tx: Tx,
  clock: Context['clock'],
  caller: Caller,
  id: string,
  expected: { version: number } | { deleted: string },
): Promise<Row<'devices'>> {
  const before = demandTrashed(await demandFound(tx, caller, id));
  if ('deleted' in expected && before.deleted !== expected.deleted) throw new PlatformError('notFound');
  const { accountId, deviceTemplateId, organizationId } = before;
  await demandReference(tx, 'deviceTemplates', accountId, deviceTemplateId, 'deviceTemplateId');
  if (organizationId !== null) await demandReference(tx, 'organizations', accountId, organizationId, 'organizationId');
  const version = 'version' in expected ? expected.version : before.version;
  return recover(tx, 'devices', id, version, { caller, clock });
}

/** A device that was found by its code, and where it is to go. */
interface Association {
  id: string;
  codeHash: string;
  from: string | null;
  to: string;
}

/**
 * Moves a device into an organization by association (spec 3.1), when its code still counts and it stands where it was found.
 * @throws PlatformError 404/100 for a code that was replaced meanwhile, 400/102 for an organization that is gone, 422 for a
 * device that has been moved or deleted.
 */
export async function associateDevice(
  ctx: ChangeContext & Pick<Context, 'audit'>,
  caller: Caller,
  { id, codeHash, from, to }: Association,
): Promise<void> {
  const changed = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandInto(tx, caller, 'organizationId', to);
    const codes = tx.selectFrom('associationCodes').select('deviceId').where('deviceId', '=', id);
    if (!(await codes.where('codeHash', '=', codeHash).executeTakeFirst())) throw new PlatformError('notFound');
    const before = await find(tx, 'devices', id);
    if (!before || before.deleted !== null || before.organizationId !== from) throw new PlatformError('association');
    await demandReference(tx, 'organizations', caller.accountId, to, 'organizationId');
    const changes = { organizationId: to, provisioningState: 'associated' };
    const after = await change(tx, 'devices', id, 'latest', { caller, clock: ctx.clock }, changes);
    await ctx.audit.record(tx, {
      event: 'association',
      outcome: 'success',
      accountId: caller.accountId,
      actor: caller,
      target: { kind: 'device', id },
      details: { organizationId: to },
    });
    return { before, after };
  });
  await deviceChanged(ctx, caller, changed);
}

/** The fields of `_updates/fields` that differ. */
export function changedState(ctx: ShowContext, before: Row<'devices'>, after: Row<'devices'>): Record<string, unknown> {
  const old: Record<string, unknown> = showDeviceState(ctx, before);
  return Object.fromEntries(Object.entries(showDeviceState(ctx, after)).filter(([name, value]) => value !== old[name]));
}

export function deviceRoutes(app: App, ctx: Context): void {
  const { registry, clock, access } = ctx;
  const showOne = (row: Row<'devices'>) => showDevice(ctx, row);

  async function create(caller: Caller, body: Static<typeof createBody> & Record<string, unknown>) {
    access.demand(caller, 'create', 'device');
    access.demandAccount(caller, body.accountId);
    readSettable(body);
    const { deviceTemplateId, organizationId = null } = askedPlace(caller, body);
    const row = await writeAs(ctx, caller, undefined, async (tx) => {
      const { accountId } = caller;
      const template = await templateFor(tx, 'deviceTemplates', accountId, deviceTemplateId, 'deviceTemplateId');
      if (organizationId !== null)
        await demandReference(tx, 'organizations', accountId, organizationId, 'organizationId');
      const place = { deviceTemplateId: template.id, organizationId, provisioningState: 'defined' };
      const made = newDevice(ctx, caller, place, body);
      await demandNew(tx, caller, made);
      await reserve(tx, caller, 1, clock);
      return insert(tx, 'devices', made);
    });
    return showOne(row);
  }

  async function read(caller: Caller, id: string, query: Static<typeof readQuery>) {
    access.demand(caller, 'read', 'device');
    const row = demandLive(await findReached(ctx, caller, 'devices', id));
    if (query.expand === undefined) return showOne(row);
    const [shown] = await show(caller, [row], query);
    return shown ?? showOne(row);
  }

  async function update(caller: Caller, id: string, version: number, body: Static<typeof updateBody>) {
    access.demand(caller, 'update', 'device');
    const before = demandLive(await findReached(ctx, caller, 'devices', id));
    if (body.organizationId !== undefined && body.organizationId !== before.organizationId && !isAccountWide(caller)) {
      if (body.organizationId === null)
        throw new PlatformError('forbidden', { message: 'Only an admin takes a device out of every organization.' });
      if (!access.reaches(caller, caller.accountId, body.organizationId)) throw unknownReference('organizationId');
    }
    return showOne(await updateDevice(ctx, caller, id, version, body));
  }

  async function remove(caller: Caller, id: string, version: number) {
    access.demand(caller, 'delete', 'device');
    await findReached(ctx, caller, 'devices', id);
    const row = await writeAs(ctx, caller, undefined, (tx) => trash(tx, 'devices', id, version, clock));
    await deviceTrashed(ctx, caller, row);
    return showOne({ ...row, connected: 0 });
  }

  async function page(caller: Caller, query: ListQuery, state: 'live' | 'trash') {
    access.demand(caller, 'read', 'device');
    access.demandAccount(caller, query.accountId);
    if (caller.kind === 'station' && typeof query.serialNumber !== 'string')
      throw invalid('serialNumber', 'is required: a station finds its devices by their whole serial number');
    const { rows, meta } = await list(registry.query, caller, deviceListing, query, state);
    return { results: rows && (await show(caller, rows, query)), meta };
  }

  async function show(caller: Caller, rows: Row<'devices'>[], query: Static<typeof readQuery>) {
    const expand = readNames('expand', query.expand, expandable);
    if (expand.size === 0) return rows.map(showOne);
    if (caller.kind === 'station')
      throw new PlatformError('forbidden', { message: 'A station sees its devices only.' });
    const db = registry.query;
    const [organizations, templates, account] = await Promise.all([
      expand.has('organization') ? parentsOf(db, 'organizations', rows, 'organizationId') : undefined,
      expand.has('device-template') ? parentsOf(db, 'deviceTemplates', rows, 'deviceTemplateId') : undefined,
      expand.has('account') ? accountOf(db, caller) : undefined,
    ]);
    return rows.map((row) => {
      const organization = organizations?.get(row.organizationId ?? '');
      const template = templates?.get(row.deviceTemplateId);
      return {
        ...showOne(row),
        ...(organizations && { organization: organization ? showOrganization(ctx, organization) : null }),
        ...(template && { deviceTemplate: showDeviceTemplate(ctx, template) }),
        ...(account && { account }),
      };
    });
  }

  async function readTrash(caller: Caller, id: string) {
    access.demand(caller, 'delete', 'device');
    return showOne(demandTrashed(await findReached(ctx, caller, 'devices', id)));
  }

  async function listTrash(caller: Caller, query: ListQuery) {
    access.demand(caller, 'delete', 'device');
    return page(caller, query, 'trash');
  }

  async function bringBack(caller: Caller, id: string, version: number) {
    access.demand(caller, 'delete', 'device');
    demandTrashed(await findReached(ctx, caller, 'devices', id));
    const row = await writeAs(ctx, caller, undefined, (tx) => recoverDevice(tx, clock, caller, id, { version }));
    access.deviceChanged(id);
    return showOne(row);
  }

  entityRoutes(app, {
    path: '/devices',
    tag: 'Devices',
    entity: 'device',
    wrapper: 'device',
    plural: 'devices',
    shape: deviceShape,
    errors: { create: ['unknownReference', 'notUnique'], update: ['unknownReference'], recover: ['unknownReference'] },
    create: { body: createBody, run: create },
    read: { query: readQuery, run: read },
    update: { body: updateBody, run: update },
    remove,
    revokes: ['update', 'remove'],
    list: {
      query: listSchema(deviceListing, beside),
      run: (caller, query) => page(caller, query as ListQuery, 'live'),
    },
    readTrash,
    listTrash,
    recover: bringBack,
  });
}
