/** registry.db of accounts that move. */
import { openSqlite } from '../../../db/sqlite/open.ts';
import { accountContents, fillTable, recordsGuard } from '../account-contents.ts';
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
      const guard = file.prepare<[], string>(recordsGuard.read).pluck().get();
      if (guard !== undefined) file.exec(recordsGuard.drop);
      for (const rule of registryRules) removeRows(file, rule);
      if (guard !== undefined) file.exec(guard);
    });
  } finally {
    file.close();
  }
}

/** Ids of all accounts of a registry, in order. */
export function accountIdsIn(path: string): string[] {
  const file = openSqlite(path, { readonly: true });
  try {
    return file.prepare<[], string>('SELECT "id" FROM "accounts" ORDER BY "id"').pluck().all();
  } finally {
    file.close();
  }
}

/** What a registry has of these accounts. */
export function readOwn(path: string, accounts: readonly string[]): ReturnType<typeof accountContents> {
  const file = openSqlite(path, { readonly: true });
  try {
    fillTable(file, 'moving', accounts);
    return accountContents(file);
  } finally {
    file.close();
  }
}
