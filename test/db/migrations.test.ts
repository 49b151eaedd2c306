import { statSync } from 'node:fs';
import { join } from 'node:path';
import { sql } from 'kysely';
import type { Test } from 'tap';
import { bringUpToDate, stepsHad } from '../../db/files/schema.ts';
import { snapshotsOf } from '../../db/files/snapshots.ts';
import { type Migration, migrate, registryMigrations } from '../../db/migrations/index.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const step = (name: string, ...statements: string[]): Migration => ({
  name,
  up: async (db) => {
    for (const statement of statements) await sql.raw(statement).execute(db);
  },
});
const first = step('1', 'CREATE TABLE a (id TEXT PRIMARY KEY)', "INSERT INTO a VALUES ('x'), ('y')");

function rows(path: string, query: string): unknown[] {
  const file = openSqlite(path, { readonly: true });
  try {
    return file.prepare(query).all();
  } finally {
    file.close();
  }
}

t.test('steps run once', async (t) => {
  const path = join(temporaryDirectory(t), 'm.db');
  await migrate(path, [first]);
  const second = step('2', 'ALTER TABLE a ADD COLUMN size INTEGER');
  await migrate(path, [first, second]);
  await migrate(path, [first, second]);
  t.equal(rows(path, 'SELECT id, size FROM a').length, 2);
});

/** Brings both files up to date, as the start of a server does. */
async function upgrade(directory: string, registry: Migration[], messages: Migration[]) {
  const steps = { 'registry.db': registry, 'messages.db': messages };
  await bringUpToDate(directory, 'registry.db', steps);
  await bringUpToDate(directory, 'messages.db', steps);
}

t.test('before an upgrade both files are copied together, and the newest two copies are kept', async (t) => {
  const directory = temporaryDirectory(t);
  const steps = ['2', '3', '4'].map((name) => step(name, `CREATE TABLE "of ${name}" (id TEXT)`));
  await upgrade(directory, [first], [first]);
  t.same(snapshotsOf(directory), [], 'a fresh directory makes none');
  await upgrade(directory, [first], [first]);
  t.same(snapshotsOf(directory), [], 'nothing to do makes none');
  for (const count of [1, 2, 3]) await upgrade(directory, [first, ...steps.slice(0, count)], [first]);
  const [newest, before, ...more] = snapshotsOf(directory).map(({ path }) => path);
  t.same(more, []);
  for (const [path, tables] of [
    [newest, 4],
    [before, 3],
  ] as const) {
    t.equal(
      rows(join(`${path}`, 'registry.db'), 'SELECT name FROM sqlite_schema WHERE sql IS NOT NULL').length,
      tables,
    );
    t.equal(rows(join(`${path}`, 'messages.db'), 'SELECT id FROM a').length, 2);
    t.equal(statSync(`${path}`).mode & 0o777, 0o700);
  }
});

t.test('an upgrade that fails and is tried again keeps the copy that was made before it', async (t) => {
  const directory = temporaryDirectory(t);
  await upgrade(directory, [first], [first]);
  const good = step('2', 'CREATE TABLE b (id TEXT)');
  const bad = step('2', 'CREATE TABLE');
  for (let tries = 0; tries < 3; tries += 1) await t.rejects(upgrade(directory, [first, good], [first, bad]));
  t.equal(rows(join(directory, 'registry.db'), "SELECT name FROM sqlite_schema WHERE name = 'b'").length, 1);
  const [made, ...more] = snapshotsOf(directory);
  t.same(more, []);
  t.same(stepsHad(join(`${made?.path}`, 'registry.db')), ['1'], 'half of it was done at the second try');
  await upgrade(directory, [first, good], [first, good]);
  t.equal(snapshotsOf(directory).length, 1);
  await upgrade(directory, [first, good], [first, good, step('3', 'CREATE TABLE c (id TEXT)')]);
  t.equal(snapshotsOf(directory).length, 2, 'the next upgrade has its own');
});

t.test('a step that would lose rows is refused and the file stays as it was', async (t) => {
  const path = join(temporaryDirectory(t), 'm.db');
  await migrate(path, [first]);
  const careless = step('2', 'CREATE TABLE b (id TEXT)', "DELETE FROM a WHERE id = 'x'");
  await t.rejects(migrate(path, [first, careless]), /would lose 1 rows of a/);
  t.equal(rows(path, 'SELECT id FROM a').length, 2);
  t.same(rows(path, "SELECT name FROM sqlite_schema WHERE name = 'b'"), []);
  await migrate(path, [first, { ...careless, mayLose: ['a'] }]);
  t.equal(rows(path, 'SELECT id FROM a').length, 1);
});

t.test('rebuilding a table does not delete what refers to it, and broken references are refused', async (t) => {
  const path = join(temporaryDirectory(t), 'm.db');
  const base = step(
    '1',
    'CREATE TABLE parent (id TEXT PRIMARY KEY)',
    'CREATE TABLE child (id TEXT PRIMARY KEY, parent TEXT REFERENCES parent (id) ON DELETE CASCADE)',
    "INSERT INTO parent VALUES ('p')",
    "INSERT INTO child VALUES ('c', 'p')",
  );
  await migrate(path, [base]);
  const rebuild = step(
    '2',
    'CREATE TABLE parent_new (id TEXT PRIMARY KEY, name TEXT)',
    "INSERT INTO parent_new SELECT id, 'n' FROM parent",
    'DROP TABLE parent',
    'ALTER TABLE parent_new RENAME TO parent',
  );
  await migrate(path, [base, rebuild]);
  t.same(rows(path, 'SELECT * FROM child'), [{ id: 'c', parent: 'p' }]);
  const orphan = step('3', "UPDATE child SET parent = 'nobody'");
  await t.rejects(migrate(path, [base, rebuild, orphan]), /would break 1 references/);
});

t.test('a file of a newer version is not touched', async (t) => {
  const path = join(temporaryDirectory(t), 'm.db');
  await migrate(path, [first, step('9', 'CREATE TABLE future (id TEXT)')]);
  await t.rejects(migrate(path, [first]), /newer version/);
});

const stamps = { created: '', createdById: '', lastModified: '', lastModifiedById: '', version: 1, deleted: null };
const common = { ...stamps, accountId: 'A', deviceTemplateId: 'T', provisioningState: 'defined', fields: '{}' };

/** A registry as it was before a step, with an account and a template. */
async function registryBefore(t: Test, name: string) {
  const path = join(temporaryDirectory(t), 'registry.db');
  const step = registryMigrations.findIndex((one) => one.name === name);
  await migrate(path, registryMigrations.slice(0, step));
  const file = openSqlite(path);
  const add = (table: string, row: object) => {
    const names = Object.keys(row);
    file
      .prepare(
        `INSERT INTO "${table}" (${names.map((name) => `"${name}"`)}) VALUES (${names.map((name) => `@${name}`)})`,
      )
      .run(row);
  };
  add('accounts', { id: 'A', name: 'A', created: '' });
  add('deviceTemplates', { ...stamps, accountId: 'A', id: 'T', name: 'T', default: 1, fields: '{}' });
  return { path, file, add };
}

t.test('refusals that were there before keep what was known of who was refused', async (t) => {
  const { path, file, add } = await registryBefore(t, '0011-refused-principals');
  add('devices', { ...common, id: 'D', serialNumber: 'S', connected: 0 });
  for (const byDevice of [1, 0])
    add('refusals', { deviceId: 'D', time: '', action: 'connect', reason: 'r', code: 4, byDevice });
  file.close();
  await migrate(path, registryMigrations);
  t.same(rows(path, 'SELECT "principalType", "principalId" FROM "refusals" ORDER BY "sequence"'), [
    { principalType: 'device', principalId: 'D' },
    { principalType: null, principalId: null },
  ]);
});

t.test('devices that were there before a step are counted and found by it', async (t) => {
  const { path, file, add } = await registryBefore(t, '0004-text');
  for (const [id, serialNumber, firmwareVersion, deleted] of [
    ['1', 'STRAẞE', null, null],
    ['2', 'ÉÉ', 'V1', null],
    ['3', 'éé gone', 'V1', '2026-01-01'],
  ])
    add('devices', { ...common, id, serialNumber, firmwareVersion, deleted, connected: 0 });
  file.close();

  await migrate(path, registryMigrations);
  t.same(rows(path, 'SELECT * FROM "deviceCounts"'), [
    { accountId: 'A', deviceTemplateId: 'T', provisioningState: 'defined', connected: 0, count: 2 },
  ]);
  t.match(rows(path, 'SELECT * FROM "placedDeviceCounts"'), [{ organizationId: '', count: 2 }]);
  // A part of no more than three characters is a word of the index, behind the key of its account: nothing, for 'A'.
  const found = (text: string) =>
    rows(path, `SELECT "doc" FROM "devices_serialNumber_terms" WHERE "term" = '${text}'`).map((row) =>
      Object.values(row as object),
    );
  t.same([found('ass'), found('éé'), found('é ')], [[[1]], [[1]], []]);
  t.match(rows(path, 'SELECT * FROM "firmwareVersionCounts"'), [{ firmwareVersion: 'V1', count: 1 }]);
});

t.test(
  'serial numbers lose what nobody sees at their ends and are composed; of two enrollments of one group the second stays',
  async (t) => {
    const { path, file, add } = await registryBefore(t, '0050-serial-numbers');
    for (const [id, serialNumber] of [
      ['1', '\u00a0SN 1\r\n'],
      ['2', 'SN-2'],
      ['3', '\ufeffSN-3\u3000\u0085'],
      ['4', ' \u00a0'],
      ['5', '\u200e SN-5\u202c'],
      ['6', 'SN-e\u0301'],
      ['7', 'SN-\u00f6'],
      ['8', 'SN-o\u0308'],
    ])
      add('devices', { ...common, id, serialNumber });
    add('enrollmentGroups', {
      ...{
        ...stamps,
        accountId: 'A',
        id: 'G',
        name: 'G',
        deviceTemplateId: 'T',
        proof: '',
        issues: '',
        reprovision: '',
      },
      ...{
        serialNumberPattern: '',
        enrolledCount: 0,
        disabled: 0,
        certificateDays: 1,
        overlapDays: 1,
        isHookSecretMade: 0,
      },
    });
    const enrollment = { groupId: 'G', accountId: 'A', enrolled: common.created, used: 0, permitted: 0 };
    for (const [deviceId, serialNumber] of [
      ['1', 'SN-1 '],
      ['2', 'SN-2'],
      ['3', 'SN-2\r'],
      ['5', 'SN-5\u202c'],
      ['6', 'SN-e\u0301'],
      ['7', 'SN-\u00f6'],
      ['8', 'SN-o\u0308'],
    ])
      add('enrollments', { ...enrollment, deviceId, serialNumber });
    file.close();

    await migrate(path, registryMigrations);
    const kept = (table: string) =>
      rows(path, `SELECT "serialNumber" FROM "${table}"`).map((row) => (row as { serialNumber: string }).serialNumber);
    t.same(kept('devices'), ['SN 1', 'SN-2', 'SN-3', ' \u00a0', 'SN-5', 'SN-\u00e9', 'SN-\u00f6', 'SN-\u00f6']);
    t.same(kept('enrollments').sort(), ['SN-1', 'SN-2', 'SN-2\r', 'SN-5', 'SN-o\u0308', 'SN-\u00e9', 'SN-\u00f6']);
  },
);

t.test('what was known of connections is kept by the step that moves it', async (t) => {
  const { path, file, add } = await registryBefore(t, '0023-presence');
  const seen = { lastConnected: '2026-01-02', externalIp: '10.0.0.1', reverseDns: 'a.example' };
  add('devices', { ...common, id: '1', serialNumber: '1', connected: 1, ...seen });
  add('devices', { ...common, id: '2', serialNumber: '2', connected: 0, ...seen, deleted: '2026-01-01' });
  add('devices', { ...common, id: '3', serialNumber: '3', connected: 0 });
  file.close();

  await migrate(path, registryMigrations);
  t.match(rows(path, 'SELECT * FROM "wholeDevices" ORDER BY "id"'), [
    { id: '1', connected: 1, ...seen, geoIpLatitude: null },
    { id: '2', connected: 0, ...seen },
    { id: '3', connected: 0, lastConnected: null, externalIp: null },
  ]);
  t.equal(rows(path, 'SELECT * FROM "devicePresence"').length, 2, 'one that never connected has none');
  t.equal(rows(path, 'SELECT * FROM "devicePresence" WHERE "account" IS NOT NULL').length, 1, 'none in the trash');
  t.match(rows(path, 'SELECT "connected", "count" FROM "deviceCounts" ORDER BY "connected"'), [
    { connected: 0, count: 1 },
    { connected: 1, count: 1 },
  ]);
});

t.test('CAs from before are active; what an audit record says of passwords and addresses counts', async (t) => {
  const { path, file, add } = await registryBefore(t, '0016-proofs');
  const dates = { validFrom: '', validTo: '' };
  const ca = { name: 'CA', certificate: '', fingerprint: 'f', subject: 's', ...dates, createDevices: 0 };
  add('certificateAuthorities', { ...stamps, accountId: 'A', id: 'CA', ...ca });
  const person = (id: string, emailUnproven: 0 | 1, passwordHash: string | null = 'h') =>
    add('identities', { id, accountId: 'A', email: id, emailKey: id, passwordHash, created: '', emailUnproven });
  person('stranger', 1);
  for (const id of ['owner', 'mover', 'admin', 'linked', 'end-user']) person(id, 0);
  person('invited', 0, null);
  add('accountUsers', { ...stamps, accountId: 'A', id: 'AU', userId: 'admin' });
  add('federatedIdentities', { accountId: 'A', issuer: 'i', subject: 's', userId: 'linked', created: '' });
  const record = (event: string, targetId: string, details: object) =>
    add('auditRecords', {
      ...{ id: `${event} ${targetId}`, accountId: 'A', time: '', event, outcome: 'success', targetId },
      details: JSON.stringify(details),
    });
  for (const id of ['owner', 'mover']) record('passwordChanged', id, { with: 'token' });
  record('emailChanged', 'mover', {});
  file.close();
  await migrate(path, registryMigrations);
  t.same(rows(path, 'SELECT "state", "challenge" FROM "certificateAuthorities"'), [
    { state: 'active', challenge: null },
  ]);
  const found = rows(path, 'SELECT "id", "emailConfirmed", "passwordChosenBy" FROM "identities" ORDER BY "id"');
  t.same(
    found.map((row) => Object.values(row as object)),
    [
      ['admin', 0, 'operator'],
      ['end-user', 0, 'admin'],
      ['invited', 0, null],
      ['linked', 1, 'admin'],
      ['mover', 1, 'other'],
      ['owner', 1, 'owner'],
      ['stranger', 0, 'other'],
    ],
  );
});

t.test('CAs from before are found by the name that their certificates have as issuer', async (t) => {
  const { path, file, add } = await registryBefore(t, '0052-names-of-authorities');
  const dates = { validFrom: '', validTo: '' };
  for (const [id, subject] of [
    'O=Acme\\, Inc, CN=Root',
    'O=ACME\\,  inc, CN=root',
    'O=Acme, CN=Inc, CN=Root',
  ].entries()) {
    const ca = { name: subject, certificate: '', fingerprint: subject, subject, ...dates, createDevices: 0 };
    add('certificateAuthorities', { ...stamps, accountId: 'A', id: String(id), ...ca });
  }
  file.close();
  await migrate(path, registryMigrations);
  const found = rows(path, 'SELECT "subjectHash" AS "hash" FROM "certificateAuthorities" ORDER BY "id"');
  const [one, same, other] = found as { hash: string }[];
  t.match(one?.hash, /^[0-9a-f]{64}$/);
  t.equal(one?.hash, same?.hash);
  t.not(one?.hash, other?.hash);
});

t.test('codes from before are those of labels, and count for their account as before', async (t) => {
  const { path, file, add } = await registryBefore(t, '0053-kinds-of-codes');
  for (const id of ['one', 'other']) {
    add('devices', { ...common, id, serialNumber: id });
    const code = { deviceId: id, accountId: 'A', codeHash: `hash of ${id}`, created: '', createdById: 'x' };
    add('associationCodes', { ...code, keepHistory: id === 'one' ? 1 : 0 });
  }
  const bytes = `SELECT "amount" FROM "kept" WHERE "accountId" = 'A' AND "what" = 'entityBytes'`;
  const before = file.prepare(bytes).all();
  file.close();
  const kinds = registryMigrations.filter(({ name }) => name <= '0053-kinds-of-codes');
  await migrate(path, kinds);
  t.same(
    rows(path, 'SELECT "deviceId", "kind", "keepHistory", "expires" FROM "associationCodes" ORDER BY "deviceId"'),
    [
      { deviceId: 'one', kind: 'label', keepHistory: 1, expires: null },
      { deviceId: 'other', kind: 'label', keepHistory: 0, expires: null },
    ],
  );
  t.same(rows(path, bytes), before);
});

t.end();
