/** How much an account keeps of what could grow without end, and the end of the oldest of it. */
import { sql } from 'kysely';
import type { Db } from '../../../db/registry/index.ts';
import { rowsOf } from '../../../db/registry/statement.ts';
import type { Limits } from './table.ts';

/** Amounts that triggers of the registry count for each account, under the names of their limits. */
export type Kept =
  | 'auditRecords'
  | 'verifications'
  | 'refusals'
  | 'commandBytes'
  | 'entityBytes'
  | 'firmwareBytes'
  | 'jobs'
  | 'jobRows'
  | 'jobRowBytes'
  | 'idempotentBytes';

/** Rows that are removed beyond those just added: a limit that was lowered is reached in steps. */
const catchUp = 20;

/** The order by age of the rows of a table, within an account. */
const byAge = {
  auditRecords: { key: 'sequence', order: ['time', 'sequence'] },
  verifications: { key: 'id', order: ['time', 'id'] },
  refusals: { key: 'sequence', order: ['sequence'] },
} as const;

/** What one of these takes on disk, about, with its places in indexes. */
const bytesOnDisk: Record<Kept, number> = {
  auditRecords: 750,
  verifications: 500,
  refusals: 500,
  jobs: 900,
  jobRows: 120,
  jobRowBytes: 1.5,
  idempotentBytes: 1,
  commandBytes: 1,
  entityBytes: 1,
  firmwareBytes: 1,
};

/** Rows that an account has there at most. */
export const amountsOfAccount = Object.keys(bytesOnDisk).length;

/** Finds what each account takes in the registry and as firmware, in bytes on disk, about. */
export function registryBytes(db: Db) {
  const each = sql.join(
    Object.entries(bytesOnDisk).map(([what, bytes]) => sql`when ${what} then ${bytes}`),
    sql` `,
  );
  return db
    .selectFrom('kept')
    .select(['accountId', sql<number>`sum("amount" * case "what" ${each} else 0 end)`.as('bytes')])
    .where('accountId', '<>', '')
    .groupBy('accountId');
}

const amountOf = 'SELECT "amount" FROM "kept" WHERE "accountId" = ? AND "what" = ?';

export async function keptOf(db: Db, accountId: string, what: Kept): Promise<number> {
  const [row] = await rowsOf<{ amount: number }>(db, amountOf, [accountId, what]);
  return row?.amount ?? 0;
}

/** Reads what `keptOf` gives. */
export function keptAmount(db: Db, accountId: string, what: Kept) {
  return db.selectFrom('kept').select('amount').where('accountId', '=', accountId).where('what', '=', what);
}

/** Removes the oldest rows of the account while it has more than its limit; call it where `added` rows have come. */
export async function keepNewest(
  db: Db,
  limits: Limits,
  table: keyof typeof byAge,
  accountId: string,
  added = 1,
): Promise<void> {
  const maximum = limits[table];
  if (maximum === 0) return;
  const over = (await keptOf(db, accountId, table)) - maximum;
  if (over <= 0) return;
  const { key, order } = byAge[table];
  if (table === 'auditRecords') await allowBeyond(db, maximum);
  const oldest = sql.join(order.map((column) => sql.ref(column)));
  // One after the other: of the audit record only the oldest can be removed.
  for (let left = Math.min(over, added + catchUp); left > 0; left -= 1)
    await sql`delete from ${sql.table(table)} where ${sql.ref(key)} =
      (select ${sql.ref(key)} from ${sql.table(table)} where "accountId" = ${accountId} order by ${oldest} limit 1)`.execute(
      db,
    );
}

/** Logins that are under way: the oldest of an identity, or of a provider, go when there are more than `most`. */
export async function keepLastLogins(
  db: Db,
  table: 'mfaLogins' | 'federatedLogins',
  of: { userId: string } | { providerId: string },
  most: number,
): Promise<void> {
  const [[column = '', id] = []] = Object.entries(of);
  await sql`delete from ${sql.table(table)} where rowid in (
    select rowid from ${sql.table(table)} where ${sql.ref(column)} = ${id}
    order by "expires" desc limit -1 offset ${most})`.execute(db);
}

/** Only the audit records beyond the limit in the registry can be removed. */
async function allowBeyond(db: Db, maximum: number): Promise<void> {
  await db
    .insertInto('kept')
    .values({ accountId: '', what: 'auditLimit', amount: maximum })
    .onConflict((conflict) => conflict.doUpdateSet({ amount: maximum }))
    .execute();
}
