import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type Sqlite from 'better-sqlite3';
import { Kysely, type Transaction } from 'kysely';
import type { Lane } from '../../src/core/scheduler/lanes.ts';
import { Fence } from '../files/lock.ts';
import { bringUpToDate } from '../files/schema.ts';
import { SqliteDialect, transact } from '../sqlite/dialect.ts';
import { KeptRows } from '../sqlite/kept-rows.ts';
import { type Change, NotedChanges } from '../sqlite/noted-changes.ts';
import { openSqlite, openWriter } from '../sqlite/open.ts';
import { WriterThread } from '../sqlite/writer-thread.ts';
import { changeTriggers } from './device-changes.ts';
import { nameHash } from './distinguished-names.ts';
import {
  type AccessTokenRow,
  type ApplicationRow,
  type AuthorityRow,
  type CertificateRow,
  type ChannelRow,
  type CredentialRow,
  type CustomFieldRow,
  type DeclaredCommandRow,
  type EntityRole,
  type Expiring,
  type OrganizationNode,
  type Placement,
  prepareLookups,
  type RevocationListRow,
  type RoleRow,
  type SessionRow,
} from './lookups.ts';
import type { EntityTable, Row, Tables } from './records.ts';
import { wholeById } from './whole-device.ts';

export { diskFault, isStoreBusy } from '../sqlite/commits.ts';
export { isStoreFull, isUniqueViolation } from '../sqlite/dialect.ts';
export type { Change } from '../sqlite/noted-changes.ts';
export type {
  AccessTokenRow,
  ApplicationRow,
  AuthorityRow,
  CertificateRow,
  ChannelRow,
  CredentialRow,
  CustomFieldRow,
  EntityRole,
  Expiring,
  OrganizationNode,
  Placement,
  RevocationListRow,
  RoleRow,
  SessionRow,
} from './lookups.ts';

export type Tx = Transaction<Tables>;
/** The outer handle, or a transaction. */
export type Db = Kysely<Tables>;

/** What an identity is: an account user, or live end-users. A `roleId` of null is the default role. */
export interface Roles {
  accountId: string;
  admin: { roleId: string | null } | undefined;
  memberships: Array<{ organizationId: string; roleId: string | null }>;
}

type LaneNow = () => Lane | undefined;

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
  readonly #kept: KeptRows;
  readonly #changeListeners = new Set<(changes: readonly Change[]) => void>();

  readonly #fence: Fence | undefined;

  private constructor(
    files: { writer: Sqlite.Database; reader: Sqlite.Database; fence: Fence | undefined; laneNow: LaneNow | undefined },
    writerThread: WriterThread,
  ) {
    const { writer, reader, fence } = files;
    const kept = keepRows(writer);
    const changes = new NotedChanges(writer, changeTriggers);
    const committed = (elsewhere?: readonly unknown[]) => {
      kept.committed();
      this.#tellChanges(elsewhere ? (elsewhere as readonly Change[]) : changes.take());
    };
    const {
      local,
      threaded,
      writer: turns,
    } = SqliteDialect.withThread({ ...files, kept: { committed } }, writerThread);
    this.#kept = kept;
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
    return new Registry(files, new WriterThread({ path, mark: fence?.mark, triggers: changeTriggers }));
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

  /**
   * Calls `listener` after each commit that has changed devices as filters see them, in the turn of the commit; so it may only note them.
   * Changes that were rolled back may be among them. Returns what ends it.
   */
  listenToChanges(listener: (changes: readonly Change[]) => void): () => void {
    this.#changeListeners.add(listener);
    return () => this.#changeListeners.delete(listener);
  }

  #tellChanges(changes: readonly Change[]): void {
    if (changes.length > 0) for (const listener of this.#changeListeners) listener(changes);
  }

  /** Commits something that changes nothing: rejects when nothing can be written, or another program holds the file. */
  proveWritable(): Promise<void> {
    return this.writer.proveWritable();
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
    const found = statement;
    const read = () => found.get(id) as Row<T> | undefined;
    return table === 'devices' ? this.#kept.get(table, id, read) : read();
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

  /** What a device template says of commands of this name. */
  declaredCommand(deviceTemplateId: string, name: string): DeclaredCommandRow | undefined {
    return this.#lookups.declaredCommand.get(name, deviceTemplateId);
  }

  customFieldsOf(templateId: string): CustomFieldRow[] {
    return this.#lookups.customFields.all(templateId);
  }

  /** What is noted of a device in other tables: when its last certificate expires, the state of its newest update, its group. */
  notedOf(
    deviceId: string,
  ): Record<'certificate.expires' | 'firmware.state' | 'enrollmentgroupid', string | undefined> {
    const { certificateExpiry, deliveryState, enrollmentGroup } = this.#lookups;
    return {
      'certificate.expires': certificateExpiry.get(deviceId) ?? undefined,
      'firmware.state': deliveryState.get(deviceId),
      enrollmentgroupid: enrollmentGroup.get(deviceId),
    };
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
    return this.#kept.get('applications', id, (id) => this.#lookups.application.get(id));
  }

  session(id: string): SessionRow | undefined {
    return this.#kept.get('sessions', id, (id) => this.#lookups.session.get(id));
  }

  credential(entityId: string): CredentialRow | undefined {
    return this.#kept.get('credentials', entityId, (id) => this.#lookups.credential.get(id));
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

/** Rows that requests and connections ask for by their ids. What is noted about a connected device is part of its row. */
function keepRows(writer: Sqlite.Database): KeptRows {
  const kept = new KeptRows(writer);
  for (const table of ['sessions', 'applications', 'devices']) kept.watch(table);
  kept.watch('credentials', 'credentials', (row) => `${row}."entityId"`);
  kept.watch('devicePresence', 'devices', (row) => `(SELECT "id" FROM "devices" WHERE "row" = ${row}."row")`);
  return kept;
}
