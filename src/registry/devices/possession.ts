/**
 * Change of possession: a device that leaves the tree of its top-level organization tells its next people nothing of before.
 * To be in no organization is a tree of its own, once it has left one. Code that moves devices asks here, in the same transaction.
 */
import { sql } from 'kysely';
import type { Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import { type Caller, isAccountWide } from '../../core/caller.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import { PlatformError } from '../../core/errors.ts';
import { livePath } from '../../entity/standing.ts';
import type { Changes } from '../../entity/verbs.ts';
import { endGiveAway, longAgo } from '../credentials/stored-codes.ts';

type Left = Pick<Row<'devices'>, 'leftTree' | 'leftFirst' | 'leftSince'>;
const nobodyLeft: Left = { leftTree: null, leftFirst: null, leftSince: null };

/** Of a new device. */
export const firstPossession = { possession: 0, possessionFirst: 0, possessionSince: null, ...nobodyLeft };

/** @throws PlatformError 403/21 for `keepHistory` of a caller that does not reach the whole account. */
export function demandKeeping(caller: Caller, keepHistory: boolean | undefined): void {
  if (keepHistory === true && !isAccountWide(caller))
    throw new PlatformError('forbidden', {
      message: 'Only callers of the whole account hand the history of a device over.',
      details: [{ path: 'keepHistory', message: 'is not permitted' }],
    });
}

const noAddress = { externalIp: null, geoIpLatitude: null, geoIpLongitude: null, reverseDns: null };

/**
 * What changes of a device that goes to another organization, or to none: its place, and from when on its people see it. A code with
 * which its owner gives it away ends when the device is no longer theirs.
 */
export async function placing(
  tx: Tx,
  clock: Clock,
  device: Row<'devices'>,
  to: string | null,
  keepHistory: boolean,
): Promise<Changes<'devices'>> {
  const { organizationId: from, possessionFirst, possessionSince, leftTree, leftFirst, leftSince } = device;
  const [tree, next] = [await topOf(tx, from), await topOf(tx, to)];
  const isFirst = from === null && leftTree === null;
  if (tree === next || isFirst) return { organizationId: to };
  await endGiveAway(tx, clock, device.id);
  // An owner that gets it back, or gets its history too, sees what the last owner saw, wherever the device was in between.
  if (keepHistory || (leftTree !== null && leftTree === next)) {
    const seen = leftFirst === null ? {} : { possessionFirst: leftFirst, possessionSince: leftSince };
    return { organizationId: to, ...seen, ...nobodyLeft };
  }
  const possession = device.possession + 1;
  const left = { leftTree: tree, leftFirst: possessionFirst, leftSince: possessionSince };
  return {
    organizationId: to,
    possession,
    possessionFirst: possession,
    possessionSince: later(timestamp(clock), possessionSince),
    // Where it was for its last owner.
    ...(device.lastConnected !== null && noAddress),
    ...(to === null ? left : nobodyLeft),
  };
}

/** As placing without keeping, of all devices below an organization that has come below another top-level one. */
export async function treeChanged(tx: Tx, clock: Clock, organizationId: string): Promise<void> {
  const now = timestamp(clock);
  const below = sql`with recursive "below"("id") as (
      select ${organizationId} union select o."id" from "organizations" o join "below" b on o."parentId" = b."id"
    )`;
  const within = sql`"organizationId" in (select "id" from "below")`;
  await sql`${below} update "associationCodes" set "expires" = ${longAgo} where "kind" = 'giveAway' and "expires" > ${now}
    and "deviceId" in (select "id" from "devices" where ${within})`.execute(tx);
  await sql`${below} update "devices" set "possession" = "possession" + 1, "possessionFirst" = "possession" + 1,
      "possessionSince" = max(coalesce("possessionSince", ''), ${now})
    where ${within}`.execute(tx);
}

/** The top-level organization above one, or itself. */
export async function topOf(tx: Tx, organizationId: string | null): Promise<string | null> {
  return (await livePath(tx, organizationId)).at(-1) ?? null;
}

function later(one: string, other: string | null): string {
  return other !== null && other > one ? other : one;
}
