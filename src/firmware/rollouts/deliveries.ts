/** Changes of the state of one device in a rollout. Each function runs in a transaction of the caller's. */

import { findEntity } from '../../../db/registry/entities.ts';
import type { Db, Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import { areTooMany, minEnded } from '../../core/failure-limit.ts';
import { change } from '../../entity/verbs.ts';
import { versionSaid } from '../../registry/devices/firmware-version.ts';
import {
  type Delivery,
  type EndState,
  endStates,
  isOpen,
  isOpenDelivery,
  openStates,
  type Rollout,
  stagesOf,
} from './rollout.ts';

/** A device's report of its update. `bytes` of the download; `code` of a failure. */
export interface Report {
  state: 'downloading' | 'downloaded' | 'installing' | 'succeeded' | 'failed';
  firmwareVersion?: string | undefined;
  bytes?: number | undefined;
  code?: number | undefined;
  message?: string | undefined;
  files?: string | undefined;
}

/** Changes to announce after the commit. */
export interface Reported {
  delivery: Delivery;
  firmwareVersion: string;
  device?: { before: Row<'devices'>; after: Row<'devices'> };
  rollout?: Rollout | undefined;
  /** Whether the device's update has ended by this. */
  ended: boolean;
}

export const reportStates = ['downloading', 'downloaded', 'installing', 'succeeded', 'failed'] as const;

/** The open delivery of a device, with the version that it brings. */
export async function openDelivery(db: Db, deviceId: string) {
  return db
    .selectFrom('firmwareDeliveries')
    .selectAll()
    .where('deviceId', '=', deviceId)
    .where(isOpenDelivery)
    .executeTakeFirst();
}

/** The firmware that a rollout brings to a device; without a device, that of the rollout itself. */
export async function packageOf(
  db: Db,
  { rolloutId, firmwarePackageId }: Pick<Delivery, 'rolloutId'> & Partial<Pick<Delivery, 'firmwarePackageId'>>,
): Promise<Row<'firmwarePackages'>> {
  const ofRollout = db.selectFrom('firmwareRollouts').select('firmwarePackageId').where('id', '=', rolloutId);
  const packages = db.selectFrom('firmwarePackages').selectAll();
  return packages.where('id', '=', firmwarePackageId ?? ofRollout).executeTakeFirstOrThrow();
}

/**
 * Takes what a device says of its update; the version of `succeeded` is noted whatever it is. @throws PlatformError 404/100 when
 * nothing was ever offered, 410 when the offer has ended otherwise, 400/106 for progress of another version than the offered one.
 */
export async function takeReport(tx: Tx, clock: Clock, deviceId: string, report: Report): Promise<Reported> {
  const open = await openDelivery(tx, deviceId);
  const delivery = open ?? (await latestDelivery(tx, deviceId));
  if (!delivery) throw new PlatformError('notFound', { message: 'There is no firmware offer for this device.' });
  const { firmwareVersion } = await packageOf(tx, delivery);
  const isOther = report.firmwareVersion !== undefined && report.firmwareVersion !== firmwareVersion;
  if (report.state === 'succeeded' && report.firmwareVersion !== undefined && (isOther || !open))
    return takeVersion(tx, clock, delivery, firmwareVersion, report.firmwareVersion);
  if (!open) {
    if (delivery.state === report.state && !isOther) return { delivery, firmwareVersion, ended: false };
    throw new PlatformError('offerGone');
  }
  if (isOther) throw invalid('firmwareVersion', `must be ${firmwareVersion}, which is offered`);
  if (report.state === 'succeeded' && report.firmwareVersion === undefined)
    throw invalid('firmwareVersion', 'is required: the version that the device now runs');
  const { state, bytes = state === 'downloading' ? delivery.bytes : undefined, code, message } = report;
  const changes = {
    state,
    bytes: bytes ?? delivery.bytes,
    code: code ?? null,
    message: message ?? null,
    files: report.files ?? delivery.files,
  };
  const device = state === 'succeeded' ? await runs(tx, clock, delivery, firmwareVersion) : undefined;
  const ran = device?.before.firmwareVersion ?? firmwareVersion;
  // An update that this one has replaced may have ended in between.
  const formerVersion = ran === firmwareVersion ? delivery.formerVersion : ran;
  const changed = await storeDelivery(tx, clock, delivery, { ...changes, formerVersion });
  if (isOpen(changed)) return { delivery: changed, firmwareVersion, ended: false };
  const rollout = await settleRollout(tx, clock, delivery.rolloutId);
  return { delivery: changed, firmwareVersion, ended: true, rollout, ...(device && { device }) };
}

/** The device runs this version now. It says so itself, so it is who has changed. */
async function runs(tx: Tx, clock: Clock, { deviceId }: Delivery, firmwareVersion: string) {
  const before = await findEntity(tx, 'devices', deviceId);
  if (!before || before.deleted !== null) return undefined;
  const said = versionSaid(clock, before, firmwareVersion, 'device');
  if (said.firmwareVersionTime === before.firmwareVersionTime) return undefined;
  const by = { caller: { id: deviceId }, clock };
  return { before, after: await change(tx, 'devices', deviceId, 'latest', by, said) };
}

/** A device says that it runs `version`, which is not what it is offered now, or its update has ended. */
async function takeVersion(
  tx: Tx,
  clock: Clock,
  delivery: Delivery,
  firmwareVersion: string,
  version: string,
): Promise<Reported> {
  const device = await runs(tx, clock, delivery, version);
  const noted = { firmwareVersion, ...(device && { device }) };
  if (version === firmwareVersion || !(await isFailedBy(tx, delivery, version)))
    return { delivery, ...noted, ended: false };
  const failed = { state: 'failed', code: null, message: `running ${version}` };
  const changed = await storeDelivery(tx, clock, delivery, failed);
  const rollout = await settleRollout(tx, clock, delivery.rolloutId);
  return { delivery: changed, ...noted, ended: true, rollout };
}

/**
 * Whether an update has failed because the device runs another version: a success that has not lasted, and an update that the
 * device had. One that it has not been offered is still to come, also after the update whose place it has taken.
 */
async function isFailedBy(tx: Tx, { deviceId, state }: Delivery, version: string): Promise<boolean> {
  if (state === 'succeeded') return true;
  if (!isOpen({ state }) || state === 'pending') return false;
  if (state !== 'offered') return true;
  const former = tx
    .selectFrom('firmwareDeliveries as d')
    .innerJoin('firmwareRollouts as r', 'r.id', 'd.rolloutId')
    .innerJoin('firmwarePackages as p', (on) =>
      on.on('p.id', '=', (eb) => eb.fn.coalesce('d.firmwarePackageId', 'r.firmwarePackageId')),
    )
    .select('d.deviceId')
    .where('d.deviceId', '=', deviceId)
    .where('d.state', '=', 'superseded')
    .where('p.firmwareVersion', '=', version);
  return (await former.limit(1).executeTakeFirst()) === undefined;
}

/** What these devices run. */
export async function versionsOf(tx: Tx, deviceIds: readonly string[]): Promise<Map<string, string | null>> {
  if (deviceIds.length === 0) return new Map();
  const rows = tx.selectFrom('devices').select(['id', 'firmwareVersion']).where('id', 'in', deviceIds);
  return new Map((await rows.execute()).map(({ id, firmwareVersion }) => [id, firmwareVersion]));
}

/** The version of a package, if devices that run it already need no update to it; null where their template says otherwise. */
export async function skippedVersion(
  tx: Tx,
  { deviceTemplateId, firmwareVersion }: Row<'firmwarePackages'>,
): Promise<string | null> {
  const template = await findEntity(tx, 'deviceTemplates', deviceTemplateId);
  return template?.skipSameVersion === 1 ? firmwareVersion : null;
}

/** What the row of a device says that needed no update. */
export const ranAlready = { state: 'succeeded', message: 'It ran this version already.' } as const;

/** Ends the update of a device that runs its version already; false where it does not. */
export async function skipUpdate(tx: Tx, clock: Clock, delivery: Delivery): Promise<boolean> {
  const { rolloutId, deviceId } = delivery;
  const runs = (await versionsOf(tx, [deviceId])).get(deviceId) ?? null;
  if (runs === null || runs !== (await skippedVersion(tx, await packageOf(tx, delivery)))) return false;
  const open = await openDelivery(tx, deviceId);
  if (open?.rolloutId !== rolloutId || open.state !== 'pending') return false;
  await storeDelivery(tx, clock, open, ranAlready);
  await settleRollout(tx, clock, rolloutId);
  return true;
}

function latestDelivery(db: Db, deviceId: string): Promise<Delivery | undefined> {
  const rows = db.selectFrom('firmwareDeliveries').selectAll().where('deviceId', '=', deviceId);
  return rows.orderBy('rolloutId', 'desc').limit(1).executeTakeFirst();
}

/** The delivery that tells how the firmware of a device stands: the open one, or the latest. */
export async function currentDelivery(db: Db, deviceId: string): Promise<Delivery | undefined> {
  return (await openDelivery(db, deviceId)) ?? latestDelivery(db, deviceId);
}

async function storeDelivery(
  tx: Tx,
  clock: Clock,
  { rolloutId, deviceId }: Delivery,
  changes: Partial<Delivery>,
): Promise<Delivery> {
  return tx
    .updateTable('firmwareDeliveries')
    .set({ ...changes, updated: timestamp(clock) })
    .where('rolloutId', '=', rolloutId)
    .where('deviceId', '=', deviceId)
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** Ends open deliveries of these devices; those that were ended. Their rollouts are to be settled. */
export async function endOpen(
  tx: Tx,
  clock: Clock,
  deviceIds: readonly string[],
  state: EndState,
  message: string,
): Promise<Delivery[]> {
  if (deviceIds.length === 0) return [];
  return tx
    .updateTable('firmwareDeliveries')
    .set({ state, message, updated: timestamp(clock) })
    .where('deviceId', 'in', deviceIds)
    .where(isOpenDelivery)
    .returningAll()
    .execute();
}

/** Ends what these devices have from older rollouts, for a newer one. */
export function supersede(tx: Tx, clock: Clock, deviceIds: readonly string[]): Promise<Delivery[]> {
  return endOpen(tx, clock, deviceIds, 'superseded', 'A newer rollout has taken its place.');
}

/** Makes the offers of a device void; it gets another one. False when it has none. */
export async function renewOffer(tx: Tx, clock: Clock, deviceId: string): Promise<boolean> {
  const changed = tx
    .updateTable('firmwareDeliveries')
    .set((eb) => ({ offer: eb('offer', '+', 1), state: 'pending', updated: timestamp(clock) }))
    .where('deviceId', '=', deviceId)
    .where(isOpenDelivery);
  return (await changed.executeTakeFirst()).numUpdatedRows > 0n;
}

/**
 * Looks at a rollout after devices of it have ended: it is finished when the last one has, and pauses itself when too many
 * have failed. The rollout when that has changed it.
 */
export async function settleRollout(tx: Tx, clock: Clock, rolloutId: string): Promise<Rollout | undefined> {
  const rollout = await tx
    .selectFrom('firmwareRollouts')
    .selectAll()
    .where('id', '=', rolloutId)
    .where('state', 'in', ['running', 'paused'])
    .executeTakeFirst();
  if (!rollout) return undefined;
  const counts = await tx
    .selectFrom('firmwareCounts')
    .select(['stage', 'state', 'count'])
    .where('rolloutId', '=', rolloutId)
    .execute();
  const sum = (states: readonly string[], stage?: number) =>
    counts.reduce(
      (all, one) => (states.includes(one.state) && (stage ?? one.stage) === one.stage ? all + one.count : all),
      0,
    );
  const isOver = (stage?: number) => sum(openStates, stage) === 0 && rollout.cursor === null;
  const isLast = rollout.stage === stagesOf(rollout).length - 1;
  if (isOver() && isLast && rollout.continuous === 0) {
    const reason = counts.some(({ count }) => count > 0) ? null : 'No device has matched the target.';
    return changeRollout(tx, rollout, { state: 'finished', finished: timestamp(clock), due: null, reason });
  }
  const failures = sum(['failed', 'timedOut'], rollout.stage);
  const ended = failures + sum(['succeeded'], rollout.stage);
  const isTelling = ended >= minEnded || isOver(rollout.stage);
  const isTooMany = areTooMany({ failures, ended }, rollout.maxFailurePercent);
  if (rollout.state !== 'running') return undefined;
  if (!isTelling || !isTooMany || failures <= rollout.failuresAccepted)
    return rollout.continuous === 1 && isLast && isOver(rollout.stage) ? pauseByLater(tx, clock, rollout) : undefined;
  const reason = `${failures} of ${ended} devices that have ended in stage ${rollout.stage + 1} have failed.`;
  return changeRollout(tx, rollout, { state: 'paused', reason, failuresAccepted: failures, due: null });
}

const day = 24 * 60 * 60_000;

/** Of the devices that came later, those count that have ended in the last day, and since the rollout was changed last. */
async function pauseByLater(tx: Tx, clock: Clock, rollout: Rollout): Promise<Rollout | undefined> {
  const since = new Date(clock.now() - day).toISOString();
  const { failures, ended } = await tx
    .selectFrom('firmwareDeliveries')
    .select((eb) => [
      eb.fn.countAll<number>().as('ended'),
      eb.fn.count<number>(eb.case().when('state', '<>', 'succeeded').then(1).end()).as('failures'),
    ])
    .where('rolloutId', '=', rollout.id)
    .where('later', '=', 1)
    .where('updated', '>', rollout.lastModified > since ? rollout.lastModified : since)
    .where('state', 'in', ['succeeded', 'failed', 'timedOut'])
    .executeTakeFirstOrThrow();
  if (ended < minEnded || !areTooMany({ failures, ended }, rollout.maxFailurePercent)) return undefined;
  const reason = `${failures} of ${ended} devices that came later and have ended in the last day have failed.`;
  return changeRollout(tx, rollout, { state: 'paused', reason, due: null });
}

/** Changes a rollout whatever its version, which grows. */
export async function changeRollout(tx: Tx, { id }: Pick<Rollout, 'id'>, changes: Partial<Rollout>): Promise<Rollout> {
  return tx
    .updateTable('firmwareRollouts')
    .set((eb) => ({ ...changes, version: eb('version', '+', 1) }))
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirstOrThrow();
}

export function isEnd(state: string): state is EndState {
  return endStates.some((one) => one === state);
}

/** Devices of a rollout that have not ended, after an id: at most `limit`, in order. */
export async function openDevices(db: Db, rolloutId: string, after: string, limit: number): Promise<string[]> {
  const rows = await db
    .selectFrom('firmwareDeliveries')
    .select('deviceId')
    .where('rolloutId', '=', rolloutId)
    .where('deviceId', '>', after)
    .where(isOpenDelivery)
    .orderBy('deviceId')
    .limit(limit)
    .execute();
  return rows.map(({ deviceId }) => deviceId);
}
