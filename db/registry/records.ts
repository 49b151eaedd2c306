/**
 * The tables of registry.db. Each stored record is one TypeBox object in `records/`: the row type of its table and the base
 * of its wire shape. Columns have the names of the API, so that a row needs no translation. Ids and dates are text.
 */
import type { Generated } from 'kysely';
import type { Static } from 'typebox';
import type { AccountRecord, AuditRecord, IdempotentAnswerRecord, KeptRecord } from './records/account.ts';
import type { bridgeColumns } from './records/bridges.ts';
import type { certificateAuthorityColumns, certificateColumns } from './records/certificates.ts';
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
} from './records/devices.ts';
import type {
  CommandCountRecord,
  CommandRecord,
  FirmwareCountRecord,
  FirmwareDeliveryRecord,
  FirmwareFileRecord,
  FirmwareTargetRecord,
  FirmwareUploadRecord,
  firmwarePackageColumns,
  firmwareRolloutColumns,
} from './records/downlink.ts';
import type { JobRecord, JobRowRecord, VerificationRecord } from './records/factory.ts';
import type {
  accountUserColumns,
  applicationColumns,
  FederatedIdentityRecord,
  FederatedLoginRecord,
  IdentityRecord,
  identityProviderColumns,
  MailedTokenRecord,
  MfaLoginRecord,
  MfaMethodRecord,
  RecoveryCodeRecord,
  SessionRecord,
} from './records/identity.ts';
import type { endUserColumns, organizationColumns } from './records/organizations.ts';
import type { channelTemplateColumns, customFieldColumns, templateColumns } from './records/templates.ts';

export { DateText, Id, Nullable, oneOf } from './records/columns.ts';

/** A device with what the service notes about its connections, which is in a table of its own. */
export type Device = EntityRow<typeof deviceColumns>;
export type DevicePresence = Pick<Device, (typeof presenceNames)[number]>;

/** The tables of registry.db. */
export interface Tables {
  accounts: Static<typeof AccountRecord>;
  identities: Static<typeof IdentityRecord>;
  sessions: Static<typeof SessionRecord>;
  applications: EntityRow<typeof applicationColumns>;
  mailedTokens: Static<typeof MailedTokenRecord>;
  mfaMethods: Static<typeof MfaMethodRecord>;
  recoveryCodes: Static<typeof RecoveryCodeRecord>;
  mfaLogins: Static<typeof MfaLoginRecord>;
  identityProviders: EntityRow<typeof identityProviderColumns>;
  bridges: EntityRow<typeof bridgeColumns>;
  federatedIdentities: Static<typeof FederatedIdentityRecord>;
  federatedLogins: Static<typeof FederatedLoginRecord>;
  auditRecords: Static<typeof AuditRecord> & { sequence: Generated<number> };
  accountUsers: EntityRow<typeof accountUserColumns>;
  deviceTemplates: EntityRow<typeof templateColumns>;
  endUserTemplates: EntityRow<typeof templateColumns>;
  organizationTemplates: EntityRow<typeof templateColumns>;
  channelTemplates: EntityRow<typeof channelTemplateColumns>;
  customFields: EntityRow<typeof customFieldColumns>;
  organizations: EntityRow<typeof organizationColumns>;
  endUsers: EntityRow<typeof endUserColumns>;
  devices: Omit<Device, keyof DevicePresence>;
  devicePresence: Required<DevicePresence> & { row: number; account: string | null };
  wholeDevices: Device & { row: number; account: string };
  credentials: Static<typeof CredentialRecord>;
  certificates: EntityRow<typeof certificateColumns>;
  certificateAuthorities: EntityRow<typeof certificateAuthorityColumns>;
  publications: Static<typeof PublicationRecord>;
  verifications: Static<typeof VerificationRecord>;
  jobs: Static<typeof JobRecord>;
  jobRows: Static<typeof JobRowRecord>;
  associationCodes: Static<typeof AssociationCodeRecord>;
  refusals: Static<typeof RefusalRecord> & { sequence: Generated<number> };
  deviceCounts: Static<typeof DeviceCountRecord>;
  placedDeviceCounts: Static<typeof PlacedDeviceCountRecord>;
  firmwareVersionCounts: Static<typeof FirmwareVersionCountRecord>;
  idempotentAnswers: Static<typeof IdempotentAnswerRecord>;
  firmwarePackages: EntityRow<typeof firmwarePackageColumns>;
  firmwareFiles: Static<typeof FirmwareFileRecord>;
  firmwareUploads: Static<typeof FirmwareUploadRecord>;
  firmwareRollouts: EntityRow<typeof firmwareRolloutColumns>;
  firmwareTargets: Static<typeof FirmwareTargetRecord>;
  firmwareDeliveries: Static<typeof FirmwareDeliveryRecord>;
  firmwareCounts: Static<typeof FirmwareCountRecord>;
  commands: Static<typeof CommandRecord> & { sequence: Generated<number> };
  commandCounts: Static<typeof CommandCountRecord>;
  kept: Static<typeof KeptRecord>;
}

/** Tables of entities: they have the common fields, a version and a place in the trash. */
export type EntityTable =
  | 'accountUsers'
  | 'applications'
  | 'identityProviders'
  | 'bridges'
  | 'certificates'
  | 'certificateAuthorities'
  | 'deviceTemplates'
  | 'endUserTemplates'
  | 'organizationTemplates'
  | 'channelTemplates'
  | 'customFields'
  | 'firmwarePackages'
  | 'firmwareRollouts'
  | 'organizations'
  | 'endUsers'
  | 'devices';

/** Rows as the rest of the code knows them: a device is one. */
export interface Rows extends Omit<Tables, 'devices'> {
  devices: Device;
}
export type Row<T extends keyof Tables> = Rows[T];

/** Where whole rows of a table are read. */
export function wholeOf(table: EntityTable): EntityTable {
  return table === 'devices' ? ('wholeDevices' as EntityTable) : table;
}
