/** Enrollment groups, and the devices that they have made. */
import { Type } from 'typebox';
import {
  column,
  DateText,
  flag,
  hidden,
  Id,
  Nullable,
  nameColumn,
  OptionalDate,
  OptionalId,
  OptionalText,
  oneOf,
} from './columns.ts';

export const enrollmentProofs = ['claimSecret', 'derivedKey', 'certificate'] as const;
export type EnrollmentProof = (typeof enrollmentProofs)[number];
export const enrollmentIssues = ['secret', 'certificate', 'either'] as const;
export const reprovisions = ['keep', 'reset', 'refuse'] as const;

const reference = { create: 'optional', change: true, body: OptionalText, shown: OptionalText } as const;
const date = {
  create: 'optional',
  change: true,
  body: Nullable(Type.String({ maxLength: 40, description: 'ISO 8601.' })),
} as const;
const days = (maximum: number) => Type.Integer({ minimum: 1, maximum });

export const enrollmentGroupColumns = {
  name: nameColumn,
  deviceTemplateId: column(Id, { create: 'required', change: true, body: Type.String(), filter: 'exact' }),
  organizationId: column(OptionalId, reference),
  proof: column(Type.String(), {
    create: 'required',
    shown: oneOf<string>(enrollmentProofs),
    body: oneOf(enrollmentProofs, {
      description:
        'What a device proves itself with: one secret for all, a key derived from its serial number, or a manufacturer’s certificate.',
    }),
    filter: 'exact',
  }),
  proofAuthorityId: column(OptionalId, {
    ...reference,
    bounds: { description: 'The CA of the manufacturer’s certificates; for the proof certificate only.' },
  }),
  issues: column(Type.String(), {
    create: 'optional',
    change: true,
    shown: oneOf<string>(enrollmentIssues),
    body: oneOf(enrollmentIssues, {
      description: 'What a device gets; either: a certificate when it sends a CSR. secret when left out.',
    }),
    initial: 'secret',
    filter: 'exact',
  }),
  serialNumberPattern: column(Type.String(), {
    create: 'optional',
    change: true,
    bounds: { minLength: 1, maxLength: 255, description: 'A text in which * is any text and ? any character.' },
    initial: '*',
  }),
  maxDevices: column(Nullable(Type.Integer()), {
    create: 'optional',
    change: true,
    bounds: { minimum: 1, maximum: 1_000_000_000, description: 'Counts every device ever made, also deleted ones.' },
  }),
  enrolledCount: column(Type.Integer(), {}),
  validFrom: column(OptionalDate, date),
  validUntil: column(OptionalDate, date),
  disabled: flag({ create: 'optional', change: true, initial: 0, filter: 'flag' }),
  reprovision: column(Type.String(), {
    create: 'optional',
    change: true,
    shown: oneOf<string>(reprovisions),
    body: oneOf(reprovisions, {
      description:
        'What becomes of a device that has connected and is let through again: keep (a new credential), reset (fields and place as new, too) or refuse. keep when left out.',
    }),
    initial: 'keep',
  }),
  certificateAuthorityId: column(OptionalId, {
    ...reference,
    bounds: { description: 'The issuing CA; required where the group issues certificates.' },
  }),
  certificateDays: column(days(3650), { create: 'optional', change: true, initial: 365 }),
  overlapDays: column(days(90), {
    create: 'optional',
    change: true,
    bounds: { description: 'So long a renewed credential works beside the new one at most; 7 when left out.' },
    initial: 7,
  }),
  claimHash: hidden(OptionalText),
  sealedGroupKey: hidden(OptionalText),
  sealedHookUrl: hidden(OptionalText),
  sealedHookSecret: hidden(OptionalText),
  isHookSecretMade: hidden(Type.Integer()),
};

/**
 * A device that a group has made. `connected`: its first connection of all; `used`: whether the present credential has had one. Until
 * then the former one proves it too. `permitted`: by an admin, until `allowedUntil` or its first connection.
 */
export const EnrollmentRecord = Type.Object({
  deviceId: Id,
  groupId: Id,
  accountId: Id,
  serialNumber: Type.String(),
  enrolled: DateText,
  connected: OptionalDate,
  used: Type.Integer(),
  permitted: Type.Integer(),
  allowedUntil: OptionalDate,
  proofKeyHash: OptionalText,
  formerHash: OptionalText,
  formerFingerprint: OptionalText,
});

/** Why an exchange was refused; `proven` is whether the asker had proven itself. */
export const EnrollmentRefusalRecord = Type.Object({
  groupId: Id,
  accountId: Id,
  time: DateText,
  serialNumber: OptionalText,
  address: OptionalText,
  reason: Type.String(),
  proven: Type.Integer(),
});
