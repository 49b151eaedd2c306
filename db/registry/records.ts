/**
 * The tables of registry.db. Each stored record is one TypeBox object in `records/`: the row type of its table and the base
 * of its wire shape. Columns have the names of the API, so that a row needs no translation. Ids and dates are text.
 */
import type { Generated } from 'kysely';
import type { Static } from 'typebox';
import type {
  AccountRecord,
  ActivityRecord,
  AuditRecord,
  BrandingRecord,
  DirectoryMarkRecord,
  IdempotentAnswerRecord,
  KeptRecord,
} from './records/account.ts';
import type { EntityTable, entityColumns } from './records/by-table.ts';
import type { RenewalRecord, RevocationListPartRecord, RevokedCertificateRecord } from './records/certificates.ts';
import type { EntityRow } from './records/columns.ts';
import type {
  AssociationCodeRecord,
  CredentialRecord,
  DeviceCountRecord,
  deviceColumns,
  FirmwareVersionCountRecord,
  PlacedDeviceCountRecord,
  PublicationRecord,
  presenceNames,
  RefusalRecord,
  SupportRequestRecord,
} from './records/devices.ts';
import type {
  CommandCountRecord,
  CommandRecord,
  FirmwareCountRecord,
  FirmwareDeliveryRecord,
  FirmwareFileRecord,
  FirmwareTargetRecord,
  FirmwareUploadRecord,
} from './records/downlink.ts';
import type { EnrollmentRecord, EnrollmentRefusalRecord } from './records/enrollment.ts';
import type { JobRecord, JobRowRecord, VerificationRecord } from './records/factory.ts';
import type {
  AccessTokenRecord,
  FederatedIdentityRecord,
  FederatedLoginRecord,
  IdentityRecord,
  MailedTokenRecord,
  MfaLoginRecord,
  MfaMethodRecord,
  RecoveryCodeRecord,
  ScimGroupRecord,
  ScimMemberRecord,
  ScimUserRecord,
  SessionRecord,
} from './records/identity.ts';
import type { FieldValueRecord } from './records/templates.ts';

export type { EntityTable } from './records/by-table.ts';
export { DateText, Id, Nullable, oneOf } from './records/columns.ts';

/** A device with what the service notes about its connections, which is in a table of its own. */
export type Device = EntityRow<typeof deviceColumns>;
export type DevicePresence = Pick<Device, (typeof presenceNames)[number]>;

type EntityTables = { [T in EntityTable]: EntityRow<(typeof entityColumns)[T]> };

/** The tables of registry.db. */
export interface Tables extends Omit<EntityTables, 'devices'> {
  accounts: Static<typeof AccountRecord>;
  activity: Static<typeof ActivityRecord>;
  brandings: Static<typeof BrandingRecord>;
  identities: Static<typeof IdentityRecord>;
  sessions: Static<typeof SessionRecord>;
  accessTokens: Static<typeof AccessTokenRecord>;
  mailedTokens: Static<typeof MailedTokenRecord>;
  mfaMethods: Static<typeof MfaMethodRecord>;
  recoveryCodes: Static<typeof RecoveryCodeRecord>;
  mfaLogins: Static<typeof MfaLoginRecord>;
  federatedIdentities: Static<typeof FederatedIdentityRecord>;
  federatedLogins: Static<typeof FederatedLoginRecord>;
  scimUsers: Static<typeof ScimUserRecord>;
  scimGroups: Static<typeof ScimGroupRecord>;
  scimMembers: Static<typeof ScimMemberRecord>;
  auditRecords: Static<typeof AuditRecord> & { sequence: Generated<number> };
  devices: Omit<Device, keyof DevicePresence>;
  devicePresence: Required<DevicePresence> & { row: number; account: string | null };
  wholeDevices: Device & { row: number; account: string };
  credentials: Static<typeof CredentialRecord>;
  renewals: Static<typeof RenewalRecord>;
  revokedCertificates: Static<typeof RevokedCertificateRecord> & { sequence: Generated<number> };
  revocationListParts: Static<typeof RevocationListPartRecord>;
  publications: Static<typeof PublicationRecord>;
  enrollments: Static<typeof EnrollmentRecord>;
  enrollmentRefusals: Static<typeof EnrollmentRefusalRecord> & { sequence: Generated<number> };
  verifications: Static<typeof VerificationRecord>;
  jobs: Static<typeof JobRecord>;
  jobRows: Static<typeof JobRowRecord>;
  associationCodes: Static<typeof AssociationCodeRecord>;
  refusals: Static<typeof RefusalRecord> & { sequence: Generated<number> };
  supportRequests: Static<typeof SupportRequestRecord>;
  deviceCounts: Static<typeof DeviceCountRecord>;
  placedDeviceCounts: Static<typeof PlacedDeviceCountRecord>;
  firmwareVersionCounts: Static<typeof FirmwareVersionCountRecord>;
  fieldValues: Static<typeof FieldValueRecord>;
  idempotentAnswers: Static<typeof IdempotentAnswerRecord>;
  firmwareFiles: Static<typeof FirmwareFileRecord>;
  firmwareUploads: Static<typeof FirmwareUploadRecord>;
  firmwareTargets: Static<typeof FirmwareTargetRecord>;
  firmwareDeliveries: Static<typeof FirmwareDeliveryRecord>;
  firmwareCounts: Static<typeof FirmwareCountRecord>;
  commands: Static<typeof CommandRecord> & { sequence: Generated<number> };
  commandCounts: Static<typeof CommandCountRecord>;
  directoryMarks: Static<typeof DirectoryMarkRecord>;
  kept: Static<typeof KeptRecord>;
}

/** The tables; a view holds nothing of its own. */
export type RegistryTable = Exclude<keyof Tables, 'wholeDevices'>;

/** Rows as the rest of the code knows them: a device is one. */
export interface Rows extends Omit<Tables, 'devices'> {
  devices: Device;
}
export type Row<T extends keyof Tables> = Rows[T];
