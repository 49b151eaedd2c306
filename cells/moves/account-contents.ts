/** What a registry has of accounts that move, live or between directories. */
import type Sqlite from 'better-sqlite3';

/** A temporary table with a column "id"; the same id may come twice. */
export function fillTable(file: Sqlite.Database, name: string, ids: readonly string[]): void {
  file.exec(`CREATE TEMP TABLE "${name}" ("id" TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID`);
  const add = file.prepare(`INSERT OR IGNORE INTO "temp"."${name}" VALUES (?)`);
  for (const id of ids) add.run(id);
}

/** Bridges, and the firmware on the disk: contents by SHA-256, uploads under way by name. The table "moving" has the accounts. */
export function accountContents(file: Sqlite.Database): { bridges: string[]; contents: string[]; uploads: string[] } {
  const list = (columns: string) =>
    file.prepare<[], string>(`SELECT DISTINCT ${columns} WHERE "accountId" IN "moving"`).pluck().all();
  return {
    bridges: list('"id" FROM "bridges"'),
    contents: list('"sha256" FROM "firmwareFiles"'),
    uploads: list('"partial" FROM "firmwareUploads"'),
  };
}

/** The name of a copy of a content while it is not whole. */
export function partialOf(sha256: string): string {
  return `move-${sha256}`;
}

/** Audit records cannot be deleted one by one. All of an account go after they were copied: without this trigger. */
export const recordsGuard = {
  read: `SELECT "sql" FROM "sqlite_schema" WHERE "name" = 'auditRecords_no_delete'`,
  drop: 'DROP TRIGGER "auditRecords_no_delete"',
};
