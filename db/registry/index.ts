import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type Sqlite from 'better-sqlite3';
import { Kysely, type Transaction } from 'kysely';
import type { Lane } from '../../src/scheduler/lanes.ts';
import { Fence } from '../files/lock.ts';
import { bringUpToDate } from '../files/schema.ts';
import { boundedCache } from '../sqlite/cache.ts';
import { SqliteDialect, transact } from '../sqlite/dialect.ts';
import { openSqlite, openWriter } from '../sqlite/open.ts';
import { WriterThread } from '../sqlite/writer-thread.ts';
import { nameHash } from './distinguished-names.ts';
import type { EntityTable, Row, Tables } from './records.ts';
import { wholeById } from './whole-device.ts';

export { diskFault, isStoreBusy } from '../sqlite/commits.ts';
export { isStoreFull, isUniqueViolation } from '../sqlite/dialect.ts';

export type Tx = Transaction<Tables>;
/** The outer handle, or a transaction. */
export type Db = Kysely<Tables>;

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
export type SessionRow = Omit<Row<'sessions'>, 'created' | 'address'>;
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

/** What an identity is: an account user, or live end-users. A `roleId` of null is the default role. */
export interface Roles {
  accountId: string;
  admin: { roleId: string | null } | undefined;
  memberships: Array<{ organizationId: string; roleId: string | null }>;
}

/** Things that expire within a time: their number, counted to a hundred thousand, and the first date. */
export interface Expiring {
  count: number;
  first: string | null;
}

type LaneNow = () => Lane | undefined;

/** That the person of a row may do anything: no provider has disabled it. */
const isEnabled =
  'NOT EXISTS (SELECT 1 FROM "identities" WHERE "identities"."id" = "userId" AND "disabledById" IS NOT NULL)';

/** How many credentials are kept in memory. */
const credentialsKept = 10_000;

/** The registry: entities, identities, sessions. Owns its files; `close` ends them. */
export class Registry {
  readonly query: Db;
  /** Figures of its writer: duration of commits, the last one (milliseconds of `performance`), the queue. */
  readonly writer: ReturnType<typeof SqliteDialect.withThread>['writer'];
  readonly #threaded: Db;
  readonly #writerThread: WriterThread;
  readonly #writer: Sqlite.Database;
  readonly #reader: Sqlite.Database;
  readonly #lookups: ReturnType<typeof prepareLookups>;
  readonly #entities = new Map<EntityTable, Sqlite.Statement<[string], unknown>>();
  readonly #credentials = boundedCache<string, CredentialRow>(credentialsKept);

  readonly #fence: Fence | undefined;

  private constructor(
    files: { writer: Sqlite.Database; reader: Sqlite.Database; fence: Fence | undefined; laneNow: LaneNow | undefined },
    writerThread: WriterThread,
  ) {
    const { writer, reader, fence } = files;
    const { local, threaded, writer: turns } = SqliteDialect.withThread(files, writerThread);
    this.#fence = fence;
    this.writer = turns;
    this.query = new Kysely<Tables>({ dialect: local });
    this.#threaded = new Kysely<Tables>({ dialect: threaded });
    this.#writerThread = writerThread;
    this.#writer = writer;
    this.#reader = reader;
    this.#lookups = prepareLookups(reader);
  }

  /**
   * Opens `registry.db` in `directory`, made when missing, and brings its schema up to date. Commits fail when the directory has
   * another holder than `mark`, or than now without one. `laneNow` says on whose behalf something is written.
   */
  static async open(directory: string, mark?: string, laneNow?: LaneNow): Promise<Registry> {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const path = join(directory, 'registry.db');
    await bringUpToDate(directory, 'registry.db');
    const fence = Fence.open(directory, mark);
    const writer = openWriter(path);
    // The event loop would stand while it waits.
    writer.pragma('busy_timeout = 0');
    const files = {
      writer,
      reader: openSqlite(path, { readonly: true, cache: 'busy' }),
      fence,
      laneNow,
    };
    return new Registry(files, new WriterThread(path, fence?.mark));
  }

  /** Runs `work` in one transaction, durable when the promise resolves. Using `query` inside it throws. */
  transaction<R>(work: (tx: Tx) => Promise<R>): Promise<R> {
    return transact(this.query, work);
  }

  /**
   * As `transaction`, executed by a thread, so that the event loop goes on: for many rows. Others who write wait for its
   * end as for any other; small ones are faster without.
   */
  longTransaction<R>(work: (tx: Tx) => Promise<R>): Promise<R> {
    return transact(this.#threaded, work);
  }

  /** Commits something that changes nothing: rejects when nothing can be written, or another program holds the file. */
  proveWritable(): Promise<void> {
    return this.writer.proveWritable();
  }

  /** Ends the thread of long transactions; the next one starts it again. */
  async restLong(): Promise<void> {
    await this.#writerThread.close();
  }

  // The look-ups below answer at once, because a broker decision cannot wait. They see what is committed.

  /** When the hardware of a device was replaced last; undefined where it never was. */
  replacedAt(deviceId: string): string | undefined {
    return this.#lookups.replaced.get(deviceId) ?? undefined;
  }

  /** The entity, live or in the trash. */
  entity<T extends EntityTable>(table: T, id: string): Row<T> | undefined {
    let statement = this.#entities.get(table);
    if (!statement) {
      const sql = wholeById(table);
      statement = this.#reader.prepare<[string], unknown>(sql);
      this.#entities.set(table, statement);
    }
    return statement.get(id) as Row<T> | undefined;
  }

  placement(deviceId: string): Placement | undefined {
    return this.#lookups.placement.get(deviceId);
  }

  /** Live devices of an account with this serial number, two at most. */
  devicesWithSerialNumber(accountId: string, serialNumber: string): string[] {
    return this.#lookups.withSerialNumber.all(accountId, serialNumber, accountId);
  }

  channelsOf(deviceTemplateId: string): ChannelRow[] {
    return this.#lookups.channels.all(deviceTemplateId);
  }

  customFieldsOf(templateId: string): CustomFieldRow[] {
    return this.#lookups.customFields.all(templateId);
  }

  organizations(): IterableIterator<OrganizationNode> {
    return this.#reader
      .prepare<[], OrganizationNode>('SELECT "id", "accountId", "parentId", "deleted" FROM "organizations"')
      .iterate();
  }

  rolesOf(userId: string): Roles | undefined {
    const identity = this.#lookups.identity.get(userId);
    if (!identity) return undefined;
    const admin = this.#lookups.accountUser.get(userId);
    const memberships = this.#lookups.endUsers.all(userId);
    // Whom a provider has made is nobody without its groups; others may make a first organization.
    if (identity.identityProviderId !== null && !admin && memberships.length === 0) return undefined;
    return { accountId: identity.accountId, admin, memberships };
  }

  accessToken(id: string): AccessTokenRow | undefined {
    return this.#lookups.accessToken.get(id);
  }

  accessTokenBy(tokenHash: string): AccessTokenRow | undefined {
    return this.#lookups.accessTokenBy.get(tokenHash);
  }

  /** The ids of all that a person or an application has made. */
  accessTokensOf(ownerId: string): string[] {
    return this.#lookups.accessTokensOf.all(ownerId);
  }

  role(id: string): RoleRow | undefined {
    return this.#lookups.role.get(id);
  }

  /** A live end-user or account user, by its own id. */
  roleOfEntity(id: string): EntityRole | undefined {
    return this.#lookups.endUser.get(id) ?? this.#lookups.accountUserEntity.get(id);
  }

  application(id: string): ApplicationRow | undefined {
    return this.#lookups.application.get(id);
  }

  session(id: string): SessionRow | undefined {
    return this.#lookups.session.get(id);
  }

  /** Kept in memory for a while: each CONNECT asks four times. */
  credential(entityId: string): CredentialRow | undefined {
    const known = this.#credentials.get(entityId);
    if (known) return known;
    const credential = this.#lookups.credential.get(entityId);
    if (credential) this.#credentials.set(entityId, credential);
    return credential;
  }

  certificates(fingerprint: string): CertificateRow[] {
    return this.#lookups.certificates.all(fingerprint);
  }

  /** Whether a device has enrolled and its present credential has never been used. */
  isEnrollmentUnused(deviceId: string): boolean {
    return this.#lookups.unusedEnrollment.get(deviceId) === 1;
  }

  /** The device that a group has made under a serial number. */
  enrollment(groupId: string, serialNumber: string): Row<'enrollments'> | undefined {
    return this.#lookups.enrollment.get(groupId, serialNumber);
  }

  /** Whether there is a live certificate or an active CA. */
  hasCertificates(): boolean {
    return this.#lookups.anyCertificate.get() === 1;
  }

  /** Active CAs of this subject (RFC 5280, 7.1), in all accounts, but those that issue: of theirs each certificate is registered. */
  authoritiesNamed(subject: string): AuthorityRow[] {
    return this.#lookups.authorities.all(nameHash(subject));
  }

  /** What a live CA has as its revocation list; undefined without one. */
  revocationList(authorityId: string): RevocationListRow | undefined {
    return this.#lookups.revocationList.get(authorityId);
  }

  /** The part of a CA's revocation list in which this digest, hex, would be. */
  revocationListPart(authorityId: string, digest: string): Buffer | undefined {
    return this.#lookups.revocationListPart.get(authorityId, digest);
  }

  /** CAs that let nobody in because their revocation lists have expired, after a time until another (ISO 8601). */
  expiredLists(after: string, until: string): string[] {
    return this.#lookups.expiredLists.all(after, until);
  }

  /** How many live CAs have a revocation list that has expired. */
  countExpiredLists(now: string): number {
    return this.#lookups.expiredListCount.get(now) ?? 0;
  }

  /** When a live certificate, or a live CA, expires; undefined when it is not there. */
  validityOf(certificateId: string): string | undefined {
    return this.#lookups.certificateEnd.get(certificateId) ?? this.#lookups.authorityEnd.get(certificateId);
  }

  /** Grows with each certificate of an issuing CA that is revoked; 0 when none is on its list. */
  newestRevocation(authorityId: string): number {
    return this.#lookups.newestRevocation.get(authorityId) ?? 0;
  }

  /** How many live certificates and CAs expire in a time, and the first date of them. */
  expiring(from: string, to: string): { certificates: Expiring; authorities: Expiring } {
    const none = { count: 0, first: null };
    return {
      certificates: this.#lookups.expiringCertificates.get(from, to) ?? none,
      authorities: this.#lookups.expiringAuthorities.get(from, to) ?? none,
    };
  }

  /** To be told after the commit that made, replaced or removed one. */
  credentialChanged(entityId: string): void {
    this.#credentials.delete(entityId);
  }

  /** As credentialChanged, of any number of entities. */
  credentialsChanged(): void {
    this.#credentials.clear();
  }

  /**
   * Empties the write-ahead log, in which what has been overwritten may still stand; false when it could not be done now,
   * because somebody writes, or another program reads. It waits for nobody.
   */
  emptyLog(): boolean {
    try {
      const [done] = this.#writer.pragma('wal_checkpoint(TRUNCATE)') as Array<{ busy: number }>;
      return done?.busy === 0;
    } catch {
      return false;
    }
  }

  async close(): Promise<void> {
    await this.#writerThread.close();
    await this.query.destroy();
    this.#fence?.close();
  }
}

const tokenColumns = '"id", "accountId", "ownerId", "expires", "rights", "organizationId", "lastUsed", "lastAddress"';

function prepareLookups(reader: Sqlite.Database) {
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
    customFields: reader.prepare<[string], CustomFieldRow>(
      `SELECT "id", "name", "fieldType", "required", "default" FROM "customFields"
       WHERE "templateId" = ? AND "deleted" IS NULL ORDER BY "name"`,
    ),
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
