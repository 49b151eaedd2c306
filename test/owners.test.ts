/**
 * Who pays for what: for each table of both databases the amounts that count it for its account, or why it needs none. The test writes
 * and removes a row of each, and sees the amounts change as this says.
 */
import { join } from 'node:path';
import { Kysely } from 'kysely';
import type { Test } from 'tap';
import type { DatabaseName } from '../db/files/copies.ts';
import { bringUpToDate } from '../db/files/schema.ts';
import { MessageStore } from '../db/messages/store.ts';
import { entityColumns, entityTables } from '../db/registry/records/by-table.ts';
import type { Column as RecordColumn } from '../db/registry/records/columns.ts';
import type { RegistryTable, Tables } from '../db/registry/records.ts';
import { SqliteDialect, transact } from '../db/sqlite/dialect.ts';
import { openSqlite } from '../db/sqlite/open.ts';
import { type Kept, registryBytes } from '../src/core/limits/kept.ts';
import type { LimitName } from '../src/core/limits/table.ts';
import { maxUnderWay as maxFederatedLogins } from '../src/identity/federation/routes.ts';
import { mfaMethods, recoveryCodes } from '../src/identity/mfa/factors.ts';
import { maxUnderWay as maxMfaLogins } from '../src/identity/mfa/login.ts';
import { makeMailedToken } from '../src/identity/secrets/mailed-tokens.ts';
import { temporaryDirectory } from './support/directory.ts';
import { part } from './support/part.ts';

const t = await part(import.meta);

type Amount = Kept | 'heldBytes' | 'mqttRetainedUse';

type Owner =
  /** What triggers count of a row, all of which the share of the disk sums; and smaller limits. */
  | { counts: readonly Amount[]; and?: readonly LimitName[] }
  /** Rows of another table, which is counted, bound these: one for each of its rows and each other value of the key. */
  | { within: string; key: readonly string[] }
  /** At most so many for each of its rows. */
  | { within: string; most: number }
  /** Its rows are counted with those of another table, which is told how many there are. */
  | { within: string; limits: readonly LimitName[] }
  /** A test of its own says that they are counted. */
  | { shownBy: string; and: readonly LimitName[] }
  | { because: string };

const entity = { counts: ['entityBytes'] } as const;
const mailed = 'a person has one token for each purpose';
const derived = 'triggers keep it: a row for each state of what has rows';

const registryOwners: Readonly<Record<RegistryTable, Owner>> = {
  accounts: { because: 'the operator makes accounts' },
  brandings: entity,
  identities: entity,
  sessions: { ...entity, and: ['sessions'] },
  accessTokens: { ...entity, and: ['accessTokens'] },
  applications: entity,
  mailedTokens: { shownBy: mailed, and: [] },
  mfaMethods: { within: 'identities', most: mfaMethods.length },
  recoveryCodes: { within: 'identities', most: recoveryCodes },
  mfaLogins: { within: 'identities', most: maxMfaLogins },
  identityProviders: entity,
  bridges: entity,
  federatedIdentities: entity,
  scimUsers: entity,
  scimGroups: entity,
  scimMembers: entity,
  federatedLogins: { within: 'identityProviders', most: maxFederatedLogins },
  auditRecords: { counts: ['auditRecords'], and: ['auditRecords'] },
  accountUsers: entity,
  deviceTemplates: entity,
  endUserTemplates: entity,
  organizationTemplates: entity,
  channelTemplates: { ...entity, and: ['channelTemplates'] },
  customFields: { ...entity, and: ['customFields'] },
  organizations: entity,
  roles: { ...entity, and: ['roles'] },
  endUsers: { ...entity, and: ['endUsersPerPerson'] },
  fleets: entity,
  devices: entity,
  devicePresence: { within: 'devices', key: ['row'] },
  credentials: entity,
  certificates: entity,
  revokedCertificates: entity,
  renewals: { within: 'devices', key: ['deviceId'] },
  revocationListParts: entity,
  certificateAuthorities: entity,
  enrollmentGroups: entity,
  enrollments: entity,
  enrollmentRefusals: entity,
  publications: { within: 'devices', key: ['deviceId'] },
  verifications: { counts: ['verifications'], and: ['verifications'] },
  jobs: { counts: ['jobs', 'jobRows', 'jobRowBytes'], and: ['jobs'] },
  jobRows: { within: 'jobs', limits: ['jobRows', 'jobRowBytes'] },
  associationCodes: entity,
  supportRequests: entity,
  refusals: { counts: ['refusals'], and: ['refusals'] },
  deviceCounts: { because: derived },
  placedDeviceCounts: { because: derived },
  firmwareVersionCounts: { because: derived },
  fieldValues: { within: 'devices', most: 20 },
  idempotentAnswers: { counts: ['entityBytes', 'idempotentBytes'], and: ['idempotentBytes'] },
  firmwarePackages: entity,
  firmwareFiles: { counts: ['entityBytes', 'firmwareBytes'], and: ['firmwareBytes'] },
  firmwareUploads: { counts: ['entityBytes', 'firmwareBytes'], and: ['firmwareBytes'] },
  firmwareRollouts: { ...entity, and: ['firmwareRollouts'] },
  firmwareTargets: entity,
  firmwareDeliveries: entity,
  firmwareCounts: { because: derived },
  commands: { counts: ['commandBytes'], and: ['commandBytes', 'commands'] },
  commandCounts: { because: derived },
  kept: { because: 'a row for each account and amount' },
  activity: { counts: ['entityBytes'] },
  directoryMarks: { because: 'a row for each file that must be there' },
};

const held = { counts: ['heldBytes'] } as const;
const stored = 'points and log entries are counted for their account';

const messageOwners: Readonly<Record<string, Owner>> = {
  series: held,
  categories: held,
  points: { shownBy: stored, and: ['accountMessagesBytes'] },
  logs: { shownBy: stored, and: ['accountMessagesBytes'] },
  categoryMarks: { within: 'points', key: ['series', 'category', 'from'] },
  latePoints: { within: 'points', key: ['series', 'sequence'] },
  aheadPoints: { within: 'points', key: ['series', 'received', 'sequence'] },
  arrivals: { within: 'points', key: ['accountId', 'first'] },
  messageCounts: { within: 'accounts', key: ['accountId'] },
  heldBytes: { within: 'accounts', key: ['accountId'] },
  outbox: held,
  mqttSessions: { ...held, and: ['mqttStoredSessions'] },
  mqttSubscriptions: { ...held, and: ['mqttFilterBytes'] },
  mqttMessages: { ...held, and: ['mqttQueueBytes'] },
  mqttQueue: { within: 'mqttMessages', limits: ['mqttQueueBytes', 'mqttQueue'] },
  mqttIncoming: { within: 'mqttSessions', limits: ['mqttUnreleased'] },
  mqttRetained: { counts: ['heldBytes', 'mqttRetainedUse'], and: ['mqttRetainedBytes'] },
  mqttRetainedUse: { within: 'accounts', key: ['accountId'] },
  mqttWills: { ...held, and: ['mqttWillBytes'] },
  counters: { because: 'it has two rows' },
};

/** Tables of both files that no caller writes, and those in which SQLite keeps the indexes of texts: they have what their table has. */
const ownTables = /^(migrations|sqlite_.*|logsText(_.*)?|devices_\w+_(text(_\w+)?|terms))$/;

const accountId = '018f0000-0000-7000-8000-00000000000a';
const owners = { 'registry.db': registryOwners, 'messages.db': messageOwners } as const;
const amounts = {
  'registry.db': `SELECT "what", "amount" FROM "kept" WHERE "accountId" = '${accountId}'`,
  'messages.db': `SELECT 'heldBytes' AS "what", "bytes" AS "amount" FROM "heldBytes" WHERE "accountId" = '${accountId}'
    UNION ALL SELECT 'mqttRetainedUse', "count" FROM "mqttRetainedUse" WHERE "accountId" = '${accountId}'`,
} as const;

interface Column {
  name: string;
  type: string;
  pk: number;
}

async function open(t: Test, name: DatabaseName) {
  const directory = temporaryDirectory(t);
  await bringUpToDate(directory, name);
  const path = join(directory, name);
  const file = openSqlite(path);
  const db = new Kysely<Tables>({
    dialect: SqliteDialect.of({ writer: file, reader: openSqlite(path, { readonly: true }) }),
  });
  t.teardown(() => db.destroy());
  // A row of any table can be written alone.
  file.pragma('foreign_keys = OFF');
  file.pragma('ignore_check_constraints = ON');
  const columnsOf = (table: string) =>
    file.prepare<[string], Column>('SELECT "name", "type", "pk" FROM pragma_table_info(?)').all(table);
  const counted = () =>
    Object.fromEntries(
      file
        .prepare<[], { what: string; amount: number }>(amounts[name])
        .all()
        .filter(({ amount }) => amount > 0)
        .map(({ what, amount }) => [what, amount]),
    );
  /** Columns that no two rows have the same values of, joined. */
  const uniqueKeys = (table: string) => [
    columnsOf(table)
      .filter(({ pk }) => pk > 0)
      .sort((one, other) => one.pk - other.pk)
      .map((column) => column.name)
      .join(),
    ...file
      .prepare<[string], string>(
        `SELECT (SELECT group_concat("name") FROM pragma_index_info(l."name")) FROM pragma_index_list(?) AS l WHERE "unique"`,
      )
      .pluck()
      .all(table),
  ];
  const insert = (table: string, given: Record<string, string> = {}) => {
    const columns = columnsOf(table);
    const values = columns.map(({ name, type }) => given[name] ?? exampleOf(name, type));
    file
      .prepare(
        `INSERT INTO "${table}" (${columns.map(({ name }) => `"${name}"`)}) VALUES (${columns.map(() => '?').join()})`,
      )
      .run(values);
  };
  return { file, db, columnsOf, counted, uniqueKeys, insert };
}

/** A value that makes a row one of the account, and of what has number 1. */
function exampleOf(name: string, type: string): string | number | Buffer {
  if (name === 'accountId') return accountId;
  if (name === 'clientId') return `${accountId}/client`;
  if (name === 'fields') return '{}';
  if (type === 'BLOB') return Buffer.from('x');
  return type === 'TEXT' ? 'x' : 1;
}

for (const name of ['registry.db', 'messages.db'] as const)
  t.test(`every table of ${name} counts for its account, or has a reason why it need not`, async (t) => {
    const { file, db, counted, uniqueKeys, insert } = await open(t, name);
    const tables = file
      .prepare<[], string>(`SELECT "name" FROM pragma_table_list WHERE "schema" = 'main' AND "type" <> 'view'`)
      .pluck()
      .all()
      .filter((table) => !ownTables.test(table));
    const all: Record<string, Owner> = owners[name];
    t.same(Object.keys(all).sort(), tables.sort());
    if (name === 'registry.db') file.exec(`INSERT INTO "kept" VALUES ('', 'auditLimit', 0)`);
    for (const [table, owner] of Object.entries(all)) {
      if ('within' in owner) {
        t.ok(owner.within === 'accounts' || tables.includes(owner.within), `${table} is bounded by ${owner.within}`);
        if ('key' in owner)
          t.ok(uniqueKeys(table).includes(owner.key.join()), `${table} has one for each ${owner.key}`);
        if ('most' in owner) t.ok(owner.most > 0 && Number.isFinite(owner.most), `${table} has ${owner.most} at most`);
      }
      if (!('counts' in owner)) continue;
      // Subscriptions are counted for the account of their session.
      if (table === 'mqttSubscriptions') insert('mqttSessions');
      const before = counted();
      insert(table);
      const after = counted();
      const changed = Object.keys(after).filter((what) => after[what] !== before[what]);
      t.same(changed.sort(), [...owner.counts].sort(), `a row of ${table}`);
      if (name === 'registry.db')
        t.ok(
          (await registryBytes(db).execute()).some(({ bytes }) => bytes > 0),
          `the share of the disk has ${table}`,
        );
      file.exec(`DELETE FROM "${table}"`);
      t.same(counted(), before, `a row of ${table} that goes`);
      if (table === 'mqttSubscriptions') file.exec('DELETE FROM "mqttSessions"');
    }
  });

/** Texts that no caller makes long: the bytes of their row include them. */
const shortTexts = new Set([
  'applications.tokenHash',
  'certificateAuthorities.crlNumber',
  'certificateAuthorities.fingerprint',
  'certificateAuthorities.subjectHash',
  'certificates.fingerprint',
  'customFields.fieldType',
  'customFields.kind',
  'devices.firmwareVersionSource',
  'firmwarePackages.firmwareVersion',
  'firmwareRollouts.cursor',
  'firmwareRollouts.reason',
  'firmwareRollouts.refused',
]);

/** A text whose form bounds it: an id, a date, degrees, one of some words. */
function isBounded({ stored, marks }: RecordColumn): boolean {
  const schemas: { format?: string; enum?: unknown }[] = [stored, marks.body ?? {}, marks.shown || {}];
  const areDegrees = marks.form === 'latitude' || marks.form === 'longitude';
  return areDegrees || schemas.some((schema) => schema.format !== undefined || schema.enum !== undefined);
}

t.test('every text that makes a row of an entity long counts for its account', async (t) => {
  const { file, columnsOf, counted, insert } = await open(t, 'registry.db');
  const bytes = () => counted().entityBytes ?? 0;
  const plain = 'x'.repeat(10_000);
  const unused = new Set(shortTexts);
  for (const table of entityTables)
    for (const { name, type } of columnsOf(table)) {
      const column = (entityColumns[table] as Record<string, RecordColumn>)[name];
      if (type !== 'TEXT' || !column || isBounded(column) || unused.delete(`${table}.${name}`)) continue;
      // An index reads the name of a device in it.
      const long = name === 'fields' ? JSON.stringify({ plain }) : plain;
      insert(table);
      const short = bytes();
      file.prepare(`UPDATE "${table}" SET "${name}" = ?`).run(long);
      const changed = bytes();
      file.exec(`DELETE FROM "${table}"`);
      t.equal(bytes(), 0, `${table}.${name}: a row that goes`);
      insert(table, { [name]: long });
      t.ok(
        changed - short > long.length - 100 && bytes() === changed,
        `The bytes of ${table}.${name} are not counted. In the migration that adds the column, add ` +
          `...countText('${table}', '${name}', n) of db/migrations/entity-bytes.ts. n is 1 for the row and 1 for each index with it.`,
      );
      file.exec(`DELETE FROM "${table}"`);
    }
  t.same([...unused], [], 'columns that are gone, or bounded by their form');
});

t.test(stored, async (t) => {
  const store = await MessageStore.open(temporaryDirectory(t), {
    log: { error: (details) => t.fail('error', details) },
  });
  t.teardown(() => store.close());
  const key = { accountId, deviceId: 'd', channelTemplateId: 'c' };
  const point = { time: 1, category: 'c', numericValue: 1, stringValue: null };
  const entry = { id: 'e', accountId, deviceId: 'd', time: 1, received: 1, severity: 'info', message: null } as const;
  const rest = { code: null, details: null, tags: [], custom: null };
  await new Promise((resolve) => store.append(key, [point], resolve));
  const { bytes } = store.usage(accountId);
  t.ok(bytes > 0);
  await new Promise((resolve) => store.appendLog({ ...entry, ...rest }, resolve));
  t.ok(store.usage(accountId).bytes > bytes);
  const [account] = await store.heldByAccount();
  t.ok(account && account.bytes > store.usage(accountId).bytes, 'with its series and category');
  await store.deleteDevice('d');
  t.equal(store.usage(accountId).bytes, 0);
});

t.test(mailed, async (t) => {
  const { db } = await open(t, 'registry.db');
  for (let n = 0; n < 3; n += 1)
    await transact(db, (tx) => makeMailedToken(tx, { now: () => 0 }, { accountId, userId: 'user', kind: 'reset' }));
  t.equal((await db.selectFrom('mailedTokens').selectAll().execute()).length, 1);
});

t.end();
