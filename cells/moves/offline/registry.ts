/** registry.db of accounts that move. */
import { openSqlite } from '../../../db/sqlite/open.ts';
import { registryRules } from '../tables.ts';
import { compare, copyRows, inTransaction, openForMove, removeRows, type Sums } from './rows.ts';

/** Rows of the registry get new numbers from their columns. */
const noOffsets = { series: 0, sequence: 0, session: 0, message: 0 };

/** Copies the rows of the accounts in one transaction, and compares them. */
export function copyRegistry(path: string, source: string, accounts: readonly string[]): Sums {
  const file = openForMove(path, accounts, source);
  try {
    inTransaction(file, () => {
      for (const rule of registryRules.toReversed()) copyRows(file, rule, noOffsets);
    });
    return compare(file, registryRules, noOffsets);
  } finally {
    file.close();
  }
}

/** Removes all rows of the accounts, in one transaction. */
export function removeRegistry(path: string, accounts: readonly string[]): void {
  const file = openForMove(path, accounts);
  try {
    inTransaction(file, () => {
      // Records cannot be deleted one by one; here all of an account go, after they were copied.
      const guard = file
        .prepare<[], string>(`SELECT "sql" FROM "sqlite_schema" WHERE "name" = 'auditRecords_no_delete'`)
        .pluck()
        .get();
      if (guard !== undefined) file.exec('DROP TRIGGER "auditRecords_no_delete"');
      for (const rule of registryRules) removeRows(file, rule);
      if (guard !== undefined) file.exec(guard);
    });
  } finally {
    file.close();
  }
}

/** Ids of all accounts of a registry, of the bridges of these accounts, and the firmware that they have. */
export function readOf(path: string, accounts: readonly string[]) {
  const file = openSqlite(path, { readonly: true });
  try {
    const own = JSON.stringify(accounts);
    const list = (sql: string, ...parameters: string[]) =>
      file
        .prepare<string[], string>(sql)
        .pluck()
        .all(...parameters);
    const mine = '"accountId" IN (SELECT "value" FROM json_each(?))';
    return {
      accounts: list('SELECT "id" FROM "accounts" ORDER BY "id"'),
      bridges: list(`SELECT "id" FROM "bridges" WHERE ${mine}`, own),
      contents: list(`SELECT DISTINCT "sha256" FROM "firmwareFiles" WHERE ${mine}`, own),
      uploads: list(`SELECT "partial" FROM "firmwareUploads" WHERE ${mine}`, own),
    };
  } finally {
    file.close();
  }
}
