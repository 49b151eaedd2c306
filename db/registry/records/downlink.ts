/** Firmware and commands. */
import { Type } from 'typebox';
import { common, DateText, Id, Nullable, OptionalDate, OptionalText } from './columns.js';

/** Firmware of one device template. `state`: `draft`, `published`, `retired`. */
export const FirmwarePackageRecord = Type.Object({
  ...common,
  deviceTemplateId: Id,
  name: Type.String(),
  firmwareVersion: Type.String(),
  description: OptionalText,
  state: Type.String(),
});

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

/**
 * A package on its way to devices. `target` and `stages` are JSON; `stage` is the index of the stage that runs, -1 before the
 * first. While a stage takes up its devices, those after `cursor` whose hash is at most `threshold` are still missing. `due`
 * (milliseconds) is when the engine has to look at it; null for never. `failuresAccepted` are those of the stage at the last resume.
 */
export const FirmwareRolloutRecord = Type.Object({
  ...common,
  firmwarePackageId: Id,
  target: Type.String(),
  stages: Type.String(),
  startAt: DateText,
  deviceDeadlineSeconds: Type.Integer(),
  maxFailurePercent: Type.Integer(),
  consent: Type.String(),
  state: Type.String(),
  stage: Type.Integer(),
  stageBegun: OptionalDate,
  threshold: Nullable(Type.Integer()),
  cursor: OptionalText,
  failuresAccepted: Type.Integer(),
  reason: OptionalText,
  finished: OptionalDate,
  due: Nullable(Type.Integer()),
});

export const FirmwareTargetRecord = Type.Object({ rolloutId: Id, deviceId: Id });

/**
 * One device of a rollout. A device has one open delivery at most. `offer` counts offers: URLs of a former one are void.
 * `files` is JSON: the phase of each file that control topics have reported. `deadline` in milliseconds.
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
});

/** How many commands of an account are in a state; kept by triggers. */
export const CommandCountRecord = Type.Object({ accountId: Id, state: Type.String(), count: Type.Integer() });
