import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { sql } from 'kysely';
import t from 'tap';
import { type Migration, migrate } from '../../db/migrations/index.js';
import { openSqlite } from '../../db/sqlite.js';
import { temporaryDirectory } from '../support/directory.js';

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

t.test('steps run once, and a snapshot of what was there is kept', async (t) => {
  const path = join(temporaryDirectory(t), 'm.db');
  await migrate(path, [first]);
  t.notOk(existsSync(`${path}.before-1`), 'nothing was there before the first');
  const second = step('2', 'ALTER TABLE a ADD COLUMN size INTEGER');
  await migrate(path, [first, second]);
  await migrate(path, [first, second]);
  t.equal(rows(path, 'SELECT id, size FROM a').length, 2);
  t.equal(rows(`${path}.before-2`, 'SELECT id FROM a').length, 2);
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
