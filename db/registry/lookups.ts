/** What the registry looks up at each request and connection: by its identity, in prepared statements. */
import type Sqlite from 'better-sqlite3';
import type { Row } from './records.ts';

/** The facts about a device that the access rules need for every message; the trash included. */
export type Placement = Pick<
  Row<'devices'>,
  | 'id'
  | 'accountId'
  | 'deviceTemplateId'
  | 'organizationId'
  | 'deleted'
  | 'possession'
  | 'possessionFirst'
  | 'possessionSince'
>;
/** The facts about an organization that the access rules need; the trash included. */
export type OrganizationNode = Pick<Row<'organizations'>, 'id' | 'accountId' | 'parentId' | 'deleted'>;
/** A live channel of a device template. */
export type ChannelRow = Pick<
  Row<'channelTemplates'>,
  'id' | 'name' | 'persistenceType' | 'streamBridgeDelivery' | 'accountId' | 'retentionDays' | 'payload'
>;

/** A login session as it is looked up for every request. */
export type SessionRow = Omit<Row<'sessions'>, 'created' | 'address' | 'browser'>;
/** A live application, as the access rules and its sessions need it. */
export type ApplicationRow = Pick<
  Row<'applications'>,
  'id' | 'accountId' | 'kind' | 'accessTokenLifetime' | 'deviceTemplateId' | 'organizationId' | 'expiresAt' | 'roleId'
>;
/** The stored values with which the broker checks a secret. */
export type CredentialRow = Pick<
  Row<'credentials'>,
  | 'accountId'
  | 'entityId'
  | 'entityType'
  | 'secretHash'
  | 'generation'
  | 'previousHash'
  | 'previousGeneration'
  | 'previousUntil'
>;

/** A live certificate of a device, as it is looked up for a connection. */
export type CertificateRow = Pick<Row<'certificates'>, 'id' | 'accountId' | 'entityId' | 'certificateAuthorityId'>;
/** A live CA of an account, as it is looked up for a certificate that names it as its issuer. */
export type AuthorityRow = Pick<
  Row<'certificateAuthorities'>,
  'id' | 'accountId' | 'certificate' | 'createDevices' | 'identity' | 'serialNumberAttribute'
>;

/** The revocation list of a live CA; absent without one. */
export type RevocationListRow = Pick<Row<'certificateAuthorities'>, 'crlPolicy' | 'crlNextUpdate'>;

/** A live end-user or account user; `userId` is null without a person, `organizationId` for an account user. */
export interface EntityRole {
  accountId: string;
  userId: string | null;
  organizationId: string | null;
  roleId: string | null;
}

/** A token as it is looked up for each request. */
export type AccessTokenRow = Omit<Row<'accessTokens'>, 'name' | 'tokenHash' | 'created'>;

/** A live role that an account has made; `rights` is JSON. */
export type RoleRow = Pick<Row<'roles'>, 'name' | 'description' | 'rights'>;

/** A live custom field of a template. */
export type CustomFieldRow = Pick<Row<'customFields'>, 'id' | 'name' | 'fieldType' | 'required' | 'default'>;

/** Whether a device template takes declared commands only, whether it declares one, and the JSON Schema of its payloads. */
export interface DeclaredCommandRow {
  commandsOnly: number;
  declared: number;
  parameters: string | null;
}

/** Things that expire within a time: their number, counted to a hundred thousand, and the first date. */
export interface Expiring {
  count: number;
  first: string | null;
}

/** That the person of a row may do anything: no provider has disabled it. */
const isEnabled =
  'NOT EXISTS (SELECT 1 FROM "identities" WHERE "identities"."id" = "userId" AND "disabledById" IS NOT NULL)';

const tokenColumns = '"id", "accountId", "ownerId", "expires", "rights", "organizationId", "lastUsed", "lastAddress"';

export function prepareLookups(reader: Sqlite.Database) {
  return {
    placement: reader.prepare<[string], Placement>(
      `SELECT "id", "accountId", "deviceTemplateId", "organizationId", "deleted", "possession", "possessionFirst", "possessionSince"
       FROM "devices" WHERE "id" = ?`,
    ),
    withSerialNumber: reader
      .prepare<[string, string, string], string>(
        // In no order: one by id would read every device of the account.
        `SELECT "id" FROM "devices" WHERE substr("accountId", 27) = substr(?, 27) AND "deleted" IS NULL
         AND "serialNumber" = ? AND "accountId" = ? LIMIT 2`,
      )
      .pluck(),
    replaced: reader.prepare<[string], string | null>('SELECT "replaced" FROM "devices" WHERE "id" = ?').pluck(),
    channels: reader.prepare<[string], ChannelRow>(
      `SELECT "id", "name", "persistenceType", "streamBridgeDelivery", "accountId", "retentionDays", "payload"
       FROM "channelTemplates"
       WHERE "entityId" = ? AND "deleted" IS NULL ORDER BY "name"`,
    ),
    declaredCommand: reader.prepare<[string, string], DeclaredCommandRow>(
      `SELECT "commandsOnly", "value" IS NOT NULL AS "declared", json_extract("value", '$.parameters') AS "parameters"
       FROM "deviceTemplates" LEFT JOIN json_each("commands") ON json_extract("value", '$.name') = ?
       WHERE "deviceTemplates"."id" = ?`,
    ),
    customFields: reader.prepare<[string], CustomFieldRow>(
      `SELECT "id", "name", "fieldType", "required", "default" FROM "customFields"
       WHERE "templateId" = ? AND "deleted" IS NULL ORDER BY "name"`,
    ),
    certificateExpiry: reader
      .prepare<[string], string | null>(
        `SELECT max("validTo") FROM "certificates" WHERE "entityId" = ? AND "entityType" = 'device' AND "deleted" IS NULL`,
      )
      .pluck(),
    deliveryState: reader
      .prepare<[string], string>(
        'SELECT "state" FROM "firmwareDeliveries" WHERE "deviceId" = ? ORDER BY "rolloutId" DESC LIMIT 1',
      )
      .pluck(),
    enrollmentGroup: reader
      .prepare<[string], string>('SELECT "groupId" FROM "enrollments" WHERE "deviceId" = ?')
      .pluck(),
    identity: reader.prepare<[string], Pick<Row<'identities'>, 'accountId' | 'identityProviderId'>>(
      'SELECT "accountId", "identityProviderId" FROM "identities" WHERE "id" = ? AND "disabledById" IS NULL',
    ),
    accessToken: reader.prepare<[string], AccessTokenRow>(`SELECT ${tokenColumns} FROM "accessTokens" WHERE "id" = ?`),
    accessTokenBy: reader.prepare<[string], AccessTokenRow>(
      `SELECT ${tokenColumns} FROM "accessTokens" WHERE "tokenHash" = ?`,
    ),
    accessTokensOf: reader.prepare<[string], string>('SELECT "id" FROM "accessTokens" WHERE "ownerId" = ?').pluck(),
    accountUser: reader.prepare<[string], { roleId: string | null }>(
      'SELECT "roleId" FROM "accountUsers" WHERE "userId" = ? AND "deleted" IS NULL',
    ),
    role: reader.prepare<[string], RoleRow>(
      'SELECT "name", "description", "rights" FROM "roles" WHERE "id" = ? AND "deleted" IS NULL',
    ),
    endUser: reader.prepare<[string], EntityRole>(
      `SELECT "accountId", "userId", "organizationId", "roleId" FROM "endUsers"
       WHERE "id" = ? AND "deleted" IS NULL AND ${isEnabled}`,
    ),
    accountUserEntity: reader.prepare<[string], EntityRole>(
      `SELECT "accountId", "userId", NULL AS "organizationId", "roleId" FROM "accountUsers"
       WHERE "id" = ? AND "deleted" IS NULL AND ${isEnabled}`,
    ),
    session: reader.prepare<[string], SessionRow>(
      'SELECT "id", "accountId", "userId", "applicationId", "expires", "ended", "csrfHash", "lastUsed" FROM "sessions" WHERE "id" = ?',
    ),
    application: reader.prepare<[string], ApplicationRow>(
      `SELECT "id", "accountId", "kind", "accessTokenLifetime", "deviceTemplateId", "organizationId", "expiresAt", "roleId"
       FROM "applications" WHERE "id" = ? AND "deleted" IS NULL`,
    ),
    credential: reader.prepare<[string], CredentialRow>(
      `SELECT "accountId", "entityId", "entityType", "secretHash", "generation",
              "previousHash", "previousGeneration", "previousUntil"
       FROM "credentials" WHERE "entityId" = ?`,
    ),
    certificates: reader.prepare<[string], CertificateRow>(
      `SELECT "id", "accountId", "entityId", "certificateAuthorityId" FROM "certificates" AS "c"
       WHERE "fingerprint" = ? AND "deleted" IS NULL AND ${hasIssuer}`,
    ),
    unusedEnrollment: reader
      .prepare<[string], number>('SELECT 1 FROM "enrollments" WHERE "deviceId" = ? AND "used" = 0')
      .pluck(),
    enrollment: reader.prepare<[string, string], Row<'enrollments'>>(
      'SELECT * FROM "enrollments" WHERE "groupId" = ? AND "serialNumber" = ?',
    ),
    anyCertificate: reader
      .prepare<[], number>(
        `SELECT EXISTS (SELECT 1 FROM "certificates" WHERE "deleted" IS NULL)
         OR EXISTS (SELECT 1 FROM "certificateAuthorities" WHERE "state" = 'active' AND "deleted" IS NULL)`,
      )
      .pluck(),
    authorities: reader.prepare<[string], AuthorityRow>(
      `SELECT "id", "accountId", "certificate", "createDevices", "identity", "serialNumberAttribute"
       FROM "certificateAuthorities"
       WHERE "subjectHash" = ? AND "state" = 'active' AND "issuing" = 0 AND "deleted" IS NULL ORDER BY "id"`,
    ),
    certificateEnd: reader
      .prepare<[string], string>(
        `SELECT "validTo" FROM "certificates" AS "c" WHERE "id" = ? AND "deleted" IS NULL AND ${hasIssuer}`,
      )
      .pluck(),
    authorityEnd: reader
      .prepare<[string], string>('SELECT "validTo" FROM "certificateAuthorities" WHERE "id" = ? AND "deleted" IS NULL')
      .pluck(),
    revocationList: reader.prepare<[string], RevocationListRow>(
      `SELECT "crlPolicy", "crlNextUpdate" FROM "certificateAuthorities"
       WHERE "id" = ? AND "crlNumber" IS NOT NULL AND "deleted" IS NULL`,
    ),
    revocationListPart: reader
      .prepare<[string, string], Buffer>(
        `SELECT "digests" FROM "revocationListParts" WHERE "certificateAuthorityId" = ? AND "first" <= ?
         ORDER BY "first" DESC LIMIT 1`,
      )
      .pluck(),
    expiredLists: reader
      .prepare<[string, string], string>(
        `SELECT "id" FROM "certificateAuthorities" WHERE "crlPolicy" = 'refuse' AND "deleted" IS NULL
         AND "crlNextUpdate" > ? AND "crlNextUpdate" <= ?`,
      )
      .pluck(),
    expiredListCount: reader
      .prepare<[string], number>(
        'SELECT count(*) FROM "certificateAuthorities" WHERE "crlNextUpdate" <= ? AND "deleted" IS NULL',
      )
      .pluck(),
    newestRevocation: reader
      .prepare<[string], number | null>(
        'SELECT max("sequence") FROM "revokedCertificates" WHERE "certificateAuthorityId" = ?',
      )
      .pluck(),
    expiringCertificates: expiringIn(reader, 'certificates'),
    expiringAuthorities: expiringIn(reader, 'certificateAuthorities'),
    endUsers: reader.prepare<[string], { organizationId: string; roleId: string | null }>(
      'SELECT "organizationId", "roleId" FROM "endUsers" WHERE "userId" = ? AND "deleted" IS NULL',
    ),
  };
}

/** Whether the certificate `c` was registered, or has a CA that is still there. */
const hasIssuer = `("certificateAuthorityId" IS NULL OR EXISTS
  (SELECT 1 FROM "certificateAuthorities" WHERE "id" = "c"."certificateAuthorityId" AND "deleted" IS NULL))`;

function expiringIn(reader: Sqlite.Database, table: 'certificates' | 'certificateAuthorities') {
  return reader.prepare<[string, string], Expiring>(
    `SELECT count(*) AS "count", min("validTo") AS "first" FROM (SELECT "validTo" FROM "${table}"
     WHERE "validTo" >= ? AND "validTo" < ? AND "deleted" IS NULL ORDER BY "validTo" LIMIT 100000)`,
  );
}
