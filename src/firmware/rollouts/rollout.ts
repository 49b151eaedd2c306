/** A rollout as a row of the registry and on the wire, and the states of the devices in it. */
import { sql } from 'kysely';
import { type Static, Type } from 'typebox';
import type { Db } from '../../../db/registry/index.ts';
import { firmwareRolloutColumns } from '../../../db/registry/records/downlink.ts';
import { DateText, Id, Nullable, oneOf, type Row } from '../../../db/registry/records.ts';
import {
  commonShape,
  createProperties,
  listingOf,
  showCommon,
  showing,
  shownProperties,
} from '../../entity/columns.ts';
import { filterText } from '../../entity/list-query.ts';
import { filters } from '../../registry/devices/selection.ts';

export type Rollout = Row<'firmwareRollouts'>;
export type Delivery = Row<'firmwareDeliveries'>;

/** A device with one of these still has the update before it. */
export const openStates = ['pending', 'offered', 'downloading', 'downloaded', 'installing'] as const;
export const endStates = ['succeeded', 'failed', 'timedOut', 'superseded', 'cancelled'] as const;
export const deliveryStates = [...openStates, ...endStates] as const;
export type DeliveryState = (typeof deliveryStates)[number];
export type EndState = (typeof endStates)[number];

/** As the index of open deliveries has it: a parameter would not find it. */
export const isOpenDelivery = sql<boolean>`"state" in ('pending', 'offered', 'downloading', 'downloaded', 'installing')`;

export function isOpen({ state }: Pick<Delivery, 'state'>): boolean {
  return openStates.some((one) => one === state);
}

export function hasEnded({ state }: Pick<Rollout, 'state'>): boolean {
  return state === 'finished' || state === 'cancelled';
}

/** Devices that a rollout may name one by one. */
export const maxTargets = 10_000;

const target = Type.Object(
  {
    deviceIds: Type.Optional(
      Type.Array(Type.String({ maxLength: 64 }), { minItems: 1, maxItems: maxTargets, description: 'These devices.' }),
    ),
    filter: Type.Optional(
      Type.Union([
        Type.Object(filters, {
          additionalProperties: false,
          minProperties: 1,
          description: 'As in GET /devices.',
        }),
        filterText,
      ]),
    ),
    organizationId: Type.Optional(Type.String({ description: 'Its devices, and those below it.' })),
    fleetId: Type.Optional(Type.String({ maxLength: 64, description: 'Those that it holds when a stage takes them.' })),
  },
  {
    additionalProperties: false,
    description: 'One of the four. Only devices of the template of the package are taken.',
  },
);
export const rolloutBody = Type.Object({
  accountId: Type.String(),
  ...createProperties(firmwareRolloutColumns),
  target,
});

export type Target = Static<typeof target>;
/** `revertOf` names the rollout whose devices go back to what they ran before it. */
export type StoredTarget = Target & { revertOf?: string };
export type Stage = Static<typeof firmwareRolloutColumns.stages.marks.shown>[number];

/** Messages of failures that are told. */
export const maxFailures = 20;

/** What one rollout that is read has besides. */
const watched = {
  failures: Type.Array(
    Type.Object({
      message: Nullable(Type.String({ description: 'Or `code 7`, where the device has told a code alone.' })),
      count: Type.Integer(),
      newest: Type.Object({ deviceId: Id, serialNumber: Type.String(), time: DateText }),
    }),
    {
      maxItems: maxFailures,
      description: 'Of one that is read: devices that have failed or timed out, by message, the most frequent first.',
    },
  ),
  perMinute: Type.Number({
    description: 'Of one that is read: devices that have succeeded in a minute, over the last five minutes.',
  }),
  stageEndsAt: Nullable({
    ...DateText,
    description:
      'Of one that is read: when the next stage begins; while it is paused, not before it is resumed. Null without a next stage.',
  }),
};
export type Watched = { [K in keyof typeof watched]: Static<(typeof watched)[K]> };

const counts = Type.Object(Object.fromEntries(deliveryStates.map((state) => [state, Type.Integer()])));
export const rolloutShape = Type.Object({
  ...commonShape,
  ...shownProperties(firmwareRolloutColumns),
  target: Type.Object({
    deviceIds: Type.Optional(Type.Array(Type.String(), { maxItems: maxTargets })),
    deviceCount: Type.Optional(
      Type.Integer({ description: 'In lists and events, and when it is read: instead of deviceIds.' }),
    ),
    filter: Type.Optional(Type.Union([Type.Record(Type.String(), Type.Unknown()), Type.String()])),
    organizationId: Type.Optional(Type.String()),
    fleetId: Type.Optional(Type.String()),
    revertOf: Type.Optional(Type.String({ description: 'The rollout whose devices go back to their former package.' })),
  }),
  counts,
  failures: Type.Optional(watched.failures),
  perMinute: Type.Optional(watched.perMinute),
  stageEndsAt: Type.Optional(watched.stageEndsAt),
});
/** The answer of POST: whether the target is what its maker means. */
export const newRolloutShape = Type.Object(
  {
    ...rolloutShape.properties,
    matched: Type.Optional(
      Type.Object(
        {
          devices: Type.Optional(
            Type.Integer({ description: 'At most 1,000; absent if they cannot be counted at once.' }),
          ),
          withoutFirmwareVersion: Type.Optional(
            Type.Integer({
              description: 'With a filter by firmwareVersion: devices that have none, which it leaves out.',
            }),
          ),
          message: Type.Optional(Type.String({ description: 'What may be wrong with the target.' })),
        },
        { description: 'What the target matches now.' },
      ),
    ),
  },
  { title: 'NewFirmwareRollout' },
);
export const rolloutListing = listingOf('firmwareRollouts', firmwareRolloutColumns, { defaultOrder: 'desc' });

export const deliveryShape = Type.Object({
  deviceId: Id,
  rolloutId: Id,
  stage: Type.Integer({ description: 'From 1.' }),
  state: oneOf(deliveryStates),
  bytes: Nullable(Type.Integer({ description: 'That have been downloaded, where it is known.' })),
  code: Nullable(Type.Integer({ description: 'Of the failure, as the device told it.' })),
  message: Nullable(Type.String()),
  deadline: DateText,
  updated: DateText,
});

export type Counts = Record<DeliveryState, number>;

/** How many devices of rollouts are in each state, by rollout. */
export async function countsOf(db: Db, rolloutIds: readonly string[]): Promise<Map<string, Counts>> {
  const found = new Map<string, Counts>();
  if (rolloutIds.length === 0) return found;
  const rows = await db
    .selectFrom('firmwareCounts')
    .select(['rolloutId', 'state', 'count'])
    .where('rolloutId', 'in', rolloutIds)
    .execute();
  for (const { rolloutId, state, count } of rows) {
    const own = found.get(rolloutId) ?? noCounts();
    own[state as DeliveryState] += count;
    found.set(rolloutId, own);
  }
  return found;
}

export function noCounts(): Counts {
  return Object.fromEntries(deliveryStates.map((state) => [state, 0])) as Counts;
}

const showColumns = showing(firmwareRolloutColumns);

/** `deviceIds` are those that the target names, or how many they are. */
export function showRollout(row: Rollout, counted: Counts | undefined, deviceIds: readonly string[] | number) {
  const shownTarget = JSON.parse(row.target) as StoredTarget;
  const named = typeof deviceIds === 'number' ? { deviceCount: deviceIds } : { deviceIds: [...deviceIds] };
  const { filter, organizationId, fleetId, revertOf } = shownTarget;
  return {
    ...showCommon(row),
    ...showColumns(row),
    target: filter || organizationId || fleetId || revertOf ? shownTarget : named,
    stage: row.stage < 0 ? null : row.stage + 1,
    counts: counted ?? noCounts(),
  };
}

/** When the next stage begins at the earliest, in milliseconds; undefined without a next one, and before the first. */
export function nextStageAt(row: Pick<Rollout, 'stage' | 'stages' | 'stageBegun'>): number | undefined {
  const stages = stagesOf(row);
  const pause = stages[row.stage + 1] && stages[row.stage]?.pauseSeconds;
  return pause === undefined || row.stageBegun === null ? undefined : Date.parse(row.stageBegun) + pause * 1000;
}

export function stagesOf({ stages }: Pick<Rollout, 'stages'>): Stage[] {
  return JSON.parse(stages) as Stage[];
}

export function showDelivery(row: Delivery): Static<typeof deliveryShape> {
  const { deviceId, rolloutId, stage, later, bytes, code, message, updated } = row;
  const state = row.state as DeliveryState;
  const deadline = new Date(row.deadline).toISOString();
  return { deviceId, rolloutId, stage: stage + 1 - later, state, bytes, code, message, deadline, updated };
}
