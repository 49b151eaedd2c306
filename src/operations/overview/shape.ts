/** The answer of GET /overview. */
import { type Static, Type } from 'typebox';
import { provisioningStates } from '../../../db/registry/records/devices.ts';
import { DateText, Id, Nullable, oneOf } from '../../../db/registry/records.ts';
import { activityStep } from '../../ports/activity.ts';

/** Products and firmware versions that are named, and things of each kind that need attention. */
export const maxNamed = 50;
export const maxOfKind = 20;
export const maxRecent = 40;
/** Hours of the history: a week. */
export const maxHours = 7 * 24;

const hour = 60 * 60_000;

export const attentionKinds = [
  'supportRequested',
  'devicesOffline',
  'devicesSilent',
  'refusals',
  'rolloutPaused',
  'rolloutFailing',
  'jobFailed',
  'bridgeBehind',
  'bridgeDeadLetters',
  'certificatesExpiring',
  'authoritiesExpiring',
  'limit',
  'clockDoubted',
] as const;

const attention = Type.Object({
  kind: oneOf(attentionKinds),
  sentence: Type.String(),
  count: Type.Integer({
    description: 'Of a limit: the percentage that is used. Devices and certificates are counted to 10,000.',
  }),
  query: Type.String({ description: 'Where these are listed: a path below `/api/v1/`, with its query.' }),
  id: Type.Optional(Type.String({ description: 'Of the rollout, the job, the bridge or the request for support.' })),
  name: Type.Optional(Type.String({ description: 'Of the package, the bridge, the limit or the device.' })),
  deviceId: Type.Optional(Type.String({ description: 'Of a request for support.' })),
  message: Type.Optional(Nullable(Type.String({ description: 'Of a request for support.' }))),
  cause: Type.Optional(Type.String({ description: 'Of refusals.' })),
});

const recent = Type.Object({
  kind: oneOf(['claim', 'newDevice', 'newDevices', 'update', 'updates']),
  time: DateText,
  sentence: Type.String(),
  deviceId: Type.Optional(Id),
  serialNumber: Type.Optional(Type.String()),
  firmwareVersion: Type.Optional(Type.String({ description: 'Of updates.' })),
  jobId: Type.Optional(Type.String({ description: 'Of new devices that one job made.' })),
  rolloutId: Type.Optional(Type.String({ description: 'Of the updates of one rollout, for who may read it.' })),
  count: Type.Optional(Type.Integer({ description: 'How many devices the job made, or the rollout updated.' })),
});

const count = Type.Integer();
const history = Type.Array(
  Type.Object({
    time: Type.Unsafe<string>({ ...DateText, description: 'The beginning of the five minutes.' }),
    connected: Type.Integer({ description: 'Devices at the end of the five minutes.' }),
    messages: count,
    refusals: Type.Optional(count),
  }),
  {
    maxItems: (maxHours * hour) / activityStep + 1,
    description: 'Five minutes each, oldest first; the last ones are running. Absent for end-users.',
  },
);

export const overviewShape = Type.Object({
  time: DateText,
  online: Type.Integer({ description: 'Devices that are connected now.' }),
  devices: count,
  byState: Type.Array(Type.Object({ value: oneOf(provisioningStates), count, online: count }), {
    maxItems: provisioningStates.length,
  }),
  byProduct: Type.Array(
    Type.Object({
      value: Type.Unsafe<string>({ ...Id, description: 'A device template.' }),
      name: Type.String(),
      count,
      online: count,
    }),
    { maxItems: maxNamed, description: 'Those with most devices.' },
  ),
  byFirmware: Type.Optional(
    Type.Array(Type.Object({ value: Nullable(Type.String()), count }), {
      maxItems: maxNamed,
      description: 'The versions of most devices; null is no version.',
    }),
  ),
  messages: Type.Optional(
    Type.Object(
      {
        perSecond: Type.Number({ description: 'The mean of the last minute.' }),
        perSecondLastDay: Type.Number(),
        lastDay: count,
      },
      { description: 'Messages that were accepted. Absent for end-users.' },
    ),
  ),
  refusals: Type.Optional(
    Type.Object(
      { lastDay: count },
      {
        description:
          'For end-users: of their devices, of each at most the last 50. Needs the permission to read devices.',
      },
    ),
  ),
  history: Type.Optional(history),
  attention: Type.Array(attention, { maxItems: attentionKinds.length * maxOfKind }),
  recent: Type.Array(recent, { maxItems: maxRecent, description: 'Newest first.' }),
});

export type Overview = Static<typeof overviewShape>;
export type Attention = Static<typeof attention>;
export type Recent = Static<typeof recent>;
