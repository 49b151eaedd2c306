/** What is told of a rollout while it runs: why devices fail, how fast it goes, when its next stage begins. */
import { sql } from 'kysely';
import type { Caller } from '../../core/caller.ts';
import type { Clock } from '../../core/clock.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import { hasEnded, maxFailures, nextStageAt, type Rollout, type Watched } from './rollout.ts';
import type { TargetReads } from './targets.ts';

/** Minutes over which the speed is taken. */
const speedMinutes = 5;

interface Failure {
  message: string | null;
  count: number;
  deviceId: string;
  serialNumber: string;
  time: string;
}

/** Both counts are read on a thread: a rollout may have 100,000 devices that have failed. */
export async function cockpitOf(
  { registry, readers, ages }: TargetReads & { ages: Clock },
  caller: Caller,
  rollout: Rollout,
): Promise<Watched> {
  const { id, accountId } = rollout;
  const minutes = Math.min(speedMinutes, Math.max(1, (ages.now() - Date.parse(rollout.startAt)) / 60_000));
  const since = new Date(ages.now() - minutes * 60_000).toISOString();
  const failures = sql<Failure>`
    select f."message", f."count", f."time", f."deviceId", coalesce(d."serialNumber", '') as "serialNumber" from (
      select coalesce("message", 'code ' || "code") as "message", sum("count") as "count", max("time") as "time", "deviceId" from (
        select "message", "code", count(*) as "count", max("updated") as "time", "deviceId" from "firmwareDeliveries"
        where "rolloutId" = ${id} and "state" in ('failed', 'timedOut') group by "message", "code")
      group by 1 order by 2 desc, 3 desc limit ${maxFailures}) as f
    left join "devices" as d on d."id" = f."deviceId" order by 2 desc, 3 desc`;
  const succeeded = sql<{ count: number }>`select count(*) as "count" from "firmwareDeliveries"
    where "accountId" = ${accountId} and "state" = 'succeeded' and "updated" > ${since} and "rolloutId" = ${id}`;
  const [failed, [speed]] = (await readers.readAll(
    laneOf(caller),
    [failures, succeeded].map((query) => query.compile(registry.query)),
  )) as [Failure[], Array<{ count: number }>];
  const next = hasEnded(rollout) ? undefined : nextStageAt(rollout);
  return {
    failures: failed.map(({ message, count, ...newest }) => ({ message, count, newest })),
    perMinute: Math.round(((speed?.count ?? 0) / minutes) * 10) / 10,
    stageEndsAt: next === undefined ? null : new Date(next).toISOString(),
  };
}
