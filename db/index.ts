import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { Kysely, type Transaction } from 'kysely';
import { boundedCache } from './cache.js';
import { migrate, registryMigrations } from './migrations/index.js';
import type { Row, Tables } from './records.js';
import { openSqlite, SqliteDialect, transact } from './sqlite.js';

export { isStoreFull, isUniqueViolation } from './sqlite.js';

export type Tx = Transaction<Tables>;
/** The outer handle, or a transaction. */
export type Db = Kysely<Tables>;

/** What the access rules know of a device for every message; the trash included. */
export type Placement = Pick<Row<'devices'>, 'id' | 'accountId' | 'deviceTemplateId' | 'organizationId' | 'deleted'>;
/** What the access rules know of an organization; the trash included. */
export type OrganizationNode = Pick<Row<'organizations'>, 'id' | 'accountId' | 'parentId' | 'deleted'>;
/** A live channel of a device template. */
export type ChannelRow = Pick<
  Row<'channelTemplates'>,
  'id' | 'name' | 'persistenceType' | 'streamBridgeDelivery' | 'accountId' | 'retentionDays'
>;

/** A login session as it is looked up for every request. */
export type SessionRow = Omit<Row<'sessions'>, 'created' | 'address'>;
/** A live application, as the access rules and its sessions need it. */
export type ApplicationRow = Pick<Row<'applications'>, 'id' | 'accountId' | 'kind' | 'accessTokenLifetime'>;
/** What the broker needs to check a secret. */
export type CredentialRow = Pick<
  Row<'credentials'>,
  'accountId' | 'entityId' | 'entityType' | 'secretHash' | 'generation'
>;

/** Who stands behind a live end-user or account user; `organizationId` is null for an account user. */
export interface EntityRole {
  accountId: string;
  userId: string;
  organizationId: string | null;
}

/** A live custom field of a template. */
export type CustomFieldRow = Pick<Row<'customFields'>, 'id' | 'name' | 'fieldType' | 'required' | 'default'>;

/** What an identity is: an admin of the account, or the holder of live end-users, in these organizations. */
export interface Roles {
  accountId: string;
  admin: boolean;
  organizationIds: string[];
}

/** How many credentials are kept in memory. */
const credentialsKept = 10_000;

/** The registry: entities, identities, sessions. Owns its files; `close` ends them. */
export class Registry {
  readonly query: Db;
  readonly #reader: Sqlite.Database;
  readonly #lookups: ReturnType<typeof prepareLookups>;
  readonly #credentials = boundedCache<string, CredentialRow>(credentialsKept);

  private constructor(writer: Sqlite.Database, reader: Sqlite.Database) {
    this.query = new Kysely<Tables>({ dialect: SqliteDialect.of({ writer, reader }) });
    this.#reader = reader;
    this.#lookups = prepareLookups(reader);
  }

  /** Opens `registry.db` in `directory`, made when missing, and brings its schema up to date. */
  static async open(directory: string): Promise<Registry> {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const path = join(directory, 'registry.db');
    await migrate(path, registryMigrations);
    const writer = openSqlite(path);
    // What is destroyed, such as the key of a job's results, is overwritten and not only forgotten.
    writer.pragma('secure_delete = FAST');
    return new Registry(writer, openSqlite(path, { readonly: true }));
  }

  /** Runs `work` in one transaction, durable when the promise resolves. Using `query` inside it throws. */
  transaction<R>(work: (tx: Tx) => Promise<R>): Promise<R> {
    return transact(this.query, work);
  }

  // The look-ups below answer at once, because a broker decision cannot wait. They see what is committed.

  placement(deviceId: string): Placement | undefined {
    return this.#lookups.placement.get(deviceId);
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
    const admin = this.#lookups.accountUser.get(userId) !== undefined;
    return { accountId: identity.accountId, admin, organizationIds: this.#lookups.endUsers.all(userId) };
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

  /** To be told after the commit that made, replaced or removed one. */
  credentialChanged(entityId: string): void {
    this.#credentials.delete(entityId);
  }

  async close(): Promise<void> {
    await this.query.destroy();
  }
}

function prepareLookups(reader: Sqlite.Database) {
  return {
    placement: reader.prepare<[string], Placement>(
      'SELECT "id", "accountId", "deviceTemplateId", "organizationId", "deleted" FROM "devices" WHERE "id" = ?',
    ),
    channels: reader.prepare<[string], ChannelRow>(
      `SELECT "id", "name", "persistenceType", "streamBridgeDelivery", "accountId", "retentionDays"
       FROM "channelTemplates"
       WHERE "entityId" = ? AND "deleted" IS NULL ORDER BY "name"`,
    ),
    customFields: reader.prepare<[string], CustomFieldRow>(
      `SELECT "id", "name", "fieldType", "required", "default" FROM "customFields"
       WHERE "templateId" = ? AND "deleted" IS NULL ORDER BY "name"`,
    ),
    identity: reader.prepare<[string], { accountId: string }>('SELECT "accountId" FROM "identities" WHERE "id" = ?'),
    accountUser: reader.prepare<[string], unknown>(
      'SELECT 1 FROM "accountUsers" WHERE "userId" = ? AND "deleted" IS NULL',
    ),
    endUser: reader.prepare<[string], EntityRole>(
      'SELECT "accountId", "userId", "organizationId" FROM "endUsers" WHERE "id" = ? AND "deleted" IS NULL',
    ),
    accountUserEntity: reader.prepare<[string], EntityRole>(
      'SELECT "accountId", "userId", NULL AS "organizationId" FROM "accountUsers" WHERE "id" = ? AND "deleted" IS NULL',
    ),
    session: reader.prepare<[string], SessionRow>(
      'SELECT "id", "accountId", "userId", "applicationId", "expires", "ended", "csrfHash" FROM "sessions" WHERE "id" = ?',
    ),
    application: reader.prepare<[string], ApplicationRow>(
      'SELECT "id", "accountId", "kind", "accessTokenLifetime" FROM "applications" WHERE "id" = ? AND "deleted" IS NULL',
    ),
    credential: reader.prepare<[string], CredentialRow>(
      'SELECT "accountId", "entityId", "entityType", "secretHash", "generation" FROM "credentials" WHERE "entityId" = ?',
    ),
    endUsers: reader
      .prepare<[string], string>('SELECT "organizationId" FROM "endUsers" WHERE "userId" = ? AND "deleted" IS NULL')
      .pluck(),
  };
}

/**
 * Holds `directory` for this process until it ends, however it ends.
 * @throws Error when another process holds it: two servers on one directory would each miss what the other changes.
 */
export function lockDirectory(directory: string): { release(): void } {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const lock = new Sqlite(join(directory, 'server.lock'), { timeout: 0 });
  try {
    lock.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    lock.close();
    if (error instanceof Sqlite.SqliteError && error.code.startsWith('SQLITE_BUSY'))
      throw new Error('another server is running on it');
    throw error;
  }
  return { release: () => lock.close() };
}
