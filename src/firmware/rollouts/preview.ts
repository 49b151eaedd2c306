/** What a rollout would do, without making one: the same checks, and the same selection of devices. */
import { sql } from 'kysely';
import { type Static, Type } from 'typebox';
import { RefusedDevices } from '../../../db/registry/records/downlink.ts';
import { Nullable } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import type { ListServices } from '../../entity/row-slices.ts';
import type { rolloutBody } from './rollout.ts';
import { demandFilter, demandRollout, type RolloutServices } from './rollouts.ts';
import { type Aim, countOthers, pagesOf, shareOf } from './targets.ts';

/** Versions that are told one by one. */
const maxVersions = 1000;

export const previewShape = Type.Object(
  {
    devices: Type.Integer({ description: 'That the rollout takes.' }),
    versions: Type.Array(Type.Object({ firmwareVersion: Nullable(Type.String()), count: Type.Integer() }), {
      maxItems: maxVersions,
      description: 'What these devices run now, the most frequent first; null where no version is known.',
    }),
    refused: RefusedDevices,
    offline: Type.Integer({ description: 'Of these devices.' }),
    stages: Type.Array(Type.Object({ devices: Type.Integer({ description: 'That begin with this stage.' }) }), {
      maxItems: 20,
    }),
  },
  { title: 'FirmwareRolloutPreview' },
);

interface Found {
  firmwareVersion: string | null;
  count: number;
  offline: number;
}

/** @throws PlatformError as demandRollout and demandFilter, and 429 while too many reads wait. */
export async function previewRollout(
  ctx: RolloutServices & ListServices,
  caller: Caller,
  body: Static<typeof rolloutBody>,
): Promise<Static<typeof previewShape>> {
  const { registry, readers } = ctx;
  await demandFilter(ctx, caller, body.target);
  const { firmware, target, stages } = await demandRollout(ctx, registry.query, caller, body);
  const { accountId, deviceTemplateId } = firmware;
  const aim: Aim = { rolloutId: '', accountId, createdById: caller.id, deviceTemplateId, target };
  const versions = new Map<string | null, number>();
  let [devices, offline] = [0, 0];
  for await (const ids of pagesOf(ctx, aim)) {
    const rows = await readers.read(laneOf(caller), found(ctx, ids));
    for (const row of rows) {
      devices += row.count;
      offline += row.offline;
      const known = versions.get(row.firmwareVersion);
      if (known !== undefined || versions.size < maxVersions)
        versions.set(row.firmwareVersion, (known ?? 0) + row.count);
    }
  }
  const others = await countOthers(ctx, aim, devices);
  const begun = stages.map(({ percent }) => shareOf(percent, devices));
  return {
    devices,
    versions: [...versions]
      .map(([firmwareVersion, count]) => ({ firmwareVersion, count }))
      .sort((one, other) => other.count - one.count),
    refused: others > 0 ? [{ reason: 'Devices of another device template do not get it.', count: others }] : [],
    offline,
    stages: begun.map((count, at) => ({ devices: count - (begun[at - 1] ?? 0) })),
  };
}

/** What these devices run, and how many of them are offline. */
function found({ registry }: Pick<ListServices, 'registry'>, ids: readonly string[]) {
  return sql<Found>`select "firmwareVersion", count(*) as "count", sum("connected" = 0) as "offline"
    from "wholeDevices"
    where "id" in (select value from json_each(${JSON.stringify(ids)})) group by "firmwareVersion"`.compile(
    registry.query,
  );
}
