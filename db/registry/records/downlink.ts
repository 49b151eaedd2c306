/** Firmware and commands. */
import { Type } from 'typebox';
import {
  column,
  DateText,
  hidden,
  Id,
  json,
  Nullable,
  nameColumn,
  OptionalDate,
  OptionalId,
  OptionalText,
  oneOf,
} from './columns.ts';

export const packageStates = ['draft', 'published', 'retired'] as const;

/** Firmware of one device template. */
export const firmwarePackageColumns = {
  deviceTemplateId: column(Id, { create: 'required', body: Type.String(), filter: 'exact', keeps: 'deviceTemplates' }),
  name: nameColumn,
  firmwareVersion: column(Type.String(), {
    create: 'required',
    change: true,
    bounds: {
      minLength: 1,
      maxLength: 64,
      description:
        "What the firmwareVersion of a device becomes. The package's etag is `version`. Only that of a draft can be changed; its files keep their revisions.",
    },
    filter: 'exact',
    sort: true,
  }),
  description: column(OptionalText, { create: 'optional', change: true, bounds: { maxLength: 2000 } }),
  state: column(Type.String(), { shown: oneOf<string>(packageStates), filter: 'exact' }),
};

/** A whole file of a package. `sha256` in hex names its content in the data directory. */
export const FirmwareFileRecord = Type.Object({
  packageId: Id,
  name: Type.String(),
  accountId: Id,
  revision: Type.String(),
  size: Type.Integer(),
  sha256: Type.String(),
  signature: OptionalText,
});

/** A file that is not whole yet. The first `received` bytes of the file `partial` are on disk; `digest` in hex is what they must become. */
export const FirmwareUploadRecord = Type.Object({
  packageId: Id,
  name: Type.String(),
  accountId: Id,
  partial: Type.String(),
  total: Nullable(Type.Integer()),
  received: Type.Integer(),
  digest: OptionalText,
  touched: DateText,
});

/** Devices that do not get it, by the reason. */
export const RefusedDevices = Type.Array(Type.Object({ reason: Type.String(), count: Type.Integer() }), {
  maxItems: 10,
  description: 'Devices that do not get it, by the reason.',
});

export const rolloutStates = ['scheduled', 'running', 'paused', 'finished', 'cancelled'] as const;
const maxStages = 20;

const stageBody = Type.Object({
  percent: Type.Number({ exclusiveMinimum: 0, maximum: 100, description: 'Of all devices; the last stage has 100.' }),
  pauseSeconds: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 31_536_000,
      description: 'From the beginning of this stage to that of the next one; an hour when it is left out.',
    }),
  ),
});

/**
 * A package on its way to devices. `stage` is -1 before the first; devices after `cursor` whose hash is at most `threshold` are
 * still to be taken up. `due` (milliseconds): when the engine looks next; `failuresAccepted`: those of the stage at the last resume.
 */
export const firmwareRolloutColumns = {
  firmwarePackageId: column(Id, {
    create: 'required',
    body: Type.String(),
    filter: 'exact',
    keeps: 'firmwarePackages',
  }),
  target: hidden(Type.String()),
  stages: json(
    Type.Array(Type.Object({ percent: Type.Number(), pauseSeconds: Type.Integer() }), { maxItems: maxStages }),
    Type.Array(stageBody, {
      minItems: 1,
      maxItems: maxStages,
      description: 'One of 100 percent when it is left out.',
    }),
    { create: 'optional' },
  ),
  startAt: column(DateText, {
    create: 'optional',
    body: Type.String({ description: 'ISO 8601; now when it is left out.' }),
    sort: true,
  }),
  deviceDeadlineSeconds: column(Type.Integer(), {
    create: 'optional',
    body: Type.Integer({
      minimum: 1,
      maximum: 31_536_000,
      default: 604_800,
      description: 'A device that has not ended so long after the beginning of its stage is `timedOut`.',
    }),
    initial: 604_800,
  }),
  maxFailurePercent: column(Type.Integer(), {
    create: 'optional',
    body: Type.Integer({
      minimum: 0,
      maximum: 100,
      default: 20,
      description:
        'The rollout pauses itself when more of the devices that have ended in the running stage have failed or timed out, from five ended devices on, or when all have ended.',
    }),
    initial: 20,
  }),
  consent: column(Type.String(), {
    create: 'optional',
    shown: oneOf<string>(['none', 'user']),
    body: oneOf(['none', 'user'], {
      default: 'none',
      description: '`user`: a device gets it after POST /devices/{id}/firmware/install.',
    }),
    initial: 'none',
  }),
  continuous: column(Type.Integer(), {
    create: 'optional',
    form: 'flag',
    shown: Type.Unsafe<boolean>(Type.Boolean()),
    body: Type.Boolean({
      default: false,
      description:
        'With target.fleetId: devices that begin to match after the stages get it too, and those that cease to match before they have begun lose it. It goes on until it is cancelled.',
    }),
    initial: 0,
  }),
  state: column(Type.String(), { shown: oneOf<string>(rolloutStates), filter: 'exact' }),
  stage: column(Type.Integer(), {
    shown: Nullable(Type.Integer({ description: 'The stage that has begun last, from 1.' })),
  }),
  stageBegun: column(OptionalDate, {}),
  threshold: hidden(Nullable(Type.Integer())),
  cursor: hidden(OptionalText),
  failuresAccepted: hidden(Type.Integer()),
  reason: column(OptionalText, {
    shown: Nullable(Type.String({ description: 'Why it has paused itself, or has finished without a device.' })),
  }),
  finished: column(OptionalDate, { sort: true }),
  refused: json(RefusedDevices, RefusedDevices, {}),
  due: hidden(Nullable(Type.Integer())),
};

export const FirmwareTargetRecord = Type.Object({ rolloutId: Id, deviceId: Id, accountId: Id });

/**
 * One device of a rollout. A device has one open delivery at most. `offer` counts offers: URLs of a former one are void.
 * `files` is JSON: the phase of each file that control topics have reported. `deadline` in milliseconds. `firmwarePackageId` where
 * its package is not that of the rollout; `formerVersion` is what the device ran before. Of a continuous rollout, `later` devices came
 * after its stages, as the devices of one more, and those that have `left` match its fleet no more.
 */
export const FirmwareDeliveryRecord = Type.Object({
  rolloutId: Id,
  deviceId: Id,
  accountId: Id,
  stage: Type.Integer(),
  state: Type.String(),
  bytes: Nullable(Type.Integer()),
  code: Nullable(Type.Integer()),
  message: OptionalText,
  files: OptionalText,
  offer: Type.Integer(),
  consented: Type.Integer(),
  updated: DateText,
  deadline: Type.Integer(),
  firmwarePackageId: OptionalId,
  formerVersion: OptionalText,
  later: Type.Integer(),
  left: Type.Integer(),
});

/** How many devices of a stage are in a state; kept by triggers. */
export const FirmwareCountRecord = Type.Object({
  rolloutId: Id,
  stage: Type.Integer(),
  state: Type.String(),
  count: Type.Integer(),
});

/**
 * A command to a device. `payload`, `result` and `lateReply` are JSON. `due` (milliseconds) is when it expires or times out,
 * whichever its state asks for.
 */
export const CommandRecord = Type.Object({
  id: Id,
  accountId: Id,
  deviceId: Id,
  created: DateText,
  createdById: Type.String(),
  createdByKind: Type.String(),
  name: Type.String(),
  payload: OptionalText,
  parallel: Type.Integer(),
  timeoutSeconds: Type.Integer(),
  expiresAt: DateText,
  state: Type.String(),
  attempt: Type.Integer(),
  due: Type.Integer(),
  sent: OptionalDate,
  accepted: OptionalDate,
  finished: OptionalDate,
  result: OptionalText,
  lateReply: OptionalText,
  jobId: OptionalId,
  jobRow: Nullable(Type.Integer()),
});

/** How many commands of an account are in a state; kept by triggers. */
export const CommandCountRecord = Type.Object({ accountId: Id, state: Type.String(), count: Type.Integer() });
