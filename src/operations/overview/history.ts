/**
 * Connected devices, messages and refusals of an account by five minutes, the running ones included. The thread that reads them
 * writes their JSON too: there are two thousand in a week.
 */
import { type RawBuilder, sql } from 'kysely';
import { may } from '../../core/caller.ts';
import { inReach } from '../../entity/list-filters.ts';
import { activityStep, stepOf } from '../../ports/activity.ts';
import type { OverviewRequest } from './reading.ts';
import type { Overview } from './shape.ts';

const hour = 60 * 60_000;
const day = 24 * hour;

/**
 * `items` are the JSON of the history's items, some in each text; `causes` are refusals of the last day, by cause. Refusals are
 * for who may read devices, and so those of each.
 */
export type History = Required<Pick<Overview, 'messages'>> & {
  refusals: Overview['refusals'];
  items: string[];
  causes: Map<string, number>;
};

/** `counts` say how many devices are connected now. */
export async function historyOf(
  { broker, caller, clock, read }: OverviewRequest,
  hours: number,
  counts: Promise<{ online: number }>,
): Promise<History> {
  const { accountId } = caller;
  const seesRefusals = may(caller, 'read', 'device');
  const now = clock.now();
  const running = broker.runningActivity(accountId);
  const last = stepOf(now);
  const ofDay = sql`"accountId" = ${accountId} and "time" >= ${stepOf(now - day)}`;
  const [past, [own], [sums], found, { online }] = await Promise.all([
    read<{ items: string }>(stepsBetween(accountId, stepOf(now - hours * hour), last, seesRefusals)),
    read<Counted>(
      sql`select "messages", "refusals" from "activity" where "accountId" = ${accountId} and "time" = ${last}`,
    ),
    read<Counted>(
      sql`select sum("messages") as "messages", sum("refusals") as "refusals" from "activity" where ${ofDay}`,
    ),
    read<{ cause: string; count: number }>(
      sql`select one."key" as "cause", sum(one."value") as "count" from "activity", json_each("causes") as one
        where ${ofDay} group by one."key"`,
    ),
    counts,
  ]);
  const causes = new Map(Object.entries(running.causes));
  for (const { cause, count } of found) causes.set(cause, (causes.get(cause) ?? 0) + count);
  const ofLast = {
    ...{ time: new Date(last).toISOString(), connected: online },
    messages: running.messages + (own?.messages ?? 0),
    ...(seesRefusals && { refusals: running.refusals + (own?.refusals ?? 0) }),
  };
  const messages = running.messages + (sums?.messages ?? 0);
  return {
    messages: { perSecond: running.messagesPerSecond, perSecondLastDay: (messages * 1000) / day, lastDay: messages },
    refusals: seesRefusals ? { lastDay: running.refusals + (sums?.refusals ?? 0) } : undefined,
    items: [...past.map(({ items }) => items), JSON.stringify(ofLast)],
    causes,
  };
}

/** Refusals of the last day, of the devices in the reach of an end-user: those that each device still has, since they are its own. */
export async function ownRefusalsOf({ caller, clock, read, registry }: OverviewRequest): Promise<Overview['refusals']> {
  const [found] = await read<{ lastDay: number }>(sql`
      select count(*) as "lastDay" from "devices" as d join "refusals" as r on r."deviceId" = d."id"
      where d."accountId" = ${caller.accountId} and d."deleted" is null and ${inReach(registry.query, caller, 'd.organizationId')}
        and r."time" > max(${new Date(clock.now() - day).toISOString()}, coalesce(d."possessionSince", ''))`);
  return { lastDay: found?.lastDay ?? 0 };
}

interface Counted {
  messages: number | null;
  refusals: number | null;
}

/** The JSON of each five minutes from `first` to those before `last`, of a day in each row. */
function stepsBetween(accountId: string, first: number, last: number, seesRefusals: boolean): RawBuilder<unknown> {
  // Literals, for a parameter is no integer: with it each of the five minutes would be a day of its own.
  const [begin, end, step, ofDay] = [first, last, activityStep, day].map((number) => sql.lit(number));
  const refusals = seesRefusals ? sql`, 'refusals', coalesce("refusals", 0)` : sql``;
  return sql`with recursive "steps"("at") as
      (select ${begin} union all select "at" + ${step} from "steps" where "at" + ${step} < ${end}),
    "shown" as (select "at", json_object(
        'time', strftime('%Y-%m-%dT%H:%M:%S.000Z', "at" / 1000, 'unixepoch'), 'connected', coalesce("connected", 0),
        'messages', coalesce("messages", 0)${refusals}) as "item"
      from "steps" left join "activity" on "accountId" = ${accountId} and "time" = "at")
    select group_concat("item", ',' order by "at") as "items" from "shown" group by "at" / ${ofDay} order by "at"`;
}
