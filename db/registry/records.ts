/**
 * Each stored record as one TypeBox object: the row type of its table and the base of its wire shape.
 * Columns have the names of the API, so that a row needs no translation. Ids and dates are text.
 */
import type { Generated } from 'kysely';
import { type Static, type TSchema, Type } from 'typebox';

/** A type that may be null, written as `type: [..., 'null']`, which validators and OpenAPI 3.1 read without a union. */
export const Nullable = <T extends TSchema>(schema: T) =>
  Type.Unsafe<Static<T> | null>({ ...schema, type: [(schema as { type?: string }).type ?? 'string', 'null'] });

export const Id = Type.String({ format: 'uuid' });
export const DateText = Type.String({ format: 'date-time' });
const OptionalId = Nullable(Id);
const OptionalText = Nullable(Type.String());
const OptionalDate = Nullable(DateText);

/** Fields common to every entity; `version` is a counter here and base 36 text on the wire. */
export const common = {
  id: Id,
  accountId: Id,
  created: DateText,
  createdById: Type.String(),
  lastModified: DateText,
  lastModifiedById: Type.String(),
  version: Type.Integer(),
  deleted: OptionalDate,
};

/** `retentionDays`: how long messages are kept; null is the service's default, 0 forever. */
export const AccountRecord = Type.Object({
  id: Id,
  name: Type.String(),
  created: DateText,
  retentionDays: Nullable(Type.Integer()),
});

/** A person who can log in. `email` is as given, `emailKey` is compared. */
export const IdentityRecord = Type.Object({
  id: Id,
  accountId: Id,
  email: Type.String(),
  emailKey: Type.String(),
  passwordHash: OptionalText,
  organizationsMade: Type.Integer(),
  created: DateText,
  emailConfirmed: Type.Integer({
    description: '1 when somebody has shown that the address is theirs: by a mailed token, or by a provider.',
  }),
  passwordChosenBy: OptionalText,
  name: OptionalText,
  firstName: OptionalText,
  lastName: OptionalText,
  company: OptionalText,
  department: OptionalText,
  phoneNumber: OptionalText,
  address: OptionalText,
  addressObject: Nullable(Type.String({ description: 'JSON, for an address that was given as an object.' })),
});

/** A login session of a person (`userId`) or of an application; `address` is the network it was opened from. */
export const SessionRecord = Type.Object({
  id: Id,
  accountId: Id,
  userId: OptionalId,
  applicationId: OptionalId,
  created: DateText,
  expires: DateText,
  ended: OptionalDate,
  csrfHash: Type.String(),
  address: OptionalText,
});

/**
 * A program that calls. `accessTokenLifetime` in seconds; null is the default. A station makes
 * devices of one template in one organization, until it `expiresAt` or has made `maxDevices`.
 */
export const ApplicationRecord = Type.Object({
  ...common,
  name: Type.String(),
  kind: Type.String(),
  tokenHash: Type.String(),
  accessTokenLifetime: Nullable(Type.Integer()),
  revealResetToken: Type.Integer(),
  deviceTemplateId: OptionalId,
  organizationId: OptionalId,
  maxDevices: Nullable(Type.Integer()),
  madeDevices: Type.Integer(),
  expiresAt: OptionalDate,
});

/** A token that was sent by mail, for one purpose: `password`, or `email` with the new address. */
export const MailedTokenRecord = Type.Object({
  tokenHash: Type.String(),
  userId: Id,
  purpose: Type.String(),
  email: OptionalText,
  created: DateText,
  expires: DateText,
});

/**
 * A second factor of a person: `totp` with a sealed secret and the last time step used, `sms` with a phone number. It
 * counts once `confirmed`. `tries` are of the code that confirms it, or, texted (`codeHash`), removes it.
 */
export const MfaMethodRecord = Type.Object({
  userId: Id,
  method: Type.String(),
  created: DateText,
  confirmed: OptionalDate,
  sealedSecret: OptionalText,
  phoneNumber: OptionalText,
  lastStep: Nullable(Type.Integer()),
  codeHash: OptionalText,
  codeExpires: OptionalDate,
  tries: Type.Integer(),
});

export const RecoveryCodeRecord = Type.Object({ userId: Id, codeHash: Type.String() });

/** A login that waits for its second factor; a new password ends it. `codeHash` is of the code that was texted last. */
export const MfaLoginRecord = Type.Object({
  tokenHash: Type.String(),
  userId: Id,
  renewalType: OptionalText,
  expires: DateText,
  tries: Type.Integer(),
  codesSent: Type.Integer(),
  codeHash: OptionalText,
  codeExpires: OptionalDate,
});

/** An OpenID provider of an account. `redirectUris` is a JSON array. */
export const IdentityProviderRecord = Type.Object({
  ...common,
  name: Type.String(),
  issuer: Type.String(),
  clientId: Type.String(),
  sealedClientSecret: OptionalText,
  scope: Type.String(),
  redirectUris: Type.String(),
});

/** Where messages are sent on to. The URL may hold a password of its own: it is sealed as the secret is. */
export const BridgeRecord = Type.Object({
  ...common,
  name: Type.String(),
  kind: Type.String(),
  sealedUrl: Type.String(),
  sealedSecret: OptionalText,
  form: Type.String(),
  /** A JSON object of texts. */
  settings: Type.String(),
});

/** Who a subject of an issuer is here. */
export const FederatedIdentityRecord = Type.Object({
  accountId: Id,
  issuer: Type.String(),
  subject: Type.String(),
  userId: Id,
  created: DateText,
});

/** A federated login under way, bound to one browser; `sealed` holds its nonce, its PKCE verifier and where it leads. */
export const FederatedLoginRecord = Type.Object({
  stateHash: Type.String(),
  providerId: Id,
  browserHash: Type.String(),
  sealed: Type.String(),
  expires: DateText,
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

export const AccountUserRecord = Type.Object({ ...common, userId: Id });

/** Device, end-user and organization templates have one shape; `fields` holds values of device templates only. */
export const TemplateRecord = Type.Object({
  ...common,
  name: Type.String(),
  default: Type.Integer(),
  fields: Type.String(),
});

export const ChannelTemplateRecord = Type.Object({
  ...common,
  entityId: Id,
  entityType: Type.String(),
  name: Type.String(),
  streamBridgeDelivery: Type.Integer({ minimum: 0, maximum: 2 }),
  persistenceType: Type.String(),
  retentionDays: Nullable(Type.Integer()),
  payload: Type.String({ description: 'The form of payloads: src/messages/payload/payload.ts.' }),
});

/** A custom field. `templateId` is the account's id for fields of device templates themselves. */
export const CustomFieldRecord = Type.Object({
  ...common,
  kind: Type.String(),
  templateId: Id,
  name: Type.String(),
  fieldType: Type.String(),
  description: OptionalText,
  required: Type.Integer(),
  default: OptionalText,
});

export const OrganizationRecord = Type.Object({
  ...common,
  organizationTemplateId: Id,
  parentId: OptionalId,
  name: Type.String(),
  fields: Type.String(),
});

/** `userId` is null for one without a person: nobody can log in as it. */
export const EndUserRecord = Type.Object({
  ...common,
  endUserTemplateId: Id,
  organizationId: Id,
  userId: OptionalId,
  fields: Type.String(),
});

/** `replaced`: when its hardware was replaced last; certificates that CAs have issued before count no more. */
export const DeviceRecord = Type.Object({
  ...common,
  deviceTemplateId: Id,
  organizationId: OptionalId,
  serialNumber: Type.String(),
  provisioningState: Type.String(),
  firmwareVersion: OptionalText,
  latitude: OptionalText,
  longitude: OptionalText,
  connected: Type.Integer(),
  lastConnected: OptionalDate,
  externalIp: OptionalText,
  geoIpLatitude: OptionalText,
  geoIpLongitude: OptionalText,
  reverseDns: OptionalText,
  replaced: OptionalDate,
  fields: Type.String(),
});

/**
 * Broker credentials, in a table of their own. `entityId` is the broker username. A connection made with an older
 * `generation` is closed, except that the previous one stays valid until `previousUntil` (`graceSeconds`).
 */
export const CredentialRecord = Type.Object({
  id: Id,
  accountId: Id,
  entityId: Id,
  entityType: Type.String(),
  secretHash: Type.String(),
  generation: Type.Integer(),
  created: DateText,
  createdById: Type.String(),
  lastModified: DateText,
  lastModifiedById: Type.String(),
  version: Type.Integer(),
  previousHash: OptionalText,
  previousGeneration: Nullable(Type.Integer()),
  previousUntil: OptionalDate,
});

/** A client certificate of a device. `fingerprint` is the SHA-256 of its DER, lower-case hex. */
export const CertificateRecord = Type.Object({
  ...common,
  entityId: Id,
  entityType: Type.String(),
  certificate: Type.String({ description: 'PEM' }),
  fingerprint: Type.String(),
  subject: Type.String(),
  issuer: Type.String(),
  validFrom: DateText,
  validTo: DateText,
});

/** A CA of an account, whose certificates let in the device that their CN names; it may make it. */
export const CertificateAuthorityRecord = Type.Object({
  ...common,
  name: Type.String(),
  certificate: Type.String({ description: 'PEM' }),
  fingerprint: Type.String(),
  subject: Type.String(),
  validFrom: DateText,
  validTo: DateText,
  createDevices: Type.Integer(),
  deviceTemplateId: OptionalId,
  organizationId: OptionalId,
  state: Type.String({ description: '`pending` until the account has shown that it holds the key, then `active`.' }),
  challenge: OptionalText,
});

/** When a device has published first since it was provisioned. */
export const PublicationRecord = Type.Object({ deviceId: Id, time: DateText });

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
 * Work on many devices: `provision`, `delete`, `move` or `regenerate`. `checksum` is of caller, parameters
 * and rows: a repeat finds its job by it; null for dry runs and forced jobs. `sealedKey` opens the results of the rows
 * until they are confirmed or `expires` is over; then it is destroyed, and they with it. `reason` says why it could not go on.
 * `keptRows` is how many of its rows are still there, `keptBytes` how long they were as they came.
 */
export const JobRecord = Type.Object({
  id: Id,
  accountId: Id,
  created: DateText,
  createdById: Type.String(),
  createdByKind: Type.String(),
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
  sealedResult: Nullable(Type.Unsafe<Buffer>({ type: 'string' })),
});

/** One code per device; the device's former code is gone. */
export const AssociationCodeRecord = Type.Object({
  deviceId: Id,
  accountId: Id,
  codeHash: Type.String(),
  created: DateText,
  createdById: Type.String(),
});

/**
 * The first answer to a request with an Idempotency-Key, sealed with a key made from that key. `entityId` is written in
 * the transaction that made the entity, the answer after it: a crash in between loses neither. `secretOf` is the device
 * whose secret the answer carries.
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

/**
 * Why something of a device was refused. The principal is who was refused, with whose address and client
 * id: the device, or a user or an application that spoke to it; null for a CONNECT that proved nothing.
 */
export const RefusalRecord = Type.Object({
  accountId: Id,
  deviceId: Id,
  time: DateText,
  action: Type.String(),
  topic: OptionalText,
  reason: Type.String(),
  code: Type.Integer(),
  address: OptionalText,
  clientId: OptionalText,
  principalType: OptionalText,
  principalId: OptionalText,
});

/** How many live devices of an account are alike in what the lists filter by; kept by triggers, never 0. */
export const DeviceCountRecord = Type.Object({
  accountId: Id,
  deviceTemplateId: Id,
  provisioningState: Type.String(),
  connected: Type.Integer(),
  count: Type.Integer(),
});

/** The same for each organization; '' is outside of every one. */
export const PlacedDeviceCountRecord = Type.Object({ ...DeviceCountRecord.properties, organizationId: Type.String() });

/** How many live devices of an account contain a folded text in a column: texts asked for and found often, some of them. */
export const DeviceTextCountRecord = Type.Object({
  accountId: Id,
  column: Type.String(),
  pattern: Type.String(),
  count: Type.Integer(),
});

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

/** How much an account keeps of what could grow without end; kept by triggers. */
export const KeptRecord = Type.Object({ accountId: Id, what: Type.String(), amount: Type.Integer() });

/** The tables of registry.db. */
export interface Tables {
  accounts: Static<typeof AccountRecord>;
  identities: Static<typeof IdentityRecord>;
  sessions: Static<typeof SessionRecord>;
  applications: Static<typeof ApplicationRecord>;
  mailedTokens: Static<typeof MailedTokenRecord>;
  mfaMethods: Static<typeof MfaMethodRecord>;
  recoveryCodes: Static<typeof RecoveryCodeRecord>;
  mfaLogins: Static<typeof MfaLoginRecord>;
  identityProviders: Static<typeof IdentityProviderRecord>;
  bridges: Static<typeof BridgeRecord>;
  federatedIdentities: Static<typeof FederatedIdentityRecord>;
  federatedLogins: Static<typeof FederatedLoginRecord>;
  auditRecords: Static<typeof AuditRecord> & { sequence: Generated<number> };
  accountUsers: Static<typeof AccountUserRecord>;
  deviceTemplates: Static<typeof TemplateRecord>;
  endUserTemplates: Static<typeof TemplateRecord>;
  organizationTemplates: Static<typeof TemplateRecord>;
  channelTemplates: Static<typeof ChannelTemplateRecord>;
  customFields: Static<typeof CustomFieldRecord>;
  organizations: Static<typeof OrganizationRecord>;
  endUsers: Static<typeof EndUserRecord>;
  devices: Static<typeof DeviceRecord>;
  credentials: Static<typeof CredentialRecord>;
  certificates: Static<typeof CertificateRecord>;
  certificateAuthorities: Static<typeof CertificateAuthorityRecord>;
  publications: Static<typeof PublicationRecord>;
  verifications: Static<typeof VerificationRecord>;
  jobs: Static<typeof JobRecord>;
  jobRows: Static<typeof JobRowRecord>;
  associationCodes: Static<typeof AssociationCodeRecord>;
  refusals: Static<typeof RefusalRecord> & { sequence: Generated<number> };
  deviceCounts: Static<typeof DeviceCountRecord>;
  placedDeviceCounts: Static<typeof PlacedDeviceCountRecord>;
  deviceTextCounts: Static<typeof DeviceTextCountRecord>;
  idempotentAnswers: Static<typeof IdempotentAnswerRecord>;
  firmwarePackages: Static<typeof FirmwarePackageRecord>;
  firmwareFiles: Static<typeof FirmwareFileRecord>;
  firmwareUploads: Static<typeof FirmwareUploadRecord>;
  firmwareRollouts: Static<typeof FirmwareRolloutRecord>;
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

export type Row<T extends keyof Tables> = Tables[T];
