import type Sqlite from 'better-sqlite3';
import { Kysely } from 'kysely';
import { SqliteDialect } from '../sqlite/dialect.ts';
import { openSqlite } from '../sqlite/open.ts';
import * as foundation from './0001-foundation.ts';
import * as registry from './0002-registry.ts';
import * as deviceLists from './0003-device-lists.ts';
import * as text from './0004-text.ts';
import * as identity from './0005-identity.ts';
import * as refusals from './0006-refusals.ts';
import * as bridges from './0008-bridges.ts';
import * as retention from './0009-retention.ts';
import * as factory from './0010-factory.ts';
import * as refusedPrincipals from './0011-refused-principals.ts';
import * as replacedHardware from './0012-replaced-hardware.ts';
import * as answerCallers from './0015-answer-callers.ts';
import * as proofs from './0016-proofs.ts';
import * as clients from './0017-clients.ts';
import * as firmware from './0018-firmware.ts';
import * as commands from './0019-commands.ts';
import * as bridgeKinds from './0020-bridge-kinds.ts';
import * as kept from './0022-kept.ts';
import * as presence from './0023-presence.ts';
import * as deviceIndexes from './0024-device-indexes.ts';
import * as listCounts from './0025-list-counts.ts';
import * as commandBytes from './0026-command-bytes.ts';
import * as entityBytes from './0028-entity-bytes.ts';
import * as textOfAccounts from './0029-text-of-accounts.ts';
import * as enrollment from './0030-enrollment.ts';
import * as activity from './0031-activity.ts';
import * as issuedCertificates from './0032-issued-certificates.ts';
import * as versionsOfProducts from './0036-versions-of-products.ts';
import * as roles from './0037-roles.ts';
import * as accessTokens from './0038-access-tokens.ts';
import * as renewals from './0040-renewals.ts';
import * as revocationLists from './0041-revocation-lists.ts';
import * as groups from './0044-groups.ts';
import * as scim from './0045-scim.ts';
import * as possession from './0046-possession.ts';
import * as directoryMarks from './0047-directory-marks.ts';
import * as serialNumbers from './0050-serial-numbers.ts';
import * as namesOfAuthorities from './0052-names-of-authorities.ts';
import * as kindsOfCodes from './0053-kinds-of-codes.ts';
import * as support from './0054-support.ts';
import * as goingBack from './0056-going-back.ts';
import * as commandsOfJobs from './0063-commands-of-jobs.ts';
import * as indexedFields from './0064-indexed-fields.ts';
import { commonColumns } from './common-columns.ts';
import { countRows, countText } from './entity-bytes.ts';
import { executeAll } from './execute.ts';
import { deviceTextIndex } from './text-index.ts';

/** One numbered step. `mayLose` names the tables from which it is meant to remove rows. */
export interface Migration {
  name: string;
  up(db: Kysely<unknown>): Promise<void>;
  mayLose?: readonly string[];
}

/** A step that is a few SQL statements, such as a new column. */
export function sqlStep(name: string, ...statements: string[]): Migration {
  return { name, up: (db) => executeAll(db, statements) };
}

/** The steps of registry.db, in order. A step that has been released is never changed. */
export const registryMigrations: readonly Migration[] = [
  foundation,
  registry,
  deviceLists,
  text,
  identity,
  refusals,
  bridges,
  retention,
  factory,
  refusedPrincipals,
  replacedHardware,
  answerCallers,
  proofs,
  clients,
  firmware,
  commands,
  bridgeKinds,
  kept,
  presence,
  deviceIndexes,
  listCounts,
  commandBytes,
  sqlStep('0027-session-uses', 'ALTER TABLE "sessions" ADD COLUMN "lastUsed" TEXT'),
  entityBytes,
  textOfAccounts,
  enrollment,
  activity,
  issuedCertificates,
  sqlStep(
    '0033-claiming',
    'ALTER TABLE "accounts" ADD COLUMN "signUp" INTEGER NOT NULL DEFAULT 1',
    'ALTER TABLE "identities" ADD COLUMN "signedUp" INTEGER NOT NULL DEFAULT 0',
    `CREATE TABLE "brandings" ("accountId" TEXT NOT NULL PRIMARY KEY REFERENCES "accounts" ("id"), "name" TEXT, "color" TEXT,
      "logo" TEXT) STRICT`,
    ...countRows('brandings', { row: 200, texts: { name: 1, color: 1, logo: 1 } }),
  ),
  sqlStep(
    '0034-categories',
    `ALTER TABLE "channelTemplates" ADD COLUMN "categories" TEXT NOT NULL DEFAULT '[]'`,
    ...countText('channelTemplates', 'categories', 1),
  ),
  sqlStep('0035-device-names', ...deviceTextIndex('name', 'fields', (row) => `json_extract(${row}"fields", '$.name')`)),
  versionsOfProducts,
  roles,
  accessTokens,
  sqlStep(
    '0039-serial-number-attribute',
    `ALTER TABLE "certificateAuthorities" ADD COLUMN "serialNumberAttribute" TEXT NOT NULL DEFAULT 'CN'`,
  ),
  renewals,
  revocationLists,
  sqlStep(
    '0042-identity-of-certificates',
    `ALTER TABLE "certificateAuthorities" ADD COLUMN "identity" TEXT NOT NULL DEFAULT 'id'`,
    `ALTER TABLE "certificateAuthorities" ADD COLUMN "subjectFields" TEXT NOT NULL DEFAULT '{}'`,
    ...countText('certificateAuthorities', 'subjectFields', 1),
  ),
  groups,
  scim,
  possession,
  directoryMarks,
  sqlStep(
    '0048-headers-of-bridges',
    'ALTER TABLE "bridges" ADD COLUMN "sealedHeaders" TEXT',
    'ALTER TABLE "bridges" ADD COLUMN "ca" TEXT',
    ...countText('bridges', 'sealedHeaders', 1),
    ...countText('bridges', 'ca', 1),
  ),
  sqlStep(
    '0049-chains-of-authorities',
    'ALTER TABLE "certificateAuthorities" ADD COLUMN "chain" TEXT',
    ...countText('certificateAuthorities', 'chain', 1),
  ),
  serialNumbers,
  sqlStep(
    '0051-versions-that-devices-run',
    'ALTER TABLE "devices" ADD COLUMN "firmwareVersionTime" TEXT',
    'ALTER TABLE "devices" ADD COLUMN "firmwareVersionSource" TEXT',
    'ALTER TABLE "deviceTemplates" ADD COLUMN "skipSameVersion" INTEGER NOT NULL DEFAULT 1',
  ),
  namesOfAuthorities,
  kindsOfCodes,
  support,
  sqlStep(
    '0055-declared-commands',
    `ALTER TABLE "deviceTemplates" ADD COLUMN "commands" TEXT NOT NULL DEFAULT '[]'`,
    'ALTER TABLE "deviceTemplates" ADD COLUMN "commandsOnly" INTEGER NOT NULL DEFAULT 0',
    ...countText('deviceTemplates', 'commands', 1),
  ),
  goingBack,
  sqlStep(
    '0057-primary-values',
    'ALTER TABLE "deviceTemplates" ADD COLUMN "primary" TEXT',
    ...countText('deviceTemplates', 'primary', 1),
  ),
  // Search finds devices by what their other fields say, where these begin: an index of long texts would be larger than they are.
  sqlStep(
    '0058-texts-of-fields',
    ...deviceTextIndex(
      'fields',
      'fields',
      (row) => `(SELECT group_concat(substr("value", 1, 100), char(10)) FROM json_each(${row}"fields")
        WHERE "key" <> 'name' AND "type" IN ('text', 'integer', 'real'))`,
    ),
  ),
  sqlStep(
    '0059-browsers-of-sessions',
    'ALTER TABLE "sessions" ADD COLUMN "browser" TEXT',
    ...countText('sessions', 'browser', 1),
  ),
  sqlStep(
    '0062-fleets',
    `CREATE TABLE "fleets" (${commonColumns}, "name" TEXT NOT NULL, "description" TEXT, "filter" TEXT NOT NULL,
      "organizationId" TEXT) STRICT`,
    `CREATE UNIQUE INDEX "fleets_name" ON "fleets" ("accountId", "name") WHERE "deleted" IS NULL`,
    `CREATE INDEX "fleets_organization" ON "fleets" ("organizationId")`,
    ...countRows('fleets', { row: 500, texts: { name: 2, description: 1, filter: 1 } }),
  ),
  commandsOfJobs,
  indexedFields,
  serialNumbers.withoutMarks,
  serialNumbers.composed,
  // A device that comes `later` than the stages of a continuous rollout, and one that has ceased to match its fleet (`left`).
  sqlStep(
    '0067-continuous-rollouts',
    'ALTER TABLE "firmwareRollouts" ADD COLUMN "continuous" INTEGER NOT NULL DEFAULT 0',
    'ALTER TABLE "firmwareDeliveries" ADD COLUMN "later" INTEGER NOT NULL DEFAULT 0',
    'ALTER TABLE "firmwareDeliveries" ADD COLUMN "left" INTEGER NOT NULL DEFAULT 0',
    `CREATE INDEX "firmwareRollouts_continuous" ON "firmwareRollouts" ("id") WHERE "continuous" = 1 AND "finished" IS NULL`,
    `CREATE INDEX "firmwareDeliveries_later" ON "firmwareDeliveries" ("rolloutId", "updated", "state") WHERE "later" = 1`,
  ),
];

/**
 * Brings the file at `path` up to date; who calls it has seen to a snapshot (db/files/schema.ts). Foreign keys are off meanwhile
 * and checked afterwards, and no table may lose rows unless the step says so. A failure leaves the file as it was.
 */
export async function migrate(path: string, migrations: readonly Migration[]): Promise<void> {
  const file = openSqlite(path);
  try {
    file.exec(
      'CREATE TABLE IF NOT EXISTS "migrations" ("name" TEXT NOT NULL PRIMARY KEY, "applied" TEXT NOT NULL) STRICT',
    );
    const applied = new Set(file.prepare<[], string>('SELECT "name" FROM "migrations"').pluck().all());
    const known = new Set(migrations.map((migration) => migration.name));
    for (const name of applied)
      if (!known.has(name))
        throw new Error(
          `${path} was made by a newer version: it has had the step ${name}. (slipway rollback goes back.)`,
        );
    const pending = migrations.filter((migration) => !applied.has(migration.name));
    if (pending.length === 0) return;

    // SQLite has no function for it.
    file.function('nfc', { deterministic: true }, (text) => String(text).normalize('NFC'));
    file.pragma('foreign_keys = OFF');
    file.exec('BEGIN EXCLUSIVE');
    try {
      for (const migration of pending) {
        const before = rowCounts(file);
        await applyTo(file, migration);
        checkRows(migration, before, rowCounts(file));
        file.prepare('INSERT INTO "migrations" VALUES (?, ?)').run(migration.name, new Date().toISOString());
      }
      const broken = file.pragma('foreign_key_check') as unknown[];
      if (broken.length > 0) throw new Error(`The migration of ${path} would break ${broken.length} references.`);
      file.exec('COMMIT');
    } catch (error) {
      file.exec('ROLLBACK');
      throw error;
    }
  } finally {
    file.close();
  }
}

/** The step speaks Kysely; the file's own transaction stays open around it. */
async function applyTo(file: Sqlite.Database, migration: Migration): Promise<void> {
  const db = new Kysely<unknown>({ dialect: SqliteDialect.within(file) });
  await migration.up(db);
}

/** Rows of ordinary tables: what indexes of text hold is made of those. */
function rowCounts(file: Sqlite.Database): Map<string, number> {
  const tables = file
    .prepare<[], string>(
      `SELECT "name" FROM pragma_table_list
       WHERE "schema" = 'main' AND "type" = 'table' AND "name" NOT LIKE 'sqlite_%'`,
    )
    .pluck()
    .all();
  const count = (table: string) => file.prepare<[], number>(`SELECT count(*) FROM "${table}"`).pluck().get() ?? 0;
  return new Map(tables.map((table) => [table, count(table)]));
}

function checkRows(migration: Migration, before: Map<string, number>, after: Map<string, number>): void {
  for (const [table, rows] of before) {
    const left = after.get(table) ?? 0;
    if (left < rows && !migration.mayLose?.includes(table))
      throw new Error(`The step ${migration.name} would lose ${rows - left} rows of ${table}.`);
  }
}
