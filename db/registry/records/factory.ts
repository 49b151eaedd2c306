/** Work on many devices, and units on the line. */
import { Type } from 'typebox';
import { DateText, Id, Nullable, OptionalDate, OptionalId, OptionalText } from './columns.ts';

/** Whether a unit on the line has really connected and published. */
export const VerificationRecord = Type.Object({
  id: Id,
  accountId: Id,
  deviceId: Id,
  serialNumber: Type.String(),
  passed: Type.Integer(),
  connected: Type.Integer(),
  published: Type.Integer(),
  time: DateText,
  createdById: Type.String(),
});

/**
 * Work on many devices. `checksum` finds the job of a repeated request; null for dry runs and forced jobs. `sealedKey` opens the
 * results until they are confirmed or `expires` is over. `keptRows` and `keptBytes`: rows that are still there, as they came.
 * `failures`: how many of its commands have failed; kept by a trigger, as are the counts of rows whose commands end.
 */
export const JobRecord = Type.Object({
  id: Id,
  accountId: Id,
  created: DateText,
  createdById: Type.String(),
  createdByKind: Type.String(),
  tokenId: OptionalId,
  action: Type.String(),
  parameters: Type.String(),
  checksum: OptionalText,
  dryRun: Type.Integer(),
  state: Type.String(),
  total: Type.Integer(),
  done: Type.Integer(),
  failed: Type.Integer(),
  skipped: Type.Integer(),
  reason: OptionalText,
  finished: OptionalDate,
  expires: OptionalDate,
  confirmed: OptionalDate,
  undone: OptionalDate,
  sealedKey: OptionalText,
  keptRows: Type.Integer(),
  keptBytes: Type.Integer(),
  failures: Type.Integer(),
});

/** One row of a job, from 1. `input` and `before` (what an undo restores) are JSON, `errors` is a list of them. */
export const JobRowRecord = Type.Object({
  jobId: Id,
  row: Type.Integer(),
  state: Type.String(),
  input: Type.String(),
  deviceId: OptionalId,
  before: OptionalText,
  errors: OptionalText,
  commandId: OptionalId,
  sealedResult: Nullable(Type.Unsafe<Buffer>({ type: 'string' })),
});
