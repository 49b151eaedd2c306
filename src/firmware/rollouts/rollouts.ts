/** Operations on rollouts: create, pause, resume, cancel, retry failed devices. */
import { setImmediate as nextTurn } from 'node:timers/promises';

import type { Static } from 'typebox';
import { findEntity } from '../../../db/registry/entities.ts';
import type { Db, Tx } from '../../../db/registry/index.ts';
import { insertMany } from '../../../db/registry/many.ts';
import { firmwareRolloutColumns } from '../../../db/registry/records/downlink.ts';
import type { Row } from '../../../db/registry/records.ts';
import { parseDate } from '../../../db/sqlite/dates.ts';
import type { Caller } from '../../core/caller.ts';
import { timestamp } from '../../core/clock.ts';
import { invalid, PlatformError, unknownReference } from '../../core/errors.ts';
import { demandWithin } from '../../core/limits/table.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import { readNew } from '../../entity/columns.ts';
import { demandBelow } from '../../entity/list-query.ts';
import { demandReference, findLive, insert, inThread, stamp, writeAs } from '../../entity/verbs.ts';
import type { Audit } from '../../operations/audit/index.ts';
import { compileDeviceFilter } from '../../registry/devices/filter.ts';
import { demandWholeFleet } from '../../registry/devices/fleet.ts';
import { demandNotEmpty } from '../../registry/devices/selection.ts';
import type { FilterServices } from '../../registry/filters.ts';
import type { DownlinkContext } from '../context.ts';
import { changeRollout, openDevices, settleRollout, supersede } from './deliveries.ts';
import {
  countsOf,
  nextStageAt,
  type Rollout,
  type rolloutBody,
  type Stage,
  showRollout,
  type Target,
} from './rollout.ts';
import { foreignDevices } from './targets.ts';

export type RolloutServices = Pick<
  DownlinkContext,
  'access' | 'ages' | 'audit' | 'clock' | 'config' | 'firmwareEngine' | 'readers' | 'registry'
>;

/** Seconds from one stage to the next where nothing is said. */
const usualPause = 3600;
/** Devices whose deliveries change in one transaction. */
const atOnce = 100;
/** Devices of a target beyond which a thread writes them. */
const targetsAtOnce = 500;

type Body = Static<typeof rolloutBody>;

/** What a rollout may be made of. */
export interface Checked {
  firmware: Row<'firmwarePackages'>;
  target: Target;
  stages: Stage[];
  /** In milliseconds. */
  startAt: number;
}

/**
 * What a body asks for, which a rollout is made of, or a preview. @throws PlatformError 400/102 for a package that is not there, a
 * foreign organization, and devices of other templates; 400/106 for a package that is not published, stages that do not rise to
 * 100 and one rollout too many. `path` is where the body names the package.
 */
export async function demandRollout(
  { ages, config }: Pick<RolloutServices, 'ages' | 'config'>,
  db: Db,
  { accountId }: Caller,
  body: Body,
  path = 'firmwarePackageId',
): Promise<Checked> {
  const target = readTarget(body.target);
  if (body.continuous === true && target.fleetId === undefined)
    throw invalid('continuous', 'is for a target with fleetId');
  const stages = readStages(body.stages);
  const startAt = readStart(body.startAt, ages.now());
  const firmware = await demandReference(db, 'firmwarePackages', accountId, body.firmwarePackageId, path);
  if (firmware.state !== 'published') throw invalid(path, `names a package that is ${firmware.state}`);
  await demandTarget(db, firmware, target);
  await demandRoom(config, db, accountId);
  return { firmware, target, stages, startAt };
}

/** `ending` rollouts end before the new one is made. @throws PlatformError 400/106 for one rollout too many. */
export async function demandRoom(
  { limits }: RolloutServices['config'],
  db: Db,
  accountId: string,
  ending = 0,
): Promise<void> {
  const open = db.selectFrom('firmwareRollouts').select((eb) => eb.fn.countAll<number>().as('count'));
  const { count } = await open
    .where('accountId', '=', accountId)
    .where('finished', 'is', null)
    .executeTakeFirstOrThrow();
  demandWithin(limits, 'firmwareRollouts', Number(count) + 1 - ending, 'accountId');
}

/** @throws PlatformError 400/106 for a text in `target.filter` that is not a filter; for `target.fleetId` as demandWholeFleet. */
export async function demandFilter(ctx: FilterServices, caller: Caller, { filter, fleetId }: Target): Promise<void> {
  if (typeof filter === 'string') await compileDeviceFilter(ctx, caller, filter);
  if (fleetId !== undefined) await demandWholeFleet(ctx, caller, fleetId, 'target.fleetId');
}

/** Makes a rollout. @throws as demandRollout and demandFilter. */
export async function createRollout(ctx: RolloutServices, caller: Caller, body: Body, path?: string): Promise<Rollout> {
  const { registry } = ctx;
  const { accountId } = caller;
  await demandFilter(ctx, caller, body.target);
  const isLong = (body.target.deviceIds?.length ?? 0) > targetsAtOnce;
  const row = await writeAs(isLong ? inThread(registry) : ctx, caller, undefined, async (tx) => {
    const { firmware, target, stages, startAt } = await demandRollout(ctx, tx, caller, body, path);
    const { deviceIds, ...shown } = target;
    const made = await insertRollout(ctx, tx, caller, {
      ...readNew(firmwareRolloutColumns, body),
      firmwarePackageId: firmware.id,
      target: JSON.stringify(shown),
      stages: JSON.stringify(stages),
      startAt: new Date(startAt).toISOString(),
      refused: '[]',
    });
    const targets = [...new Set(deviceIds ?? [])].map((deviceId) => ({ rolloutId: made.id, deviceId, accountId }));
    await insertMany(tx, 'firmwareTargets', targets);
    await recordRollout(ctx, tx, caller, made, 'created');
    return made;
  });
  ctx.firmwareEngine.changed(row);
  return (await findEntity(registry.query, 'firmwareRollouts', row.id)) ?? row;
}

/** A rollout that has not begun. */
export function insertRollout(
  { clock }: Pick<RolloutServices, 'clock'>,
  tx: Tx,
  caller: Caller,
  row: Pick<Rollout, 'firmwarePackageId' | 'target' | 'stages' | 'startAt' | 'refused'> &
    Pick<Rollout, 'deviceDeadlineSeconds' | 'maxFailurePercent' | 'consent' | 'continuous'>,
): Promise<Rollout> {
  return insert(tx, 'firmwareRollouts', {
    ...stamp(clock, caller),
    ...row,
    ...{ state: 'scheduled', stage: -1, stageBegun: null, threshold: null, cursor: null },
    ...{ failuresAccepted: 0, reason: null, finished: null, due: Date.parse(row.startAt) },
  });
}

/** @throws PlatformError 400/106 for none or several of the four. */
function readTarget(target: Target): Target {
  const named = Object.entries(target).filter(([, value]) => value !== undefined);
  if (named.length !== 1) throw invalid('target', 'must have one of deviceIds, filter, organizationId and fleetId');
  const { filter } = target;
  if (typeof filter === 'string') return target;
  demandNotEmpty(filter ?? {}, 'target.filter');
  demandBelow(filter ?? {}, 'target.filter.below');
  return target;
}

function readStages(stages: Body['stages']): Stage[] {
  const read = (stages ?? [{ percent: 100 }]).map(({ percent, pauseSeconds = usualPause }) => ({
    percent,
    pauseSeconds,
  }));
  for (const [place, { percent }] of read.entries())
    if (percent <= (read[place - 1]?.percent ?? 0))
      throw invalid(`stages.${place}.percent`, 'must be larger than the one before');
  if (read.at(-1)?.percent !== 100) throw invalid(`stages.${read.length - 1}.percent`, 'must be 100 in the last stage');
  return read;
}

function readStart(startAt: string | undefined, now: number): number {
  if (startAt === undefined) return now;
  const instant = parseDate(startAt);
  if (instant === undefined) throw invalid('startAt', 'must be an ISO 8601 date');
  return Math.max(instant, now);
}

async function demandTarget(tx: Db, firmware: Row<'firmwarePackages'>, target: Target) {
  const { accountId, deviceTemplateId } = firmware;
  const { deviceIds, filter, organizationId, fleetId } = target;
  if (fleetId !== undefined && !(await findLive(tx, 'fleets', accountId, fleetId)))
    throw unknownReference('target.fleetId');
  if (organizationId !== undefined && !(await findLive(tx, 'organizations', accountId, organizationId)))
    throw unknownReference('target.organizationId');
  const asked = typeof filter === 'string' ? undefined : filter?.deviceTemplateId;
  if (asked !== undefined && asked !== deviceTemplateId) throw otherTemplate('target.filter.deviceTemplateId');
  const foreign = deviceIds ? await foreignDevices(tx, { accountId, deviceTemplateId }, deviceIds) : [];
  if (foreign.length > 0) throw otherTemplate('target.deviceIds', ` Among them: ${foreign.join(', ')}.`);
}

function otherTemplate(path: string, more = ''): PlatformError {
  const message = `must name devices of the template of the package.${more}`;
  return new PlatformError('unknownReference', { details: [{ path, message }] });
}

/** Nothing new is offered until it is resumed; what has begun goes on. One that has ended stays as it is. */
export function pauseRollout(ctx: RolloutServices, caller: Caller, id: string): Promise<Rollout> {
  return changeAs(ctx, caller, id, 'paused', ['scheduled', 'running'], () => ({
    state: 'paused',
    due: null,
    reason: null,
  }));
}

/** It goes on, whatever has failed until now; a further failure may pause it again. Of those that came later, settleRollout counts anew. */
export async function resumeRollout(ctx: RolloutServices, caller: Caller, id: string): Promise<Rollout> {
  const { ages } = ctx;
  const row = await changeAs(ctx, caller, id, 'resumed', ['paused'], async (rollout, tx) => {
    const rows = tx.selectFrom('firmwareCounts').select('count').where('rolloutId', '=', id);
    const failed = await rows.where('stage', '=', rollout.stage).where('state', 'in', ['failed', 'timedOut']).execute();
    const failuresAccepted = failed.reduce((sum, { count }) => sum + count, 0);
    const due = dueOf(rollout, ages.now());
    return { state: rollout.stage < 0 ? 'scheduled' : 'running', failuresAccepted, reason: null, due };
  });
  await tellOpen(ctx, row.id);
  return row;
}

/** When a rollout that goes on has to be looked at. */
function dueOf(rollout: Rollout, now: number): number | null {
  if (rollout.stage < 0) return Math.max(Date.parse(rollout.startAt), now);
  return rollout.cursor === null ? (nextStageAt(rollout) ?? null) : now;
}

/** Ends a rollout: devices that have not ended are cancelled, and their offers void, when it resolves. */
export async function cancelRollout(ctx: RolloutServices, caller: Caller, id: string): Promise<Rollout> {
  const { clock, firmwareEngine } = ctx;
  const row = await changeAs(ctx, caller, id, 'cancelled', ['scheduled', 'running', 'paused'], () => {
    return { state: 'cancelled', finished: timestamp(clock), due: null, reason: null };
  });
  if (row.state !== 'cancelled') return row;
  for (;;) {
    const open = await openDevices(ctx.registry.query, id, '', atOnce);
    if (open.length === 0) break;
    await firmwareEngine.endDeliveries(open, 'cancelled', 'The rollout was cancelled.');
    await nextTurn();
  }
  return row;
}

/** Gives failed and timed-out devices another try, with a new deadline. */
export async function retryRollout(ctx: RolloutServices, caller: Caller, id: string): Promise<Rollout> {
  const { ages, clock, registry, firmwareEngine } = ctx;
  const before = await findEntity(registry.query, 'firmwareRollouts', id);
  if (!before || before.state === 'cancelled') throw invalid('id', 'the rollout has been cancelled');
  const retried: string[] = [];
  for (;;) {
    const { rows: batch, settled } = await registry.transaction(async (tx) => {
      const rows = await failedDevices(tx, id, retried.at(-1) ?? '');
      if (rows.length === 0) return { rows, settled: [] };
      // An older rollout may have taken them up since they failed.
      const older = new Set((await supersede(tx, clock, rows)).map(({ rolloutId }) => rolloutId));
      const deadline = ages.now() + before.deviceDeadlineSeconds * 1000;
      const again = { state: 'pending', bytes: null, code: null, message: null, files: null, deadline };
      await tx
        .updateTable('firmwareDeliveries')
        .set((eb) => ({ ...again, offer: eb('offer', '+', 1), updated: timestamp(clock) }))
        .where('rolloutId', '=', id)
        .where('deviceId', 'in', rows)
        .execute();
      const settled: Rollout[] = [];
      for (const one of older)
        settled.push(...[await settleRollout(tx, clock, one)].filter((changed) => changed !== undefined));
      return { rows, settled };
    });
    firmwareEngine.changed(...settled);
    await nextTurn();
    retried.push(...batch);
    if (batch.length < atOnce) break;
  }
  if (retried.length === 0) return before;
  const row = await changeAs(ctx, caller, id, 'retried', ['scheduled', 'running', 'paused', 'finished'], (rollout) => {
    const again = rollout.state === 'finished' ? { state: 'running', finished: null } : {};
    return { ...again, failuresAccepted: 0 };
  });
  await firmwareEngine.offersChanged(retried);
  return row;
}

/** The next devices after an id that have failed and that no newer rollout has: one that fails again meanwhile is not among them. */
async function failedDevices(tx: Tx, rolloutId: string, after: string): Promise<string[]> {
  const failed = await tx
    .selectFrom('firmwareDeliveries as own')
    .select('deviceId')
    .where('rolloutId', '=', rolloutId)
    .where('deviceId', '>', after)
    .where('state', 'in', ['failed', 'timedOut'])
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('firmwareDeliveries as other')
            .select('other.deviceId')
            .whereRef('other.deviceId', '=', 'own.deviceId')
            .whereRef('other.rolloutId', '>', 'own.rolloutId'),
        ),
      ),
    )
    .where(({ exists, selectFrom }) =>
      exists(
        selectFrom('devices')
          .select('devices.id')
          .whereRef('devices.id', '=', 'own.deviceId')
          .where('devices.deleted', 'is', null),
      ),
    )
    .orderBy('deviceId')
    .limit(atOnce)
    .execute();
  return failed.map(({ deviceId }) => deviceId);
}

async function tellOpen({ registry, firmwareEngine }: RolloutServices, rolloutId: string): Promise<void> {
  const longWork = new LongWork();
  for (let after = ''; ; ) {
    const ids = await openDevices(registry.query, rolloutId, after, atOnce);
    await firmwareEngine.offersChanged(ids);
    await longWork.giveWay();
    if (ids.length < atOnce) return;
    after = ids.at(-1) ?? after;
  }
}

async function changeAs(
  ctx: RolloutServices,
  caller: Caller,
  id: string,
  what: string,
  from: readonly string[],
  changes: (rollout: Rollout, tx: Tx) => Partial<Rollout> | Promise<Partial<Rollout>>,
): Promise<Rollout> {
  const row = await writeAs(ctx, caller, undefined, async (tx) => {
    const before = await findLive(tx, 'firmwareRollouts', caller.accountId, id);
    if (!before) throw new PlatformError('notFound');
    if (!from.includes(before.state)) return before;
    const stamped = { lastModified: timestamp(ctx.clock), lastModifiedById: caller.id };
    const changed = await changeRollout(tx, before, { ...(await changes(before, tx)), ...stamped });
    await recordRollout(ctx, tx, caller, changed, what);
    return changed;
  });
  ctx.firmwareEngine.changed(row);
  return row;
}

export async function showOne({ registry }: Pick<RolloutServices, 'registry'>, row: Rollout) {
  const db = registry.query;
  const named = db.selectFrom('firmwareTargets').select('deviceId').where('rolloutId', '=', row.id);
  const ids = (await named.orderBy('deviceId').execute()).map(({ deviceId }) => deviceId);
  return showRollout(row, (await countsOf(db, [row.id])).get(row.id), ids);
}

/** How many devices each of these rollouts names. */
export async function targetCounts(db: Db, ids: readonly string[]): Promise<Map<string, number>> {
  if (ids.length === 0) return new Map();
  const rows = await db
    .selectFrom('firmwareTargets')
    .select((eb) => ['rolloutId', eb.fn.countAll<number>().as('count')])
    .where('rolloutId', 'in', ids)
    .groupBy('rolloutId')
    .execute();
  return new Map(rows.map(({ rolloutId, count }) => [rolloutId, Number(count)]));
}

export function recordRollout(
  { audit }: { audit: Audit },
  tx: Tx,
  actor: Caller,
  { id, accountId, firmwarePackageId }: Rollout,
  what: string,
): Promise<void> {
  const target = { kind: 'firmwareRollout', id } as const;
  const details = { change: what, firmwarePackageId };
  return audit.record(tx, { event: 'firmwareRolloutChanged', outcome: 'success', accountId, actor, target, details });
}
