/** An account, and what the service keeps for each one. */
import { Type } from 'typebox';
import { DateText, Id, Nullable, OptionalText } from './columns.ts';

/** The longest that an account, or a channel, can ask for: a hundred years. */
export const maxRetentionDays = 36_500;

/**
 * `retentionDays`: how long messages are kept; null is the service's default, 0 forever. `signUp` is 1 when anyone who holds
 * an unclaimed device may make a login of their own with its code, `customersMayRemove` when the people of an organization may take its
 * devices out of it.
 */
export const AccountRecord = Type.Object({
  id: Id,
  name: Type.String(),
  created: DateText,
  retentionDays: Nullable(Type.Integer()),
  signUp: Type.Integer(),
  customersMayRemove: Type.Integer(),
});

/** How the pages look that an account's customers see. `logo` is a data URL. */
export const BrandingRecord = Type.Object({
  accountId: Id,
  name: OptionalText,
  color: OptionalText,
  logo: OptionalText,
});

/** A security event; nothing changes or deletes one. `details` is a JSON object without secrets. */
export const AuditRecord = Type.Object({
  id: Id,
  accountId: Id,
  time: DateText,
  event: Type.String(),
  outcome: Type.String(),
  actorKind: OptionalText,
  actorId: OptionalText,
  targetKind: OptionalText,
  targetId: OptionalText,
  address: OptionalText,
  details: Type.String(),
});

/**
 * The first answer to a request with an Idempotency-Key, sealed with a key made from that key. `entityId` is written in the
 * transaction that made the entity, the answer after it. `secretOf` is the device whose secret the answer carries.
 */
export const IdempotentAnswerRecord = Type.Object({
  keyHash: Type.String(),
  requestHash: Type.String(),
  created: DateText,
  entityId: OptionalText,
  secretOf: OptionalText,
  status: Nullable(Type.Integer()),
  answer: OptionalText,
  callerId: OptionalText,
  accountId: Type.String(),
});

/** How much an account keeps of what could grow without end; kept by triggers. */
export const KeptRecord = Type.Object({ accountId: Id, what: Type.String(), amount: Type.Integer() });

/** Five minutes of an account: devices that are connected at their end, messages, and refusals with their causes as JSON. */
export const ActivityRecord = Type.Object({
  accountId: Id,
  time: Type.Integer(),
  connected: Type.Integer(),
  messages: Type.Integer(),
  refusals: Type.Integer(),
  causes: Type.String(),
});

/** What lies beside the registry since a server has run on it; of a key its fingerprint. */
export const DirectoryMarkRecord = Type.Object({
  name: Type.String(),
  fingerprint: Type.String(),
});
