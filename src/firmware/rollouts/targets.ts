/** The devices of a rollout, page by page, and which of them belong to a stage. */
import { hash } from 'node:crypto';
import { sql } from 'kysely';
import type { Db } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { PlatformError } from '../../core/errors.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import { defaultRoles } from '../../core/rights.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import { list } from '../../entity/list.ts';
import type { ListQuery } from '../../entity/list-query.ts';
import type { ListServices } from '../../entity/row-slices.ts';
import { deviceListing } from '../../registry/devices/device.ts';
import { compileDeviceFilter } from '../../registry/devices/filter.ts';
import { demandWholeFleet } from '../../registry/devices/fleet.ts';
import { selectedDevices } from '../../registry/devices/selection.ts';
import type { FilterServices } from '../../registry/filters.ts';
import { packageOf } from './deliveries.ts';
import { returning } from './returning.ts';
import type { Rollout, StoredTarget, Target } from './rollout.ts';

/** Devices that are taken up together. */
const pageSize = 100;
/** Devices that are looked at together, where they are counted. */
const walkSize = 500;
const wholeRange = 0xffffffff;

/** What targets are read with. */
export type TargetReads = FilterServices;

/** The tools to look up a target. */
export interface Aim {
  rolloutId: string;
  accountId: string;
  createdById: string;
  /** Undefined for devices of any template. */
  deviceTemplateId: string | undefined;
  target: StoredTarget;
}

export function aimOf(rollout: Rollout, deviceTemplateId: string): Aim {
  const { id: rolloutId, accountId, createdById, target } = rollout;
  return { rolloutId, accountId, createdById, deviceTemplateId, target: JSON.parse(target) as StoredTarget };
}

/** The next ids of live devices of the target, in the order of ids; `last` is where the next page begins, if there is one. */
export async function targetPage(
  reads: TargetReads,
  aim: Aim,
  after: string,
  limit = pageSize,
): Promise<{ ids: string[]; last: string | undefined }> {
  const db = reads.registry.query;
  const { filter, organizationId, fleetId, revertOf } = aim.target;
  const page = await (revertOf !== undefined
    ? returningDevices(reads, aim, revertOf, { after, limit })
    : filter || organizationId || fleetId
      ? listed(reads, aim, { after, limit })
      : named(db, aim, { after, limit }));
  const last = page.length < limit ? undefined : page.at(-1);
  return { ids: page, last };
}

/** The whole target, a page at a time, and a look around for others after each. */
export async function* pagesOf(reads: TargetReads, aim: Aim): AsyncGenerator<string[]> {
  const longWork = new LongWork();
  for (let after: string | undefined = ''; after !== undefined; ) {
    const page: { ids: string[]; last: string | undefined } = await targetPage(reads, aim, after, walkSize);
    yield page.ids;
    after = page.last;
    await longWork.giveWay();
  }
}

/** Where a page begins, and how many devices it has. */
interface Cut {
  after: string;
  limit: number;
}

async function listed(reads: TargetReads, aim: Aim, cut: Cut): Promise<string[]> {
  return selectedDevices(reads, callerOf(aim), await queryOf(reads, aim), cut);
}

/** On a thread: most devices of the former rollout may be none of them. */
async function returningDevices({ registry, readers }: TargetReads, aim: Aim, rolloutId: string, cut: Cut) {
  const query = sql<{ deviceId: string }>`select "deviceId" from ${returning(rolloutId, cut.after)}
    where "firmwarePackageId" is not null order by "deviceId" limit ${cut.limit}`;
  const rows = await readers.read(laneOf(callerOf(aim)), query.compile(registry.query));
  return rows.map(({ deviceId }) => deviceId);
}

/** A target is read as the account reads it. */
function callerOf({ accountId, createdById }: Aim): Caller {
  return { kind: 'admin', id: createdById, accountId, role: defaultRoles.account };
}

/**
 * The list of devices that a target with a filter, an organization or a fleet stands for.
 * @throws PlatformError 400/106 for a filter that names what is gone.
 */
async function queryOf(reads: TargetReads, aim: Aim): Promise<ListQuery> {
  const { accountId, deviceTemplateId, target } = aim;
  const { filter = {}, organizationId, fleetId } = target;
  const place = organizationId ? { organizationId, below: true } : {};
  const wanted = { ...place, ...(deviceTemplateId !== undefined && { deviceTemplateId }), accountId };
  if (fleetId !== undefined)
    return { ...wanted, filter: await demandWholeFleet(reads, callerOf(aim), fleetId, 'target.fleetId') };
  if (typeof filter === 'string') return { ...wanted, filter: await compileDeviceFilter(reads, callerOf(aim), filter) };
  return { ...filter, ...wanted, filter: undefined };
}

/** Devices that are named one by one: by the target itself, or by the rows of its rollout. */
async function named(db: Db, { rolloutId, accountId, deviceTemplateId, target }: Aim, { after, limit }: Cut) {
  const ids = target.deviceIds
    ? sql<string>`(select value from json_each(${JSON.stringify(target.deviceIds)}))`
    : sql<string>`(select "deviceId" from "firmwareTargets" where "rolloutId" = ${rolloutId} and "deviceId" > ${after})`;
  // The plus keeps SQLite from an index of the whole template.
  const { rows } = await sql<{ id: string }>`
    select "id" from "devices" where "id" in ${ids} and "id" > ${after} and +"accountId" = ${accountId}
    and +"deviceTemplateId" = ${deviceTemplateId} and "deleted" is null order by "id" limit ${limit}`.execute(db);
  return rows.map(({ id }) => id);
}

/** The filters of a target that is no expression. */
function filtersOf({ filter = {} }: StoredTarget): [name: string, value: unknown][] {
  return typeof filter === 'string' ? [] : Object.entries(filter);
}

type Reads = TargetReads & ListServices;

/** Devices that are counted at most, and pages that are looked through for them. */
const maxCounted = 1000;
const maxPages = 6;

/** What a new rollout answers about its target, as far as it is known at once. */
export interface Matched {
  devices?: number;
  withoutFirmwareVersion?: number;
  message?: string;
}

/**
 * What the target of a new rollout matches now: a filter may match nothing, and misses devices that never told their
 * version. Undefined while too many reads wait.
 */
export async function matchedBy(reads: Reads, rollout: Rollout, { deviceIds }: Target): Promise<Matched | undefined> {
  try {
    const aim = aimOf(rollout, (await packageOf(reads.registry.query, { rolloutId: rollout.id })).deviceTemplateId);
    // Those that are named have been looked up one by one.
    const devices = deviceIds ? new Set(deviceIds).size : await countMatched(reads, aim);
    const without = await countWithoutVersion(reads, aim);
    const sentences = [
      ...(devices === 0 ? ['No device matches the target.'] : []),
      ...(without
        ? [
            `${without} ${without === 1 ? 'device has' : 'devices have'} no firmwareVersion: the filter does not match them.`,
          ]
        : []),
    ];
    return {
      ...(devices !== undefined && { devices: Math.min(devices, maxCounted) }),
      ...(without !== undefined && { withoutFirmwareVersion: without }),
      ...(sentences.length > 0 && { message: sentences.join(' ') }),
    };
  } catch (error) {
    if (error instanceof PlatformError && error.kind === 'tooMany') return undefined;
    throw error;
  }
}

/** Undefined when fewer were found among so many that they cannot be counted at once. */
async function countMatched(reads: TargetReads, aim: Aim): Promise<number | undefined> {
  let [devices, pages] = [0, 0];
  for await (const ids of pagesOf(reads, aim)) {
    if (pages === maxPages) return undefined;
    pages += 1;
    devices += ids.length;
    if (devices >= maxCounted) break;
  }
  return devices;
}

/** Devices that have no version and all else that a filter asks for; undefined where the filter does not ask for a version. */
async function countWithoutVersion(reads: Reads, aim: Aim): Promise<number | undefined> {
  const { firmwareVersion, ...others } = Object.fromEntries(filtersOf(aim.target));
  const rest = { ...aim, target: { filter: others } };
  if (firmwareVersion === undefined) return undefined;
  // Every version contains the empty text.
  return (await countListed(reads, rest)) - (await countListed(reads, rest, { firmwareVersion: '' }));
}

/** How many devices a filter or an organization stands for; `more` are filters as a list takes them. */
async function countListed(reads: Reads, aim: Aim, more: { firmwareVersion?: string } = {}): Promise<number> {
  const query = { ...(await queryOf(reads, aim)), ...more, results: false };
  return (await list(reads, callerOf(aim), deviceListing, query)).meta?.count ?? 0;
}

/** How many devices of other templates a target stands for, of which its rollout takes `taken`. */
export async function countOthers(reads: Reads, aim: Aim, taken: number): Promise<number> {
  const { deviceIds: ids } = aim.target;
  // These name devices of the template alone.
  if (ids || filtersOf(aim.target).some(([name]) => name === 'deviceTemplateId')) return 0;
  const any = { ...aim, deviceTemplateId: undefined };
  return Math.max(0, (await countListed(reads, any)) - taken);
}

/** Where a device is in the order in which a rollout takes devices up: even for any part of them, from 0 to 2^32 - 1. */
export function placeOf(rolloutId: string, deviceId: string): number {
  return hash('sha256', `${rolloutId}/${deviceId}`, 'buffer').readUInt32BE(0);
}

/** The largest place that belongs to the first `percent` of the devices there are now; one device at least. */
export async function thresholdOf(reads: TargetReads, aim: Aim, percent: number): Promise<number> {
  if (percent >= 100) return wholeRange;
  const places: Uint32Array[] = [];
  let count = 0;
  for await (const ids of pagesOf(reads, aim)) {
    places.push(Uint32Array.from(ids, (id) => placeOf(aim.rolloutId, id)));
    count += ids.length;
  }
  const all = new Uint32Array(count);
  let at = 0;
  for (const batch of places) {
    all.set(batch, at);
    at += batch.length;
  }
  all.sort();
  return all[shareOf(percent, count) - 1] ?? 0;
}

/** How many of `count` devices have begun with the stage of this percentage. */
export function shareOf(percent: number, count: number): number {
  return Math.ceil((percent * count) / 100);
}

/** Ids of devices that a body names and that are not live devices of the account and template: the first few. */
export async function foreignDevices(
  db: Db,
  { accountId, deviceTemplateId }: Pick<Row<'devices'>, 'accountId' | 'deviceTemplateId'>,
  ids: readonly string[],
): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    select value as "id" from json_each(${JSON.stringify(ids)})
    where not exists (select 1 from "devices" where "devices"."id" = value and "accountId" = ${accountId}
      and "deviceTemplateId" = ${deviceTemplateId} and "deleted" is null) limit 10`.execute(db);
  return rows.map(({ id }) => id);
}
