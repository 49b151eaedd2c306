/** What is in organizations, and in those below them: devices, organizations and people. */
import { sql } from 'kysely';
import { type Static, Type } from 'typebox';
import type { Caller } from '../core/caller.ts';
import { isAccountWide } from '../core/caller.ts';
import { laneOf } from '../core/limits/lanes.ts';
import { childCounts } from '../entity/expand.ts';
import { inReach } from '../entity/list-filters.ts';
import type { RegistryContext } from './context.ts';

const Counts = Type.Object(
  {
    devices: Type.Integer(),
    devicesBelow: Type.Integer({ description: 'With its own.' }),
    organizations: Type.Integer({ description: 'Directly below it.' }),
    organizationsBelow: Type.Integer({ description: 'All below it, without itself.' }),
    people: Type.Integer({ description: 'End-users directly in it.' }),
  },
  { title: 'OrganizationCounts', description: 'With `counts=true`: what is live and what the caller may read.' },
);
export const treeCounts = Type.Optional(Counts);

/** The counts of each of these organizations of the caller's reach, on a thread: there may be many below them. */
export async function countTrees(
  { registry, readers, access }: Pick<RegistryContext, 'registry' | 'readers' | 'access'>,
  caller: Caller,
  ids: readonly string[],
): Promise<Map<string, Static<typeof Counts>>> {
  const db = registry.query;
  const { accountId } = caller;
  const [ofDevices, ofPeople] = [access.narrow(caller, 'read', 'device'), access.narrow(caller, 'read', 'endUser')];
  const seesPeople = access.may(caller, 'read', 'endUser');
  const isWide = isAccountWide(caller) && access.may(caller, 'read', 'device');
  const isSeen = isWide ? sql`true` : inReach(db, ofDevices, 'id');
  // A caller that reaches an organization reaches what is below it. Devices may need another right.
  const counts = sql<Omit<Static<typeof Counts>, 'people'> & { root: string }>`
    with recursive "tree"("root", "id", "level") as (
      select "value", "value", 0 from json_each(${JSON.stringify(ids)})
      union all
      select "root", o."id", "level" + 1 from "tree" t join "organizations" o on o."parentId" = t."id"
      where o."deleted" is null and "level" < 16
    ), "held" as (
      select "root", "level", iif(${isSeen}, coalesce((select sum("count") from "placedDeviceCounts" c
        where c."accountId" = ${accountId} and c."organizationId" = "tree"."id"), 0), 0) as "held" from "tree"
    ) select "root", sum(iif("level" = 0, "held", 0)) as "devices", sum("held") as "devicesBelow",
      sum("level" = 1) as "organizations", sum("level" > 0) as "organizationsBelow" from "held" group by "root"`;
  const [rows, people] = await Promise.all([
    readers.read(laneOf(caller), counts.compile(db)),
    seesPeople ? childCounts(db, 'endUsers', 'organizationId', ids) : undefined,
  ]);
  const peopleIn = (id: string) => (access.reaches(ofPeople, accountId, id) ? (people?.get(id) ?? 0) : 0);
  return new Map(rows.map(({ root, ...found }) => [root, { ...found, people: peopleIn(root) }]));
}
