/** What somebody should look at, each with a sentence, a count and where it is listed. */
import { type RawBuilder, sql } from 'kysely';
import { accountKey } from '../../../db/registry/account-key.ts';
import { warnedDays } from '../../certificates/expiry.ts';
import { isAccountWide, may } from '../../core/caller.ts';
import { limits } from '../../core/limits/table.ts';
import { type LimitUse, limitStates } from '../../core/limits/use.ts';
import { list } from '../../entity/list.ts';
import { deviceListing } from '../../registry/devices/device.ts';
import { refusedFor } from './causes.ts';
import { type OverviewRequest, withRight } from './reading.ts';
import { type Attention, maxOfKind } from './shape.ts';

const day = 24 * 60 * 60_000;
/** How long a job that has failed needs attention; milliseconds. */
const jobsShown = 7 * day;
/** Seconds that a guaranteed message may wait before its bridge is behind. */
const behindAfter = 60;
/** Percent of a limit. */
const nearLimit = 80;
/** Counting ends here. */
const maxCounted = 10_000;

/** All of it, the most urgent first. `history` has the refusals of the last day. */
export async function attentionOf(
  request: OverviewRequest,
  use: LimitUse,
  history: Promise<{ causes: ReadonlyMap<string, number> } | undefined>,
): Promise<Attention[]> {
  const { caller } = request;
  const ofDevices = withRight(request, 'read', 'device');
  const devices = ofDevices ? devicesOf(ofDevices) : [];
  if (!isAccountWide(caller)) return devices;
  const found = await Promise.all([
    may(caller, 'read', 'supportRequest') ? supportOf(request) : [],
    devices,
    may(caller, 'read', 'auditRecord') ? refusalsOf(request, history) : [],
    may(caller, 'read', 'firmwareRollout') ? rolloutsOf(request) : [],
    may(caller, 'read', 'job') ? jobsOf(request) : [],
    may(caller, 'read', 'bridge') ? bridgesOf(request) : [],
    may(caller, 'read', 'mqttCertificate') ? certificatesOf(request) : [],
    may(caller, 'read', 'account') ? limitsOf(request, use) : [],
    may(caller, 'read', 'account') ? clockOf(request) : [],
  ]);
  return found.flat();
}

async function devicesOf(request: OverviewRequest): Promise<Attention[]> {
  const { accountId } = request.caller;
  const offlineSince = dateBefore(request, day);
  const [offline, silent] = isAccountWide(request.caller)
    ? await lostOfAccount(request, offlineSince)
    : [await countListed(request, { offlineSince }), await countListed(request, { silent: true })];
  return [
    {
      kind: 'devicesOffline' as const,
      count: offline,
      sentence: `${many(offline, 'device')} ${offline === 1 ? 'was' : 'were'} connected in the last day and ${isOrAre(offline)} offline now.`,
      query: pathOf('devices', { accountId, offlineSince }),
    },
    {
      kind: 'devicesSilent' as const,
      count: silent,
      sentence: `${many(silent, 'device')} ${isOrAre(silent)} connected and ${silent === 1 ? 'has' : 'have'} not sent a message for much longer than usual.`,
      query: pathOf('devices', { accountId, silent: 'true' }),
    },
  ].filter(isCounted);
}

/** The newest requests for support that are open. */
async function supportOf({ caller, read }: OverviewRequest): Promise<Attention[]> {
  const rows = await read<{ id: string; deviceId: string; serialNumber: string; message: string | null }>(
    sql`select s."id", s."deviceId", d."serialNumber", s."message" from "supportRequests" as s
      join "devices" as d on d."id" = s."deviceId" and d."deleted" is null
      where s."accountId" = ${caller.accountId} order by s."created" desc, s."id" desc limit ${maxOfKind}`,
  );
  return rows.map(({ id, deviceId, serialNumber: name, message }) => ({
    ...{ kind: 'supportRequested', count: 1, id, deviceId, name, message, query: `devices/${deviceId}/support` },
    sentence: `Somebody asks for support with ${name}${message ? `: “${message}”` : '.'}`,
  }));
}

/** How many devices are offline since then or later, and how many are silent. */
async function lostOfAccount({ caller, read }: OverviewRequest, since: string): Promise<[number, number]> {
  const of = sql`from "devicePresence" where "account" = ${accountKey(caller.accountId)}`;
  const [found] = await read<{ offline: number; silent: number }>(
    sql`select (select count(*) from (select 1 ${of} and "offlineSince" >= ${since} limit ${maxCounted})) as "offline",
      (select count(*) from (select 1 ${of} and "silent" = 1 limit ${maxCounted})) as "silent"`,
  );
  return [found?.offline ?? 0, found?.silent ?? 0];
}

async function countListed(request: OverviewRequest, filter: object): Promise<number> {
  const { caller } = request;
  const query = { accountId: caller.accountId, pageSize: 1, results: false, ...filter };
  const { meta } = await list(request, caller, deviceListing, query);
  return meta?.count ?? 0;
}

async function refusalsOf(
  request: OverviewRequest,
  history: Promise<{ causes: ReadonlyMap<string, number> } | undefined>,
) {
  const { accountId } = request.caller;
  const causes = (await history)?.causes ?? [];
  const most = [...causes].sort(([, a], [, b]) => b - a).slice(0, maxOfKind);
  return most.map(
    ([cause, count]): Attention => ({
      kind: 'refusals',
      count,
      cause,
      sentence: `${many(count, 'refusal')} in the last day: ${refusedFor(cause)}.`,
      query: pathOf('refusals', { accountId, cause, from: dateBefore(request, day) }),
    }),
  );
}

interface OpenRollout {
  id: string;
  state: string;
  name: string | null;
  failed: number;
  timedOut: number;
  waiting: number;
}

async function rolloutsOf(request: OverviewRequest): Promise<Attention[]> {
  const { caller, read } = request;
  const countIn = (states: RawBuilder<unknown>) => sql<number>`coalesce((select sum("count") from "firmwareCounts" as c
    where c."rolloutId" = r."id" and c."state" in (${states})), 0)`;
  const rows = await read<OpenRollout>(
    sql`select * from (
      select r."id", r."state", (select "name" from "firmwarePackages" where "id" = r."firmwarePackageId") as "name",
        ${countIn(sql`'failed'`)} as "failed", ${countIn(sql`'timedOut'`)} as "timedOut",
        ${countIn(sql`'pending', 'offered', 'downloading', 'downloaded', 'installing'`)} as "waiting"
      from "firmwareRollouts" as r
      where r."accountId" = ${caller.accountId} and r."deleted" is null and r."state" in ('running', 'paused')
      order by r."created" desc)
      where "state" = 'paused' or "failed" + "timedOut" > 0 limit ${maxOfKind}`,
  );
  return rows.map(showRollout);
}

function showRollout({ id, state, name, failed, timedOut, waiting }: OpenRollout): Attention {
  const all = failed + timedOut;
  const devices = `firmware/rollouts/${id}/devices`;
  const failures = `${many(all, 'device')} ${all === 1 ? 'has' : 'have'} failed`;
  // The list shows one state or all.
  const filter = timedOut === 0 && failed > 0 ? '?state=failed' : failed === 0 && timedOut > 0 ? '?state=timedOut' : '';
  const about = {
    ...{ id, name: name ?? '', count: all > 0 ? all : waiting },
    query: devices + filter,
  };
  if (state === 'paused')
    return {
      ...{ kind: 'rolloutPaused', ...about },
      sentence: `The rollout of ${name} is paused${all > 0 ? `: ${failures}` : ''}.`,
    };
  return { kind: 'rolloutFailing', ...about, sentence: `The rollout of ${name} is running, and ${failures}.` };
}

async function jobsOf(request: OverviewRequest): Promise<Attention[]> {
  const { caller, read } = request;
  const rows = await read<{ id: string; action: string; state: string; total: number; failed: number }>(
    sql`select "id", "action", "state", "total", "failed" from "jobs"
      where "accountId" = ${caller.accountId} and "created" >= ${dateBefore(request, jobsShown)} and "dryRun" = 0
        and ("failed" > 0 or "state" = 'failed')
      order by "created" desc limit ${maxOfKind}`,
  );
  return rows.map(({ id, action, state, total, failed }) => ({
    kind: 'jobFailed',
    count: failed,
    id,
    name: action,
    sentence:
      failed > 0
        ? `${number(failed)} of ${many(total, 'row')} of a job (${action}) failed.`
        : `A job (${action}) ended because it could not go on.`,
    query: state === 'failed' && failed === 0 ? `provisioning/jobs/${id}` : `provisioning/jobs/${id}/rows?state=failed`,
  }));
}

async function bridgesOf({ bridges, caller: { accountId } }: OverviewRequest): Promise<Attention[]> {
  return bridges.troubleOf(accountId).flatMap(({ id, name, pending, seconds, isFailing, dead }) => {
    const found: Attention[] = [];
    // Where all that it could not deliver is a dead letter, the other row tells it.
    if ((isFailing && pending + dead === 0) || (pending > 0 && (isFailing || seconds >= behindAfter)))
      found.push({
        ...{ kind: 'bridgeBehind', count: pending, id, name },
        sentence: `The bridge ${name} ${isFailing ? 'cannot deliver' : 'is behind'}${pending > 0 ? `: ${many(pending, 'message')} ${isOrAre(pending)} waiting` : ''}.`,
        query: `bridges/${id}`,
      });
    if (dead > 0)
      found.push({
        ...{ kind: 'bridgeDeadLetters', count: dead, id, name },
        sentence: `The bridge ${name} could not deliver ${many(dead, 'message')}.`,
        query: `bridges/${id}/dead-letters`,
      });
    return found;
  });
}

async function certificatesOf(request: OverviewRequest): Promise<Attention[]> {
  const { caller, read } = request;
  const { accountId } = caller;
  const expiresBefore = dateBefore(request, -warnedDays * day);
  const [found] = await read<{ certificates: number; authorities: number }>(
    sql`select ${expiring('certificates', accountId, expiresBefore)} as "certificates",
      ${expiring('certificateAuthorities', accountId, expiresBefore)} as "authorities"`,
  );
  const { certificates = 0, authorities = 0 } = found ?? {};
  const ends = (count: number) =>
    `${count === 1 ? 'ends' : 'end'} within ${warnedDays} days, or ${count === 1 ? 'has' : 'have'} ended.`;
  return [
    {
      kind: 'authoritiesExpiring' as const,
      count: authorities,
      sentence: `${many(authorities, 'certificate authority', 'certificate authorities')} ${ends(authorities)}`,
      query: pathOf('access/certificate-authorities', { accountId, expiresBefore }),
    },
    {
      kind: 'certificatesExpiring' as const,
      count: certificates,
      sentence: `${many(certificates, 'certificate')} ${ends(certificates)}`,
      query: pathOf('access/mqtt-certificates', { accountId, expiresBefore }),
    },
  ].filter(isCounted);
}

function expiring(table: string, accountId: string, before: string): RawBuilder<unknown> {
  return sql`(select count(*) from (select 1 from ${sql.table(table)}
    where "accountId" = ${accountId} and "deleted" is null and "validTo" < ${before} limit ${maxCounted}))`;
}

function clockOf({ ages }: OverviewRequest): Attention[] {
  const days = Math.floor(ages.ahead / day);
  if (days < 1) return [];
  const sentence = `The clock of the server has jumped ahead by ${many(days, 'day')}: nothing is deleted for its age until it is right, or confirmed.`;
  return [{ kind: 'clockDoubted', count: days, sentence, query: 'usage' }];
}

async function limitsOf({ caller: { accountId }, config, read }: OverviewRequest, use: LimitUse): Promise<Attention[]> {
  const states = await limitStates(use, config.limits, accountId, read);
  return states
    .flatMap(({ name, limit, used }): Attention[] => {
      const percent = limit > 0 && used !== null ? Math.floor((used * 100) / limit) : 0;
      if (percent <= nearLimit) return [];
      const about = limits.find((one) => one.name === name)?.variable ?? name;
      return [
        {
          ...{ kind: 'limit', count: percent, name },
          sentence: `${percent} % of the limit ${about} ${percent === 1 ? 'is' : 'are'} used.`,
          query: 'usage',
        },
      ];
    })
    .sort((a, b) => b.count - a.count)
    .slice(0, maxOfKind);
}

/** The instant so many milliseconds ago. */
function dateBefore({ clock }: Pick<OverviewRequest, 'clock'>, milliseconds: number): string {
  return new Date(clock.now() - milliseconds).toISOString();
}

function pathOf(path: string, query: Record<string, string>): string {
  return `${path}?${new URLSearchParams(query)}`;
}

function isCounted({ count }: { count: number }): boolean {
  return count > 0;
}

function number(count: number): string {
  return count.toLocaleString('en-US') + (count === maxCounted ? ' or more' : '');
}

function many(count: number, one: string, more = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : more}`;
}

function isOrAre(count: number): string {
  return count === 1 ? 'is' : 'are';
}
