/** Changes of devices, for every caller: create, change, move, delete, recover. */

import type { Static } from 'typebox';
import { findEntity } from '../../../db/registry/entities.ts';
import type { Registry, Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Access } from '../../core/access.ts';
import { type Caller, isAccountWide } from '../../core/caller.ts';
import type { Clock } from '../../core/clock.ts';
import { PlatformError } from '../../core/errors.ts';
import { wholeHistory } from '../../core/history-window.ts';
import { readChanges, readNew } from '../../entity/columns.ts';
import type { Fields } from '../../entity/fields.ts';
import { mergeFields, readFields, readNewFields } from '../../entity/values.ts';
import {
  type Changes,
  change,
  demandInto,
  demandLive,
  demandReference,
  demandTrashed,
  type Expected,
  recover,
  stamp,
  trash,
  writeAs,
} from '../../entity/verbs.ts';
import type { RevokedCounts } from '../../http/revoked-counts.ts';
import type { Audit } from '../../operations/audit/index.ts';
import type { Downlink } from '../../ports/downlink.ts';
import type { Revocations } from '../../ports/revocations.ts';
import { canBeClaimed, endGiveAway, taken, unknownCode } from '../credentials/stored-codes.ts';
import { type newDeviceShape, type ShowContext, settable, showDeviceState, type stateShape } from './device.ts';
import { versionSaid } from './firmware-version.ts';
import { demandKeeping, firstPossession, placing } from './possession.ts';

type Settable = Static<typeof stateShape> & Record<string, unknown>;

/** The template, the organization and the provisioning state of a new device. */
type NewPlace = Pick<Row<'devices'>, 'deviceTemplateId' | 'organizationId' | 'provisioningState'>;

/**
 * A new device of the caller's account; the template and the organization have been looked at. @throws PlatformError 400
 * with 106 naming the property.
 */
export function newDevice(
  { clock, fields }: { clock: Clock; fields: Fields },
  caller: Pick<Caller, 'id' | 'accountId'>,
  { deviceTemplateId, organizationId, provisioningState }: NewPlace,
  body: Static<typeof newDeviceShape> & Record<string, unknown>,
): Row<'devices'> {
  // Assigned, because spreading into so many properties takes twenty times as long, and jobs make devices by the thousand.
  const columns = readNew(settable, body);
  return Object.assign(stamp(clock, caller), columns, versionSaid(clock, undefined, columns.firmwareVersion, 'api'), {
    deviceTemplateId,
    organizationId,
    provisioningState,
    connected: 0,
    lastConnected: null,
    offlineSince: null,
    silent: 0,
    usualInterval: null,
    geoIpLatitude: null,
    geoIpLongitude: null,
    replaced: null,
    ...firstPossession,
    fields: readNewFields(fields.of('devices', deviceTemplateId), body, fields.limits),
  });
}

/** The services for a change of what a device says of itself. */
export type StateContext = {
  registry: Registry;
  clock: Clock;
  downlink: Pick<Downlink, 'deviceUpdated'>;
} & ShowContext;

/** The services for a change of a device, its place included. */
export type ChangeContext = StateContext & { revocations: Revocations; revoked: RevokedCounts };

interface Changed {
  before: Row<'devices'>;
  after: Row<'devices'>;
}

/**
 * Changes a device and tells everybody whom it concerns, before it returns: the access rules, and the subscribers of
 * `_updates/fields`. `organizationId` undefined leaves the place. @throws as change, and 400/102, 400/106, 403/21.
 */
export async function updateDevice(
  ctx: ChangeContext,
  caller: Caller,
  id: string,
  version: Expected,
  body: Settable & { organizationId?: string | null; keepHistory?: boolean },
): Promise<Row<'devices'>> {
  const { organizationId: to, keepHistory = false } = body;
  demandKeeping(caller, keepHistory);
  const changed = await changeFields(
    ctx,
    caller,
    id,
    version,
    body,
    to === undefined ? undefined : { to, keepHistory },
  );
  await deviceChanged(ctx, caller, changed);
  return changed.after;
}

/** As updateDevice, of a device that stays where it is. @throws as change, and 400/106. */
export async function updateState(
  ctx: StateContext,
  caller: Caller,
  id: string,
  body: Settable,
): Promise<Row<'devices'>> {
  const changed = await changeFields(ctx, caller, id, 'latest', body, undefined);
  stateChanged(ctx, changed);
  return changed.after;
}

/** Writes a change; `deviceChanged`, or `stateChanged` where the place stays, is to follow. */
function changeFields(
  ctx: StateContext,
  caller: Caller,
  id: string,
  version: Expected,
  body: Settable,
  place: { to: string | null; keepHistory: boolean } | undefined,
): Promise<Changed> {
  const { clock } = ctx;
  return writeAs(ctx, caller, ['devices', id], async (tx) => {
    const stored = await findEntity(tx, 'devices', id);
    if (!stored) throw new PlatformError('notFound');
    const changes: Changes<'devices'> = readChanges(settable, body);
    const source = caller.kind === 'device' ? 'device' : 'api';
    if (changes.firmwareVersion !== undefined)
      Object.assign(changes, versionSaid(clock, stored, changes.firmwareVersion, source));
    const values = readFields(ctx.fields.of('devices', stored.deviceTemplateId), body);
    if (Object.keys(values).length > 0) changes.fields = mergeFields(stored.fields, values, ctx.fields.limits);
    let placed: Changes<'devices'> = {};
    if (place && place.to !== stored.organizationId) {
      await demandPlace(tx, caller, place.to);
      placed = await placing(tx, clock, stored, place.to, place.keepHistory);
    }
    const all = { ...placed, ...changes };
    return { before: stored, after: await change(tx, 'devices', id, version, { caller, clock }, all) };
  });
}

/** Demands that a device may be put there. @throws PlatformError 400/102, and as demandRemoving. */
async function demandPlace(tx: Tx, caller: Caller, organizationId: string | null): Promise<void> {
  if (organizationId === null) return demandRemoving(tx, caller);
  await demandReference(tx, 'organizations', caller.accountId, organizationId, 'organizationId');
  await demandInto(tx, caller, 'organizationId', organizationId);
}

/** @throws PlatformError 403/21 where only callers of the whole account may take a device out of its organization. */
async function demandRemoving(tx: Tx, caller: Caller): Promise<void> {
  if (isAccountWide(caller)) return;
  const accounts = tx.selectFrom('accounts').select('customersMayRemove').where('id', '=', caller.accountId);
  if ((await accounts.executeTakeFirst())?.customersMayRemove === 1) return;
  throw new PlatformError('forbidden', {
    message: 'Only an admin can remove a device from its organization here. You can give it away.',
    details: [{ path: 'organizationId', message: 'must not be null' }],
  });
}

/** Tells everybody whom a change concerns, after its commit. */
export async function deviceChanged(ctx: ChangeContext, caller: Caller, { before, after }: Changed): Promise<void> {
  ctx.access.deviceChanged(after.id);
  if (after.organizationId !== before.organizationId)
    ctx.revoked.noteRevoked(caller, await ctx.revocations.deviceMoved(after, before));
  ctx.downlink.deviceUpdated(after, changedState(ctx, before, after));
}

/** As deviceChanged, of a device that has stayed where it is. */
export function stateChanged(ctx: Omit<StateContext, 'registry' | 'clock'>, { before, after }: Changed): void {
  ctx.access.deviceChanged(after.id);
  ctx.downlink.deviceUpdated(after, changedState(ctx, before, after));
}

/** As updateDevice of the place alone, in a transaction of the caller's; `deviceChanged` is to follow. @throws the same. */
export async function moveDevice(
  tx: Tx,
  clock: Clock,
  caller: Caller,
  id: string,
  { to, keepHistory }: { to: string | null; keepHistory: boolean },
): Promise<Changed> {
  const before = demandLive(await demandFound(tx, caller, id));
  if (before.organizationId === to) return { before, after: before };
  await demandPlace(tx, caller, to);
  const changes = await placing(tx, clock, before, to, keepHistory);
  return { before, after: await change(tx, 'devices', id, 'latest', { caller, clock }, changes) };
}

/** A device of the caller's account, in a transaction. @throws PlatformError 404/100. */
async function demandFound(tx: Tx, caller: Caller, id: string): Promise<Row<'devices'>> {
  const row = await findEntity(tx, 'devices', id);
  if (row?.accountId !== caller.accountId) throw new PlatformError('notFound');
  return row;
}

/** Moves a device to the trash, whatever its version; `deviceTrashed` is to follow. @throws PlatformError 404/100, 410/107. */
export async function trashDevice(tx: Tx, clock: Clock, caller: Caller, id: string): Promise<Row<'devices'>> {
  const { version } = demandLive(await demandFound(tx, caller, id));
  return trash(tx, 'devices', id, version, clock);
}

/** Ends what a device in the trash, and others by it, may not have any more; after its commit. */
export async function deviceTrashed(
  { access, revocations, revoked }: { access: Access; revocations: Revocations; revoked: RevokedCounts },
  caller: Caller,
  row: Row<'devices'>,
): Promise<void> {
  access.deviceChanged(row.id);
  revoked.noteRevoked(caller, await revocations.deviceDeleted(row));
}

/** Brings a device back from the trash when it is still what `expected` says; `access.deviceChanged` is to follow. */
export async function recoverDevice(
  tx: Tx,
  clock: Clock,
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
 * Moves a device into an organization by association, when its code still counts and it stands where it was found.
 * @throws PlatformError as associateWithin, and 400/102 for an organization that is gone.
 */
export async function associateDevice(
  ctx: ChangeContext & { audit: Audit },
  caller: Caller,
  association: Association,
): Promise<Row<'devices'>> {
  const changed = await writeAs(ctx, caller, undefined, async (tx) => {
    await demandInto(tx, caller, 'organizationId', association.to);
    return associateWithin(tx, ctx, caller, association);
  });
  await deviceChanged(ctx, caller, changed);
  return changed.after;
}

/**
 * As associateDevice, in a transaction of the caller's; `deviceChanged` is to follow. @throws PlatformError 404/100 for a code that
 * has ended, 400/102 for an organization that is gone, 422 for a device that has been moved or deleted.
 */
export async function associateWithin(
  tx: Tx,
  ctx: Pick<ChangeContext, 'access' | 'clock'> & { audit: Audit },
  caller: Caller,
  { id, codeHash, from, to }: Association,
): Promise<Changed> {
  const { clock, audit } = ctx;
  const codes = tx.selectFrom('associationCodes').select(['kind', 'keepHistory', 'expires', 'createdById']);
  const code = await codes.where('deviceId', '=', id).where('codeHash', '=', codeHash).executeTakeFirst();
  if (!code) throw unknownCode();
  const before = await findEntity(tx, 'devices', id);
  if (!before || before.deleted !== null) throw new PlatformError('association');
  // Its maker may have lost the right since it was found: the hash of a password takes its time.
  if (!canBeClaimed(ctx, code, before.organizationId)) throw unknownCode();
  // Another claim was first. A code to give it away has ended when the device is no longer its giver's.
  if (code.kind === 'label' && before.organizationId !== from) throw taken();
  await demandReference(tx, 'organizations', caller.accountId, to, 'organizationId');
  if (code.kind === 'giveAway') await endGiveAway(tx, clock, id);
  const placed = await placing(tx, clock, before, to, code.keepHistory === 1);
  const changes = { ...placed, provisioningState: 'associated' };
  const after = await change(tx, 'devices', id, 'latest', { caller, clock }, changes);
  await audit.record(tx, {
    event: 'association',
    outcome: 'success',
    accountId: caller.accountId,
    actor: caller,
    target: { kind: 'device', id },
    details: { organizationId: to },
  });
  return { before, after };
}

/** The fields of `_updates/fields` that differ. */
export function changedState(ctx: ShowContext, before: Row<'devices'>, after: Row<'devices'>): Record<string, unknown> {
  const old: Record<string, unknown> = showDeviceState(ctx, before, wholeHistory);
  const now = Object.entries(showDeviceState(ctx, after, wholeHistory));
  return Object.fromEntries(now.filter(([name, value]) => value !== old[name]));
}
