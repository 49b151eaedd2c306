/** What happened lately: claims, new devices, firmware updates. */
import { type RawBuilder, type SqlBool, sql } from 'kysely';
import { accountKey } from '../../../db/registry/account-key.ts';
import { isAccountWide, may } from '../../core/caller.ts';
import { inReach } from '../../entity/list-filters.ts';
import { type OverviewRequest, withRight } from './reading.ts';
import { maxRecent, type Recent } from './shape.ts';

/** Of each of the four kinds: however many devices are new, the claims are seen. */
const maxOfKind = maxRecent / 4;
/** Of the account, among which those in reach of a caller are looked for. */
const lookedAt = 1000;
/** New devices that are read: those of jobs are left out of them. */
const shownAtMost = 200;
/** A job that made so few, or a rollout that updated so few, shows its devices. */
const fewDevices = 3;

interface Happened {
  time: string;
  deviceId: string;
  serialNumber: string;
}

interface Job {
  id: string;
  created: string;
  finished: string | null;
  createdById: string;
  done: number;
}

export async function recentOf(request: OverviewRequest): Promise<Recent[]> {
  const { caller } = request;
  const ofFirmware = withRight(request, 'read', 'firmwareState');
  const [claims, updates, jobs, made] = await Promise.all([
    claimsOf(request),
    ofFirmware ? updatesOf(ofFirmware) : [],
    isAccountWide(caller) && may(caller, 'read', 'job') ? jobsOf(request) : [],
    newDevicesOf(request),
  ]);
  const isOfJob = ({ time, createdById }: { time: string; createdById: string }) =>
    jobs.some((job) => job.createdById === createdById && job.created <= time && time <= (job.finished ?? time));
  const found: Recent[] = [
    ...claims.map((one) => ({ kind: 'claim' as const, ...one, sentence: `${one.serialNumber} was claimed.` })),
    ...updates.map((one) => showUpdate(request, one)),
    ...jobs.map(({ id: jobId, created, finished, done: count }) => ({
      ...{ kind: 'newDevices' as const, time: finished ?? created, jobId, count },
      sentence: `A job made ${count.toLocaleString('en-US')} devices.`,
    })),
    ...made
      .filter((one) => !isOfJob(one))
      .slice(0, maxOfKind)
      .map(({ createdById: _, ...one }) => ({
        ...{ kind: 'newDevice' as const, ...one },
        sentence: `${one.serialNumber} was added.`,
      })),
  ];
  return found.sort((a, b) => (a.time < b.time ? 1 : -1)).slice(0, maxRecent);
}

function claimsOf(request: OverviewRequest): Promise<Happened[]> {
  const { caller, read } = request;
  return read<Happened>(
    sql`select a."time", d."id" as "deviceId", d."serialNumber"
      from (select "time", "targetId", "outcome" from "auditRecords"
        where "accountId" = ${caller.accountId} and "event" = 'association' order by "time" desc, "sequence" desc
        limit ${lookedAt}) as a
      join "devices" as d on d."id" = a."targetId"
      where a."outcome" = 'success' and ${isSeen(request, sql`a."time"`, 'claim')} order by a."time" desc limit ${maxOfKind}`,
  );
}

interface Update extends Happened {
  firmwareVersion: string;
  rolloutId: string;
  /** Devices that this rollout has updated. */
  count: number;
}

function showUpdate({ caller }: OverviewRequest, { count, rolloutId, ...one }: Update): Recent {
  const { time, firmwareVersion, serialNumber } = one;
  if (count <= fewDevices)
    return { kind: 'update', ...one, sentence: `${serialNumber} was updated to ${firmwareVersion}.` };
  const devices = `${count.toLocaleString('en-US')}${count === lookedAt ? ' or more' : ''} devices`;
  return {
    ...{ kind: 'updates', time, firmwareVersion, count, sentence: `${devices} were updated to ${firmwareVersion}.` },
    ...(may(caller, 'read', 'firmwareRollout') && { rolloutId }),
  };
}

/** The newest updates: the last one of a rollout stands for all where there are more than a few. */
function updatesOf(request: OverviewRequest): Promise<Update[]> {
  const { caller, read } = request;
  return read<Update>(
    sql`select "time", "deviceId", "serialNumber", "firmwareVersion", "rolloutId", "count"
      from (select u."updated" as "time", d."id" as "deviceId", d."serialNumber", p."firmwareVersion", u."rolloutId",
        count(*) over (partition by u."rolloutId") as "count",
        row_number() over (partition by u."rolloutId" order by u."updated" desc) as "place"
      from (select "updated", "deviceId", "rolloutId", "firmwarePackageId" from "firmwareDeliveries"
        where "accountId" = ${caller.accountId} and "state" = 'succeeded' order by "updated" desc limit ${lookedAt}) as u
      join "devices" as d on d."id" = u."deviceId"
      join "firmwareRollouts" as r on r."id" = u."rolloutId"
      join "firmwarePackages" as p on p."id" = coalesce(u."firmwarePackageId", r."firmwarePackageId")
      where ${isSeen(request, sql`u."updated"`)})
      where "count" <= ${fewDevices} or "place" = 1 order by "time" desc limit ${maxOfKind}`,
  );
}

function newDevicesOf(request: OverviewRequest): Promise<Array<Happened & { createdById: string }>> {
  const { caller, read } = request;
  return read<Happened & { createdById: string }>(
    sql`select d."created" as "time", d."id" as "deviceId", d."serialNumber", d."createdById"
      from (select "created", "id", "serialNumber", "createdById", "organizationId", "possessionSince", "deleted"
        from "devices" indexed by "devices_by_created"
        where substr("accountId", 27) = ${accountKey(caller.accountId)} and "deleted" is null
        order by "created" desc limit ${lookedAt}) as d
      where ${isSeen(request, sql`d."created"`)} order by d."created" desc limit ${shownAtMost}`,
  );
}

function jobsOf(request: OverviewRequest): Promise<Job[]> {
  const { caller, read } = request;
  return read<Job>(
    sql`select "id", "created", "finished", "createdById", "done" from "jobs"
      where "accountId" = ${caller.accountId} and "action" = 'provision' and "dryRun" = 0 and "done" > ${fewDevices}
      order by "created" desc limit ${maxOfKind}`,
  );
}

/** Whether a device `d` is live and in the reach of the caller, and was when this happened; a claim begins a possession. */
function isSeen({ caller, registry }: OverviewRequest, time: RawBuilder<unknown>, kind?: 'claim'): RawBuilder<SqlBool> {
  if (isAccountWide(caller)) return sql<SqlBool>`d."deleted" is null`;
  const isOwn = sql<SqlBool>`${time} ${kind === 'claim' ? sql`>=` : sql`>`} coalesce(d."possessionSince", '')`;
  return sql<SqlBool>`d."deleted" is null and ${isOwn} and ${inReach(registry.query, caller, 'd.organizationId')}`;
}
