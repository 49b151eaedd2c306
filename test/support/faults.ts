/** Faults and moments that no client can bring about. This is the only place, but for the start of a service, that reaches into it. */
import { join } from 'node:path';
import { openSqlite } from '../../db/sqlite/open.ts';
import type { Service } from './service.ts';
import { until } from './until.ts';

/** Runs when the registry is about to begin its next transaction, in the middle of the code that asked for it. */
export function beforeNextTransaction({ server }: Service, work: () => Promise<unknown>): void {
  const { registry } = server.ctx;
  const original = registry.transaction;
  registry.transaction = async (inner) => {
    registry.transaction = original;
    await work();
    return original.call(registry, inner) as never;
  };
}

/** Changes rows of `registry.db`, or of another database, as a program beside the service would. */
export async function changeStored(
  { directory }: { directory: string },
  statement: string,
  values: unknown[] = [],
  database = 'registry.db',
): Promise<void> {
  const file = openSqlite(join(directory, database));
  file.pragma('busy_timeout = 0');
  const change = file.prepare(statement);
  // A transaction of the service ends only when this thread goes on.
  await until(() => {
    try {
      change.run(...values);
      return true;
    } catch (error) {
      if ((error as { code?: string }).code !== 'SQLITE_BUSY') throw error;
      return false;
    }
  }).finally(() => file.close());
}

/** Adds copies of a row, as many as a caller would need hours for. `values` are SQL by column, with the number of the copy as "value". */
export function copyStored(
  at: { directory: string },
  table: string,
  row: object,
  count: number,
  values: Record<string, string>,
): Promise<void> {
  const columns = Object.keys(row);
  const [key = ''] = Object.keys(values);
  const copied = columns.map((column) => values[column] ?? `"${column}"`).join(', ');
  const numbers = `WITH RECURSIVE "numbers"("value") AS (SELECT 1 UNION ALL SELECT "value" + 1 FROM "numbers" LIMIT ${count})`;
  const statement = `${numbers} INSERT INTO "${table}" ("${columns.join('", "')}")
    SELECT ${copied} FROM "${table}", "numbers" WHERE "${key}" = ?`;
  return changeStored(at, statement, [row[key as keyof typeof row]]);
}

/** What `work` gives while a method of the registry fails. */
export async function whileRegistryFails<R>(
  { server }: Service,
  method: 'session' | 'transaction',
  error: Error,
  work: () => Promise<R>,
): Promise<R> {
  const { registry } = server.ctx;
  registry[method] = () => {
    throw error;
  };
  return work().finally(() => {
    delete (registry as Partial<typeof registry>)[method];
  });
}

/** What `work` gives while answers are not kept, as if the process ended after the commit. */
export async function losingAnswers<R>({ server }: Service, work: () => Promise<R>): Promise<R> {
  const { query } = server.ctx.registry;
  const { updateTable } = query;
  query.updateTable = ((table: string) => {
    if (table === 'idempotentAnswers') throw new Error('crash');
    return Reflect.apply(updateTable, query, [table]);
  }) as unknown as typeof updateTable;
  return work().finally(() => {
    query.updateTable = updateTable;
  });
}

/** What `work` gives while an audit record of this event, or of any, cannot be written. */
export async function whileRecordFails<R>({ server }: Service, work: () => Promise<R>, event?: string): Promise<R> {
  const { audit } = server.ctx;
  const { record } = audit;
  audit.record = async (db, entry) => {
    if (event === undefined || entry.event === event) throw new Error('no record today');
    await record.call(audit, db, entry);
  };
  return work().finally(() => {
    audit.record = record;
  });
}

/** Notes an entry of the audit record while a transaction is under way, and lets its write begin before that ends. */
export async function noteWithin({ server, accountId }: Service, details: Record<string, string>): Promise<void> {
  const { registry, audit } = server.ctx;
  await registry.transaction(async (tx) => {
    audit.note({ event: 'login', outcome: 'failure', accountId, details });
    await tx.selectFrom('accounts').select('id').execute();
  });
}

/** Ends what waits for events of devices, again and again while `work` lasts, as the end of the service does. */
export async function whileWatchesEnd<R>({ server }: Service, work: () => Promise<R>): Promise<R> {
  const ending = setInterval(() => server.ctx.streams.endWatches(), 10);
  return work().finally(() => clearInterval(ending));
}

/** Takes all places of long answers: how many others wait for one, and the end of it. */
export async function takeLongAnswers({ server, accountId }: Service) {
  const { longAnswers, config } = server.ctx;
  const lane = { accountId, callerId: 'deaf readers' };
  const places = Array.from({ length: config.limits.longAnswers }, () => longAnswers.enter(lane, 1));
  const leaves = await Promise.all(places);
  return {
    waiting: () => longAnswers.waiting,
    leave: () => {
      for (const leave of leaves) leave();
    },
  };
}

/** Makes the last commit of the registry a long time ago; whether there has been one since. */
export function forgetLastCommit({ server }: Service): () => boolean {
  const { commits } = server.ctx.registry.writer;
  commits.succeededAt = Number.NEGATIVE_INFINITY;
  return () => commits.succeededAt > Number.NEGATIVE_INFINITY;
}
