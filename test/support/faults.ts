/** Faults and moments that no client can bring about. This is the only place, but for the start of a service, that reaches into it. */
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import type { OutboxChange } from '../../db/messages/outbox/rows.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import type { Service } from './service.ts';
import { storedRows } from './stored.ts';
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

/** Stores rows like the one with an id, as many as a client would need minutes for; each says what it has of its own. */
export async function storeMore(
  at: { directory: string },
  table: string,
  id: string,
  rows: object[],
  key = 'id',
): Promise<void> {
  const [like = {}] = storedRows(at, `SELECT * FROM "${table}" WHERE "${key}" = ?`, [id]);
  const names = Object.keys(like).filter((name) => !numbered.has(name));
  const columns = names.map((name) =>
    rows[0] && name in rows[0] ? `"one"."value" ->> '$.${name}'` : `"${table}"."${name}"`,
  );
  const statement = `INSERT INTO "${table}" (${names.map((name) => `"${name}"`)})
    SELECT ${columns} FROM json_each(?) AS "one", "${table}" WHERE "${table}"."${key}" = ?`;
  await changeStored(at, statement, [JSON.stringify(rows), id]);
}

/** Columns that SQLite counts. */
const numbered = new Set(['row', 'sequence']);

/** Stores what a connection of a device reports, as the broker does. */
export function notePresence(at: { directory: string }, deviceId: string, presence: object): Promise<void> {
  const names = Object.keys(presence).map((name) => `"${name}"`);
  const statement = `INSERT INTO "devicePresence" ("row", "account", ${names})
    SELECT "row", CASE WHEN "deleted" IS NULL THEN substr("accountId", 27) END, ${names.map(() => '?')}
    FROM "devices" WHERE "id" = ?
    ON CONFLICT ("row") DO UPDATE SET ${names.map((name) => `${name} = excluded.${name}`)}`;
  return changeStored(at, statement, [...Object.values(presence), deviceId]);
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

/** Makes a message that a bridge could not deliver. */
export async function leaveDeadLetter({ server }: Service, bridgeId: string, text: string): Promise<void> {
  const { messages } = server.ctx;
  const write = (change: OutboxChange) =>
    new Promise<void>((resolve, reject) => {
      messages.recordOutbox([change], (error) => (error ? reject(error) : resolve()));
    });
  const ids = { id: randomUUID(), deviceId: randomUUID(), deviceTemplateId: randomUUID(), organizationId: null };
  const message = { ...ids, channel: text, qos: 1, time: 0, payload: Buffer.from(text) };
  await write({ kind: 'add', accountId: randomUUID(), bridgeIds: [bridgeId], message });
  const sequences = messages.outbox.places(bridgeId, 'pending', 0, 1).map(({ sequence }) => sequence);
  await write({ kind: 'move', from: 'pending', to: 'dead', sequences, time: Date.now(), reason: text });
}
